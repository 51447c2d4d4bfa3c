package manifest

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/target"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// markForRequestedRetry returns the Manifests that are retried after a person has requested it: the Manifest with the
// request, or, if the request is on a Kyma, the Manifests of the Kyma that are not Ready. The next reconcile of each
// returned Manifest compares all objects with their desired state, and reads the readiness of the module.
func (r *Reconciler) markForRequestedRetry(ctx context.Context, manifestOrKyma client.Object) (
	toRetry []client.Object) {
	if m, is := manifestOrKyma.(*v1beta2.Manifest); is {
		target.Of(m, r.Runtimes, &r.ControlPlane).Probe()
		toRetry = append(toRetry, m)
	} else { // the controller of Kymas probes the runtime
		all, err := runtimes.ManifestsOf(ctx, r.Client, manifestOrKyma.GetNamespace(), manifestOrKyma.GetName())
		if err != nil {
			log.FromContext(ctx).Error(err, "cannot retry the modules of a Kyma", "kyma", manifestOrKyma.GetName())
		}
		for i := range all {
			if all[i].Status.State != v1beta2.StateReady {
				toRetry = append(toRetry, &all[i])
			}
		}
	}
	for _, m := range toRetry {
		if memory := r.memories.Get(client.ObjectKeyFromObject(m)); memory != nil {
			memory.restoreChanges(changes{readiness: true, retried: true})
		}
	}
	return toRetry
}
