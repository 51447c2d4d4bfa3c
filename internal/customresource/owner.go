package customresource

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// ownership has the data from which it is determined whether a custom resource belongs to a user.
type ownership struct {
	inventory []apply.Ref
	defaults  []apply.Ref        // default custom resources that are deleted with their modules
	kinds     []schema.GroupKind // the kinds of the CRDs of the module, also of those without custom resources
	others    []string           // namespace/name of the other Manifests of the runtime
	staying   []string           // the Manifests in others that are not being deleted

	stayingDefaults []defaultResource  // default custom resources of modules that are not being deleted
	stayingKinds    []schema.GroupKind // the kinds of Question.StayingCRDs
}

// defaultResource is the default custom resource of a module.
type defaultResource struct {
	ref   apply.Ref
	owner string // namespace/name of the Manifest; "" if the module was handed over to the user
}

// addKind adds the kind of a CRD of the module. A kind without custom resources counts, too: the owner of a custom
// resource may have been deleted, and the garbage collector then deletes the custom resource. The parameter stays is
// true if the CRD stays.
func (w *ownership) addKind(kind schema.GroupKind, stays bool) {
	if kind.Kind == "" {
		return // the runtime does not serve it
	}
	w.kinds = append(w.kinds, kind)
	if stays {
		w.stayingKinds = append(w.stayingKinds, kind)
	}
}

// readManifests reads all Manifests of the runtime, and adds the data from which the owners of custom resources are
// determined.
func (w *ownership) readManifests(ctx context.Context, q Question) error {
	all, err := q.Manifests(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		m := &all[i]
		if m.InstalledOrSpecTarget() != q.Manifest.InstalledOrSpecTarget() {
			continue // its custom resource is on another cluster
		}
		if m.Name != q.Manifest.Name {
			w.others = append(w.others, m.Namespace+"/"+m.Name)
			if m.DeletionTimestamp.IsZero() {
				w.staying = append(w.staying, m.Namespace+"/"+m.Name)
			}
		}
		switch {
		case m.Spec.CustomResourcePolicy == v1beta2.Ignore || m.Spec.Resource == nil:
		case isBeingDeleted(m) || m.Name == q.Manifest.Name && isBeingDeleted(q.Manifest):
			w.defaults = append(w.defaults, declaredRef(m))
		case m.IsUnmanaged():
			w.stayingDefaults = append(w.stayingDefaults, defaultResource{ref: declaredRef(m)})
		default:
			w.stayingDefaults = append(w.stayingDefaults, defaultResource{declaredRef(m), m.Namespace + "/" + m.Name})
		}
	}
	return nil
}

// isBeingDeleted reports whether a module is being deleted together with its objects. The objects of a module that was
// handed over to the user stay.
func isBeingDeleted(m *v1beta2.Manifest) bool {
	return !m.DeletionTimestamp.IsZero() && !m.IsUnmanaged()
}

// isOfUser reports whether a custom resource belongs to a user, by the table in the package comment.
func (w *ownership) isOfUser(o *apply.ObjectMetadata) bool {
	isDefault := func(declared apply.Ref) bool { return isDeclared(o.Ref, declared) }
	isDeleted := func(r apply.Ref) bool {
		return o.SameObject(r) && w.isDeletedWithModule(r, o.Annotation(v1beta2.AnnotationOwnedBy))
	}
	if slices.ContainsFunc(w.inventory, isDeleted) {
		return false
	}
	// Two modules may have the same default custom resource, for example a module and its successor.
	if _, isDefaultOfStaying := w.stayingDefaultOwner(o); isDefaultOfStaying {
		return !slices.Contains(w.stayingKinds, o.GVK().GroupKind())
	}
	if slices.ContainsFunc(w.defaults, isDefault) {
		return false
	}
	return !slices.ContainsFunc(o.Owners, func(owner metav1.OwnerReference) bool {
		return w.isOwnerRefToModuleObject(o,
			owner)
	})
}

// stayingDefaultOwner reports whether o is the default custom resource of a module that is not being deleted, and
// returns the Manifest of this module, or "" if the module was handed over to the user.
func (w *ownership) stayingDefaultOwner(o *apply.ObjectMetadata) (namespacedName string, isDefault bool) {
	for _, d := range w.stayingDefaults {
		if isDeclared(o.Ref, d.ref) {
			return d.owner, true
		}
	}
	return "", false
}

// isDependent reports whether a custom resource is in row 4 of the table in the package comment. The caller has to know
// that the custom resource belongs to no user.
func (w *ownership) isDependent(o *apply.ObjectMetadata) bool {
	isDefault := func(declared apply.Ref) bool { return isDeclared(o.Ref, declared) }
	_, isDefaultOfStaying := w.stayingDefaultOwner(o)
	return !isDefaultOfStaying && !slices.ContainsFunc(w.inventory, o.SameObject) &&
		!slices.ContainsFunc(w.defaults, isDefault)
}

// isDeletedWithModule reports whether a custom resource in the inventory of the module is deleted with the module. A
// custom resource that existed before the module stays, and so does a custom resource that belongs to another module.
// If the other module is being deleted too, that module deletes the custom resource, or hands it over to this module.
// The parameter owner is the Manifest that owns the custom resource in the cluster, because the flag Shared of the
// inventory may be out of date.
func (w *ownership) isDeletedWithModule(r apply.Ref, owner string) bool {
	staysWithOther := r.Shared && slices.Contains(w.staying, owner)
	return !r.Adopted && !staysWithOther
}

// IsDefaultOf reports whether an object in the runtime is the default custom resource of a Manifest, and its policy is
// not Ignore.
func IsDefaultOf(m *v1beta2.Manifest, o apply.Ref) bool {
	return m.Spec.Resource != nil && m.Spec.CustomResourcePolicy != v1beta2.Ignore && isDeclared(o, declaredRef(m))
}

// isDeclared reports whether an object in the runtime is the default custom resource that the spec of a Manifest
// declares. The spec of the Manifest may have a namespace for the custom resource even if the kind is cluster-scoped.
// If the spec has no namespace, a namespaced custom resource is in the namespace default.
func isDeclared(o, declared apply.Ref) bool {
	switch {
	case o.Namespace == "":
		declared.Namespace = ""
	case declared.Namespace == "":
		declared.Namespace = "default"
	}
	return o.SameObject(declared)
}

// isOwnerRefToModuleObject reports whether an owner reference of a custom resource points to an object of the module,
// or to a custom resource of a kind of the module.
func (w *ownership) isOwnerRefToModuleObject(o *apply.ObjectMetadata, ownerRef metav1.OwnerReference) bool {
	version, err := schema.ParseGroupVersion(ownerRef.APIVersion)
	if err != nil {
		return false
	}
	kind := schema.GroupKind{Group: version.Group, Kind: ownerRef.Kind}
	return slices.Contains(w.kinds, kind) ||
		slices.ContainsFunc(w.inventory, func(r apply.Ref) bool { return !r.Adopted && isOwner(r, o, kind, ownerRef) })
}

// isOwner reports whether an owner reference of a custom resource, with the kind that is its owner's, points to r.
func isOwner(r apply.Ref, o *apply.ObjectMetadata, kind schema.GroupKind, ownerRef metav1.OwnerReference) bool {
	return r.GVK().GroupKind() == kind && r.Name == ownerRef.Name && (r.Namespace == "" || r.Namespace == o.Namespace)
}

// IsForeign reports whether an object in the inventory of a Manifest stays in the cluster when the Manifest is deleted,
// because the module has not created it. The inventory does not always show this: it lists an object before it is
// applied, and a user may create an object again after the module has applied it. The parameter owner is the
// namespace/name of the Manifest. The first row that matches decides, as in DeleteOwned of package apply:
//
//	1  it is annotated as an object that existed before the module           true
//	2  it has the annotation of the Manifest, or fields that a module has
//	   applied; releases without the annotation have the same field manager  false
//	3  otherwise                                                             true
func IsForeign(object *unstructured.Unstructured, owner string) bool {
	annotations := object.GetAnnotations()
	if annotations[apply.AnnotationAdopted] == v1beta2.ValueTrue {
		return true
	}
	return annotations[v1beta2.AnnotationOwnedBy] != owner &&
		!slices.ContainsFunc(object.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
			return f.Manager == v1beta2.FieldOwnerApplier && f.Operation == metav1.ManagedFieldsOperationApply &&
				f.Subresource == ""
		})
}

// hasLastingOwner reports whether an owner of a custom resource is an object of the inventory that exists as long as
// the operator: an object that is no custom resource, such as the Deployment of the operator, or an object that the
// module keeps. The garbage collector does not delete the custom resource before this owner.
func (w *ownership) hasLastingOwner(o *apply.ObjectMetadata) bool {
	return slices.ContainsFunc(o.Owners, func(ownerRef metav1.OwnerReference) bool {
		version, err := schema.ParseGroupVersion(ownerRef.APIVersion)
		kind := schema.GroupKind{Group: version.Group, Kind: ownerRef.Kind}
		return err == nil && slices.ContainsFunc(w.inventory, func(r apply.Ref) bool {
			return (r.Keep || !r.IsCustomResource()) && isOwner(r, o, kind, ownerRef)
		})
	})
}

// countModuleObjects returns the number of custom resources of a kind that belong to modules and not to users.
func (w *ownership) countModuleObjects(kind schema.GroupKind) int {
	n := 0
	isDefaultOfStaying := func(r apply.Ref) bool {
		return slices.ContainsFunc(w.stayingDefaults, func(d defaultResource) bool { return d.ref.SameObject(r) })
	}
	for _, r := range w.inventory {
		if r.GVK().GroupKind() == kind && !r.Adopted {
			n++
		}
	}
	for _, r := range w.defaults {
		if r.GVK().GroupKind() == kind && !isDefaultOfStaying(r) {
			n++
		}
	}
	for _, d := range w.stayingDefaults {
		if d.ref.GVK().GroupKind() == kind && slices.Contains(w.stayingKinds, kind) {
			n++
		}
	}
	return n
}

// hasKeptInventoryObject reports whether the module keeps a custom resource of a kind. The CRD of a kept custom
// resource is kept, too.
func (w *ownership) hasKeptInventoryObject(kind schema.GroupKind) bool {
	return slices.ContainsFunc(w.inventory, func(r apply.Ref) bool { return r.Keep && r.GVK().GroupKind() == kind })
}
