package channeladmin

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

func catalogCommand(a *console.App) *cobra.Command {
	return a.Command("catalog", "the modules of the catalog, with channels and versions",
		"A control plane has all modules, a runtime has those that it may enable.", `
klm catalog
klm catalog -o wide
klm catalog -o json | jq '.[] | select(.mandatory)'`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			c, err := connection.ControlPlaneOrRuntime(cmd.Context(), a)
			if err != nil {
				return err
			}
			s, err := c.Catalog(cmd.Context())
			if err != nil {
				return err
			}
			return a.Print(listCatalog(s))
		})
}

// catalogReport is the report of klm catalog.
type catalogReport []catalogRow

// catalogRow is the row of one module.
type catalogRow struct {
	Module     string                   `json:"module"`
	Channels   []v1beta2.ChannelVersion `json:"channels"`
	Mandatory  string                   `json:"mandatory,omitempty"` // the version that every runtime gets
	Versions   []versionRow             `json:"versions"`
	Component  string                   `json:"component,omitempty"`
	Restricted bool                     `json:"restricted,omitempty"` // only selected Kymas may have it
}

// versionRow describes one version of a module.
type versionRow struct {
	Version  string `json:"version"`
	Beta     bool   `json:"beta,omitempty"`
	Internal bool   `json:"internal,omitempty"`
	Downtime bool   `json:"requiresDowntime,omitempty"`
}

// listCatalog returns all modules, sorted by name.
func listCatalog(s *connection.Catalog) catalogReport {
	all := catalogReport{}
	for _, name := range s.Modules() {
		row := catalogRow{Module: name, Channels: s.AssignmentsOf(name), Versions: []versionRow{}}
		if r := s.Releases[name]; r != nil {
			row.Component, row.Restricted = r.Spec.OCMComponentName, r.Spec.KymaSelector != nil
			if r.IsMandatory() {
				row.Mandatory = r.Spec.Mandatory.Version
			}
		}
		for _, t := range s.TemplatesOf(name) {
			row.Versions = append(row.Versions, versionRow{connection.VersionOf(t), t.IsBeta(),
				t.IsInternal(), t.Spec.RequiresDowntime})
		}
		all = append(all, row)
	}
	return all
}

func (r catalogReport) Names() []string {
	var all []string
	for _, row := range r {
		all = append(all, row.Module)
	}
	return all
}

func (r catalogReport) Show(p *console.Page) {
	if len(r) == 0 {
		p.Line("no modules")
		return
	}
	var rows [][]string
	for _, row := range r {
		var channels, versions []string
		for _, c := range row.Channels {
			channels = append(channels, c.Channel+"="+c.Version)
		}
		if row.Mandatory != "" {
			channels = append(channels, "mandatory="+row.Mandatory)
		}
		for _, v := range row.Versions {
			versions = append(versions, v.String())
		}
		if row.Restricted {
			channels = append(channels, "(selected runtimes only)")
		}
		rows = append(rows, []string{row.Module, console.OrDash(strings.Join(channels, " ")),
			console.OrDash(strings.Join(versions, ", ")), console.OrDash(row.Component)})
	}
	p.Table([]string{"MODULE", "CHANNELS", "VERSIONS", "+COMPONENT"}, rows)
}

// String returns the version with its properties in parentheses.
func (v versionRow) String() string {
	notes := slices.DeleteFunc([]string{textIf(v.Beta, "beta"), textIf(v.Internal, "internal"),
		textIf(v.Downtime, "downtime")}, func(s string) bool { return s == "" })
	if len(notes) == 0 {
		return v.Version
	}
	return v.Version + " (" + strings.Join(notes, ", ") + ")"
}

// textIf returns the text if the condition is true, otherwise "".
func textIf(applies bool, text string) string {
	if applies {
		return text
	}
	return ""
}
