package fleetadmin

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

func runtimeListCommand(a *console.App) *cobra.Command {
	var l console.Listing
	var contexts []string
	c := a.Command("list [-l SELECTOR] [--module MODULE] [--state STATE]…", "the runtimes of a fleet",
		"--channel, --state and --reason are those of the runtime, or with --module those of the module.\n"+
			"--contexts reads several control planes as one fleet.", `
klm runtime list
klm runtime list --state Error -o wide
klm runtime list --kubernetes-version 1.34 -o wide
klm runtime list --module sample --version 1.0.0 --sort-by .created
klm runtime list -l kyma-project.io/region=eu-central-1 -o name
klm runtime list --contexts=eu,us --state Error
klm runtime list -o jsonpath='{range [*]}{.name}{"\n"}{end}'
klm runtime list -o custom-columns=NAME:.name,WHY:.reason --watch`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			isAccepted := func(s string) bool { return l.Accepts(console.FilterState, s) }
			if state := l.Value(console.FilterState); !slices.ContainsFunc(fleetlist.States, isAccepted) {
				return console.Fail(console.ExitUsage, "--state: %q is not a state: %s", state,
					console.SuggestionText(state, fleetlist.States))
			}
			if len(contexts) > 0 {
				if l.Watch {
					return console.Fail(console.ExitUsage, "--watch shows one control plane: choose it with --context")
				}
				return listRuntimesOf(cmd.Context(), a, contexts, &l)
			}
			c, err := connection.ControlPlane(cmd.Context(), a)
			if err != nil {
				return err
			}
			return listRuntimes(cmd.Context(), a, c, &l)
		})
	fleetlist.RegisterFilters(a, c, &l)
	l.RegisterSort(c)
	connection.RegisterContexts(c, &contexts)
	return c
}

// listRuntimesOf prints the runtimes of several control planes that the filters accept. If a control plane cannot be
// read, the runtimes of the other control planes are printed, and the error names this control plane.
func listRuntimesOf(ctx context.Context, a *console.App, contexts []string, l *console.Listing) error {
	lists := make([]runtimeList, len(contexts))
	failed := connection.EachControlPlane(ctx, a, contexts, func(i int, c *connection.Cluster) error {
		return fleetlist.ListMatchingWithMessages(ctx, c, l, func(m *fleetlist.Member) {
			row := rowOf(m)
			row.Context = c.Context
			lists[i] = append(lists[i], row)
		})
	})
	all, err := sortRuntimeRows(l, slices.Concat(lists...))
	if err != nil {
		return err
	}
	if err := a.Print(all); err != nil {
		return err
	}
	return failed
}

// sortRuntimeRows returns the rows in the order that the user has requested, or by name.
func sortRuntimeRows(l *console.Listing, all runtimeList) (runtimeList, error) {
	slices.SortFunc(all, func(a, b runtimeRow) int {
		return cmp.Or(strings.Compare(a.Context, b.Context), strings.Compare(a.Name, b.Name))
	})
	return console.SelectAndSort[runtimeRow](l, all, nil)
}

// listRuntimes prints the runtimes that the filters accept. With --watch, listRuntimes also shows their changes.
func listRuntimes(ctx context.Context, a *console.App, c *connection.Cluster, l *console.Listing) error {
	all := runtimeList{}
	if !l.Watch {
		add := func(m *fleetlist.Member) { all = append(all, rowOf(m)) }
		if err := fleetlist.ListMatchingWithMessages(ctx, c, l, add); err != nil {
			return err
		}
		all, err := sortRuntimeRows(l, all)
		if err != nil {
			return err
		}
		return a.Print(all)
	}
	screen := console.Screen{App: a}
	const interval = 10 * time.Second // for the column with the age
	selector := l.Value(console.FilterLabels)
	return fleetlist.ShowLive(ctx, c, selector, interval, a.IsForPeople,
		func(fleet map[string]*fleetlist.Member) error {
			all = nil
			for _, m := range fleet {
				if m.Matches(l) {
					all = append(all, rowOf(m))
				}
			}
			rows, err := sortRuntimeRows(l, all)
			if err != nil {
				return err
			}
			return screen.Show(rows)
		})
}

// runtimeList is the report of klm runtime list.
type runtimeList []runtimeRow

// runtimeRow is the row of one runtime in the list.
type runtimeRow struct {
	// Context is the context of the control plane; "" if only one control plane was listed.
	Context string        `json:"context,omitempty"`
	Name    string        `json:"name"`
	State   v1beta2.State `json:"state"`
	Channel string        `json:"channel"`
	Modules string        `json:"modulesReady,omitempty"`
	Paused  bool          `json:"paused,omitempty"`
	Agent   string        `json:"agent,omitempty"`
	Created time.Time     `json:"created,omitzero"`
	// Kubernetes is the version of Kubernetes in the runtime; "" if the version is not known.
	Kubernetes string `json:"kubernetesVersion,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Message    string `json:"message,omitempty"`
}

// rowOf returns the row of a runtime.
func rowOf(m *fleetlist.Member) runtimeRow {
	row := runtimeRow{
		Name: m.Metadata.Name, State: m.State(), Channel: m.Spec.Channel,
		Modules: m.Status.ModulesReady, Paused: m.IsPaused(),
		Created:    fleetlist.ParseTime(m.Metadata.CreationTimestamp),
		Kubernetes: m.Status.KubernetesVersion,
	}
	row.Reason, row.Message = m.Blocker()
	switch agent := m.Status.Agent; {
	case agent == nil:
	case agent.Heard:
		row.Agent = "heard"
	default:
		row.Agent = "silent"
	}
	return row
}

// agentTexts maps the values of runtimeRow.Agent to texts for people.
var agentTexts = map[string]string{"": "-", "heard": "connected", "silent": "not connected"}

func (l runtimeList) Names() []string {
	var all []string
	for _, r := range l {
		all = append(all, "kyma/"+r.Name)
	}
	return all
}

func (l runtimeList) Show(p *console.Page) {
	if len(l) == 0 {
		p.Line("no runtimes")
		return
	}
	header := []string{"NAME", "STATE", "CHANNEL", "MODULES", "+AGENT", "+KUBERNETES", "AGE", "REASON", "+MESSAGE"}
	if l[0].Context != "" {
		header = append([]string{"CONTEXT"}, header...)
	}
	var rows [][]string
	for _, r := range l {
		state := string(r.State)
		reason := r.Reason
		if r.Paused {
			reason = v1beta2.ReasonKymaPaused
		}
		row := []string{r.Name, state, console.OrDash(r.Channel), console.OrDash(r.Modules), agentTexts[r.Agent],
			console.OrDash(r.Kubernetes), p.Age(r.Created), console.OrDash(reason), console.OrDash(r.Message)}
		if r.Context != "" {
			row = append([]string{r.Context}, row...)
		}
		rows = append(rows, row)
	}
	p.Table(header, rows)
}
