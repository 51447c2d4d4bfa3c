package rolloutadmin

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

// rollouts returns three rollouts: a halted rollout, a paused rollout of another module, and an ended rollout.
func rollouts() []client.Object {
	halted := rolloutIn(v1beta2.RolloutHalted)
	halted.Status.Blockers = []v1beta2.RolloutBlocker{
		{Code: v1beta2.ReasonTooManyFailures, Message: "3 of 20 updated runtimes have failed",
			Remedy: "klm rollout abort sample-regular-r2"},
		{Code: v1beta2.ReasonWaitingForWindow, Object: "Kyma runtime-w", Message: "it needs a downtime", Runtimes: 2},
	}
	halted.Status.Worst = []v1beta2.RolloutRuntime{{Runtime: "runtime-f", Reason: v1beta2.ReasonWorkloadFailed,
		Message: "Deployment x crashes"}}
	halted.Status.Stages = []v1beta2.RolloutStageResult{{Name: "own",
		RolloutCounts: v1beta2.RolloutCounts{InScope: 20, Proven: 17, Failed: 3},
		Evidence:      "3 of 20 failed: below 35 % with 95 %"}}
	halted.Spec.Approvals = []v1beta2.RolloutApproval{{Stage: "canary", By: "kim", At: fixture.BeforeNoon(time.Hour),
		Plan: "sha256:other"}}
	halted.Spec.Resumptions = []v1beta2.RolloutResumption{{By: "kim", At: fixture.BeforeNoon(time.Hour),
		Reason: "a disk"}}
	paused := rolloutIn(v1beta2.RolloutSoaking)
	paused.Name, paused.Spec.Module, paused.Spec.Channel = "other-fast-r7", "other", "fast"
	paused.Spec.State, paused.Spec.Reason = v1beta2.RolloutPaused, "ask Kim"
	paused.Spec.Urgency, paused.Spec.UrgencyReason, paused.Spec.IgnoreWindows = v1beta2.UrgencyEmergency, "a leak", true
	paused.Status.Stage.SoakUntil = metav1.NewTime(fixture.Noon.Add(90 * time.Minute))
	paused.Status.Conditions = []metav1.Condition{{Type: rollout.ConditionClockSet, Status: metav1.ConditionTrue,
		Reason: rollout.ConditionClockSet, LastTransitionTime: fixture.BeforeNoon(30 * time.Minute)}}
	ended := rolloutIn(v1beta2.RolloutCompleted)
	ended.Name, ended.Spec.From, ended.Spec.To, ended.Spec.Stages = "sample-regular-r1", "0.9.0", "1.0.0", nil
	ended.Spec.Policy, ended.Status.EndedAt = "", fixture.BeforeNoon(time.Hour)
	return []client.Object{halted, paused, ended}
}

// TestRead checks the output of the commands that change nothing.
func TestRead(t *testing.T) {
	module := &v1beta2.ModuleReleaseMeta{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "sample"},
		Spec:       v1beta2.ModuleReleaseMetaSpec{Channels: []v1beta2.ChannelVersion{{Channel: "regular"}}},
		Status: v1beta2.ModuleReleaseMetaStatus{Channels: []v1beta2.ChannelStatus{
			{Channel: "regular", History: []v1beta2.ChannelMove{
				{Revision: 1, Version: "1.0.0", At: fixture.BeforeNoon(2 * time.Hour), By: "ci",
					Outcome: v1beta2.RolloutCompleted},
				{Revision: 2, Version: "2.0.0", At: fixture.BeforeNoon(time.Hour)}}},
			{Channel: "fast", History: []v1beta2.ChannelMove{{Revision: 4, Version: "3.0.0",
				At: fixture.BeforeNoon(time.Minute), Outcome: v1beta2.RolloutEndedAborted,
				Urgency: v1beta2.UrgencyHotfix,
				Reason:  "a leak"}}},
		}},
	}
	for name, c := range map[string]struct {
		fixture.Case
		without []string // parts that the output must not have
	}{
		"List": {fixture.Case{Reason: "those under way are first", Args: "rollout list", Want: []string{
			"NAME", "other-fast-r7       Soaking (emergency, paused)", "17/100",
			"sample-regular-r2   Halted                        1.0.0   2.0.0   canary"}}, nil},
		"Order": {fixture.Case{Reason: "the order of the rows", Args: "rollout list -o name",
			Want: []string{"other-fast-r7\nsample-regular-r2\nsample-regular-r1\n"}}, nil},
		"Filtered": {fixture.Case{Reason: "by phase", Args: "rollout list --state Halted -o name",
			Want: []string{"sample-regular-r2\n"}}, []string{"r1", "r7"}},
		"State": {fixture.Case{Reason: "by what a person wants", Args: "rollout list --state Paused -o name",
			Want: []string{"other-fast-r7\n"}}, []string{"sample"}},
		"JSON": {fixture.Case{Reason: "for pipelines",
			Args: "rollout list --module sample --channel regular -o jsonpath={[0].runtimes.failed}",
			Want: []string{"3"}}, nil},
		"Show": {fixture.Case{Reason: "all about a halted one", Args: "rollout show sample-regular-r2", Want: []string{
			"sample-regular-r2 is Halted", "policy standard", "→ canary", "3 of 20 failed: below 35 %", "In the way:",
			"rollout sample-regular-r2: TooManyFailures", "what to do: klm rollout abort sample-regular-r2",
			"2 runtimes, for example Kyma runtime-w: WaitingForWindow", "runtime-f", "Deployment x crashes",
			"klm why RUNTIME sample", "approved by kim 60m ago; it is for another plan and does not count",
			"Resumed by kim 60m ago: a disk"}}, nil},
		"ShowSoak": {fixture.Case{Reason: "how long it is observed", Args: "rollout show other-fast-r7",
			Want: []string{"reason: ask Kim", "emergency: a leak (maintenance windows are ignored)", "Observed until 2026-08-01T13:30:00Z: 90m left",
				"count from 2026-08-01T11:30:00Z"}}, nil},
		"ShowAtOnce": {fixture.Case{Reason: "it has no stages", Args: "rollout show sample-regular-r1",
			Want: []string{"is Completed", "no RolloutPolicy was for it", "17 proven"}}, []string{"STAGE"}},
		"ShowJSON": {fixture.Case{Reason: "for pipelines",
			Args: "rollout show sample-regular-r2 -o jsonpath={.blockers[0].code}/{.stages[1].current}/{.plan}",
			Want: []string{"TooManyFailures/true/sha256:plan"}}, nil},
		"ShowUnknown": {fixture.Case{Reason: "it suggests names", Args: "rollout show sample-regular-r3",
			Code: console.ExitNotFound, Want: []string{`rollout "sample-regular-r3" does not exist`,
				"sample-regular-r2"}}, nil},
		"WatchEnded": {fixture.Case{Reason: "it has ended already", Args: "rollout watch sample-regular-r1",
			Want: []string{"sample-regular-r1 is Completed"}}, nil},
		"History": {fixture.Case{Reason: "the newest move is first", Args: "rollout history sample", Want: []string{
			"fast      4          3.0.0     2026-08-01T11:59:00Z   unknown   Aborted     sample-fast-r4      Hotfix    a leak\n" +
				"regular   2          2.0.0     2026-08-01T11:00:00Z   unknown   under way   sample-regular-r2   -",
			"regular   1          1.0.0     2026-08-01T10:00:00Z   ci        Completed   sample-regular-r1   -"}}, nil},
		"HistoryChannel": {fixture.Case{Reason: "of one channel", Args: "rollout history sample regular -o name",
			Want: []string{"sample-regular-r2\nsample-regular-r1\n"}}, []string{"fast"}},
		"HistoryFiltered": {fixture.Case{Reason: "by outcome and version",
			Args: "rollout history sample --state Completed --version 1.0.0 -o json",
			Want: []string{`"by": "ci"`}}, []string{"Aborted", "2.0.0"}},
		"HistoryNoChannel": {fixture.Case{Reason: "it suggests channels", Args: "rollout history sample regula",
			Code: console.ExitNotFound, Want: []string{`no channel "regula"`, "regular"}}, nil},
		"HistoryUnknown": {fixture.Case{Reason: "it suggests modules", Args: "rollout history sampel",
			Code: console.ExitNotFound, Want: []string{`module "sampel" does not exist`, "sample"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t, append(rollouts(), module.DeepCopy())...)
			c.Check(t, commands, s.Kubeconfig)
			r := fixture.Run(t, commands, s.Kubeconfig, "", strings.Fields(c.Args)...)
			for _, other := range c.without {
				if strings.Contains(r.Out, other) {
					t.Errorf("%s: output with %q:\n%s", c.Reason, other, r.Out)
				}
			}
			if writes := s.Writes(); len(writes) > 0 {
				t.Errorf("%s: it writes %v", c.Reason, writes)
			}
		})
	}
}

// TestWatch checks that a rollout is shown again after each change, and that the exit code depends on the outcome of
// the rollout.
func TestWatch(t *testing.T) {
	const path = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/modulerollouts/sample-regular-r2"
	for name, c := range map[string]fixture.Case{
		"Completed": {Reason: "the fleet has the version", Args: "rollout watch sample-regular-r2",
			Want: []string{"is Running", "is Completed"}},
		"Aborted": {Reason: "it ends without success", Args: "rollout show sample-regular-r2 --watch",
			Code: console.ExitNotReady, Want: []string{"is Running", "rollout sample-regular-r2 has ended: Aborted: x"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t, rolloutIn(v1beta2.RolloutUpdating))
			var first sync.Once
			shown := make(chan struct{})
			s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("Content-Type", "application/json")
				switch isFirst := false; {
				case r.URL.Path == path:
					first.Do(func() {
						_ = json.NewEncoder(w).Encode(s.Object(path))
						isFirst = true
						close(shown)
					})
					return isFirst
				case r.URL.Query().Get("watch") != "": // the change comes after the rollout was read
					<-shown
					s.Patch(t, path, `{"status":{"phase":"`+name+`","message":"x"}}`)
					_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": s.Object(path)})
					return true
				}
				return false
			}
			c.Check(t, commands, s.Kubeconfig)
		})
	}
}

// TestPhaseSince checks since when a rollout has been in its phase: since the last progress of the stage, or since a
// condition of the rollout changed, whichever is later.
func TestPhaseSince(t *testing.T) {
	at := func(minutes int) metav1.Time {
		return metav1.NewTime(fixture.Noon.Add(time.Duration(minutes) * time.Minute))
	}
	stage := v1beta2.RolloutStageStatus{StartedAt: at(1), ProvenAt: at(2), SoakUntil: at(3)}
	for _, c := range []struct {
		phase   v1beta2.RolloutPhase
		changed int // when the condition Reconciling has changed
		want    int
	}{
		{v1beta2.RolloutUpdating, 0, 1},
		{v1beta2.RolloutSoaking, 0, 2},
		{v1beta2.RolloutTail, 0, 2},
		{v1beta2.RolloutWaitingForGate, 0, 3},
		{v1beta2.RolloutHalted, 4, 4},
		{v1beta2.RolloutUpdating, 4, 4},
	} {
		s := &v1beta2.ModuleRolloutStatus{Phase: c.phase, Stage: stage, Conditions: []metav1.Condition{
			{Type: "Reconciling", LastTransitionTime: at(c.changed)},
			{Type: rollout.ConditionClockSet, LastTransitionTime: at(9)},
		}}
		if got := phaseSince(s); !got.Equal(at(c.want).Time) {
			t.Errorf("phase %s began at %s, want %s", c.phase, got, at(c.want))
		}
	}
}
