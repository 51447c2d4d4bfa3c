// Package inventory converts the inventory of a Manifest between its two forms, and determines the owner of an object
// in a runtime.
//
// # Use
//
//	refs := inventory.Refs(manifest.Status.Synced)
//	refs, recorded := inventory.Merge(desired, refs)
//	peers := inventory.Peers{Reader: client, Target: v1beta2.TargetRemote}
//	set.Ownership = peers.Ownership(ctx, manifest, policy)
//
// # How it works
//
// The inventory lists the objects of a Manifest before they are applied. Until all objects were applied, new entries
// are pending: it is not known whether the Manifest has created the objects. From the response to the PATCH of an
// object, package apply determines whether the PATCH has created the object. An object that existed before is marked as
// adopted. An object of this Manifest that belongs to another Manifest is marked as shared.
//
// To find the owner of an object, the package reads the Manifest that the object names from the cache of the control
// plane. Manifests of other runtimes are ignored: if an object in this runtime names a Manifest of another runtime, the
// object was copied from another cluster. Modules that are installed on the control plane are an exception: they share
// one cluster, also if they belong to different Kymas.
//
// # What it does not do
//
// The package decides nothing about objects, and sends no request to a runtime. Package apply decides which objects are
// applied, adopted or deleted, and sends the requests.
package inventory

import (
	"slices"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// Refs returns the objects of an inventory as Refs of package apply.
func Refs(entries []v1beta2.Resource) []apply.Ref {
	refs := make([]apply.Ref, len(entries))
	for i, e := range entries {
		refs[i] = Ref(e)
	}
	return refs
}

// Ref returns the object of one inventory entry.
func Ref(e v1beta2.Resource) apply.Ref {
	return apply.Ref{Group: e.Group, Version: e.Version, Kind: e.Kind, Namespace: e.Namespace, Name: e.Name,
		Keep: e.Keep, Pending: e.Pending, Adopted: e.Adopted, Shared: e.Shared}
}

// Of returns an inventory that lists the objects of refs.
func Of(refs []apply.Ref) []v1beta2.Resource {
	entries := make([]v1beta2.Resource, len(refs))
	for i, r := range refs {
		entries[i] = v1beta2.Resource{Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace,
			Name: r.Name, Keep: r.Keep, Pending: r.Pending, Adopted: r.Adopted, Shared: r.Shared}
	}
	return entries
}

// identity identifies an object in any API version.
type identity struct{ group, kind, namespace, name string }

func identityOf(r apply.Ref) identity { return identity{r.Group, r.Kind, r.Namespace, r.Name} }

// positions finds objects in a list of references. Many calls of find together take linear time.
type positions struct {
	refs []apply.Ref
	of   map[identity]int // nil until an object is not at its expected position
}

// find returns the position of an object, or -1 if the list does not have the object. The parameter i is the position
// at which the object usually is.
func (p *positions) find(r apply.Ref, i int) int {
	if i < len(p.refs) && p.refs[i].SameObject(r) {
		return i
	}
	if p.of == nil {
		p.of = make(map[identity]int, len(p.refs))
		for at, o := range slices.Backward(p.refs) { // the first of equal ones counts
			p.of[identityOf(o)] = at
		}
	}
	if at, found := p.of[identityOf(r)]; found {
		return at
	}
	return -1
}

// NotIn returns the objects in the parameter refs that the parameter "others" does not contain.
func NotIn(refs, others []apply.Ref) []apply.Ref {
	other := positions{refs: others}
	var missing []apply.Ref
	for i, r := range refs {
		if other.find(r, i) < 0 {
			missing = append(missing, r)
		}
	}
	return missing
}

// Includes reports whether the list all has each reference of the list some, in the same API version and with the same
// flags.
func Includes(all, some []apply.Ref) bool { return includes(all, some) }

// includes reports whether the list all has each element of the list some.
func includes[E comparable](all, some []E) bool {
	var set map[E]bool
	for i, e := range some {
		if i < len(all) && all[i] == e { // the usual case: both have the same order
			continue
		}
		if set == nil {
			set = make(map[E]bool, len(all))
			for _, o := range all {
				set[o] = true
			}
		}
		if !set[e] {
			return false
		}
	}
	return true
}

// AppendMissing returns the objects in the parameter refs, followed by those objects in the parameter "others" that
// refs does not contain.
func AppendMissing(refs, others []apply.Ref) []apply.Ref { return append(refs, NotIn(others, refs)...) }

// WithRecordedFlagsOrPending returns the references in the parameter refs, each with the flags (adopted, shared,
// pending) of its entry in the recorded inventory. An object that is not recorded yet gets the flag pending.
func WithRecordedFlagsOrPending(refs, recorded []apply.Ref) []apply.Ref {
	refs = slices.Clone(refs)
	entries := positions{refs: recorded}
	for i, r := range refs {
		if at := entries.find(r, i); at >= 0 {
			refs[i] = r.WithOwnershipFlags(recorded[at])
		} else {
			refs[i] = r.WithOwnershipFlags(apply.Ref{Pending: true})
		}
	}
	return refs
}

// SetFlags sets the flags of one object in the list refs.
func SetFlags(refs []apply.Ref, object apply.Ref) {
	if at := slices.IndexFunc(refs, object.SameObject); at >= 0 {
		refs[at] = refs[at].WithOwnershipFlags(object)
	}
}

// WithAdoptedAndSharedOf returns the inventory entries with new flags: the flags adopted and shared of each entry are
// those of the same object in the parameter refs.
func WithAdoptedAndSharedOf(entries []v1beta2.Resource, refs []apply.Ref) []v1beta2.Resource {
	var out []v1beta2.Resource
	objects := positions{refs: refs}
	for i, e := range entries {
		at := objects.find(Ref(e), i)
		if at < 0 || refs[at].Adopted == e.Adopted && refs[at].Shared == e.Shared {
			continue
		}
		if out == nil {
			out = slices.Clone(entries) // the entries may be shared with other Manifests
		}
		out[i].Adopted, out[i].Shared = refs[at].Adopted, refs[at].Shared
	}
	if out == nil {
		return entries
	}
	return out
}

// WithPendingFlagsCleared returns the inventory entries without the flag pending, because all objects were applied.
func WithPendingFlagsCleared(entries []v1beta2.Resource) []v1beta2.Resource {
	isPending := func(e v1beta2.Resource) bool { return e.Pending }
	if !slices.ContainsFunc(entries, isPending) {
		return entries
	}
	entries = slices.Clone(entries)
	for i := range entries {
		entries[i].Pending = false
	}
	return entries
}

// IncludesIgnoringPending reports whether the inventory all has each entry of the inventory some, apart from the flag
// pending.
func IncludesIgnoringPending(all, some []v1beta2.Resource) bool {
	return includes(WithPendingFlagsCleared(all), WithPendingFlagsCleared(some))
}

// ModuleCRRef returns the default custom resource of a Manifest as its spec identifies it, or the zero Ref if it has
// none.
func ModuleCRRef(m *v1beta2.Manifest) apply.Ref {
	cr := m.Spec.Resource
	if cr == nil {
		return apply.Ref{}
	}
	gvk := cr.GroupVersionKind()
	return apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: cr.GetNamespace(),
		Name: cr.GetName()}
}
