package installer

import (
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
	o := uninstalling{}
	c := a.Command("uninstall [--flavour=FLAVOUR] [--yes | --dry-run]", "remove the lifecycle manager itself; Kymas, their definitions and the modules stay", `
It says what goes, and asks. What goes is what klm install has installed, or, if that was an older klm or kubectl, what this version of the chart
has in all its parts. The namespace, definitions, Kymas, Manifests, Secrets and what is installed on the runtimes stay: klm install goes on from
there. To have modules removed from a runtime, do that first: klm runtime remove. A release of Helm is left to Helm.`, `
klm uninstall
klm uninstall --flavour=in-cluster --yes
klm uninstall --dry-run`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error { return uninstall(cmd.Context(), a, o) })
	f := c.Flags()
	f.StringVar(&o.flavour, "flavour", deploy.ControlPlaneFlavour, "control-plane or in-cluster")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&o.dryRun, "dry-run", false, "tell what would go, and change nothing")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long it is waited; then klm ends with exit code 3, and can be called again")
	err := c.RegisterFlagCompletionFunc("flavour", cobra.FixedCompletions([]string{deploy.ControlPlaneFlavour, deploy.InClusterFlavour}, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag was registered above
	}
	return c
}

// uninstalling is what klm uninstall is told.
type uninstalling struct {
	flavour     string
	yes, dryRun bool
	timeout     time.Duration
}

// allParts are values with which the chart makes everything that it can make, but for what stays.
var allParts = []string{
	"crds.install=false", "webhooks.enabled=true", "agents.address=any:1", "metrics.serviceMonitor.enabled=true", "metrics.readers[0].kind=Group",
	"metrics.readers[0].name=any", "monitoring.dashboards.enabled=true", "monitoring.alerts.enabled=true", "podDisruptionBudget.enabled=true", "networkPolicy.enabled=true",
}

func uninstall(ctx context.Context, a *console.App, o uninstalling) error {
	objects, err := installing{flavour: o.flavour, set: allParts}.objects(ctx, a.Config.Namespace)
	if err != nil {
		return err
	}
	c, err := connection.Open(a)
	if err != nil {
		return err
	}
	c.Namespace = findKind(objects, "Deployment").GetNamespace()
	in, err := newInstaller(c, objects)
	if err != nil {
		return err
	}
	refs, err := in.installed(ctx)
	if err != nil {
		return err
	}
	if err := in.permissions(ctx, refs, "delete"); err != nil {
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
	if err := in.dismantle(ctx, refs, func(text string) { fmt.Fprintf(a.Err, "  %s\n", text) }); err != nil {
		return in.late(ctx, err, o.timeout)
	}
	return a.Print(console.Outcome{Object: "deployment/" + deploy.Release, Result: fmt.Sprintf("lifecycle manager (%s) is removed from namespace %s", o.flavour, c.Namespace)})
}

// installed returns what is there and goes. It fails if that is nothing, or belongs to Helm.
func (in *installer) installed(ctx context.Context) ([]apply.Ref, error) {
	if release, err := in.release(ctx); err != nil {
		return nil, err
	} else if release != "" {
		return nil, console.Fail(console.ExitFailed, "the manager in namespace %s was installed by Helm: helm uninstall %s -n %s", in.Namespace, release, in.Namespace)
	}
	refs, there, err := in.recorded(ctx)
	if err != nil {
		return nil, err
	}
	if !there { // kinds that the cluster does not have are left out, and nothing is there of them
		if refs, err = in.to.Inventory(ctx, in.set); err != nil && len(refs) == 0 {
			return nil, in.because(err)
		}
		refs = withoutKept(refs)
	}
	if refs, err = in.removable(ctx, refs); err != nil {
		return nil, err
	}
	if there {
		refs = append(refs, apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: in.Namespace, Name: inventoryName})
	}
	if len(refs) == 0 {
		return nil, console.Fail(console.ExitNotFound, "there is no lifecycle manager in namespace %s: choose another --namespace, --flavour or --context", in.Namespace)
	}
	return refs, nil
}

// showRemoval says what goes, what stays, and who will not be looked after.
func (in *installer) showRemoval(ctx context.Context, p *console.Page, refs []apply.Ref) {
	p.Line("From %s go:", in)
	for _, r := range refs {
		p.Line("  %s", r)
	}
	kymas := &metav1.PartialObjectMetadataList{}
	kymas.SetGroupVersionKind(v1beta2.GroupVersion.WithKind("KymaList"))
	if err := in.List(ctx, kymas, in.InNamespace()); err == nil && len(kymas.Items) > 0 {
		p.Wrap("", fmt.Sprintf("Nobody will look after %s then: their modules stay as they are, and so do their Kymas, Manifests and Secrets here.", console.Count(len(kymas.Items), "runtime")))
	}
}

// dismantle deletes the manager, waits until it has stopped, so that it can hand back what it holds, and deletes the rest.
func (in *installer) dismantle(ctx context.Context, refs []apply.Ref, tell func(string)) error {
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
	if err := in.remove(ctx, managers, tell); err != nil {
		return err
	}
	if err := in.stopped(ctx, tell); err != nil {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(refs), func(r apply.Ref) bool { return isManager(r) || isInventory(r) })
	if err := in.remove(ctx, rest, tell); err != nil {
		return err
	}
	return in.remove(ctx, inventory, tell) // last, so that what was interrupted can be ended
}

// stopped waits until no pod of the manager runs. Who may not list pods does not wait.
func (in *installer) stopped(ctx context.Context, tell func(string)) error {
	told := ""
	for {
		pods := &metav1.PartialObjectMetadataList{}
		pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := in.List(ctx, pods, in.InNamespace(), client.MatchingLabels{nameLabel: deploy.Release})
		switch {
		case apierrors.IsForbidden(err) || err == nil && len(pods.Items) == 0:
			return nil
		case errors.Is(err, context.DeadlineExceeded):
			return late(err, told)
		case err != nil:
			return in.Explain(err, "waiting for the end of the manager")
		}
		if told == "" {
			told = "waiting for the end of " + console.Count(len(pods.Items), "pod")
			tell(told)
		}
		if err := console.Sleep(ctx, 200*time.Millisecond); err != nil {
			return late(err, told)
		}
	}
}
