package installer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/deploy"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// What klm install has installed, it writes down in a ConfigMap beside the manager, so that it can take away what the next version does not have, and
// klm uninstall all of it. As with modules it is written before something new is applied, and what is gone leaves it afterwards: an installation
// that was interrupted is finished by the next one.

const (
	// inventoryName is the name of the ConfigMap.
	inventoryName = "lifecycle-manager-inventory"
	// inventoryKey has the objects, as a list of v1beta2.Resource in JSON.
	inventoryKey = "objects"
)

// nameLabel is on every object of the chart but definitions and the namespace.
const nameLabel = "app.kubernetes.io/name"

// isKept tells whether an object stays whatever happens: with a namespace or a definition all Kymas would go.
func isKept(r apply.Ref) bool {
	return r.Keep || r.Kind == "Namespace" && r.Group == "" || r.Kind == "CustomResourceDefinition"
}

// withoutKept returns the objects that do not stay.
func withoutKept(refs []apply.Ref) []apply.Ref {
	return slices.DeleteFunc(slices.Clone(refs), isKept)
}

// encodeInventory and decodeInventory are each other's reverse, but for what is kept, which neither of them has.
func encodeInventory(refs []apply.Ref) (string, error) {
	all := []v1beta2.Resource{}
	for _, r := range withoutKept(refs) {
		all = append(all, v1beta2.Resource{Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name})
	}
	data, err := json.Marshal(all)
	return string(data), err
}

func decodeInventory(text string) ([]apply.Ref, error) {
	var all []v1beta2.Resource
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, err
	}
	var refs []apply.Ref
	for _, r := range all {
		refs = append(refs, apply.Ref{Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name})
	}
	return withoutKept(refs), nil
}

// recorded reads the inventory; there is false if klm has installed nothing, or is older than inventories.
func (in *installer) recorded(ctx context.Context) (refs []apply.Ref, there bool, err error) {
	m := &corev1.ConfigMap{}
	err = in.Get(ctx, client.ObjectKey{Namespace: in.Namespace, Name: inventoryName}, m)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, in.Explain(err, "reading what is installed")
	}
	if refs, err = decodeInventory(m.Data[inventoryKey]); err != nil {
		return nil, false, console.Fail(console.ExitFailed, "ConfigMap %s/%s, in which klm writes down what it has installed, cannot be read: %v; without it klm install works, and leaves what it does not need any more",
			in.Namespace, inventoryName, err)
	}
	return refs, true, nil
}

// record writes the inventory.
func (in *installer) record(ctx context.Context, refs []apply.Ref) error {
	text, err := encodeInventory(refs)
	if err != nil {
		return fmt.Errorf("encoding what is installed: %w", err)
	}
	m := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{inventoryKey: text}}}
	m.SetAPIVersion("v1")
	m.SetKind("ConfigMap")
	m.SetNamespace(in.Namespace)
	m.SetName(inventoryName)
	m.SetLabels(map[string]string{nameLabel: deploy.Release})
	return in.Explain(in.Apply(ctx, client.ApplyConfigurationFromUnstructured(m), client.FieldOwner(connection.FieldOwner), client.ForceOwnership), "writing down what is installed")
}

// ensureNamespace makes the namespace, if the chart does, for the inventory that is written before everything else.
func (in *installer) ensureNamespace(ctx context.Context) error {
	for _, o := range in.objects {
		if o.GetKind() == "Namespace" && o.GetName() == in.Namespace {
			err := in.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner(connection.FieldOwner), client.ForceOwnership)
			return in.Explain(err, "making namespace "+in.Namespace)
		}
	}
	return nil
}

// removable returns which of the objects are there and are the manager's. An inventory can be edited by whoever may edit ConfigMaps beside the
// manager, and what another installation has taken over is that one's: neither shall make somebody delete what is not meant.
func (in *installer) removable(ctx context.Context, refs []apply.Ref) ([]apply.Ref, error) {
	var found []apply.Ref
	for _, ref := range refs {
		o, err := in.to.Get(ctx, ref)
		e, ok := errors.AsType[*apply.Error](err)
		switch {
		case ok && slices.Contains([]string{apply.ObjectNotFound, apply.KindUnknown, apply.NamespaceNotFound}, e.Reason()):
		case err != nil:
			return nil, in.because(err)
		case o.GetLabels()[nameLabel] == deploy.Release && helmRelease(o) == "":
			found = append(found, ref)
		}
	}
	return found, nil
}

// helmRelease returns the name of the Helm release that an object belongs to, "" if it belongs to none.
func helmRelease(o client.Object) string { return o.GetAnnotations()["meta.helm.sh/release-name"] }

// release returns the name of the Helm release that the manager in the cluster belongs to, "" if there is no manager, or it belongs to none.
func (in *installer) release(ctx context.Context) (string, error) {
	manager := &unstructured.Unstructured{}
	manager.SetAPIVersion("apps/v1")
	manager.SetKind("Deployment")
	err := in.Get(ctx, client.ObjectKey{Namespace: in.Namespace, Name: deploy.Release}, manager)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", in.Explain(err, "looking for the manager")
	}
	return helmRelease(manager), nil
}

// remove deletes objects and waits until they are gone.
func (in *installer) remove(ctx context.Context, refs []apply.Ref, tell func(string)) error {
	told := ""
	asked := apply.DeletionProgress{}
	for {
		result, err := in.to.Delete(ctx, refs, &asked)
		if err != nil {
			return in.because(err)
		}
		if result.Done() {
			return nil
		}
		for _, r := range result.Remaining {
			if r.Err != nil && (apply.ClassOf(r.Err) == apply.Terminal || r.Err.Reason() == apply.RuntimeForbidden) {
				return in.because(r.Err)
			}
		}
		if text := result.WaitMessage(); text != told {
			told = text
			tell((&console.Page{}).Clip(text, 240))
		}
		if err := console.Sleep(ctx, 200*time.Millisecond); err != nil {
			return late(err, told)
		}
	}
}

// namesOf lists objects in one line.
func namesOf(refs []apply.Ref) string {
	var names []string
	for _, r := range refs {
		names = append(names, r.String())
	}
	return (&console.Page{}).Clip(strings.Join(names, ", "), 240)
}
