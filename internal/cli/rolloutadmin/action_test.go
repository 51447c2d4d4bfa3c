package rolloutadmin

import (
	"strings"
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// waiting is a function that returns a rollout that waits for the approval of its first stage.
func waiting() *v1beta2.ModuleRollout {
	o := &v1beta2.ModuleRollout{}
	o.Spec.State = v1beta2.RolloutRunning
	o.Spec.Stages = []v1beta2.ModuleRolloutStage{{RolloutStage: v1beta2.RolloutStage{Name: "canary",
		Gates: []v1beta2.RolloutGate{{Name: "go", Approval: &v1beta2.ApprovalGate{Count: 1}}}}},
		{RolloutStage: v1beta2.RolloutStage{Name: "rest"}}}
	o.Status.Phase, o.Status.Plan, o.Status.Stage.Name = v1beta2.RolloutWaitingForGate, "p", "canary"
	return o
}

// TestActionsFor checks that an approval is offered only if the approval has an effect.
func TestActionsFor(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1beta2.ModuleRollout)
		want   string
	}{
		"Gate":     {func(*v1beta2.ModuleRollout) {}, "approve pause abort"},
		"Halted":   {func(o *v1beta2.ModuleRollout) { o.Status.Phase = v1beta2.RolloutHalted }, "resume pause abort"},
		"NoStages": {func(o *v1beta2.ModuleRollout) { o.Spec.Stages = nil }, "pause abort"},
		"NoPlan":   {func(o *v1beta2.ModuleRollout) { o.Status.Plan = "" }, "pause abort"},
	} {
		t.Run(name, func(t *testing.T) {
			o := waiting()
			c.change(o)
			var verbs []string
			for _, a := range ActionsFor(o, "klm") {
				verbs = append(verbs, a.Verb)
			}
			if got := strings.Join(verbs, " "); got != c.want {
				t.Errorf("actions %q, want %q", got, c.want)
			}
		})
	}
}
