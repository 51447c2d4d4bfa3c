package fleetadmin

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
)

func runtimePauseCommand(a *console.App) *cobra.Command {
	var reason, module string
	c := a.Command("pause RUNTIME --reason TEXT [--module MODULE]",
		"stop all changes in a runtime, or of one of its modules, until it is resumed",
		"Workloads keep running, and are neither updated nor repaired. Deletions still proceed.", `
klm runtime pause runtime-a --reason "migration of the database, ask Kim"
klm runtime pause runtime-a --module sample --reason "2.0.0 is being investigated"`,
		console.Arguments("RUNTIME"), func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return console.Fail(console.ExitUsage, "--reason is required: it is shown to other users")
			}
			return setPause(cmd.Context(), a, args[0], module, &reason)
		})
	c.Flags().StringVar(&reason, "reason", "", "why it is paused; shown to other users (required)")
	pauseFlags(a, c, &module)
	return c
}

func runtimeResumeCommand(a *console.App) *cobra.Command {
	var module string
	c := a.Command("resume RUNTIME [--module MODULE]", "resume a paused runtime, or one of its modules", "", `
klm runtime resume runtime-a
klm runtime resume runtime-a --module sample`,
		console.Arguments("RUNTIME"), func(cmd *cobra.Command, args []string) error {
			return setPause(cmd.Context(), a, args[0], module, nil)
		})
	pauseFlags(a, c, &module)
	return c
}

func pauseFlags(a *console.App, c *cobra.Command, module *string) {
	c.Flags().StringVar(module, "module", "", "only this module")
	c.ValidArgsFunction = console.CompleteArguments(connection.RuntimeNames(a))
	console.CompleteFlag(c, "module", connection.ModulesOfRuntime(a))
}

// setPause pauses a runtime or one of its modules with a reason. If the reason is nil, setPause resumes the runtime or
// the module.
func setPause(ctx context.Context, a *console.App, name, module string, reason *string) error {
	c, err := connection.ControlPlane(ctx, a)
	if err != nil {
		return err
	}
	k, err := c.Kyma(ctx, name)
	if err != nil {
		return err
	}
	key, what := v1beta2.AnnotationPaused, name
	if module != "" {
		key, what = v1beta2.AnnotationPausedModulePrefix+module, "module "+module+" of "+name
		f := diagnosis.Facts{Cluster: c, Kyma: k}
		if err := f.RequireModule(ctx, module); err != nil {
			return err
		}
	}
	if _, there := k.Annotations[key]; !there && reason == nil {
		if b := channel.PauseBlocker(k, module); b != nil {
			return console.Fail(console.ExitNotReady, "%s is not paused separately: %s", what, b.Message)
		}
		return a.Print(console.Outcome{Object: what, Result: what + " is not paused"})
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: reason}}})
	if err != nil {
		return fmt.Errorf("encoding the annotation: %w", err)
	}
	if err := c.Patch(ctx, k, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(connection.FieldOwner)); err != nil {
		return c.Explain(err, "annotating Kyma "+name)
	}
	done := what + " is paused"
	if reason == nil {
		if done = what + " is resumed"; channel.PauseBlocker(k, module) != nil {
			done = fmt.Sprintf("%s: %s", what, channel.PauseBlocker(k, module).Message)
		}
	}
	return a.Print(console.Outcome{Object: what, Result: done})
}
