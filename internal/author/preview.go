package author

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// What would happen to an object.
const (
	ChangeCreate = "create"
	ChangeUpdate = "change"
	ChangeDelete = "delete"
	ChangeRefuse = "refuse" // the API server would not take it
)

// Change is what an installation would do to one object.
type Change struct {
	// Action is one of the constants above.
	Action string `json:"action"`
	// Object as people name it.
	Object string `json:"object"`
	// Fields that change.
	Fields []FieldChange `json:"fields,omitempty"`
	// Message says why the API server refuses.
	Message string `json:"message,omitempty"`
}

// FieldChange is one field with both values as JSON; "" for one that is not there. Values of Secrets are not told.
type FieldChange struct {
	Path   string `json:"path"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Preview asks the API server of a runtime what installing a module there would change, object by object: a dry run of the server-side apply
// that the manager does. Nothing is written. name is that of the Manifest; installed, which may be nil, is the one that is there. The number
// is that of objects that stay as they are.
//
// What exists only after the installation cannot be asked: objects of new kinds and in new namespaces count as created.
func Preview(ctx context.Context, config *rest.Config, m *Module, installed *v1beta2.Manifest, name client.ObjectKey) (changes []Change, same int, err error) {
	runtime, err := client.New(config, client.Options{})
	if err != nil {
		return nil, 0, fmt.Errorf("connecting to the runtime: %w", err)
	}
	p := preview{Client: runtime}
	options, overlay, err := p.options(ctx, m, installed, name)
	if err != nil {
		return nil, 0, err
	}
	bundle, err := render.Build(m.Objects, options)
	if err != nil {
		return nil, 0, err
	}
	var refs []apply.Ref
	for _, o := range bundle.Objects {
		ref := apply.Ref{Group: o.GVK.Group, Version: o.GVK.Version, Kind: o.GVK.Kind, Name: o.Name}
		mapping, err := runtime.RESTMapper().RESTMapping(o.GVK.GroupKind(), o.GVK.Version)
		namespaced := err == nil && mapping.Scope.Name() == meta.RESTScopeNameNamespace
		if meta.IsNoMatchError(err) {
			namespaced = o.Namespace != "" // its definition comes with the module
		} else if err != nil {
			return nil, 0, fmt.Errorf("asking which kinds the runtime serves: %w", err)
		}
		if namespaced {
			if ref.Namespace = o.Namespace; ref.Namespace == "" {
				ref.Namespace = v1beta2.RuntimeNamespace
			}
		}
		refs = append(refs, ref)
		want := &unstructured.Unstructured{}
		if err := want.UnmarshalJSON(o.AppendJSON(nil, ref.Namespace, overlay)); err != nil {
			return nil, 0, fmt.Errorf("encoding %s: %w", ref, err)
		}
		c, err := p.object(ctx, ref, want, mapping != nil)
		if err != nil {
			return nil, 0, err
		}
		if c == nil {
			same++
			continue
		}
		changes = append(changes, *c)
	}
	if installed != nil {
		for _, r := range apply.Removed(recorded(installed), refs) {
			if !r.Keep {
				changes = append(changes, Change{Action: ChangeDelete, Object: r.String()})
			}
		}
	}
	return changes, same, nil
}

// recorded is the inventory of a Manifest.
func recorded(m *v1beta2.Manifest) []apply.Ref {
	var refs []apply.Ref
	for _, r := range m.Status.Synced {
		refs = append(refs, apply.Ref{Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Keep: r.Keep})
	}
	return refs
}

type preview struct{ client.Client }

// options are those with which the manager renders. A script test holds the two together: the preview of what is installed is empty.
func (p preview) options(ctx context.Context, m *Module, installed *v1beta2.Manifest, name client.ObjectKey) (render.Options, render.Overlay, error) {
	o := render.Options{
		Labels:      map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByKyma, v1beta2.LabelAppPartOf: v1beta2.PartOfKyma},
		Annotations: map[string]string{v1beta2.AnnotationDisclaimer: v1beta2.Disclaimer},
		Images:      m.Images,
	}
	if installed != nil && installed.Spec.Manager != nil {
		w := installed.Spec.Manager
		o.Manager = &render.Manager{Group: w.Group, Version: w.Version, Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}
		secret, err := p.pullSecret(ctx, w)
		if err != nil {
			return o, render.Overlay{}, err
		}
		o.PullSecret = secret
	}
	return o, render.Overlay{
		Labels:      map[string]string{v1beta2.LabelAppComponent: name.Name},
		Annotations: map[string]string{v1beta2.AnnotationOwnedBy: name.Namespace + "/" + name.Name},
	}, nil
}

// pullSecret returns the pull secret that the manager was told to use, which is seen in the workload that it was given to.
func (p preview) pullSecret(ctx context.Context, w *v1beta2.Manager) (string, error) {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(strings.TrimPrefix(w.Group+"/"+w.Version, "/"))
	o.SetKind(w.Kind)
	err := p.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: w.Name}, o)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading the manager of the module: %w", err)
	}
	for _, c := range containersOf(o) {
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

// object asks what would become of one object; nil if nothing would.
func (p preview) object(ctx context.Context, ref apply.Ref, want *unstructured.Unstructured, served bool) (*Change, error) {
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
	would := want.DeepCopy()
	err = p.Apply(ctx, client.ApplyConfigurationFromUnstructured(would), client.FieldOwner(v1beta2.FieldOwnerApplier), client.ForceOwnership, client.DryRunAll)
	switch {
	case err != nil && !exists && apierrors.IsNotFound(err): // its namespace comes with the module
		return create, nil
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return &Change{Action: ChangeRefuse, Object: ref.String(), Message: err.Error()}, nil
	case err != nil:
		return nil, fmt.Errorf("asking for a dry run of %s: %w", ref, err)
	case !exists:
		return create, nil
	}
	fields := difference(live, would, strings.Split(want.GetAnnotations()[apply.AnnotationIgnorePaths], ","))
	if len(fields) == 0 {
		return nil, nil
	}
	return &Change{Action: ChangeUpdate, Object: ref.String(), Fields: fields}, nil
}

// difference lists the fields in which two states of an object differ, but for what an API server keeps for itself.
func difference(before, after *unstructured.Unstructured, ignored []string) []FieldChange {
	was, is := map[string]any{}, map[string]any{}
	for o, into := range map[*unstructured.Unstructured]map[string]any{before: was, after: is} {
		content := o.DeepCopy().Object
		delete(content, "status")
		if metadata, ok := content["metadata"].(map[string]any); ok {
			for _, own := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"} {
				delete(metadata, own)
			}
		}
		flatten("", content, into)
	}
	secret := before.GetKind() == "Secret" && before.GroupVersionKind().Group == ""
	var changes []FieldChange
	for _, path := range sortedKeys(union(was, is)) {
		if reflect.DeepEqual(was[path], is[path]) || slices.Contains(ignored, path) {
			continue
		}
		c := FieldChange{path, text(was, path), text(is, path)}
		if secret && strings.HasPrefix(path, "data") {
			c.Before, c.After = hide(c.Before), hide(c.After)
		}
		changes = append(changes, c)
	}
	return changes
}

func union(a, b map[string]any) map[string]any {
	all := map[string]any{}
	for _, m := range []map[string]any{a, b} {
		for k := range m {
			all[k] = nil
		}
	}
	return all
}

func text(of map[string]any, path string) string {
	v, ok := of[path]
	if !ok {
		return ""
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

func hide(value string) string {
	if value == "" {
		return ""
	}
	return "(secret)"
}

// flatten lists all values of a tree by their paths. Items of lists are named by their name, if they all have one.
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
