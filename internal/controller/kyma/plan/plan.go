// Package plan decides which modules a runtime has, which Manifests they should have, and what the status of the Kyma
// shows of them.
//
// # Use
//
//	modules := plan.Resolve(plan.Inputs{…})
//	want := plan.DesiredManifest(kyma, &modules[0], artefact)
//	changed := plan.WithDesired(modules[0].Manifest, want)        // nil if nothing has to be changed
//	entries := plan.Entries(modules, now)
//
// # How it works
//
// Every function is pure: its result depends only on its arguments. It makes no request, takes no lock, reads no clock
// and counts nothing.
//
// # What it does not do
//
// It does not choose the version of a module: package channel does. It writes nothing.
package plan

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// Module is one module of a Kyma in one reconcile.
type Module struct {
	Spec v1beta2.Module // as requested
	// by the Kyma in the runtime, or as a mandatory module; otherwise its Manifest is to be deleted
	IsRequested bool
	IsMandatory bool                  // the control plane requests it, or did
	Decision    channel.Decision      // the version that it should have, or why not
	Manifest    *v1beta2.Manifest     // replaced by install; nil if there is none
	Former      *v1beta2.ModuleStatus // its entry in the status before this reconcile, nil if there was none
	Err         error                 // set by install: why the Manifest could not be created or updated
}

// Pause returns the blocker of a paused module, nil if the module is not paused.
func (m *Module) Pause() *channel.Blocker {
	switch b := m.Decision.Blocker; {
	case b == nil:
		return nil
	case b.Code == v1beta2.ReasonKymaPaused || b.Code == v1beta2.ReasonModulePaused:
		return b
	}
	return nil
}

// Inputs are all that determines which modules a runtime has and which versions they should have.
type Inputs struct {
	Kyma      *v1beta2.Kyma                // in the control plane
	Remote    *v1beta2.Kyma                // in the runtime, with the requested modules
	Manifests map[string]*v1beta2.Manifest // of the Kyma, by name
	Catalog   channel.Catalog
	Now       time.Time
}

// Resolve returns the requested modules in the order of spec, then the modules that are to be removed, then the
// mandatory ones.
func Resolve(in Inputs) []Module {
	assigned := map[*v1beta2.Manifest]bool{}
	decide := func(m Module, r channel.Request) Module {
		if m.Manifest != nil {
			assigned[m.Manifest] = true
		}
		r.Installed, r.ManifestVersion, r.Now = InstalledVersion(m.Manifest), RequestedVersion(m.Manifest), in.Now
		m.IsRequested, m.Decision = true, channel.Resolve(in.Catalog, r)
		return m
	}
	// A module that becomes mandatory, or no longer is, keeps its Manifest: therefore mandatory modules are assigned
	// their Manifests first.
	var mandatory []Module
	isMandatory := map[string]bool{}
	for _, r := range channel.MandatoryRequests(in.Catalog, in.Kyma) {
		isMandatory[r.Module] = true
		m := Module{Spec: v1beta2.Module{Name: r.Module}, IsMandatory: true,
			Manifest: manifestOf(in.Manifests, r.Module, true)}
		mandatory = append(mandatory, decide(m, r))
	}
	var all []Module
	isRequested := map[string]bool{}
	for _, spec := range in.Remote.Spec.Modules {
		isRequested[spec.Name] = true
		m := Module{Spec: spec, Former: formerEntry(in.Kyma, spec.Name),
			Manifest: manifestOf(in.Manifests, spec.Name, false)}
		if m.Manifest != nil && assigned[m.Manifest] {
			m.Manifest = nil
		}
		all = append(all, decide(m, channel.RequestFor(in.Kyma, in.Remote, &spec)))
	}
	for _, name := range slices.Sorted(maps.Keys(in.Manifests)) {
		m := in.Manifests[name]
		of := m.ModuleName()
		if assigned[m] || !IsOurs(m) || (isRequested[of] || isMandatory[of]) && !m.IsMandatory() {
			continue
		}
		all = append(all, ToRemove(in.Kyma, m))
	}
	return append(all, mandatory...)
}

// ToRemove returns the module of a Manifest that is deleted or will be.
func ToRemove(k *v1beta2.Kyma, m *v1beta2.Manifest) Module {
	of := m.ModuleName()
	return Module{Spec: v1beta2.Module{Name: of}, IsMandatory: m.IsMandatory(), Manifest: m, Former: formerEntry(k, of)}
}

// IsOurs reports whether a Manifest was created for a Kyma by this controller. One that a user has created stays until
// the user deletes it.
func IsOurs(m *v1beta2.Manifest) bool {
	return metav1.GetControllerOf(m) != nil || m.Labels[v1beta2.LabelManagedBy] == v1beta2.ManagedByLifecycleManager
}

// manifestOf returns the Manifest of a module, nil if there is none. Of several it prefers one that is not being
// deleted, then one that is mandatory like the module, or not.
func manifestOf(manifests map[string]*v1beta2.Manifest, module string, mandatory bool) *v1beta2.Manifest {
	var found *v1beta2.Manifest
	best := -1
	for _, name := range slices.Sorted(maps.Keys(manifests)) {
		m := manifests[name]
		if m.ModuleName() != module {
			continue
		}
		rank := 0
		if m.DeletionTimestamp.IsZero() {
			rank += 2
		}
		if m.IsMandatory() == mandatory {
			rank++
		}
		if rank > best {
			found, best = m, rank
		}
	}
	return found
}

// InstalledVersion returns the version of a module that is installed in the runtime, "" if none. The version that
// somebody else has written into the spec of the Manifest does not count, even if the controller of Manifests has
// copied it into the status.
func InstalledVersion(m *v1beta2.Manifest) string {
	if m == nil || !m.DeletionTimestamp.IsZero() {
		return ""
	}
	if v := m.Status.Version; v != "" && v != m.Spec.Version {
		return v
	}
	return RequestedVersion(m)
}

// RequestedVersion returns the version that this controller has written into a Manifest, "" if there is no Manifest or
// it is being deleted.
func RequestedVersion(m *v1beta2.Manifest) string {
	if m == nil || !m.DeletionTimestamp.IsZero() {
		return ""
	}
	return cmp.Or(m.Annotations[v1beta2.AnnotationRequestedVersion], m.Spec.Version)
}

// manifestName returns the name of the Manifest of a module. An existing Manifest keeps its name: the module may have
// another component now, which the name of a new Manifest is made of, but the objects in the runtime still belong to
// the same module.
func manifestName(k *v1beta2.Kyma, m *Module) string {
	if m.Manifest != nil && IsOurs(m.Manifest) {
		return m.Manifest.Name
	}
	return v1beta2.ManifestName(k.Name, m.Decision.Component, m.Spec.Name)
}

// DesiredManifest returns the Manifest that a module with a decision should have.
func DesiredManifest(k *v1beta2.Kyma, m *Module, a Artefact) *v1beta2.Manifest {
	t := m.Decision.Template
	name := manifestName(k, m)
	want := &v1beta2.Manifest{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: k.Namespace,
			Labels: map[string]string{
				v1beta2.LabelKymaName:   k.Name,
				v1beta2.LabelModuleName: m.Spec.Name,
				v1beta2.LabelManagedBy:  v1beta2.ManagedByLifecycleManager,
			},
			Annotations: map[string]string{
				v1beta2.AnnotationFQDN:             m.Decision.Component,
				v1beta2.AnnotationOCMComponentName: m.Decision.Component,
				v1beta2.AnnotationRequestedVersion: m.Decision.Version,
			},
			Finalizers: []string{v1beta2.FinalizerManifest, v1beta2.FinalizerLabelRemoval},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(
				k, v1beta2.GroupVersion.WithKind("Kyma"))},
		},
		Spec: v1beta2.ManifestSpec{
			Version:              m.Decision.Version,
			CustomResourcePolicy: m.Spec.CustomResourcePolicy,
			Config:               a.Config,
			CRDs:                 a.CRDs,
			Install:              a.Install,
			Installs:             a.Installs,
			LocalizedImages:      a.Images,
			Manager:              t.Spec.Manager.DeepCopy(),
			CustomStateCheck:     slices.Clone(t.Spec.CustomStateCheck),
			StateExpression:      t.Spec.StateExpression,
		},
	}
	if m.Decision.Channel != "" {
		want.Labels[v1beta2.LabelChannel] = m.Decision.Channel
	}
	if m.IsMandatory {
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

// ourLabels and ourAnnotations are removed from a Manifest that should not have them. Labels and annotations of others
// stay.
var (
	ourLabels      = []string{v1beta2.LabelChannel, v1beta2.LabelMandatoryModule}
	ourAnnotations = []string{v1beta2.AnnotationPaused}
)

// WithDesired returns a copy of a Manifest with the desired labels, annotations and spec, nil if it has them already.
// Finalizers belong to the controller of Manifests.
func WithDesired(is, want *v1beta2.Manifest) *v1beta2.Manifest {
	labels, annotations := withOurs(is.Labels, ourLabels, want.Labels),
		withOurs(is.Annotations, ourAnnotations, want.Annotations)
	if maps.Equal(is.Labels, labels) && maps.Equal(is.Annotations, annotations) && SameSpec(&is.Spec, &want.Spec) {
		return nil
	}
	updated := is.DeepCopy()
	updated.Labels, updated.Annotations, updated.Spec = labels, annotations, want.Spec
	return updated
}

// withOurs returns a copy of all labels or annotations, in which our keys have the desired values, or none.
func withOurs(all map[string]string, ours []string, want map[string]string) map[string]string {
	out := make(map[string]string, len(all)+len(want))
	maps.Copy(out, all)
	for _, key := range ours {
		delete(out, key)
	}
	maps.Copy(out, want)
	return out
}

// SameSpec reports whether two specs have the same meaning: raw JSON is compared by content, not by the order of its
// keys. A spec that cannot be encoded differs from every other.
func SameSpec(a, b *v1beta2.ManifestSpec) bool {
	decode := func(s *v1beta2.ManifestSpec) (v any, err error) {
		data, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		return v, json.Unmarshal(data, &v)
	}
	if loop.Equal(a, b) {
		return true
	}
	x, err := decode(a)
	if err != nil {
		return false
	}
	y, err := decode(b)
	return err == nil && loop.Equal(x, y)
}

// formerEntry returns a copy of the entry of a module in the status, nil if there is none.
func formerEntry(k *v1beta2.Kyma, module string) *v1beta2.ModuleStatus {
	for i := range k.Status.Modules {
		if k.Status.Modules[i].Name == module {
			return k.Status.Modules[i].DeepCopy()
		}
	}
	return nil
}
