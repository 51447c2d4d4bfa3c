package runtimeadmin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
)

// edit is a change of the modules that a Kyma requests, which klm has not written yet. An edit contains spec.modules of
// the Kyma, and annotations. An annotation with the value nil is removed. The modules are unstructured, so that fields
// that this version of klm does not know are kept.
type edit struct {
	kyma        *v1beta2.Kyma
	modules     []any
	annotations map[string]any // nil removes an annotation
}

// setListed adds a module to, or removes a module from, the list of modules in an annotation of the Kyma.
func (w *edit) setListed(annotation, module string, isListed bool) {
	if !setListedModule(w.kyma, annotation, module, isListed) {
		return
	}
	if w.annotations == nil {
		w.annotations = map[string]any{}
	}
	if w.annotations[annotation] = nil; w.kyma.Annotations[annotation] != "" {
		w.annotations[annotation] = w.kyma.Annotations[annotation]
	}
}

// entryOf returns the entry of a module in spec.modules, or nil if there is no such entry. The returned map is not a
// copy: a change of the map changes spec.modules.
func (w *edit) entryOf(module string) map[string]any {
	for _, m := range w.modules {
		if entry, ok := m.(map[string]any); ok && entry["name"] == module {
			return entry
		}
	}
	return nil
}

// ensureEntry returns the entry of a module in spec.modules. If spec.modules has no entry of the module, ensureEntry
// adds one.
func (w *edit) ensureEntry(module string) map[string]any {
	if entry := w.entryOf(module); entry != nil {
		return entry
	}
	entry := map[string]any{"name": module}
	w.modules = append(w.modules, entry)
	return entry
}

// remove deletes the entry of a module from spec.modules.
func (w *edit) remove(module string) {
	w.modules = slices.DeleteFunc(w.modules, func(m any) bool {
		entry, ok := m.(map[string]any)
		return ok && entry["name"] == module
	})
}

// typedEntryOf returns the typed entry of a module, or nil if there is no such entry.
func (w *edit) typedEntryOf(name string) *v1beta2.Module {
	m := &v1beta2.Module{}
	if entry := w.entryOf(name); entry == nil || runtime.DefaultUnstructuredConverter.FromUnstructured(entry,
		m) != nil {
		return nil
	}
	return m
}

// editModules changes spec.modules of the Kyma of a runtime and returns the changed Kyma. The function change makes the
// change, or returns an error if the change is not allowed. If another client has changed the Kyma in the meantime,
// editModules reads the Kyma and calls the function change again. If the parameter dryRun is true, the API server only
// validates the change.
func editModules(ctx context.Context, c *connection.Cluster, dryRun bool, change func(*edit) error) (
	*v1beta2.Kyma, error) {
	doing := "changing Kyma " + c.OwnKyma
	key := client.ObjectKey{Namespace: c.Namespace, Name: c.OwnKyma}
	for try := 1; ; try++ {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(v1beta2.GroupVersion.WithKind("Kyma"))
		if err := c.Get(ctx, key, u); err != nil {
			if apierrors.IsNotFound(err) {
				_, err = c.Kyma(ctx, c.OwnKyma) // Kyma returns a better error
			}
			return nil, c.Explain(err, "reading Kyma "+c.OwnKyma)
		}
		before, err := json.Marshal(u.Object["spec"])
		if err != nil {
			return nil, fmt.Errorf("encoding Kyma %s: %w", c.OwnKyma, err)
		}
		w := &edit{kyma: &v1beta2.Kyma{}}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, w.kyma); err != nil {
			return nil, console.Fail(console.ExitFailed, "%s: it cannot be decoded: %v", doing, err)
		}
		w.modules, _, _ = unstructured.NestedSlice(u.Object, "spec", "modules")
		if w.modules == nil {
			w.modules = []any{}
		}
		if err := change(w); err != nil {
			return nil, err
		}
		patch, same, err := w.newPatch(before, u.GetResourceVersion())
		if err != nil || same {
			return w.kyma, err
		}
		options := []client.PatchOption{client.FieldOwner(connection.FieldOwner), client.FieldValidation("Strict")}
		if dryRun {
			options = append(options, client.DryRunAll)
		}
		err = c.Patch(ctx, u, client.RawPatch(types.MergePatchType, patch), options...)
		const tries = 5
		if apierrors.IsConflict(err) && try < tries {
			continue
		}
		if err != nil {
			return nil, c.Explain(err, doing)
		}
		after := &v1beta2.Kyma{}
		return after, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, after)
	}
}

// newPatch returns a patch that writes the modules and annotations. The patch contains the resource version, so the
// patch fails if the Kyma has changed. The second result, same, is true if the patch would change nothing.
func (w *edit) newPatch(specBefore []byte, resourceVersion string) (patch []byte, same bool, err error) {
	var spec struct {
		Modules []any `json:"modules"`
	}
	if err := json.Unmarshal(specBefore, &spec); err != nil {
		return nil, false, fmt.Errorf("reading the spec of the Kyma: %w", err)
	}
	was, err := json.Marshal(append([]any{}, spec.Modules...))
	if err != nil {
		return nil, false, fmt.Errorf("encoding the modules: %w", err)
	}
	is, err := json.Marshal(w.modules)
	if err != nil {
		return nil, false, fmt.Errorf("encoding the modules: %w", err)
	}
	if string(was) == string(is) && len(w.annotations) == 0 {
		return nil, true, nil
	}
	metadata := map[string]any{"resourceVersion": resourceVersion}
	if len(w.annotations) > 0 {
		metadata["annotations"] = w.annotations
	}
	patch, err = json.Marshal(map[string]any{"metadata": metadata, "spec": map[string]any{"modules": w.modules}})
	return patch, false, err
}

// resolveVersion returns the version that a module will get. resolveVersion returns an error if the catalog does not
// have the requested version or channel. The error suggests versions or channels of the catalog.
func resolveVersion(c *connection.Cluster, s *connection.Catalog, w *edit, module string, now time.Time) (
	string, error) {
	if err := s.RequireModule(module, c); err != nil {
		return "", err
	}
	m := w.typedEntryOf(module)
	f := diagnosis.Facts{Cluster: c, Kyma: w.kyma, Now: now}
	version := ""
	if e := w.kyma.ModuleStatus(module); e != nil {
		version = e.Version
	}
	d := channel.Resolve(s.ForResolve(), f.Request(w.kyma, m, version))
	if d.Blocker == nil || isPauseCode(d.Blocker.Code) {
		return d.Version, nil
	}
	switch d.Blocker.Code {
	case v1beta2.ReasonChannelNotFound:
		requested := f.Request(w.kyma, m, version).Channel
		return "", console.Fail(console.ExitNotFound, "module %s has no channel %q: %s", module, requested,
			console.SuggestionText(requested, s.ChannelsOf(module)))
	case v1beta2.ReasonVersionNotFound:
		all := s.VersionsOf(module)
		return "", console.Fail(console.ExitNotFound,
			"the catalog of this runtime has no version %s of module %s: %s; --force requests it nevertheless",
			m.Version, module, console.SuggestionText(m.Version, all))
	}
	hint := ""
	if code := d.Blocker.Code; code == v1beta2.ReasonDowngradeRefused || code == v1beta2.ReasonRestoredOlder {
		hint = "; --allow-downgrade does that for this change"
	}
	return "", console.Fail(console.ExitNotReady, "%s: %s%s", d.Blocker.Code, d.Blocker.Message, hint)
}

// isPauseCode reports whether a code means that a Kyma or a module is paused.
func isPauseCode(code string) bool {
	return code == v1beta2.ReasonKymaPaused || code == v1beta2.ReasonModulePaused
}
