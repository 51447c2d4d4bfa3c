package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/changelog"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// NonMandatoryEntries returns the status entries of all modules that are not mandatory: first the requested modules in
// the order of spec, then the modules that are being removed.
func NonMandatoryEntries(modules []Module, now time.Time) []v1beta2.ModuleStatus {
	var entries []v1beta2.ModuleStatus
	for i := range modules {
		if m := &modules[i]; !m.IsMandatory {
			entries = append(entries, entryOf(m, now))
		}
	}
	return entries
}

// MandatoryEntries returns the entries of the mandatory modules. The entries of mandatory modules have the same form as
// the status entries of requested modules.
func MandatoryEntries(modules []Module, now time.Time) []v1beta2.ModuleStatus {
	var entries []v1beta2.ModuleStatus
	for i := range modules {
		if m := &modules[i]; m.IsMandatory {
			entries = append(entries, entryOf(m, now))
		}
	}
	return entries
}

// InstalledMandatory returns the entries of the mandatory modules that are installed and are not being deleted. The
// parameter "before" has the previous entries. If a Manifest was restored from an older state, InstalledMandatory keeps
// the previous entry of its module until the next version is installed.
func InstalledMandatory(modules []Module, before []v1beta2.MandatoryModuleStatus) []v1beta2.MandatoryModuleStatus {
	var entries []v1beta2.MandatoryModuleStatus
	for i := range modules {
		m := &modules[i]
		is := m.Manifest
		switch {
		case !m.IsMandatory || is == nil || !is.DeletionTimestamp.IsZero():
		case is.IsRestored():
			at := slices.IndexFunc(before, func(e v1beta2.MandatoryModuleStatus) bool { return e.Name == m.Spec.Name })
			if at >= 0 {
				entries = append(entries, before[at])
			}
		default:
			entries = append(entries, v1beta2.MandatoryModuleStatus{
				Name: m.Spec.Name, Version: cmp.Or(InstalledOrRequestedVersion(is), is.Spec.Version),
				OCMComponentName: is.Annotations[v1beta2.AnnotationOCMComponentName],
				Resource:         resourceOf(m), LastChange: is.Status.LastChange.DeepCopy(),
			})
		}
	}
	slices.SortFunc(entries, func(a, b v1beta2.MandatoryModuleStatus) int { return cmp.Compare(a.Name, b.Name) })
	return entries
}

// entryOf returns the status entry of one module. The status entry shows the installed version. If the installed
// version is not the requested version, the status entry also shows the reason. If the lookup of the module has failed,
// the status entry keeps its former references.
func entryOf(m *Module, now time.Time) v1beta2.ModuleStatus {
	e := v1beta2.ModuleStatus{Name: m.Spec.Name, State: v1beta2.StateProcessing}
	if f := m.Former; f != nil {
		e.Channel, e.Version, e.FQDN, e.OCMComponentName = f.Channel, f.Version, f.FQDN, f.OCMComponentName
		e.Manifest, e.Template, e.Resource = f.Manifest, f.Template, f.Resource
		e.History = f.History
	}
	d := m.Decision
	if isPinned := d.Module != "" && m.Spec.Version != ""; d.Channel != "" || isPinned {
		e.Channel = d.Channel
	}
	if d.Template != nil {
		e.FQDN, e.OCMComponentName = d.Component, d.Component
		e.Template = newReference(v1beta2.GroupVersion.String(), "ModuleTemplate", d.Template.Namespace,
			d.Template.Name, d.Template.Generation)
	}
	if m.Manifest != nil {
		addManifest(&e, m, now)
	}
	if m.Manifest != nil {
		e.History = changelog.CatchUp(e.History, m.Manifest.Status.LastChange)
	}
	e.History = changelog.Next(e.History, observationOf(m), now)
	switch {
	case m.Err != nil:
		e.State, e.Reason, e.Message = v1beta2.StateError, loop.Reason(m.Err), m.Err.Error()
	case d.Blocker != nil:
		addBlocker(&e, m)
	}
	if m.IsRequested && !m.Spec.IsManaged() && m.Err == nil && m.PauseBlocker() == nil {
		e.State, e.Manifest, e.Template, e.Resource = v1beta2.StateUnmanaged, nil, nil, nil
	}
	return e
}

// observationOf returns what this reconcile has observed about the version of a module. The caller compares the
// observation with the history of versions in the status entry of the module. A blocker, or an error without a reason
// code, is not recorded in the history: a blocker does not change the version, and an error without a reason code is
// retried at once.
func observationOf(m *Module) changelog.Observation {
	is := m.Manifest
	switch {
	case m.Err != nil && loop.Reason(m.Err) != "":
		o := changelog.Observation{Version: m.Decision.Version, State: v1beta2.StateError, Reason: loop.Reason(m.Err)}
		if is != nil {
			o.Installed = is.Status.Version
			o.IsInstalled = is.Status.AppliedDigest != ""
		}
		return o
	case m.Err != nil || is == nil || !is.DeletionTimestamp.IsZero() || is.IsUnmanaged() || is.IsRestored():
		return changelog.Observation{}
	}
	return changelog.Observation{Version: is.Spec.Version, Installed: is.Status.Version,
		IsInstalled: is.Status.AppliedDigest != "", State: VisibleState(is), Reason: ReasonOf(is)}
}

// addBlocker adds to a status entry the reason why the module does not get the requested version. The installed version
// stays installed. The state of the status entry depends on the reason of the blocker:
//
//	WaitingForWindow               unchanged; field maintenance shows that an update waits
//	UpdateDeferred                 unchanged
//	KymaPaused, ModulePaused       unchanged, but Warning if another version is requested or no Manifest exists
//	WindowUnknown                  Error: the maintenance policy has to be corrected
//	ModuleNotFound                 Warning, as clients of Kyma expect it
//	any other                      Warning if a version is installed, Error if none is
func addBlocker(e *v1beta2.ModuleStatus, m *Module) {
	b := m.Decision.Blocker
	state := v1beta2.StateWarning
	switch b.Code {
	case v1beta2.ReasonWaitingForWindow:
		state, e.Maintenance = e.State, true
	case v1beta2.ReasonUpdateDeferred:
		state = e.State
	case v1beta2.ReasonKymaPaused, v1beta2.ReasonModulePaused:
		if m.Manifest != nil && (m.Decision.Version == "" || m.Decision.Version == e.Version) {
			state = e.State
		}
	case v1beta2.ReasonModuleNotFound:
	case v1beta2.ReasonWindowUnknown:
		state = v1beta2.StateError
	default:
		if m.Manifest == nil {
			state = v1beta2.StateError
		}
	}
	message := b.Message
	if state == e.State && e.Message != "" && e.Reason != b.Code {
		message += "; " + e.Message
	}
	e.State, e.Reason, e.Message = state, b.Code, message
	switch b.Code {
	case v1beta2.ReasonWaitingForWindow, v1beta2.ReasonWindowUnknown, v1beta2.ReasonDowngradeRefused,
		v1beta2.ReasonVersionReplaced, v1beta2.ReasonRestoredOlder, v1beta2.ReasonVersionWithdrawn,
		v1beta2.ReasonEdgeMissing, v1beta2.ReasonUpgradeInvalid, v1beta2.ReasonKnownRisk,
		v1beta2.ReasonUpdateDeferred, v1beta2.ReasonDeferralInvalid:
		if m.Former != nil && m.Former.Channel != "" {
			e.Channel = m.Former.Channel // the version of this channel is still installed
		}
	}
}

// addManifest adds the references, the version and the state of the module's Manifest to an entry.
func addManifest(e *v1beta2.ModuleStatus, m *Module, now time.Time) {
	is := m.Manifest
	e.Manifest = newReference(v1beta2.GroupVersion.String(), "Manifest", is.Namespace, is.Name, is.Generation)
	e.Version = InstalledOrRequestedVersion(is)
	if e.Version == "" {
		e.Version = is.Spec.Version
	}
	e.Resource = resourceOf(m)
	switch {
	case !is.DeletionTimestamp.IsZero():
		e.State = v1beta2.StateDeleting
		e.Reason, e.Message = ReasonOf(is), operationOf(is)
	case isStatusOutdated(is):
		e.State = v1beta2.StateProcessing
	default:
		e.State = is.Status.State
		if e.State == v1beta2.StateError || e.State == v1beta2.StateWarning || IsSlow(is, now) {
			e.Reason, e.Message = ReasonOf(is), operationOf(is)
		} else if c := unreadableCondition(is); c != nil {
			e.Reason, e.Message = c.Reason, c.Message
		}
	}
}

// resourceOf returns a reference to the custom resource that the Manifest of a module creates and deletes, or nil.
func resourceOf(m *Module) *v1beta2.ObjectReference {
	cr := m.Manifest.Spec.Resource
	if cr == nil || m.Manifest.Spec.CustomResourcePolicy != v1beta2.CreateAndDelete {
		return nil
	}
	r := newReference(cr.GetAPIVersion(), cr.GetKind(), cr.GetNamespace(), cr.GetName(), 0)
	if t := m.Decision.Template; t != nil && t.Annotations[v1beta2.AnnotationIsClusterScoped] == "true" {
		r.Metadata.Namespace = ""
	}
	return r
}

// unreadableCondition returns a condition if the sources of the installed version cannot be read, and nil otherwise.
func unreadableCondition(m *v1beta2.Manifest) *metav1.Condition {
	return meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionSourcesReadable)
}

// VisibleMessage returns the text that a Kyma shows for a Manifest in addition to its state.
func VisibleMessage(m *v1beta2.Manifest) string {
	if c := unreadableCondition(m); c != nil {
		return operationOf(m) + "; " + c.Message
	}
	return operationOf(m)
}

// operationOf returns the message of the last operation of a Manifest. If the API server refuses the status of the
// Manifest, operationOf returns the message of statusNotSavedCondition.
func operationOf(m *v1beta2.Manifest) string {
	if c := statusNotSavedCondition(m); c != nil {
		return c.Message
	}
	return m.Status.LastOperation.Operation
}

// statusNotSavedCondition returns a condition if the API server refuses the status of a Manifest, and nil otherwise. A
// status that the API server refuses is saved in a reduced form: the new state, the returned condition, and the other
// fields of the former status.
func statusNotSavedCondition(m *v1beta2.Manifest) *metav1.Condition {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady); c != nil &&
		c.Reason == v1beta2.ReasonStatusNotSaved && c.ObservedGeneration == m.Generation {
		return c
	}
	return nil
}

// CountReadyOrUnmanaged returns the number of modules that are Ready or unmanaged, and the number of all modules.
func CountReadyOrUnmanaged(modules []v1beta2.ModuleStatus) (ready, total int) {
	for _, m := range modules {
		if m.State == v1beta2.StateReady || m.State == v1beta2.StateUnmanaged {
			ready++
		}
	}
	return ready, len(modules)
}

// SummarizeNotReady returns the reason of the module in the worst state, and one line of text with every module that is
// not Ready and its message. The order of states, worst first, is Error, Warning, Deleting, Processing. If no module in
// the worst state has a reason, SummarizeNotReady returns the reason ModulesNotReady.
func SummarizeNotReady(modules []v1beta2.ModuleStatus) (worstReason, line string) {
	rank := []v1beta2.State{v1beta2.StateError, v1beta2.StateWarning, v1beta2.StateDeleting, v1beta2.StateProcessing}
	at := len(rank)
	worstReason = v1beta2.ReasonModulesNotReady
	var parts []string
	for _, m := range modules {
		i := slices.Index(rank, m.State)
		if i < 0 {
			continue
		}
		if i < at && m.Reason != "" {
			at, worstReason = i, m.Reason
		}
		part := m.Name + " is in state " + string(m.State)
		if m.Message != "" {
			part += ": " + m.Message
		}
		parts = append(parts, part)
	}
	const namedModulesLimit = 10 // so that people can read the condition
	if len(parts) > namedModulesLimit {
		parts = append(parts[:namedModulesLimit], fmt.Sprintf("and %d more", len(parts)-namedModulesLimit))
	}
	return worstReason, strings.Join(parts, "; ")
}

// SlowModuleDelay is how long a module may be Processing before the status of its Kyma shows the reason. If a module
// becomes Ready within SlowModuleDelay, the status of the Kyma in the runtime is written only twice: with the state
// Processing and with the state Ready.
const SlowModuleDelay = 10 * time.Second

// IsSlow reports whether a Manifest has been Processing for at least SlowModuleDelay.
func IsSlow(m *v1beta2.Manifest, now time.Time) bool {
	return m.Status.State == v1beta2.StateProcessing && !now.Before(NotReadySinceOrCreation(m).Add(SlowModuleDelay))
}

// NotReadySinceOrCreation returns the time at which a Manifest stopped being Ready: the last transition of its
// condition Ready. If the Manifest has no condition Ready, or the condition is True, NotReadySinceOrCreation returns
// the creation time of the Manifest.
func NotReadySinceOrCreation(m *v1beta2.Manifest) time.Time {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady); c != nil &&
		c.Status != metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return m.CreationTimestamp.Time
}

// VisibleState returns the state that a Kyma shows for a Manifest. If a Manifest was not reconciled since its last
// change, or if its inventory was lost, VisibleState returns Processing.
func VisibleState(m *v1beta2.Manifest) v1beta2.State {
	if isStatusOutdated(m) {
		return v1beta2.StateProcessing
	}
	return m.Status.State
}

// isStatusOutdated reports whether the status of a Manifest is older than the last change of its spec, or whether the
// Manifest was restored and its inventory still lacks the objects that are in the runtime. If the API server has
// refused the complete status, the Manifest has only a reduced status. A reduced status has an up-to-date state, so
// isStatusOutdated returns false for it.
func isStatusOutdated(m *v1beta2.Manifest) bool {
	if statusNotSavedCondition(m) != nil {
		return false
	}
	return m.Status.ObservedGeneration != m.Generation || m.Status.State == "" || AwaitsInventory(m)
}

// ReasonOf returns the reason of the condition Ready of a Manifest, or "" if the condition is True or absent.
func ReasonOf(m *v1beta2.Manifest) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady); c != nil &&
		c.Status != metav1.ConditionTrue {
		return c.Reason
	}
	return ""
}

// RemoteStatus returns the status for the Kyma in the runtime. RemoteStatus converts a copy of the status of the Kyma
// in the control plane. Each observedGeneration in the copy is set to the generation of the Kyma in the runtime.
// References to ModuleTemplates become references to the ModuleTemplates in the runtime. Fields about objects that
// exist only in the control plane are removed from the copy.
func RemoteStatus(k *v1beta2.Kyma, generation int64) v1beta2.KymaStatus {
	s := *k.Status.DeepCopy()
	s.ObservedGeneration, s.Agent, s.ClusterID, s.KubernetesVersion = generation, nil, "", ""
	// the admin of the runtime cannot change anything about mandatory modules
	meta.RemoveStatusCondition(&s.Conditions, v1beta2.ConditionMandatoryModules)
	for i := range s.Conditions {
		s.Conditions[i].ObservedGeneration = generation
	}
	for i := range s.Modules {
		s.Modules[i].Manifest = nil
		if t := s.Modules[i].Template; t != nil {
			t.Metadata.Namespace = v1beta2.RuntimeNamespace
		}
	}
	return s
}

// newReference returns an object reference for the status entry of a module.
func newReference(apiVersion, kind, namespace, name string, generation int64) *v1beta2.ObjectReference {
	return &v1beta2.ObjectReference{
		APIVersion: apiVersion, Kind: kind,
		Metadata: v1beta2.ObjectReferenceMeta{Name: name, Namespace: namespace, Generation: generation},
	}
}
