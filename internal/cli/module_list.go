package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func (a *app) moduleListCommand() *cobra.Command {
	return a.command("list", "the modules of a runtime: what is asked for, and what is there", "Modules that could be had are in klm catalog.", `
klm module list
klm module list -o wide`,
		arguments(), func(cmd *cobra.Command, _ []string) error {
			c, err := a.runtime(cmd.Context())
			if err != nil {
				return err
			}
			k, err := c.kyma(cmd.Context(), c.wish)
			if err != nil {
				return err
			}
			return a.print(moduleRows(k))
		})
}

// moduleList is what klm module list shows.
type moduleList []moduleRow

type moduleRow struct {
	Name     string                       `json:"name"`
	Channel  string                       `json:"channel,omitempty"` // what it follows; "" if it is pinned
	Pinned   string                       `json:"pinned,omitempty"`  // the version that it is pinned to
	Version  string                       `json:"version,omitempty"` // what is installed
	State    v1beta2.State                `json:"state"`
	Managed  bool                         `json:"managed"`
	Policy   v1beta2.CustomResourcePolicy `json:"customResourcePolicy,omitempty"`
	Reason   string                       `json:"reason,omitempty"`
	Message  string                       `json:"message,omitempty"`
	Resource string                       `json:"resource,omitempty"`
}

// moduleRows returns the modules that a runtime asks for or still has, by name.
func moduleRows(k *v1beta2.Kyma) moduleList {
	all := moduleList{}
	for _, name := range modulesOf(k) {
		all = append(all, moduleRowOf(k, name))
	}
	return all
}

func moduleRowOf(k *v1beta2.Kyma, name string) moduleRow {
	row := moduleRow{Name: name, State: stateNew}
	if m := k.Module(name); m != nil {
		row.Managed, row.Policy, row.Pinned = m.IsManaged(), m.Policy(), m.Version
		if m.Version == "" {
			row.Channel = k.ModuleChannel(name)
		}
	}
	if e := k.ModuleStatus(name); e != nil {
		row.Version, row.State, row.Reason, row.Message = e.Version, e.State, e.Reason, e.Message
		if r := e.Resource; r != nil {
			row.Resource = r.Kind + " " + strings.TrimPrefix(r.Metadata.Namespace+"/"+r.Metadata.Name, "/")
		}
	}
	return row
}

func (l moduleList) names() []string {
	var all []string
	for _, m := range l {
		all = append(all, m.Name)
	}
	return all
}

func (l moduleList) show(p *page) {
	if len(l) == 0 {
		p.line("no modules: klm catalog shows what there is, klm module enable MODULE asks for it")
		return
	}
	var rows [][]string
	for _, m := range l {
		managed := "no"
		if m.Managed {
			managed = "yes"
		}
		channel := or(m.Channel)
		if m.Pinned != "" {
			channel = "pinned to " + m.Pinned
		}
		rows = append(rows, []string{m.Name, channel, or(m.Version), string(m.State), managed, string(m.Policy), or(m.Resource), or(m.Reason), p.clip(m.Message, 80)})
	}
	p.table([]string{"MODULE", "CHANNEL", "VERSION", "STATE", "MANAGED", "+POLICY", "+RESOURCE", "REASON", "MESSAGE"}, rows)
	if slices.ContainsFunc(l, func(m moduleRow) bool { return m.Reason != "" && len(m.Message) > 80 }) && !p.wide {
		p.line("klm module why MODULE shows all of a message.")
	}
}
