package fleetadmin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

func statusCommand(a *console.App) *cobra.Command {
	var l console.Listing
	var worst int
	c := a.Command("status [-l SELECTOR] [--module MODULE] [--state STATE]… [--watch]",
		"the fleet at a glance: counts by state, module, version and channel, and the worst runtimes", `
The first line is about the manager: its version, the leader or the replicas, and when it last renewed its Lease. If no manager works, the exit
code is 7, and all states are as old as the first line says. Only runtimes that the filters accept are counted; --channel, --state and --reason are
those of the runtime, or with --module those of the module.`, `
klm status
klm status --module sample --version 2.0.0
klm status --worst=50 -o wide
klm status -l kyma-project.io/region=eu-central-1 -o json
klm status --watch`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			c, err := connection.ControlPlane(cmd.Context(), a)
			if err != nil {
				return err
			}
			if l.Watch {
				return watchStatus(cmd.Context(), a, c, &l, worst)
			}
			observed := make(chan *liveness.Observation, 1)
			go func() { observed <- liveness.Read(cmd.Context(), c) }()
			var t tally
			const manyWorst = 100
			if err := fleetlist.ListFor(cmd.Context(), c, &l, worst > manyWorst, t.add); err != nil {
				return err
			}
			if worst <= manyWorst {
				if err := fleetlist.Refresh(cmd.Context(), c, t.sorted(worst)); err != nil {
					return err
				}
			}
			r := t.report(c, worst)
			r.Manager = (<-observed).Report(t.changed)
			if err := a.Print(r); err != nil {
				return err
			}
			return r.Manager.Err()
		})
	l.Register(c, fleetlist.Filters...)
	completeFilters(a, c)
	c.Flags().IntVar(&worst, "worst", 10, "how many of the worst runtimes are shown")
	return c
}

// fleetReport is the report of klm status.
type fleetReport struct {
	// Manager is nil if it was not read.
	Manager   *liveness.Report `json:"manager,omitempty"`
	Cluster   string           `json:"cluster"`
	Namespace string           `json:"namespace"`
	Runtimes  int              `json:"runtimes"`
	Paused    int              `json:"paused"`
	Agents    *agentCount      `json:"agents,omitempty"`
	States    []runtimeCount   `json:"states"`
	Channels  []runtimeCount   `json:"channels"`
	Modules   []moduleCount    `json:"modules"`
	Reasons   []runtimeCount   `json:"reasons"`
	Worst     []worstRuntime   `json:"worst"`
}

// agentCount has the number of connected agents and the number of agents that are not connected.
type agentCount struct {
	Heard  int `json:"heard"`
	Silent int `json:"silent"`
}

// runtimeCount is the number of runtimes that have a state, a channel or a reason in common.
type runtimeCount struct {
	Name     string `json:"name"`
	Runtimes int    `json:"runtimes"`
}

// moduleCount is the number of runtimes that have a version of a module from a channel, also per state of the module.
type moduleCount struct {
	Module   string                `json:"module"`
	Version  string                `json:"version"`
	Channel  string                `json:"channel"` // "" if the version is pinned
	Runtimes int                   `json:"runtimes"`
	Waiting  int                   `json:"waitingForWindow,omitempty"`
	States   map[v1beta2.State]int `json:"states"`
}

// worstRuntime describes one runtime in the list of runtimes that are not Ready.
type worstRuntime struct {
	Name    string        `json:"name"`
	State   v1beta2.State `json:"state"`
	Since   time.Time     `json:"since,omitzero"`
	Reason  string        `json:"reason,omitempty"`
	Message string        `json:"message,omitempty"`
}

// tally counts the runtimes of a fleet. The zero value is empty.
type tally struct {
	runtimes, paused int
	agents           agentCount
	states, channels map[string]int
	reasons          map[string]int
	modules          map[fleetlist.ModuleVersion]*moduleCount
	worst            []*fleetlist.Member
	changed          time.Time // the newest change of a state
}

// add counts one runtime.
func (t *tally) add(m *fleetlist.Member) {
	if t.states == nil {
		t.states, t.channels, t.reasons, t.modules = map[string]int{}, map[string]int{}, map[string]int{},
			map[fleetlist.ModuleVersion]*moduleCount{}
	}
	t.runtimes++
	if since := m.Since(); since.After(t.changed) {
		t.changed = since
	}
	t.states[string(m.State())]++
	t.channels[m.Spec.Channel]++
	if m.IsPaused() {
		t.paused++
	}
	if agent := m.Status.Agent; agent != nil && agent.Heard {
		t.agents.Heard++
	} else if agent != nil {
		t.agents.Silent++
	}
	if reason, _ := m.Blocker(); reason != "" {
		t.reasons[reason]++
	}
	for i := range m.Status.Modules {
		e := &m.Status.Modules[i]
		key := fleetlist.ModuleVersion{Module: e.Name, Version: e.Version, Channel: e.Channel}
		n := t.modules[key]
		if n == nil {
			key = fleetlist.ModuleVersion{Module: strings.Clone(e.Name), Version: strings.Clone(e.Version),
				Channel: strings.Clone(e.Channel)}
			n = &moduleCount{Module: key.Module, Version: key.Version, Channel: key.Channel,
				States: map[v1beta2.State]int{}}
			t.modules[key] = n
		}
		n.Runtimes++
		n.States[e.State]++
		if e.Maintenance {
			n.Waiting++
		}
	}
	if m.State() != v1beta2.StateReady {
		t.worst = append(t.worst, m)
	}
}

// sorted returns the worst runtimes, of which there are at most n. The worst is the first.
func (t *tally) sorted(n int) []*fleetlist.Member {
	slices.SortFunc(t.worst, func(a, b *fleetlist.Member) int {
		return cmp.Or(cmp.Compare(fleetlist.Severity(b.State()), fleetlist.Severity(a.State())),
			a.Since().Compare(b.Since()), strings.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	return t.worst[:min(len(t.worst), max(n, 0))]
}

// report returns the report with the counts and the worst runtimes. worst is the maximum number of these runtimes.
func (t *tally) report(c *connection.Cluster, worst int) *fleetReport {
	r := &fleetReport{
		Cluster: c.Context, Namespace: c.Namespace, Runtimes: t.runtimes, Paused: t.paused,
		States: byCount(t.states), Channels: byCount(t.channels), Reasons: byCount(t.reasons),
		Modules: []moduleCount{}, Worst: []worstRuntime{},
	}
	slices.SortStableFunc(r.States, func(a, b runtimeCount) int {
		return cmp.Compare(fleetlist.Severity(v1beta2.State(b.Name)), fleetlist.Severity(v1beta2.State(a.Name)))
	})
	if t.agents != (agentCount{}) {
		r.Agents = &t.agents
	}
	for _, n := range t.modules {
		r.Modules = append(r.Modules, *n)
	}
	slices.SortFunc(r.Modules, func(a, b moduleCount) int {
		return cmp.Or(strings.Compare(a.Module, b.Module), connection.CompareVersions(b.Version, a.Version),
			strings.Compare(b.Version, a.Version), strings.Compare(a.Channel, b.Channel))
	})
	for _, m := range t.sorted(worst) {
		reason, message := m.Blocker()
		r.Worst = append(r.Worst, worstRuntime{m.Metadata.Name, m.State(), m.Since(), reason,
			cmp.Or(message, m.Status.LastOperation.Operation)})
	}
	return r
}

// byCount returns the counts with their names. The largest count is first.
func byCount(counts map[string]int) []runtimeCount {
	all := []runtimeCount{}
	for name, n := range counts {
		all = append(all, runtimeCount{name, n})
	}
	slices.SortFunc(all, func(a, b runtimeCount) int {
		return cmp.Or(cmp.Compare(b.Runtimes, a.Runtimes), strings.Compare(a.Name, b.Name))
	})
	return all
}

func (r *fleetReport) Names() []string {
	var all []string
	for _, w := range r.Worst {
		all = append(all, "kyma/"+w.Name)
	}
	return all
}

func (r *fleetReport) Show(p *console.Page) {
	if r.Manager != nil {
		r.Manager.Show(p)
	}
	asOf, column := "", "STATE"
	if old := r.Manager.AsOf(); old != "" {
		asOf, column = " ("+old+")", "STATE "+strings.ToUpper(old)
	}
	p.Line("%s in %s, namespace %s", console.Count(r.Runtimes, "runtime"), r.Cluster, r.Namespace)
	if r.Runtimes == 0 {
		return
	}
	var parts []string
	for _, s := range r.States {
		parts = append(parts, fmt.Sprintf("%d %s", s.Runtimes, p.ColourState(s.Name)))
	}
	p.Line("  state:    %s%s", strings.Join(parts, ", "), asOf)
	parts = nil
	for _, c := range r.Channels {
		parts = append(parts, fmt.Sprintf("%d %s", c.Runtimes, console.OrDash(c.Name)))
	}
	p.Line("  channel:  %s", strings.Join(parts, ", "))
	if r.Agents != nil {
		p.Line("  agents:   %d connected, %d not", r.Agents.Heard, r.Agents.Silent)
	}
	if r.Paused > 0 {
		p.Line("  paused:   %d", r.Paused)
	}
	r.showModules(p)
	if len(r.Reasons) > 0 {
		p.Line("")
		var rows [][]string
		for _, reason := range r.Reasons {
			rows = append(rows, []string{reason.Name, fmt.Sprint(reason.Runtimes)})
		}
		p.Table([]string{"IN THE WAY", "RUNTIMES"}, rows)
	}
	if len(r.Worst) > 0 {
		p.Line("")
		var rows [][]string
		for _, w := range r.Worst {
			rows = append(rows, []string{w.Name, string(w.State), p.Ago(w.Since),
				console.OrDash(w.Reason), p.Clip(w.Message, 80)})
		}
		p.Table([]string{"WORST", column, "SINCE", "REASON", "MESSAGE"}, rows)
	}
}

// moduleStates are the states that can have a column in the table of modules.
var moduleStates = []v1beta2.State{
	v1beta2.StateReady, v1beta2.StateProcessing, v1beta2.StateWarning, v1beta2.StateError,
	v1beta2.StateDeleting, v1beta2.StateUnmanaged,
}

// showModules writes the table of modules. A state has a column only if a module has this state.
func (r *fleetReport) showModules(p *console.Page) {
	if len(r.Modules) == 0 {
		return
	}
	p.Line("")
	header := []string{"MODULE", "VERSION", "CHANNEL", "RUNTIMES"}
	used := slices.DeleteFunc(slices.Clone(moduleStates), func(s v1beta2.State) bool {
		return !slices.ContainsFunc(r.Modules, func(m moduleCount) bool { return m.States[s] > 0 })
	})
	for _, s := range used {
		header = append(header, strings.ToUpper(string(s)))
	}
	waiting := slices.ContainsFunc(r.Modules, func(m moduleCount) bool { return m.Waiting > 0 })
	if waiting {
		header = append(header, "WAIT FOR WINDOW")
	}
	var rows [][]string
	for _, m := range r.Modules {
		row := []string{m.Module, console.OrDash(m.Version), console.OrDash(m.Channel), fmt.Sprint(m.Runtimes)}
		for _, s := range used {
			row = append(row, fmt.Sprint(m.States[s]))
		}
		if waiting {
			row = append(row, fmt.Sprint(m.Waiting))
		}
		rows = append(rows, row)
	}
	p.Table(header, rows)
}

// watchStatus shows the fleet, and shows it again after each change, until ctx ends. The Leases of the manager are read
// at an interval, because a fleet without a manager has no changes.
func watchStatus(ctx context.Context, a *console.App, c *connection.Cluster, l *console.Listing, worst int) error {
	const leaseInterval = 10 * time.Second
	observed := liveness.Read(ctx, c)
	screen := console.Screen{App: a}
	return fleetlist.Live(ctx, c, l.Value(console.FilterLabels), leaseInterval, func() bool {
		before := observed
		observed = liveness.Read(ctx, c)
		return observed.Differs(before)
	}, func(fleet map[string]*fleetlist.Member) error {
		t := tally{}
		for _, m := range fleet {
			if m.Matches(l) {
				t.add(m)
			}
		}
		r := t.report(c, worst)
		r.Manager = observed.Report(t.changed)
		return screen.Show(r)
	})
}
