package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// undo ends a fault.
type undo = func(context.Context) error

// errNothing means that no object exists yet to which the fault applies.
var errNothing = errors.New("there is no such object now")

// chooseObject returns a random object of a module in a runtime.
func (r *run) chooseObject(ctx context.Context, name string, pick *rand.Rand,
	fits func(*unstructured.Unstructured) bool) (*unstructured.Unstructured, error) {
	objects, err := r.land.Clusters[name].Objects(ctx, func(key string) bool { return isObservedKey(name, key) })
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(o cluster.Stored) bool {
		return o.Object == nil || o.Object.GetAnnotations()[v1beta2.AnnotationOwnedBy] == "" ||
			o.Object.GetKind() == v1beta2.KindKyma || !fits(o.Object)
	})
	if len(objects) == 0 {
		return nil, errNothing
	}
	return objects[pick.IntN(len(objects))].Object, nil
}

// deleteObject deletes an object of a module, as a user might.
func deleteObject(ctx context.Context, r *run, e event, pick *rand.Rand) (undo, error) {
	o, err := r.chooseObject(ctx, e.Target, pick, func(o *unstructured.Unstructured) bool {
		return !strings.HasPrefix(o.GetName(), steady) && o.GetName() != "inherited"
	})
	if err != nil {
		return nil, err
	}
	r.promises.excuseNextDeletion(e.Target + "/configmaps/" + o.GetNamespace() + "/" + o.GetName())
	r.logf("deleting %s %s", o.GetKind(), o.GetName())
	return nil, client.IgnoreNotFound(r.land.Clients[e.Target].Delete(ctx, o))
}

// editObject changes an object of a module, as a user might.
func editObject(ctx context.Context, r *run, e event, pick *rand.Rand) (undo, error) {
	o, err := r.chooseObject(ctx, e.Target, pick, func(o *unstructured.Unstructured) bool {
		return (o.GetKind() == "ConfigMap" || o.GetKind() == "Deployment") && o.GetName() != "inherited"
	})
	if err != nil {
		return nil, err
	}
	before := o.DeepCopy()
	if o.GetKind() == "ConfigMap" {
		err = unstructured.SetNestedField(o.Object, "edited", "data", "text")
	} else {
		err = unstructured.SetNestedField(o.Object, int64(2), "spec", "replicas")
		o.SetLabels(nil) // the manager would not remove an additional label
	}
	if err != nil {
		return nil, err
	}
	r.logf("editing %s %s", o.GetKind(), o.GetName())
	return nil, client.IgnoreNotFound(r.land.Clients[e.Target].Patch(ctx, o, client.MergeFrom(before)))
}

// heldBy is a finalizer that neither the manager nor the module removes.
const heldBy = "chaos.example.com/held"

// holdFinalizer adds the finalizer heldBy to an object of a module.
func holdFinalizer(ctx context.Context, r *run, e event, pick *rand.Rand) (undo, error) {
	o, err := r.chooseObject(ctx, e.Target, pick, func(o *unstructured.Unstructured) bool {
		return o.GetName() != "inherited"
	})
	if err != nil {
		return nil, err
	}
	c := r.land.Clients[e.Target]
	change := func(with func(client.Object, string) bool) undo {
		return func(ctx context.Context) error {
			key := client.ObjectKeyFromObject(o)
			is := &unstructured.Unstructured{}
			is.SetGroupVersionKind(o.GroupVersionKind())
			if err := c.Get(ctx, key, is); err != nil {
				return ignoreNotFoundOrNoMatch(err)
			}
			if !with(is, heldBy) {
				return nil
			}
			return ignoreNotFoundOrNoMatch(c.Update(ctx, is))
		}
	}
	r.logf("holding %s %s", o.GetKind(), o.GetName())
	return change(controllerutil.RemoveFinalizer), change(controllerutil.AddFinalizer)(ctx)
}

// addUserObjectToModuleNamespace creates an object of a user in the namespace of a module.
func addUserObjectToModuleNamespace(ctx context.Context, r *run, e event, pick *rand.Rand) (undo, error) {
	namespace, err := r.chooseObject(ctx, e.Target, pick, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Namespace"
	})
	if err != nil {
		return nil, err
	}
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "of-a-user", Namespace: namespace.GetName()}}
	return func(ctx context.Context) error {
		return ignoreNotFoundOrNoMatch(r.land.Clients[e.Target].Delete(ctx, o.DeepCopy()))
	}, r.land.Clients[e.Target].Create(ctx, o)
}

// guardedKinds are the kinds for which the fault webhook-dead registers a webhook that never responds.
var guardedKinds = []admissionregistrationv1.Rule{
	{APIGroups: []string{""}, Resources: []string{"configmaps"}},
	{APIGroups: []string{""}, Resources: []string{"secrets"}},
	{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}},
	{APIGroups: []string{""}, Resources: []string{"services"}},
	{APIGroups: []string{""}, Resources: []string{"namespaces"}},
	{APIGroups: []string{"apps"}, Resources: []string{"deployments"}},
	{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"roles"}},
	{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"rolebindings"}},
	{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}},
	{APIGroups: []string{"chaos.example.com"}, Resources: []string{"*"}},
	{APIGroups: []string{v1beta2.GroupVersion.Group}, Resources: []string{"*", "kymas/status"}},
}

// addDeadWebhookForKind registers a webhook that does not respond for all writes of one kind.
func addDeadWebhookForKind(ctx context.Context, r *run, e event, pick *rand.Rand) (undo, error) {
	rule := guardedKinds[pick.IntN(len(guardedKinds))]
	rule.APIVersions = []string{"*"}
	c := r.land.Clients[e.Target]
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "dead"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "dead.chaos.example.com", AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: new(int32(1)),
			SideEffects:   new(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy: new(admissionregistrationv1.Fail),
			ClientConfig:  admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
			Rules: []admissionregistrationv1.RuleWithOperations{{Rule: rule,
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}}},
		}}}
	r.logf("a dead webhook for %s", strings.Join(rule.Resources, ","))
	return func(ctx context.Context) error {
		return client.IgnoreNotFound(c.Delete(ctx, config.DeepCopy()))
	}, c.Create(ctx, config)
}

// accessSecret returns the access Secret of a runtime, and a function that restores the Secret.
func (r *run) accessSecret(ctx context.Context, name string) (*corev1.Secret, undo, error) {
	s := &corev1.Secret{}
	key := client.ObjectKey{Namespace: r.land.Namespace(), Name: name + "-access"}
	if err := r.land.Clients[landscape.ControlPlane].Get(ctx, key, s); err != nil {
		return nil, nil, fmt.Errorf("reading the access Secret of %s: %w", name, err)
	}
	kubeconfig := s.Data[v1beta2.AccessSecretKey]
	return s, func(ctx context.Context) error { return r.land.SetAccessSecret(ctx, name, kubeconfig) }, nil
}

func deleteAccess(ctx context.Context, r *run, e event, _ *rand.Rand) (undo, error) {
	s, restore, err := r.accessSecret(ctx, e.Target)
	if err != nil {
		return nil, err
	}
	return restore, client.IgnoreNotFound(r.land.Clients[landscape.ControlPlane].Delete(ctx, s))
}

// rotateAccessCredential replaces the credential in the access Secret of a runtime by another credential. At the end of
// the fault, the first credential is restored, and then the other credential is revoked.
func rotateAccessCredential(ctx context.Context, r *run, e event, _ *rand.Rand) (undo, error) {
	const user = "rotated"
	_, restore, err := r.accessSecret(ctx, e.Target)
	if err != nil {
		return nil, err
	}
	end := func(ctx context.Context) error {
		if err := restore(ctx); err != nil {
			return err
		}
		c := r.land.Clients[e.Target]
		return errors.Join(
			client.IgnoreNotFound(c.Delete(ctx, &corev1.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: "default"}})),
			client.IgnoreNotFound(c.Delete(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}})))
	}
	kubeconfig, err := r.land.CreateAdmin(ctx, e.Target, user)
	if err == nil {
		err = r.land.SetAccessSecret(ctx, e.Target, kubeconfig)
	}
	if err != nil {
		return nil, errors.Join(err, end(ctx))
	}
	return end, nil
}

// failAnswersToManager makes the API server of a runtime answer some requests of the manager with an error, or lose the
// answers.
func failAnswersToManager(ctx context.Context, r *run, e event, pick *rand.Rand) (undo, error) {
	g, err := r.land.Gate(e.Target)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := g.Kubeconfig()
	if err != nil {
		return nil, err
	}
	_, restore, err := r.accessSecret(ctx, e.Target)
	if err != nil {
		return nil, err
	}
	how := []landscape.Fault{"410", "429", "500", "502", "503", landscape.Lose, landscape.Cut}
	which := []string{"GET", "PATCH", "POST", "DELETE", "."}
	what, like := how[pick.IntN(len(how))], which[pick.IntN(len(which))]
	r.logf("answers to %q of the manager: %s", like, what)
	g.Inject(what, requestsWithPrefix(like), 1+pick.IntN(30))
	return func(ctx context.Context) error {
		g.Open(true)
		return restore(ctx)
	}, r.land.SetAccessSecret(ctx, e.Target, kubeconfig)
}
