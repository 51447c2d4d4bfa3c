package kyma

import (
	"cmp"
	"encoding/json"
	"iter"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// installedVersion returns the version that a runtime has of a module, "" if none. A version that somebody has written into the Manifest
// is not what is installed, even if its controller has taken it at its word.
func installedVersion(m *v1beta2.Manifest) string {
	if m == nil || !m.DeletionTimestamp.IsZero() {
		return ""
	}
	if v := m.Status.Version; v != "" && v != m.Spec.Version {
		return v
	}
	return orderedVersion(m)
}

// orderedVersion returns the version that was asked for in a Manifest, "" if there is none or it is leaving.
func orderedVersion(m *v1beta2.Manifest) string {
	if m == nil || !m.DeletionTimestamp.IsZero() {
		return ""
	}
	return cmp.Or(m.Annotations[v1beta2.AnnotationRequestedVersion], m.Spec.Version)
}

// manifestName returns the name of the Manifest of a decided module. One that there is keeps its name: the module may have another
// component by now, of which the name is made, but all that is in the runtime is still the same module's.
func manifestName(k *v1beta2.Kyma, m *module) string {
	if m.manifest != nil && isOurs(m.manifest) {
		return m.manifest.Name
	}
	return v1beta2.ManifestName(k.Name, m.decision.Component, m.wish.Name)
}

// desiredManifest returns the Manifest that a decided module should have.
func desiredManifest(k *v1beta2.Kyma, m *module, a artefact) *v1beta2.Manifest {
	t := m.decision.Template
	name := manifestName(k, m)
	want := &v1beta2.Manifest{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: k.Namespace,
			Labels: map[string]string{
				v1beta2.LabelKymaName:   k.Name,
				v1beta2.LabelModuleName: m.wish.Name,
				v1beta2.LabelManagedBy:  v1beta2.ManagedByLifecycleManager,
			},
			Annotations: map[string]string{
				v1beta2.AnnotationFQDN:             m.decision.Component,
				v1beta2.AnnotationOCMComponentName: m.decision.Component,
				v1beta2.AnnotationRequestedVersion: m.decision.Version,
			},
			Finalizers:      []string{v1beta2.FinalizerManifest, v1beta2.FinalizerLabelRemoval},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(k, v1beta2.GroupVersion.WithKind("Kyma"))},
		},
		Spec: v1beta2.ManifestSpec{
			Version:              m.decision.Version,
			CustomResourcePolicy: m.wish.CustomResourcePolicy,
			Config:               a.config,
			CRDs:                 a.crds,
			Install:              a.install,
			Installs:             a.installs,
			LocalizedImages:      a.images,
			Manager:              t.Spec.Manager.DeepCopy(),
			CustomStateCheck:     slices.Clone(t.Spec.CustomStateCheck),
			StateExpression:      t.Spec.StateExpression,
		},
	}
	if m.decision.Channel != "" {
		want.Labels[v1beta2.LabelChannel] = m.decision.Channel
	}
	if m.mandatory {
		want.Labels[v1beta2.LabelMandatoryModule] = v1beta2.ValueTrue
	}
	if value, annotated := t.Annotations[v1beta2.AnnotationCustomStateCheck]; annotated {
		want.Annotations[v1beta2.AnnotationCustomStateCheck] = value
	}
	if value, labelled := t.Labels[v1beta2.LabelControllerName]; labelled {
		want.Labels[v1beta2.LabelControllerName] = value
	}
	if want.Spec.CustomResourcePolicy == "" {
		want.Spec.CustomResourcePolicy = v1beta2.CreateAndDelete
	}
	if t.Spec.Data != nil {
		cr := t.Spec.Data.DeepCopy()
		if cr.GetName() == "" {
			cr.SetName(name)
		}
		if cr.GetNamespace() == "" {
			cr.SetNamespace(v1beta2.RuntimeNamespace)
		}
		want.Spec.Resource = cr
	}
	return want
}

// ourLabels and ourAnnotations on a Manifest go when they are no longer wanted. All others that somebody put there stay.
var (
	ourLabels      = []string{v1beta2.LabelChannel, v1beta2.LabelMandatoryModule}
	ourAnnotations = []string{v1beta2.AnnotationPaused}
)

// withDesired returns a copy of a Manifest that says what it should, nil if it does already. Finalizers are the Manifest controller's.
func withDesired(is, want *v1beta2.Manifest) *v1beta2.Manifest {
	labels, annotations := withOurs(is.Labels, ourLabels, want.Labels), withOurs(is.Annotations, ourAnnotations, want.Annotations)
	if maps.Equal(is.Labels, labels) && maps.Equal(is.Annotations, annotations) && sameSpec(&is.Spec, &want.Spec) {
		return nil
	}
	updated := is.DeepCopy()
	updated.Labels, updated.Annotations, updated.Spec = labels, annotations, want.Spec
	return updated
}

// withOurs returns a copy of all, in which those with our keys are what we want.
func withOurs(all map[string]string, ours []string, want map[string]string) map[string]string {
	out := make(map[string]string, len(all)+len(want))
	maps.Copy(out, all)
	for _, key := range ours {
		delete(out, key)
	}
	maps.Copy(out, want)
	return out
}

// sameSpec compares two specs by what they mean: raw JSON by content, not by the order of its keys.
func sameSpec(a, b *v1beta2.ManifestSpec) bool {
	decode := func(s *v1beta2.ManifestSpec) (v any) {
		data, err := json.Marshal(s)
		if err != nil || json.Unmarshal(data, &v) != nil {
			return nil
		}
		return v
	}
	return loop.Equal(a, b) || loop.Equal(decode(a), decode(b))
}

func formerEntry(k *v1beta2.Kyma, module string) *v1beta2.ModuleStatus {
	for i := range k.Status.Modules {
		if k.Status.Modules[i].Name == module {
			return k.Status.Modules[i].DeepCopy()
		}
	}
	return nil
}

func mapKeys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }
