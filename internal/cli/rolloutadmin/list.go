package rolloutadmin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

func listCommand(a *console.App) *cobra.Command {
	var l console.Listing
	c := a.Command("list [-l SELECTOR] [--module MODULE] [--channel CHANNEL] [--state PHASE]…",
		"the rollouts of new versions: what is under way, and what has ended",
		"Rollouts that are under way come first, then those that ended last. The selector is for the labels of the "+
			"ModuleRollouts, and the version is the former or the new one.", `
klm rollout list
klm rollout list --module sample --channel regular
klm rollout list --state Halted,Held -o name`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			selector, err := connection.Selector(&l)
			if err != nil {
				return err
			}
			c, err := connection.ControlPlaneWithRollouts(cmd.Context(), a)
			if err != nil {
				return err
			}
			changes := func() <-chan struct{} { return c.RolloutChanges(cmd.Context(), "") }
			return console.PrintListing(cmd.Context(), a, &l, changes, func() (rolloutList, error) {
				rollouts, err := c.Rollouts(cmd.Context(), selector)
				return listRollouts(rollouts), err
			}, func(r *rolloutRow) bool { return r.isAccepted(&l) })
		})
	l.Register(c, console.FilterLabels, console.FilterModule, console.FilterVersion, console.FilterChannel,
		console.FilterState)
	l.RegisterSort(c)
	console.CompleteFlag(c, console.FilterModule, connection.CatalogModules(a))
	console.CompleteFlag(c, console.FilterState, console.FixedNames(phaseNames()...))
	return c
}

// phaseNames returns the names of the phases, for completion.
func phaseNames() []string {
	var all []string
	for _, p := range []v1beta2.RolloutPhase{v1beta2.RolloutPending, v1beta2.RolloutUpdating, v1beta2.RolloutSoaking,
		v1beta2.RolloutWaitingForGate, v1beta2.RolloutHeld, v1beta2.RolloutHalted, v1beta2.RolloutTail,
		v1beta2.RolloutEndedAborted, v1beta2.RolloutSuperseded, v1beta2.RolloutTakenBack, v1beta2.RolloutCompleted} {
		all = append(all, string(p))
	}
	return all
}

// rolloutList is the report of klm rollout list.
type rolloutList []rolloutRow

// rolloutRow is the row of one rollout.
type rolloutRow struct {
	Name    string `json:"name"`
	Module  string `json:"module"`
	Channel string `json:"channel"`
	From    string `json:"from"`
	To      string `json:"to"`
	Policy  string `json:"policy,omitempty"` // "" if all runtimes follow at once
	// Phase is "" until the manager has reconciled the rollout.
	Phase    v1beta2.RolloutPhase  `json:"phase,omitempty"`
	State    v1beta2.RolloutState  `json:"state"` // what users want
	Stage    string                `json:"stage,omitempty"`
	Runtimes v1beta2.RolloutCounts `json:"runtimes"`
	Message  string                `json:"message,omitempty"`
	// ETA is the time at which the last runtime is expected to have the version; zero if the time is not known.
	ETA     time.Time `json:"eta,omitzero"`
	Created time.Time `json:"created,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// Urgency is Hotfix or Emergency, or "" for a normal move.
	Urgency v1beta2.RolloutUrgency `json:"urgency,omitempty"`
}

// listRollouts returns the rows of rollouts: first the active rollouts, then the ended rollouts, the most recently
// ended rollout first.
func listRollouts(rollouts []v1beta2.ModuleRollout) rolloutList {
	all := rolloutList{}
	for i := range rollouts {
		all = append(all, rowOf(&rollouts[i]))
	}
	slices.SortStableFunc(all, func(a, b rolloutRow) int {
		return cmp.Or(endedLast(&a)-endedLast(&b), b.Ended.Compare(a.Ended), strings.Compare(a.Module, b.Module),
			strings.Compare(a.Channel, b.Channel), b.Created.Compare(a.Created), strings.Compare(a.Name, b.Name))
	})
	return all
}

func endedLast(r *rolloutRow) int {
	if r.Phase.IsOver() {
		return 1
	}
	return 0
}

func rowOf(r *v1beta2.ModuleRollout) rolloutRow {
	row := rolloutRow{
		Name: r.Name, Module: r.Spec.Module, Channel: r.Spec.Channel, From: r.Spec.From, To: r.Spec.To,
		Policy: r.Spec.Policy, Phase: r.Status.Phase, State: r.Spec.State, Stage: r.Status.Stage.Name,
		Runtimes: r.Status.Runtimes, Message: r.Status.Message, Created: r.CreationTimestamp.Time,
		Ended: r.Status.EndedAt.Time, ETA: r.Status.ETA.Time, Urgency: r.Spec.Urgency,
	}
	if row.Phase.IsOver() {
		row.Stage = ""
	}
	return row
}

// isAccepted reports whether the filters of a listing accept the rollout.
func (r *rolloutRow) isAccepted(l *console.Listing) bool {
	return l.Accepts(console.FilterModule, r.Module) && l.Accepts(console.FilterChannel, r.Channel) &&
		l.Accepts(console.FilterVersion, r.From, r.To) &&
		l.Accepts(console.FilterState, string(r.Phase), string(r.State))
}

// phaseWithNotes returns the phase of a rollout as a text for people, with notes such as "paused".
func (r *rolloutRow) phaseWithNotes() string {
	phase := cmp.Or(string(r.Phase), string(console.StateNew))
	var notes []string
	if r.Urgency != "" && r.Urgency != v1beta2.UrgencyNormal {
		notes = append(notes, strings.ToLower(string(r.Urgency)))
	}
	if r.State == v1beta2.RolloutPaused && !r.Phase.IsOver() {
		notes = append(notes, "paused")
	}
	if len(notes) > 0 {
		phase += " (" + strings.Join(notes, ", ") + ")"
	}
	return phase
}

func (l rolloutList) Names() []string {
	var all []string
	for _, r := range l {
		all = append(all, r.Name)
	}
	return all
}

func (l rolloutList) Show(p *console.Page) {
	if len(l) == 0 {
		p.Line("no rollouts: the manager makes one when a channel gets another version (klm channel set)")
		return
	}
	var rows [][]string
	for _, r := range l {
		n := &r.Runtimes
		rows = append(rows, []string{r.Name, r.phaseWithNotes(), console.OrDash(r.From), r.To, console.OrDash(r.Stage),
			fmt.Sprintf("%d/%d", n.Proven, n.InScope), fmt.Sprint(n.Updating), fmt.Sprint(n.Failed), fmt.Sprint(n.Lost),
			p.Age(r.Created), p.FormatUTC(r.ETA), console.OrDash(r.Policy), p.Clip(r.Message, 80)})
	}
	p.Table([]string{"NAME", "PHASE", "FROM", "TO", "STAGE", "PROVEN", "UPDATING", "FAILED", "LOST", "AGE", "+ETA",
		"+POLICY", "MESSAGE"}, rows)
}
