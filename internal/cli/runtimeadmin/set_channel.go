package runtimeadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

func setModuleChannelCommand(a *console.App) *cobra.Command {
	var o moduleChange
	c := a.Command("set-channel MODULE CHANNEL",
		"let a module follow another release channel, and wait until its version is installed",
		"A module that is pinned to a version follows the channel from now on.", `
klm module set-channel sample fast
klm module set-channel sample regular --allow-downgrade`,
		console.Arguments("MODULE", "CHANNEL"), func(cmd *cobra.Command, args []string) error {
			return changeModuleRequestAndWait(cmd.Context(), a, args[0], o, func(w *edit) error {
				entry, err := w.existingEntry(args[0])
				if err != nil {
					return err
				}
				entry["channel"] = args[1]
				delete(entry, "version")
				w.setListed(v1beta2.AnnotationAllowDowngrade, args[0], o.allowDowngrade) // only for this change
				return nil
			})
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.ModulesOfOwnRuntime(a), connection.ModuleChannels(a))
	o.Register(c.Flags())
	o.RegisterDowngrade(c.Flags())
	return c
}

func setVersionCommand(a *console.App) *cobra.Command {
	var o moduleChange
	c := a.Command("set-version MODULE VERSION",
		"pin a module to a version, and wait until that is installed",
		"A module that follows a channel is pinned from now on; klm module set-channel ends that.", `
klm module set-version sample 2.0.0
klm module set-version sample 1.0.0 --allow-downgrade
klm module set-version sample 2.0.0 --dry-run`,
		console.Arguments("MODULE", "VERSION"), func(cmd *cobra.Command, args []string) error {
			return changeModuleRequestAndWait(cmd.Context(), a, args[0], o, func(w *edit) error {
				entry, err := w.existingEntry(args[0])
				if err != nil {
					return err
				}
				entry["version"] = args[1]
				delete(entry, "channel")
				w.setListed(v1beta2.AnnotationAllowDowngrade, args[0], o.allowDowngrade) // only for this change
				return nil
			})
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.ModulesOfOwnRuntime(a), connection.ModuleVersions(a))
	o.Register(c.Flags())
	o.RegisterDowngrade(c.Flags())
	return c
}
