package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// plan is what the runtime should have, and what of it has to be seen to in this pass.
type plan struct {
	parts   []part   // in the order in which they are installed
	config  artefact // the config layer; zero if there is none
	overlay render.Overlay
	digest  string // of all that decides what the runtime should have

	whole   bool        // everything: this digest was never applied completely
	drifted []apply.Ref // else these: somebody else changed or deleted them
	audit   bool        // and whatever a comparison finds
}

// part is what one source brings.
type part struct {
	name        string // of the install
	definitions bool   // the crds layer: of what it holds, only definitions count
	artefact    artefact
	settings    render.Settings // without capabilities
	options     render.Options  // its Digest is that of artefact and settings
}

// work tells whether objects have to be applied or compared.
func (p plan) work() bool { return p.whole || p.audit || len(p.drifted) > 0 }

// newOptions returns what is done to every object of the module, whichever source it comes from.
func newOptions(m *v1beta2.Manifest, pullSecret string) (render.Options, render.Overlay) {
	o := render.Options{
		Labels:      map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByKyma, v1beta2.LabelAppPartOf: v1beta2.PartOfKyma},
		Annotations: map[string]string{v1beta2.AnnotationDisclaimer: v1beta2.Disclaimer},
		Images:      m.Spec.LocalizedImages,
		PullSecret:  pullSecret,
	}
	if mgr := m.Spec.Manager; mgr != nil {
		o.Manager = &render.Manager{Group: mgr.Group, Version: mgr.Version, Kind: mgr.Kind, Namespace: mgr.Namespace, Name: mgr.Name}
	}
	return o, render.Overlay{
		Labels:      map[string]string{v1beta2.LabelAppComponent: m.Name},
		Annotations: map[string]string{v1beta2.AnnotationOwnedBy: m.Namespace + "/" + m.Name},
	}
}

// sum is the digest of all that decides what the runtime should have, but for what charts ask the runtime, which audits take notice
// of. It needs no artefact: that is what makes an unchanged Manifest cost nothing, also after a restart.
func (p plan) sum(m *v1beta2.Manifest) string {
	h := sha256.New()
	encode := json.NewEncoder(h)
	for _, part := range p.parts {
		_ = encode.Encode([]any{part.name, part.options.BundleDigest()}) // strings and JSON values always encode
	}
	for _, part := range []any{p.overlay, m.Spec.Version, m.Spec.CustomResourcePolicy, m.Spec.Resource} {
		_ = encode.Encode(part)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// stateRules says how the state of the module's custom resource is read.
func stateRules(s *v1beta2.ManifestSpec) apply.StateRules {
	rules := apply.StateRules{Expression: s.StateExpression}
	for _, c := range s.CustomStateCheck {
		rules.Rules = append(rules.Rules, apply.StateRule{JSONPath: c.JSONPath, Value: c.Value, State: apply.State(c.MappedState)})
	}
	return rules
}

// stateCounts says whether the state of the module's custom resource counts: the annotation decides, else the flag.
func stateCounts(m *v1beta2.Manifest, flag bool) bool {
	if m.Spec.Resource == nil || m.Spec.CustomResourcePolicy == v1beta2.Ignore {
		return false
	}
	counts, err := strconv.ParseBool(m.Annotations[v1beta2.AnnotationCustomStateCheck])
	if err != nil {
		return flag
	}
	return counts
}

// judgingBy identifies how readiness is judged, as far as the Manifest's generation does not.
func judgingBy(m *v1beta2.Manifest, flag bool) string {
	return fmt.Sprint(stateCounts(m, flag), " ", m.Annotations[v1beta2.AnnotationDrift])
}

// deciding returns the objects whose readiness counts: of the workloads only the manager, if the Manifest names one that is there.
func deciding(refs []apply.Ref, manager *v1beta2.Manager) []apply.Ref {
	if manager == nil {
		return refs
	}
	isManager := func(r apply.Ref) bool {
		return r.Group == manager.Group && r.Kind == manager.Kind && r.Name == manager.Name && (manager.Namespace == "" || r.Namespace == manager.Namespace)
	}
	if !slices.ContainsFunc(refs, isManager) {
		return refs
	}
	return slices.DeleteFunc(slices.Clone(refs), func(r apply.Ref) bool { return isWorkload(r) && !isManager(r) })
}

// isWorkload tells whether an object runs pods, or is one.
func isWorkload(r apply.Ref) bool {
	switch r.Group + "/" + r.Kind {
	case "apps/Deployment", "apps/StatefulSet", "apps/DaemonSet", "apps/ReplicaSet", "batch/Job", "/Pod":
		return true
	}
	return false
}

// definitionsOf returns the definitions of new kinds among refs.
func definitionsOf(refs []apply.Ref) []apply.Ref {
	return slices.DeleteFunc(slices.Clone(refs), func(r apply.Ref) bool { return r.Kind != "CustomResourceDefinition" })
}

// reportsDrift tells whether drift is told and left alone.
func reportsDrift(m *v1beta2.Manifest) bool {
	return m.Annotations[v1beta2.AnnotationDrift] == v1beta2.DriftReport
}

// drift says in one sentence what differs and is left so.
func drift(found []apply.Drifted) string {
	if len(found) == 0 {
		return ""
	}
	const most = 3 // a message is read by people
	var text []string
	for _, d := range found[:min(most, len(found))] {
		text = append(text, d.String())
	}
	if more := len(found) - most; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return clip(strings.Join(text, "; ")) + "; left alone, as annotation " + v1beta2.AnnotationDrift + " says"
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

// judged maps the verdict on the module's custom resource.
func judged(v apply.StateResult) observed {
	if v.State == apply.StateReady {
		return observed{state: v1beta2.StateReady}
	}
	return observed{v1beta2.State(v.State), v1beta2.ReasonCustomResourceNotReady, v.Message}
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
func (n *run) resourceRef() apply.Ref { return resourceRefOf(n.manifest) }

func resourceRefOf(m *v1beta2.Manifest) apply.Ref {
	cr := m.Spec.Resource
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
