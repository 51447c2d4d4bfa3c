package kyma

import (
	"testing"
	"testing/synctest"
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
	listed := func(all ...*v1beta2.Kyma) runtimes.Event {
		e := runtimes.Event{Listed: true}
		for _, k := range all {
			e.Objects = append(e.Objects, metav1.PartialObjectMetadata{ObjectMeta: k.ObjectMeta})
		}
		return e
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
		"Ready": {"the last events about its modules", v1beta2.StateReady, remote(nil), nil, nil, time.Second, true, 0},
		"Error": {"the next reconcile comes later", v1beta2.StateError, remote(nil), nil, nil, time.Second, false, 0},
		"Slow": {"memory has only Kymas that change now", v1beta2.StateProcessing, remote(nil), nil, nil, time.Second, false,
			plan.SlowModuleDelay},
		"Unwatched": {"no event with metadata would show a change", v1beta2.StateProcessing, remote(nil), nil, nil,
			time.Second, false, 0},
		"Nothing": {"a removal of all modules is confirmed by a second read", v1beta2.StateProcessing,
			remote(func(k *v1beta2.Kyma) { k.Spec.Modules = nil }), nil, nil, time.Second, false, 0},
		"OwnWrite": {"the event of an own write", v1beta2.StateProcessing, remote(nil), nil,
			func(r *Reconciler) { r.dropCachedRemoteIfChanged(name, event(remote(nil))) }, time.Second, true, 0},
		"Listed": {"an agent has started, and lists the same Kyma", v1beta2.StateProcessing, remote(nil), nil,
			func(r *Reconciler) { r.dropCachedRemoteIfChanged(name, listed(remote(nil))) }, time.Second, true, 0},
		"ListedOther": {"the list shows an edit", v1beta2.StateProcessing, remote(nil), nil, func(r *Reconciler) {
			r.dropCachedRemoteIfChanged(name, listed(remote(func(k *v1beta2.Kyma) { k.Generation++ })))
		}, time.Second, false, 0},
		"ListedNone": {"the list shows that it was deleted", v1beta2.StateProcessing, remote(nil), nil,
			func(r *Reconciler) { r.dropCachedRemoteIfChanged(name, listed()) }, time.Second, false, 0},
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
		"ShardOpened": {"another replica may have held the shard", v1beta2.StateProcessing, remote(nil), nil,
			(*Reconciler).dropAllCachedRemotes, time.Second, false, 0},
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
			if remote, absent := first.takeCachedRemote(t.Context()); remote != nil || absent != nil {
				t.Fatal("nothing was read before")
			}
			first.remote = c.remote
			first.noteRemoteFingerprint()
			if c.during != nil {
				c.during(r)
			}
			first.cacheRemoteForNextReconcile()
			if c.after != nil {
				c.after(r)
			}
			if got, _ := runAt(now.Add(c.later)).takeCachedRemote(t.Context()); (got != nil) != c.want {
				t.Errorf("%s: got %v", c.reason, got)
			}
		})
	}
}

// TestDropCachedRemote checks that memory does not keep the Kymas of runtimes that are Ready.
func TestDropCachedRemote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, err := runtimes.New(t.Context(), runtimes.Options{Namespace: "kcp-system", Watch: true,
			Cache: unread{}, Live: unread{}, PollIntervals: runtimes.PollIntervals{Watched: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		r := testReconciler(t, Options{Runtimes: pool})
		n := &run{Reconciler: r, kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, now: time.Now(),
			remote: &v1beta2.Kyma{Spec: v1beta2.KymaSpec{Modules: []v1beta2.Module{{Name: "sample"}}}}}
		n.kyma.Status.State = v1beta2.StateReady
		n.takeCachedRemote(t.Context())
		n.cacheRemoteForNextReconcile()
		for _, isKept := range []bool{true, false} {
			r.mu.Lock()
			kept := r.known["a"].remote.kyma != nil
			r.mu.Unlock()
			if kept != isKept {
				t.Errorf("at %s the Kyma is kept: %t", time.Now(), kept)
			}
			time.Sleep(readyReusePeriod)
			synctest.Wait()
		}
	})
}

// TestTakeAbsence checks when a reconcile creates the Kyma in a runtime without reading it: only once, and shortly
// after a reconcile that could not create it because the runtime did not serve the kind yet.
func TestTakeAbsence(t *testing.T) {
	const name = "runtime-a"
	pool, err := runtimes.New(t.Context(), runtimes.Options{Namespace: "kcp-system", Cache: unread{}, Live: unread{},
		PollIntervals: runtimes.PollIntervals{Unwatched: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	created := func(r *Reconciler) { r.dropCachedRemoteIfChanged(name, runtimes.Event{Missed: true}) }
	cases := map[string]struct {
		reason        string
		during, after func(*Reconciler) // before and after the first reconcile notes the absence
		later         time.Duration
		want          bool
	}{
		"Soon":      {reason: "nothing has happened", later: time.Second, want: true},
		"Later":     {reason: "another client may have created a Kyma", later: absenceReusePeriod},
		"Event":     {reason: "a Kyma may exist now", after: created, later: time.Second},
		"Meanwhile": {reason: "a Kyma may exist since the read", during: created, later: time.Second},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			r := testReconciler(t, Options{Runtimes: pool})
			now := time.Now()
			runAt := func(at time.Time) *run {
				return &run{Reconciler: r, kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: name}}, now: at}
			}
			first := runAt(now)
			first.takeCachedRemote(t.Context())
			first.owner.Owner.Cluster = "uid"
			if c.during != nil {
				c.during(r)
			}
			first.noteRemoteAbsent()
			if c.after != nil {
				c.after(r)
			}
			next := runAt(now.Add(c.later))
			if _, absent := next.takeCachedRemote(t.Context()); (absent != nil) != c.want {
				t.Errorf("%s: got %v", c.reason, absent)
			} else if absent != nil && absent.Owner.Cluster != "uid" {
				t.Errorf("got the owner %v", absent)
			}
			if _, absent := runAt(now.Add(c.later)).takeCachedRemote(t.Context()); absent != nil {
				t.Error("the second reconcile after it has to read")
			}
		})
	}
}
