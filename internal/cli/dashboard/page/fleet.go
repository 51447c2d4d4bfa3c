package page

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/heatmap"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/pageserver"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/sheet"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

// The parameters of the URL of the fleet page that are no filters.
const (
	paramGroup  = "group"
	paramColour = "colour"
)

// fleetParams are the parameters of the fleet view.
type fleetParams struct {
	filter *fleetindex.Filter
	module string // the one module that is filtered by; "" if there is none or several
	view   *heatmap.View
	note   string // why another grouping or colouring is shown
}

func (r *request) fleetParams() (v fleetParams, err error) {
	q := r.URL.Query()
	if v.filter, err = filterOf(q, paramGroup, paramColour); err != nil {
		return v, err
	}
	if v.module = v.filter.Values[console.FilterModule]; strings.Contains(v.module, ",") {
		v.module = "" // several modules have no common state
	}
	v.view, v.note, err = heatmap.New(r.fleet, heatmap.Choice{Module: v.module, Group: q.Get(paramGroup),
		Colour: q.Get(paramColour)}, r.now)
	if err != nil {
		return v, usage("%v", err)
	}
	return v, nil
}

// heatMapCells answers a request with the data of the heat map.
func (s *Server) heatMapCells(web *pageserver.Request) *pageserver.Answer {
	v, err := s.request(web).fleetParams()
	if err != nil {
		return pageserver.Problem(http.StatusBadRequest, err.Error())
	}
	accepts := v.filter.Matches
	if !v.filter.IsSet() {
		accepts = nil
	}
	return pageserver.NewAnswer(http.StatusOK, "application/octet-stream", v.view.Encode(accepts)).SetETag()
}

// fleetPage is the data of the fleet view.
type fleetPage struct {
	Cells     string // URL of the data of the heat map
	Matching  int
	Total     int
	Tally     fleetindex.Tally
	States    []choice
	Reasons   []choice
	MoreCount int // reasons that are not shown
	Filters   []choice
	Form      fleetForm
	Groups    table
	Runtimes  table
	Note      string
	Legend    []heatmap.Class
	LegendOf  string
}

// choice is a link that adds or removes a filter.
type choice struct {
	Name, Path string
	Runtimes   int
	Current    bool
	Hint       string
	Share      string // of the largest, in percent
}

// fleetForm has the values of the form of filters.
type fleetForm struct {
	Values                    map[string]string
	Group, Colour             string
	Groups, Colours           []heatmap.Named
	Modules, Channels, States []string
	Sort                      string
}

// fleetView shows all runtimes.
func fleetView(r *request) content {
	v, err := r.fleetParams()
	if err != nil {
		return errorPage("This filter is not known", err)
	}
	members := v.filter.Apply(r.fleet.Members)
	p := fleetPage{Cells: sheet.PathWith("/fleet/cells", r.URL.Query()), Matching: len(members),
		Total: len(r.fleet.Members)}
	if p.Tally = *r.fleet.Tally(); v.filter.IsSet() {
		p.Tally = fleetindex.TallyOf(members, false)
	}
	p.Form, p.Note = r.fleetForm(v), v.note
	p.Legend, p.LegendOf = v.view.Classes, heatmap.Title(heatmap.Colourings, v.view.Colour)
	for _, name := range slices.Sorted(maps.Keys(v.filter.Values)) {
		p.Filters = append(p.Filters, choice{Name: name + ": " + v.filter.Values[name],
			Path: r.urlWith(name, "", sheet.ParamPage, "")})
	}
	for _, s := range p.Tally.States {
		p.States = append(p.States, r.choice(console.FilterState, s, v))
	}
	const maxReasons = 10
	for _, reason := range p.Tally.Reasons[:min(len(p.Tally.Reasons), maxReasons)] {
		c := r.choice(console.FilterReason, reason, v)
		c.Share = fmt.Sprintf("%.1f", 100*float64(reason.Runtimes)/float64(p.Tally.Reasons[0].Runtimes))
		p.Reasons = append(p.Reasons, c)
	}
	p.MoreCount = len(p.Tally.Reasons) - len(p.Reasons)
	if p.Runtimes, err = r.runtimeTable(members, v); err != nil {
		return errorPage("This order is not known", err)
	}
	p.Groups = groupTable(members, v.view)
	return content{Title: "Fleet", Section: "Fleet", Template: "fleet", Data: p,
		Topics: []fleetindex.Topic{fleetindex.Runtimes, fleetindex.Manager}}
}

// choice returns the link that filters the fleet by a value. If the page of the fleet is already filtered by the value,
// the link leads to the page without this filter.
func (r *request) choice(filter string, of fleetindex.Count, v fleetParams) choice {
	c := choice{Name: of.Name, Runtimes: of.Runtimes, Path: r.urlWith(filter, of.Name, sheet.ParamPage, ""),
		Current: strings.EqualFold(v.filter.Values[filter], of.Name)}
	if c.Current {
		c.Path = r.urlWith(filter, "", sheet.ParamPage, "")
	}
	return c
}

func (r *request) fleetForm(v fleetParams) fleetForm {
	f := fleetForm{Values: v.filter.Values, Group: v.view.Group, Groups: heatmap.Groupings, Colour: v.view.Colour,
		Colours: heatmap.Colourings, Sort: r.URL.Query().Get(sheet.ParamSort)}
	channels := map[string]bool{}
	modules := map[string]bool{}
	for _, n := range r.fleet.Tally().Versions {
		modules[n.Module] = true
		if n.Channel != "" {
			channels[n.Channel] = true
		}
	}
	f.Modules, f.Channels = slices.Sorted(maps.Keys(modules)), slices.Sorted(maps.Keys(channels))
	for _, s := range heatmap.States {
		f.States = append(f.States, string(s))
	}
	// A value in the URL that is not in the list of a filter, such as Error,Warning, is added to the list, so that the
	// value stays selected in the form.
	for name, all := range map[string]*[]string{console.FilterState: &f.States, console.FilterModule: &f.Modules,
		console.FilterChannel: &f.Channels} {
		if is := v.filter.Values[name]; is != "" && !slices.Contains(*all, is) {
			*all = append(*all, is)
		}
	}
	return f
}

// runtimeTable returns the table of runtimes. By default, the runtimes with the worst states are first.
func (r *request) runtimeTable(members []*fleetlist.Member, v fleetParams) (table, error) {
	t := table{Caption: "Runtimes", Columns: []column{{Title: "Runtime", Key: "runtime"}, {Title: "State",
		Key: "state"}, {Title: "Since", Key: "since"}, {Title: "Channel", Key: "channel"},
		{Title: "Modules", Key: "modules"}, {Title: "Reason", Key: "reason"}, {Title: "Message"}},
		Empty: "No runtime matches these filters."}
	if len(r.fleet.Members) == 0 {
		t.Empty = "There is no runtime yet. Register one: " + r.server.program +
			" runtime add NAME --kubeconfig-file=FILE"
	}
	if v.module != "" {
		t.Columns[4] = column{Title: "Version", Key: "version"}
	}
	const severities = 7
	var bySeverity [severities][]*fleetlist.Member
	for _, m := range members {
		n := severities - 1 - fleetlist.Severity(stateIn(m, v.module))
		bySeverity[n] = append(bySeverity[n], m)
	}
	members = slices.Concat(bySeverity[:]...)
	return sheet.ArrangeAll(r.URL, t, len(members), func(i, column int) string {
		m := members[i]
		switch t.Columns[column].Key {
		case "state":
			return fmt.Sprint(severities - fleetlist.Severity(stateIn(m, v.module)))
		case "since":
			return m.Status.LastOperation.LastUpdateTime
		case "channel":
			return moduleOrDefaultChannel(m, v.module)
		case "modules", "version":
			return versionOrReadyCount(m, v.module)
		case "reason":
			return moduleOrRuntimeReason(m, v.module)
		}
		return m.Metadata.Name
	}, func(i int) []cell {
		m, hint := members[i], ""
		if m.IsPaused() {
			hint = "paused: " + *m.Metadata.Annotations.Paused
		}
		state := string(stateIn(m, v.module))
		_, message := m.Blocker()
		return []cell{{Text: m.Metadata.Name, Path: "/runtimes/" + m.Metadata.Name}, {Text: state, State: state,
			Hint: hint}, {Text: r.age(m.Since()), Hint: m.Status.LastOperation.LastUpdateTime},
			{Text: orDash(moduleOrDefaultChannel(m, v.module))}, {Text: orDash(versionOrReadyCount(m, v.module))},
			{Text: orDash(moduleOrRuntimeReason(m, v.module))}, {Text: message, Wide: true}}
	})
}

// moduleOrDefaultChannel returns the channel from which a runtime has the given module. If the runtime does not have
// the module, moduleOrDefaultChannel returns the default channel of the runtime.
func moduleOrDefaultChannel(m *fleetlist.Member, module string) string {
	if e := heatmap.ModuleOf(m, module); e != nil {
		return cmp.Or(e.Channel, "pinned")
	}
	return m.Spec.Channel
}

// versionOrReadyCount returns the version of the given module in a runtime. If the runtime does not have the module,
// versionOrReadyCount returns how many modules of the runtime are Ready.
func versionOrReadyCount(m *fleetlist.Member, module string) string {
	if e := heatmap.ModuleOf(m, module); e != nil {
		return e.Version
	}
	return m.Status.ModulesReady
}

// moduleOrRuntimeReason returns the reason of the given module in a runtime. If the module has no reason,
// moduleOrRuntimeReason returns the reason of the runtime.
func moduleOrRuntimeReason(m *fleetlist.Member, module string) string {
	if e := heatmap.ModuleOf(m, module); e != nil && e.Reason != "" {
		return e.Reason
	}
	reason, _ := m.Blocker()
	return reason
}

// stateIn returns the state of a runtime, or of one of its modules.
func stateIn(m *fleetlist.Member, module string) v1beta2.State {
	if module == "" {
		return m.State()
	}
	if e := heatmap.ModuleOf(m, module); e != nil {
		return cmp.Or(e.State, console.StateNew)
	}
	return v1beta2.StateUnknown
}

// groupTable returns the counts of the heat map: one row for each group, and one column for each class.
func groupTable(members []*fleetlist.Member, view *heatmap.View) table {
	title := heatmap.Title(heatmap.Groupings, view.Group)
	t := table{Caption: "Runtimes by " + strings.ToLower(title), Columns: []column{{Title: title},
		{Title: "Runtimes", IsNumber: true}}}
	counts := view.CountByGroupAndClass(members)
	used := make([]bool, len(view.Classes)+1) // the last count is for runtimes without a class
	for _, c := range counts {
		for i, n := range c.ByClass {
			used[i] = used[i] || n > 0
		}
	}
	for i, isUsed := range used {
		switch {
		case isUsed && i < len(view.Classes):
			t.Columns = append(t.Columns, column{Title: view.Classes[i].Name, IsNumber: true})
		case isUsed:
			t.Columns = append(t.Columns, column{Title: "Without", IsNumber: true})
		}
	}
	const maxGroupRows = 200
	if len(counts) > maxGroupRows {
		t.Note = fmt.Sprintf("and %d more groups", len(counts)-maxGroupRows)
		counts = counts[:maxGroupRows]
	}
	for _, c := range counts {
		cells := []cell{{Text: c.Name}, {Text: sheet.Number(c.Runtimes), IsNumber: true}}
		for i, isUsed := range used {
			if n := c.ByClass[i]; isUsed && n > 0 {
				cells = append(cells, cell{Text: sheet.Number(n), IsNumber: true})
			} else if isUsed {
				cells = append(cells, cell{Text: "–", IsNumber: true})
			}
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}
