package shard

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/watch"
)

// annotationAddress on the Lease of a replica says where its listener is.
const annotationAddress = "operator.kyma-project.io/listener-address"

// Names of Leases.
const (
	replicaPrefix = "lifecycle-manager-replica-"
	shardPrefix   = "lifecycle-manager-shard-"
)

func leaseOfShard(shard int) string { return fmt.Sprintf("%s%02d", shardPrefix, shard) }

// holderOf returns who holds a Lease, "" if nobody does or there is none.
func holderOf(l *coordinationv1.Lease) string {
	if l == nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// lifeOf returns how long a Lease is valid without a renewal. What nobody of us wrote is valid for long.
func lifeOf(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil || *l.Spec.LeaseDurationSeconds <= 0 {
		return time.Minute
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}

// isOfReplica tells whether a Lease is a replica's sign of life.
func isOfReplica(l *coordinationv1.Lease) bool {
	return l.Labels[v1beta2.LabelLease] == v1beta2.LeaseOfReplica && holderOf(l) != ""
}

// replicasLocked returns the Leases of all replicas by the name of the replica. The caller holds mu.
func (k *Keeper) replicasLocked() map[string]*coordinationv1.Lease {
	found := map[string]*coordinationv1.Lease{}
	for _, s := range k.known {
		if isOfReplica(s.lease) {
			found[holderOf(s.lease)] = s.lease
		}
	}
	return found
}

// join creates the Lease of this replica, under a name that nobody had before. It returns false when ctx has ended.
func (k *Keeper) join(ctx context.Context) bool {
	for {
		unique := strings.ToLower(rand.Text()[:12])
		seconds := int32((k.opts.Duration + time.Second - 1) / time.Second) //nolint:gosec // a few
		begin := time.Now()
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: replicaPrefix + unique, Labels: map[string]string{v1beta2.LabelLease: v1beta2.LeaseOfReplica}},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new(k.opts.Name + "_" + unique), LeaseDurationSeconds: &seconds,
				AcquireTime: &metav1.MicroTime{Time: begin}, RenewTime: &metav1.MicroTime{Time: begin},
			},
		}
		if k.opts.Address != "" {
			lease.Annotations = map[string]string{annotationAddress: k.opts.Address}
		}
		within, cancel := context.WithTimeout(ctx, k.opts.valid())
		written, err := k.opts.Leases.Create(within, lease, metav1.CreateOptions{})
		cancel()
		if err == nil {
			k.mu.Lock()
			k.renewed, k.complete = written, false
			k.mu.Unlock()
			k.sent.Store(&begin)
			k.opts.Log.Info("takes part in the work", "replica", *written.Spec.HolderIdentity)
			return true
		}
		if ctx.Err() == nil { // what was created all the same runs out
			k.opts.Log.Error(err, "the Lease of this replica cannot be created")
		}
		if !pause(ctx, k.opts.Duration/12) {
			return false
		}
	}
}

// renew renews the Lease of this replica until it is lost, or the life ends.
func (k *Keeper) renew(life context.Context) {
	next := k.opts.Duration / 3
	for pause(life, next) {
		begin := time.Now()
		if !k.isValid() {
			k.opts.Log.Info("the Lease of this replica was not renewed in time: all shards are given up")
			return
		}
		err := k.renewOnce(life, begin)
		switch {
		case err == nil:
			next = k.opts.Duration / 3
			continue
		case apierrors.IsNotFound(err):
			k.opts.Log.Info("another replica has found this one dead: all shards are given up")
			return
		case life.Err() == nil:
			k.opts.Log.Info("the Lease of this replica was not renewed", "problem", err.Error())
		}
		// The last moment is looked at, too: then it is time to say so.
		left := k.opts.valid() - time.Since(*k.sent.Load())
		next = min(k.opts.Duration/12, max(left, 0)+time.Millisecond)
	}
}

// renewOnce writes the Lease of this replica.
func (k *Keeper) renewOnce(life context.Context, begin time.Time) error {
	k.mu.Lock()
	old := k.renewed
	// A write whose answer was lost is seen by the watch: nobody else writes this Lease.
	if seen := k.known[old.Name].lease; seen != nil && seen.UID == old.UID {
		old = newest(old, seen)
	}
	k.mu.Unlock()
	lease := old.DeepCopy()
	lease.Spec.RenewTime = &metav1.MicroTime{Time: begin}
	within, cancel := context.WithDeadline(life, k.sent.Load().Add(k.opts.valid()))
	defer cancel()
	written, err := k.opts.Leases.Update(within, lease, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("renewing Lease %s: %w", lease.Name, err)
	}
	k.mu.Lock()
	k.renewed = written
	k.mu.Unlock()
	k.sent.Store(&begin)
	return nil
}

// newest returns that of two versions of an object that was written last.
func newest(a, b *coordinationv1.Lease) *coordinationv1.Lease {
	if len(a.ResourceVersion) != len(b.ResourceVersion) {
		if len(a.ResourceVersion) > len(b.ResourceVersion) {
			return a
		}
		return b
	}
	if a.ResourceVersion > b.ResourceVersion { // numbers of the same length
		return a
	}
	return b
}

// resign deletes the Lease of this replica, which sets all shards free that name it.
func (k *Keeper) resign(ctx context.Context) {
	k.sent.Store(nil)
	k.mu.Lock()
	lease := k.renewed
	k.renewed = nil
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.opts.requestTimeout())
	defer cancel()
	err := k.opts.Leases.Delete(ctx, lease.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		k.opts.Log.Info("the Lease of this replica has to run out", "lease", lease.Name, "problem", err.Error())
	}
}

// bury deletes the Leases of replicas that are dead, if they still are what was seen, and returns when the next one may be.
func (k *Keeper) bury(life context.Context, tasks *sync.WaitGroup) time.Duration {
	next := k.opts.Duration
	if !k.isValid() {
		return next
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, s := range k.known {
		if !isOfReplica(s.lease) || k.renewed != nil && name == k.renewed.Name {
			continue
		}
		if left := lifeOf(s.lease) - time.Since(s.since); left > 0 {
			next = min(next, left)
			continue
		}
		k.known[name] = observed{s.lease, time.Now().Add(k.opts.Duration/6 - lifeOf(s.lease))} // when it is tried again
		tasks.Go(func() {
			within, cancel := context.WithTimeout(life, k.opts.requestTimeout())
			defer cancel()
			_ = buryOne(within, k.opts.Leases, s.lease) // who is not dead is seen; what failed is tried again
		})
	}
	return next
}

// buryOne deletes the Lease of a replica if it has not changed.
func buryOne(ctx context.Context, leases Leases, l *coordinationv1.Lease) error {
	err := leases.Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Lease %s, which was not renewed: %w", l.Name, err)
	}
	return nil
}

// take writes this replica into the Lease of a shard: as lease is known, or a new one if that is nil.
func (k *Keeper) take(ctx context.Context, shard int, lease *coordinationv1.Lease, me string) (*coordinationv1.Lease, error) {
	if !k.isValid() {
		return nil, errLost
	}
	ctx, cancel := context.WithTimeout(ctx, k.opts.requestTimeout())
	defer cancel()
	now := metav1.NowMicro()
	if lease == nil {
		lease = &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: leaseOfShard(shard), Labels: map[string]string{v1beta2.LabelLease: v1beta2.LeaseOfShard}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &me, AcquireTime: &now},
		}
		written, err := k.opts.Leases.Create(ctx, lease, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("creating Lease %s: %w", lease.Name, err)
		}
		return written, nil
	}
	lease = lease.DeepCopy()
	var before int32
	if lease.Spec.LeaseTransitions != nil {
		before = *lease.Spec.LeaseTransitions
	}
	lease.Spec.HolderIdentity, lease.Spec.AcquireTime, lease.Spec.LeaseTransitions = &me, &now, new(before+1)
	written, err := k.opts.Leases.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("writing Lease %s: %w", lease.Name, err)
	}
	return written, nil
}

// free takes this replica out of the Lease of a shard.
func (k *Keeper) free(ctx context.Context, lease *coordinationv1.Lease) error {
	k.mu.Lock()
	if seen := k.known[lease.Name].lease; seen != nil && newest(lease, seen) == seen {
		if seen.UID != lease.UID || holderOf(seen) != holderOf(lease) {
			k.mu.Unlock()
			return nil // an answer was lost, or somebody has deleted it
		}
		lease = seen // somebody has edited it
	}
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, k.opts.requestTimeout())
	defer cancel()
	lease = lease.DeepCopy()
	lease.Spec.HolderIdentity = nil
	if _, err := k.opts.Leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing Lease %s: %w", lease.Name, err)
	}
	return nil
}

// watchLeases keeps known up to date until the end of a membership.
func (k *Keeper) watchLeases(membership context.Context) {
	listed := map[string]bool{}
	retryDelay := k.opts.Duration / 24
	_ = watch.Run(membership, watch.Options[coordinationv1.Lease]{ // it ends with the context alone
		Source: watch.ClientSource(k.listLeases, k.opts.Leases.Watch), Query: metav1.ListOptions{LabelSelector: v1beta2.LabelLease},
		ListTimeout: k.opts.requestTimeout(), WatchTimeout: 5 * time.Minute, MinDelay: retryDelay, MaxDelay: retryDelay,
		Page: func(items []coordinationv1.Lease, first bool) {
			k.mu.Lock()
			defer k.mu.Unlock()
			if first {
				clear(listed)
			}
			for i := range items {
				listed[items[i].Name] = true
				k.recordLocked(&items[i])
			}
		},
		Listed: func(complete bool) {
			k.mu.Lock()
			defer k.mu.Unlock()
			if !complete {
				return
			}
			maps.DeleteFunc(k.known, func(name string, _ observed) bool { return !listed[name] })
			k.complete = true
			k.triggerDecide()
		},
		Event: k.receive,
		Failed: func(err error, _ time.Time) error {
			k.opts.Log.Info("the Leases cannot be watched; trying again", "error", err.Error())
			return nil
		},
	})
}

func (k *Keeper) listLeases(ctx context.Context, o metav1.ListOptions) (page watch.Page[coordinationv1.Lease], err error) {
	list, err := k.opts.Leases.List(ctx, o)
	if err != nil {
		return page, fmt.Errorf("listing Leases: %w", err)
	}
	return watch.Page[coordinationv1.Lease]{Items: list.Items, ResourceVersion: list.ResourceVersion, Continue: list.Continue}, nil
}

// receive records one event of the watch.
func (k *Keeper) receive(e watch.Event[coordinationv1.Lease]) {
	l := e.Object
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.known[l.Name].lease
	if e.Deleted {
		delete(k.known, l.Name)
	} else {
		k.recordLocked(l)
	}
	if before == nil || e.Deleted || holderOf(before) != holderOf(l) {
		k.triggerDecide() // a renewal changes nothing
	}
}

// recordLocked takes note of a Lease. The caller holds mu.
func (k *Keeper) recordLocked(l *coordinationv1.Lease) {
	if before := k.known[l.Name].lease; before != nil && before.UID == l.UID && before.ResourceVersion == l.ResourceVersion {
		return
	}
	k.known[l.Name] = observed{l, time.Now()}
}
