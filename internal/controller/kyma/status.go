package kyma

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/access"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/evidence"
)

// Only the functions of this file write conditions, states and status entries of modules. The functions are pure: they
// make no request, take no lock and count nothing.

// report derives the status of the Kyma from the findings of the steps and from the result of the reconcile. If nothing
// has changed, the status stays the same.
func (n *run) report(out loop.Outcome) {
	s := &n.kyma.Status
	for _, why := range []error{n.deletion.unavailable, n.found.refused} {
		if why != nil { // the outcome of the step has no reason
			out.Err, out.Waiting = why, ""
		}
	}
	switch {
	case n.found.resolved:
		s.Modules = plan.NonMandatoryEntries(n.modules, n.now)
		if n.kyma.DeletionTimestamp.IsZero() {
			s.MandatoryModules = plan.InstalledMandatory(n.modules, s.MandatoryModules)
		}
	case out.Err != nil && n.kyma.DeletionTimestamp.IsZero():
		// If a step fails before the modules are resolved, for example because the runtime cannot be reached, the
		// states of the modules are not known. Only state, reason and message of each status entry are replaced: the
		// references to Manifests and ModuleTemplates stay, because these objects are in the control plane and still
		// known.
		for i := range s.Modules {
			if e := &s.Modules[i]; e.State != v1beta2.StateUnmanaged {
				e.State, e.Reason, e.Message = v1beta2.StateError, out.Reason(), out.Err.Error()
			}
		}
	}
	ready, total := plan.CountReadyOrUnmanaged(s.Modules)
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
}

// state returns the state of the Kyma and the text of its last operation. The first matching row determines the state
// of the Kyma:
//
//	1  the Kyma is being deleted                           Deleting
//	2  a step failed before the modules were resolved      Error
//	3  a module is in Error                                Error
//	4  a later step failed                                 Error
//	5  a step waits before the modules were resolved       Processing
//	6  a module is in Warning, or rights are lost          Warning
//	7  a later step waits, or a module is not Ready        Processing
//	8  any other Kyma                                      Ready
//
// In rows 6 and 8 the modules are resolved, so the Kyma in the runtime was read.
func (n *run) state(out loop.Outcome) (v1beta2.State, string) {
	s := &n.kyma.Status
	has := func(state v1beta2.State) bool {
		return slices.ContainsFunc(s.Modules, func(m v1beta2.ModuleStatus) bool { return m.State == state })
	}
	_, which := plan.SummarizeNotReady(s.Modules)
	switch {
	case !n.kyma.DeletionTimestamp.IsZero():
		return v1beta2.StateDeleting, deletionOperation(out)
	case out.Err != nil && !n.found.resolved:
		return v1beta2.StateError, out.Err.Error()
	case has(v1beta2.StateError):
		return v1beta2.StateError, which
	case out.Err != nil:
		return v1beta2.StateError, out.Err.Error()
	case out.Waiting != "" && !n.found.resolved:
		return v1beta2.StateProcessing, "waiting for " + out.Waiting
	case has(v1beta2.StateWarning):
		return v1beta2.StateWarning, which
	case n.rightsReduced() != nil:
		return v1beta2.StateWarning, n.rightsReduced().Message
	case out.Waiting != "":
		return v1beta2.StateProcessing, "waiting for " + out.Waiting
	}
	if ready, total := plan.CountReadyOrUnmanaged(s.Modules); ready < total {
		return v1beta2.StateProcessing, v1beta2.OperationWaitingForModules
	}
	return v1beta2.StateReady, v1beta2.OperationReady
}

// deletionOperation returns the text of the last operation of a Kyma that is being deleted.
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

// reportConditions sets all conditions. reportConditions sets the condition Ready last, because Ready depends on the
// other conditions.
func (n *run) reportConditions(out loop.Outcome) {
	set := func(kind string, ok bool, yes, no, reason, detail string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: v1beta2.ReasonReady, Message: yes,
			ObservedGeneration: n.kyma.Generation}
		if !ok {
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, cmp.Or(reason, v1beta2.ReasonInternalError), no
			if detail != "" {
				c.Message += ": " + detail
			}
		}
		n.setCondition(c)
	}
	detail := out.Waiting
	if out.Err != nil {
		detail = out.Err.Error()
	}
	if !n.InCluster {
		because := ""
		if !n.found.baseSynced {
			because = detail
		}
		set(v1beta2.ConditionCRDsSync, n.found.baseSynced, v1beta2.MessageCRDsSyncTrue, v1beta2.MessageCRDsSyncFalse,
			cmp.Or(out.Reason(), v1beta2.ReasonApplying), because)
	}
	if n.PullSecret != "" && !n.InCluster {
		set(v1beta2.ConditionSKRImagePullSecretSync, n.found.baseSynced, v1beta2.MessageSKRImagePullSecretSyncTrue,
			v1beta2.MessageSKRImagePullSecretSyncFalse,
			cmp.Or(out.Reason(), v1beta2.ReasonApplying), "")
	}
	ready, total := plan.CountReadyOrUnmanaged(n.kyma.Status.Modules)
	reason, which := plan.SummarizeNotReady(n.kyma.Status.Modules)
	modulesReady := ready == total && n.found.resolved
	set(v1beta2.ConditionModules, modulesReady, v1beta2.MessageModulesTrue, v1beta2.MessageModulesFalse, reason, which)
	if !n.InCluster && !n.found.paused {
		set(v1beta2.ConditionModuleCatalog, n.found.catalogSynced, v1beta2.MessageModuleCatalogTrue,
			v1beta2.MessageModuleCatalogFalse, cmp.Or(out.Reason(), v1beta2.ReasonApplying), "")
	}
	n.updateMandatoryCondition(set)
	n.updatePolicyCondition(set)
	n.updateSpecAcceptedCondition(set)
	n.updateAgentCondition(set)
	n.updateUnreachableWhileDeleting(out, set)
	n.updateCredentialCondition()
	switch {
	case out.Err != nil:
		reason = out.Reason()
	case n.deletion.isQueued:
		reason = v1beta2.ReasonDeletionQueued
	case n.deletion.isReleased:
		reason, detail = v1beta2.ReasonFinalizersRemaining, "waiting for "+out.Waiting
	case out.Waiting != "" && !n.kyma.DeletionTimestamp.IsZero():
		reason = v1beta2.ReasonManifestsRemaining
	case out.Waiting != "":
		reason = v1beta2.ReasonApplying
	default:
		detail = which
	}
	all := modulesReady && out.Err == nil && out.Waiting == "" && n.kyma.DeletionTimestamp.IsZero()
	if c := n.rightsReduced(); c != nil && all {
		all, reason, detail = false, c.Reason, c.Message
	}
	if b := channel.PauseBlocker(n.kyma, ""); b != nil && n.kyma.DeletionTimestamp.IsZero() && out.Err == nil {
		reason, detail = b.Code, b.Message
		if all {
			n.setCondition(metav1.Condition{
				Type: v1beta2.ConditionReady, Status: metav1.ConditionTrue, Reason: reason, Message: detail,
				ObservedGeneration: n.kyma.Generation,
			})
			return
		}
	}
	set(v1beta2.ConditionReady, all, v1beta2.OperationReady, "not ready", reason, detail)
}

// setCondition sets a condition. Rollouts read from the condition Ready since when a runtime cannot be used. Therefore
// the time of the last transition of Ready also changes when the runtime becomes unusable, or usable again, and the
// Kyma was not Ready for another reason before or after that.
func (n *run) setCondition(c metav1.Condition) {
	isUnusable := func(reason string) bool { return evidence.CauseOf(reason) == evidence.CauseRuntime }
	all := &n.kyma.Status.Conditions
	was := meta.FindStatusCondition(*all, c.Type)
	isChanged := c.Type == v1beta2.ConditionReady && was != nil && isUnusable(was.Reason) != isUnusable(c.Reason)
	meta.SetStatusCondition(all, c)
	if isChanged {
		meta.FindStatusCondition(*all, c.Type).LastTransitionTime = metav1.NewTime(n.now)
	}
}

// setter is a function that sets a condition. If the parameter ok is true, the condition becomes True, with the message
// in the parameter yes. If ok is false, the condition becomes False, with the given reason and detail, and with the
// message in the parameter no.
type setter func(kind string, ok bool, yes, no, reason, detail string)

// updateMandatoryCondition sets or removes the condition of the mandatory modules.
func (n *run) updateMandatoryCondition(set setter) {
	if !n.found.resolved || !n.kyma.DeletionTimestamp.IsZero() {
		return
	}
	entries := plan.MandatoryEntries(n.modules, n.now)
	if len(entries) == 0 {
		meta.RemoveStatusCondition(&n.kyma.Status.Conditions, v1beta2.ConditionMandatoryModules)
		return
	}
	ready, total := plan.CountReadyOrUnmanaged(entries)
	reason, which := plan.SummarizeNotReady(entries)
	set(v1beta2.ConditionMandatoryModules, ready == total, v1beta2.MessageMandatoryModulesTrue,
		v1beta2.MessageMandatoryModulesFalse, reason, which)
}

// mandatoryNotReadySinceOrNow returns the time since when a mandatory module is not Ready. If the condition does not
// show a mandatory module that is not Ready yet, mandatoryNotReadySinceOrNow returns the current time.
func (n *run) mandatoryNotReadySinceOrNow() time.Time {
	if c := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionMandatoryModules); c != nil &&
		c.Status != metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return n.now
}

// updateAgentCondition sets or removes the condition of the agent.
func (n *run) updateAgentCondition(set setter) {
	s := n.kyma.Status.Agent
	if s == nil || n.Agents.Delivery == nil {
		meta.RemoveStatusCondition(&n.kyma.Status.Conditions, v1beta2.ConditionSKRWebhook)
		return
	}
	set(v1beta2.ConditionSKRWebhook, s.Connected, v1beta2.MessageSKRWebhookTrue,
		v1beta2.MessageSKRWebhookFalse, s.Reason, s.Message)
}

// updatePolicyCondition sets the condition MaintenancePolicy if a module waits for a maintenance window and the
// maintenance policy cannot be used. If no module waits, or if the policy can be used, updatePolicyCondition removes
// the condition MaintenancePolicy.
func (n *run) updatePolicyCondition(set setter) {
	if n.found.policyProblem == nil || !slices.ContainsFunc(n.kyma.Status.Modules, waitsForWindow) {
		meta.RemoveStatusCondition(&n.kyma.Status.Conditions, v1beta2.ConditionMaintenancePolicy)
		return
	}
	set(v1beta2.ConditionMaintenancePolicy, false, "", "the maintenance policy cannot be used",
		v1beta2.ReasonInvalidPolicy, n.found.policyProblem.Error())
}

// updateSpecAcceptedCondition sets the condition SpecAccepted to False while the Kyma in the runtime sets a field that
// has an effect only in the control plane. When the Kyma in the runtime no longer sets a field that has no effect
// there, updateSpecAcceptedCondition removes the condition SpecAccepted. If the Kyma in the runtime was not read,
// updateSpecAcceptedCondition changes nothing.
func (n *run) updateSpecAcceptedCondition(set setter) {
	switch {
	case n.remote == nil:
	case n.remote.Spec.SkipMaintenanceWindows && !n.kyma.Spec.SkipMaintenanceWindows:
		set(v1beta2.ConditionSpecAccepted, false, "", v1beta2.MessageSpecAcceptedFalse, v1beta2.ReasonFieldIgnored,
			"spec.skipMaintenanceWindows of the Kyma in the runtime has no effect: remove it there; the operator of the "+
				"control plane can set it on Kyma "+n.kyma.Name+" in the control plane")
	default:
		meta.RemoveStatusCondition(&n.kyma.Status.Conditions, v1beta2.ConditionSpecAccepted)
	}
}

// updateCredentialCondition sets or removes the condition of the credential. If there is no connection to the runtime,
// updateCredentialCondition changes nothing.
func (n *run) updateCredentialCondition() {
	if n.found.credential == nil {
		return
	}
	all := &n.kyma.Status.Conditions
	saved := meta.FindStatusCondition(*all, v1beta2.ConditionCredentialHealthy)
	c := access.UnhealthyCredentialConditionOrNil(saved, *n.found.credential, n.now)
	if c == nil {
		meta.RemoveStatusCondition(all, v1beta2.ConditionCredentialHealthy)
		return
	}
	c.Message, c.ObservedGeneration = loop.ClipLine(c.Message), n.kyma.Generation
	meta.SetStatusCondition(all, *c)
}

// rightsReduced returns the condition about the credential if the credential has lost rights, and nil otherwise.
func (n *run) rightsReduced() *metav1.Condition {
	c := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionCredentialHealthy)
	if c == nil || c.Reason != v1beta2.ReasonRightsReduced {
		return nil
	}
	return c
}

// reportSkippedByLabel reports in the condition Ready that the Kyma is not reconciled. reportSkippedByLabel leaves all
// other parts of the status unchanged.
func (n *run) reportSkippedByLabel(loop.Outcome) {
	c := metav1.Condition{Type: v1beta2.ConditionReady, Status: metav1.ConditionUnknown}
	if was := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionReady); was != nil {
		c.Status = was.Status
	}
	c.Reason, c.Message = v1beta2.ReasonSkipReconciliation, fmt.Sprintf(
		"the status is that of before the label %s was set: remove the label to continue; only a deletion continues "+
			"with it", v1beta2.LabelSkipReconciliation)
	n.setCondition(c)
}

// updateUnreachableWhileDeleting sets the condition Reachable to False while the runtime of a Kyma that is being
// deleted is unavailable. updateUnreachableWhileDeleting removes the condition when requests to the runtime succeed
// again.
func (n *run) updateUnreachableWhileDeleting(out loop.Outcome, set setter) {
	switch {
	case n.DeletionDeadline == 0 || n.kyma.DeletionTimestamp.IsZero():
		meta.RemoveStatusCondition(&n.kyma.Status.Conditions, v1beta2.ConditionReachable)
	case n.deletion.unavailable != nil:
		set(v1beta2.ConditionReachable, false, "", "the runtime is unavailable", loop.Reason(n.deletion.unavailable),
			n.deletion.unavailable.Error())
	case n.deletion.runtimeLeft != leftAfterDeadline && out.Err == nil:
		meta.RemoveStatusCondition(&n.kyma.Status.Conditions, v1beta2.ConditionReachable)
	}
}
