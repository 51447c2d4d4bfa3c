package channeladmin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/plan"
)

// RolloutPlanCommand returns the command klm rollout plan.
func RolloutPlanCommand(a *console.App) *cobra.Command {
	o := setOptions{ChangeFlags: console.ChangeFlags{DryRun: true}}
	names := false
	c := a.Command("plan MODULE CHANNEL VERSION | ROLLOUT",
		"what a move of a channel would do, or what is left of a rollout, stage by stage", `
For a move it is the same as klm channel set --dry-run: the same code that the manager plans with finds out the stage of each runtime, and what
keeps it from the version now. For a ModuleRollout it shows what follows when it goes on. BEGINS and ENDS are a forecast: they contain the
maintenance window of each runtime, freezes, soak times, gates with a time and all limits, and assume that nothing fails and that approvals are
given at once. An update counts with the time that the updates of the rollout took so far, at first with 2 minutes. With --diff, klm reads both
versions and shows which objects and rights the new one adds, changes and removes, and what klm module lint --previous finds in it.`, `
klm rollout plan sample regular 2.0.0
klm rollout plan sample-regular-r3
klm rollout plan sample regular 2.0.0 --names
klm rollout plan sample regular 2.0.0 --diff
klm rollout plan sample regular 2.0.0 -o jsonpath={.plan}`,
		console.Arguments("MODULE or ROLLOUT", "[CHANNEL]", "[VERSION]"), func(cmd *cobra.Command,
			args []string) error {
			o.module, o.names = args[0], names
			if err := o.diff.checkAndReadLogin(a); err != nil {
				return err
			}
			switch len(args) {
			case 1:
				return showRestOfRollout(cmd.Context(), a, o, args[0])
			case 2:
				return console.Fail(console.ExitUsage,
					"VERSION is missing: klm rollout plan MODULE CHANNEL VERSION, or klm "+
						"rollout plan ROLLOUT")
			}
			o.channel, o.version = args[1], args[2]
			return setOrRemoveChannel(cmd.Context(), a, o)
		})
	isActive := func(r *v1beta2.ModuleRollout) bool { return !r.Status.Phase.IsOver() }
	c.ValidArgsFunction = console.CompleteArguments(func(ctx context.Context, args []string) []string {
		return slices.Concat(connection.CatalogModules(a)(ctx, args), connection.RolloutNames(a, isActive)(ctx, args))
	}, connection.ModuleChannels(a), connection.ModuleVersions(a))
	c.Flags().BoolVar(&names, "names", false, "show the names of the runtimes of each stage")
	o.registerUrgency(c)
	o.diff.register(c)
	connection.RegisterMaintenancePolicyFlag(c.Flags(), &o.policy)
	return c
}

// Preview returns the plan of the rollout that follows if a channel is moved to another version. If the parameter
// existingRollout is the name of a ModuleRollout, Preview returns the plan for the remaining runtimes of this rollout.
// The report has no plan if no runtime changes its version.
func Preview(ctx context.Context, a *console.App, c *connection.Cluster, module, channel, version,
	existingRollout string) (*Effects, error) {
	o := setOptions{module: module, channel: channel, version: version, ChangeFlags: console.ChangeFlags{DryRun: true}}
	r, err := effectsOfMoveOrRest(ctx, a, c, o, existingRollout)
	if err != nil {
		return nil, err
	}
	// A dashboard stores the report, so the report must not keep the Kymas and Manifests of the fleet in memory.
	r.members, r.fleet, r.plan = nil, nil, nil
	return r, nil
}

func effectsOfMoveOrRest(ctx context.Context, a *console.App, c *connection.Cluster, o setOptions,
	existingRollout string) (*Effects, error) {
	if existingRollout != "" {
		return restOfRollout(ctx, a, c, o, existingRollout)
	}
	r, _, err := effectsOf(ctx, a, c, o)
	return r, err
}

// showRestOfRollout shows the plan of a rollout in progress: the stages and runtimes that are left.
func showRestOfRollout(ctx context.Context, a *console.App, o setOptions, rollout string) error {
	c, err := connection.ControlPlaneWithRollouts(ctx, a)
	if err != nil {
		return err
	}
	r, err := restOfRollout(ctx, a, c, o, rollout)
	if err == nil {
		err = r.addDiff(ctx, c, &o.diff)
	}
	if err != nil {
		return err
	}
	return a.Print(r)
}

// restOfRollout returns the plan of a rollout in progress: the stages and runtimes that are left.
func restOfRollout(ctx context.Context, a *console.App, c *connection.Cluster, o setOptions, name string) (
	*Effects, error) {
	active, err := c.Rollout(ctx, name)
	if err != nil {
		return nil, err
	}
	s, err := c.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	o.module, o.channel, o.version = active.Spec.Module, active.Spec.Channel, active.Spec.To
	w := preview{setOptions: o, after: s.ForResolve(), release: s.Releases[o.module], now: a.Now()}
	target := ""
	if w.release != nil {
		target, _ = w.release.Current(o.channel)
	}
	switch {
	case active.Status.Phase.IsOver():
		return nil, console.Fail(console.ExitFailed, "rollout %s has ended: it is %s", name, active.Status.Phase)
	case len(active.Spec.Stages) == 0:
		return nil, console.Fail(console.ExitFailed, "rollout %s has no stages, because no RolloutPolicy is for it: "+
			"all runtimes follow at once", name)
	case target != active.Spec.To:
		return nil, console.Fail(console.ExitFailed,
			"rollout %s is about to end: channel %s of module %s has version %s now: "+
				"klm rollout plan %s %s %s", name, o.channel, o.module, console.OrDash(target), o.module, o.channel,
			target)
	}
	if err := w.readWindows(ctx, c); err != nil {
		return nil, err
	}
	policies, err := c.Policies(ctx)
	if err != nil {
		return nil, err
	}
	var policy *v1beta2.RolloutPolicy
	for i := range policies {
		if policies[i].Name == active.Spec.Policy {
			policy = &policies[i]
		}
	}
	r, err := previewEffects(ctx, a, c, w)
	if err != nil {
		return nil, err
	}
	r.From, r.isUnderWay, r.members.DeferUntil = active.Spec.From, true, rollout.DeferrableUntil(active, nil, w.now)
	if r.plan, err = plan.For(active, policy, r.fleet, w.now); err != nil {
		return nil, console.Fail(console.ExitFailed, "%v", err)
	}
	r.overrideWithPlan()
	r.addWayBack(&w.after)
	return r, nil
}

// fleetOf returns the runtimes that take part in a rollout, by the same rules by which the manager selects them.
func (w *preview) fleetOf(manifests []*v1beta2.Manifest, kymas map[string]*v1beta2.Kyma) (*plan.Fleet,
	[]rollout.Runtime) {
	if w.remove {
		return nil, nil
	}
	fleet := &plan.Fleet{Release: w.release, Channel: w.channel, Catalog: w.after, Now: w.now}
	var all []rollout.Runtime
	for _, m := range manifests {
		r, takesPart := fleet.Runtime(kymas[m.KymaName()], m)
		if !takesPart {
			continue
		}
		if blocked := r.Blocked; w.after.Policy == nil { // only the manager knows the windows
			if r.Window != nil {
				r.Window = func(time.Time) (channel.MaintenanceWindow, error) {
					return channel.MaintenanceWindow{}, errors.New(noWindow)
				}
			}
			r.Blocked = func() *channel.Blocker {
				b := blocked()
				if b != nil && b.Code == v1beta2.ReasonWindowUnknown {
					return &channel.Blocker{Code: v1beta2.ReasonWaitingForWindow, Message: noWindow}
				}
				return b
			}
		}
		all = append(all, r)
	}
	return fleet, all
}

// addPlan adds to the report the stages of the rollout that the manager will make. Without a RolloutPolicy, a rollout
// has no stages.
func (r *Effects) addPlan(ctx context.Context, c *connection.Cluster, w preview) error {
	if r.isRemoval() {
		return nil
	}
	policies, err := c.Policies(ctx)
	if console.ExitCode(err) == console.ExitForbidden { // a user who may only release versions gets no plan
		r.Note = "whether the version reaches the runtimes in stages is unknown: " + err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	policy, err := rollout.PolicyFor(policies, r.Module, r.Channel)
	if err != nil {
		return console.Fail(console.ExitFailed, "nothing would move: %v", err)
	}
	r.members.DeferUntil = rollout.DeferrableUntil(nil, policy, w.now)
	if policy == nil && w.urgency.Is != "" {
		return console.Fail(console.ExitFailed, "no RolloutPolicy is for channel %s of module %s, so the version "+
			"takes effect on all runtimes at once: leave out --urgency", r.Channel, r.Module)
	}
	rollouts, err := c.Rollouts(ctx, labels.Everything())
	if err != nil {
		return err
	}
	what := rollout.Channel{Release: w.release, Name: r.Channel, Policy: policy, Runtimes: r.fleet, Now: w.now,
		Urgency:  w.urgency,
		GoesBack: func(from, to string) error { return w.after.CheckGoingBack(r.Module, from, to) }}
	for i := range rollouts {
		o := &rollouts[i]
		if s := w.release.ChannelStatus(r.Channel); s != nil && s.Rollout == o.Name {
			what.Active = o
		}
		// A rollout of another module can have the same name: module a-b with channel c, module a with channel b-c.
		what.LastRevision = max(what.LastRevision, rollout.RevisionOf(o.Name, r.Module, r.Channel))
	}
	if r.plan, err = plan.ForMove(what); err != nil || !r.isStaged() {
		return err
	}
	r.overrideWithPlan()
	r.addWayBack(&w.after)
	return nil
}

// addWayBack adds two facts to the report: whether a downgrade to the former version is possible, and what the
// RolloutPolicy does with the runtimes after a halt.
func (r *Effects) addWayBack(after *channel.Catalog) {
	spec := &r.plan.Rollout.Spec
	if spec.IsRollback() || spec.From == "" {
		return
	}
	if err := after.CheckGoingBack(r.Module, spec.To, spec.From); err != nil {
		r.WayBack = fmt.Sprintf("There is no way back to %s: %v.", spec.From, err)
		return
	}
	r.WayBack = fmt.Sprintf("The way back to %s is declared.", spec.From)
	switch spec.OnHalt {
	case v1beta2.HaltTakeBack:
		r.WayBack += " A halt takes all runtimes back."
	case v1beta2.HaltTakeBackFailed:
		r.WayBack += " A halt takes back the runtimes in which the version fails."
	}
}

// overrideWithPlan adds the plan to the report. The plan takes precedence over the previewed effect on a runtime,
// because the plan also considers facts about the runtime: for example, a runtime that cannot be reached, or whose
// module does not work, is not admitted.
func (r *Effects) overrideWithPlan() {
	r.Policy, r.Rollout, r.Supersedes = r.plan.Rollout.Spec.Policy, r.plan.Rollout.Name, r.plan.Supersedes
	r.Plan, r.Stages = r.plan.Digest, r.plan.Stages
	r.UpdateSeconds, r.Ends, r.Late, r.Hold = int64(r.plan.Update.Seconds()), r.plan.Ends, r.plan.Late, r.plan.Hold
	r.Urgency, r.Reason = r.plan.Rollout.Spec.Urgency, r.plan.Rollout.Spec.UrgencyReason
	for i := range r.Runtimes {
		e := &r.Runtimes[i]
		m, takesPart := r.plan.Members[e.Runtime]
		e.Stage, e.Begins = m.Stage, m.Begins
		switch b := m.Blocker; {
		case !takesPart && e.Effect == "moves":
			e.Message = "the module is new there: it follows by newInstallations of the policy"
		case b == nil:
		default:
			if e.Effect = "blocked"; !b.Until.IsZero() || b.Code == v1beta2.ReasonWaitingForWindow {
				e.Effect = "waits" // it ends by itself
			}
			e.Reason, e.Message, e.Until = b.Code, b.Message, b.Until
			e.Remedy = diagnosis.RemedyFor(b.Code, b.Message)
		}
	}
	r.sort()
}

// showRemedies shows for each reason what to do, if the messages with this reason contain no instruction.
func (r *Effects) showRemedies(p *console.Page) {
	shown := map[string]bool{}
	for _, e := range r.Runtimes {
		if e.Remedy != "" && !shown[e.Reason] {
			shown[e.Reason] = true
			p.Wrap("", e.Reason+": "+e.Remedy)
		}
	}
}

// isStaged reports whether the rollout has stages.
func (r *Effects) isStaged() bool { return r.plan != nil && len(r.plan.Stages) > 0 }

// showStages shows the stages of the rollout.
func (r *Effects) showStages(p *console.Page) {
	if !r.isStaged() {
		return
	}
	verb := "has"
	if r.DryRun && !r.isUnderWay {
		verb = "would have"
	}
	p.Line("ModuleRollout %s of RolloutPolicy %s %s %s; plan %s.", r.Rollout, r.Policy, verb,
		console.Count(len(r.Stages), "stage"), r.Plan)
	spec := &r.plan.Rollout.Spec
	switch {
	case spec.IsRollback():
		p.Line("It takes runtimes with %s back to %s, those whose module fails first; no other runtime is changed.",
			spec.From, spec.To)
	case r.Supersedes != "":
		p.Line("It supersedes %s: runtimes that have begun with %s get the new version first.", r.Supersedes, r.From)
	}
	if r.Urgency != "" {
		p.Wrap("", urgencyText(spec))
	}
	if r.WayBack != "" {
		p.Wrap("", r.WayBack)
	}
	p.Line("")
	var rows [][]string
	for i, s := range r.Stages {
		then := slices.Clone(s.Gates)
		if s.Soak > 0 {
			then = slices.Insert(then, 0, "observed for "+duration.HumanDuration(time.Duration(s.Soak)*time.Second))
		}
		var blocked []string
		for _, reason := range slices.Sorted(maps.Keys(s.Blocked)) {
			blocked = append(blocked, fmt.Sprintf("%d %s", s.Blocked[reason], reason))
		}
		rows = append(rows, []string{s.Name, p.Clip(connection.StageSelectionText(&r.plan.Rollout.Spec.Stages[i]), 40),
			fmt.Sprint(s.Runtimes), fmt.Sprint(s.Begun), fmt.Sprint(s.Moving), console.OrDash(strings.Join(blocked,
				", ")),
			fmt.Sprint(s.Concurrency), fmt.Sprint(s.AllowedFailures), p.FormatUTC(s.Begins), p.FormatUTC(s.Ends),
			console.OrDash(strings.Join(then, ", "))})
	}
	p.Table([]string{"STAGE", "WHO", "RUNTIMES", "BEGUN", "CAN BEGIN", "BLOCKED", "AT A TIME", "MAY FAIL", "BEGINS",
		"ENDS", "THEN"}, rows)
	p.Line("")
	r.showExpectedEnd(p)
	if r.Pinned > 0 {
		p.Line("Runtimes that have pinned a version, and take no part: %d.", r.Pinned)
	}
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

// showExpectedEnd shows the time at which all runtimes are expected to have the version, and what may delay this time.
func (r *Effects) showExpectedEnd(p *console.Page) {
	if r.Hold != nil {
		p.Wrap("", "Nobody begins now: "+r.Hold.Message+"; what to do: "+r.Hold.Remedy)
	}
	if !r.Ends.IsZero() {
		p.Wrap("", fmt.Sprintf("All runtimes have the version by %s UTC, if nothing fails, approvals are given at once, and an update takes %s.",
			p.FormatUTC(r.Ends), duration.HumanDuration(r.plan.Update)))
	}
	const limit = 10
	if len(r.Late) == 0 || r.WindowsUnknown != "" {
		return
	}
	p.Line("%s no maintenance window within %s:", console.Count(len(r.Late), "runtime")+" "+hasOrHave(len(r.Late)),
		duration.HumanDuration(plan.FarAway))
	for i, l := range r.Late {
		if i == limit && !p.Wide {
			p.Line("  and %d more, see -o wide", len(r.Late)-limit)
			break
		}
		about := "its window opens at " + p.FormatUTC(l.Opens) + " UTC"
		if l.Opens.IsZero() {
			about = l.Message
		}
		p.Wrap("  ", l.Runtime+" (stage "+l.Stage+"): "+about)
	}
}

func hasOrHave(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

// waitForRollout waits until the manager has made the rollout, and with --wait until all runtimes have the version.
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
		if r.Status.Phase == "" {
			return connection.Progress{Text: "ModuleRollout " + name + " has not begun yet"}
		}
		return connection.Progress{Text: fmt.Sprintf("%s is %s: %s", name, r.Status.Phase, r.Status.Message)}
	})
}
