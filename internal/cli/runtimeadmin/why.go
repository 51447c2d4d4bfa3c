package runtimeadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
)

func whyCommand(a *console.App) *cobra.Command {
	var watch bool
	c := a.Command("why [MODULE] [--watch]",
		"the desired and the installed modules of a runtime, what comes next, and what is in the way",
		"It shows what the runtime itself has; klm why in the control plane shows more. The exit code is 0 if nothing is "+
			"in the way, and 3 if something is.", `
klm module why
klm module why sample
klm module why sample --watch`,
		console.Arguments("[MODULE]"), func(cmd *cobra.Command, args []string) error {
			c, err := connection.Runtime(cmd.Context(), a)
			if err != nil {
				return err
			}
			module := ""
			if len(args) > 0 {
				module = args[0]
			}
			return diagnosis.Why(cmd.Context(), a, c, c.OwnKyma, module, watch)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.ModulesOfOwnRuntime(a))
	c.Flags().BoolVarP(&watch, "watch", "w", false, "keep running, and show every change")
	return c
}
