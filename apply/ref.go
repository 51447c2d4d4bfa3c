package apply

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Ref is the identity of one object in a cluster. Inventories are lists of Refs.
type Ref struct {
	// Group is "" for the core group.
	Group string
	// Version is the API version in which the object was applied last. Version is not part of the object's identity;
	// see SameObject.
	Version string
	Kind    string
	// Namespace is "" for objects of cluster scope.
	Namespace string
	Name      string
	// Keep means that the object is never deleted. Keep is set if AnnotationPrune of the object in its bundle is
	// "keep". Keep is not part of the object's identity. The caller has to record Keep in the inventory, because Delete
	// uses the recorded flag and does not read the object.
	Keep bool
	// Pending means that the object was recorded and has not been applied yet, so it is not known whether the
	// installation has created it. Pending is not part of the object's identity. Pending is explained at Ownership.
	Pending bool
	// Adopted means that the object existed before the installation. When the installation is removed, an adopted
	// object is not deleted: only the fields of the installation are removed from it. Two Refs that differ only in
	// Adopted refer to the same object.
	Adopted bool
	// Shared means that the object belongs to another installation, and that this installation contains the object too.
	// Two Refs that differ only in Shared refer to the same object.
	Shared bool
}

// SameObject reports whether both Refs identify the same object. API versions are not compared.
func (r Ref) SameObject(other Ref) bool { return r.identity() == other.identity() }

// GVK returns group, version and kind.
func (r Ref) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

// String returns kind, group, namespace and name: "Deployment.apps kyma-system/keda-manager".
func (r Ref) String() string {
	var b strings.Builder
	b.WriteString(r.Kind)
	if r.Group != "" {
		b.WriteString("." + r.Group)
	}
	b.WriteByte(' ')
	if r.Namespace != "" {
		b.WriteString(r.Namespace + "/")
	}
	b.WriteString(r.Name)
	return b.String()
}

// identity returns the Ref without Version and without flags.
func (r Ref) identity() Ref {
	return Ref{Group: r.Group, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

// WithOwnershipFlags returns a copy of r that has the flags Pending, Adopted and Shared of the given Ref.
func (r Ref) WithOwnershipFlags(from Ref) Ref {
	r.Pending, r.Adopted, r.Shared = from.Pending, from.Adopted, from.Shared
	return r
}

// IsCustomResource reports whether the kind of the object is not built into Kubernetes.
func (r Ref) IsCustomResource() bool { return roleOf(r.groupKind()) == roleCustom }

// groupKind returns group and kind.
func (r Ref) groupKind() schema.GroupKind { return schema.GroupKind{Group: r.Group, Kind: r.Kind} }

// Removed returns the Refs of the old inventory that the new inventory (parameter updated) does not contain, in the
// order of the old inventory. An upgrade deletes the objects that Removed returns. If both inventories contain an
// object in different API versions, Removed does not return the object. Removed also returns the Refs of objects with
// Keep. Delete does not delete objects with Keep, but lists them in Teardown.Kept. As long as objects with Keep stay in
// the inventory, their namespaces and CRDs are kept too.
func Removed(old, updated []Ref) []Ref {
	keep := make(map[Ref]bool, len(updated))
	for _, r := range updated {
		keep[r.identity()] = true
	}
	var removed []Ref
	for _, r := range old {
		if !keep[r.identity()] {
			removed = append(removed, r)
		}
	}
	return removed
}

// Set is the desired state of one installation in a cluster.
type Set struct {
	// Bundle contains the objects. Bundle is shared with other installations and never changed.
	Bundle *render.Bundle
	// Overlay contains labels and annotations that override the labels and annotations of every object.
	Overlay render.Overlay
	// Namespace is the namespace for namespaced objects without a namespace. If Namespace is "", the namespace is
	// "default".
	Namespace string
	// Owner is the field manager. If Owner is "", the field manager is DefaultOwner.
	Owner string
	// Ownership is the installation that the objects belong to. If Ownership is nil, Apply takes over every existing
	// object.
	Ownership *Ownership
}

// DefaultOwner is the field manager of module resources.
const DefaultOwner = "declarative.kyma-project.io/applier"

func (s Set) fieldManager() string {
	if s.Owner == "" {
		return DefaultOwner
	}
	return s.Owner
}

func (s Set) namespaceOrDefault() string {
	if s.Namespace == "" {
		return "default"
	}
	return s.Namespace
}
