package page

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/channeladmin"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/sheet"
)

// planAge is the time for which a plan is reused for further viewers, because planning reads all Manifests of a module.
const planAge = 30 * time.Second

// planPage is the data of the view of a plan.
type planPage struct {
	Title                         string
	Module, Channel, Version      string
	Modules, Channels, Candidates []string
	IsForm                        bool // the viewer chooses what is planned
	Report                        *channeladmin.Effects
	About                         []string
	Stages, Runtimes              table
	Commands                      []command
	Read                          string
}

// planView shows the plan of a move of a channel before the move is made.
func planView(r *request) content {
	q := r.URL.Query()
	if _, err := filterOf(q); err != nil {
		return errorPage("This filter is not known", err)
	}
	p := planPage{Title: "Plan of a move", IsForm: true, Module: q.Get(console.FilterModule),
		Channel: q.Get(console.FilterChannel), Version: q.Get(console.FilterVersion),
		Modules: r.fleet.Catalog.Modules()}
	if slices.Contains(p.Modules, p.Module) {
		p.Channels, p.Candidates = r.fleet.Catalog.ChannelsOf(p.Module), r.fleet.Catalog.VersionsOf(p.Module)
	}
	if p.Module == "" || p.Channel == "" || p.Version == "" {
		return r.planContent(p)
	}
	line := strings.Join([]string{r.server.program, "rollout plan", p.Module, p.Channel, p.Version}, " ")
	set := strings.Join([]string{r.server.program, "channel set", p.Module, p.Channel, p.Version}, " ")
	p.Commands = []command{{line, "shows the same"}, {set, "makes the move"}}
	return r.previewPlan(p, "")
}

// rolloutPlanView shows the plan of the rest of a rollout.
func rolloutPlanView(r *request) content {
	name := r.PathValue("name")
	o := r.fleet.Catalog.Rollouts[name]
	if o == nil {
		return rolloutView(r)
	}
	return r.previewPlan(planPage{Title: "What is left of " + name, Module: o.Spec.Module, Channel: o.Spec.Channel,
		Version: o.Spec.To, Commands: []command{{r.server.program + " rollout plan " + name, "shows the same"}}}, name)
}

// previewPlan reads the runtimes that have the module, and adds the plan to the page. previewPlan calls the same
// function as klm rollout plan.
func (r *request) previewPlan(p planPage, rolloutName string) content {
	c := r.fleet.Cluster
	if c == nil {
		return errorPage("The plan cannot be made", usage("there is no connection to a control plane yet"))
	}
	a := &console.App{Name: r.server.program, Now: r.server.Now, Streams: console.Streams{Out: io.Discard,
		Err: io.Discard}}
	key := url.Values{"module": {p.Module}, "channel": {p.Channel}, "version": {p.Version},
		"rollout": {rolloutName}}.Encode()
	value, err := r.server.reads.Get(r.Context(), "plan "+key, planAge, func(ctx context.Context) (any, error) {
		return channeladmin.Preview(ctx, a, c, p.Module, p.Channel, p.Version, rolloutName)
	})
	if err != nil {
		return errorPage("The plan cannot be made", err)
	}
	report, _ := value.(*channeladmin.Effects)
	p.Report, p.Read = report, formatUTC(r.now)
	if p.About, p.Stages = r.planStages(report); report.Note != "" {
		p.About = append(p.About, report.Note)
	}
	effects := map[string]int{}
	p.Runtimes = table{Caption: "Runtimes", Columns: []column{{Title: "Runtime", Key: "runtime"}, {Title: "Stage",
		Key: "stage"}, {Title: "Effect", Key: "effect"}, {Title: "From"}, {Title: "Reason", Key: "reason"},
		{Title: "Message"}}, Empty: "No runtime follows this channel."}
	rows := make([]row, 0, len(report.Runtimes))
	for _, e := range report.Runtimes {
		effects[e.Effect]++
		rows = append(rows, row{Keys: []string{e.Runtime, e.Stage, e.Effect, "", e.Reason, ""}, Cells: func() []cell {
			return []cell{{Text: e.Runtime, Path: "/runtimes/" + e.Runtime}, {Text: orDash(e.Stage)}, {Text: e.Effect},
				{Text: orDash(e.From)}, {Text: orDash(e.Reason)}, {Text: strings.TrimSpace(e.Message + " " + e.Remedy),
					Wide: true}}
		}})
	}
	for _, name := range slices.Sorted(maps.Keys(effects)) {
		p.About = append(p.About, sheet.Number(effects[name])+" "+name)
	}
	if p.Runtimes, err = r.arrange(p.Runtimes, rows); err != nil {
		return errorPage("This order is not known", err)
	}
	return r.planContent(p)
}

func (r *request) planContent(p planPage) content {
	return content{Title: p.Title, Section: "Rollouts", Template: "plan", isPersonal: true, Data: p,
		Topics: []fleetindex.Topic{fleetindex.Catalog}}
}

// planStages returns the stages of a plan.
func (r *request) planStages(report *channeladmin.Effects) (about []string, t table) {
	t = table{Caption: "Stages", Columns: []column{{Title: "Stage"}, {Title: "Runtimes", IsNumber: true},
		{Title: "Begun", IsNumber: true}, {Title: "Can begin", IsNumber: true}, {Title: "Blocked"},
		{Title: "At a time", IsNumber: true}, {Title: "May fail", IsNumber: true}, {Title: "Begins"},
		{Title: "Ends"}, {Title: "Then"}},
		Empty: "There are no stages: no RolloutPolicy is for this channel, so all runtimes follow at once."}
	if report.From == report.Version {
		t.Empty = "Nothing moves: the channel has this version."
	}
	if report.Rollout != "" {
		about = append(about, "ModuleRollout "+report.Rollout, "policy "+report.Policy)
	}
	if report.Supersedes != "" {
		about = append(about, "supersedes "+report.Supersedes)
	}
	if report.Pinned > 0 {
		about = append(about, fmt.Sprintf("%d pinned, which take no part", report.Pinned))
	}
	if report.WindowsUnknown != "" {
		about = append(about, "maintenance windows are not known: "+report.WindowsUnknown)
	}
	times := console.Page{Now: r.now}
	for _, s := range report.Stages {
		then := slices.Clone(s.Gates)
		if s.Soak > 0 {
			then = slices.Insert(then, 0, "observed for "+duration.HumanDuration(time.Duration(s.Soak)*time.Second))
		}
		var blocked []string
		for _, reason := range slices.Sorted(maps.Keys(s.Blocked)) {
			blocked = append(blocked, fmt.Sprintf("%d %s", s.Blocked[reason], reason))
		}
		t.Rows = append(t.Rows, []cell{{Text: s.Name}, {Text: sheet.Number(s.Runtimes), IsNumber: true},
			{Text: sheet.Number(s.Begun), IsNumber: true}, {Text: sheet.Number(s.Moving), IsNumber: true},
			{Text: orDash(strings.Join(blocked, ", "))}, {Text: sheet.Number(s.Concurrency), IsNumber: true},
			{Text: sheet.Number(s.AllowedFailures), IsNumber: true}, {Text: times.FormatUTC(s.Begins)},
			{Text: times.FormatUTC(s.Ends)},
			{Text: orDash(strings.Join(then, ", "))}})
	}
	return about, t
}
