package installer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
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
	o := installing{}
	c := a.Command("install [--flavour=FLAVOUR] [--image=IMAGE] [--print | --dry-run]", "install or upgrade the lifecycle manager itself", `
What it installs is what deploy/chart makes of the values: definitions, roles, the manager. It checks first that you may do all of it, then
applies, and waits until the manager is ready. Upgrading is the same command with the new klm: what the former version had, or former values
made, and what is not among the objects any more is removed once the new manager is ready. Definitions and namespaces stay in any case. What is
installed is written down in ConfigMap lifecycle-manager-inventory beside the manager; klm uninstall goes by that.

With --dry-run the cluster is asked what would change, and nothing is written to it. With --print klm writes YAML and asks nothing of a
cluster, for kubectl apply or a repository.

Flavours: control-plane serves runtimes that are reached by access Secrets, in-cluster installs modules on the cluster itself. The values are
documented in deploy/chart/values.yaml; one that does not exist is refused.`, `
klm install --image=registry.example.com/kyma/lifecycle-manager:0.1.0 --set=registry.host=registry.example.com
klm install --flavour=in-cluster --image=registry.example.com/kyma/lifecycle-manager:0.1.0 --values=values.yaml
klm install --image=registry.example.com/kyma/lifecycle-manager:0.1.0 --set=replicas=2 --dry-run
klm install --print --set=replicas=2 | kubectl diff -f -`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error { return install(cmd.Context(), a, o) })
	f := c.Flags()
	f.StringVar(&o.flavour, "flavour", deploy.ControlPlaneFlavour, "control-plane or in-cluster")
	f.StringVar(&o.image, "image", "", "image of the manager: REPOSITORY[:TAG][@DIGEST]; that of agents is looked for beside it")
	f.StringVarP(&o.file, "values", "f", "", "file with values for the chart")
	f.StringArrayVar(&o.set, "set", nil, "value for the chart, as in Helm: a.b=1; goes over --values")
	f.BoolVar(&o.print, "print", false, "write the objects as YAML, and install nothing")
	f.BoolVar(&o.dryRun, "dry-run", false, "tell what would change in the cluster, and change nothing")
	o.wait.Register(f)
	err := errors.Join(
		c.RegisterFlagCompletionFunc("flavour", cobra.FixedCompletions([]string{deploy.ControlPlaneFlavour, deploy.InClusterFlavour}, cobra.ShellCompDirectiveNoFileComp)),
		c.MarkFlagFilename("values", "yaml", "yml", "json"),
	)
	if err != nil {
		panic(err) // the flags were registered above
	}
	return c
}

// installing is what klm install is told.
type installing struct {
	flavour, image, file string
	set                  []string
	print, dryRun        bool
	wait                 console.WaitFlags
}

func install(ctx context.Context, a *console.App, o installing) error {
	if o.print && o.dryRun {
		return console.Fail(console.ExitUsage, "--print and --dry-run exclude each other")
	}
	objects, err := o.objects(ctx, a.Config.Namespace)
	if err != nil {
		return err
	}
	if o.print {
		return writeObjects(a, objects)
	}
	manager := findKind(objects, "Deployment")
	if image := imageOf(manager); !strings.Contains(image, "/") {
		return console.Fail(console.ExitUsage, "image %s is in no registry: give --image (make image IMG=… pushes one)", image)
	}
	c, err := connection.Open(a)
	if err != nil {
		return err
	}
	c.Namespace = manager.GetNamespace()
	if err := keepServed(ctx, c, objects); err != nil {
		return err
	}
	in, err := newInstaller(c, objects)
	if err != nil {
		return err
	}
	if err := in.prepare(ctx); err != nil {
		return err
	}
	if o.dryRun {
		return previewInstall(ctx, a, in)
	}
	ctx, cancel := context.WithTimeout(ctx, o.wait.Timeout)
	defer cancel()
	tell := func(text string) { fmt.Fprintf(a.Err, "  %s\n", text) }
	if err := in.apply(ctx, tell); err != nil {
		return in.late(ctx, err, o.wait.Timeout)
	}
	for _, m := range in.missing(ctx, manager) {
		fmt.Fprintf(a.Err, "missing: %s\n", m)
	}
	what := fmt.Sprintf("lifecycle manager (%s) in namespace %s", o.flavour, c.Namespace)
	if o.wait.NoWait {
		what += " is installed; nobody has waited until it is ready"
		if len(in.stale) > 0 {
			what += ", so this stays until klm install has: " + namesOf(in.stale)
		}
		return a.Print(console.Outcome{Object: "deployment/" + manager.GetName(), Result: what})
	}
	if err := in.finish(ctx, tell); err != nil {
		return in.late(ctx, err, o.wait.Timeout)
	}
	return a.Print(console.Outcome{Object: "deployment/" + manager.GetName(), Result: what + " is ready"})
}

// keepServed leaves it to the manager whether early versions are served, as the chart does under Helm: what it has switched on stays on while another
// one starts. Who may not read definitions is told so later, with all that is missing.
func keepServed(ctx context.Context, c *connection.Cluster, objects []*unstructured.Unstructured) error {
	args, _ := container(findKind(objects, "Deployment"))["args"].([]any)
	if !slices.Contains(args, any("--enable-webhooks")) {
		return nil
	}
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(o.GroupVersionKind())
		err := c.Get(ctx, client.ObjectKeyFromObject(o), live)
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		case err != nil:
			return c.Explain(err, "reading definition "+o.GetName())
		default:
			serveAs(o, live)
		}
	}
	return nil
}

// serveAs lets a definition serve the versions that another one serves, too.
func serveAs(o, live *unstructured.Unstructured) {
	served := map[any]bool{}
	versions, _, _ := unstructured.NestedSlice(live.Object, "spec", "versions")
	for _, v := range versions {
		v, _ := v.(map[string]any)
		served[v["name"]] = v["served"] == true
	}
	versions, _, _ = unstructured.NestedSlice(o.Object, "spec", "versions") // a copy
	for _, v := range versions {
		if v, _ := v.(map[string]any); served[v["name"]] {
			v["served"] = true
		}
	}
	_ = unstructured.SetNestedSlice(o.Object, versions, "spec", "versions") // it was there
}

// previewInstall tells what klm install would change.
func previewInstall(ctx context.Context, a *console.App, in *installer) error {
	changes, unchanged, err := trial.PreviewSet(ctx, in.Config, in.set, in.stale)
	if err != nil {
		return in.Explain(err, "asking what would change")
	}
	return a.Print(prospect{changes, unchanged})
}

// prospect is what klm install --dry-run has found.
type prospect struct {
	Changes   []trial.Change `json:"changes"`
	Unchanged int            `json:"unchanged"`
}

func (w prospect) Names() []string {
	var names []string
	for _, c := range w.Changes {
		names = append(names, c.Object)
	}
	return names
}

func (w prospect) Show(p *console.Page) { p.Changes(w.Changes, w.Unchanged) }

// objects renders the chart.
func (o installing) objects(ctx context.Context, namespace string) ([]*unstructured.Unstructured, error) {
	if o.flavour != deploy.ControlPlaneFlavour && o.flavour != deploy.InClusterFlavour {
		return nil, console.Fail(console.ExitUsage, "--flavour: %q is neither %s nor %s", o.flavour, deploy.ControlPlaneFlavour, deploy.InClusterFlavour)
	}
	options := deploy.Options{Flavour: o.flavour, Namespace: namespace, Set: []string{"namespace.create=true"}}
	if o.file != "" {
		var err error
		if options.Values, err = os.ReadFile(o.file); err != nil {
			return nil, console.Fail(console.ExitUsage, "--values: %v", err)
		}
	}
	options.Set = append(append(options.Set, imageValues(o.image)...), o.set...)
	objects, err := deploy.Objects(ctx, options)
	if err != nil {
		return nil, console.Fail(console.ExitUsage, "%v", err)
	}
	return objects, nil
}

// imageValues splits an image into values of the chart.
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

// writeObjects writes YAML documents.
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

func findKind(objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	return objects[slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })]
}

// container returns the one container of a Deployment of the chart.
func container(deployment *unstructured.Unstructured) map[string]any {
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	return containers[0].(map[string]any)
}

func imageOf(deployment *unstructured.Unstructured) string {
	return container(deployment)["image"].(string)
}

// installer brings objects into a cluster.
type installer struct {
	*connection.Cluster
	objects []*unstructured.Unstructured
	to      *apply.Cluster
	set     apply.Set
	refs    []apply.Ref
	done    apply.Progress
	// stale was installed before, is still there, and is not among the objects any more.
	stale []apply.Ref
}

func newInstaller(c *connection.Cluster, objects []*unstructured.Unstructured) (*installer, error) {
	bundle, err := render.Build(objects, render.Options{})
	if err != nil {
		return nil, err
	}
	to, err := apply.New(c.Config, nil, apply.ClusterOptions{})
	if err != nil {
		return nil, console.Fail(console.ExitCluster, "using context %q of the kubeconfig: %v", c.Context, err)
	}
	return &installer{Cluster: c, objects: objects, to: to, set: apply.Set{Bundle: bundle, Namespace: c.Namespace, Owner: connection.FieldOwner}}, nil
}

// prepare finds the kinds of the objects in the cluster and what was installed before, and fails with everything that the user may not do. It
// writes nothing.
func (in *installer) prepare(ctx context.Context) error {
	var err error
	if in.refs, err = in.to.Inventory(ctx, in.set); err != nil {
		if len(in.refs) == 0 {
			return in.because(err)
		}
		return console.Fail(console.ExitCluster, "%s does not have all kinds: %v; switch the value off that asks for it", in, err)
	}
	inventory := apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: in.Namespace, Name: inventoryName}
	if err := in.permissions(ctx, append(slices.Clone(in.refs), inventory), "create", "patch"); err != nil {
		return err
	}
	if release, err := in.release(ctx); err != nil {
		return err
	} else if release != "" {
		return console.Fail(console.ExitFailed, "the manager in namespace %s was installed by Helm: helm upgrade %s -n %s, or helm uninstall first, which leaves Kymas and definitions", in.Namespace, release, in.Namespace)
	}
	old, _, err := in.recorded(ctx)
	if err != nil {
		return err
	}
	if in.stale, err = in.removable(ctx, apply.Removed(old, in.refs)); err != nil {
		return err
	}
	return in.permissions(ctx, in.stale, "delete")
}

// permissions fails with everything that the user may not do with objects.
func (in *installer) permissions(ctx context.Context, refs []apply.Ref, verbs ...string) error {
	var missing []string
	asked := map[authorizationv1.ResourceAttributes]bool{}
	for _, ref := range refs {
		resource, _, err := in.to.Resource(ctx, ref)
		if err != nil {
			return in.because(err)
		}
		for _, verb := range verbs {
			question := authorizationv1.ResourceAttributes{Verb: verb, Group: resource.Group, Resource: resource.Resource, Namespace: ref.Namespace}
			if asked[question] {
				continue
			}
			asked[question] = true
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &question}}
			if err := in.Create(ctx, review); err != nil {
				return in.Explain(err, "asking what you may do")
			}
			if !review.Status.Allowed {
				missing = append(missing, fmt.Sprintf("%s %s", verb, resource.GroupResource()))
			}
		}
	}
	if len(missing) > 0 {
		return console.Fail(console.ExitForbidden, "permissions missing in %s: %s: ask for a role that allows it, or use another context", in, strings.Join(missing, ", "))
	}
	return nil
}

// apply writes down what will be installed, and sends the objects until all are accepted.
func (in *installer) apply(ctx context.Context, tell func(string)) error {
	if err := in.ensureNamespace(ctx); err != nil {
		return err
	}
	if err := in.record(ctx, append(slices.Clone(in.refs), in.stale...)); err != nil {
		return err
	}
	told := ""
	for {
		result, err := in.to.Apply(ctx, in.set, &in.done)
		if err != nil {
			return in.because(err)
		}
		for _, e := range result.Failed {
			if apply.ClassOf(e) == apply.Terminal {
				return in.because(e)
			}
		}
		if result.Done() {
			return nil
		}
		var waits []string
		for _, e := range result.Failed {
			waits = append(waits, e.Error())
		}
		for _, w := range result.Waiting {
			waits = append(waits, w.Message)
		}
		if text := cmp.Or(strings.Join(waits, "; "), told); text != told {
			told = text
			tell((&console.Page{}).Clip(text, 240))
		}
		if err := console.Sleep(ctx, 200*time.Millisecond); err != nil {
			return late(err, told)
		}
	}
}

// finish waits until everything is ready, and takes away what was installed before and is not needed any more.
func (in *installer) finish(ctx context.Context, tell func(string)) error {
	if err := in.ready(ctx, tell); err != nil || len(in.stale) == 0 {
		return err
	}
	if err := in.remove(ctx, in.stale, tell); err != nil {
		return err
	}
	tell("removed, since it is not needed any more: " + namesOf(in.stale))
	return in.record(ctx, in.refs)
}

// ready waits until everything is ready. What will not become so by itself ends it.
func (in *installer) ready(ctx context.Context, tell func(string)) error {
	told := ""
	for {
		notReady, err := in.to.CheckReady(ctx, in.refs, &in.done)
		if err != nil {
			return in.because(err)
		}
		if len(notReady) == 0 {
			return nil
		}
		var texts []string
		for _, n := range notReady {
			texts = append(texts, n.Message)
			if n.Failed {
				return console.Fail(console.ExitNotReady, "%s; kubectl -n %s logs deployment/%s may say more", n.Message, in.Namespace, deploy.Release)
			}
		}
		if text := strings.Join(texts, "; "); text != told {
			told = text
			tell((&console.Page{}).Clip(text, 240))
		}
		if err := console.Sleep(ctx, 500*time.Millisecond); err != nil {
			return late(err, told)
		}
	}
}

// late says what was waited for when the time was over.
func late(err error, told string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return console.Fail(console.ExitNotReady, "it is not done in time: %s", console.OrDash(told))
	}
	return err
}

// late turns the end of the time, wherever it was met, into words.
func (in *installer) late(ctx context.Context, err error, timeout time.Duration) error {
	if _, said := errors.AsType[*console.Problem](err); !said && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return console.Fail(console.ExitNotReady, "it is not done after %s; nothing is undone, try again", timeout)
	}
	return err
}

// because turns an error of package apply into words, with an exit code.
func (in *installer) because(err error) error {
	e, ok := errors.AsType[*apply.Error](err)
	if !ok {
		return in.Explain(err, "installing")
	}
	switch e.Reason() {
	case apply.RuntimeUnreachable:
		return console.Fail(console.ExitCluster, "installing: %s does not answer: %s; check its address and your network", in, e.Message)
	case apply.RuntimeUnauthorized:
		return console.Fail(console.ExitForbidden, "installing: %s does not accept the credentials: log in again, or use another context", in)
	case apply.RuntimeForbidden:
		return console.Fail(console.ExitForbidden, "installing: %v", e)
	}
	return console.Fail(console.ExitFailed, "installing: %v", e)
}

// missing says what the manager will need and does not find.
func (in *installer) missing(ctx context.Context, manager *unstructured.Unstructured) []string {
	var all []string
	args, _ := container(manager)["args"].([]any)
	for _, arg := range args {
		flag, name, _ := strings.Cut(arg.(string), "=")
		var o client.Object
		var remedy string
		switch flag {
		case "--oci-registry-cred-secret":
			o, remedy = &corev1.Secret{}, "kubectl -n "+in.Namespace+" create secret docker-registry "+name+" --docker-server=… --docker-username=… --docker-password=…, or --set=registry.host=HOST"
		case "--maintenance-policy-configmap":
			o, remedy = &corev1.ConfigMap{}, "kubectl -n "+in.Namespace+" create configmap "+name+" --from-file=policy.json"
		default:
			continue
		}
		if err := in.Get(ctx, client.ObjectKey{Namespace: in.Namespace, Name: name}, o); apierrors.IsNotFound(err) {
			all = append(all, fmt.Sprintf("%s %s, which %s names: %s", strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1."), name, flag, remedy))
		}
	}
	return all
}
