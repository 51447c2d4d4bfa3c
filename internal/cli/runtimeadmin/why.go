package runtimeadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
)

func whyCommand(a *console.App) *cobra.Command {
	c := a.Command("why [MODULE]", "what a runtime shall have, what it has, what comes next, and what is in the way",
		"It is what the runtime knows; klm why in the control plane knows more.", `
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
