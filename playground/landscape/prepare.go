package landscape

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/crds"
	"github.com/kyma-fleet/lifecycle-manager/deploy"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// prepareControlPlane installs our CRDs and the manager's namespace, service account and roles.
func (l *Landscape) prepareControlPlane(ctx context.Context) error {
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
	flavour := deploy.ControlPlane
	if l.InCluster {
		flavour = deploy.InCluster
	}
	objects, err := render.Parse(flavour())
	if err != nil {
		return fmt.Errorf("reading the manager's roles: %w", err)
	}
	for _, o := range objects {
		if o.GetKind() == "Deployment" {
			continue // here the manager is a process
		}
		if err := applyObject(ctx, kcp, o); err != nil {
			return err
		}
	}
	for _, crd := range all {
		if err := established(ctx, kcp, crd.Name); err != nil {
			return err
		}
	}
	return nil
}

// applyObject creates or changes one object.
func applyObject(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
	unstructured.RemoveNestedField(o.Object, "status")
	unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("landscape"), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// established waits until a CRD is served.
func established(ctx context.Context, c client.Client, name string) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
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
