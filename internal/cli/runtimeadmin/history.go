package runtimeadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
)

func historyCommand(a *console.App) *cobra.Command {
	var l console.Listing
	c := a.Command("history [MODULE] [--state OUTCOME] [--version VERSION]…",
		"the last changes of the modules of a runtime: version, time, duration and outcome",
		"It shows the last ten changes of each module that the runtime has, the newest first.", `
klm module history
klm module history sample`,
		console.Arguments("[MODULE]"), func(cmd *cobra.Command, args []string) error {
			c, err := connection.Runtime(cmd.Context(), a)
			if err != nil {
				return err
			}
			module := ""
			if len(args) > 0 {
				module = args[0]
			}
			return diagnosis.PrintModuleChanges(cmd.Context(), a, c, &l, c.OwnKyma, module)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.ModulesOfOwnRuntime(a))
	l.Register(c, diagnosis.HistoryFilters...)
	l.RegisterSort(c)
	return c
}
