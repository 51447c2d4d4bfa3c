package rolloutadmin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

// change is a change of the spec of one rollout.
type change struct {
	reason, stage string
	yes, dryRun   bool
	// effect is a text about what the change does. klm prints effect before it asks for confirmation, and with
	// --dry-run.
	effect string
	// question is asked before the change; "" means that nothing is asked. The field confirmed contains the question
	// that the user has answered with yes.
	question, confirmed string
	now                 time.Time
}

func pauseCommand(a *console.App) *cobra.Command {
	return newChangeCommand(a, "pause ROLLOUT", "let no further runtime begin",
		"Runtimes that have begun finish. klm rollout resume lets the rollout go on.", `
klm rollout pause sample-regular-r3 --reason="looking at an alert"`,
		preparePause)
}

func preparePause(_ context.Context, _ *connection.Cluster, r *v1beta2.ModuleRollout, o *change) error {
	if r.Spec.State == v1beta2.RolloutPaused {
		return console.Fail(console.ExitFailed, "rollout %s is paused already", r.Name)
	}
	r.Spec.State, r.Spec.Reason = v1beta2.RolloutPaused, o.reason
	o.effect = fmt.Sprintf("rollout %s is paused: nobody begins any more, and what has begun finishes", r.Name)
	return nil
}

func resumeCommand(a *console.App) *cobra.Command {
	return newChangeCommand(a, "resume ROLLOUT", "let a paused, halted or held rollout go on",
		"A rollout that was halted or held by failures needs --reason. The failures so far are acknowledged, and only "+
			"further ones count.", `
klm rollout resume sample-regular-r3 --reason="the three failures are a known disk problem"`,
		prepareResume)
}

func prepareResume(ctx context.Context, c *connection.Cluster, r *v1beta2.ModuleRollout, o *change) error {
	isStopped := r.Status.Phase == v1beta2.RolloutHalted
	for _, b := range r.Status.Blockers { // a resumption removes no other blocker
		isStopped = isStopped || rollout.EndsByResumption(b.Code)
	}
	switch {
	case r.Spec.State == v1beta2.RolloutPaused && !isStopped:
	case !isStopped && len(r.Status.Blockers) > 0:
		return console.Fail(console.ExitNotReady, "rollout %s does not wait for a person: %s", r.Name,
			r.Status.Blockers[0].Message)
	case !isStopped:
		return console.Fail(console.ExitFailed, "rollout %s is neither paused nor halted nor held: it is %s",
			r.Name,
			r.Status.Phase)
	case o.reason == "":
		return console.Fail(console.ExitUsage,
			"rollout %s is %s: %s; others will read why it goes on, so give "+
				"--reason", r.Name, r.Status.Phase, r.Status.Message)
	default:
		by, err := c.UserName(ctx)
		if err != nil {
			return err
		}
		r.Spec.Resumptions = append(r.Spec.Resumptions, v1beta2.RolloutResumption{By: by,
			At:     metav1.NewTime(o.now),
			Reason: o.reason})
		o.question = fmt.Sprintf("Resume rollout %s with %d failed and %d lost runtimes?", r.Name,
			r.Status.Runtimes.Failed, r.Status.Runtimes.Lost)
	}
	r.Spec.State, r.Spec.Reason = v1beta2.RolloutRunning, o.reason
	o.effect = fmt.Sprintf("rollout %s goes on", r.Name)
	return nil
}

func abortCommand(a *console.App) *cobra.Command {
	return newChangeCommand(a, "abort ROLLOUT", "end a rollout before it is completed",
		"Nobody begins any more. Runtimes that have begun finish, and keep the new version. An aborted rollout cannot go "+
			"on: move the channel again, or set it back with klm channel set.", `
klm rollout abort sample-regular-r3 --reason="2.0.0 loses data"`,
		prepareAbort)
}

func prepareAbort(_ context.Context, _ *connection.Cluster, r *v1beta2.ModuleRollout, o *change) error {
	r.Spec.State, r.Spec.Reason = v1beta2.RolloutAborted, o.reason
	n := r.Status.Runtimes.Proven + r.Status.Runtimes.Failed + r.Status.Runtimes.Updating +
		r.Status.Runtimes.Excused
	o.question = fmt.Sprintf("Abort rollout %s? %d runtimes have begun: they finish, and keep %s. It cannot go on "+
		"afterwards.", r.Name, n, r.Spec.To)
	o.effect = fmt.Sprintf("rollout %s is aborted: %d runtimes have begun, and keep %s", r.Name, n, r.Spec.To)
	return nil
}

func approveCommand(a *console.App) *cobra.Command {
	return newChangeCommand(a, "approve ROLLOUT", "approve the gates of a stage",
		"The approval has your name, as the API server knows it, and the digest of the plan. It does not count for "+
			"another stage or another plan.", `
klm rollout approve sample-regular-r3 --stage=canary`,
		prepareApproval)
}

func prepareApproval(ctx context.Context, c *connection.Cluster, r *v1beta2.ModuleRollout, o *change) error {
	i := slices.IndexFunc(r.Spec.Stages, func(s v1beta2.ModuleRolloutStage) bool { return s.Name == o.stage })
	switch current := r.Status.Stage.Name; {
	case o.stage == "":
		return console.Fail(console.ExitUsage, "name the stage: --stage=%s", current)
	case i < 0:
		return console.Fail(console.ExitNotFound, "rollout %s has no stage %q: its current stage is %s", r.Name,
			o.stage, current)
	case i < int(r.Status.Stage.Index):
		return console.Fail(console.ExitFailed, "stage %s of rollout %s is over: its current stage is %s",
			o.stage,
			r.Name, current)
	case r.Status.Plan == "":
		return console.Fail(console.ExitNotReady, "rollout %s was not planned yet: try again", r.Name)
	case !slices.ContainsFunc(r.Spec.Stages[i].Gates,
		func(g v1beta2.RolloutGate) bool { return g.Approval != nil }):
		return console.Fail(console.ExitFailed, "stage %s of rollout %s needs no approval", o.stage, r.Name)
	}
	by, err := c.UserName(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(r.Spec.Approvals, func(p v1beta2.RolloutApproval) bool {
		return p.By == by && p.Stage == o.stage && p.Plan == r.Status.Plan
	}) {
		return console.Fail(console.ExitFailed, "%s has approved stage %s of rollout %s already", by, o.stage,
			r.Name)
	}
	r.Spec.Approvals = append(r.Spec.Approvals, v1beta2.RolloutApproval{Stage: o.stage, By: by,
		At: metav1.NewTime(o.now), Plan: r.Status.Plan})
	o.question = fmt.Sprintf("Approve stage %s of rollout %s (%s to %s) as %s? %d runtimes are proven, %d have failed.",
		o.stage, r.Name, r.Spec.From, r.Spec.To, by, r.Status.Runtimes.Proven, r.Status.Runtimes.Failed)
	o.effect = fmt.Sprintf("stage %s of rollout %s is approved by %s", o.stage, r.Name, by)
	return nil
}

// applier is a function that changes the given copy of a rollout. The function returns an error with the reason if the
// change makes no sense now.
type applier func(context.Context, *connection.Cluster, *v1beta2.ModuleRollout, *change) error

// appliers maps each verb to the function that makes the change.
var appliers = map[string]applier{"pause": preparePause, "resume": prepareResume, "abort": prepareAbort,
	"approve": prepareApproval}

// Act changes a rollout for the dashboard. Act does the same as the command klm rollout with the given verb and --yes,
// and returns a text about the effect. The caller must have asked the user for confirmation.
func Act(ctx context.Context, c *connection.Cluster, verb, name, stage, reason string, now time.Time) (
	effect string, err error) {
	apply := appliers[verb]
	if apply == nil {
		return "", console.Fail(console.ExitUsage, "there is no action %q", verb)
	}
	o := &change{stage: stage, reason: reason, now: now}
	err = o.retryOnConflict(ctx, c, name, apply, func(before, after *v1beta2.ModuleRollout) error {
		return o.patch(ctx, c, before, after)
	})
	return o.effect, err
}

// retryOnConflict reads a rollout, checks whether the change makes sense, and writes the changed rollout. If another
// client changes the rollout at the same time, retryOnConflict reads the rollout again and repeats the check.
func (o *change) retryOnConflict(ctx context.Context, c *connection.Cluster, name string, apply applier,
	write func(before, after *v1beta2.ModuleRollout) error) error {
	const maxTries = 5 // the manager writes the status every few seconds
	for try := 1; ; try++ {
		before, err := c.Rollout(ctx, name)
		if err != nil {
			return err
		}
		if before.Status.Phase.IsOver() {
			return console.Fail(console.ExitFailed, "rollout %s has ended: it is %s", before.Name, before.Status.Phase)
		}
		if len(before.Spec.Stages) == 0 {
			return console.Fail(console.ExitFailed, "rollout %s has no stages, because no RolloutPolicy is for it: "+
				"all runtimes follow at once; to stop them, set the channel back: klm channel set %s %s %s",
				before.Name, before.Spec.Module, before.Spec.Channel, before.Spec.From)
		}
		after := before.DeepCopy()
		if err := apply(ctx, c, after, o); err != nil {
			return err
		}
		err = write(before, after)
		if !apierrors.IsConflict(err) || try == maxTries {
			return c.Explain(err, "changing ModuleRollout "+before.Name)
		}
	}
}

// newChangeCommand returns a command that changes the spec of one rollout. The function apply changes the copy of the
// rollout that it gets.
func newChangeCommand(a *console.App, use, short, long, example string,
	apply applier) *cobra.Command {
	o := &change{}
	c := a.Command(use, short, long, example, console.Arguments("ROLLOUT"), func(cmd *cobra.Command,
		args []string) error {
		c, err := connection.ControlPlaneWithRollouts(cmd.Context(), a)
		if err != nil {
			return err
		}
		o.now = a.Now()
		return o.retryOnConflict(cmd.Context(), c, args[0], apply, func(before, after *v1beta2.ModuleRollout) error {
			return o.confirmAndPatch(cmd.Context(), a, c, before, after)
		})
	})
	c.ValidArgsFunction = console.CompleteArguments(connection.RolloutNames(a, isActive))
	c.Flags().StringVar(&o.reason, "reason", "", "why, for others")
	if c.Name() == "approve" {
		c.Flags().StringVar(&o.stage, "stage", "", "name of the stage")
	}
	c.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "only show what would be done, and change nothing")
	return c
}

// confirmAndPatch asks the user for confirmation, and then writes the change of a rollout. confirmAndPatch fails if
// another client has changed the rollout since klm has read it.
func (o *change) confirmAndPatch(ctx context.Context, a *console.App, c *connection.Cluster,
	before, after *v1beta2.ModuleRollout) error {
	outcome := console.Outcome{Object: "modulerollout/" + after.Name, Result: o.effect}
	if o.dryRun {
		outcome.Result = "would do: " + o.effect
		return a.Print(outcome)
	}
	if !o.yes && o.question != o.confirmed { // after a conflict, only a changed question is asked again
		if err := a.Confirm(o.question); err != nil {
			return err
		}
		o.confirmed = o.question
	}
	if err := o.patch(ctx, c, before, after); err != nil {
		return err
	}
	return a.Print(outcome)
}

// patch writes the change of a rollout. patch fails if another client has changed the rollout since klm has read it.
func (o *change) patch(ctx context.Context, c *connection.Cluster, before, after *v1beta2.ModuleRollout) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": before.UID, "resourceVersion": before.ResourceVersion},
		"spec": map[string]any{"state": after.Spec.State, "reason": after.Spec.Reason,
			"approvals":   after.Spec.Approvals,
			"resumptions": after.Spec.Resumptions},
	})
	if err != nil {
		return fmt.Errorf("encoding the change of rollout %s: %w", before.Name, err)
	}
	return c.Patch(ctx, after, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(connection.FieldOwner))
}
