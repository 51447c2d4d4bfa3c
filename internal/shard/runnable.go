package shard

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// SetShardLabel sets the shard label of an object that belongs to the given Kyma. If the Keeper is nil, SetShardLabel
// does not change the label.
func (k *Keeper) SetShardLabel(o client.Object, kyma string) {
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

// HasCorrectShardLabel reports whether an object of a Kyma has the correct shard label. An object without the label
// belongs to no shard until the Labeler has labelled it. If the Keeper is nil, no labels are needed, so
// HasCorrectShardLabel returns true.
func (k *Keeper) HasCorrectShardLabel(o client.Object, kyma string) bool {
	return k == nil || o.GetLabels()[v1beta2.LabelShard] == LabelValue(kyma)
}

// RunnableOnAllReplicas returns a Runnable that runs f on every replica. If the Keeper is nil, the Runnable runs only
// on the leader.
func (k *Keeper) RunnableOnAllReplicas(f func(context.Context) error) manager.Runnable {
	if k == nil {
		return manager.RunnableFunc(f)
	}
	return onAllReplicas(f)
}

// onAllReplicas is a Runnable that runs on all replicas, and not only on the leader.
type onAllReplicas func(context.Context) error

// Start implements [manager.Runnable].
func (f onAllReplicas) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection returns false: the Runnable runs on all replicas.
func (onAllReplicas) NeedLeaderElection() bool { return false }
