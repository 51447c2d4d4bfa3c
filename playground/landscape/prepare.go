package landscape

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/crds"
	"github.com/kyma-fleet/lifecycle-manager/deploy"
)

// installCRDsAndPermissions installs the CRDs and all other objects of a deployment of the manager, except the manager
// itself.
func (l *Landscape) installCRDsAndPermissions(ctx context.Context) error {
	kcp := l.Clients[ControlPlane]
	all := crds.All()
	for _, crd := range all {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			return fmt.Errorf("encoding CRD %s: %w", crd.Name, err)
		}
		if err := applyObject(ctx, kcp, &unstructured.Unstructured{Object: fields}); err != nil {
			return err
		}
	}
	if err := l.applyManagerPermissions(ctx); err != nil {
		return err
	}
	for _, crd := range all {
		if err := awaitEstablished(ctx, kcp, crd.Name); err != nil {
			return err
		}
	}
	return nil
}

// applyManagerPermissions grants the manager the permissions of a deployment with the same flags. If the permissions
// were granted before, applyManagerPermissions does nothing, because a script may have changed them since.
func (l *Landscape) applyManagerPermissions(ctx context.Context) error {
	o := deploy.Options{Namespace: l.Namespace(), Set: []string{"namespace.create=true", "crds.install=false"}}
	if l.InCluster {
		o.Flavour = deploy.InClusterFlavour
	}
	if slices.Contains(l.ManagerArgs, "--enable-webhooks") {
		o.Set = append(o.Set, "webhooks.enabled=true")
	}
	if slices.ContainsFunc(l.ManagerArgs, func(flag string) bool {
		return strings.HasPrefix(flag, "--control-plane-service-account=")
	}) {
		o.Set = append(o.Set, "controlPlaneModules.enabled=true")
	}
	if slices.Contains(l.ManagerArgs, "--watch-mode=agent") {
		o.Set = append(o.Set, "agents.address=listener.example.com:8445")
	}
	for _, arg := range l.ManagerArgs {
		if names, is := strings.CutPrefix(arg, "--watch-namespaces="); is {
			o.Set = append(o.Set, "watchNamespaces={"+names+"}")
		}
	}
	if slices.Equal(l.granted, o.Set) {
		return nil
	}
	objects, err := deploy.Objects(ctx, o)
	if err != nil {
		return err
	}
	isNamespace := func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" }
	// The namespace must be first, because other objects are in it.
	if i := slices.IndexFunc(objects, isNamespace); i > 0 {
		objects[0], objects[i] = objects[i], objects[0]
	}
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			continue // here the manager is a process
		}
		if err := applyObject(ctx, l.Clients[ControlPlane], object); err != nil {
			return err
		}
	}
	if err := l.awaitManagerPermissions(ctx, objects); err != nil {
		return err
	}
	l.granted = o.Set
	return nil
}

// awaitManagerPermissions waits until the API server allows everything that the roles of the manager grant. The
// authorizer of an API server sees a new role after a delay, which is long on a busy machine.
func (l *Landscape) awaitManagerPermissions(ctx context.Context, objects []*unstructured.Unstructured) error {
	rules := map[string][]rbacv1.PolicyRule{} // by kind and name of the role
	for _, o := range objects {
		if o.GetKind() != "Role" && o.GetKind() != "ClusterRole" {
			continue
		}
		var role rbacv1.ClusterRole // a Role has the same fields
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			return fmt.Errorf("decoding role %s: %w", o.GetName(), err)
		}
		rules[o.GetKind()+"/"+o.GetName()] = role.Rules
	}
	for _, o := range objects {
		if o.GetKind() != "RoleBinding" && o.GetKind() != "ClusterRoleBinding" {
			continue
		}
		var binding rbacv1.ClusterRoleBinding // a RoleBinding has the same fields
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding); err != nil {
			return fmt.Errorf("decoding binding %s: %w", o.GetName(), err)
		}
		for _, subject := range binding.Subjects {
			if subject.Kind != rbacv1.ServiceAccountKind || subject.Name != "lifecycle-manager" {
				continue
			}
			user := "system:serviceaccount:" + cmp.Or(subject.Namespace, o.GetNamespace()) + ":" + subject.Name
			for _, rule := range rules[binding.RoleRef.Kind+"/"+binding.RoleRef.Name] {
				if err := awaitAllowed(ctx, l.Clients[ControlPlane], user, o.GetNamespace(), rule); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// awaitAllowed waits until a user has the right of the first verb and the first resource or path of a rule.
func awaitAllowed(ctx context.Context, c client.Client, user, namespace string, rule rbacv1.PolicyRule) error {
	review := authorizationv1.SubjectAccessReviewSpec{User: user}
	if len(rule.NonResourceURLs) > 0 {
		review.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: rule.NonResourceURLs[0],
			Verb: rule.Verbs[0]}
	} else {
		resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
		review.ResourceAttributes = &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: rule.Verbs[0],
			Group: rule.APIGroups[0], Resource: resource, Subresource: subresource}
		if len(rule.ResourceNames) > 0 {
			review.ResourceAttributes.Name = rule.ResourceNames[0]
		}
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, startTimeout, true,
		func(ctx context.Context) (bool, error) {
			answer := &authorizationv1.SubjectAccessReview{Spec: review}
			last = c.Create(ctx, answer)
			return last == nil && answer.Status.Allowed, nil
		})
	if err != nil {
		return fmt.Errorf("waiting until the manager has the right %v: %w", rule, errors.Join(err, last))
	}
	return nil
}

// startTimeout is the timeout of a step that a control plane needs before its manager can start. A step takes less than
// a second on a machine without other work.
const startTimeout = 10 * time.Minute

// applyObject creates or updates one object. applyObject tries again until startTimeout if the API server or its etcd
// does not answer in time, which happens on a busy machine.
func applyObject(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
	unstructured.RemoveNestedField(o.Object, "status")
	unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
	var last error
	err := wait.PollUntilContextTimeout(ctx, time.Second, startTimeout, true,
		func(ctx context.Context) (bool, error) {
			last = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("landscape"),
				client.ForceOwnership)
			return !isTemporary(last), nil
		})
	if last != nil {
		err = last
	}
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// isTemporary reports whether an API server has not answered in time. A timeout of etcd is an internal error.
func isTemporary(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err)
}

// awaitEstablished waits until a CRD is served.
func awaitEstablished(ctx context.Context, c client.Client, name string) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startTimeout, true,
		func(ctx context.Context) (bool, error) {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
			if err := c.Get(ctx, client.ObjectKey{Name: name}, u); err != nil {
				return false, client.IgnoreNotFound(err)
			}
			conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
			for _, condition := range conditions {
				if m, ok := condition.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
					return true, nil
				}
			}
			return false, nil
		})
	if err != nil {
		return fmt.Errorf("waiting for CRD %s to be served: %w", name, err)
	}
	return nil
}
