package kyma

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

func TestClockHasJumped(t *testing.T) {
	began := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	type look struct {
		apart time.Duration // by how much the wall is ahead
		want  bool
	}
	cases := map[string]struct {
		reason string
		looks  []look
	}{
		"Never":    {"clocks that agree", []look{{0, false}, {0, false}}},
		"Slow":     {"a clock that is set right little by little", []look{{300 * time.Millisecond, false}, {600 * time.Millisecond, false}, {900 * time.Millisecond, false}}},
		"Drift":    {"in the end that is more than nothing", []look{{900 * time.Millisecond, false}, {1100 * time.Millisecond, true}, {1500 * time.Millisecond, false}, {2200 * time.Millisecond, true}}},
		"Forwards": {"told once", []look{{0, false}, {time.Hour, true}, {time.Hour, false}}},
		"Back":     {"backwards too", []look{{-time.Hour, true}, {-time.Hour, false}}},
		"Mended":   {"and that it was put right", []look{{-time.Hour, true}, {0, true}, {0, false}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := clock{began: began}
			for i, l := range c.looks {
				running := time.Duration(i+1) * clockPeriod
				if got := k.hasJumped(began.Add(running+l.apart), running); got != l.want {
					t.Errorf("%s: look %d says %t, want %t", c.reason, i, got, l.want)
				}
			}
		})
	}
}

// TestClockWakes sets the clock and looks when that is noticed.
func TestClockWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var apart, jumps atomic.Int64
		go watchClock(ctx, func() time.Time { return time.Now().Round(0).Add(time.Duration(apart.Load())) }, func() { jumps.Add(1) })
		time.Sleep(10*time.Hour + time.Second)
		if n := jumps.Load(); n != 0 {
			t.Errorf("woke %d times in ten hours, want never", n)
		}
		apart.Store(int64(time.Hour))
		time.Sleep(time.Minute)
		if n := jumps.Load(); n != 1 {
			t.Errorf("woke %d times in the minute after a jump, want once", n)
		}
		apart.Store(int64(-time.Hour))
		time.Sleep(time.Hour)
		if n := jumps.Load(); n != 2 {
			t.Errorf("woke %d times after a second jump, want twice", n)
		}
		cancel()
	})
}

// TestClockWakesThoseThatWait: a jump concerns nobody else, and asks nobody but the cache.
func TestClockWakesThoseThatWait(t *testing.T) {
	kymas := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{})
	for _, i := range indexes {
		if i.name == waitingIndex {
			if err := kymas.AddIndexers(toolscache.Indexers{waitingIndex: func(o any) ([]string, error) { return i.keys(o.(*v1beta2.Kyma)), nil }}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, m := range map[string]v1beta2.ModuleStatus{
		"ready":   {Name: "keda"},
		"waits":   {Name: "keda", Reason: v1beta2.ReasonWaitingForWindow, Maintenance: true},
		"unknown": {Name: "keda", Reason: v1beta2.ReasonWindowUnknown},
	} {
		k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: name}, Status: v1beta2.KymaStatus{Modules: []v1beta2.ModuleStatus{m}}}
		if err := kymas.Add(k); err != nil {
			t.Fatal(err)
		}
	}
	r := &Reconciler{Options: Options{Client: indexed{kymas: kymas}, Namespace: "kcp-system"}}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	r.wakeIndexed(t.Context(), q, waitingIndex, v1beta2.ValueTrue)
	if q.Len() != 2 {
		t.Errorf("woke %d, want the two that wait", q.Len())
	}
}

// TestLookAgainAtAnyTime: however the clock was set between two passes, the next one is neither at once for ever nor never.
func TestLookAgainAtAnyTime(t *testing.T) {
	now := time.Now()
	cases := map[string]struct {
		reason      string
		until       time.Time // when the window opens
		busy        time.Time // since when a Manifest is Processing; zero: it is not
		least, most time.Duration
	}{
		"Soon":        {"when the window opens", now.Add(10 * time.Minute), time.Time{}, 9 * time.Minute, 10 * time.Minute},
		"Far":         {"but not later than usual", now.Add(1000 * time.Hour), time.Time{}, 50 * time.Minute, 70 * time.Minute},
		"Over":        {"it opened between looking and asking", now.Add(-time.Minute), time.Time{}, time.Millisecond, time.Millisecond},
		"FutureStart": {"the clock was put back while a module was busy", time.Time{}, now.Add(1000 * time.Hour), 50 * time.Minute, 70 * time.Minute},
		"LongStart":   {"or put forwards", time.Time{}, now.Add(-1000 * time.Hour), 50 * time.Minute, 70 * time.Minute},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := module{decision: channel.Decision{Blocker: &channel.Blocker{Until: c.until}}}
			if !c.busy.IsZero() {
				m.manifest = &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(c.busy)}, Status: v1beta2.ManifestStatus{State: v1beta2.StateProcessing}}
			}
			pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{}, PollIntervals: runtimes.PollIntervals{Unwatched: time.Hour}})
			if err != nil {
				t.Fatal(err)
			}
			n := &run{Reconciler: &Reconciler{Options: Options{Runtimes: pool}}, kyma: &v1beta2.Kyma{}, now: now, modules: []module{m}}
			kyma := &v1beta2.Kyma{}
			result, err := loop.Run(t.Context(), loop.Options{Object: kyma, Controller: "kyma"}, loop.Step{Name: "watch", Do: n.requeue})
			if got := result.RequeueAfter; err != nil || got < c.least || got > c.most {
				t.Errorf("%s: comes back after %s, %v, want between %s and %s", c.reason, got, err, c.least, c.most)
			}
		})
	}
}
