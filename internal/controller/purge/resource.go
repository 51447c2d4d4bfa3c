package purge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/customresource"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// actionsLimit is the maximum number of custom resources that one reconcile deletes, or from which it removes
// finalizers. If the limit is reached, the Kyma is requeued at once, behind the other Kymas in the queue.
const actionsLimit = 500

// surveyDeletingManifests lists the Manifests that are being deleted, and reads the objects of their inventories once.
// surveyDeletingManifests ignores all Manifests that are not being deleted, because the Kyma controller will delete
// them later.
func (n *run) surveyDeletingManifests(ctx context.Context) error {
	var manifests v1beta2.ManifestList
	err := n.Client.List(ctx, &manifests, client.InNamespace(n.kyma.Namespace),
		client.MatchingFields{manifestIndex: n.kyma.Name})
	if err != nil {
		return fmt.Errorf("listing the Manifests of Kyma %s: %w", n.kyma.Name, err)
	}
	present := map[string]bool{}
	for i := range manifests.Items {
		m := &manifests.Items[i]
		if m.IsUnmanaged() || m.InstalledOrSpecTarget() == v1beta2.TargetControlPlane {
			continue // the objects of this Manifest belong to the user, or are not in the runtime
		}
		present[m.Name] = true
		if n.memory.targets[m.Name] == nil {
			n.memory.targets[m.Name] = newTarget(m)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.memory.targets)) {
		t := n.memory.targets[name]
		if !present[name] {
			n.reportUnreportedDeletions(ctx, t)
			delete(n.memory.targets, name)
			continue
		}
		n.targets = append(n.targets, t)
	}
	return n.surveyTargets(ctx)
}

// surveyTargets reads the objects of the targets. surveyTargets also sets the kinds whose custom resources must be
// deleted.
func (n *run) surveyTargets(ctx context.Context) error {
	for _, t := range n.targets {
		if err := n.surveyTarget(ctx, t); err != nil {
			return err
		}
		t.blocked, t.deleted = false, false
	}
	n.kinds = kindsOf(n.targets, n.Skip)
	return nil
}

// surveyTarget determines which objects of an inventory exist, and reads the CRDs among them. surveyTarget does this
// only once for each Manifest, so that only objects that existed when the purge started are reported as purged.
//
// The inventory lists objects before they are applied, so it may contain a CRD that the module has never applied, and
// that belongs to a user. surveyTarget ignores such a foreign CRD: all its custom resources belong to users, except for
// the module's own one.
func (n *run) surveyTarget(ctx context.Context, t *target) error {
	if t.surveyed {
		return nil
	}
	t.existing, t.crds = nil, nil
	for _, ref := range t.inventory {
		object, err := n.runtime.Get(ctx, ref)
		switch {
		case isAbsent(err):
			continue
		case concernsWholeRuntime(err):
			return err
		}
		t.existing = append(t.existing, ref) // an object that cannot be read counts as existing
		if err != nil || !isCRD(ref) {
			continue
		}
		if !ref.Keep && customresource.IsForeign(object, t.owner) {
			continue
		}
		if d, ok := newCRD(ref, object); ok {
			t.crds = append(t.crds, d)
		}
	}
	t.surveyed = true
	return nil
}

// isAbsent reports whether an error means that an object, its namespace or its kind does not exist.
func isAbsent(err error) bool {
	return slices.Contains([]string{apply.ObjectNotFound, apply.KindUnknown, apply.NamespaceNotFound}, loop.Reason(err))
}

// concernsWholeRuntime reports whether an error concerns the whole runtime. After an error that concerns the whole
// runtime, other requests to the runtime would fail, too.
func concernsWholeRuntime(err error) bool {
	if err == nil {
		return false
	}
	if _, ok := errors.AsType[*apply.Error](err); !ok {
		return true
	}
	class := apply.ClassOf(err)
	return class == apply.Unreachable || class == apply.Unauthorized
}

// purgeCustomResources deletes custom resources. If a custom resource is not deleted in time, purgeCustomResources
// removes its finalizers.
func (n *run) purgeCustomResources(ctx context.Context) error {
	actions := 0
	for _, k := range n.kinds {
		found, err := n.runtime.List(ctx, k.gvk, "")
		switch {
		case loop.Reason(err) == apply.KindUnknown:
			continue // a kind that is not served has no objects
		case concernsWholeRuntime(err):
			return err
		case err != nil:
			k.blockInventoryDeletion()
			n.addBlocker(apply.Ref{Group: k.gvk.Group, Version: k.gvk.Version, Kind: k.gvk.Kind}, err.Error())
			continue
		}
		p := kindPurge{run: n, kind: k}
		for i := range found {
			if actions == actionsLimit {
				n.more = true
				k.blockInventoryDeletion()
				break
			}
			acted, err := p.actOrCollect(ctx, &found[i])
			if err != nil {
				return err
			}
			if acted {
				actions++
			}
		}
		if err := p.deleteCollectedAndReport(ctx); err != nil {
			return err
		}
	}
	return nil
}

// blockInventoryDeletion marks the Manifests whose operators handle custom resources of the kind k. The objects of a
// marked Manifest must not be deleted yet.
func (k *kind) blockInventoryDeletion() {
	for _, t := range k.targets {
		t.blocked = true
	}
}

// kindPurge is the work of one reconcile on one kind.
type kindPurge struct {
	*run
	kind      *kind
	toDelete  []apply.Ref // the custom resources that finish deletes together
	released  []apply.Ref // the custom resources whose finalizers were removed
	names     []string    // the names in released, with the removed finalizers
	untouched []apply.Ref // the custom resources that must not be purged
}

// actOrCollect performs the action that actionFor returns for one custom resource. If this action is a deletion,
// actOrCollect only adds the custom resource to toDelete, and deleteCollectedAndReport deletes the custom resource.
// actOrCollect reports whether the action needs a request to the runtime. actOrCollect returns an error only if the
// error concerns the whole runtime.
func (p *kindPurge) actOrCollect(ctx context.Context, found *apply.ObjectMetadata) (needsRequest bool, err error) {
	do, recheck := p.kind.actionFor(found, p.now, p.Grace)
	if !recheck.IsZero() {
		p.requeueAt(recheck)
	}
	switch do {
	case actionNone:
		p.untouched = append(p.untouched, found.Ref)
		p.kind.blockInventoryDeletion()
		return false, nil
	case actionDelete:
		p.toDelete = append(p.toDelete, found.Ref)
		return true, nil
	case actionRemoveFinalizers:
		return true, p.removeFinalizers(ctx, found)
	default:
		p.kind.blockInventoryDeletion()
		return false, nil
	}
}

// removeFinalizers removes the finalizers of one custom resource, except for those of the garbage collector. If the UID
// of the custom resource has changed in the meantime, the removal fails.
func (p *kindPurge) removeFinalizers(ctx context.Context, found *apply.ObjectMetadata) error {
	keep := garbageCollectorFinalizers(found.Finalizers)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": found.UID, "finalizers": keep}})
	if err != nil {
		return fmt.Errorf("encoding the finalizers of %s: %w", found.Ref, err)
	}
	_, err = p.runtime.Patch(ctx, found.Ref, types.MergePatchType, "", patch, v1beta2.FieldOwner)
	switch {
	case isAbsent(err):
		return nil
	case concernsWholeRuntime(err):
		return err
	case err != nil:
		p.addWebhookOrBlocker(found.Ref, err)
		p.kind.blockInventoryDeletion()
		return nil
	}
	if len(keep) > 0 {
		p.kind.blockInventoryDeletion()
	}
	removed := slices.DeleteFunc(slices.Clone(found.Finalizers),
		func(f string) bool { return slices.Contains(keep, f) })
	p.released = append(p.released, found.Ref)
	p.names = append(p.names, found.String()+" (held by "+strings.Join(removed, ", ")+")")
	metrics.Purged.WithLabelValues(metrics.PurgedFinalizers).Inc()
	log.FromContext(ctx).Info("removed finalizers of a custom resource", "object",
		found.String(), "finalizers", removed)
	return nil
}

// deleteCollectedAndReport deletes all custom resources in toDelete, and records events about all actions for this
// kind.
func (p *kindPurge) deleteCollectedAndReport(ctx context.Context) error {
	if p.names != nil {
		p.recordWarning(v1beta2.ReasonFinalizersRemoved, p.released[0], fmt.Sprintf("removed the finalizers of %s: %s",
			countText(len(p.names), "custom resource"), joinNames(p.names)))
	}
	if p.untouched != nil {
		why := cmp.Or(p.kind.protected, "is defined by none of the modules")
		p.addBlocker(p.untouched[0], fmt.Sprintf("the kind %s %s: %s", p.kind.gvk.GroupKind(), why,
			joinNames(namesOf(p.untouched))))
	}
	if p.toDelete == nil {
		return nil
	}
	p.memory.deletion.Forget(p.toDelete...) // the list shows that they exist, perhaps again after a former deletion
	left, err := p.runtime.Delete(ctx, p.toDelete, &p.memory.deletion)
	var names []string
	for _, ref := range without(p.toDelete, notAccepted(left.Remaining)) {
		names = append(names, ref.String())
		metrics.Purged.WithLabelValues(metrics.PurgedResource).Inc()
		log.FromContext(ctx).Info("deleted a custom resource", "object", ref.String())
	}
	for _, r := range left.Remaining {
		p.kind.blockInventoryDeletion()
		if r.Err != nil {
			p.addWebhookOrBlocker(r.Ref, r.Err)
		}
	}
	if names != nil && err == nil {
		p.recordEvent(v1beta2.ReasonPurged, p.toDelete[0],
			fmt.Sprintf("deleted %s: %s", countText(len(names), "custom resource"), joinNames(names)))
	}
	return err
}

// notAccepted returns those of the objects whose deletion the API server has not accepted.
func notAccepted(left []apply.Remaining) []apply.Ref {
	var refs []apply.Ref
	for _, r := range left {
		if r.Err != nil || r.Since.IsZero() {
			refs = append(refs, r.Ref)
		}
	}
	return refs
}
