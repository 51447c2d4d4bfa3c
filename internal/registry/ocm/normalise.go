package ocm

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cyberphone/json-canonicalization/go/src/webpki.org/jsoncanonicalizer"
)

// A normalisation algorithm converts a descriptor to bytes. A signature of a descriptor signs the digest of the
// normalised bytes.
const (
	normalisation1       = "jsonNormalisation/v1"
	normalisation2       = "jsonNormalisation/v2"
	normalisation3       = "jsonNormalisation/v3"
	Normalisation4alpha1 = "jsonNormalisation/v4alpha1"
)

// content is the description of a component, from a descriptor with either schema. The installation of a component and
// the verification of its signatures use the same parsed content. Because descriptors have only one parser, an attacker
// cannot write a descriptor that is read in one way for the signature and in another way for the installation.
type content struct {
	Name         string          `json:"name"`
	Version      string          `json:"version"`
	Labels       []elementLabel  `json:"labels"`
	CreationTime string          `json:"creationTime"`
	Provider     json.RawMessage `json:"provider"` // a string, which may contain JSON, or an object
	Resources    []Element       `json:"resources"`
	Sources      []Element       `json:"sources"`
	References   []Element       `json:"componentReferences"`
}

// Element is a resource, a source or a reference in a descriptor.
type Element struct {
	Name          string            `json:"name"`
	Version       string            `json:"version"`
	ExtraIdentity map[string]string `json:"extraIdentity"`
	Labels        []elementLabel    `json:"labels"`
	Hints         json.RawMessage   `json:"referenceHints"`
	Type          string            `json:"type"`          // empty for a reference
	Relation      string            `json:"relation"`      // only for a resource
	ComponentName string            `json:"componentName"` // only for a reference
	Digest        *ElementDigest    `json:"digest"`
	Access        Access            `json:"access"`
}

type elementLabel struct {
	Name    string          `json:"name"`
	Version string          `json:"version"`
	Value   json.RawMessage `json:"value"`
	Signing any             `json:"signing"` // true, or "true"
	Merge   json.RawMessage `json:"merge"`
}

// ElementDigest is the digest of a resource, of a reference or of the descriptor itself.
type ElementDigest struct {
	HashAlgorithm          string `json:"hashAlgorithm"`
	NormalisationAlgorithm string `json:"normalisationAlgorithm"`
	Value                  string `json:"value"`
}

// Normalise converts a descriptor to the bytes from which the signed digest is computed. The bytes do not contain
// fields that may change when the component is copied between registries: access, repository contexts, and labels that
// are not marked as signed. The normalisation algorithms differ as the following list shows.
//
//   - v1: objects are converted to lists of single fields; the schema is included;
//     for schema v2, sources are omitted and extraIdentity is always included
//   - v2: canonical JSON (RFC 8785); resources with the same name have their version as extraIdentity
//   - v3, v4alpha1: canonical JSON (RFC 8785) without a changed extraIdentity
func Normalise(d *Descriptor, algorithm string) ([]byte, error) {
	switch algorithm {
	case normalisation1:
		tree := normalForm1(d)
		return json.Marshal(toEntryLists(tree))
	case normalisation2, normalisation3, Normalisation4alpha1:
	default:
		return nil, fmt.Errorf("normalisation %q is not supported", FirstLine(algorithm))
	}
	c := d.Component
	if algorithm == normalisation2 {
		c.Resources = distinguishByVersion(c.Resources)
	}
	form := c.formCommonToAllAlgorithms()
	form["provider"] = c.providerForm(true)
	form["sources"] = mapEach(c.Sources, Element.sourceForm)
	form["componentReferences"] = mapEach(c.References, Element.unfilteredReferenceForm)
	data, err := json.Marshal(map[string]any{"component": form})
	if err != nil {
		return nil, fmt.Errorf("encoding the descriptor: %w", err)
	}
	return jsoncanonicalizer.Transform(data)
}

// normalForm1 returns the normal form of a descriptor for the algorithm jsonNormalisation/v1, as a tree of JSON values.
// The normal form depends on the schema of the descriptor (v2 or v3).
func normalForm1(d *Descriptor) map[string]any {
	c := d.Component
	c.Resources = distinguishByVersion(c.Resources)
	form := c.formCommonToAllAlgorithms()
	if d.APIVersion == "" {
		for _, r := range form["resources"].([]any) {
			addNullExtraIdentity(r)
		}
		references := mapEach(c.References, Element.referenceForm)
		for _, r := range references {
			addNullExtraIdentity(r)
		}
		form["componentReferences"], form["provider"] = references, c.providerForm(true)
		if p, ok := form["provider"].(map[string]any); ok && !c.providerIsObject() {
			form["provider"] = p["name"]
		}
		return map[string]any{"component": form, "meta": map[string]any{"schemaVersion": d.Meta.SchemaVersion}}
	}
	spec := map[string]any{}
	if len(c.Resources) > 0 {
		spec["resources"] = form["resources"]
	}
	if len(c.Sources) > 0 {
		spec["sources"] = mapEach(c.Sources, Element.sourceForm)
	}
	if len(c.References) > 0 {
		spec["references"] = mapEach(c.References, Element.referenceForm)
	}
	delete(form, "resources")
	form["provider"] = c.providerForm(false) // labels of the provider are not filtered in this schema
	return map[string]any{"apiVersion": d.APIVersion, "kind": d.Kind, "metadata": form, "spec": spec}
}

func addNullExtraIdentity(e any) {
	if e := e.(map[string]any); e["extraIdentity"] == nil {
		e["extraIdentity"] = nil
	}
}

// formCommonToAllAlgorithms returns the fields of the component that every normalisation algorithm includes.
func (c content) formCommonToAllAlgorithms() map[string]any {
	form := map[string]any{"name": c.Name, "version": c.Version, "resources": mapEach(c.Resources,
		Element.resourceForm)}
	if labels := normalLabels(c.Labels, true); len(labels) > 0 {
		form["labels"] = labels
	}
	if c.CreationTime != "" {
		form["creationTime"] = c.CreationTime
	}
	return form
}

// providerObject returns the decoded provider of the component. In a descriptor, the provider is a JSON object, a
// string with the text of a JSON object, or a string with the name of the provider.
func (c content) providerObject() (text string, object map[string]json.RawMessage) {
	if json.Unmarshal(c.Provider, &text) == nil {
		_ = json.Unmarshal([]byte(text), &object) // a text that is not an object is the name of the provider
		return text, object
	}
	_ = json.Unmarshal(c.Provider, &object)
	return "", object
}

func (c content) providerIsObject() bool {
	_, object := c.providerObject()
	return object != nil
}

func (c content) providerForm(signedLabelsOnly bool) map[string]any {
	text, object := c.providerObject()
	if object == nil {
		return map[string]any{"name": text}
	}
	var p struct {
		Name   string         `json:"name"`
		Labels []elementLabel `json:"labels"`
	}
	if data, err := json.Marshal(object); err != nil || json.Unmarshal(data, &p) != nil {
		return map[string]any{"name": text}
	}
	form := map[string]any{"name": p.Name}
	if labels := normalLabels(p.Labels, signedLabelsOnly); len(labels) > 0 {
		form["labels"] = labels
	}
	return form
}

func (e Element) resourceForm() map[string]any {
	form := e.commonForm(true)
	form["type"] = e.Type
	if e.Relation != "" {
		form["relation"] = e.Relation
	}
	if e.Access.Type == "none" || e.Access.Type == "None" {
		delete(form, "digest")
	}
	return form
}

func (e Element) sourceForm() map[string]any {
	form := e.commonForm(true)
	delete(form, "digest")
	form["type"] = e.Type
	return form
}

func (e Element) referenceForm() map[string]any {
	form := e.commonForm(true)
	delete(form, "referenceHints")
	form["componentName"] = e.ComponentName
	return form
}

// unfilteredReferenceForm returns the normalised form of a component reference with all its labels, even those that are
// not marked as signed. The specification says that the normalised form leaves out labels that are not marked as
// signed, but the OCM tools include these labels.
func (e Element) unfilteredReferenceForm() map[string]any {
	form := e.commonForm(false)
	delete(form, "referenceHints")
	form["componentName"] = e.ComponentName
	return form
}

// commonForm returns the normalised form of those fields that resources, sources and references have in common. If the
// parameter signedLabelsOnly is true, the result contains only labels that are marked as signed.
func (e Element) commonForm(signedLabelsOnly bool) map[string]any {
	form := map[string]any{"name": e.Name, "version": e.Version}
	if len(e.ExtraIdentity) > 0 {
		identity := map[string]any{}
		for k, v := range e.ExtraIdentity {
			identity[k] = v
		}
		form["extraIdentity"] = identity
	}
	if labels := normalLabels(e.Labels, signedLabelsOnly); len(labels) > 0 {
		form["labels"] = labels
	}
	if hints, ok := decodeWithoutNullFields(e.Hints).([]any); ok && len(hints) > 0 {
		form["referenceHints"] = hints
	}
	if e.Digest != nil {
		form["digest"] = map[string]any{"hashAlgorithm": e.Digest.HashAlgorithm,
			"normalisationAlgorithm": e.Digest.NormalisationAlgorithm, "value": e.Digest.Value}
	}
	return form
}

// normalLabels returns the labels that are marked as signed. If signedOnly is false, normalLabels returns all labels.
func normalLabels(labels []elementLabel, signedOnly bool) []any {
	var kept []any
	for _, l := range labels {
		marked := l.Signing == true || l.Signing == "true"
		if signedOnly && !marked {
			continue
		}
		form := map[string]any{"name": l.Name}
		if value := decodeWithoutNullFields(l.Value); value != nil {
			form["value"] = value
		}
		if l.Version != "" {
			form["version"] = l.Version
		}
		if marked {
			form["signing"] = l.Signing
		}
		if merge := decodeWithoutNullFields(l.Merge); merge != nil && !signedOnly {
			form["merge"] = merge
		}
		kept = append(kept, form)
	}
	return kept
}

// decodeWithoutNullFields decodes a JSON value of any type. Fields that are null are left out, as the algorithms
// require.
func decodeWithoutNullFields(data json.RawMessage) any {
	var v any
	if len(data) == 0 || json.Unmarshal(data, &v) != nil {
		return nil
	}
	return removeNullFields(v)
}

func removeNullFields(v any) any {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(_ string, field any) bool { return field == nil })
		for k, field := range v {
			v[k] = removeNullFields(field)
		}
	case []any:
		for i, e := range v {
			v[i] = removeNullFields(e)
		}
	}
	return v
}

// distinguishByVersion adds the version to the extraIdentity of a resource if another resource has the same name and
// the same extraIdentity. The last of several resources with the same name and extraIdentity stays unchanged, as in
// early OCM tools. Early OCM tools added the version to these resources one after another. When only the last of these
// resources was left, no other resource had the same name and extraIdentity any more.
func distinguishByVersion(resources []Element) []Element {
	resources = slices.Clone(resources)
	same := map[string][]int{} // indexes of resources, by name and extraIdentity
	keys := make([]string, len(resources))
	for i, r := range resources {
		keys[i] = nameAndExtraIdentityOf(r)
		same[keys[i]] = append(same[keys[i]], i)
	}
	for i := range resources {
		of := same[keys[i]]
		if len(of) < 2 {
			continue
		}
		same[keys[i]] = of[1:] // removes i, which is always the first index
		identity := map[string]string{}
		maps.Copy(identity, resources[i].ExtraIdentity)
		identity["version"] = resources[i].Version
		resources[i].ExtraIdentity = identity
	}
	return resources
}

func nameAndExtraIdentityOf(r Element) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q", r.Name)
	for _, k := range slices.Sorted(maps.Keys(r.ExtraIdentity)) {
		fmt.Fprintf(&b, " %q=%q", k, r.ExtraIdentity[k])
	}
	return b.String()
}

func mapEach[T any](list []T, form func(T) map[string]any) []any {
	out := []any{}
	for _, e := range list {
		out = append(out, form(e))
	}
	return out
}

// toEntryLists converts each object to a list of objects with one field each, sorted by the name of the field.
func toEntryLists(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := []any{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out = append(out, map[string]any{k: toEntryLists(v[k])})
		}
		return out
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, toEntryLists(e))
		}
		return out
	}
	return v
}
