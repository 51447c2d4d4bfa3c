package installer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/deploy"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/trial"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

func installCommand(a *console.App) *cobra.Command {
	o := installOptions{}
	c := a.Command("install [--flavour=FLAVOUR] [--image=IMAGE] [--print | --dry-run]",
		"install or upgrade the lifecycle manager itself", `
klm renders deploy/chart with the values: CRDs, roles, the manager. It checks first that you have all permissions, then applies the objects and
waits until the manager is ready. To upgrade, run it again with the new klm: objects that the former version or former values had
installed and that are not rendered any more are deleted when the new manager is ready. CRDs and namespaces are never deleted.

The values of the installation before are kept: --values, --image and --set replace single values, and --reset-values drops all others.
If a manager is installed, klm shows which values and objects change, and asks. Objects and values are in ConfigMap
lifecycle-manager-inventory beside the manager; klm uninstall reads it. Credentials are refused as values: refer to a Secret.

With --dry-run klm shows what would change in the cluster, and writes nothing. With --print it writes YAML, for kubectl apply or a repository,
and sends no requests to a cluster; it knows only the values of the command line.

Flavours: control-plane manages runtimes by their access Secrets, in-cluster installs modules on the cluster itself. The values are documented
in deploy/chart/values.yaml; unknown values are refused.`, `
klm install --image=registry.example.com/kyma/lifecycle-manager:0.1.0 --set=registry.host=registry.example.com
klm install --flavour=in-cluster --image=registry.example.com/kyma/lifecycle-manager:0.1.0 --values=values.yaml
klm install --set=replicas=2 --dry-run
klm install --image=registry.example.com/kyma/lifecycle-manager:0.2.0 --yes
klm install --reset-values --values=values.yaml
klm install --print --set=replicas=2 | kubectl diff -f -`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error { return install(cmd.Context(), a, o) })
	f := c.Flags()
	f.StringVar(&o.flavour, "flavour", "",
		"control-plane or in-cluster; default that of the installation before, or control-plane")
	f.StringVar(&o.image, "image", "",
		"image of the manager: REPOSITORY[:TAG][@DIGEST]; the image of agents is expected in the same repository path")
	f.StringVarP(&o.file, "values", "f", "", "file with values for the chart")
	f.StringArrayVar(&o.set, "set", nil, "value for the chart, as in Helm: a.b=1; takes precedence over --values")
	f.BoolVar(&o.resetValues, "reset-values", false, "do not keep the values of the installation before")
	f.BoolVar(&o.print, "print", false, "write the objects as YAML, and install nothing")
	o.change.Register(f)
	err := errors.Join(
		c.RegisterFlagCompletionFunc("flavour", cobra.FixedCompletions(
			[]string{deploy.ControlPlaneFlavour, deploy.InClusterFlavour}, cobra.ShellCompDirectiveNoFileComp)),
		c.MarkFlagFilename("values", "yaml", "yml", "json"),
	)
	if err != nil {
		panic(err) // the flags were registered above
	}
	return c
}

// installOptions are the flags of klm install.
type installOptions struct {
	flavour, image, file string
	set                  []string
	resetValues, print   bool
	change               console.ChangeFlags
}

func install(ctx context.Context, a *console.App, o installOptions) error {
	if o.print && o.change.DryRun {
		return console.Fail(console.ExitUsage, "--print and --dry-run exclude each other")
	}
	if err := checkFlavour(cmp.Or(o.flavour, deploy.ControlPlaneFlavour)); err != nil {
		return err
	}
	if o.print {
		v, err := o.values(nil)
		if err != nil {
			return err
		}
		objects, err := renderChart(ctx, a.Config.Namespace, v)
		if err != nil {
			return err
		}
		return writeObjects(a, objects)
	}
	in, err := o.installer(ctx, a)
	if err != nil {
		return err
	}
	if err := in.findStaleAndCheckPermissions(ctx); err != nil {
		return err
	}
	if o.change.DryRun {
		return in.preview(ctx, a)
	}
	if err := in.confirmChanges(ctx, a, o.change.Yes); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.change.Timeout)
	defer cancel()
	report := func(text string) { fmt.Fprintf(a.Err, "  %s\n", text) }
	if err := in.applyUntilAccepted(ctx, report); err != nil {
		return in.toTimeoutError(ctx, err, o.change.Timeout)
	}
	manager := mustFindManager(in.objects)
	for _, m := range in.missingReferences(ctx, manager) {
		fmt.Fprintf(a.Err, "missing: %s\n", m)
	}
	what := fmt.Sprintf("lifecycle manager (%s) in namespace %s", in.values.flavour(), in.Namespace)
	if o.change.NoWait {
		what += " is installed, but may not be ready yet"
		if len(in.stale) > 0 {
			what += "; these objects of the former version stay until klm install waits: " + clippedNames(in.stale)
		}
		return a.Print(console.Outcome{Object: "deployment/" + manager.GetName(), Result: what})
	}
	if err := in.waitReadyAndPrune(ctx, report); err != nil {
		return in.toTimeoutError(ctx, err, o.change.Timeout)
	}
	return a.Print(console.Outcome{Object: "deployment/" + manager.GetName(), Result: what + " is ready"})
}

// installer connects to the cluster, and renders the chart with the values of the options and of the previous
// installation.
func (o installOptions) installer(ctx context.Context, a *console.App) (*installer, error) {
	c, err := connection.Open(a)
	if err != nil {
		return nil, err
	}
	given, err := o.valuesWithoutDefault(nil)
	if err != nil {
		return nil, err
	}
	isInstalled, err := findNamespace(ctx, c, a.Config.Namespace, given.flavour())
	if err != nil {
		return nil, err
	}
	before, err := readInventory(ctx, c)
	if err != nil && console.ExitCode(err) != console.ExitForbidden { // prepare reports all missing permissions
		return nil, err
	}
	o.flavour = cmp.Or(given.flavour(), flavourIn(c.Namespace, before, isInstalled))
	v, err := o.values(before)
	if err != nil {
		return nil, err
	}
	objects, err := renderChart(ctx, c.Namespace, v)
	if err != nil {
		return nil, err
	}
	if image := imageOf(mustFindManager(objects)); !strings.Contains(image, "/") {
		return nil, console.Fail(console.ExitUsage,
			"image %s names no registry: give --image (make image IMG=… pushes one)", image)
	}
	if err := keepCRDVersionsServed(ctx, c, objects); err != nil {
		return nil, err
	}
	in, err := newInstaller(c, objects, v)
	if err != nil {
		return nil, err
	}
	if in.before = before; before != nil {
		in.inventoryVersion = before.version
	}
	return in, nil
}

// keepCRDVersionsServed sets served to true for the CRD versions that the cluster already serves. If Helm installs the
// chart, a template of the chart keeps these versions served. The manager decides whether alpha and beta versions of
// the API are served. An alpha or beta version of the API that is already served must stay served while a new manager
// starts. If the user may not read CRDs, keepCRDVersionsServed returns no error: the check of permissions reports the
// missing permission later.
func keepCRDVersionsServed(ctx context.Context, c *connection.Cluster, objects []*unstructured.Unstructured) error {
	if !hasWebhooks(objects) {
		return nil
	}
	for _, o := range objects {
		if o.GetKind() != kindCRD {
			continue
		}
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(o.GroupVersionKind())
		err := c.Get(ctx, client.ObjectKeyFromObject(o), live)
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		case err != nil:
			return c.Explain(err, "reading CRD "+o.GetName())
		default:
			keepVersionsServed(o, live)
		}
	}
	return nil
}

// hasWebhooks reports whether the manager of the chart serves webhooks, and therefore changes the CRDs.
func hasWebhooks(objects []*unstructured.Unstructured) bool {
	args, _ := container(mustFindManager(objects))["args"].([]any)
	return slices.Contains(args, any("--enable-webhooks"))
}

// keepVersionsServed sets the field served of each version of a CRD to true if the CRD in the cluster serves this
// version.
func keepVersionsServed(crd, live *unstructured.Unstructured) {
	served := map[any]bool{}
	versions, _, _ := unstructured.NestedSlice(live.Object, "spec", "versions")
	for _, v := range versions {
		v, _ := v.(map[string]any)
		served[v["name"]] = v["served"] == true
	}
	versions, _, _ = unstructured.NestedSlice(crd.Object, "spec", "versions") // NestedSlice returns a copy
	for _, v := range versions {
		if v, _ := v.(map[string]any); served[v["name"]] {
			v["served"] = true
		}
	}
	_ = unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions") // the field exists: it was read above
}

// preview prints the changes that klm install would make.
func (in *installer) preview(ctx context.Context, a *console.App) error {
	r := in.valueChangesReport()
	var err error
	if r.Changes, r.Unchanged, err = trial.PreviewSet(ctx, in.Config, in.set, in.stale); err != nil {
		return in.Explain(err, "sending the dry run")
	}
	return a.Print(r)
}

// confirmChanges shows how an existing installation will change, and asks for confirmation. confirmChanges does not ask
// if nothing changes, or if there is no installation.
func (in *installer) confirmChanges(ctx context.Context, a *console.App, yes bool) error {
	if !in.exists {
		return nil
	}
	r, p := in.valueChangesReport(), a.Page()
	r.showValues(p)
	if yes {
		fmt.Fprint(a.Err, p.String())
		return nil
	}
	var err error
	switch r.Changes, r.Unchanged, err = trial.PreviewSet(ctx, in.Config, in.set, in.stale); {
	case err != nil: // such as a webhook that refuses dry runs
		p.Wrap("", fmt.Sprintf("The changes of objects cannot be shown: %v", in.Explain(err, "sending the dry run")))
	case len(r.Changes) == 0 && !slices.ContainsFunc(r.Values,
		func(c valueChange) bool { return c.Action != valueKept }):
		return nil
	default:
		p.Changes(r.Changes, r.Unchanged)
	}
	fmt.Fprint(a.Err, p.String())
	return a.Confirm(fmt.Sprintf("Change the lifecycle manager in namespace %s of %s?", in.Namespace, in))
}

// valueChangesReport returns a report about the changes that the installation will make to the values of the chart.
func (in *installer) valueChangesReport() previewReport {
	r := previewReport{}
	if in.before != nil {
		r.Values = compareValues(in.before.values, in.values)
	} else {
		r.Values = compareValues(nil, in.values)
	}
	if in.exists && (in.before == nil || in.before.values == nil) {
		r.Note = fmt.Sprintf("The values of the installation in namespace %s are not recorded, because an older klm, "+
			"kubectl or kustomize has made it: only the values of this command are used.", in.Namespace)
	}
	return r
}

// previewReport is the report of klm install --dry-run.
type previewReport struct {
	Values []valueChange `json:"values"`
	// Note states why the values of the former installation are unknown.
	Note      string         `json:"note,omitempty"`
	Changes   []trial.Change `json:"changes"`
	Unchanged int            `json:"unchanged"`
}

func (w previewReport) Names() []string {
	var names []string
	for _, c := range w.Changes {
		names = append(names, c.Object)
	}
	return names
}

func (w previewReport) Show(p *console.Page) {
	w.showValues(p)
	p.Changes(w.Changes, w.Unchanged)
}

// showValues writes one line for each value.
func (w previewReport) showValues(p *console.Page) {
	if w.Note != "" {
		p.Wrap("", w.Note)
	}
	for _, c := range w.Values {
		const limit = 60
		before, after := p.Clip(console.OrDash(c.Before), limit), p.Clip(console.OrDash(c.After), limit)
		switch c.Action {
		case valueKept:
			p.Line("%-7s  value %s: %s", c.Action, c.Path, after)
		case valueAdded:
			p.Line("%-7s  value %s: the default → %s", c.Action, c.Path, after)
		case valueDropped:
			p.Line("%-7s  value %s: %s → the default", c.Action, c.Path, before)
		default:
			p.Line("%-7s  value %s: %s → %s", c.Action, c.Path, before, after)
		}
	}
}

// checkFlavour returns an error if a flavour does not exist.
func checkFlavour(flavour string) error {
	if flavour != deploy.ControlPlaneFlavour && flavour != deploy.InClusterFlavour {
		return console.Fail(console.ExitUsage, "--flavour: %q is neither %s nor %s", flavour,
			deploy.ControlPlaneFlavour, deploy.InClusterFlavour)
	}
	return nil
}

// renderChart renders the chart with values. The expressions in the parameter set have the form of helm install --set,
// and override the other values of the chart. Unlike helm install, klm has no flag that creates the namespace, so the
// objects contain the Namespace, unless the values say otherwise.
func renderChart(ctx context.Context, namespace string, v values, set ...string) (
	[]*unstructured.Unstructured, error) {
	document, err := merge(values{"namespace": map[string]any{"create": true}}, v).encode()
	if err != nil {
		return nil, fmt.Errorf("encoding the values: %w", err)
	}
	objects, err := deploy.Objects(ctx, deploy.Options{Flavour: v.flavour(), Namespace: namespace, Values: document,
		Set: set})
	if err != nil {
		return nil, console.Fail(console.ExitUsage, "%v", err)
	}
	return objects, nil
}

// imageValues returns the chart values that make the manager run with the given image.
func imageValues(image string) []string {
	if image == "" {
		return nil
	}
	rest, digest, _ := strings.Cut(image, "@")
	repository, tag := rest, ""
	if i := strings.LastIndex(rest, ":"); i > strings.LastIndex(rest, "/") {
		repository, tag = rest[:i], rest[i+1:]
	}
	return []string{"image.repository=" + repository, "image.tag=" + tag, "image.digest=" + digest}
}

// writeObjects writes the objects to Out as YAML documents.
func writeObjects(a *console.App, objects []*unstructured.Unstructured) error {
	var stream bytes.Buffer
	for _, o := range objects {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return fmt.Errorf("encoding %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		fmt.Fprintf(&stream, "---\n%s", text)
	}
	if _, err := a.Out.Write(stream.Bytes()); err != nil {
		return fmt.Errorf("writing the objects: %w", err)
	}
	return nil
}

// mustFindManager returns the Deployment of the manager. mustFindManager panics if the objects do not contain this
// Deployment.
func mustFindManager(objects []*unstructured.Unstructured) *unstructured.Unstructured {
	return objects[slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" && o.GetName() == deploy.Release
	})]
}

// container returns the only container of a Deployment of the chart.
func container(deployment *unstructured.Unstructured) map[string]any {
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	return containers[0].(map[string]any)
}

// imageOf returns the image of a Deployment of the chart.
func imageOf(deployment *unstructured.Unstructured) string {
	return container(deployment)["image"].(string)
}

// installer installs objects in a cluster, and removes objects that were installed before.
type installer struct {
	*connection.Cluster
	objects []*unstructured.Unstructured
	to      *apply.Cluster
	set     apply.Set
	refs    []apply.Ref
	done    apply.Progress
	values  values
	// The field before is the inventory of the previous installation, or nil if there is no previous installation.
	before *inventory
	// inventoryVersion is the resource version of the inventory as this process has read or written it last, or "" if
	// there was no inventory.
	inventoryVersion string
	// The field refused lists the objects that were installed before, and that klm may not delete. They stay in the
	// inventory.
	refused []apply.Ref
	// otherOwner is the namespace of the manager to which the cluster-wide objects belong, if klm uninstall removes
	// another one.
	otherOwner string
	// exists is true if a manager is already installed, which the method prepare finds out.
	exists bool
	// The field stale lists the objects that were installed before, still exist, and are not part of this installation.
	stale []apply.Ref
}

// newInstaller returns an installer for objects that were rendered with values. newInstaller sends no request.
func newInstaller(c *connection.Cluster, objects []*unstructured.Unstructured, v values) (*installer, error) {
	bundle, err := render.Build(objects, render.Options{})
	if err != nil {
		return nil, err
	}
	to, err := apply.New(c.Config, nil, apply.ClusterOptions{})
	if err != nil {
		return nil, console.Fail(console.ExitCluster, "using context %q of the kubeconfig: %v", c.Context, err)
	}
	return &installer{Cluster: c, objects: objects, values: v, to: to, set: apply.Set{Bundle: bundle,
		Namespace: c.Namespace, Owner: connection.FieldOwner}}, nil
}

// findStaleAndCheckPermissions finds out which kinds the cluster serves and which objects were installed before. If
// permissions are missing, findStaleAndCheckPermissions returns one error that lists all of them.
// findStaleAndCheckPermissions writes nothing.
func (in *installer) findStaleAndCheckPermissions(ctx context.Context) error {
	var err error
	if in.refs, err = in.to.DesiredInventory(ctx, in.set); err != nil {
		if len(in.refs) == 0 {
			return in.explainApply(err)
		}
		return console.Fail(console.ExitCluster, "%s does not serve all kinds: %v; disable the value that needs it", in,
			err)
	}
	inventory := apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: in.Namespace, Name: inventoryName}
	if err := in.requirePermissions(ctx, append(slices.Clone(in.refs), inventory), "create", "patch"); err != nil {
		return err
	}
	if err := in.requirePermissions(ctx, []apply.Ref{inventory, identityBinding}, "get"); err != nil {
		return err
	}
	manager, err := in.liveManager(ctx)
	if err != nil {
		return err
	}
	in.exists = manager != nil
	if in.exists && helmRelease(manager) != "" {
		release := helmRelease(manager)
		return console.Fail(console.ExitFailed,
			"the manager in namespace %s was installed by Helm: helm upgrade %s -n %s, or helm uninstall first, "+
				"which keeps Kymas and CRDs", in.Namespace, release, in.Namespace)
	}
	switch owner, err := in.clusterWideOwner(ctx); {
	case err != nil:
		return err
	case owner != "" && owner != in.Namespace:
		return console.Fail(console.ExitFailed, "the cluster-wide roles belong to the manager in namespace %s, which "+
			"would lose its rights: give -n %s to change that manager, or remove it first: klm uninstall -n %s",
			owner, owner, owner)
	}
	var old []apply.Ref
	if in.before != nil {
		old = in.before.refs
	}
	if in.stale, in.refused, err = in.removable(ctx, apply.Removed(old, in.refs)); err != nil {
		return err
	}
	return in.requirePermissions(ctx, in.stale, "delete")
}

// requirePermissions returns an error if the user lacks permissions for the objects. The error lists all missing
// permissions.
func (in *installer) requirePermissions(ctx context.Context, refs []apply.Ref, verbs ...string) error {
	var missing []string
	checked := map[authorizationv1.ResourceAttributes]bool{}
	for _, ref := range refs {
		resource, _, err := in.to.Resource(ctx, ref)
		if err != nil {
			return in.explainApply(err)
		}
		for _, verb := range verbs {
			attributes := authorizationv1.ResourceAttributes{Verb: verb, Group: resource.Group,
				Resource: resource.Resource, Namespace: ref.Namespace}
			if checked[attributes] {
				continue
			}
			checked[attributes] = true
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &attributes}}
			if err := in.Create(ctx, review); err != nil {
				return in.Explain(err, "checking your permissions")
			}
			if !review.Status.Allowed {
				missing = append(missing, fmt.Sprintf("%s %s", verb, resource.GroupResource()))
			}
		}
	}
	if len(missing) > 0 {
		return console.Fail(console.ExitForbidden,
			"permissions missing in %s: %s: ask for a role that allows it, or use another context", in,
			strings.Join(missing, ", "))
	}
	return nil
}

// applyUntilAccepted writes the inventory, and applies the objects until the API server has accepted all of them.
func (in *installer) applyUntilAccepted(ctx context.Context, report func(string)) error {
	if err := in.applyNamespace(ctx); err != nil {
		return err
	}
	if err := in.writeInventory(ctx, slices.Concat(in.refs, in.stale, in.refused)); err != nil {
		return err
	}
	reported := ""
	for {
		result, err := in.to.Apply(ctx, in.set, &in.done)
		if err != nil {
			return in.explainApply(err)
		}
		for _, e := range result.Failed {
			if apply.ClassOf(e) == apply.Terminal {
				return in.explainApply(e)
			}
		}
		if result.AllApplied() {
			return nil
		}
		var waits []string
		for _, e := range result.Failed {
			waits = append(waits, e.Error())
		}
		for _, w := range result.Waiting {
			waits = append(waits, w.Message)
		}
		if text := cmp.Or(strings.Join(waits, "; "), reported); text != reported {
			reported = text
			report((&console.Page{}).Clip(text, 240))
		}
		if err := console.Sleep(ctx, 200*time.Millisecond); err != nil {
			return explainTimeout(err, reported)
		}
	}
}

// waitReadyAndPrune waits until all objects are ready, and then deletes the stale objects.
func (in *installer) waitReadyAndPrune(ctx context.Context, report func(string)) error {
	if err := in.waitAllObjectsReady(ctx, report); err != nil {
		return err
	}
	if len(in.refused) > 0 {
		report(in.refusedMessage())
	}
	if err := in.restoreCRDs(ctx, report); err != nil || len(in.stale) == 0 {
		return err
	}
	if err := in.remove(ctx, in.stale, report); err != nil {
		return err
	}
	report("removed, because no longer needed: " + clippedNames(in.stale))
	return in.writeInventory(ctx, slices.Concat(in.refs, in.refused))
}

// restoreCRDs applies the CRDs again that another client has changed since they were applied. Until a former manager
// with webhooks stops, it enables v1alpha1 in the CRDs again, and nobody would serve the conversion afterwards. A
// manager that has webhooks changes the CRDs itself, so restoreCRDs does nothing if webhooks are enabled.
func (in *installer) restoreCRDs(ctx context.Context, report func(string)) error {
	if hasWebhooks(in.objects) {
		return nil
	}
	crds := slices.DeleteFunc(slices.Clone(in.refs), func(r apply.Ref) bool { return r.Kind != kindCRD })
	changed, err := in.to.FindDrift(ctx, in.set, &in.done, crds...)
	switch {
	case err != nil:
		return in.explainApply(err)
	case len(changed) == 0:
		return nil
	}
	return in.applyUntilAccepted(ctx, report)
}

// waitAllObjectsReady waits until all objects are ready. waitAllObjectsReady returns an error early if an object cannot
// become ready without a change by a person.
func (in *installer) waitAllObjectsReady(ctx context.Context, report func(string)) error {
	reported := ""
	for {
		notReady, err := in.to.CheckReady(ctx, in.refs, &in.done)
		if err != nil {
			return in.explainApply(err)
		}
		if len(notReady) == 0 {
			return nil
		}
		var texts []string
		for _, n := range notReady {
			texts = append(texts, n.Message)
			if n.Failed {
				return console.Fail(console.ExitNotReady, "%s; kubectl -n %s logs deployment/%s may say more",
					n.Message, in.Namespace, deploy.Release)
			}
		}
		if text := strings.Join(texts, "; "); text != reported {
			reported = text
			report((&console.Page{}).Clip(text, 240))
		}
		if err := console.Sleep(ctx, 500*time.Millisecond); err != nil {
			return explainTimeout(err, reported)
		}
	}
}

// explainTimeout converts the end of ctx into an error with the last reported reason for the wait.
func explainTimeout(err error, reported string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return console.Fail(console.ExitNotReady, "not done in time: %s", console.OrDash(reported))
	}
	return err
}

// toTimeoutError converts errors after the timeout into one error.
func (in *installer) toTimeoutError(ctx context.Context, err error, timeout time.Duration) error {
	if _, explained := errors.AsType[*console.Problem](err); !explained &&
		errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return console.Fail(console.ExitNotReady, "not done after %s; nothing is undone, try again", timeout)
	}
	return err
}

// explainApply adds an exit code and a remedy to an error of package apply.
func (in *installer) explainApply(err error) error {
	e, ok := errors.AsType[*apply.Error](err)
	if !ok {
		return in.Explain(err, "installing")
	}
	switch e.Reason() {
	case apply.RuntimeUnreachable:
		return console.Fail(console.ExitCluster,
			"installing: %s does not answer: %s; check its address and your network", in, e.Message)
	case apply.RuntimeCertificateInvalid:
		return console.Fail(console.ExitCluster, "installing: %s cannot be trusted: %s; check the certificate "+
			"authority and the server in your kubeconfig", in, e.Message)
	case apply.RuntimeUnauthorized:
		return console.Fail(console.ExitForbidden,
			"installing: %s does not accept the credentials: log in again, or use another context", in)
	case apply.RuntimeForbidden:
		return console.Fail(console.ExitForbidden, "installing: %v", e)
	}
	return console.Fail(console.ExitFailed, "installing: %v", e)
}

// missingReferences returns the Secrets and ConfigMaps that flags of the manager name and that do not exist. For each
// missing object, the result contains a command that creates the object.
func (in *installer) missingReferences(ctx context.Context, manager *unstructured.Unstructured) (messages []string) {
	var all []string
	args, _ := container(manager)["args"].([]any)
	for _, arg := range args {
		flag, name, _ := strings.Cut(arg.(string), "=")
		var o client.Object
		var remedy string
		switch flag {
		case "--oci-registry-cred-secret":
			o, remedy = &corev1.Secret{}, "kubectl -n "+in.Namespace+" create secret docker-registry "+name+
				" --docker-server=… --docker-username=… --docker-password=…, or --set=registry.host=HOST"
		case "--maintenance-policy-configmap":
			o, remedy = &corev1.ConfigMap{}, "kubectl -n "+in.Namespace+" create configmap "+
				name+" --from-file=policy.json"
		default:
			continue
		}
		if err := in.Get(ctx, client.ObjectKey{Namespace: in.Namespace, Name: name}, o); apierrors.IsNotFound(err) {
			all = append(all, fmt.Sprintf("%s %s of flag %s: %s", strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1."),
				name, flag, remedy))
		}
	}
	return all
}
