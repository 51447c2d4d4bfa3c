package runtimeadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

func setChannelCommand(a *console.App) *cobra.Command {
	var force bool
	var wait console.WaitFlags
	c := a.Command("set-channel MODULE CHANNEL",
		"let a module follow another release channel, and wait until its version is installed",
		"A module that is pinned to a version follows the channel from now on.", `
klm module set-channel sample fast`,
		console.Arguments("MODULE", "CHANNEL"), func(cmd *cobra.Command, args []string) error {
			return changeModule(cmd.Context(), a, args[0], force, wait, func(w *edit) error {
				entry, err := w.existingEntry(args[0])
				if err != nil {
					return err
				}
				entry["channel"] = args[1]
				delete(entry, "version")
				return nil
			})
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.EnabledModules(a), connection.ModuleChannels(a))
	c.Flags().BoolVar(&force, "force", false, "do not check the catalog")
	wait.Register(c.Flags())
	return c
}
