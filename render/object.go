package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/render/input"
)

// Object is one Kubernetes object, encoded once. An Object must not be changed and is safe for concurrent use.
type Object struct {
	// GVK is the group, version and kind of the object.
	GVK schema.GroupVersionKind
	// Namespace is the namespace of the object in the artefact, or "" if the object has none in the artefact.
	Namespace string
	// Name is the name of the object; an object always has one.
	Name string

	labels, annotations []pair // sorted by key
	digest              string
	crd                 *CRD

	// The field data is the whole object as JSON, without its namespace. The fields maps, name and tail are offsets in
	// data. At these offsets, AppendJSON inserts the labels and annotations of an Overlay and the namespace, as the
	// example shows.
	//
	//	{"apiVersion":"v1","kind":"Pod","metadata":{ "annotations":{…},"labels":{…}, "name":"a" ,"finalizers":[…]},"spec":…}
	//	                                            ^maps                             ^name      ^tail
	data             []byte
	maps, name, tail int
}

// pair is one label or annotation.
type pair struct{ key, value string }

// Overlay contains the labels and annotations that differ between runtimes. The labels and annotations of the Overlay
// override those of the object.
type Overlay struct {
	Labels, Annotations map[string]string
}

// CRD describes the kind that one CustomResourceDefinition defines.
type CRD struct {
	Group, Kind, Plural string
	// Namespaced is false for kinds with cluster scope.
	Namespaced bool
	// Versions are the served versions, in the order of the artefact. The caller must not modify Versions.
	Versions []string
}

// serverFields are the metadata fields that only an API server sets. The package removes serverFields from every
// object, because applying one of them would fail or do harm; see the package comment.
var serverFields = []string{"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp",
	"generation", "managedFields",
	"ownerReferences", "resourceVersion", "selfLink", "uid"}

// encodeObject returns the Object that encodes tree. The caller must have checked tree with ValidateObject.
func encodeObject(tree map[string]any, opts Options) (*Object, error) {
	metadata := tree["metadata"].(map[string]any)
	group, _ := schema.ParseGroupVersion(tree["apiVersion"].(string)) // ValidateObject has parsed it
	o := &Object{
		GVK:         group.WithKind(tree["kind"].(string)),
		Name:        metadata["name"].(string),
		labels:      merge(metadata["labels"], opts.Labels),
		annotations: merge(metadata["annotations"], opts.Annotations),
		crd:         crdOf(tree),
	}
	o.Namespace, _ = metadata["namespace"].(string)

	rest, err := encodeMembersAfterComma(withoutKeys(metadata, append(
		[]string{"name", "namespace", "labels", "annotations"}, serverFields...)...))
	if err != nil {
		return nil, &Error{Code: InvalidObject, Object: input.Describe(tree),
			Problem: "metadata cannot be written as JSON", Cause: err}
	}
	body, err := encodeMembersAfterComma(withoutKeys(tree, "apiVersion", "kind", "metadata", "status"))
	if err != nil {
		return nil, &Error{Code: InvalidObject, Object: input.Describe(tree),
			Problem: "its content cannot be written as JSON", Cause: err}
	}

	b := append([]byte(nil), `{"apiVersion":`...)
	b = appendString(b, tree["apiVersion"].(string))
	b = append(b, `,"kind":`...)
	b = appendString(b, o.GVK.Kind)
	b = append(b, `,"metadata":{`...)
	o.maps = len(b)
	b = appendMapAndComma(b, "annotations", o.annotations, nil)
	b = appendMapAndComma(b, "labels", o.labels, nil)
	o.name = len(b)
	b = append(b, `"name":`...)
	b = appendString(b, o.Name)
	o.tail = len(b)
	b = append(b, rest...)
	b = append(b, '}')
	b = append(b, body...)
	o.data = slices.Clip(append(b, '}'))
	sum := sha256.Sum256(o.data)
	o.digest = "sha256:" + hex.EncodeToString(sum[:])
	return o, nil
}

// merge returns the labels or annotations of an object, sorted by key. The values in the argument over are added to
// those in the artefact, and override them.
func merge(have any, over map[string]string) []pair {
	set := map[string]string{}
	if tree, ok := have.(map[string]any); ok {
		for key, value := range tree {
			set[key], _ = value.(string)
		}
	}
	maps.Copy(set, over)
	if len(set) == 0 {
		return nil
	}
	pairs := make([]pair, 0, len(set))
	for _, key := range slices.Sorted(maps.Keys(set)) {
		pairs = append(pairs, pair{key, set[key]})
	}
	return pairs
}

// withoutKeys returns a shallow copy of tree in which some keys are missing.
func withoutKeys(tree map[string]any, drop ...string) map[string]any {
	out := make(map[string]any, len(tree))
	for key, value := range tree {
		if !slices.Contains(drop, key) {
			out[key] = value
		}
	}
	return out
}

// encodeMembersAfterComma returns the members of tree as JSON, with a comma before each member, so that they can be
// appended to other members. Keys are sorted.
func encodeMembersAfterComma(tree map[string]any) ([]byte, error) {
	if len(tree) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(tree); err != nil {
		return nil, err
	}
	members := bytes.TrimRight(b.Bytes(), "\n")
	members = members[:len(members)-1] // removes the closing brace
	members[0] = ','                   // replaces the opening brace
	return members, nil
}

// Label returns the value of a label, or "" if the object does not have this label.
func (o *Object) Label(key string) string { return lookup(o.labels, key) }

// Annotation returns the value of an annotation, or "" if the object does not have this annotation.
func (o *Object) Annotation(key string) string { return lookup(o.annotations, key) }

func lookup(pairs []pair, key string) string {
	i, found := slices.BinarySearchFunc(pairs, key, func(p pair, key string) int { return strings.Compare(p.key, key) })
	if !found {
		return ""
	}
	return pairs[i].value
}

// Digest returns a digest of the object's content, in the form "sha256:<hex>". The digest does not depend on the
// namespace and the Overlay (further labels and annotations) that AppendJSON adds for a runtime.
func (o *Object) Digest() string { return o.digest }

// CRD returns the kind that a CustomResourceDefinition defines, and false for every other object.
func (o *Object) CRD() (CRD, bool) {
	if o.crd == nil {
		return CRD{}, false
	}
	return *o.crd, true
}

// Size returns the length of the encoded object in bytes, without the namespace and the Overlay that AppendJSON adds.
func (o *Object) Size() int { return len(o.data) }

// AppendJSON appends the object as JSON to dst and returns the longer slice. The caller passes the namespace, because
// only a cluster knows which kinds are namespaced. If namespace is "", the JSON contains no namespace. Keys are sorted
// within each map, so equal arguments result in equal bytes. AppendJSON allocates no memory, except to grow dst.
func (o *Object) AppendJSON(dst []byte, namespace string, over Overlay) []byte {
	dst = slices.Grow(dst, len(o.data)+len(namespace)+16)
	if len(over.Labels) == 0 && len(over.Annotations) == 0 {
		dst = append(dst, o.data[:o.tail]...)
	} else {
		dst = append(dst, o.data[:o.maps]...)
		dst = appendMapAndComma(dst, "annotations", o.annotations, over.Annotations)
		dst = appendMapAndComma(dst, "labels", o.labels, over.Labels)
		dst = append(dst, o.data[o.name:o.tail]...)
	}
	if namespace != "" {
		dst = append(dst, `,"namespace":`...)
		dst = appendString(dst, namespace)
	}
	return append(dst, o.data[o.tail:]...)
}

// appendMapAndComma appends the JSON member `"name":{…},` to dst. The JSON object has the entries of the parameters
// pairs and over together, sorted by key. If pairs and over are empty, appendMapAndComma appends nothing.
func appendMapAndComma(dst []byte, name string, pairs []pair, over map[string]string) []byte {
	if len(pairs)+len(over) == 0 {
		return dst
	}
	var room [16]string // an overlay usually has one or two keys; more than 16 keys need an allocation on the heap
	keys := room[:0]
	for key := range over {
		keys = append(keys, key)
	}
	slices.Sort(keys)

	dst = appendString(dst, name)
	dst = append(dst, ':', '{')
	for len(pairs) > 0 || len(keys) > 0 {
		switch {
		case len(keys) == 0 || len(pairs) > 0 && pairs[0].key < keys[0]:
			dst = appendMemberAndComma(dst, pairs[0].key, pairs[0].value)
			pairs = pairs[1:]
		default:
			if len(pairs) > 0 && pairs[0].key == keys[0] {
				pairs = pairs[1:]
			}
			dst = appendMemberAndComma(dst, keys[0], over[keys[0]])
			keys = keys[1:]
		}
	}
	dst[len(dst)-1] = '}' // replaces the last comma
	return append(dst, ',')
}

func appendMemberAndComma(dst []byte, key, value string) []byte {
	dst = appendString(dst, key)
	dst = append(dst, ':')
	dst = appendString(dst, value)
	return append(dst, ',')
}

// appendString appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD, as in encoding/json.
func appendString(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', digits[r>>4], digits[r&0xf])
		case r < utf8.RuneSelf:
			dst = append(dst, s[i])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

// crdOf returns the kind that a CustomResourceDefinition of version v1 defines. The result is nil if tree is not a
// complete CustomResourceDefinition.
func crdOf(tree map[string]any) *CRD {
	version, _ := tree["apiVersion"].(string)
	if tree["kind"] != "CustomResourceDefinition" || !strings.HasPrefix(version, "apiextensions.k8s.io/") {
		return nil
	}
	spec, _ := tree["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	var crd CRD
	crd.Group, _ = spec["group"].(string)
	crd.Kind, _ = names["kind"].(string)
	crd.Plural, _ = names["plural"].(string)
	crd.Namespaced = spec["scope"] == "Namespaced"
	versions, _ := spec["versions"].([]any)
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if name, _ := version["name"].(string); name != "" && version["served"] == true {
			crd.Versions = append(crd.Versions, name)
		}
	}
	if crd.Group == "" || crd.Kind == "" || crd.Plural == "" {
		return nil
	}
	return &crd
}
