package trial

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// The actions of a Change.
const (
	ChangeCreate = "create"
	ChangeUpdate = "change"
	ChangeDelete = "delete"
	ChangeRefuse = "refuse" // the API server would reject the object
	// ChangeRecreate means that the manager would delete the object and create it again, because an immutable field
	// would change, and the module permits it.
	ChangeRecreate = "recreate"
)

// Change describes how an installation would change one object.
type Change struct {
	// Action is ChangeCreate, ChangeUpdate, ChangeDelete, ChangeRefuse or ChangeRecreate.
	Action string `json:"action"`
	// Object is the kind, namespace and name of the object.
	Object string `json:"object"`
	// Fields are the changed fields.
	Fields []FieldChange `json:"fields,omitempty"`
	// Message is the reason why the API server would refuse the object, or the change without a deletion.
	Message string `json:"message,omitempty"`
}

// FieldChange is one changed field. Before and After are the values as JSON; "" means that the field is missing. Values
// of Secrets are hidden.
type FieldChange struct {
	Path   string `json:"path"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Request has the inputs of an installation that come from the control plane, and not from the component version.
type Request struct {
	// Name is the namespace and the name of the Manifest.
	Name client.ObjectKey
	// Installed is the existing Manifest, or nil if no Manifest exists.
	Installed *v1beta2.Manifest
	// Manager is the workload that runs the operator, or nil if the ModuleTemplate names no such workload.
	Manager *v1beta2.Manager
	// Resource is the default custom resource of the module, or nil if the module has none. If the default custom
	// resource does not exist in the runtime, the installation of the module creates it.
	Resource *unstructured.Unstructured
}

// Preview returns the changes that the installation of a component version would make in a runtime. Preview renders all
// layers as the manager does, and sends each object as a dry run of server-side apply. Preview does not change the
// runtime. The result "same" is the number of unchanged objects.
//
// An object whose CRD or namespace would only be created by the installation cannot be sent as a dry run. Preview
// reports that such an object would be created.
func Preview(ctx context.Context, config *rest.Config, i *content.Installation, w Request) (
	changes []Change, same int, err error) {
	p, err := newPreview(config)
	if err != nil {
		return nil, 0, err
	}
	options, overlay, err := p.installOptions(ctx, i, w)
	if err != nil {
		return nil, 0, err
	}
	cluster, err := apply.New(config, nil, apply.ClusterOptions{})
	if err != nil {
		return nil, 0, fmt.Errorf("connecting to the runtime: %w", err)
	}
	for _, one := range i.Parts {
		bundle, err := one.Bundle(ctx, options, cluster.Capabilities)
		if err == nil {
			err = p.addSet(ctx, apply.Set{Bundle: bundle, Overlay: overlay, Namespace: one.Settings.Namespace,
				Owner: v1beta2.FieldOwnerApplier})
		}
		if err != nil {
			return nil, 0, err
		}
	}
	if w.Resource != nil {
		if err := p.addDefaultCRIfMissing(ctx, w.Resource); err != nil {
			return nil, 0, err
		}
	}
	if w.Installed != nil {
		p.addDeletionsUnlessKept(apply.Removed(inventoryOf(w.Installed), p.refs))
	}
	return p.changes, p.same, nil
}

// PreviewSet returns the changes that would be made in a cluster if a set of objects was applied. The parameter old
// contains the objects that were applied before. An object that is in old and not in the new set is reported as
// deleted.
func PreviewSet(ctx context.Context, config *rest.Config, set apply.Set, old []apply.Ref) (
	changes []Change, same int, err error) {
	p, err := newPreview(config)
	if err == nil {
		err = p.addSet(ctx, set)
	}
	if err != nil {
		return nil, 0, err
	}
	p.addDeletionsUnlessKept(apply.Removed(old, p.refs))
	return p.changes, p.same, nil
}

// preview collects the changes of an installation.
type preview struct {
	client.Client
	defined map[schema.GroupKind]bool // kinds whose CRD is part of the module; true if the kind is namespaced
	refs    []apply.Ref               // objects of all sets
	changes []Change
	same    int // number of unchanged objects
}

func newPreview(config *rest.Config) (*preview, error) {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return &preview{Client: c, defined: map[schema.GroupKind]bool{}}, nil
}

// add records that the change c of an object would be made. If c is nil, add counts the object as unchanged.
func (p *preview) add(c *Change) {
	if c == nil {
		p.same++
	} else {
		p.changes = append(p.changes, *c)
	}
}

// addDeletionsUnlessKept records that objects would be deleted. The manager leaves adopted objects to the users who
// have created them, and shared objects to the other module.
func (p *preview) addDeletionsUnlessKept(refs []apply.Ref) {
	for _, r := range refs {
		if !r.Keep && !r.Adopted && !r.Shared {
			p.changes = append(p.changes, Change{Action: ChangeDelete, Object: r.String()})
		}
	}
}

// addSet records the changes that applying the objects of a set would make.
func (p *preview) addSet(ctx context.Context, s apply.Set) error {
	for _, o := range s.Bundle.Objects {
		if crd, ok := o.CRD(); ok {
			p.defined[schema.GroupKind{Group: crd.Group, Kind: crd.Kind}] = crd.Namespaced
		}
	}
	for _, o := range s.Bundle.Objects {
		ref := apply.Ref{Group: o.GVK.Group, Version: o.GVK.Version, Kind: o.GVK.Kind, Name: o.Name}
		served, namespaced, err := p.servedAndNamespaced(o.GVK)
		if err != nil {
			return err
		}
		if _, defined := p.defined[o.GVK.GroupKind()]; !served && !defined {
			namespaced = o.Namespace != ""
		}
		if namespaced {
			ref.Namespace = cmp.Or(o.Namespace, s.Namespace, "default") // as package apply does
		}
		want := &unstructured.Unstructured{}
		if err := want.UnmarshalJSON(o.AppendJSON(nil, ref.Namespace, s.Overlay)); err != nil {
			return fmt.Errorf("encoding %s: %w", ref, err)
		}
		c, err := p.changeOf(ctx, ref, want, s.Owner, served)
		if err != nil {
			return err
		}
		p.refs = append(p.refs, ref)
		p.add(c)
	}
	return nil
}

// servedAndNamespaced reports whether the runtime serves a kind, and whether this kind is namespaced.
func (p *preview) servedAndNamespaced(gvk schema.GroupVersionKind) (served, namespaced bool, err error) {
	mapping, err := p.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	switch {
	case meta.IsNoMatchError(err): // the CRD is part of the module, or does not exist
		return false, p.defined[gvk.GroupKind()], nil
	case err != nil:
		return false, false, fmt.Errorf("reading the kinds that the runtime serves: %w", err)
	}
	return true, mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// addDefaultCRIfMissing adds, to the preview, the change that the installation would make to the module's custom
// resource. An existing custom resource belongs to the user, so the installation would not change it.
func (p *preview) addDefaultCRIfMissing(ctx context.Context, cr *unstructured.Unstructured) error {
	gvk := cr.GroupVersionKind()
	ref := apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Name: cr.GetName()}
	served, namespaced, err := p.servedAndNamespaced(gvk)
	if err != nil {
		return err
	}
	cr = cr.DeepCopy()
	if namespaced {
		ref.Namespace = cmp.Or(cr.GetNamespace(), v1beta2.RuntimeNamespace)
	}
	cr.SetNamespace(ref.Namespace)
	create := &Change{Action: ChangeCreate, Object: ref.String()}
	if !served {
		p.add(create)
		return nil
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(gvk)
	switch err := p.Get(ctx, client.ObjectKeyFromObject(cr), live); {
	case err == nil:
		p.add(nil)
		return nil
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading %s: %w", ref, err)
	}
	if _, defined := p.defined[gvk.GroupKind()]; !defined { // otherwise the installation may change the CRD
		err = p.Create(ctx, cr, client.DryRunAll)
	}
	switch {
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		create = &Change{Action: ChangeRefuse, Object: ref.String(), Message: err.Error()}
	case client.IgnoreNotFound(err) != nil: // the namespace is part of the module
		return fmt.Errorf("sending a dry run of %s: %w", ref, err)
	}
	p.add(create)
	return nil
}

// inventoryOf returns the inventory of a Manifest.
func inventoryOf(m *v1beta2.Manifest) []apply.Ref {
	var refs []apply.Ref
	for _, r := range m.Status.Synced {
		refs = append(refs, apply.Ref{Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace,
			Name: r.Name, Keep: r.Keep, Adopted: r.Adopted, Shared: r.Shared})
	}
	return refs
}

// installOptions returns the same options for rendering as the manager uses. A scenario test checks that preview and
// manager use the same options: for an installed version, the preview must show no changes.
func (p *preview) installOptions(ctx context.Context, i *content.Installation, w Request) (
	render.Options, render.Overlay, error) {
	o := render.Options{
		Labels: map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByKyma,
			v1beta2.LabelAppPartOf: v1beta2.PartOfKyma},
		Annotations: map[string]string{v1beta2.AnnotationDisclaimer: v1beta2.Disclaimer},
		Images:      i.Images,
	}
	if m := w.Manager; m != nil {
		o.Manager = &render.Manager{Group: m.Group, Version: m.Version, Kind: m.Kind,
			Namespace: m.Namespace, Name: m.Name}
	}
	if w.Installed != nil && w.Installed.Spec.Manager != nil {
		secret, err := p.pullSecretNameFromEnvOf(ctx, w.Installed.Spec.Manager)
		if err != nil {
			return o, render.Overlay{}, err
		}
		o.PullSecret = secret
	}
	return o, render.Overlay{
		Labels:      map[string]string{v1beta2.LabelAppComponent: w.Name.Name},
		Annotations: map[string]string{v1beta2.AnnotationOwnedBy: w.Name.Namespace + "/" + w.Name.Name},
	}, nil
}

// pullSecretNameFromEnvOf returns the name of the pull secret that the operator of the module uses.
// pullSecretNameFromEnvOf reads this name from an environment variable of the workload. If the workload does not exist,
// or has no such environment variable, pullSecretNameFromEnvOf returns "".
func (p *preview) pullSecretNameFromEnvOf(ctx context.Context, workload *v1beta2.Manager) (string, error) {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(strings.TrimPrefix(workload.Group+"/"+workload.Version, "/"))
	o.SetKind(workload.Kind)
	err := p.Get(ctx, client.ObjectKey{Namespace: workload.Namespace, Name: workload.Name}, o)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading the manager of the module: %w", err)
	}
	for _, c := range content.ContainersOf(o) {
		env, _ := c["env"].([]any)
		for _, e := range env {
			if variable, _ := e.(map[string]any); variable["name"] == "SKR_IMG_PULL_SECRET" {
				value, _ := variable["value"].(string)
				return value, nil
			}
		}
	}
	return "", nil
}

// changeOf returns how one object would change if the field manager owner applied the object want, or nil if it would
// not change.
func (p *preview) changeOf(ctx context.Context, ref apply.Ref, want *unstructured.Unstructured, owner string,
	served bool) (*Change, error) {
	create := &Change{Action: ChangeCreate, Object: ref.String()}
	if !served {
		return create, nil
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(ref.GVK())
	err := p.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, live)
	exists := err == nil
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading %s: %w", ref, err)
	}
	if exists && want.GetAnnotations()[apply.AnnotationApplyPolicy] == "create-only" {
		return nil, nil
	}
	would := withAdoptionOf(live, want)
	err = p.Apply(ctx, client.ApplyConfigurationFromUnstructured(would), client.FieldOwner(owner),
		client.ForceOwnership, client.DryRunAll)
	switch {
	case err != nil && !exists && apierrors.IsNotFound(err): // the namespace is part of the module
		return create, nil
	case err != nil && exists && isCreatedBy(live, owner) && apply.IsRecreated(ref, want.GetAnnotations(), err):
		return &Change{Action: ChangeRecreate, Object: ref.String(), Message: err.Error()}, nil
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return &Change{Action: ChangeRefuse, Object: ref.String(), Message: err.Error()}, nil
	case err != nil:
		return nil, fmt.Errorf("sending a dry run of %s: %w", ref, err)
	case !exists:
		return create, nil
	}
	fields := changedFields(live, would, strings.Split(want.GetAnnotations()[apply.AnnotationIgnorePaths], ","))
	if len(fields) == 0 {
		return nil, nil
	}
	return &Change{Action: ChangeUpdate, Object: ref.String(), Fields: fields}, nil
}

// isCreatedBy reports whether a field manager has applied an object that did not exist before. The manager deletes no
// other objects to create them again.
func isCreatedBy(live *unstructured.Unstructured, fieldManager string) bool {
	if live.GetAnnotations()[apply.AnnotationAdopted] == "true" {
		return false
	}
	return slices.ContainsFunc(live.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == fieldManager && f.Operation == metav1.ManagedFieldsOperationApply
	})
}

// withAdoptionOf returns a copy of the desired object. If the manager has adopted the live object, the copy has the
// annotation with which the manager applies an adopted object.
func withAdoptionOf(live, want *unstructured.Unstructured) *unstructured.Unstructured {
	would := want.DeepCopy()
	adopted, is := live.GetAnnotations()[apply.AnnotationAdopted]
	if !is {
		return would
	}
	annotations := would.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[apply.AnnotationAdopted] = adopted
	would.SetAnnotations(annotations)
	return would
}

// changedFields returns the fields in which two states of an object differ. changedFields leaves out the fields that
// the API server maintains.
func changedFields(before, after *unstructured.Unstructured, ignored []string) []FieldChange {
	was, is := map[string]any{}, map[string]any{}
	for o, into := range map[*unstructured.Unstructured]map[string]any{before: was, after: is} {
		content := o.DeepCopy().Object
		delete(content, "status")
		if metadata, ok := content["metadata"].(map[string]any); ok {
			for _, own := range []string{"managedFields", "resourceVersion", "generation", "uid",
				"creationTimestamp", "selfLink"} {
				delete(metadata, own)
			}
		}
		flatten("", content, into)
	}
	secret := before.GetKind() == "Secret" && before.GroupVersionKind().Group == ""
	var changes []FieldChange
	for _, path := range slices.Sorted(maps.Keys(mergedKeys(was, is))) {
		if reflect.DeepEqual(was[path], is[path]) || slices.Contains(ignored, path) {
			continue
		}
		c := FieldChange{path, jsonText(was, path), jsonText(is, path)}
		if secret && strings.HasPrefix(path, "data") {
			c.Before, c.After = redact(c.Before), redact(c.After)
		}
		changes = append(changes, c)
	}
	return changes
}

func mergedKeys(a, b map[string]any) map[string]any {
	all := map[string]any{}
	for _, m := range []map[string]any{a, b} {
		for k := range m {
			all[k] = nil
		}
	}
	return all
}

func jsonText(flattened map[string]any, path string) string {
	v, ok := flattened[path]
	if !ok {
		return ""
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

func redact(value string) string {
	if value == "" {
		return ""
	}
	return "(secret)"
}

// flatten adds each value in a tree of JSON values to the map "into", under the path of the value in the tree. If all
// items of a list have the field "name", a path in the list contains the name of the item instead of its index.
func flatten(path string, value any, into map[string]any) {
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 && path != "" {
			into[path] = v
		}
		for key, inner := range v {
			if strings.ContainsAny(key, ".[]") {
				key = "[" + key + "]"
			} else if path != "" {
				key = "." + key
			}
			flatten(path+key, inner, into)
		}
	case []any:
		if len(v) == 0 {
			into[path] = v
		}
		for i, item := range v {
			key := fmt.Sprint(i)
			if m, ok := item.(map[string]any); ok {
				if name, ok := m["name"].(string); ok {
					key = "name=" + name
				}
			}
			flatten(path+"["+key+"]", item, into)
		}
	default:
		into[path] = v
	}
}
