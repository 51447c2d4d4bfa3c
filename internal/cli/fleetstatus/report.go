package fleetstatus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

// fleetReport is the report of klm status.
type fleetReport struct {
	// Manager is nil if the state of the manager was not read, or if there are several control planes.
	Manager *liveness.Report `json:"manager,omitempty"`
	// ControlPlanes has one entry for each context of --contexts.
	ControlPlanes []planeReport  `json:"controlPlanes,omitempty"`
	Cluster       string         `json:"cluster"`
	Namespace     string         `json:"namespace"`
	Runtimes      int            `json:"runtimes"`
	Paused        int            `json:"paused"`
	Agents        *agentCount    `json:"agents,omitempty"`
	States        []runtimeCount `json:"states"`
	Channels      []runtimeCount `json:"channels"`
	// Kubernetes counts the runtimes by minor version of Kubernetes, if the version is known.
	Kubernetes []runtimeCount `json:"kubernetesVersions,omitempty"`
	Modules    []moduleCount  `json:"modules"`
	Reasons    []runtimeCount `json:"reasons"`
	Worst      []worstRuntime `json:"worst"`
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
	// Context is the context of the control plane; "" if only one control plane was read.
	Context string        `json:"context,omitempty"`
	Name    string        `json:"name"`
	State   v1beta2.State `json:"state"`
	Since   time.Time     `json:"since,omitzero"`
	Reason  string        `json:"reason,omitempty"`
	Message string        `json:"message,omitempty"`
}

// err returns an error with ExitNotReady if --exit-code is given and a runtime is not Ready. A runtime that is not
// managed does not count.
func (r *fleetReport) err(isExitCodeRequested bool) error {
	n := 0
	for _, s := range r.States {
		if s.Name != string(v1beta2.StateReady) && s.Name != string(v1beta2.StateUnmanaged) {
			n += s.Runtimes
		}
	}
	if n == 0 || !isExitCodeRequested {
		return nil
	}
	return console.Fail(console.ExitNotReady, "%s: not Ready", console.Count(n, "runtime"))
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
	if old := r.Manager.StalenessText(); old != "" {
		asOf, column = " ("+old+")", "STATE "+strings.ToUpper(old)
	}
	if len(r.ControlPlanes) == 0 {
		p.Line("%s in %s, namespace %s", console.Count(r.Runtimes, "runtime"), r.Cluster, r.Namespace)
	} else {
		r.showControlPlanes(p)
	}
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
	if p.Wide && len(r.Kubernetes) > 0 {
		parts = nil
		for _, v := range r.Kubernetes {
			parts = append(parts, fmt.Sprintf("%d with %s", v.Runtimes, v.Name))
		}
		p.Line("  kubernetes: %s", strings.Join(parts, ", "))
	}
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
			row := []string{w.Name, string(w.State), p.Age(w.Since), console.OrDash(w.Reason), p.Clip(w.Message, 80)}
			if len(r.ControlPlanes) > 0 {
				row = append([]string{w.Context}, row...)
			}
			rows = append(rows, row)
		}
		header := []string{"WORST", column, "SINCE", "REASON", "MESSAGE"}
		if len(r.ControlPlanes) > 0 {
			header = append([]string{"CONTEXT"}, header...)
		}
		p.Table(header, rows)
	}
}

// showControlPlanes writes the table of several control planes, and the sum.
func (r *fleetReport) showControlPlanes(p *console.Page) {
	var rows [][]string
	for _, c := range r.ControlPlanes {
		row := []string{c.Context, "-", "-", "not read"}
		if c.Manager != nil {
			row = []string{c.Context, fmt.Sprint(c.Runtimes), fmt.Sprint(c.Ready), managerText(c.Manager)}
		}
		rows = append(rows, row)
	}
	p.Table([]string{"CONTEXT", "RUNTIMES", "READY", "MANAGER"}, rows)
	p.Line("")
	p.Line("%s in %s", console.Count(r.Runtimes, "runtime"), console.Count(len(r.ControlPlanes), "control plane"))
}

// managerText returns a short text about the state of a manager.
func managerText(m *liveness.Report) string {
	switch m.State {
	case liveness.Working:
		return "works " + m.Version
	case liveness.NotWorking:
		return "does not work: states are " + m.StalenessText()
	}
	return "unknown"
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
