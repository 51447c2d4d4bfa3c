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
	// Version the object was applied in. It is not part of the identity: see SameObject.
	Version string
	Kind    string
	// Namespace is "" for objects of cluster scope.
	Namespace string
	Name      string
	// Keep says that the object is never deleted, since it had AnnotationPrune when its bundle was resolved. It is not part of the
	// identity. Write it down with the inventory: Delete goes by that and does not ask the cluster.
	Keep bool
}

// SameObject reports whether both name one object, in whatever API version.
func (r Ref) SameObject(other Ref) bool { return r.object() == other.object() }

// GVK returns group, version and kind.
func (r Ref) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

// String names the object as a person would: "Deployment.apps kyma-system/keda-manager".
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

// object is the identity: the Ref without its version and what is known beyond.
func (r Ref) object() Ref {
	r.Version, r.Keep = "", false
	return r
}

// groupKind returns group and kind.
func (r Ref) groupKind() schema.GroupKind { return schema.GroupKind{Group: r.Group, Kind: r.Kind} }

// Removed returns the objects of old that updated does not have, in the order of old: what an upgrade prunes. An object
// that only changed its API version is not among them. Objects to be kept are: Delete tells them in Teardown.Kept, and as long as
// they stay in the inventory, their namespaces and definitions are kept too.
func Removed(old, updated []Ref) []Ref {
	keep := make(map[Ref]bool, len(updated))
	for _, r := range updated {
		keep[r.object()] = true
	}
	var removed []Ref
	for _, r := range old {
		if !keep[r.object()] {
			removed = append(removed, r)
		}
	}
	return removed
}

// Set is what one installation wants to have in a cluster.
type Set struct {
	// Bundle holds the objects. It is shared with other installations and never changed.
	Bundle *render.Bundle
	// Overlay goes over labels and annotations of every object.
	Overlay render.Overlay
	// Namespace for namespaced objects that name none; "" means "default".
	Namespace string
	// Owner is the field manager; "" means DefaultOwner.
	Owner string
}

// DefaultOwner is the field manager of module resources.
const DefaultOwner = "declarative.kyma-project.io/applier"

func (s Set) owner() string {
	if s.Owner == "" {
		return DefaultOwner
	}
	return s.Owner
}

func (s Set) namespace() string {
	if s.Namespace == "" {
		return "default"
	}
	return s.Namespace
}
