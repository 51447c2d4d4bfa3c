package outbox

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// sink is a listener in the test process that records deliveries.
type sink struct {
	*Queue
	answer func(manager string, e protocol.Event) Result // nil accepts all events

	mu       sync.Mutex // guards what follows
	attempts int
	got      []sunk
	start    time.Time
	stop     func() // ends the queue and waits until it has ended
}

type sunk struct {
	manager string
	event   protocol.Event
	at      time.Duration // since the start
}

// newSink returns a sink, which runs a Queue and records the events that the Queue delivers. The Queue runs until the
// test ends. newSink must be called inside synctest.Test, so that the Queue uses the fake clock of the test.
func newSink(t *testing.T, limit int) *sink {
	s := &sink{Queue: New("boot", limit, NewMetrics()), start: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, s.deliver)
	}()
	s.stop = func() { cancel(); <-ended }
	t.Cleanup(s.stop)
	return s
}

func (s *sink) deliver(_ context.Context, manager string, e protocol.Event) Result {
	s.mu.Lock()
	s.attempts++
	answer := s.answer
	s.mu.Unlock()
	if answer != nil {
		if o := answer(manager, e); !o.Delivered {
			return o
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, sunk{manager, e, time.Since(s.start)})
	return Result{Delivered: true}
}

// set changes the answer of the sink, and removes the recorded deliveries.
func (s *sink) set(answer func(string, protocol.Event) Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.attempts, s.got = answer, 0, nil
}

func (s *sink) all() []sunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func (s *sink) tried() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts
}

// about is a helper that returns an event about an object with the given name. The parameter "state" is the
// resourceVersion of the object in the event.
func about(name, state string) Change {
	return Change{Event: protocol.Event{
		Watched: protocol.Name{Namespace: "ns", Name: name}, WatchedGVK: metav1.GroupVersionKind{Version: "v1",
			Kind: "Thing"}, Resource: "things",
		Object: &metav1.ObjectMeta{ResourceVersion: state},
	}}
}

func lost(string, protocol.Event) Result { return Result{} }

func TestQueueCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 100)
		for n := range 500 { // five seconds
			s.Add("m", about("a", fmt.Sprint(n)))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		got := s.all()
		if len(got) < 10 || len(got) > 11 {
			t.Errorf("500 changes in 5 s were delivered %d times", len(got))
		}
		if got[0].at != 0 {
			t.Errorf("the first was delivered after %v", got[0].at)
		}
		for n := range got {
			if n > 0 && got[n].at-got[n-1].at < minEventInterval {
				t.Errorf("delivered at %v and %v", got[n-1].at, got[n].at)
			}
			if got[n].event.Sequence != uint64(n+1) || got[n].event.BootID != "boot" {
				t.Errorf("number %d of %q, want %d", got[n].event.Sequence, got[n].event.BootID, n+1)
			}
		}
		if last := got[len(got)-1].event.Object.ResourceVersion; last != "499" {
			t.Errorf("the last delivered state is %s", last)
		}
		if sequence, pending, lost := s.State("m"); sequence != uint64(len(got)) || pending != 0 || lost != 0 {
			t.Errorf("state: %d %d %d", sequence, pending, lost)
		}
	})
}

// TestQueueNewerWhileSending adds an event while an older event about the same object is being sent. The newer event
// must be delivered after the older one, with its own sequence number.
func TestQueueNewerWhileSending(t *testing.T) {
	for _, delivered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newSink(t, 100)
			s.set(func(_ string, e protocol.Event) Result {
				if e.Object.ResourceVersion == "1" {
					time.Sleep(time.Second)
					return Result{Delivered: delivered}
				}
				return Result{Delivered: true}
			})
			s.Add("m", about("a", "1"))
			time.Sleep(100 * time.Millisecond)
			s.Add("m", about("a", "2"))
			s.Add("m", about("a", "3"))
			if _, pending, _ := s.State("m"); pending != 2 {
				t.Errorf("pending is %d, want 2", pending)
			}
			time.Sleep(5 * time.Second)
			var got []string
			for _, g := range s.all() {
				got = append(got, fmt.Sprintf("%d:%s", g.event.Sequence, g.event.Object.ResourceVersion))
			}
			want := []string{"1:3"} // event 1 was not delivered: the newest state is sent with its number
			if delivered {
				want = []string{"1:1", "2:3"}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestQueueKeepsUnknownMetadata adds an event without metadata, and then an event with metadata about the same object.
// As long as the first one is not delivered, the event must have no metadata: the metadata may not concern the receiver
// of the first event.
func TestQueueKeepsUnknownMetadata(t *testing.T) {
	without := about("a", "1")
	without.Event.Object = nil
	for name, first := range map[string][]Change{ // before the event with metadata
		"Waiting":      {without},
		"WhileSending": {about("a", "0"), without},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSink(t, 100)
				s.set(func(string, protocol.Event) Result { time.Sleep(time.Second); return Result{} })
				for _, c := range first {
					s.Add("m", c)
					synctest.Wait() // the first event is being sent
				}
				if name == "Waiting" {
					time.Sleep(time.Second + time.Millisecond) // it waits for another attempt
				}
				s.Add("m", about("a", "2"))
				time.Sleep(time.Second)
				s.set(nil)
				time.Sleep(time.Minute)
				if got := s.all(); len(got) != 1 || got[0].event.Object != nil {
					t.Errorf("delivered was %+v, want one event without metadata", got)
				}
				s.set(nil)
				s.Add("m", about("a", "3"))
				time.Sleep(time.Minute)
				if got := s.all(); len(got) != 1 || got[0].event.Object == nil {
					t.Errorf("delivered was %+v, want one event with metadata", got)
				}
			})
		})
	}
}

// TestQueueOutdatedObjects tests an event about the start of a watch. The event contains a list of objects and is not
// delivered yet. When one of the objects in the list changes, the list is outdated, so the queue must remove the list
// from the event.
func TestQueueOutdatedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 100)
		s.set(lost)
		e := wholeResourceEvent(keyOf(about("x", "1").Event).wholeResourceKey())
		e.ObjectsComplete, e.Objects = true, []metav1.ObjectMeta{{Name: "x", ResourceVersion: "1"}}
		s.Add("m", Change{Event: e})
		s.Add("m", about("filler", "1")) // that fails, too
		synctest.Wait()
		s.Add("m", about("x", "2"))
		s.set(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		whole := 0
		for _, got := range s.all() {
			if got.event.WatchStarted {
				whole++
				if got.event.ObjectsComplete || len(got.event.Objects) > 0 {
					t.Error("x was delivered with the state before its change")
				}
			}
		}
		if whole != 1 {
			t.Errorf("delivered the start of the watch %d times, want once", whole)
		}
	})
}

// TestQueueOutage checks that no event is lost if there is no listener for ten minutes, that this costs few attempts,
// and that all events are delivered soon after.
func TestQueueOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 10_000)
		s.set(lost)
		for n := range 300 {
			s.Add("m", about(fmt.Sprint(n), "old"))
		}
		time.Sleep(10 * time.Minute)
		for n := range 300 {
			s.Add("m", about(fmt.Sprint(n), "new"))
		}
		if tried := s.tried(); tried < 40 || tried > 120 {
			t.Errorf("%d attempts in 10 min", tried)
		}
		if _, pending, lost := s.State("m"); pending != 300 || lost != 0 {
			t.Errorf("pending %d, lost %d", pending, lost)
		}
		s.set(nil)
		time.Sleep(maxRetryDelay + time.Second)
		got := s.all()
		numbers := map[uint64]bool{}
		for _, g := range got {
			numbers[g.event.Sequence] = true
			if g.event.Object == nil || g.event.Object.ResourceVersion != "new" {
				t.Fatalf("delivered %+v", g.event)
			}
		}
		if len(got) != 300 || len(numbers) != 300 {
			t.Errorf("delivered %d events with %d sequence numbers", len(got), len(numbers))
		}
		if spread := got[299].at - got[0].at; spread > time.Second {
			t.Errorf("the rest took %v after the first", spread)
		}
	})
}

// TestQueueHeartbeatEndsPause checks that a delivered heartbeat ends the back-off of events.
func TestQueueHeartbeatEndsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 100)
		s.set(lost)
		s.Add("m", about("a", "1"))
		time.Sleep(10 * time.Minute)
		s.set(nil)
		s.HeartbeatDelivered("m", 0)
		time.Sleep(time.Millisecond)
		if got := s.all(); len(got) != 1 {
			t.Errorf("delivered %d", len(got))
		}
	})
}

// TestQueuePoison checks an event whose delivery always fails: it does not delay other events, and it is retried
// forever.
func TestQueuePoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 100)
		var poisoned atomic.Int64
		s.set(func(_ string, e protocol.Event) Result {
			if e.Watched.Name == "poison" {
				poisoned.Add(1)
				return Result{}
			}
			return Result{Delivered: true}
		})
		s.Add("m", about("poison", "1"))
		for n := range 600 {
			s.Add("m", about(fmt.Sprint(n), "1"))
			time.Sleep(100 * time.Millisecond)
		}
		if got := s.all(); len(got) < 595 {
			t.Errorf("%d of 600 others were delivered", len(got))
		}
		if n := poisoned.Load(); n < 5 || n > 20 {
			t.Errorf("%d attempts in a minute", n)
		}
	})
}

// TestQueueRefused checks that a refused event is not sent again, and that it counts as lost until a heartbeat has
// reported the loss.
func TestQueueRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 100)
		s.set(func(string, protocol.Event) Result { return Result{Refused: true} })
		s.Add("m", about("a", "1"))
		time.Sleep(time.Minute)
		if tried := s.tried(); tried != 1 {
			t.Errorf("%d attempts", tried)
		}
		sequence, pending, lost := s.State("m")
		if sequence != 1 || pending != 0 || lost != 1 {
			t.Errorf("state: %d %d %d", sequence, pending, lost)
		}
		s.HeartbeatDelivered("m", lost)
		if _, _, lost := s.State("m"); lost != 0 {
			t.Errorf("lost is %d after it was reported", lost)
		}
	})
}

// TestQueueThrottled checks a listener that limits the rate of requests: it gets all events, at that rate.
func TestQueueThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 10_000)
		var mu sync.Mutex
		tokens, last := 100.0, time.Now()
		s.set(func(string, protocol.Event) Result {
			mu.Lock()
			defer mu.Unlock()
			tokens, last = min(100, tokens+time.Since(last).Seconds()*100), time.Now()
			if tokens < 1 {
				return Result{RetryAfter: time.Second, Throttled: true}
			}
			tokens--
			return Result{Delivered: true}
		})
		for n := range 800 {
			s.Add("m", about(fmt.Sprint(n), "1"))
		}
		time.Sleep(20 * time.Second)
		if got := s.all(); len(got) != 800 {
			t.Errorf("delivered %d of 800", len(got))
		}
	})
}

// TestQueueOverflow checks that the queue, when it gets too many events about single objects, replaces them by events
// about a whole resource (all objects of a kind), so that its memory stays limited.
func TestQueueOverflow(t *testing.T) {
	cases := map[string]struct {
		reason         string
		limit, objects int
		// others is the number of objects of a kind "other". The test first adds these objects and makes their delivery
		// fail, so that the lane is paused while the test adds the objects counted by the field objects.
		others            int
		pending           int // at most
		began, individual int // delivered in the end
	}{
		"Fits": {
			reason:     "nothing is dropped without need",
			limit:      10_000,
			objects:    900,
			others:     1,
			pending:    901,
			individual: 901,
		},
		"Backlog": {
			reason:     "one manager has a limit of its own",
			limit:      10_000,
			objects:    5000,
			others:     1,
			pending:    maxLaneEntries,
			began:      1,
			individual: 1,
		},
		"All": {
			reason:     "and all together",
			limit:      100,
			objects:    1000,
			others:     1,
			pending:    100,
			began:      1,
			individual: 1,
		},
		"TwoKinds": {
			reason:     "the larger one makes room",
			limit:      100,
			objects:    150,
			others:     2,
			pending:    100,
			began:      1,
			individual: 2,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSink(t, c.limit)
				s.set(lost)
				for n := range c.others {
					other := about(fmt.Sprint(n), "1")
					other.Event.Resource, other.Event.WatchedGVK.Kind = "others", "Other"
					s.Add("m", other)
				}
				time.Sleep(time.Minute)
				for n := range c.objects {
					s.Add("m", about(fmt.Sprint(n), "1"))
				}
				if _, pending, lost := s.State("m"); pending > c.pending || lost > 0 {
					t.Errorf("%s: pending %d, lost %d", c.reason, pending, lost)
				}
				s.set(nil)
				time.Sleep(time.Minute)
				began, individual := 0, 0
				for _, g := range s.all() {
					if g.event.WatchStarted {
						began++
					} else {
						individual++
					}
				}
				if began != c.began || individual != c.individual {
					t.Errorf("%s: delivered %d events about resources and %d about objects",
						c.reason, began, individual)
				}
			})
		})
	}
}

// TestQueueTooManyManagers checks that a Queue has at most maxLanes lanes. Without the limit, requests to the webhook
// could fill the memory, because the webhook takes the name of the manager from the path of a request.
func TestQueueTooManyManagers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 10_000)
		for n := range 10 * maxLanes {
			s.Add(fmt.Sprint("m", n), about("a", "1"))
		}
		time.Sleep(time.Second)
		if got := len(s.all()); got != maxLanes {
			t.Errorf("delivered to %d managers", got)
		}
	})
}

// TestQueueLost checks that an event is lost and counted if the queue has no room to replace events about single
// objects by one event about their resource.
func TestQueueLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 3)
		s.set(lost)
		for n := range 5 {
			c := about("a", "1")
			c.Event.Resource = fmt.Sprint("resource", n)
			s.Add("m", c)
		}
		if _, pending, lost := s.State("m"); pending != 3 || lost != 2 {
			t.Errorf("pending %d, lost %d", pending, lost)
		}
	})
}

// TestQueueUnknownManager checks how long the queue keeps events for a manager that the listener does not know.
func TestQueueUnknownManager(t *testing.T) {
	watches := func(managers ...string) protocol.Watchlist {
		list := protocol.Watchlist{}
		for _, m := range managers {
			list.Watches = append(list.Watches, protocol.Watch{Manager: m, Version: "v1", Resource: "things"})
		}
		return list
	}
	cases := map[string]struct {
		reason  string
		manager string
		lists   []protocol.Watchlist
		wait    time.Duration
		comes   bool // the listener knows the manager for a moment in between
		keeps   bool
	}{
		"Removed": {reason: "its Watcher was deleted", manager: "gone",
			lists: []protocol.Watchlist{watches("gone", "m"), watches("m")}, wait: time.Hour},
		"Webhook": {reason: "it was never listed, and is gone", manager: "hook", wait: time.Hour},
		"New":     {reason: "it may be known soon", manager: "hook", wait: 9 * time.Minute, keeps: true},
		"Listed": {reason: "its Watcher exists", manager: "m",
			lists: []protocol.Watchlist{watches("m")}, wait: time.Hour, keeps: true},
		"Ours": {reason: "it always exists", manager: protocol.ManagerName, wait: time.Hour, keeps: true},
		"Flaps": {reason: "there was another answer in between", manager: "hook", wait: 18 * time.Minute, comes: true,
			keeps: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSink(t, 100)
				unknown := func(string, protocol.Event) Result { return Result{UnknownManager: true} }
				s.set(unknown)
				for _, list := range c.lists {
					s.SetWatchlist(list)
				}
				s.Add(c.manager, about("a", "1"))
				if c.comes {
					time.Sleep(c.wait / 2)
					s.set(lost)
					time.Sleep(time.Minute)
					s.set(unknown)
				}
				time.Sleep(c.wait / 2)
				if !c.comes {
					time.Sleep(c.wait / 2)
				}
				synctest.Wait()
				if s.Size() != 0 != c.keeps || s.HasUndeliveredOrRecent() != c.keeps {
					t.Errorf("%s: %v events are pending, undelivered or recent: %t", c.reason, s.Size(),
						s.HasUndeliveredOrRecent())
				}
				s.set(nil)
				s.Add(c.manager, about("b", "1"))
				time.Sleep(time.Minute)
				if got := s.all(); len(got) == 0 || got[len(got)-1].event.Sequence != 2 {
					t.Errorf("%s: later delivered was %+v, want the event with the number 2", c.reason, got)
				}
			})
		})
	}
}

// TestQueueRedelivers checks that a new listener process gets the deliveries of the last minute once, with the same
// sequence numbers.
func TestQueueRedelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 100)
		s.RedeliverIfNewListener("one")
		s.Add("m", about("old", "1"))
		time.Sleep(45 * time.Second)
		deleted := about("gone", "1")
		deleted.Event.Deleted = true
		s.Add("m", deleted)
		s.Add("other", Change{Event: wholeResourceEvent(
			key{kind: metav1.GroupVersionKind{Version: "v1", Kind: "Thing"}, resource: "things"})})
		time.Sleep(30 * time.Second)
		before := s.all()
		s.set(nil)
		s.RedeliverIfNewListener("one")
		s.RedeliverIfNewListener("")
		time.Sleep(time.Second)
		if got := s.all(); len(got) != 0 {
			t.Errorf("no new listener answered, but delivered was %+v", got)
		}
		s.RedeliverIfNewListener("two")
		time.Sleep(time.Second)
		s.RedeliverIfNewListener("one")
		s.RedeliverIfNewListener("two")
		time.Sleep(10 * time.Second)
		got := s.all()
		if len(got) != 2 {
			t.Fatalf("delivered again was %+v", got)
		}
		for _, g := range got {
			at := slices.IndexFunc(before, func(b sunk) bool {
				return b.manager == g.manager &&
					b.event.Watched == g.event.Watched
			})
			want := before[at].event
			want.Object = nil
			if diff := cmp.Diff(want, g.event); diff != "" {
				t.Error(diff)
			}
		}
	})
}

// TestQueueRedeliversAfterOutage checks that events that were delivered before an outage are delivered again after the
// outage, even after a long one.
func TestQueueRedeliversAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 100)
		s.RedeliverIfNewListener("one")
		s.Add("m", about("long ago", "1"))
		time.Sleep(2 * time.Minute)
		s.RedeliverIfNewListener("one")
		if s.HasUndeliveredOrRecent() {
			t.Error("a delivery two minutes before an answer is still remembered")
		}
		s.Add("m", about("swallowed", "1"))
		time.Sleep(10 * time.Minute)
		s.set(nil)
		s.RedeliverIfNewListener("two")
		time.Sleep(time.Second)
		if got := s.all(); len(got) != 1 || got[0].event.Watched.Name != "swallowed" || !s.HasUndeliveredOrRecent() {
			t.Errorf("delivered again was %+v", got)
		}
	})
}

// TestQueueRedeliversResource tests what the queue delivers again to a new process of the listener if the queue has
// removed records of delivered events early to save memory. The queue cannot repeat an event whose record was removed,
// so it must deliver one event about the whole resource instead.
func TestQueueRedeliversResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 50)
		s.RedeliverIfNewListener("one")
		for n := range 80 {
			s.Add("m", about(fmt.Sprint(n), "1"))
			time.Sleep(10 * time.Millisecond)
		}
		s.set(nil)
		s.RedeliverIfNewListener("two")
		time.Sleep(time.Second)
		began := 0
		for _, g := range s.all() {
			if g.event.WatchStarted {
				began++
			}
		}
		if began != 1 {
			t.Errorf("the event about the resource was delivered %d times, with %d others", began, len(s.all()))
		}
	})
}

// TestQueueDelay checks that the queue sends an event after the Delay in the Change, and once more after RepeatAfter.
func TestQueueDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 100)
		c := about("a", "1")
		const delay, repeat = 200 * time.Millisecond, 3 * time.Second // those of the webhook
		c.Delay, c.RepeatAfter = delay, repeat
		s.Add("m", c)
		time.Sleep(time.Minute)
		var at []time.Duration
		for _, g := range s.all() {
			at = append(at, g.at)
		}
		if diff := cmp.Diff([]time.Duration{delay, delay + repeat}, at); diff != "" {
			t.Error(diff)
		}
		s.set(nil)
		began := time.Since(s.start)
		s.Add("m", c)
		time.Sleep(delay + 300*time.Millisecond)
		s.Add("m", c) // while its repetition waits: it is delivered sooner, and repeated again
		time.Sleep(time.Minute)
		at = nil
		for _, g := range s.all() {
			at = append(at, g.at-began)
		}
		if diff := cmp.Diff([]time.Duration{200 * time.Millisecond, 700 * time.Millisecond, 3700 * time.Millisecond},
			at); diff != "" {
			t.Error(diff)
		}
	})
}

// TestQueueLanes checks that a manager that does not answer does not delay the events for another manager.
func TestQueueLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 10_000)
		s.set(func(manager string, _ protocol.Event) Result {
			if manager == "slow" {
				time.Sleep(postTimeout)
				return Result{}
			}
			return Result{Delivered: true}
		})
		for n := range 100 {
			s.Add("slow", about(fmt.Sprint(n), "1"))
		}
		time.Sleep(time.Millisecond)
		s.Add("quick", about("a", "1"))
		time.Sleep(time.Millisecond)
		if got := s.all(); len(got) != 1 {
			t.Errorf("delivered %d", len(got))
		}
		time.Sleep(time.Minute)
	})
}

// TestQueueEnd checks that pending events are sent for a limited time when the queue ends.
func TestQueueEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 100)
		c := about("a", "1")
		c.Delay = time.Second
		s.Add("m", c)
		synctest.Wait()
		s.stop()
		if got := s.all(); len(got) != 1 {
			t.Errorf("delivered %d", len(got))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newSink(t, 100)
		s.set(lost)
		s.Add("m", about("a", "1"))
		time.Sleep(time.Minute)
		begin := time.Now()
		s.stop()
		if took := time.Since(begin); took > drainTimeout {
			t.Errorf("it took %v", took)
		}
	})
}
