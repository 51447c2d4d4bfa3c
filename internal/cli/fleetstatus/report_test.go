package fleetstatus

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

// fleet returns five runtimes with different states and versions.
func fleet() []*fleetlist.Member {
	var all []*fleetlist.Member
	for n, state := range []v1beta2.State{v1beta2.StateReady, v1beta2.StateError, v1beta2.StateWarning,
		v1beta2.StateUnknown, v1beta2.StateReady} {
		m := &fleetlist.Member{}
		m.Metadata.Name, m.Metadata.CreationTimestamp = fmt.Sprintf("runtime-%d", n),
			fixture.BeforeNoon(24*time.Hour).Format(time.RFC3339)
		m.Spec.Channel = "regular"
		m.Status.State, m.Status.LastOperation.Operation, m.Status.LastOperation.LastUpdateTime = state, "an operation",
			fixture.BeforeNoon(time.Duration(n)*time.Minute).Format(time.RFC3339)
		if state != v1beta2.StateUnknown {
			m.Status.ModulesReady = "1/2"
			m.Status.Modules = []fleetlist.MemberModule{{Name: "sample", Version: "1.0.0", Channel: "regular",
				State: state}, {Name: "keda", Version: fmt.Sprintf("1.%d.0", n), State: v1beta2.StateReady}}
		}
		all = append(all, m)
	}
	all[1].Status.Modules[0].Reason, all[1].Status.Modules[0].Message = v1beta2.ReasonWorkloadFailed,
		"Deployment kyma-system/sample cannot become ready: look at its pods, of which there are three that crash "+
			"again and again"
	all[2].Status.Conditions = []fleetlist.MemberCondition{{Type: v1beta2.ConditionReady, Status: "False",
		Reason: v1beta2.ReasonRuntimeUnreachable, Message: "not ready: no answer"}}
	all[4].Status.Modules[0].Maintenance = true
	all[4].Metadata.Annotations.Paused = new("ask Kim")
	all[0].Status.KubernetesVersion, all[1].Status.KubernetesVersion = "v1.34.2", "v1.33.5-gke.1125000"
	all[4].Status.KubernetesVersion = "v1.34.0"
	all[0].Status.Agent = &fleetlist.MemberAgent{Heard: true}
	return all
}

// TestReports checks that the runtimes with the worst states are first, and that columns without values are not shown.
func TestReports(t *testing.T) {
	var count tally
	for _, m := range fleet() {
		count.add(m)
	}
	empty := tally{}
	fixture.GoldenFormats(t, "status.txt", count.report(fixture.ControlPlane, 10))
	fixture.GoldenFormats(t, "status_none.txt", empty.report(fixture.ControlPlane, 10))
	eu, us := count.report(fixture.ControlPlane, 10), count.report(fixture.ControlPlane, 10)
	eu.Manager, us.Manager = &liveness.Report{State: liveness.Working, Version: "0.1.0"}, &liveness.Report{}
	fixture.GoldenFormats(t, "status_contexts.txt", merge([]string{"eu", "ap", "us"}, []*fleetReport{eu, nil, us}, 3))
}

// TestMerge checks that the report about one control plane equals the merged report about the two halves of its
// runtimes.
func TestMerge(t *testing.T) {
	var whole tally
	halves := [2]tally{}
	for i, m := range fleet() {
		whole.add(m)
		halves[i%2].add(m)
	}
	want := whole.report(fixture.ControlPlane, 2)
	got := merge([]string{"a", "b"}, []*fleetReport{halves[0].report(fixture.ControlPlane, 2),
		halves[1].report(fixture.ControlPlane, 2)}, 2)
	for i := range got.Worst {
		got.Worst[i].Context = ""
	}
	got.ControlPlanes, got.Cluster, got.Namespace = nil, want.Cluster, want.Namespace
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestContexts checks that klm status reads three control planes as one fleet.
func TestContexts(t *testing.T) {
	plane := func(name string) *fixture.Server {
		k := fixture.Kyma(v1beta2.StateReady, v1beta2.Module{Name: "sample"},
			v1beta2.ModuleStatus{Name: "sample", Version: "1.0.0", State: v1beta2.StateReady})
		k.Name = "runtime-" + name
		return fixture.NewServer(t, k)
	}
	servers := map[string]*fixture.Server{"eu": plane("a"), "us": plane("b"), "ap": plane("a")}
	kubeconfig := fixture.JoinKubeconfigs(t, map[string]string{"eu": servers["eu"].Kubeconfig,
		"us": servers["us"].Kubeconfig, "ap": servers["ap"].Kubeconfig, "eu-again": servers["eu"].Kubeconfig})
	commands := func(a *console.App) []*cobra.Command { return []*cobra.Command{Command(a)} }
	cases := []fixture.Case{
		{Reason: "one control plane", Args: "status --context us",
			Want: []string{"1 runtime in us, namespace kcp-system", "1 Ready"}},
		{Reason: "selected runtimes", Args: "status --context us -l team=red", Want: []string{"0 runtimes"}},
		{Reason: "all are Ready", Args: "status --contexts eu,us --exit-code", Want: []string{"2 Ready"}},
		{Reason: "a watch has no exit code", Args: "status --context us --watch --exit-code", Code: console.ExitUsage,
			Want: []string{"does not end by itself"}},
		{Reason: "a module that nobody has", Args: "status --contexts eu,us --module keda", Want: []string{"0 runtimes"}},
		{Reason: "three control planes", Args: "status --contexts eu,us,ap",
			Want: []string{"3 runtimes in 3 control planes", "3 Ready", "eu", "us", "ap"}},
		{Reason: "both name a cluster", Args: "status --contexts eu --context us", Code: console.ExitUsage,
			Want: []string{"exclude each other"}},
		{Reason: "named twice", Args: "status --contexts eu,us,eu", Code: console.ExitUsage,
			Want: []string{`"eu" is empty or named twice`}},
		{Reason: "one control plane with two names", Args: "status --contexts eu,eu-again", Code: console.ExitUsage,
			Want: []string{"lead to the same control plane"}},
		{Reason: "a watch has one control plane", Args: "status --contexts eu,us --watch", Code: console.ExitUsage,
			Want: []string{"choose it with --context"}},
		{Reason: "a context that does not exist", Args: "status --contexts eu,mars", Code: console.ExitCluster,
			Want: []string{"1 runtime in 2 control planes", "not read", `mars: the kubeconfig has no context "mars"`}},
		{Reason: "nothing could be read", Args: "status --contexts mars,venus", Code: console.ExitCluster,
			Want: []string{"2 of 2 control planes were not read"}},
	}
	for _, c := range cases {
		c.Check(t, commands, kubeconfig)
	}
	failing := fixture.NewServer(t, fixture.Kyma(v1beta2.StateError, v1beta2.Module{Name: "sample"},
		v1beta2.ModuleStatus{Name: "sample", Version: "1.0.0", State: v1beta2.StateError}))
	for args, code := range map[string]int{"status": console.ExitOK, "status --exit-code": console.ExitNotReady,
		"status --exit-code --module keda": console.ExitOK} {
		fixture.Case{Reason: "a runtime in state Error", Args: args, Code: code}.Check(t, commands, failing.Kubeconfig)
	}
	servers["us"].Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	fixture.Case{Reason: "a control plane that is down", Args: "status --contexts eu,us,ap", Code: console.ExitFailed,
		Want: []string{"2 runtimes in 3 control planes", "1 of 3 control planes were not read: us: "}}.Check(t, commands, kubeconfig)
}
