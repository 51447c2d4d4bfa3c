package v1beta2

// Reasons of events about a Kyma. When a module becomes not Ready, one event with the reason of the blocker is emitted.
const (
	// EventRemoteInstallation: the Kyma was created in the runtime.
	EventRemoteInstallation = "RemoteInstallation"
	// EventKymaRestored: the Kyma in the runtime was deleted, and was created again with the modules that it requested
	// last.
	EventKymaRestored = "KymaRestored"
	// EventRuntimeTakenOver: the Kyma has become the owner of a runtime that belonged to another owner.
	EventRuntimeTakenOver = "RuntimeTakenOver"
	// EventRuntimeLeft: the Kyma was deleted while its access Secret led to a cluster that belongs to another owner, or
	// after its access Secret was removed. The manager deletes nothing in this cluster.
	EventRuntimeLeft = "RuntimeLeft"
	// EventCRDsKept: the manager does not change the CRDs of this API group in the runtime, because the runtime is a
	// control plane, too. Or the Kyma was deleted, and the CRDs stay in the runtime, because other Kymas exist there,
	// or because another control plane has installed or uses the CRDs.
	EventCRDsKept = "CRDsKept"
	// EventDeletionGivenUp: the runtime was unreachable until the end of --deletion-deadline, so the Kyma is deleted
	// and the runtime keeps its objects. The tombstone that the message names lists the objects left in the runtime.
	EventDeletionGivenUp = "DeletionGivenUp"
	// EventDeletionWaits: the modules of a deleted Kyma still exist after five minutes, and --purge-grace-period is 0,
	// so nothing is deleted by force. The message names the blocker of a module.
	EventDeletionWaits = "DeletionWaits"
	// EventTombstoneDeleted, of a deleted Kyma: the manager has deleted the tombstone, which listed the objects that
	// the deletion had left in the runtime. The manager deletes a tombstone when the listed objects are cleaned up, or
	// when the tombstone is not needed any more.
	EventTombstoneDeleted = "TombstoneDeleted"
)

// Reasons of events about a Manifest.
const (
	// EventCustomResourcesDeleted: custom resources of users were deleted before their CRD, because the annotation
	// operator.kyma-project.io/delete-custom-resources of the Kyma allows it.
	EventCustomResourcesDeleted = "CustomResourcesDeleted"
	// EventInventoryRestored: the control plane was restored from an older state, and the objects of the module in the
	// runtime were added to the inventory of the Manifest.
	EventInventoryRestored = "InventoryRestored"
)

// Reasons of events about a ModuleRollout. No event of a ModuleRollout is about a single runtime.
const (
	// EventRolloutStarted: the channel moves to another version.
	EventRolloutStarted = "RolloutStarted"
	// EventUrgentRollout: the channel moves with urgency Hotfix or Emergency. The message has the reason.
	EventUrgentRollout = "UrgentRollout"
	// EventStageStarted: a stage of the rollout begins.
	EventStageStarted = "StageStarted"
	// EventStageProven: enough runtimes of a stage are Ready with the new version. The message states what the Ready
	// runtimes of the stage prove about the version.
	EventStageProven = "StageProven"
	// EventGateWaits: the soak of a stage is over, and a gate has not passed yet, for example because an approval is
	// missing.
	EventGateWaits = "GateWaits"
	// EventRolloutHeld: no further runtime begins to update, for a reason that has nothing to do with the version.
	EventRolloutHeld = "RolloutHeld"
	// EventRolloutHalted: more runtimes have failed than the policy allows, so no further runtime begins to update.
	EventRolloutHalted = "RolloutHalted"
	// EventTakingBack: the rollout was halted, so its version is withdrawn, and runtimes go back to the former version.
	EventTakingBack = "TakingBack"
	// EventRolloutAborted: a person has aborted the rollout, or has set the channel back.
	EventRolloutAborted = "RolloutAborted"
	// EventRolloutSuperseded: the channel was moved to another version before the rollout was completed.
	EventRolloutSuperseded = "RolloutSuperseded"
	// EventRolloutCompleted: the rollout is completed, and its version is the proven version of the channel.
	EventRolloutCompleted = "RolloutCompleted"
)

// Reasons of events about a ModuleReleaseMeta.
const (
	// EventPromotionProposed: a version has proven itself in a channel, and a person may move the next channel to this
	// version.
	EventPromotionProposed = "PromotionProposed"
	// EventPromotionApplied: the manager has moved a channel to a version that has proven itself in another channel.
	EventPromotionApplied = "PromotionApplied"
)

// Reasons of events about a Watcher.
const (
	// EventGatewayNotFound: no gateway is selected.
	EventGatewayNotFound = "WatcherGatewayNotFound"
)

// Reasons of events about a module, on the Kyma in the control plane and on the Kyma in the runtime. The Manifest of a
// mandatory module, and a Manifest that a user has created, have these events themselves.
const (
	// EventInstalled: the first version of the module is installed, and the module is Ready or Warning.
	EventInstalled = "Installed"
	// EventUpgraded: another version of the module is installed, and the module is Ready or Warning. The message has
	// both versions.
	EventUpgraded = "Upgraded"
	// EventFailed: the module is in state Error. The message of EventFailed begins with the reason. After EventFailed,
	// no other event is emitted until the module is Ready or Warning again, or another version fails. If only the
	// reason changes, the status and the history show the current reason.
	EventFailed = "Failed"
	// EventRecovered: the module was installed, failed, and is Ready or Warning again.
	EventRecovered = "Recovered"
	// EventRemoved: the objects of the module are deleted from the runtime.
	EventRemoved = "Removed"
)

// Reasons of events about the connection to a runtime, on the Kyma in the control plane.
const (
	// EventRuntimeUnreachable: the manager cannot use the runtime. The message of EventRuntimeUnreachable begins with
	// the reason, for example RuntimeUnauthorized.
	EventRuntimeUnreachable = "RuntimeUnreachable"
	// EventRuntimeReachable: the manager can use the runtime again.
	EventRuntimeReachable = "RuntimeReachable"
	// EventRightsReduced: the credential in the access Secret has lost rights in the runtime.
	EventRightsReduced = "RightsReduced"
	// EventCredentialExpires: the credential in the access Secret expires soon. The message has the time.
	EventCredentialExpires = "CredentialExpires"
)
