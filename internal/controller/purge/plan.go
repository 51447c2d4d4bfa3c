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
	"github.com/kyma-fleet/lifecycle-manager/internal/customresource"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// target is a Manifest whose objects are purged, with the progress of this purge.
type target struct {
	name      string
	module    string
	owner     string      // the value of the annotation owned-by on objects of the Manifest
	inventory []apply.Ref // the objects in the status of the Manifest
	// resource is the module's own custom resource. resource is zero if the module has none or if its custom resource
	// policy is Ignore.
	resource     apply.Ref
	resourceKind schema.GroupVersionKind // the kind of the module's custom resource; zero if the module has none
	// existing is set by survey: the objects that existed when the purge started and whose deletion is not reported
	// yet.
	existing []apply.Ref
	crds     []crd // set by survey: the CRDs among the existing objects, without foreign CRDs
	surveyed bool  // set by survey: the objects were read
	begun    bool  // set by purgeInventories: the deletion of the objects was requested
	// set by purgeCustomResources in each reconcile: custom resources still exist, so the operator is kept
	blocked bool
	deleted bool // set by purgeInventories in each reconcile: all objects except for kept objects are deleted
}

// newTarget returns the target for a Manifest.
func newTarget(m *v1beta2.Manifest) *target {
	t := &target{name: m.Name, module: m.Labels[v1beta2.LabelModuleName], owner: m.Namespace + "/" + m.Name}
	if t.module == "" {
		t.module = m.Name
	}
	for _, s := range m.Status.Synced {
		t.inventory = append(t.inventory, apply.Ref{Group: s.Group, Version: s.Version, Kind: s.Kind,
			Namespace: s.Namespace, Name: s.Name, Keep: s.Keep || s.Adopted, Adopted: s.Adopted})
	}
	if cr := m.Spec.Resource; cr != nil {
		t.resourceKind = cr.GroupVersionKind()
		if m.Spec.CustomResourcePolicy != v1beta2.Ignore {
			kind := t.resourceKind
			t.resource = apply.Ref{Group: kind.Group, Version: kind.Version, Kind: kind.Kind,
				Namespace: cr.GetNamespace(), Name: cr.GetName()}
		}
	}
	return t
}

// stillOwns reports whether an object of the inventory still belongs to the Manifest. Another owner may have taken the
// object over in the meantime, or the module has never owned the object.
func (t *target) stillOwns(u *unstructured.Unstructured) bool {
	by := u.GetAnnotations()[v1beta2.AnnotationOwnedBy]
	return (by == "" || by == t.owner) && !customresource.IsForeign(u, t.owner)
}

// crd has the fields of a CustomResourceDefinition that a purge needs.
type crd struct {
	ref    apply.Ref
	gvk    schema.GroupVersionKind // with the stored version, which is read without a conversion webhook
	plural string
	owner  string // the value of the annotation owned-by; "" without the annotation
}

// newCRD returns the crd for a CustomResourceDefinition. If group, kind, plural or version is missing, newCRD returns
// false.
func newCRD(ref apply.Ref, u *unstructured.Unstructured) (crd, bool) {
	d := crd{ref: ref, owner: u.GetAnnotations()[v1beta2.AnnotationOwnedBy]}
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

// isCRD reports whether an object is a CustomResourceDefinition.
func isCRD(r apply.Ref) bool {
	return r.Group == "apiextensions.k8s.io" && r.Kind == "CustomResourceDefinition"
}

// kind is a kind of custom resources that a purge deletes. All custom resources of this kind must be deleted before the
// operators of their modules.
type kind struct {
	gvk       schema.GroupVersionKind
	targets   []*target   // the Manifests whose purge waits for the custom resources of this kind
	only      []apply.Ref // the only objects that may be purged, because the CRD is in no inventory; nil: all
	protected string      // the reason why no custom resource of this kind may be purged; "" if purging is allowed
}

// mayPurge reports whether a custom resource of this kind may be purged. If only the modules' own custom resources may
// be purged, k.only lists them. The references in k.only come from Manifests and have a namespace even if the kind is
// cluster-scoped, so mayPurge ignores their namespace for cluster-scoped objects.
func (k *kind) mayPurge(r apply.Ref) bool {
	return k.protected == "" && (k.only == nil || slices.ContainsFunc(k.only, func(only apply.Ref) bool {
		if r.Namespace == "" {
			only.Namespace = ""
		}
		return r.SameObject(only)
	}))
}

// kindsOf returns the kinds whose custom resources must be deleted before the objects of the targets. kindsOf returns
// the kinds that the CRDs in the inventories define, and the kinds of the modules' own custom resources. For each kind,
// the first row that matches determines the custom resources that may be purged (a foreign CRD stays when the objects
// of the module are deleted, so its custom resources stay, too, and it counts as a CRD that is in no inventory):
//
//	1  a kind of Lifecycle Manager                      none
//	2  a pattern in skip matches the kind               none
//	3  a module keeps the CRD or a custom resource      none
//	4  the CRD has another owner                        none
//	5  the CRD is in an inventory                       all
//	6  otherwise                                        only the module's own custom resource
func kindsOf(targets []*target, skip []string) []*kind {
	var kinds []*kind
	for _, t := range targets {
		for _, d := range t.crds {
			k := &kind{gvk: d.gvk, targets: []*target{t}}
			switch {
			case isOwn(d.gvk.GroupKind()):
				k.protected = "is a kind of Lifecycle Manager"
			case isSkipped(d.gvk.GroupKind(), d.plural, skip):
				k.protected = "is on the skip list"
			case isCRDOrItsCRFlaggedKeep(d, targets):
				k.protected = "is kept by its module"
			case d.owner != "" && d.owner != t.owner:
				k.protected = "belongs to " + d.owner
			}
			kinds = append(kinds, k)
		}
	}
	for _, t := range targets {
		if t.resourceKind.Kind == "" {
			continue
		}
		if i := slices.IndexFunc(
			kinds, func(k *kind) bool { return k.gvk.GroupKind() == t.resourceKind.GroupKind() }); i >= 0 {
			if !slices.Contains(kinds[i].targets, t) {
				kinds[i].targets = append(kinds[i].targets, t)
			}
			if kinds[i].only != nil && t.resource.Kind != "" {
				kinds[i].only = append(kinds[i].only, t.resource)
			}
			continue
		}
		k := &kind{gvk: t.resourceKind, targets: []*target{t}, only: []apply.Ref{}}
		switch {
		case isOwn(k.gvk.GroupKind()):
			k.protected = "is a kind of Lifecycle Manager"
		case isSkipped(k.gvk.GroupKind(), "", skip):
			k.protected = "is on the skip list"
		}
		if t.resource.Kind != "" {
			k.only = append(k.only, t.resource)
		}
		kinds = append(kinds, k)
	}
	return kinds
}

// isOwn reports whether a kind belongs to Lifecycle Manager. In in-cluster mode, the runtime is the control plane, and
// therefore has custom resources of Lifecycle Manager, which must not be purged.
func isOwn(gk schema.GroupKind) bool {
	return gk.Group == v1beta2.Group && v1beta2.ResourceOf(gk.Kind) != ""
}

// isSkipped reports whether a pattern in skip matches the plural.group or the kind.group of a kind.
func isSkipped(gk schema.GroupKind, plural string, skip []string) bool {
	return slices.ContainsFunc(skip, func(pattern string) bool {
		pattern = strings.ToLower(pattern)
		byKind, _ := path.Match(pattern, strings.ToLower(gk.Kind+"."+gk.Group))
		byPlural, _ := path.Match(pattern, strings.ToLower(plural+"."+gk.Group))
		return byKind || plural != "" && byPlural
	})
}

// isCRDOrItsCRFlaggedKeep reports whether an inventory keeps a CRD, or a custom resource of this CRD. A CRD with a kept
// custom resource stays, because deleting the CRD would also delete the custom resource.
func isCRDOrItsCRFlaggedKeep(d crd, targets []*target) bool {
	return slices.ContainsFunc(targets, func(t *target) bool {
		return slices.ContainsFunc(t.inventory, func(r apply.Ref) bool {
			return r.Keep && (r.SameObject(d.ref) || r.Group == d.gvk.Group && r.Kind == d.gvk.Kind)
		})
	})
}

// finalizerGracePeriod is the maximum time between the deletion of a custom resource and the removal of its finalizers.
// finalizerGracePeriod applies only to custom resources that the purge itself has deleted, because their operator may
// still remove their finalizers. Custom resources that were deleted together with the module have already had the whole
// grace period.
const finalizerGracePeriod = time.Minute

// action is what the purge does with one custom resource.
type action int

const (
	actionNone             action = iota // the custom resource must not be changed
	actionDelete                         // delete the custom resource
	actionWait                           // wait for the deletion that was already requested
	actionRemoveFinalizers               // remove the finalizers of the custom resource
)

// actionFor returns the action for a custom resource. The result recheck is the point in time at which the custom
// resource has to be checked again, or the zero time if no further check has to be scheduled. The first row that
// matches decides the action:
//
//	1  the custom resource must not be purged              none
//	2  it is not being deleted                             delete
//	3  it has only finalizers of the garbage collector     wait
//	4  it was deleted less than finalizerGracePeriod ago   wait
//	5  the grace period is 0                               wait: finalizers are never removed
//	6  otherwise                                           remove finalizers
//
// The clock of the runtime may be ahead of the clock of this process, so a deletion time may be in the future. If the
// deletion time of an object is in the future, actionFor assumes that finalizerGracePeriod is over, so that a wrong
// clock does not block the purge.
func (k *kind) actionFor(found *apply.ObjectMetadata, now time.Time, grace time.Duration) (
	do action, recheck time.Time) {
	period := min(grace, finalizerGracePeriod)
	elapsed := now.Sub(found.DeletionTime)
	switch {
	case !k.mayPurge(found.Ref):
		return actionNone, time.Time{}
	case found.DeletionTime.IsZero():
		return actionDelete, now.Add(period)
	case len(found.Finalizers) == len(garbageCollectorFinalizers(found.Finalizers)):
		return actionWait, time.Time{}
	case elapsed >= 0 && elapsed < period:
		return actionWait, found.DeletionTime.Add(period)
	case grace == 0:
		return actionWait, time.Time{}
	default:
		return actionRemoveFinalizers, time.Time{}
	}
}

// garbageCollectorFinalizers returns the finalizers that the garbage collector of Kubernetes removes.
func garbageCollectorFinalizers(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f != metav1.FinalizerDeleteDependents && f != metav1.FinalizerOrphanDependents
	})
}

// overdueOrRejected returns the objects whose deletion takes longer than finalizerGracePeriod, or whose deletion the
// API server has rejected. The purge does not wait for overdue or rejected objects before it deletes the remaining
// objects.
func overdueOrRejected(left []apply.Remaining, now time.Time, grace time.Duration) []apply.Remaining {
	return slices.DeleteFunc(slices.Clone(left), func(r apply.Remaining) bool {
		return r.Err == nil && (r.Since.IsZero() || now.Sub(r.Since) < min(grace, finalizerGracePeriod))
	})
}

// refsOf returns the Refs of remaining objects.
func refsOf(left []apply.Remaining) []apply.Ref {
	refs := make([]apply.Ref, len(left))
	for i, r := range left {
		refs[i] = r.Ref
	}
	return refs
}

// without returns the elements of the parameter refs that the parameter others does not contain.
func without(refs, others []apply.Ref) []apply.Ref {
	return slices.DeleteFunc(slices.Clone(refs), func(
		r apply.Ref) bool {
		return slices.ContainsFunc(others, r.SameObject)
	})
}

// namesOf returns a text with kind, namespace and name for each object.
func namesOf(refs []apply.Ref) []string {
	names := make([]string, len(refs))
	for i, r := range refs {
		names[i] = r.String()
	}
	return names
}

// eventTextLimit is the maximum length of the names in the text of an event, in bytes. The Kubernetes API allows 1,024
// bytes for the field note, which is the whole text of an event.
const eventTextLimit = 850

// joinNames joins as many names as fit into the text of an event. joinNames appends the number of omitted names.
func joinNames(names []string) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 && b.Len()+len(", ")+len(name) > eventTextLimit {
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

// clip shortens a text to at most eventTextLimit bytes.
func clip(text string) string { return loop.ClipLineTo(text, eventTextLimit) }

// countText returns a text with a number and a noun, for example "1 object" or "2 objects".
func countText(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
