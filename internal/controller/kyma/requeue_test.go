package kyma

import (
	"testing"
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
