package cli

import "github.com/spf13/cobra"

func (a *app) runtimeCommand() *cobra.Command {
	return a.group("runtime", "the runtimes of a fleet: add, list, show, remove, pause, resume", "", `
klm runtime add runtime-a --kubeconfig-file=runtime-a.yaml
klm runtime list`,
		a.runtimeListCommand(), a.runtimeShowCommand(), a.runtimeAddCommand(), a.runtimeRemoveCommand(), a.runtimePauseCommand(), a.runtimeResumeCommand())
}
