// Package evidence decides whether failures are evidence against a new version.
//
// # Use
//
//	if evidence.CauseOf(reason) == evidence.CauseVersion { … }
//	if evidence.IsWorse(failed, updated, otherFailed, others) { … }
//
// # How it works
//
// A failure has a cause: the version, the runtime, the control plane or a person. Only failures caused by the version
// are evidence against it, and only if the runtimes without the version fail less often.
//
// # What it does not do
//
// The package does not know rollouts, and decides nothing about them.
package evidence

import "github.com/kyma-fleet/lifecycle-manager/api/v1beta2"

// Cause is the cause of a failure of a module.
type Cause int

const (
	// CauseUnclear means that the reason code does not show what has failed, and that the failure may end by itself. A
	// failure of unclear cause counts as a failure of the version only if the failure still exists at the deadline of
	// the runtime.
	CauseUnclear Cause = iota
	// CauseVersion means that the version has failed.
	CauseVersion
	// CauseRuntime means that the runtime cannot be used. If the runtime can still not be used at the deadline for its
	// update, it counts as lost.
	CauseRuntime
	// CauseControlPlane means that the control plane or a registry has failed. A failure of the control plane holds the
	// rollout, and no runtime counts as failed because of it.
	CauseControlPlane
	// CausePerson means that a person keeps the module as it is.
	CausePerson
)

// causes has the cause of each reason that has a clear cause.
var causes = map[string]Cause{
	v1beta2.ReasonInvalidYAML: CauseVersion, v1beta2.ReasonInvalidObject: CauseVersion,
	v1beta2.ReasonDuplicateObject: CauseVersion, v1beta2.ReasonInvalidImage: CauseVersion,
	v1beta2.ReasonInvalidArchive: CauseVersion, v1beta2.ReasonInvalidChart: CauseVersion,
	v1beta2.ReasonInvalidKustomization: CauseVersion, v1beta2.ReasonTemplateFailed: CauseVersion,
	v1beta2.ReasonInvalidValues: CauseVersion, v1beta2.ReasonInvalidConfig: CauseVersion,
	v1beta2.ReasonInvalidInfo: CauseVersion, v1beta2.ReasonRenderTimeout: CauseVersion,
	v1beta2.ReasonRenderMemory: CauseVersion, v1beta2.ReasonRenderCrashed: CauseVersion,
	v1beta2.ReasonStateRuleInvalid: CauseVersion, v1beta2.ReasonObjectRefused: CauseVersion,
	v1beta2.ReasonFieldImmutable: CauseVersion, v1beta2.ReasonStoredVersionDropped: CauseVersion,
	v1beta2.ReasonObjectConflict: CauseVersion, v1beta2.ReasonOwnedByOtherModule: CauseVersion,
	v1beta2.ReasonReservedObject: CauseVersion, v1beta2.ReasonAdoptionRefused: CauseVersion,
	v1beta2.ReasonWorkloadFailed: CauseVersion, v1beta2.ReasonCustomResourceNotReady: CauseVersion,
	v1beta2.ReasonRefusedFeature: CauseVersion, v1beta2.ReasonUnsafeArchive: CauseVersion,
	v1beta2.ReasonArchiveTooLarge: CauseVersion,

	v1beta2.ReasonAccessSecretNotFound: CauseRuntime, v1beta2.ReasonAccessSecretAmbiguous: CauseRuntime,
	v1beta2.ReasonKubeconfigInvalid: CauseRuntime, v1beta2.ReasonKubeconfigRefused: CauseRuntime,
	v1beta2.ReasonRuntimeUnreachable: CauseRuntime, v1beta2.ReasonRuntimeCertificateInvalid: CauseRuntime,
	v1beta2.ReasonRuntimeUnauthorized: CauseRuntime, v1beta2.ReasonCredentialExpired: CauseRuntime,
	v1beta2.ReasonRuntimeForbidden: CauseRuntime, v1beta2.ReasonThrottled: CauseRuntime,
	v1beta2.ReasonServerFault: CauseRuntime, v1beta2.ReasonRuntimeTaken: CauseRuntime,
	v1beta2.ReasonRuntimeIsControlPlane: CauseRuntime, v1beta2.ReasonRuntimeReplaced: CauseRuntime,
	v1beta2.ReasonRuntimeKymaInvalid: CauseRuntime, v1beta2.ReasonOwnerNotVerified: CauseRuntime,
	v1beta2.ReasonKubernetesTooOld: CauseRuntime,

	v1beta2.ReasonRegistryUnreachable: CauseControlPlane, v1beta2.ReasonRegistryUnauthorized: CauseControlPlane,
	v1beta2.ReasonEgressRefused: CauseControlPlane, v1beta2.ReasonArtifactNotFound: CauseControlPlane,
	v1beta2.ReasonDigestMismatch: CauseControlPlane, v1beta2.ReasonLoginNotFound: CauseControlPlane,
	v1beta2.ReasonRepositoryUnreachable: CauseControlPlane, v1beta2.ReasonRepositoryUnauthorized: CauseControlPlane,
	v1beta2.ReasonChartNotFound: CauseControlPlane, v1beta2.ReasonSignatureMissing: CauseControlPlane,
	v1beta2.ReasonSignatureInvalid: CauseControlPlane, v1beta2.ReasonTrustPolicyInvalid: CauseControlPlane,
	v1beta2.ReasonTemplateNotFound: CauseControlPlane, v1beta2.ReasonVersionReplaced: CauseControlPlane,
	v1beta2.ReasonStatusNotSaved: CauseControlPlane, v1beta2.ReasonControlPlaneForbidden: CauseControlPlane,
	v1beta2.ReasonInvalidDescriptor: CauseControlPlane, v1beta2.ReasonPullSecretNotFound: CauseControlPlane,

	v1beta2.ReasonKymaPaused: CausePerson, v1beta2.ReasonModulePaused: CausePerson,
	v1beta2.ReasonUnmanaged: CausePerson, v1beta2.ReasonSkipReconciliation: CausePerson,
	v1beta2.ReasonUpdateDeferred: CausePerson, v1beta2.ReasonDeferralInvalid: CausePerson,
}

// CauseOf returns what has failed, given the reason code of a blocker or of a failure.
func CauseOf(reason string) Cause { return causes[reason] }
