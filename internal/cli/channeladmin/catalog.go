package channeladmin

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

func catalogCommand(a *console.App) *cobra.Command {
	var l console.Listing
	c := a.Command("catalog [-l SELECTOR] [--module MODULE]…", "the modules of the catalog, with channels and versions",
		"A control plane has all modules, a runtime has those that it may enable. The selector is for the labels of the "+
			"ModuleReleaseMetas.", `
klm catalog
klm catalog -o wide
klm catalog --version 2.0.0
klm catalog -o json | jq '.[] | select(.mandatory)'`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			return printCatalogListing(cmd.Context(), a, &l, listCatalog, func(row *catalogRow) bool {
				versions, channels := []string{row.Mandatory}, []string{}
				for _, v := range row.Versions {
					versions = append(versions, v.Version)
				}
				for _, c := range row.Channels {
					channels = append(channels, c.Channel)
				}
				return l.Accepts(console.FilterModule, row.Module) && l.Accepts(console.FilterVersion, versions...) &&
					l.Accepts(console.FilterChannel, channels...)
			}, func(row *catalogRow) string { return row.Module })
		})
	registerListing(a, c, &l)
	return c
}

// registerListing adds the flags of a listing of the catalog to a command.
func registerListing(a *console.App, c *cobra.Command, l *console.Listing) {
	l.Register(c, console.FilterLabels, console.FilterModule, console.FilterVersion, console.FilterChannel)
	l.RegisterSort(c)
	console.CompleteFlag(c, console.FilterModule, connection.CatalogModules(a))
}

// printCatalogListing prints a listing of the catalog. The function rows returns all rows of a catalog. The function
// keep reports whether a row matches all filters except the label selector. The function moduleOf returns the module of
// a row. A row matches the label selector if the ModuleReleaseMeta of its module matches.
func printCatalogListing[T any, R interface {
	~[]T
	console.Report
}](ctx context.Context, a *console.App, l *console.Listing, rows func(*connection.Catalog) R, keep func(*T) bool,
	moduleOf func(*T) string) error {
	selector, err := connection.Selector(l)
	if err != nil {
		return err
	}
	c, err := connection.ControlPlaneOrRuntime(ctx, a)
	if err != nil {
		return err
	}
	var s *connection.Catalog
	return console.PrintListing(ctx, a, l, func() <-chan struct{} { return c.CatalogChanges(ctx) }, func() (R, error) {
		if s, err = c.Catalog(ctx); err != nil {
			return nil, err
		}
		return rows(s), nil
	}, func(row *T) bool { return s.ReleaseMatches(selector, moduleOf(row)) && keep(row) })
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
