package shard

import (
	"cmp"
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

// AddressAnnotation is the annotation on the Lease of a replica that contains the address (host:port) of its listener.
// Without shards, the Lease of leader election has the annotation with the address of the leader's listener.
const AddressAnnotation = "operator.kyma-project.io/listener-address"

// Names of Leases.
const (
	replicaPrefix = "lifecycle-manager-replica-"
	shardPrefix   = "lifecycle-manager-shard-"
)

func shardLeaseName(shard int) string { return fmt.Sprintf("%s%02d", shardPrefix, shard) }

// holderOf returns the holder of a Lease, or "" if the Lease is nil or has no holder.
func holderOf(l *coordinationv1.Lease) string {
	if l == nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// durationOrDefault returns the time for which a Lease is valid without a renewal. If the Lease has no duration,
// durationOrDefault returns one minute. The default is only a precaution, because replicas always write
// spec.leaseDurationSeconds.
func durationOrDefault(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil || *l.Spec.LeaseDurationSeconds <= 0 {
		return time.Minute
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}

// isReplicaLease reports whether a Lease is the Lease of a replica. A Lease of this package that is not the Lease of a
// replica is the Lease of a shard.
func isReplicaLease(l *coordinationv1.Lease) bool {
	return l.Labels[v1beta2.LabelLease] == v1beta2.LeaseOfReplica && holderOf(l) != ""
}

// replicaLeasesLocked returns the Leases of all replicas by the name of the replica. The caller of replicaLeasesLocked
// must hold mu.
func (k *Keeper) replicaLeasesLocked() map[string]*coordinationv1.Lease {
	found := map[string]*coordinationv1.Lease{}
	for _, s := range k.known {
		if isReplicaLease(s.lease) {
			found[holderOf(s.lease)] = s.lease
		}
	}
	return found
}

// createReplicaLeaseWithRetry creates the Lease of this replica under a name that was never used before. After a
// failure, createReplicaLeaseWithRetry tries again with another name. It returns false if ctx ends first.
func (k *Keeper) createReplicaLeaseWithRetry(ctx context.Context) (isCreated bool) {
	for {
		unique := strings.ToLower(rand.Text()[:12])
		seconds := int32((k.opts.Duration + time.Second - 1) / time.Second) //nolint:gosec // a few
		begin := time.Now()
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: replicaPrefix + unique,
				Labels: map[string]string{v1beta2.LabelLease: v1beta2.LeaseOfReplica}},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new(k.opts.Name + "_" + unique), LeaseDurationSeconds: &seconds,
				AcquireTime: &metav1.MicroTime{Time: begin}, RenewTime: &metav1.MicroTime{Time: begin},
			},
		}
		maps.Copy(lease.Labels, k.opts.Labels)
		if k.opts.Address != "" {
			lease.Annotations = map[string]string{AddressAnnotation: k.opts.Address}
		}
		within, cancel := context.WithTimeout(ctx, k.opts.validPeriod())
		written, err := k.opts.Leases.Create(within, lease, metav1.CreateOptions{})
		cancel()
		if err == nil {
			k.mu.Lock()
			k.replicaLease, k.complete = written, false
			k.mu.Unlock()
			k.renewedAt.Store(&begin)
			k.opts.Log.Info("created the Lease of this replica", "replica", *written.Spec.HolderIdentity)
			return true
		}
		if ctx.Err() == nil { // if the Lease was created but the answer was lost, that Lease expires
			k.opts.Log.Error(err, "the Lease of this replica cannot be created")
		}
		if !sleepUnlessDone(ctx, k.opts.Duration/12) {
			return false
		}
	}
}

// renewUntilLost renews the Lease of this replica until the Lease is lost or the membership ends.
func (k *Keeper) renewUntilLost(membership context.Context) {
	next := k.opts.Duration / 3
	for sleepUnlessDone(membership, next) {
		begin := time.Now()
		if !k.isLeaseValid() {
			k.opts.Log.Info("the Lease of this replica was not renewed in time; releasing all shards")
			return
		}
		err := k.renewReplicaLease(membership, begin)
		switch {
		case err == nil:
			next = k.opts.Duration / 3
			continue
		case apierrors.IsNotFound(err):
			k.opts.Log.Info("another replica deleted the Lease of this one, because it was not renewed in time; " +
				"releasing all shards")
			return
		case membership.Err() == nil:
			k.opts.Log.Info("the Lease of this replica was not renewed; trying again", "error", err.Error())
		}
		// The loop runs once more at the time when the Lease becomes invalid, so that the loss is reported.
		left := k.opts.validPeriod() - time.Since(*k.renewedAt.Load())
		next = min(k.opts.Duration/12, max(left, 0)+time.Millisecond)
	}
}

// renewReplicaLease renews the Lease of this replica once.
func (k *Keeper) renewReplicaLease(membership context.Context, renewTime time.Time) error {
	k.mu.Lock()
	old := k.replicaLease
	// If the answer to a renewal was lost, the watch nevertheless receives the renewed Lease. Nobody but this replica
	// writes its Lease.
	if seen := k.known[old.Name].lease; seen != nil && seen.UID == old.UID {
		old = newerLease(old, seen)
	}
	k.mu.Unlock()
	lease := old.DeepCopy()
	lease.Spec.RenewTime = &metav1.MicroTime{Time: renewTime}
	within, cancel := context.WithDeadline(membership, k.renewedAt.Load().Add(k.opts.validPeriod()))
	defer cancel()
	written, err := k.opts.Leases.Update(within, lease, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("renewing Lease %s: %w", lease.Name, err)
	}
	k.mu.Lock()
	k.replicaLease = written
	k.mu.Unlock()
	k.renewedAt.Store(&renewTime)
	return nil
}

// newerLease returns the newer one of two versions of a Lease.
func newerLease(a, b *coordinationv1.Lease) *coordinationv1.Lease {
	// A resourceVersion is a decimal number without leading zeros. Of two resourceVersions, the one with more digits is
	// therefore larger.
	order := cmp.Or(cmp.Compare(len(a.ResourceVersion), len(b.ResourceVersion)),
		cmp.Compare(a.ResourceVersion, b.ResourceVersion))
	if order > 0 {
		return a
	}
	return b
}

// deleteReplicaLease deletes the Lease of this replica. The deletion frees all shards that this replica has held.
func (k *Keeper) deleteReplicaLease(ctx context.Context) {
	k.renewedAt.Store(nil)
	k.mu.Lock()
	lease := k.replicaLease
	k.replicaLease = nil
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.opts.requestTimeout())
	defer cancel()
	err := k.opts.Leases.Delete(ctx, lease.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		k.opts.Log.Info("the Lease of this replica cannot be deleted; it expires", "lease",
			lease.Name, "error", err.Error())
	}
}

// deleteExpiredReplicaLeases deletes the Leases of replicas that have not renewed them in time. If a Lease has changed
// since it was read, it is not deleted. deleteExpiredReplicaLeases returns the time until the next Lease may expire.
func (k *Keeper) deleteExpiredReplicaLeases(membership context.Context, tasks *sync.WaitGroup) (
	untilNext time.Duration) {
	next := k.opts.Duration
	if !k.isLeaseValid() {
		return next
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, s := range k.known {
		if !isReplicaLease(s.lease) || k.replicaLease != nil && name == k.replicaLease.Name {
			continue
		}
		if left := durationOrDefault(s.lease) - time.Since(s.since); left > 0 {
			next = min(next, left)
			continue
		}
		// This is the time of the next attempt to delete the Lease.
		k.known[name] = observedLease{s.lease, time.Now().Add(k.opts.Duration/6 - durationOrDefault(s.lease))}
		tasks.Go(func() {
			within, cancel := context.WithTimeout(membership, k.opts.requestTimeout())
			defer cancel()
			// The error is ignored. If the Lease was not deleted because its replica has renewed it, the watch receives
			// the renewed Lease. If the deletion failed for another reason, it is retried later.
			_ = deleteIfUnchanged(within, k.opts.Leases, s.lease)
		})
	}
	return next
}

// deleteIfUnchanged deletes a Lease. If the Lease has changed since it was read, the deletion fails.
func deleteIfUnchanged(ctx context.Context, leases Leases, l *coordinationv1.Lease) error {
	err := leases.Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.UID,
		ResourceVersion: &l.ResourceVersion}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Lease %s, which was not renewed: %w", l.Name, err)
	}
	return nil
}

// writeHolder writes this replica into the Lease of a shard, as its holder. If lease is nil, writeHolder creates the
// Lease. If the Lease has changed since it was read, the write fails.
func (k *Keeper) writeHolder(ctx context.Context, shard int, lease *coordinationv1.Lease, me string) (
	*coordinationv1.Lease, error) {
	if !k.isLeaseValid() {
		return nil, ErrLost
	}
	ctx, cancel := context.WithTimeout(ctx, k.opts.requestTimeout())
	defer cancel()
	now := metav1.NowMicro()
	if lease == nil {
		lease = &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: shardLeaseName(shard),
				Labels: map[string]string{v1beta2.LabelLease: v1beta2.LeaseOfShard}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &me, AcquireTime: &now},
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

// clearHolder removes this replica from the Lease of a shard.
func (k *Keeper) clearHolder(ctx context.Context, shard int, lease *coordinationv1.Lease) error {
	k.mu.Lock()
	if seen := k.known[lease.Name].lease; seen != nil && newerLease(lease, seen) == seen {
		if seen.UID != lease.UID || holderOf(seen) != holderOf(lease) {
			k.mu.Unlock()
			return nil // a write whose answer was lost has cleared it already, or the Lease was deleted
		}
		lease = seen // a person has edited the Lease
	}
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, k.opts.requestTimeout())
	defer cancel()
	lease = lease.DeepCopy()
	lease.Spec.HolderIdentity = nil
	written, err := k.opts.Leases.Update(ctx, lease, metav1.UpdateOptions{})
	switch {
	case err == nil:
		k.mu.Lock()
		k.cleared[shard] = written
		k.mu.Unlock()
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("writing Lease %s: %w", lease.Name, err)
	}
	return nil
}

// watchLeases keeps the Leases in the field known up to date, until the membership ends.
func (k *Keeper) watchLeases(membership context.Context) {
	listed := map[string]bool{}
	retryDelay := k.opts.Duration / 24
	_ = watch.Run(membership, watch.Options[coordinationv1.Lease]{ // Run returns only when the context ends
		Source:      watch.ClientSource(k.listLeases, k.opts.Leases.Watch),
		Query:       metav1.ListOptions{LabelSelector: v1beta2.LabelLease},
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
			maps.DeleteFunc(k.known, func(name string, _ observedLease) bool { return !listed[name] })
			k.complete = true
			k.triggerAssign()
		},
		Event: k.receive,
		Failed: func(err error, _ time.Time) error {
			k.opts.Log.Info("the Leases cannot be watched; trying again", "error", err.Error())
			return nil
		},
	})
}

func (k *Keeper) listLeases(ctx context.Context, o metav1.ListOptions) (
	page watch.Page[coordinationv1.Lease], err error) {
	list, err := k.opts.Leases.List(ctx, o)
	if err != nil {
		return page, fmt.Errorf("listing Leases: %w", err)
	}
	return watch.Page[coordinationv1.Lease]{Items: list.Items, ResourceVersion: list.ResourceVersion,
		Continue: list.Continue}, nil
}

// receive records one event of the watch on Leases.
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
		k.triggerAssign() // a renewal changes nothing
	}
}

// recordLocked records a version of a Lease. The caller of recordLocked must hold mu.
func (k *Keeper) recordLocked(l *coordinationv1.Lease) {
	if before := k.known[l.Name].lease; before != nil && before.UID == l.UID &&
		before.ResourceVersion == l.ResourceVersion {
		return
	}
	k.known[l.Name] = observedLease{l, time.Now()}
}
