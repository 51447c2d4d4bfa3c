package manifest

import (
	"context"
	"fmt"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// ConsistencyCheck compares an installation with what info says, and writes nothing. Status is ready if there is nothing that
// InstallChart would have to do: everything is applied as the chart has it now and nobody has changed or deleted it, nothing is
// left of an earlier version, the CustomResources exist, and, if that counts, all is ready. Otherwise its Waits name each
// object and field.
//
// Errors are those of InstallChart.
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
	status.Objects = union(before.Objects, before.CustomResources)
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
	return r.callCheckFn(ctx, status)
}

// Diff returns what InstallChart would do to which objects, in the order of the chart, deletions last, and writes nothing. What
// a webhook of the cluster would make of it is not known before.
//
// Errors are those of InstallChart.
func Diff(ctx context.Context, info InstallInfo, transforms ...ObjectTransform) ([]Change, error) {
	r, before, err := prepareReadOnly(ctx, info, transforms)
	if err != nil {
		return nil, err
	}
	return r.findChanges(ctx, before)
}

// compare prepares what needs no writing.
func prepareReadOnly(ctx context.Context, info InstallInfo, transforms []ObjectTransform) (*release, *inventory, error) {
	r, err := newRelease(info)
	if err != nil {
		return nil, nil, err
	}
	if err := r.render(ctx, transforms); err != nil {
		return nil, nil, err
	}
	if err := r.ensureNamespace(ctx, false); err != nil {
		return nil, nil, err
	}
	if err := r.resolve(ctx); err != nil {
		return nil, nil, err
	}
	before, err := r.loadInventory(ctx)
	return r, before, err
}

// changes finds what is not as it should be.
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
		case isReason(err, apply.ObjectNotFound) || isReason(err, apply.KindUnknown):
			changes = append(changes, Change{Ref: ref, Action: Create})
		case err != nil:
			return nil, r.wrapError("reading the custom resources", err)
		}
	}
	if before != nil {
		for _, ref := range apply.Removed(before.Objects, r.refs) {
			if !ref.Keep {
				changes = append(changes, Change{Ref: ref, Action: Delete})
			}
		}
	}
	return changes, nil
}

// String says what is wrong with the object, as long as nothing is done about it.
func (c Change) String() string {
	switch c.Action {
	case Create:
		return c.Ref.String() + " does not exist"
	case Delete:
		return c.Ref.String() + " is not in the chart any more"
	}
	return apply.Drifted{Ref: c.Ref, Fields: c.Fields, Managers: c.Managers}.String()
}
