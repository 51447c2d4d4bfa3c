package rolloutadmin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

func showCommand(a *console.App) *cobra.Command {
	watch := false
	c := a.Command("show ROLLOUT", "a rollout: its stages with their results, its gates, and what it waits for", `
The evidence of a stage states what its results prove about the whole fleet: 20 runtimes without a failure do not prove that 10,000 will have
none. A rollout without a RolloutPolicy has no stages: its runtimes follow at once.`, `
klm rollout show sample-regular-r3
klm rollout show sample-regular-r3 --watch
klm rollout show sample-regular-r3 -o jsonpath={.blockers[0].remedy}`,
		console.Arguments("ROLLOUT"), func(cmd *cobra.Command, args []string) error {
			c, err := connection.ControlPlaneWithRollouts(cmd.Context(), a)
			if err != nil {
				return err
			}
			if watch {
				return watchRollout(cmd.Context(), a, c, args[0])
			}
			r, err := c.Rollout(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.Print(reportOf(r))
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.RolloutNames(a, isAnyRollout))
	c.Flags().BoolVarP(&watch, "watch", "w", false, "keep running, and show every change until the rollout ends")
	return c
}

func watchCommand(a *console.App) *cobra.Command {
	c := a.Command("watch ROLLOUT", "show a rollout again after each change, until it ends",
		"It ends with exit code 0 if the rollout was completed, and with 3 if it was aborted or superseded. A halted "+
			"rollout has not ended: a person may resume it.", `
klm rollout watch sample-regular-r3`,
		console.Arguments("ROLLOUT"), func(cmd *cobra.Command, args []string) error {
			c, err := connection.ControlPlaneWithRollouts(cmd.Context(), a)
			if err != nil {
				return err
			}
			return watchRollout(cmd.Context(), a, c, args[0])
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.RolloutNames(a, isActive))
	return c
}

func isAnyRollout(*v1beta2.ModuleRollout) bool { return true }

func isActive(r *v1beta2.ModuleRollout) bool { return !r.Status.Phase.IsOver() }

// watchRollout shows a rollout again after each change, until the rollout ends.
func watchRollout(ctx context.Context, a *console.App, c *connection.Cluster, name string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	screen, last := console.Screen{App: a}, (*v1beta2.ModuleRollout)(nil)
	err := console.RefreshUntilDone(ctx, c.RolloutChanges(ctx, name), func() error {
		r, err := c.Rollout(ctx, name)
		if err != nil {
			return err
		}
		if last = r; !isActive(r) {
			stop()
		}
		return screen.Show(reportOf(r))
	})
	if err == nil && last != nil && !isActive(last) && last.Status.Phase != v1beta2.RolloutCompleted {
		return console.Fail(console.ExitNotReady, "rollout %s has ended: %s%s", name, last.Status.Phase,
			strings.TrimSuffix(": "+last.Status.Message, ": "))
	}
	return err
}

// rolloutReport is the report of klm rollout show.
type rolloutReport struct {
	rolloutRow
	Revision int64 `json:"revision"`
	// UrgencyReason is the reason for the urgency. IgnoreWindows is true if updates do not wait for maintenance
	// windows.
	UrgencyReason string `json:"urgencyReason,omitempty"`
	IgnoreWindows bool   `json:"ignoreWindows,omitempty"`
	Reason        string `json:"reason,omitempty"` // of the state
	Plan          string `json:"plan,omitempty"`   // the digest that approvals name
	// Since is the time at which the phase began, as far as it is known.
	Since       time.Time                   `json:"since,omitzero"`
	Stages      []stageRow                  `json:"stages"`
	Gates       []v1beta2.RolloutGateStatus `json:"gates,omitempty"` // of the current stage
	SoakUntil   time.Time                   `json:"soakUntil,omitzero"`
	ClockSetAt  time.Time                   `json:"clockSetAt,omitzero"` // when the clock of the manager was set
	Blockers    []v1beta2.RolloutBlocker    `json:"blockers,omitempty"`
	WayBack     *v1beta2.RolloutWayBack     `json:"wayBack,omitempty"` // nil if it is not known
	Worst       []v1beta2.RolloutRuntime    `json:"worst,omitempty"`
	Approvals   []v1beta2.RolloutApproval   `json:"approvals,omitempty"`
	Resumptions []v1beta2.RolloutResumption `json:"resumptions,omitempty"`
}

// stageRow is the row of one stage.
type stageRow struct {
	Name      string                `json:"name"`
	Who       string                `json:"who"` // the runtimes of the stage
	Current   bool                  `json:"current,omitempty"`
	Runtimes  v1beta2.RolloutCounts `json:"runtimes"`
	ProvenAt  time.Time             `json:"provenAt,omitzero"`
	Evidence  string                `json:"evidence,omitempty"`
	isCounted bool                  // the manager has counted the runtimes
}

func reportOf(r *v1beta2.ModuleRollout) *rolloutReport {
	s := &r.Status
	report := &rolloutReport{
		rolloutRow: rowOf(r), Revision: r.Spec.Revision, Reason: r.Spec.Reason, Plan: s.Plan, Stages: []stageRow{},
		Gates: s.Stage.Gates, Blockers: s.Blockers, WayBack: s.WayBack, Worst: s.Worst, Approvals: r.Spec.Approvals,
		Resumptions: r.Spec.Resumptions, UrgencyReason: r.Spec.UrgencyReason, IgnoreWindows: r.Spec.IgnoreWindows,
		Since: phaseSince(s),
	}
	if s.Phase == v1beta2.RolloutSoaking {
		report.SoakUntil = s.Stage.SoakUntil.Time
	}
	if c := meta.FindStatusCondition(s.Conditions, rollout.ConditionClockSet); c != nil {
		report.ClockSetAt = c.LastTransitionTime.Time
	}
	for i := range r.Spec.Stages {
		stage := &r.Spec.Stages[i]
		row := stageRow{Name: stage.Name, Who: connection.StageSelectionText(stage),
			Current: stage.Name == s.Stage.Name &&
				isActive(r)}
		j := slices.IndexFunc(s.Stages, func(is v1beta2.RolloutStageResult) bool { return is.Name == stage.Name })
		if j >= 0 {
			is := &s.Stages[j]
			row.Runtimes, row.ProvenAt, row.Evidence, row.isCounted = is.RolloutCounts, is.ProvenAt.Time, is.Evidence,
				true
		}
		report.Stages = append(report.Stages, row)
	}
	return report
}

// phaseSince returns the time at which the phase of a rollout began. A phase begins with a change of the condition
// Ready, Reconciling or Stalled, or with the progress of the current stage.
func phaseSince(s *v1beta2.ModuleRolloutStatus) time.Time {
	var progress metav1.Time
	switch s.Phase {
	case v1beta2.RolloutUpdating:
		progress = s.Stage.StartedAt
	case v1beta2.RolloutSoaking, v1beta2.RolloutTail:
		progress = s.Stage.ProvenAt
	case v1beta2.RolloutWaitingForGate:
		progress = s.Stage.SoakUntil // equals ProvenAt without a soak
	}
	since := progress.Time
	for _, c := range s.Conditions {
		if c.Type != rollout.ConditionClockSet && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

func (r *rolloutReport) Names() []string { return []string{r.Name} }

func (r *rolloutReport) Show(p *console.Page) {
	p.Line("%s is %s%s", r.Name, r.phaseWithNotes(), p.Since(r.Since))
	about := []string{fmt.Sprintf("module %s", r.Module), "channel " + r.Channel,
		console.OrDash(r.From) + " → " + r.To}
	if r.Policy != "" {
		about = append(about, "policy "+r.Policy)
	}
	if !r.Created.IsZero() {
		about = append(about, "made "+p.Age(r.Created)+" ago")
	}
	p.Line("  %s", strings.Join(about, " · "))
	if r.Message != "" {
		p.Wrap("  ", r.Message)
	}
	if r.UrgencyReason != "" {
		text := strings.ToLower(string(r.Urgency)) + ": " + r.UrgencyReason
		if r.IgnoreWindows {
			text += " (maintenance windows are ignored)"
		}
		p.Wrap("  ", text)
	}
	if r.Reason != "" {
		p.Wrap("  ", "reason: "+r.Reason)
	}
	if !r.ETA.IsZero() {
		p.Line("  all runtimes are expected to have it by %s UTC", p.FormatUTC(r.ETA))
	}
	p.Line("")
	r.showStages(p)
	r.showGates(p)
	r.showBlockersAndWorstRuntimes(p)
	r.showWayBack(p)
	r.showApprovalsAndResumptions(p)
}

// showWayBack shows whether runtimes can be downgraded to the former version, and what to do if they cannot.
func (r *rolloutReport) showWayBack(p *console.Page) {
	w := r.WayBack
	if w == nil {
		return
	}
	p.Line("")
	switch {
	case w.Verified:
		p.Wrap("", fmt.Sprintf("Way back to %s: declared (klm rollout undo %s); %s", w.To, r.Name, w.Message))
	case w.Declared:
		p.Wrap("", fmt.Sprintf("Way back to %s: declared, but %s", w.To, w.Message))
	default:
		p.Wrap("", fmt.Sprintf("Way back to %s: none, because %s. If %s fails, move the channel to a higher version that corrects "+
			"it.", w.To, w.Message, r.To))
	}
}

func (r *rolloutReport) showStages(p *console.Page) {
	if len(r.Stages) == 0 {
		n := &r.Runtimes
		p.Line("It has no stages, because no RolloutPolicy was for it: all runtimes follow at once.")
		p.Line("%s: %d proven, %d updating, %d waiting, %d failed, %d lost, %d excused",
			console.Count(int(n.InScope), "runtime"), n.Proven, n.Updating, n.Waiting, n.Failed, n.Lost, n.Excused)
		return
	}
	var rows [][]string
	for _, s := range r.Stages {
		mark, n := "", &s.Runtimes
		if s.Current {
			mark = "→ "
		}
		row := []string{mark + s.Name, p.Clip(s.Who, 40)}
		for _, count := range []int32{n.InScope, n.Waiting, n.Updating, n.Proven, n.Failed, n.Lost, n.Excused} {
			if s.isCounted {
				row = append(row, fmt.Sprint(count))
			} else {
				row = append(row, "-")
			}
		}
		rows = append(rows, append(row, s.Evidence))
	}
	p.Table([]string{"STAGE", "WHO", "RUNTIMES", "WAITING", "UPDATING", "PROVEN", "FAILED", "LOST", "EXCUSED",
		"EVIDENCE"}, rows)
	if !r.SoakUntil.IsZero() {
		p.Line("")
		p.Line("Observed until %s: %s left", r.SoakUntil.UTC().Format(time.RFC3339),
			duration.HumanDuration(max(r.SoakUntil.Sub(p.Now), 0)))
	}
	if !r.ClockSetAt.IsZero() {
		p.Line("")
		p.Wrap("", fmt.Sprintf("The clock of the manager was set: the soak of the stage and the deadlines of updates count "+
			"from %s", r.ClockSetAt.UTC().Format(time.RFC3339)))
	}
}

func (r *rolloutReport) showGates(p *console.Page) {
	if len(r.Gates) == 0 {
		return
	}
	p.Line("")
	p.Line("Gates of stage %s:", r.Stage)
	for _, g := range r.Gates {
		p.Wrap("  ", fmt.Sprintf("%s: %s%s%s", g.Name, g.State, p.Since(g.Since.Time),
			strings.TrimSuffix(": "+g.Message, ": ")))
	}
}

func (r *rolloutReport) showBlockersAndWorstRuntimes(p *console.Page) {
	if len(r.Blockers) > 0 {
		p.Line("")
		p.Line("In the way:")
	}
	for _, b := range r.Blockers {
		about := cmp.Or(b.Object, "rollout "+r.Name)
		if b.Runtimes > 0 {
			about = console.Count(int(b.Runtimes), "runtime")
			if b.Object != "" {
				about += ", for example " + b.Object
			}
		}
		p.Line("  %s: %s", about, b.Code)
		if b.Message != "" {
			p.Wrap("    ", b.Message)
		}
		if b.Remedy != "" {
			p.Wrap("    ", "what to do: "+b.Remedy)
		}
	}
	if len(r.Worst) > 0 {
		p.Line("")
		var rows [][]string
		for _, w := range r.Worst {
			rows = append(rows, []string{w.Runtime, w.Reason, p.Clip(w.Message, 80)})
		}
		p.Table([]string{"FAILED OR LOST", "REASON", "MESSAGE"}, rows)
		p.Line("klm why RUNTIME %s shows all about one of them.", r.Module)
	}
}

func (r *rolloutReport) showApprovalsAndResumptions(p *console.Page) {
	if len(r.Approvals)+len(r.Resumptions) > 0 {
		p.Line("")
	}
	for _, a := range r.Approvals {
		note := ""
		if r.Plan != "" && a.Plan != r.Plan {
			note = "; it is for another plan and does not count"
		}
		p.Line("Stage %s was approved by %s %s ago%s", a.Stage, a.By, p.Age(a.At.Time), note)
	}
	for _, s := range r.Resumptions {
		p.Wrap("", fmt.Sprintf("Resumed by %s %s ago: %s", cmp.Or(s.By, "somebody"), p.Age(s.At.Time), s.Reason))
	}
}
