package fleetadmin

import (
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
	var selector, state string
	c := a.Command("list [-l SELECTOR] [--state STATE]", "the runtimes of a fleet", "", `
klm runtime list
klm runtime list --state Error -o wide
klm runtime list -l kyma-project.io/region=eu-central-1 -o name`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			if state != "" && !slices.Contains(listedStates, state) {
				return console.Fail(console.ExitUsage, "--state: %q is not a state: %s", state,
					console.Suggest(state, listedStates))
			}
			c, err := connection.ControlPlane(cmd.Context(), a)
			if err != nil {
				return err
			}
			all := runtimeList{}
			if _, err := fleetlist.List(cmd.Context(), c, selector, func(m *fleetlist.Member) {
				if state == "" || state == string(m.State()) {
					all = append(all, rowOf(m))
				}
			}); err != nil {
				return err
			}
			slices.SortFunc(all, func(a, b runtimeRow) int { return strings.Compare(a.Name, b.Name) })
			return a.Print(all)
		})
	c.Flags().StringVarP(&selector, "selector", "l", "", "only runtimes whose Kyma has these labels, such as a=b,c!=d")
	c.Flags().StringVar(&state, "state", "", "only runtimes in this state: "+strings.Join(listedStates, ", "))
	console.CompleteFlag(c, "state", console.FixedNames(listedStates...))
	return c
}

// listedStates are the allowed values of --state.
var listedStates = []string{
	string(v1beta2.StateReady), string(v1beta2.StateProcessing), string(v1beta2.StateWarning),
	string(v1beta2.StateError), string(v1beta2.StateDeleting), string(console.StateNew),
}

// runtimeList is the report of klm runtime list.
type runtimeList []runtimeRow

// runtimeRow is the row of one runtime in the list.
type runtimeRow struct {
	Name    string        `json:"name"`
	State   v1beta2.State `json:"state"`
	Channel string        `json:"channel"`
	Modules string        `json:"modulesReady,omitempty"`
	Paused  bool          `json:"paused,omitempty"`
	Agent   string        `json:"agent,omitempty"`
	Created time.Time     `json:"created,omitzero"`
	Reason  string        `json:"reason,omitempty"`
	Message string        `json:"message,omitempty"`
}

// rowOf returns the row of a runtime.
func rowOf(m *fleetlist.Member) runtimeRow {
	row := runtimeRow{
		Name: m.Metadata.Name, State: m.State(), Channel: m.Spec.Channel,
		Modules: m.Status.ModulesReady, Paused: m.IsPaused(),
		Created: fleetlist.ParseTime(m.Metadata.CreationTimestamp),
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
	var rows [][]string
	for _, r := range l {
		state := string(r.State)
		reason := r.Reason
		if r.Paused {
			reason = v1beta2.ReasonKymaPaused
		}
		rows = append(rows, []string{r.Name, state, console.OrDash(r.Channel), console.OrDash(r.Modules),
			agentTexts[r.Agent], p.Ago(r.Created), console.OrDash(reason), console.OrDash(r.Message)})
	}
	p.Table([]string{"NAME", "STATE", "CHANNEL", "MODULES", "+AGENT", "AGE", "REASON", "+MESSAGE"}, rows)
}
