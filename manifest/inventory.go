package manifest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// inventory is the inventory of one release as it is stored in its ConfigMap.
type inventory struct {
	// Digest is the digest of the bundle that was applied completely. Digest is "" while a bundle is being applied.
	Digest string `json:"digest,omitempty"`
	// Objects are the objects that were applied or are about to be applied. The flag Pending means that it is not known
	// whether the release has created the object, and the flag Adopted means that the object existed before.
	Objects []apply.Ref `json:"objects"`
	// CustomResources are the custom resources that were created or are about to be created, with the same flags.
	// Custom resources that were left in the cluster by an upgrade are here, too.
	CustomResources []apply.Ref `json:"customResources,omitempty"`
}

// labelRelease is a label with the name of the release. InstallOrUpgradeChart sets labelRelease on the inventory
// ConfigMap, on a namespace that InstallOrUpgradeChart creates for a release, and on the namespace of the release if
// the chart contains it.
const labelRelease = "operator.kyma-project.io/release"

// annotationNamespaceOnly marks a namespace that InstallOrUpgradeChart has created for a release before any object of
// the release was applied. InstallOrUpgradeChart removes annotationNamespaceOnly when it applies the objects of the
// release. If a namespace has this annotation and there is no inventory, the installation was interrupted: after the
// namespace was created and before the inventory was written.
const annotationNamespaceOnly = "operator.kyma-project.io/release-empty"

// inventoryKey is the key in the ConfigMap under which the inventory is stored.
const inventoryKey = "inventory.json"

// inventoryRef returns the Ref of the inventory ConfigMap.
func (r *release) inventoryRef() apply.Ref {
	return apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: r.namespace, Name: inventoryName(r.name)}
}

// inventoryName returns the name of the ConfigMap with the inventory of a release.
func inventoryName(release string) string { return "inventory." + release }

// loadInventory reads the inventory. loadInventory returns nil if the inventory does not exist.
func (r *release) loadInventory(ctx context.Context) (*inventory, error) {
	object, err := r.cluster.Get(ctx, r.inventoryRef())
	if isApplyErrorWithReason(err, apply.ObjectNotFound) || isApplyErrorWithReason(err, apply.NamespaceNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, r.wrapError("reading the inventory", err)
	}
	return parseInventory(object, r.name)
}

// parseInventory reads the inventory of a release from its ConfigMap.
func parseInventory(object *unstructured.Unstructured, release string) (*inventory, error) {
	text, _, _ := unstructured.NestedString(object.Object, "data", inventoryKey)
	var rec inventory
	if err := json.Unmarshal([]byte(text), &rec); err != nil || object.GetLabels()[labelRelease] != release {
		return nil, &Error{reason: InvalidInventory, doing: fmt.Sprintf("reading the inventory of release %q", release),
			problem: fmt.Sprintf("ConfigMap %s/%s contains none: restore or delete it", object.GetNamespace(),
				object.GetName()), err: err}
	}
	return &rec, nil
}

// storeInventory writes the new inventory (parameter now) to the cluster if it differs from the old inventory
// (parameter before).
func (r *release) storeInventory(ctx context.Context, before *inventory, now inventory) error {
	text, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("encoding the inventory of release %q: %w", r.name, err)
	}
	if before != nil {
		if old, err := json.Marshal(before); err == nil && bytes.Equal(old, text) {
			return nil
		}
	}
	ref := r.inventoryRef()
	bundle, err := render.Build([]*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "v1", "kind": ref.Kind, "metadata": map[string]any{"name": ref.Name, "namespace": ref.Namespace,
			"labels": map[string]any{labelRelease: r.name}}, "data": map[string]any{inventoryKey: string(text)},
	}}}, render.Options{})
	if err != nil {
		return fmt.Errorf("encoding the inventory of release %q: %w", r.name, err)
	}
	result, err := r.cluster.Apply(ctx, apply.Set{Bundle: bundle, Owner: FieldManager}, new(apply.Progress))
	if err == nil && len(result.Failed) > 0 {
		err = result.Failed[0]
	}
	switch {
	case isApplyErrorWithReason(err, apply.NamespaceNotFound):
		return &Error{reason: apply.NamespaceNotFound, doing: fmt.Sprintf("installing release %q", r.name),
			problem: fmt.Sprintf("namespace %q does not exist: create it or set the flag CreateNamespace", r.namespace),
			err:     err}
	case err != nil:
		return r.wrapError("writing the inventory", err)
	case len(result.Waiting) > 0:
		return &Error{reason: result.Waiting[0].Reason, doing: fmt.Sprintf("writing the inventory of release %q",
			r.name), problem: result.Waiting[0].Message}
	}
	return nil
}

// wrapError adds the operation and the name of the release to an error.
func (r *release) wrapError(doing string, err error) error {
	return fmt.Errorf("%s of release %q in namespace %q: %w", doing, r.name, r.namespace, err)
}

// isApplyErrorWithReason reports whether err is an error of package apply that has this reason.
func isApplyErrorWithReason(err error, reason string) bool {
	e, ok := errors.AsType[*apply.Error](err)
	return ok && e.Reason() == reason
}

// contains reports whether refs contains the object, in any API version.
func contains(refs []apply.Ref, ref apply.Ref) bool {
	for _, r := range refs {
		if r.SameObject(ref) {
			return true
		}
	}
	return false
}

// recordedOrPending returns refs with the flags of their entries in the inventory (parameter recorded). An object that
// is not in the inventory yet gets the flag Pending, because it may exist before the release creates it.
func recordedOrPending(refs, recorded []apply.Ref) []apply.Ref {
	out := slices.Clone(refs)
	for i, ref := range refs {
		out[i] = ref.WithOwnershipFlags(apply.Ref{Pending: true})
		if at := slices.IndexFunc(recorded, ref.SameObject); at >= 0 {
			out[i] = ref.WithOwnershipFlags(recorded[at])
		}
	}
	return out
}

// withFlagsAfter returns refs with the flags that the result of Apply shows.
func withFlagsAfter(refs []apply.Ref, result *apply.Result) []apply.Ref {
	out := slices.Clone(refs)
	for i, ref := range refs {
		at := slices.IndexFunc(result.Existing, func(e apply.Existing) bool { return e.Ref.SameObject(ref) })
		switch {
		case at >= 0:
			out[i] = ref.WithOwnershipFlags(result.Existing[at].Ref)
		case contains(result.Created, ref):
			out[i].Adopted = false // the object that existed before was deleted
		}
		if contains(result.Applied, ref) || contains(result.Unchanged, ref) {
			out[i].Pending = false
		}
	}
	return out
}

// mergeRefs returns all Refs of the first list, followed by those Refs of the second list that are not in the first
// list.
func mergeRefs(updated, old []apply.Ref) []apply.Ref {
	out := append([]apply.Ref{}, updated...)
	for _, ref := range old {
		if !contains(updated, ref) {
			out = append(out, ref)
		}
	}
	return out
}

// without returns those Refs of the first list that are not in the second list.
func without(refs, deleted []apply.Ref) []apply.Ref {
	out := []apply.Ref{}
	for _, ref := range refs {
		if !contains(deleted, ref) {
			out = append(out, ref)
		}
	}
	return out
}
