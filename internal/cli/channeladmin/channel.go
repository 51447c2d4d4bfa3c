package channeladmin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

func channelCommand(a *console.App) *cobra.Command {
	return a.Group("channel", "the release channels of modules: list, show, set, remove", "", `
klm channel list
klm channel set sample fast 2.0.0 --dry-run`,
		channelListCommand(a), channelShowCommand(a), channelSetCommand(a),
		channelRemoveCommand(a))
}

func channelListCommand(a *console.App) *cobra.Command {
	var l console.Listing
	c := a.Command("list [-l SELECTOR] [--module MODULE] [--channel CHANNEL]…",
		"the version of each channel of each module", "The selector is for the labels of the ModuleReleaseMetas.", `
klm channel list
klm channel list --channel fast --sort-by .module
klm channel list -o name`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			return printCatalogListing(cmd.Context(), a, &l, listChannels,
				func(r *channelRow) bool { return r.isAccepted(&l) },
				func(r *channelRow) string { return r.Module })
		})
	registerListing(a, c, &l)
	return c
}

// listChannels returns the channels of all modules, sorted by channel and module.
func listChannels(s *connection.Catalog) channelList {
	all := channelList{}
	for _, module := range s.Modules() {
		for _, assigned := range s.AssignmentsOf(module) {
			all = append(all, channelRow{Channel: assigned.Channel, Module: module, Version: assigned.Version})
		}
	}
	slices.SortStableFunc(all, func(a, b channelRow) int { return cmp.Compare(a.Channel, b.Channel) })
	return all
}

// isAccepted reports whether the filters of a listing accept the channel.
func (r *channelRow) isAccepted(l *console.Listing) bool {
	versions := []string{r.Version}
	for version := range r.Installed {
		versions = append(versions, version)
	}
	return l.Accepts(console.FilterModule, r.Module) && l.Accepts(console.FilterChannel, r.Channel) &&
		l.Accepts(console.FilterVersion, versions...)
}

func channelShowCommand(a *console.App) *cobra.Command {
	var l console.Listing
	c := a.Command("show MODULE [-l SELECTOR] [--channel CHANNEL] [--version VERSION]",
		"the channels of a module, how many runtimes follow them, and which versions those have",
		"With a selector, only runtimes whose Kyma has these labels are counted.", `
klm channel show sample
klm channel show sample -l kyma-project.io/region=eu-central-1
klm channel show sample --watch`,
		console.Arguments("MODULE"), func(cmd *cobra.Command, args []string) error {
			c, err := connection.ControlPlane(cmd.Context(), a)
			if err != nil {
				return err
			}
			changes := func() <-chan struct{} { return c.CatalogChanges(cmd.Context()) }
			return console.PrintListing(cmd.Context(), a, &l, changes, func() (channelList, error) {
				return readChannelsAndFollowers(cmd.Context(), c, args[0], l.Value(console.FilterLabels))
			}, func(r *channelRow) bool { return r.isAccepted(&l) })
		})
	l.Register(c, console.FilterLabels, console.FilterVersion, console.FilterChannel)
	l.RegisterSort(c)
	c.ValidArgsFunction = console.CompleteArguments(connection.CatalogModules(a))
	return c
}

// readChannelsAndFollowers returns the channels of a module, with the runtimes whose Kymas match kymaSelector.
func readChannelsAndFollowers(ctx context.Context, c *connection.Cluster, module, kymaSelector string) (
	channelList, error) {
	s, err := c.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.RequireModule(module, c); err != nil {
		return nil, err
	}
	followers := map[fleetlist.ModuleVersion]int{}
	if err := fleetlist.ListBrief(ctx, c, kymaSelector, func(m *fleetlist.Member) {
		for _, e := range m.Status.Modules {
			if e.Name == module {
				followers[fleetlist.ModuleVersion{Module: e.Name, Version: e.Version, Channel: e.Channel}]++
			}
		}
	}); err != nil {
		return nil, err
	}
	return describeChannels(s, module, followers), nil
}

// channelList is the report of klm channel list and klm channel show.
type channelList []channelRow

// channelRow is the row of one channel of a module.
type channelRow struct {
	Channel string `json:"channel"`
	Module  string `json:"module"`
	Version string `json:"version"`
	Notes   string `json:"notes,omitempty"`
	// Installed is the number of runtimes that follow the channel, by installed version.
	Installed map[string]int `json:"installed,omitempty"`
	counted   bool
}

// describeChannels returns the channels of a module, with the number of runtimes that follow each channel. Runtimes
// that follow no channel are counted in channel "".
func describeChannels(s *connection.Catalog, module string, followers map[fleetlist.ModuleVersion]int) channelList {
	all := channelList{}
	row := func(channel string) *channelRow {
		i := slices.IndexFunc(all, func(r channelRow) bool { return r.Channel == channel })
		if i < 0 {
			i = len(all)
			all = append(all, channelRow{Channel: channel, Module: module, counted: true, Installed: map[string]int{}})
		}
		return &all[i]
	}
	for _, assigned := range s.AssignmentsOf(module) {
		r := row(assigned.Channel)
		r.Version, r.Notes = assigned.Version, "its ModuleTemplate does not exist"
		for _, t := range s.TemplatesOf(module) {
			if connection.VersionOf(t) == assigned.Version {
				v := versionRow{"", t.IsBeta(), t.IsInternal(), t.Spec.RequiresDowntime}
				r.Notes = strings.Trim(v.String(), " ()")
			}
		}
	}
	for key, n := range followers {
		row(key.Channel).Installed[console.OrDash(key.Version)] += n
	}
	slices.SortStableFunc(all, func(a, b channelRow) int { return strings.Compare(a.Channel, b.Channel) })
	return all
}

func (l channelList) Names() []string {
	var all []string
	for _, r := range l {
		all = append(all, r.Module+"/"+r.Channel)
	}
	return all
}

func (l channelList) Show(p *console.Page) {
	if len(l) == 0 {
		p.Line("no channels")
		return
	}
	header := []string{"CHANNEL", "MODULE", "VERSION"}
	if l[0].counted {
		header = append(header, "RUNTIMES", "INSTALLED", "NOTES")
	}
	var rows [][]string
	for _, r := range l {
		row := []string{r.Channel, r.Module, console.OrDash(r.Version)}
		if r.Channel == "" {
			row[0] = "(pinned)"
		}
		if r.counted {
			row = append(row, r.followerCount(), console.OrDash(r.versionCounts()), console.OrDash(r.Notes))
		}
		rows = append(rows, row)
	}
	p.Table(header, rows)
}

// followerCount returns a text with the number of runtimes that follow the channel.
func (r *channelRow) followerCount() string {
	n := 0
	for _, some := range r.Installed {
		n += some
	}
	return fmt.Sprint(n)
}

// versionCounts returns the number of runtimes for each installed version. The highest version is first.
func (r *channelRow) versionCounts() string {
	var all []string
	for version := range r.Installed {
		all = append(all, version)
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(connection.CompareVersions(b, a), strings.Compare(a, b))
	})
	for i, version := range all {
		all[i] = fmt.Sprintf("%d × %s", r.Installed[version], version)
	}
	return strings.Join(all, ", ")
}
