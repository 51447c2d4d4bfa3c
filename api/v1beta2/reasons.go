package v1beta2

// Reasons say why something does not move on. They are stable: programs may branch on them. They are the reason of a
// condition that is not True and of status.modules[].reason, and what Reason() of an error returns. The message next to
// a reason names the object and says what to do.

// Reasons about reaching a runtime.
const (
	// ReasonAccessSecretNotFound: no Secret carries the label operator.kyma-project.io/kyma-name with the name of the Kyma.
	// Create it, with the kubeconfig under the key config.
	ReasonAccessSecretNotFound = "AccessSecretNotFound"
	// ReasonAccessSecretAmbiguous: more than one Secret names the Kyma. Remove the label from all but one.
	ReasonAccessSecretAmbiguous = "AccessSecretAmbiguous"
	// ReasonKubeconfigInvalid: the access Secret holds no kubeconfig that can be used. Write a valid one.
	ReasonKubeconfigInvalid = "KubeconfigInvalid"
	// ReasonKubeconfigRefused: the kubeconfig wants to run a command, use an auth provider or read a file. Put token or
	// certificates into the kubeconfig itself.
	ReasonKubeconfigRefused = "KubeconfigRefused"
	// ReasonRuntimeUnreachable: the API server of the runtime does not answer. Check its address, its network and whether it
	// runs. If the cluster is gone for good, delete the access Secret.
	ReasonRuntimeUnreachable = "RuntimeUnreachable"
	// ReasonRuntimeUnauthorized: the runtime does not accept the credentials. Renew the kubeconfig in the access Secret.
	ReasonRuntimeUnauthorized = "RuntimeUnauthorized"
	// ReasonPullSecretNotFound: the Secret that runtimes shall pull images with is not in the control plane. Create it.
	ReasonPullSecretNotFound = "PullSecretNotFound"
	// ReasonRuntimeForbidden: the credentials lack a permission in the runtime. Grant the one that the message names.
	ReasonRuntimeForbidden = "RuntimeForbidden"
)

// Reasons about artifacts in the registry.
const (
	// ReasonRegistryUnreachable: the registry does not answer. Check its address and its network.
	ReasonRegistryUnreachable = "RegistryUnreachable"
	// ReasonRegistryUnauthorized: the registry does not accept the credentials, or wants some. Check the Secret with the
	// credentials.
	ReasonRegistryUnauthorized = "RegistryUnauthorized"
	// ReasonArtifactNotFound: the registry has no such component version or layer. Push it, or correct the version.
	ReasonArtifactNotFound = "ArtifactNotFound"
	// ReasonDigestMismatch: what the registry delivers is not what its digest says. Do not trust it: push the artifact anew.
	ReasonDigestMismatch = "DigestMismatch"
	// ReasonArtifactTooLarge: the descriptor or layer is larger than allowed. Make it smaller, or raise the limit.
	ReasonArtifactTooLarge = "ArtifactTooLarge"
	// ReasonUnsafeArchive: an archive has an entry that leaves its folder. Pack it without links and parent paths.
	ReasonUnsafeArchive = "UnsafeArchive"
	// ReasonArchiveTooLarge: an archive is larger, or has more files, than allowed when unpacked. Make it smaller, or raise
	// the limit.
	ReasonArchiveTooLarge = "ArchiveTooLarge"
	// ReasonInvalidDescriptor: the OCM component descriptor is not valid, or names another component. Push a valid one.
	ReasonInvalidDescriptor = "InvalidDescriptor"
	// ReasonAccessTypeNotSupported: the descriptor refers to a resource in a way that is not supported. Push the resource as
	// a local blob of the component.
	ReasonAccessTypeNotSupported = "AccessTypeNotSupported"
	// ReasonInvalidReference: a repository, tag or digest is not a valid reference. Correct it.
	ReasonInvalidReference = "InvalidReference"
	// ReasonLoginNotFound: credSecretSelector selects no Secret with a login. Create one, or correct the labels.
	ReasonLoginNotFound = "LoginNotFound"
	// ReasonRefusedFeature: the source or the artefact wants something that is not done here. The message names a way around.
	ReasonRefusedFeature = "RefusedFeature"
)

// Reasons about signatures.
const (
	// ReasonSignatureMissing: the trust policy wants a signature, and there is none that could be verified. Sign the component
	// version with a key of the policy, or change the policy.
	ReasonSignatureMissing = "SignatureMissing"
	// ReasonSignatureInvalid: there are signatures, but none is by a key of the trust policy, or the artifact was changed after
	// signing. Find out who pushed it; then sign it anew.
	ReasonSignatureInvalid = "SignatureInvalid"
	// ReasonTrustPolicyInvalid: the file with the trust policy cannot be read or understood. Correct it; until then the former one
	// stays in force, and the manager does not start.
	ReasonTrustPolicyInvalid = "TrustPolicyInvalid"
)

// Reasons about the content of a module.
const (
	// ReasonInvalidYAML: the manifest of the module is no valid YAML. Correct the document that the message names.
	ReasonInvalidYAML = "InvalidYAML"
	// ReasonInvalidObject: a document is no Kubernetes object, for example for lack of a kind or name. Correct it.
	ReasonInvalidObject = "InvalidObject"
	// ReasonDuplicateObject: the same object is there twice with different content. Remove one.
	ReasonDuplicateObject = "DuplicateObject"
	// ReasonInvalidImage: an image is no valid image reference. Correct it in the module.
	ReasonInvalidImage = "InvalidImage"
)

// Reasons about the wish: which version of which module.
const (
	// ReasonInvalidModuleRequest: an entry of spec.modules contradicts itself. Correct it.
	ReasonInvalidModuleRequest = "InvalidModuleRequest"
	// ReasonModuleNotFound: there is no ModuleReleaseMeta of this name. Correct the name of the module.
	ReasonModuleNotFound = "ModuleNotFound"
	// ReasonChannelNotFound: the module has no such release channel. Choose one that the message lists.
	ReasonChannelNotFound = "ChannelNotFound"
	// ReasonVersionNotFound: the module has no such version. Choose one that the message lists.
	ReasonVersionNotFound = "VersionNotFound"
	// ReasonInvalidRelease: a ModuleReleaseMeta lacks what is needed to find a version. Complete it.
	ReasonInvalidRelease = "InvalidRelease"
	// ReasonTemplateAmbiguous: the module has no ModuleReleaseMeta, and more than one ModuleTemplate fits. Remove all but one
	// of those that the message names, or create a ModuleReleaseMeta.
	ReasonTemplateAmbiguous = "TemplateAmbiguous"
	// ReasonModuleConflict: two ModuleReleaseMetas define the same mandatory module; the older one counts. Delete one.
	ReasonModuleConflict = "ModuleConflict"
	// ReasonTemplateNotFound: the ModuleTemplate of the version is missing. Create it, or let the channel point elsewhere.
	ReasonTemplateNotFound = "TemplateNotFound"
	// ReasonModuleNotAllowed: the module is beta, internal, mandatory or restricted, and this Kyma may not have it. Set the
	// label on the Kyma, or remove the module.
	ReasonModuleNotAllowed = "ModuleNotAllowed"
	// ReasonDowngradeRefused: a higher version is installed. Wait until the channel has caught up, or allow it with the
	// annotation operator.kyma-project.io/allow-downgrade on the Kyma.
	ReasonDowngradeRefused = "DowngradeRefused"
	// ReasonWaitingForWindow: the update needs a downtime and starts in the next maintenance window. Wait, or set
	// spec.skipMaintenanceWindows.
	ReasonWaitingForWindow = "WaitingForWindow"
	// ReasonWindowUnknown: the update needs a downtime and no maintenance window can be determined. Configure a maintenance
	// policy.
	ReasonWindowUnknown = "WindowUnknown"
	// ReasonInvalidPolicy: the maintenance policy cannot be read; the one before stays in force. Correct what the message
	// names.
	ReasonInvalidPolicy = "InvalidPolicy"
)

// Reasons about applying objects to a runtime.
const (
	// ReasonApplying: objects are being applied. Wait.
	ReasonApplying = "Applying"
	// ReasonObjectRefused: the API server does not accept an object. Correct it in the module.
	ReasonObjectRefused = "ObjectRefused"
	// ReasonObjectConflict: an object exists that belongs to somebody else, or a field cannot be changed. Remove the
	// object, or rename it in the module.
	ReasonObjectConflict = "ObjectConflict"
	// ReasonDriftDetected: somebody changed objects of the module, and the Manifest says to leave them so. Undo the change, or
	// remove the annotation operator.kyma-project.io/drift.
	ReasonDriftDetected = "DriftDetected"
	// ReasonTakenOver, of an event: fields of an object that belonged to others are ours now.
	ReasonTakenOver = "TakenOver"
	// ReasonLeftOut, of an event: the artefact holds what is not applied, such as hooks.
	ReasonLeftOut = "LeftOut"
	// ReasonCRDNotEstablished: a custom resource definition of the module is not served yet. Wait; if it stays, look at its
	// conditions.
	ReasonCRDNotEstablished = "CRDNotEstablished"
	// ReasonKindUnknown: the runtime does not know the kind of an object. Install what brings the kind, or correct it.
	ReasonKindUnknown = "KindUnknown"
)

// Reasons about readiness.
const (
	// ReasonWorkloadNotReady: a workload of the module is not ready yet. Wait; if it stays, look at its pods.
	ReasonWorkloadNotReady = "WorkloadNotReady"
	// ReasonWorkloadFailed: a workload of the module cannot become ready. Look at its pods.
	ReasonWorkloadFailed = "WorkloadFailed"
	// ReasonCustomResourceNotReady: the custom resource of the module is not Ready. Look at its status.
	ReasonCustomResourceNotReady = "CustomResourceNotReady"
	// ReasonModulesNotReady: at least one module is neither Ready nor Unmanaged. Look at its entry in status.modules.
	ReasonModulesNotReady = "ModulesNotReady"
)

// Reasons about removing.
const (
	// ReasonCustomResourceBlocksDeletion: custom resources of the module exist. Delete those that the message names.
	ReasonCustomResourceBlocksDeletion = "CustomResourceBlocksDeletion"
	// ReasonObjectsRemaining: objects of the module are being deleted but not gone. Wait; if it stays, look at their
	// finalizers.
	ReasonObjectsRemaining = "ObjectsRemaining"
	// ReasonDeletionQueued: many Kymas are being deleted, and the modules of a few are removed at a time. Wait.
	ReasonDeletionQueued = "DeletionQueued"
	// ReasonManifestsRemaining: Manifests of the Kyma are not gone yet. Wait; if it stays, look at their status.
	ReasonManifestsRemaining = "ManifestsRemaining"
	// ReasonPurged, of an event: the deletion of the Kyma took longer than the grace period, so these objects were deleted.
	ReasonPurged = "Purged"
	// ReasonFinalizersRemoved, of an event: nobody let these custom resources go within the grace period, so their finalizers
	// were removed. What their operator would have cleaned up may be left; look after it.
	ReasonFinalizersRemoved = "FinalizersRemoved"
	// ReasonPurgeBlocked, of an event: this stays in the runtime although the grace period is over. Remove it by hand.
	ReasonPurgeBlocked = "PurgeBlocked"
	// ReasonFinalizersRemaining: all is removed, but a finalizer of somebody else keeps the object. Find its owner.
	ReasonFinalizersRemaining = "FinalizersRemaining"
)

// Reasons about certificates.
const (
	// ReasonAuthorityBroken: the Secret with the roots of the certificate authority cannot be understood, so the former roots stay in
	// force, and none after a start. Restore it from a backup, or delete it: a manager that knows the roots writes them again.
	ReasonAuthorityBroken = "AuthorityBroken"
	// ReasonAuthorityNotReady: the roots of the certificate authority are not known yet. Wait; if it stays, look at the Secret that the
	// message names.
	ReasonAuthorityNotReady = "AuthorityNotReady"
	// ReasonCertificateNotReady: cert-manager has not issued a certificate yet, or not yet renewed it. Wait; if it stays, look at the
	// Certificate that the message names.
	ReasonCertificateNotReady = "CertificateNotReady"
	// ReasonCertificateRefused: nobody may have a certificate with these names. Correct the runtime ID, or the annotation skr-domain, of
	// the Kyma.
	ReasonCertificateRefused = "CertificateRefused"
)

// Reasons about being told not to act.
const (
	// ReasonKymaPaused: the annotation operator.kyma-project.io/paused is set on the Kyma. Remove it.
	ReasonKymaPaused = "KymaPaused"
	// ReasonModulePaused: the annotation paused.operator.kyma-project.io/<module> is set on the Kyma. Remove it.
	ReasonModulePaused = "ModulePaused"
	// ReasonSkipReconciliation: the label operator.kyma-project.io/skip-reconciliation is set. Remove it.
	ReasonSkipReconciliation = "SkipReconciliation"
	// ReasonUnmanaged: the module is left to the user. Set managed to true to have it looked after.
	ReasonUnmanaged = "Unmanaged"
	// ReasonOrphaned: the Kyma of the Manifest is gone, or does not know it. Delete the Manifest if the module shall go.
	ReasonOrphaned = "Orphaned"
	// ReasonOrphanDeleted, of an event: this belonged to nobody and was deleted, as --orphan-cleanup says.
	ReasonOrphanDeleted = "OrphanDeleted"
)

// Reasons about the agent of a runtime.
const (
	// ReasonAgentNotDelivered: the agent cannot be put into the runtime. The message says why.
	ReasonAgentNotDelivered = "AgentNotDelivered"
	// ReasonAgentSilent: the agent is not heard, so the runtime is looked at instead. Check that its Deployment is available, and that the
	// listener can be reached from the runtime.
	ReasonAgentSilent = "AgentSilent"
	// ReasonAgentImpaired: the agent is heard and cannot watch all that it should. The message says what.
	ReasonAgentImpaired = "AgentImpaired"
)

// Reasons about the way in for events of a Watcher.
const (
	// ReasonInvalidWatcher: a value of the Watcher is missing or cannot be used. Correct what the message names.
	ReasonInvalidWatcher = "InvalidWatcher"
	// ReasonIstioNotInstalled: the Watcher selects Istio gateways, and the API server does not serve Istio's kinds. That is no fault:
	// events come in by another way.
	ReasonIstioNotInstalled = "IstioNotInstalled"
	// ReasonGatewayAPINotInstalled: the Watcher asks for a route, and the API server does not serve HTTPRoutes. That is no fault: events
	// come in by another way.
	ReasonGatewayAPINotInstalled = "GatewayAPINotInstalled"
	// ReasonGatewayNotFound: spec.gateway.selector selects no Istio Gateway. Label one, or correct the selector.
	ReasonGatewayNotFound = "GatewayNotFound"
	// ReasonGatewayWithoutHosts: an Istio Gateway that is selected has no hosts. Add some to its servers, or select another.
	ReasonGatewayWithoutHosts = "GatewayWithoutHosts"
	// ReasonRouteNotAccepted: a Gateway has not accepted the HTTPRoute. The message has what it says.
	ReasonRouteNotAccepted = "RouteNotAccepted"
	// ReasonRouteConflict: a VirtualService or HTTPRoute of the name of the Watcher is there that is not ours. Delete or rename it.
	ReasonRouteConflict = "RouteConflict"
	// ReasonRouteRefused: the API server does not accept the VirtualService or HTTPRoute. The message says why.
	ReasonRouteRefused = "RouteRefused"
	// ReasonControlPlaneForbidden: Lifecycle Manager lacks a permission in the control plane. Grant the one that the message names.
	ReasonControlPlaneForbidden = "ControlPlaneForbidden"
)

// ReasonInternalError says that something failed that has no reason of its own. The message has the whole error; it is tried
// again.
const ReasonInternalError = "InternalError"
