package rolloutadmin

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// rolloutIn returns a rollout with two stages, of which the first one needs an approval.
func rolloutIn(phase v1beta2.RolloutPhase) *v1beta2.ModuleRollout {
	gate := v1beta2.RolloutGate{Name: "go", Approval: &v1beta2.ApprovalGate{Count: 1}}
	stage := func(name string, gates ...v1beta2.RolloutGate) v1beta2.ModuleRolloutStage {
		return v1beta2.ModuleRolloutStage{RolloutStage: v1beta2.RolloutStage{Name: name, Gates: gates}}
	}
	return &v1beta2.ModuleRollout{
		TypeMeta: metav1.TypeMeta{APIVersion: v1beta2.GroupVersion.String(), Kind: v1beta2.KindModuleRollout},
		ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "sample-regular-r2",
			CreationTimestamp: fixture.BeforeNoon(time.Hour)},
		Spec: v1beta2.ModuleRolloutSpec{Module: "sample", Channel: "regular", From: "1.0.0", To: "2.0.0", Revision: 2,
			Lineage: "x", Policy: "standard", State: v1beta2.RolloutRunning,
			Stages: []v1beta2.ModuleRolloutStage{stage("own"), stage("canary", gate), stage("rest")}},
		Status: v1beta2.ModuleRolloutStatus{Phase: phase, Plan: "sha256:plan", Message: "3 of 20 have failed",
			Stage:    v1beta2.RolloutStageStatus{Index: 1, Name: "canary"},
			Runtimes: v1beta2.RolloutCounts{InScope: 100, Waiting: 80, Proven: 17, Failed: 3}},
	}
}

// commands returns all commands of klm rollout except plan and undo, which are tested in package channeladmin.
func commands(a *console.App) []*cobra.Command {
	return Commands(a, &cobra.Command{Use: "plan"}, &cobra.Command{Use: "undo"})
}

// TestVerbs checks which fields each verb writes, and which input each verb refuses.
func TestVerbs(t *testing.T) {
	const path = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/modulerollouts/sample-regular-r2"
	running := rolloutIn(v1beta2.RolloutWaitingForGate)
	halted := rolloutIn(v1beta2.RolloutHalted)
	held, atOnce := rolloutIn(v1beta2.RolloutHeld), running.DeepCopy()
	held.Status.Blockers = []v1beta2.RolloutBlocker{{Code: v1beta2.ReasonControlPlaneFailing,
		Message: "the registry is down"}}
	atOnce.Spec.Stages = nil
	ended := rolloutIn(v1beta2.RolloutCompleted)
	for name, c := range map[string]struct {
		fixture.Case
		of   *v1beta2.ModuleRollout
		want map[string]any // fields of spec afterwards; nil: nothing is written
	}{
		"Pause": {fixture.Case{Reason: "it is written", Args: "rollout pause sample-regular-r2 --reason=alert",
			Want: []string{"nobody begins any more"}}, running, map[string]any{"state": "Paused", "reason": "alert"}},
		"DryRun": {fixture.Case{Reason: "nothing is written", Args: "rollout pause sample-regular-r2 --dry-run",
			Want: []string{"would do: rollout sample-regular-r2 is paused"}}, running, nil},
		"PauseJSON": {fixture.Case{Reason: "for pipelines", Args: "rollout pause sample-regular-r2 -o json",
			Want: []string{`"object": "modulerollout/sample-regular-r2"`, `"result": "rollout sample-regular-r2 is paused`}},
			running, map[string]any{"state": "Paused"}},
		"DryRunName": {fixture.Case{Reason: "the same in all formats",
			Args: "rollout abort sample-regular-r2 --dry-run -o name",
			Want: []string{"modulerollout/sample-regular-r2\n"}}, running, nil},
		"AbortJSON": {fixture.Case{Reason: "the question is not part of it",
			Args: "rollout abort sample-regular-r2 --yes -o jsonpath={.result}",
			Want: []string{"rollout sample-regular-r2 is aborted"}}, running, map[string]any{"state": "Aborted"}},
		"ResumeYAML": {fixture.Case{Reason: "for pipelines",
			Args: "rollout resume sample-regular-r2 --reason=disk --yes -o yaml",
			Want: []string{"result: rollout sample-regular-r2 goes on"}}, halted, map[string]any{"state": "Running"}},
		"ApproveJSON": {fixture.Case{Reason: "for pipelines",
			Args: "rollout approve sample-regular-r2 --stage=canary --yes -o json",
			Want: []string{`"result": "stage canary of rollout`}}, running, map[string]any{"state": "Running"}},
		"ResumeRunning": {fixture.Case{Reason: "there is nothing to resume", Args: "rollout resume sample-regular-r2",
			Code: console.ExitFailed, Want: []string{"neither paused nor halted nor held"}}, running, nil},
		"ResumeWithoutReason": {fixture.Case{Reason: "others read it", Args: "rollout resume sample-regular-r2 --yes",
			Code: console.ExitUsage, Want: []string{"3 of 20 have failed", "--reason"}}, halted, nil},
		"ResumeHeld": {fixture.Case{Reason: "a resumption does not mend the registry",
			Args: "rollout resume sample-regular-r2 --reason=x --yes", Code: console.ExitNotReady,
			Want: []string{"does not wait for a person: the registry is down"}}, held, nil},
		"NoStages": {fixture.Case{Reason: "nobody waits in it", Args: "rollout pause sample-regular-r2",
			Code: console.ExitFailed, Want: []string{"klm channel set sample regular 1.0.0"}}, atOnce, nil},
		"Resume": {fixture.Case{Reason: "with a reason", Args: "rollout resume sample-regular-r2 --reason=disk --yes",
			Want: []string{"goes on"}}, halted, map[string]any{"state": "Running"}},
		"AbortNo": {fixture.Case{Reason: "it asks", Args: "rollout abort sample-regular-r2", Input: "n\n",
			Code: console.ExitFailed, Want: []string{"20 runtimes have begun"}}, running, nil},
		"Abort": {fixture.Case{Reason: "it is confirmed", Args: "rollout abort sample-regular-r2 --yes",
			Want: []string{"is aborted"}}, running, map[string]any{"state": "Aborted"}},
		"AbortEnded": {fixture.Case{Reason: "it has ended", Args: "rollout abort sample-regular-r2 --yes",
			Code: console.ExitFailed, Want: []string{"has ended: it is Completed"}}, ended, nil},
		"Approve": {fixture.Case{Reason: "with the name of the user",
			Args: "rollout approve sample-regular-r2 --stage=canary --yes",
			Want: []string{"approved by " + fixture.User}}, running, map[string]any{"state": "Running"}},
		"ApproveOver": {fixture.Case{Reason: "the stage is over", Args: "rollout approve sample-regular-r2 --stage=own",
			Code: console.ExitFailed, Want: []string{"is over: its current stage is canary"}}, running, nil},
		"ApproveUnknown": {fixture.Case{Reason: "there is no such stage",
			Args: "rollout approve sample-regular-r2 --stage=x",
			Code: console.ExitNotFound, Want: []string{`has no stage "x"`}}, running, nil},
		"ApproveNoGate": {fixture.Case{Reason: "it needs none", Args: "rollout approve sample-regular-r2 --stage=rest",
			Code: console.ExitFailed, Want: []string{"needs no approval"}}, running, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t, c.of.DeepCopy())
			c.Check(t, commands, s.Kubeconfig)
			spec, _ := s.Object(path).Object["spec"].(map[string]any)
			for key, value := range c.want {
				if diff := cmp.Diff(value, spec[key]); diff != "" {
					t.Errorf("%s: spec.%s (-want +got):\n%s", c.Reason, key, diff)
				}
			}
			if writes := len(s.Writes()); (writes > 0) != (c.want != nil) {
				t.Errorf("%s: %d writes", c.Reason, writes)
			}
		})
	}
}
