package cli

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
	"github.com/kyma-fleet/lifecycle-manager/render"
)

func (a *app) installCommand() *cobra.Command {
	o := installing{}
	c := a.command("install [--flavour=FLAVOUR] [--image=IMAGE] [--print]", "install or upgrade the lifecycle manager itself", `
What it installs is what deploy/chart makes of the values: definitions, roles, the manager. It checks first that you may do all of it, then
applies, and waits until the manager is ready. Upgrading is the same command with the new klm. With --print it writes YAML and asks nothing
of a cluster, for kubectl apply or a repository.

Flavours: control-plane serves runtimes that are reached by access Secrets, in-cluster installs modules on the cluster itself. The values are
documented in deploy/chart/values.yaml; one that does not exist is refused. What an older version had and a newer one has not stays.`, `
klm install --image=registry.example.com/kyma/lifecycle-manager:0.1.0 --set=registry.host=registry.example.com
klm install --flavour=in-cluster --image=registry.example.com/kyma/lifecycle-manager:0.1.0 --values=values.yaml
klm install --print --set=replicas=2 | kubectl diff -f -`,
		arguments(), func(cmd *cobra.Command, _ []string) error { return a.install(cmd.Context(), o) })
	f := c.Flags()
	f.StringVar(&o.flavour, "flavour", deploy.ControlPlaneFlavour, "control-plane or in-cluster")
	f.StringVar(&o.image, "image", "", "image of the manager: REPOSITORY[:TAG][@DIGEST]; that of agents is looked for beside it")
	f.StringVarP(&o.file, "values", "f", "", "file with values for the chart")
	f.StringArrayVar(&o.set, "set", nil, "value for the chart, as in Helm: a.b=1; goes over --values")
	f.BoolVar(&o.print, "print", false, "write the objects as YAML, and install nothing")
	o.wait.register(f)
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
	print                bool
	wait                 waiting
}

func (a *app) install(ctx context.Context, o installing) error {
	objects, err := o.objects(ctx, a.config.Namespace)
	if err != nil {
		return err
	}
	if o.print {
		return a.writeObjects(objects)
	}
	manager := findKind(objects, "Deployment")
	if image := imageOf(manager); !strings.Contains(image, "/") {
		return fail(exitUsage, "image %s is in no registry: give --image (make image IMG=… pushes one)", image)
	}
	c, err := a.open()
	if err != nil {
		return err
	}
	c.namespace = manager.GetNamespace()
	in, err := c.installer(objects)
	if err != nil {
		return err
	}
	if err := in.permissions(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.wait.timeout)
	defer cancel()
	tell := func(text string) { fmt.Fprintf(a.Err, "  %s\n", text) }
	if err := in.apply(ctx, tell); err != nil {
		return in.late(ctx, err, o.wait.timeout)
	}
	missing := in.missing(ctx, manager)
	for _, m := range missing {
		fmt.Fprintf(a.Err, "missing: %s\n", m)
	}
	what := fmt.Sprintf("lifecycle manager (%s) in namespace %s", o.flavour, c.namespace)
	if o.wait.no {
		return a.print(sentence{"deployment/" + manager.GetName(), what + " is installed; nobody has waited until it is ready"})
	}
	if err := in.ready(ctx, tell); err != nil {
		return in.late(ctx, err, o.wait.timeout)
	}
	return a.print(sentence{"deployment/" + manager.GetName(), what + " is ready"})
}

// objects renders the chart.
func (o installing) objects(ctx context.Context, namespace string) ([]*unstructured.Unstructured, error) {
	if o.flavour != deploy.ControlPlaneFlavour && o.flavour != deploy.InClusterFlavour {
		return nil, fail(exitUsage, "--flavour: %q is neither %s nor %s", o.flavour, deploy.ControlPlaneFlavour, deploy.InClusterFlavour)
	}
	options := deploy.Options{Flavour: o.flavour, Namespace: namespace, Set: []string{"namespace.create=true"}}
	if o.file != "" {
		var err error
		if options.Values, err = os.ReadFile(o.file); err != nil {
			return nil, fail(exitUsage, "--values: %v", err)
		}
	}
	options.Set = append(append(options.Set, imageValues(o.image)...), o.set...)
	objects, err := deploy.Objects(ctx, options)
	if err != nil {
		return nil, fail(exitUsage, "%v", err)
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
func (a *app) writeObjects(objects []*unstructured.Unstructured) error {
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
	*cluster
	objects []*unstructured.Unstructured
	to      *apply.Cluster
	set     apply.Set
	refs    []apply.Ref
	done    apply.Progress
}

func (c *cluster) installer(objects []*unstructured.Unstructured) (*installer, error) {
	bundle, err := render.Build(objects, render.Options{})
	if err != nil {
		return nil, err
	}
	to, err := apply.New(c.config, nil, apply.ClusterOptions{})
	if err != nil {
		return nil, fail(exitCluster, "using context %q of the kubeconfig: %v", c.context, err)
	}
	return &installer{cluster: c, objects: objects, to: to, set: apply.Set{Bundle: bundle, Namespace: c.namespace, Owner: fieldOwner}}, nil
}

// permissions finds the kinds of the objects in the cluster, and fails with everything that the user may not do.
func (in *installer) permissions(ctx context.Context) error {
	var err error
	if in.refs, err = in.to.Refs(ctx, in.set); err != nil {
		if len(in.refs) == 0 {
			return in.because(err)
		}
		return fail(exitCluster, "%s does not have all kinds: %v; switch the value off that asks for it", in, err)
	}
	var missing []string
	asked := map[authorizationv1.ResourceAttributes]bool{}
	for _, ref := range in.refs {
		resource, _, err := in.to.Resource(ctx, ref)
		if err != nil {
			return in.because(err)
		}
		for _, verb := range []string{"create", "patch"} {
			question := authorizationv1.ResourceAttributes{Verb: verb, Group: resource.Group, Resource: resource.Resource, Namespace: ref.Namespace}
			if asked[question] {
				continue
			}
			asked[question] = true
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &question}}
			if err := in.Create(ctx, review); err != nil {
				return in.explain(err, "asking what you may do")
			}
			if !review.Status.Allowed {
				missing = append(missing, fmt.Sprintf("%s %s", verb, resource.GroupResource()))
			}
		}
	}
	if len(missing) > 0 {
		return fail(exitForbidden, "permissions missing in %s: %s: ask for a role that allows it, or use another context", in, strings.Join(missing, ", "))
	}
	return nil
}

// apply sends the objects until all are accepted.
func (in *installer) apply(ctx context.Context, tell func(string)) error {
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
			tell((&page{}).clip(text, 240))
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return late(err, told)
		}
	}
}

// ready waits until everything is ready. What will not become so by itself ends it.
func (in *installer) ready(ctx context.Context, tell func(string)) error {
	told := ""
	for {
		notReady, err := in.to.Ready(ctx, in.refs, &in.done)
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
				return fail(exitNotReady, "%s; kubectl -n %s logs deployment/%s may say more", n.Message, in.namespace, deploy.Release)
			}
		}
		if text := strings.Join(texts, "; "); text != told {
			told = text
			tell((&page{}).clip(text, 240))
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return late(err, told)
		}
	}
}

// late says what was waited for when the time was over.
func late(err error, told string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fail(exitNotReady, "it is not done in time: %s", or(told))
	}
	return err
}

// late turns the end of the time, wherever it was met, into words.
func (in *installer) late(ctx context.Context, err error, timeout time.Duration) error {
	if _, said := errors.AsType[*problem](err); !said && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fail(exitNotReady, "it is not done after %s; nothing is undone, try again", timeout)
	}
	return err
}

// because turns an error of package apply into words, with an exit code.
func (in *installer) because(err error) error {
	e, ok := errors.AsType[*apply.Error](err)
	if !ok {
		return in.explain(err, "installing")
	}
	switch e.Reason() {
	case apply.RuntimeUnreachable:
		return fail(exitCluster, "installing: %s does not answer: %s; check its address and your network", in, e.Message)
	case apply.RuntimeUnauthorized:
		return fail(exitForbidden, "installing: %s does not accept the credentials: log in again, or use another context", in)
	case apply.RuntimeForbidden:
		return fail(exitForbidden, "installing: %v", e)
	}
	return fail(exitFailed, "installing: %v", e)
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
			o, remedy = &corev1.Secret{}, "kubectl -n "+in.namespace+" create secret docker-registry "+name+" --docker-server=… --docker-username=… --docker-password=…, or --set=registry.host=HOST"
		case "--maintenance-policy-configmap":
			o, remedy = &corev1.ConfigMap{}, "kubectl -n "+in.namespace+" create configmap "+name+" --from-file=policy.json"
		default:
			continue
		}
		if err := in.Get(ctx, client.ObjectKey{Namespace: in.namespace, Name: name}, o); apierrors.IsNotFound(err) {
			all = append(all, fmt.Sprintf("%s %s, which %s names: %s", strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1."), name, flag, remedy))
		}
	}
	return all
}
