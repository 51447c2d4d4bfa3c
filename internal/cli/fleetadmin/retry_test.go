package fleetadmin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetstatus"
)

const manifests = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/manifests"

// runtimeIn returns the Kyma and the Manifest of a runtime whose only module has the given state and reason.
func runtimeIn(name string, state v1beta2.State, reason string) []client.Object {
	k := fixture.Kyma(state, v1beta2.Module{Name: "sample"}, v1beta2.ModuleStatus{Name: "sample", Version: "1.0.0",
		State: state, Reason: reason})
	m := fixture.Manifest("1.0.0", "1.0.0")
	k.Name, m.Name, m.Namespace = name, name+"-sample-1", "kcp-system"
	m.Labels[v1beta2.LabelKymaName], m.Status.State = name, state
	return []client.Object{k, &m}
}

// leaderLease returns the Lease of a leader. The Lease was last renewed the given duration before the present time of
// the tests.
func leaderLease(before time.Duration) client.Object {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: v1beta2.LeaderLease, Namespace: "kcp-system"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("pod-1"), LeaseDurationSeconds: new(int32(15)),
			RenewTime: &metav1.MicroTime{Time: fixture.BeforeNoon(before).Time}}}
}

// TestRetry checks which object is annotated, when klm returns, and which objects are not retried.
func TestRetry(t *testing.T) {
	failing := runtimeIn("runtime-a", v1beta2.StateError, v1beta2.ReasonRuntimeUnreachable)
	installed := runtimeIn("runtime-a", v1beta2.StateError, v1beta2.ReasonArtifactNotFound)
	installed[1].(*v1beta2.Manifest).Status.State = v1beta2.StateReady
	paused := runtimeIn("runtime-a", v1beta2.StateError, "")
	paused[0].SetAnnotations(map[string]string{v1beta2.AnnotationPaused: "ask Kim"})
	skipped := runtimeIn("runtime-a", v1beta2.StateError, "")
	skipped[0].SetLabels(map[string]string{v1beta2.LabelSkipReconciliation: v1beta2.ValueTrue})
	kyma, manifest := "PATCH "+kymas+"/runtime-a", "PATCH "+manifests+"/runtime-a-sample-1"
	cases := map[string]struct {
		fixture.Case
		objects []client.Object
		mended  bool // the manager makes the runtime Ready
		writes  []string
	}{
		"Runtime": {fixture.Case{Reason: "the Kyma stands for all its modules", Args: "retry runtime-a",
			Want: []string{"runtime-a is Ready"}}, failing, true, []string{kyma}},
		"Module": {fixture.Case{Reason: "only one module, by its Manifest", Args: "retry runtime-a sample",
			Code: console.ExitOK, Want: []string{"module sample of runtime-a is tried again"}}, failing, false,
			[]string{manifest}},
		"Upgrade": {fixture.Case{Reason: "the next version of an installed module has no Manifest yet",
			Args: "retry runtime-a sample", Want: []string{"module sample of runtime-a is Ready"}}, installed, true,
			[]string{kyma}},
		"Blocked": {fixture.Case{Reason: "it shows what is in the way until the timeout",
			Args: "retry runtime-a --timeout=20ms", Code: console.ExitNotReady,
			Want: []string{"not done after 20ms: Error: something"}}, failing, false, []string{kyma}},
		"Ready": {fixture.Case{Reason: "nothing is written if nothing failed", Args: "retry runtime-a",
			Want: []string{"there is nothing to retry"}}, runtimeIn("runtime-a", v1beta2.StateReady, ""), false, nil},
		"ReadyModule": {fixture.Case{Reason: "likewise", Args: "retry runtime-a sample",
			Want: []string{"there is nothing to retry"}}, runtimeIn("runtime-a", v1beta2.StateReady, ""), false, nil},
		"Unknown": {fixture.Case{Reason: "a wrong name", Args: "retry runtime-b", Code: console.ExitNotFound,
			Want: []string{"did you mean runtime-a?"}}, failing, false, nil},
		"UnknownModule": {fixture.Case{Reason: "a wrong module", Args: "retry runtime-a smaple",
			Code: console.ExitNotFound, Want: []string{"did you mean sample?"}}, failing, false, nil},
		"Paused": {fixture.Case{Reason: "a retry would do nothing", Args: "retry runtime-a", Code: console.ExitNotReady,
			Want: []string{"runtime-a is not retried: ", "ask Kim"}}, paused, false, nil},
		"Skipped": {fixture.Case{Reason: "likewise", Args: "retry runtime-a", Code: console.ExitNotReady,
			Want: []string{"remove the label operator.kyma-project.io/skip-reconciliation"}}, skipped, false, nil},
		"NoManager": {fixture.Case{Reason: "nobody would act on it", Args: "retry runtime-a",
			Code: console.ExitNoManager, Want: []string{"nothing was requested: no manager works"}}, append(slices.Clone(failing),
			leaderLease(time.Hour)), false, nil},
		"Nothing": {fixture.Case{Reason: "neither a runtime nor a state", Args: "retry", Code: console.ExitUsage,
			Want: []string{"RUNTIME is missing"}}, failing, false, nil},
		"Both": {fixture.Case{Reason: "a runtime and a state", Args: "retry --state=Error runtime-a sample",
			Code: console.ExitUsage, Want: []string{"--state is in place of RUNTIME"}}, failing, false, nil},
		"WrongState": {fixture.Case{Reason: "a state in which nothing fails", Args: "retry --state=Ready",
			Code: console.ExitUsage, Want: []string{`"Ready" is none of Error, Warning`}}, failing, false, nil},
		"Selector": {fixture.Case{Reason: "a selector of one runtime", Args: "retry runtime-a -l a=b",
			Code: console.ExitUsage, Want: []string{"--selector is in place of RUNTIME"}}, failing, false, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			for _, o := range c.objects {
				objects = append(objects, o.DeepCopyObject().(client.Object))
			}
			s := fixture.NewServer(t, objects...)
			s.Reconcile = func(o *unstructured.Unstructured) *unstructured.Unstructured {
				if c.mended && o.GetAnnotations()[v1beta2.AnnotationRetry] != "" {
					_ = unstructured.SetNestedField(o.Object, "Ready", "status", "state")
					_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{"name": "sample", "state": "Ready"}},
						"status", "modules")
				}
				return o
			}
			if c.Code == console.ExitOK && !c.mended {
				c.Args += " --no-wait"
			}
			c.Check(t, Commands, s.Kubeconfig)
			if got := s.Writes(); !slices.Equal(got, c.writes) {
				t.Errorf("%s: it wrote %q, want %q", c.Reason, got, c.writes)
			}
		})
	}
}

// TestRetryState checks the retry of all runtimes in a state, and the question before the retry of many runtimes.
func TestRetryState(t *testing.T) {
	var fleet []client.Object
	for n := range 6 {
		state := v1beta2.StateError
		if n == 5 {
			state = v1beta2.StateReady
		}
		fleet = append(fleet, runtimeIn(fmt.Sprintf("runtime-%d", n), state, v1beta2.ReasonRegistryUnreachable)...)
	}
	cases := map[string]struct {
		fixture.Case
		writes int
	}{
		"Yes": {fixture.Case{Reason: "all of them", Args: "retry --state=error --yes",
			Want: []string{"runtime-4   Error   RegistryUnreachable", "5 runtimes tried again"}}, 5},
		"Asked": {fixture.Case{Reason: "it asks before it retries many", Args: "retry --state=Error", Input: "n\n",
			Code: console.ExitFailed, Want: []string{"Try 5 runtimes again? [y/N]", "nothing was changed"}}, 0},
		"Module": {fixture.Case{Reason: "those whose module is not Ready", Args: "retry --state=Error other",
			Want: []string{"there is nothing to retry"}}, 0},
		"None": {fixture.Case{Reason: "no runtime is in the state", Args: "retry --state=Warning",
			Want: []string{"there is nothing to retry"}}, 0},
		"Few": {fixture.Case{Reason: "no question for one", Args: "retry --state=Error -l only=this",
			Want: []string{"1 runtime tried again"}}, 1},
		"Selector": {fixture.Case{Reason: "those with labels that are not Ready", Args: "retry -l only=this",
			Want: []string{"1 runtime tried again"}}, 1},
		"DryRun": {fixture.Case{Reason: "nothing is requested", Args: "retry --state=Error --dry-run",
			Want: []string{"5 runtimes would be tried again"}}, 0},
		"Names": {fixture.Case{Reason: "several names, and one that does not exist",
			Args: "retry runtime-0 runtime-1 runtime-9 --module sample --yes --wait=false", Code: console.ExitNotFound,
			Want: []string{"module sample of runtime-0 is tried again", "module sample of runtime-1 is tried again",
				`1 of 3 runtimes: runtime "runtime-9" does not exist`}}, 2},
		"NamesAsked": {fixture.Case{Reason: "it asks before it retries several", Args: "retry runtime-0 runtime-1",
			Input: "n\n", Code: console.ExitFailed, Want: []string{"Try 2 runtimes again?", "nothing was changed"}}, 0},
		"NamesDryRun": {fixture.Case{Reason: "nothing is requested", Args: "retry runtime-0 runtime-5 --dry-run",
			Want: []string{"runtime-0 would be tried again", "runtime-5 is Ready: there is nothing to retry"}}, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fleet[0].SetLabels(map[string]string{"only": "this"})
			s := fixture.NewServer(t, fleet...)
			c.Check(t, Commands, s.Kubeconfig)
			if got := s.Writes(); len(got) != c.writes || strings.Contains(strings.Join(got, ""), "runtime-5") {
				t.Errorf("%s: it wrote %q, want %d writes", c.Reason, got, c.writes)
			}
		})
	}
}

// TestNoManager checks that klm status and klm why first report that no manager works, and end with a separate exit
// code.
func TestNoManager(t *testing.T) {
	objects := append(runtimeIn("runtime-a", v1beta2.StateReady, ""), leaderLease(4*time.Minute))
	objects[0].(*v1beta2.Kyma).Status.LastOperation.LastUpdateTime = fixture.BeforeNoon(time.Hour)
	objects[1].(*v1beta2.Manifest).Status.LastOperation.LastUpdateTime = fixture.BeforeNoon(time.Hour)
	s := fixture.NewServer(t, objects...)
	commands := func(a *console.App) []*cobra.Command { return append(Commands(a), fleetstatus.Command(a)) }
	for args, want := range map[string][]string{
		"status":        {"NO MANAGER WORKS in namespace kcp-system: leader pod-1 last renewed its Lease 4m ago", "1 Ready (as of 4m ago)"},
		"why runtime-a": {"NO MANAGER WORKS in namespace kcp-system", "runtime-a is Ready as of 4m ago", "STATE AS OF 4M AGO"},
		"status -o json": {`"state": "NotWorking"`, `"lastHeard": "2026-08-01T11:56:00Z"`,
			"no manager works in namespace kcp-system: the states are as of 4m ago"},
	} {
		killed := fixture.Case{Reason: "the manager was killed", Args: args, Code: console.ExitNoManager, Want: want}
		killed.Check(t, commands, s.Kubeconfig)
		if r := fixture.Run(t, commands, s.Kubeconfig, "", strings.Fields(args)...); !strings.Contains(args, "json") &&
			!strings.HasPrefix(r.Out, "NO MANAGER WORKS") {
			t.Errorf("klm %s begins with %q", args, r.Out[:min(len(r.Out), 80)])
		}
	}
	s.Put(decoded(t, leaderLease(time.Second)))
	fixture.Case{Reason: "it works again", Args: "status", Want: []string{"manager works: leader pod-1, Lease renewed 1s ago\n"}}.Check(
		t, commands, s.Kubeconfig)
}

// decoded converts a Lease to the unstructured form in which the test server stores objects.
func decoded(t *testing.T, o client.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	return u
}
