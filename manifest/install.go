package manifest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// waitInterval is the delay between two attempts of InstallOrUpgradeChart if the flag Wait is set.
const waitInterval = time.Second

// InstallOrUpgradeChart brings an installation to the state that info describes. InstallOrUpgradeChart installs the
// chart, upgrades it, reverts changes by others, and deletes objects that are no longer in the chart. Some objects can
// be applied only when others are ready. One call of InstallOrUpgradeChart applies all objects that can be applied now.
// Call InstallOrUpgradeChart again as long as Status is not ready. If the flags Wait and Timeout are set,
// InstallOrUpgradeChart waits for at most Timeout and makes all attempts in one call.
//
// Errors have a method Reason. Errors are those of this package, [render.Error] or [apply.Error]. After an error,
// objects that were applied before the error stay in the cluster and in the inventory.
func InstallOrUpgradeChart(ctx context.Context, info InstallInfo, transforms ...ObjectTransform) (Status, error) {
	r, err := newRelease(info)
	if err != nil {
		return Status{}, err
	}
	if err := r.render(ctx, transforms); err != nil {
		return Status{}, err
	}
	if err := r.addNamespaceIfOwned(ctx, true); err != nil {
		return Status{}, err
	}
	if err := r.encodeAndResolveRefs(ctx); err != nil {
		return Status{}, err
	}
	deadline := time.Now().Add(r.flags.Timeout)
	var takenOver, left []string // of all attempts
	for {
		status, err := r.installOnce(ctx)
		takenOver, left = appendNew(takenOver, status.TakenOver), appendNew(left, status.Left)
		status.TakenOver, status.Left = takenOver, left
		if err != nil || status.Ready || !r.flags.Wait || !time.Now().Add(waitInterval).Before(deadline) {
			return status, err
		}
		select {
		case <-ctx.Done():
			return status, ctx.Err()
		case <-time.After(waitInterval):
		}
	}
}

// installOnce makes one attempt to install the release.
func (r *release) installOnce(ctx context.Context) (Status, error) {
	status := Status{LeftOut: r.leftOut}
	before, err := r.loadInventory(ctx)
	if err != nil {
		return status, err
	}
	recorded := inventory{}
	if before != nil {
		recorded = *before
	}
	now := inventory{
		Objects: mergeRefs(recordedOrPending(r.refs, recorded.Objects), recorded.Objects),
		CustomResources: mergeRefs(recordedOrPending(r.custom, recorded.CustomResources),
			without(recorded.CustomResources, r.refs)),
	}
	if recorded.Digest == r.set.Bundle.Digest {
		now.Digest = recorded.Digest
	}
	if err := r.storeInventory(ctx, before, now); err != nil {
		return status, err
	}
	status.Objects = mergeRefs(now.Objects, now.CustomResources)

	r.set.Ownership = r.ownership(now.Objects)
	result, err := r.applyAllOrDrifted(ctx, now.Digest != "", &status)
	status.TakenOver = takenOverMessages(&result)
	after := now
	after.Objects = withFlagsAfter(now.Objects, &result)
	if err == nil && len(status.Pending) == 0 {
		after, err = r.prune(ctx, after, &status)
	}
	status.Objects = mergeRefs(after.Objects, after.CustomResources)
	// After an error, too, the inventory has to record which objects existed before.
	if err := cmp.Or(err, r.storeInventory(ctx, &now, after)); err != nil || len(status.Pending) > 0 {
		return status, err
	}

	if err := r.addNotReady(ctx, &status); err != nil || len(status.Pending) > 0 {
		return status, err
	}
	complete := after
	complete.CustomResources, err = r.createMissingCustomResources(ctx, after.CustomResources, &status)
	status.Objects = mergeRefs(complete.Objects, complete.CustomResources)
	if err := cmp.Or(err, r.storeInventory(ctx, &after, complete)); err != nil || len(status.Pending) > 0 {
		return status, err
	}
	return r.callCheckFnAndSetReady(ctx, status)
}

// prune deletes the objects of the inventory that the release does not contain any more, and returns the inventory
// without them.
func (r *release) prune(ctx context.Context, now inventory, status *Status) (inventory, error) {
	removed, err := r.remove(ctx, r.toPrune(now.Objects), status)
	if err != nil {
		return now, err
	}
	now.Objects = without(without(now.Objects, removed.gone), removed.left)
	now.Digest = ""
	if len(status.Pending) == 0 {
		now.Digest = r.set.Bundle.Digest
	}
	return now.withLeftCustomResources(removed.left), nil
}

// toPrune returns those objects of an inventory that the release does not contain any more. toPrune never returns the
// namespace of the release: it contains all other objects and the inventory, so only UninstallChart may delete it.
func (r *release) toPrune(recorded []apply.Ref) []apply.Ref {
	return without(apply.Removed(recorded, r.refs), []apply.Ref{r.namespaceRef()})
}

// applyAllOrDrifted applies all objects, and returns the result even if some objects have failed. If the parameter
// wasApplied is true, an earlier call has applied all objects, so applyAllOrDrifted first reads the objects, and
// applies only those that differ.
func (r *release) applyAllOrDrifted(ctx context.Context, wasApplied bool, status *Status) (apply.Result, error) {
	if wasApplied {
		if _, err := r.cluster.FindDrift(ctx, r.set, &r.done); err != nil {
			return apply.Result{}, r.wrapError("comparing the objects", err)
		}
	}
	result, err := r.cluster.Apply(ctx, r.set, &r.done)
	if err != nil {
		return apply.Result{}, r.wrapError("applying the objects", err)
	}
	for _, w := range result.Waiting {
		status.addPending(fmt.Sprintf("%s waits: %s", w.Ref, w.Message))
	}
	if err = result.Err(); err != nil {
		err = r.wrapError(fmt.Sprintf("applying %d of %d objects", len(result.Failed), len(r.set.Bundle.Objects)), err)
	}
	return result, err
}

// addNotReady adds the objects that are not ready to Pending. addNotReady does nothing if readiness is not checked.
func (r *release) addNotReady(ctx context.Context, status *Status) error {
	if !r.CheckReadyStates && !r.flags.Wait {
		return nil
	}
	notReady, err := r.cluster.CheckReady(ctx, r.refs, &r.done)
	if err != nil {
		return r.wrapError("reading the readiness of objects", err)
	}
	for _, n := range notReady {
		status.addPending(n.Message)
	}
	return nil
}

// createMissingCustomResources creates the custom resources that do not exist in the cluster. The parameter recorded is
// the list CustomResources of the inventory, which begins with the custom resources of the release.
// createMissingCustomResources returns this list with new flags: a custom resource that existed before the installation
// is not deleted with it.
func (r *release) createMissingCustomResources(ctx context.Context, recorded []apply.Ref, status *Status) (
	[]apply.Ref, error) {
	recorded = slices.Clone(recorded)
	for i, ref := range r.custom {
		existing, err := r.cluster.Get(ctx, ref)
		switch {
		case err == nil && recorded[i].Pending:
			// An earlier call may have ended after the creation of the custom resource and before it was recorded.
			recorded[i].Pending, recorded[i].Adopted = false, !isAppliedByPackage(existing)
			if recorded[i].Adopted {
				status.TakenOver = append(status.TakenOver, ref.String()+" existed before the installation: it is not "+
					"changed, and UninstallChart will not delete it")
			}
		case isApplyErrorWithReason(err, apply.ObjectNotFound):
			object := r.CustomResources[i].DeepCopy()
			object.SetNamespace(ref.Namespace)
			if _, err = r.cluster.Create(ctx, object, FieldManager); err == nil {
				recorded[i].Pending, recorded[i].Adopted = false, false
			}
		}
		switch {
		case isApplyErrorWithReason(err, apply.KindUnknown):
			status.addPending(fmt.Sprintf("%s waits: the cluster does not serve its kind yet", ref))
		case isApplyErrorWithReason(err, apply.ObjectExists):
			status.addPending(fmt.Sprintf("%s waits: another client has just created it", ref))
		case err != nil:
			return recorded, r.wrapError("creating the custom resources", err)
		}
	}
	return recorded, nil
}

// callCheckFnAndSetReady calls CheckFn and sets Ready.
func (r *release) callCheckFnAndSetReady(ctx context.Context, status Status) (Status, error) {
	if r.CheckFn != nil {
		ready, err := r.CheckFn(ctx, r.BaseResource, r.ClusterInfo)
		if err != nil {
			return status, r.wrapError("calling CheckFn", err)
		}
		if !ready {
			status.addPending("CheckFn reports that it is not ready")
		}
	}
	status.Ready = len(status.Pending) == 0
	return status, nil
}
