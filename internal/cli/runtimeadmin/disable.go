package runtimeadmin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/removal"
)

func disableCommand(a *console.App) *cobra.Command {
	var deleteResources bool
	var f console.ChangeFlags
	c := a.Command("disable MODULE [--yes]", "remove a module from a runtime, and wait until it is removed",
		"klm counts what will be deleted, and asks before it starts. The removal waits until users have deleted the "+
			"custom resources that they created. --delete-custom-resources deletes them.", `
klm module disable sample
klm module disable sample --yes --timeout=10m
klm module disable sample --delete-custom-resources`,
		console.Arguments("MODULE"), func(cmd *cobra.Command, args []string) error {
			return disableModule(cmd.Context(), a, args[0], deleteResources, f)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.ModulesOfOwnRuntime(a))
	c.Flags().BoolVar(&deleteResources, "delete-custom-resources", false,
		"delete the custom resources of users, too, before the module is removed")
	f.Register(c.Flags())
	return c
}

func disableModule(ctx context.Context, a *console.App, module string, deleteResources bool,
	flags console.ChangeFlags) error {
	c, err := connection.Runtime(ctx, a)
	if err != nil {
		return err
	}
	k, err := c.Kyma(ctx, c.OwnKyma)
	if err != nil {
		return err
	}
	if k.Module(module) == nil && k.ModuleStatus(module) == nil {
		return console.Fail(console.ExitNotFound, "module %q is not enabled: %s", module,
			console.SuggestionText(module, connection.ModuleNames(k)))
	}
	if !flags.Yes || flags.DryRun {
		if err := showRemoval(ctx, a, c, k, module, deleteResources); err != nil {
			return err
		}
	}
	if flags.DryRun {
		return a.Print(moduleDone{diagnosis.ModuleRowOf(k, module), "module " + module + " would be removed"})
	}
	if !flags.Yes {
		if err := a.Confirm("Disable module " + module + "?"); err != nil {
			return err
		}
	}
	k, err = editModules(ctx, c, false, func(w *edit) error {
		w.remove(module)
		// Without the flag, a permission of an earlier removal must not apply to this one.
		w.setListed(v1beta2.AnnotationDeleteCustomResources, module, deleteResources)
		return nil
	})
	if err != nil {
		return err
	}
	p := permission{v1beta2.AnnotationDeleteCustomResources, module, deleteResources,
		"it is removed (klm module enable does that, too)"}
	if flags.NoWait {
		return a.Print(moduleDone{diagnosis.ModuleRowOf(k, module),
			fmt.Sprintf("the removal of module %s is requested", module) + p.hint()})
	}
	generation := k.Generation
	err = connection.WaitForKyma(ctx, a, c, c.OwnKyma, flags.Timeout,
		func(now *v1beta2.Kyma) connection.Progress { return disableProgress(now, module, generation) })
	if err := p.end(ctx, c, err); err != nil {
		return err
	}
	return a.Print(moduleDone{diagnosis.ModuleRow{Name: module}, fmt.Sprintf("module %s is removed", module)})
}

// showRemoval prints the objects that the removal of a module deletes, and the objects for which the removal waits.
func showRemoval(ctx context.Context, a *console.App, c *connection.Cluster, k *v1beta2.Kyma, module string,
	deleteResources bool) error {
	p := a.Page()
	p.Line("%s", describeRemoval(k, module))
	if m := k.Module(module); m.IsManaged() {
		found, err := countRemoval(ctx, c, k, module)
		if err != nil {
			return err
		}
		after := k.DeepCopy()
		setListedModule(after, v1beta2.AnnotationDeleteCustomResources, module, deleteResources)
		found.Show(p, after.AnnotationAllowsDeletingCRs(module), "delete them, or add --delete-custom-resources")
	}
	fmt.Fprint(a.Err, p.String())
	return nil
}

// countRemoval counts the objects that the removal of a module deletes. If the cluster is its own control plane, the
// Manifest with the inventory is in the same cluster.
func countRemoval(ctx context.Context, c *connection.Cluster, k *v1beta2.Kyma, module string) (*removal.Found, error) {
	objects, err := c.AnyKind()
	if err != nil {
		return nil, err
	}
	if c.IsControlPlane() {
		var list v1beta2.ManifestList
		if err := c.List(ctx, &list, c.InNamespace(),
			client.MatchingLabels{v1beta2.LabelKymaName: k.Name}); err != nil {
			return nil, c.Explain(err, "reading the Manifests of "+k.Name)
		}
		f := diagnosis.Facts{Manifests: list.Items}
		if m := f.Manifest(module); m != nil {
			return removal.OfManifest(ctx, objects, m, list.Items), nil
		}
	}
	return removal.OfModule(ctx, objects, k, module), nil
}

// describeRemoval returns a text about the objects that will be removed together with a module.
func describeRemoval(k *v1beta2.Kyma, module string) string {
	m, row := k.Module(module), diagnosis.ModuleRowOf(k, module)
	switch {
	case m != nil && !m.IsManaged():
		return fmt.Sprintf("Module %s is unmanaged: its objects stay, and nothing manages them.", module)
	case m.Policy() == v1beta2.Ignore:
		return fmt.Sprintf("Module %s %s will be removed when you have deleted all of its custom resources.", module,
			row.Version)
	case row.Resource != "":
		return fmt.Sprintf("Module %s %s will be removed with its custom resource %s and everything that this manages.",
			module, row.Version, row.Resource)
	}
	return fmt.Sprintf("Module %s %s will be removed with all of its objects.", module, row.Version)
}

// disableProgress reports how far the removal of a module is after klm module disable.
func disableProgress(k *v1beta2.Kyma, module string, generation int64) connection.Progress {
	switch {
	case k == nil:
		return connection.Progress{Done: true}
	case k.Module(module) != nil:
		return connection.Progress{Blocked: console.Fail(console.ExitNotReady,
			"module %s was enabled again in the meantime", module)}
	}
	e := k.ModuleStatus(module)
	if seen := k.Status.ObservedGeneration; seen != 0 && seen < generation {
		return connection.Progress{Text: module + ": waiting for the control plane to reconcile it"}
	}
	switch {
	case e == nil:
		return connection.Progress{Done: true}
	case isPauseCode(e.Reason):
		return connection.Progress{Blocked: console.Fail(console.ExitNotReady, "module %s: %s: %s",
			module, e.Reason, e.Message)}
	case e.Message != "":
		return connection.Progress{Text: fmt.Sprintf("%s: %s: %s", module, e.State, e.Message)}
	}
	return connection.Progress{Text: fmt.Sprintf("%s: %s", module, e.State)}
}
