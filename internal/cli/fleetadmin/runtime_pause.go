package fleetadmin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

func runtimePauseCommand(a *console.App) *cobra.Command {
	var reason, module string
	v := &fleetlist.Verb{Question: "Pause %s?"}
	c := a.Command("pause RUNTIME… | -l SELECTOR --reason TEXT [--module MODULE]",
		"stop all changes in runtimes, or of one of their modules, until they are resumed",
		"Workloads keep running, and are neither updated nor repaired. Deletions still proceed. Before it pauses several "+
			"runtimes, klm asks. With --wait, klm waits until the manager has recorded the pause in the status.", `
klm runtime pause runtime-a --reason "migration of the database, ask Kim"
klm runtime pause runtime-a --module sample --reason "2.0.0 is being investigated"
klm runtime pause -l kyma-project.io/region=eu-central-1 --reason "outage of the region" --yes`,
		v.Args, func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return console.Fail(console.ExitUsage, "--reason is required: it is shown to other users")
			}
			return pauseOrResume(cmd.Context(), a, v, args, module, &reason)
		})
	c.Flags().StringVar(&reason, "reason", "", "why it is paused; shown to other users (required)")
	registerPauseFlags(a, c, v, &module)
	return c
}

func runtimeResumeCommand(a *console.App) *cobra.Command {
	var module string
	v := &fleetlist.Verb{Question: "Resume %s?"}
	c := a.Command("resume RUNTIME… | -l SELECTOR [--module MODULE]",
		"resume paused runtimes, or one of their modules",
		"Before it resumes several runtimes, klm asks. With --wait, klm waits until the manager has recorded the end of "+
			"the pause in the status.", `
klm runtime resume runtime-a
klm runtime resume runtime-a --module sample
klm runtime resume runtime-a runtime-b --yes`,
		v.Args, func(cmd *cobra.Command, args []string) error {
			return pauseOrResume(cmd.Context(), a, v, args, module, nil)
		})
	registerPauseFlags(a, c, v, &module)
	return c
}

func registerPauseFlags(a *console.App, c *cobra.Command, v *fleetlist.Verb, module *string) {
	v.Register(a, c)
	v.NoWait = true // a manager that does not work must not delay a pause
	c.Flags().Lookup("no-wait").DefValue, c.Flags().Lookup("wait").DefValue = "true", "false"
	c.Flags().StringVar(module, "module", "", "only this module")
	console.CompleteFlag(c, "module", connection.ModulesOfRuntime(a))
}

// pauseOrResume pauses runtimes or one of their modules with a reason. If the parameter "reason" is nil, pauseOrResume
// resumes the runtimes or the module.
func pauseOrResume(ctx context.Context, a *console.App, v *fleetlist.Verb, names []string, module string,
	reason *string) error {
	c, err := connection.ControlPlane(ctx, a)
	if err != nil {
		return err
	}
	v.Plan = func(ctx context.Context, _ *console.App, c *connection.Cluster, name string) (fleetlist.Plan, error) {
		return planPauseOrResume(ctx, c, name, module, reason, v.WaitFlags)
	}
	return v.Run(ctx, a, c, names)
}

// planPauseOrResume checks whether a runtime or one of its modules can be paused, or, if the parameter "reason" is nil,
// whether it can be resumed.
func planPauseOrResume(ctx context.Context, c *connection.Cluster, name, module string, reason *string,
	wait console.WaitFlags) (p fleetlist.Plan, err error) {
	k, err := c.Kyma(ctx, name)
	if err != nil {
		return p, err
	}
	key, what := v1beta2.AnnotationPaused, name
	if module != "" {
		key, what = v1beta2.AnnotationPausedModulePrefix+module, "module "+module+" of "+name
		f := diagnosis.Facts{Cluster: c, Kyma: k}
		if err := f.RequireModuleInRuntime(ctx, module); err != nil {
			return p, err
		}
	}
	if _, there := k.Annotations[key]; !there && reason == nil {
		if b := channel.PauseBlocker(k, module); b != nil {
			return p, console.Fail(console.ExitNotReady, "%s is not paused separately: %s", what, b.Message)
		}
		p.Would = console.Outcome{Object: what, Result: what + " is not paused"}
		return p, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: reason}}})
	if err != nil {
		return p, fmt.Errorf("encoding the annotation: %w", err)
	}
	p.Would = console.Outcome{Object: what, Result: what + " would be paused"}
	if reason == nil {
		p.Would.Result = what + " would be resumed"
	}
	before := k.Status.DeepCopy()
	p.Do = func(ctx context.Context, a *console.App) (console.Outcome, error) {
		if err := c.Patch(ctx, k, client.RawPatch(types.MergePatchType, patch),
			client.FieldOwner(connection.FieldOwner)); err != nil {
			return console.Outcome{}, c.Explain(err, "annotating Kyma "+name)
		}
		done := what + " is paused"
		if reason == nil {
			if done = what + " is resumed"; channel.PauseBlocker(k, module) != nil {
				done = fmt.Sprintf("%s: %s", what, channel.PauseBlocker(k, module).Message)
			}
		}
		if !wait.NoWait {
			if err := connection.WaitForKyma(ctx, a, c, name, wait.Timeout, func(k *v1beta2.Kyma) connection.Progress {
				return pauseProgress(k, module, before, reason != nil)
			}); err != nil {
				return console.Outcome{}, err
			}
		}
		return console.Outcome{Object: what, Result: done}, nil
	}
	return p, nil
}

// pauseProgress reports whether the status of a Kyma shows that the manager has recorded a pause or its end. The
// parameter "before" is the status before the command. If the parameter "module" is "", pauseProgress looks at all
// modules. The manager has recorded the pause if at least one module shows the pause: other modules may show an error
// instead. A runtime without modules shows no pause, so klm does not wait for one.
func pauseProgress(k *v1beta2.Kyma, module string, before *v1beta2.KymaStatus, isPaused bool) connection.Progress {
	if k == nil {
		return connection.Progress{Done: true}
	}
	modules, shows, showsFormer := 0, false, false
	for i := range k.Status.Modules {
		m := &k.Status.Modules[i]
		if module != "" && m.Name != module || m.State == v1beta2.StateDeleting {
			continue
		}
		modules++
		if m.Reason != v1beta2.ReasonKymaPaused && m.Reason != v1beta2.ReasonModulePaused {
			continue
		}
		shows = true
		showsFormer = showsFormer || slices.ContainsFunc(before.Modules, func(was v1beta2.ModuleStatus) bool {
			return was.Name == m.Name && was.Reason == m.Reason && was.Message == m.Message
		})
	}
	if isPaused {
		return connection.Progress{Done: shows || modules == 0, Text: "waiting for the manager to record the pause"}
	}
	return connection.Progress{Done: !showsFormer, Text: "waiting for the manager to end the pause"}
}
