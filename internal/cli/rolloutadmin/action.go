package rolloutadmin

import (
	"fmt"
	"slices"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

// Action is a change of a rollout that makes sense now.
type Action struct {
	// Verb is the verb for [Act]. Title is the name of the action for people. Text states what the change does.
	Verb, Title, Text string
	// Stage is the stage that is approved; "" for other verbs.
	Stage string
	// HasReason is true if the change has a reason. NeedsReason is true if the change is refused without a reason.
	HasReason, NeedsReason bool
	// NeedsApprove is true if the change needs the verb approve for rollouts, in addition to the verb patch.
	NeedsApprove bool
	// IsDanger is true if the change cannot be undone.
	IsDanger bool
	// Command is the klm command that makes the change of the rollout, and Kubectl is the corresponding kubectl
	// command. Kubectl is "" if the change needs more than one line of kubectl commands.
	Command, Kubectl string
}

// ActionsFor returns the actions for a rollout that is under way. The string program is the name under which the user
// has called klm.
func ActionsFor(active *v1beta2.ModuleRollout, program string) []Action {
	at := func(verb, title, text string) Action {
		return Action{Verb: verb, Title: title, Text: text, HasReason: true,
			Command: program + " rollout " + verb + " " + active.Name}
	}
	kubectl := func(patch string) string {
		return fmt.Sprintf("kubectl -n %s patch modulerollout %s --type=merge -p '%s'", active.Namespace, active.Name,
			patch)
	}
	var all []Action
	isApproval := func(g v1beta2.RolloutGate) bool { return g.Approval != nil }
	// A halted rollout admits no runtime, so an approval would have no effect.
	if i := int(active.Status.Stage.Index); i < len(active.Spec.Stages) && active.Status.Plan != "" &&
		active.Status.Phase != v1beta2.RolloutHalted && slices.ContainsFunc(active.Spec.Stages[i].Gates, isApproval) {
		a := at("approve", "Approve stage "+active.Status.Stage.Name,
			"The next stage may begin when all gates have passed.")
		a.Stage, a.HasReason, a.NeedsApprove = active.Status.Stage.Name, false, true
		a.Command += " --stage=" + a.Stage
		all = append(all, a)
	}
	isStopped := active.Status.Phase == v1beta2.RolloutHalted || slices.ContainsFunc(active.Status.Blockers,
		func(b v1beta2.RolloutBlocker) bool {
			return rollout.EndsByResumption(b.Code)
		})
	if isStopped || active.Spec.State == v1beta2.RolloutPaused {
		a := at("resume", "Resume", "The failures so far are acknowledged, and only further ones count.")
		if a.NeedsReason, a.NeedsApprove = isStopped, isStopped; isStopped {
			a.Command += " --reason=…"
		} else {
			a.Text, a.Kubectl = "Further runtimes begin.", kubectl(`{"spec":{"state":"Running"}}`)
		}
		all = append(all, a)
	}
	if active.Spec.State == v1beta2.RolloutRunning {
		a := at("pause", "Pause", "Nobody begins any more, and what has begun finishes.")
		a.Kubectl = kubectl(`{"spec":{"state":"Paused"}}`)
		all = append(all, a)
	}
	a := at("abort", "Abort", "Nobody begins any more. Runtimes that have begun keep "+active.Spec.To+
		". The rollout cannot go on afterwards.")
	a.IsDanger, a.Kubectl = true, kubectl(`{"spec":{"state":"Aborted"}}`)
	return append(all, a)
}
