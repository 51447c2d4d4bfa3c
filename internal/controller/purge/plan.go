package purge

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// target is what is purged for one Manifest.
type target struct {
	name        string
	module      string
	owner       string      // what the objects of the Manifest are annotated with
	inventory   []apply.Ref // as recorded
	resource    apply.Ref   // the module's own custom resource; zero if it has none that we look after
	resources   schema.GroupVersionKind
	there       []apply.Ref  // set by survey: of the inventory, what was there when the purge began and is not told to be deleted
	definitions []definition // set by survey: of what was there
	surveyed    bool
	begun       bool // set by inventory: its objects were asked to go
	held        bool // set by resources in each pass: custom resources are left, so the operator stays
	gone        bool // set by inventory in each pass: all of the inventory is gone, but for what is kept
}

// newTarget reads what a Manifest says of the runtime.
func newTarget(m *v1beta2.Manifest) *target {
	t := &target{name: m.Name, module: m.Labels[v1beta2.LabelModuleName], owner: m.Namespace + "/" + m.Name}
	if t.module == "" {
		t.module = m.Name
	}
	for _, s := range m.Status.Synced {
		t.inventory = append(t.inventory, apply.Ref{Group: s.Group, Version: s.Version, Kind: s.Kind, Namespace: s.Namespace, Name: s.Name, Keep: s.Keep})
	}
	if cr := m.Spec.Resource; cr != nil {
		t.resources = cr.GroupVersionKind()
		if m.Spec.CustomResourcePolicy != v1beta2.Ignore {
			t.resource = apply.Ref{Group: t.resources.Group, Version: t.resources.Version, Kind: t.resources.Kind, Namespace: cr.GetNamespace(), Name: cr.GetName()}
		}
	}
	return t
}

// owns tells whether an object of the inventory is still the target's: somebody else may have taken it over.
func (t *target) owns(u *unstructured.Unstructured) bool {
	by := u.GetAnnotations()[v1beta2.AnnotationOwnedBy]
	return by == "" || by == t.owner
}

// definition is what matters of a CustomResourceDefinition.
type definition struct {
	ref    apply.Ref
	gvk    schema.GroupVersionKind // in the version that is stored: reading it needs no conversion, for which the operator might be asked
	plural string
	owner  string // whose it is by its annotation, "" if it does not say
}

// definitionOf reads a CustomResourceDefinition; false if it is none that can be worked with.
func definitionOf(ref apply.Ref, u *unstructured.Unstructured) (definition, bool) {
	d := definition{ref: ref, owner: u.GetAnnotations()[v1beta2.AnnotationOwnedBy]}
	d.gvk.Group, _, _ = unstructured.NestedString(u.Object, "spec", "group")
	d.gvk.Kind, _, _ = unstructured.NestedString(u.Object, "spec", "names", "kind")
	d.plural, _, _ = unstructured.NestedString(u.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if stored, _ := version["storage"].(bool); stored {
			d.gvk.Version, _ = version["name"].(string)
		}
	}
	return d, d.gvk.Kind != "" && d.gvk.Version != "" && d.plural != ""
}

// isDefinition tells whether an object defines a kind.
func isDefinition(r apply.Ref) bool {
	return r.Group == "apiextensions.k8s.io" && r.Kind == "CustomResourceDefinition"
}

// kind is one kind whose custom resources stand between modules and their end.
type kind struct {
	gvk  schema.GroupVersionKind
	of   []*target   // who waits for it
	only []apply.Ref // if not nil, these are ours and all others are not: the definition is none of ours
	left string      // why nothing of it is touched, "" if it is not so
}

// ours tells whether a custom resource of this kind may be purged.
func (k *kind) ours(r apply.Ref) bool {
	return k.left == "" && (k.only == nil || slices.ContainsFunc(k.only, r.SameObject))
}

// kindsOf returns the kinds that stand between the targets and their end: those that their definitions define, and those of the
// modules' own custom resources. Of each, the first row that fits decides what may be purged:
//
//	1  Lifecycle Manager's own             nothing
//	2  a pattern of skip fits              nothing
//	3  definition or an object is kept     nothing
//	4  definition is somebody else's       nothing
//	5  definition is in an inventory       all
//	6  else                                the module's own custom resource
func kindsOf(targets []*target, skip []string) []*kind {
	var kinds []*kind
	for _, t := range targets {
		for _, d := range t.definitions {
			k := &kind{gvk: d.gvk, of: []*target{t}}
			switch {
			case isOwn(d.gvk.GroupKind()):
				k.left = "is Lifecycle Manager's own"
			case isSkipped(d.gvk.GroupKind(), d.plural, skip):
				k.left = "is on the skip list"
			case isKept(d, targets):
				k.left = "is kept by its module"
			case d.owner != "" && d.owner != t.owner:
				k.left = "belongs to " + d.owner
			}
			kinds = append(kinds, k)
		}
	}
	for _, t := range targets {
		if t.resources.Kind == "" {
			continue
		}
		if i := slices.IndexFunc(kinds, func(k *kind) bool { return k.gvk.GroupKind() == t.resources.GroupKind() }); i >= 0 {
			if !slices.Contains(kinds[i].of, t) {
				kinds[i].of = append(kinds[i].of, t)
			}
			if kinds[i].only != nil && t.resource.Kind != "" {
				kinds[i].only = append(kinds[i].only, t.resource)
			}
			continue
		}
		k := &kind{gvk: t.resources, of: []*target{t}, only: []apply.Ref{}}
		switch {
		case isOwn(k.gvk.GroupKind()):
			k.left = "is Lifecycle Manager's own"
		case isSkipped(k.gvk.GroupKind(), "", skip):
			k.left = "is on the skip list"
		}
		if t.resource.Kind != "" {
			k.only = append(k.only, t.resource)
		}
		kinds = append(kinds, k)
	}
	return kinds
}

// isOwn tells whether a kind is Lifecycle Manager's own: in-cluster, the runtime is the control plane.
func isOwn(gk schema.GroupKind) bool {
	own := []string{v1beta2.KindKyma, v1beta2.KindManifest, v1beta2.KindModuleTemplate, v1beta2.KindModuleReleaseMeta, v1beta2.KindWatcher}
	return gk.Group == v1beta2.GroupVersion.Group && slices.Contains(own, gk.Kind)
}

// isSkipped tells whether a pattern fits plural.group or kind.group.
func isSkipped(gk schema.GroupKind, plural string, skip []string) bool {
	return slices.ContainsFunc(skip, func(pattern string) bool {
		pattern = strings.ToLower(pattern)
		byKind, _ := path.Match(pattern, strings.ToLower(gk.Kind+"."+gk.Group))
		byPlural, _ := path.Match(pattern, strings.ToLower(plural+"."+gk.Group))
		return byKind || plural != "" && byPlural
	})
}

// isKept tells whether any inventory keeps a definition, or an object that it defines and that would not outlive it.
func isKept(d definition, targets []*target) bool {
	return slices.ContainsFunc(targets, func(t *target) bool {
		return slices.ContainsFunc(t.inventory, func(r apply.Ref) bool {
			return r.Keep && (r.SameObject(d.ref) || r.Group == d.gvk.Group && r.Kind == d.gvk.Kind)
		})
	})
}

// farewell is the longest time that a custom resource gets between being asked to go and losing its finalizers. Most have had the whole
// grace period; this is for those that are asked to go by the purge, whose operator may be well.
const farewell = time.Minute

// move is what is done to one custom resource.
type move int

const (
	leave   move = iota // it is none of ours to touch
	remove              // ask it to go
	wait                // it is going, and may take some time yet
	release             // take its finalizers
)

// moveFor decides. The first row that fits wins; until is when to look again, with wait only:
//
//	1  not ours                              leave
//	2  not asked to go yet                   remove
//	3  held by the garbage collector alone   wait
//	4  asked less than a farewell ago        wait
//	5  there is no grace period              wait: finalizers are never removed
//	6  else                                  release
//
// A runtime whose clock is ahead gives no farewell.
func (k *kind) moveFor(found *apply.ObjectMetadata, now time.Time, grace time.Duration) (do move, until time.Time) {
	patience := min(grace, farewell)
	asked := now.Sub(found.DeletionTime)
	switch {
	case !k.ours(found.Ref):
		return leave, time.Time{}
	case found.DeletionTime.IsZero():
		return remove, now.Add(patience)
	case len(found.Finalizers) == len(served(found.Finalizers)):
		return wait, time.Time{}
	case asked >= 0 && asked < patience:
		return wait, found.DeletionTime.Add(patience)
	case grace == 0:
		return wait, time.Time{}
	default:
		return release, time.Time{}
	}
}

// served returns the finalizers that every cluster serves by itself.
func served(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f != metav1.FinalizerDeleteDependents && f != metav1.FinalizerOrphanDependents
	})
}

// overdue returns what holds up nothing else any more: what has been going for long, and what cannot be asked to go.
func overdue(left []apply.Remaining, now time.Time, grace time.Duration) []apply.Remaining {
	return slices.DeleteFunc(slices.Clone(left), func(r apply.Remaining) bool {
		return r.Err == nil && (r.Since.IsZero() || now.Sub(r.Since) < min(grace, farewell))
	})
}

// refsOf returns the objects that remain.
func refsOf(left []apply.Remaining) []apply.Ref {
	refs := make([]apply.Ref, len(left))
	for i, r := range left {
		refs[i] = r.Ref
	}
	return refs
}

// without returns refs but those of others.
func without(refs, others []apply.Ref) []apply.Ref {
	return slices.DeleteFunc(slices.Clone(refs), func(r apply.Ref) bool { return slices.ContainsFunc(others, r.SameObject) })
}

// namesOf returns the objects as a person would name them.
func namesOf(refs []apply.Ref) []string {
	names := make([]string, len(refs))
	for i, r := range refs {
		names[i] = r.String()
	}
	return names
}

// mostText is how many bytes of names an event gets; the API takes 1,024 in all.
const mostText = 850

// listed joins names for people, as many as an event can hold.
func listed(names []string) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 && b.Len()+len(name) > mostText {
			fmt.Fprintf(&b, " and %d more", len(names)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(clip(name))
	}
	return b.String()
}

// clip keeps a text that a runtime has made short enough for an event.
func clip(text string) string {
	if len(text) <= mostText {
		return text
	}
	return strings.ToValidUTF8(text[:mostText], "") + "…"
}

// counted says how many there are of something.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
