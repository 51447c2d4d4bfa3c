package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

func (a *app) statusCommand() *cobra.Command {
	var selector string
	var worst int
	var watch bool
	c := a.command("status [-l SELECTOR] [--watch]", "the fleet at a glance: counts by state, module, version and channel, and the worst runtimes", "", `
klm status
klm status --worst=50 -o wide
klm status -l kyma-project.io/region=eu-central-1 -o json
klm status --watch`,
		arguments(), func(cmd *cobra.Command, _ []string) error {
			c, err := a.controlPlane(cmd.Context())
			if err != nil {
				return err
			}
			if watch {
				return a.watchStatus(cmd.Context(), c, selector, worst)
			}
			t := tally{}
			if _, err := c.members(cmd.Context(), selector, t.add); err != nil {
				return err
			}
			return a.print(t.report(c, worst))
		})
	c.Flags().StringVarP(&selector, "selector", "l", "", "only runtimes whose Kyma has these labels, such as a=b,c!=d")
	c.Flags().IntVar(&worst, "worst", 10, "how many of the worst runtimes are shown")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "go on and show every change")
	return c
}

// fleetReport is what klm status shows.
type fleetReport struct {
	Cluster   string         `json:"cluster"`
	Namespace string         `json:"namespace"`
	Runtimes  int            `json:"runtimes"`
	Paused    int            `json:"paused"`
	Agents    *agentCount    `json:"agents,omitempty"`
	States    []named        `json:"states"`
	Channels  []named        `json:"channels"`
	Modules   []moduleCount  `json:"modules"`
	Reasons   []named        `json:"reasons"`
	Worst     []worstRuntime `json:"worst"`
}

// agentCount says how many agents are heard.
type agentCount struct {
	Heard  int `json:"heard"`
	Silent int `json:"silent"`
}

// named is a number of runtimes.
type named struct {
	Name     string `json:"name"`
	Runtimes int    `json:"runtimes"`
}

// moduleCount is how many runtimes have a version of a module from a channel, and how it is there.
type moduleCount struct {
	Module   string                `json:"module"`
	Version  string                `json:"version"`
	Channel  string                `json:"channel"` // "": pinned
	Runtimes int                   `json:"runtimes"`
	Waiting  int                   `json:"waitingForWindow,omitempty"`
	States   map[v1beta2.State]int `json:"states"`
}

// worstRuntime is a runtime that is not Ready.
type worstRuntime struct {
	Name    string        `json:"name"`
	State   v1beta2.State `json:"state"`
	Since   time.Time     `json:"since,omitzero"`
	Reason  string        `json:"reason,omitempty"`
	Message string        `json:"message,omitempty"`
}

// tally counts a fleet. The zero value is empty.
type tally struct {
	runtimes, paused int
	agents           agentCount
	states, channels map[string]int
	reasons          map[string]int
	modules          map[moduleKey]*moduleCount
	worst            []worstRuntime
}

type moduleKey struct{ module, version, channel string }

func (t *tally) add(m *member) {
	if t.states == nil {
		t.states, t.channels, t.reasons, t.modules = map[string]int{}, map[string]int{}, map[string]int{}, map[moduleKey]*moduleCount{}
	}
	t.runtimes++
	t.states[string(m.state())]++
	t.channels[m.Spec.Channel]++
	if m.isPaused() {
		t.paused++
	}
	if agent := m.Status.Agent; agent != nil && agent.Heard {
		t.agents.Heard++
	} else if agent != nil {
		t.agents.Silent++
	}
	reason, message := m.inTheWay()
	if reason != "" {
		t.reasons[reason]++
	}
	for i := range m.Status.Modules {
		e := &m.Status.Modules[i]
		key := moduleKey{e.Name, e.Version, e.Channel}
		n := t.modules[key]
		if n == nil {
			key = moduleKey{strings.Clone(e.Name), strings.Clone(e.Version), strings.Clone(e.Channel)}
			n = &moduleCount{Module: key.module, Version: key.version, Channel: key.channel, States: map[v1beta2.State]int{}}
			t.modules[key] = n
		}
		n.Runtimes++
		n.States[e.State]++
		if e.Maintenance {
			n.Waiting++
		}
	}
	if m.state() != v1beta2.StateReady {
		t.worst = append(t.worst, worstRuntime{m.Metadata.Name, m.state(), m.since(), reason, cmp.Or(message, m.Status.LastOperation.Operation)})
	}
}

// report returns what was counted, with so many of the worst.
func (t *tally) report(c *cluster, worst int) *fleetReport {
	r := &fleetReport{
		Cluster: c.context, Namespace: c.namespace, Runtimes: t.runtimes, Paused: t.paused,
		States: byCount(t.states), Channels: byCount(t.channels), Reasons: byCount(t.reasons), Modules: []moduleCount{}, Worst: []worstRuntime{},
	}
	slices.SortStableFunc(r.States, func(a, b named) int {
		return cmp.Compare(severity(v1beta2.State(b.Name)), severity(v1beta2.State(a.Name)))
	})
	if t.agents != (agentCount{}) {
		r.Agents = &t.agents
	}
	for _, n := range t.modules {
		r.Modules = append(r.Modules, *n)
	}
	slices.SortFunc(r.Modules, func(a, b moduleCount) int {
		return cmp.Or(strings.Compare(a.Module, b.Module), compareVersions(b.Version, a.Version), strings.Compare(b.Version, a.Version), strings.Compare(a.Channel, b.Channel))
	})
	slices.SortFunc(t.worst, func(a, b worstRuntime) int {
		return cmp.Or(cmp.Compare(severity(b.State), severity(a.State)), a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
	r.Worst = append(r.Worst, t.worst[:min(len(t.worst), max(worst, 0))]...)
	return r
}

// byCount returns names and numbers, the largest first.
func byCount(counts map[string]int) []named {
	all := []named{}
	for name, n := range counts {
		all = append(all, named{name, n})
	}
	slices.SortFunc(all, func(a, b named) int {
		return cmp.Or(cmp.Compare(b.Runtimes, a.Runtimes), strings.Compare(a.Name, b.Name))
	})
	return all
}

func (r *fleetReport) names() []string {
	var all []string
	for _, w := range r.Worst {
		all = append(all, "kyma/"+w.Name)
	}
	return all
}

func (r *fleetReport) show(p *page) {
	p.line("%s in %s, namespace %s", number(r.Runtimes, "runtime"), r.Cluster, r.Namespace)
	if r.Runtimes == 0 {
		return
	}
	var parts []string
	for _, s := range r.States {
		parts = append(parts, fmt.Sprintf("%d %s", s.Runtimes, p.state(s.Name)))
	}
	p.line("  state:    %s", strings.Join(parts, ", "))
	parts = nil
	for _, c := range r.Channels {
		parts = append(parts, fmt.Sprintf("%d %s", c.Runtimes, or(c.Name)))
	}
	p.line("  channel:  %s", strings.Join(parts, ", "))
	if r.Agents != nil {
		p.line("  agents:   %d heard, %d not", r.Agents.Heard, r.Agents.Silent)
	}
	if r.Paused > 0 {
		p.line("  paused:   %d", r.Paused)
	}
	r.showModules(p)
	if len(r.Reasons) > 0 {
		p.line("")
		var rows [][]string
		for _, reason := range r.Reasons {
			rows = append(rows, []string{reason.Name, fmt.Sprint(reason.Runtimes)})
		}
		p.table([]string{"IN THE WAY", "RUNTIMES"}, rows)
	}
	if len(r.Worst) > 0 {
		p.line("")
		var rows [][]string
		for _, w := range r.Worst {
			rows = append(rows, []string{w.Name, string(w.State), p.ago(w.Since), or(w.Reason), p.clip(w.Message, 80)})
		}
		p.table([]string{"WORST", "STATE", "SINCE", "REASON", "MESSAGE"}, rows)
	}
}

// moduleStates are the columns of states of modules.
var moduleStates = []v1beta2.State{
	v1beta2.StateReady, v1beta2.StateProcessing, v1beta2.StateWarning, v1beta2.StateError, v1beta2.StateDeleting, v1beta2.StateUnmanaged,
}

// showModules writes the table of modules, with columns only for states that there are.
func (r *fleetReport) showModules(p *page) {
	if len(r.Modules) == 0 {
		return
	}
	p.line("")
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
		row := []string{m.Module, or(m.Version), or(m.Channel), fmt.Sprint(m.Runtimes)}
		for _, s := range used {
			row = append(row, fmt.Sprint(m.States[s]))
		}
		if waiting {
			row = append(row, fmt.Sprint(m.Waiting))
		}
		rows = append(rows, row)
	}
	p.table(header, rows)
}

// watchStatus shows the fleet, and again whenever it has changed, until ctx ends. Changes that come together are shown together.
func (a *app) watchStatus(ctx context.Context, c *cluster, selector string, worst int) error {
	const together = 500 * time.Millisecond
	fleet := map[string]*member{}
	last := ""
	show := func() error {
		t := tally{}
		for _, m := range fleet {
			t.add(m)
		}
		r := t.report(c, worst)
		if a.config.Output != config.FormatTable && a.config.Output != config.FormatWide {
			return a.print(r)
		}
		p := a.page()
		r.show(p)
		text := p.String()
		if text == last {
			return nil
		}
		last = text
		if isTerminal(a.Out) {
			text = "\x1b[H\x1b[2J" + text
		} else {
			text += "\n"
		}
		_, err := a.Out.Write([]byte(text))
		return err
	}
	changes := make(chan change)
	failed := make(chan error, 1)
	go func() { failed <- c.watchMembers(ctx, selector, changes) }()
	var soon <-chan time.Time
	listed := false // until then there is less to show than was shown before
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case <-soon:
			if soon = nil; !listed {
				continue
			}
			if err := show(); err != nil {
				return fmt.Errorf("writing the answer: %w", err)
			}
		case ch := <-changes:
			switch {
			case ch.reset:
				clear(fleet)
				listed = false
			case ch.listed:
				listed, soon = true, time.After(0)
			case ch.gone:
				delete(fleet, ch.member.Metadata.Name)
			case ch.member != nil:
				fleet[ch.member.Metadata.Name] = ch.member
			}
			if soon == nil && listed {
				soon = time.After(together)
			}
		}
	}
}
