package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/place"
)

const namespace = "kcp-system"

// fleet is a control plane with Kymas that have the module keda in channel regular.
type fleet struct {
	*testing.T
	control client.Client
	*Reconciler
}

// fleetCache is the cache of the fleet; only List is used.
type fleetCache struct {
	cache.Cache
	reader client.Reader
}

func (c fleetCache) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	return c.reader.List(ctx, list, o...)
}

func newFleet(t *testing.T, objects ...client.Object) *fleet {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects = append(objects, &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: "keda-2.0.0"}, Spec: v1beta2.ModuleTemplateSpec{ModuleName: "keda", Version: "2.0.0"}})
	f := &fleet{T: t}
	f.control = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithReturnManagedFields().
		WithStatusSubresource(&v1beta2.ModuleReleaseMeta{}, &v1beta2.ModuleRollout{}, &v1beta2.Manifest{},
			&v1beta2.RolloutPolicy{}).
		WithIndex(&v1beta2.Manifest{}, moduleIndex, func(o client.Object) []string {
			return []string{o.(*v1beta2.Manifest).ModuleName()}
		}).Build()
	r, err := New(Options{Client: sharing{f.control, t}, Fleet: fleetCache{reader: f.control}, Namespace: namespace,
		Catalog: f.catalog, SettleDelay: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	f.Reconciler = r
	return f
}

// sharing is a client whose lists with client.UnsafeDisableDeepCopy must not be changed, as those of a cache. The test
// fails if it has changed an object of such a list.
type sharing struct {
	client.Client
	t *testing.T
}

func (s sharing) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := s.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	if o := (&client.ListOptions{}).ApplyOptions(opts); o.UnsafeDisableDeepCopy == nil {
		return nil
	}
	before := list.DeepCopyObject()
	s.t.Cleanup(func() {
		if diff := cmp.Diff(before, list); diff != "" {
			s.t.Errorf("objects of the cache were changed (-before +after):\n%s", diff)
		}
	})
	return nil
}

// catalog returns a catalog without blockers.
func (f *fleet) catalog(ctx context.Context) (channel.Catalog, func() error) {
	return channel.Catalog{
		Release: func(module string) *v1beta2.ModuleReleaseMeta { return f.release(ctx) },
		Template: func(name string) *v1beta2.ModuleTemplate {
			t := &v1beta2.ModuleTemplate{}
			t.Name, t.Spec.Version = name, strings.TrimPrefix(name, "keda-")
			return t
		},
	}, func() error { return nil }
}

func (f *fleet) release(ctx context.Context) *v1beta2.ModuleReleaseMeta {
	r := &v1beta2.ModuleReleaseMeta{}
	if err := f.control.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "keda"}, r); err != nil {
		f.Fatal(err)
	}
	return r
}

// status returns the status of channel regular.
func (f *fleet) status() v1beta2.ChannelStatus {
	f.Helper()
	s := f.release(f.Context()).ChannelStatus("regular")
	if s == nil {
		f.Fatal("channel regular has no status")
	}
	return *s
}

func (f *fleet) rollout(name string) *v1beta2.ModuleRollout {
	f.Helper()
	r := &v1beta2.ModuleRollout{}
	if err := f.control.Get(f.Context(), types.NamespacedName{Namespace: namespace, Name: name}, r); err != nil {
		f.Fatal(err)
	}
	return r
}

// pass reconciles the module a few times, because the coordinator's own writes also trigger reconciles.
func (f *fleet) pass() {
	f.Helper()
	for range 4 {
		f.mu.Lock()
		clear(f.lastPass)
		f.mu.Unlock()
		if _, err := f.Reconcile(f.Context(), f.requestFor("keda")); err != nil {
			f.Fatal(err)
		}
	}
}

// move sets the version of channel regular.
func (f *fleet) move(version string) {
	f.Helper()
	r := f.release(f.Context())
	r.Spec.Channels[0].Version = version
	if err := f.control.Update(f.Context(), r); err != nil {
		f.Fatal(err)
	}
}

// order changes a Manifest as the Kyma and Manifest controllers do after its runtime was admitted. The Kyma and
// Manifest controllers do not run in the tests of this package.
func (f *fleet) order(kyma, version string, state v1beta2.State) {
	f.Helper()
	m := &v1beta2.Manifest{}
	key := types.NamespacedName{Namespace: namespace, Name: kyma + "-keda"}
	if err := f.control.Get(f.Context(), key, m); err != nil {
		f.Fatal(err)
	}
	m.Spec.Version = version
	m.Annotations = map[string]string{v1beta2.AnnotationRequestedVersion: version,
		v1beta2.AnnotationRollout:        "keda-regular-r2/all",
		v1beta2.AnnotationRolloutStarted: time.Now().UTC().Format(time.RFC3339)}
	if err := f.control.Update(f.Context(), m); err != nil {
		f.Fatal(err)
	}
	m.Status = manifestStatus(version, state)
	if err := f.control.Status().Update(f.Context(), m); err != nil {
		f.Fatal(err)
	}
}

func manifestStatus(version string, state v1beta2.State) v1beta2.ManifestStatus {
	s := v1beta2.ManifestStatus{State: state, Version: version}
	ready := metav1.Condition{Type: v1beta2.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta2.ReasonReady,
		LastTransitionTime: metav1.Now()}
	if state == v1beta2.StateError {
		ready.Status, ready.Reason = metav1.ConditionFalse, v1beta2.ReasonWorkloadFailed
	}
	s.Conditions = []metav1.Condition{ready}
	return s
}

// objects returns a release with version 1.0.0 in channel regular, and n Kymas that have this version.
func objects(n int) []client.Object {
	all := []client.Object{&v1beta2.ModuleReleaseMeta{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "keda"},
		Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: "keda", OCMComponentName: "example.com/keda",
			Channels: []v1beta2.ChannelVersion{{Channel: "regular", Version: "1.0.0"}}},
	}}
	for i := range n {
		name := fmt.Sprintf("runtime-%d", i)
		all = append(all, &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: v1beta2.KymaSpec{Channel: "regular", Modules: []v1beta2.Module{{Name: "keda"}}}},
			&v1beta2.Manifest{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-keda", Labels: map[string]string{
					v1beta2.LabelKymaName: name, v1beta2.LabelModuleName: "keda", v1beta2.LabelChannel: "regular"}},
				Spec: v1beta2.ManifestSpec{Version: "1.0.0"}, Status: manifestStatus("1.0.0", v1beta2.StateReady),
			})
	}
	return all
}

// onePolicy is a policy with one stage that updates one runtime at a time.
func onePolicy() *v1beta2.RolloutPolicy {
	return &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "standard"},
		Spec: v1beta2.RolloutPolicySpec{Modules: v1beta2.RolloutModules{Names: []string{"*"}}, MaxUpdating: 1,
			Stages: []v1beta2.RolloutStage{{Name: "all"}}}}
}

// TestMoveIsRecorded checks that the move of a channel to another version without a RolloutPolicy is recorded, and that
// no runtime has to be admitted.
func TestMoveIsRecorded(t *testing.T) {
	f := newFleet(t, objects(3)...)
	f.pass()
	if s := f.status(); s.Version != "1.0.0" || s.Target != "1.0.0" || s.Revision != 1 || s.Rollout != "" {
		t.Fatalf("first record: %+v", s)
	}
	f.move("2.0.0")
	f.pass()
	if s := f.status(); s.Version != "1.0.0" || s.Target != "2.0.0" || s.Rollout != "keda-regular-r2" ||
		s.Policy != "" {
		t.Fatalf("moved: %+v", s)
	}
	if r := f.rollout("keda-regular-r2"); r.Status.Admitted != "" || r.Status.Runtimes.Waiting != 3 ||
		r.Status.Phase != v1beta2.RolloutUpdating {
		t.Errorf("under way: %+v", r.Status)
	}
	for i := range 3 {
		f.order(fmt.Sprintf("runtime-%d", i), "2.0.0", v1beta2.StateReady)
	}
	f.pass()
	s := f.status()
	if s.Version != "2.0.0" || s.Rollout != "" || len(s.History) != 2 ||
		s.History[1].Outcome != v1beta2.RolloutCompleted {
		t.Errorf("completed: %+v", s)
	}
}

// TestIdle checks that a reconcile without a change writes nothing.
func TestIdle(t *testing.T) {
	f := newFleet(t, append(objects(3), onePolicy())...)
	f.pass()
	f.move("2.0.0")
	f.pass()
	before, release := f.rollout("keda-regular-r2").ResourceVersion, f.release(t.Context()).ResourceVersion
	f.pass()
	if is := f.rollout("keda-regular-r2").ResourceVersion; is != before {
		t.Errorf("the rollout was written without a change: %s, then %s", before, is)
	}
	if is := f.release(t.Context()).ResourceVersion; is != release {
		t.Errorf("the release was written without a change: %s, then %s", release, is)
	}
}

// TestRiskWithKubernetesVersion checks that a known risk of a version blocks the runtimes to which the risk applies,
// and the runtimes whose version of Kubernetes is not known. The Kymas in the test have only the fields that the cache
// of the whole fleet stores.
func TestRiskWithKubernetesVersion(t *testing.T) {
	all := append(objects(3), onePolicy())
	versions := map[string]string{"runtime-0": "v1.30.1", "runtime-1": "v1.31.0", "runtime-2": ""}
	for _, o := range all {
		if k, isKyma := o.(*v1beta2.Kyma); isKyma {
			k.Status.KubernetesVersion = versions[k.Name]
			slim(k)
		}
	}
	f := newFleet(t, all...)
	catalog := f.Catalog
	f.Catalog = func(ctx context.Context) (channel.Catalog, func() error) {
		is, failed := catalog(ctx)
		template := is.Template
		is.Template = func(name string) *v1beta2.ModuleTemplate {
			t := template(name)
			t.Spec.Upgrade = &v1beta2.ModuleUpgrade{Risks: []v1beta2.UpgradeRisk{{Name: "Slow", When: "k8s.minor < 31",
				Message: "it is slow"}}}
			return t
		}
		return is, failed
	}
	f.pass()
	f.move("2.0.0")
	f.pass()
	r := f.rollout("keda-regular-r2")
	if r.Status.Runtimes.Waiting != 2 || r.Status.Runtimes.Updating != 1 || len(r.Status.Blockers) != 1 ||
		r.Status.Blockers[0].Code != v1beta2.ReasonKnownRisk || r.Status.Blockers[0].Runtimes != 2 {
		t.Fatalf("one runtime may begin: %+v", r.Status)
	}
	k := &v1beta2.Kyma{}
	key := types.NamespacedName{Namespace: namespace, Name: "runtime-2"}
	if err := f.control.Get(t.Context(), key, k); err != nil {
		t.Fatal(err)
	}
	k.Status.KubernetesVersion = "v1.32.0"
	if err := f.control.Update(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	f.order("runtime-1", "2.0.0", v1beta2.StateReady)
	f.pass()
	if c := f.rollout("keda-regular-r2").Status.Runtimes; c.Proven != 1 || c.Updating != 1 || c.Waiting != 1 {
		t.Errorf("the version of runtime-2 is known: %+v", c)
	}
}

// TestPullSecretMissing checks that no runtime is admitted while its Kyma controller cannot begin the update, because
// the pull Secret is missing, and that the rollout names this reason. The rollout goes on when the Secret exists.
func TestPullSecretMissing(t *testing.T) {
	all := append(objects(3), onePolicy())
	for _, o := range all {
		if k, isKyma := o.(*v1beta2.Kyma); isKyma {
			k.Status.Conditions = []metav1.Condition{{Type: v1beta2.ConditionReady, Status: metav1.ConditionFalse,
				Reason: v1beta2.ReasonPullSecretNotFound, LastTransitionTime: metav1.Now()}}
			k.Status.Modules = []v1beta2.ModuleStatus{{Name: "keda", Channel: "regular", State: v1beta2.StateError,
				Reason: v1beta2.ReasonPullSecretNotFound}}
			slim(k)
		}
	}
	f := newFleet(t, all...)
	f.pass()
	f.move("2.0.0")
	f.pass()
	s := f.rollout("keda-regular-r2").Status
	if s.Admitted != "" || s.Runtimes.Waiting != 3 || len(s.Blockers) != 1 ||
		s.Blockers[0].Code != v1beta2.ReasonPullSecretNotFound || s.Blockers[0].Runtimes != 3 {
		t.Fatalf("nobody can begin: %+v", s)
	}
	k := &v1beta2.Kyma{}
	key := types.NamespacedName{Namespace: namespace, Name: "runtime-2"}
	if err := f.control.Get(t.Context(), key, k); err != nil {
		t.Fatal(err)
	}
	k.Status.Conditions[0].Status, k.Status.Conditions[0].Reason = metav1.ConditionTrue, v1beta2.ReasonReady
	k.Status.Modules[0].State, k.Status.Modules[0].Reason = v1beta2.StateReady, ""
	if err := f.control.Update(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	f.pass()
	if c := f.rollout("keda-regular-r2").Status.Runtimes; c.Updating != 1 || c.Waiting != 2 {
		t.Errorf("runtime-2 can begin: %+v", c)
	}
}

// TestMaintenancePolicyChanges checks that a change of the maintenance policy enqueues the modules with an active
// rollout only, and that it does not shorten the time between two reconciles.
func TestMaintenancePolicyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, objects(3)...)
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		change := func() int {
			f.onMaintenancePolicy().Generic(t.Context(), event.GenericEvent{}, q)
			synctest.Wait()
			return q.Len()
		}
		if n := change(); n != 0 {
			t.Errorf("%d modules are enqueued without an active rollout", n)
		}
		f.setActive("keda", true)
		f.lastPass["keda"] = time.Now()
		if n := change(); n != 0 {
			t.Errorf("%d modules are enqueued directly after a reconcile", n)
		}
		time.Sleep(Period)
		synctest.Wait()
		if n := q.Len(); n != 1 {
			t.Errorf("%d modules are enqueued after %s, want 1", n, Period)
		}
	})
}

// TestMaxUpdating checks that the limit of the policy holds over all stages, and that a halt stops admissions.
func TestMaxUpdating(t *testing.T) {
	f := newFleet(t, append(objects(5), onePolicy())...)
	f.pass()
	f.move("2.0.0")
	f.pass()
	r := f.rollout("keda-regular-r2")
	if r.Status.Runtimes.Updating != 1 || r.Status.Runtimes.Waiting != 4 || len(r.Status.Admitted) != 8 {
		t.Fatalf("one runtime may begin: %+v", r.Status)
	}
	for i := range 5 {
		f.order(fmt.Sprintf("runtime-%d", i), "2.0.0", v1beta2.StateError)
	}
	f.pass()
	r = f.rollout("keda-regular-r2")
	if r.Status.Phase != v1beta2.RolloutHalted || r.Status.Admitted != "" || r.Status.Runtimes.Failed != 5 {
		t.Errorf("five failures: %+v", r.Status)
	}
	if s := f.status(); s.Version != "1.0.0" {
		t.Errorf("the proven version is %s", s.Version)
	}
}

// TestSkippedByLabel checks that a runtime whose Kyma is not reconciled because of a label gives its slot to another
// runtime.
func TestSkippedByLabel(t *testing.T) {
	f := newFleet(t, append(objects(2), onePolicy())...)
	f.pass()
	f.move("2.0.0")
	f.pass()
	admitted := func() string {
		r := f.rollout("keda-regular-r2")
		return strings.Join(place.NewlyAdmitted(r.Spec.Lineage, "", r.Status.Admitted,
			[]string{"runtime-0", "runtime-1"}), " ")
	}
	first := admitted()
	k := &v1beta2.Kyma{}
	if err := f.control.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: first}, k); err != nil {
		t.Fatal(err)
	}
	k.Labels = map[string]string{v1beta2.LabelSkipReconciliation: v1beta2.ValueTrue}
	if err := f.control.Update(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	f.pass()
	b := f.rollout("keda-regular-r2").Status.Blockers
	if second := admitted(); second == "" || second == first || len(b) != 1 ||
		b[0].Code != v1beta2.ReasonSkipReconciliation || b[0].Object != "Kyma "+first {
		t.Errorf("first %q is admitted, then %q, with blockers %+v", first, second, b)
	}
}

// TestRefusedRequest checks that a runtime takes no part in the rollout of a channel if it requests a pinned version or
// another channel. The runtime takes no part even if its request was refused, so that the Manifest still has the former
// channel.
func TestRefusedRequest(t *testing.T) {
	for name, c := range map[string]struct {
		request, reason string
		inScope         int32
	}{
		"Pinned":   {`{"channel":"regular","modules":[{"name":"keda","version":"0.9.0"}]}`, "DowngradeRefused", 1},
		"Switched": {`{"channel":"regular","modules":[{"name":"keda","channel":"fast"}]}`, "ChannelNotFound", 1},
		"Blocked":  {`{"channel":"regular","modules":[{"name":"keda"}]}`, "ModulePaused", 2},
	} {
		t.Run(name, func(t *testing.T) {
			all := append(objects(2), onePolicy())
			k := all[1].(*v1beta2.Kyma)
			k.Annotations = map[string]string{v1beta2.AnnotationLastRequest: c.request}
			k.Status.Modules = []v1beta2.ModuleStatus{{Name: "keda", Channel: "regular", Reason: c.reason}}
			if slim, err := Slim()(k); err != nil || slim.(*v1beta2.Kyma).Status.Modules[0].Reason != c.reason {
				t.Fatalf("the cache of the fleet has not what is needed: %v, %v", slim, err)
			}
			f := newFleet(t, all...)
			f.pass()
			f.move("2.0.0")
			f.pass()
			if r := f.rollout("keda-regular-r2"); r.Status.Runtimes.InScope != c.inScope {
				t.Errorf("%d runtimes are in scope, want %d", r.Status.Runtimes.InScope, c.inScope)
			}
		})
	}
}

// TestRemade checks that a gate cannot be bypassed by deleting the rollout or the status of the release. The policy may
// have been deleted before the rollout.
func TestRemade(t *testing.T) {
	for name, lose := range map[string]func(*fleet){
		"Rollout": func(f *fleet) {
			if err := f.control.Delete(f.Context(), f.rollout("keda-regular-r2")); err != nil {
				f.Fatal(err)
			}
		},
		"RolloutAfterPolicy": func(f *fleet) {
			if err := f.control.Delete(f.Context(), onePolicy()); err != nil {
				f.Fatal(err)
			}
			f.pass()
			if err := f.control.Delete(f.Context(), f.rollout("keda-regular-r2")); err != nil {
				f.Fatal(err)
			}
		},
		"Status": func(f *fleet) {
			r := f.release(f.Context())
			r.Status = v1beta2.ModuleReleaseMetaStatus{}
			if err := f.control.Status().Update(f.Context(), r); err != nil {
				f.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, append(objects(5), onePolicy())...)
			f.pass()
			f.move("2.0.0")
			f.pass()
			f.order("runtime-0", "2.0.0", v1beta2.StateReady)
			lose(f)
			f.pass()
			s := f.status()
			r := f.rollout(s.Rollout)
			if s.Version != "1.0.0" || r.Spec.State != v1beta2.RolloutPaused || r.Status.Admitted != "" ||
				r.Status.Runtimes.Proven != 1 || !strings.HasPrefix(r.Spec.Reason, v1beta2.ReasonRolloutRemade) ||
				len(r.Spec.Stages) != 1 || s.Policy != "standard" {
				t.Errorf("status %+v, rollout %+v %+v", s, r.Spec, r.Status)
			}
			// The loss of a status causes no event, so each pass of a paused rollout asks for the next one.
			clear(f.lastPass)
			next, err := f.Reconcile(f.Context(), f.requestFor("keda"))
			if err != nil || next.RequeueAfter <= 0 || next.RequeueAfter > time.Minute {
				t.Errorf("the next pass, which notices another loss, is after %s, %v", next.RequeueAfter, err)
			}
		})
	}
}

// TestOtherChannelFails checks that a rollout is halted although another channel of the module cannot be reconciled,
// because a foreign finalizer keeps its deleted rollout.
func TestOtherChannelFails(t *testing.T) {
	all := append(objects(2), onePolicy())
	release := all[0].(*v1beta2.ModuleReleaseMeta)
	release.Spec.Channels = append(release.Spec.Channels, v1beta2.ChannelVersion{Channel: "fast", Version: "1.0.0"})
	all[2].(*v1beta2.Manifest).Labels[v1beta2.LabelChannel] = "fast"
	f := newFleet(t, all...)
	f.pass()
	moved := f.release(t.Context())
	moved.Spec.Channels[0].Version, moved.Spec.Channels[1].Version = "2.0.0", "2.0.0"
	if err := f.control.Update(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	f.pass()
	other := f.rollout("keda-fast-r2")
	other.Finalizers = []string{"example.com/x"}
	if err := f.control.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := f.control.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	f.order("runtime-1", "2.0.0", v1beta2.StateError)
	for range 4 { // as pass
		clear(f.lastPass)
		if _, err := f.Reconcile(t.Context(), f.requestFor("keda")); err == nil ||
			!strings.Contains(err.Error(), "ModuleRollout keda-fast-r2 is being deleted") {
			t.Fatalf("got %v, want an error that names the rollout that is being deleted", err)
		}
	}
	if r := f.rollout("keda-regular-r2"); r.Status.Phase != v1beta2.RolloutHalted {
		t.Errorf("the rollout of the other channel: %+v", r.Status)
	}
	if s := f.release(t.Context()).ChannelStatus("fast"); s == nil || s.Rollout != "keda-fast-r2" ||
		s.Version != "1.0.0" {
		t.Errorf("the channel that fails: %+v", s)
	}
}

// TestSetBack checks that setting the channel back ends the rollout and keeps the proven version.
func TestSetBack(t *testing.T) {
	f := newFleet(t, append(objects(3), onePolicy())...)
	f.pass()
	f.move("2.0.0")
	f.pass()
	f.move("1.0.0")
	f.pass()
	s := f.status()
	if r := f.rollout("keda-regular-r2"); r.Status.Phase != v1beta2.RolloutEndedAborted || r.Status.Admitted != "" {
		t.Errorf("the rollout: %+v", r.Status)
	}
	if s.Version != "1.0.0" || s.Target != "1.0.0" || s.Rollout != "" || s.Revision != 3 {
		t.Errorf("the channel: %+v", s)
	}
}

// TestSuperseded checks that a further move of the channel ends the rollout, and that the next rollout has the same
// lineage and the same proven version.
func TestSuperseded(t *testing.T) {
	f := newFleet(t, append(objects(3), onePolicy())...)
	f.pass()
	f.move("2.0.0")
	f.pass()
	f.move("3.0.0")
	f.pass()
	first, second := f.rollout("keda-regular-r2"), f.rollout("keda-regular-r3")
	if first.Status.Phase != v1beta2.RolloutSuperseded || second.Spec.From != "1.0.0" || second.Spec.To != "3.0.0" ||
		second.Spec.Lineage != first.Spec.Lineage {
		t.Errorf("first %+v, second %+v", first.Status, second.Spec)
	}
	if second.Status.Phase != v1beta2.RolloutPending ||
		second.Status.Blockers[0].Code != v1beta2.ReasonPreflightFailed {
		t.Errorf("version 3.0.0 has no template, and the rollout is %+v", second.Status)
	}
}

// TestPreflight checks that no runtime begins before the version has been verified and rendered. Each process of the
// manager verifies and renders the version once, and the reconcile of the coordinator does not wait meanwhile. No time
// passes while a version is verified: after some time, a process that was replaced would verify it again, and would
// take the result that is meant for the next process.
func TestPreflight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, append(objects(3), onePolicy())...)
		results := make(chan error, 1)
		asked := make(chan string, 10)
		f.Manifest = func(_ context.Context, component, version string, _ *v1beta2.ModuleTemplate) (*v1beta2.Manifest,
			error) {
			m := &v1beta2.Manifest{}
			m.Name, m.Spec.Version = component, version
			return m, nil
		}
		f.Check = func(_ context.Context, m *v1beta2.Manifest) (string, []*unstructured.Unstructured, error) {
			asked <- m.Name + ":" + m.Spec.Version
			return "sha256:a", nil, <-results
		}
		f.checker = f.newChecker()
		go func() { _ = f.checker.Start(t.Context()) }()
		f.pass()
		f.move("2.0.0")
		f.pass()
		time.Sleep(time.Second) // until the version has settled
		f.pass()
		const name = "keda-regular-r2"
		r := f.rollout(name)
		if r.Status.Phase != v1beta2.RolloutPending || r.Status.Admitted != "" ||
			r.Status.Blockers[0].Code != v1beta2.ReasonPreflightPending {
			t.Fatalf("while the version is rendered: %+v", r.Status)
		}
		if v := <-asked; v != "example.com/keda:2.0.0" {
			t.Errorf("checked %s", v)
		}
		results <- reconcile.TerminalError(errors.New("it crashed"))
		failed := func(s *v1beta2.ModuleRolloutStatus) bool {
			return s.Blockers[0].Code == v1beta2.ReasonPreflightFailed
		}
		for r = f.rollout(name); !failed(&r.Status); r = f.rollout(name) {
			f.pass()
		}
		if r.Status.Phase != v1beta2.RolloutPending || r.Status.Admitted != "" || r.Status.Content != "" ||
			!strings.Contains(r.Status.Blockers[0].Message, "it crashed") || r.Status.Blockers[0].Remedy == "" {
			t.Errorf("a version that cannot be rendered: %+v", r.Status)
		}

		f.checker = f.newChecker() // as after a restart, with a corrected limit
		go func() { _ = f.checker.Start(t.Context()) }()
		results <- nil
		for r = f.rollout(name); r.Status.Content == ""; r = f.rollout(name) {
			f.pass()
		}
		if r.Status.Content != "sha256:a" || r.Status.Admitted == "" || len(r.Status.Blockers) > 0 {
			t.Errorf("a version that can be rendered: %+v", r.Status)
		}
		<-asked
		f.checker = f.newChecker() // nobody makes its checks yet
		for _, admitted := range place.NewlyAdmitted(r.Spec.Lineage, "", r.Status.Admitted,
			[]string{"runtime-0", "runtime-1", "runtime-2"}) {
			f.order(admitted, "2.0.0", v1beta2.StateReady)
		}
		f.pass()
		r = f.rollout(name)
		if r.Status.Phase != v1beta2.RolloutUpdating || r.Status.Runtimes.Proven != 1 || r.Status.Admitted != "" ||
			len(r.Status.Blockers) > 0 || len(asked) > 0 {
			t.Errorf("after a restart, %d checks, and the rollout is %+v", len(asked), r.Status)
		}

		results <- registryDown{}
		go func() { _ = f.checker.Start(t.Context()) }()
		for r = f.rollout(name); r.Status.Phase != v1beta2.RolloutHeld; r = f.rollout(name) {
			f.pass()
		}
		if b := r.Status.Blockers; len(b) != 1 || b[0].Code != v1beta2.ReasonPreflightPending ||
			r.Status.Admitted != "" || r.Status.Content != "sha256:a" || r.Status.Runtimes.Failed > 0 {
			t.Errorf("while the registry is down: %+v", r.Status)
		}

		f.checker = f.newChecker() // after another restart, the registry answers
		go func() { _ = f.checker.Start(t.Context()) }()
		results <- nil
		for r = f.rollout(name); r.Status.Admitted == ""; r = f.rollout(name) {
			f.pass()
		}
		if r.Status.Phase != v1beta2.RolloutUpdating || len(r.Status.Blockers) > 0 {
			t.Errorf("when the registry answers: %+v", r.Status)
		}
	})
}

// registryDown is the error of a registry that does not answer.
type registryDown struct{}

func (registryDown) Error() string  { return "the registry answers 503" }
func (registryDown) Reason() string { return v1beta2.ReasonRegistryUnreachable }

// TestPreflightAgain checks that the version is verified again if its ModuleTemplate is changed during the rollout, and
// that no runtime is admitted until it has passed again, also if the manager is restarted. No time passes while a
// version is verified, as in TestPreflight.
func TestPreflightAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, append(objects(3), onePolicy())...)
		results := make(chan error, 10)
		f.Manifest = func(context.Context, string, string, *v1beta2.ModuleTemplate) (*v1beta2.Manifest, error) {
			return &v1beta2.Manifest{}, nil
		}
		f.Check = func(context.Context, *v1beta2.Manifest) (string, []*unstructured.Unstructured, error) {
			return "sha256:a", nil, <-results
		}
		restart := func() {
			checker := f.newChecker()
			f.checker = checker
			go func() { _ = checker.Start(t.Context()) }()
		}
		restart()
		edit := func(change func(s *v1beta2.ModuleTemplateSpec)) {
			t.Helper()
			template := &v1beta2.ModuleTemplate{}
			key := client.ObjectKey{Namespace: namespace, Name: "keda-2.0.0"}
			if err := f.control.Get(t.Context(), key, template); err != nil {
				t.Fatal(err)
			}
			change(&template.Spec)
			if err := f.control.Update(t.Context(), template); err != nil {
				t.Fatal(err)
			}
		}
		f.pass()
		f.move("2.0.0")
		const name = "keda-regular-r2"
		results <- nil
		f.pass()
		time.Sleep(time.Second) // until the version has settled
		f.pass()
		r := f.rollout(name)
		for ; r.Status.Template == ""; r = f.rollout(name) {
			f.pass()
		}
		f.order("runtime-0", "2.0.0", v1beta2.StateReady)
		first := r.Status.Template

		edit(func(s *v1beta2.ModuleTemplateSpec) { s.Info = &v1beta2.ModuleInfo{Repository: "https://example.com"} })
		f.pass()
		if r = f.rollout(name); r.Status.Phase != v1beta2.RolloutUpdating || r.Status.Admitted == "" {
			t.Fatalf("a link was changed: %+v", r.Status)
		}

		edit(func(s *v1beta2.ModuleTemplateSpec) { s.StateExpression = "true" })
		for range 2 {
			f.pass()
			r = f.rollout(name)
			if r.Status.Phase != v1beta2.RolloutHeld || r.Status.Admitted != "" || r.Status.Template != first ||
				len(r.Status.Blockers) != 1 || r.Status.Blockers[0].Code != v1beta2.ReasonPreflightPending ||
				!strings.Contains(r.Status.Blockers[0].Message, "was changed during the rollout") {
				t.Fatalf("the ModuleTemplate was changed: %+v", r.Status)
			}
			restart()
		}
		for range 3 { // for the checks of both managers that were stopped, and of the one that runs
			results <- errors.New("no signature")
		}
		for ; r.Status.Blockers[0].Code != v1beta2.ReasonPreflightFailed; r = f.rollout(name) {
			f.pass()
		}
		if r.Status.Phase != v1beta2.RolloutHeld || r.Status.Admitted != "" {
			t.Errorf("the changed version is not signed: %+v", r.Status)
		}
		synctest.Wait() // the check of a manager that was stopped must not take the next result

		edit(func(s *v1beta2.ModuleTemplateSpec) { s.StateExpression = "" })
		results <- nil
		for ; r.Status.Admitted == ""; r = f.rollout(name) {
			f.pass()
		}
		if r.Status.Phase != v1beta2.RolloutUpdating || r.Status.Template != first {
			t.Errorf("the change was taken back: %+v", r.Status)
		}
		edit(func(s *v1beta2.ModuleTemplateSpec) { s.StateExpression = "'Ready'" })
		results <- nil
		for ; r.Status.Template == first; r = f.rollout(name) {
			f.pass()
		}
		if r.Status.Phase != v1beta2.RolloutUpdating || r.Status.Admitted == "" {
			t.Errorf("another change has passed: %+v", r.Status)
		}
	})
}

// TestEndedUsesNoSlot checks that a rollout that has ended does not count in the limit of the policy, blocks no runtime
// for the next rollout, and has no metric.
func TestEndedUsesNoSlot(t *testing.T) {
	begin := func(t *testing.T) *fleet {
		f := newFleet(t, append(objects(1), onePolicy(), &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "keda-3.0.0"}, Spec: v1beta2.ModuleTemplateSpec{ModuleName: "keda",
			Version: "3.0.0"}})...)
		f.pass()
		f.move("2.0.0")
		f.pass()
		f.order("runtime-0", "2.0.0", v1beta2.StateProcessing)
		f.pass()
		if r := f.rollout("keda-regular-r2"); r.Status.Runtimes.Updating != 1 || len(f.flights) != 1 {
			t.Fatalf("one runtime is being updated: %+v, %v", r.Status, f.flights)
		}
		return f
	}
	t.Run("Superseded", func(t *testing.T) {
		f := begin(t)
		f.move("3.0.0")
		f.pass()
		r := f.rollout("keda-regular-r3")
		if r.Status.Runtimes.Updating != 1 || len(r.Status.Admitted) != 8 {
			t.Errorf("the runtime gets the correction: %+v", r.Status)
		}
		f.order("runtime-0", "3.0.0", v1beta2.StateReady)
		f.pass()
		if s := f.status(); s.Version != "3.0.0" || len(f.flights) != 0 {
			t.Errorf("completed: %+v, %v", s, f.flights)
		}
	})
	t.Run("SetBack", func(t *testing.T) {
		metrics.RolloutPhase.Reset() // other tests end with active rollouts
		metrics.RolloutRuntimes.Reset()
		f := begin(t)
		f.move("1.0.0")
		f.pass()
		if len(f.flights) != 0 {
			t.Errorf("runtimes are still counted: %v", f.flights)
		}
		series := make(chan prometheus.Metric, 100)
		metrics.RolloutPhase.Collect(series)
		metrics.RolloutRuntimes.Collect(series)
		if len(series) != 0 {
			var first dto.Metric
			_ = (<-series).Write(&first)
			t.Errorf("an ended rollout has series of metrics: %v", &first)
		}
	})
}

// TestFailingIsFirst checks that the runtime in which a version has failed is the first one of the next rollout. The
// rollout that has ended does not keep this runtime busy.
func TestFailingIsFirst(t *testing.T) {
	policy := onePolicy()
	policy.Spec.MaxUpdating = 10
	f := newFleet(t, append(objects(4), policy, &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "keda-2.1.0"}, Spec: v1beta2.ModuleTemplateSpec{ModuleName: "keda",
		Version: "2.1.0"}})...)
	f.pass()
	f.move("2.0.0")
	f.pass()
	f.order("runtime-0", "2.0.0", v1beta2.StateError)
	m := &v1beta2.Manifest{}
	key := types.NamespacedName{Namespace: namespace, Name: "runtime-0-keda"}
	if err := f.control.Get(t.Context(), key, m); err != nil {
		t.Fatal(err)
	}
	m.Status.Version = "1.0.0" // the version that was installed completely
	if err := f.control.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	f.pass()
	if r := f.rollout("keda-regular-r2"); r.Status.Phase != v1beta2.RolloutHalted {
		t.Fatalf("%+v", r.Status)
	}
	f.move("2.1.0")
	f.pass()
	r := f.rollout("keda-regular-r3")
	first := place.NewlyAdmitted(r.Spec.Lineage, "", r.Status.Admitted, []string{"runtime-0", "runtime-1", "runtime-2",
		"runtime-3"})
	if len(first) != 1 || first[0] != "runtime-0" {
		t.Errorf("%v may begin, want the runtime that fails", first)
	}
}

// TestPolicyInvalid checks that a rollout that cannot be planned is held, and that its status and the metrics show
// this.
func TestPolicyInvalid(t *testing.T) {
	policy := onePolicy()
	policy.Spec.Stages = append([]v1beta2.RolloutStage{{Name: "own", Selector: &v1beta2.StageSelector{
		MatchLabels: map[string]string{"not a key": "x"}}}}, policy.Spec.Stages...)
	f := newFleet(t, append(objects(1), policy)...)
	f.pass()
	f.move("2.0.0")
	f.pass()
	r := f.rollout("keda-regular-r2")
	if r.Status.Phase != v1beta2.RolloutHeld || r.Status.Blockers[0].Code != v1beta2.ReasonPolicyInvalid {
		t.Errorf("the rollout: %+v", r.Status)
	}
	var is dto.Metric
	held := metrics.RolloutPhase.WithLabelValues("keda", "regular", string(v1beta2.RolloutHeld))
	if err := held.Write(&is); err != nil || is.GetGauge().GetValue() != 1 {
		t.Errorf("the metric of phase Held: %v, %v", &is, err)
	}
}

// TestPolicyConflict checks that no runtime is admitted while two policies match a channel and are equally specific.
func TestPolicyConflict(t *testing.T) {
	other := onePolicy()
	other.Name = "other"
	f := newFleet(t, append(objects(3), onePolicy(), other)...)
	f.pass()
	f.move("2.0.0")
	f.pass()
	if s := f.status(); s.Version != "1.0.0" || s.Rollout != "" {
		t.Errorf("the channel: %+v", s)
	}
	ready := f.release(t.Context()).Status.Conditions[0]
	if ready.Type != v1beta2.ConditionReady || ready.Status != metav1.ConditionFalse ||
		!strings.Contains(ready.Message, "other and standard") {
		t.Errorf("condition: %+v", ready)
	}
}

// TestReleaseDeleted checks that the rollouts of a deleted release end.
func TestReleaseDeleted(t *testing.T) {
	f := newFleet(t, append(objects(3), onePolicy())...)
	f.pass()
	f.move("2.0.0")
	f.pass()
	if err := f.control.Delete(t.Context(), f.release(t.Context())); err != nil {
		t.Fatal(err)
	}
	f.pass()
	if r := f.rollout("keda-regular-r2"); r.Status.Phase != v1beta2.RolloutEndedAborted {
		t.Errorf("the rollout: %+v", r.Status)
	}
}

// restart replaces the coordinator by one that remembers nothing, as a restart or another leader does.
func (f *fleet) restart() {
	f.Helper()
	r, err := New(f.Options)
	if err != nil {
		f.Fatal(err)
	}
	f.Reconciler = r
}

// once runs one reconcile of the module.
func (f *fleet) once(module string) {
	f.Helper()
	f.mu.Lock()
	clear(f.lastPass)
	f.mu.Unlock()
	if _, err := f.Reconcile(f.Context(), f.requestFor(module)); err != nil {
		f.Fatal(err)
	}
}

// otherRollout returns an active rollout of the module named other. The tests themselves roll out the module keda.
func otherRollout() *v1beta2.ModuleRollout {
	return &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other-fast-r2"},
		Spec: v1beta2.ModuleRolloutSpec{Module: "other", Channel: "fast", From: "1.0.0", To: "2.0.0", Revision: 2,
			Lineage: "other/fast/2.0.0", Policy: "standard", State: v1beta2.RolloutRunning,
			Stages: []v1beta2.ModuleRolloutStage{{RolloutStage: v1beta2.RolloutStage{Name: "all"}, Ranks: 1 << 16}}},
		Status: v1beta2.ModuleRolloutStatus{Phase: v1beta2.RolloutUpdating}}
}

// otherUpdate returns the module named other with its active rollout, and the given Manifest of runtime-0 as one that
// the rollout is updating.
func otherUpdate(m *v1beta2.Manifest) []client.Object {
	r := otherRollout()
	m.Name, m.Spec.Version = "runtime-0-other", "2.0.0"
	m.Labels[v1beta2.LabelModuleName], m.Labels[v1beta2.LabelChannel] = "other", "fast"
	m.Annotations = map[string]string{v1beta2.AnnotationRollout: r.Name + "/all",
		v1beta2.AnnotationRequestedVersion: "2.0.0",
		v1beta2.AnnotationRolloutStarted:   time.Now().UTC().Format(time.RFC3339)}
	return []client.Object{r, m, &v1beta2.ModuleReleaseMeta{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"},
		Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: "other",
			Channels: []v1beta2.ChannelVersion{{Channel: "fast", Version: "2.0.0"}}},
		Status: v1beta2.ModuleReleaseMetaStatus{Channels: []v1beta2.ChannelStatus{{Channel: "fast", Version: "1.0.0",
			Target: "2.0.0", Rollout: r.Name, Revision: 2, Policy: "standard"}}}}}
}

// TestRemovedChannel checks that a rollout ends if its channel was removed while the manager restarted, and that no
// runtime waits for this rollout.
func TestRemovedChannel(t *testing.T) {
	other := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"},
		Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: "other"}}
	f := newFleet(t, append(objects(2), onePolicy(), other, otherRollout())...)
	f.pass()
	f.move("2.0.0")
	f.pass()
	if r := f.rollout("keda-regular-r2"); r.Status.Runtimes.Updating != 1 {
		t.Errorf("a runtime may begin: %+v", r.Status)
	}
	f.once("other")
	if r := f.rollout("other-fast-r2"); r.Status.Phase != v1beta2.RolloutEndedAborted ||
		!strings.Contains(r.Status.Message, "channel fast was removed from ModuleReleaseMeta other") {
		t.Errorf("the rollout of the removed channel: %+v", r.Status)
	}
}

// TestOtherFlights checks that, right after a restart, the limits on parallel updates include the updates of all other
// rollouts: rollouts of other modules, and of other channels of the same module. A rollout counts even if its next
// status cannot be computed.
func TestOtherFlights(t *testing.T) {
	marked := func(name string, m *v1beta2.Manifest, state v1beta2.State) *v1beta2.Manifest {
		m.Annotations = map[string]string{v1beta2.AnnotationRollout: name + "/all",
			v1beta2.AnnotationRequestedVersion: "2.0.0",
			v1beta2.AnnotationRolloutStarted:   time.Now().UTC().Format(time.RFC3339)}
		m.Spec.Version, m.Status = "2.0.0", manifestStatus("2.0.0", state)
		return m
	}
	begin := func(t *testing.T, other string) *fleet {
		all := append(objects(3), onePolicy())
		release := all[0].(*v1beta2.ModuleReleaseMeta)
		release.Spec.Channels = append(release.Spec.Channels, v1beta2.ChannelVersion{Channel: "fast", Version: "1.0.0"})
		last := all[6].(*v1beta2.Manifest) // of runtime-2
		switch other {
		case "channel":
			all[5].(*v1beta2.Kyma).Spec.Channel = "stable"
			last.Labels[v1beta2.LabelChannel] = "stable"
			release.Spec.Channels = append(release.Spec.Channels, v1beta2.ChannelVersion{Channel: "stable",
				Version: "2.0.0"})
			release.Status.Channels = []v1beta2.ChannelStatus{{Channel: "stable", Version: "1.0.0", Target: "2.0.0",
				Rollout: "keda-stable-r2", Revision: 2, Policy: "standard"}}
			r := otherRollout()
			r.Name, r.Spec.Module, r.Spec.Channel = "keda-stable-r2", "keda", "stable"
			all = append(all, r)
			marked(r.Name, last, v1beta2.StateProcessing)
		case "module":
			m := last.DeepCopy()
			m.Name, m.Labels[v1beta2.LabelModuleName] = "runtime-2-other", "other"
			all = append(all, otherRollout(), marked("other-fast-r2", m, v1beta2.StateProcessing))
		}
		return newFleet(t, all...)
	}
	for _, other := range []string{"channel", "module"} {
		t.Run(other, func(t *testing.T) {
			f := begin(t, other)
			f.once("keda")
			f.move("2.0.0")
			f.once("keda")
			f.once("keda")
			r := f.rollout("keda-regular-r2")
			if r.Status.Admitted != "" || r.Status.Runtimes.Updating != 0 {
				t.Errorf("one may be updated, one is, and %s may begin: %+v", r.Status.Admitted, r.Status)
			}
		})
	}
	t.Run("restart", func(t *testing.T) { // the name of the other channel sorts later
		f := begin(t, "channel")
		f.once("keda")
		f.move("2.0.0")
		f.once("keda")
		f.once("keda")
		f.restart()
		f.once("keda")
		if r := f.rollout("keda-regular-r2"); r.Status.Admitted != "" || r.Status.Stage.Name == "" {
			t.Errorf("one may be updated, one is, and %s may begin: %+v", r.Status.Admitted, r.Status)
		}
	})
	t.Run("deleted", func(t *testing.T) {
		f := begin(t, "module")
		(&pass{Reconciler: f.Reconciler}).setFlightIfStaged(otherRollout(), []string{"runtime-2"})
		f.once("keda")
		f.move("2.0.0")
		if err := f.control.Delete(t.Context(), otherRollout()); err != nil {
			t.Fatal(err)
		}
		f.once("keda")
		f.once("keda")
		if r := f.rollout("keda-regular-r2"); r.Status.Runtimes.Updating != 1 {
			t.Errorf("a rollout that does not exist uses a slot: %+v", r.Status)
		}
	})
}

// TestFleetLimit checks that the limit of the manager applies to the rollouts of all policies together.
func TestFleetLimit(t *testing.T) {
	for name, c := range map[string]struct{ most, want int }{
		"None": {0, 5}, "OneLeft": {3, 1}, "NoneLeft": {2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			policy, other := onePolicy(), otherRollout()
			policy.Spec.MaxUpdating, policy.Spec.Stages[0].MaxConcurrency = 0, new(intstr.FromInt32(5))
			other.Spec.Policy = "another"
			f := newFleet(t, append(objects(5), policy, other)...)
			f.MaxUpdating = c.most
			(&pass{Reconciler: f.Reconciler}).setFlightIfStaged(other, []string{"runtime-8", "runtime-9"})
			f.pass()
			f.move("2.0.0")
			f.pass()
			if r := f.rollout("keda-regular-r2"); int(r.Status.Runtimes.Updating) != c.want {
				t.Errorf("%d of %d may begin, want %d: %+v", r.Status.Runtimes.Updating, c.most, c.want, r.Status)
			} else if b := r.Status.Blockers; (c.want == 0) != (len(b) == 1) ||
				c.want == 0 && (b[0].Code != v1beta2.ReasonWaitingForRollout || b[0].Runtimes != 5 ||
					!strings.HasSuffix(b[0].Message, ": other-fast-r2")) {
				t.Errorf("the blocker that names the other rollout: %+v", b)
			}
		})
	}
}

// TestPausedUpdateOfOtherModule checks that an update that a person has paused uses no slot of the limit for the fleet,
// and that the rollouts of other modules update its runtime, also directly after a restart.
func TestPausedUpdateOfOtherModule(t *testing.T) {
	for name, isComputed := range map[string]bool{"Computed": true, "Restarted": false} {
		t.Run(name, func(t *testing.T) {
			all, r := append(objects(1), onePolicy()), otherRollout()
			m := all[2].(*v1beta2.Manifest).DeepCopy()
			m.Status.State = v1beta2.StateProcessing
			ready := &m.Status.Conditions[0]
			ready.Status, ready.Reason = metav1.ConditionFalse, v1beta2.ReasonModulePaused
			f := newFleet(t, append(all, otherUpdate(m)...)...)
			f.pass()
			f.move("2.0.0")
			if isComputed {
				f.once("other")
				if c := f.rollout(r.Name).Status.Runtimes; c.Updating != 1 {
					t.Fatalf("the paused update: %+v", c)
				}
			}
			f.pass()
			if is := f.rollout("keda-regular-r2"); is.Status.Runtimes.Updating != 1 {
				t.Fatalf("the runtime may begin: %+v", is.Status)
			}
			f.order("runtime-0", "2.0.0", v1beta2.StateReady)
			f.pass()
			if s := f.status(); s.Version != "2.0.0" || s.Rollout != "" {
				t.Errorf("the rollout completes: %+v", s)
			}
		})
	}
}

// TestInterrupted checks the case that a coordinator ended after it created a rollout, and before it recorded the
// rollout in the status of the ModuleReleaseMeta. If the next coordinator would create the same rollout, it adopts the
// existing one. If the next coordinator would create another rollout, it ends the existing one, and the status of the
// ended rollout has the reason.
func TestInterrupted(t *testing.T) {
	interrupted := func(t *testing.T) *fleet {
		f := newFleet(t, append(objects(3), onePolicy())...)
		f.pass()
		f.move("2.0.0")
		settled := f.release(t.Context()).Status
		f.pass()
		release := f.release(t.Context())
		release.Status = settled // the last write of the pass is lost
		if err := f.control.Status().Update(t.Context(), release); err != nil {
			t.Fatal(err)
		}
		f.restart()
		return f
	}
	t.Run("Adopted", func(t *testing.T) {
		f := interrupted(t)
		f.pass()
		r := f.rollout("keda-regular-r2")
		if s := f.status(); s.Rollout != r.Name || s.Revision != 2 || r.Status.Runtimes.Updating != 1 {
			t.Errorf("the channel %+v, its rollout %+v", s, r.Status)
		}
		if all := f.rollouts(); len(all) != 1 {
			t.Errorf("%d rollouts for one move", len(all))
		}
	})
	t.Run("Paused", func(t *testing.T) {
		f := interrupted(t)
		r := f.rollout("keda-regular-r2")
		r.Spec.State = v1beta2.RolloutPaused
		if err := f.control.Update(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		f.pass()
		if r := f.rollout(f.status().Rollout); r.Spec.State != v1beta2.RolloutPaused || r.Status.Admitted != "" {
			t.Errorf("the pause is bypassed by %s: %+v", r.Name, r.Status)
		}
	})
	t.Run("PolicyChanged", func(t *testing.T) {
		f := interrupted(t)
		policy := onePolicy()
		if err := f.control.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
			t.Fatal(err)
		}
		policy.Spec.Stages[0].MaxStartsPerMinute = 1
		if err := f.control.Update(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		f.pass()
		if s := f.rollout("keda-regular-r2").Status; s.Phase != v1beta2.RolloutSuperseded ||
			!strings.Contains(s.Message, "before this rollout was recorded; the stages or settings") {
			t.Errorf("the rollout that is not the one of the channel: %+v", s)
		}
		if r := f.rollout(f.status().Rollout); r.Name != "keda-regular-r3" || r.Status.Runtimes.Updating != 1 {
			t.Errorf("the rollout that takes its place: %s %+v", r.Name, r.Status)
		}
	})
	t.Run("SetBack", func(t *testing.T) {
		f := interrupted(t)
		f.move("1.0.0")
		f.pass()
		if s := f.rollout("keda-regular-r2").Status; s.Phase != v1beta2.RolloutSuperseded ||
			!strings.Contains(s.Message, "channel regular does not move to 2.0.0 any more") {
			t.Errorf("the rollout of a move that does not take place: %+v", s)
		}
		if s := f.status(); s.Rollout != "" || s.Version != "1.0.0" || s.Revision != 1 {
			t.Errorf("the channel %+v", s)
		}
	})
	t.Run("StaleCache", func(t *testing.T) {
		f := interrupted(t)
		f.Live = changedRelease{f.control}
		f.move("1.0.0")
		f.pass()
		if s := f.rollout("keda-regular-r2").Status; s.Phase.IsOver() {
			t.Errorf("a rollout ends that a later status may name: %+v", s)
		}
	})
}

// TestNameTaken checks that a rollout gets another name if a rollout of another module has its name, as the rollouts of
// module a-b in channel c and of module a in channel b-c have. The rollout of the other module stays unchanged, also if
// the cache does not have it yet.
func TestNameTaken(t *testing.T) {
	other := func() *v1beta2.ModuleRollout {
		return &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "keda-regular-r2"},
			Spec: v1beta2.ModuleRolloutSpec{Module: "other", Channel: "fast", From: "1.0.0", To: "2.0.0"}}
	}
	check := func(t *testing.T, f *fleet, name string) {
		t.Helper()
		if s := f.status(); s.Rollout != name {
			t.Errorf("the channel %+v", s)
		}
		if r := f.rollout(name); r.Spec.Module != "keda" || r.Status.Runtimes.Updating != 1 {
			t.Errorf("the rollout %+v", r)
		}
		if diff := cmp.Diff(other().Spec, f.rollout("keda-regular-r2").Spec); diff != "" {
			t.Errorf("the rollout of the other module (-want +got):\n%s", diff)
		}
	}
	t.Run("Known", func(t *testing.T) {
		f := newFleet(t, append(objects(3), onePolicy(), other())...)
		f.pass()
		f.move("2.0.0")
		f.pass()
		check(t, f, "keda-regular-r4") // the channel has revision 3 already
	})
	t.Run("StaleCache", func(t *testing.T) {
		f := newFleet(t, append(objects(3), onePolicy())...)
		f.pass()
		f.move("2.0.0")
		if err := f.control.Create(t.Context(), other()); err != nil {
			t.Fatal(err)
		}
		whole := f.Client
		f.Client = withoutRollouts{whole}
		var err error
		for range 4 { // as pass
			clear(f.lastPass)
			if _, err = f.Reconcile(t.Context(), f.requestFor("keda")); err != nil {
				break
			}
		}
		if err == nil || !strings.Contains(err.Error(), "keda-regular-r2 is of module other in channel fast") {
			t.Errorf("got %v, want an error that names the other module", err)
		}
		f.Client = whole
		f.pass()
		check(t, f, "keda-regular-r3")
	})
}

// withoutRollouts lists no ModuleRollouts, as a cache that has not received them yet.
type withoutRollouts struct{ client.Client }

func (c withoutRollouts) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, ok := list.(*v1beta2.ModuleRolloutList); ok {
		return nil
	}
	return c.Client.List(ctx, list, options...)
}

// changedRelease simulates an API server whose objects have changed since the cache received them: Get appends a digit
// to the resourceVersion of each object.
type changedRelease struct{ client.Reader }

func (c changedRelease) Get(ctx context.Context, key client.ObjectKey, o client.Object,
	options ...client.GetOption) error {
	err := c.Reader.Get(ctx, key, o, options...)
	o.SetResourceVersion(o.GetResourceVersion() + "0")
	return err
}

// rollouts returns all rollouts of the fleet.
func (f *fleet) rollouts() []v1beta2.ModuleRollout {
	f.Helper()
	var all v1beta2.ModuleRolloutList
	if err := f.control.List(f.Context(), &all); err != nil {
		f.Fatal(err)
	}
	return all.Items
}

// TestClockIsSet checks that the soak of a stage begins again after somebody has set the clock of the manager forward,
// and that the status records the change of the clock once.
func TestClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := onePolicy()
		policy.Spec.Stages[0].Soak.Duration = time.Hour
		policy.Spec.Stages = append(policy.Spec.Stages, v1beta2.RolloutStage{Name: "rest"})
		policy.Spec.Stages[0].Percent = 100
		f := newFleet(t, append(objects(1), policy)...)
		f.pass()
		f.move("2.0.0")
		f.pass()
		time.Sleep(time.Second) // until the version has settled
		f.pass()
		f.order("runtime-0", "2.0.0", v1beta2.StateReady)
		f.pass()
		const name = "keda-regular-r2"
		r := f.rollout(name)
		if r.Status.Phase != v1beta2.RolloutSoaking {
			t.Fatalf("the first stage: %+v", r.Status)
		}
		// The stage was proven two hours ago according to the clock that was set forward, but just now according to the
		// clock before the change.
		r.Status.Stage.StartedAt.Time = time.Now().Add(-2 * time.Hour)
		r.Status.Stage.ProvenAt = r.Status.Stage.StartedAt
		r.Status.Stage.SoakUntil.Time = time.Now().Add(-time.Hour)
		if err := f.control.Status().Update(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		f.clock.Notice(time.Now().Round(0).Add(-2*time.Hour), time.Since(f.begun)) // two hours less than it is now
		f.pass()
		r = f.rollout(name)
		if left := time.Until(r.Status.Stage.SoakUntil.Time); r.Status.Phase != v1beta2.RolloutSoaking ||
			left < 59*time.Minute || left > time.Hour {
			t.Errorf("after the clock was set: %s, %+v", r.Status.Phase, r.Status.Stage)
		}
		f.pass()
		if is := f.rollout(name); is.ResourceVersion != r.ResourceVersion {
			t.Errorf("the rollout is written again: %+v", is.Status)
		}
	})
}

// TestPolicyGone checks that a runtime is not admitted earlier if somebody deletes or renames the policy of a rollout.
func TestPolicyGone(t *testing.T) {
	begin := func(t *testing.T, suspend bool) (*fleet, *v1beta2.RolloutPolicy) {
		policy := onePolicy()
		policy.Spec.Suspend = suspend
		policy.Spec.Stages[0].MaxConcurrency = new(intstr.FromInt32(5))
		f := newFleet(t, append(objects(5), policy)...)
		f.pass()
		f.move("2.0.0")
		f.pass()
		if err := f.control.Delete(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		return f, policy
	}
	t.Run("Limit", func(t *testing.T) {
		f, _ := begin(t, false)
		f.pass()
		if r := f.rollout("keda-regular-r2"); r.Status.Runtimes.Updating != 1 {
			t.Errorf("without the policy, its limit does not hold: %+v", r.Status)
		}
	})
	t.Run("Suspended", func(t *testing.T) {
		f, _ := begin(t, true)
		f.pass()
		r := f.rollout("keda-regular-r2")
		if r.Status.Admitted != "" || r.Status.Phase != v1beta2.RolloutHeld ||
			r.Status.Blockers[0].Code != v1beta2.ReasonPolicyDeleted {
			t.Fatalf("without the policy, its suspension does not hold: %+v", r.Status)
		}
		r.Spec.Resumptions = []v1beta2.RolloutResumption{{By: "ann", Reason: "on purpose"}}
		if err := f.control.Update(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		f.pass()
		if r := f.rollout("keda-regular-r2"); r.Status.Runtimes.Updating != 1 || len(r.Status.Blockers) > 0 {
			t.Errorf("a person has resumed it: %+v", r.Status)
		}
	})
	t.Run("Renamed", func(t *testing.T) {
		f, policy := begin(t, false)
		renamed := policy.DeepCopy()
		renamed.Name, renamed.ResourceVersion, renamed.Spec.Suspend = "renamed", "", true
		if err := f.control.Create(t.Context(), renamed); err != nil {
			t.Fatal(err)
		}
		f.pass()
		r := f.rollout("keda-regular-r2")
		if r.Status.Admitted != "" || r.Status.Blockers[0].Code != v1beta2.ReasonRolloutSuspended {
			t.Errorf("the suspension of the renamed policy does not hold: %+v", r.Status)
		}
	})
}

// TestMover checks that the coordinator's record of a move of a channel contains the name of the field manager that
// wrote the version of the channel. If the field manager is not known, the record has no name.
func TestMover(t *testing.T) {
	for name, c := range map[string]struct {
		live client.Reader
		want string
	}{
		"Known":   {ownedByKlm{}, "klm"},
		"Unknown": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, objects(1)...)
			f.pass()
			if o, ok := c.live.(ownedByKlm); ok {
				o.Reader = f.control
				f.Live = o
			}
			f.move("2.0.0")
			f.pass()
			if h := f.status().History; len(h) != 2 || h[1].By != c.want {
				t.Errorf("history %+v, want by %q", h, c.want)
			}
		})
	}
}

// TestActiveModulesOf checks which modules are reconciled after a change of a Kyma: those that the Kyma has and that
// have an active rollout.
func TestActiveModulesOf(t *testing.T) {
	r := &Reconciler{active: map[string]bool{"keda": true, "agent": true, "nats": true}}
	k := &v1beta2.Kyma{Status: v1beta2.KymaStatus{
		Modules:          []v1beta2.ModuleStatus{{Name: "btp"}, {Name: "keda"}},
		MandatoryModules: []v1beta2.MandatoryModuleStatus{{Name: "agent"}, {Name: "warden"}}}}
	if diff := cmp.Diff([]string{"keda", "agent"}, r.activeModulesOf(k)); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
}

// BenchmarkActiveModulesOf measures the handler of an event of a Kyma, by the number of active rollouts.
func BenchmarkActiveModulesOf(b *testing.B) {
	for _, n := range []int{25, 250} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r, k := &Reconciler{active: map[string]bool{}}, &v1beta2.Kyma{}
			for i := range n {
				r.active[fmt.Sprint("other-", i)] = true
			}
			for i := range 50 {
				k.Status.Modules = append(k.Status.Modules, v1beta2.ModuleStatus{Name: fmt.Sprint("module-", i)})
			}
			for b.Loop() {
				r.activeModulesOf(k)
			}
		})
	}
}
