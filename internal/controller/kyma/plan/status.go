package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// Entries returns the entries of the status: requested modules in the order of spec, then those that are being removed.
func Entries(modules []Module, now time.Time) []v1beta2.ModuleStatus {
	var entries []v1beta2.ModuleStatus
	for i := range modules {
		if m := &modules[i]; !m.IsMandatory {
			entries = append(entries, entryOf(m, now))
		}
	}
	return entries
}

// MandatoryEntries returns entries like those of the status for the mandatory modules.
func MandatoryEntries(modules []Module, now time.Time) []v1beta2.ModuleStatus {
	var entries []v1beta2.ModuleStatus
	for i := range modules {
		if m := &modules[i]; m.IsMandatory {
			entries = append(entries, entryOf(m, now))
		}
	}
	return entries
}

// entryOf returns the entry of one module: what is installed now and, if that is not what is requested, why. References
// are kept when a lookup has failed.
func entryOf(m *Module, now time.Time) v1beta2.ModuleStatus {
	e := v1beta2.ModuleStatus{Name: m.Spec.Name, State: v1beta2.StateProcessing}
	if f := m.Former; f != nil {
		e.Channel, e.Version, e.FQDN, e.OCMComponentName = f.Channel, f.Version, f.FQDN, f.OCMComponentName
		e.Manifest, e.Template, e.Resource = f.Manifest, f.Template, f.Resource
	}
	d := m.Decision
	if d.Channel != "" {
		e.Channel = d.Channel
	}
	if d.Template != nil {
		e.FQDN, e.OCMComponentName = d.Component, d.Component
		e.Template = referenceTo(v1beta2.GroupVersion.String(), "ModuleTemplate", d.Template.Namespace,
			d.Template.Name, d.Template.Generation)
	}
	if m.Manifest != nil {
		addManifest(&e, m, now)
	}
	switch {
	case m.Err != nil:
		e.State, e.Reason, e.Message = v1beta2.StateError, loop.Reason(m.Err), m.Err.Error()
	case d.Blocker != nil:
		addBlocker(&e, m)
	}
	if m.IsRequested && !m.Spec.IsManaged() && m.Err == nil && m.Pause() == nil {
		e.State, e.Manifest, e.Template, e.Resource = v1beta2.StateUnmanaged, nil, nil, nil
	}
	return e
}

// addBlocker adds to an entry why the module does not get what is requested. What is installed stays installed:
//
//	WaitingForWindow               the state stays; field maintenance shows that an update waits
//	KymaPaused, ModulePaused       the state stays, but Warning if another version is requested
//	WindowUnknown                  Error: the maintenance policy has to be corrected
//	any other                      Warning, also if it was never installed: a person has to act, a retry does not help
func addBlocker(e *v1beta2.ModuleStatus, m *Module) {
	b := m.Decision.Blocker
	state := v1beta2.StateWarning
	switch b.Code {
	case v1beta2.ReasonWaitingForWindow:
		state, e.Maintenance = e.State, true
	case v1beta2.ReasonKymaPaused, v1beta2.ReasonModulePaused:
		if m.Manifest != nil && (m.Decision.Version == "" || m.Decision.Version == e.Version) {
			state = e.State
		}
	case v1beta2.ReasonWindowUnknown:
		state = v1beta2.StateError
	}
	message := b.Message
	if state == e.State && e.Message != "" {
		message += "; " + e.Message
	}
	e.State, e.Reason, e.Message = state, b.Code, message
	switch b.Code {
	case v1beta2.ReasonWaitingForWindow, v1beta2.ReasonWindowUnknown, v1beta2.ReasonDowngradeRefused:
		if m.Former != nil && m.Former.Channel != "" {
			e.Channel = m.Former.Channel // whose version is still installed
		}
	}
}

// addManifest adds to an entry what the Manifest of the module shows.
func addManifest(e *v1beta2.ModuleStatus, m *Module, now time.Time) {
	is := m.Manifest
	e.Manifest = referenceTo(v1beta2.GroupVersion.String(), "Manifest", is.Namespace, is.Name, is.Generation)
	e.Version = InstalledVersion(is)
	if e.Version == "" {
		e.Version = is.Spec.Version
	}
	e.Resource = nil
	if cr := is.Spec.Resource; cr != nil && is.Spec.CustomResourcePolicy == v1beta2.CreateAndDelete {
		e.Resource = referenceTo(cr.GetAPIVersion(), cr.GetKind(), cr.GetNamespace(), cr.GetName(), 0)
		if t := m.Decision.Template; t != nil && t.Annotations[v1beta2.AnnotationIsClusterScoped] == "true" {
			e.Resource.Metadata.Namespace = ""
		}
	}
	switch {
	case !is.DeletionTimestamp.IsZero():
		e.State = v1beta2.StateDeleting
		e.Reason, e.Message = ReasonOf(is), is.Status.LastOperation.Operation
	case is.Status.ObservedGeneration != is.Generation || is.Status.State == "":
		e.State = v1beta2.StateProcessing // it was not reconciled yet, so its status is outdated
	default:
		e.State = is.Status.State
		if e.State == v1beta2.StateError || e.State == v1beta2.StateWarning || IsSlow(is, now) {
			e.Reason, e.Message = ReasonOf(is), is.Status.LastOperation.Operation
		}
	}
}

// CountReady returns the number of modules that are Ready or unmanaged, and of all.
func CountReady(modules []v1beta2.ModuleStatus) (ready, total int) {
	for _, m := range modules {
		if m.State == v1beta2.StateReady || m.State == v1beta2.StateUnmanaged {
			ready++
		}
	}
	return ready, len(modules)
}

// Worst returns the reason of the module in the Worst state, ModulesNotReady if it has none, and a line with every
// module that is not ready and why.
func Worst(modules []v1beta2.ModuleStatus) (reason, line string) {
	rank := []v1beta2.State{v1beta2.StateError, v1beta2.StateWarning, v1beta2.StateDeleting, v1beta2.StateProcessing}
	at := len(rank)
	reason = v1beta2.ReasonModulesNotReady
	var parts []string
	for _, m := range modules {
		i := slices.Index(rank, m.State)
		if i < 0 {
			continue
		}
		if i < at && m.Reason != "" {
			at, reason = i, m.Reason
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
	return reason, strings.Join(parts, "; ")
}

// SlowModuleDelay is how long a module may be Processing before its Kyma reports what it waits for. A module that
// becomes Ready earlier costs the runtime two writes of the status, whatever happens meanwhile.
const SlowModuleDelay = 10 * time.Second

// IsSlow reports whether a Manifest has been Processing for slowModuleDelay.
func IsSlow(m *v1beta2.Manifest, now time.Time) bool {
	return m.Status.State == v1beta2.StateProcessing && !now.Before(ProcessingSince(m).Add(SlowModuleDelay))
}

// ProcessingSince returns when a Manifest was last Ready, or else was created.
func ProcessingSince(m *v1beta2.Manifest) time.Time {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady); c != nil &&
		c.Status != metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return m.CreationTimestamp.Time
}

// VisibleState returns the state that a Kyma shows for a Manifest: one that was not reconciled since its last change is
// Processing.
func VisibleState(m *v1beta2.Manifest) v1beta2.State {
	if m.Status.ObservedGeneration != m.Generation || m.Status.State == "" {
		return v1beta2.StateProcessing
	}
	return m.Status.State
}

// ReasonOf returns the reason of the condition Ready of a Manifest.
func ReasonOf(m *v1beta2.Manifest) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady); c != nil &&
		c.Status != metav1.ConditionTrue {
		return c.Reason
	}
	return ""
}

// RemoteStatus returns the status for the Kyma in the runtime: generations are those of that Kyma, references to
// templates point into the runtime, and what only exists in the control plane is left out.
func RemoteStatus(k *v1beta2.Kyma, generation int64) v1beta2.KymaStatus {
	s := *k.Status.DeepCopy()
	s.ObservedGeneration, s.Agent = generation, nil
	// the admin of the runtime cannot do anything about them
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

// referenceTo returns a reference of a module's entry.
func referenceTo(apiVersion, kind, namespace, name string, generation int64) *v1beta2.ObjectReference {
	return &v1beta2.ObjectReference{
		APIVersion: apiVersion, Kind: kind,
		Metadata: v1beta2.ObjectReferenceMeta{Name: name, Namespace: namespace, Generation: generation},
	}
}
