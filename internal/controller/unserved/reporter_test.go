package unserved

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// fixture is a Reporter with a control plane in memory, which records events and status writes.
type fixture struct {
	*Reporter
	events *events.FakeRecorder
	client client.Client
	writes int
	// regarding is the object of the last event.
	regarding runtime.Object
}

// recorder records the objects of events, which a FakeRecorder drops.
type recorder struct{ *fixture }

func (r recorder) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	r.regarding = regarding
	r.events.Eventf(regarding, related, eventType, reason, action, note, args...)
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1beta2.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	if err := metav1.AddMetaToScheme(s); err != nil {
		t.Fatal(err)
	}
	f := &fixture{events: events.NewFakeRecorder(10)}
	f.client = fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).
		WithStatusSubresource(&v1beta2.Kyma{}, &v1beta2.Manifest{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string,
			o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			f.writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		}}).Build()
	var err error
	if f.Reporter, err = New(Options{Client: f.client, Metadata: metadatafake.NewSimpleMetadataClient(s),
		Events: recorder{f}, Namespaces: []string{"kcp-system", "team-b"}}); err != nil {
		t.Fatal(err)
	}
	return f
}

// see passes the metadata of an object to the Reporter, waits until the Reporter's delay has passed, and lets the
// Reporter report all queued objects.
func (f *fixture) see(t *testing.T, kind string, o client.Object) {
	t.Helper()
	read := o.DeepCopyObject().(client.Object)
	if err := f.client.Get(t.Context(), client.ObjectKeyFromObject(o), read); err == nil {
		o = read
	}
	f.enqueueIfUnserved(kind, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), Labels: o.GetLabels(),
		Finalizers: o.GetFinalizers(), DeletionTimestamp: o.GetDeletionTimestamp(),
	}})
	time.Sleep(f.Delay + time.Second)
	synctest.Wait()
	for f.queue.Len() > 0 {
		f.reportNext(t.Context())
	}
}

func TestReport(t *testing.T) {
	in := func(namespace string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: "runtime-a", UID: "u", Generation: 1}
	}
	state := func(s v1beta2.State) v1beta2.KymaStatus { return v1beta2.KymaStatus{State: s} }
	delivered := in("kyma-system")
	delivered.Labels = map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByKyma}
	reconciled := in("team-a")
	reconciled.Finalizers = []string{v1beta2.FinalizerKyma}
	applied := in("team-a")
	applied.Finalizers = []string{v1beta2.FinalizerManifest}
	cases := map[string]struct {
		reason         string
		kind           string
		object         client.Object
		writes, events int
	}{
		"Kyma":     {"nobody serves its namespace", "Kyma", &v1beta2.Kyma{ObjectMeta: in("team-a")}, 1, 1},
		"Manifest": {"the same", "Manifest", &v1beta2.Manifest{ObjectMeta: in("team-a")}, 1, 1},
		"Template": {"it has no status", "ModuleTemplate", &v1beta2.ModuleTemplate{ObjectMeta: in("default")}, 0, 1},
		"Release": {"nothing reads its status there", "ModuleReleaseMeta",
			&v1beta2.ModuleReleaseMeta{ObjectMeta: in("default")}, 0, 1},
		"Policy": {"it would be without effect", "RolloutPolicy",
			&v1beta2.RolloutPolicy{ObjectMeta: in("default")}, 0, 1},
		"Served": {"the field selector excludes it", "Kyma", &v1beta2.Kyma{ObjectMeta: in("kcp-system")}, 0, 0},
		"Copy": {"the control plane is a runtime of another control plane", "Kyma",
			&v1beta2.Kyma{ObjectMeta: delivered}, 0, 0},
		"OtherManager": {"another manager reconciles it", "Kyma",
			&v1beta2.Kyma{ObjectMeta: reconciled, Status: state(v1beta2.StateReady)}, 0, 0},
		"OtherManifest": {"another manager reconciles it", "Manifest", &v1beta2.Manifest{ObjectMeta: applied}, 0, 0},
		"OtherState": {"another manager has written its state", "Kyma",
			&v1beta2.Kyma{ObjectMeta: in("team-a"), Status: state(v1beta2.StateProcessing)}, 0, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, c.object)
				defer f.queue.ShutDown()
				f.see(t, c.kind, c.object)
				f.see(t, c.kind, c.object) // another event of the same object
				if f.writes != c.writes || len(f.events.Events) != c.events {
					t.Errorf("%s: %d writes and %d events, want %d and %d", c.reason, f.writes, len(f.events.Events),
						c.writes, c.events)
				}
				if c.events > 0 {
					if got, want := <-f.events.Events, "Warning NamespaceNotServed namespace "+c.object.GetNamespace()+
						" is not served by the manager in namespace kcp-system"; !strings.HasPrefix(got, want) {
						t.Errorf("%s: the event is %q, want %q", c.reason, got, want)
					}
					if got, want := reflect.TypeOf(f.regarding), reflect.TypeOf(c.object); got != want {
						t.Errorf("%s: the event is of a %v, want %v", c.reason, got, want)
					}
				}
				if c.writes == 0 {
					return
				}
				// A new leader finds the condition in the status, so it neither writes a status nor records an event
				// again.
				next := newFixture(t)
				next.Client, next.client = f.client, f.client
				defer next.queue.ShutDown()
				next.see(t, c.kind, c.object)
				if f.writes != c.writes || len(next.events.Events) != 0 {
					t.Errorf("%s: a new leader reports it again", c.reason)
				}
			})
		})
	}
}

func TestReportOnlyWhatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.queue.ShutDown()
		deleted := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "a", UID: "u"}}
		f.see(t, "Kyma", deleted)
		if f.writes != 0 || len(f.events.Events) != 0 {
			t.Error("a Kyma that was deleted in the meantime is reported")
		}
		f.forget("u")
		if len(f.reported) != 0 {
			t.Error("a deleted object stays in memory")
		}
	})
}
