package runtimeadmin

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

func deferCommand(a *console.App) *cobra.Command {
	o := deferOptions{}
	c := a.Command("defer MODULE --until=DATE", "defer the next updates of a module, as long as the platform team allows", `
The platform team decides in its RolloutPolicy for how long an update may be deferred (maxDeferral); after that time the module follows in its
next maintenance window. Without such a policy, and for a version that is taken back, a deferral has no effect.`, `
klm module defer sample --until=2026-12-24
klm module defer sample --until=2026-12-24T18:00:00Z
klm module defer --all --until=2026-12-24
klm module defer sample --clear`,
		console.Arguments("[MODULE]"), func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.module = args[0]
			}
			return setOrClearDeferral(cmd.Context(), a, o)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.ModulesOfOwnRuntime(a))
	c.Flags().StringVar(&o.until, "until", "", "date, which begins in UTC, or time in RFC 3339")
	c.Flags().BoolVar(&o.clear, "clear", false, "end the deferral")
	c.Flags().BoolVar(&o.all, "all", false, "defer the updates of all modules that have no deferral of their own")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "only show what would be done, and change nothing")
	return c
}

// deferOptions are the arguments and flags of klm module defer.
type deferOptions struct {
	module, until      string
	clear, all, dryRun bool
}

func setOrClearDeferral(ctx context.Context, a *console.App, o deferOptions) error {
	if o.all == (o.module != "") {
		return console.Fail(console.ExitUsage, "name one module, or give --all")
	}
	if o.clear == (o.until != "") {
		return console.Fail(console.ExitUsage, "give either --until=DATE or --clear")
	}
	at := time.Time{}
	if o.until != "" {
		var err error
		if at, err = channel.ParseDeferral(o.until); err != nil {
			return console.Fail(console.ExitUsage, "--until: %v", err)
		}
		if !at.After(a.Now()) {
			return console.Fail(console.ExitUsage, "--until: %s has passed: give a later time, or --clear", o.until)
		}
	}
	c, err := connection.Runtime(ctx, a)
	if err != nil {
		return err
	}
	key, what := v1beta2.AnnotationNotBefore, "updates of all modules"
	if o.module != "" {
		key, what = v1beta2.AnnotationNotBeforeModulePrefix+o.module, "updates of module "+o.module
	}
	outcome := console.Outcome{Object: "kyma/" + c.OwnKyma, Result: what + " are not deferred any more"}
	if o.until != "" {
		outcome.Result = what + " are deferred until " + at.UTC().Format(time.RFC3339) +
			", or as long as the RolloutPolicy of the control plane allows"
	}
	_, err = editModules(ctx, c, o.dryRun, func(w *edit) error {
		if o.module != "" {
			if _, err := w.existingEntry(o.module); err != nil {
				return err
			}
		}
		is, found := w.kyma.Annotations[key]
		switch {
		case o.clear && !found:
			return console.Fail(console.ExitFailed, "%s are not deferred", what)
		case o.clear:
			w.annotations = map[string]any{key: nil}
		case is != o.until:
			w.annotations = map[string]any{key: o.until}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if o.dryRun {
		outcome.Result = "would do: " + outcome.Result
	}
	return a.Print(outcome)
}
