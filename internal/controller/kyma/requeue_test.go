package kyma

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/access"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// TestEnqueueWaiting checks that only Kymas that wait for a window are enqueued, and that only the cache is read. Two
// changes that the receiver of PolicyOrClockChanges has not read yet are merged into one event.
func TestEnqueueWaiting(t *testing.T) {
	kymas := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{})
	for _, i := range cacheIndexes() {
		if i.Name == waitingIndex {
			if err := kymas.AddIndexers(toolscache.Indexers{waitingIndex: func(o any) (
				[]string, error) {
				return i.Keys(o.(*v1beta2.Kyma)), nil
			}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, m := range map[string]v1beta2.ModuleStatus{
		"ready":   {Name: "keda"},
		"waits":   {Name: "keda", Reason: v1beta2.ReasonWaitingForWindow, Maintenance: true},
		"unknown": {Name: "keda", Reason: v1beta2.ReasonWindowUnknown},
	} {
		k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: name},
			Status: v1beta2.KymaStatus{Modules: []v1beta2.ModuleStatus{m}}}
		if err := kymas.Add(k); err != nil {
			t.Fatal(err)
		}
	}
	r := testReconciler(t, Options{Client: indexed{kymas: kymas}, Namespace: "kcp-system", Concurrency: 10})
	q := queueOf(t, r)
	r.propagatePolicyOrClockChange(t.Context())
	if len(q.all()) != 2 {
		t.Errorf("%v are enqueued, want the two that wait", q.all())
	}
	r.propagatePolicyOrClockChange(t.Context())
	if n := len(r.PolicyOrClockChanges()); n != 1 {
		t.Errorf("PolicyOrClockChanges has %d events, want 1", n)
	}
}

// TestRequeueAfterClockChanges checks the next reconcile after a change of the wall clock: it is neither repeated
// without a delay nor missing.
func TestRequeueAfterClockChanges(t *testing.T) {
	cases := map[string]struct {
		reason string
		// The times are differences to the present time, or 0 for no time.
		until       time.Duration // when the window opens
		busy        time.Duration // since when a Manifest is Processing; 0 if it is not Processing
		warns       time.Duration // when the end of the credential is announced
		least, most time.Duration
	}{
		"Credential": {
			reason: "when the end of the credential is announced",
			warns:  10 * time.Minute,
			least:  9 * time.Minute,
			most:   11 * time.Minute,
		},
		"Soon": {
			reason: "when the window opens",
			until:  10 * time.Minute,
			least:  10 * time.Minute,
			most:   10 * time.Minute,
		},
		"Far": {
			reason: "but not later than the poll interval",
			until:  1000 * time.Hour,
			least:  50 * time.Minute,
			most:   70 * time.Minute,
		},
		"Over": {
			reason: "the window opened meanwhile",
			until:  -time.Minute,
			least:  time.Millisecond,
			most:   time.Millisecond,
		},
		"FutureStart": {
			reason: "the clock was put back while a module was busy",
			busy:   1000 * time.Hour,
			least:  50 * time.Minute,
			most:   70 * time.Minute,
		},
		"LongStart": {
			reason: "or forward",
			busy:   -1000 * time.Hour,
			least:  50 * time.Minute,
			most:   70 * time.Minute,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := time.Now()
				m := plan.Module{Decision: channel.Decision{Blocker: &channel.Blocker{}}}
				if c.until != 0 {
					m.Decision.Blocker.Until = now.Add(c.until)
				}
				if c.busy != 0 {
					m.Manifest = &v1beta2.Manifest{
						ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(c.busy))},
						Status:     v1beta2.ManifestStatus{State: v1beta2.StateProcessing}}
				}
				pool, err := runtimes.New(t.Context(),
					runtimes.Options{Self: &rest.Config{}, PollIntervals: runtimes.PollIntervals{Unwatched: time.Hour}})
				if err != nil {
					t.Fatal(err)
				}
				n := &run{Reconciler: &Reconciler{Options: Options{Runtimes: pool}}, kyma: &v1beta2.Kyma{},
					now: now, modules: []plan.Module{m}}
				if c.warns != 0 {
					warns := now.Add(c.warns)
					n.found.credential = &access.Finding{Lifetime: access.Lifetime{Begins: warns.Add(-9 * time.Hour),
						Ends: warns.Add(time.Hour)}}
				}
				kyma := &v1beta2.Kyma{}
				result, err := loop.Run(t.Context(), loop.Options{Object: kyma, Controller: "kyma"},
					loop.Step{Name: "requeue", Do: n.requeue})
				if got := result.RequeueAfter; err != nil || got < c.least || got > c.most {
					t.Errorf("%s: is requeued after %s, %v, want between %s and %s", c.reason, got, err, c.least,
						c.most)
				}
			})
		})
	}
}
