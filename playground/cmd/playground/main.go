// Command playground runs Kubernetes on this machine to try out and test Lifecycle Manager. The program runs real API
// servers in one process, and needs no container engine and no installation. The verbs clusters and up run until Ctrl-C
// or SIGTERM, and then remove everything that they have created. All other verbs act on a cluster of a playground that
// runs already.
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
	root.AddCommand(clustersCommand(), upCommand(), chaosCommand())
	root.AddCommand(controlCommands()...)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}
