package manifest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// ownership returns the identity of the release, with the inventory in the parameter recorded. The package sets no
// annotation with this identity, because the inventory shows which objects the release has created.
func (r *release) ownership(recorded []apply.Ref) *apply.Ownership {
	return &apply.Ownership{
		Name: r.namespace + "/" + r.name, Title: "release " + r.name, Adoption: apply.Adopt, Recorded: recorded,
		RecordedAreOwn: true, Inventory: r.inventoryRef(), Manager: FieldManager,
	}
}

// removal is the result of release.remove.
type removal struct {
	// gone are the objects that do not exist any more.
	gone []apply.Ref
	// left are the objects that stay in the cluster, because they do not belong only to the release.
	left []apply.Ref
}

// remove deletes objects of the inventory. An object stays in the cluster in each of the following cases.
//
//   - The object existed before the installation, or somebody else has created it.
//   - Another release or another installation contains the object. A CRD also stays if another release contains an
//     object of the group of the CRD.
//   - The object is a namespace with objects that do not belong to the release, or a CRD with a custom resource of the
//     inventory that stays.
//
// remove adds the objects that stay to Status.Left, and the objects that are not deleted yet to Status.Pending.
func (r *release) remove(ctx context.Context, refs []apply.Ref, status *Status) (removal, error) {
	if len(refs) == 0 {
		return removal{}, nil
	}
	others, err := r.loadOtherInventories(ctx, refs)
	if err != nil {
		return removal{}, err
	}
	var (
		result removal
		asked  apply.DeletionProgress
		todo   []apply.Ref
	)
	leave := func(ref apply.Ref, message string) {
		result.left = append(result.left, ref)
		status.addLeft(message)
	}
	for _, ref := range refs {
		if holder := holderOf(others, ref); holder != "" && !ref.Keep {
			leave(ref, fmt.Sprintf("%s stays, because release %s needs it", ref, holder))
		} else {
			todo = append(todo, ref)
		}
	}
	own := r.ownership(refs)
	// Another installation always counts as existing: it cannot be determined whether it exists.
	own.Find = func(name string) (string, bool) { return "installation " + name, true }
	for {
		teardown, err := r.cluster.DeleteOwned(ctx, todo, &asked, own)
		if err != nil {
			return removal{}, r.wrapError("deleting the objects", err)
		}
		for _, l := range teardown.Left {
			leave(l.Ref, leftMessage(l))
		}
		// A namespace or CRD that stays must not delay the deletion of the other objects.
		var stays []apply.Ref
		for _, remaining := range teardown.Remaining {
			if message := whyContainerStays(remaining); message != "" {
				leave(remaining.Ref, message)
				stays = append(stays, remaining.Ref)
			}
		}
		if len(stays) == 0 {
			if !teardown.Done() {
				status.addPending(teardown.WaitMessage())
			}
			result.gone = without(teardown.Deleted, result.left)
			return result, nil
		}
		todo = without(todo, stays)
	}
}

// leftMessage returns why an object was left in the cluster.
func leftMessage(l apply.Left) string {
	switch l.Reason {
	case apply.LeftReleased:
		return l.Ref.String() + " stays, because it existed before the installation"
	case apply.LeftToOthers:
		return l.Ref.String() + " stays, because the installation has not created it"
	}
	return l.Message
}

// whyContainerStays returns why a namespace or CRD stays in the cluster. whyContainerStays returns "" for an object
// that will be deleted. A namespace also stays if the credential may not list all kinds: it cannot be determined
// whether the namespace contains objects of others.
func whyContainerStays(r apply.Remaining) string {
	switch {
	case r.Content:
		return r.Ref.String() + " stays: " + r.Message
	case r.Ref.Group == "" && r.Ref.Kind == "Namespace" && r.Err != nil && r.Err.Reason() == apply.RuntimeForbidden &&
		strings.HasPrefix(r.Err.Operation, "listing "):
		return r.Ref.String() + " stays, because it may contain objects of others: " + r.Message
	}
	return ""
}

// loadOtherInventories reads the inventories of all other releases in the cluster. The keys of the result are
// namespace/name. If the credential may not list ConfigMaps in all namespaces, loadOtherInventories returns an error
// only if refs contains a cluster-scoped object.
func (r *release) loadOtherInventories(ctx context.Context, refs []apply.Ref) (map[string]*inventory, error) {
	objects, err := r.cluster.ListObjectsByLabel(ctx, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		labelRelease)
	isClusterScoped := func(ref apply.Ref) bool { return ref.Namespace == "" }
	switch {
	case isApplyErrorWithReason(err, apply.RuntimeForbidden) && !slices.ContainsFunc(refs, isClusterScoped):
		return nil, nil
	case err != nil:
		return nil, r.wrapError("finding out which objects other releases need, before the deletion of objects", err)
	}
	others := map[string]*inventory{}
	for _, object := range objects {
		name := object.GetLabels()[labelRelease]
		isOwn := object.GetNamespace() == r.namespace && name == r.name
		if isOwn || object.GetName() != inventoryName(name) {
			continue
		}
		others[object.GetNamespace()+"/"+name], err = parseInventory(object, name)
		if err != nil {
			return nil, err
		}
	}
	return others, nil
}

// holderOf returns the first release of others that needs an object, or "". A release needs the objects in its
// inventory. A release with an object of the group of a CRD may need the CRD: the CRD may define the kind of the
// object.
func holderOf(others map[string]*inventory, ref apply.Ref) string {
	group := groupOfCRD(ref)
	for _, name := range slices.Sorted(maps.Keys(others)) {
		for _, held := range slices.Concat(others[name].Objects, others[name].CustomResources) {
			if held.SameObject(ref) || group != "" && held.Group == group {
				return name
			}
		}
	}
	return ""
}

// groupOfCRD returns the group of the kind that a CRD defines. groupOfCRD returns "" for other objects.
func groupOfCRD(ref apply.Ref) string {
	if ref.Group != "apiextensions.k8s.io" || ref.Kind != "CustomResourceDefinition" {
		return ""
	}
	_, group, _ := strings.Cut(ref.Name, ".")
	return group
}

// withLeftCustomResources returns the inventory with those objects of left whose CRD is in the inventory.
// UninstallChart must know these custom resources, because it deletes no CRD with a custom resource that stays. The
// custom resources are added to CustomResources, because the chart does not contain them any more.
func (i inventory) withLeftCustomResources(left []apply.Ref) inventory {
	for _, ref := range left {
		if slices.ContainsFunc(i.Objects, func(crd apply.Ref) bool {
			return ref.Group != "" && groupOfCRD(crd) == ref.Group
		}) {
			ref.Adopted, ref.Pending = true, false
			i.CustomResources = mergeRefs(i.CustomResources, []apply.Ref{ref})
		}
	}
	return i
}

// takenOverMessages returns a message for each object that existed before the installation, and for each object whose
// fields others had set to other values.
func takenOverMessages(result *apply.Result) []string {
	var messages []string
	for _, e := range result.Existing {
		by := ""
		if len(e.Managers) > 0 {
			by = " (field managers " + strings.Join(e.Managers, ", ") + ")"
		}
		switch e.Met {
		case apply.MetAdopted:
			messages = append(messages, fmt.Sprintf("%s existed before the installation%s: UninstallChart will not "+
				"delete it", e.Ref, by))
		case apply.MetTaken:
			messages = append(messages, fmt.Sprintf("%s existed before the installation%s: UninstallChart will "+
				"delete it", e.Ref, by))
		}
	}
	for _, t := range result.TakenOver {
		messages = append(messages, t.String())
	}
	return messages
}

// isAppliedByPackage reports whether this package has applied fields of an object.
func isAppliedByPackage(object *unstructured.Unstructured) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == FieldManager && f.Operation == "Apply" && f.Subresource == ""
	})
}
