package runtimeadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
)

func listCommand(a *console.App) *cobra.Command {
	return a.Command("list", "the modules of a runtime: what is requested, and what is installed",
		"klm catalog lists the modules that can be enabled.", `
klm module list
klm module list -o wide`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			c, err := connection.Runtime(cmd.Context(), a)
			if err != nil {
				return err
			}
			k, err := c.Kyma(cmd.Context(), c.OwnKyma)
			if err != nil {
				return err
			}
			return a.Print(diagnosis.ListModules(k))
		})
}
