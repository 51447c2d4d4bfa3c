package diagnosis

import "github.com/kyma-fleet/lifecycle-manager/api/v1beta2"

// Step is one of the steps that a module takes until it has its version. The state of a step is done, held, or later.
type Step struct{ Name, State string }

// stepNames are the steps of the manager from the request for a module until the requested version is Ready. stepOf
// maps a reason to the index of the step that the reason blocks. If the module is not Ready and its reason is not in
// stepOf, the step "apply" is blocked.
var (
	stepNames = []string{"channel", "rollout", "upgrade path", "window", "content", "apply", "ready"}
	stepOf    = map[string]int{
		v1beta2.ReasonInvalidModuleRequest: 0, v1beta2.ReasonModuleNotFound: 0, v1beta2.ReasonChannelNotFound: 0,
		v1beta2.ReasonVersionNotFound: 0, v1beta2.ReasonInvalidRelease: 0, v1beta2.ReasonTemplateAmbiguous: 0,
		v1beta2.ReasonModuleConflict: 0, v1beta2.ReasonTemplateNotFound: 0, v1beta2.ReasonModuleNotAllowed: 0,
		v1beta2.ReasonKymaPaused: 0, v1beta2.ReasonModulePaused: 0, v1beta2.ReasonSkipReconciliation: 0,
		v1beta2.ReasonUnmanaged: 0, v1beta2.ReasonVersionWithdrawn: 0, v1beta2.ReasonTargetChanged: 0,
		v1beta2.ReasonControlPlaneNotAllowed: 0, v1beta2.ReasonWaitingForRollout: 1, v1beta2.ReasonPolicyConflict: 1,
		v1beta2.ReasonPolicyInvalid: 1, v1beta2.ReasonEdgeMissing: 2, v1beta2.ReasonUpgradeInvalid: 2,
		v1beta2.ReasonKnownRisk: 2, v1beta2.ReasonDowngradeRefused: 2, v1beta2.ReasonDowngradeUnsafe: 2,
		v1beta2.ReasonRestoredOlder: 2, v1beta2.ReasonWaitingForWindow: 3, v1beta2.ReasonWindowUnknown: 3,
		v1beta2.ReasonVersionReplaced: 4, v1beta2.ReasonRegistryUnreachable: 4, v1beta2.ReasonEgressRefused: 4,
		v1beta2.ReasonRegistryUnauthorized: 4, v1beta2.ReasonArtifactNotFound: 4, v1beta2.ReasonDigestMismatch: 4,
		v1beta2.ReasonArtifactTooLarge: 4, v1beta2.ReasonUnsafeArchive: 4, v1beta2.ReasonArchiveTooLarge: 4,
		v1beta2.ReasonInvalidDescriptor: 4, v1beta2.ReasonAccessTypeNotSupported: 4, v1beta2.ReasonInvalidReference: 4,
		v1beta2.ReasonLoginNotFound: 4, v1beta2.ReasonRefusedFeature: 4, v1beta2.ReasonRepositoryUnreachable: 4,
		v1beta2.ReasonRepositoryUnauthorized: 4, v1beta2.ReasonChartNotFound: 4, v1beta2.ReasonChartTooLarge: 4,
		v1beta2.ReasonInvalidIndex: 4, v1beta2.ReasonSignatureMissing: 4, v1beta2.ReasonSignatureInvalid: 4,
		v1beta2.ReasonTrustPolicyInvalid: 4, v1beta2.ReasonInvalidYAML: 4, v1beta2.ReasonInvalidObject: 4,
		v1beta2.ReasonDuplicateObject: 4, v1beta2.ReasonInvalidImage: 4, v1beta2.ReasonInvalidArchive: 4,
		v1beta2.ReasonInvalidChart: 4, v1beta2.ReasonInvalidKustomization: 4, v1beta2.ReasonTemplateFailed: 4,
		v1beta2.ReasonInvalidValues: 4, v1beta2.ReasonInvalidConfig: 4, v1beta2.ReasonInvalidInfo: 4,
		v1beta2.ReasonRenderTimeout: 4, v1beta2.ReasonRenderMemory: 4, v1beta2.ReasonRenderCrashed: 4,
		v1beta2.ReasonStateRuleInvalid: 4, v1beta2.ReasonWorkloadNotReady: 6, v1beta2.ReasonWorkloadFailed: 6,
		v1beta2.ReasonCustomResourceNotReady: 6,
	}
)

// stepApply is the number of the step that applies the objects.
const stepApply = 5

// Steps returns the steps of a module. The parameter reason is the reason that blocks the module. The parameter reason
// is "" if nothing blocks the module.
func (m *Module) Steps(reason string) []Step {
	held := len(stepNames)
	switch at, known := stepOf[reason]; {
	case known:
		held = at
	case reason != "":
		held = stepApply
	case m.Rollout != "":
		held = stepOf[v1beta2.ReasonWaitingForRollout]
	case m.State != v1beta2.StateReady && m.State != v1beta2.StateUnmanaged, m.Next != "":
		held = stepApply
	}
	var all []Step
	for i, name := range stepNames {
		s := Step{name, "done"}
		if i == held {
			s.State = "held"
		} else if i > held {
			s.State = "later"
		}
		all = append(all, s)
	}
	return all
}
