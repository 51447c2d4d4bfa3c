package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

var now = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// moved returns a channel whose version was moved from the proven version 1.0.0.
func moved(to string, active *v1beta2.ModuleRollout) rollout.Channel {
	soak := metav1.Duration{Duration: time.Hour}
	policy := &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "standard"}, Spec: v1beta2.RolloutPolicySpec{
		Modules: v1beta2.RolloutModules{Names: []string{"*"}},
		Stages: []v1beta2.RolloutStage{
			{Name: "own", Selector: &v1beta2.StageSelector{MatchLabels: map[string]string{"own": "yes"}}, Soak: soak,
				Gates: []v1beta2.RolloutGate{{Name: "go", Approval: &v1beta2.ApprovalGate{Count: 2}}}},
			{Name: "half", Percent: 50, Soak: soak, MaxStartsPerMinute: 2,
				MaxConcurrency: new(intstr.FromString("25%"))},
			{Name: "rest", MaxFailures: new(intstr.FromString("10%"))},
		}}}
	release := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: "mod", Namespace: "kcp-system"}}
	release.Spec.Channels = []v1beta2.ChannelVersion{{Channel: "regular", Version: to}}
	release.Status.Channels = []v1beta2.ChannelStatus{{Channel: "regular", Version: "1.0.0", Target: "1.0.0",
		Revision: 1}}
	if active != nil {
		s := &release.Status.Channels[0]
		s.Target, s.Rollout, s.Policy, s.Revision = active.Spec.To, active.Name, "standard", active.Spec.Revision
	}
	return rollout.Channel{Release: release, Name: "regular", Policy: policy, Active: active, Runtimes: fleet(),
		Now: now}
}

// fleet returns 40 runtimes. Two of the runtimes belong to the stage with the name "own", and one runtime is paused.
func fleet() []rollout.Runtime {
	all := make([]rollout.Runtime, 40)
	for i := range all {
		all[i] = rollout.Runtime{Kyma: fmt.Sprintf("runtime-%02d", i), Ordered: "1.0.0", IsReady: true,
			State: v1beta2.StateReady}
		if i < 2 {
			all[i].Labels = map[string]string{"own": "yes"}
		}
	}
	all[1].Blocked = func() *channel.Blocker { return &channel.Blocker{Code: v1beta2.ReasonModulePaused} }
	return all
}

// TestOf checks that a plan has every runtime in exactly one stage, and equals the rollout that the coordinator makes.
func TestOf(t *testing.T) {
	p, err := ForMove(moved("2.0.0", nil))
	if err != nil || p == nil {
		t.Fatal(p, err)
	}
	own, half, rest := p.Stages[0], p.Stages[1], p.Stages[2]
	want := Stage{Name: "own", Runtimes: 2, Moving: 1, Blocked: map[string]int{v1beta2.ReasonModulePaused: 1},
		Concurrency: 1, Soak: 3600, Gates: []string{"go: approval by 2"}, Names: []string{"runtime-00", "runtime-01"},
		Begins: now, Ends: now.Add(AssumedUpdate)}
	if diff := cmp.Diff(want, own); diff != "" {
		t.Errorf("own (-want +got):\n%s", diff)
	}
	if half.Runtimes+rest.Runtimes != 38 || half.Runtimes < 10 || half.Runtimes > 28 ||
		half.Concurrency != (half.Runtimes+3)/4 || rest.AllowedFailures != rest.Runtimes/10 {
		t.Errorf("of 38 runtimes, half has %+v and rest %+v", half, rest)
	}
	if begins := now.Add(AssumedUpdate + time.Hour); !half.Begins.Equal(begins) {
		t.Errorf("half begins at %s, want %s", half.Begins, begins)
	}
	// In this test, two runtimes begin per minute, 95 % of the runtimes have to be proven, and the stage is observed
	// for an hour.
	quorum := (half.Runtimes*95 + 99) / 100
	if begins := half.Begins.Add(time.Duration((quorum-1)/2)*time.Minute + AssumedUpdate +
		time.Hour); !rest.Begins.Equal(begins) {
		t.Errorf("rest begins at %s, want %s", rest.Begins, begins)
	}
	if !p.Ends.Equal(rest.Ends) || !rest.Ends.After(rest.Begins) {
		t.Errorf("it ends at %s, and rest at %s", p.Ends, rest.Ends)
	}

	// The coordinator makes the rollout that the plan shows, and admits only runtimes that are in the first stage and
	// can begin.
	c := moved("2.0.0", nil)
	made := rollout.PlanMove(c).Make
	if diff := cmp.Diff(made, p.Rollout); diff != "" {
		t.Errorf("the coordinator makes another rollout:\n%s", diff)
	}
	result, err := rollout.Advance(rollout.Inputs{Rollout: made, Runtimes: c.Runtimes, Now: now, Slots: -1})
	if err != nil || result.Status.Plan != p.Digest {
		t.Errorf("the digest is %s, and of the plan %s; %v", result.Status.Plan, p.Digest, err)
	}
	for _, name := range result.Admitted {
		if p.Members[name].Stage != "own" {
			t.Errorf("%s is admitted, and is of stage %s in the plan", name, p.Members[name].Stage)
		}
	}
	if len(result.Admitted) == 0 {
		t.Error("nobody is admitted")
	}
}

// TestOfOther checks the plan of a channel move that supersedes a rollout. TestOfOther also checks that a move that
// changes nothing has no plan, and that the plan of a channel without a policy has no stages.
func TestOfOther(t *testing.T) {
	first, err := ForMove(moved("2.0.0", nil))
	if err != nil {
		t.Fatal(err)
	}
	next, err := ForMove(moved("3.0.0", first.Rollout))
	if err != nil || next.Supersedes != first.Rollout.Name || next.Rollout.Spec.Lineage != first.Rollout.Spec.Lineage {
		t.Errorf("a further move: %+v, %v", next, err)
	}
	for name, c := range map[string]rollout.Channel{"proven": moved("1.0.0", nil),
		"target": moved("2.0.0", first.Rollout)} {
		if p, err := ForMove(c); p != nil || err != nil {
			t.Errorf("a move to the %s version is planned: %+v, %v", name, p, err)
		}
	}
	c := moved("2.0.0", nil)
	c.Policy = nil
	if p, err := ForMove(c); err != nil || p == nil || len(p.Stages) != 0 {
		t.Errorf("without a policy: %+v, %v", p, err)
	}
}

// TestMembers checks that the plan has the same reason as the coordinator for each runtime that cannot begin.
func TestMembers(t *testing.T) {
	until := now.Add(time.Hour)
	for name, c := range map[string]struct {
		reason string
		is     func(r *rollout.Runtime)
		stage  int // 0 own, 2 rest
		want   string
		begun  bool
	}{
		"CanBegin": {"nothing is in the way", func(*rollout.Runtime) {}, 0, "", false},
		"Window": {"its window is closed", func(r *rollout.Runtime) {
			r.Blocked = func() *channel.Blocker {
				return &channel.Blocker{Code: v1beta2.ReasonWaitingForWindow, Until: until}
			}
		}, 0, v1beta2.ReasonWaitingForWindow, false},
		"Unreachable": {"it cannot be updated", func(r *rollout.Runtime) {
			r.UnreachableSince, r.UnreachableReason = now.Add(-time.Hour), v1beta2.ReasonRuntimeUnreachable
		}, 0, v1beta2.ReasonRuntimeUnreachable, false},
		"Broken": {"it would prove nothing", func(r *rollout.Runtime) {
			r.IsReady, r.State, r.Reason = false, v1beta2.StateError, v1beta2.ReasonWorkloadFailed
			r.Since = now.Add(-time.Hour)
		}, 0, v1beta2.ReasonWorkloadFailed, false},
		"BrokenLast": {"it follows in the last stage", func(r *rollout.Runtime) {
			r.Labels, r.Kyma = nil, lastOf(t)
			r.IsReady, r.State, r.Reason = false, v1beta2.StateError, v1beta2.ReasonWorkloadFailed
			r.Since = now.Add(-time.Hour)
		}, 2, "", false},
		"Begun": {"it is being updated", func(r *rollout.Runtime) { r.Ordered, r.IsReady = "2.0.0", false }, 0, "",
			true},
		"Failed": {"it has failed", func(r *rollout.Runtime) {
			r.Ordered, r.IsReady, r.State, r.IsObserved = "2.0.0", false, v1beta2.StateError, true
			r.Reason, r.Started = v1beta2.ReasonWorkloadFailed, now.Add(-time.Minute)
		}, 0, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := ForMove(moved("2.0.0", nil))
			if err != nil {
				t.Fatal(err)
			}
			p.Rollout.Spec.State = v1beta2.RolloutPaused // a plan shows the rest after a resumption
			r := fleet()[0]
			c.is(&r)
			one, err := For(p.Rollout, nil, []rollout.Runtime{r}, now)
			m, inScope := one.Members[r.Kyma]
			if stage := one.Stages[c.stage].Name; err != nil || !inScope || m.HasBegun != c.begun || m.Stage != stage {
				t.Fatalf("%s: %+v, %v, %v", c.reason, m, inScope, err)
			}
			if (m.Blocker == nil) != (c.want == "") || m.Blocker != nil && m.Blocker.Code != c.want {
				t.Errorf("%s: blocker %+v, want %q", c.reason, m.Blocker, c.want)
			}
			if name == "Window" && !m.Blocker.Until.Equal(until) {
				t.Errorf("the window opens at %s", m.Blocker.Until)
			}
		})
	}
}

// lastOf returns the name of a runtime of the last stage.
func lastOf(t *testing.T) string {
	p, err := ForMove(moved("2.0.0", nil))
	if err != nil {
		t.Fatal(err)
	}
	return p.Stages[2].Names[0]
}

// TestFor checks the plan of a running rollout: only its remaining stages need time, and runtimes with a higher version
// take no part.
func TestFor(t *testing.T) {
	p, err := ForMove(moved("2.0.0", nil))
	if err != nil {
		t.Fatal(err)
	}
	all := fleet()
	all[0].Ordered, all[3].Ordered = "2.0.0", "3.0.0"
	p.Rollout.Status.Stage = v1beta2.RolloutStageStatus{Index: 0, Name: "own",
		SoakUntil: metav1.NewTime(now.Add(10 * time.Minute))}
	rest, err := For(p.Rollout, nil, all, now)
	if err != nil || rest.Digest != p.Digest {
		t.Fatal(rest, err)
	}
	if s := rest.Stages[0]; s.Begun != 1 || s.Moving != 0 || s.Blocked[v1beta2.ReasonModulePaused] != 1 {
		t.Errorf("own: %+v", s)
	}
	if is := rest.Stages[1].Begins; !is.Equal(now.Add(10 * time.Minute)) {
		t.Errorf("half begins at %s", is)
	}
	if _, takesPart := rest.Members["runtime-03"]; takesPart || len(rest.Members) != 39 {
		t.Errorf("%d runtimes take part", len(rest.Members))
	}
}

func BenchmarkOf(b *testing.B) {
	c := moved("2.0.0", nil)
	c.Runtimes = nil
	for i := range 10_000 {
		c.Runtimes = append(c.Runtimes, rollout.Runtime{Kyma: fmt.Sprintf("runtime-%d", i), Ordered: "1.0.0",
			IsReady: true, State: v1beta2.StateReady})
	}
	for b.Loop() {
		if _, err := ForMove(c); err != nil {
			b.Fatal(err)
		}
	}
}
