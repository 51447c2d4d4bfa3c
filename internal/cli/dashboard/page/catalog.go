package page

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/sheet"
)

// catalogView shows all modules with the versions of their channels.
func catalogView(r *request) content {
	f, err := filterOf(r.URL.Query())
	if err != nil {
		return errorPage("This filter is not known", err)
	}
	users := map[string]int{}
	for _, n := range r.fleet.Tally().Versions {
		users[n.Module] += n.Runtimes
	}
	t := table{Caption: "Modules", Columns: []column{{Title: "Module", Key: "module"}, {Title: "Channels"},
		{Title: "Versions", Key: "versions", IsNumber: true}, {Title: "Runtimes", Key: "runtimes", IsNumber: true},
		{Title: "Component", Key: "component"}}, Empty: "The catalog has no module. Publish one: " + r.server.program +
		" module build, then apply its ModuleTemplate and ModuleReleaseMeta."}
	var rows []row
	for _, name := range r.fleet.Catalog.Modules() {
		if !f.Accepts(console.FilterModule, name) || f.Name != "" && !strings.Contains(name, f.Name) {
			continue
		}
		release := r.fleet.Catalog.Releases[name]
		component, channels := "", []string{}
		if release != nil {
			component = release.Spec.OCMComponentName
		}
		if release.IsMandatory() {
			channels = append(channels, "mandatory "+release.Spec.Mandatory.Version)
		}
		for _, c := range r.fleet.Catalog.AssignmentsOf(name) {
			text := c.Channel + " " + c.Version
			if s := release.ChannelStatus(c.Channel); s != nil && s.Rollout != "" {
				text = c.Channel + " " + orDash(s.Version) + " → " + c.Version
			}
			channels = append(channels, text)
		}
		versions := len(r.fleet.Catalog.TemplatesOf(name))
		rows = append(rows, row{Keys: []string{name, "", fmt.Sprint(versions), fmt.Sprint(users[name]), component},
			Cells: func() []cell {
				return []cell{{Text: name, Path: "/catalog/" + name}, {Text: orDash(strings.Join(channels, " · "))},
					{Text: sheet.Number(versions)},
					{Text: sheet.Number(users[name]), Path: sheet.PathWith("/", url.Values{
						console.FilterModule: {name}})}, {Text: orDash(component)}}
			}})
	}
	if t, err = r.arrange(t, rows); err != nil {
		return errorPage("This order is not known", err)
	}
	return content{Title: "Catalog", Section: "Catalog", Template: "tables", Topics: []fleetindex.Topic{
		fleetindex.Catalog, fleetindex.Runtimes, fleetindex.Rollouts}, Data: tablesPage{Heading: "Catalog",
		Intro: "The modules, the versions of their channels, and how many runtimes have them.", Tables: []table{t}}}
}

// catalogModuleView shows the channels and the versions of one module.
func catalogModuleView(r *request) content {
	name, s := r.PathValue("module"), r.fleet.Catalog
	if all := s.Modules(); !slices.Contains(all, name) {
		return problemPage(http.StatusNotFound, "There is no module "+name, console.SuggestionText(name, all), "",
			link{"Show the catalog", "/catalog"})
	}
	release := s.Releases[name]
	versions := r.versionTable(name, release)
	channels := table{Caption: "Channels", Columns: []column{{Title: "Channel"}, {Title: "Version"},
		{Title: "Proven version"}, {Title: "Rollout"}, {Title: "Moved"}, {Title: "Plan of a move"}},
		Empty: "The module has no channel."}
	for _, c := range s.AssignmentsOf(name) {
		cells := []cell{{Text: c.Channel}, {Text: c.Version}, {Text: "–"}, {Text: "–"}, {Text: "–"}, {Text: "plan",
			Path: "/plan?module=" + name + "&channel=" + c.Channel}}
		if is := release.ChannelStatus(c.Channel); is != nil {
			cells[2].Text, cells[4].Text = orDash(is.Version), r.age(is.Since.Time)+" ago"
			if is.Rollout != "" {
				cells[3] = cell{Text: is.Rollout, Path: "/rollouts/" + is.Rollout}
			}
		}
		channels.Rows = append(channels.Rows, cells)
	}
	intro := "Mandatory: every runtime has it."
	if !release.IsMandatory() {
		intro = ""
	}
	if release != nil && release.Spec.OCMComponentName != "" {
		intro = strings.TrimSpace(intro + " Component " + release.Spec.OCMComponentName + ".")
	}
	return content{Title: name, Section: "Catalog", Template: "tables", Topics: []fleetindex.Topic{fleetindex.Catalog,
		fleetindex.Runtimes, fleetindex.Rollouts}, Data: tablesPage{Heading: name, Intro: intro,
		Links: []link{{"Catalog", "/catalog"}, {"Runtimes with this module", "/?module=" + name},
			{"Changes", "/changes?module=" + name}},
		Tables: []table{channels, versions, r.originTable(name), r.knownRiskTable(name)}}}
}

// versionTable returns the table of the versions of a module. For each version, the table has the number of runtimes
// with this version, and what its ModuleTemplate declares about upgrades, downgrades and risks.
func (r *request) versionTable(name string, release *v1beta2.ModuleReleaseMeta) table {
	users := map[string]int{}
	for _, n := range r.fleet.Tally().Versions {
		if n.Module == name {
			users[n.Version] += n.Runtimes
		}
	}
	t := table{Caption: "Versions", Columns: []column{{Title: "Version"}, {Title: "Channels"}, {Title: "Runtimes",
		IsNumber: true}, {Title: "Upgrade from"}, {Title: "Back to"}, {Title: "Known risks"},
		{Title: "Remark"}}, Empty: "The module has no version."}
	for _, template := range r.fleet.Catalog.TemplatesOf(name) {
		version := connection.VersionOf(template)
		var channels, remarks, risks []string
		for _, c := range r.fleet.Catalog.AssignmentsOf(name) {
			if c.Version == version {
				channels = append(channels, c.Channel)
			}
		}
		from, back := "any", "none"
		if u := template.Spec.Upgrade; u != nil {
			from, back = cmp.Or(u.From, from), cmp.Or(u.Back, back)
			for _, risk := range u.Risks {
				risks = append(risks, risk.Name)
			}
		}
		if template.Spec.RequiresDowntime {
			remarks = append(remarks, "needs a maintenance window")
		}
		for _, kind := range []struct{ label, text string }{{v1beta2.LabelBeta, "beta"},
			{v1beta2.LabelInternal, "internal"}} {
			if template.Labels[kind.label] == v1beta2.ValueTrue {
				remarks = append(remarks, kind.text)
			}
		}
		state := ""
		if release != nil {
			for _, w := range release.Status.Withdrawn {
				if w.Version == version {
					remarks, state = append(remarks, "withdrawn: "+orDash(w.Reason)), "withdrawn"
				}
			}
		}
		t.Rows = append(t.Rows, []cell{{Text: version}, {Text: orDash(strings.Join(channels, ", "))},
			{Text: sheet.Number(users[version]), Path: sheet.PathWith("/", url.Values{console.FilterModule: {name},
				console.FilterVersion: {version}}), IsNumber: true}, {Text: from}, {Text: back},
			{Text: orDash(strings.Join(risks, ", "))},
			{Text: orDash(strings.Join(remarks, ", ")), State: state}})
	}
	return t
}
