package landscape

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
	l.granted = o.Set
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
