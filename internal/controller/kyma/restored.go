package kyma

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/restored"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// markLostModules marks Manifests whose recorded state this control plane has lost because it was restored from an
// older backup. The parameter remote is the Kyma in the runtime, or nil; its status shows the versions in the runtime.
// markLostModules compares the status of remote with the Manifests once for each connection. The comparison has to
// happen before the other controllers use the connection, and before the status of the Kyma in the control plane is
// copied to the runtime. If the Kyma does not exist in the control plane, markLostModules does nothing.
//
// The parameter found is the result of the verification of the owner. If the runtime is being taken over, and the Kyma
// has used another cluster until now, its status and its Manifests describe that other cluster.
func (r *Reconciler) markLostModules(ctx context.Context, kyma *v1beta2.Kyma, rt *runtimes.Runtime,
	remote *v1beta2.Kyma, found ownership.Found) error {
	n := &run{Reconciler: r, kyma: kyma, runtime: rt, now: time.Now()}
	isCompared := kyma.UID == ""
	if !isCompared {
		n.editRecord(func(m *record) { isCompared = m.isCompared })
	}
	if isCompared {
		return nil
	}
	manifests, err := n.listManifests(ctx)
	if err != nil {
		return err
	}
	isOtherCluster := found.TakenFrom != "" && found.Owner.Cluster != kyma.Status.ClusterID
	all, err := n.withoutUnknownModules(ctx, remote, manifests,
		restored.FindLost(kyma, remote, manifests, isOtherCluster))
	if err != nil {
		return err
	}
	var recreated []string
	for _, lost := range all {
		if lost.Manifest == nil {
			recreated = append(recreated, lost.Name)
		}
		lost.FormerKyma = found.FormerKyma
		err := restored.MarkOrCreateManifest(ctx, r.Client, kyma, lost,
			func(m *v1beta2.Manifest) { r.Shards.SetShardLabel(m, kyma.Name) })
		if err != nil {
			return err
		}
		log.FromContext(ctx).Info("the control plane was restored from an older state than the runtime",
			"module", lost.Name, "runtimeVersion", lost.Version)
	}
	n.editRecord(func(m *record) { m.isCompared, m.recreated = true, recreated })
	return nil
}

// withoutUnknownModules returns the lost modules whose Manifests have to be marked or created. If the status in the
// runtime names too many modules that the control plane does not know, withoutUnknownModules returns an error before
// anything is changed: without their Manifests, the objects of these modules would count as orphans, and the status in
// the runtime, which is the only record of their versions, would be overwritten. While the Kyma is deleted, the modules
// that exceed the limit are left out instead, so that the runtime cannot prevent the deletion.
func (n *run) withoutUnknownModules(ctx context.Context, remote *v1beta2.Kyma, manifests map[string]*v1beta2.Manifest,
	lost []restored.Module) ([]restored.Module, error) {
	catalog, failed := n.catalog.Lookup(ctx)
	allowed, exceeded := restored.WithoutUnknown(lost, manifests, func(module string) bool {
		return remote != nil && slices.ContainsFunc(remote.Spec.Modules,
			func(m v1beta2.Module) bool { return m.Name == module }) || catalog.Release(module) != nil
	})
	if err := failed(); err != nil {
		return nil, err
	}
	if exceeded != nil && !n.kyma.DeletionTimestamp.IsZero() {
		log.FromContext(ctx).Info("the deletion leaves the objects of unknown modules in the runtime",
			"why", exceeded.Error())
		exceeded = nil
	}
	return allowed, exceeded
}
