package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func (a *app) moduleDisableCommand() *cobra.Command {
	var yes bool
	var wait waiting
	c := a.command("disable MODULE [--yes]", "take a module out of a runtime, and wait until it is gone",
		"It says what goes, and asks. While custom resources of the module are there that are not its own, it waits for somebody to delete them.", `
klm module disable sample
klm module disable sample --yes --timeout=10m`,
		arguments("MODULE"), func(cmd *cobra.Command, args []string) error {
			return a.disable(cmd.Context(), args[0], yes, wait)
		})
	c.ValidArgsFunction = completing(a.enabledModules)
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	wait.register(c.Flags())
	return c
}

func (a *app) disable(ctx context.Context, module string, yes bool, wait waiting) error {
	c, err := a.runtime(ctx)
	if err != nil {
		return err
	}
	k, err := c.kyma(ctx, c.wish)
	if err != nil {
		return err
	}
	if k.Module(module) == nil && k.ModuleStatus(module) == nil {
		return fail(exitNotFound, "module %q is not enabled: %s", module, instead(module, modulesOf(k)))
	}
	if !yes {
		fmt.Fprintf(a.Err, "%s\n", leaving(k, module))
		if err := a.ask("Disable module " + module + "?"); err != nil {
			return err
		}
	}
	k, err = c.edit(ctx, func(w *wish) error {
		w.remove(module)
		return nil
	})
	if err != nil {
		return err
	}
	if wait.no {
		return a.print(moduleDone{moduleRowOf(k, module), fmt.Sprintf("asked for module %s to go", module)})
	}
	generation := k.Generation
	err = a.until(ctx, c, c.wish, wait.timeout, func(now *v1beta2.Kyma) progress { return disableProgress(now, module, generation) })
	if err != nil {
		return err
	}
	return a.print(moduleDone{moduleRow{Name: module}, fmt.Sprintf("module %s is gone", module)})
}

// leaving says what goes with a module.
func leaving(k *v1beta2.Kyma, module string) string {
	m, row := k.Module(module), moduleRowOf(k, module)
	switch {
	case m != nil && !m.IsManaged():
		return fmt.Sprintf("Module %s was handed over: its objects stay, and are not looked after.", module)
	case m.Policy() == v1beta2.Ignore:
		return fmt.Sprintf("Module %s %s goes when all of its custom resources are deleted, which is left to you.", module, row.Version)
	case row.Resource != "":
		return fmt.Sprintf("Module %s %s goes with its custom resource %s and all that it manages.", module, row.Version, row.Resource)
	}
	return fmt.Sprintf("Module %s %s goes with all of its objects.", module, row.Version)
}

// disableProgress tells how far a module is on its way out.
func disableProgress(k *v1beta2.Kyma, module string, generation int64) progress {
	switch {
	case k == nil:
		return progress{done: true}
	case k.Module(module) != nil:
		return progress{blocked: fail(exitNotReady, "somebody has enabled module %s again in the meantime", module)}
	}
	e := k.ModuleStatus(module)
	if seen := k.Status.ObservedGeneration; seen != 0 && seen < generation {
		return progress{text: module + ": waiting for the control plane to look at it"}
	}
	switch {
	case e == nil:
		return progress{done: true}
	case isPause(e.Reason):
		return progress{blocked: fail(exitNotReady, "module %s: %s: %s", module, e.Reason, e.Message)}
	case e.Message != "":
		return progress{text: fmt.Sprintf("%s: %s: %s", module, e.State, e.Message)}
	}
	return progress{text: fmt.Sprintf("%s: %s", module, e.State)}
}
