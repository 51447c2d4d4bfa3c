package kyma

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// testReconciler returns a Reconciler whose options are not checked by New. The queue of the Reconciler is shut down
// when the test ends.
func testReconciler(t testing.TB, o Options) *Reconciler {
	r := newReconciler(o)
	t.Cleanup(func() { _ = r.agents.Run(t.Context()) }) // the context is already cancelled then
	return r
}

// fleet returns a Reconciler whose control plane has some Kymas. In this fleet, every tenth Kyma has the module keda.
func fleet(t testing.TB, kymas int, more ...client.Object) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(more...)
	for i := range kymas {
		k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: fmt.Sprintf("runtime-%d", i)}}
		if i%10 == 0 {
			k.Status.Modules = []v1beta2.ModuleStatus{{Name: "keda", Reason: v1beta2.ReasonWaitingForWindow}}
		}
		b = b.WithObjects(k)
	}
	for _, i := range cacheIndexes() {
		b = b.WithIndex(i.Object, i.Name, i.Keys)
	}
	b = b.WithIndex(&v1beta2.Manifest{}, runtimes.KymaNameIndex, runtimes.KymaIndexValues)
	return testReconciler(t, Options{Client: b.Build(), Namespace: "kcp-system",
		CatalogSpread: time.Hour, Concurrency: 1000})
}

// queueOf replaces the queue of the Reconciler by one that records the names of the enqueued Kymas.
func queueOf(t testing.TB, r *Reconciler) *recordingQueue {
	t.Helper()
	q := &recordingQueue{}
	if err := r.Trigger.Source().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	return q
}

func TestEnqueueUsers(t *testing.T) {
	mandatory := &v1beta2.ModuleReleaseMeta{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "guard"},
		Spec:       v1beta2.ModuleReleaseMetaSpec{Mandatory: &v1beta2.MandatoryVersion{Version: "1.0.0"}},
	}
	former := &v1beta2.ModuleReleaseMeta{ObjectMeta: mandatory.ObjectMeta}
	template := func(name, module, version string) *v1beta2.ModuleTemplate {
		return &v1beta2.ModuleTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: name},
			Spec:       v1beta2.ModuleTemplateSpec{ModuleName: module, Version: version},
		}
	}
	cases := map[string]struct {
		reason  string
		objects []client.Object
		want    int
	}{
		"Release": {"only the users of the module",
			[]client.Object{&v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: "keda"}}}, 3},
		"Template": {"by the module", []client.Object{template("keda-1.0.0", "keda", "1.0.0")}, 3},
		"TemplateByName": {"by the name of the template", []client.Object{template("keda-1.0.0", "other", "1.0.0")},
			3},
		"Early":             {"by the module of an early template", []client.Object{template("any", "keda", "")}, 3},
		"Unused":            {"no Kyma uses it", []client.Object{template("nats-1.0.0", "nats", "1.0.0")}, 0},
		"Mandatory":         {"all Kymas have it", []client.Object{mandatory}, 30},
		"MandatoryNoMore":   {"all Kymas had it", []client.Object{mandatory, former}, 30},
		"MandatoryTemplate": {"all Kymas have it", []client.Object{template("guard-1.0.0", "guard", "1.0.0")}, 30},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fleet(t, 30, mandatory.DeepCopy())
				q := queueOf(t, r)
				r.enqueueKymasUsing(t.Context(), c.objects...)
				time.Sleep(time.Second) // the interval of a small fleet, not the hour that is configured
				synctest.Wait()
				if got := len(q.all()); got != c.want {
					t.Errorf("%s: %d Kymas are enqueued, want %d", c.reason, got, c.want)
				}
			})
		})
	}
}

// TestEnqueueAll checks a change for all Kymas: the reconciles are spread over time, only some Kymas are admitted at
// the same time, and waiting Kymas are not enqueued twice.
func TestEnqueueAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, 100)
		r.CatalogSpread = 200 * time.Millisecond
		q := queueOf(t, r)
		r.EnqueueAll(t.Context())
		time.Sleep(r.CatalogSpread / 2)
		synctest.Wait()
		if got := len(q.all()); got < 50 || got > 52 {
			t.Errorf("%d of 100 are enqueued after half the time", got)
		}
		time.Sleep(r.CatalogSpread / 2)
		synctest.Wait()
		if got := len(q.all()); got != 100 {
			t.Errorf("%d of 100 are enqueued after the whole time", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, 100)
		q := queueOf(t, r)
		r.rollout = queueing.NewAdmission(8, r.enqueueWithFleetPriority)
		r.EnqueueAll(t.Context())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := len(q.all()); got != 8 {
			t.Fatalf("%d are admitted, want 8", got)
		}
		releaseAll := func(from int) {
			for i := from; i < len(q.all()); i++ {
				r.rollout.Release(q.all()[i]) // admits and enqueues the next Kyma
			}
		}
		r.EnqueueAll(t.Context())
		releaseAll(0)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		releaseAll(100)
		if got := len(q.all()); got != 108 {
			t.Errorf("%d are enqueued in all; want each of 100, and again the 8 that may have begun before the "+
				"second change", got)
		}
	})
}

// TestOneWorker checks that a controller with one worker admits only one Kyma at a time.
func TestOneWorker(t *testing.T) {
	r := testReconciler(t, Options{Concurrency: 1})
	q := queueOf(t, r)
	for _, name := range []string{"a", "b", "c"} {
		r.enqueueWhenAdmitted(name)
	}
	if got := q.all(); len(got) != 1 {
		t.Errorf("%v are admitted at the same time, want one", got)
	}
}

// recordingQueue is a queue that records the names of the enqueued Kymas. recordingQueue is safe for concurrent use.
type recordingQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request] // nil: its methods are not called

	mu    sync.Mutex
	names []string // guarded by mu
}

func (q *recordingQueue) all() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.names)
}

func (q *recordingQueue) AddAfter(r reconcile.Request, _ time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.names = append(q.names, r.Name)
}

// TestOnRuntimeEvent checks that an event triggers a reconcile only if it shows a change.
func TestOnRuntimeEvent(t *testing.T) {
	known := metav1.ObjectMeta{Namespace: remoteRef.Namespace, Name: remoteRef.Name, UID: "u", Generation: 1}
	edited := known
	edited.Generation = 2
	listed := func(all ...metav1.ObjectMeta) (e runtimes.Event) {
		e.Listed = true
		for _, m := range all {
			e.Objects = append(e.Objects, metav1.PartialObjectMetadata{ObjectMeta: m})
		}
		return e
	}
	cases := map[string]struct {
		event  runtimes.Event
		want   bool
		urgent bool
	}{
		"OwnWrite": {runtimes.Event{Object: &metav1.PartialObjectMetadata{ObjectMeta: known}}, false, false},
		"Edited":   {runtimes.Event{Object: &metav1.PartialObjectMetadata{ObjectMeta: edited}}, true, true},
		"Deleted": {runtimes.Event{Object: &metav1.PartialObjectMetadata{ObjectMeta: known}, Deleted: true}, true,
			true},
		"Listed":        {listed(known), false, false},
		"ListedEdited":  {listed(edited), true, false},
		"ListedNone":    {listed(), true, false},
		"Missed":        {runtimes.Event{Missed: true}, true, false},
		"NewConnection": {runtimes.Event{ConnectionChanged: true}, true, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := testReconciler(t, Options{Urgent: queueing.NewUrgent()})
			queue := queueOf(t, r)
			n := &run{Reconciler: r, kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
				remote: &v1beta2.Kyma{ObjectMeta: known}}
			n.noteRemoteFingerprint()
			r.onRuntimeEvent(client.ObjectKey{Namespace: "kcp-system", Name: "a"})(c.event)
			if got := len(queue.all()) == 1; got != c.want {
				t.Errorf("triggers a reconcile: %t, want %t", got, c.want)
			}
			if got := r.Urgent.Is("a"); got != c.urgent {
				t.Errorf("is urgent: %t, want %t", got, c.urgent)
			}
		})
	}
}

// TestTooManyRuntimeEvents checks that changes of the Kyma in a runtime are no longer urgent if there are very many of
// them, that each of them triggers a reconcile nevertheless, and that the changes in another runtime stay urgent.
func TestTooManyRuntimeEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 500
		r := testReconciler(t, Options{Urgent: queueing.NewUrgent()})
		queue := priorityCounter{added: map[int]int{}}
		if err := r.Trigger.Source().Start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		edit := func(kyma string) {
			r.onRuntimeEvent(client.ObjectKey{Namespace: "kcp-system", Name: kyma})(runtimes.Event{
				Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: remoteRef.Namespace,
					Name: remoteRef.Name, UID: "u", Generation: 2}}})
		}
		for range events {
			edit("a")
			r.Urgent.Clear("a")
		}
		edit("b")
		want := map[int]int{queueing.Person.Priority(): 41, queueing.Event.Priority(): events - 40}
		if diff := cmp.Diff(want, queue.added); diff != "" || !r.Urgent.Is("b") {
			t.Errorf("b is urgent: %t; requests by priority -want +got:\n%s", r.Urgent.Is("b"), diff)
		}
	})
}

// priorityCounter is a queue that counts the requests that were added, by priority.
type priorityCounter struct {
	priorityqueue.PriorityQueue[reconcile.Request] // nil: its other methods are not called

	added map[int]int
}

func (q priorityCounter) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	q.added[*o.Priority] += len(requests)
}

// TestRequestIfNeeded checks that an access Secret causes no reconcile while its Kyma does not exist, or waits for the
// admission of its runtime.
func TestRequestIfNeeded(t *testing.T) {
	pool, err := runtimes.New(t.Context(), runtimes.Options{Namespace: "kcp-system", Cache: unread{}, Live: unread{}})
	if err != nil {
		t.Fatal(err)
	}
	r := fleet(t, 3)
	r.Runtimes, r.starting = pool, queueing.NewAdmission(1, func(string) {})
	if !r.starting.Admit("runtime-0") || r.starting.Admit("runtime-1") {
		t.Fatal("one runtime is admitted, and the other one waits")
	}
	for name, want := range map[string]int{"runtime-0": 1, "runtime-1": 0, "runtime-2": 1, "missing": 0} {
		secret := runtimes.NewSecretMetadata()
		secret.Namespace, secret.Labels = "kcp-system", map[string]string{v1beta2.LabelKymaName: name}
		if got := r.requestIfNeeded(t.Context(), secret); len(got) != want {
			t.Errorf("Kyma %s: got %v, want %d requests", name, got, want)
		}
	}
}
