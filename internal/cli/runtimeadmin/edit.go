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

// wish is spec.modules of a Kyma on its way to be changed: as it came, so that fields that this program does not know stay.
type wish struct {
	kyma    *v1beta2.Kyma
	modules []any
}

// entry returns the entry of a module, nil if there is none. What is changed in it is changed in the wish.
func (w *wish) entry(module string) map[string]any {
	for _, m := range w.modules {
		if entry, ok := m.(map[string]any); ok && entry["name"] == module {
			return entry
		}
	}
	return nil
}

// add returns the entry of a module, which is made if there is none.
func (w *wish) add(module string) map[string]any {
	if entry := w.entry(module); entry != nil {
		return entry
	}
	entry := map[string]any{"name": module}
	w.modules = append(w.modules, entry)
	return entry
}

func (w *wish) remove(module string) {
	w.modules = slices.DeleteFunc(w.modules, func(m any) bool {
		entry, ok := m.(map[string]any)
		return ok && entry["name"] == module
	})
}

// module returns an entry as its type.
func (w *wish) module(name string) *v1beta2.Module {
	m := &v1beta2.Module{}
	if entry := w.entry(name); entry == nil || runtime.DefaultUnstructuredConverter.FromUnstructured(entry, m) != nil {
		return nil
	}
	return m
}

// editModules changes spec.modules of the Kyma of a runtime. change checks and changes what it is given; if somebody else has changed the Kyma in the
// meantime, it is asked again. It returns the Kyma as it is then.
func editModules(ctx context.Context, c *connection.Cluster, change func(*wish) error) (*v1beta2.Kyma, error) {
	doing := "changing Kyma " + c.OwnKyma
	key := client.ObjectKey{Namespace: c.Namespace, Name: c.OwnKyma}
	for try := 1; ; try++ {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(v1beta2.GroupVersion.WithKind("Kyma"))
		if err := c.Get(ctx, key, u); err != nil {
			if apierrors.IsNotFound(err) {
				_, err = c.Kyma(ctx, c.OwnKyma) // has the words for it
			}
			return nil, c.Explain(err, "reading Kyma "+c.OwnKyma)
		}
		before, err := json.Marshal(u.Object["spec"])
		if err != nil {
			return nil, fmt.Errorf("encoding Kyma %s: %w", c.OwnKyma, err)
		}
		w := &wish{kyma: &v1beta2.Kyma{}}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, w.kyma); err != nil {
			return nil, console.Fail(console.ExitFailed, "%s: it cannot be understood: %v", doing, err)
		}
		w.modules, _, _ = unstructured.NestedSlice(u.Object, "spec", "modules")
		if w.modules == nil {
			w.modules = []any{}
		}
		if err := change(w); err != nil {
			return nil, err
		}
		patch, same, err := wishPatch(before, u.GetResourceVersion(), w.modules)
		if err != nil || same {
			return w.kyma, err
		}
		err = c.Patch(ctx, u, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(connection.FieldOwner), client.FieldValidation("Strict"))
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

// wishPatch returns the patch that writes the modules if the Kyma still has that version, or that there is nothing to change.
func wishPatch(before []byte, version string, modules []any) (patch []byte, same bool, err error) {
	var spec struct {
		Modules []any `json:"modules"`
	}
	if err := json.Unmarshal(before, &spec); err != nil {
		return nil, false, fmt.Errorf("reading the spec of the Kyma: %w", err)
	}
	was, err := json.Marshal(append([]any{}, spec.Modules...))
	if err != nil {
		return nil, false, fmt.Errorf("encoding the modules: %w", err)
	}
	is, err := json.Marshal(modules)
	if err != nil {
		return nil, false, fmt.Errorf("encoding the modules: %w", err)
	}
	if string(was) == string(is) {
		return nil, true, nil
	}
	patch, err = json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": version}, "spec": map[string]any{"modules": modules}})
	return patch, false, err
}

// checkCatalog fails if the catalog does not have what is asked for, and says what it has. It returns the version that will come.
func checkCatalog(c *connection.Cluster, s *connection.Catalog, w *wish, module string, now time.Time) (string, error) {
	if err := s.RequireModule(module, c); err != nil {
		return "", err
	}
	m := w.module(module)
	f := diagnosis.Facts{Cluster: c, Kyma: w.kyma, Now: now}
	version := ""
	if e := w.kyma.ModuleStatus(module); e != nil {
		version = e.Version
	}
	d := channel.Resolve(s.ForResolve(), f.Request(w.kyma, m, version))
	if d.Blocker == nil || isPause(d.Blocker.Code) {
		return d.Version, nil
	}
	switch d.Blocker.Code {
	case v1beta2.ReasonChannelNotFound:
		asked := f.Request(w.kyma, m, version).Channel
		return "", console.Fail(console.ExitNotFound, "module %s has no channel %q: %s", module, asked, console.Suggest(asked, s.ChannelsOf(module)))
	case v1beta2.ReasonVersionNotFound:
		var all []string
		for _, t := range s.TemplatesOf(module) {
			all = append(all, connection.VersionOf(t))
		}
		return "", console.Fail(console.ExitNotFound, "the catalog here has no version %s of module %s: %s; --force asks for it all the same", m.Version, module, console.Suggest(m.Version, all))
	}
	return "", console.Fail(console.ExitNotReady, "%s: %s", d.Blocker.Code, d.Blocker.Message)
}

func isPause(code string) bool {
	return code == v1beta2.ReasonKymaPaused || code == v1beta2.ReasonModulePaused
}
