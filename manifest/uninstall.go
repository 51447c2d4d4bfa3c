package manifest

import (
	"context"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// UninstallChart deletes an installation by its inventory. Of info it uses the cluster, the name of the release, the
// flag Namespace, and CheckFn; the chart need not exist any more. CustomResources are deleted first, and the other
// objects once they do not exist any more. It does what can be done now; as long as Status is not ready, call it again.
// An installation that does not exist is ready at once.
//
// Errors are those of InstallChart except for rendering.
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

// uninstall deletes custom resources, then all objects, then the inventory; each once the one before is deleted.
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
	// The namespace of the release is among the objects if it belongs to the installation. It is deleted last, and the
	// inventory with it.
	if done, err := delete(before.Objects); err != nil || !done {
		return err
	}
	_, err := delete([]apply.Ref{r.inventoryRef()})
	return err
}

// deleteLeftoverNamespace deletes the namespace of a release without inventory, if it belongs to the installation: it
// is being deleted, and the inventory was deleted first; or the installation was interrupted after it was created.
func (r *release) deleteLeftoverNamespace(ctx context.Context, status *Status) error {
	ref := apply.Ref{Version: "v1", Kind: "Namespace", Name: r.namespace}
	namespace, err := r.cluster.Get(ctx, ref)
	switch {
	case isReason(err, apply.ObjectNotFound):
		return nil
	case err != nil:
		return r.wrapError("reading the namespace", err)
	case namespace.GetLabels()[labelRelease] != r.name || namespace.GetDeletionTimestamp() == nil &&
		namespace.GetAnnotations()[annotationNamespaceOnly] == "":
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
