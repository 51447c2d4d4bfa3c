package channel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Access is what runtimes have in common that see the same catalog. It is comparable: the key of a map.
type Access struct {
	// Beta and Internal say what the runtimes take part in.
	Beta, Internal bool
	// Selected names the restricted modules that the runtimes may have, sorted and joined by commas.
	Selected string
}

// AccessOf returns the group of a runtime by its Kyma in the control plane. It costs one lookup for each restricted module.
func AccessOf(c Catalog, kyma *v1beta2.Kyma) Access {
	var selected []string
	for _, module := range c.Restricted {
		meta := c.Release(module)
		if yes, err := isSelected(c.Restricted, module, meta, kyma.Labels); yes && err == nil {
			selected = append(selected, module)
		}
	}
	slices.Sort(selected)
	return Access{Beta: kyma.IsBeta(), Internal: kyma.IsInternal(), Selected: strings.Join(slices.Compact(selected), ",")}
}

// Contents is the whole catalog of the control plane. Its order does not matter. It is read only.
type Contents struct {
	// Releases are all ModuleReleaseMetas.
	Releases []*v1beta2.ModuleReleaseMeta
	// Templates are all ModuleTemplates.
	Templates []*v1beta2.ModuleTemplate
	// Restricted is that of Catalog.
	Restricted []string
}

// CatalogCopy is what the runtimes of a group see of the catalog.
type CatalogCopy struct {
	// Objects are the ModuleTemplates and then the ModuleReleaseMetas, each by name.
	Objects []CopiedObject
	// Digest is the same for the same objects, at any time and in any process: 64 hexadecimal digits.
	Digest string
}

// CopiedObject is one object of a CatalogCopy.
type CopiedObject struct {
	// Kind and Name identify the object.
	Kind, Name string
	// JSON is the object as it is sent to a runtime: without status and what only the control plane knows.
	JSON []byte
}

// CatalogCopyFor returns what the runtimes of a group see, as objects in a namespace of the runtime. It costs one look at everything: call it
// once for a group and a change of the stock. It agrees with Resolve:
//
//	1  a ModuleReleaseMeta is seen with those channels whose version the group may have, if it has such a channel and is not mandatory
//	2  a ModuleTemplate is seen if such a channel names it
//	3  a ModuleTemplate is seen if it names its channel itself, there is no ModuleReleaseMeta, and the group may have it
//
// Kymas that a module is restricted to are nobody's business in a runtime: spec.kymaSelector is left out. It fails if an object has a
// descriptor that is no JSON, which an API server does not accept.
func CatalogCopyFor(g Access, all Contents, namespace string) (CatalogCopy, error) {
	s := copyBuilder{access: g, Contents: all, templates: map[string]*v1beta2.ModuleTemplate{}, hasRelease: map[string]bool{}, inChannel: map[string]bool{}}
	for _, t := range all.Templates {
		s.templates[t.Name] = t
	}
	var view, releases encodedObjects
	for _, r := range slices.SortedFunc(slices.Values(all.Releases), func(a, b *v1beta2.ModuleReleaseMeta) int { return strings.Compare(a.Name, b.Name) }) {
		s.hasRelease[r.Name] = true
		shown := s.copyRelease(r)
		if shown == nil {
			continue
		}
		shown.Namespace = namespace
		releases.add(v1beta2.KindModuleReleaseMeta, r.Name, shown)
	}
	for _, t := range slices.SortedFunc(slices.Values(all.Templates), byName) {
		if !s.inChannel[t.Name] && !s.isLegacyVisible(t) {
			continue
		}
		shown := &v1beta2.ModuleTemplate{TypeMeta: typeOf(v1beta2.KindModuleTemplate), ObjectMeta: copiedMetadata(t), Spec: t.Spec}
		shown.Namespace = namespace
		if len(shown.Spec.Descriptor.Raw) == 0 {
			shown.Spec.Descriptor.Raw = []byte("{}")
		}
		view.add(v1beta2.KindModuleTemplate, t.Name, shown)
	}
	if err := errors.Join(append(view.errs, releases.errs...)...); err != nil {
		return CatalogCopy{}, err
	}
	view.Objects = append(view.Objects, releases.Objects...)
	hash := sha256.New()
	for _, o := range view.Objects {
		fmt.Fprintf(hash, "%d\n", len(o.JSON))
		hash.Write(o.JSON)
	}
	view.Digest = hex.EncodeToString(hash.Sum(nil))
	return view.CatalogCopy, nil
}

// shelf is what VisibleTo knows of the catalog.
type copyBuilder struct {
	Contents
	access     Access
	templates  map[string]*v1beta2.ModuleTemplate // by name
	hasRelease map[string]bool                    // modules that have a release
	inChannel  map[string]bool                    // templates that a channel names
}

// release returns what the group sees of a release, nil if nothing, and notes the templates of its channels.
func (s *copyBuilder) copyRelease(r *v1beta2.ModuleReleaseMeta) *v1beta2.ModuleReleaseMeta {
	if r.IsMandatory() || !s.selects(r.Name, r.Spec.KymaSelector) {
		return nil
	}
	var channels []v1beta2.ChannelVersion
	for _, c := range r.Spec.Channels {
		name := TemplateName(r.Name, c.Version)
		if t := s.templates[name]; t != nil && missingRight(t, s.access.Beta, s.access.Internal) == "" {
			channels = append(channels, c)
			s.inChannel[name] = true
		}
	}
	if len(channels) == 0 {
		return nil
	}
	shown := &v1beta2.ModuleReleaseMeta{TypeMeta: typeOf(v1beta2.KindModuleReleaseMeta), ObjectMeta: copiedMetadata(r), Spec: r.Spec}
	shown.Spec.Channels, shown.Spec.KymaSelector = channels, nil
	return shown
}

func (s *copyBuilder) isLegacyVisible(t *v1beta2.ModuleTemplate) bool {
	module := ModuleOf(t)
	return isLegacy(t) && !s.hasRelease[module] && s.selects(module, nil) && missingRight(t, s.access.Beta, s.access.Internal) == ""
}

// selects tells whether the group may have a module, as far as it is a matter of which Kymas are selected.
func (s *copyBuilder) selects(module string, selector *v1beta2.Selector) bool {
	if !slices.Contains(s.Restricted, module) {
		return selector == nil
	}
	return slices.Contains(strings.Split(s.access.Selected, ","), module)
}

// sight is a CatalogCopy, or a part of one, with what could not be encoded.
type encodedObjects struct {
	CatalogCopy
	errs []error
}

func (s *encodedObjects) add(kind, name string, object any) {
	data, err := json.Marshal(object)
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("encoding %s %s for the catalog of runtimes: %w", kind, name, err))
	}
	s.Objects = append(s.Objects, CopiedObject{Kind: kind, Name: name, JSON: data})
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1beta2.GroupVersion.String(), Kind: kind}
}

// metaOf returns what a runtime sees of the metadata of an object.
func copiedMetadata(o metav1.Object) metav1.ObjectMeta {
	labels := maps.Clone(o.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1beta2.LabelManagedBy] = v1beta2.ManagedByKyma
	annotations := maps.Clone(o.GetAnnotations())
	delete(annotations, corev1.LastAppliedConfigAnnotation) // it has the channels that were left out
	return metav1.ObjectMeta{Name: o.GetName(), Labels: labels, Annotations: annotations}
}
