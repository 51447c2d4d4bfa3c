package cli

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/author"
)

func (a *app) moduleInitCommand() *cobra.Command {
	var folder, team string
	c := a.command("init COMPONENT", "write the skeleton of a module, with a tiny operator that works",
		"COMPONENT is a domain and a path; the last part becomes the name of the module. Files that are there already stay as they are.", `
klm module init example.com/module/greeter
klm module init example.com/module/greeter --directory greeter --team example/blue`,
		arguments("COMPONENT"), func(_ *cobra.Command, args []string) error {
			written, err := author.Init(folder, args[0], team)
			if err != nil {
				return explainAuthor(err)
			}
			return a.print(skeleton(written))
		})
	c.Flags().StringVar(&folder, "directory", ".", "folder to write to; it is made if it is not there")
	c.Flags().StringVar(&team, "team", "example/team", "who answers for findings of security scanners")
	return c
}

// skeleton is what klm module init has written.
type skeleton []author.Written

func (s skeleton) names() []string {
	var names []string
	for _, w := range s {
		names = append(names, w.File)
	}
	return names
}

func (s skeleton) show(p *page) {
	for _, w := range s {
		if w.New {
			p.line("%s", w.File)
		} else {
			p.line("%s is there already, and stays", w.File)
		}
	}
}
