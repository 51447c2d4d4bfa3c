// Package plan decides which modules a runtime has, which Manifest each module should have, and which entries the
// modules get in the status of the Kyma.
//
// # Use
//
//	modules := plan.Resolve(plan.Inputs{…})
//	want := plan.DesiredManifest(kyma, &modules[0], artefact)
//	changed := plan.WithDesired(modules[0].Manifest, want)        // nil if nothing has to be changed
//	entries := plan.NonMandatoryEntries(modules, now)
//
// # How it works
//
// Every function is pure: its result depends only on its arguments. The functions of the package make no requests,
// take no locks, read no clock and record no metrics.
//
// # What it does not do
//
// The package does not choose the version of a module: package channel chooses it. The package writes nothing.
package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/evidence"
)

// Module is one module of a Kyma in one reconcile.
type Module struct {
	Spec v1beta2.Module // the module as the Kyma requests it
	// IsRequested is true if the Kyma in the runtime requests the module, or if the module is mandatory. If IsRequested
	// is false, the Manifest has to be deleted.
	IsRequested bool
	IsMandatory bool                  // the control plane requests the module, or requested it before
	Decision    channel.Decision      // the desired version, or the reason why there is none
	Manifest    *v1beta2.Manifest     // nil if there is none; step install replaces it
	Former      *v1beta2.ModuleStatus // the module's status entry before this reconcile; nil if none
	// Upgrade is a higher version that a module gets before its deletion, so that its operator can finish the deletion.
	// Upgrade is set only while the Manifest is being deleted; other modules get a higher version through Decision.
	Upgrade *channel.Decision
	Err     error // set by step install: why the Manifest was not written
	// MayDeleteCustomResources is true if the user allows the deletion of custom resources whose CRD belongs to the
	// module.
	MayDeleteCustomResources bool
}

// PauseBlocker returns the blocker if the module is paused, and nil otherwise.
func (m *Module) PauseBlocker() *channel.Blocker {
	switch b := m.Decision.Blocker; {
	case b == nil:
		return nil
	case b.Code == v1beta2.ReasonKymaPaused || b.Code == v1beta2.ReasonModulePaused:
		return b
	}
	return nil
}

// Inputs are the inputs of Resolve. The inputs determine the modules of a runtime and the versions of the modules.
type Inputs struct {
	Kyma      *v1beta2.Kyma                // the Kyma in the control plane
	Remote    *v1beta2.Kyma                // the Kyma in the runtime, with the requested modules
	Manifests map[string]*v1beta2.Manifest // the Manifests of the Kyma, by name
	Catalog   channel.Catalog
	Now       time.Time
}

// Resolve returns all modules of a runtime in this order: the requested modules in the order of spec, the modules to be
// removed, the mandatory modules. A mandatory module that nothing requests is not removed if a restored control plane
// has lost its ModuleReleaseMeta, too: it gets a blocker, and is among the modules to be removed.
func Resolve(in Inputs) []Module {
	assigned := map[*v1beta2.Manifest]bool{}
	decide := func(m Module, r channel.Request) Module {
		if m.Manifest != nil {
			assigned[m.Manifest] = true
		}
		r.Installed, r.ManifestVersion, r.Now = InstalledOrRequestedVersion(m.Manifest),
			VersionWrittenByController(m.Manifest),
			in.Now
		if v := runtimeVersionIfRestored(m.Manifest); v != "" {
			r.ManifestVersion, r.IsRestored = v, true
		}
		r.Target, r.IsFailing = targetIfInstalled(m.Manifest), evidence.IsNeitherReadyNorWarning(m.Manifest)
		m.IsRequested, m.Decision = true, channel.Resolve(in.Catalog, r)
		m.Upgrade = upgradeDuringDeletion(m.Manifest, m.Decision)
		return m
	}
	// A module keeps its Manifest when it becomes mandatory, even if the Kyma also requests the module. Therefore the
	// Manifests of the mandatory modules are looked up first. A module also keeps its Manifest when it is no longer
	// mandatory and the Kyma requests it.
	var mandatory []Module
	isMandatory := map[string]bool{}
	for _, r := range channel.MandatoryRequests(in.Catalog, in.Kyma) {
		isMandatory[r.Module] = true
		m := Module{Spec: v1beta2.Module{Name: r.Module}, IsMandatory: true,
			Manifest: manifestOf(in.Manifests, r.Module, true), MayDeleteCustomResources: in.mayDeleteCustomResources(
				r.Module, true)}
		mandatory = append(mandatory, decide(m, r))
	}
	var all []Module
	isRequested := map[string]bool{}
	for _, spec := range in.Remote.Spec.Modules {
		isRequested[spec.Name] = true
		m := Module{Spec: spec, Former: formerEntry(in.Kyma, spec.Name),
			Manifest:                 manifestOf(in.Manifests, spec.Name, false),
			MayDeleteCustomResources: in.mayDeleteCustomResources(spec.Name, false)}
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
		removed := ToRemove(in.Kyma, m)
		if !m.DeletionTimestamp.IsZero() && !m.IsMandatory() {
			spec := v1beta2.Module{Name: of, Channel: m.Labels[v1beta2.LabelChannel]}
			removed.Upgrade = upgradeDuringDeletion(m, channel.Resolve(in.Catalog, channel.RequestFor(in.Kyma,
				in.Remote, &spec)))
		}
		removed.MayDeleteCustomResources = in.mayDeleteCustomResources(of, m.IsMandatory())
		if hasLostRelease(m) {
			removed.IsRequested, removed.Decision = true, channel.Decision{Module: of, Blocker: lostReleaseBlocker(m)}
		}
		all = append(all, removed)
	}
	return append(all, mandatory...)
}

// hasLostRelease reports whether a mandatory module that no ModuleReleaseMeta requests has to stay in the runtime. The
// Manifest of such a module has never had a version: the Kyma controller created it because the runtime has the module
// and the Manifest was missing (package restored). In a control plane that was restored from a backup, a missing
// ModuleReleaseMeta does not mean that somebody has deleted it. If the runtime turns out to have no object of the
// module, except objects that stay after the module, the module was removed just before the manager stopped.
func hasLostRelease(m *v1beta2.Manifest) bool {
	wasRemoved := m.IsInventoryReadFromRuntime() &&
		!slices.ContainsFunc(m.Status.Synced, func(r v1beta2.Resource) bool { return !r.Keep })
	return m.IsMandatory() && m.IsRestored() && m.Spec.Version == "" && m.DeletionTimestamp.IsZero() && !wasRemoved
}

// lostReleaseBlocker returns the blocker of a module for which hasLostRelease returns true.
func lostReleaseBlocker(m *v1beta2.Manifest) *channel.Blocker {
	return &channel.Blocker{Code: v1beta2.ReasonRestoredOlder, Object: "module " + m.ModuleName(), KeepInstalled: true,
		Message: fmt.Sprintf("the runtime has version %s of the mandatory module %s, but this control plane was "+
			"restored from an older state without its ModuleReleaseMeta, so nothing is changed: apply the "+
			"ModuleReleaseMeta, or remove the module from the runtime: kubectl delete -n %s manifest %s",
			m.Annotations[v1beta2.AnnotationRuntimeVersion], m.ModuleName(), m.Namespace, m.Name)}
}

// upgradeDuringDeletion returns the decision d if it upgrades a Manifest that is being deleted: d must have a higher
// version of the same component on the same cluster. If d does not upgrade the Manifest, upgradeDuringDeletion returns
// nil.
func upgradeDuringDeletion(m *v1beta2.Manifest, d channel.Decision) *channel.Decision {
	if m == nil || m.DeletionTimestamp.IsZero() || d.Blocker != nil || d.Template == nil ||
		d.Component != m.Annotations[v1beta2.AnnotationOCMComponentName] ||
		cmp.Or(d.Target, v1beta2.TargetRemote) != cmp.Or(m.Spec.Target, v1beta2.TargetRemote) ||
		m.Spec.Version == d.Version || channel.Highest(m.Spec.Version, d.Version) != d.Version {
		return nil
	}
	return &d
}

// mayDeleteCustomResources reports whether a Kyma allows the deletion of custom resources whose CRD belongs to a
// module. A mandatory module cannot be requested in the runtime, so for a mandatory module only the Kyma in the control
// plane can allow the deletion of custom resources.
func (in *Inputs) mayDeleteCustomResources(module string, isMandatory bool) bool {
	return in.Kyma.AnnotationAllowsDeletingCRs(module) || !isMandatory && in.Remote.AnnotationAllowsDeletingCRs(module)
}

// ToRemove returns the module that a Manifest installs, so that the module can be removed. The Manifest is being
// deleted, or will be deleted. MayDeleteCustomResources of the returned module comes from the Kyma in the control plane
// alone: ToRemove does not read the Kyma in the runtime.
func ToRemove(k *v1beta2.Kyma, m *v1beta2.Manifest) Module {
	of := m.ModuleName()
	return Module{Spec: v1beta2.Module{Name: of}, IsMandatory: m.IsMandatory(), Manifest: m, Former: formerEntry(k, of),
		MayDeleteCustomResources: k.AnnotationAllowsDeletingCRs(of)}
}

// WithCustomResourceDeletion returns a copy of the Manifest of a module. The copy has the annotation
// AnnotationDeleteCustomResources exactly if the user allows the deletion of custom resources. If the Manifest needs no
// change of this annotation, WithCustomResourceDeletion returns nil.
func WithCustomResourceDeletion(m *Module) (changed *v1beta2.Manifest) {
	has := m.Manifest.Annotations[v1beta2.AnnotationDeleteCustomResources] == v1beta2.ValueTrue
	if has == m.MayDeleteCustomResources {
		return nil
	}
	updated := m.Manifest.DeepCopy()
	if has {
		delete(updated.Annotations, v1beta2.AnnotationDeleteCustomResources)
	} else {
		metav1.SetMetaDataAnnotation(&updated.ObjectMeta, v1beta2.AnnotationDeleteCustomResources, v1beta2.ValueTrue)
	}
	return updated
}

// IsOurs reports whether this controller has created a Manifest. A Manifest that a user has created stays until the
// user deletes it.
func IsOurs(m *v1beta2.Manifest) bool {
	return metav1.GetControllerOf(m) != nil || m.Labels[v1beta2.LabelManagedBy] == v1beta2.ManagedByLifecycleManager
}

// manifestOf returns the Manifest of a module, or nil if there is none. If a module has several Manifests, manifestOf
// prefers a Manifest that this controller has created. Among several of these, manifestOf prefers a Manifest that is
// not being deleted. Among several Manifests that are not being deleted, manifestOf prefers one that is mandatory if
// the parameter prefersMandatory is true, and one that is not mandatory otherwise.
func manifestOf(manifests map[string]*v1beta2.Manifest, module string, prefersMandatory bool) *v1beta2.Manifest {
	var found *v1beta2.Manifest
	best := -1
	for _, name := range slices.Sorted(maps.Keys(manifests)) {
		m := manifests[name]
		if m.ModuleName() != module {
			continue
		}
		rank := 0
		if IsOurs(m) {
			rank += 4
		}
		if m.DeletionTimestamp.IsZero() {
			rank += 2
		}
		if m.IsMandatory() == prefersMandatory {
			rank++
		}
		if rank > best {
			found, best = m, rank
		}
	}
	return found
}

// InstalledOrRequestedVersion returns the version of a module that is installed in the runtime, or "" if no version is
// installed. If the control plane was restored from an older state, InstalledOrRequestedVersion returns the version
// that was found in the runtime. InstalledOrRequestedVersion ignores a version that somebody else has written into the
// spec of the Manifest. InstalledOrRequestedVersion ignores the version of somebody else even after the controller of
// Manifests has copied this version from the spec into the status.
func InstalledOrRequestedVersion(m *v1beta2.Manifest) string {
	if m == nil || !m.DeletionTimestamp.IsZero() {
		return ""
	}
	if v := runtimeVersionIfRestored(m); v != "" {
		return v
	}
	if v := m.Status.Version; v != "" && v != m.Spec.Version {
		return v
	}
	return VersionWrittenByController(m)
}

// runtimeVersionIfRestored returns the version that the runtime has according to AnnotationRuntimeVersion.
// runtimeVersionIfRestored returns "" if there is no annotation, if the version is not known, or if the runtime turned
// out to have no object of the module. If the runtime was taken over from a Kyma with another name, an empty inventory
// proves nothing: the former Kyma may have installed the module under a name that is not known.
func runtimeVersionIfRestored(m *v1beta2.Manifest) string {
	isTakenOver := m != nil && m.Annotations[ownership.AnnotationFormerInstallation] != ""
	if !m.IsRestored() || !m.DeletionTimestamp.IsZero() ||
		m.IsInventoryReadFromRuntime() && len(m.Status.Synced) == 0 && !isTakenOver {
		return ""
	}
	if v := m.Annotations[v1beta2.AnnotationRuntimeVersion]; v != v1beta2.VersionUnknown {
		return v
	}
	return ""
}

// AwaitsInventory reports whether the inventory of a restored Manifest still lacks the objects that are in the runtime.
// As long as AwaitsInventory returns true, the Kyma controller must not change the Manifest, except for the annotations
// about a pause.
func AwaitsInventory(m *v1beta2.Manifest) bool {
	return m.IsRestored() && !m.IsInventoryReadFromRuntime()
}

// targetIfInstalled returns the cluster on which objects of a module are installed, or "" if no objects are installed.
func targetIfInstalled(m *v1beta2.Manifest) v1beta2.Target {
	if m == nil || !m.DeletionTimestamp.IsZero() || m.Status.AppliedDigest == "" && len(m.Status.Synced) == 0 {
		return ""
	}
	return m.InstalledOrSpecTarget()
}

// VersionWrittenByController returns the version that this controller has written into a Manifest.
// VersionWrittenByController returns "" if there is no Manifest or if the Manifest is being deleted.
func VersionWrittenByController(m *v1beta2.Manifest) string {
	if m == nil || !m.DeletionTimestamp.IsZero() {
		return ""
	}
	return cmp.Or(m.Annotations[v1beta2.AnnotationRequestedVersion], m.Spec.Version)
}

// manifestName returns the name of the Manifest of a module. The name of a new Manifest depends on the component of the
// module. An existing Manifest keeps its name even if the module has another component now, because the objects in the
// runtime still belong to the same module.
func manifestName(k *v1beta2.Kyma, m *Module) string {
	if m.Manifest != nil && IsOurs(m.Manifest) {
		return m.Manifest.Name
	}
	return v1beta2.ManifestName(k.Name, m.Decision.Component, m.Spec.Name)
}

// NameConflictBlocker returns a blocker if the Manifest that exists with the name for a new Manifest of the module m
// belongs to another module, and nil otherwise. The Manifest named is nil if no Manifest has this name. Names are cut,
// so the Manifests of two modules with long names may have the same name. The Manifest must not be handed over to the
// other module: the objects of the first module would be deleted, and its custom resources with them.
func NameConflictBlocker(m *Module, named *v1beta2.Manifest) *channel.Blocker {
	if named == nil || named.ModuleName() == "" || named.ModuleName() == m.Spec.Name {
		return nil
	}
	return &channel.Blocker{Code: v1beta2.ReasonModuleConflict, Object: "Manifest " + named.Name, KeepInstalled: true,
		Message: fmt.Sprintf("module %s is not installed: its Manifest would have the name %s, which the Manifest of "+
			"module %s has already, because long names are cut: remove one of the two modules, or publish one of them "+
			"as a component with a shorter name", m.Spec.Name, named.Name, named.ModuleName())}
}

// DesiredManifest returns the Manifest that a module should have. The caller must have decided on a version of the
// module, so that Decision.Template is set. The parameter "now" is recorded as the time at which a rollout orders the
// version. The parameter "now" is used only if the decision is part of a rollout.
func DesiredManifest(k *v1beta2.Kyma, m *Module, a Artefact, now time.Time) *v1beta2.Manifest {
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
	if m.MayDeleteCustomResources {
		want.Annotations[v1beta2.AnnotationDeleteCustomResources] = v1beta2.ValueTrue
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
	if m.Decision.Target == v1beta2.TargetControlPlane {
		want.Spec.Target = m.Decision.Target
		want.Labels[v1beta2.LabelTarget] = string(m.Decision.Target)
		if cr := want.Spec.Resource; cr != nil { // each Kyma has a custom resource of its own
			cr.SetName(name)
			cr.SetNamespace(k.Namespace)
		}
	}
	setRolloutAnnotations(want, m, now)
	want.Annotations[v1beta2.AnnotationRequestedSources] = SourcesDigest(&want.Spec)
	if a.Content != "" {
		want.Annotations[v1beta2.AnnotationContentDigest] = a.Content
	}
	return want
}

// rolloutAnnotations are the annotations about the rollout that ordered the version of a Manifest. The annotations in
// rolloutAnnotations stay until another version is ordered, so they cause no additional write.
var rolloutAnnotations = []string{v1beta2.AnnotationRollout, v1beta2.AnnotationRolloutStarted,
	v1beta2.AnnotationRolloutExcused}

// setRolloutAnnotations sets the annotations about the rollout that orders the version of a module. If the Manifest
// already requests this version, setRolloutAnnotations leaves the annotations as they are.
func setRolloutAnnotations(want *v1beta2.Manifest, m *Module, now time.Time) {
	turn := &m.Decision.Turn
	switch is := m.Manifest; {
	case is == nil:
	case VersionWrittenByController(is) == m.Decision.Version:
		for _, key := range rolloutAnnotations {
			if value, annotated := is.Annotations[key]; annotated {
				want.Annotations[key] = value
			}
		}
	case turn.Rollout != "":
		want.Annotations[v1beta2.AnnotationRollout] = turn.Rollout
		want.Annotations[v1beta2.AnnotationRolloutStarted] = now.UTC().Format(time.RFC3339)
		wasExcused := is.Annotations[v1beta2.AnnotationRolloutExcused] == v1beta2.ValueTrue
		if evidence.HasBeenUnreadyFor(is, turn.RuntimeDeadline, now) && (wasExcused || !turn.IsCorrection) {
			want.Annotations[v1beta2.AnnotationRolloutExcused] = v1beta2.ValueTrue
		}
	}
}

// ourLabels and ourAnnotations are removed from a Manifest if the desired Manifest does not have them. Labels and
// annotations of others stay.
var (
	ourLabels      = []string{v1beta2.LabelChannel, v1beta2.LabelMandatoryModule, v1beta2.LabelTarget}
	ourAnnotations = []string{v1beta2.AnnotationPaused, v1beta2.AnnotationDeleteCustomResources,
		v1beta2.AnnotationRuntimeVersion, ownership.AnnotationFormerInstallation, v1beta2.AnnotationRollout,
		v1beta2.AnnotationRolloutStarted, v1beta2.AnnotationRolloutExcused}
)

// sourceAnnotations describe the sources of a Manifest. Manifests that were written by earlier releases of the manager
// do not have the annotations in sourceAnnotations.
var sourceAnnotations = []string{v1beta2.AnnotationRequestedSources, v1beta2.AnnotationContentDigest}

// WithDesired returns a copy of a Manifest with the desired labels, annotations and spec. WithDesired returns nil if
// the Manifest already has the desired labels, annotations and spec. WithDesired does not change finalizers, because
// they belong to the controller of Manifests.
//
// A Manifest of an earlier release may lack the annotations in sourceAnnotations. WithDesired adds the annotations in
// sourceAnnotations only together with another change: if nothing else has to be changed, it returns nil.
func WithDesired(is, want *v1beta2.Manifest) *v1beta2.Manifest {
	labels, annotations := withOurs(is.Labels, ourLabels, want.Labels),
		withOurs(is.Annotations, ourAnnotations, want.Annotations)
	compared := maps.Clone(annotations)
	for _, key := range sourceAnnotations {
		if is.Annotations[key] == "" {
			delete(compared, key)
		}
	}
	if maps.Equal(is.Labels, labels) && maps.Equal(is.Annotations, compared) && SameSpec(&is.Spec, &want.Spec) {
		return nil
	}
	updated := is.DeepCopy()
	updated.Labels, updated.Annotations, updated.Spec = labels, annotations, want.Spec
	return updated
}

// WithSpecKeepingResource returns a copy of a Manifest that is being deleted, with the version and the sources of
// another Manifest. The returned copy keeps spec.resource, the custom resource of the Manifest that is being deleted,
// because the deletion waits until this custom resource no longer exists.
func WithSpecKeepingResource(is, want *v1beta2.Manifest) *v1beta2.Manifest {
	updated := is.DeepCopy()
	resource, policy := is.Spec.Resource, is.Spec.CustomResourcePolicy
	updated.Spec = want.Spec
	updated.Spec.Resource, updated.Spec.CustomResourcePolicy = resource, policy
	for _, key := range append([]string{v1beta2.AnnotationRequestedVersion}, sourceAnnotations...) {
		delete(updated.Annotations, key)
		if value := want.Annotations[key]; value != "" {
			metav1.SetMetaDataAnnotation(&updated.ObjectMeta, key, value)
		}
	}
	return updated
}

// withOurs returns a copy of the labels or annotations in the parameter "all", with the desired values from the
// parameter "want". The parameter ours lists the keys that this controller owns. withOurs sets each of these keys to
// its desired value, and removes each of these keys that has no desired value.
func withOurs(all map[string]string, ours []string, want map[string]string) map[string]string {
	out := make(map[string]string, len(all)+len(want))
	maps.Copy(out, all)
	for _, key := range ours {
		delete(out, key)
	}
	maps.Copy(out, want)
	return out
}

// SameSpec reports whether two specs have the same meaning. Raw JSON is compared by content, so the order of its keys
// does not matter. A spec that cannot be encoded differs from every other spec.
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

// formerEntry returns a copy of the status entry of a module, or nil if there is none.
func formerEntry(k *v1beta2.Kyma, module string) *v1beta2.ModuleStatus {
	for i := range k.Status.Modules {
		if k.Status.Modules[i].Name == module {
			return k.Status.Modules[i].DeepCopy()
		}
	}
	return nil
}
