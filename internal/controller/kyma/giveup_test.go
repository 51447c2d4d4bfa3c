package kyma

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
	"github.com/kyma-fleet/lifecycle-manager/internal/tombstone"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// deletionRun prepares a reconcile of a Kyma that is being deleted and has one module, with fake clients. If the
// parameter unavailable is positive, the runtime has been unavailable for this time.
func deletionRun(t *testing.T, deadline, unavailable time.Duration, writes interceptor.Funcs) (
	*run, *events.FakeRecorder) {
	t.Helper()
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "k", UID: "u", Finalizers: []string{v1beta2.FinalizerKyma},
		DeletionTimestamp: &metav1.Time{Time: now.Add(-time.Hour)},
	}}
	if unavailable > 0 {
		k.Status.Conditions = []metav1.Condition{{Type: v1beta2.ConditionReachable, Status: metav1.ConditionFalse,
			LastTransitionTime: metav1.NewTime(now.Add(-unavailable))}}
	}
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "k-m", Finalizers: []string{v1beta2.FinalizerManifest},
		Labels: map[string]string{v1beta2.LabelKymaName: "k", v1beta2.LabelModuleName: "m"},
	}}
	m.Status.Synced = []v1beta2.Resource{{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: "of-m"}}
	c := fake.NewClientBuilder().WithScheme(kinds).WithObjects(k, m).WithInterceptorFuncs(writes).
		WithIndex(&v1beta2.Manifest{}, runtimes.KymaNameIndex, runtimes.KymaIndexValues).Build()
	recorded := events.NewFakeRecorder(10)
	r := testReconciler(t, Options{Client: c, Live: c, Namespace: "n", Base: &render.Bundle{}, Events: recorded,
		DeletionDeadline: deadline})
	return &run{Reconciler: r, kyma: k, now: now}, recorded
}

func TestWaitOrGiveUp(t *testing.T) {
	says := func(code string) error { return &runtimes.Error{Code: code, Runtime: "k", Message: "it is so"} }
	unreachable := says(v1beta2.ReasonRuntimeUnreachable)
	cases := map[string]struct {
		reason          string
		err             error
		deadline, since time.Duration
		givenUp, waits  bool
	}{
		"Off": {reason: "without a deadline there is no limit", err: unreachable, since: time.Hour},
		"First": {
			reason:   "the time counts from when the runtime is first unavailable, not from the deletion",
			err:      unreachable,
			deadline: time.Minute,
			waits:    true,
		},
		"Early": {
			reason:   "it may become available again",
			err:      unreachable,
			deadline: time.Minute,
			since:    50 * time.Second,
			waits:    true,
		},
		"Late": {
			reason:   "the deadline has passed",
			err:      unreachable,
			deadline: time.Minute,
			since:    61 * time.Second,
			givenUp:  true,
		},
		"Terminal": {
			reason:   "a wrapped error counts too",
			err:      reconcile.TerminalError(fmt.Errorf("connecting: %w", unreachable)),
			deadline: time.Minute,
			since:    time.Hour,
			givenUp:  true,
		},
		"Unauthorized": {
			reason:   "the credentials are refused",
			err:      says(v1beta2.ReasonRuntimeUnauthorized),
			deadline: time.Minute,
			since:    time.Hour,
			givenUp:  true,
		},
		"Forbidden": {
			reason:   "a permission is missing",
			err:      forbiddenError("no"),
			deadline: time.Minute,
			since:    time.Hour,
			givenUp:  true,
		},
		"Invalid": {
			reason:   "the kubeconfig is invalid",
			err:      says(v1beta2.ReasonKubeconfigInvalid),
			deadline: time.Minute,
			since:    time.Hour,
			givenUp:  true,
		},
		"Refused": {
			reason:   "or refused",
			err:      says(v1beta2.ReasonKubeconfigRefused),
			deadline: time.Minute,
			since:    time.Hour,
			givenUp:  true,
		},
		"NoSecret": {
			reason:   "the cluster does not exist any more",
			err:      says(v1beta2.ReasonAccessSecretNotFound),
			deadline: time.Minute,
			since:    time.Hour,
		},
		"TwoSecrets": {
			reason:   "somebody has to delete one",
			err:      says(v1beta2.ReasonAccessSecretAmbiguous),
			deadline: time.Minute,
			since:    time.Hour,
		},
		"ControlPlane": {
			reason:   "a failure of the control plane does not count",
			err:      errors.New("reading the cache"),
			deadline: time.Minute,
			since:    time.Hour,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			n, recorded := deletionRun(t, c.deadline, c.since, interceptor.Funcs{})
			err := n.waitOrGiveUp(t.Context(), c.err)
			if (n.deletion.runtimeLeft == leftAfterDeadline) != c.givenUp || c.givenUp != (err == nil) ||
				(n.deletion.unavailable != nil) != c.waits {
				t.Fatalf("%s: given up %t, waits %t (%v), want %t and %t", c.reason,
					n.deletion.runtimeLeft == leftAfterDeadline, n.deletion.unavailable != nil, err, c.givenUp, c.waits)
			}
			if !c.givenUp && !c.waits && !errors.Is(err, c.err) {
				t.Errorf("%s: got %v, want the error as it was", c.reason, err)
			}
			if c.waits && (loop.Reason(n.deletion.unavailable) != loop.Reason(c.err) ||
				!strings.Contains(n.deletion.unavailable.Error(), "if this lasts for 1m0s")) {
				t.Errorf("%s: waits for %v (%s), want the reason and the deadline", c.reason, n.deletion.unavailable,
					loop.Reason(n.deletion.unavailable))
			}
			var maps corev1.ConfigMapList
			if err := n.Client.List(t.Context(), &maps); err != nil {
				t.Fatal(err)
			}
			if !c.givenUp {
				if len(maps.Items) > 0 || n.kyma.Annotations[v1beta2.AnnotationDeletionGivenUp] != "" {
					t.Errorf("%s: there is a tombstone", c.reason)
				}
				return
			}
			written, err := tombstone.Read(maps.Items)
			if err != nil || len(written) != 1 || written[0].Reason != loop.Reason(c.err) ||
				written[0].ObjectCount() != 2 ||
				written[0].UnreachableSince.IsZero() {
				t.Errorf("%s: tombstones %+v, %v, want one with the object of the module and the Kyma", c.reason,
					written, err)
			}
			if e := <-recorded.Events; !strings.Contains(e, "Warning DeletionGivenUp 2 objects of 1 modules") {
				t.Errorf("%s: event %q", c.reason, e)
			}
		})
	}
}

// TestWaitForAnswer checks that a deletion reports that it waits for the answer of a runtime, but does not change when
// the runtime became unavailable.
func TestWaitForAnswer(t *testing.T) {
	unanswered := fmt.Errorf("reading: %w", &runtimes.UnansweredError{})
	n, _ := deletionRun(t, time.Minute, 0, interceptor.Funcs{})
	if _, isWaiting := loop.WaitDelay(n.waitOrGiveUp(t.Context(), unanswered)); !isWaiting {
		t.Error("the deletion does not say that it waits for an answer")
	}
	n, _ = deletionRun(t, time.Minute, time.Hour, interceptor.Funcs{})
	if err := n.waitOrGiveUp(t.Context(), unanswered); !runtimes.IsUnanswered(err) {
		t.Errorf("%v, want an error that keeps the status of a runtime that is already unavailable", err)
	}
	n, _ = deletionRun(t, time.Minute, 0, interceptor.Funcs{})
	n.deletion.isFirst = true
	if err := n.waitOrGiveUp(t.Context(), unanswered); !runtimes.IsUnanswered(err) {
		t.Errorf("%v, want an error that keeps the status until the runtime can show it, too", err)
	}
}

func TestNothingIsGivenUpWithoutATombstone(t *testing.T) {
	refuse := interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object,
		...client.CreateOption) error {
		return errors.New("no")
	}}
	n, recorded := deletionRun(t, time.Minute, time.Hour, refuse)
	err := n.waitOrGiveUp(t.Context(), &runtimes.Error{Code: v1beta2.ReasonRuntimeUnreachable})
	if err == nil || n.deletion.runtimeLeft != "" || n.kyma.Annotations[v1beta2.AnnotationDeletionGivenUp] != "" ||
		len(recorded.Events) > 0 {
		t.Errorf("got %v, runtime left because of %q, want an error that is retried", err, n.deletion.runtimeLeft)
	}
}

func TestFormerTombstoneIsUpdated(t *testing.T) {
	n, _ := deletionRun(t, time.Minute, time.Hour, interceptor.Funcs{})
	former := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: tombstone.Name("k", "u", 0)}}
	if err := n.Client.Create(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	if err := n.waitOrGiveUp(t.Context(), &runtimes.Error{Code: v1beta2.ReasonRuntimeUnreachable}); err != nil {
		t.Fatal(err)
	}
	err := n.Client.Get(t.Context(), client.ObjectKeyFromObject(former), former)
	if err != nil || !strings.Contains(former.Data[tombstone.Key], "of-m") ||
		n.kyma.Annotations[v1beta2.AnnotationDeletionGivenUp] != former.Name {
		t.Errorf("got %v, %q, annotation %q", err, former.Data, n.kyma.Annotations)
	}
}

func TestForbidden(t *testing.T) {
	of := func(reason string, leaving bool) *v1beta2.Manifest {
		m := &v1beta2.Manifest{}
		m.Status.Conditions = []metav1.Condition{{Type: v1beta2.ConditionReady,
			Status: metav1.ConditionFalse, Reason: reason}}
		if leaving {
			m.DeletionTimestamp = new(metav1.Now())
		}
		return m
	}
	cases := map[string]struct {
		reason    string
		manifests map[string]*v1beta2.Manifest
		want      bool
	}{
		"None": {"there are no Manifests", nil, false},
		"All": {"no module makes progress", map[string]*v1beta2.Manifest{"a": of(v1beta2.ReasonRuntimeForbidden,
			true), "b": of(v1beta2.ReasonRuntimeForbidden, true)}, true},
		"Some": {"one module may make progress",
			map[string]*v1beta2.Manifest{"a": of(v1beta2.ReasonRuntimeForbidden, true),
				"b": of(v1beta2.ReasonObjectsRemaining, true)}, false},
		"NotAsked": {"the status is that before the deletion",
			map[string]*v1beta2.Manifest{"a": of(v1beta2.ReasonRuntimeForbidden, false)}, false},
		"UsersHave": {"the deletion waits for users",
			map[string]*v1beta2.Manifest{"a": of(v1beta2.ReasonCustomResourceBlocksDeletion, true)}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := permissionMissingForAll(c.manifests)
			if (err != nil) != c.want || c.want && !isRuntimeUnreachableOrForbidden(err) {
				t.Errorf("%s: got %v, want %t", c.reason, err, c.want)
			}
		})
	}
}

func TestReportReachable(t *testing.T) {
	why := &unavailableError{&runtimes.Error{Code: v1beta2.ReasonRuntimeUnauthorized}, time.Minute}
	cases := map[string]struct {
		reason string
		edit   func(*run)
		out    loop.Outcome
		want   bool
	}{
		"Silent":  {"the condition is set", func(n *run) { n.deletion.unavailable = why }, loop.Outcome{}, true},
		"Answers": {"requests to the runtime succeeded", func(*run) {}, loop.Outcome{}, false},
		"Unknown": {"the reconcile failed before", func(*run) {}, loop.Outcome{Err: errors.New("control plane")},
			true},
		"GivenUp": {"the condition stays", func(n *run) { n.deletion.runtimeLeft = leftAfterDeadline },
			loop.Outcome{}, true},
		"NoDeadline": {"there is no deadline", func(n *run) { n.DeletionDeadline, n.deletion.unavailable = 0, nil },
			loop.Outcome{Err: errors.New("any")}, false},
		"NoDeletion": {"the Kyma is not being deleted", func(n *run) { n.kyma.DeletionTimestamp = nil },
			loop.Outcome{Err: errors.New("any")}, false},
		"StillWaiting": {"modules are waited for, and the runtime is available", func(*run) {},
			loop.Outcome{Waiting: "modules"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			n, _ := deletionRun(t, time.Minute, time.Hour, interceptor.Funcs{})
			c.edit(n)
			n.report(c.out)
			is := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionReachable)
			if (is != nil) != c.want || is != nil && time.Since(is.LastTransitionTime.Time) < 50*time.Minute {
				t.Errorf("%s: the condition is %+v, want it: %t, since an hour", c.reason, is, c.want)
			}
			ready := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionReady)
			if n.deletion.unavailable != nil && (ready.Reason != v1beta2.ReasonRuntimeUnauthorized ||
				!strings.Contains(n.kyma.Status.LastOperation.Operation, "is given up")) {
				t.Errorf("%s: Ready is %+v, operation %q", c.reason, ready, n.kyma.Status.LastOperation.Operation)
			}
		})
	}
}

// TestVerifyNoManifestsIsRemembered checks that a deletion that waits for the runtime does not list the Manifests of
// the whole control plane in each reconcile.
func TestVerifyNoManifestsIsRemembered(t *testing.T) {
	n, _ := deletionRun(t, 0, 0, interceptor.Funcs{})
	lists := 0
	cached := n.Client
	n.Shards, n.Certain = &shard.Keeper{}, interceptor.NewClient(cached.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			lists++
			return c.List(ctx, list, opts...)
		}})
	verify := func(want int) {
		t.Helper()
		for range 3 {
			n = &run{Reconciler: n.Reconciler, kyma: n.kyma, now: n.now.Add(time.Second)}
			err := n.verifyNoManifests(t.Context())
			if isLeft := want == 3; (err != nil) != isLeft {
				t.Errorf("got %v, want an error only while there is a Manifest: %t", err, isLeft)
			}
		}
		if lists != want {
			t.Errorf("%d lists, want %d", lists, want)
		}
	}
	verify(3) // a Manifest that is left is searched again each time
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "k-m"}}
	if err := cached.Patch(t.Context(), m, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	if err := cached.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	verify(4)
	n.now = n.now.Add(time.Minute)
	verify(5)
}

// TestAwaitFinalizers checks that the status of a Kyma names the finalizer of another controller after the Kyma
// controller has removed its own finalizer. The step awaitOtherFinalizers needs neither the runtime nor the modules.
func TestAwaitFinalizers(t *testing.T) {
	n, _ := deletionRun(t, 0, 0, interceptor.Funcs{})
	n.kyma.Finalizers = append(n.kyma.Finalizers, "example.com/hold")
	if n.isDeletionStuck() || loop.WaitForForeignFinalizers(n.kyma,
		[]string{v1beta2.FinalizerKyma}) != nil {
		t.Error("with its own finalizer, the deletion does not wait for others")
	}
	n.kyma.Finalizers = n.kyma.Finalizers[1:]
	err := n.awaitOtherFinalizers(t.Context())
	if err == nil || !n.isDeletionStuck() {
		t.Fatalf("the deletion does not wait, or others are not admitted: %v", err)
	}
	n.report(loop.Outcome{Step: "finalizers", Waiting: err.Error()})
	c := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionReady)
	operation := n.kyma.Status.LastOperation.Operation
	if c.Reason != v1beta2.ReasonFinalizersRemaining || !strings.Contains(operation, "finalizer example.com/hold:") {
		t.Errorf("reason %s, last operation %q", c.Reason, operation)
	}
}
