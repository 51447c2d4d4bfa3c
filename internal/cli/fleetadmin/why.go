package fleetadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
)

func whyCommand(a *console.App) *cobra.Command {
	var watch bool
	c := a.Command("why RUNTIME [MODULE] [--watch]",
		"the desired and the installed modules of a runtime, what comes next, and what is in the way",
		`
The first line is about the manager: its version, the leader or the replicas, and when it last renewed its Lease. For each blocker it shows since
when, and what to do. With MODULE it shows more about that module. The exit code is 0 if nothing is in the way, and 3 if something is; if no
manager works, it is 7, and all states are as old as the first line says.`, `
klm why runtime-a
klm why runtime-a sample
klm why runtime-a --watch
klm why runtime-a -o json | jq '.blockers[].reason'`,
		console.Arguments("RUNTIME", "[MODULE]"), func(cmd *cobra.Command, args []string) error {
			c, err := connection.ControlPlane(cmd.Context(), a)
			if err != nil {
				return err
			}
			module := ""
			if len(args) > 1 {
				module = args[1]
			}
			return diagnosis.Why(cmd.Context(), a, c, args[0], module, watch)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.RuntimeNames(a), connection.ModulesOfRuntime(a))
	c.Flags().BoolVarP(&watch, "watch", "w", false, "keep running, and show every change")
	return c
}
