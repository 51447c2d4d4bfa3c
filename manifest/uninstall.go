package manifest

import (
	"context"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// UninstallChart deletes the objects in the inventory of an installation. Objects that do not belong only to the
// installation stay in the cluster; Status.Left names them. Of the parameter info, UninstallChart uses only the
// cluster, the name of the release, the flag Namespace, and CheckFn. UninstallChart does not read the chart, so the
// chart may have been deleted before. UninstallChart deletes the CustomResources first, and all other objects when no
// CustomResources are left to be deleted. One call of UninstallChart does everything that is possible at that time.
// Call UninstallChart again as long as Status is not ready. If the installation does not exist, Status is ready at
// once.
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
// are deleted. Objects that stay in the cluster count as deleted.
func (r *release) uninstall(ctx context.Context, before *inventory, status *Status) error {
	status.Objects = mergeRefs(before.Objects, before.CustomResources)
	remove := func(refs []apply.Ref) (done bool, err error) {
		removed, err := r.remove(ctx, refs, status)
		status.Objects = without(without(status.Objects, removed.gone), removed.left)
		return len(status.Pending) == 0, err
	}
	if done, err := remove(before.CustomResources); err != nil || !done {
		return err
	}
	// If the installation created the namespace of the release, this namespace is one of the objects in the inventory.
	// The namespace is deleted after all other objects, and the inventory is deleted together with the namespace. The
	// custom resources are passed again, because a CRD must stay if one of its custom resources stays.
	if done, err := remove(mergeRefs(before.CustomResources, before.Objects)); err != nil || !done {
		return err
	}
	teardown, err := r.cluster.Delete(ctx, []apply.Ref{r.inventoryRef()}, nil)
	if err != nil {
		return r.wrapError("deleting the inventory", err)
	}
	if !teardown.Done() {
		status.addPending(teardown.WaitMessage())
	}
	return nil
}

// deleteLeftoverNamespace deletes the namespace of a release if there is no inventory and if a label shows that the
// namespace belongs to the release. A namespace without an inventory occurs in two cases: the namespace is being
// deleted and its inventory was deleted first, or the installation was interrupted after the namespace was created.
func (r *release) deleteLeftoverNamespace(ctx context.Context, status *Status) error {
	namespace, err := r.cluster.Get(ctx, r.namespaceRef())
	switch {
	case isApplyErrorWithReason(err, apply.ObjectNotFound):
		return nil
	case err != nil:
		return r.wrapError("reading the namespace", err)
	case namespace.GetLabels()[labelRelease] != r.name || namespace.GetDeletionTimestamp() == nil &&
		namespace.GetAnnotations()[annotationNamespaceOnly] == "":
		return nil
	}
	_, err = r.remove(ctx, []apply.Ref{r.namespaceRef()}, status)
	return err
}
