package channeladmin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/plan"
)

// PlanCommand returns the command klm rollout plan.
func PlanCommand(a *console.App) *cobra.Command {
	o := setOptions{ChangeFlags: console.ChangeFlags{DryRun: true}}
	names := false
	c := a.Command("plan MODULE CHANNEL VERSION", "what a move of a channel would do, stage by stage", `
It is the same as klm channel set --dry-run: the same code that the manager plans with finds out the stage of each runtime, and what keeps it
from the version now. EARLIEST contains soak times and limits of starts per minute, but not the time of the updates.`, `
klm rollout plan sample regular 2.0.0
klm rollout plan sample regular 2.0.0 --names
klm rollout plan sample regular 2.0.0 -o jsonpath={.plan}`,
		console.Arguments("MODULE", "CHANNEL", "VERSION"), func(cmd *cobra.Command, args []string) error {
			o.module, o.channel, o.version, o.names = args[0], args[1], args[2], names
			return setChannel(cmd.Context(), a, o)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.CatalogModules(a), connection.ModuleChannels(a),
		connection.ModuleVersions(a))
	c.Flags().BoolVar(&names, "names", false, "show the names of the runtimes of each stage")
	c.Flags().StringVar(&o.policy, "maintenance-policy-configmap", "",
		"ConfigMap with the maintenance policy, as in the flag of the manager; empty: maintenance windows are unknown")
	return c
}

// addPlan adds the stages of the rollout that the manager will make. Without a RolloutPolicy there are none.
func (r *setReport) addPlan(ctx context.Context, c *connection.Cluster, release *v1beta2.ModuleReleaseMeta,
	now time.Time) error {
	policies, err := c.Policies(ctx)
	if err != nil || r.isRemoval() {
		return err
	}
	policy, err := rollout.PolicyFor(policies, r.Module, r.Channel)
	if err != nil {
		return console.Fail(console.ExitFailed, "nothing would move: %v", err)
	}
	rollouts, err := c.Rollouts(ctx, labels.Everything())
	if err != nil {
		return err
	}
	what := rollout.Channel{Release: release, Name: r.Channel, Policy: policy, Now: now}
	for i := range rollouts {
		o := &rollouts[i]
		if s := release.ChannelStatus(r.Channel); s != nil && s.Rollout == o.Name {
			what.Active = o
		}
		if o.Spec.Module == r.Module {
			what.LastRevision = max(what.LastRevision, rollout.RevisionOf(o.Name, r.Module, r.Channel))
		}
	}
	runtimes := make([]plan.Runtime, len(r.Runtimes))
	for i, e := range r.Runtimes {
		runtimes[i] = plan.Runtime{Kyma: e.Runtime, Labels: e.labels, Ordered: e.requested, Moves: e.Effect == "moves",
			Reason: e.Reason}
	}
	if r.plan, err = plan.Of(what, runtimes); err != nil || !r.isStaged() {
		return err
	}
	r.Policy, r.Rollout, r.Supersedes = r.plan.Rollout.Spec.Policy, r.plan.Rollout.Name, r.plan.Supersedes
	r.Plan, r.Stages = r.plan.Digest, r.plan.Stages
	for i := range r.Runtimes {
		r.Runtimes[i].Stage = r.plan.StageOf[r.Runtimes[i].Runtime]
	}
	return nil
}

// isStaged reports whether the version reaches the runtimes in stages.
func (r *setReport) isStaged() bool { return r.plan != nil && len(r.plan.Stages) > 0 }

// showStages shows the stages of the rollout.
func (r *setReport) showStages(p *console.Page) {
	if !r.isStaged() {
		return
	}
	verb := "has"
	if r.DryRun {
		verb = "would have"
	}
	p.Line("ModuleRollout %s of RolloutPolicy %s %s %s; plan %s.", r.Rollout, r.Policy, verb,
		console.Count(len(r.Stages), "stage"), r.Plan)
	if r.Supersedes != "" {
		p.Line("It supersedes %s: runtimes that have begun with %s get the new version first.", r.Supersedes, r.From)
	}
	p.Line("")
	var rows [][]string
	for i, s := range r.Stages {
		then := slices.Clone(s.Gates)
		if s.Soak > 0 {
			then = slices.Insert(then, 0, "observed for "+duration.HumanDuration(time.Duration(s.Soak)*time.Second))
		}
		earliest := "at once"
		if s.Earliest > 0 {
			earliest = "after " + duration.HumanDuration(time.Duration(s.Earliest)*time.Second)
		}
		var blocked []string
		for _, reason := range slices.Sorted(maps.Keys(s.Blocked)) {
			blocked = append(blocked, fmt.Sprintf("%d %s", s.Blocked[reason], reason))
		}
		rows = append(rows, []string{s.Name, p.Clip(connection.StageMembers(&r.plan.Rollout.Spec.Stages[i]), 40),
			fmt.Sprint(s.Runtimes), fmt.Sprint(s.Moving), console.OrDash(strings.Join(blocked, ", ")),
			fmt.Sprint(s.Concurrency), fmt.Sprint(s.AllowedFailures), earliest,
			console.OrDash(strings.Join(then, ", "))})
	}
	p.Table([]string{"STAGE", "WHO", "RUNTIMES", "CAN BEGIN", "BLOCKED", "AT A TIME", "MAY FAIL", "EARLIEST", "THEN"},
		rows)
	p.Line("")
	if r.names {
		for _, s := range r.Stages {
			p.Wrap("  ", s.Name+": "+console.OrDash(strings.Join(s.Names, " ")))
		}
		p.Line("")
	}
	if !r.DryRun {
		p.Line("See klm rollout watch %s.", r.Rollout)
	}
}

// waitForRollout waits until the manager has made the rollout, and with --wait until it has reached all runtimes.
func waitForRollout(ctx context.Context, a *console.App, c *connection.Cluster, o setOptions, name string) error {
	if o.NoWait {
		return nil
	}
	return connection.WaitForRollout(ctx, a, c, name, o.Timeout, func(r *v1beta2.ModuleRollout) connection.Progress {
		switch {
		case r == nil:
			return connection.Progress{Text: "ModuleRollout " + name + " is not made yet"}
		case !o.isPatient, r.Status.Phase == v1beta2.RolloutCompleted, r.Status.Phase == v1beta2.RolloutTail:
			return connection.Progress{Done: true}
		case r.Status.Phase.IsOver(), r.Status.Phase == v1beta2.RolloutHalted:
			return connection.Progress{Blocked: console.Fail(console.ExitNotReady,
				"the channel is set, but rollout %s is %s: %s; see klm rollout show %s", name, r.Status.Phase,
				r.Status.Message, name)}
		}
		return connection.Progress{Text: fmt.Sprintf("%s is %s: %s", name, r.Status.Phase, r.Status.Message)}
	})
}
