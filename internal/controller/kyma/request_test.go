package kyma

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

func TestLastRequest(t *testing.T) {
	kyma := func(channel string, modules ...v1beta2.Module) *v1beta2.Kyma {
		return &v1beta2.Kyma{Spec: v1beta2.KymaSpec{Channel: channel, Modules: modules}}
	}
	keda := v1beta2.Module{Name: "keda", Channel: "fast"}
	over := kyma("fast", keda)
	over.Annotations = map[string]string{v1beta2.AnnotationStartOver: "true"}
	var many []v1beta2.Module
	for range 10000 {
		many = append(many, keda)
	}
	cases := map[string]struct {
		reason   string
		remote   *v1beta2.Kyma
		want     v1beta2.KymaSpec
		restored bool
	}{
		"Same": {"the spec in the control plane need not be stored", kyma("regular"),
			v1beta2.KymaSpec{Channel: "regular"}, false},
		"Module": {"a module that the admin has added is restored", kyma("regular", keda),
			v1beta2.KymaSpec{Channel: "regular", Modules: []v1beta2.Module{keda}}, true},
		"Channel":   {"so is another channel", kyma("fast"), v1beta2.KymaSpec{Channel: "fast"}, true},
		"StartOver": {"unless the admin wants to start over", over, v1beta2.KymaSpec{Channel: "regular"}, false},
		"TooMuch": {"the annotation is too large", kyma("fast", many...),
			v1beta2.KymaSpec{Channel: "regular"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			here := kyma("regular")
			c.want.SkipMaintenanceWindows, here.Spec.SkipMaintenanceWindows = true, true
			if text := encodeLastRequestIfNeeded(here, c.remote); text != "" {
				here.Annotations = map[string]string{v1beta2.AnnotationLastRequest: text}
			}
			got, restored := channel.LastRuntimeSpecOf(here)
			if diff := cmp.Diff(c.want, got); diff != "" || restored != c.restored {
				t.Errorf("%s: restored is %v, want %v (-want +got):\n%s", c.reason, restored, c.restored, diff)
			}
		})
	}
	broken := kyma("regular")
	broken.Annotations = map[string]string{v1beta2.AnnotationLastRequest: "{"}
	if spec, restored := channel.LastRuntimeSpecOf(broken); restored || spec.Channel != "regular" {
		t.Errorf("an annotation that cannot be decoded gives %+v, %v", spec, restored)
	}
}

// TestRecreatedKymaStaysPaused checks that a Kyma that somebody deletes in the runtime is created again with its pauses
// and deferrals, but without the annotations that permit something.
func TestRecreatedKymaStaysPaused(t *testing.T) {
	const paused = v1beta2.AnnotationPausedModulePrefix
	spec := v1beta2.KymaSpec{Channel: "regular"}
	here, remote := &v1beta2.Kyma{Spec: spec}, &v1beta2.Kyma{Spec: spec}
	remote.Annotations = map[string]string{paused + "plain": "debugging", paused + "sample": "false",
		v1beta2.AnnotationNotBefore: "2030-01-01", v1beta2.AnnotationAllowDowngrade: "plain",
		v1beta2.AnnotationOwner: "former"}
	here.Annotations = map[string]string{v1beta2.AnnotationLastRequest: encodeLastRequestIfNeeded(here, remote)}
	made, restored := newRemote(here, nil, map[string]string{v1beta2.AnnotationOwner: "now"})
	want := map[string]string{paused + "plain": "debugging", v1beta2.AnnotationNotBefore: "2030-01-01",
		v1beta2.AnnotationOwner: "now"}
	if diff := cmp.Diff(want, made.Annotations); diff != "" || !restored {
		t.Errorf("restored is %v (-want +got):\n%s", restored, diff)
	}
	remote.Annotations = map[string]string{paused + "sample": "false"}
	if text := encodeLastRequestIfNeeded(here, remote); text != "" {
		t.Errorf("nothing is paused, but %s is stored", text)
	}
}

func TestRequeueWhenTheWindowOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opens := func(in time.Duration) *run {
			pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{},
				PollIntervals: runtimes.PollIntervals{Unwatched: time.Hour}})
			if err != nil {
				t.Fatal(err)
			}
			n := &run{Reconciler: &Reconciler{Options: Options{Runtimes: pool}},
				kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, now: time.Now()}
			n.modules = []plan.Module{
				{Decision: channel.Decision{Blocker: &channel.Blocker{Code: v1beta2.ReasonWaitingForWindow,
					Until: time.Now().Add(in)}}}}
			return n
		}
		for _, in := range []time.Duration{10 * time.Minute, -time.Second} {
			result, err := loop.Run(t.Context(), loop.Options{Object: &v1beta2.Kyma{}},
				loop.Step{Name: "requeue", Do: opens(in).requeue})
			if got, want := result.RequeueAfter, max(in, time.Millisecond); err != nil || got != want {
				t.Errorf("for a window that opens in %s, the Kyma is requeued after %s, %v, want %s", in, got, err,
					want)
			}
		}
	})
}

func TestSettle(t *testing.T) {
	failed := errors.New("registry is down")
	n := &run{Reconciler: &Reconciler{}, kyma: &v1beta2.Kyma{}, now: time.Now()}
	n.modules = []plan.Module{{IsMandatory: true, Err: failed}}
	if err := n.reportBlockersAndErrors(t.Context()); err == nil || errors.Is(err, failed) {
		t.Errorf("a mandatory module that failed ends with %v, want a recheck", err)
	}
	n.modules = append(n.modules, plan.Module{Err: failed})
	if err := n.reportBlockersAndErrors(t.Context()); !errors.Is(err, failed) {
		t.Errorf("a module that failed ends with %v, want its error", err)
	}
}

// TestAgentDespiteRefusedCatalog checks that the reconcile goes on, so that the agent is delivered, if the runtime
// refuses the catalog copy. The error is returned later.
func TestAgentDespiteRefusedCatalog(t *testing.T) {
	const api = "/apis/operator.kyma-project.io/v1beta2"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == api {
			_ = json.NewEncoder(w).Encode(metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"},
				APIResources: []metav1.APIResource{
					{Name: "moduletemplates", Kind: v1beta2.KindModuleTemplate, Namespaced: true}}})
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
			Message: `moduletemplates.operator.kyma-project.io is forbidden: User "x" cannot list resource`})
	}))
	t.Cleanup(server.Close)
	b := newDeletionBench(t, accessSecret(t, server.URL))
	rt, err := b.Runtimes.GetBeforeOwnerVerified(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	n := &run{Reconciler: b.Reconciler, kyma: b.kyma, runtime: rt, remote: &v1beta2.Kyma{}, now: time.Now()}
	if err := n.syncCatalog(t.Context()); err != nil || n.found.catalogSynced {
		t.Fatalf("the step catalog ends the reconcile with %v", err)
	}
	if err := n.reportBlockersAndErrors(t.Context()); loop.Reason(err) != v1beta2.ReasonRuntimeForbidden {
		t.Errorf("the step settle returns %v, want that the runtime refuses the catalog copy", err)
	}
}

// TestAgentDespiteFailedModule checks that a module with an error, which may last for weeks, does not keep the agent
// from being delivered and renewed.
func TestAgentDespiteFailedModule(t *testing.T) {
	refused := errors.New("the patch is refused")
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a",
		Annotations: map[string]string{v1beta2.AnnotationPausedModulePrefix + "keda": "a test"}},
		Spec: v1beta2.KymaSpec{Channel: "regular", Modules: []v1beta2.Module{{Name: "keda"}}}}
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a-keda",
		Labels: map[string]string{v1beta2.LabelKymaName: "a", v1beta2.LabelModuleName: "keda",
			v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager}}}
	r := fleet(t, 0, k, m)
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{Patch: func(ctx context.Context,
		c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if _, isManifest := o.(*v1beta2.Manifest); isManifest {
			return refused
		}
		return c.Patch(ctx, o, patch, opts...)
	}})
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	var err error
	if r.Runtimes, err = runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{Host: server.URL}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Runtimes.Remove("a") })
	r.InCluster, r.ControlPlaneID, r.Urgent = true, "cp", queueing.NewUrgent()
	var steps []string
	r.AfterStep = func(step string) { steps = append(steps, step) }
	_, err = r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(k)})
	if !errors.Is(err, refused) || !slices.Contains(steps, "agent") {
		t.Errorf("after the steps %q: %v, want the step agent, and the error of the module", steps, err)
	}
}
