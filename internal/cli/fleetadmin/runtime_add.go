package fleetadmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/handover"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

func runtimeAddCommand(a *console.App) *cobra.Command {
	o := addOptions{}
	c := a.Command("add RUNTIME --kubeconfig-file FILE [--channel CHANNEL] [--label KEY=VALUE]…",
		"add a cluster as a runtime of this control plane", `
The control plane will use the kubeconfig in FILE (- is standard input). It has to contain a token or certificates, a server that the control
plane can reach, and the rights to install modules, usually all rights. klm checks that, and that the cluster belongs to no other runtime or
control plane. Then it creates a Secret and a Kyma, and waits until the control plane has connected to the runtime. A Kyma that exists without an
access Secret gets one; klm does not change its channel and its labels.`, `
klm runtime add runtime-a --kubeconfig-file=runtime-a.yaml
klm runtime add runtime-a --kubeconfig-file=runtime-a.yaml --channel fast --label kyma-project.io/region=eu-central-1
kubectl config view --flatten --minify --context runtime-a | klm runtime add runtime-a --kubeconfig-file=-`,
		console.Arguments("RUNTIME"), func(cmd *cobra.Command, args []string) error {
			o.name, o.channelGiven = args[0], cmd.Flags().Changed("channel")
			return addRuntime(cmd.Context(), a, o)
		})
	c.Flags().StringVar(&o.file, "kubeconfig-file", "", "kubeconfig of the runtime; - is standard input")
	c.Flags().StringVar(&o.channel, "channel", v1beta2.DefaultChannel, "release channel of its modules")
	c.Flags().StringArrayVar(&o.labels, "label", nil, "label of its Kyma, KEY=VALUE; may be given more than once")
	c.Flags().BoolVar(&o.take, "take", false,
		"take the cluster over if it belongs to another runtime or control plane, which then changes nothing there")
	o.wait.Register(c.Flags())
	if err := c.MarkFlagFilename("kubeconfig-file"); err != nil {
		panic(err) // the flag was registered above
	}
	console.CompleteFlag(c, "channel", func(ctx context.Context, _ []string) []string {
		s, all := connection.CatalogOrNil(ctx, a), []string{}
		if s != nil {
			for _, m := range s.Modules() {
				all = append(all, s.ChannelsOf(m)...)
			}
		}
		return all
	})
	return c
}

// addOptions are the arguments and flags of klm runtime add.
type addOptions struct {
	name, file, channel string
	channelGiven        bool // otherwise, the field channel is the default of the flag
	labels              []string
	take                bool
	wait                console.WaitFlags
}

// validate checks the options without sending a request. validate returns the labels that the new Kyma gets.
func (o *addOptions) validate() (labels map[string]string, err error) {
	switch problems := validation.IsDNS1123Subdomain(o.name); {
	case len(problems) > 0:
		return nil, console.Fail(console.ExitUsage,
			"RUNTIME: %q is not a valid name: lower-case letters, digits, - and ., as for every object", o.name)
	case len(o.name) > validation.LabelValueMaxLength:
		return nil, console.Fail(console.ExitUsage,
			"RUNTIME: the name is longer than %d characters, and it becomes the value of a label",
			validation.LabelValueMaxLength)
	case o.file == "":
		return nil, console.Fail(console.ExitUsage,
			"--kubeconfig-file is required: the control plane connects to the runtime with it")
	case !connection.ChannelName.MatchString(o.channel) || o.channel == v1beta2.NoChannel:
		return nil, console.Fail(console.ExitUsage,
			"--channel: %q is not a channel: use 3 to 32 lower-case letters; %q is reserved",
			o.channel, v1beta2.NoChannel)
	}
	labels = map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager}
	for _, l := range o.labels {
		key, value, found := strings.Cut(l, "=")
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		if !found || len(problems) > 0 {
			return nil, console.Fail(console.ExitUsage,
				"--label: %q is not a label KEY=VALUE: at most 63 letters, digits, -, _ and . each; KEY may have a "+
					"prefix before a slash", l)
		}
		labels[key] = value
	}
	return labels, nil
}

func addRuntime(ctx context.Context, a *console.App, o addOptions) error {
	labels, err := o.validate()
	if err != nil {
		return err
	}
	kubeconfig, err := a.ReadInput("--kubeconfig-file", o.file)
	if err != nil {
		return err
	}
	c, err := connection.ControlPlane(ctx, a)
	if err != nil {
		return err
	}
	secrets, err := c.AccessSecrets(ctx, o.name)
	if err != nil {
		return c.Explain(err, "looking for access Secrets of "+o.name)
	}
	k := &v1beta2.Kyma{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: o.name}, k); {
	case err == nil && !k.DeletionTimestamp.IsZero():
		// With a new access Secret, the manager would delete everything from its cluster.
		return console.Fail(console.ExitNotReady, "runtime %s is being deleted: wait until its Kyma is gone (klm why "+
			"%s shows the progress), and then add it", o.name, o.name)
	case err == nil && len(secrets.Items) > 0:
		return console.Fail(console.ExitFailed,
			"runtime %s exists already, with access Secret %s: remove it, choose another name, or write a new "+
				"kubeconfig into the Secret", o.name, secrets.Items[0].Name)
	case err == nil:
		if err := o.requireSameChannelAndLabels(k, labels); err != nil {
			return err
		}
	case !apierrors.IsNotFound(err):
		return c.Explain(err, "looking for Kyma "+o.name)
	}
	for i := range secrets.Items {
		if other := secrets.Items[i].Name; other != accessSecretName(o.name) {
			return console.Fail(console.ExitFailed, "Secret %s is an access Secret for runtime %s already, and a "+
				"runtime can have only one: delete it, choose another name, or create Kyma %s yourself", other, o.name, o.name)
		}
	}
	if err := checkKubeconfig(ctx, a, c, o, kubeconfig); err != nil {
		return err
	}
	if err := saveAccessSecret(ctx, c, o.name, kubeconfig); err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "  the kubeconfig is in Secret %s\n", accessSecretName(o.name))
	if err := o.createKyma(ctx, c, labels); err != nil {
		return err
	}
	if o.wait.NoWait {
		return a.Print(console.Outcome{Object: "kyma/" + o.name, Result: "runtime " + o.name + " is added; klm why " +
			o.name + " shows its progress"})
	}
	if err := connection.WaitForKyma(ctx, a, c, o.name, o.wait.Timeout, progressUntilConnected); err != nil {
		return err
	}
	return a.Print(console.Outcome{Object: "kyma/" + o.name, Result: "runtime " + o.name + " is added and connected"})
}

// requireSameChannelAndLabels returns an error if an existing Kyma has another channel or other labels than the user
// has given.
func (o *addOptions) requireSameChannelAndLabels(k *v1beta2.Kyma, labels map[string]string) error {
	var commands []string
	if channel := cmp.Or(k.Spec.Channel, v1beta2.DefaultChannel); o.channelGiven && channel != o.channel {
		commands = append(commands, fmt.Sprintf(`kubectl -n %s patch kyma %s --type=merge -p '{"spec":{"channel":%q}}'`,
			k.Namespace, k.Name, o.channel))
	}
	for _, l := range o.labels {
		key, _, _ := strings.Cut(l, "=")
		if value, found := k.Labels[key]; !found || value != labels[key] {
			commands = append(commands, fmt.Sprintf("kubectl -n %s label kyma %s --overwrite %s=%s", k.Namespace,
				k.Name, key, labels[key]))
		}
	}
	if len(commands) == 0 {
		return nil
	}
	return console.Fail(console.ExitFailed, "Kyma %s exists already, with another channel or other labels, which klm "+
		"does not change: omit these flags, or change the Kyma first: %s", k.Name, strings.Join(commands, "; "))
}

// createKyma creates the Kyma of the runtime. A Kyma that exists already is left as it is, except that --take applies
// to it, too.
func (o *addOptions) createKyma(ctx context.Context, c *connection.Cluster, labels map[string]string) error {
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: o.name, Namespace: c.Namespace, Labels: labels},
		Spec: v1beta2.KymaSpec{Channel: o.channel}}
	if o.take {
		k.Annotations = map[string]string{v1beta2.AnnotationTakeRuntime: v1beta2.ValueTrue}
	}
	err := c.Create(ctx, k, client.FieldOwner(connection.FieldOwner))
	if !apierrors.IsAlreadyExists(err) {
		return c.Explain(err, "creating Kyma "+o.name)
	}
	existing := &v1beta2.Kyma{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(k), existing); err != nil {
		return c.Explain(err, "reading Kyma "+o.name)
	}
	if !existing.DeletionTimestamp.IsZero() {
		return deletedInMeantime(o.name)
	}
	if err := o.requireSameChannelAndLabels(existing, labels); err != nil || !o.take {
		return err
	}
	return handover.RequestTake(ctx, c, existing)
}

// deletedInMeantime returns the error about a runtime whose deletion was requested after klm has written its access
// Secret.
func deletedInMeantime(name string) error {
	return console.Fail(console.ExitNotReady, "the deletion of runtime %s was requested in the meantime, and deletes "+
		"the modules from the cluster of the new kubeconfig, too: to prevent that, delete Secret %s", name,
		accessSecretName(name))
}

// accessSecretName returns the name of the access Secret that klm creates for a runtime. Access Secrets of other
// clients may have other names, because an access Secret is found by its label.
func accessSecretName(name string) string { return name + "-access" }

// saveAccessSecret creates the access Secret of a runtime. If an earlier attempt has created the Secret,
// saveAccessSecret updates the Secret.
func saveAccessSecret(ctx context.Context, c *connection.Cluster, name string, kubeconfig []byte) error {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: accessSecretName(name), Namespace: c.Namespace,
			Labels: map[string]string{v1beta2.LabelKymaName: name,
				v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager},
		},
		Data: map[string][]byte{v1beta2.AccessSecretKey: kubeconfig},
	}
	err := c.Create(ctx, s, client.FieldOwner(connection.FieldOwner))
	if !apierrors.IsAlreadyExists(err) {
		return c.Explain(err, "creating Secret "+s.Name)
	}
	old := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(s), old); err != nil {
		return c.Explain(err, "reading Secret "+s.Name)
	}
	if old.Labels[v1beta2.LabelKymaName] != name {
		return console.Fail(console.ExitFailed,
			"Secret %s in namespace %s exists already, but is not for runtime %s: rename or delete it", s.Name,
			c.Namespace, name)
	}
	old.Data = s.Data
	return c.Explain(c.Update(ctx, old, client.FieldOwner(connection.FieldOwner)), "updating Secret "+s.Name)
}

// checkKubeconfig returns an error if the control plane cannot use a kubeconfig for a runtime. The reasons are: the
// kubeconfig is not acceptable, the kubeconfig does not work, its cluster is the control plane itself, or its user
// lacks permissions.
func checkKubeconfig(ctx context.Context, a *console.App, controlPlane *connection.Cluster,
	o addOptions, kubeconfig []byte) error {
	file := o.file
	config, err := runtimes.ParseKubeconfig(kubeconfig)
	if e, ok := errors.AsType[*runtimes.Error](err); ok {
		return console.Fail(console.ExitFailed, "%s: %s", file, e.Message)
	}
	if err != nil {
		return console.Fail(console.ExitFailed, "%s: %v", file, err)
	}
	config.Timeout, config.QPS, config.UserAgent = a.Config.RequestTimeout, -1, connection.FieldOwner
	r, err := connection.New(config, file, v1beta2.RuntimeNamespace)
	if err != nil {
		return err
	}
	here, err := controlPlane.UID(ctx)
	if err != nil {
		return controlPlane.Explain(err, "identifying this control plane")
	}
	there, err := r.UID(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return r.Explain(err, "trying the kubeconfig in "+file)
	}
	if err == nil && here == there || err != nil && r.URL.String() == controlPlane.URL.String() {
		return console.Fail(console.ExitCluster,
			"%s leads to the control plane itself (%s): give the kubeconfig of the runtime", file, r.Config.Host)
	}
	if err := checkOwner(ctx, a, controlPlane, r, o); err != nil {
		return err
	}
	missing, all, err := missingRights(ctx, r)
	switch {
	case err != nil:
		return r.Explain(err, "checking the rights of the kubeconfig in "+file)
	case len(missing) > 0:
		return console.Fail(console.ExitForbidden,
			"the kubeconfig in %s lacks rights in the runtime: %s: give its user the ClusterRole cluster-admin, or "+
				"one with these and what the modules need",
			file, strings.Join(missing, ", "))
	case !all:
		fmt.Fprintf(a.Err, "  note: the kubeconfig does not have all rights; the status of a module that needs more "+
			"will show that\n")
	}
	return nil
}

// checkOwner returns an error if the cluster belongs to another Kyma or another control plane, unless --take is given.
func checkOwner(ctx context.Context, a *console.App, controlPlane, r *connection.Cluster, o addOptions) error {
	found, err := handover.VerifyOwner(ctx, controlPlane, o.name, "", r, o.take)
	refused, is := errors.AsType[*ownership.Refusal](err)
	switch {
	case is && refused.Code == v1beta2.ReasonRuntimeIsControlPlane:
		return console.Fail(console.ExitCluster,
			"%s leads to the control plane itself (%s): give the kubeconfig of the runtime", o.file, r.Config.Host)
	case is:
		return console.Fail(console.ExitCluster,
			"%s: %s: give the kubeconfig of another cluster, or remove the cluster from its owner first; --take takes "+
				"it over from an owner that is lost or that you move from", o.file, refused.Problem)
	case found.TakenFrom != "":
		fmt.Fprintf(a.Err, "  taking the cluster over: %s\n", found.TakenFrom)
	case console.ExitCode(err) == console.ExitForbidden:
		return nil // the check of the rights names what is missing
	}
	return err
}

// neededRights are the permissions that the manager needs in every runtime.
var neededRights = []authorizationv1.ResourceAttributes{
	{Verb: "get", Resource: "namespaces"},
	{Verb: "create", Resource: "namespaces"},
	{Verb: "get", Group: v1beta2.GroupVersion.Group, Resource: "kymas"},
	{Verb: "patch", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	{Verb: "patch", Group: v1beta2.GroupVersion.Group, Resource: "kymas"},
	{Verb: "patch", Group: v1beta2.GroupVersion.Group, Resource: "moduletemplates"},
	{Verb: "patch", Group: "apps", Resource: "deployments"},
	{Verb: "patch", Resource: "serviceaccounts"},
	{Verb: "patch", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
	{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
	{Verb: "patch", Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
}

// missingRights returns the needed permissions that the user of a cluster does not have. missingRights also returns
// whether the user has all possible permissions.
func missingRights(ctx context.Context, c *connection.Cluster) (missing []string, hasAll bool, err error) {
	may := func(ctx context.Context, r authorizationv1.ResourceAttributes) (bool, error) {
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &r}}
		err := c.Create(ctx, review)
		return review.Status.Allowed, err
	}
	if hasAll, err = may(ctx, authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}); hasAll ||
		err != nil {
		return nil, hasAll, err
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

// progressUntilConnected returns the progress of adding a runtime. The change is done when the control plane has
// connected to the runtime.
func progressUntilConnected(k *v1beta2.Kyma) connection.Progress {
	if k == nil {
		return connection.Progress{Blocked: console.Fail(console.ExitNotReady,
			"the runtime was removed in the meantime")}
	}
	if !k.DeletionTimestamp.IsZero() {
		return connection.Progress{Blocked: deletedInMeantime(k.Name)}
	}
	synced := meta.FindStatusCondition(k.Status.Conditions, v1beta2.ConditionCRDsSync)
	switch {
	case synced == nil && k.Status.State == v1beta2.StateReady, synced != nil && synced.Status == metav1.ConditionTrue:
		return connection.Progress{Done: true}
	case synced == nil:
		return connection.Progress{Text: "waiting for the control plane to reconcile it"}
	}
	return connection.Progress{Text: "not connected yet: " + strings.TrimPrefix(
		synced.Message, v1beta2.MessageCRDsSyncFalse+": ")}
}
