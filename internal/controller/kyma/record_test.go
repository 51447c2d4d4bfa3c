package kyma

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// TestTakeRemote checks when a reconcile reuses the Kyma that the last reconcile has read from the runtime: only for a
// short time, and only if no event shows a change of the Kyma.
func TestTakeRemote(t *testing.T) {
	const name = "runtime-a"
	pool, err := runtimes.New(t.Context(), runtimes.Options{Namespace: "kcp-system", Watch: true,
		Cache: unread{}, Live: unread{}, PollIntervals: runtimes.PollIntervals{Watched: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	unwatched, err := runtimes.New(t.Context(), runtimes.Options{Namespace: "kcp-system",
		Cache: unread{}, Live: unread{}, PollIntervals: runtimes.PollIntervals{Unwatched: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	remote := func(change func(*v1beta2.Kyma)) *v1beta2.Kyma {
		k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "u", Generation: 1},
			Spec: v1beta2.KymaSpec{Modules: []v1beta2.Module{{Name: "sample"}}}}
		if change != nil {
			change(k)
		}
		return k
	}
	event := func(k *v1beta2.Kyma) runtimes.Event {
		return runtimes.Event{Object: &metav1.PartialObjectMetadata{ObjectMeta: k.ObjectMeta}}
	}
	cases := map[string]struct {
		reason string
		state  v1beta2.State
		remote *v1beta2.Kyma
		during func(*Reconciler) // before the first reconcile ends
		after  func(*Reconciler)
		later  time.Duration
		want   bool
		since  time.Duration // the time for which the Kyma is in this state
	}{
		"Soon":  {"nothing has happened", v1beta2.StateProcessing, remote(nil), nil, nil, time.Second, true, 0},
		"Later": {"it may have changed", v1beta2.StateProcessing, remote(nil), nil, nil, remoteReusePeriod, false, 0},
		"Ready": {"the next reconcile comes later", v1beta2.StateReady, remote(nil), nil, nil, time.Second, false, 0},
		"Slow": {"memory has only Kymas that change now", v1beta2.StateProcessing, remote(nil), nil, nil, time.Second, false,
			plan.SlowModuleDelay},
		"Unwatched": {"no event with metadata would show a change", v1beta2.StateProcessing, remote(nil), nil, nil,
			time.Second, false, 0},
		"Nothing": {"a removal of all modules is confirmed by a second read", v1beta2.StateProcessing,
			remote(func(k *v1beta2.Kyma) { k.Spec.Modules = nil }), nil, nil, time.Second, false, 0},
		"OwnWrite": {"the event of an own write", v1beta2.StateProcessing, remote(nil), nil,
			func(r *Reconciler) { r.dropCachedRemoteIfChanged(name, event(remote(nil))) }, time.Second, true, 0},
		"Edited": {"somebody has edited it", v1beta2.StateProcessing, remote(nil), nil, func(r *Reconciler) {
			r.dropCachedRemoteIfChanged(name, event(remote(func(k *v1beta2.Kyma) { k.Generation++ })))
		}, time.Second, false, 0},
		"EditedMeanwhile": {"somebody has edited it during the reconcile", v1beta2.StateProcessing, remote(nil),
			func(r *Reconciler) {
				r.dropCachedRemoteIfChanged(name, event(remote(func(k *v1beta2.Kyma) { k.Generation++ })))
			}, nil, time.Second, false, 0},
		"Missed": {"an event may be lost", v1beta2.StateProcessing, remote(nil), nil,
			func(r *Reconciler) { r.dropCachedRemoteIfChanged(name, runtimes.Event{Missed: true}) }, time.Second,
			false, 0},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			of := pool
			if title == "Unwatched" {
				of = unwatched
			}
			r := testReconciler(t, Options{Runtimes: of})
			now := time.Now()
			runAt := func(at time.Time) *run {
				k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: name}}
				k.Status.State = c.state
				k.Status.LastOperation.LastUpdateTime = metav1.NewTime(now.Add(-c.since))
				return &run{Reconciler: r, kyma: k, now: at}
			}
			first := runAt(now)
			if first.takeCachedRemote(t.Context()) != nil {
				t.Fatal("nothing was read before")
			}
			first.remote = c.remote
			first.noteRemoteFingerprint()
			if c.during != nil {
				c.during(r)
			}
			first.cacheRemoteWhileProcessing()
			if c.after != nil {
				c.after(r)
			}
			if got := runAt(now.Add(c.later)).takeCachedRemote(t.Context()); (got != nil) != c.want {
				t.Errorf("%s: got %v", c.reason, got)
			}
		})
	}
}
