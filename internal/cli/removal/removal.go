package removal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/customresource"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// Found contains the objects that a removal would delete, as far as these objects are known.
type Found struct {
	// Deleted are the objects of the modules that would be deleted. Deleted does not include default custom resources.
	Deleted []apply.Ref
	// Staying is the number of objects of the modules that would stay in the runtime after the removal.
	Staying int
	// Incomplete is the reason why Deleted may lack objects; "" if Deleted is complete.
	Incomplete string
	// Unknown is the reason why nothing is known about the objects; "" if something is known.
	Unknown string
	// Users are the custom resources of users that would be deleted with the CRDs of the modules.
	Users customresource.Found
	// UsersUnknown is the reason why Users is not known; "" if Users is known.
	UsersUnknown string
}

// kindLimit is the number of objects of a kind that are counted in a runtime.
const kindLimit = 500

// timeLimit is the time for all requests of one removal. The limit is short because a person waits for the answer.
// Tests change timeLimit.
var timeLimit = 15 * time.Second

// OfRuntime counts the objects that the removal of all modules of a runtime deletes. The parameter manifests contains
// all Manifests of the runtime. If the runtime cannot be reached, the parameter runtime is nil, and the parameter
// unreachable is the reason.
func OfRuntime(ctx context.Context, runtime *apply.Cluster, unreachable error, manifests []v1beta2.Manifest) *Found {
	f := &Found{}
	var inventory []apply.Ref
	for i := range manifests {
		for _, r := range inventoryOf(&manifests[i]) {
			if !slices.ContainsFunc(inventory, r.SameObject) {
				inventory = append(inventory, r)
			}
		}
	}
	for _, r := range inventory {
		f.add(r, r.Adopted)
	}
	f.findUserResources(ctx, runtime, unreachable, manifests, inventory)
	return f
}

// OfManifest counts the objects that the removal of one module deletes. The parameter manifests contains all Manifests
// of the runtime.
func OfManifest(ctx context.Context, runtime *apply.Cluster, m *v1beta2.Manifest, manifests []v1beta2.Manifest) *Found {
	f := &Found{}
	var others []apply.Ref
	for i := range manifests {
		if o := &manifests[i]; o.Name != m.Name && o.DeletionTimestamp.IsZero() && !o.IsUnmanaged() {
			others = append(others, inventoryOf(o)...)
		}
	}
	for _, r := range inventoryOf(m) {
		f.add(r, r.Adopted || r.Shared || slices.ContainsFunc(others, r.SameObject))
	}
	f.findUserResources(ctx, runtime, nil, manifests, inventoryOf(m), *m)
	return f
}

// OfModule counts the objects that the removal of a module deletes. The parameter remoteKyma is the Kyma in the
// runtime.
func OfModule(ctx context.Context, runtime *apply.Cluster, remoteKyma *v1beta2.Kyma, module string) *Found {
	f := &Found{}
	manifests, of := deriveManifests(remoteKyma, module)
	if of == nil {
		f.Unknown = "the Kyma names no component of the module, or no control plane, so nothing is installed yet"
		f.UsersUnknown = f.Unknown
		return f
	}
	limited, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	all, err := runtime.ListAllByLabel(limited, v1beta2.LabelAppComponent+"="+of.Name, kindLimit)
	if err != nil {
		f.Unknown = explain(err)
		f.UsersUnknown = f.Unknown
		return f
	}
	var inventory []apply.Ref
	for i := range all.Items {
		o := &all.Items[i]
		if o.Annotation(v1beta2.AnnotationOwnedBy) != of.Namespace+"/"+of.Name || isDefaultCustomResource(of, o.Ref) {
			continue
		}
		inventory = append(inventory, o.Ref)
		f.add(o.Ref, o.Annotation(apply.AnnotationAdopted) != "" || o.Annotation(apply.AnnotationCoOwners) != "")
	}
	if len(inventory) == 0 && len(all.Refused) == 0 {
		f.Unknown = "no object has the label " + v1beta2.LabelAppComponent + "=" + of.Name
		f.UsersUnknown = f.Unknown
		return f
	}
	var why []string
	if len(all.More) > 0 {
		why = append(why, fmt.Sprintf("only %d of each kind are counted", kindLimit))
	}
	if len(all.Refused) > 0 {
		why = append(why, "your user may not list "+firstThree(all.Refused))
	}
	f.Incomplete = strings.Join(why, ", and ")
	if slices.Contains(all.Refused, schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}) {
		f.UsersUnknown = "your user may not list CustomResourceDefinition.apiextensions.k8s.io"
		return f
	}
	f.findUserResources(ctx, runtime, nil, manifests, inventory, *of)
	return f
}

// add counts one object of a module as an object that is deleted or as an object that stays. Some namespaces are never
// deleted: these namespaces count as objects that stay.
func (f *Found) add(r apply.Ref, stays bool) {
	if stays || r.Keep || apply.IsProtectedNamespace(r) {
		f.Staying++
	} else {
		f.Deleted = append(f.Deleted, r)
	}
}

// findUserResources finds custom resources of users: custom resources of the CRDs that would be deleted, and custom
// resources of the same kinds as the default custom resources of the modules. If the list of modules is empty,
// findUserResources uses all Manifests. The default custom resources of these modules are deleted with them.
func (f *Found) findUserResources(ctx context.Context, runtime *apply.Cluster, unreachable error,
	manifests []v1beta2.Manifest,
	inventory []apply.Ref, onlyModules ...v1beta2.Manifest) {
	if unreachable != nil {
		f.UsersUnknown = explain(unreachable)
		return
	}
	if onlyModules == nil {
		onlyModules = manifests
	}
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	leaving := slices.Clone(manifests)
	for i := range leaving {
		isRemoved := func(m v1beta2.Manifest) bool { return m.Name == leaving[i].Name }
		if leaving[i].DeletionTimestamp.IsZero() && slices.ContainsFunc(onlyModules, isRemoved) {
			leaving[i].DeletionTimestamp = new(metav1.Now())
		}
	}
	q := customresource.Question{Runtime: runtime, Inventory: inventory, CRDs: f.Deleted,
		Manifest:  &v1beta2.Manifest{},
		Manifests: func(context.Context) ([]v1beta2.Manifest, error) { return leaving, nil }}
	var err error
	for i := range onlyModules {
		if q.Manifest = &onlyModules[i]; onlyModules[i].IsUnmanaged() {
			continue
		}
		if q, err = q.WithDefaultResourceCRD(ctx, q.Manifest); err != nil {
			f.UsersUnknown = explain(err)
			return
		}
	}
	if f.Users, err = customresource.FindOfUsers(ctx, q); err != nil {
		f.UsersUnknown = explain(err)
	}
	if unread := f.Users.UnreadMessage(); unread != "" {
		f.UsersUnknown = unread
	}
}

// inventoryOf returns the inventory of a Manifest. inventoryOf marks the objects of an unmanaged Manifest as staying.
func inventoryOf(m *v1beta2.Manifest) []apply.Ref {
	var all []apply.Ref
	for _, e := range m.Status.Synced {
		all = append(all, apply.Ref{Group: e.Group, Version: e.Version, Kind: e.Kind, Namespace: e.Namespace,
			Name: e.Name, Keep: e.Keep || m.IsUnmanaged(), Adopted: e.Adopted, Shared: e.Shared})
	}
	return all
}

// deriveManifests returns the Manifests of all modules of a runtime, with only those fields that follow from the Kyma
// in the runtime. The second result, ofModule, is the Manifest of the module with the given name, or nil if this
// Manifest is not known. The names of the Manifests are derived from the name of the Kyma in the control plane and the
// names of the components.
func deriveManifests(remoteKyma *v1beta2.Kyma, module string) (all []v1beta2.Manifest, ofModule *v1beta2.Manifest) {
	namespace, kyma, known := strings.Cut(remoteKyma.Annotations[v1beta2.AnnotationOwnedBy], "/")
	for i := range remoteKyma.Status.Modules {
		e := &remoteKyma.Status.Modules[i]
		component := cmp.Or(e.OCMComponentName, e.FQDN)
		if !known || component == "" {
			continue
		}
		m := v1beta2.Manifest{}
		m.Namespace, m.Name = namespace, v1beta2.ManifestName(kyma, component, e.Name)
		if r := e.Resource; r != nil {
			m.Spec.Resource = &unstructured.Unstructured{}
			m.Spec.Resource.SetAPIVersion(r.APIVersion)
			m.Spec.Resource.SetKind(r.Kind)
			m.Spec.Resource.SetNamespace(r.Metadata.Namespace)
			m.Spec.Resource.SetName(r.Metadata.Name)
		}
		all = append(all, m)
		if e.Name == module {
			ofModule = &m
		}
	}
	return all, ofModule
}

// isDefaultCustomResource reports whether an object is the default custom resource of a module.
func isDefaultCustomResource(m *v1beta2.Manifest, ref apply.Ref) bool {
	cr := m.Spec.Resource
	return cr != nil && ref.Group == cr.GroupVersionKind().Group && ref.Kind == cr.GetKind() &&
		ref.Name == cr.GetName() && (ref.Namespace == "" || ref.Namespace == cmp.Or(cr.GetNamespace(), "default"))
}

// explain returns the reason of a failed request in one line.
func explain(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("the runtime has not answered within %s", timeLimit)
	}
	return loop.ClipLine(err.Error())
}

// firstThree returns a text with the first three kinds of a list, and the number of the other kinds.
func firstThree(kinds []schema.GroupKind) string {
	const limit = 3
	var names []string
	for _, k := range kinds[:min(limit, len(kinds))] {
		names = append(names, k.String())
	}
	if more := len(kinds) - limit; more > 0 {
		names = append(names, fmt.Sprintf("%d more kinds", more))
	}
	return strings.Join(names, ", ")
}

// Show writes the objects that will be deleted, and what will happen to the custom resources that users have created.
// The parameter mayDeleteUserResources is true if the custom resources of users may be deleted. The parameter
// howToAllow is a text about how to allow the deletion, for the case that the deletion is not allowed.
func (f *Found) Show(p *console.Page, mayDeleteUserResources bool, howToAllow string) {
	switch {
	case f.Unknown != "":
		p.Wrap("  ", "The number of objects that are deleted is not known: "+f.Unknown+".")
	default:
		p.Wrap("  ", f.objectsText())
	}
	if f.Staying > 0 {
		stay := "objects stay"
		if f.Staying == 1 {
			stay = "object stays"
		}
		p.Wrap("  ", fmt.Sprintf("%d %s: created before the module, part of another module too, or marked to be kept.",
			f.Staying, stay))
	}
	p.Wrap("  ", f.customResourcesText(mayDeleteUserResources, howToAllow))
}

// objectsText returns a text with the numbers of objects, kinds and namespaces that are deleted.
func (f *Found) objectsText() string {
	const limit = 6
	kinds, namespaces := map[schema.GroupKind]int{}, map[string]bool{}
	var names []schema.GroupKind
	for _, r := range f.Deleted {
		k := r.GVK().GroupKind()
		if kinds[k] == 0 {
			names = append(names, k)
		}
		kinds[k]++
		if r.Namespace != "" {
			namespaces[r.Namespace] = true
		}
	}
	slices.SortFunc(names, func(a, b schema.GroupKind) int {
		return cmp.Or(kinds[b]-kinds[a], strings.Compare(a.String(), b.String()))
	})
	var parts []string
	for _, k := range names[:min(limit, len(names))] {
		parts = append(parts, fmt.Sprintf("%d %s", kinds[k], k))
	}
	if more := len(names) - limit; more > 0 {
		parts = append(parts, console.Count(more, "more kind"))
	}
	text := fmt.Sprintf("%s of %s in %s will be deleted", console.Count(len(f.Deleted), "object"),
		console.Count(len(names), "kind"), console.Count(len(namespaces), "namespace"))
	if f.Incomplete != "" {
		text = "at least " + text + " (" + f.Incomplete + ")"
	}
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// customResourcesText returns a text about what the removal does with the custom resources that users have created.
func (f *Found) customResourcesText(mayDeleteUserResources bool, howToAllow string) string {
	switch n := f.Users.Count(); {
	case f.UsersUnknown != "" && mayDeleteUserResources:
		return "Custom resources of users are deleted first, and this cannot be undone; their number is not known: " +
			f.UsersUnknown + "."
	case f.UsersUnknown != "":
		return "Custom resources of users block the removal; their number is not known: " + f.UsersUnknown + "; " +
			howToAllow + "."
	case n == 0:
		return "There are no custom resources of users."
	case mayDeleteUserResources:
		return console.Count(n, "custom resource") + " of users will be deleted first, and this cannot be undone: " +
			f.Users.String() + "."
	default:
		return "The removal waits for the deletion of " + console.Count(n, "custom resource") + " of users: " +
			f.Users.String() + "; " + howToAllow + "."
	}
}
