package page

import (
	"cmp"
	"net/url"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/sheet"
)

// versionsView shows the versions of all modules, by channel.
func versionsView(r *request) content {
	f, err := filterOf(r.URL.Query())
	if err != nil {
		return errorPage("This filter is not known", err)
	}
	all := r.fleet.Tally().Versions
	if f.IsSet() {
		all = fleetindex.TallyOf(f.Apply(r.fleet.Members), true).Versions
	}
	total := map[string]int{}
	for _, n := range all {
		total[n.Module] += n.Runtimes
	}
	t := table{Caption: "Versions", Columns: []column{{Title: "Module", Key: "module"}, {Title: "Version",
		Key: "version"}, {Title: "Channel", Key: "channel"}, {Title: "Runtimes", Key: "runtimes", IsNumber: true},
		{Title: "Share and state"}, {Title: "Remark", Key: "remark"}},
		Empty: "No runtime has a module that matches."}
	rows := make([]row, 0, len(all))
	for _, n := range all {
		if !f.Accepts(console.FilterModule, n.Module) || !f.Accepts(console.FilterVersion, n.Version) ||
			!f.Accepts(console.FilterChannel, n.Channel) {
			continue
		}
		remark, hint := r.remark(n)
		path := url.Values{console.FilterModule: {n.Module}, console.FilterVersion: {n.Version}}
		if n.Channel != "" {
			path.Set(console.FilterChannel, n.Channel)
		}
		rows = append(rows, row{
			Keys: []string{n.Module, n.Version, n.Channel, sheet.Number(n.Runtimes), "", remark},
			Cells: func() []cell {
				label := sheet.Number(n.Runtimes) + " of " + sheet.Count(total[n.Module], "runtime")
				return []cell{{Text: n.Module, Path: "/catalog/" + n.Module}, {Text: orDash(n.Version)},
					{Text: cmp.Or(n.Channel, "pinned")},
					{Text: sheet.Number(n.Runtimes), Path: sheet.PathWith("/", path)},
					{Bar: stateBar(total[n.Module], label, n.States)}, {Text: remark, Hint: hint, State: remark}}
			}})
	}
	if t, err = r.arrange(t, rows); err != nil {
		return errorPage("This order is not known", err)
	}
	return content{Title: "Versions", Section: "Versions", Template: "tables", Topics: []fleetindex.Topic{
		fleetindex.Runtimes, fleetindex.Catalog, fleetindex.Rollouts}, Data: tablesPage{Heading: "Versions",
		Intro:  "Which runtimes have which version of a module, by the channel that they have it from.",
		Tables: []table{t}}}
}

// tablesPage is the data of a view that only has tables.
type tablesPage struct {
	Heading, Intro string
	Links          []link
	Tables         []table
}

// remark returns a remark about a version that is withdrawn, pinned, lower or higher than the version of its channel.
func (r *request) remark(n fleetindex.VersionCount) (text, hint string) {
	release := r.fleet.Catalog.Releases[n.Module]
	if release == nil {
		return "", ""
	}
	for _, w := range release.Status.Withdrawn {
		if w.Version == n.Version {
			return "withdrawn", w.Reason
		}
	}
	if n.Channel == "" {
		return "pinned", ""
	}
	return compareWithChannel(release, n.Channel, n.Version)
}

// compareWithChannel compares a version with the version that a channel has.
func compareWithChannel(release *v1beta2.ModuleReleaseMeta, channel, version string) (text, hint string) {
	target, found := release.SpecVersion(channel)
	switch {
	case !found:
		return "no channel", "The module has no channel " + channel + "."
	case version == target:
		return "", ""
	case connection.CompareVersions(version, target) > 0:
		return "ahead", "The channel has the lower version " + target + "."
	}
	if s := release.ChannelStatus(channel); s != nil && s.Rollout != "" {
		return "behind", "The rollout " + s.Rollout + " brings " + target + "."
	}
	return "behind", "The channel has " + target + "."
}
