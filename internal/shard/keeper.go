package shard

import (
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

// Leases is the part of the coordination API that is used, of one namespace. The client of client-go has it; tests have one in memory.
type Leases interface {
	List(context.Context, metav1.ListOptions) (*coordinationv1.LeaseList, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	Create(context.Context, *coordinationv1.Lease, metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(context.Context, *coordinationv1.Lease, metav1.UpdateOptions) (*coordinationv1.Lease, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// Options are what a Keeper works with. Leases is needed.
type Options struct {
	// Leases are those of the manager's namespace.
	Leases Leases
	// Name tells people which replica it is; what makes it unique is added. Default replica.
	Name string
	// Address is host:port of the listener of this replica, for the others. "": there is none.
	Address string
	// Duration is how long others wait for a replica that does not renew its Lease. Default 12 s. Less than 1 s is not possible.
	Duration time.Duration
	// Gate says whether work may begin; it is asked until it says yes, once in the life of a Lease. nil says yes.
	Gate func(context.Context) (bool, error)
	// Open prepares a shard that this replica got, such as its cache. Until it has returned, nobody can enter. After an error it is called again.
	// The context ends with the shard. nil does nothing.
	Open func(ctx context.Context, shard int) error
	// Opened is told that the shard can be entered. nil is nobody.
	Opened func(shard int)
	// Close ends what Open began. All passes have ended. nil does nothing.
	Close func(shard int)
	// Log gets a line for each time that the set of shards changes.
	Log logr.Logger
}

// valid is how long after the beginning of its last renewal a replica may act.
func (o *Options) valid() time.Duration { return o.Duration * 2 / 3 }

// patience is how long a request may take before it is tried again. For a renewal there is less or more of it: as long as the Lease is valid.
func (o *Options) requestTimeout() time.Duration { return o.Duration / 4 }

// Keeper holds the shards of this replica. Safe for concurrent use. A nil Keeper holds everything.
type Keeper struct {
	opts Options
	sent atomic.Pointer[time.Time] // when the last renewal that succeeded was begun; nil before the first, and after the Lease is lost

	mu       sync.Mutex
	tenures  [Count]*tenure        // guarded by mu; nil where this replica has nothing to do with the shard
	known    map[string]observed   // guarded by mu; all Leases, by name
	complete bool                  // guarded by mu: known is all there is
	renewed  *coordinationv1.Lease // guarded by mu; the Lease of this replica as it was written last, nil while there is none
	onOpened []func(shard int)     // guarded by mu

	kick chan struct{} // something has changed
}

// observed is a Lease as it was last seen.
type observed struct {
	lease *coordinationv1.Lease
	since time.Time // when it was first seen like this, by our clock
}

// tenure is the time that this replica has a shard.
type tenure struct {
	shard  int
	ctx    context.Context // ends with it; kept because passes hang on it
	cancel context.CancelFunc
	taken  chan struct{}         // closed when acquire has done what it could
	lease  *coordinationv1.Lease // as acquire wrote it; nil if it could not

	// guarded by Keeper.mu
	open    bool // passes may begin
	closing bool // and none may any more
	passes  int
	idle    chan struct{} // closed when it is closing and there are no passes
}

// settleLocked says that all passes have ended, if they have to. The caller holds Keeper.mu.
func (t *tenure) settleLocked() {
	if !t.closing || t.passes > 0 {
		return
	}
	select {
	case <-t.idle:
	default:
		close(t.idle)
	}
}

// New checks options and returns a Keeper that holds nothing.
func New(o Options) (*Keeper, error) {
	if o.Leases == nil {
		return nil, errors.New("making a keeper of shards: options need Leases")
	}
	if o.Duration == 0 {
		o.Duration = 12 * time.Second
	}
	if o.Duration < time.Second {
		return nil, fmt.Errorf("making a keeper of shards: Duration %s is less than a second", o.Duration)
	}
	if o.Name == "" {
		o.Name = "replica"
	}
	if o.Gate == nil {
		o.Gate = func(context.Context) (bool, error) { return true, nil }
	}
	if o.Open == nil {
		o.Open = func(context.Context, int) error { return nil }
	}
	if o.Opened == nil {
		o.Opened = func(int) {}
	}
	if o.Close == nil {
		o.Close = func(int) {}
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	return &Keeper{opts: o, known: map[string]observed{}, kick: make(chan struct{}, 1)}, nil
}

// NeedLeaderElection says that all replicas take part.
func (k *Keeper) NeedLeaderElection() bool { return false }

// OnOpened lets f know of shards that can be entered from now on. It must not block. It is called before Start. A nil Keeper tells nobody:
// there is nothing that changes.
func (k *Keeper) OnOpened(f func(shard int)) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.onOpened = append(k.onOpened, f)
}

// Start takes part until the end of ctx; then it hands over everything. It may be called once.
func (k *Keeper) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		k.live(ctx)
	}
	return nil
}

// live is one life of a replica: from the creation of its Lease to the loss of it, or to the end of ctx.
func (k *Keeper) live(ctx context.Context) {
	if !k.join(ctx) {
		return
	}
	life, end := context.WithCancel(ctx)
	defer end()
	var tasks sync.WaitGroup
	tasks.Go(func() { k.renew(life); end() })
	tasks.Go(func() { k.watchLeases(life) })
	tasks.Go(func() { k.decide(life, &tasks) })
	<-life.Done()
	change := metrics.ShardLost
	if ctx.Err() != nil {
		change = metrics.ShardReleased
	}
	for shard := range Count {
		tasks.Go(func() { k.drop(shard, change) })
	}
	tasks.Wait()
	k.resign(ctx)
}

// triggerDecide makes decide look.
func (k *Keeper) triggerDecide() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// decide takes what is free and ours to have, and hands over what is not, until the end of a life.
func (k *Keeper) decide(life context.Context, tasks *sync.WaitGroup) {
	may := false
	for {
		wait := k.opts.Duration
		if !may {
			var err error
			if may, err = k.opts.Gate(life); err != nil && life.Err() == nil {
				k.opts.Log.Error(err, "cannot find out whether others work without shards")
			}
			wait = k.opts.Duration / 12
		}
		next := k.bury(life, tasks)
		if may {
			k.rearrange(life, tasks)
		}
		timer := time.NewTimer(min(wait, next))
		select {
		case <-life.Done():
			timer.Stop()
			return
		case <-k.kick:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// rearrange begins to acquire and to release shards so that every replica gets what Assign says.
func (k *Keeper) rearrange(life context.Context, tasks *sync.WaitGroup) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.complete || k.renewed == nil || life.Err() != nil {
		return
	}
	me, replicas := *k.renewed.Spec.HolderIdentity, k.replicasLocked()
	if replicas[me] == nil {
		return // it will be seen in a moment
	}
	names := make([]string, 0, len(replicas))
	for name := range replicas {
		names = append(names, name)
	}
	for shard, heir := range Assign(names) {
		t := k.tenures[shard]
		switch {
		case t == nil && heir == me:
			lease := k.known[leaseOfShard(shard)].lease
			if holder := holderOf(lease); holder != "" && holder != me && replicas[holder] != nil {
				continue // until its holder lets it go, or is dead
			}
			t = k.newTenureLocked(life, shard)
			tasks.Go(func() { k.acquire(t, lease, me) })
		case t != nil && heir != me && t.open && !t.closing:
			t.closing = true
			tasks.Go(func() { k.release(life, t) })
		}
	}
}

// newTenureLocked begins a tenure. The caller holds mu.
func (k *Keeper) newTenureLocked(life context.Context, shard int) *tenure {
	t := &tenure{shard: shard, idle: make(chan struct{}), taken: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(life)
	k.tenures[shard] = t
	return t
}

// acquire writes this replica into the Lease of a shard, and opens it.
func (k *Keeper) acquire(t *tenure, lease *coordinationv1.Lease, me string) {
	defer close(t.taken)
	lease, err := k.take(t.ctx, t.shard, lease, me)
	if err != nil {
		// Somebody was faster, or there was no answer; if it was written all the same, the next try finds that.
		k.opts.Log.V(1).Info("a shard was not acquired", "shard", t.shard, "problem", err.Error())
		k.forget(t)
		time.AfterFunc(k.opts.Duration/24, k.triggerDecide)
		return
	}
	t.lease = lease
	for {
		err := k.opts.Open(t.ctx, t.shard)
		if err == nil {
			break
		}
		if t.ctx.Err() != nil {
			return // drop sees to the rest
		}
		k.opts.Log.Error(err, "a shard cannot be opened", "shard", t.shard)
		if !pause(t.ctx, k.opts.Duration/12) {
			return
		}
	}
	k.mu.Lock()
	if t.ctx.Err() != nil {
		k.mu.Unlock()
		return
	}
	t.open = true
	tell := k.onOpened
	k.mu.Unlock()
	metrics.Shards.Inc()
	metrics.ShardChanges.WithLabelValues(metrics.ShardAcquired).Inc()
	k.opts.Log.Info("works on a shard from now on", "shard", t.shard)
	k.opts.Opened(t.shard)
	for _, f := range tell {
		f(t.shard)
	}
	k.triggerDecide() // it may have another heir already
}

// release hands a shard over. What it was closed by is said in Lease and log.
func (k *Keeper) release(life context.Context, t *tenure) {
	defer k.forget(t)
	k.end(t, metrics.ShardReleased)
	for life.Err() == nil {
		err := k.free(life, t.lease)
		if err == nil {
			break
		}
		k.opts.Log.Info("a shard cannot be handed over yet", "shard", t.shard, "problem", err.Error())
		if !pause(life, k.opts.Duration/24) {
			return // the Lease of this replica goes next, or has gone
		}
	}
	k.forget(t)
	k.triggerDecide()
}

// drop ends the tenure of a shard at the end of a life, if there is one.
func (k *Keeper) drop(shard int, change string) {
	k.mu.Lock()
	t := k.tenures[shard]
	if t == nil || t.closing {
		k.mu.Unlock()
		return // release ends it
	}
	t.closing = true
	k.mu.Unlock()
	k.end(t, change)
	k.forget(t)
}

// end cancels the passes of a shard, waits until they have ended, and closes it.
func (k *Keeper) end(t *tenure, change string) {
	t.cancel()
	k.mu.Lock()
	wasOpen := t.open
	t.open = false
	t.settleLocked()
	k.mu.Unlock()
	<-t.taken
	<-t.idle
	k.opts.Close(t.shard)
	if wasOpen {
		metrics.Shards.Dec()
		metrics.ShardChanges.WithLabelValues(change).Inc()
		k.opts.Log.Info("works on a shard no more", "shard", t.shard, "how", change)
	}
}

// forget ends a tenure.
func (k *Keeper) forget(t *tenure) {
	t.cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tenures[t.shard] == t {
		k.tenures[t.shard] = nil
	}
}

// HolderAddress returns the address (host:port) of the listener of the replica that works on the runtime of a Kyma, "" if that is not known, and whether it is
// this one.
func (k *Keeper) HolderAddress(kyma string) (address string, me bool) {
	if k.Holds(kyma) {
		return "", true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if of := k.replicasLocked()[holderOf(k.known[leaseOfShard(Of(kyma))].lease)]; of != nil {
		address = of.Annotations[annotationAddress]
	}
	return address, false
}

// pause waits, and returns false if the context ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
