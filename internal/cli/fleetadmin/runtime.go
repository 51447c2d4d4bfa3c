package fleetadmin

import (
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/handover"
)

func runtimeCommand(a *console.App) *cobra.Command {
	return a.Group("runtime", "the runtimes of a fleet: add, list, show, remove, take, pause, resume", "", `
klm runtime add runtime-a --kubeconfig-file=runtime-a.yaml
klm runtime list`,
		runtimeListCommand(a), runtimeShowCommand(a), runtimeAddCommand(a), runtimeRemoveCommand(a),
		handover.TakeCommand(a),
		runtimePauseCommand(a), runtimeResumeCommand(a))
}
