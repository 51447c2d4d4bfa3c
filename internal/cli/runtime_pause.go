package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
)

func (a *app) runtimePauseCommand() *cobra.Command {
	var reason, module string
	c := a.command("pause RUNTIME --reason TEXT [--module MODULE]", "let nothing change in a runtime, or one of its modules, until it is resumed",
		"What runs goes on running, and is neither updated nor repaired. Its deletion still proceeds.", `
klm runtime pause runtime-a --reason "migration of the database, ask Kim"
klm runtime pause runtime-a --module sample --reason "2.0.0 is being looked into"`,
		arguments("RUNTIME"), func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return fail(exitUsage, "--reason is missing: it is what others will read who wonder")
			}
			return a.setPause(cmd.Context(), args[0], module, &reason)
		})
	c.Flags().StringVar(&reason, "reason", "", "why, for people")
	a.pauseFlags(c, &module)
	return c
}

func (a *app) runtimeResumeCommand() *cobra.Command {
	var module string
	c := a.command("resume RUNTIME [--module MODULE]", "let a runtime, or one of its modules, go on that was paused", "", `
klm runtime resume runtime-a
klm runtime resume runtime-a --module sample`,
		arguments("RUNTIME"), func(cmd *cobra.Command, args []string) error {
			return a.setPause(cmd.Context(), args[0], module, nil)
		})
	a.pauseFlags(c, &module)
	return c
}

func (a *app) pauseFlags(c *cobra.Command, module *string) {
	c.Flags().StringVar(module, "module", "", "only this module")
	c.ValidArgsFunction = completing(a.runtimeNames)
	completeFlag(c, "module", func(ctx context.Context, args []string) []string {
		if len(args) == 0 {
			return nil
		}
		return a.modulesOfRuntime(ctx, args)
	})
}

// setPause pauses for a reason, or resumes with nil.
func (a *app) setPause(ctx context.Context, name, module string, reason *string) error {
	c, err := a.controlPlane(ctx)
	if err != nil {
		return err
	}
	k, err := c.kyma(ctx, name)
	if err != nil {
		return err
	}
	key, what := v1beta2.AnnotationPaused, name
	if module != "" {
		key, what = v1beta2.AnnotationPausedModule+module, "module "+module+" of "+name
		f := facts{cluster: c, kyma: k}
		if err := f.require(ctx, module); err != nil {
			return err
		}
	}
	if _, there := k.Annotations[key]; !there && reason == nil {
		if b := channel.Paused(k, module); b != nil {
			return fail(exitNotReady, "%s is not paused by itself: %s", what, b.Message)
		}
		return a.print(sentence{what, what + " is not paused"})
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: reason}}})
	if err != nil {
		return fmt.Errorf("encoding the annotation: %w", err)
	}
	if err := c.Patch(ctx, k, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner)); err != nil {
		return c.explain(err, "annotating Kyma "+name)
	}
	done := what + " is paused"
	if reason == nil {
		if done = what + " goes on"; channel.Paused(k, module) != nil {
			done = fmt.Sprintf("%s: %s", what, channel.Paused(k, module).Message)
		}
	}
	return a.print(sentence{what, done})
}

// sentence is the report of a verb that has nothing to show but that it is done.
type sentence struct {
	Object string `json:"object"`
	Result string `json:"result"`
}

func (s sentence) names() []string { return []string{s.Object} }

func (s sentence) show(p *page) { p.line("%s", s.Result) }
