package v1beta2

// Reasons of events about a Kyma. The reason that a module is not Ready is also the reason of one event, which is
// emitted when the reason occurs first.
const (
	// EventRemoteInstallation: the Kyma was created in the runtime.
	EventRemoteInstallation = "RemoteInstallation"
	// EventKymaRestored: the Kyma in the runtime was deleted, and was created again with the modules that it requested
	// last.
	EventKymaRestored = "KymaRestored"
	// EventMetadataSynchronization: labels or annotations of the Kyma in the runtime could not be written.
	EventMetadataSynchronization = "MetadataSynchronization"
	// EventStatusSynchronization: the status of the Kyma in the runtime could not be written.
	EventStatusSynchronization = "StatusSynchronization"
	// EventMetricsError: a label or annotation that metrics need is missing.
	EventMetricsError = "MetricsError"
	// EventUpdateSpecError: the Kyma could not be written.
	EventUpdateSpecError = "UpdateSpecError"
	// EventUpdateStatusError: the status of the Kyma could not be written.
	EventUpdateStatusError = "UpdateStatusError"
	// EventDeletionGivenUp: the runtime was unreachable until the end of --deletion-deadline, so the Kyma is deleted
	// and the runtime keeps its objects. The tombstone in the message lists these objects.
	EventDeletionGivenUp = "DeletionGivenUp"
	// EventTombstoneDeleted, of a deleted Kyma: the objects left in its runtime are cleaned up, or the tombstone is not
	// needed any more.
	EventTombstoneDeleted = "TombstoneDeleted"
	// EventKymaDeletionStuck: everything is removed, but a finalizer of another owner keeps the Kyma.
	EventKymaDeletionStuck = "KymaDeletionStuck"
)

// Reasons of events about the steps of deleting a Kyma: Normal when the step is done, Warning when it failed.
const (
	EventSetKCPKymaStateDeleting          = "SetKcpKymaStateDeleting"
	EventSetSKRKymaStateDeleting          = "SetSkrKymaStateDeleting"
	EventDeleteManifests                  = "DeleteManifests"
	EventDeleteCertificateSetup           = "DeleteCertificateSetup"
	EventDeleteSKRWebhookResources        = "DeleteSkrWebhookResources"
	EventDeleteSKRModuleTemplateCRD       = "DeleteSkrModuleTemplateCrd"
	EventDeleteSKRModuleReleaseMetaCRD    = "DeleteSkrModuleReleaseMetaCrd"
	EventDeleteSKRKyma                    = "DeleteSkrKyma"
	EventDeleteSKRKymaCRD                 = "DeleteSkrKymaCrd"
	EventDeleteMetrics                    = "DeleteMetrics"
	EventEnsureManifestDeletion           = "EnsureManifestDeletion"
	EventDropKymaFinalizer                = "DropKymaFinalizer"
	EventSettingPurgeFinalizerFailed      = "SettingPurgeFinalizerFailed"
	EventRemovingPurgeFinalizerFailed     = "RemovingPurgeFinalizerFailed"
	EventSettingMandatoryFinalizerFailed  = "SettingMandatoryModuleTemplateFinalizerError"
	EventDeletingMandatoryManifestsFailed = "DeletingMandatoryModuleManifestError"
)

// Reasons of events about a Manifest.
const (
	// EventUpdateObject: the Manifest could not be updated.
	EventUpdateObject = "UpdateObject"
	// EventPatchObject: the Manifest could not be patched.
	EventPatchObject = "PatchObject"
	// EventPatchStatus: the status of the Manifest, or of the Kyma, could not be patched.
	EventPatchStatus = "PatchStatus"
)

// Reasons of events about a Watcher.
const (
	// EventAddFinalizer: the finalizer could not be added.
	EventAddFinalizer = "AddFinalizerErr"
	// EventRemoveFinalizer: the finalizer could not be removed.
	EventRemoveFinalizer = "WatcherFinalizerErr"
	// EventGatewayNotFound: no gateway is selected.
	EventGatewayNotFound = "WatcherGatewayNotFound"
	// EventWatcherStatusUpdate: the status of the Watcher could not be written.
	EventWatcherStatusUpdate = "WatcherStatusUpdate"
)
