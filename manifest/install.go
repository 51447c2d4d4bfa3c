package manifest

import (
	"context"
	"fmt"
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
	for {
		status, err := r.installOnce(ctx)
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
	now := inventory{Objects: r.refs, CustomResources: r.custom}
	if before != nil {
		now.Objects, now.CustomResources = mergeRefs(r.refs, before.Objects), mergeRefs(r.custom,
			before.CustomResources)
		if before.Digest == r.set.Bundle.Digest {
			now.Digest = before.Digest
		}
	}
	if err := r.storeInventory(ctx, before, now); err != nil {
		return status, err
	}
	status.Objects = mergeRefs(now.Objects, now.CustomResources)

	if err := r.applyAllOrDrifted(ctx, now.Digest != "", &status); err != nil || len(status.Pending) > 0 {
		return status, err
	}
	teardown, err := r.cluster.Delete(ctx, r.toPrune(now.Objects), &r.asked)
	if err != nil {
		return status, r.wrapError("pruning the objects", err)
	}
	after := inventory{Digest: r.set.Bundle.Digest, Objects: without(now.Objects, teardown.Deleted),
		CustomResources: now.CustomResources}
	if !teardown.Done() {
		after.Digest = ""
		status.addPending(teardown.WaitMessage())
	}
	if err := r.storeInventory(ctx, &now, after); err != nil {
		return status, err
	}
	status.Objects = mergeRefs(after.Objects, after.CustomResources)

	if err := r.addNotReady(ctx, &status); err != nil || len(status.Pending) > 0 {
		return status, err
	}
	if err := r.createMissingCustomResources(ctx, &status); err != nil || len(status.Pending) > 0 {
		return status, err
	}
	return r.callCheckFnAndSetReady(ctx, status)
}

// toPrune returns those objects of an inventory that the release does not contain any more. toPrune never returns the
// namespace of the release: it contains all other objects and the inventory, so only UninstallChart may delete it.
func (r *release) toPrune(recorded []apply.Ref) []apply.Ref {
	return without(apply.Removed(recorded, r.refs), []apply.Ref{r.namespaceRef()})
}

// applyAllOrDrifted applies all objects. If the parameter wasApplied is true, an earlier call has applied all objects,
// so applyAllOrDrifted first reads the objects, and applies only those that differ.
func (r *release) applyAllOrDrifted(ctx context.Context, wasApplied bool, status *Status) error {
	if wasApplied {
		if _, err := r.cluster.FindDrift(ctx, r.set, &r.done); err != nil {
			return r.wrapError("comparing the objects", err)
		}
	}
	result, err := r.cluster.Apply(ctx, r.set, &r.done)
	if err != nil {
		return r.wrapError("applying the objects", err)
	}
	for _, w := range result.Waiting {
		status.addPending(fmt.Sprintf("%s waits: %s", w.Ref, w.Message))
	}
	if err := result.Err(); err != nil {
		return r.wrapError(fmt.Sprintf("applying %d of %d objects", len(result.Failed), len(r.set.Bundle.Objects)), err)
	}
	return nil
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

// createMissingCustomResources creates the custom resources that do not exist in the cluster.
func (r *release) createMissingCustomResources(ctx context.Context, status *Status) error {
	for i, ref := range r.custom {
		_, err := r.cluster.Get(ctx, ref)
		if isApplyErrorWithReason(err, apply.ObjectNotFound) {
			object := r.CustomResources[i].DeepCopy()
			object.SetNamespace(ref.Namespace)
			_, err = r.cluster.Create(ctx, object, apply.DefaultOwner)
		}
		switch {
		case isApplyErrorWithReason(err, apply.KindUnknown):
			status.addPending(fmt.Sprintf("%s waits: the cluster does not serve its kind yet", ref))
		case err != nil && !isApplyErrorWithReason(err, apply.ObjectExists):
			return r.wrapError("creating the custom resources", err)
		}
	}
	return nil
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
