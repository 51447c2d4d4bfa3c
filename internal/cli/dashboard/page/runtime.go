package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/sheet"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
)

// runtimePage is the data of the view of one runtime.
type runtimePage struct {
	Report   *diagnosis.Report
	Since    string
	About    []string
	Labels   []string
	Chains   []chain
	Blockers []obstacle
	Events   table
	History  table
	Commands []command
	Retry    *retry
}

// command is a klm command that shows the same information as the page.
type command struct{ Text, Does string }

// chain contains the steps of the manager from the request for a module until the requested version is Ready. The first
// step that is not done is the step that blocks the module.
type chain struct {
	diagnosis.Module
	Path   string
	Remark string
	Steps  []diagnosis.Step
}

// obstacle describes a blocker in the form in which a page shows the blocker.
type obstacle struct {
	Object, Reason, Since, Message, Remedy, Next string
	Anchor                                       string
}

// factsOf returns the facts about a runtime, and the time when they were read. The index reads the facts about the
// runtime again after their objects have changed, see [fleetindex.Index.Detail]. If a module is given, and the runtime
// neither requests nor has the module, factsOf returns an error.
func (r *request) factsOf(runtimeName, requiredModule string) (*diagnosis.Facts, time.Time, error) {
	c := r.fleet.Cluster
	if c == nil {
		return nil, time.Time{}, usage("there is no connection to a control plane yet")
	}
	o := diagnosis.Options{Catalog: r.fleet.Catalog, WithoutSecrets: r.server.withoutSecrets}
	detail, err := r.server.Index.Detail(r.Context(), runtimeName, func(ctx context.Context) (any, error) {
		return diagnosis.Read(ctx, c, runtimeName, o)
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	facts := *detail.Value.(*diagnosis.Facts) //nolint:forcetypeassert // read returns it
	facts.Catalog, facts.Now, facts.Manager = r.fleet.Catalog, r.now, r.fleet.Manager
	if requiredModule != "" {
		err = facts.RequireModuleInRuntime(r.Context(), requiredModule)
	}
	return &facts, detail.At, err
}

// noRuntime is the page for a runtime that does not exist.
func (r *request) noRuntime(name string) content {
	var names []string
	for _, m := range r.fleet.Members {
		names = append(names, m.Metadata.Name)
	}
	return problemPage(http.StatusNotFound, "There is no runtime "+name,
		"The control plane has no Kyma "+name+": "+console.SuggestionText(name, names), "", link{"Show the fleet", "/"})
}

// runtimeView shows the same information as klm why and klm history.
func runtimeView(r *request) content {
	name := r.PathValue("name")
	m, _ := r.fleet.Member(name)
	if m == nil {
		return r.noRuntime(name)
	}
	facts, at, err := r.factsOf(name, "")
	if err != nil {
		return errorPage("Runtime "+name+" cannot be read", err)
	}
	report := facts.Report("")
	p := runtimePage{Report: report, Since: r.age(report.Since)}
	p.About = []string{"channel " + orDash(report.Channel)}
	if report.Ready != "" {
		p.About = append(p.About, report.Ready+" modules ready")
	}
	if report.Agent != "" {
		p.About = append(p.About, "agent "+report.Agent)
	}
	if report.Access != "" {
		p.About = append(p.About, "access: "+report.Access)
	}
	for _, key := range slices.Sorted(maps.Keys(m.Metadata.Labels)) {
		p.Labels = append(p.Labels, key+"="+m.Metadata.Labels[key])
	}
	held := map[string]string{}
	for i, b := range report.Blockers {
		if module, is := strings.CutPrefix(b.Object, "module "); is && held[module] == "" {
			held[module] = b.Reason
		}
		o := obstacle{Object: b.Object, Reason: b.Reason, Since: r.age(b.Since), Message: b.Message, Remedy: b.Remedy,
			Next: report.Next(b), Anchor: fmt.Sprint("blocker-", i)}
		p.Blockers = append(p.Blockers, o)
	}
	for _, module := range report.Modules {
		reason := held[module.Name]
		if s := facts.Kyma.ModuleStatus(module.Name); reason == "" && s != nil {
			reason = s.Reason
		}
		remark := module.Kind
		if module.Target != "" {
			remark = strings.TrimPrefix(remark+", on the control plane", ", ")
		}
		p.Chains = append(p.Chains, chain{Module: module, Remark: remark, Steps: module.Steps(reason),
			Path: "/runtimes/" + name + "/" + module.Name})
	}
	p.Retry = r.retryForm(facts, "", report.State)
	p.Events, p.History = r.eventTable(report, at), r.historyTable(facts.Kyma, "")
	p.Commands = []command{{r.server.program + " why " + name, "shows the same"},
		{r.server.program + " history " + name, "shows all changes"}}
	return content{Title: name, Section: "Fleet", Template: "runtime", isPersonal: true, Data: p,
		Topics: []fleetindex.Topic{fleetindex.Runtimes, fleetindex.Details, fleetindex.Catalog,
			fleetindex.Rollouts, fleetindex.Manager}}
}

// eventTable returns the table of the last events. The parameter readAt is the time at which the events were read.
func (r *request) eventTable(report *diagnosis.Report, readAt time.Time) table {
	t := table{Caption: "Last events", Columns: []column{{Title: "When"}, {Title: "Reason"}, {Title: "Object"},
		{Title: "Message"}}, Empty: "No events are kept."}
	t.Note = "The events of " + formatUTC(readAt) +
		". They are read again after a change of the runtime, and each minute."
	for _, e := range report.Events {
		t.Rows = append(t.Rows, []cell{{Text: r.age(e.Last) + " ago", Hint: formatUTC(e.Last)}, {Text: e.Reason},
			{Text: e.Object}, {Text: e.Message, Wide: true}})
	}
	return t
}

// historyTable returns the changes of the modules of a runtime, or of one module.
func (r *request) historyTable(k *v1beta2.Kyma, module string) table {
	t := table{Caption: "History", Columns: []column{{Title: "Module"}, {Title: "From"}, {Title: "To"},
		{Title: "Started"}, {Title: "Took"}, {Title: "Outcome"}, {Title: "Reason"}},
		Empty: "No version of a module has changed since changes are recorded."}
	history, err := diagnosis.HistoryOf(k, module)
	if err != nil {
		return t
	}
	const maxChanges = 50
	for _, c := range history[:min(len(history), maxChanges)] {
		took := "–"
		if !c.Started.IsZero() && !c.Ended.IsZero() {
			took = duration.HumanDuration(c.Ended.Sub(c.Started.Time))
		}
		outcome := cmp.Or(string(c.Outcome), string(v1beta2.StateProcessing))
		t.Rows = append(t.Rows, []cell{{Text: c.Module}, {Text: orDash(c.From)}, {Text: orDash(c.Version)},
			{Text: orDash(formatUTC(c.Started.Time))}, {Text: took}, {Text: outcome, State: outcome},
			{Text: orDash(c.Reason)}})
	}
	return t
}

// modulePage is the data of the view of one module of a runtime.
type modulePage struct {
	Runtime, Module string
	Chain           chain
	Blockers        []obstacle
	About           []string
	Conditions      table
	Objects         table
	Retry           *retry
	History         table
	Commands        []command
}

// moduleView shows one module of a runtime: the report of klm why RUNTIME MODULE, and the objects in the runtime.
func moduleView(r *request) content {
	name, module := r.PathValue("name"), r.PathValue("module")
	if m, _ := r.fleet.Member(name); m == nil {
		return r.noRuntime(name)
	}
	facts, _, err := r.factsOf(name, module)
	if err != nil {
		return errorPage("Module "+module+" of "+name+" cannot be read", err)
	}
	report := facts.Report(module)
	p := modulePage{Runtime: name, Module: module, History: r.historyTable(facts.Kyma, module)}
	reason := ""
	for _, b := range report.Blockers {
		if b.Object == "module "+module && reason == "" {
			reason = b.Reason
		}
		p.Blockers = append(p.Blockers, obstacle{Object: b.Object, Reason: b.Reason, Since: r.age(b.Since),
			Message: b.Message, Remedy: b.Remedy, Next: report.Next(b)})
	}
	if len(report.Modules) > 0 {
		p.Chain = chain{Module: report.Modules[0], Remark: report.Modules[0].Kind,
			Steps: report.Modules[0].Steps(reason)}
		p.Retry = r.retryForm(facts, module, report.Modules[0].State)
	}
	p.Conditions = table{Caption: "Conditions", Columns: []column{{Title: "Condition"}, {Title: "Status"},
		{Title: "Since"}, {Title: "Reason"}, {Title: "Message"}}, Empty: "The module has no Manifest."}
	if d := report.Detail; d != nil {
		p.About = []string{"Manifest " + d.Manifest, "component " + orDash(d.Component),
			sheet.Count(d.Objects, "object") + " in the runtime"}
		if d.Resource != "" {
			p.About = append(p.About, "custom resource "+d.Resource)
		}
		for _, c := range d.Conditions {
			p.Conditions.Rows = append(p.Conditions.Rows, []cell{{Text: c.Type}, {Text: string(c.Status)},
				{Text: r.age(c.LastTransitionTime.Time)}, {Text: c.Reason}, {Text: c.Message, Wide: true}})
		}
	}
	if p.Objects, err = r.objectTable(facts.Manifest(module)); err != nil {
		return errorPage("This order is not known", err)
	}
	p.Commands = []command{{r.server.program + " why " + name + " " + module, "shows the same"}}
	return content{Title: module + " of " + name, Section: "Fleet", Template: "module", isPersonal: true, Data: p,
		Topics: []fleetindex.Topic{fleetindex.Runtimes, fleetindex.Details, fleetindex.Catalog, fleetindex.Rollouts}}
}
