package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// Leases is a client for the Leases in one namespace, with only the methods that this package uses. The client of
// client-go implements the interface Leases. Tests use an implementation that stores Leases in memory.
type Leases interface {
	List(context.Context, metav1.ListOptions) (*coordinationv1.LeaseList, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	Create(context.Context, *coordinationv1.Lease, metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(context.Context, *coordinationv1.Lease, metav1.UpdateOptions) (*coordinationv1.Lease, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// Options are the options of a Keeper. Only the option Leases is required.
type Options struct {
	// Leases is the client for the Leases in the namespace of the manager.
	Leases Leases
	// Name is a name by which people recognise the replica. The Keeper adds a random suffix to Name, so that the names
	// of all replicas differ. Default replica.
	Name string
	// Address is the host:port at which other replicas reach the listener of this replica. "" means that there is no
	// listener.
	Address string
	// Labels are added to the Lease of the replica.
	Labels map[string]string
	// Duration is the time after which a replica that does not renew its Lease is considered dead. Default 12 s.
	// Minimum 1 s.
	Duration time.Duration
	// Gate reports whether this replica may acquire shards. For each Lease of the replica, Gate is called until it
	// returns true. If Gate is nil, the replica may acquire shards at once.
	Gate func(context.Context) (bool, error)
	// Open, if not nil, prepares a shard that this replica has acquired, for example by filling the cache of the shard.
	// Reconciles of the shard start after Open has returned. If Open returns an error, it is called again. The context
	// of the call ends when the shard is lost or released.
	Open func(ctx context.Context, shard int) error
	// Opened, if not nil, is called when reconciles of the shard may start.
	Opened func(shard int)
	// Close, if not nil, reverts Open. Close is called after all reconciles of the shard have ended.
	Close func(shard int)
	// Log receives a line whenever this replica acquires, releases or loses a shard.
	Log logr.Logger
}

// validPeriod returns the time for which a replica may act after a renewal of its Lease. The valid period is measured
// from the start of the last renewal that succeeded.
func (o *Options) validPeriod() time.Duration { return o.Duration * 2 / 3 }

// requestTimeout returns the timeout of all requests except renewals. A renewal may take as long as the Lease is valid.
func (o *Options) requestTimeout() time.Duration { return o.Duration / 4 }

// Keeper holds the shards of this replica. A Keeper is safe for concurrent use. A nil Keeper counts as holding all
// shards.
type Keeper struct {
	opts Options
	// renewedAt is the start of the last successful renewal; it is nil before the first renewal, and after the Lease
	// was lost.
	renewedAt atomic.Pointer[time.Time]

	mu       sync.Mutex
	holdings [Count]*holding          // guarded by mu; nil for shards that this replica neither has nor acquires
	known    map[string]observedLease // guarded by mu; all Leases, by name
	complete bool                     // guarded by mu: known contains all Leases
	// replicaLease is the last version of this replica's Lease that was written, or nil if there is no Lease; guarded
	// by mu.
	replicaLease *coordinationv1.Lease
	onOpened     []func(shard int) // guarded by mu
	// cleared has, by shard, the answer to the last write that removed this replica from the Lease of the shard;
	// guarded by mu.
	cleared [Count]*coordinationv1.Lease

	assignNow chan struct{} // a value makes assignLoop run
}

// observedLease is a Lease in the version that was received last, with the time when it was received.
type observedLease struct {
	lease *coordinationv1.Lease
	since time.Time // when this version was received, by the clock of this replica
}

// holding is a shard that this replica holds, acquires or releases.
type holding struct {
	shard    int
	ctx      context.Context // parent of the contexts of reconciles; ends when the shard is lost or released
	cancel   context.CancelFunc
	acquired chan struct{}         // closed when acquire has returned
	lease    *coordinationv1.Lease // the Lease that acquire has written; nil if the write failed

	// guarded by Keeper.mu
	open       bool // reconciles may start
	closing    bool // no reconcile may start any more
	reconciles int
	idle       chan struct{} // closed when closing is true and no reconcile runs
}

// signalIdleLocked closes the channel idle if the shard is closing and no reconcile runs. The caller of
// signalIdleLocked must hold Keeper.mu.
func (t *holding) signalIdleLocked() {
	if !t.closing || t.reconciles > 0 {
		return
	}
	select {
	case <-t.idle:
	default:
		close(t.idle)
	}
}

// New checks the options and returns a Keeper that holds no shards.
func New(o Options) (*Keeper, error) {
	if o.Leases == nil {
		return nil, errors.New("making a keeper of shards: options need Leases")
	}
	o.Duration = cmp.Or(o.Duration, 12*time.Second)
	o.Name = cmp.Or(o.Name, "replica")
	if o.Duration < time.Second {
		return nil, fmt.Errorf("making a keeper of shards: Duration %s is less than a second", o.Duration)
	}
	if o.Gate == nil {
		o.Gate = func(context.Context) (bool, error) { return true, nil }
	}
	if o.Open == nil {
		o.Open = func(context.Context, int) error { return nil }
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	k := &Keeper{opts: o, known: map[string]observedLease{}, assignNow: make(chan struct{}, 1)}
	if o.Opened != nil {
		k.OnOpened(o.Opened)
	}
	return k, nil
}

// NeedLeaderElection returns false: a Keeper runs on all replicas.
func (k *Keeper) NeedLeaderElection() bool { return false }

// OnOpened adds a function that is called when reconciles of a shard may start. The added function must not block.
// OnOpened must be called before Start. The shards of a nil Keeper do not change, so a nil Keeper never calls the added
// function.
func (k *Keeper) OnOpened(f func(shard int)) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.onOpened = append(k.onOpened, f)
}

// Start runs until ctx ends: it acquires and releases shards. When ctx ends, Start releases all shards. Start may be
// called only once.
func (k *Keeper) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		k.runMembership(ctx)
	}
	return nil
}

// runMembership runs one membership: the time from the creation of a Lease of this replica until that Lease is lost or
// ctx ends.
func (k *Keeper) runMembership(ctx context.Context) {
	if !k.createReplicaLeaseWithRetry(ctx) {
		return
	}
	membership, end := context.WithCancel(ctx)
	defer end()
	var tasks sync.WaitGroup
	tasks.Go(func() { k.renewUntilLost(membership); end() })
	tasks.Go(func() { k.watchLeases(membership) })
	tasks.Go(func() { k.assignLoop(membership, &tasks) })
	<-membership.Done()
	change := metrics.ShardLost
	if ctx.Err() != nil {
		change = metrics.ShardReleased
	}
	for shard := range Count {
		tasks.Go(func() { k.releaseKeepingLease(shard, change) })
	}
	tasks.Wait()
	k.deleteReplicaLease(ctx)
}

// triggerAssign makes assignLoop run soon.
func (k *Keeper) triggerAssign() {
	select {
	case k.assignNow <- struct{}{}:
	default:
	}
}

// assignLoop runs until the membership ends: it acquires and releases shards. assignLoop also deletes the Leases of
// dead replicas.
func (k *Keeper) assignLoop(membership context.Context, tasks *sync.WaitGroup) {
	may := false
	for {
		wait := k.opts.Duration
		if !may {
			var err error
			if may, err = k.opts.Gate(membership); err != nil && membership.Err() == nil {
				k.opts.Log.Error(err, "cannot find out whether replicas without shards are running")
			}
			wait = k.opts.Duration / 12
		}
		next := k.deleteExpiredReplicaLeases(membership, tasks)
		if may {
			k.applyAssignment(membership, tasks)
		}
		timer := time.NewTimer(min(wait, next))
		select {
		case <-membership.Done():
			timer.Stop()
			return
		case <-k.assignNow:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// applyAssignment starts to acquire and release shards, so that this replica gets the shards that Assign returns for
// it.
func (k *Keeper) applyAssignment(membership context.Context, tasks *sync.WaitGroup) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.complete || k.replicaLease == nil || membership.Err() != nil {
		return
	}
	me, replicas := *k.replicaLease.Spec.HolderIdentity, k.replicaLeasesLocked()
	if replicas[me] == nil {
		return // the watch has not received the Lease of this replica yet
	}
	names := make([]string, 0, len(replicas))
	for name := range replicas {
		names = append(names, name)
	}
	for shard, assigned := range Assign(names) {
		t, lease := k.holdings[shard], k.known[shardLeaseName(shard)].lease
		switch {
		case t == nil && assigned == me:
			if holder := holderOf(lease); holder != "" && holder != me && replicas[holder] != nil {
				continue // wait until the holder releases the shard or is dead
			}
			t = k.addUnopenedHoldingLocked(membership, shard)
			tasks.Go(func() { k.acquire(t, lease, me) })
		case t != nil && assigned != me && t.open && !t.closing:
			t.closing = true
			tasks.Go(func() { k.release(membership, t) })
		case t == nil && assigned != me && holderOf(lease) == me && !k.isOlderThanClearedLocked(shard, lease):
			// This replica can hold a shard without having acquired it: it has written itself into the Lease, the
			// answer was lost, and by now the shard is assigned to another replica. The other replica waits until this
			// replica releases the shard.
			t = k.addUnopenedHoldingLocked(membership, shard)
			t.lease, t.closing = lease, true
			close(t.acquired)
			tasks.Go(func() { k.release(membership, t) })
		}
	}
}

// isOlderThanClearedLocked reports whether the given version of a shard's Lease is out of date, because this replica
// has removed itself from the Lease in a newer version. The watch may deliver the older version later than the answer
// to the removal. The caller of isOlderThanClearedLocked must hold mu.
func (k *Keeper) isOlderThanClearedLocked(shard int, lease *coordinationv1.Lease) bool {
	cleared := k.cleared[shard]
	return cleared != nil && newerLease(lease, cleared) == cleared
}

// addUnopenedHoldingLocked adds a holding for a shard to the Keeper. The caller of addUnopenedHoldingLocked must hold
// mu.
func (k *Keeper) addUnopenedHoldingLocked(membership context.Context, shard int) *holding {
	t := &holding{shard: shard, idle: make(chan struct{}), acquired: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(membership)
	k.holdings[shard] = t
	return t
}

// acquire writes this replica into the Lease of a shard and opens the shard.
func (k *Keeper) acquire(t *holding, lease *coordinationv1.Lease, me string) {
	defer close(t.acquired)
	lease, err := k.writeHolder(t.ctx, t.shard, lease, me)
	if err != nil {
		// The write of the Lease failed: either another replica has acquired the shard, or there was no answer to the
		// write. If the Lease was written and only the answer was lost, the next attempt to acquire the shard finds the
		// Lease.
		k.opts.Log.V(1).Info("a shard was not acquired", "shard", t.shard, "error", err.Error())
		k.cancelAndRemoveHolding(t)
		time.AfterFunc(k.opts.Duration/24, k.triggerAssign)
		return
	}
	t.lease = lease
	for {
		err := k.opts.Open(t.ctx, t.shard)
		if err == nil {
			break
		}
		if t.ctx.Err() != nil {
			return // releaseKeepingLease closes the shard
		}
		k.opts.Log.Error(err, "a shard cannot be opened", "shard", t.shard)
		if !sleepUnlessDone(t.ctx, k.opts.Duration/12) {
			return
		}
	}
	k.mu.Lock()
	if t.ctx.Err() != nil {
		k.mu.Unlock()
		return
	}
	t.open = true
	callbacks := k.onOpened
	k.mu.Unlock()
	metrics.Shards.Inc()
	metrics.ShardChanges.WithLabelValues(metrics.ShardAcquired).Inc()
	k.opts.Log.Info("acquired a shard", "shard", t.shard)
	for _, f := range callbacks {
		f(t.shard)
	}
	k.triggerAssign() // the shard may be assigned to another replica by now
}

// release closes a shard and removes the holder from its Lease, so that another replica can acquire the shard.
func (k *Keeper) release(membership context.Context, t *holding) {
	defer k.cancelAndRemoveHolding(t)
	k.drainAndCloseShard(t, metrics.ShardReleased)
	for membership.Err() == nil {
		err := k.clearHolder(membership, t.shard, t.lease)
		if err == nil {
			break
		}
		k.opts.Log.Info("the Lease of a shard cannot be written; trying again", "shard", t.shard, "error", err.Error())
		if !sleepUnlessDone(membership, k.opts.Duration/24) {
			return // the deletion of the Lease of this replica also frees the shard
		}
	}
	k.cancelAndRemoveHolding(t)
	k.triggerAssign()
}

// releaseKeepingLease closes a shard at the end of a membership. releaseKeepingLease does not write the Lease of the
// shard: the shard becomes free when the Lease of this replica is deleted.
func (k *Keeper) releaseKeepingLease(shard int, reason string) {
	k.mu.Lock()
	t := k.holdings[shard]
	if t == nil || t.closing {
		k.mu.Unlock()
		return // release closes the shard
	}
	t.closing = true
	k.mu.Unlock()
	k.drainAndCloseShard(t, reason)
	k.cancelAndRemoveHolding(t)
}

// drainAndCloseShard cancels the reconciles of a shard, waits until they have ended, and closes the shard. The
// parameter reason is the reason for closing the shard, for metrics and the log.
func (k *Keeper) drainAndCloseShard(t *holding, reason string) {
	t.cancel()
	k.mu.Lock()
	wasOpen := t.open
	t.open = false
	t.signalIdleLocked()
	k.mu.Unlock()
	<-t.acquired
	<-t.idle
	if k.opts.Close != nil {
		k.opts.Close(t.shard)
	}
	if wasOpen {
		metrics.Shards.Dec()
		metrics.ShardChanges.WithLabelValues(reason).Inc()
		k.opts.Log.Info("stopped working on a shard", "shard", t.shard, "reason", reason)
	}
}

// cancelAndRemoveHolding cancels the contexts of a shard that this replica has held or wanted to acquire, and removes
// the shard from the Keeper.
func (k *Keeper) cancelAndRemoveHolding(t *holding) {
	t.cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.holdings[t.shard] == t {
		k.holdings[t.shard] = nil
	}
}

// OtherHolderAddress returns the listener address (host:port) of the replica that holds the shard of a Kyma, or "" if
// the address is unknown. If this replica holds the shard itself, the results are "" and true.
func (k *Keeper) OtherHolderAddress(kyma string) (address string, isHeldHere bool) {
	if k.Holds(kyma) {
		return "", true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if of := k.replicaLeasesLocked()[holderOf(k.known[shardLeaseName(Of(kyma))].lease)]; of != nil {
		address = of.Annotations[AddressAnnotation]
	}
	return address, false
}

// sleepUnlessDone waits for the duration d. sleepUnlessDone returns false if ctx ends first.
func sleepUnlessDone(ctx context.Context, d time.Duration) (isElapsed bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
