package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Replicas with shards must not work at the same time as replicas without shards. When an upgrade adds or removes the
// flag --shards, new replicas of one kind replace old replicas of the other kind. Replicas with and without shards
// detect each other in different ways:
//
//	with shards      The identity of the leader begins with shardedLeaderPrefix. Before a replica acquires a shard, it writes its own
//	                 Lease, and then checks that the leader is a replica with shards (ShardedLeaderGate).
//	without shards   A replica cannot become leader while there are replicas with shards (UnshardedLeaderLock).
//
// After an upgrade, the new replicas therefore wait for the old ones. New replicas with shards wait until the old
// leader without shards has ended. New replicas without shards wait until all old replicas with shards have ended.

// shardedLeaderPrefix is the prefix of the leader election identity of replicas with shards.
const shardedLeaderPrefix = "shards_"

// ShardedLeaderIdentity returns the leader election identity of a replica with shards.
func ShardedLeaderIdentity(name string) string { return shardedLeaderPrefix + name }

// ShardedLeaderGate returns a function for the field Options.Gate. The returned function reports whether the present
// leader is a replica with shards, and not a replica of an installation without shards. The caller must not use the
// parameter lock for leader election or for another gate.
func ShardedLeaderGate(lock resourcelock.Interface) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		record, _, err := lock.Get(ctx)
		if err != nil {
			return false, fmt.Errorf("reading the leader: %w", err)
		}
		return strings.HasPrefix(record.HolderIdentity, shardedLeaderPrefix), nil
	}
}

// UnshardedLeaderLock returns the leader election lock for a manager that runs without sharding. No replica can acquire
// this lock as long as there are replicas with shards. Replicas with shards that no longer renew their Leases do not
// keep another replica from acquiring the lock.
func UnshardedLeaderLock(lock resourcelock.Interface, leases Leases) resourcelock.Interface {
	return &unshardedLock{Interface: lock, leases: leases, observed: map[string]observedLease{}}
}

// unshardedLock is the lock that UnshardedLeaderLock returns.
type unshardedLock struct {
	resourcelock.Interface
	leases Leases

	mu       sync.Mutex
	held     bool                     // guarded by mu: this replica is the leader
	observed map[string]observedLease // guarded by mu; Leases of replicas, by name
}

// Create acquires the lock if its Lease does not exist yet.
func (a *unshardedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if err := a.ensureNoShardedReplicas(ctx); err != nil {
		return err
	}
	return a.recordWhetherHeld(a.Interface.Create(ctx, r), r)
}

// Update acquires, renews or releases the lock.
func (a *unshardedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity == a.Identity() {
		if err := a.ensureNoShardedReplicas(ctx); err != nil {
			return err
		}
	}
	return a.recordWhetherHeld(a.Interface.Update(ctx, r), r)
}

// recordWhetherHeld records whether this replica holds the lock now.
func (a *unshardedLock) recordWhetherHeld(err error, r resourcelock.LeaderElectionRecord) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.held = r.HolderIdentity == a.Identity()
	}
	return err
}

// ensureNoShardedReplicas returns an error as long as there are replicas with shards. A replica without shards that is
// already the leader need not check for replicas with shards again, because replicas with shards wait until this leader
// has ended.
func (a *unshardedLock) ensureNoShardedReplicas(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held {
		return nil
	}
	list, err := a.leases.List(ctx, metav1.ListOptions{LabelSelector: v1beta2.LabelLease +
		"=" + v1beta2.LeaseOfReplica})
	if apierrors.IsForbidden(err) {
		return nil // replicas with shards need the same permission, so there are none
	}
	if err != nil {
		return fmt.Errorf("listing replicas that work with shards: %w", err)
	}
	now, seen := time.Now(), map[string]observedLease{}
	for i := range list.Items {
		l := &list.Items[i]
		s, before := a.observed[l.Name]
		if !before || s.lease.UID != l.UID || s.lease.ResourceVersion != l.ResourceVersion {
			s = observedLease{l, now}
		}
		if now.Sub(s.since) >= durationOrDefault(l) && deleteIfUnchanged(ctx, a.leases, l) == nil {
			continue
		}
		seen[l.Name] = s
	}
	a.observed = seen
	if len(seen) > 0 {
		return errors.New("acquiring the leader lock: other replicas work with shards: wait until they have ended, " +
			"or start this one with --shards, too")
	}
	return nil
}

// AnnounceListener makes a lock of leader election write the address of this replica's listener to its Lease, in the
// annotation AddressAnnotation. AnnounceListener must be called before the lock is used. If address is "", the lock
// writes no address.
func AnnounceListener(lock *resourcelock.LeaseLock, address string) {
	if address != "" {
		lock.Client = announcer{lock.Client, lock.Identity(), address}
	}
}

// announcer is a client for Leases that adds an address to the Leases that a replica holds. The address is a part of
// each write by which the replica becomes or stays the leader. Therefore a new leader needs no further request that
// could fail, and the Lease has the address again after it was deleted.
type announcer struct {
	coordinationv1client.LeasesGetter
	identity, address string
}

// Leases implements [coordinationv1client.LeasesGetter].
func (a announcer) Leases(namespace string) coordinationv1client.LeaseInterface {
	return announcedLeases{a.LeasesGetter.Leases(namespace), a}
}

// announcedLeases is the client that announcer returns for one namespace.
type announcedLeases struct {
	coordinationv1client.LeaseInterface
	announcer announcer
}

// Create implements [coordinationv1client.LeaseInterface].
func (l announcedLeases) Create(ctx context.Context, o *coordinationv1.Lease, opts metav1.CreateOptions) (
	*coordinationv1.Lease, error) {
	return l.LeaseInterface.Create(ctx, l.announcer.withAddressIfHeld(o), opts)
}

// Update implements [coordinationv1client.LeaseInterface].
func (l announcedLeases) Update(ctx context.Context, o *coordinationv1.Lease, opts metav1.UpdateOptions) (
	*coordinationv1.Lease, error) {
	return l.LeaseInterface.Update(ctx, l.announcer.withAddressIfHeld(o), opts)
}

// withAddressIfHeld returns a Lease with the address if the replica is the holder of the Lease.
func (a announcer) withAddressIfHeld(l *coordinationv1.Lease) *coordinationv1.Lease {
	if holderOf(l) != a.identity {
		return l
	}
	l = l.DeepCopy()
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, AddressAnnotation, a.address)
	return l
}
