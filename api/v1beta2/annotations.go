package v1beta2

// Annotations that Lifecycle Manager reads or writes.
const (
	// AnnotationSKRDomain on a Kyma is the DNS name of the runtime. The certificate of the agent contains this DNS
	// name, and the first part of the DNS name appears in metrics. The component that creates Kymas sets
	// AnnotationSKRDomain.
	AnnotationSKRDomain = "skr-domain"
	// AnnotationOCMComponentName on a Manifest is the name of the OCM component that the module comes from.
	AnnotationOCMComponentName = "operator.kyma-project.io/ocm-component-name"
	// AnnotationFQDN on a Manifest has the value of AnnotationOCMComponentName, for older clients.
	AnnotationFQDN = "operator.kyma-project.io/fqdn"
	// AnnotationIsUnmanaged with ValueTrue on a Manifest marks the module as unmanaged: the user maintains its objects.
	AnnotationIsUnmanaged = "operator.kyma-project.io/is-unmanaged"
	// AnnotationSyncOCIRef on a Manifest is the ref of the source that was applied completely, in the format of Kyma's
	// lifecycle-manager. While a verified new version is being applied, the value may be the ref of the new version
	// already.
	AnnotationSyncOCIRef = "sync-oci-ref"
	// AnnotationIsClusterScoped with ValueTrue on a ModuleTemplate marks its default custom resource as cluster-scoped.
	AnnotationIsClusterScoped = "operator.kyma-project.io/is-cluster-scoped"
	// AnnotationOwnedBy on the Kyma and the objects of modules in a runtime is the namespace/name of the owner in the
	// control plane: the Kyma, or the Manifest.
	AnnotationOwnedBy = "deprecated-operator.kyma-project.io/owned-by"
	// AnnotationOwner on the Kyma in a runtime is the record of the owner of the runtime, as JSON: the control plane,
	// the Kyma in the control plane, and the cluster. A manager that finds another owner changes nothing in the
	// runtime. The original Kyma API does not have AnnotationOwner.
	AnnotationOwner = "operator.kyma-project.io/owner"
	// AnnotationTakeRuntime with ValueTrue on a Kyma in the control plane makes this Kyma the owner of its runtime,
	// even if the runtime has another owner, or if the access Secret leads to another cluster than before. The former
	// owner then stops changing the runtime. The manager removes AnnotationTakeRuntime as soon as the annotated Kyma is
	// the owner of the runtime. The original Kyma API does not have AnnotationTakeRuntime.
	AnnotationTakeRuntime = "operator.kyma-project.io/take-runtime"
	// AnnotationBaseObjectsDigest on the Kyma in a runtime is the digest of the base objects: the namespace and the
	// CRDs that are applied to the runtime before its first module. The original Kyma API does not have
	// AnnotationBaseObjectsDigest.
	AnnotationBaseObjectsDigest = "operator.kyma-project.io/base-digest"
	// AnnotationLastRequest on the Kyma in the control plane has the last channel and modules of the Kyma in the
	// runtime, and its annotations that defer updates or pause modules, as JSON. AnnotationLastRequest is absent if the
	// runtime has none of these annotations, and its channel and modules equal those of the Kyma in the control plane.
	// If the Kyma in the runtime is deleted, the manager restores it from AnnotationLastRequest. The original Kyma API
	// does not have AnnotationLastRequest.
	AnnotationLastRequest = "operator.kyma-project.io/last-wish"
	// AnnotationStartOver with ValueTrue on the Kyma in a runtime has an effect when a user deletes this Kyma: the
	// manager creates the Kyma again from the Kyma in the control plane, and ignores AnnotationLastRequest. The
	// original Kyma API does not have AnnotationStartOver.
	AnnotationStartOver = "operator.kyma-project.io/start-over"
	// AnnotationDisclaimer on the objects of modules in a runtime asks users not to edit them. The value of
	// AnnotationDisclaimer is the constant Disclaimer.
	AnnotationDisclaimer = "operator.kyma-project.io/managed-by-reconciler-disclaimer"
	// AnnotationDrift with DriftReport on a Manifest makes the manager report changes by other field managers to the
	// module's objects, and not revert them. Without AnnotationDrift, changes of other field managers are reverted.
	AnnotationDrift = "operator.kyma-project.io/drift"
	// AnnotationCustomStateCheck on a Manifest sets whether the state of the module's custom resource is part of the
	// state of the Manifest: "true" or "false". The default is the manager's flag --custom-state-check.
	AnnotationCustomStateCheck = "operator.kyma-project.io/custom-state-check"
	// AnnotationInjectData affects Secrets among the objects of the module "deployer". If such a Secret has
	// AnnotationInjectData with ValueTrue, its data is replaced by the data of the Secret with the same name in the
	// control plane. The Secret in the control plane must have LabelModuleName with the value "deployer", and
	// --restricted-default-modules must contain "deployer". AnnotationInjectData has no effect in other modules.
	AnnotationInjectData = "operator.kyma-project.io/inject-data-from-kcp"
	// AnnotationPaused on a Kyma pauses its runtime: only deletions proceed until the annotation is removed. The value
	// of AnnotationPaused states the reason for users; "false" means not paused. AnnotationPaused on the Kyma in the
	// control plane pauses all modules; on the Kyma in the runtime it pauses the requested modules, not the mandatory
	// ones. The manager copies AnnotationPaused to the affected Manifests; its value there states where the pause was
	// set. The original Kyma API does not have AnnotationPaused.
	AnnotationPaused = "operator.kyma-project.io/paused"
	// AnnotationPausedModulePrefix, followed by the name of a module, is AnnotationPaused for this module only.
	AnnotationPausedModulePrefix = "paused.operator.kyma-project.io/"
	// AnnotationRetry with a new value on a Kyma in the control plane, or on a Manifest, requests a retry at once, for
	// example after the runtime or the registry was repaired. A requested retry ends the delay after errors, probes the
	// runtime, ignores cached failures, and compares and sends the objects of modules that are not Ready again. On a
	// Kyma, AnnotationRetry applies to all modules of the Kyma. Every value of AnnotationRetry that differs from the
	// last one is a request. Users and the command klm retry set AnnotationRetry. The original Kyma API does not have
	// AnnotationRetry.
	AnnotationRetry = "operator.kyma-project.io/retry"
	// AnnotationRequestedVersion on a Manifest is the version that the manager has resolved for the module in the Kyma.
	// AnnotationRequestedVersion equals spec.version of the Manifest unless somebody edited spec.version. The original
	// Kyma API does not have AnnotationRequestedVersion.
	AnnotationRequestedVersion = "operator.kyma-project.io/ordered-version"
	// AnnotationRequestedSources on a Manifest is a digest of spec.install, spec.installs, spec.config, spec.crds and
	// spec.localizedImages as they were resolved from the component descriptor. If this digest differs from the fields
	// of the Manifest, somebody edited the fields, and the manager resolves them again. The original Kyma API does not
	// have AnnotationRequestedSources.
	AnnotationRequestedSources = "operator.kyma-project.io/requested-sources"
	// AnnotationContentDigest on a ModuleTemplate is the digest of the content that its version installs: layers,
	// charts and images. The manager records the digest when the version is first installed. On a Manifest,
	// AnnotationContentDigest is the digest of the content of the version that the Manifest installs. The original Kyma
	// API does not have AnnotationContentDigest.
	AnnotationContentDigest = "operator.kyma-project.io/content-digest"
	// AnnotationWithdrawn on a ModuleTemplate in the control plane withdraws its version: no further runtime gets the
	// version, and runtimes that have the version keep it. The value of AnnotationWithdrawn states the reason for
	// users; the command klm version withdraw sets the annotation. The original Kyma API does not have
	// AnnotationWithdrawn.
	AnnotationWithdrawn = "operator.kyma-project.io/withdrawn"
	// AnnotationReplacedBy on a ModuleTemplate is set if the registry has now other content under the version than the
	// recorded content (AnnotationContentDigest); the value is the digest of the other content. Until
	// AnnotationAcceptContent accepts the other content, or the registry has the recorded content again, the version is
	// blocked with ReasonVersionReplaced. The manager sets and removes AnnotationReplacedBy. The original Kyma API does
	// not have AnnotationReplacedBy.
	AnnotationReplacedBy = "operator.kyma-project.io/replaced-by"
	// AnnotationAcceptContent on a ModuleTemplate in the control plane is the digest of content that may replace the
	// recorded content of the version. The manager installs the accepted content in all runtimes that have the version,
	// and records the digest as the content of the version. Users set the annotation. The original Kyma API does not
	// have AnnotationAcceptContent.
	AnnotationAcceptContent = "operator.kyma-project.io/accept-content"
	// AnnotationRuntimeVersion on a Manifest is the version of the module in the runtime. AnnotationRuntimeVersion is
	// set if the control plane was restored from an older state, or lost the Manifest or its status. While a Manifest
	// has AnnotationRuntimeVersion, nothing is applied: the objects of the module in the runtime are added to the
	// inventory, and the version in the annotation counts as installed. The value VersionUnknown of
	// AnnotationRuntimeVersion means that the Manifest has lost its status, and that the version in the runtime is not
	// known. The Kyma controller sets AnnotationRuntimeVersion, and removes it when it installs the next version. The
	// original Kyma API does not have AnnotationRuntimeVersion.
	AnnotationRuntimeVersion = "operator.kyma-project.io/runtime-version"
	// AnnotationPurged on a Manifest that is being deleted means that the purge controller removed objects of the
	// module that nothing serves any more, such as a webhook that blocked the deletion. The value of AnnotationPurged
	// names the object that was removed last, for users. If a Manifest has AnnotationPurged, the Manifest controller
	// does not restore the objects of the module's operator any more. The original Kyma API does not have
	// AnnotationPurged.
	AnnotationPurged = "operator.kyma-project.io/purged"
	// AnnotationDeletionGivenUp on a Kyma and on its Manifests means that the runtime was unreachable until the end of
	// --deletion-deadline. The manager then removes the finalizers, and the runtime keeps its objects. The value of
	// AnnotationDeletionGivenUp is the name of the tombstone, a ConfigMap that lists the objects left in the runtime.
	// On a Manifest whose runtime belongs to another owner, the value of AnnotationDeletionGivenUp is the reason, for
	// example RuntimeTaken; then there is no tombstone. AnnotationDeletionGivenUp must not be removed. The original
	// Kyma API does not have AnnotationDeletionGivenUp.
	AnnotationDeletionGivenUp = "operator.kyma-project.io/given-up"
	// AnnotationNotBefore on a Kyma, in the control plane or the runtime, defers those updates of requested modules
	// that rollouts start. The value of AnnotationNotBefore is a date, such as 2026-12-24, or a time in RFC 3339.
	// Updates are deferred only if the RolloutPolicy has maxDeferral, and for at most the time in maxDeferral. The
	// original Kyma API does not have AnnotationNotBefore.
	AnnotationNotBefore = "operator.kyma-project.io/not-before"
	// AnnotationNotBeforeModulePrefix, followed by the name of a module, is AnnotationNotBefore for this module only,
	// and takes precedence over AnnotationNotBefore.
	AnnotationNotBeforeModulePrefix = "not-before.operator.kyma-project.io/"
	// AnnotationAllowDowngrade on a Kyma, in the control plane or the runtime, names the modules that may be downgraded
	// to a lower version, separated by commas; DowngradeAll means all modules. For mandatory modules, only
	// AnnotationAllowDowngrade on the Kyma in the control plane has an effect. On the ModuleReleaseMeta of a mandatory
	// module, AnnotationAllowDowngrade with ValueTrue allows the downgrade of this module on every runtime.
	// AnnotationAllowDowngrade applies as long as it is set. The original Kyma API does not have
	// AnnotationAllowDowngrade.
	AnnotationAllowDowngrade = "operator.kyma-project.io/allow-downgrade"
	// AnnotationDeleteCustomResources on a Kyma, in the control plane or the runtime, names modules, separated by
	// commas; AllModules means all modules. When a CRD of such a module is deleted, the custom resources of users may
	// be deleted, too. For mandatory modules, only the annotation of the Kyma in the control plane is read. Without
	// AnnotationDeleteCustomResources, custom resources of users block the deletion of their CRD. The Kyma controller
	// sets AnnotationDeleteCustomResources to ValueTrue on the Manifests of the named modules.
	// AnnotationDeleteCustomResources applies as long as it is set: remove the annotation after the module was removed.
	// The original Kyma API does not have AnnotationDeleteCustomResources.
	AnnotationDeleteCustomResources = "operator.kyma-project.io/delete-custom-resources"
	// AnnotationUrgency on a ModuleReleaseMeta in the control plane declares moves of channels as urgent. The
	// annotation has one line for each move: the channel, the version that the channel is moved to, Hotfix or
	// Emergency, optionally ignoreWindows, a colon and the reason. An example of a line is "regular 2.0.1 Emergency:
	// 2.0.0 deletes volumes". A line of AnnotationUrgency affects only the next move of the channel to the version in
	// this line. The command klm channel set --urgency sets the annotation together with the version. The original Kyma
	// API does not have AnnotationUrgency.
	AnnotationUrgency = "operator.kyma-project.io/urgency"
	// AnnotationPromotion on a ModuleReleaseMeta in the control plane holds or releases promotions into channels.
	// AnnotationPromotion has one line for each channel whose promotion is held or released. For example, the line
	// "regular Hold: audit" holds the promotion into the channel regular, and the line "regular Release 41" ends a
	// hold. A line with Release ends the hold that a person has caused by moving the channel to another version; the
	// number after Release is the revision of this move. The commands klm promotions hold and klm promotions release
	// set AnnotationPromotion. The original Kyma API does not have AnnotationPromotion.
	AnnotationPromotion = "operator.kyma-project.io/promotion"
	// AnnotationRollout on a Manifest is the name of the ModuleRollout by which the Manifest got its version, a slash,
	// and the name of the stage if there are stages. AnnotationRollout stays until the Manifest gets another version.
	// The original Kyma API does not have AnnotationRollout.
	AnnotationRollout = "operator.kyma-project.io/rollout"
	// AnnotationRolloutStarted on a Manifest is the time (RFC 3339) at which the Manifest got its version by the
	// ModuleRollout. The original Kyma API does not have AnnotationRolloutStarted.
	AnnotationRolloutStarted = "operator.kyma-project.io/rollout-started"
	// AnnotationRolloutExcused with ValueTrue on a Manifest means that the rollout did not cause a failure of the
	// module: the module was in state Error, or its runtime was unreachable, already before the update. A failure of a
	// module with AnnotationRolloutExcused proves nothing about the version. The original Kyma API does not have
	// AnnotationRolloutExcused.
	AnnotationRolloutExcused = "operator.kyma-project.io/rollout-excused"
	// AnnotationCAAddedAt on the Secret of the gateway is the time at which the newest CA was added to its bundle (RFC
	// 3339).
	AnnotationCAAddedAt = "caAddedToBundleAt"
	// AnnotationCertificatesNotBefore on a Kyma in the control plane is a time (RFC 3339): certificates that were
	// issued to the runtime before this time are revoked and replaced. If AnnotationCertificatesNotBefore is in the
	// future, it takes effect at that time. The original Kyma API does not have AnnotationCertificatesNotBefore.
	AnnotationCertificatesNotBefore = "operator.kyma-project.io/certificates-not-before"
	// AnnotationRotateRoot on the Secret with the roots of the certificate authority requests a new root, if its value
	// differs from that of AnnotationRootRotated. Users set it. The original Kyma API does not have
	// AnnotationRotateRoot.
	AnnotationRotateRoot = "operator.kyma-project.io/rotate"
	// AnnotationRootRotated on the Secret with the roots of the certificate authority is the last value of
	// AnnotationRotateRoot for which the manager has created a root.
	AnnotationRootRotated = "operator.kyma-project.io/rotated"
	// AnnotationListenerRoot on the Secret with the roots of the certificate authority is the fingerprint of one root:
	// every replica of the manager uses this root to sign the certificate of its listener.
	AnnotationListenerRoot = "operator.kyma-project.io/listener-root"
	// AnnotationListenerRootSince on the Secret with the roots is the time (RFC 3339) since which the root in
	// AnnotationListenerRoot signs the certificate of the listener.
	AnnotationListenerRootSince = "operator.kyma-project.io/listener-root-since"
)

// DriftReport is the value of AnnotationDrift with which the manager reports drift and does not revert it.
const DriftReport = "report"

// VersionUnknown is the value of AnnotationRuntimeVersion if the version in the runtime is not known.
const VersionUnknown = "unknown"

// DigestUnknown is the value of status.appliedDigest of a Manifest whose inventory was read from the runtime.
const DigestUnknown = "unknown"

// DowngradeAll is the value of AnnotationAllowDowngrade that names every module.
const DowngradeAll = "*"

// AllModules is the value of AnnotationDeleteCustomResources that names every module.
const AllModules = "*"

// Disclaimer is the value of AnnotationDisclaimer.
const Disclaimer = "DO NOT EDIT - This resource is managed by Kyma.\n" +
	"Any modifications are discarded and the resource is reverted to the original state."
