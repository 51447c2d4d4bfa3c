package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// plan is what the runtime should have, and what of it has to be seen to in this pass.
type plan struct {
	layer   registry.Layer
	options render.Options // its Digest is the artefact's; "" while only a tag is known
	overlay render.Overlay
	digest  string // of all that decides what the runtime should have

	whole   bool        // everything: this digest was never applied completely
	drifted []apply.Ref // else these: somebody else changed or deleted them
	audit   bool        // and whatever a comparison finds
}

// work tells whether objects have to be applied or compared.
func (p plan) work() bool { return p.whole || p.audit || len(p.drifted) > 0 }

// newPlan reads a Manifest's spec. Errors are the author's: [registry.Error] with InvalidReference.
func newPlan(m *v1beta2.Manifest) (plan, error) {
	source, err := v1beta2.DecodeImageSpec(m.Spec.Install.Source)
	if err != nil {
		return plan{}, fmt.Errorf("reading spec.install.source of Manifest %s: %w", m.Name, err)
	}
	p := plan{
		layer: registry.Layer{Name: m.Spec.Install.Name, Repo: source.Repo, Component: source.Name, Ref: source.Ref, Type: string(source.Type)},
		options: render.Options{
			Labels:      map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByKyma, v1beta2.LabelAppPartOf: v1beta2.PartOfKyma},
			Annotations: map[string]string{v1beta2.AnnotationDisclaimer: v1beta2.Disclaimer},
			Images:      m.Spec.LocalizedImages,
		},
		overlay: render.Overlay{
			Labels:      map[string]string{v1beta2.LabelAppComponent: m.Name},
			Annotations: map[string]string{v1beta2.AnnotationOwnedBy: m.Namespace + "/" + m.Name},
		},
	}
	if mgr := m.Spec.Manager; mgr != nil {
		p.options.Manager = &render.Manager{Group: mgr.Group, Version: mgr.Version, Kind: mgr.Kind, Namespace: mgr.Namespace, Name: mgr.Name}
	}
	if strings.HasPrefix(source.Ref, "sha256:") {
		p.options.Digest = source.Ref
	}
	return p, nil
}

// sum is the digest of all that decides what the runtime should have. It needs nothing but the spec: that is what makes an unchanged
// Manifest cost nothing, also after a restart.
func (p plan) sum(m *v1beta2.Manifest) string {
	h := sha256.New()
	encode := json.NewEncoder(h)
	for _, part := range []any{p.options.BundleDigest(), p.overlay, m.Spec.Version, m.Spec.CustomResourcePolicy, m.Spec.Resource} {
		_ = encode.Encode(part) // strings and JSON values always encode
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// judge turns what is not ready into one answer: a failure of one object outweighs the progress of others.
func judge(waiting []apply.NotReady) observed {
	o := observed{state: v1beta2.StateReady}
	for _, w := range waiting {
		switch {
		case w.Failed && o.state != v1beta2.StateError:
			o = observed{v1beta2.StateError, v1beta2.ReasonWorkloadFailed, w.Message}
		case !w.Failed && o.state == v1beta2.StateReady:
			o = observed{v1beta2.StateProcessing, v1beta2.ReasonWorkloadNotReady, w.Message}
		}
	}
	return o
}

// judgeState maps the state that an operator reports in its custom resource:
//
//	1  Ready        Ready
//	2  Warning      Warning
//	3  Error        Error
//	4  Deleting     Processing: it will come back, or block
//	5  Processing   Processing
//	6  none         Processing, because nobody has looked at it
//	7  any other    Warning, because it breaks the contract of states
func judgeState(ref apply.Ref, cr *unstructured.Unstructured) observed {
	state, _, _ := unstructured.NestedString(cr.Object, "status", "state")
	detail := describe(cr)
	switch v1beta2.State(state) {
	case v1beta2.StateReady:
		return observed{state: v1beta2.StateReady}
	case v1beta2.StateWarning:
		return observed{v1beta2.StateWarning, v1beta2.ReasonCustomResourceNotReady, fmt.Sprintf("%s is in state Warning%s", ref, detail)}
	case v1beta2.StateError:
		return observed{v1beta2.StateError, v1beta2.ReasonCustomResourceNotReady, fmt.Sprintf("%s is in state Error%s", ref, detail)}
	case v1beta2.StateDeleting, v1beta2.StateProcessing:
		return observed{v1beta2.StateProcessing, v1beta2.ReasonCustomResourceNotReady, fmt.Sprintf("%s is in state %s%s", ref, state, detail)}
	case "":
		return observed{v1beta2.StateProcessing, v1beta2.ReasonCustomResourceNotReady, fmt.Sprintf("%s has no state yet: its operator has not looked at it", ref)}
	default:
		return observed{v1beta2.StateWarning, v1beta2.ReasonCustomResourceNotReady, fmt.Sprintf("%s reports the unknown state %q%s", ref, state, detail)}
	}
}

// describe returns what a custom resource says about itself: its first condition that is not True, else its description.
func describe(cr *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(cr.Object, "status", "conditions")
	for _, c := range conditions {
		c, ok := c.(map[string]any)
		if !ok {
			continue
		}
		if message, _ := c["message"].(string); c["status"] != "True" && message != "" {
			return ": " + clip(message)
		}
	}
	if text, _, _ := unstructured.NestedString(cr.Object, "status", "description"); text != "" {
		return ": " + clip(text)
	}
	return ""
}

// clip keeps a message of a runtime, which anybody may have written, short and on one line.
func clip(s string) string {
	const most = 512
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > most {
		s = s[:most] + "…"
	}
	return s
}

// resourceRef identifies the module's custom resource; zero if it has none.
func (n *run) resourceRef() apply.Ref {
	cr := n.manifest.Spec.Resource
	if cr == nil {
		return apply.Ref{}
	}
	gvk := cr.GroupVersionKind()
	return apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: cr.GetNamespace(), Name: cr.GetName()}
}

// refsOf and syncedOf convert between the inventory in the status and the references of the engine.
func refsOf(synced []v1beta2.Resource) []apply.Ref {
	refs := make([]apply.Ref, len(synced))
	for i, s := range synced {
		refs[i] = apply.Ref{Group: s.Group, Version: s.Version, Kind: s.Kind, Namespace: s.Namespace, Name: s.Name, Keep: s.Keep}
	}
	return refs
}

func syncedOf(refs []apply.Ref) []v1beta2.Resource {
	synced := make([]v1beta2.Resource, len(refs))
	for i, r := range refs {
		synced[i] = v1beta2.Resource{Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Keep: r.Keep}
	}
	return synced
}

// bundles keeps what was rendered, shared by all Manifests that want the same. It forgets the oldest when it holds too many bytes.
type bundles struct {
	limit int // bytes

	mu    sync.Mutex
	held  map[string]*render.Bundle // guarded by mu
	order []string                  // guarded by mu; oldest first
	bytes int                       // guarded by mu
}

// maxBundleBytes bounds what bundles holds. A typical operator has 50 to 500 kB.
const maxBundleBytes = 128 << 20

// get returns the bundle with the given digest, made by build if it is not held.
func (b *bundles) get(digest string, build func() (*render.Bundle, error)) (*render.Bundle, error) {
	b.mu.Lock()
	held := b.held[digest]
	b.mu.Unlock()
	if held != nil {
		return held, nil
	}
	bundle, err := build()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if held := b.held[digest]; held != nil {
		return held, nil
	}
	if b.held == nil {
		b.held = map[string]*render.Bundle{}
	}
	b.held[digest] = bundle
	b.order = append(b.order, digest)
	b.bytes += sizeOf(bundle)
	for b.bytes > b.limit && len(b.order) > 1 {
		b.bytes -= sizeOf(b.held[b.order[0]])
		delete(b.held, b.order[0])
		b.order = b.order[1:]
	}
	return bundle, nil
}

func sizeOf(b *render.Bundle) int {
	size := 0
	for _, o := range b.Objects {
		size += o.Size()
	}
	return size
}
