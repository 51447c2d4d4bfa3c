package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

func (a *app) runtimeAddCommand() *cobra.Command {
	o := adding{}
	c := a.command("add RUNTIME --kubeconfig-file FILE [--channel CHANNEL] [--label KEY=VALUE]…", "make a cluster a runtime of this control plane", `
The kubeconfig in FILE (- is standard input) is what the control plane will use: it needs token or certificates in it, a server that can be
reached from there, and the rights to install modules, which is usually all rights. That is checked; then a Secret and a Kyma are made, and
it is waited until the control plane has reached the runtime.`, `
klm runtime add runtime-a --kubeconfig-file=runtime-a.yaml
klm runtime add runtime-a --kubeconfig-file=runtime-a.yaml --channel fast --label kyma-project.io/region=eu-central-1
kubectl config view --flatten --minify --context runtime-a | klm runtime add runtime-a --kubeconfig-file=-`,
		arguments("RUNTIME"), func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			return a.add(cmd.Context(), o)
		})
	c.Flags().StringVar(&o.file, "kubeconfig-file", "", "kubeconfig of the runtime; - is standard input")
	c.Flags().StringVar(&o.channel, "channel", v1beta2.DefaultChannel, "release channel of its modules")
	c.Flags().StringArrayVar(&o.labels, "label", nil, "label of its Kyma, KEY=VALUE; may be given more than once")
	o.wait.register(c.Flags())
	if err := c.MarkFlagFilename("kubeconfig-file"); err != nil {
		panic(err) // it was registered above
	}
	completeFlag(c, "channel", func(ctx context.Context, _ []string) []string {
		s, all := a.anyStock(ctx), []string{}
		if s != nil {
			for _, m := range s.modules() {
				all = append(all, s.channels(m)...)
			}
		}
		return all
	})
	return c
}

// adding is what klm runtime add is told.
type adding struct {
	name, file, channel string
	labels              []string
	wait                waiting
}

var channelName = regexp.MustCompile(`^[a-z]{3,32}$`)

// parse checks what can be checked without a cluster, and returns the labels.
func (o *adding) parse() (map[string]string, error) {
	switch problems := validation.IsDNS1123Subdomain(o.name); {
	case len(problems) > 0:
		return nil, fail(exitUsage, "RUNTIME: %q is no name: lower-case letters, digits, - and ., as for every object", o.name)
	case len(o.name) > validation.LabelValueMaxLength:
		return nil, fail(exitUsage, "RUNTIME: the name is longer than %d characters, and it becomes the value of a label", validation.LabelValueMaxLength)
	case o.file == "":
		return nil, fail(exitUsage, "--kubeconfig-file is missing: it says how the control plane reaches the runtime")
	case !channelName.MatchString(o.channel) || o.channel == v1beta2.NoChannel:
		return nil, fail(exitUsage, "--channel: %q is no channel: 3 to 32 lower-case letters, and not %q", o.channel, v1beta2.NoChannel)
	}
	labels := map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager}
	for _, l := range o.labels {
		key, value, found := strings.Cut(l, "=")
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		if !found || len(problems) > 0 {
			return nil, fail(exitUsage, "--label: %q is no KEY=VALUE as labels are: at most 63 letters, digits, -, _ and ., after a prefix if you like", l)
		}
		labels[key] = value
	}
	return labels, nil
}

func (a *app) add(ctx context.Context, o adding) error {
	labels, err := o.parse()
	if err != nil {
		return err
	}
	kubeconfig, err := a.readInput("--kubeconfig-file", o.file)
	if err != nil {
		return err
	}
	c, err := a.controlPlane(ctx)
	if err != nil {
		return err
	}
	secrets, err := c.secretsOf(ctx, o.name)
	if err != nil {
		return c.explain(err, "looking for access Secrets of "+o.name)
	}
	k := &v1beta2.Kyma{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: o.name}, k); {
	case err == nil && len(secrets.Items) > 0:
		return fail(exitFailed, "there is a runtime %s already, with access Secret %s: remove it, choose another name, or write a new kubeconfig into the Secret", o.name, secrets.Items[0].Name)
	case err != nil && !apierrors.IsNotFound(err):
		return c.explain(err, "looking for Kyma "+o.name)
	}
	if err := a.examine(ctx, c, o.file, kubeconfig); err != nil {
		return err
	}
	if err := c.saveAccess(ctx, o.name, kubeconfig); err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "  the kubeconfig is in Secret %s\n", accessSecret(o.name))
	k = &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: o.name, Namespace: c.namespace, Labels: labels}, Spec: v1beta2.KymaSpec{Channel: o.channel}}
	if err := c.Create(ctx, k, client.FieldOwner(fieldOwner)); err != nil && !apierrors.IsAlreadyExists(err) {
		return c.explain(err, "creating Kyma "+o.name)
	}
	if o.wait.no {
		return a.print(sentence{"kyma/" + o.name, "runtime " + o.name + " is added; klm why " + o.name + " says how far it is"})
	}
	if err := a.until(ctx, c, o.name, o.wait.timeout, addProgress); err != nil {
		return err
	}
	return a.print(sentence{"kyma/" + o.name, "runtime " + o.name + " is added and reached"})
}

// accessSecret is the name of the access Secret that klm makes for a runtime. Others may have other names: the label counts.
func accessSecret(name string) string { return name + "-access" }

// saveAccess writes the access Secret of a runtime. One that an earlier try has left is overwritten.
func (c *cluster) saveAccess(ctx context.Context, name string, kubeconfig []byte) error {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: accessSecret(name), Namespace: c.namespace,
			Labels: map[string]string{v1beta2.LabelKymaName: name, v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager},
		},
		Data: map[string][]byte{v1beta2.AccessSecretKey: kubeconfig},
	}
	err := c.Create(ctx, s, client.FieldOwner(fieldOwner))
	if !apierrors.IsAlreadyExists(err) {
		return c.explain(err, "creating Secret "+s.Name)
	}
	old := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(s), old); err != nil {
		return c.explain(err, "reading Secret "+s.Name)
	}
	if old.Labels[v1beta2.LabelKymaName] != name {
		return fail(exitFailed, "there is a Secret %s in namespace %s already that is not for runtime %s: rename or delete it", s.Name, c.namespace, name)
	}
	old.Data = s.Data
	return c.explain(c.Update(ctx, old, client.FieldOwner(fieldOwner)), "updating Secret "+s.Name)
}

// examine fails if a kubeconfig cannot be what the control plane uses for a runtime.
func (a *app) examine(ctx context.Context, controlPlane *cluster, file string, kubeconfig []byte) error {
	config, err := runtimes.Kubeconfig(kubeconfig)
	if e, ok := errors.AsType[*runtimes.Error](err); ok {
		return fail(exitFailed, "%s: %s", file, e.Message)
	}
	if err != nil {
		return fail(exitFailed, "%s: %v", file, err)
	}
	config.Timeout, config.QPS, config.UserAgent = a.config.RequestTimeout, -1, fieldOwner
	r, err := clusterOf(config, file, v1beta2.RuntimeNamespace)
	if err != nil {
		return err
	}
	here, err := controlPlane.identity(ctx)
	if err != nil {
		return controlPlane.explain(err, "reading who this control plane is")
	}
	there, err := r.identity(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return r.explain(err, "trying the kubeconfig in "+file)
	}
	if err == nil && here == there || err != nil && r.url.String() == controlPlane.url.String() {
		return fail(exitCluster, "%s leads to the control plane itself (%s): give the kubeconfig of the runtime", file, r.config.Host)
	}
	missing, all, err := r.rights(ctx)
	switch {
	case err != nil:
		return r.explain(err, "asking for the rights of the kubeconfig in "+file)
	case len(missing) > 0:
		return fail(exitForbidden, "the kubeconfig in %s lacks rights in the runtime: %s: give its user the ClusterRole cluster-admin, or one with these and what the modules need",
			file, strings.Join(missing, ", "))
	case !all:
		fmt.Fprintf(a.Err, "  note: the kubeconfig does not have all rights; a module that needs more will say so\n")
	}
	return nil
}

// identity tells clusters apart.
func (c *cluster) identity(ctx context.Context) (string, error) {
	n := &metav1.PartialObjectMetadata{}
	n.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, n)
	return string(n.UID), err
}

// neededRights are the least that a runtime cannot be looked after without.
var neededRights = []authorizationv1.ResourceAttributes{
	{Verb: "create", Resource: "namespaces"},
	{Verb: "patch", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	{Verb: "patch", Group: v1beta2.GroupVersion.Group, Resource: "kymas"},
	{Verb: "patch", Group: v1beta2.GroupVersion.Group, Resource: "moduletemplates"},
	{Verb: "patch", Group: "apps", Resource: "deployments"},
	{Verb: "patch", Resource: "serviceaccounts"},
	{Verb: "patch", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
	{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
	{Verb: "patch", Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
}

// rights returns which of the needed rights are missing, and whether there are all rights that there can be.
func (c *cluster) rights(ctx context.Context) (missing []string, all bool, err error) {
	may := func(ctx context.Context, r authorizationv1.ResourceAttributes) (bool, error) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &r}}
		err := c.Create(ctx, review)
		return review.Status.Allowed, err
	}
	if all, err = may(ctx, authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}); all || err != nil {
		return nil, all, err
	}
	answers := make([]bool, len(neededRights))
	group, ctx := errgroup.WithContext(ctx)
	for i, r := range neededRights {
		group.Go(func() (err error) {
			answers[i], err = may(ctx, r)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, false, err
	}
	for i, r := range neededRights {
		if !answers[i] {
			missing = append(missing, strings.TrimSuffix(r.Verb+" "+r.Resource+"."+r.Group, "."))
		}
	}
	return missing, false, nil
}

// addProgress tells whether the control plane has reached a runtime.
func addProgress(k *v1beta2.Kyma) progress {
	if k == nil {
		return progress{blocked: fail(exitNotReady, "somebody has removed the runtime in the meantime")}
	}
	synced := meta.FindStatusCondition(k.Status.Conditions, v1beta2.ConditionCRDsSync)
	switch {
	case synced == nil && k.Status.State == v1beta2.StateReady, synced != nil && synced.Status == metav1.ConditionTrue:
		return progress{done: true}
	case synced == nil:
		return progress{text: "waiting for the control plane to look at it"}
	}
	return progress{text: "not reached yet: " + strings.TrimPrefix(synced.Message, v1beta2.MessageCRDsSyncFalse+": ")}
}
