package moduleauthor

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/author"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/ocmaccess"
)

func initCommand(a *console.App) *cobra.Command {
	var folder, team string
	c := a.Command("init COMPONENT", "write the skeleton of a module, with a tiny operator that works",
		"COMPONENT is a domain and a path; the last part becomes the name of the module. Files that are there already stay as they are.", `
klm module init example.com/module/greeter
klm module init example.com/module/greeter --directory greeter --team example/blue`,
		console.Arguments("COMPONENT"), func(_ *cobra.Command, args []string) error {
			written, err := author.Init(folder, args[0], team)
			if err != nil {
				return ocmaccess.Explain(err)
			}
			return a.Print(skeleton(written))
		})
	c.Flags().StringVar(&folder, "directory", ".", "folder to write to; it is made if it is not there")
	c.Flags().StringVar(&team, "team", "example/team", "who answers for findings of security scanners")
	return c
}

// skeleton is what klm module init has written.
type skeleton []author.Written

func (s skeleton) Names() []string {
	var names []string
	for _, w := range s {
		names = append(names, w.File)
	}
	return names
}

func (s skeleton) Show(p *console.Page) {
	for _, w := range s {
		if w.New {
			p.Line("%s", w.File)
		} else {
			p.Line("%s is there already, and stays", w.File)
		}
	}
}
