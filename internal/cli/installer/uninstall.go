package installer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/deploy"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

func uninstallCommand(a *console.App) *cobra.Command {
	o := uninstallOptions{}
	c := a.Command("uninstall [--flavour=FLAVOUR] [--yes | --dry-run]",
		"remove the lifecycle manager itself; Kymas, their CRDs and the modules stay", `
klm shows what it will remove, and asks before it starts. It removes the objects that klm install has installed, or, if an older klm or kubectl has
installed them, all objects that this version of the chart can have. Cluster-wide objects of a manager in another namespace stay.

The namespace, CRDs, Kymas, Manifests, Secrets and the modules in the runtimes stay, so that klm install can continue with them. To remove modules
from a runtime, run klm runtime remove first. A manager that was installed by Helm has to be removed by Helm.`, `
klm uninstall
klm uninstall --flavour=in-cluster --yes
klm uninstall --dry-run`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error { return uninstall(cmd.Context(), a, o) })
	f := c.Flags()
	f.StringVar(&o.flavour, "flavour", "", "control-plane or in-cluster; default that of the installation")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be removed, and change nothing")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute,
		"how long to wait; after that klm ends with exit code 3, and can be called again")
	err := c.RegisterFlagCompletionFunc("flavour",
		cobra.FixedCompletions([]string{deploy.ControlPlaneFlavour, deploy.InClusterFlavour},
			cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag was registered above
	}
	return c
}

// uninstallOptions are the flags of klm uninstall.
type uninstallOptions struct {
	flavour     string
	yes, dryRun bool
	timeout     time.Duration
}

// allParts are chart values that render every object of the chart, except the objects that are never deleted.
var allParts = []string{
	"crds.install=false", "webhooks.enabled=true", "agents.address=any:1", "metrics.serviceMonitor.enabled=true",
	"metrics.readers[0].kind=Group",
	"metrics.readers[0].name=any", "monitoring.dashboards.enabled=true", "monitoring.alerts.enabled=true",
	"approvals.verify=true", "podDisruptionBudget.enabled=true", "networkPolicy.enabled=true", "busola.enabled=true",
	"controlPlaneModules.enabled=true", "dashboard.enabled=true", "dashboard.url=https://any",
	"dashboard.oidc.issuer=https://any", "dashboard.oidc.clientID=any",
}

func uninstall(ctx context.Context, a *console.App, o uninstallOptions) error {
	if err := checkFlavour(cmp.Or(o.flavour, deploy.ControlPlaneFlavour)); err != nil {
		return err
	}
	c, err := connection.Open(a)
	if err != nil {
		return err
	}
	isInstalled, err := findNamespace(ctx, c, a.Config.Namespace, o.flavour)
	if err != nil {
		return err
	}
	before, err := readInventory(ctx, c)
	if err != nil {
		return err
	}
	o.flavour = cmp.Or(o.flavour, flavourIn(c.Namespace, before, isInstalled))
	objects, err := renderChart(ctx, c.Namespace, values{flavourKey: o.flavour}, allParts...)
	if err != nil {
		return err
	}
	in, err := newInstaller(c, objects, nil)
	if err != nil {
		return err
	}
	in.before = before
	refs, err := in.objectsToUninstall(ctx)
	if err != nil {
		return err
	}
	if err := in.requirePermissions(ctx, refs, "delete"); err != nil {
		return err
	}
	p := a.Page()
	in.showRemoval(ctx, p, refs)
	if o.dryRun {
		_, err := fmt.Fprint(a.Out, p.String())
		return err
	}
	fmt.Fprint(a.Err, p.String())
	if !o.yes {
		if err := a.Confirm("Remove the lifecycle manager?"); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if err := in.stopManagerAndRemoveAll(ctx, refs, func(text string) {
		fmt.Fprintf(a.Err, "  %s\n",
			text)
	}); err != nil {
		return in.toTimeoutError(ctx, err, o.timeout)
	}
	return a.Print(console.Outcome{Object: "deployment/" + deploy.Release,
		Result: fmt.Sprintf("lifecycle manager (%s) is removed from namespace %s", o.flavour, c.Namespace)})
}

// objectsToUninstall returns the objects that exist and must be deleted. objectsToUninstall returns an error if there
// are no such objects, or if the manager was installed by Helm. The cluster-wide objects have the same names in every
// installation, so they are deleted only if they belong to the installation in this namespace.
func (in *installer) objectsToUninstall(ctx context.Context) ([]apply.Ref, error) {
	if manager, err := in.liveManager(ctx); err != nil {
		return nil, err
	} else if manager != nil && helmRelease(manager) != "" {
		return nil, console.Fail(console.ExitFailed,
			"the manager in namespace %s was installed by Helm: helm uninstall %s -n %s",
			in.Namespace, helmRelease(manager), in.Namespace)
	}
	owner, err := in.clusterWideOwner(ctx)
	if err != nil {
		return nil, err
	}
	var refs []apply.Ref
	if in.before != nil {
		refs = in.before.refs
	} else { // kinds that the cluster does not serve are omitted, because they have no objects
		if refs, err = in.to.DesiredInventory(ctx, in.set); err != nil && len(refs) == 0 {
			return nil, in.explainApply(err)
		}
		refs = withoutKept(refs)
	}
	if refs, in.refused, err = in.removable(ctx, refs); err != nil {
		return nil, err
	}
	if in.before != nil {
		refs = append(refs, apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: in.Namespace, Name: inventoryName})
	}
	isOurs := owner == in.Namespace || owner == "" && slices.ContainsFunc(refs, func(r apply.Ref) bool {
		return r.Namespace == in.Namespace
	})
	if !isOurs {
		refs = slices.DeleteFunc(refs, func(r apply.Ref) bool { return r.Namespace == "" })
		in.otherOwner = owner
	}
	switch {
	case len(refs) == 0 && in.otherOwner != "":
		return nil, console.Fail(console.ExitNotFound, "there is no lifecycle manager in namespace %s: the manager is "+
			"in namespace %s: to remove that one, give -n %s", in.Namespace, in.otherOwner, in.otherOwner)
	case len(refs) == 0:
		return nil, console.Fail(console.ExitNotFound,
			"there is no lifecycle manager in namespace %s: choose another --namespace, --flavour or --context",
			in.Namespace)
	}
	return refs, nil
}

// showRemoval writes the objects that will be removed, and the number of runtimes that will no longer be managed.
func (in *installer) showRemoval(ctx context.Context, p *console.Page, refs []apply.Ref) {
	p.Line("These objects will be removed from %s:", in)
	for _, r := range refs {
		p.Line("  %s", r)
	}
	if len(in.refused) > 0 {
		p.Wrap("", in.refusedMessage())
	}
	if in.otherOwner != "" {
		p.Line("Cluster-wide objects stay, because they belong to the manager in namespace %s.", in.otherOwner)
	}
	kymas := &metav1.PartialObjectMetadataList{}
	kymas.SetGroupVersionKind(v1beta2.GroupVersion.WithKind("KymaList"))
	if err := in.List(ctx, kymas, in.InNamespace()); err == nil && len(kymas.Items) > 0 {
		p.Wrap("", fmt.Sprintf(
			"Then nothing manages %s any more: the modules there stay, and so do the Kymas, Manifests and "+
				"Secrets here.", console.Count(len(kymas.Items), "runtime")))
	}
}

// stopManagerAndRemoveAll deletes the Deployment of the manager first, and waits until its pods have stopped, so that
// the manager can release its Leases. When the pods have stopped, stopManagerAndRemoveAll deletes all other objects of
// the installation.
func (in *installer) stopManagerAndRemoveAll(ctx context.Context, refs []apply.Ref, report func(string)) error {
	isManager := func(r apply.Ref) bool { return r.Kind == "Deployment" }
	isInventory := func(r apply.Ref) bool { return r.Name == inventoryName }
	var managers, inventory []apply.Ref
	for _, r := range refs {
		if isManager(r) {
			managers = append(managers, r)
		} else if isInventory(r) {
			inventory = append(inventory, r)
		}
	}
	if err := in.remove(ctx, managers, report); err != nil {
		return err
	}
	if err := in.waitStopped(ctx, report); err != nil {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(refs), func(r apply.Ref) bool { return isManager(r) || isInventory(r) })
	if err := in.remove(ctx, rest, report); err != nil {
		return err
	}
	return in.remove(ctx, inventory, report) // last, so that the next call can finish an interrupted call
}

// waitStopped waits until no pod of the manager exists. waitStopped does not wait if the user may not list pods.
func (in *installer) waitStopped(ctx context.Context, report func(string)) error {
	reported := ""
	for {
		pods := &metav1.PartialObjectMetadataList{}
		pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := in.List(ctx, pods, in.InNamespace(), client.MatchingLabels{nameLabel: deploy.Release})
		switch {
		case apierrors.IsForbidden(err) || err == nil && len(pods.Items) == 0:
			return nil
		case errors.Is(err, context.DeadlineExceeded):
			return explainTimeout(err, reported)
		case err != nil:
			return in.Explain(err, "waiting until the manager has stopped")
		}
		if reported == "" {
			reported = "waiting until they have stopped: " + console.Count(len(pods.Items), "pod")
			report(reported)
		}
		if err := console.Sleep(ctx, 200*time.Millisecond); err != nil {
			return explainTimeout(err, reported)
		}
	}
}
