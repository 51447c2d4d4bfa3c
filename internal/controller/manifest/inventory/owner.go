package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/customresource"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// Peers finds the Manifests that share a cluster with a given Manifest: the Manifests of the same runtime, or all
// Manifests that are installed on the control plane.
type Peers struct {
	// Reader reads Manifests. For the control plane, Reader must read the Manifests of all Kymas.
	Reader client.Reader
	// Target is the cluster with the objects of the Manifests: TargetControlPlane or TargetRemote. In in-cluster mode,
	// in which the control plane is the only runtime, Target is "".
	Target v1beta2.Target
}

// areOnSameCluster reports whether the Manifest other is on the same cluster as m.
func (p Peers) areOnSameCluster(m, other *v1beta2.Manifest) bool {
	if p.Target == v1beta2.TargetControlPlane {
		return other.InstalledOrSpecTarget() == p.Target
	}
	return other.KymaName() == m.KymaName() && (p.Target == "" || other.InstalledOrSpecTarget() == p.Target)
}

// Ownership returns the identity and the rules with which the objects of a Manifest are applied and deleted. On the
// control plane, an object that existed before the module is never changed.
func (p Peers) Ownership(ctx context.Context, m *v1beta2.Manifest, adoption apply.Adoption) *apply.Ownership {
	onControlPlane := p.Target == v1beta2.TargetControlPlane
	if onControlPlane {
		adoption = apply.Refuse
	}
	return &apply.Ownership{
		Name: m.Namespace + "/" + m.Name, Title: p.title(m), Manager: v1beta2.FieldOwnerApplier,
		Adoption: adoption, IgnoreAdoptionOfObjects: onControlPlane, Recorded: Refs(m.Status.Synced),
		Find: func(name string) (string, bool) { return p.findOwner(ctx, m, name) },
	}
}

// title returns the name with which messages refer to a Manifest.
func (p Peers) title(m *v1beta2.Manifest) string {
	title := "Manifest " + m.Name
	if module := m.ModuleName(); module != "" {
		title = "module " + module
	}
	if kyma := m.KymaName(); kyma != "" && p.Target == v1beta2.TargetControlPlane {
		title += " of Kyma " + kyma
	}
	return title
}

// findOwner looks for the Manifest that an object names as its owner. findOwner returns a title of this Manifest for
// messages, and whether the Manifest exists and has its objects on the same cluster as the Manifest m.
func (p Peers) findOwner(ctx context.Context, m *v1beta2.Manifest, owner string) (title string, isOnSameCluster bool) {
	namespace, name, ok := strings.Cut(owner, "/")
	if !ok {
		return "", false
	}
	other := &v1beta2.Manifest{}
	switch err := p.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, other); {
	case apierrors.IsNotFound(err):
		return "", false
	case err != nil: // not known: it counts as existing
		return "Manifest " + name, true
	}
	return p.title(other), p.areOnSameCluster(m, other)
}

// Others are the Manifests of a cluster except the current one and those that are being deleted. They may be shared
// with the cache, so nobody may change them.
type Others []v1beta2.Manifest

// ListOtherManifests reads the other Manifests on the cluster of the Manifest m.
func (p Peers) ListOtherManifests(ctx context.Context, m *v1beta2.Manifest) (Others, error) {
	all, err := p.listWithLeaving(ctx, m)
	return slices.DeleteFunc(all, isLeaving), err
}

// isLeaving reports whether a Manifest is being deleted or handed over to the user.
func isLeaving(m v1beta2.Manifest) bool { return !m.DeletionTimestamp.IsZero() || m.IsUnmanaged() }

// listWithLeaving reads the other Manifests on the cluster of the Manifest m, with those that are being deleted.
func (p Peers) listWithLeaving(ctx context.Context, m *v1beta2.Manifest) (Others, error) {
	var list v1beta2.ManifestList
	kyma := m.KymaName()
	var of client.ListOption = client.MatchingFields{runtimes.KymaNameIndex: kyma}
	if p.Target == v1beta2.TargetControlPlane {
		of = client.MatchingLabels{v1beta2.LabelTarget: string(p.Target)}
	}
	if err := p.Reader.List(ctx, &list, client.InNamespace(m.Namespace), of,
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the other Manifests of the cluster of Kyma %s: %w", kyma, err)
	}
	return slices.DeleteFunc(list.Items, func(other v1beta2.Manifest) bool {
		return other.Name == m.Name || !p.areOnSameCluster(m, &other)
	}), nil
}

// OtherWithDefault returns the title, for messages, of another Manifest on the cluster of the Manifest m that has the
// same default custom resource and that stays, or that is handed over to the user. OtherWithDefault returns "" if there
// is no such Manifest. The parameter cr is the default custom resource of m as the cluster identifies it.
func (p Peers) OtherWithDefault(ctx context.Context, m *v1beta2.Manifest, cr apply.Ref) (title string, _ error) {
	all, err := p.listWithLeaving(ctx, m)
	for i := range all {
		other := &all[i]
		isDeleted := !other.DeletionTimestamp.IsZero() && !other.IsUnmanaged()
		if !isDeleted && customresource.IsDefaultOf(other, cr) {
			return p.title(other), nil
		}
	}
	return "", err
}

// OfKyma returns those of the Manifests that belong to one Kyma.
func (o Others) OfKyma(name string) Others {
	return slices.DeleteFunc(slices.Clone(o), func(m v1beta2.Manifest) bool { return m.KymaName() != name })
}

// HoldersOf returns a function that returns the name of the first Manifest in Others whose inventory contains an
// object. If no inventory contains the object, or refs does not contain it, the function returns "". HoldersOf reads
// each inventory once, because the others may have many more objects than refs.
func (o Others) HoldersOf(refs []apply.Ref) func(apply.Ref) (namespacedName string) {
	holders := make(map[identity]string, len(refs))
	for _, r := range refs {
		holders[identityOf(r)] = ""
	}
	for i := range o {
		for j := range o[i].Status.Synced {
			e := &o[i].Status.Synced[j]
			id := identity{e.Group, e.Kind, e.Namespace, e.Name}
			if holder, asked := holders[id]; asked && holder == "" {
				holders[id] = o[i].Namespace + "/" + o[i].Name
			}
		}
	}
	return func(r apply.Ref) string { return holders[identityOf(r)] }
}

// ToDelete returns the objects in refs that must be deleted when a module no longer contains them. Two kinds of objects
// stay in the cluster: objects that existed before the module, and objects that another Manifest also contains. If it
// cannot be determined which objects stay, ToDelete returns more objects in the parameter refs.
//
// The inventory does not show yet whether an object with the flag Pending existed before the module, so ToDelete reads
// it from the cluster.
//
// An object that other Manifests contain stays if one of them stays. If all of them are being deleted, the object stays
// only if it belongs to one of them, which deletes it or hands it over. The flag Shared does not show this, because the
// other Manifest may have handed the object over since the flag was set. The function in the parameter read reads an
// object from the cluster, and returns nil if it cannot be read.
func (p Peers) ToDelete(ctx context.Context, m *v1beta2.Manifest, refs []apply.Ref,
	read func(apply.Ref) *unstructured.Unstructured) []apply.Ref {
	if len(refs) == 0 {
		return nil
	}
	all, _ := p.listWithLeaving(ctx, m) // without the others, more objects count
	holderOf := all.HoldersOf(refs)
	stayingHolderOf := slices.DeleteFunc(slices.Clone(all), isLeaving).HoldersOf(refs)
	own := m.Namespace + "/" + m.Name
	belongsToOther := func(object *unstructured.Unstructured) bool {
		owner := object.GetAnnotations()[v1beta2.AnnotationOwnedBy]
		if owner == own {
			return false
		}
		_, exists := p.findOwner(ctx, m, owner)
		return exists
	}
	return slices.DeleteFunc(slices.Clone(refs), func(r apply.Ref) bool {
		if r.Adopted || stayingHolderOf(r) != "" {
			return true
		}
		isHeld := r.Shared && holderOf(r) != ""
		if !isHeld && !r.Pending {
			return false
		}
		object := read(r)
		return object != nil &&
			(isHeld && belongsToOther(object) || r.Pending && customresource.IsForeign(object, own))
	})
}

// maxWait is the maximum time that a deletion waits until other modules of the runtime have recorded their objects.
const maxWait = time.Minute

// Wait delays a deletion until all other modules have recorded their objects in their inventories. An object that is
// about to be deleted has to stay if the new version of another module contains it. The zero value is ready to use.
type Wait struct{ since time.Time }

// FirstBehind looks for a Manifest that is behind: it was changed, and has not recorded its objects in the inventory
// since the change. FirstBehind returns a title for messages of the first Manifest that is behind, or "" if no Manifest
// is behind. FirstBehind ignores paused Manifests. The parameter prunes is true if a new version of a module no longer
// contains some objects, and false if the whole module is removed. Only a prune waits for a Manifest that has failed; a
// module that is removed as a whole does not wait for a broken module. After maxWait, FirstBehind returns "" in any
// case, so that the caller waits no longer.
func (w *Wait) FirstBehind(others Others, prunes bool) (title string) {
	for i := range others {
		m := &others[i]
		if m.SkipsReconciliation() || m.Annotations[v1beta2.AnnotationPaused] != "" ||
			m.Status.ObservedGeneration >= m.Generation && (!prunes || !hasLastChangeFailedBeforeRecording(m)) {
			continue
		}
		if w.since.IsZero() {
			w.since = time.Now()
		}
		if time.Since(w.since) > maxWait {
			return ""
		}
		return Peers{}.title(m)
	}
	w.since = time.Time{}
	return ""
}

// hasLastChangeFailedBeforeRecording reports whether the last change of a Manifest has failed before the objects of the
// new version were recorded in the inventory. hasLastChangeFailedBeforeRecording reads only the status of the Manifest.
// A Manifest whose objects conflict with objects of another module counts as one that has recorded its objects.
func hasLastChangeFailedBeforeRecording(m *v1beta2.Manifest) bool {
	if m.Status.AppliedGeneration >= m.Generation {
		return false
	}
	ready := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady)
	return m.Status.State == v1beta2.StateError && (ready == nil || ready.Reason != v1beta2.ReasonOwnedByOtherModule) ||
		meta.IsStatusConditionFalse(m.Status.Conditions, v1beta2.ConditionSourcesReadable)
}

// Note returns the reason and the message of the event about an object that existed before it was applied, or "" if no
// event is needed.
func Note(e apply.Existing) (reason, note string) {
	by := ""
	if len(e.Managers) > 0 {
		by = " (field managers " + strings.Join(e.Managers, ", ") + ")"
	}
	switch e.Met {
	case apply.MetAdopted:
		return v1beta2.ReasonObjectAdopted, e.Ref.String() + " existed before the module" + by +
			": it is kept as the module has it, and stays when the module is removed"
	case apply.MetTaken:
		return v1beta2.ReasonObjectTaken, e.Ref.String() + " existed before the module" + by +
			": it belongs to the module now, and is deleted with the module"
	}
	return "", ""
}

// LeftReason returns the reason of the event about an object that is left in the runtime.
func LeftReason(l apply.Left) string {
	switch l.Reason {
	case apply.LeftReleased:
		return v1beta2.ReasonObjectReleased
	case apply.LeftHandedOver:
		return v1beta2.ReasonObjectHandedOver
	case apply.LeftToOwner:
		return v1beta2.ReasonObjectLeftToOwner
	default:
		return v1beta2.ReasonObjectLeftToOthers
	}
}
