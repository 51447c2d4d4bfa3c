package watcher

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// bench is one reconcile of a Watcher with an HTTPRoute. The fake API server of bench sets a default for a field of the
// route's spec that the controller does not set.
type bench struct {
	*run
	server *fake.FakeDynamicClient
	route  *route
}

func newBench(t *testing.T) *bench {
	t.Helper()
	gvr := schema.GroupVersionResource{Group: groupGatewayAPI, Version: "v1", Resource: "httproutes"}
	server := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{gvr: "HTTPRouteList"})
	server.PrependReactor("*", "httproutes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a, ok := a.(interface{ GetObject() runtime.Object }); ok {
			spec := a.GetObject().(*unstructured.Unstructured).Object["spec"].(map[string]any)
			spec["timeout"] = "1s"
		}
		return false, nil, nil
	})
	w := aWatcher()
	r := &route{plan: planHTTPRoute(w, "", true), gvr: gvr}
	return &bench{run: &run{Reconciler: &Reconciler{routes: server, written: map[string]writtenRoute{}}, watcher: w,
		desired: []*route{r}}, server: server, route: r}
}

// verbs returns the verbs of the requests that the fake API server has received since verbs was last called.
func (b *bench) verbs() []string {
	var all []string
	for _, a := range b.server.Actions() {
		all = append(all, a.GetVerb())
	}
	b.server.ClearActions()
	return all
}

// refresh reads the route from the fake server, edits it with the function in the parameter change, and stores the
// edited route as the current route.
func (b *bench) refresh(t *testing.T, change func(*unstructured.Unstructured)) {
	t.Helper()
	u, err := b.server.Resource(b.route.gvr).Namespace("kcp-system").Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change(u)
	b.server.ClearActions()
	b.route.current = u
}

func TestRouteIsWrittenOnChangeOnly(t *testing.T) {
	b := newBench(t)
	cases := []struct {
		reason string
		change func(*unstructured.Unstructured)
		want   []string
	}{
		{"it exists, with a default that we do not know", func(*unstructured.Unstructured) {}, nil},
		{"others may add labels and owners", func(u *unstructured.Unstructured) {
			u.SetLabels(map[string]string{"a": "b", v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager})
			u.SetOwnerReferences(append(u.GetOwnerReferences(),
				metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "2"}))
		}, nil},
		{"another writer added a field", func(u *unstructured.Unstructured) {
			u.Object["spec"].(map[string]any)["other"] = "x"
		}, []string{"update"}},
		{"another writer removed the label", func(u *unstructured.Unstructured) { u.SetLabels(nil) },
			[]string{"update"}},
		{"its owner is a former Watcher of that name", func(u *unstructured.Unstructured) {
			refs := u.GetOwnerReferences()
			refs[0].UID = "0"
			u.SetOwnerReferences(refs)
		}, []string{"update"}},
	}
	if err := b.applyRoutes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"create"}, b.verbs()); diff != "" {
		t.Fatalf("a missing route is created (-want +got):\n%s", diff)
	}
	for _, c := range cases {
		b.refresh(t, c.change)
		if err := b.applyRoutes(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, b.verbs()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, diff)
		}
	}
}

func TestRouteOfOthersStays(t *testing.T) {
	b := newBench(t)
	b.route.current = &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	if err := b.applyRoutes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.route.reason != v1beta2.ReasonRouteConflict || b.verbs() != nil {
		t.Errorf("reason is %q", b.route.reason)
	}
	if err := b.removeRoutes(t.Context()); err != nil || b.verbs() != nil {
		t.Errorf("it has to stay when the Watcher is deleted: %v", err)
	}
}

func TestErrorsOfWrites(t *testing.T) {
	resource, kind := schema.GroupResource{Resource: "httproutes"}, schema.GroupKind{Kind: kindHTTPRoute}
	cases := map[string]struct {
		reason   string
		err      error
		want     string // reason of the error
		conflict bool
	}{
		"Forbidden": {"a permission is missing", apierrors.NewForbidden(resource, "w", nil),
			v1beta2.ReasonControlPlaneForbidden, false},
		"Invalid": {"the CRD rejects it", apierrors.NewInvalid(kind, "w", nil), v1beta2.ReasonRouteRefused, false},
		"Other": {"it is tried again", apierrors.NewInternalError(apierrors.NewBadRequest("x")),
			v1beta2.ReasonInternalError, false},
		"Exists": {"the cache does not have it yet, so it is read again", apierrors.NewAlreadyExists(resource, "w"),
			"", true},
		"Deleting": {"while the CRD is being deleted, no object can be created", apierrors.NewMethodNotSupported(
			resource, "create"), "", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.server.PrependReactor("create", "httproutes", func(clienttesting.Action) (bool, runtime.Object,
				error) {
				return true, nil, c.err
			})
			err := b.applyRoutes(t.Context())
			if err == nil || loop.Reason(err) != c.want || apierrors.IsConflict(err) != c.conflict {
				t.Errorf("%s: %v has reason %q", c.reason, err, loop.Reason(err))
			}
		})
	}
}

func TestOwnWriteIsNoEvent(t *testing.T) {
	r := &Reconciler{written: map[string]writtenRoute{"HTTPRoute kcp-system/w": {version: "7"}}}
	u := &unstructured.Unstructured{}
	u.SetKind(kindHTTPRoute)
	u.SetNamespace("kcp-system")
	u.SetName("w")
	for version, want := range map[string]bool{"7": true, "8": false} {
		u.SetResourceVersion(version)
		if got := r.isOwnWrite(u); got != want {
			t.Errorf("version %s is our own: %t", version, got)
		}
	}
}

func TestIsRelevantUpdate(t *testing.T) {
	now := metav1.Now()
	cases := map[string]struct {
		change func(client.Object)
		want   bool
	}{
		"Status":     {func(o client.Object) { o.(*v1beta2.Watcher).Status.State = v1beta2.StateReady }, false},
		"Annotation": {func(o client.Object) { o.SetAnnotations(map[string]string{"a": "b"}) }, false},
		"Spec":       {func(o client.Object) { o.SetGeneration(9) }, true},
		"Label":      {func(o client.Object) { o.SetLabels(map[string]string{v1beta2.LabelManagedBy: "x"}) }, true},
		"Deletion":   {func(o client.Object) { o.SetDeletionTimestamp(&now) }, true},
		"Finalizer":  {func(o client.Object) { o.SetFinalizers([]string{"a"}) }, true},
	}
	for name, c := range cases {
		before, after := aWatcher(), aWatcher()
		c.change(after)
		if got := isRelevantUpdate(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != c.want {
			t.Errorf("%s: isRelevantUpdate is %t", name, got)
		}
	}
}
