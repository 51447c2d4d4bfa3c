package v1beta2

// Reasons state why an object is not Ready. Reasons are stable: programs may branch on them. A reason is the reason of
// a condition that is not True, the value of status.modules[].reason, and the result of Reason() of an error. The
// message next to a reason names the object and states what to do.

// Reasons about the connection to a runtime.
const (
	// ReasonAccessSecretNotFound: no Secret has the label operator.kyma-project.io/kyma-name with the name of the Kyma.
	// Create the access Secret, with the kubeconfig under the key config.
	ReasonAccessSecretNotFound = "AccessSecretNotFound"
	// ReasonAccessSecretAmbiguous: more than one Secret has the label operator.kyma-project.io/kyma-name with the name
	// of the Kyma. Keep the label operator.kyma-project.io/kyma-name with the name of this Kyma on one Secret only.
	ReasonAccessSecretAmbiguous = "AccessSecretAmbiguous"
	// ReasonKubeconfigInvalid: the access Secret contains no usable kubeconfig. Write a valid kubeconfig into the
	// access Secret.
	ReasonKubeconfigInvalid = "KubeconfigInvalid"
	// ReasonKubeconfigRefused: the kubeconfig would run a command, use an auth provider, read a file, or skip the check
	// of the server's certificate, which is not allowed. Put a token or certificates into the kubeconfig itself, with
	// certificate-authority-data and without insecure-skip-tls-verify.
	ReasonKubeconfigRefused = "KubeconfigRefused"
	// ReasonRuntimeUnreachable: the API server of the runtime does not answer. Check the address and the network of the
	// API server, and that it is running. If the cluster no longer exists, delete the access Secret.
	ReasonRuntimeUnreachable = "RuntimeUnreachable"
	// ReasonRuntimeCertificateInvalid: the certificate of the runtime's API server is not trusted: it was not signed by
	// the authority in the kubeconfig, is for another host, or has expired. Write the authority and the address of the
	// API server into the kubeconfig, or renew the certificate.
	ReasonRuntimeCertificateInvalid = "RuntimeCertificateInvalid"
	// ReasonRuntimeUnauthorized: the runtime rejects the credentials, for example because they were revoked. Write a
	// new kubeconfig into the access Secret.
	ReasonRuntimeUnauthorized = "RuntimeUnauthorized"
	// ReasonCredentialExpired: the runtime rejects the client certificate or the token in the access Secret, because it
	// has expired. Write a new kubeconfig into the access Secret, and renew the credential in time from now on.
	ReasonCredentialExpired = "CredentialExpired"
	// ReasonRightsReduced: the credential in the access Secret has lost rights in the runtime that installed modules
	// need. Grant the lost rights again, or write another kubeconfig into the access Secret.
	ReasonRightsReduced = "RightsReduced"
	// ReasonCredentialExpires: the client certificate or the token in the access Secret expires within seven days, or
	// within a tenth of its lifetime if that is less. Write a new kubeconfig into the Secret.
	ReasonCredentialExpires = "CredentialExpires"
	// ReasonPullSecretNotFound: the image pull Secret for runtimes does not exist in the control plane. Create the
	// image pull Secret.
	ReasonPullSecretNotFound = "PullSecretNotFound"
	// ReasonRuntimeForbidden: the credentials lack a permission in the runtime. Grant the permission that the message
	// names.
	ReasonRuntimeForbidden = "RuntimeForbidden"
	// ReasonThrottled: the API server of the runtime asks for a delay (429, or 503 with Retry-After). Wait for a retry;
	// if the API server still asks for delays after a few minutes, check the load of the API server and its priority
	// and fairness settings.
	ReasonThrottled = "Throttled"
	// ReasonServerFault: the API server of the runtime answers with an internal error (5xx). Wait for a retry; if the
	// errors continue, check the API server and its etcd.
	ReasonServerFault = "ServerFault"
	// ReasonRuntimeTaken: the cluster of the access Secret belongs to another Kyma, or to another control plane.
	// Nothing is changed in this cluster. Write the kubeconfig of another cluster into the access Secret, or take the
	// runtime over: klm runtime take.
	ReasonRuntimeTaken = "RuntimeTaken"
	// ReasonRuntimeIsControlPlane: the access Secret leads to the control plane itself, which is a runtime only in
	// in-cluster mode. Nothing is changed in this cluster. Write the kubeconfig of the runtime into the access Secret.
	ReasonRuntimeIsControlPlane = "RuntimeIsControlPlane"
	// ReasonRuntimeReplaced: the access Secret leads to another cluster than before. Nothing is changed in the new
	// cluster. Write the kubeconfig of the former cluster into the access Secret, or make the new cluster the runtime
	// of this Kyma: klm runtime take.
	ReasonRuntimeReplaced = "RuntimeReplaced"
	// ReasonRuntimeKymaInvalid: the Kyma in the runtime does not fit the schema of its CRD, for example because
	// somebody has changed the CRD there, or its status names too many modules that the control plane does not know.
	// While the Kyma is not valid, no module in the runtime is installed, updated or removed. Correct the Kyma and the
	// CRD in the runtime, or apply the missing ModuleReleaseMetas.
	ReasonRuntimeKymaInvalid = "RuntimeKymaInvalid"
	// ReasonOwnerNotVerified: the Kyma controller has not yet verified the owner of the runtime over the present
	// connection. Wait.
	ReasonOwnerNotVerified = "OwnerNotVerified"
)

// Reasons about artifacts in the registry.
const (
	// ReasonRegistryUnreachable: the registry does not answer. Check the address and the network of the registry.
	ReasonRegistryUnreachable = "RegistryUnreachable"
	// ReasonEgressRefused: a registry or chart repository, or a server that it refers to, has an IP address to which
	// the manager must not connect, such as loopback. Correct the location, or allow the address with --egress-allow.
	ReasonEgressRefused = "EgressRefused"
	// ReasonRegistryUnauthorized: the registry rejects the credentials, or requires some. Check the Secret that
	// contains the credentials for the registry.
	ReasonRegistryUnauthorized = "RegistryUnauthorized"
	// ReasonArtifactNotFound: the registry has no such component version or layer. Push the component version or layer,
	// or correct the version.
	ReasonArtifactNotFound = "ArtifactNotFound"
	// ReasonDigestMismatch: the content from the registry does not match its digest. Do not trust the content: push the
	// artifact again.
	ReasonDigestMismatch = "DigestMismatch"
	// ReasonArtifactTooLarge: the descriptor or layer is larger than allowed. Make the artifact smaller; the limit is
	// fixed.
	ReasonArtifactTooLarge = "ArtifactTooLarge"
	// ReasonUnsafeArchive: an archive has an entry outside its folder. Pack the archive without links and parent paths.
	ReasonUnsafeArchive = "UnsafeArchive"
	// ReasonArchiveTooLarge: an archive is larger, or has more files, than allowed when unpacked. Make the archive
	// smaller; the limit is fixed.
	ReasonArchiveTooLarge = "ArchiveTooLarge"
	// ReasonInvalidDescriptor: the OCM component descriptor is not valid, or belongs to another component. Push a valid
	// component descriptor.
	ReasonInvalidDescriptor = "InvalidDescriptor"
	// ReasonAccessTypeNotSupported: a resource of the component has an access type that is not supported. Push the
	// resource as a local blob of the component, or remove the resource.
	ReasonAccessTypeNotSupported = "AccessTypeNotSupported"
	// ReasonInvalidReference: a repository, tag or digest is not a valid reference. Correct the reference.
	ReasonInvalidReference = "InvalidReference"
	// ReasonLoginNotFound: credSecretSelector selects no Secret with registry credentials. Create a Secret with the
	// credentials, or correct the labels of the Secret.
	ReasonLoginNotFound = "LoginNotFound"
	// ReasonRefusedFeature: the source or the artefact uses a feature that is not supported. The message names a
	// supported alternative to the feature.
	ReasonRefusedFeature = "RefusedFeature"
	// ReasonRepositoryUnreachable: the repository of a Helm chart does not answer. Check the address and the network of
	// the repository.
	ReasonRepositoryUnreachable = "RepositoryUnreachable"
	// ReasonRepositoryUnauthorized: the repository of a Helm chart rejects the credentials, or requires some. Check the
	// Secret that credSecretSelector selects.
	ReasonRepositoryUnauthorized = "RepositoryUnauthorized"
	// ReasonChartNotFound: the repository has no such chart, or no version of it that matches. Push the chart, or
	// correct chartName or version of the source.
	ReasonChartNotFound = "ChartNotFound"
	// ReasonChartTooLarge: a Helm chart, or the index of its repository, is larger than allowed. Make the chart or the
	// index smaller.
	ReasonChartTooLarge = "ChartTooLarge"
	// ReasonInvalidIndex: the index of a chart repository, or the image of a chart in a registry, is not valid. Push
	// the chart or the index again.
	ReasonInvalidIndex = "InvalidIndex"
	// ReasonArtifactExists: the registry already has this version with other content; only commands that push report
	// it. Choose a new version, or allow the command to overwrite the old one.
	ReasonArtifactExists = "ArtifactExists"
)

// Reasons about signatures.
const (
	// ReasonSignatureMissing: the trust policy requires a signature, and the component version has none that can be
	// verified. Sign the component version with a key of the policy, or change the policy.
	ReasonSignatureMissing = "SignatureMissing"
	// ReasonSignatureInvalid: the component version has signatures, but none by a key of the trust policy, or the
	// artifact was changed after signing. Find out who pushed the component version, then sign it again.
	ReasonSignatureInvalid = "SignatureInvalid"
	// ReasonTrustPolicyInvalid: the file with the trust policy cannot be read or parsed. Correct the file. Until the
	// file is valid, the previous policy stays in force; a manager that starts without a valid policy exits.
	ReasonTrustPolicyInvalid = "TrustPolicyInvalid"
)

// Reasons about the content of a module.
const (
	// ReasonInvalidYAML: the manifest of the module is not valid YAML. Correct the YAML document that the message
	// names.
	ReasonInvalidYAML = "InvalidYAML"
	// ReasonInvalidObject: a document is not a Kubernetes object, for example because the kind or the name is missing.
	// Correct the document.
	ReasonInvalidObject = "InvalidObject"
	// ReasonDuplicateObject: the manifest contains the same object twice with different content. Remove one of the two.
	ReasonDuplicateObject = "DuplicateObject"
	// ReasonInvalidImage: an image is not a valid image reference. Correct the image reference in the module.
	ReasonInvalidImage = "InvalidImage"
	// ReasonInjectionFailed: a Secret of module deployer has the annotation
	// operator.kyma-project.io/inject-data-from-kcp, and the control plane has no Secret with the same name whose data
	// may be injected. Create a Secret with this name in the control plane, and give it the label that the message
	// names.
	ReasonInjectionFailed = "InjectionFailed"
	// ReasonInvalidArchive: an archive of the module is damaged, or contains no manifest. Pack the archive again.
	ReasonInvalidArchive = "InvalidArchive"
	// ReasonInvalidChart: the Helm chart of the module is incomplete or not valid. Correct the file that the message
	// names; helm lint finds most problems of a chart.
	ReasonInvalidChart = "InvalidChart"
	// ReasonInvalidKustomization: the kustomization of the module cannot be built. Correct the file that the message
	// names; kustomize build shows the same problem.
	ReasonInvalidKustomization = "InvalidKustomization"
	// ReasonTemplateFailed: a template of the Helm chart cannot be parsed or executed. Correct the template that the
	// message names, or the values that the template needs.
	ReasonTemplateFailed = "TemplateFailed"
	// ReasonInvalidValues: the values for a Helm chart cannot be read, do not match the schema of the chart, or are set
	// for a source that is not a chart. Correct the values in the config layer.
	ReasonInvalidValues = "InvalidValues"
	// ReasonInvalidConfig: the config layer of the module is not valid. Correct the field that the message names.
	ReasonInvalidConfig = "InvalidConfig"
	// ReasonInvalidInfo: the description of a source is incomplete or not valid. Correct the field that the message
	// names.
	ReasonInvalidInfo = "InvalidInfo"
	// ReasonInvalidInventory: the stored inventory of an installation cannot be read; only operators that use package
	// manifest report it. Restore the object that the message names from a backup.
	ReasonInvalidInventory = "InvalidInventory"
	// ReasonKubernetesTooOld: the chart does not support the Kubernetes version of the runtime. Update Kubernetes in
	// the runtime, or request a version of the module that supports its Kubernetes version.
	ReasonKubernetesTooOld = "KubernetesTooOld"
	// ReasonRenderTimeout: rendering the module took too long and was stopped. Simplify the templates of the module.
	// The content whose rendering was stopped is not rendered again until a retry is requested.
	ReasonRenderTimeout = "RenderTimeout"
	// ReasonRenderMemory: rendering the module needed too much memory and was stopped. Make the output of the module's
	// templates smaller. The content whose rendering was stopped is not rendered again until a retry is requested.
	ReasonRenderMemory = "RenderMemory"
	// ReasonRenderCrashed: the process that rendered the module crashed, for example because a template or a value
	// contains itself. Correct the templates. The content whose rendering crashed is not rendered again until a retry
	// is requested.
	ReasonRenderCrashed = "RenderCrashed"
	// ReasonStateRuleInvalid: a rule of the ModuleTemplate that reads the state of the custom resource is not valid.
	// Correct the rule of the ModuleTemplate that the message names.
	ReasonStateRuleInvalid = "StateRuleInvalid"
)

// Reasons about requested modules and their versions.
const (
	// ReasonInvalidModuleRequest: the fields of an entry of spec.modules contradict each other. Correct the entry.
	ReasonInvalidModuleRequest = "InvalidModuleRequest"
	// ReasonModuleNotFound: no ModuleReleaseMeta has the name of the requested module. Correct the name of the module.
	ReasonModuleNotFound = "ModuleNotFound"
	// ReasonChannelNotFound: the module has no such release channel. Choose one of the channels that the message lists.
	ReasonChannelNotFound = "ChannelNotFound"
	// ReasonVersionNotFound: the module has no such version. Choose one of the versions that the message lists.
	ReasonVersionNotFound = "VersionNotFound"
	// ReasonInvalidRelease: a ModuleReleaseMeta lacks a field that is needed to resolve a version. Complete the
	// ModuleReleaseMeta.
	ReasonInvalidRelease = "InvalidRelease"
	// ReasonTemplateAmbiguous: the module has no ModuleReleaseMeta, and more than one ModuleTemplate matches. Remove
	// all but one of the ModuleTemplates that the message names, or create a ModuleReleaseMeta for the module.
	ReasonTemplateAmbiguous = "TemplateAmbiguous"
	// ReasonModuleConflict: two ModuleReleaseMetas define the same mandatory module, and the older one applies, or the
	// Manifests of two modules with long names would have the same name, and the installed module stays. Delete one of
	// the two ModuleReleaseMetas, or remove one of the two modules, or publish its component with a shorter name.
	ReasonModuleConflict = "ModuleConflict"
	// ReasonTemplateNotFound: the ModuleTemplate of the version does not exist. Create the missing ModuleTemplate, or
	// assign to the channel a version that has one.
	ReasonTemplateNotFound = "TemplateNotFound"
	// ReasonModuleNotAllowed: the module is beta, internal, mandatory or restricted, and this Kyma may not have it. Set
	// the label that allows the module on the Kyma, or remove the module from the Kyma.
	ReasonModuleNotAllowed = "ModuleNotAllowed"
	// ReasonVersionReplaced: the content of a version in the registry is not the content with which the version was
	// first installed. What is installed stays. Push the recorded content again and retry, publish the new content as a
	// new version, or accept it for all runtimes with the annotation operator.kyma-project.io/accept-content on the
	// ModuleTemplate.
	ReasonVersionReplaced = "VersionReplaced"
	// ReasonControlPlaneNotAllowed: the module is for the control plane itself, and the manager may not install modules
	// there. Set the chart value controlPlaneModules.enabled, or publish a version with target remote.
	ReasonControlPlaneNotAllowed = "ControlPlaneNotAllowed"
	// ReasonTargetChanged: the module is installed on one cluster, and the new version is for another. Remove the
	// module, wait until it is deleted, and add it again.
	ReasonTargetChanged = "TargetChanged"
	// ReasonDowngradeRefused: a higher version is installed. Wait until the version of the channel is higher, or allow
	// the downgrade with the annotation operator.kyma-project.io/allow-downgrade on the Kyma.
	ReasonDowngradeRefused = "DowngradeRefused"
	// ReasonVersionWithdrawn: the version was withdrawn, and no runtime gets it any more. Move the channel or the
	// request to another version. klm version withdraw --undo makes the withdrawn version available again.
	ReasonVersionWithdrawn = "VersionWithdrawn"
	// ReasonEdgeMissing: the installed version cannot be updated to the new one (spec.upgrade.from of its
	// ModuleTemplate), neither directly nor through versions in between. Publish a version between the installed
	// version and the new one, or extend the range in spec.upgrade.from of the new version.
	ReasonEdgeMissing = "EdgeMissing"
	// ReasonUpgradeInvalid: spec.upgrade of a ModuleTemplate has a range or an expression that is not valid. Correct
	// the field spec.upgrade; klm module lint checks this field.
	ReasonUpgradeInvalid = "UpgradeInvalid"
	// ReasonKnownRisk: the version has a known problem in runtimes like this one, or the manager cannot find out
	// whether it has. Read the message; wait for a version without the problem, or remove the risk from
	// spec.upgrade.risks.
	ReasonKnownRisk = "KnownRisk"
	// ReasonRestoredOlder: the runtime has a higher version of the module than the restored control plane has recorded.
	// The manager changes nothing in the runtime. Let the channel have the version of the runtime, or a higher one,
	// again. To go back to the recorded lower version instead, set the annotation
	// operator.kyma-project.io/allow-downgrade on the Kyma.
	ReasonRestoredOlder = "RestoredOlder"
	// ReasonWaitingForWindow: the update needs a downtime and starts in the next maintenance window. Wait for the
	// window. An operator can set spec.skipMaintenanceWindows on the Kyma in the control plane.
	ReasonWaitingForWindow = "WaitingForWindow"
	// ReasonUpdateDeferred: the admin of the runtime has deferred the update with the annotation
	// operator.kyma-project.io/not-before, which the RolloutPolicy allows until the time that the message states. Wait,
	// or remove the annotation: klm module defer MODULE --clear.
	ReasonUpdateDeferred = "UpdateDeferred"
	// ReasonDeferralInvalid: the annotation operator.kyma-project.io/not-before is neither a date nor a time. The
	// update is deferred as long as the RolloutPolicy allows. Correct the annotation: klm module defer MODULE
	// --until=DATE.
	ReasonDeferralInvalid = "DeferralInvalid"
	// ReasonWaitingForRollout: the channel moves to another version, and the rollout has not admitted this runtime yet.
	// Wait; klm rollout show shows what the rollout waits for.
	ReasonWaitingForRollout = "WaitingForRollout"
	// ReasonWindowUnknown: the update needs a downtime and no maintenance window can be determined. Configure a
	// maintenance policy.
	ReasonWindowUnknown = "WindowUnknown"
	// ReasonInvalidPolicy: the maintenance policy cannot be parsed. The previous policy stays in force, if there was
	// one. Correct the field that the message names.
	ReasonInvalidPolicy = "InvalidPolicy"
)

// Reasons about rollouts. The following reasons are codes of status.blockers of a ModuleRollout.
const (
	// ReasonPolicyConflict: two RolloutPolicies match the module and channel with the same precision, so no rollout
	// begins. Correct the policies: only one of them may match the module and the channel.
	ReasonPolicyConflict = "PolicyConflict"
	// ReasonPolicyAccepted: the RolloutPolicy can be applied. Nothing has to be done.
	ReasonPolicyAccepted = "PolicyAccepted"
	// ReasonPolicyInvalid: the RolloutPolicy cannot be applied, for example because a selector is not valid. No channel
	// with this policy moves. Correct the policy.
	ReasonPolicyInvalid = "PolicyInvalid"
	// ReasonUrgencyInvalid: the annotation urgency of the ModuleReleaseMeta has a line that cannot be read, for the
	// version to which the channel is moved. The channel does not move. Correct or remove the invalid line of the
	// annotation; klm channel set --urgency writes a valid line.
	ReasonUrgencyInvalid = "UrgencyInvalid"
	// ReasonRolloutSuspended: the RolloutPolicy has suspend: true. Set suspend to false.
	ReasonRolloutSuspended = "RolloutSuspended"
	// ReasonRolloutFrozen: the RolloutPolicy has a freeze at this time. Wait until the freeze ends, or shorten the
	// freeze in spec.freezes of the RolloutPolicy.
	ReasonRolloutFrozen = "RolloutFrozen"
	// ReasonPolicyDeleted: the RolloutPolicy was deleted while it suspended or froze the rollout. Create the policy
	// again, or resume the rollout with a reason.
	ReasonPolicyDeleted = "PolicyDeleted"
	// ReasonRolloutPaused: a person has paused the rollout. Resume the rollout: klm rollout resume.
	ReasonRolloutPaused = "RolloutPaused"
	// ReasonTooManyFailures: more runtimes have failed because of the version than the policy allows, so no further
	// runtime begins to update. Check the failed runtimes; then abort the rollout, or resume it with a reason.
	ReasonTooManyFailures = "TooManyFailures"
	// ReasonTooManyLost: more runtimes are unreachable since their update began than the policy allows, so no further
	// runtime begins to update. Find out why the runtimes are unreachable; then abort the rollout, or resume it with a
	// reason.
	ReasonTooManyLost = "TooManyLost"
	// ReasonInconclusive: runtimes without the new version fail as often as runtimes with it, so the failures prove
	// nothing about the version. Find out what fails; the rollout goes on when fewer runtimes fail, or when a person
	// resumes it.
	ReasonInconclusive = "Inconclusive"
	// ReasonNoEvidence: no runtime of an earlier stage could be updated, so it is not known whether the version works.
	// Wait until a runtime can be updated, or resume the rollout with a reason.
	ReasonNoEvidence = "NoEvidence"
	// ReasonApprovalNeeded: a person has to approve the stage. Approve the stage: klm rollout approve.
	ReasonApprovalNeeded = "ApprovalNeeded"
	// ReasonGateNotPassed: the condition of a gate is not met yet, or could not be read. Check the gate that the
	// message names.
	ReasonGateNotPassed = "GateNotPassed"
	// ReasonGateFailed: the condition of a gate has failed, so no further runtime begins to update. Check the gate that
	// the message names; then abort the rollout, or resume it with a reason.
	ReasonGateFailed = "GateFailed"
	// ReasonPreflightPending: it is not known yet whether the version can be installed: either the version is being
	// verified and rendered, or it cannot be read. No runtime begins to update. If the version is still not verified
	// after a few minutes, check the registry that the message names.
	ReasonPreflightPending = "PreflightPending"
	// ReasonPreflightFailed: the version cannot be installed in any runtime, so no runtime begins to update. The
	// message has the cause.
	ReasonPreflightFailed = "PreflightFailed"
	// ReasonDowngradeUnsafe: the newer version does not declare that going back to the lower one is safe
	// (spec.upgrade.back), so runtimes keep the newer one. Fix forward: move the channel to a higher version that
	// corrects the problem.
	ReasonDowngradeUnsafe = "DowngradeUnsafe"
	// ReasonPromotionTooEarly: the version has not been the proven version of its channel for long enough. Wait.
	ReasonPromotionTooEarly = "PromotionTooEarly"
	// ReasonPromotionHeld: a person has moved the channel to another version than the promoted one, or holds its
	// promotion. Release the hold: klm promotions release.
	ReasonPromotionHeld = "PromotionHeld"
	// ReasonPromotionCircle: the promotions of several RolloutPolicies form a circle of channels. Remove one of these
	// promotions.
	ReasonPromotionCircle = "PromotionCircle"
	// ReasonPromotionNotOwned: another field manager, for example a GitOps tool, owns the version of the channel in the
	// ModuleReleaseMeta, so the manager does not change the version. Move the channel with the tool that owns the
	// version, or set mode Propose in the RolloutPolicy.
	ReasonPromotionNotOwned = "PromotionNotOwned"
	// ReasonChannelMoving: the channel is being moved to another version. Wait until the rollout of the channel has
	// ended.
	ReasonChannelMoving = "ChannelMoving"
	// ReasonControlPlaneFailing: runtimes cannot be updated because the control plane or a registry fails, which is not
	// the fault of the version. Wait: the rollout continues when the component that the message names works again. If
	// the component does not recover, check why it fails.
	ReasonControlPlaneFailing = "ControlPlaneFailing"
	// ReasonRolloutRemade: the ModuleRollout, or the status of the ModuleReleaseMeta, was deleted during the rollout,
	// so the manager has created the ModuleRollout again, paused. Resume the rollout: klm rollout resume.
	ReasonRolloutRemade = "RolloutRemade"
)

// Reasons about applying objects to a runtime.
const (
	// ReasonApplying: objects are being applied. Wait.
	ReasonApplying = "Applying"
	// ReasonObjectRefused: the API server rejects an object. Correct it in the module.
	ReasonObjectRefused = "ObjectRefused"
	// ReasonObjectConflict: an object already exists and belongs to another owner, or a field is immutable. Remove the
	// object, or rename the object in the module.
	ReasonObjectConflict = "ObjectConflict"
	// ReasonObjectExists: an object that has to be created exists already. Delete the existing object if nobody needs
	// it.
	ReasonObjectExists = "ObjectExists"
	// ReasonObjectNotFound: an object that is needed does not exist. Create the missing object if it is wanted.
	ReasonObjectNotFound = "ObjectNotFound"
	// ReasonAdmissionRefused: an admission webhook or policy of the runtime rejects an object. Correct the object in
	// the module, or the webhook or policy that the message names; the manager retries.
	ReasonAdmissionRefused = "AdmissionRefused"
	// ReasonFieldImmutable: the new version changes a field of an object that cannot be changed. Keep the field as it
	// was, or allow the module to delete and create the object again with the annotation
	// operator.kyma-project.io/on-immutable: recreate.
	ReasonFieldImmutable = "FieldImmutable"
	// ReasonStoredVersionDropped: a CRD of the module lacks a version in which objects may still be stored. Keep this
	// version of the CRD in the module (served: false is enough) until all objects are stored in another version and
	// the dropped version is removed from status.storedVersions.
	ReasonStoredVersionDropped = "StoredVersionDropped"
	// ReasonNamespaceNotFound: the namespace of an object does not exist in the runtime. Create the namespace, or add
	// it to the module.
	ReasonNamespaceNotFound = "NamespaceNotFound"
	// ReasonNamespaceTerminating: the namespace of an object is being deleted. Wait until the namespace is deleted, or
	// remove what blocks its deletion.
	ReasonNamespaceTerminating = "NamespaceTerminating"
	// ReasonWebhookFailed: an admission or conversion webhook of the runtime cannot be called. Check the workload
	// behind the webhook, or remove the webhook if it has none; the manager retries.
	ReasonWebhookFailed = "WebhookFailed"
	// ReasonDriftDetected: objects of the module were changed in the runtime, and an annotation of the Manifest keeps
	// such changes. Revert the change, or remove the annotation operator.kyma-project.io/drift.
	ReasonDriftDetected = "DriftDetected"
	// ReasonOwnedByOtherModule: another module of the runtime contains the same object with other content. Make both
	// modules contain the same object, or remove the object from one of the modules.
	ReasonOwnedByOtherModule = "OwnedByOtherModule"
	// ReasonReservedObject: a module for the control plane contains an object of the manager. Remove the object from
	// the module, or rename the object.
	ReasonReservedObject = "ReservedObject"
	// ReasonAdoptionRefused: the object exists already, was not created by the module, and the module or
	// --adoption-policy does not allow to adopt it. Delete or rename one of the two objects, or allow the adoption with
	// the annotation operator.kyma-project.io/adoption: adopt.
	ReasonAdoptionRefused = "AdoptionRefused"
	// ReasonObjectAdopted, of an event: an object existed before the module. An adopted object gets the fields of the
	// module, and stays when the module is removed.
	ReasonObjectAdopted = "ObjectAdopted"
	// ReasonObjectTaken, of an event: the module took over an object that existed before the module, because the
	// adoption policy is take. An object that the module has taken over is deleted with the module.
	ReasonObjectTaken = "ObjectTaken"
	// ReasonTakenOver, of an event: Lifecycle Manager took over fields of an object from other field managers.
	ReasonTakenOver = "TakenOver"
	// ReasonLeftOut, of an event: the artefact contains documents that are not applied, such as hooks.
	ReasonLeftOut = "LeftOut"
	// ReasonCRDNotEstablished: a CRD of the module is not served yet. Wait; if the CRD is not served within a few
	// minutes, check the conditions of the CRD.
	ReasonCRDNotEstablished = "CRDNotEstablished"
	// ReasonKindUnknown: the runtime does not serve the kind of an object. Install the CRD of the kind, or correct the
	// object.
	ReasonKindUnknown = "KindUnknown"
)

// Reasons about readiness.
const (
	// ReasonWorkloadNotReady: a workload of the module is not ready yet. Wait; if the reason persists, check its pods.
	ReasonWorkloadNotReady = "WorkloadNotReady"
	// ReasonWorkloadFailed: a workload of the module cannot become ready. Check the pods of the workload.
	ReasonWorkloadFailed = "WorkloadFailed"
	// ReasonCustomResourceNotReady: the custom resource of the module is not Ready. Check the status of the custom
	// resource.
	ReasonCustomResourceNotReady = "CustomResourceNotReady"
	// ReasonModulesNotReady: at least one module is neither Ready nor Unmanaged. Check the entry of this module in
	// status.modules of the Kyma.
	ReasonModulesNotReady = "ModulesNotReady"
	// ReasonNotObserved: the manager has not reconciled the current generation of the Kyma yet; only klm shows this
	// reason. Check that the manager runs; if many runtimes are new, wait, because only some get their first modules at
	// the same time (--max-new-runtimes).
	ReasonNotObserved = "NotObserved"
)

// Reasons about deletion.
const (
	// ReasonCustomResourceBlocksDeletion: custom resources of the module still exist. Delete the custom resources that
	// the message names.
	ReasonCustomResourceBlocksDeletion = "CustomResourceBlocksDeletion"
	// ReasonObjectsRemaining: objects of the module are being deleted but still exist. Wait; if the objects still exist
	// after a few minutes, check the finalizers of the objects.
	ReasonObjectsRemaining = "ObjectsRemaining"
	// ReasonNamespaceNotEmpty: a namespace of the module contains objects that do not belong to the module. Move or
	// delete the objects that the message names, or delete the namespace.
	ReasonNamespaceNotEmpty = "NamespaceNotEmpty"
	// ReasonObjectReleased, of an event: an object was released and not deleted, because it existed before the module.
	// The released object stays in the runtime, without the fields that the module had applied.
	ReasonObjectReleased = "ObjectReleased"
	// ReasonObjectHandedOver, of an event: an object stays, and belongs to another module that contains it too.
	ReasonObjectHandedOver = "ObjectHandedOver"
	// ReasonObjectLeftToOwner, of an event: an object stays, because it belongs to another module.
	ReasonObjectLeftToOwner = "ObjectLeftToOwner"
	// ReasonObjectLeftToOthers, of an event: an object stays, because another client has deleted and created it again.
	ReasonObjectLeftToOthers = "ObjectLeftToOthers"
	// ReasonDeletionQueued: many Kymas are being deleted, and only a limited number of them remove their modules at the
	// same time. Wait.
	ReasonDeletionQueued = "DeletionQueued"
	// ReasonManifestsRemaining: Manifests of the Kyma still exist. Wait; if the Manifests still exist after a few
	// minutes, check the status of the Manifests.
	ReasonManifestsRemaining = "ManifestsRemaining"
	// ReasonFinalizersRemaining: Lifecycle Manager has finished its part of the deletion, and finalizers of other
	// controllers keep the object. Check the controllers that own the finalizers in the message.
	ReasonFinalizersRemaining = "FinalizersRemaining"
	// ReasonPurged, of an event: the deletion of the Kyma exceeded the grace period, so these objects were deleted.
	ReasonPurged = "Purged"
	// ReasonFinalizersRemoved, of an event: the finalizers of custom resources still existed after the grace period, so
	// the manager removed the finalizers. The operator of the module may not have cleaned up after these custom
	// resources; check for objects that remain.
	ReasonFinalizersRemoved = "FinalizersRemoved"
	// ReasonPurgeBlocked, of an event: the purge could not remove the object that the event names from the runtime,
	// although the grace period is over. Remove the object manually.
	ReasonPurgeBlocked = "PurgeBlocked"
)

// Reasons about certificates.
const (
	// ReasonAuthorityBroken: the Secret with the root certificates of the certificate authority cannot be parsed. The
	// previous root certificates stay in force until the manager restarts; after a restart, the manager has no root
	// certificates. Restore the Secret from a backup, or delete it: a manager that still has the roots writes them
	// again.
	ReasonAuthorityBroken = "AuthorityBroken"
	// ReasonAuthorityNotReady: the root certificates of the certificate authority are not loaded yet. Wait; if the
	// certificates are not loaded within a few minutes, check the Secret that the message names.
	ReasonAuthorityNotReady = "AuthorityNotReady"
	// ReasonCertificateNotReady: cert-manager has not issued or renewed a certificate yet. Wait; if the certificate is
	// not issued within a few minutes, check the Certificate that the message names.
	ReasonCertificateNotReady = "CertificateNotReady"
	// ReasonCertificateRefused: no certificate may be issued for these names. Correct the runtime ID, or the annotation
	// skr-domain, of the Kyma.
	ReasonCertificateRefused = "CertificateRefused"
)

// Reasons about objects and fields that have no effect in their namespace or cluster.
const (
	// ReasonNamespaceNotServed: the object is in a namespace that the manager does not serve, so the manager ignores
	// the object. Delete the object, and create it again in the namespace that the message names.
	ReasonNamespaceNotServed = "NamespaceNotServed"
	// ReasonFieldIgnored: a field of the Kyma in the runtime only has an effect in the control plane. Remove the field
	// that the message names from the Kyma in the runtime.
	ReasonFieldIgnored = "FieldIgnored"
	// ReasonManifestRestored, of an event: another client changed the sources in a Manifest, and the manager has
	// written the former sources again. To change what is installed, change the ModuleTemplate or the
	// ModuleReleaseMeta, not the Manifest.
	ReasonManifestRestored = "ManifestRestored"
)

// Reasons about pausing and about unmanaged or orphaned objects.
const (
	// ReasonKymaPaused: the annotation operator.kyma-project.io/paused is set on the Kyma. Remove the annotation.
	ReasonKymaPaused = "KymaPaused"
	// ReasonModulePaused: the annotation paused.operator.kyma-project.io/<module> is set on the Kyma. Remove the
	// annotation.
	ReasonModulePaused = "ModulePaused"
	// ReasonSkipReconciliation: the label operator.kyma-project.io/skip-reconciliation is set. Remove the label.
	ReasonSkipReconciliation = "SkipReconciliation"
	// ReasonUnmanaged: the module is unmanaged: the user maintains it. Set managed to true if the manager should
	// reconcile the module again.
	ReasonUnmanaged = "Unmanaged"
	// ReasonOrphaned: the Kyma of the Manifest does not exist, or does not list the Manifest. Delete the Manifest to
	// uninstall the module.
	ReasonOrphaned = "Orphaned"
	// ReasonOrphanDeleted, of an event: this object had no owner and was deleted, as configured by --orphan-cleanup.
	ReasonOrphanDeleted = "OrphanDeleted"
)

// Reasons about the agent of a runtime.
const (
	// ReasonAgentNotDelivered: the agent cannot be installed in the runtime. The message states the cause.
	ReasonAgentNotDelivered = "AgentNotDelivered"
	// ReasonAgentSilent: the agent sends no heartbeat, so the runtime is polled instead. Check that the Deployment of
	// the agent is available, and that the runtime can connect to the listener.
	ReasonAgentSilent = "AgentSilent"
	// ReasonAgentImpaired: the agent is connected but cannot watch all configured resources. The message states the
	// cause.
	ReasonAgentImpaired = "AgentImpaired"
)

// Reasons about the route on which events of a Watcher arrive.
const (
	// ReasonInvalidWatcher: a field of the Watcher is missing or not valid. Correct the field that the message names.
	ReasonInvalidWatcher = "InvalidWatcher"
	// ReasonIstioNotInstalled: the Watcher selects Istio gateways, and the API server does not serve the kinds of
	// Istio. No action is needed: agents send their events to the listener without an Istio gateway.
	ReasonIstioNotInstalled = "IstioNotInstalled"
	// ReasonGatewayAPINotInstalled: the Watcher requests a route, and the API server does not serve HTTPRoutes. No
	// action is needed: agents send their events to the listener without an HTTPRoute.
	ReasonGatewayAPINotInstalled = "GatewayAPINotInstalled"
	// ReasonGatewayNotFound: spec.gateway.selector selects no Istio Gateway. Label a Gateway, or correct the selector.
	ReasonGatewayNotFound = "GatewayNotFound"
	// ReasonGatewayWithoutHosts: a selected Istio Gateway has no hosts. Add hosts to the servers of the Istio Gateway,
	// or select another Gateway in the Watcher.
	ReasonGatewayWithoutHosts = "GatewayWithoutHosts"
	// ReasonRouteNotAccepted: a Gateway has not accepted the HTTPRoute. The message contains the answer of the Gateway.
	ReasonRouteNotAccepted = "RouteNotAccepted"
	// ReasonRouteConflict: a VirtualService or HTTPRoute with the name of the Watcher exists and was not created by
	// Lifecycle Manager. Delete or rename this VirtualService or HTTPRoute.
	ReasonRouteConflict = "RouteConflict"
	// ReasonRouteRefused: the API server rejects the VirtualService or HTTPRoute. The message states the cause.
	ReasonRouteRefused = "RouteRefused"
	// ReasonControlPlaneForbidden: Lifecycle Manager lacks a permission in the control plane. Grant the permission that
	// the message names.
	ReasonControlPlaneForbidden = "ControlPlaneForbidden"
	// ReasonStatusNotSaved: the API server of the control plane refuses the new status of the object, so the object
	// shows an earlier status. The message contains the refusal of the API server. Check whether the CRDs in the
	// control plane are those of the manager, and whether a policy or a webhook refuses the status. If the status is
	// too large, request fewer modules.
	ReasonStatusNotSaved = "StatusNotSaved"
)

// ReasonInternalError is the reason of every failure that has no other reason. The message contains the complete error;
// the operation is retried.
const ReasonInternalError = "InternalError"
