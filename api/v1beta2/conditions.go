package v1beta2

// Types of the conditions of a Kyma.
const (
	// ConditionCRDsSync: the runtime has our CRDs.
	ConditionCRDsSync = "CRDsSync"
	// ConditionModules: every module is Ready or Unmanaged.
	ConditionModules = "Modules"
	// ConditionModuleCatalog: the runtime has its catalog copy.
	ConditionModuleCatalog = "ModuleCatalog"
	// ConditionMandatoryModules: every mandatory module is Ready. Present in the control plane only, and only if there are
	// mandatory modules. It does not count for the state of the Kyma. Kyma's lifecycle-manager does not have it.
	ConditionMandatoryModules = "MandatoryModules"
	// ConditionMaintenancePolicy is False while a module waits for a maintenance window and the changed policy cannot be
	// read. Otherwise it is absent. Kyma's lifecycle-manager does not have it.
	ConditionMaintenancePolicy = "MaintenancePolicy"
	// ConditionReachable is False while a Kyma is being deleted and its runtime cannot be reached, if --deletion-deadline is
	// set. The deadline counts from its last transition. Otherwise it is absent. Kyma's lifecycle-manager does not have it.
	ConditionReachable = "Reachable"
	// ConditionSKRWebhook: the agent in the runtime reports changes. Present if agents are enabled.
	ConditionSKRWebhook = "SKRWebhook"
	// ConditionSKRImagePullSecretSync: the runtime has the Secret to pull images with. Present if one is configured.
	ConditionSKRImagePullSecretSync = "SKRImagePullSecretSync"
)

// Types of the conditions of a Manifest.
const (
	// ConditionSignature: the artefacts of the module are signed by a key of the trust policy. Present if the policy
	// requires a signature.
	ConditionSignature = "Signature"
	// ConditionResources: the objects of the module are fetched and parsed.
	ConditionResources = "Resources"
	// ConditionInstallation: the module is installed and its workload is ready.
	ConditionInstallation = "Installation"
	// ConditionModuleCR: the default custom resource was created. Present if there is one and the policy is
	// CreateAndDelete.
	ConditionModuleCR = "ModuleCR"
)

// ConditionReady is the summary of the other conditions of a Kyma, of a Manifest and of a Watcher. Its reason is the code
// of the blocker, and its message names the blocker and what to do. Kyma's lifecycle-manager does not have it.
const ConditionReady = "Ready"

// Types of the conditions of a Watcher.
const (
	// ConditionVirtualService: events arrive through Istio gateways. Present if the Watcher selects gateways. False is no
	// error where Istio is not installed.
	ConditionVirtualService = "VirtualService"
	// ConditionHTTPRoute: events arrive through Gateways of Gateway API. Present if the Watcher requests a route. False is no
	// error where Gateway API is not installed. Kyma's lifecycle-manager does not have it.
	ConditionHTTPRoute = "HTTPRoute"
)

// Reasons of conditions whose status is True, or False without a known cause. Each blocker has a reason of its own, see
// ReasonAccessSecretNotFound and those that follow it.
const (
	// ReasonReady is the reason of the conditions of Kyma and Watcher, and of ConditionInstallation.
	ReasonReady = "Ready"
	// ReasonSignatureVerified is the reason of ConditionSignature when it is True.
	ReasonSignatureVerified = "SignatureVerified"
	// ReasonResourcesAvailable is the reason of ConditionResources.
	ReasonResourcesAvailable = "ResourcesAvailable"
	// ReasonModuleCRCreated is the reason of ConditionModuleCR.
	ReasonModuleCRCreated = "ModuleCRCreated"
)

// Messages of the conditions by status. A False condition with a known cause has the message of the cause instead.
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
	// OperationStarted goes with the first StateProcessing.
	OperationStarted = "started processing"
	// OperationWaitingForModules goes with Processing, Warning and Error that come from modules.
	OperationWaitingForModules = "waiting for all modules to become ready"
	// OperationReady goes with StateReady.
	OperationReady = "kyma is ready"
	// OperationDeleting goes with StateDeleting.
	OperationDeleting = "waiting for modules to be deleted"
)

// Texts of status.lastOperation.operation of a Manifest.
const (
	// OperationManifestNew goes with the first StateProcessing.
	OperationManifestNew = "object has an empty state"
	// OperationManifestSyncing goes with StateProcessing while objects are applied.
	OperationManifestSyncing = "resource syncTarget state diff detected"
	// OperationManifestWaiting goes with StateProcessing while the workload is not ready.
	OperationManifestWaiting = "waiting for resources to become ready"
	// OperationManifestReady goes with StateReady.
	OperationManifestReady = "resources are ready"
	// OperationManifestDeletingCRs goes with StateDeleting while custom resources of the user block the deletion.
	OperationManifestDeletingCRs = "waiting for module crs deletion"
	// OperationManifestLayerFailed is a part of the message, with StateError, if the layer of the raw manifest could not be
	// read.
	OperationManifestLayerFailed = "failed to extract raw manifest from layer digest"
	// OperationManifestManagerError goes with StateError when the workload of the module failed.
	OperationManifestManagerError = "manager is in error state"
)
