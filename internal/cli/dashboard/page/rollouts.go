package page

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/pageserver"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/releases"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/sheet"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/rolloutadmin"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

// rolloutsView shows all rollouts: active rollouts first.
func rolloutsView(r *request) content {
	f, err := filterOf(r.URL.Query())
	if err != nil {
		return errorPage("This filter is not known", err)
	}
	t := table{Caption: "Rollouts", Columns: []column{{Title: "Rollout", Key: "rollout"},
		{Title: "Phase", Key: "phase"}, {Title: "Module", Key: "module"}, {Title: "Channel", Key: "channel"},
		{Title: "From"}, {Title: "To"},
		{Title: "Stage"}, {Title: "Progress"}, {Title: "Failed", Key: "failed", IsNumber: true},
		{Title: "Begun", Key: "begun"}, {Title: "Expected end", Key: "eta"}, {Title: "Message"}},
		Empty: "There are no rollouts. The manager makes one when a channel gets another version: " +
			r.server.program + " channel set MODULE CHANNEL VERSION."}
	var rows []row
	for _, o := range r.rolloutsActiveFirst() {
		if !f.Accepts(console.FilterModule, o.Spec.Module) ||
			!f.Accepts(console.FilterChannel, o.Spec.Channel) ||
			!f.Accepts(console.FilterState, string(o.Status.Phase), string(o.Spec.State)) ||
			!f.Accepts(console.FilterVersion, o.Spec.From, o.Spec.To) {
			continue
		}
		n := &o.Status.Runtimes
		stage := o.Status.Stage.Name
		if o.Status.Phase.IsOver() {
			stage = ""
		}
		rows = append(rows, row{Keys: []string{o.Name, string(o.Status.Phase), o.Spec.Module, o.Spec.Channel, "", "",
			"", "", fmt.Sprint(n.Failed), o.CreationTimestamp.UTC().Format(time.RFC3339),
			formatUTC(o.Status.ETA.Time), ""}, Cells: func() []cell {
			return []cell{{Text: o.Name, Path: "/rollouts/" + o.Name},
				{Text: phaseText(o), State: string(o.Status.Phase)},
				{Text: o.Spec.Module}, {Text: o.Spec.Channel}, {Text: orDash(o.Spec.From)}, {Text: o.Spec.To},
				{Text: orDash(stage)}, {Bar: barOfCounts(n)}, {Text: sheet.Number(int(n.Failed))},
				{Text: r.age(o.CreationTimestamp.Time) + " ago"}, {Text: r.eta(o), Hint: formatUTC(o.Status.ETA.Time)},
				{Text: o.Status.Message, Wide: true}}
		}})
	}
	if t, err = r.arrange(t, rows); err != nil {
		return errorPage("This order is not known", err)
	}
	return content{Title: "Rollouts", Section: "Rollouts", Template: "tables",
		Topics: []fleetindex.Topic{fleetindex.Rollouts, fleetindex.Catalog}, Data: tablesPage{Heading: "Rollouts",
			Intro:  "A rollout brings the version of a channel to its runtimes, in the stages of a RolloutPolicy.",
			Tables: []table{t}}}
}

// rolloutsActiveFirst returns all rollouts: first the active ones, then the ended ones, the most recently ended first.
func (r *request) rolloutsActiveFirst() []*v1beta2.ModuleRollout {
	var all []*v1beta2.ModuleRollout
	for _, o := range r.fleet.Catalog.Rollouts {
		all = append(all, o)
	}
	isOver := func(o *v1beta2.ModuleRollout) int {
		if o.Status.Phase.IsOver() {
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b *v1beta2.ModuleRollout) int {
		return cmp.Or(isOver(a)-isOver(b), b.Status.EndedAt.Compare(a.Status.EndedAt.Time),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return all
}

// phaseText returns the phase of a rollout as a text for people.
func phaseText(o *v1beta2.ModuleRollout) string {
	phase := cmp.Or(string(o.Status.Phase), string(console.StateNew))
	if o.Spec.State == v1beta2.RolloutPaused && !o.Status.Phase.IsOver() {
		phase += " (paused)"
	}
	if u := o.Spec.Urgency; u != "" && u != v1beta2.UrgencyNormal {
		phase += " · " + strings.ToLower(string(u))
	}
	return phase
}

// eta returns the time at which the last runtime is expected to have the version, or – if the time is not known.
func (r *request) eta(o *v1beta2.ModuleRollout) string {
	if o.Status.ETA.IsZero() || o.Status.Phase.IsOver() {
		return "–"
	}
	if left := o.Status.ETA.Sub(r.now); left > 0 {
		return "in " + duration.HumanDuration(left)
	}
	return "overdue"
}

// barOfCounts returns a bar that shows how many runtimes are proven, excused, updating, lost, failed or waiting.
func barOfCounts(n *v1beta2.RolloutCounts) *bar {
	label := fmt.Sprintf("%d of %d proven", n.Proven, n.InScope)
	return sheet.BarOf(int(n.InScope), label, []sheet.Share{{Class: "verdict-proven", N: int(n.Proven)},
		{Class: "verdict-excused", N: int(n.Excused)}, {Class: "verdict-updating", N: int(n.Updating)},
		{Class: "verdict-lost", N: int(n.Lost)}, {Class: "verdict-failed", N: int(n.Failed)},
		{Class: "verdict-waiting", N: int(n.Waiting)}}...)
}

// rolloutPage is the data of the view of one rollout.
type rolloutPage struct {
	Rollout     *v1beta2.ModuleRollout
	Phase       string
	About       []string
	Bar         *bar
	Stages      []stageBox
	Soak        string // how much longer the current stage is observed; "" if no stage is being observed
	Gates       []gate
	Obstacles   []obstacle
	Worst       table
	Persons     []string
	Control     table
	WayBack     releases.WayBack
	ETA         string // when it is expected to end, for people; "" if it has ended
	Urgency     string // why it is urgent, and what it skips; "" if not urgent
	Actions     []rolloutadmin.Action
	Done        string // the action that the viewer has just taken
	Commands    []command
	PlanPath    string // of the rest of the rollout; "" if there is no plan
	HasNoStages bool
}

// stageBox is one stage of a rollout.
type stageBox struct {
	Name, Who, State string // State is passed, current or later
	Counts           *v1beta2.RolloutCounts
	Bar              *bar
	Evidence         string
	Budget           []string
	Gates            []string // their names
}

// gate is a gate of the current stage.
type gate struct{ Name, State, Since, Message string }

// rolloutView shows one rollout.
func rolloutView(r *request) content {
	name := r.PathValue("name")
	o := r.fleet.Catalog.Rollouts[name]
	if o == nil {
		var names []string
		for _, o := range r.rolloutsActiveFirst() {
			names = append(names, o.Name)
		}
		return problemPage(http.StatusNotFound, "There is no rollout "+name, console.SuggestionText(name, names), "",
			link{"Show all rollouts", "/rollouts"})
	}
	s, program := &o.Status, r.server.program
	p := rolloutPage{Rollout: o, Phase: phaseText(o), Bar: barOfCounts(&s.Runtimes),
		HasNoStages: len(o.Spec.Stages) == 0}
	p.About = []string{"module " + o.Spec.Module, "channel " + o.Spec.Channel, orDash(o.Spec.From) + " → " + o.Spec.To,
		"revision " + fmt.Sprint(o.Spec.Revision), "begun " + r.age(o.CreationTimestamp.Time) + " ago"}
	if o.Spec.Policy != "" {
		p.About = append(p.About, "policy "+o.Spec.Policy)
	}
	if o.Spec.IsRollback() {
		p.About = append(p.About, "takes runtimes back")
	}
	p.ETA, p.Urgency = r.forecast(o), releases.UrgencyText(o)
	for i := range o.Spec.Stages {
		p.Stages = append(p.Stages, r.stageBox(o, i))
	}
	if s.Phase == v1beta2.RolloutSoaking && !s.Stage.SoakUntil.IsZero() {
		p.Soak = duration.HumanDuration(max(s.Stage.SoakUntil.Sub(r.now), 0)) + " left, until " +
			formatUTC(s.Stage.SoakUntil.Time)
	}
	for _, g := range s.Stage.Gates {
		p.Gates = append(p.Gates, gate{g.Name, string(g.State), r.age(g.Since.Time), g.Message})
	}
	for _, b := range s.Blockers {
		about := b.Object
		if b.Runtimes > 0 {
			about = sheet.Count(int(b.Runtimes), "runtime") + ", for example " + b.Object
			about = strings.TrimSuffix(about, ", for example ")
		}
		p.Obstacles = append(p.Obstacles, obstacle{Object: about, Reason: b.Code, Since: "–", Message: b.Message,
			Remedy: b.Remedy})
	}
	p.Worst = table{Caption: "Failed or lost", Columns: []column{{Title: "Runtime"}, {Title: "Reason"},
		{Title: "Message"}}, Empty: "No runtime has failed."}
	for _, w := range s.Worst {
		p.Worst.Rows = append(p.Worst.Rows, []cell{{Text: w.Runtime, Path: "/runtimes/" + w.Runtime + "/" +
			o.Spec.Module}, {Text: w.Reason}, {Text: w.Message, Wide: true}})
	}
	for _, a := range o.Spec.Approvals {
		text := fmt.Sprintf("Stage %s was approved by %s, %s ago", a.Stage, a.By, r.age(a.At.Time))
		if s.Plan != "" && a.Plan != s.Plan {
			text += "; it is for another plan and does not count"
		}
		p.Persons = append(p.Persons, text)
	}
	for _, a := range o.Spec.Resumptions {
		p.Persons = append(p.Persons, fmt.Sprintf("Resumed by %s, %s ago: %s", cmp.Or(a.By, "somebody"),
			r.age(a.At.Time), a.Reason))
	}
	p.Control, p.WayBack = r.controlGroupTable(o), releases.DowngradeSafetyOf(r.fleet.Catalog, o, program)
	if !s.Phase.IsOver() && len(o.Spec.Stages) > 0 {
		p.PlanPath = "/rollouts/" + o.Name + "/plan"
		if r.viewer.MayMove {
			p.Actions = slices.DeleteFunc(rolloutadmin.ActionsFor(o, program), func(a rolloutadmin.Action) bool {
				return a.NeedsApprove && !r.viewer.MayApprove
			})
		}
	}
	p.Commands = []command{{program + " rollout show " + o.Name, "shows the same"},
		{program + " rollout watch " + o.Name, "follows it"}}
	return content{Title: o.Name, Section: "Rollouts", Template: "rollout", Data: p,
		Topics: []fleetindex.Topic{fleetindex.Rollouts, fleetindex.Catalog}}
}

// stageBox returns the known facts about one stage of a rollout.
func (r *request) stageBox(o *v1beta2.ModuleRollout, i int) stageBox {
	stage := &o.Spec.Stages[i]
	box := stageBox{Name: stage.Name, Who: connection.StageSelectionText(stage), State: "later"}
	for _, g := range stage.Gates {
		box.Gates = append(box.Gates, g.Name)
	}
	if stage.Name == o.Status.Stage.Name && !o.Status.Phase.IsOver() {
		box.State = "current"
	}
	j := slices.IndexFunc(o.Status.Stages, func(is v1beta2.RolloutStageResult) bool { return is.Name == stage.Name })
	if j < 0 {
		return box
	}
	is := &o.Status.Stages[j]
	if is.Passed {
		box.State = "passed"
	}
	box.Counts, box.Bar, box.Evidence = &is.RolloutCounts, barOfCounts(&is.RolloutCounts), is.Evidence
	box.Budget = []string{
		fmt.Sprintf("%d updating, %d at a time", is.Updating,
			rollout.Concurrency(&stage.RolloutStage, int(is.InScope))),
		fmt.Sprintf("%d failed, %d may fail", is.Failed, rollout.AllowedFailures(&stage.RolloutStage, int(is.InScope)))}
	if stage.Soak.Duration > 0 {
		box.Budget = append(box.Budget, "observed for "+duration.HumanDuration(stage.Soak.Duration))
	}
	return box
}

// controlGroupTable returns a table that compares two groups of runtimes: those with the new version of the rollout,
// and those with the former version. The table counts the states of the module in the runtimes of each group, as the
// index shows them.
func (r *request) controlGroupTable(o *v1beta2.ModuleRollout) table {
	t := table{Caption: "Control group", Columns: []column{{Title: "Runtimes with version"}, {Title: "Runtimes",
		IsNumber: true}, {Title: "In Error", IsNumber: true}, {Title: "States"}}}
	for _, version := range []string{o.Spec.To, o.Spec.From} {
		n, states := 0, map[string]int{}
		for _, v := range r.fleet.Tally().Versions {
			if v.Module != o.Spec.Module || v.Channel != o.Spec.Channel || v.Version != version {
				continue
			}
			n += v.Runtimes
			for state, k := range v.States {
				states[state] += k
			}
		}
		label := version + ": " + sheet.Count(n, "runtime")
		t.Rows = append(t.Rows, []cell{{Text: orDash(version)}, {Text: sheet.Number(n), IsNumber: true},
			{Text: sheet.Number(states[string(v1beta2.StateError)]), IsNumber: true},
			{Bar: stateBar(n, label, states)}})
	}
	return t
}

// forecast returns a text with the time at which a rollout is expected to end.
func (r *request) forecast(o *v1beta2.ModuleRollout) string {
	switch {
	case o.Status.Phase.IsOver():
		return ""
	case o.Status.ETA.IsZero():
		return "not known: it does not go on by itself, or was not computed yet"
	}
	return formatUTC(o.Status.ETA.Time) + " (" + r.eta(
		o) + "), by windows, freezes, soaks and limits, if nothing fails " +
		"and gates pass at once"
}

// actOnRollout makes the requested change of a rollout for a viewer who may change rollouts. The API server decides
// whether the viewer has the right to change the rollout.
func (s *Server) actOnRollout(w http.ResponseWriter, r *pageserver.Request) {
	name, verb := r.PathValue("name"), r.PathValue("verb")
	back := link{"Back to the rollout", "/rollouts/" + name}
	if !s.requireConfirmation(w, r, r.Viewer.MayMove, s.program+" rollout "+verb+" "+name, back) {
		return
	}
	effect, err := rolloutadmin.Act(r.Context(), r.Viewer.Acts, verb, name, r.PostForm.Get("stage"),
		strings.TrimSpace(r.PostForm.Get("reason")), s.Now())
	s.showOutcome(w, r, effect, err, back)
}
