package installer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/deploy"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// The inventory is a ConfigMap in the namespace of the manager. klm install lists its installed objects in the
// inventory. With this list, klm install can delete objects that the next version does not have, and klm uninstall can
// delete all objects. Beside the list of objects, the inventory has the chart values of the installation. New objects
// are added to the inventory before they are applied. Deleted objects are removed from the inventory after their
// deletion. Therefore the next call of klm install or klm uninstall can finish an interrupted call.

const (
	// inventoryName is the name of the ConfigMap with the inventory.
	inventoryName = "lifecycle-manager-inventory"
	// inventoryKey is the key of the list of installed objects in the inventory ConfigMap. The value at inventoryKey is
	// a list of v1beta2.Resource in JSON.
	inventoryKey = "objects"
	// valuesKey is the key of the values of the installation in the inventory ConfigMap, as YAML. See values.go.
	valuesKey = "values"
)

// inventory is the decoded content of the inventory ConfigMap.
type inventory struct {
	version string // the resource version of the ConfigMap
	refs    []apply.Ref
	// values are the values of the installation, or nil if the version of klm that has written the inventory stored no
	// values.
	values values
}

// nameLabel is the label of every object of the chart except CRDs and the namespace.
const nameLabel = "app.kubernetes.io/name"

// chartNames are the values of nameLabel in the chart: that of the manager, and that of the dashboard.
var chartNames = []string{deploy.Release, deploy.Release + "-dashboard"}

// kindCRD is the kind of CRDs.
const kindCRD = "CustomResourceDefinition"

// isKept reports whether klm never deletes an object. Namespaces and CRDs are kept, because the deletion of such an
// object would delete all Kymas.
func isKept(r apply.Ref) bool {
	return r.Keep || r.Kind == "Namespace" && r.Group == "" || r.Kind == kindCRD
}

// withoutKept returns the objects that klm may delete.
func withoutKept(refs []apply.Ref) []apply.Ref {
	return slices.DeleteFunc(slices.Clone(refs), isKept)
}

// encodeInventoryJSON encodes the objects that klm may delete. decodeInventory is the inverse function. decodeInventory
// leaves out objects that klm never deletes, also if a user has added such objects to the inventory.
func encodeInventoryJSON(refs []apply.Ref) (string, error) {
	all := []v1beta2.Resource{}
	for _, r := range withoutKept(refs) {
		all = append(all, v1beta2.Resource{Group: r.Group, Version: r.Version, Kind: r.Kind,
			Namespace: r.Namespace, Name: r.Name})
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
		refs = append(refs, apply.Ref{Group: r.Group, Version: r.Version, Kind: r.Kind,
			Namespace: r.Namespace, Name: r.Name})
	}
	return withoutKept(refs), nil
}

// readInventory reads the inventory ConfigMap in the namespace of the manager. readInventory returns nil if klm has
// installed nothing, or if the version of klm that installed the manager wrote no inventories yet.
func readInventory(ctx context.Context, c *connection.Cluster) (*inventory, error) {
	m := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: inventoryName}, m)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, c.Explain(err, "reading the inventory")
	}
	found := &inventory{version: m.ResourceVersion}
	if found.refs, err = decodeInventory(m.Data[inventoryKey]); err != nil {
		return nil, console.Fail(console.ExitFailed,
			"the inventory in ConfigMap %s/%s cannot be decoded: %v; if you delete it, klm install works, but keeps "+
				"objects that are no longer needed, and forgets the values",
			c.Namespace, inventoryName, err)
	}
	if document, isStored := m.Data[valuesKey]; isStored {
		if found.values, err = decodeValues(document); err != nil {
			return nil, console.Fail(console.ExitFailed,
				"the values in ConfigMap %s/%s cannot be decoded: %v; correct the key %s, or remove it and give all "+
					"values again", c.Namespace, inventoryName, err, valuesKey)
		}
	}
	return found, nil
}

// writeInventory writes the inventory: the objects, and the values of this installation. If another client has written
// the inventory since klm has read it, writeInventory returns an error: the other client may have installed objects and
// set values that this installation does not know, and that the user has not seen.
func (in *installer) writeInventory(ctx context.Context, refs []apply.Ref) error {
	text, err := encodeInventoryJSON(refs)
	if err != nil {
		return fmt.Errorf("encoding the inventory: %w", err)
	}
	document, err := in.values.encode()
	if err != nil {
		return fmt.Errorf("encoding the values: %w", err)
	}
	m := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{inventoryKey: text,
		valuesKey: string(document)}}}
	m.SetAPIVersion("v1")
	m.SetKind("ConfigMap")
	m.SetNamespace(in.Namespace)
	m.SetName(inventoryName)
	m.SetLabels(map[string]string{nameLabel: deploy.Release})
	if in.inventoryVersion == "" {
		err = in.Create(ctx, m, client.FieldOwner(connection.FieldOwner))
	} else {
		m.SetResourceVersion(in.inventoryVersion)
		err = in.Apply(ctx, client.ApplyConfigurationFromUnstructured(m), client.FieldOwner(connection.FieldOwner),
			client.ForceOwnership)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return console.Fail(console.ExitFailed, "writing the inventory: another client has changed the installation "+
			"in namespace %s in the meantime: run the command again, which shows the changes", in.Namespace)
	}
	if apierrors.IsNotFound(err) {
		return console.Fail(console.ExitNotFound, "namespace %s does not exist, and the values do not create it: "+
			"create it, or leave out namespace.create=false", in.Namespace)
	}
	if err != nil {
		return in.Explain(err, "writing the inventory")
	}
	in.inventoryVersion = m.GetResourceVersion()
	return nil
}

// applyNamespace applies the Namespace of the manager if the chart contains it. The inventory ConfigMap is written into
// the namespace before all other objects are applied.
func (in *installer) applyNamespace(ctx context.Context) error {
	for _, o := range in.objects {
		if o.GetKind() == "Namespace" && o.GetName() == in.Namespace {
			err := in.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()),
				client.FieldOwner(connection.FieldOwner), client.ForceOwnership)
			return in.Explain(err, "creating namespace "+in.Namespace)
		}
	}
	return nil
}

// removable returns those objects in the parameter refs that exist and are installed by klm. It also returns the
// objects that exist and that klm may not delete. The inventory alone does not decide which objects klm deletes,
// because every user who may edit ConfigMaps in the namespace of the manager can edit the inventory. An object in the
// inventory may also belong to another installation by now.
func (in *installer) removable(ctx context.Context, refs []apply.Ref) (found, refused []apply.Ref, err error) {
	for _, ref := range refs {
		o, err := in.to.Get(ctx, ref)
		e, ok := errors.AsType[*apply.Error](err)
		switch {
		case ok && slices.Contains([]string{apply.ObjectNotFound, apply.KindUnknown, apply.NamespaceNotFound},
			e.Reason()):
		case err != nil:
			return nil, nil, in.explainApply(err)
		case isInstalledByKlm(o):
			found = append(found, ref)
		default:
			refused = append(refused, ref)
		}
	}
	return found, refused, nil
}

// isInstalledByKlm reports whether an object has a label of the chart, and belongs to no Helm release.
func isInstalledByKlm(o client.Object) bool {
	return slices.Contains(chartNames, o.GetLabels()[nameLabel]) && helmRelease(o) == ""
}

// refusedMessage returns the message about the objects that klm may not delete.
func (in *installer) refusedMessage() string {
	return "not removed, because the label " + nameLabel + " is not that of the manager, or Helm has installed it: " +
		clippedNames(in.refused)
}

// helmRelease returns the name of the Helm release to which an object belongs, or "" if the object belongs to no
// release.
func helmRelease(o client.Object) string { return o.GetAnnotations()["meta.helm.sh/release-name"] }

// liveManager returns the metadata of the manager's Deployment in the cluster, or nil if the Deployment does not exist.
func (in *installer) liveManager(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	manager := &metav1.PartialObjectMetadata{}
	manager.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	err := in.Get(ctx, client.ObjectKey{Namespace: in.Namespace, Name: deploy.Release}, manager)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, in.Explain(err, "reading the Deployment of the manager")
	}
	return manager, nil
}

// identityBinding is a cluster-wide object of every installation. Its subject shows to which namespace the cluster-wide
// objects belong.
var identityBinding = apply.Ref{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding",
	Name: deploy.Release + "-identity"}

// clusterWideOwner returns the namespace of the manager to which the cluster-wide objects belong, or "" if this is
// unknown. A cluster can have only one manager, because the names of these objects do not contain the namespace.
func (in *installer) clusterWideOwner(ctx context.Context) (namespace string, err error) {
	binding, err := in.to.Get(ctx, identityBinding)
	if e, ok := errors.AsType[*apply.Error](err); ok && e.Reason() == apply.ObjectNotFound {
		return "", nil
	}
	if err != nil {
		return "", in.explainApply(err)
	}
	subjects, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
	for _, s := range subjects {
		if s, _ := s.(map[string]any); s["kind"] == "ServiceAccount" && s["name"] == deploy.Release {
			namespace, _ = s["namespace"].(string)
		}
	}
	return namespace, nil
}

// findNamespace sets the namespace of c to the namespace of the manager, and reports whether a manager is installed
// there. The parameters are what the user has given, or "". If the user has given neither, findNamespace looks for a
// manager in the default namespaces of all flavours.
func findNamespace(ctx context.Context, c *connection.Cluster, namespace, flavour string) (
	isInstalled bool, err error) {
	candidates := []string{namespace}
	switch {
	case namespace != "":
	case flavour != "":
		candidates = []string{deploy.DefaultNamespace(flavour)}
	default:
		candidates = []string{deploy.DefaultNamespace(deploy.ControlPlaneFlavour),
			deploy.DefaultNamespace(deploy.InClusterFlavour)}
	}
	var installed []string
	for _, n := range candidates {
		is, err := hasInstallation(ctx, c, n)
		if err != nil {
			return false, err
		}
		if is {
			installed = append(installed, n)
		}
	}
	if len(installed) > 1 {
		return false, console.Fail(console.ExitFailed, "there is a manager both in namespace %s and in namespace %s: "+
			"choose one with -n", installed[0], installed[1])
	}
	c.Namespace = append(installed, candidates...)[0]
	return len(installed) > 0, nil
}

// hasInstallation reports whether a namespace has a manager, or what is left of an interrupted installation. Objects
// that the user may not read are ignored, because the later steps report all missing permissions.
func hasInstallation(ctx context.Context, c *connection.Cluster, namespace string) (bool, error) {
	for name, kind := range map[string]schema.GroupVersionKind{
		deploy.Release: appsv1.SchemeGroupVersion.WithKind("Deployment"),
		inventoryName:  corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	} {
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(kind)
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
		if err == nil {
			return true, nil
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return false, c.Explain(err, "looking for the manager in namespace "+namespace)
		}
	}
	return false, nil
}

// flavourIn returns the flavour of the manager in a namespace. If no flavour is stored, because an older klm, kubectl
// or kustomize has made the installation, the flavour is that whose default namespace this is.
func flavourIn(namespace string, before *inventory, isInstalled bool) string {
	stored, byNamespace := "", deploy.ControlPlaneFlavour
	if before != nil {
		stored = before.values.flavour()
	}
	if isInstalled && namespace == deploy.DefaultNamespace(deploy.InClusterFlavour) {
		byNamespace = deploy.InClusterFlavour
	}
	return cmp.Or(stored, byNamespace)
}

// remove deletes objects and waits until all these objects are deleted.
func (in *installer) remove(ctx context.Context, refs []apply.Ref, report func(string)) error {
	reported := ""
	progress := apply.DeletionProgress{}
	for {
		result, err := in.to.Delete(ctx, refs, &progress)
		if err != nil {
			return in.explainApply(err)
		}
		if result.Done() {
			return nil
		}
		for _, r := range result.Remaining {
			if r.Err != nil && (apply.ClassOf(r.Err) == apply.Terminal || r.Err.Reason() == apply.RuntimeForbidden) {
				return in.explainApply(r.Err)
			}
		}
		if text := result.WaitMessage(); text != reported {
			reported = text
			report((&console.Page{}).Clip(text, 240))
		}
		if err := console.Sleep(ctx, 200*time.Millisecond); err != nil {
			return explainTimeout(err, reported)
		}
	}
}

// clippedNames returns the names of objects in one line of at most 240 characters.
func clippedNames(refs []apply.Ref) string {
	var names []string
	for _, r := range refs {
		names = append(names, r.String())
	}
	return (&console.Page{}).Clip(strings.Join(names, ", "), 240)
}
