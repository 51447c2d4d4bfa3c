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
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/tombstone"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// leavingRun is a pass over a Kyma that is being deleted and has a module. Its runtime is known to be silent for so long, if it is.
func leavingRun(t *testing.T, deadline, silent time.Duration, writes interceptor.Funcs) (*run, *events.FakeRecorder) {
	t.Helper()
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "k", UID: "u", Finalizers: []string{v1beta2.FinalizerKyma}, DeletionTimestamp: &metav1.Time{Time: now.Add(-time.Hour)},
	}}
	if silent > 0 {
		k.Status.Conditions = []metav1.Condition{{Type: v1beta2.ConditionReachable, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-silent))}}
	}
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "k-m", Finalizers: []string{v1beta2.FinalizerManifest}, Labels: map[string]string{v1beta2.LabelKymaName: "k", v1beta2.LabelModuleName: "m"},
	}}
	m.Status.Synced = []v1beta2.Resource{{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: "of-m"}}
	c := fake.NewClientBuilder().WithScheme(kinds).WithObjects(k, m).WithInterceptorFuncs(writes).
		WithIndex(&v1beta2.Manifest{}, runtimes.KymaNameIndex, runtimes.KymaIndexValues).Build()
	told := events.NewFakeRecorder(10)
	r := &Reconciler{Options: Options{Client: c, Live: c, Namespace: "n", Base: &render.Bundle{}, Events: told, DeletionDeadline: deadline}}
	return &run{Reconciler: r, kyma: k, now: now}, told
}

func TestOutwait(t *testing.T) {
	says := func(code string) error { return &runtimes.Error{Code: code, Runtime: "k", Message: "it is so"} }
	unreachable := says(v1beta2.ReasonRuntimeUnreachable)
	cases := map[string]struct {
		reason           string
		err              error
		deadline, silent time.Duration
		givenUp, waits   bool
	}{
		"Off":          {"without a deadline it is waited for ever", unreachable, 0, time.Hour, false, false},
		"First":        {"the deadline begins when it is first seen, not with the deletion", unreachable, time.Minute, 0, false, true},
		"Early":        {"it may come back", unreachable, time.Minute, 50 * time.Second, false, true},
		"Late":         {"it has had its time", unreachable, time.Minute, 61 * time.Second, true, false},
		"Terminal":     {"whatever is around it", reconcile.TerminalError(fmt.Errorf("connecting: %w", unreachable)), time.Minute, time.Hour, true, false},
		"Unauthorized": {"nobody lets us in", says(v1beta2.ReasonRuntimeUnauthorized), time.Minute, time.Hour, true, false},
		"Forbidden":    {"nobody lets us work", refusal("no"), time.Minute, time.Hour, true, false},
		"Invalid":      {"nobody tells us the way", says(v1beta2.ReasonKubeconfigInvalid), time.Minute, time.Hour, true, false},
		"Refused":      {"or tells a way that we do not go", says(v1beta2.ReasonKubeconfigRefused), time.Minute, time.Hour, true, false},
		"NoSecret":     {"that is an answer of its own", says(v1beta2.ReasonAccessSecretNotFound), time.Minute, time.Hour, false, false},
		"TwoSecrets":   {"somebody here has to choose", says(v1beta2.ReasonAccessSecretAmbiguous), time.Minute, time.Hour, false, false},
		"ControlPlane": {"our own failure says nothing about the runtime", errors.New("reading the cache"), time.Minute, time.Hour, false, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			n, told := leavingRun(t, c.deadline, c.silent, interceptor.Funcs{})
			err := n.outwait(t.Context(), c.err)
			if n.givenUp != c.givenUp || c.givenUp != (err == nil) || (n.silent != nil) != c.waits {
				t.Fatalf("%s: given up %t, waits %t (%v), want %t and %t", c.reason, n.givenUp, n.silent != nil, err, c.givenUp, c.waits)
			}
			if !c.givenUp && !c.waits && !errors.Is(err, c.err) {
				t.Errorf("%s: got %v, want the error as it was", c.reason, err)
			}
			if c.waits && (loop.Reason(n.silent) != loop.Reason(c.err) || !strings.Contains(n.silent.Error(), "after 1m0s of that")) {
				t.Errorf("%s: waits for %v (%s), want the reason, and what will be", c.reason, n.silent, loop.Reason(n.silent))
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
			if err != nil || len(written) != 1 || written[0].Reason != loop.Reason(c.err) || written[0].Count() != 2 || written[0].UnreachableSince.IsZero() {
				t.Errorf("%s: tombstones %+v, %v, want one with the object of the module and the Kyma", c.reason, written, err)
			}
			if e := <-told.Events; !strings.Contains(e, "Warning DeletionGivenUp left 2 objects of 1 modules") {
				t.Errorf("%s: told %q", c.reason, e)
			}
		})
	}
}

func TestNothingIsLetGoWithoutATombstone(t *testing.T) {
	refuse := interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return errors.New("no")
	}}
	n, told := leavingRun(t, time.Minute, time.Hour, refuse)
	err := n.outwait(t.Context(), &runtimes.Error{Code: v1beta2.ReasonRuntimeUnreachable})
	if err == nil || n.givenUp || n.abandoned || n.kyma.Annotations[v1beta2.AnnotationDeletionGivenUp] != "" || len(told.Events) > 0 {
		t.Errorf("got %v, given up %t, want that it is tried again", err, n.givenUp)
	}
}

func TestTombstoneOfAFormerTryIsRenewed(t *testing.T) {
	n, _ := leavingRun(t, time.Minute, time.Hour, interceptor.Funcs{})
	former := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: tombstone.Name("k", "u", 0)}}
	if err := n.Client.Create(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	if err := n.outwait(t.Context(), &runtimes.Error{Code: v1beta2.ReasonRuntimeUnreachable}); err != nil {
		t.Fatal(err)
	}
	err := n.Client.Get(t.Context(), client.ObjectKeyFromObject(former), former)
	if err != nil || !strings.Contains(former.Data[tombstone.Key], "of-m") || n.kyma.Annotations[v1beta2.AnnotationDeletionGivenUp] != former.Name {
		t.Errorf("got %v, %q, annotation %q", err, former.Data, n.kyma.Annotations)
	}
}

func TestForbidden(t *testing.T) {
	of := func(reason string, leaving bool) *v1beta2.Manifest {
		m := &v1beta2.Manifest{}
		m.Status.Conditions = []metav1.Condition{{Type: v1beta2.ConditionReady, Status: metav1.ConditionFalse, Reason: reason}}
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
		"None":      {"nothing is in the way", nil, false},
		"All":       {"nothing moves on", map[string]*v1beta2.Manifest{"a": of(v1beta2.ReasonRuntimeForbidden, true), "b": of(v1beta2.ReasonRuntimeForbidden, true)}, true},
		"Some":      {"something may move on", map[string]*v1beta2.Manifest{"a": of(v1beta2.ReasonRuntimeForbidden, true), "b": of(v1beta2.ReasonObjectsRemaining, true)}, false},
		"NotAsked":  {"it is of before the deletion", map[string]*v1beta2.Manifest{"a": of(v1beta2.ReasonRuntimeForbidden, false)}, false},
		"UsersHave": {"users are waited for", map[string]*v1beta2.Manifest{"a": of(v1beta2.ReasonCustomResourceBlocksDeletion, true)}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := forbidden(c.manifests)
			if (err != nil) != c.want || c.want && !isSilence(err) {
				t.Errorf("%s: got %v, want %t", c.reason, err, c.want)
			}
		})
	}
}

func TestReportSilence(t *testing.T) {
	why := &silence{&runtimes.Error{Code: v1beta2.ReasonRuntimeUnauthorized}, time.Minute}
	cases := map[string]struct {
		reason string
		edit   func(*run)
		out    loop.Outcome
		want   bool
	}{
		"Silent":       {"it is said", func(n *run) { n.silent = why }, loop.Outcome{}, true},
		"Answers":      {"the runtime was worked on", func(*run) {}, loop.Outcome{}, false},
		"Unknown":      {"the pass did not get there", func(*run) {}, loop.Outcome{Err: errors.New("control plane")}, true},
		"GivenUp":      {"it stays as it was", func(n *run) { n.givenUp = true }, loop.Outcome{}, true},
		"NoDeadline":   {"nothing counts from it", func(n *run) { n.DeletionDeadline, n.silent = 0, nil }, loop.Outcome{Err: errors.New("any")}, false},
		"NoDeletion":   {"it is about deletions only", func(n *run) { n.kyma.DeletionTimestamp = nil }, loop.Outcome{Err: errors.New("any")}, false},
		"StillWaiting": {"modules are waited for, and the runtime answers", func(*run) {}, loop.Outcome{Waiting: "modules"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			n, _ := leavingRun(t, time.Minute, time.Hour, interceptor.Funcs{})
			c.edit(n)
			n.report(c.out)
			is := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionReachable)
			if (is != nil) != c.want || is != nil && time.Since(is.LastTransitionTime.Time) < 50*time.Minute {
				t.Errorf("%s: the condition is %+v, want that it is there: %t, since an hour", c.reason, is, c.want)
			}
			ready := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionReady)
			if n.silent != nil && (ready.Reason != v1beta2.ReasonRuntimeUnauthorized || !strings.Contains(n.kyma.Status.LastOperation.Operation, "is given up")) {
				t.Errorf("%s: Ready is %+v, operation %q", c.reason, ready, n.kyma.Status.LastOperation.Operation)
			}
		})
	}
}
