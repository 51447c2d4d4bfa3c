package kyma

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
)

// deletableResources returns the delivered objects that are to be deleted from the runtime. Before the first deletion
// it lists the Kymas in the runtime. If other Kymas exist, the cluster is a control plane, too, and the CRDs stay.
func (n *run) deletableResources(ctx context.Context) (all []v1beta2.Resource, err error) {
	if n.edit(func(m *record) { all = m.deletable }); all != nil {
		return all, nil
	}
	in, err := ownership.ListKymas(ctx, n.runtime.Cluster)
	if err != nil {
		return nil, err
	}
	all = n.deliveredResources()
	if in.Other != "" {
		all = ownership.WithoutCRDs(all)
		n.event(corev1.EventTypeWarning, v1beta2.EventCRDsKept, in.WhyCRDsStay(n.runtime.Server))
	}
	n.edit(func(m *record) { m.deletable = all })
	return all, nil
}
