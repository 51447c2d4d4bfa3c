package fleetadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
)

func historyCommand(a *console.App) *cobra.Command {
	c := a.Command("history RUNTIME [MODULE]",
		"the last changes of the modules of a runtime: version, time, duration and outcome",
		"It shows the last ten changes of each module that the runtime has, the newest first.", `
klm history runtime-a
klm history runtime-a sample
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
			k, err := c.Kyma(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all, err := diagnosis.HistoryOf(k, module)
			if err != nil {
				return err
			}
			return a.Print(all)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.RuntimeNames(a), connection.ModulesOfRuntime(a))
	return c
}
