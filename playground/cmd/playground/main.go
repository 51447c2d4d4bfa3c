// Command playground runs Kubernetes on this machine for trying out and testing Lifecycle Manager: real API servers in
// one process, with no container engine and nothing to install. The verbs clusters and up run until Ctrl-C or SIGTERM,
// and then take away what they made; the others treat a cluster of a playground that runs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	debug.SetGCPercent(50)       // a fifth less memory for a little more work
	root := &cobra.Command{
		Use:           "playground",
		Short:         "Kubernetes clusters on this machine, in one process",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(clustersCommand(), upCommand())
	root.AddCommand(controlCommands()...)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}
