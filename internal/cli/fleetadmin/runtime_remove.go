package fleetadmin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/handover"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/removal"
)

func runtimeRemoveCommand(a *console.App) *cobra.Command {
	o := removeOptions{Verb: fleetlist.Verb{Question: "Remove %s?", Asks: true}}
	c := a.Command("remove RUNTIME… | -l SELECTOR [--yes] [--delete-custom-resources | --cluster-is-gone]",
		"remove all modules from runtimes, and remove the runtimes from the control plane", `
klm counts what will be deleted, shows what is in the way, and asks before it starts. It deletes the Kyma, which removes the modules and
everything else that the control plane has installed in the runtime, and then deletes the access Secret. The removal waits until users have
deleted the custom resources that they created; --delete-custom-resources deletes them. To count them, klm reads the access Secret of the
runtime, or uses --runtime-context of the kubeconfig. For a cluster that does not exist any more, --cluster-is-gone deletes the access Secret
first: then no requests are sent to the cluster, and its objects stay.`, `
klm runtime remove runtime-a
klm runtime remove runtime-a --dry-run
klm runtime remove runtime-a runtime-b --yes --timeout=20m
klm runtime remove runtime-a --delete-custom-resources
klm runtime remove runtime-a --cluster-is-gone`,
		o.Args, func(cmd *cobra.Command, args []string) error {
			if o.gone && o.deleteResources {
				return console.Fail(console.ExitUsage,
					"--cluster-is-gone and --delete-custom-resources exclude each other")
			}
			c, err := connection.ControlPlane(cmd.Context(), a)
			if err != nil {
				return err
			}
			o.Plan = o.plan
			return o.Run(cmd.Context(), a, c, args)
		})
	o.Register(a, c)
	c.Flags().BoolVar(&o.gone, "cluster-is-gone", false, "the cluster does not exist any more: remove nothing from it")
	c.Flags().BoolVar(&o.deleteResources, "delete-custom-resources", false,
		"delete the custom resources of users of all modules, too, before the modules are removed")
	c.Flags().StringVar(&o.context, "runtime-context", "",
		"context of the kubeconfig for counting in the runtime; empty: the access Secret in the control plane")
	return c
}

// removeOptions are the flags of klm runtime remove.
type removeOptions struct {
	fleetlist.Verb
	context         string
	gone            bool
	deleteResources bool
}

// plan shows the objects that are removed together with a runtime.
func (o *removeOptions) plan(ctx context.Context, a *console.App, c *connection.Cluster, name string) (
	p fleetlist.Plan, err error) {
	f, err := diagnosis.Read(ctx, c, name, diagnosis.Options{})
	if console.ExitCode(err) == console.ExitNotFound {
		return o.planWithoutKyma(ctx, a, c, name, err)
	}
	if err != nil {
		return p, err
	}
	f.Now = a.Now()
	if o.gone && f.NoSecrets { // --dry-run reports the error, too
		if f.Secrets, err = listAccessSecrets(ctx, c, name); err != nil {
			return p, err
		}
	}
	var found *removal.Found // counted only if the user sees the numbers before the removal
	others := handover.OtherOwnerMessage(f.Kyma)
	if !o.Yes && !o.gone && others == "" && len(f.Manifests) > 0 {
		if found, err = countObjectsToRemove(ctx, a, c, f, name, o.context); err != nil {
			return p, err
		}
	}
	page := a.Page()
	showRemoval(f, page, o, others, found)
	fmt.Fprint(a.Err, page.String())
	p.Would = console.Outcome{Object: "kyma/" + name, Result: "runtime " + name + " would be removed"}
	p.Do = func(ctx context.Context, a *console.App) (console.Outcome, error) { return o.remove(ctx, a, c, f) }
	return p, nil
}

// planWithoutKyma plans the deletion of the access Secrets of a runtime whose Kyma does not exist any more, so that a
// second call of the command finishes the removal of a first call that has not waited until the Kyma was deleted. If
// there are no such Secrets, planWithoutKyma returns the parameter noKyma, which is an error.
func (o *removeOptions) planWithoutKyma(ctx context.Context, a *console.App, c *connection.Cluster, name string,
	noKyma error) (p fleetlist.Plan, err error) {
	secrets, err := listAccessSecrets(ctx, c, name)
	if err != nil || len(secrets) == 0 {
		return p, noKyma
	}
	if !o.gone {
		if err := requireNoTombstone(ctx, c, name); err != nil {
			return p, err
		}
	}
	fmt.Fprintf(a.Err, "%s has no Kyma any more. Its access Secret %s will be deleted.\n", name, secrets[0].Name)
	done := console.Outcome{Object: "kyma/" + name,
		Result: "runtime " + name + " is removed; its access Secret was left, and is deleted now"}
	p.Would = console.Outcome{Object: done.Object, Result: "the access Secret of runtime " + name + " would be deleted"}
	p.Do = func(ctx context.Context, _ *console.App) (console.Outcome, error) {
		err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, &v1beta2.Kyma{})
		switch {
		case err == nil:
			return done, addedAgain(name)
		case !apierrors.IsNotFound(err):
			return done, c.Explain(err, "looking for Kyma "+name)
		}
		return done, deleteAccessSecrets(ctx, c, secrets)
	}
	return p, nil
}

// addedAgain returns the error about a runtime that was removed and added by another client.
func addedAgain(name string) error {
	return console.Fail(console.ExitNotReady, "runtime %s was added again in the meantime", name)
}

// remove removes a runtime.
func (o *removeOptions) remove(ctx context.Context, a *console.App, c *connection.Cluster, f *diagnosis.Facts) (
	done console.Outcome, err error) {
	name := f.Kyma.Name
	done.Object = "kyma/" + name
	if o.gone {
		if err := deleteAccessSecretsBeforeKyma(ctx, c, f); err != nil {
			return done, err
		}
	}
	if o.deleteResources {
		if err := allowCustomResourceDeletion(ctx, c, f.Kyma); err != nil {
			return done, err
		}
	}
	here := client.Preconditions{UID: &f.Kyma.UID}
	if err := c.Delete(ctx, f.Kyma, here); err != nil && !apierrors.IsNotFound(err) {
		return done, c.Explain(err, "deleting Kyma "+name)
	}
	toFinish := ""
	if !o.gone && (len(f.Secrets) > 0 || f.NoSecrets) {
		toFinish = "; when its Kyma is deleted, klm runtime remove " + name + " deletes its access Secret"
	}
	if o.NoWait {
		done.Result = "runtime " + name + " is being removed" + toFinish
		return done, nil
	}
	var blocked error // the runtime was added again, and has an access Secret that it needs
	err = connection.WaitForKyma(ctx, a, c, name, o.Timeout, func(k *v1beta2.Kyma) connection.Progress {
		p := removeProgress(k)
		blocked = p.Blocked
		return p
	})
	if blocked == nil && console.ExitCode(err) == console.ExitNotReady {
		return done, console.Fail(console.ExitNotReady, "%v%s", err, toFinish)
	}
	if err != nil {
		return done, err
	}
	done.Result = "runtime " + name + " is removed"
	switch {
	case o.gone:
		return done, nil
	case f.NoSecrets:
		done.Result += "; klm could not list its access Secret, so the Secret stays: if you may list " +
			"Secrets, klm runtime remove " + name + " deletes it"
		return done, nil
	}
	return done, deleteAccessSecretsUnlessTombstone(ctx, c, name, f.Secrets)
}

// showRemoval writes the objects that will be removed from a runtime, and the reasons that will block the removal. If
// the cluster belongs to somebody else and not to the runtime, the parameter ownerProblem is a text that explains why;
// otherwise it is "". The parameter found is nil if the objects were not counted.
func showRemoval(f *diagnosis.Facts, p *console.Page, o *removeOptions, ownerProblem string, found *removal.Found) {
	k := f.Kyma
	objects := 0
	var modules []string
	for i := range f.Manifests {
		m := &f.Manifests[i]
		objects += len(m.Status.Synced)
		modules = append(modules, m.ModuleName())
	}
	slices.Sort(modules)
	switch {
	case o.gone:
		p.Line("%s will be removed from the control plane; nothing is removed from its cluster.", k.Name)
	case ownerProblem != "":
		p.Wrap("", k.Name+" will be removed from the control plane; nothing is changed in the cluster, because it is not "+
			"the cluster of this runtime: "+ownerProblem)
	case len(modules) == 0:
		p.Line("%s has no modules. The CRDs of %s and its Kyma will be removed from it.", k.Name,
			v1beta2.GroupVersion.Group)
	default:
		p.Wrap("", fmt.Sprintf(
			"%s of %s (%s) will be removed from %s, with the objects that they manage, the CRDs of %s and the Kyma.",
			console.Count(objects, "object"), console.Count(len(modules), "module"), strings.Join(modules, ", "),
			k.Name, v1beta2.GroupVersion.Group))
	}
	if found != nil {
		found.Show(p, o.deleteResources, "delete them, or add --delete-custom-resources")
	}
	for _, b := range removalBlockers(f, o.gone, found != nil) {
		p.Wrap("  ", "in the way: "+b)
	}
}

// countObjectsToRemove counts the objects that the removal deletes from a runtime.
func countObjectsToRemove(ctx context.Context, a *console.App, c *connection.Cluster, f *diagnosis.Facts,
	name, kubeContext string) (*removal.Found, error) {
	r, why := c.RuntimeCluster(ctx, a, name, kubeContext)
	if why != nil {
		return removal.OfRuntime(ctx, nil, why, f.Manifests), nil
	}
	objects, err := r.AnyKind()
	if err != nil {
		return nil, err
	}
	return removal.OfRuntime(ctx, objects, nil, f.Manifests), nil
}

// allowCustomResourceDeletion allows the manager to delete the custom resources that users have created for the modules
// of a runtime.
func allowCustomResourceDeletion(ctx context.Context, c *connection.Cluster, k *v1beta2.Kyma) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, k.UID,
		v1beta2.AnnotationDeleteCustomResources, v1beta2.AllModules)
	return c.Explain(c.Patch(ctx, k, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(connection.FieldOwner)), "annotating Kyma "+k.Name)
}

// removalBlockers returns the actions that a person must take before the removal of a runtime can complete. The
// parameter hasCounted is true if the custom resources of users were counted.
func removalBlockers(f *diagnosis.Facts, isClusterGone, hasCounted bool) []string {
	k := f.Kyma
	var all []string
	if !k.DeletionTimestamp.IsZero() {
		all = append(all, fmt.Sprintf("it is being deleted already: %s",
			console.OrDash(k.Status.LastOperation.Operation)))
	}
	if isClusterGone {
		return all
	}
	for _, b := range f.RuntimeBlockers() {
		switch b.Reason {
		case v1beta2.ReasonRuntimeUnreachable, v1beta2.ReasonRuntimeUnauthorized, v1beta2.ReasonRuntimeForbidden,
			v1beta2.ReasonRuntimeCertificateInvalid, v1beta2.ReasonCredentialExpired, v1beta2.ReasonKubeconfigInvalid,
			v1beta2.ReasonKubeconfigRefused, v1beta2.ReasonAccessSecretAmbiguous:
			all = append(all, fmt.Sprintf("%s: %s", b.Reason, b.Message))
		case v1beta2.ReasonAccessSecretNotFound:
			all = append(all, "there is no access Secret: the objects in the cluster stay")
		}
	}
	for i := range f.Manifests {
		if m := &f.Manifests[i]; !hasCounted && m.Policy() == v1beta2.Ignore {
			all = append(all, fmt.Sprintf(
				"custom resources of module %s, if there are any: the admin of the runtime has to delete them",
				m.ModuleName()))
		}
	}
	for _, finalizer := range k.Finalizers {
		if finalizer != v1beta2.FinalizerKyma {
			all = append(all, "finalizer "+finalizer+" of another controller")
		}
	}
	return all
}

// removeProgress returns the progress of the removal of a runtime.
func removeProgress(k *v1beta2.Kyma) connection.Progress {
	switch {
	case k == nil:
		return connection.Progress{Done: true}
	case k.DeletionTimestamp.IsZero():
		return connection.Progress{Blocked: addedAgain(k.Name)}
	}
	text := []string{console.OrDash(k.Status.LastOperation.Operation)}
	for i := range k.Status.Modules {
		if e := &k.Status.Modules[i]; e.Message != "" && !strings.Contains(text[0], e.Message) {
			text = append(text, e.Name+": "+e.Message)
		}
	}
	return connection.Progress{Text: (&console.Page{}).Clip(strings.Join(text, "; "), 240)}
}

// listAccessSecrets lists the access Secrets of a runtime.
func listAccessSecrets(ctx context.Context, c *connection.Cluster, name string) (
	[]metav1.PartialObjectMetadata, error) {
	secrets, err := c.AccessSecrets(ctx, name)
	if err != nil {
		return nil, c.Explain(err, "looking for access Secrets of "+name)
	}
	return secrets.Items, nil
}

// deleteAccessSecretsBeforeKyma deletes the access Secrets of a runtime whose cluster is gone. As long as the manager
// has an access Secret, it deletes everything from the cluster of a deleted Kyma. Therefore
// deleteAccessSecretsBeforeKyma returns an error if it cannot determine that no access Secret is left. It deletes only
// Secrets that existed when the user was asked, because other Secrets may belong to a runtime that was added again.
func deleteAccessSecretsBeforeKyma(ctx context.Context, c *connection.Cluster, f *diagnosis.Facts) error {
	present, err := listAccessSecrets(ctx, c, f.Kyma.Name)
	if err != nil {
		return err
	}
	for i := range present {
		wasListed := func(s metav1.PartialObjectMetadata) bool { return s.UID == present[i].UID }
		if !slices.ContainsFunc(f.Secrets, wasListed) {
			return console.Fail(console.ExitFailed, "access Secret %s was created in the meantime, so nothing was "+
				"changed: try again", present[i].Name)
		}
	}
	return deleteAccessSecrets(ctx, c, f.Secrets)
}

// deleteAccessSecretsUnlessTombstone deletes the access Secrets of a runtime whose Kyma is deleted, unless the deletion
// of the Kyma was given up.
func deleteAccessSecretsUnlessTombstone(ctx context.Context, c *connection.Cluster, name string,
	secrets []metav1.PartialObjectMetadata) error {
	if len(secrets) == 0 {
		return nil
	}
	if err := requireNoTombstone(ctx, c, name); err != nil {
		return err
	}
	return deleteAccessSecrets(ctx, c, secrets)
}

// requireNoTombstone returns an error if the deletion of a runtime was given up, or if this cannot be determined. A
// tombstone lists the objects that are left in the cluster then. Without the access Secret, the manager would delete
// the tombstone, and never these objects.
func requireNoTombstone(ctx context.Context, c *connection.Cluster, name string) error {
	tombstones := &metav1.PartialObjectMetadataList{}
	tombstones.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	err := c.List(ctx, tombstones, c.InNamespace(), client.MatchingLabels{v1beta2.LabelTombstone: v1beta2.ValueTrue,
		v1beta2.LabelKymaName: name})
	if err != nil {
		err = c.Explain(err, "looking for a tombstone of "+name)
		return console.Fail(console.ExitCode(err), "%v; the access Secret stays, because it is needed if the deletion "+
			"of the runtime was given up", err)
	}
	if len(tombstones.Items) > 0 {
		return console.Fail(console.ExitNotReady, "the deletion of runtime %s was given up, and ConfigMap %s lists "+
			"the objects that are left in its cluster; the access Secret stays, so that the manager can delete these "+
			"objects when the cluster answers again; if the cluster does not exist any more: klm runtime remove %s "+
			"--cluster-is-gone", name, tombstones.Items[0].Name, name)
	}
	return nil
}

// deleteAccessSecrets deletes access Secrets. If a Secret was replaced since klm has read it, deleteAccessSecrets does
// not delete the new Secret, and returns an error.
func deleteAccessSecrets(ctx context.Context, c *connection.Cluster, secrets []metav1.PartialObjectMetadata) error {
	for i := range secrets {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secrets[i].Name, Namespace: secrets[i].Namespace}}
		err := c.Delete(ctx, s, client.Preconditions{UID: &secrets[i].UID})
		if apierrors.IsConflict(err) {
			return console.Fail(console.ExitFailed, "access Secret %s was replaced in the meantime, and is not deleted",
				s.Name)
		}
		if client.IgnoreNotFound(err) != nil {
			return c.Explain(err, "deleting access Secret "+s.Name)
		}
	}
	return nil
}
