package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) channelCommand() *cobra.Command {
	return a.group("channel", "the release channels of modules: list, show, set", "", `
klm channel list
klm channel set sample fast 2.0.0 --dry-run`,
		a.channelListCommand(), a.channelShowCommand(), a.channelSetCommand())
}

func (a *app) channelListCommand() *cobra.Command {
	return a.command("list", "which version each channel has", "", `
klm channel list
klm channel list -o name`,
		arguments(), func(cmd *cobra.Command, _ []string) error {
			c, err := a.either(cmd.Context())
			if err != nil {
				return err
			}
			s, err := c.stock(cmd.Context())
			if err != nil {
				return err
			}
			all := channelList{}
			for _, module := range s.modules() {
				for _, assigned := range s.assignments(module) {
					all = append(all, channelRow{Channel: assigned.Channel, Module: module, Version: assigned.Version})
				}
			}
			slices.SortStableFunc(all, func(a, b channelRow) int { return cmp.Compare(a.Channel, b.Channel) })
			return a.print(all)
		})
}

func (a *app) channelShowCommand() *cobra.Command {
	c := a.command("show MODULE", "the channels of a module, who follows them, and what is installed there", "", `
klm channel show sample`,
		arguments("MODULE"), func(cmd *cobra.Command, args []string) error {
			c, err := a.controlPlane(cmd.Context())
			if err != nil {
				return err
			}
			s, err := c.stock(cmd.Context())
			if err != nil {
				return err
			}
			if err := s.known(args[0], c); err != nil {
				return err
			}
			followers := map[moduleKey]int{}
			_, err = c.members(cmd.Context(), "", func(m *member) {
				for _, e := range m.Status.Modules {
					if e.Name == args[0] {
						followers[moduleKey{e.Name, e.Version, e.Channel}]++
					}
				}
			})
			if err != nil {
				return err
			}
			return a.print(s.describe(args[0], followers))
		})
	c.ValidArgsFunction = completing(a.catalogModules)
	return c
}

// channelList is what klm channel list and show show.
type channelList []channelRow

type channelRow struct {
	Channel   string         `json:"channel"`
	Module    string         `json:"module"`
	Version   string         `json:"version"`
	Notes     string         `json:"notes,omitempty"`
	Installed map[string]int `json:"installed,omitempty"` // runtimes that follow the channel, by the version that they have
	counted   bool
}

// describe returns the channels of a module with those that follow them. Runtimes that follow none are under the channel "".
func (s *stock) describe(module string, followers map[moduleKey]int) channelList {
	all := channelList{}
	row := func(channel string) *channelRow {
		i := slices.IndexFunc(all, func(r channelRow) bool { return r.Channel == channel })
		if i < 0 {
			i = len(all)
			all = append(all, channelRow{Channel: channel, Module: module, counted: true, Installed: map[string]int{}})
		}
		return &all[i]
	}
	for _, assigned := range s.assignments(module) {
		r := row(assigned.Channel)
		r.Version, r.Notes = assigned.Version, "there is no ModuleTemplate for it"
		for _, t := range s.templatesOf(module) {
			if versionOf(t) == assigned.Version {
				v := versionRow{"", t.IsBeta(), t.IsInternal(), t.Spec.RequiresDowntime}
				r.Notes = strings.Trim(v.String(), " ()")
			}
		}
	}
	for key, n := range followers {
		row(key.channel).Installed[or(key.version)] += n
	}
	slices.SortStableFunc(all, func(a, b channelRow) int { return strings.Compare(a.Channel, b.Channel) })
	return all
}

func (l channelList) names() []string {
	var all []string
	for _, r := range l {
		all = append(all, r.Module+"/"+r.Channel)
	}
	return all
}

func (l channelList) show(p *page) {
	if len(l) == 0 {
		p.line("no channels")
		return
	}
	header := []string{"CHANNEL", "MODULE", "VERSION"}
	if l[0].counted {
		header = append(header, "RUNTIMES", "INSTALLED", "NOTES")
	}
	var rows [][]string
	for _, r := range l {
		row := []string{r.Channel, r.Module, or(r.Version)}
		if r.Channel == "" {
			row[0] = "(pinned)"
		}
		if r.counted {
			row = append(row, r.followers(), or(r.versions()), or(r.Notes))
		}
		rows = append(rows, row)
	}
	p.table(header, rows)
}

func (r *channelRow) followers() string {
	n := 0
	for _, some := range r.Installed {
		n += some
	}
	return fmt.Sprint(n)
}

// versions says which versions are installed how often, the highest first.
func (r *channelRow) versions() string {
	var all []string
	for version := range r.Installed {
		all = append(all, version)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(compareVersions(b, a), strings.Compare(a, b)) })
	for i, version := range all {
		all[i] = fmt.Sprintf("%d × %s", r.Installed[version], version)
	}
	return strings.Join(all, ", ")
}
