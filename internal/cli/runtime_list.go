package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func (a *app) runtimeListCommand() *cobra.Command {
	var selector, state string
	c := a.command("list [-l SELECTOR] [--state STATE]", "the runtimes of a fleet", "", `
klm runtime list
klm runtime list --state Error -o wide
klm runtime list -l kyma-project.io/region=eu-central-1 -o name`,
		arguments(), func(cmd *cobra.Command, _ []string) error {
			if state != "" && !slices.Contains(listedStates, state) {
				return fail(exitUsage, "--state: %q is no state: %s", state, instead(state, listedStates))
			}
			c, err := a.controlPlane(cmd.Context())
			if err != nil {
				return err
			}
			all := runtimeList{}
			if _, err := c.members(cmd.Context(), selector, func(m *member) {
				if state == "" || state == string(m.state()) {
					all = append(all, rowOf(m))
				}
			}); err != nil {
				return err
			}
			slices.SortFunc(all, func(a, b runtimeRow) int { return strings.Compare(a.Name, b.Name) })
			return a.print(all)
		})
	c.Flags().StringVarP(&selector, "selector", "l", "", "only runtimes whose Kyma has these labels, such as a=b,c!=d")
	c.Flags().StringVar(&state, "state", "", "only runtimes in this state: "+strings.Join(listedStates, ", "))
	completeFlag(c, "state", fixed(listedStates...))
	return c
}

// listedStates are what a list can be asked for.
var listedStates = []string{
	string(v1beta2.StateReady), string(v1beta2.StateProcessing), string(v1beta2.StateWarning), string(v1beta2.StateError), string(v1beta2.StateDeleting), string(stateNew),
}

// runtimeList is what klm runtime list shows.
type runtimeList []runtimeRow

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

func rowOf(m *member) runtimeRow {
	row := runtimeRow{
		Name: m.Metadata.Name, State: m.state(), Channel: m.Spec.Channel, Modules: m.Status.ModulesReady, Paused: m.isPaused(),
		Created: timeOf(m.Metadata.CreationTimestamp),
	}
	row.Reason, row.Message = m.inTheWay()
	switch agent := m.Status.Agent; {
	case agent == nil:
	case agent.Heard:
		row.Agent = "heard"
	default:
		row.Agent = "silent"
	}
	return row
}

func (l runtimeList) names() []string {
	var all []string
	for _, r := range l {
		all = append(all, "kyma/"+r.Name)
	}
	return all
}

func (l runtimeList) show(p *page) {
	if len(l) == 0 {
		p.line("no runtimes")
		return
	}
	var rows [][]string
	for _, r := range l {
		state := string(r.State)
		reason := r.Reason
		if r.Paused {
			reason = v1beta2.ReasonKymaPaused
		}
		rows = append(rows, []string{r.Name, state, or(r.Channel), or(r.Modules), or(r.Agent), p.ago(r.Created), or(reason), or(r.Message)})
	}
	p.table([]string{"NAME", "STATE", "CHANNEL", "MODULES", "+AGENT", "AGE", "REASON", "+MESSAGE"}, rows)
}
