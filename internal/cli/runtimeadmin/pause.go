package runtimeadmin

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

func pauseCommand(a *console.App) *cobra.Command {
	var reason string
	var dryRun, yes bool
	c := a.Command("pause MODULE --reason TEXT", "stop all changes of a module, until it is resumed",
		"Its workloads keep running, and are neither updated nor repaired. Changes of the request wait. A deletion still "+
			"proceeds.", `
klm module pause sample --reason "2.0.0 is being investigated, ask Kim"`,
		console.Arguments("MODULE"), func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return console.Fail(console.ExitUsage, "--reason is required: it is shown to other users")
			}
			return pauseModule(cmd.Context(), a, args[0], reason, dryRun)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.ModulesOfOwnRuntime(a))
	c.Flags().StringVar(&reason, "reason", "", "why it is paused; shown to other users (required)")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be done, and change nothing")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask; a pause never asks, so that it can be made quickly")
	return c
}

func resumeCommand(a *console.App) *cobra.Command {
	var flags console.ChangeFlags
	c := a.Command("resume MODULE", "resume a paused module",
		"klm waits until the control plane has ended the pause. A pause in the control plane is ended there, with klm "+
			"runtime resume.", `
klm module resume sample`,
		console.Arguments("MODULE"), func(cmd *cobra.Command, args []string) error {
			return resumeModuleAndAwaitPauseEnd(cmd.Context(), a, args[0], flags.WaitFlags, flags.DryRun)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.ModulesOfOwnRuntime(a))
	flags.Register(c.Flags())
	return c
}

// pauseModule pauses a module, or changes the reason of its pause.
func pauseModule(ctx context.Context, a *console.App, module, reason string, dryRun bool) error {
	c, err := connection.Runtime(ctx, a)
	if err != nil {
		return err
	}
	_, err = editModules(ctx, c, dryRun, func(w *edit) error {
		w.annotations = map[string]any{v1beta2.AnnotationPausedModulePrefix + module: reason}
		_, err := w.existingEntry(module)
		return err
	})
	if err != nil {
		return err
	}
	done := "module " + module + " is paused"
	if dryRun {
		done = "module " + module + " would be paused"
	}
	return a.Print(console.Outcome{Object: module, Result: done})
}

// resumeModuleAndAwaitPauseEnd ends the pause of a module, and waits until the control plane has changed the status of
// the module. Without this wait, the next klm command could show the status from before.
func resumeModuleAndAwaitPauseEnd(ctx context.Context, a *console.App, module string, wait console.WaitFlags,
	dryRun bool) error {
	const key = v1beta2.AnnotationPausedModulePrefix
	c, err := connection.Runtime(ctx, a)
	if err != nil {
		return err
	}
	isPaused, before := false, v1beta2.ModuleStatus{}
	_, err = editModules(ctx, c, dryRun, func(w *edit) error {
		if e := w.kyma.ModuleStatus(module); e != nil {
			before = *e
		}
		if _, isPaused = w.kyma.Annotations[key+module]; isPaused {
			w.annotations = map[string]any{key + module: nil}
		} else if isPauseCode(before.Reason) {
			return console.Fail(console.ExitNotReady,
				"module %s is not paused in this runtime, but in the control plane, and must be resumed there: %s",
				module, before.Message)
		}
		_, err := w.existingEntry(module)
		return err
	})
	if err != nil {
		return err
	}
	done := "module " + module + " is resumed"
	switch {
	case !isPaused:
		done = "module " + module + " is not paused"
	case dryRun:
		done = "module " + module + " would be resumed"
	case !wait.NoWait:
		err = connection.WaitForKyma(ctx, a, c, c.OwnKyma, wait.Timeout, func(k *v1beta2.Kyma) connection.Progress {
			return pauseEndProgress(k, module, &before)
		})
	}
	if err != nil {
		return err
	}
	return a.Print(console.Outcome{Object: module, Result: done})
}

// pauseEndProgress compares the status of a module with its status before the pause was ended.
func pauseEndProgress(k *v1beta2.Kyma, module string, statusBefore *v1beta2.ModuleStatus) connection.Progress {
	var now *v1beta2.ModuleStatus
	if k != nil {
		now = k.ModuleStatus(module)
	}
	switch {
	case now == nil || !isPauseCode(now.Reason):
		return connection.Progress{Done: true}
	case now.Reason != statusBefore.Reason || now.Message != statusBefore.Message:
		return connection.Progress{Blocked: console.Fail(console.ExitNotReady, "module %s: %s: %s", module, now.Reason,
			now.Message)}
	}
	return connection.Progress{Text: module + ": waiting for the control plane to end the pause"}
}
