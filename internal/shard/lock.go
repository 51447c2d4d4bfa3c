package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Replicas with shards and replicas without must not work at the same time, also while one sort replaces the other. They meet at the
// Lease of leader election, which both sorts compete for:
//
//	with shards      the leader's identity begins with leaderPrefix. Nobody works on a shard before he has seen, with his own Lease
//	                 written, that the leader is one of his sort (Gate)
//	without shards   nobody becomes leader as long as there are replicas with shards (UnshardedLeaderLock)
//
// So whoever comes second waits: for the leader without shards to end, or for all replicas with shards to end.

// leaderPrefix begins the identity of leaders that work with shards.
const leaderPrefix = "shards_"

// LeaderIdentity returns the identity for leader election of a replica that works with shards.
func LeaderIdentity(name string) string { return leaderPrefix + name }

// ShardedLeaderGate returns an Options.Gate: it says yes when the leader is a replica that works with shards. Nobody else uses this lock.
func ShardedLeaderGate(lock resourcelock.Interface) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		record, _, err := lock.Get(ctx)
		if err != nil {
			return false, fmt.Errorf("reading who is leader: %w", err)
		}
		return strings.HasPrefix(record.HolderIdentity, leaderPrefix), nil
	}
}

// UnshardedLeaderLock returns a lock for replicas that work without shards: it cannot be taken as long as there are replicas that work with shards. Those that do
// not renew their Leases any more are counted out.
func UnshardedLeaderLock(lock resourcelock.Interface, leases Leases) resourcelock.Interface {
	return &alone{Interface: lock, leases: leases, seen: map[string]observed{}}
}

type alone struct {
	resourcelock.Interface
	leases Leases

	mu   sync.Mutex
	mine bool                // guarded by mu: it was taken, and is being renewed
	seen map[string]observed // guarded by mu; Leases of replicas, by name
}

// Create takes the lock if nobody had it before.
func (a *alone) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if err := a.look(ctx); err != nil {
		return err
	}
	return a.note(a.Interface.Create(ctx, r), r)
}

// Update takes the lock, renews it, or gives it back.
func (a *alone) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity == a.Identity() {
		if err := a.look(ctx); err != nil {
			return err
		}
	}
	return a.note(a.Interface.Update(ctx, r), r)
}

// note remembers whether the lock is ours.
func (a *alone) note(err error, r resourcelock.LeaderElectionRecord) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.mine = r.HolderIdentity == a.Identity()
	}
	return err
}

// look returns an error as long as there are replicas that work with shards. Who has the lock does not ask again: they wait.
func (a *alone) look(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mine {
		return nil
	}
	list, err := a.leases.List(ctx, metav1.ListOptions{LabelSelector: v1beta2.LabelLease + "=" + v1beta2.LeaseOfReplica})
	if apierrors.IsForbidden(err) {
		return nil // replicas with shards need the same right, so there are none
	}
	if err != nil {
		return fmt.Errorf("looking for replicas that work with shards: %w", err)
	}
	now, seen := time.Now(), map[string]observed{}
	for i := range list.Items {
		l := &list.Items[i]
		s, before := a.seen[l.Name]
		if !before || s.lease.UID != l.UID || s.lease.ResourceVersion != l.ResourceVersion {
			s = observed{l, now}
		}
		if now.Sub(s.since) >= lifeOf(l) && buryOne(ctx, a.leases, l) == nil {
			continue
		}
		seen[l.Name] = s
	}
	a.seen = seen
	if len(seen) > 0 {
		return errors.New("taking the lead: other replicas work with shards: wait until they have ended, or give --shards to this one too")
	}
	return nil
}
