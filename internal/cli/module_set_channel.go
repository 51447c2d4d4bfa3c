package cli

import (
	"github.com/spf13/cobra"
)

func (a *app) moduleSetChannelCommand() *cobra.Command {
	var force bool
	var wait waiting
	c := a.command("set-channel MODULE CHANNEL", "let a module follow another release channel, and wait until its version is there",
		"A module that is pinned to a version is so no more.", `
klm module set-channel sample fast`,
		arguments("MODULE", "CHANNEL"), func(cmd *cobra.Command, args []string) error {
			return a.changeModule(cmd.Context(), args[0], force, wait, func(w *wish) error {
				entry, err := w.enabled(args[0])
				if err != nil {
					return err
				}
				entry["channel"] = args[1]
				delete(entry, "version")
				return nil
			})
		})
	c.ValidArgsFunction = completing(a.enabledModules, a.moduleChannels)
	c.Flags().BoolVar(&force, "force", false, "do not check the catalog")
	wait.register(c.Flags())
	return c
}
