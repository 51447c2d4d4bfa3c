package shard

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// SetLabel sets the shard label of an object that belongs to a Kyma. A nil Keeper does not change it.
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

// IsLabelled reports whether an object that belongs to a Kyma has the label of its shard. An object without it belongs
// to no shard until the Labeler has labelled it. A nil Keeper needs no label and returns true.
func (k *Keeper) IsLabelled(o client.Object, kyma string) bool {
	return k == nil || o.GetLabels()[v1beta2.LabelShard] == LabelValue(kyma)
}

// Runnable returns a Runnable for f: it runs on every replica, or with a nil Keeper on the leader alone.
func (k *Keeper) Runnable(f func(context.Context) error) manager.Runnable {
	if k == nil {
		return manager.RunnableFunc(f)
	}
	return onAllReplicas(f)
}

// onAllReplicas is a Runnable that runs on all replicas.
type onAllReplicas func(context.Context) error

// Start implements [manager.Runnable].
func (f onAllReplicas) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection returns false: it runs on all replicas.
func (onAllReplicas) NeedLeaderElection() bool { return false }
