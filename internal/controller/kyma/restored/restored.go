// Package restored finds modules whose recorded state a control plane has lost. A control plane loses state when it is
// restored from an older backup, or without statuses, or without a Manifest. The package marks the Manifests of the
// lost modules with the version in the runtime.
//
// # Use
//
//	lost := restored.FindLost(kyma, remote, manifests, isOtherCluster)
//	lost, err := restored.WithoutUnknown(lost, manifests, isKnown)
//	for _, m := range lost { err := restored.MarkOrCreateManifest(ctx, client, kyma, m, prepare) }
//
// # How it works
//
// The status of the Kyma in a runtime is a copy of the status in the control plane. The manager saves the status in the
// control plane before it copies the status to the runtime. A control plane that has lost nothing therefore contains
// every change that the status in the runtime shows. If the status in the runtime shows a change that the status in the
// control plane lacks, the control plane was restored from an older state. The table at the function [FindLost] lists
// when a module counts as lost.
//
// [MarkOrCreateManifest] first sets [v1beta2.AnnotationRuntimeVersion] on the Manifest of each module that was found.
// The version in this annotation then counts as the installed version. For a Manifest with this annotation, the
// controller of Manifests applies nothing at first: it adds the objects of the module in the runtime to the inventory.
// If the Manifest of a found module was lost, [MarkOrCreateManifest] creates a Manifest without sources: it installs
// nothing, and only gets the inventory of the objects in the runtime. After [MarkOrCreateManifest] has marked the
// Manifest, it copies the status entry of the module from the Kyma in the runtime to the Kyma in the control plane. The
// control plane then has the history of the module again, before its status overwrites the status in the runtime.
//
// A Kyma that takes a runtime over from a Kyma with another name has lost all modules in the same sense. The objects in
// the runtime name the Manifests of the former Kyma, so [MarkOrCreateManifest] also sets
// [ownership.AnnotationFormerInstallation]. If the Kyma has used another cluster until then, its statuses and Manifests
// describe that cluster, so the status in the runtime wins, whatever the times of the changes are.
//
// The admin of a runtime can write any status there. Therefore the package takes no reference to an object of the
// control plane from the runtime, and [WithoutUnknown] limits the number of Manifests of modules that only the runtime
// names.
//
// # What it does not do
//
// The package makes no request to a runtime, and decides nothing about versions: package channel does that. The package
// does not keep the module of a new Manifest if nothing requests it: package plan keeps a mandatory module whose
// ModuleReleaseMeta was lost, too.
package restored

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/changelog"
	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// Module is a module whose recorded state the control plane has lost.
type Module struct {
	// Name is the name of the module.
	Name string
	// Version is the version in the runtime, or v1beta2.VersionUnknown.
	Version string
	// Entry is the status entry of the module. If the entry in the runtime is newer than the entry in the control
	// plane, Entry is the one in the runtime. Entry is nil if neither the Kyma in the runtime nor the Kyma in the
	// control plane has an entry for the module.
	Entry *v1beta2.ModuleStatus
	// Manifest is nil if the Manifest was lost.
	Manifest *v1beta2.Manifest
	// IsMandatory reports whether the entry is one of a mandatory module.
	IsMandatory bool
	// IsOnlyInRuntime reports whether the control plane has neither an entry nor a Manifest of the module.
	IsOnlyInRuntime bool
	// FormerKyma is the namespace/name of the Kyma whose Manifests own the objects in the runtime, if the runtime is
	// being taken over from a Kyma with another name. FindLost does not set FormerKyma.
	FormerKyma string
}

// FindLost returns the lost modules of a Kyma, sorted by name. The caller has to pass each lost module to
// [MarkOrCreateManifest]. remote is the Kyma in the runtime, or nil. manifests are the Manifests of the Kyma. The first
// matching row decides about a module:
//
//	   entry of the module              Manifest                        version in the runtime
//	1  handed over, or never installed                                  (not lost)
//	2  newer in the runtime, installed  has this version and inventory  (not lost, except in another cluster)
//	3  newer in the runtime             any other, or none              that of the entry in the runtime
//	4  installed                        none, or without status         that of the entry
//	5  none in a Kyma without status    without status                  unknown
//	6  any other                                                        (not lost)
//
// A module that is being deleted counts as not installed, because its Manifest is deleted before its status entry.
//
// isOtherCluster is true if the runtime is being taken over, and is another cluster than the one that the Kyma has used
// until now. The history of the Kyma and that in the runtime then have nothing in common, so each entry in the runtime
// counts as newer.
func FindLost(kyma, remote *v1beta2.Kyma, manifests map[string]*v1beta2.Manifest, isOtherCluster bool) []Module {
	names := map[string]bool{}
	for _, k := range []*v1beta2.Kyma{kyma, remote} {
		if k != nil {
			for i := range k.Status.Modules {
				names[k.Status.Modules[i].Name] = true
			}
			for i := range k.Status.MandatoryModules {
				names[k.Status.MandatoryModules[i].Name] = true
			}
		}
	}
	lostStatus := kyma.Status.State == "" && remote != nil && remote.Status.State != ""
	for _, m := range manifests {
		names[m.ModuleName()] = true
	}
	var all []Module
	for _, name := range slices.Sorted(maps.Keys(names)) {
		lost := lostModule(kyma, remote, manifestOf(manifests, name), name, lostStatus, isOtherCluster)
		if lost != nil {
			all = append(all, *lost)
		}
	}
	return all
}

// lostModule decides for one module whether the control plane has lost its state; FindLost calls it for every module.
// The parameter lostStatus is true if the Kyma has no status although its runtime was in use.
func lostModule(kyma, remote *v1beta2.Kyma, m *v1beta2.Manifest, name string,
	lostStatus, isOtherCluster bool) *Module {
	known := requestedOrMandatoryEntry(kyma, name)
	seen := withManifestRefOf(known, requestedOrMandatoryEntry(remote, name))
	entry, isNewer := known, false
	if seen != nil && (isOtherCluster || isLater(seen, known, kyma, remote)) {
		entry, isNewer = seen, true
	}
	hasNoStatus := m != nil && m.Status.State == "" && len(m.Status.Synced) == 0
	lost := &Module{Name: name, Entry: entry, Manifest: m, IsOnlyInRuntime: known == nil && m == nil,
		IsMandatory: entry != nil && isMandatory(kyma, remote, name)}
	switch {
	case m.IsUnmanaged() || entry != nil && (entry.State == v1beta2.StateUnmanaged ||
		probableRuntimeVersion(entry) == ""):
		return nil
	case isNewer:
		lost.Version = probableRuntimeVersion(entry)
		if !isOtherCluster && isInstalledCompletely(entry) && m != nil && m.Spec.Version == lost.Version &&
			m.Status.Version == lost.Version &&
			len(m.Status.Synced) > 0 {
			return nil
		}
		return lost
	case entry != nil && isInstalledCompletely(entry) && (m == nil || hasNoStatus):
		lost.Version = probableRuntimeVersion(entry)
		return lost
	case entry == nil && hasNoStatus && lostStatus:
		lost.Version = v1beta2.VersionUnknown
		return lost
	}
	return nil
}

// requestedOrMandatoryEntry returns the status entry of a module, or nil if there is none. For a mandatory module,
// requestedOrMandatoryEntry builds an entry with only the fields that lostModule uses: version, component, custom
// resource, state and last change.
func requestedOrMandatoryEntry(k *v1beta2.Kyma, name string) *v1beta2.ModuleStatus {
	if e := k.ModuleStatus(name); e != nil {
		return e
	}
	m := mandatoryEntry(k, name)
	if m == nil {
		return nil
	}
	e := &v1beta2.ModuleStatus{Name: name, Version: m.Version, OCMComponentName: m.OCMComponentName,
		Resource: m.Resource, State: v1beta2.StateReady}
	if m.LastChange != nil {
		e.History = []v1beta2.ModuleChange{*m.LastChange}
	}
	return e
}

// withManifestRefOf returns a copy of an entry in the runtime with the reference to the Manifest that the entry in the
// control plane has. known is the entry in the control plane, or nil. The manager writes no reference to a Manifest
// into a runtime: a reference there was written by the admin of the runtime, and may name the Manifest of another
// runtime.
func withManifestRefOf(known, seen *v1beta2.ModuleStatus) *v1beta2.ModuleStatus {
	if seen == nil {
		return nil
	}
	e := *seen
	e.Manifest = nil
	if known != nil {
		e.Manifest = known.Manifest
	}
	return &e
}

// mandatoryEntry returns the entry of a mandatory module, or nil if there is none.
func mandatoryEntry(k *v1beta2.Kyma, name string) *v1beta2.MandatoryModuleStatus {
	if k == nil {
		return nil
	}
	for i := range k.Status.MandatoryModules {
		if k.Status.MandatoryModules[i].Name == name {
			return &k.Status.MandatoryModules[i]
		}
	}
	return nil
}

// isMandatory reports whether a module in one of the statuses is a mandatory module. A module is mandatory if the
// statuses of both Kymas, in the control plane and in the runtime, do not list it among the requested modules.
func isMandatory(kyma, remote *v1beta2.Kyma, name string) bool {
	return kyma.ModuleStatus(name) == nil && remote.ModuleStatus(name) == nil
}

// isLater reports whether the entry of a module in the runtime shows a change that the entry in the control plane does
// not have. known is the entry in the control plane, or nil. An entry without history was written by an earlier version
// of the manager. An entry without history counts as later if its version differs from the version in the control
// plane, and the status in the runtime was updated after the status in the control plane.
func isLater(seen, known *v1beta2.ModuleStatus, kyma, remote *v1beta2.Kyma) bool {
	last := changelog.Last(seen.History)
	if last == nil {
		return (known == nil || known.Version != seen.Version) &&
			kyma.Status.LastOperation.LastUpdateTime.Before(&remote.Status.LastOperation.LastUpdateTime)
	}
	if known == nil || len(known.History) == 0 {
		return true
	}
	isKnown := slices.ContainsFunc(known.History, func(c v1beta2.ModuleChange) bool {
		return c.Version == last.Version && c.Started.Equal(&last.Started)
	})
	return !isKnown && !last.Started.Before(&changelog.Last(known.History).Started)
}

// isInstalledCompletely reports whether an entry shows that a version of the module was installed completely.
func isInstalledCompletely(e *v1beta2.ModuleStatus) bool {
	if e.State == v1beta2.StateDeleting {
		return false
	}
	if last := changelog.Last(e.History); last != nil {
		return !last.Ended.IsZero()
	}
	return e.State == v1beta2.StateReady || e.State == v1beta2.StateWarning
}

// probableRuntimeVersion returns the version of a module that the runtime probably has, according to the status entry
// of the module. If the module has no version, probableRuntimeVersion returns "". If an upgrade or a downgrade was not
// complete, probableRuntimeVersion returns the higher of the two versions, because some of its objects may be in the
// runtime.
func probableRuntimeVersion(e *v1beta2.ModuleStatus) string {
	versions := []string{e.Version}
	if last := changelog.Last(e.History); last != nil {
		if !last.Ended.IsZero() && last.Version != "" {
			versions = nil
		}
		versions = append(versions, last.Version)
	}
	return channel.Highest(versions...)
}

// manifestOf returns the Manifest of a module, or nil if there is none. manifestOf prefers a Manifest that is not being
// deleted.
func manifestOf(manifests map[string]*v1beta2.Manifest, module string) *v1beta2.Manifest {
	var found *v1beta2.Manifest
	for _, name := range slices.Sorted(maps.Keys(manifests)) {
		m := manifests[name]
		if m.ModuleName() == module && (found == nil || !found.DeletionTimestamp.IsZero()) {
			found = m
		}
	}
	return found
}

// maxUnknown is the maximum number of Manifests of one Kyma that exist only because the status in the runtime names
// their modules: neither the Kyma in the runtime nor the catalog has these modules. A restored control plane has such
// modules if its catalog is older, too: they are mandatory modules, or modules that were removed in the runtime
// meanwhile. A fleet has about 10 mandatory modules, and about 30 modules in all.
const maxUnknown = 50

// TooManyUnknownError is the error for a status in a runtime that names too many modules that the control plane does
// not know.
type TooManyUnknownError struct {
	// Modules are the modules whose Manifests are not created, sorted by name.
	Modules []string
}

// Error implements error.
func (e *TooManyUnknownError) Error() string {
	const namedModulesLimit, maxNameBytes = 5, 63 // so that people can read the condition
	var names []string
	for _, name := range e.Modules[:min(len(e.Modules), namedModulesLimit)] {
		names = append(names, text.ClipLine(name, maxNameBytes))
	}
	if more := len(e.Modules) - namedModulesLimit; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("the status of the Kyma %s/%s in the runtime names too many modules that this control plane "+
		"does not know: the manager creates at most %d Manifests for such modules, and none for %s: nothing is "+
		"installed, updated or removed in the runtime until the ModuleReleaseMetas of these modules are applied, or "+
		"their entries in the runtime are removed: kubectl -n %s edit kyma %s --subresource=status",
		v1beta2.RuntimeNamespace, v1beta2.RuntimeKymaName, maxUnknown, strings.Join(names, ", "),
		v1beta2.RuntimeNamespace, v1beta2.RuntimeKymaName)
}

// Reason returns the reason code of the error.
func (e *TooManyUnknownError) Reason() string { return v1beta2.ReasonRuntimeKymaInvalid }

// WithoutUnknown returns the lost modules without those that exceed maxUnknown. If there are such modules, the error is
// a *TooManyUnknownError that names them. isKnown reports whether the runtime requests a module, or the catalog has it;
// WithoutUnknown calls isKnown only if the status in the runtime names a module that the control plane does not have.
// Known modules are never left out: a module that is installed again without its version in the runtime could be
// downgraded. The Manifests that exist already count, too, so the number does not grow with each connection.
func WithoutUnknown(lost []Module, manifests map[string]*v1beta2.Manifest, isKnown func(module string) bool) (
	[]Module, error) {
	left, isCounted := maxUnknown, false
	var allowed []Module
	var unknown []string
	for _, m := range lost {
		if m.IsOnlyInRuntime && !isKnown(m.Name) {
			if !isCounted {
				left, isCounted = left-countUnknown(manifests, isKnown), true
			}
			if left <= 0 {
				unknown = append(unknown, m.Name)
				continue
			}
			left--
		}
		allowed = append(allowed, m)
	}
	if len(unknown) > 0 {
		return allowed, &TooManyUnknownError{Modules: unknown}
	}
	return allowed, nil
}

// countUnknown returns the number of Manifests without sources whose modules are not known.
func countUnknown(manifests map[string]*v1beta2.Manifest, isKnown func(module string) bool) (n int) {
	for _, m := range manifests {
		if m.IsRestored() && m.Spec.Version == "" && !isKnown(m.ModuleName()) {
			n++
		}
	}
	return n
}
