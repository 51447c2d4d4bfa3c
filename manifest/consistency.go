package manifest

import (
	"context"
	"fmt"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// ConsistencyCheck compares an installation with the InstallInfo info, and writes nothing. Status is ready if
// InstallOrUpgradeChart would change nothing. InstallOrUpgradeChart changes nothing if all of the following conditions
// are met.
//
//   - All objects are applied as in the chart, and nobody changed or deleted an object since.
//   - No objects of an earlier version remain.
//   - The CustomResources exist.
//   - If CheckReadyStates is set, all objects are ready.
//
// If Status is not ready, Pending names each object and field that differs.
//
// ConsistencyCheck returns the same errors as InstallOrUpgradeChart.
func ConsistencyCheck(ctx context.Context, info InstallInfo, transforms ...ObjectTransform) (Status, error) {
	r, before, err := prepareReadOnly(ctx, info, transforms)
	if err != nil {
		return Status{}, err
	}
	status := Status{LeftOut: r.leftOut}
	if before == nil {
		status.addPending(fmt.Sprintf("release %s is not installed in namespace %s", r.name, r.namespace))
		return status, nil
	}
	status.Objects = mergeRefs(before.Objects, before.CustomResources)
	changes, err := r.findChanges(ctx, before)
	if err != nil {
		return status, err
	}
	for _, c := range changes {
		status.addPending(c.String())
	}
	if len(changes) == 0 && before.Digest != r.set.Bundle.Digest {
		status.addPending("another version of the chart was installed, or an installation was not completed")
	}
	if err := r.addNotReady(ctx, &status); err != nil || len(status.Pending) > 0 {
		return status, err
	}
	return r.callCheckFnAndSetReady(ctx, status)
}

// Diff returns the changes that InstallOrUpgradeChart would make, and writes nothing. The changes are in the order of
// the chart; deletions are last. Diff also returns a deletion for an object that the release does not need any more,
// and that stays in the cluster because it does not belong only to the release. The result does not contain changes
// that admission webhooks of the cluster would make.
//
// Diff returns the same errors as InstallOrUpgradeChart.
func Diff(ctx context.Context, info InstallInfo, transforms ...ObjectTransform) ([]Change, error) {
	r, before, err := prepareReadOnly(ctx, info, transforms)
	if err != nil {
		return nil, err
	}
	return r.findChanges(ctx, before)
}

// prepareReadOnly prepares an operation on a release without writing to the cluster.
func prepareReadOnly(ctx context.Context, info InstallInfo, transforms []ObjectTransform) (
	*release, *inventory, error) {
	r, err := newRelease(info)
	if err != nil {
		return nil, nil, err
	}
	if err := r.render(ctx, transforms); err != nil {
		return nil, nil, err
	}
	if err := r.addNamespaceIfOwned(ctx, false); err != nil {
		return nil, nil, err
	}
	if err := r.encodeAndResolveRefs(ctx); err != nil {
		return nil, nil, err
	}
	before, err := r.loadInventory(ctx)
	if before != nil {
		r.set.Ownership = r.ownership(before.Objects)
	}
	return r, before, err
}

// findChanges returns the differences between the objects in the cluster and their desired state.
func (r *release) findChanges(ctx context.Context, before *inventory) ([]Change, error) {
	var changes []Change
	drifted, err := r.cluster.FindDrift(ctx, r.set, &r.done)
	if err != nil {
		return nil, r.wrapError("comparing the objects", err)
	}
	for _, d := range drifted {
		action := Update
		if d.Missing {
			action = Create
		}
		changes = append(changes, Change{Ref: d.Ref, Action: action, Fields: d.Fields, Managers: d.Managers})
	}
	for _, ref := range r.custom {
		_, err := r.cluster.Get(ctx, ref)
		switch {
		case isApplyErrorWithReason(err, apply.ObjectNotFound) || isApplyErrorWithReason(err, apply.KindUnknown):
			changes = append(changes, Change{Ref: ref, Action: Create})
		case err != nil:
			return nil, r.wrapError("reading the custom resources", err)
		}
	}
	if before != nil {
		for _, ref := range r.toPrune(before.Objects) {
			if !ref.Keep {
				changes = append(changes, Change{Ref: ref, Action: Delete})
			}
		}
	}
	return changes, nil
}

// String states how the object differs from the desired state.
func (c Change) String() string {
	switch c.Action {
	case Create:
		return c.Ref.String() + " does not exist"
	case Delete:
		return c.Ref.String() + " is not in the chart any more"
	}
	return apply.Drifted{Ref: c.Ref, Fields: c.Fields, Managers: c.Managers}.String()
}
