package v1beta2

// Types of the conditions of a Kyma.
const (
	// ConditionCRDsSync: the runtime has the CRDs of Lifecycle Manager.
	ConditionCRDsSync = "CRDsSync"
	// ConditionModules: every module is Ready or Unmanaged.
	ConditionModules = "Modules"
	// ConditionModuleCatalog: the catalog copy in the runtime is up to date.
	ConditionModuleCatalog = "ModuleCatalog"
	// ConditionMandatoryModules: every mandatory module is Ready. ConditionMandatoryModules exists in the control plane
	// only, and only if there are mandatory modules. ConditionMandatoryModules does not affect the state of the Kyma.
	// The original Kyma API does not have ConditionMandatoryModules.
	ConditionMandatoryModules = "MandatoryModules"
	// ConditionMaintenancePolicy is False while a module waits for a maintenance window and the changed maintenance
	// policy cannot be parsed. ConditionMaintenancePolicy is removed when the policy is valid again or no module waits
	// for a window. The original Kyma API does not have ConditionMaintenancePolicy.
	ConditionMaintenancePolicy = "MaintenancePolicy"
	// ConditionSpecAccepted is False while the Kyma in the runtime sets a field that only has an effect in the control
	// plane, such as spec.skipMaintenanceWindows. ConditionSpecAccepted is removed when the Kyma no longer sets such a
	// field. ConditionSpecAccepted does not affect the state of the Kyma. The original Kyma API does not have
	// ConditionSpecAccepted.
	ConditionSpecAccepted = "SpecAccepted"
	// ConditionReachable is False while a Kyma is being deleted and its runtime is unreachable, if --deletion-deadline
	// is set. The deletion deadline is counted from the last transition of ConditionReachable. A Kyma whose runtime is
	// reachable, or that is not being deleted, does not have ConditionReachable. The original Kyma API does not have
	// ConditionReachable.
	ConditionReachable = "Reachable"
	// ConditionCredentialHealthy is False while the credential in the access Secret has lost rights in the runtime, or
	// expires soon. The manager notices lost rights, and a credential that expires soon, even if no request fails. If
	// the credential has lost rights, a Kyma that would otherwise be Ready is in state Warning. While the credential is
	// healthy, ConditionCredentialHealthy does not exist. The original Kyma API does not have
	// ConditionCredentialHealthy.
	ConditionCredentialHealthy = "CredentialHealthy"
	// ConditionSKRWebhook is True if the agent in the runtime reports changes. ConditionSKRWebhook exists if the
	// watcher is enabled.
	ConditionSKRWebhook = "SKRWebhook"
	// ConditionSKRImagePullSecretSync: the runtime has the image pull Secret. ConditionSKRImagePullSecretSync exists if
	// an image pull Secret is configured.
	ConditionSKRImagePullSecretSync = "SKRImagePullSecretSync"
)

// Types of the conditions of a Manifest.
const (
	// ConditionSignature: the artefacts of the module are signed by a key of the trust policy. ConditionSignature
	// exists if the trust policy requires a signature.
	ConditionSignature = "Signature"
	// ConditionSourcesReadable is False while the sources of an installed version cannot be read, for example because
	// the registry does not answer. While the sources are readable, ConditionSourcesReadable does not exist.
	// ConditionSourcesReadable does not affect the state of the Manifest, because the objects in the runtime determine
	// this state. The original Kyma API does not have ConditionSourcesReadable.
	ConditionSourcesReadable = "SourcesReadable"
	// ConditionResources: the objects of the module are fetched and parsed.
	ConditionResources = "Resources"
	// ConditionInstallation: the module is installed and its workload is ready.
	ConditionInstallation = "Installation"
	// ConditionModuleCR: the default custom resource was created. ConditionModuleCR exists if the module has a default
	// custom resource and the policy is CreateAndDelete.
	ConditionModuleCR = "ModuleCR"
)

// ConditionReady is the summary condition of a Kyma, a Manifest and a Watcher. If ConditionReady is not True, its
// reason is the code of the cause, and its message states the cause and what to do. The original Kyma API does not have
// ConditionReady.
const ConditionReady = "Ready"

// Types of the conditions of a Watcher.
const (
	// ConditionVirtualService: events arrive through Istio gateways. ConditionVirtualService exists if the Watcher
	// selects Istio gateways. Where Istio is not installed, ConditionVirtualService is False, which has no further
	// effect.
	ConditionVirtualService = "VirtualService"
	// ConditionHTTPRoute: events arrive through Gateways of Gateway API. ConditionHTTPRoute exists if the Watcher
	// requests a route. Where Gateway API is not installed, ConditionHTTPRoute is False, which has no further effect.
	// The original Kyma API does not have ConditionHTTPRoute.
	ConditionHTTPRoute = "HTTPRoute"
)

// A condition has one of the following reasons if its status is True, or if its status is False and the cause is not
// known. The reasons for known causes are in reasons.go.
const (
	// ReasonReady is the reason of the conditions of Kyma and Watcher, and of the condition Installation.
	ReasonReady = "Ready"
	// ReasonSignatureVerified is the reason of the condition Signature when it is True.
	ReasonSignatureVerified = "SignatureVerified"
	// ReasonResourcesAvailable is the reason of the condition Resources.
	ReasonResourcesAvailable = "ResourcesAvailable"
	// ReasonModuleCRCreated is the reason of the condition ModuleCR.
	ReasonModuleCRCreated = "ModuleCRCreated"
)

// A condition has one of the following messages, depending on its type and status. If a condition is False for a known
// cause, the message of the condition describes the cause.
const (
	MessageCRDsSyncTrue    = "CRDs are synchronized to the SKR"
	MessageCRDsSyncFalse   = "CRDs are not synchronized to the SKR"
	MessageCRDsSyncUnknown = "CRDs synchronization state is unknown"

	MessageModulesTrue    = "all modules are in ready state"
	MessageModulesFalse   = "not all modules are in ready state"
	MessageModulesUnknown = "modules state is unknown"

	MessageModuleCatalogTrue    = "module templates are synchronized"
	MessageModuleCatalogFalse   = "module templates are out of sync and need to be resynchronized"
	MessageModuleCatalogUnknown = "module templates synchronization state is unknown"

	MessageMandatoryModulesTrue  = "all mandatory modules are in ready state"
	MessageMandatoryModulesFalse = "not all mandatory modules are in ready state"

	MessageSpecAcceptedFalse = "a field of the Kyma in the runtime is ignored"

	MessageSKRWebhookTrue  = "skrwebhook is synchronized"
	MessageSKRWebhookFalse = "skrwebhook is out of sync and needs to be resynchronized"

	MessageSKRImagePullSecretSyncTrue  = "skr image pull secret is synchronized"
	MessageSKRImagePullSecretSyncFalse = "skr image pull secret is out of sync and needs to be resynchronized"

	MessageResourcesTrue  = "resources are parsed and ready for use"
	MessageResourcesFalse = "resources not parsed"

	MessageInstallationTrue  = "installation is ready and resources can be used"
	MessageInstallationFalse = "installation is not ready"

	MessageModuleCRTrue  = "module CR was created"
	MessageModuleCRFalse = "module CR has not been created to SKR"

	MessageVirtualServiceTrue  = "VirtualService is configured"
	MessageVirtualServiceFalse = "VirtualService is not configured"

	MessageHTTPRouteTrue  = "HTTPRoute is configured"
	MessageHTTPRouteFalse = "HTTPRoute is not configured"
)

// Texts of status.lastOperation.operation of a Kyma.
const (
	// OperationStarted is the text that Kyma's lifecycle-manager sets when a Kyma becomes Processing for the first
	// time. Lifecycle Manager does not set OperationStarted.
	OperationStarted = "started processing"
	// OperationWaitingForModules is set with the states Processing, Warning and Error if modules cause them.
	OperationWaitingForModules = "waiting for all modules to become ready"
	// OperationReady is set with StateReady.
	OperationReady = "kyma is ready"
	// OperationDeleting is set with StateDeleting.
	OperationDeleting = "waiting for modules to be deleted"
)

// Texts of status.lastOperation.operation of a Manifest.
const (
	// OperationManifestNew is the text that Kyma's lifecycle-manager sets when a Manifest becomes Processing for the
	// first time. Lifecycle Manager does not set OperationManifestNew.
	OperationManifestNew = "object has an empty state"
	// OperationManifestSyncing is the text that Kyma's lifecycle-manager sets with StateProcessing while it applies
	// objects. Lifecycle Manager does not set OperationManifestSyncing.
	OperationManifestSyncing = "resource syncTarget state diff detected"
	// OperationManifestWaiting is set with StateProcessing while the workload is not ready.
	OperationManifestWaiting = "waiting for resources to become ready"
	// OperationManifestReady is set with StateReady.
	OperationManifestReady = "resources are ready"
	// OperationManifestDeletingCRs is the text that Kyma's lifecycle-manager sets with StateDeleting while custom
	// resources of the user block the deletion. Lifecycle Manager does not set OperationManifestDeletingCRs.
	OperationManifestDeletingCRs = "waiting for module crs deletion"
	// OperationManifestLayerFailed is part of the message of StateError if the layer of the raw manifest could not be
	// pulled.
	OperationManifestLayerFailed = "failed to extract raw manifest from layer digest"
	// OperationManifestManagerError is the text that Kyma's lifecycle-manager sets with StateError if the workload of
	// the module failed. Lifecycle Manager does not set OperationManifestManagerError.
	OperationManifestManagerError = "manager is in error state"
)
