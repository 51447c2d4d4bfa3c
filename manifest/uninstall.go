package manifest

import (
	"context"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// UninstallChart deletes the objects in the inventory of an installation. Of the parameter info, UninstallChart uses
// only the cluster, the name of the release, the flag Namespace, and CheckFn. UninstallChart does not read the chart,
// so the chart may have been deleted before. UninstallChart deletes the CustomResources first, and all other objects
// when no CustomResources are left. One call of UninstallChart does everything that is possible at that time. Call
// UninstallChart again as long as Status is not ready. If the installation does not exist, Status is ready at once.
//
// UninstallChart returns the same errors as InstallOrUpgradeChart, except errors of rendering.
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
	return r.callCheckFnAndSetReady(ctx, status)
}

// uninstall deletes the custom resources, after that all objects, and at the end the inventory. The deletion of the
// other objects begins only when all custom resources are deleted, and the inventory is deleted only when all objects
// are deleted.
func (r *release) uninstall(ctx context.Context, before *inventory, status *Status) error {
	status.Objects = mergeRefs(before.Objects, before.CustomResources)
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
	// If the installation created the namespace of the release, this namespace is one of the objects in the inventory.
	// The namespace is deleted after all other objects, and the inventory is deleted together with the namespace.
	if done, err := delete(before.Objects); err != nil || !done {
		return err
	}
	_, err := delete([]apply.Ref{r.inventoryRef()})
	return err
}

// deleteLeftoverNamespace deletes the namespace of a release if there is no inventory and if a label shows that
// InstallOrUpgradeChart created the namespace for the release. A namespace without an inventory occurs in two cases:
// the namespace is being deleted and its inventory was deleted first, or the installation was interrupted after the
// namespace was created.
func (r *release) deleteLeftoverNamespace(ctx context.Context, status *Status) error {
	ref := apply.Ref{Version: "v1", Kind: "Namespace", Name: r.namespace}
	namespace, err := r.cluster.Get(ctx, ref)
	switch {
	case isApplyErrorWithReason(err, apply.ObjectNotFound):
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
