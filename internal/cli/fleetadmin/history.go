package fleetadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
)

func versionHistoryCommand(a *console.App) *cobra.Command {
	var l console.Listing
	c := a.Command("history RUNTIME [MODULE] [--state OUTCOME] [--version VERSION]…",
		"the last changes of the modules of a runtime: version, time, duration and outcome",
		"It shows the last ten changes of each module that the runtime has, the newest first.", `
klm history runtime-a
klm history runtime-a sample
klm history runtime-a --state Error --sort-by .version
klm history runtime-a -o json | jq '.[] | select(.outcome == "Error")'`,
		console.Arguments("RUNTIME", "[MODULE]"), func(cmd *cobra.Command, args []string) error {
			c, err := connection.ControlPlane(cmd.Context(), a)
			if err != nil {
				return err
			}
			module := ""
			if len(args) > 1 {
				module = args[1]
			}
			return diagnosis.PrintModuleChanges(cmd.Context(), a, c, &l, args[0], module)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.RuntimeNames(a), connection.ModulesOfRuntime(a))
	l.Register(c, diagnosis.HistoryFilters...)
	l.RegisterSort(c)
	return c
}
