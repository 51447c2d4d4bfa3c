package diagnosis

import (
	"slices"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// ModuleList is the report of klm module list.
type ModuleList []ModuleRow

// ModuleRow is the row of one module in the Kyma of a runtime.
type ModuleRow struct {
	Name string `json:"name"`
	// Channel is the channel that the module follows; "" if the module is pinned.
	Channel string `json:"channel,omitempty"`
	Pinned  string `json:"pinned,omitempty"`  // the version that the module is pinned to
	Version string `json:"version,omitempty"` // the installed version
	// From and To are the former and the new version while the version changes. The former version is "" if the module
	// had no version before.
	From     string                       `json:"from,omitempty"`
	To       string                       `json:"to,omitempty"`
	State    v1beta2.State                `json:"state"`
	Managed  bool                         `json:"managed"`
	Policy   v1beta2.CustomResourcePolicy `json:"customResourcePolicy,omitempty"`
	Reason   string                       `json:"reason,omitempty"`
	Message  string                       `json:"message,omitempty"`
	Resource string                       `json:"resource,omitempty"`
}

// ListModules returns the modules that a runtime requests, and the modules that the runtime still has but does not
// request any more. The modules are sorted by name.
func ListModules(k *v1beta2.Kyma) ModuleList {
	all := ModuleList{}
	for _, name := range connection.ModuleNames(k) {
		all = append(all, ModuleRowOf(k, name))
	}
	return all
}

// ModuleRowOf returns the row of a module, from the spec and the status of a Kyma.
func ModuleRowOf(k *v1beta2.Kyma, name string) ModuleRow {
	row := ModuleRow{Name: name, State: console.StateNew}
	if m := k.Module(name); m != nil {
		row.Managed, row.Policy, row.Pinned = m.IsManaged(), m.Policy(), m.Version
		if m.Version == "" {
			row.Channel = k.ModuleChannelOrDefault(name)
		}
	}
	if e := k.ModuleStatus(name); e != nil {
		row.Version, row.State, row.Reason, row.Message = e.Version, e.State, e.Reason, e.Message
		if n := len(e.History); n > 0 && e.History[n-1].Ended.IsZero() && !e.History[n-1].Started.IsZero() {
			row.From, row.To = e.History[n-1].From, e.History[n-1].Version
		}
		if r := e.Resource; r != nil {
			row.Resource = r.Kind + " " + strings.TrimPrefix(r.Metadata.Namespace+"/"+r.Metadata.Name, "/")
		}
	}
	return row
}

// versionText returns the version of a module as a text for people. While the version changes, the text has both
// versions.
func (m *ModuleRow) versionText() string {
	switch {
	case m.To == "" || m.State == v1beta2.StateDeleting || m.State == v1beta2.StateUnmanaged:
		return console.OrDash(m.Version)
	case m.From == "":
		return "→ " + m.To
	}
	return m.From + " → " + m.To
}

// Names returns the lines that -o name prints.
func (l ModuleList) Names() []string {
	var all []string
	for _, m := range l {
		all = append(all, m.Name)
	}
	return all
}

// Show writes the report as text for people.
func (l ModuleList) Show(p *console.Page) {
	if len(l) == 0 {
		p.Line("no modules: klm catalog lists the available modules, klm module enable MODULE enables one")
		return
	}
	var rows [][]string
	for _, m := range l {
		managed := "no"
		if m.Managed {
			managed = "yes"
		}
		channel := console.OrDash(m.Channel)
		if m.Pinned != "" {
			channel = "pinned to " + m.Pinned
		}
		rows = append(rows, []string{m.Name, channel, m.versionText(), string(m.State), managed,
			string(m.Policy), console.OrDash(m.Resource), console.OrDash(m.Reason), p.Clip(m.Message, 80)})
	}
	p.Table([]string{"MODULE", "CHANNEL", "VERSION", "STATE", "MANAGED", "+POLICY", "+RESOURCE", "REASON", "MESSAGE"},
		rows)
	if slices.ContainsFunc(l, func(m ModuleRow) bool { return m.Reason != "" && len(m.Message) > 80 }) && !p.Wide {
		p.Line("klm module why MODULE shows all of a message.")
	}
}

// ModuleFilters are the filters of a listing of the modules of one runtime.
var ModuleFilters = []string{console.FilterModule, console.FilterVersion, console.FilterChannel, console.FilterState,
	console.FilterReason}

// Matches reports whether the filters of a listing accept the module.
func (m *ModuleRow) Matches(l *console.Listing) bool {
	return l.Accepts(console.FilterModule, m.Name) && l.Accepts(console.FilterVersion, m.Version, m.Pinned, m.To) &&
		l.Accepts(console.FilterChannel, m.Channel) && l.Accepts(console.FilterState, string(m.State)) &&
		l.Accepts(console.FilterReason, m.Reason)
}
