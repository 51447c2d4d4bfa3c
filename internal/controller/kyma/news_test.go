package kyma

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// ofRuntime returns a Manifest of runtime-a that has been in its state since then.
func ofRuntime(name string, state v1beta2.State, since time.Time) *v1beta2.Manifest {
	m := manifestIn(state, string(state))
	m.Name, m.Labels, m.CreationTimestamp = name, map[string]string{v1beta2.LabelKymaName: "runtime-a"}, metav1.NewTime(since)
	m.Status.Conditions[0].LastTransitionTime = metav1.NewTime(since)
	return m
}

func TestManifestNews(t *testing.T) {
	const never = time.Duration(-1)
	now := time.Now()
	long := now.Add(-time.Hour)
	processing, ready, broken := v1beta2.StateProcessing, v1beta2.StateReady, v1beta2.StateError
	cases := map[string]struct {
		reason string
		was    v1beta2.State
		is     v1beta2.State
		since  time.Time
		edit   func(before, after *v1beta2.Manifest)
		other  v1beta2.State // of the other Manifest of the runtime
		ours   bool          // it was this controller that changed it
		want   time.Duration // never: it does not concern the Kyma
	}{
		"Edited":      {"row 1: somebody changed it", ready, ready, long, func(_, m *v1beta2.Manifest) { m.Generation++ }, ready, false, 0},
		"Leaving":     {"row 1: it is being deleted", ready, ready, long, func(_, m *v1beta2.Manifest) { m.DeletionTimestamp = new(metav1.Now()) }, ready, false, 0},
		"Labelled":    {"row 1: labels say whose it is", ready, ready, long, func(_, m *v1beta2.Manifest) { m.Labels = nil }, ready, false, 0},
		"Broken":      {"row 2: people wait for bad news", ready, broken, long, nil, processing, false, 0},
		"Warning":     {"row 2: and for any other", processing, v1beta2.StateWarning, now, nil, processing, false, 0},
		"LastReady":   {"row 3: that was the last one", processing, ready, now, nil, ready, false, 0},
		"Ready":       {"row 4: another is on its way", processing, ready, now, nil, processing, false, moment},
		"OtherUnseen": {"row 4: nobody has looked at the other yet", processing, ready, now, nil, "", false, moment},
		"Busy":        {"row 4: it is at work again", ready, processing, now, nil, ready, false, moment},
		"Version":     {"row 4: the version is shown", ready, ready, now, func(_, m *v1beta2.Manifest) { m.Status.Version = "1.5.0" }, processing, false, moment},
		"SlowVersion": {"row 4: what takes long shows its version", processing, processing, long, func(_, m *v1beta2.Manifest) { m.Status.Version = "1.5.0" }, ready, false, moment},
		"Applied":     {"row 5: it is about to be Ready", processing, processing, now, func(_, m *v1beta2.Manifest) { m.Status.Version = "1.5.0" }, ready, false, patience + time.Second},
		"SlowMessage": {"row 4: what takes long shows its message", processing, processing, long, func(_, m *v1beta2.Manifest) { m.Status.LastOperation.Operation = "2 of 3" }, ready, false, moment},
		"Message":     {"row 6: nobody sees the message of what was begun a moment ago", processing, processing, now, func(_, m *v1beta2.Manifest) { m.Status.LastOperation.Operation = "2 of 3" }, ready, false, never},
		"Begun":       {"row 5: it may take long", "", processing, now, func(_, m *v1beta2.Manifest) { m.Status.LastOperation.Operation = "" }, ready, false, patience + time.Second},
		"Echo":        {"row 6: nothing that is shown", ready, ready, long, func(_, m *v1beta2.Manifest) { m.Status.AppliedDigest = "x" }, ready, false, never},
		"Unseen": {
			"row 6: its change was news, not that nobody has looked at it yet", processing, ready, now,
			func(before, after *v1beta2.Manifest) { before.Generation, after.Generation = 4, 4 }, ready, false, never,
		},
		"OurEdit": {"row 5: the pass that changed it knows", ready, ready, long, func(_, m *v1beta2.Manifest) { m.Generation++ }, ready, true, patience + time.Second},
		"OurMark": {"row 5: the same", ready, ready, long, func(_, m *v1beta2.Manifest) { m.Labels = nil }, ready, true, patience + time.Second},
		"OurEditReady": {
			"row 3: it was changed and has become Ready meanwhile", ready, ready, long,
			func(_, m *v1beta2.Manifest) { m.Generation, m.Status.ObservedGeneration = 7, 7 }, ready, true, 0,
		},
		"OurEditBroken": {
			"row 2: it was changed and has failed meanwhile", ready, broken, now,
			func(_, m *v1beta2.Manifest) { m.Generation, m.Status.ObservedGeneration = 7, 7 }, ready, true, 0,
		},
	}
	kinds := runtime.NewScheme()
	if err := v1beta2.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before, after, other := ofRuntime("a", c.was, c.since), ofRuntime("a", c.is, c.since), ofRuntime("b", c.other, c.since)
			if c.edit != nil {
				c.edit(before, after)
			}
			r := &Reconciler{}
			r.Client = fake.NewClientBuilder().WithScheme(kinds).WithObjects(other).
				WithIndex(&v1beta2.Manifest{}, runtimes.KymaNameIndex, runtimes.KymaIndexValues).Build()
			if c.ours {
				r.echoes.expect(after)
			}
			got, concerns := r.manifestNews(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after})
			if !concerns {
				got = never
			}
			if got != c.want {
				t.Errorf("%s: waits %s, want %s", c.reason, got, c.want)
			}
		})
	}
}

// slowQueue notes what is to be done when.
type slowQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	all map[string]time.Duration
}

func (q slowQueue) AddAfter(r reconcile.Request, after time.Duration) { q.all[r.String()] = after }

func TestOnManifest(t *testing.T) {
	ours := ofRuntime("a", v1beta2.StateReady, time.Now())
	ours.Labels[v1beta2.LabelManagedBy] = v1beta2.ManagedByLifecycleManager
	nobodys := ofRuntime("a", v1beta2.StateReady, time.Now())
	nobodys.Labels = nil
	type news map[string]time.Duration
	cases := map[string]struct {
		reason   string
		manifest *v1beta2.Manifest
		initial  bool
		deleted  bool
		want     news
	}{
		"First":   {"all Kymas are looked at when the program starts", ours, true, false, news{}},
		"Ours":    {"the Kyma has made it, and knows", ours, false, false, news{"kcp-system/runtime-a": patience + time.Second}},
		"Foreign": {"somebody else has made it", ofRuntime("a", v1beta2.StateReady, time.Now()), false, false, news{"kcp-system/runtime-a": 0}},
		"Nobodys": {"it belongs to no Kyma", nobodys, false, false, news{}},
		"Gone":    {"it may have to come back", ours, false, true, news{"kcp-system/runtime-a": 0}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			q := slowQueue{all: map[string]time.Duration{}}
			h := (&Reconciler{}).onManifest()
			if c.deleted {
				h.Delete(t.Context(), event.DeleteEvent{Object: c.manifest}, q)
			} else {
				h.Create(t.Context(), event.CreateEvent{Object: c.manifest, IsInInitialList: c.initial}, q)
			}
			if len(q.all) != len(c.want) || q.all["kcp-system/runtime-a"] != c.want["kcp-system/runtime-a"] {
				t.Errorf("%s: queued %v, want %v", c.reason, q.all, c.want)
			}
		})
	}
}

func TestShownState(t *testing.T) {
	cases := map[string]struct {
		reason             string
		state, want        v1beta2.State
		generation, looked int64
	}{
		"Seen":   {"what it says holds", v1beta2.StateReady, v1beta2.StateReady, 3, 3},
		"Unseen": {"what it says is of before", v1beta2.StateReady, v1beta2.StateProcessing, 4, 3},
		"New":    {"it says nothing yet", "", v1beta2.StateProcessing, 3, 3},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := manifestIn(c.state, "")
			m.Generation, m.Status.ObservedGeneration = c.generation, c.looked
			if got := shownState(m); got != c.want {
				t.Errorf("%s: got %s, want %s", c.reason, got, c.want)
			}
		})
	}
}

// TestNoteApplied: the next runtime begins when all was applied to one that has begun, before it is Ready.
func TestNoteApplied(t *testing.T) {
	kinds := runtime.NewScheme()
	if err := v1beta2.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		was    string // digests of what was applied
		is     string
		other  string
		begun  string // who has begun
		next   bool
	}{
		"Last":      {"that was all", "", "x", "y", "runtime-a", true},
		"NotYet":    {"the other is still to come", "", "x", "", "runtime-a", false},
		"Nothing":   {"it was not applied", "", "", "y", "runtime-a", false},
		"Installed": {"it was there before: its place was given back then", "w", "x", "y", "runtime-a", false},
		"Stranger":  {"it has no place", "", "x", "y", "runtime-b", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before, after, other := ofRuntime("a", v1beta2.StateProcessing, time.Now()), ofRuntime("a", v1beta2.StateProcessing, time.Now()), ofRuntime("b", v1beta2.StateProcessing, time.Now())
			before.Status.AppliedDigest, after.Status.AppliedDigest, other.Status.AppliedDigest = c.was, c.is, c.other
			next := ""
			r := &Reconciler{begin: turns{most: 1, next: func(kyma string) { next = kyma }}}
			r.Client = fake.NewClientBuilder().WithScheme(kinds).WithObjects(before, other).
				WithIndex(&v1beta2.Manifest{}, runtimes.KymaNameIndex, runtimes.KymaIndexValues).Build()
			if !r.begin.may(c.begun) || r.begin.may("runtime-c") {
				t.Fatal("one begins at a time")
			}
			r.onManifest().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, slowQueue{all: map[string]time.Duration{}})
			if got := next == "runtime-c"; got != c.next {
				t.Errorf("%s: the next one began: %t", c.reason, got)
			}
		})
	}
}

func TestEchoes(t *testing.T) {
	sent := func() *v1beta2.Manifest {
		m := ofRuntime("a", v1beta2.StateReady, time.Now())
		m.Annotations = map[string]string{"a": "b"}
		m.Spec.Resource = &unstructured.Unstructured{Object: map[string]any{"kind": "Thing", "spec": map[string]any{"size": int64(1)}}}
		return m
	}
	cases := map[string]struct {
		reason string
		edit   func(*v1beta2.Manifest)
		want   bool
	}{
		"Same":    {"it is what was sent", func(*v1beta2.Manifest) {}, true},
		"Status":  {"its controller may have been quicker than the news", func(m *v1beta2.Manifest) { m.Status.State, m.Generation = v1beta2.StateError, 9 }, true},
		"SyncRef": {"that is its controller's, too", func(m *v1beta2.Manifest) { m.Annotations[v1beta2.AnnotationSyncOCIRef] = "1.0.0" }, true},
		"Number":  {"an API server writes JSON in its own way", func(m *v1beta2.Manifest) { m.Spec.Resource.Object["spec"] = map[string]any{"size": 1.0} }, true},
		"Spec":    {"somebody else changed it", func(m *v1beta2.Manifest) { m.Spec.Version = "9.9.9" }, false},
		"Label":   {"somebody else changed it", func(m *v1beta2.Manifest) { m.Labels["x"] = "y" }, false},
		"Mark":    {"somebody else changed it", func(m *v1beta2.Manifest) { delete(m.Annotations, "a") }, false},
		"Leaving": {"somebody deletes it", func(m *v1beta2.Manifest) { m.DeletionTimestamp = new(metav1.Now()) }, false},
		"Other":   {"it is another one", func(m *v1beta2.Manifest) { m.Name = "b" }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := &echoes{}
			heard := sent()
			c.edit(heard)
			if e.is(heard) {
				t.Error("nothing was sent, and something came back")
			}
			e.expect(sent())
			if got := e.is(heard); got != c.want {
				t.Errorf("%s: got %t", c.reason, got)
			}
			if got, other := e.is(sent()), heard.Name != sent().Name; got != other {
				t.Errorf("what was sent came after %s: got %t, want it only if that was of another Manifest", c.reason, got)
			}
			e.expect(sent())
			e.forget(client.ObjectKeyFromObject(sent()))
			if e.is(sent()) {
				t.Error("what failed to be sent came back")
			}
		})
	}
}
