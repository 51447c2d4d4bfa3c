package manifest

import (
	"context"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// UninstallChart removes an installation by its inventory. Of info it reads the cluster, the name of the release, the flag
// Namespace, and CheckFn; the chart may be gone. CustomResources go first, and nothing else is touched until they are gone. It does
// what can be done now; as long as Status is not ready, call it again. What is not installed is ready at once.
//
// Errors are those of InstallChart but for rendering.
func UninstallChart(ctx context.Context, info InstallInfo) (Status, error) {
	r, err := newRelease(info)
	if err != nil {
		return Status{}, err
	}
	var status Status
	before, err := r.loadInventory(ctx)
	if err != nil {
		return status, err
	}
	if before != nil {
		if err := r.uninstall(ctx, before, &status); err != nil || len(status.Pending) > 0 {
			return status, err
		}
	} else if err := r.deleteLeftoverNamespace(ctx, &status); err != nil || len(status.Pending) > 0 {
		return status, err
	}
	return r.callCheckFn(ctx, status)
}

// uninstall deletes custom resources, then all objects, then the inventory; each when the one before is gone.
func (r *release) uninstall(ctx context.Context, before *inventory, status *Status) error {
	status.Objects = union(before.Objects, before.CustomResources)
	delete := func(refs []apply.Ref) (done bool, err error) {
		teardown, err := r.cluster.Delete(ctx, refs, &r.asked)
		if err != nil {
			return false, r.wrapError("deleting the objects", err)
		}
		status.Objects = without(status.Objects, teardown.Deleted)
		if !teardown.Done() {
			status.addPending(teardown.WaitMessage())
		}
		return teardown.Done(), nil
	}
	if done, err := delete(before.CustomResources); err != nil || !done {
		return err
	}
	// The namespace of the release is among the objects if it is ours. It goes last, and the inventory with it.
	if done, err := delete(before.Objects); err != nil || !done {
		return err
	}
	_, err := delete([]apply.Ref{r.inventoryRef()})
	return err
}

// awaitHome sees to the namespace of a release without inventory: it may be on its way out, and the inventory went first; or the
// installation got no further than to create it.
func (r *release) deleteLeftoverNamespace(ctx context.Context, status *Status) error {
	ref := apply.Ref{Version: "v1", Kind: "Namespace", Name: r.namespace}
	namespace, err := r.cluster.Get(ctx, ref)
	switch {
	case isReason(err, apply.ObjectNotFound):
		return nil
	case err != nil:
		return r.wrapError("reading the namespace", err)
	case namespace.GetLabels()[labelRelease] != r.name || namespace.GetDeletionTimestamp() == nil && namespace.GetAnnotations()[annotationNamespaceOnly] == "":
		return nil
	}
	teardown, err := r.cluster.Delete(ctx, []apply.Ref{ref}, &r.asked)
	if err != nil {
		return r.wrapError("deleting the namespace", err)
	}
	if !teardown.Done() {
		status.addPending(teardown.WaitMessage())
	}
	return nil
}
