package backchannel

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// notified counts the notifications that a tracker has sent.
type notified struct{ missed, changed int }

// newCountingTracker returns a tracker, and the counter of its notifications.
func newCountingTracker() (*tracker, func() notified) {
	var missed, changed atomic.Int64
	o := Options{Missed: func(string) { missed.Add(1) }, Changed: func(string) { changed.Add(1) }}
	o.setDefaults()
	return newTracker(&o), func() notified { return notified{int(missed.Load()), int(changed.Load())} }
}

// heartbeat records a heartbeat of a runtime.
func (b *tracker) heartbeat(id protocol.Identity, h protocol.Heartbeat) {
	r := b.getOrCreateLockedRecord("kyma-a")
	r.last = time.Now()
	r.mu.Unlock()
	b.recordHeartbeat(r, id, h, 0)
}

func (b *tracker) event(boot string, sequence uint64) {
	r := b.getOrCreateLockedRecord("kyma-a")
	r.mu.Unlock()
	b.recordEvent(r, boot, sequence)
}

func TestRecordHeartbeat(t *testing.T) {
	type beat = protocol.Heartbeat
	type step struct {
		events []uint64 // of boot, before
		boot   string
		beat   *beat // nil is none
		root   string
		want   notified
	}
	one := func(b beat) *beat { b.Version = "1"; return &b }
	cases := map[string]struct {
		reason string
		steps  []step
		boot   string // that the state has at the end
	}{
		"First": {"its number is taken as it is",
			[]step{{boot: "x", beat: one(beat{Sequence: 40}), want: notified{0, 1}}}, "x"},
		"Plain": {"nothing to tell", []step{{boot: "x", beat: one(beat{}), want: notified{0, 1}},
			{boot: "x", beat: one(beat{}), want: notified{0, 1}}}, "x"},
		"FirstLost": {"it says so", []step{{boot: "x", beat: one(beat{EventsLost: true}), want: notified{1, 1}}},
			"x"},
		"EventsFirst": {"what was before the first event is not ours",
			[]step{{events: []uint64{7, 8}, boot: "x", beat: one(beat{Sequence: 8}), want: notified{0, 1}}}, "x"},
		"Gap": {"all was sent, not all was seen",
			[]step{{boot: "x", beat: one(beat{Sequence: 1}), want: notified{0, 1}},
				{events: []uint64{3}, boot: "x", beat: one(beat{Sequence: 3}), want: notified{1, 1}},
				{boot: "x", beat: one(beat{Sequence: 3}), want: notified{1, 1}}}, "x"},
		"StillPending": {"it will come", []step{{boot: "x", beat: one(beat{}), want: notified{0, 1}},
			{boot: "x", beat: one(beat{Sequence: 1, Pending: 1}), want: notified{0, 1}},
			{events: []uint64{1}, boot: "x", beat: one(beat{Sequence: 1}), want: notified{0, 1}}}, "x"},
		"NewLife": {"the old one may have died with events",
			[]step{{boot: "x", beat: one(beat{}), want: notified{0, 1}},
				{boot: "y", beat: one(beat{}), want: notified{1, 1}}}, "y"},
		"NewLifeByEvent": {"missed once", []step{{boot: "x", beat: one(beat{}), want: notified{0, 1}},
			{events: []uint64{1}, boot: "y", want: notified{1, 1}},
			{boot: "y", beat: one(beat{Sequence: 1}), want: notified{1, 1}}}, "y"},
		"TwoAgents": {"they do not take turns", []step{{boot: "x", beat: one(beat{}), want: notified{0, 1}},
			{boot: "y", beat: one(beat{}), want: notified{1, 1}}, {boot: "x", beat: one(beat{}), want: notified{1, 1}},
			{boot: "y", beat: one(beat{}), want: notified{1, 1}}}, "y"},
		"OldLifeGap": {"what the old one sends last counts all the same",
			[]step{{boot: "x", beat: one(beat{}), want: notified{0, 1}},
				{boot: "y", beat: one(beat{}), want: notified{1, 1}},
				{boot: "x", beat: one(beat{Sequence: 2}), want: notified{2, 1}}}, "y"},
		"OldLifeStillSaid": {"the new one has not said anything about itself",
			[]step{{boot: "x", beat: one(beat{}), want: notified{0, 1}},
				{events: []uint64{1}, boot: "y", want: notified{1, 1}},
				{boot: "x", beat: one(beat{}), want: notified{1, 1}}}, "x"},
		"OtherVersion": {"look", []step{{boot: "x", beat: one(beat{}), want: notified{0, 1}},
			{boot: "x", beat: &beat{Version: "2"}, want: notified{0, 2}}}, "x"},
		"OtherWatchlist": {"somebody may have changed it in the runtime", []step{
			{boot: "x", beat: one(beat{Watchlist: "1"}), want: notified{0, 1}},
			{boot: "x", beat: one(beat{Watchlist: "2"}), want: notified{0, 2}}}, "x"},
		"OtherProblem": {"look", []step{{boot: "x", beat: one(beat{}), want: notified{0, 1}},
			{boot: "x", beat: one(beat{Problem: "p"}), want: notified{0, 2}},
			{boot: "x", beat: one(beat{}), want: notified{0, 3}}}, "x"},
		"OtherRoot": {"look", []step{{boot: "x", beat: one(beat{}), root: "1", want: notified{0, 1}},
			{boot: "x", beat: one(beat{}), root: "2", want: notified{0, 2}}}, "x"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b, got := newCountingTracker()
			for i, s := range c.steps {
				for _, n := range s.events {
					b.event(s.boot, n)
				}
				if s.beat != nil {
					s.beat.BootID = s.boot
					b.heartbeat(protocol.Identity{Root: s.root}, *s.beat)
				}
				if diff := cmp.Diff(s.want, got(), cmp.AllowUnexported(notified{})); diff != "" {
					t.Errorf("%s: step %d (-want +got):\n%s", c.reason, i, diff)
				}
			}
			if s, alive := b.state("kyma-a"); !alive || s.Heartbeat.BootID != c.boot {
				t.Errorf("%s: the state is of %q (alive %t), want %q", c.reason, s.Heartbeat.BootID, alive, c.boot)
			}
		})
	}
}

func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, got := newCountingTracker()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go b.watch(ctx)
		expect := func(when string, want notified, alive bool) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, got(), cmp.AllowUnexported(notified{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
			if _, is := b.state("kyma-a"); is != alive {
				t.Errorf("%s: alive is %t", when, is)
			}
		}
		begin := time.Now()
		expect("before anything", notified{}, false)
		for range 10 {
			b.heartbeat(protocol.Identity{}, protocol.Heartbeat{BootID: "x"})
			time.Sleep(30 * time.Second)
		}
		expect("heartbeats", notified{0, 1}, true)
		if s, _ := b.state("kyma-a"); !s.Since.Equal(begin) || s.Last.Sub(begin) != 270*time.Second {
			t.Errorf("since %v, last %v, want %v and 270 s later", s.Since, s.Last, begin)
		}
		time.Sleep(70*time.Second - time.Nanosecond)
		expect("almost silent", notified{0, 1}, true)
		time.Sleep(time.Nanosecond)
		expect("silent", notified{0, 2}, false)
		b.heartbeat(protocol.Identity{}, protocol.Heartbeat{BootID: "x"})
		expect("again", notified{0, 3}, true)
		if s, _ := b.state("kyma-a"); !s.Since.Equal(s.Last) {
			t.Errorf("since %v, want %v", s.Since, s.Last)
		}
		b.heartbeat(protocol.Identity{}, protocol.Heartbeat{BootID: "y"})
		expect("another life", notified{1, 3}, true)
		time.Sleep(100 * time.Second)
		expect("silent", notified{1, 4}, false)
		b.heartbeat(protocol.Identity{}, protocol.Heartbeat{BootID: "x"})
		expect("the old life is the one that boots", notified{2, 5}, true)
		b.forget("kyma-a")
		expect("forgotten", notified{2, 5}, false)
		time.Sleep(time.Hour)
		expect("nothing follows", notified{2, 5}, false)
	})
}

// TestRelease checks a runtime that moves to another replica and returns later. While another replica reconciles the
// runtime, this replica only forwards its requests, and the runtime counts as neither alive nor lost. After the return,
// this replica notices that it has not received the events that the other replica has acknowledged.
func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var missed, changed int
		l, err := New(Options{
			ForwardedAddress: "x", ForwardedFrom: []string{"127.0.0.1/32"},
			Roots:   func() []*x509.Certificate { return nil },
			Lookup:  func(protocol.Identity) (Runtime, error) { return Runtime{}, nil },
			Deliver: func(string, protocol.Event) {},
			Missed:  func(string) { missed++ }, Changed: func(string) { changed++ },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go l.tracker.watch(ctx)
		counted := func() [2]float64 {
			var m [2]dto.Metric
			if err := errors.Join(metrics.AgentsConnected.Write(&m[0]),
				metrics.AgentsDisconnected.Write(&m[1])); err != nil {
				t.Fatal(err)
			}
			return [2]float64{m[0].GetGauge().GetValue(), m[1].GetGauge().GetValue()}
		}
		before := counted()
		request := func() *record { // also a request that is forwarded to another replica is admitted
			r, refused := l.admitRequest("kyma-a", true)
			if refused != nil {
				t.Fatal(refused.message)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.inFlight--
			return r
		}
		beat := func(sequence uint64) {
			l.tracker.recordHeartbeat(request(), protocol.Identity{},
				protocol.Heartbeat{BootID: "x", Sequence: sequence}, 0)
		}
		beat(7)
		if counted()[0] != before[0]+1 || changed != 1 {
			t.Errorf("a heartbeat is not counted: %v, before %v; Changed was called %d times", counted(), before, changed)
		}
		l.Release("kyma-a")
		l.Release("kyma-b") // never seen
		for range 100 {
			time.Sleep(30 * time.Second)
			synctest.Wait()
			request()
		}
		if s, alive := l.State("kyma-a"); alive || !s.Last.IsZero() || counted() != before || changed != 1 {
			t.Errorf("it is reconciled elsewhere: last %v, counted %v, before %v; Changed was called %d times",
				s.Last, counted(), before, changed)
		}
		beat(9)
		if s, alive := l.State("kyma-a"); !alive || s.Last.IsZero() || missed != 1 || changed != 2 {
			t.Errorf("it has returned: last %v; Missed was called %d times, want 1, and Changed %d times, want 2",
				s.Last, missed, changed)
		}
		l.Forget("kyma-a")
		if counted() != before {
			t.Errorf("it is forgotten: counted %v, before %v", counted(), before)
		}
	})
}

// TestLongInterval checks a runtime with a longer heartbeat interval: the runtime counts as lost only after a
// correspondingly longer time.
func TestLongInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, got := newCountingTracker()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go b.watch(ctx)
		for _, pace := range []time.Duration{300 * time.Second, 0, time.Hour} {
			before := got()
			r := b.getOrCreateLockedRecord("kyma-a")
			r.mu.Unlock()
			b.recordHeartbeat(r, protocol.Identity{}, protocol.Heartbeat{BootID: "x"}, pace)
			time.Sleep(b.silence + pace + pace/10 - time.Nanosecond)
			synctest.Wait()
			if _, alive := b.state("kyma-a"); !alive || got().changed != before.changed+1 {
				t.Errorf("notified %v: lost before its time", pace)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if _, alive := b.state("kyma-a"); alive || got().changed != before.changed+2 {
				t.Errorf("notified %v: not lost in time", pace)
			}
		}
	})
}

// TestReportedTexts checks that the texts of a heartbeat, which the status of the Kyma shows, are recorded as one short
// line each.
func TestReportedTexts(t *testing.T) {
	const honest = "v1.24.0-rc.1+20261123.c0ffee0123456789abcdef0123456789abcdef01"
	for version, isKept := range map[string]bool{honest: true, "": true, "1\x1b[2J\u202e\n2\x00": false,
		strings.Repeat("1", 1024): false} {
		b, _ := newCountingTracker()
		b.heartbeat(protocol.Identity{}, protocol.Heartbeat{BootID: "x", Version: version, Problem: version})
		r := b.getOrCreateLockedRecord("kyma-a")
		got := r.state.Heartbeat
		r.mu.Unlock()
		if (got.Version == version) != isKept || len(got.Version) > maxVersionBytes ||
			len(got.Problem) > maxProblemBytes || strings.ContainsAny(got.Version+got.Problem, "\x1b\u202e\n\x00") {
			t.Errorf("version %.80q: recorded %q and problem %q", version, got.Version, got.Problem)
		}
	}
}

// TestNotificationRate checks a runtime whose heartbeats all differ: the rate of notifications about the runtime is
// limited, and the last state is always notified.
func TestNotificationRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, got := newCountingTracker()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go b.watch(ctx)
		for i := range 600 {
			b.heartbeat(protocol.Identity{}, protocol.Heartbeat{BootID: fmt.Sprint(i), Problem: fmt.Sprint(i)})
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if n := got(); n.changed < 5 || n.changed > 9 || n.missed < 5 || n.missed > 9 {
			t.Errorf("notified %+v in a minute, want 5 to 9 of each", n)
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		r, before := b.getOrCreateLockedRecord("kyma-a"), got()
		if r.changed.pending || r.missed.pending || before.changed < 9 || before.changed > 10 ||
			before.missed < 9 || before.missed > 10 {
			t.Errorf("what was pending was not notified: %+v, pending %t and %t", before,
				r.changed.pending, r.missed.pending)
		}
		r.mu.Unlock()
		for range 3 {
			b.heartbeat(protocol.Identity{}, protocol.Heartbeat{BootID: "599", Problem: "599"})
			time.Sleep(30 * time.Second)
		}
		synctest.Wait()
		if after := got(); after != before {
			t.Errorf("what was notified is notified again: %+v, then %+v", before, after)
		}
	})
}

// TestFleet checks that one goroutine detects in time all runtimes whose heartbeats have stopped.
func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := map[string]time.Time{}
		o := Options{Lookup: nil}
		o.setDefaults()
		b := newTracker(&o)
		b.changed = func(kyma string) {
			if _, alive := b.state(kyma); !alive {
				lost[kyma] = time.Now()
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go b.watch(ctx)
		last := map[string]time.Time{}
		for i := range 3000 {
			kyma := fmt.Sprintf("kyma-%d", i*7919%500)
			r := b.getOrCreateLockedRecord(kyma)
			r.mu.Unlock()
			b.recordHeartbeat(r, protocol.Identity{}, protocol.Heartbeat{BootID: "x"}, 0)
			last[kyma] = time.Now()
			time.Sleep(11 * time.Millisecond)
		}
		time.Sleep(101 * time.Second)
		synctest.Wait()
		if len(lost) != 500 {
			t.Fatalf("%d runtimes were found silent, want 500", len(lost))
		}
		for kyma, at := range lost {
			if late := at.Sub(last[kyma]) - b.silence; late != 0 {
				t.Errorf("%s was found silent %v too late", kyma, late)
			}
		}
		time.Sleep(recordRetention)
		synctest.Wait()
		if len(b.records)+len(b.timers) > 0 {
			t.Errorf("%d runtimes and %d timers are kept for ever", len(b.records), len(b.timers))
		}
	})
}

func TestLivesAreBounded(t *testing.T) {
	b, _ := newCountingTracker()
	for i := range 20 {
		b.event(fmt.Sprint(i), 1)
	}
	r := b.getOrCreateLockedRecord("kyma-a")
	defer r.mu.Unlock()
	if len(r.boots) != maxBoots || r.boots[0].boot != "19" {
		t.Errorf("%d boots, first %q, want %d and the newest", len(r.boots), r.boots[0].boot, maxBoots)
	}
}

// TestBucket checks that a bucket immediately admits as many calls as its burst, and after that one call per interval.
func TestBucket(t *testing.T) {
	var b bucket
	now := time.Unix(0, 0)
	take := func() (n int) {
		for {
			ok, wait := b.takeToken(rate{100 * time.Millisecond, 5}, now)
			if !ok {
				if wait <= 0 || wait > 100*time.Millisecond {
					t.Errorf("wait %v", wait)
				}
				return n
			}
			n++
		}
	}
	var got []int
	for _, after := range []time.Duration{0, 0, 99 * time.Millisecond, time.Millisecond,
		300 * time.Millisecond, time.Hour} {
		now = now.Add(after)
		got = append(got, take())
	}
	if want := []int{5, 0, 0, 1, 3, 5}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// BenchmarkRecordHeartbeat measures a heartbeat without changes, without the network.
func BenchmarkRecordHeartbeat(b *testing.B) {
	tracker, _ := newCountingTracker()
	id, h := protocol.Identity{CommonName: "a", Root: "r"}, protocol.Heartbeat{BootID: "x", Version: "1"}
	tracker.heartbeat(id, h)
	b.ReportAllocs()
	for b.Loop() {
		tracker.heartbeat(id, h)
	}
}
