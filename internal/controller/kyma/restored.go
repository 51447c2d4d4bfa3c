package kyma

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/restored"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// markLostModules marks Manifests whose recorded state this control plane has lost because it was restored from an
// older backup. The parameter remote is the Kyma in the runtime, or nil; its status shows the versions in the runtime.
// markLostModules compares the status of remote with the Manifests once for each connection. The comparison has to
// happen before the other controllers use the connection, and before the status of the Kyma in the control plane is
// copied to the runtime. If the Kyma does not exist in the control plane, markLostModules does nothing.
//
// The parameter formerKyma is the namespace/name of the Kyma from which the runtime is being taken over, if it differs
// from that of this Kyma. Otherwise it is "".
func (r *Reconciler) markLostModules(ctx context.Context, kyma *v1beta2.Kyma, rt *runtimes.Runtime,
	remote *v1beta2.Kyma, formerKyma string) error {
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
	var recreated []string
	for _, lost := range restored.FindLost(kyma, remote, manifests) {
		if lost.Manifest == nil {
			recreated = append(recreated, lost.Name)
		}
		lost.FormerKyma = formerKyma
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
