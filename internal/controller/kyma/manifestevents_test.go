package kyma

import (
	"fmt"
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
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// ofRuntime returns a Manifest of runtime-a that has been in the given state since the given time.
func ofRuntime(name string, state v1beta2.State, since time.Time) *v1beta2.Manifest {
	m := manifestIn(state, string(state))
	m.Name, m.Labels, m.CreationTimestamp = name, map[string]string{v1beta2.LabelKymaName: "runtime-a"},
		metav1.NewTime(since)
	m.Status.Conditions[0].LastTransitionTime = metav1.NewTime(since)
	return m
}

func TestDelayAfter(t *testing.T) {
	const never = time.Duration(-1)
	now := time.Now().Add(time.Hour) // so that a module is not slow, however long the cases before take
	long := time.Now().Add(-time.Hour)
	processing, ready, broken := v1beta2.StateProcessing, v1beta2.StateReady, v1beta2.StateError
	cases := map[string]struct {
		reason string
		was    v1beta2.State
		is     v1beta2.State
		since  time.Time
		edit   func(before, after *v1beta2.Manifest)
		other  v1beta2.State // the state of the other Manifest of the runtime
		ours   bool          // this controller has changed the Manifest
		want   time.Duration // the delay; never: no reconcile of the Kyma
	}{
		"Edited": {"row 2: somebody changed it", ready, ready, long,
			func(_, m *v1beta2.Manifest) { m.Generation++ }, ready, false, 0},
		"Leaving": {"row 2: it is being deleted", ready, ready, long,
			func(_, m *v1beta2.Manifest) { m.DeletionTimestamp = new(metav1.Now()) }, ready, false, 0},
		"Labelled": {"row 2: labels say whose it is", ready, ready, long,
			func(_, m *v1beta2.Manifest) { m.Labels = nil }, ready, false, 0},
		"Broken":    {"row 3: people wait for it", ready, broken, long, nil, processing, false, 0},
		"Warning":   {"row 3: and for any other", processing, v1beta2.StateWarning, now, nil, processing, false, 0},
		"LastReady": {"row 4: that was the last one", processing, ready, now, nil, ready, false, 0},
		"Ready": {"row 5: another is on its way", processing, ready, now, nil,
			processing, false, readyBatchDelay},
		"OtherUnseen": {"row 5: the other was not reconciled yet", processing, ready, now, nil,
			"", false, readyBatchDelay},
		"Busy": {"row 5: it is Processing again", ready, processing, now, nil, ready, false, readyBatchDelay},
		"Version": {"row 5: the version is shown", ready, ready, now,
			func(_, m *v1beta2.Manifest) { m.Status.Version = "1.5.0" }, processing, false, readyBatchDelay},
		"SlowVersion": {"row 5: a slow module shows its version", processing, processing, long,
			func(_, m *v1beta2.Manifest) { m.Status.Version = "1.5.0" }, ready, false, readyBatchDelay},
		"Applied": {"row 6: it is about to be Ready", processing, processing, now,
			func(_, m *v1beta2.Manifest) { m.Status.Version = "1.5.0" }, ready, false, slowCheckDelay},
		"SlowMessage": {"row 5: a slow module shows its message", processing, processing, long,
			func(_, m *v1beta2.Manifest) { m.Status.LastOperation.Operation = "2 of 3" },
			ready, false, readyBatchDelay},
		"Message": {"row 7: the message of a module that is not slow is not reported", processing, processing, now,
			func(_, m *v1beta2.Manifest) { m.Status.LastOperation.Operation = "2 of 3" }, ready, false, never},
		"Begun": {"row 6: it may take long", "", processing, now,
			func(_, m *v1beta2.Manifest) { m.Status.LastOperation.Operation = "" }, ready, false, slowCheckDelay},
		"Digest": {"row 7: nothing that is shown", ready, ready, long,
			func(_, m *v1beta2.Manifest) { m.Status.AppliedDigest = "x" }, ready, false, never},
		"Unseen": {
			"row 7: its change was an event, that it was not reconciled yet is none", processing, ready, now,
			func(before, after *v1beta2.Manifest) { before.Generation, after.Generation = 4, 4 }, ready, false, never,
		},
		"OurEdit": {"row 6: the reconcile that changed it has reported that", ready, ready, long,
			func(_, m *v1beta2.Manifest) { m.Generation++ }, ready, true, slowCheckDelay},
		"OurMark": {"row 6: the same", ready, ready, long, func(_, m *v1beta2.Manifest) { m.Labels = nil },
			ready, true, slowCheckDelay},
		"OurEditReady": {
			"row 4: it was changed and has become Ready meanwhile", ready, ready, long,
			func(_, m *v1beta2.Manifest) { m.Generation, m.Status.ObservedGeneration = 7, 7 }, ready, true, 0,
		},
		"OurEditBroken": {
			"row 3: it was changed and has failed meanwhile", ready, broken, now,
			func(_, m *v1beta2.Manifest) { m.Generation, m.Status.ObservedGeneration = 7, 7 }, ready, true, 0,
		},
	}
	kinds := runtime.NewScheme()
	if err := v1beta2.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before, after, other := ofRuntime("a", c.was, c.since), ofRuntime("a", c.is, c.since),
				ofRuntime("b", c.other, c.since)
			if c.edit != nil {
				c.edit(before, after)
			}
			r := &Reconciler{}
			r.Client = fake.NewClientBuilder().WithScheme(kinds).WithObjects(other).
				WithIndex(&v1beta2.Manifest{}, runtimes.KymaNameIndex, runtimes.KymaIndexValues).Build()
			got, relevant := r.delayAfter(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, c.ours)
			if !relevant {
				got = never
			}
			if got != c.want {
				t.Errorf("%s: delay %s, want %s", c.reason, got, c.want)
			}
		})
	}
}

// deletedKyma returns a Reconciler, and a client with runtime-a, which is being deleted, and with some Manifests of it.
func deletedKyma(t *testing.T, manifests ...client.Object) (*Reconciler, client.Client) {
	t.Helper()
	kinds := runtime.NewScheme()
	if err := v1beta2.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "runtime-a",
		Finalizers: []string{v1beta2.FinalizerKyma}, DeletionTimestamp: new(metav1.Now())}}
	c := fake.NewClientBuilder().WithScheme(kinds).WithObjects(append(manifests, k)...).
		WithIndex(&v1beta2.Manifest{}, runtimes.KymaNameIndex, runtimes.KymaIndexValues).Build()
	return testReconciler(t, Options{Client: c}), c
}

// TestDeletionOfKymaWithManyModules checks that the events about the Manifests of a deleted Kyma trigger its reconcile
// without a delay only once: when the last Manifest is deleted.
func TestDeletionOfKymaWithManyModules(t *testing.T) {
	for _, modules := range []int{1, 50} {
		t.Run(fmt.Sprint(modules), func(t *testing.T) {
			var all []client.Object
			for i := range modules {
				m := ofRuntime(fmt.Sprintf("m%d", i), v1beta2.StateReady, time.Now().Add(-time.Hour))
				all = append(all, m)
			}
			r, c := deletedKyma(t, all...)
			var immediate, delayed int
			count := func(q delayQueue) {
				switch q.all["kcp-system/runtime-a"] {
				case 0:
					immediate++
				case urgentBatchDelay:
					delayed++
				default:
					t.Errorf("delays %v", q.all)
				}
			}
			update := func(before, now *v1beta2.Manifest) {
				q := delayQueue{all: map[string]time.Duration{}}
				r.onManifest().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: now}, q)
				count(q)
			}
			for _, o := range all {
				ready := o.(*v1beta2.Manifest)
				leaving := ready.DeepCopy()
				leaving.DeletionTimestamp, leaving.Generation = new(metav1.Now()), ready.Generation+1
				deleting := leaving.DeepCopy()
				deleting.Status.ObservedGeneration = leaving.Generation
				deleting.Status.State = v1beta2.StateDeleting
				if modules > 1 {
					update(ready, leaving)
					update(leaving, deleting)
				}
			}
			for _, o := range all {
				if err := c.Delete(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				q := delayQueue{all: map[string]time.Duration{}}
				r.onManifest().Delete(t.Context(), event.DeleteEvent{Object: o}, q)
				count(q)
			}
			if want := 3 * (modules - 1); immediate != 1 || delayed < want {
				t.Errorf("%d reconciles without a delay and %d with a delay, want 1 and at least %d", immediate,
					delayed, want)
			}
		})
	}
}

// TestDelayOfDeletion checks which events about Manifests of a deleted Kyma trigger its reconcile without a delay.
func TestDelayOfDeletion(t *testing.T) {
	deleting, broken := v1beta2.StateDeleting, v1beta2.StateError
	cases := map[string]struct {
		reason string
		kyma   string
		state  v1beta2.State
		others []client.Object
		want   time.Duration
	}{
		"Several": {"the reconcile could only report the other one", "runtime-a", deleting,
			[]client.Object{ofRuntime("b", deleting, time.Now())}, urgentBatchDelay},
		"Last": {"the deletion of the Kyma continues", "runtime-a", deleting, nil, 0},
		"LastInCache": {"the cache still has the deleted Manifest itself", "runtime-a", deleting,
			[]client.Object{ofRuntime("a", deleting, time.Now())}, 0},
		"Failed": {"people wait for this state", "runtime-a", broken,
			[]client.Object{ofRuntime("b", deleting, time.Now())}, 0},
		"OnlyModule": {"the Kyma is not being deleted: its status shows the removal", "runtime-b", deleting,
			[]client.Object{ofRuntime("b", deleting, time.Now())}, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := ofRuntime("a", c.state, time.Now())
			m.Labels[v1beta2.LabelKymaName] = c.kyma
			r, _ := deletedKyma(t, c.others...)
			if got := r.delayOfDeletion(t.Context(), m); got != c.want {
				t.Errorf("%s: delay %s, want %s", c.reason, got, c.want)
			}
		})
	}
}

// delayQueue is a queue that records the delay of each request.
type delayQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	all map[string]time.Duration
}

func (q delayQueue) AddAfter(r reconcile.Request, after time.Duration) { q.all[r.String()] = after }

func TestOnManifest(t *testing.T) {
	ours := ofRuntime("a", v1beta2.StateReady, time.Now())
	ours.Labels[v1beta2.LabelManagedBy] = v1beta2.ManagedByLifecycleManager
	unlabelled := ofRuntime("a", v1beta2.StateReady, time.Now())
	unlabelled.Labels = nil
	kinds := runtime.NewScheme()
	if err := v1beta2.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	type queued map[string]time.Duration
	cases := map[string]struct {
		reason   string
		manifest *v1beta2.Manifest
		initial  bool
		deleted  bool
		want     queued
	}{
		"First": {"all Kymas are reconciled at the start anyway", ours, true, false, queued{}},
		"Ours":  {"we have created it", ours, false, false, queued{"kcp-system/runtime-a": slowCheckDelay}},
		"Others": {"somebody else has created it", ofRuntime("a", v1beta2.StateReady, time.Now()), false, false,
			queued{"kcp-system/runtime-a": 0}},
		"NoLabel": {"it belongs to no Kyma", unlabelled, false, false, queued{}},
		"Deleted": {"it may have to be created again", ours, false, true, queued{"kcp-system/runtime-a": 0}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			q := delayQueue{all: map[string]time.Duration{}}
			h := testReconciler(t, Options{Client: fake.NewClientBuilder().WithScheme(kinds).Build()}).onManifest()
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

// TestReleaseIfApplied checks that the next new runtime is admitted when all Manifests of an admitted runtime are
// applied, before that runtime is Ready.
func TestReleaseIfApplied(t *testing.T) {
	kinds := runtime.NewScheme()
	if err := v1beta2.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason   string
		was      string // digests of the applied objects
		is       string
		other    string
		admitted string // the admitted runtime
		next     bool
	}{
		"Last":      {"that was the last one", "", "x", "y", "runtime-a", true},
		"NotYet":    {"another one is not applied", "", "x", "", "runtime-a", false},
		"Nothing":   {"it was not applied", "", "", "y", "runtime-a", false},
		"Installed": {"it was applied before, and was released then", "w", "x", "y", "runtime-a", false},
		"Other":     {"it is not admitted", "", "x", "y", "runtime-b", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before, after, other := ofRuntime("a", v1beta2.StateProcessing, time.Now()),
				ofRuntime("a", v1beta2.StateProcessing, time.Now()), ofRuntime("b", v1beta2.StateProcessing, time.Now())
			before.Status.AppliedDigest, after.Status.AppliedDigest, other.Status.AppliedDigest = c.was, c.is, c.other
			next := ""
			r := testReconciler(t, Options{})
			r.starting = queueing.NewAdmission(1, func(kyma string) { next = kyma })
			r.Client = fake.NewClientBuilder().WithScheme(kinds).WithObjects(before, other).
				WithIndex(&v1beta2.Manifest{}, runtimes.KymaNameIndex, runtimes.KymaIndexValues).Build()
			if !r.starting.Admit(c.admitted) || r.starting.Admit("runtime-c") {
				t.Fatal("more than one is admitted")
			}
			r.onManifest().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after},
				delayQueue{all: map[string]time.Duration{}})
			if got := next == "runtime-c"; got != c.next {
				t.Errorf("%s: the next one is admitted: %t", c.reason, got)
			}
		})
	}
}

func TestOwnWrites(t *testing.T) {
	sent := func() *v1beta2.Manifest {
		m := ofRuntime("a", v1beta2.StateReady, time.Now())
		m.Annotations = map[string]string{"a": "b"}
		m.Spec.Resource = &unstructured.Unstructured{Object: map[string]any{"kind": "Thing",
			"spec": map[string]any{"size": int64(1)}}}
		return m
	}
	cases := map[string]struct {
		reason string
		edit   func(*v1beta2.Manifest)
		want   bool
	}{
		"Same": {"it is what was sent", func(*v1beta2.Manifest) {}, true},
		"Status": {"its controller may have written the status before the event arrived",
			func(m *v1beta2.Manifest) { m.Status.State, m.Generation = v1beta2.StateError, 9 }, true},
		"SyncRef": {"its controller writes this annotation",
			func(m *v1beta2.Manifest) { m.Annotations[v1beta2.AnnotationSyncOCIRef] = "1.0.0" }, true},
		"Number": {"the API server may encode JSON in another way",
			func(m *v1beta2.Manifest) { m.Spec.Resource.Object["spec"] = map[string]any{"size": 1.0} }, true},
		"Spec":  {"somebody else changed it", func(m *v1beta2.Manifest) { m.Spec.Version = "9.9.9" }, false},
		"Label": {"somebody else changed it", func(m *v1beta2.Manifest) { m.Labels["x"] = "y" }, false},
		"Mark":  {"somebody else changed it", func(m *v1beta2.Manifest) { delete(m.Annotations, "a") }, false},
		"Leaving": {"it is being deleted", func(m *v1beta2.Manifest) { m.DeletionTimestamp = new(metav1.Now()) },
			false},
		"Other": {"it is another Manifest", func(m *v1beta2.Manifest) { m.Name = "b" }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := &ownWrites{}
			received := sent()
			c.edit(received)
			if w.takeExpected(received) {
				t.Error("nothing was sent, and an event counts as an own write")
			}
			w.expect(sent())
			if got := w.takeExpected(received); got != c.want {
				t.Errorf("%s: got %t", c.reason, got)
			}
			if got, other := w.takeExpected(sent()), received.Name != sent().Name; got != other {
				t.Errorf("after %s, what was sent counts as an own write: %t, want it only if that was another "+
					"Manifest", c.reason, got)
			}
			w.expect(sent())
			w.forget(client.ObjectKeyFromObject(sent()))
			if w.takeExpected(sent()) {
				t.Error("a write that has failed counts as an own write")
			}
		})
	}
}
