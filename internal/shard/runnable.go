package shard

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// SetLabel gives an object that belongs to a Kyma the label of its shard. A nil Keeper leaves it as it is.
func (k *Keeper) SetLabel(o client.Object, kyma string) {
	if k == nil {
		return
	}
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1beta2.LabelShard] = LabelValue(kyma)
	o.SetLabels(labels)
}

// IsLabelled tells whether an object that belongs to a Kyma has the label of its shard: if not, it is of no shard until Labels has seen it. To a nil
// Keeper that does not matter.
func (k *Keeper) IsLabelled(o client.Object, kyma string) bool {
	return k == nil || o.GetLabels()[v1beta2.LabelShard] == LabelValue(kyma)
}

// Runnable returns what runs f beside the passes: on each replica where a Keeper splits the work, else, with a nil Keeper, on the leader alone.
func (k *Keeper) Runnable(f func(context.Context) error) manager.Runnable {
	if k == nil {
		return manager.RunnableFunc(f)
	}
	return everywhere(f)
}

// everywhere runs on all replicas.
type everywhere func(context.Context) error

// Start implements [manager.Runnable].
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection says that it runs on all replicas.
func (everywhere) NeedLeaderElection() bool { return false }
