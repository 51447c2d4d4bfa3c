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
	var dryRun bool
	c := a.Command("pause MODULE --reason TEXT", "stop all changes of a module, until it is resumed",
		"Its workloads keep running, and are neither updated nor repaired. Changes of the request wait. A deletion still "+
			"proceeds.", `
klm module pause sample --reason "2.0.0 is being investigated, ask Kim"`,
		console.Arguments("MODULE"), func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return console.Fail(console.ExitUsage, "--reason is required: it is shown to other users")
			}
			return setModulePause(cmd.Context(), a, args[0], &reason, dryRun)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.EnabledModules(a))
	c.Flags().StringVar(&reason, "reason", "", "why it is paused; shown to other users (required)")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be done, and change nothing")
	return c
}

func resumeCommand(a *console.App) *cobra.Command {
	var dryRun bool
	c := a.Command("resume MODULE", "resume a paused module",
		"A pause in the control plane is ended there, with klm runtime resume.", `
klm module resume sample`,
		console.Arguments("MODULE"), func(cmd *cobra.Command, args []string) error {
			return setModulePause(cmd.Context(), a, args[0], nil, dryRun)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.EnabledModules(a))
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be done, and change nothing")
	return c
}

// setModulePause pauses a module with a reason. If the reason is nil, setModulePause resumes it.
func setModulePause(ctx context.Context, a *console.App, module string, reason *string, dryRun bool) error {
	c, err := connection.Runtime(ctx, a)
	if err != nil {
		return err
	}
	const key = v1beta2.AnnotationPausedModulePrefix
	done := "module " + module + " is "
	if dryRun {
		done = "module " + module + " would be "
	}
	done += map[bool]string{true: "resumed", false: "paused"}[reason == nil]
	_, err = editModules(ctx, c, dryRun, func(w *edit) error {
		if _, err := w.existingEntry(module); err != nil {
			return err
		}
		if _, there := w.kyma.Annotations[key+module]; !there && reason == nil {
			if e := w.kyma.ModuleStatus(module); e != nil && isPauseCode(e.Reason) {
				return console.Fail(console.ExitNotReady,
					"module %s is not paused in this runtime, but in the control plane, and must be resumed there: %s",
					module, e.Message)
			}
			done = "module " + module + " is not paused"
			return nil
		}
		w.annotations = map[string]any{key + module: reason}
		return nil
	})
	if err != nil {
		return err
	}
	return a.Print(console.Outcome{Object: module, Result: done})
}
