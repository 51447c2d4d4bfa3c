package fleetadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

func whyCommand(a *console.App) *cobra.Command {
	c := a.Command("why RUNTIME [MODULE]",
		"the desired and the installed modules of a runtime, what comes next, and what is in the way",
		`
The first line is about the manager: its version, the leader or the replicas, and when it was last heard. If no manager works, the exit code
is 7, and all states are as old as the first line says. For each blocker it shows since when, and what to do. With MODULE it shows more about
that module.`, `
klm why runtime-a
klm why runtime-a sample
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
			heard := make(chan *liveness.Heard, 1)
			go func() { heard <- liveness.Read(cmd.Context(), c) }()
			facts, err := diagnosis.Read(cmd.Context(), c, args[0], module)
			if err != nil {
				return err
			}
			facts.Now, facts.Manager = a.Now(), <-heard
			r := facts.Report(module)
			if err := a.Print(r); err != nil {
				return err
			}
			return r.Manager.Err()
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.RuntimeNames(a), connection.ModulesOfRuntime(a))
	return c
}
