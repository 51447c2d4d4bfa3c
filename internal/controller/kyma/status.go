package kyma

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// report derives the whole status from what the steps saw. Nothing in it changes while nothing changes.
func (n *run) report(out loop.Outcome) {
	s := &n.kyma.Status
	if n.silent != nil { // what is waited for has a reason
		out.Err, out.Waiting = n.silent, ""
	}
	switch {
	case n.resolved():
		s.Modules = n.moduleEntries()
	case out.Err != nil && n.kyma.DeletionTimestamp.IsZero():
		// What runs in a runtime that cannot be reached is not known. Entries keep their references: they are still right.
		for i := range s.Modules {
			if e := &s.Modules[i]; e.State != v1beta2.StateUnmanaged {
				e.State, e.Reason, e.Message = v1beta2.StateError, out.Reason(), out.Err.Error()
			}
		}
	}
	ready, total := countReady(s.Modules)
	s.ModulesReady = fmt.Sprintf("%d/%d", ready, total)
	s.ObservedGeneration = n.kyma.Generation
	n.reportConditions(out)
	state, operation := n.state(out)
	if state == v1beta2.StateReady || state == v1beta2.StateWarning {
		s.ActiveChannel = n.remote.Spec.Channel
	}
	if s.State != state || s.LastOperation.Operation != operation {
		s.LastOperation = v1beta2.LastOperation{Operation: operation, LastUpdateTime: metav1.Now()}
	}
	s.State = state
	n.reportMetrics()
}

// brief is how long a Kyma that was just met need not say that the runtime does not serve our kinds yet: it does after two tenths of a second.
const brief = 2 * time.Second

// isMinor tells whether the status need not be saved: it is the first of a Kyma, and will soon be another.
func (n *run) isMinor() bool {
	return n.new && n.unserved && n.now.Sub(n.memory(n.kyma.Name, n.runtime).born) < brief
}

// resolved tells whether the pass got far enough to know what each module is.
func (n *run) resolved() bool { return n.known }

// state is the one word for the Kyma and the sentence next to it. The first row that fits wins:
//
//	1  it is being deleted                       Deleting
//	2  a step failed for the runtime as a whole  Error
//	3  a module is in Error                      Error
//	4  a module is in Warning                    Warning
//	5  a module is not Ready, or a step waits    Processing
//	6  else                                      Ready
func (n *run) state(out loop.Outcome) (v1beta2.State, string) {
	s := &n.kyma.Status
	has := func(state v1beta2.State) bool {
		return slices.ContainsFunc(s.Modules, func(m v1beta2.ModuleStatus) bool { return m.State == state })
	}
	_, which := worst(s.Modules)
	switch {
	case !n.kyma.DeletionTimestamp.IsZero():
		return v1beta2.StateDeleting, deletionOperation(out)
	case out.Err != nil && !n.resolved():
		return v1beta2.StateError, out.Err.Error()
	case has(v1beta2.StateError):
		return v1beta2.StateError, which
	case out.Err != nil:
		return v1beta2.StateError, out.Err.Error()
	case has(v1beta2.StateWarning):
		return v1beta2.StateWarning, which
	case out.Waiting != "":
		return v1beta2.StateProcessing, "waiting for " + out.Waiting
	}
	if ready, total := countReady(s.Modules); ready < total {
		return v1beta2.StateProcessing, v1beta2.OperationWaitingForModules
	}
	return v1beta2.StateReady, v1beta2.OperationReady
}

func deletionOperation(out loop.Outcome) string {
	switch {
	case out.Err != nil:
		return out.Err.Error()
	case out.Waiting != "":
		return "waiting for " + out.Waiting
	default:
		return v1beta2.OperationDeleting
	}
}

// reportConditions sets the leaf conditions and computes Ready from them.
func (n *run) reportConditions(out loop.Outcome) {
	set := func(kind string, ok bool, yes, no, reason, detail string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: v1beta2.ReasonReady, Message: yes, ObservedGeneration: n.kyma.Generation}
		if !ok {
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, cmp.Or(reason, v1beta2.ReasonInternalError), no
			if detail != "" {
				c.Message += ": " + detail
			}
		}
		meta.SetStatusCondition(&n.kyma.Status.Conditions, c)
	}
	detail := out.Waiting
	if out.Err != nil {
		detail = out.Err.Error()
	}
	if !n.InCluster {
		because := ""
		if !n.mirrored {
			because = detail
		}
		set(v1beta2.ConditionCRDsSync, n.mirrored, v1beta2.MessageCRDsSyncTrue, v1beta2.MessageCRDsSyncFalse, cmp.Or(out.Reason(), v1beta2.ReasonApplying), because)
	}
	if n.PullSecret != "" && !n.InCluster {
		set(v1beta2.ConditionSKRImagePullSecretSync, n.mirrored, v1beta2.MessageSKRImagePullSecretSyncTrue, v1beta2.MessageSKRImagePullSecretSyncFalse,
			cmp.Or(out.Reason(), v1beta2.ReasonApplying), "")
	}
	ready, total := countReady(n.kyma.Status.Modules)
	reason, which := worst(n.kyma.Status.Modules)
	modulesReady := ready == total && n.resolved()
	set(v1beta2.ConditionModules, modulesReady, v1beta2.MessageModulesTrue, v1beta2.MessageModulesFalse, reason, which)
	if !n.InCluster && !n.paused {
		set(v1beta2.ConditionModuleCatalog, n.catalogued, v1beta2.MessageModuleCatalogTrue, v1beta2.MessageModuleCatalogFalse, cmp.Or(out.Reason(), v1beta2.ReasonApplying), "")
	}
	n.reportMandatory(set)
	n.reportPolicy(set)
	n.reportAgent(set)
	n.reportSilence(out, set)
	switch {
	case out.Err != nil:
		reason = out.Reason()
	case n.queued:
		reason = v1beta2.ReasonDeletionQueued
	case out.Waiting != "" && !n.kyma.DeletionTimestamp.IsZero():
		reason = v1beta2.ReasonManifestsRemaining
	case out.Waiting != "":
		reason = v1beta2.ReasonApplying
	default:
		detail = which
	}
	all := modulesReady && out.Err == nil && out.Waiting == "" && n.kyma.DeletionTimestamp.IsZero()
	if b := channel.PauseBlocker(n.kyma, ""); b != nil && n.kyma.DeletionTimestamp.IsZero() && out.Err == nil {
		reason, detail = b.Code, b.Message
		if all {
			meta.SetStatusCondition(&n.kyma.Status.Conditions, metav1.Condition{
				Type: v1beta2.ConditionReady, Status: metav1.ConditionTrue, Reason: reason, Message: detail, ObservedGeneration: n.kyma.Generation,
			})
			return
		}
	}
	set(v1beta2.ConditionReady, all, v1beta2.OperationReady, "not ready", reason, detail)
}

// setter sets a condition: True with a message, or False with another, a reason and what is in the way.
type setter func(kind string, ok bool, yes, no, reason, detail string)

// reportMandatory says how the mandatory modules are, if there are any.
func (n *run) reportMandatory(set setter) {
	if !n.resolved() || !n.kyma.DeletionTimestamp.IsZero() {
		return
	}
	var entries []v1beta2.ModuleStatus
	for i := range n.modules {
		if m := &n.modules[i]; m.mandatory {
			entries = append(entries, n.entry(m))
		}
	}
	n.reportMandatoryMetrics(entries)
	if len(entries) == 0 {
		meta.RemoveStatusCondition(&n.kyma.Status.Conditions, v1beta2.ConditionMandatoryModules)
		return
	}
	ready, total := countReady(entries)
	reason, which := worst(entries)
	set(v1beta2.ConditionMandatoryModules, ready == total, v1beta2.MessageMandatoryModulesTrue, v1beta2.MessageMandatoryModulesFalse, reason, which)
}

// mandatorySince is when a mandatory module was last seen not to be Ready, now if all are.
func (n *run) mandatorySince() time.Time {
	if c := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionMandatoryModules); c != nil && c.Status != metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return n.now
}

// reportPolicy says that the maintenance policy cannot be read, to those who wait for a window.
func (n *run) reportPolicy(set setter) {
	if n.policyProblem == nil || !slices.ContainsFunc(n.kyma.Status.Modules, waitsForWindow) {
		meta.RemoveStatusCondition(&n.kyma.Status.Conditions, v1beta2.ConditionMaintenancePolicy)
		return
	}
	set(v1beta2.ConditionMaintenancePolicy, false, "", "the maintenance policy cannot be read, the one before stays in force", v1beta2.ReasonInvalidPolicy, n.policyProblem.Error())
}

// reportSkipped says that nobody looks at the Kyma; all else stays as it was.
func (n *run) reportSkipped(loop.Outcome) {
	c := metav1.Condition{Type: v1beta2.ConditionReady, Status: metav1.ConditionUnknown}
	if was := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionReady); was != nil {
		c.Status = was.Status
	}
	c.Reason, c.Message = v1beta2.ReasonSkipReconciliation, fmt.Sprintf(
		"the status is of before the label %s: remove it to go on; only a deletion goes on with it", v1beta2.LabelSkipReconciliation)
	meta.SetStatusCondition(&n.kyma.Status.Conditions, c)
}

// moduleEntries returns the entries of the status: wanted modules in the order of spec, then those that are leaving.
func (n *run) moduleEntries() []v1beta2.ModuleStatus {
	var entries []v1beta2.ModuleStatus
	for i := range n.modules {
		if m := &n.modules[i]; !m.mandatory {
			entries = append(entries, n.entry(m))
		}
	}
	return entries
}

// entry says what is installed of one module now, and if it is not as wished, why. References are never lost because a lookup failed.
func (n *run) entry(m *module) v1beta2.ModuleStatus {
	e := v1beta2.ModuleStatus{Name: m.wish.Name, State: v1beta2.StateProcessing}
	if f := m.former; f != nil {
		e.Channel, e.Version, e.FQDN, e.OCMComponentName = f.Channel, f.Version, f.FQDN, f.OCMComponentName
		e.Manifest, e.Template, e.Resource = f.Manifest, f.Template, f.Resource
	}
	d := m.decision
	if d.Channel != "" {
		e.Channel = d.Channel
	}
	if d.Template != nil {
		e.FQDN, e.OCMComponentName = d.Component, d.Component
		e.Template = tracking(v1beta2.GroupVersion.String(), "ModuleTemplate", d.Template.Namespace, d.Template.Name, d.Template.Generation)
	}
	if is := m.manifest; is != nil {
		n.entryOfManifest(&e, m, is)
	}
	switch {
	case m.err != nil:
		e.State, e.Reason, e.Message = v1beta2.StateError, loop.Reason(m.err), m.err.Error()
	case d.Blocker != nil:
		entryOfBlocker(&e, m)
	}
	if m.wanted && !m.wish.IsManaged() && m.err == nil && m.pause() == nil {
		e.State, e.Manifest, e.Template, e.Resource = v1beta2.StateUnmanaged, nil, nil, nil
	}
	return e
}

// entryOfBlocker says what keeps a module from its wish. What runs goes on running:
//
//	WaitingForWindow               the state stays; maintenance says that an update waits
//	KymaPaused, ModulePaused       the state stays, but a wish that is not fulfilled is a Warning
//	WindowUnknown                  Error: somebody has to mend the maintenance policy
//	any other                      Warning, also if it never ran: it needs a person, not another try
func entryOfBlocker(e *v1beta2.ModuleStatus, m *module) {
	b := m.decision.Blocker
	state := v1beta2.StateWarning
	switch b.Code {
	case v1beta2.ReasonWaitingForWindow:
		state, e.Maintenance = e.State, true
	case v1beta2.ReasonKymaPaused, v1beta2.ReasonModulePaused:
		if m.manifest != nil && (m.decision.Version == "" || m.decision.Version == e.Version) {
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
		if m.former != nil && m.former.Channel != "" {
			e.Channel = m.former.Channel // it is still that one whose version runs
		}
	}
}

// entryOfManifest fills in what the Manifest says.
func (n *run) entryOfManifest(e *v1beta2.ModuleStatus, m *module, is *v1beta2.Manifest) {
	e.Manifest = tracking(v1beta2.GroupVersion.String(), "Manifest", is.Namespace, is.Name, is.Generation)
	e.Version = installedVersion(is)
	if e.Version == "" {
		e.Version = is.Spec.Version
	}
	e.Resource = nil
	if cr := is.Spec.Resource; cr != nil && is.Spec.CustomResourcePolicy == v1beta2.CreateAndDelete {
		e.Resource = tracking(cr.GetAPIVersion(), cr.GetKind(), cr.GetNamespace(), cr.GetName(), 0)
		if t := m.decision.Template; t != nil && t.Annotations[v1beta2.AnnotationIsClusterScoped] == "true" {
			e.Resource.Metadata.Namespace = ""
		}
	}
	switch {
	case !is.DeletionTimestamp.IsZero():
		e.State = v1beta2.StateDeleting
		e.Reason, e.Message = reasonOf(is), is.Status.LastOperation.Operation
	case is.Status.ObservedGeneration != is.Generation || is.Status.State == "":
		e.State = v1beta2.StateProcessing // nobody has looked at it yet, so what it says is of before
	default:
		e.State = is.Status.State
		if e.State == v1beta2.StateError || e.State == v1beta2.StateWarning || n.isSlow(is) {
			e.Reason, e.Message = reasonOf(is), is.Status.LastOperation.Operation
		}
	}
}

// patience is how long a module may be Processing before its Kyma says what it waits for. A module that is quicker costs the runtime two
// writes of status, whatever happens on the way.
const patience = 10 * time.Second

// isSlow tells whether a Manifest has been Processing for longer than patience.
func (n *run) isSlow(m *v1beta2.Manifest) bool {
	return m.Status.State == v1beta2.StateProcessing && !n.now.Before(busySince(m).Add(patience))
}

// busySince is when a Manifest was last Ready, or was first looked at.
func busySince(m *v1beta2.Manifest) time.Time {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return m.CreationTimestamp.Time
}

// reasonOf returns the reason of the condition Ready of a Manifest.
func reasonOf(m *v1beta2.Manifest) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
		return c.Reason
	}
	return ""
}

// publicStatus is the status that the runtime's admin sees: generations are those of the Kyma in the runtime, template references point into the runtime, and Manifests, which
// are not there, are left out.
func publicStatus(k *v1beta2.Kyma, generation int64) v1beta2.KymaStatus {
	s := *k.Status.DeepCopy()
	s.ObservedGeneration, s.Agent = generation, nil
	meta.RemoveStatusCondition(&s.Conditions, v1beta2.ConditionMandatoryModules) // what the control plane wishes is not the admin's to mend
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

func tracking(apiVersion, kind, namespace, name string, generation int64) *v1beta2.ObjectReference {
	return &v1beta2.ObjectReference{
		APIVersion: apiVersion, Kind: kind,
		Metadata: v1beta2.ObjectReferenceMeta{Name: name, Namespace: namespace, Generation: generation},
	}
}

// countReady counts the modules that are as they should be, and all.
func countReady(modules []v1beta2.ModuleStatus) (ready, total int) {
	for _, m := range modules {
		if m.State == v1beta2.StateReady || m.State == v1beta2.StateUnmanaged {
			ready++
		}
	}
	return ready, len(modules)
}

// worst returns the reason of the module in the worst state, ModulesNotReady if it has none, and a line that names every module that is not ready and why.
func worst(modules []v1beta2.ModuleStatus) (reason, line string) {
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
	const most = 10 // a condition is read by people
	if len(parts) > most {
		parts = append(parts[:most], fmt.Sprintf("and %d more", len(parts)-most))
	}
	return reason, strings.Join(parts, "; ")
}
