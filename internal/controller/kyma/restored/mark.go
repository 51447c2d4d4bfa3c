package restored

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/changelog"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
)

// MarkOrCreateManifest marks the Manifest of a module, or creates a marked Manifest, and sets the status entry of the
// Kyma in memory. Before MarkOrCreateManifest creates a Manifest, it calls the parameter prepareNew with the new
// Manifest. If the Manifest was changed after it was read, MarkOrCreateManifest returns a conflict and changes nothing.
func MarkOrCreateManifest(ctx context.Context, c client.Client, kyma *v1beta2.Kyma, lost Module,
	prepareNew func(*v1beta2.Manifest)) error {
	m, former := lost.Manifest, formerInstallation(lost)
	switch {
	case m == nil:
		m = newManifestWithoutSources(kyma, lost)
		prepareNew(m)
		if err := c.Create(ctx, m, client.FieldOwner(v1beta2.FieldOwner)); err != nil {
			return fmt.Errorf("creating Manifest %s, which was lost: %w", m.Name, err)
		}
	case m.Annotations[v1beta2.AnnotationRuntimeVersion] != lost.Version ||
		former != "" && m.Annotations[ownership.AnnotationFormerInstallation] != former:
		marked := m.DeepCopy()
		metav1.SetMetaDataAnnotation(&marked.ObjectMeta, v1beta2.AnnotationRuntimeVersion, lost.Version)
		if former != "" {
			metav1.SetMetaDataAnnotation(&marked.ObjectMeta, ownership.AnnotationFormerInstallation, former)
		}
		change := client.MergeFromWithOptions(m, client.MergeFromWithOptimisticLock{})
		if err := c.Patch(ctx, marked, change, client.FieldOwner(v1beta2.FieldOwner)); err != nil {
			return fmt.Errorf("marking Manifest %s with the version in the runtime: %w", m.Name, err)
		}
	}
	if lost.IsMandatory {
		setMandatoryEntry(kyma, lost.Entry)
	} else {
		setEntryWithManifestRef(kyma, lost.Entry, m)
	}
	return nil
}

// formerInstallation returns the namespace/name of the Manifest that owns the objects of a module in the runtime, or ""
// if this is the Manifest of the present Kyma. If the former Kyma has installed the module under another component, the
// name is wrong, and no object is found; see [ownership.AnnotationFormerInstallation].
func formerInstallation(lost Module) string {
	namespace, kyma, ok := strings.Cut(lost.FormerKyma, "/")
	component := ""
	if lost.Entry != nil {
		component = cmp.Or(lost.Entry.OCMComponentName, lost.Entry.FQDN)
	}
	if component == "" && lost.Manifest != nil {
		component = lost.Manifest.Annotations[v1beta2.AnnotationOCMComponentName]
	}
	if !ok || component == "" {
		return ""
	}
	return namespace + "/" + v1beta2.ManifestName(kyma, component, lost.Name)
}

// setMandatoryEntry sets the entry of a mandatory module in the status of the Kyma.
func setMandatoryEntry(kyma *v1beta2.Kyma, entry *v1beta2.ModuleStatus) {
	e := v1beta2.MandatoryModuleStatus{Name: entry.Name, Version: entry.Version,
		OCMComponentName: entry.OCMComponentName, Resource: entry.Resource.DeepCopy(),
		LastChange: changelog.Last(entry.History).DeepCopy()}
	if known := mandatoryEntry(kyma, e.Name); known != nil {
		*known = e
		return
	}
	kyma.Status.MandatoryModules = append(kyma.Status.MandatoryModules, e)
}

// setEntryWithManifestRef sets the status entry of a module in the Kyma. The new entry is a copy of the entry in the
// runtime. An entry in the runtime has no reference to a Manifest, so setEntryWithManifestRef adds the reference.
func setEntryWithManifestRef(kyma *v1beta2.Kyma, remoteEntry *v1beta2.ModuleStatus, m *v1beta2.Manifest) {
	if remoteEntry == nil {
		return
	}
	e := *remoteEntry.DeepCopy()
	e.Manifest = &v1beta2.ObjectReference{APIVersion: v1beta2.GroupVersion.String(), Kind: v1beta2.KindManifest,
		Metadata: v1beta2.ObjectReferenceMeta{Name: m.Name, Namespace: m.Namespace, Generation: m.Generation}}
	for i := range kyma.Status.Modules {
		if kyma.Status.Modules[i].Name == e.Name {
			kyma.Status.Modules[i] = e
			return
		}
	}
	kyma.Status.Modules = append(kyma.Status.Modules, e)
}

// WithoutRestoredChanges returns the previous status of a Kyma, which is compared with the saved status to find events.
// If a Manifest is marked as restored, WithoutRestoredChanges uses the saved entry of its module instead of the entry
// in the previous status. So no event is recorded for a change that was already recorded before the control plane was
// restored.
func WithoutRestoredChanges(before *v1beta2.KymaStatus, saved *v1beta2.Kyma,
	manifests map[string]*v1beta2.Manifest) *v1beta2.KymaStatus {
	var known *v1beta2.KymaStatus
	for _, m := range manifests {
		entry := saved.ModuleStatus(m.ModuleName())
		if !m.IsRestored() || entry == nil {
			continue
		}
		if known == nil {
			known = before.DeepCopy()
		}
		at := slices.IndexFunc(known.Modules, func(e v1beta2.ModuleStatus) bool { return e.Name == entry.Name })
		if at < 0 {
			known.Modules = append(known.Modules, *entry)
		} else {
			known.Modules[at].History = entry.History
		}
	}
	if known == nil {
		return before
	}
	return known
}

// WithoutReportedRemovals returns the previous status of a Kyma without the modules whose removal was reported before
// the manager stopped, so that the removal is not reported twice. If the manager stops after it has recorded the
// removal of a module in the control plane and before it has recorded the removal in the runtime, the Manifest of the
// module looks lost, and a new Manifest is created for the module. The parameter "recreated" contains the modules with
// a new Manifest. If objects of the module are found in the runtime, the new Manifest gets an inventory: the module was
// not removed, and only its Manifest in the control plane was lost. If the new Manifest gets no inventory, and the
// module has no entry in the saved status any more, the module was removed, and its removal was already reported before
// the manager stopped. WithoutReportedRemovals also returns the names of the modules for which it is not known yet
// whether they were lost or removed.
func WithoutReportedRemovals(previous *v1beta2.KymaStatus, saved *v1beta2.Kyma, manifests map[string]*v1beta2.Manifest,
	recreated []string) (corrected *v1beta2.KymaStatus, undecided []string) {
	var unknown []string
	for _, name := range recreated {
		m := manifestOf(manifests, name)
		switch {
		case m != nil && len(m.Status.Synced) > 0:
		case requestedOrMandatoryEntry(saved, name) != nil:
			unknown = append(unknown, name)
		default:
			previous = previous.DeepCopy()
			previous.Modules = slices.DeleteFunc(previous.Modules,
				func(e v1beta2.ModuleStatus) bool { return e.Name == name })
		}
	}
	return previous, unknown
}

// newManifestWithoutSources returns a Manifest for a module whose Manifest was lost. The new Manifest has no sources,
// so nothing is installed. The new Manifest names the custom resource of the module, so that a deletion of the Manifest
// deletes the custom resource first.
func newManifestWithoutSources(kyma *v1beta2.Kyma, lost Module) *v1beta2.Manifest {
	component := cmp.Or(lost.Entry.OCMComponentName, lost.Entry.FQDN)
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{
		Namespace: kyma.Namespace, Name: v1beta2.ManifestName(kyma.Name, component, lost.Name),
		Labels: map[string]string{
			v1beta2.LabelKymaName: kyma.Name, v1beta2.LabelModuleName: lost.Name,
			v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager,
		},
		Annotations: map[string]string{
			v1beta2.AnnotationRuntimeVersion: lost.Version, v1beta2.AnnotationFQDN: component,
			v1beta2.AnnotationOCMComponentName: component,
		},
		Finalizers: []string{v1beta2.FinalizerManifest, v1beta2.FinalizerLabelRemoval},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(kyma,
			v1beta2.GroupVersion.WithKind(v1beta2.KindKyma))},
	}}
	if former := formerInstallation(lost); former != "" {
		m.Annotations[ownership.AnnotationFormerInstallation] = former
	}
	if lost.IsMandatory {
		m.Labels[v1beta2.LabelMandatoryModule] = v1beta2.ValueTrue
	}
	m.Spec.CustomResourcePolicy = v1beta2.Ignore
	m.Spec.Install = v1beta2.InstallInfo{Name: v1beta2.RawManifest, Source: runtime.RawExtension{Raw: []byte("{}")}}
	if former := lost.Entry.Manifest; former != nil {
		m.Name = former.Metadata.Name
	}
	if r := lost.Entry.Resource; r != nil {
		m.Spec.CustomResourcePolicy = v1beta2.CreateAndDelete
		m.Spec.Resource = &unstructured.Unstructured{}
		m.Spec.Resource.SetAPIVersion(r.APIVersion)
		m.Spec.Resource.SetKind(r.Kind)
		m.Spec.Resource.SetNamespace(r.Metadata.Namespace)
		m.Spec.Resource.SetName(r.Metadata.Name)
	}
	return m
}
