package moduleauthor

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/author"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/ocmaccess"
)

func initCommand(a *console.App) *cobra.Command {
	var folder, team string
	c := a.Command("init COMPONENT", "write the skeleton of a module, with a small working operator",
		"COMPONENT is a domain and a path; the last part becomes the name of the module. Existing files are not "+
			"changed.", `
klm module init example.com/module/greeter
klm module init example.com/module/greeter --directory greeter --team example/blue`,
		console.Arguments("COMPONENT"), func(_ *cobra.Command, args []string) error {
			written, err := author.Init(folder, args[0], team)
			if err != nil {
				return ocmaccess.ExplainWithExitCode(err)
			}
			return a.Print(skeleton(written))
		})
	c.Flags().StringVar(&folder, "directory", ".", "directory to write to; it is created if it does not exist")
	c.Flags().StringVar(&team, "team", "example/team", "team that is responsible for findings of security scanners")
	return c
}

// skeleton is the report of klm module init: the list of the written files.
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
			p.Line("%s exists already, and is not changed", w.File)
		}
	}
}
