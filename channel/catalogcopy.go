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
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Access is the set of access rights of a runtime. Runtimes with equal Access have the same catalog copy. Access is
// comparable and can be a map key.
type Access struct {
	// Beta and Internal are true if the runtime may have beta and internal modules.
	Beta, Internal bool
	// Selected lists the names of the restricted modules that the runtime may have. The names of the selected modules
	// are sorted and joined by commas.
	Selected string
}

// AccessOf returns the access rights of a runtime, which its Kyma in the control plane defines. For each restricted
// module, AccessOf looks up its ModuleReleaseMeta.
func AccessOf(c Catalog, kyma *v1beta2.Kyma) Access { return AccessFunc(c)(kyma) }

// AccessFunc returns a function that returns the same result as AccessOf. AccessFunc looks up the ModuleReleaseMetas of
// the restricted modules and compiles their selectors once, so use it for a decision about many runtimes.
func AccessFunc(c Catalog) func(*v1beta2.Kyma) Access {
	type restriction struct {
		module  string
		allowed labels.Selector
	}
	var restrictions []restriction
	for _, module := range slices.Compact(slices.Sorted(slices.Values(c.Restricted))) {
		if allowed, err := allowedKymas(c.Restricted, module, c.Release(module)); err == nil {
			restrictions = append(restrictions, restriction{module, allowed})
		}
	}
	return func(kyma *v1beta2.Kyma) Access {
		var selected []string
		for _, r := range restrictions {
			if r.allowed.Matches(labels.Set(kyma.Labels)) {
				selected = append(selected, r.module)
			}
		}
		return Access{Beta: kyma.AllowsBeta(), Internal: kyma.AllowsInternal(), Selected: strings.Join(selected, ",")}
	}
}

// Contents is the whole catalog of the control plane, in any order. The caller must not change the objects of Contents.
type Contents struct {
	// Releases are all ModuleReleaseMetas of the catalog.
	Releases []*v1beta2.ModuleReleaseMeta
	// Templates are all ModuleTemplates of the catalog.
	Templates []*v1beta2.ModuleTemplate
	// Restricted lists the names of restricted modules; see Catalog.Restricted.
	Restricted []string
	// Encoded stores the encoded ModuleTemplates, for further calls of CatalogCopyFor with the same Templates and the
	// same namespace. CatalogCopyFor adds to Encoded, so use it only in one goroutine at a time. If Encoded is nil,
	// nothing is stored.
	Encoded map[*v1beta2.ModuleTemplate][]byte
}

// CatalogCopy is the part of the catalog that every runtime with the same Access gets as a copy.
type CatalogCopy struct {
	// Objects are the ModuleTemplates, sorted by name, followed by the ModuleReleaseMetas, sorted by name.
	Objects []CopiedObject
	// Digest identifies the content of Objects as 64 hexadecimal digits. Equal objects have the same Digest at any time
	// and in any process.
	Digest string
}

// CopiedObject is one object of a CatalogCopy.
type CopiedObject struct {
	// Kind and Name identify the object.
	Kind, Name string
	// JSON is the object as it is sent to a runtime: without its status, and without fields that are only for the
	// control plane.
	JSON []byte
}

// CatalogCopyFor returns the part of the catalog that runtimes with the given Access (the modules that they may have)
// may use. The objects in this catalog copy are in the given namespace of the runtime. CatalogCopyFor reads all
// Contents, so call it only once for each Access, and again only after the catalog has changed. The following rules
// decide which objects are copied; Resolve allows the same versions:
//
//	1  a ModuleReleaseMeta that is not mandatory is copied with its allowed channels, unless no channel is allowed;
//	   a channel is allowed if its version is allowed
//	2  a ModuleTemplate is copied if an allowed channel of rule 1 refers to it
//	3  a legacy ModuleTemplate is copied if its module has no ModuleReleaseMeta and the template is allowed
//
// The copy does not contain spec.kymaSelector, because a runtime must not reveal which Kymas may have a restricted
// module. CatalogCopyFor returns an error if the component descriptor in a ModuleTemplate is not JSON. An API server
// accepts no ModuleTemplate with a descriptor that is not JSON, so this error cannot happen with objects from an API
// server.
func CatalogCopyFor(access Access, all Contents, namespace string) (CatalogCopy, error) {
	s := copyBuilder{access: access, Contents: all, templates: map[string]*v1beta2.ModuleTemplate{},
		hasRelease: map[string]bool{}, inChannel: map[string]bool{}}
	for _, t := range all.Templates {
		s.templates[t.Name] = t
	}
	var templates, releases encodedObjects
	for _, r := range slices.SortedFunc(slices.Values(all.Releases),
		func(a, b *v1beta2.ModuleReleaseMeta) int { return strings.Compare(a.Name, b.Name) }) {
		s.hasRelease[r.Name] = true
		copied := s.copyAllowedRelease(r)
		if copied == nil {
			continue
		}
		copied.Namespace = namespace
		releases.add(v1beta2.KindModuleReleaseMeta, r.Name, copied)
	}
	for _, t := range slices.SortedFunc(slices.Values(all.Templates), byName) {
		if !s.inChannel[t.Name] && !s.isVisibleLegacy(t) {
			continue
		}
		if data := all.Encoded[t]; data != nil {
			templates.Objects = append(templates.Objects, CopiedObject{v1beta2.KindModuleTemplate, t.Name, data})
			continue
		}
		copied := &v1beta2.ModuleTemplate{TypeMeta: typeOf(v1beta2.KindModuleTemplate),
			ObjectMeta: metadataForCopy(t), Spec: t.Spec}
		copied.Namespace = namespace
		if len(copied.Spec.Descriptor.Raw) == 0 {
			copied.Spec.Descriptor.Raw = []byte("{}")
		}
		data := templates.add(v1beta2.KindModuleTemplate, t.Name, copied)
		if all.Encoded != nil {
			all.Encoded[t] = data
		}
	}
	if err := errors.Join(append(templates.errs, releases.errs...)...); err != nil {
		return CatalogCopy{}, err
	}
	templates.Objects = append(templates.Objects, releases.Objects...)
	hash := sha256.New()
	for _, o := range templates.Objects {
		fmt.Fprintf(hash, "%d\n", len(o.JSON))
		hash.Write(o.JSON)
	}
	templates.Digest = hex.EncodeToString(hash.Sum(nil))
	return templates.CatalogCopy, nil
}

// copyBuilder selects the objects of one CatalogCopy.
type copyBuilder struct {
	Contents
	access     Access
	templates  map[string]*v1beta2.ModuleTemplate // templates by name
	hasRelease map[string]bool                    // names of the modules that have a ModuleReleaseMeta
	inChannel  map[string]bool                    // names of the templates that a copied channel refers to
}

// copyAllowedRelease returns the copy of a ModuleReleaseMeta for the catalog copy, and records in inChannel the
// ModuleTemplates of the copied channels. copyAllowedRelease returns nil if no channel of the ModuleReleaseMeta is
// allowed.
func (s *copyBuilder) copyAllowedRelease(r *v1beta2.ModuleReleaseMeta) *v1beta2.ModuleReleaseMeta {
	if r.IsMandatory() || !s.isModuleAllowed(r.Name, r.Spec.KymaSelector) {
		return nil
	}
	var channels []v1beta2.ChannelVersion
	for _, c := range r.Spec.Channels {
		name := TemplateName(r.Name, c.Version)
		if t := s.templates[name]; t != nil && unmetRestriction(t, s.access.Beta, s.access.Internal) == "" {
			channels = append(channels, c)
			s.inChannel[name] = true
		}
	}
	if len(channels) == 0 {
		return nil
	}
	copied := &v1beta2.ModuleReleaseMeta{TypeMeta: typeOf(v1beta2.KindModuleReleaseMeta),
		ObjectMeta: metadataForCopy(r), Spec: r.Spec}
	copied.Spec.Channels, copied.Spec.KymaSelector = channels, nil
	return copied
}

func (s *copyBuilder) isVisibleLegacy(t *v1beta2.ModuleTemplate) bool {
	module := ModuleOf(t)
	return isLegacy(t) && !s.hasRelease[module] && s.isModuleAllowed(module, nil) &&
		unmetRestriction(t, s.access.Beta, s.access.Internal) == ""
}

// isModuleAllowed reports whether the spec.kymaSelector of a module allows the module.
func (s *copyBuilder) isModuleAllowed(module string, selector *v1beta2.Selector) bool {
	if !slices.Contains(s.Restricted, module) {
		return selector == nil
	}
	return slices.Contains(strings.Split(s.access.Selected, ","), module)
}

// encodedObjects is a CatalogCopy or a part of a CatalogCopy. encodedObjects also contains the errors of objects that
// could not be encoded.
type encodedObjects struct {
	CatalogCopy
	errs []error
}

// add encodes an object and returns the encoded object, or nil if the object cannot be encoded.
func (s *encodedObjects) add(kind, name string, object any) []byte {
	data, err := json.Marshal(object)
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("encoding %s %s for the catalog copy: %w", kind, name, err))
	}
	s.Objects = append(s.Objects, CopiedObject{Kind: kind, Name: name, JSON: data})
	return data
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1beta2.GroupVersion.String(), Kind: kind}
}

// contentAnnotations are not copied: only the control plane compares the content of versions, and each copy of them
// would cost writes in every runtime.
var contentAnnotations = []string{v1beta2.AnnotationContentDigest, v1beta2.AnnotationReplacedBy,
	v1beta2.AnnotationAcceptContent}

// metadataForCopy returns the metadata of the copy of an object.
func metadataForCopy(original metav1.Object) metav1.ObjectMeta {
	labels := maps.Clone(original.GetLabels())
	maps.DeleteFunc(labels, isGitOpsTrackingKey)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1beta2.LabelManagedBy] = v1beta2.ManagedByKyma
	annotations := maps.Clone(original.GetAnnotations())
	maps.DeleteFunc(annotations, isGitOpsTrackingKey)
	delete(annotations, corev1.LastAppliedConfigAnnotation) // this annotation contains the channels that are left out
	for _, key := range contentAnnotations {
		delete(annotations, key)
	}
	return metav1.ObjectMeta{Name: original.GetName(), Labels: labels, Annotations: annotations}
}

// trackingPrefixes are prefixes of labels and annotations with which deployment tools mark the objects that they
// manage.
var trackingPrefixes = []string{"argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/",
	"meta.helm.sh/"}

// isGitOpsTrackingKey reports whether a label or an annotation belongs to a tool that manages the catalog in the
// control plane. A tracking label or annotation is not copied, because the GitOps tool in a runtime would treat the
// copies as its own objects, and delete them.
func isGitOpsTrackingKey(key, _ string) bool {
	return key == "app.kubernetes.io/instance" ||
		slices.ContainsFunc(trackingPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}
