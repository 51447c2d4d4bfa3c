package runtimeadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
)

func whyCommand(a *console.App) *cobra.Command {
	c := a.Command("why [MODULE]",
		"the desired and the installed modules of a runtime, what comes next, and what is in the way",
		"It shows what the runtime itself has; klm why in the control plane shows more.", `
klm module why
klm module why sample`,
		console.Arguments("[MODULE]"), func(cmd *cobra.Command, args []string) error {
			c, err := connection.Runtime(cmd.Context(), a)
			if err != nil {
				return err
			}
			module := ""
			if len(args) > 0 {
				module = args[0]
			}
			facts, err := diagnosis.Read(cmd.Context(), c, c.OwnKyma, module)
			if err != nil {
				return err
			}
			facts.Now = a.Now()
			return a.Print(facts.Report(module))
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.EnabledModules(a))
	return c
}
