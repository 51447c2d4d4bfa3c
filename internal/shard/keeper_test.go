package shard

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// names has, for each shard, the name of a Kyma that belongs to this shard, so that tests can start a reconcile in any
// shard.
var names = func() (all [Count]string) {
	for i, found := 0, 0; found < Count; i++ {
		name := fmt.Sprintf("kyma-%d", i)
		if s := Of(name); all[s] == "" {
			all[s] = name
			found++
		}
	}
	return all
}()

// fleet is a set of replicas with the same API server.
type fleet struct {
	t      *testing.T
	server *server
	random *rand.Rand
	alive  []*replica
	dead   []*replica // killed, without the chance to release anything

	mu  sync.Mutex
	all []*replica // guarded by mu; every replica that was ever started
}

// replica is one process.
type replica struct {
	*Keeper
	line *line
	stop context.CancelFunc
	done chan struct{}
}

func newFleet(t *testing.T, seed uint64) *fleet {
	return &fleet{t: t, server: newServer(), random: rand.New(rand.NewPCG(seed, 7))}
}

// start starts a replica.
func (f *fleet) start(edit ...func(*Options)) *replica {
	l := &line{server: f.server, random: rand.New(rand.NewPCG(f.random.Uint64(), 1))}
	o := Options{Leases: l, Name: fmt.Sprintf("replica-%d", len(f.alive)+len(f.dead)), Address: "here:1"}
	for _, e := range edit {
		e(&o)
	}
	k, err := New(o)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(f.t.Context())
	r := &replica{Keeper: k, line: l, stop: stop, done: make(chan struct{})}
	f.mu.Lock()
	f.all = append(f.all, r)
	f.mu.Unlock()
	k.OnOpened(func(shard int) { f.checkOnlyHolder(r, shard) })
	go func() {
		defer close(r.done)
		if err := k.Start(ctx); err != nil {
			f.t.Error(err)
		}
	}()
	f.alive = append(f.alive, r)
	return r
}

// shutDown shuts a replica down.
func (f *fleet) shutDown(i int) {
	r := f.alive[i]
	f.alive = append(f.alive[:i:i], f.alive[i+1:]...)
	r.stop()
	<-r.done
}

// kill simulates the crash of a replica: it cuts the replica's network, and the killed replica does not release the
// shards that it holds.
func (f *fleet) kill(i int) {
	r := f.alive[i]
	f.alive = append(f.alive[:i:i], f.alive[i+1:]...)
	f.dead = append(f.dead, r)
	r.line.set(func(l *line) { l.cut = true })
}

// close stops all replicas.
func (f *fleet) close() {
	for _, r := range append(f.alive, f.dead...) {
		r.stop()
		<-r.done
	}
}

// checkOnlyHolder fails the test if another replica still holds a shard that a replica has just opened.
// checkOnlyHolder is called by the replica that opens the shard. This replica does not release the shard before the
// call returns, so two replicas that are found hold the shard at the same time.
func (f *fleet) checkOnlyHolder(opener *replica, shard int) {
	f.mu.Lock()
	others := slices.Clone(f.all)
	f.mu.Unlock()
	for _, r := range others {
		if r != opener && r.Holds(names[shard]) && opener.Holds(names[shard]) {
			f.t.Errorf("a replica opened shard %d while another replica held it", shard)
		}
	}
}

// checkHolders fails the test if two replicas hold a shard at the same time. checkHolders checks this for the given
// time, at moments at which all replicas wait. While the replicas work, a shard may move after the first replica was
// asked and before the second one is, and both would say that they hold it.
func (f *fleet) checkHolders(d time.Duration) {
	f.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		synctest.Wait()
		for shard, holders := range countHolders(append(f.alive, f.dead...)) {
			if holders > 1 {
				f.t.Fatalf("%d replicas hold shard %d", holders, shard)
			}
		}
	}
}

// countHeld returns the number of shards that running replicas hold.
func (f *fleet) countHeld() int {
	count := 0
	for _, holders := range countHolders(f.alive) {
		count += holders
	}
	return count
}

// countHolders returns how many of the replicas hold each shard. countHolders asks a replica only about shards that the
// replica holds, acquires or releases, because tests count thousands of times.
func countHolders(replicas []*replica) (holders [Count]int) {
	for _, r := range replicas {
		r.mu.Lock()
		holdings := r.holdings
		r.mu.Unlock()
		for shard := range holdings {
			if holdings[shard] != nil && r.Holds(names[shard]) {
				holders[shard]++
			}
		}
	}
	return holders
}

// awaitAllHeld waits until each shard has a holder, and returns how long that took.
func (f *fleet) awaitAllHeld(atMost time.Duration) time.Duration {
	f.t.Helper()
	begin := time.Now()
	for f.countHeld() != Count {
		if time.Since(begin) > atMost {
			f.t.Fatalf("only %d shards are held after %s", f.countHeld(), atMost)
		}
		f.checkHolders(50 * time.Millisecond)
	}
	return time.Since(begin)
}

func TestOneReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		defer f.close()
		f.start()
		f.awaitAllHeld(time.Second)
		synctest.Wait() // all work that is due now is done
		before := f.server.writes
		f.checkHolders(time.Minute)
		synctest.Wait()
		if got := f.server.writes - before; got != 15 { // one in four seconds
			t.Errorf("%d writes in an idle minute", got)
		}
	})
}

// TestHandOver checks for how long shards have no holder when a replica starts, exits, or is killed. The test measures
// only the time that the Leases need; in production, requests and caches need more time.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		defer f.close()
		f.start()
		f.awaitAllHeld(time.Second)
		f.start()
		f.start()
		f.checkHolders(time.Second)
		f.awaitAllHeld(time.Second)
		for i, r := range f.alive {
			count := 0
			for _, name := range names {
				if r.Holds(name) {
					count++
				}
			}
			if count == 0 || count > maxShardsPerReplica(3) {
				t.Errorf("replica %d of 3 holds %d shards", i, count)
			}
		}
		f.shutDown(0)
		if took := f.awaitAllHeld(5 * time.Second); took > time.Second {
			t.Errorf("after a clean exit, all is taken over in %s", took)
		}
		f.kill(0)
		if took := f.awaitAllHeld(15 * time.Second); took > 13*time.Second {
			t.Errorf("after a kill, all is taken over in %s", took)
		}
	})
}

// seeds is the number of random sequences of faults that TestChaos tries.
var seeds = flag.Uint64("seeds", 100, "number of random sequences of faults that TestChaos tries")

// stable is the time after the last fault within which all shards have holders again. stable is twice the default of
// Options.Duration. A slow network may deliver the last write of a dead replica 4 s after the fault. The Lease of the
// dead replica expires 12 s after this write, and is deleted within another 2 s. The rest of the time is for moving
// shards to replicas that have joined in the meantime.
const stable = 24 * time.Second

// TestChaos checks that no shard ever has two holders while the network fails and replicas are killed. TestChaos also
// checks that the replicas recover: 24 seconds (the constant stable) after the last fault, every shard has one holder,
// and keeps this holder.
func TestChaos(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, seed)
				defer f.close()
				// This test simulates that the clocks of the other replicas run a quarter faster than the clock of this
				// replica. Measured by the same clock, the other replicas wait for 9 s until they consider this replica
				// dead, and this replica acts for at most 8 s.
				quick := func(o *Options) {
					o.Leases = &shortened{Leases: o.Leases}
				}
				f.start(quick)
				for range 40 {
					f.changeRandomly(quick)
					f.checkHolders(time.Duration(f.random.Int64N(int64(6 * time.Second))))
				}
				if len(f.alive) == 0 {
					f.start()
				}
				for _, r := range f.alive {
					r.line.set(func(l *line) { l.cut, l.slow, l.lossy = false, 0, 0 })
				}
				healed := time.Now()
				f.checkHolders(stable)
				if got := f.countHeld(); got != Count {
					t.Errorf("%s after the last fault, %d shards are held", stable, got)
				}
				if got := len(countByReplica(f.server.holders())); got != len(f.alive) {
					t.Errorf("%s after the last fault, %d replicas hold shards, and there are %d", stable, got, len(f.alive))
				}
				time.Sleep(time.Minute)
				if last := f.server.lastMove(); last.Sub(healed) > stable {
					t.Errorf("a shard moved %s after the last fault", last.Sub(healed))
				}
			})
		})
	}
}

// changeRandomly makes one random change to the fleet.
func (f *fleet) changeRandomly(edit func(*Options)) {
	i := 0
	if len(f.alive) > 0 {
		i = f.random.IntN(len(f.alive))
	}
	switch what := f.random.IntN(10); {
	case len(f.alive) == 0 || what == 0 && len(f.alive) < 5:
		f.start(edit)
	case what == 1:
		f.kill(i)
	case what == 2 && !f.alive[i].line.isCut():
		f.shutDown(i)
	case what <= 4:
		f.alive[i].line.set(func(l *line) { l.cut = !l.cut })
	case what <= 6:
		f.alive[i].line.set(func(l *line) { l.lossy = f.random.Float64() / 2 })
	default:
		f.alive[i].line.set(func(l *line) { l.slow = time.Duration(f.random.Int64N(int64(4 * time.Second))) })
	}
}

// shortened simulates clocks with different speeds: it writes Leases that expire earlier for other replicas than for
// the replica that holds them.
type shortened struct{ Leases }

// TestLostAnswer checks a replica that has written the Lease of a shard, but has not received the answer. If the shard
// is assigned to another replica when the first replica learns of its write, the first replica gives up the shard.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 6)
		defer f.close()
		f.start()
		f.awaitAllHeld(time.Second)
		f.start(func(o *Options) { o.Leases = &answerless{o.Leases, time.Now().Add(time.Second)} })
		f.checkHolders(time.Second)
		f.start() // some of the shards that the second replica has written are assigned to the third one
		f.checkHolders(stable)
		if got := f.countHeld(); got != Count {
			t.Errorf("%d shards are held", got)
		}
		if got := len(countByReplica(f.server.holders())); got != len(f.alive) {
			t.Errorf("%d replicas hold shards, and there are %d", got, len(f.alive))
		}
	})
}

// answerless is a client that, in the first seconds, loses the answers to the writes with which a replica acquires
// shards.
type answerless struct {
	Leases
	until time.Time
}

// Update simulates a lost answer: it writes a Lease, and returns an error two seconds later although the write has
// succeeded.
func (a *answerless) Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (
	*coordinationv1.Lease, error) {
	answer, err := a.Leases.Update(ctx, l, o)
	if err != nil || isReplicaLease(l) || holderOf(l) == "" || time.Now().After(a.until) {
		return answer, err
	}
	sleepUnlessDone(ctx, 2*time.Second)
	return nil, errNetwork
}

// TestBeginReconcile checks that a reconcile is cancelled when its shard is released, and that the next holder waits
// until the reconcile has ended.
func TestBeginReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		defer f.close()
		first := f.start()
		f.awaitAllHeld(time.Second)
		type pass struct {
			ctx   context.Context
			leave func()
		}
		var passes [Count]pass
		for shard, name := range names {
			ctx, leave, ours := first.BeginReconcile(t.Context(), name)
			if !ours || CheckHeld(ctx) != nil {
				t.Fatalf("shard %d is not held", shard)
			}
			passes[shard] = pass{ctx, leave}
		}
		second := f.start()
		f.checkHolders(10 * time.Second)
		moved := 0
		for shard, name := range names {
			if second.Holds(name) {
				t.Errorf("shard %d was taken over during a pass", shard)
			}
			if passes[shard].ctx.Err() != nil {
				moved++
				if CheckHeld(passes[shard].ctx) == nil {
					t.Errorf("a cancelled pass over shard %d may write", shard)
				}
				if c := WithoutFence(passes[shard].ctx); CheckHeld(c) != nil || OfReconcile(c) != -1 {
					t.Errorf("a read for all runtimes is refused with shard %d", shard)
				}
				if _, leave, ours := first.BeginReconcile(t.Context(), name); ours {
					t.Errorf("a pass began over shard %d, which is being handed over", shard)
					leave()
				}
			}
			passes[shard].leave()
		}
		if moved == 0 {
			t.Error("no shard is to move")
		}
		f.awaitAllHeld(time.Second)
		if err := CheckHeld(t.Context()); err != nil {
			t.Errorf("what is no pass is refused: %v", err)
		}
	})
}

// TestSplitBrain checks a replica that has lost its connection: by its own clock, it stops writing before other
// replicas take over.
func TestSplitBrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		defer f.close()
		lone := f.start()
		f.start()
		f.checkHolders(time.Second)
		f.awaitAllHeld(time.Second)
		var mine string
		for _, name := range names {
			if lone.Holds(name) {
				mine = name
			}
		}
		ctx, leave, _ := lone.BeginReconcile(t.Context(), mine)
		lone.line.set(func(l *line) { l.cut = true })
		sent := 0
		client := FencedTransport(roundTrip(func(*http.Request) (*http.Response, error) {
			sent++
			return &http.Response{Body: http.NoBody}, nil
		}))
		post := func() error {
			req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost,
				"http://runtime", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			res, err := client.RoundTrip(req)
			if err == nil {
				_ = res.Body.Close()
			}
			return err
		}
		if err := post(); err != nil || sent != 1 {
			t.Fatalf("a valid pass could not write: %v", err)
		}
		time.Sleep(8 * time.Second)
		if err := post(); err == nil || sent != 1 {
			t.Errorf("a pass wrote when its Lease was no longer valid")
		}
		f.checkHolders(7 * time.Second) // the other replica takes over in this time
		if f.alive[1].Holds(mine) != true {
			t.Error("the other one did not take over")
		}
		if address, me := f.alive[1].OtherHolderAddress(mine); address != "" || !me {
			t.Errorf("it says that %q works on the runtime", address)
		}
		leave()
		lone.line.set(func(l *line) { l.cut = false })
		f.checkHolders(30 * time.Second)
		f.awaitAllHeld(time.Second)
		if CheckHeld(ctx) == nil {
			t.Error("an old pass may write again")
		}
		for _, name := range names {
			if address, me := lone.OtherHolderAddress(name); me == (address != "") {
				t.Errorf("the holder of %s is returned as %q, %v", name, address, me)
			}
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestOpen checks that no reconcile starts before Open has returned, even if Open is slow or fails. TestOpen also
// checks that a shard is closed if it was lost before Open has returned.
func TestOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 5)
		defer f.close()
		var mu sync.Mutex
		open, tries := map[int]bool{}, map[int]int{}
		edit := func(o *Options) {
			o.Open = func(ctx context.Context, shard int) error {
				mu.Lock()
				tries[shard]++
				again := tries[shard] == 1
				mu.Unlock()
				if !sleepUnlessDone(ctx, 300*time.Millisecond) || again {
					return fmt.Errorf("shard %d does not open", shard)
				}
				mu.Lock()
				defer mu.Unlock()
				open[shard] = true
				return nil
			}
			o.Opened = func(shard int) {
				mu.Lock()
				defer mu.Unlock()
				if !open[shard] {
					t.Errorf("shard %d was said to be open", shard)
				}
			}
			o.Close = func(shard int) {
				mu.Lock()
				defer mu.Unlock()
				delete(open, shard)
			}
		}
		first := f.start(edit)
		opened := 0
		first.OnOpened(func(int) {
			mu.Lock()
			defer mu.Unlock()
			opened++
		})
		time.Sleep(time.Second)
		if f.countHeld() != 0 {
			t.Error("a shard is held that is not open")
		}
		f.awaitAllHeld(5 * time.Second)
		f.start()
		f.checkHolders(100 * time.Millisecond)
		f.shutDown(0)
		mu.Lock()
		defer mu.Unlock()
		if len(open) > 0 || opened != Count {
			t.Errorf("%d shards were left open, %d were opened", len(open), opened)
		}
	})
}

// TestNilKeeper checks that a nil Keeper counts as holding all shards.
func TestNilKeeper(t *testing.T) {
	var k *Keeper
	ctx, leave, ours := k.BeginReconcile(t.Context(), "any")
	defer leave()
	if !ours || !k.Holds("any") || CheckHeld(ctx) != nil || ctx != t.Context() {
		t.Error("a nil Keeper refuses")
	}
	k.OnOpened(func(int) { t.Error("nothing is opened") })
	if _, err := New(Options{}); err == nil {
		t.Error("a Keeper without Leases was made")
	}
	if _, err := New(Options{Leases: &line{}, Duration: time.Millisecond}); err == nil {
		t.Error("a Keeper with a short Duration was made")
	}
}
