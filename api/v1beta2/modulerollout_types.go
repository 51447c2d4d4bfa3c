package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ModuleRollout is one move of a channel of a module from one version to another. Lifecycle Manager creates the
// ModuleRollout when the version of the channel changes in the ModuleReleaseMeta. The name of a ModuleRollout is
// <module>-<channel>-r<revision>. The original Kyma API does not have ModuleRollout.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=modulerollouts,singular=modulerollout,scope=Namespaced,shortName=mro,categories=klm
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="From",type=string,JSONPath=`.spec.from`
// +kubebuilder:printcolumn:name="To",type=string,JSONPath=`.spec.to`
// +kubebuilder:printcolumn:name="Stage",type=string,JSONPath=`.status.stage.name`
// +kubebuilder:printcolumn:name="Proven",type=integer,JSONPath=`.status.runtimes.proven`
// +kubebuilder:printcolumn:name="In Scope",type=integer,JSONPath=`.status.runtimes.inScope`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.runtimes.failed`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="ETA",type=string,format=date-time,priority=1,JSONPath=`.status.eta`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ModuleRollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is written by Lifecycle Manager. Users change only state, reason, approvals and resumptions.
	Spec ModuleRolloutSpec `json:"spec"`

	// Only Lifecycle Manager writes the status.
	// +optional
	Status ModuleRolloutStatus `json:"status,omitzero"`
}

// RolloutState is the state that a user requests for a rollout.
// +kubebuilder:validation:Enum=Running;Paused;Aborted
type RolloutState string

const (
	// RolloutRunning lets the rollout continue.
	RolloutRunning RolloutState = "Running"
	// RolloutPaused lets no further runtime begin to update. Updates that have begun are finished while the rollout is
	// paused.
	RolloutPaused RolloutState = "Paused"
	// RolloutAborted ends the rollout. After an abort, updates that have begun are finished, and the updated runtimes
	// keep the new version.
	RolloutAborted RolloutState = "Aborted"
)

// RolloutDirection is the direction of a rollout.
// +kubebuilder:validation:Enum=Forward;Back
type RolloutDirection string

const (
	// RolloutForward brings a version to the runtimes of a channel.
	RolloutForward RolloutDirection = "Forward"
	// RolloutBack takes runtimes back to a lower version.
	RolloutBack RolloutDirection = "Back"
)

// RolloutUrgency defines which parts of a rollout are left out because it is urgent.
// +kubebuilder:validation:Enum=Normal;Hotfix;Emergency
type RolloutUrgency string

const (
	// UrgencyNormal is the urgency of a rollout with all stages, soaks and gates of the policy.
	UrgencyNormal RolloutUrgency = "Normal"
	// UrgencyHotfix is the urgency of a rollout with the fewer stages and shorter soaks of spec.hotfix in the policy.
	UrgencyHotfix RolloutUrgency = "Hotfix"
	// UrgencyEmergency has no soaks and no gates. Signatures, spec.upgrade of the ModuleTemplate, withdrawn versions,
	// limits and halts apply to urgent rollouts, too.
	UrgencyEmergency RolloutUrgency = "Emergency"
)

// ModuleRolloutSpec is the plan of a rollout.
// +kubebuilder:validation:XValidation:rule="!has(self.ignoreWindows) || !self.ignoreWindows || has(self.urgency) && self.urgency == 'Emergency'",fieldPath=".ignoreWindows",message="only an emergency may ignore maintenance windows"
// +kubebuilder:validation:XValidation:rule="!has(self.urgency) || self.urgency == 'Normal' || has(self.urgencyReason)",fieldPath=".urgencyReason",message="an urgent rollout needs a reason"
// +kubebuilder:validation:XValidation:rule="self.from != self.to",message="from and to must differ"
// +kubebuilder:validation:XValidation:rule="oldSelf.state != 'Aborted' || self.state == 'Aborted'",message="an aborted rollout cannot go on: move the channel again"
// +kubebuilder:validation:XValidation:rule="has(self.stages) == has(oldSelf.stages) && (!has(self.stages) || self.stages == oldSelf.stages)",fieldPath=".stages",message="stages cannot be changed: it is copied from the policy when the rollout is made"
// +kubebuilder:validation:XValidation:rule="has(self.defaults) == has(oldSelf.defaults) && (!has(self.defaults) || self.defaults == oldSelf.defaults)",fieldPath=".defaults",message="defaults cannot be changed: it is copied from the policy when the rollout is made"
// +kubebuilder:validation:XValidation:rule="has(self.maxUpdating) == has(oldSelf.maxUpdating) && (!has(self.maxUpdating) || self.maxUpdating == oldSelf.maxUpdating)",fieldPath=".maxUpdating",message="maxUpdating cannot be changed: it is copied from the policy when the rollout is made"
// +kubebuilder:validation:XValidation:rule="has(self.maxDeferral) == has(oldSelf.maxDeferral) && (!has(self.maxDeferral) || self.maxDeferral == oldSelf.maxDeferral)",fieldPath=".maxDeferral",message="maxDeferral cannot be changed: it is copied from the policy when the rollout is made"
// +kubebuilder:validation:XValidation:rule="has(self.newInstallations) == has(oldSelf.newInstallations) && (!has(self.newInstallations) || self.newInstallations == oldSelf.newInstallations)",fieldPath=".newInstallations",message="newInstallations cannot be changed: it is copied from the policy when the rollout is made"
// +kubebuilder:validation:XValidation:rule="has(self.policy) == has(oldSelf.policy) && (!has(self.policy) || self.policy == oldSelf.policy)",fieldPath=".policy",message="policy cannot be changed: it is copied from the policy when the rollout is made"
type ModuleRolloutSpec struct {
	// module is the name of the module.
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="module cannot be changed"
	Module string `json:"module"`

	// channel is the name of the channel, or "mandatory" for a mandatory module.
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=32
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="channel cannot be changed"
	Channel string `json:"channel"`

	// from is the version that was the proven version of the channel when the rollout was created.
	// +kubebuilder:validation:MaxLength:=128
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="from cannot be changed"
	From string `json:"from"`

	// to is the new version.
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=128
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="to cannot be changed"
	To string `json:"to"`

	// direction is Back if the rollout returns runtimes from the version in the field "from" to the lower version in
	// the field "to". Only runtimes that have the version in the field "from" take part in a rollout with direction
	// Back. An empty direction means Forward, to a higher version.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="direction cannot be changed"
	Direction RolloutDirection `json:"direction,omitempty"`

	// onlyFailed means that a rollout with direction Back takes back only runtimes in which the version in the field
	// "from" has failed.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="onlyFailed cannot be changed"
	OnlyFailed bool `json:"onlyFailed,omitempty"`

	// onHalt is copied from the policy. An empty onHalt means Hold.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="onHalt cannot be changed"
	OnHalt HaltAction `json:"onHalt,omitempty"`

	// urgency is Normal, Hotfix or Emergency, from the annotation urgency of the ModuleReleaseMeta. An empty urgency
	// means Normal.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="urgency cannot be changed"
	Urgency RolloutUrgency `json:"urgency,omitempty"`

	// urgencyReason states for users why the rollout is urgent.
	// +optional
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=1024
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="urgencyReason cannot be changed"
	UrgencyReason string `json:"urgencyReason,omitempty"`

	// ignoreWindows means that updates with a downtime do not wait for maintenance windows. ignoreWindows is allowed
	// only with urgency Emergency.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="ignoreWindows cannot be changed"
	IgnoreWindows bool `json:"ignoreWindows,omitempty"`

	// revision is the number of the channel's move to another version; the first move has number 1.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="revision cannot be changed"
	Revision int64 `json:"revision"`

	// lineage is the salt of the hash from which the ranks of the runtimes are computed. A rollout that supersedes
	// another one inherits its lineage, so that the same runtimes get the correction first.
	// +kubebuilder:validation:MaxLength:=512
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="lineage cannot be changed"
	Lineage string `json:"lineage"`

	// policy is the name of the RolloutPolicy that the stages were copied from. If policy is empty, no RolloutPolicy
	// matched the channel, and the version takes effect on all runtimes at once.
	// +optional
	// +kubebuilder:validation:MaxLength:=253
	Policy string `json:"policy,omitempty"`

	// stages are copied from the policy when the rollout is created.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems:=16
	Stages []ModuleRolloutStage `json:"stages,omitempty"`

	// defaults are copied from the policy.
	// +optional
	Defaults RolloutDefaults `json:"defaults,omitzero"`

	// maxUpdating is copied from the policy. If the policy does not exist any more, the copy applies.
	// +optional
	MaxUpdating int32 `json:"maxUpdating,omitempty"`

	// maxDeferral is copied from the policy.
	// +optional
	MaxDeferral metav1.Duration `json:"maxDeferral,omitzero"`

	// newInstallations is copied from the policy.
	// +optional
	NewInstallations string `json:"newInstallations,omitempty"`

	// state is the state that users request: Running, Paused or Aborted.
	// +kubebuilder:default:=Running
	State RolloutState `json:"state"`

	// reason states for users why the rollout was paused or aborted.
	// +optional
	// +kubebuilder:validation:MaxLength:=1024
	Reason string `json:"reason,omitempty"`

	// approvals are the approvals that users have added, for example with klm rollout approve.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems:=64
	Approvals []RolloutApproval `json:"approvals,omitempty"`

	// resumptions are added by users to let a halted rollout continue, for example with klm rollout resume. Each
	// resumption acknowledges the failures that were found before it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems:=64
	Resumptions []RolloutResumption `json:"resumptions,omitempty"`
}

// ModuleRolloutStage is a stage of a rollout.
type ModuleRolloutStage struct {
	RolloutStage `json:",inline"`

	// Each runtime has a rank from 0 to 65,535, computed from a hash of its name. ranks counts the ranks of this stage
	// and of all earlier stages that have a percent. The manager computes ranks from percent and minCount when the
	// rollout is created. If ranks is zero, the stage has a selector.
	// +optional
	Ranks int32 `json:"ranks,omitempty"`
}

// RolloutApproval is the approval of one person for the gates of one stage.
type RolloutApproval struct {
	// stage is the name of the stage whose gates are approved.
	// +kubebuilder:validation:MaxLength:=32
	Stage string `json:"stage"`

	// gate is the name of the gate. If gate is empty, the approval is for all approval gates of the stage.
	// +optional
	// +kubebuilder:validation:MaxLength:=32
	Gate string `json:"gate,omitempty"`

	// by is the name of the person.
	// +kubebuilder:validation:MaxLength:=256
	By string `json:"by"`

	// at is the time of the approval.
	At metav1.Time `json:"at"`

	// plan is the digest of the approved plan (status.plan). An approval of another plan does not count.
	// +kubebuilder:validation:MaxLength:=128
	Plan string `json:"plan"`
}

// RolloutResumption lets a halted rollout continue.
type RolloutResumption struct {
	// by is the name of the person.
	// +optional
	// +kubebuilder:validation:MaxLength:=256
	By string `json:"by,omitempty"`

	// at is the time of the resumption.
	// +optional
	At metav1.Time `json:"at,omitzero"`

	// reason states, for other users, why the rollout was resumed.
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=1024
	Reason string `json:"reason"`
}

// TakesBackOnHalt reports whether runtimes are taken back to the former version when the rollout is halted.
func (s *ModuleRolloutSpec) TakesBackOnHalt() bool {
	return !s.IsRollback() && (s.OnHalt == HaltTakeBack || s.OnHalt == HaltTakeBackFailed)
}

// IsRollback reports whether the rollout takes runtimes back to a lower version.
func (s *ModuleRolloutSpec) IsRollback() bool { return s.Direction == RolloutBack }

// RolloutPhase is the phase of a rollout.
type RolloutPhase string

const (
	// RolloutPending means that no runtime was updated yet, because of a condition that is not met; status.blockers
	// lists these conditions.
	RolloutPending RolloutPhase = "Pending"
	// RolloutUpdating means that runtimes of the current stage are being updated.
	RolloutUpdating RolloutPhase = "Running"
	// RolloutSoaking means that enough runtimes of the current stage are Ready with the new version, and the updated
	// runtimes are observed.
	RolloutSoaking RolloutPhase = "Soaking"
	// RolloutWaitingForGate means that the soak of the current stage is over, and a gate has not passed.
	RolloutWaitingForGate RolloutPhase = "WaitingForGate"
	// RolloutHeld means that no further runtime begins to update, for a cause in status.blockers that is not the
	// version.
	RolloutHeld RolloutPhase = "Held"
	// RolloutHalted means that more runtimes have failed than the policy allows. A person has to resume or abort a
	// halted rollout.
	RolloutHalted RolloutPhase = "Halted"
	// RolloutTail means that the last stage has passed. During RolloutTail, runtimes that could not be updated so far
	// are updated when they can be.
	RolloutTail RolloutPhase = "Tail"
	// RolloutEndedAborted means that a person has aborted the rollout, or has set the channel back.
	RolloutEndedAborted RolloutPhase = "Aborted"
	// RolloutSuperseded means that the channel was moved to another version before this rollout was completed.
	RolloutSuperseded RolloutPhase = "Superseded"
	// RolloutTakenBack means that the rollout was halted, and that the field onHalt of its policy is TakeBack or
	// TakeBackFailed. In this phase, the version is withdrawn, and another ModuleRollout takes runtimes back to the
	// former version.
	RolloutTakenBack RolloutPhase = "TakenBack"
	// RolloutCompleted means that the rollout has ended, and its version is the proven version of the channel.
	RolloutCompleted RolloutPhase = "Completed"
)

// IsOver reports whether a rollout in this phase has ended.
func (p RolloutPhase) IsOver() bool {
	return p == RolloutEndedAborted || p == RolloutSuperseded || p == RolloutTakenBack || p == RolloutCompleted
}

// ModuleRolloutStatus is the observed state of a rollout. The size of the status is at most 16 KiB, and does not depend
// on the number of runtimes.
type ModuleRolloutStatus struct {
	// observedGeneration is the metadata.generation that this status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is the phase of the rollout.
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`

	// message states for users what the rollout waits for.
	// +optional
	Message string `json:"message,omitempty"`

	// plan is the digest of the rollout's plan: versions, stages and limits. An approval of the rollout has to contain
	// the digest in the field plan.
	// +optional
	Plan string `json:"plan,omitempty"`

	// content is the digest of the content of the version that was verified and rendered before the first runtime was
	// admitted. If content is absent, the version was not verified and rendered yet, or the rollout has no stages.
	// +optional
	Content string `json:"content,omitempty"`

	// template is the digest of the fields of the ModuleTemplate that decide what a runtime gets, as they were when the
	// content was verified. If these fields of the ModuleTemplate change, the manager verifies the content again, and
	// admits no runtime until the content is verified. If the field template is absent, the content has not been
	// verified yet.
	// +optional
	Template string `json:"template,omitempty"`

	// stage is the current stage.
	// +optional
	Stage RolloutStageStatus `json:"stage,omitzero"`

	// admitted are the runtimes that may begin and have not begun yet, at most 800. Each entry is eight characters of a
	// hash of the name of the Kyma. If admitted is empty, no further runtime may begin now.
	// +optional
	// +kubebuilder:validation:MaxLength:=6400
	Admitted string `json:"admitted,omitempty"`

	// runtimes has the numbers of runtimes by verdict.
	// +optional
	Runtimes RolloutCounts `json:"runtimes,omitzero"`

	// stages are the results of the stages, in their order.
	// +optional
	// +listType=map
	// +listMapKey=name
	Stages []RolloutStageResult `json:"stages,omitempty"`

	// blockers state why the rollout does not continue, and what to do; there are at most 8.
	// +optional
	// +listType=atomic
	Blockers []RolloutBlocker `json:"blockers,omitempty"`

	// wayBack states whether runtimes can be taken back from the new version to the former one. wayBack is absent for a
	// rollout with direction Back, which takes runtimes to the former version itself.
	// +optional
	WayBack *RolloutWayBack `json:"wayBack,omitempty"`

	// worst are runtimes that have failed or are lost, with their reasons, at most 10.
	// +optional
	// +listType=atomic
	Worst []RolloutRuntime `json:"worst,omitempty"`

	// haltedAt is the time of the last halt. If haltedAt is absent, the rollout is not halted.
	// +optional
	HaltedAt metav1.Time `json:"haltedAt,omitzero"`

	// resumptions is the number of entries of spec.resumptions that have taken effect.
	// +optional
	Resumptions int32 `json:"resumptions,omitempty"`

	// acknowledgedLost is the number of lost runtimes that the last resumption acknowledged. Only further ones count.
	// +optional
	AcknowledgedLost int32 `json:"acknowledgedLost,omitempty"`

	// starts has the numbers of runtimes that were admitted in the last minute, for limits per minute.
	// +optional
	// +listType=atomic
	Starts []RolloutStarts `json:"starts,omitempty"`

	// eta is the time at which the last runtime is expected to have the version. The forecast takes maintenance
	// windows, freezes, soak times and limits into account. The forecast assumes that nothing fails and that gates pass
	// at once. If eta is absent, the rollout does not continue by itself, or the time is not known.
	// +optional
	ETA metav1.Time `json:"eta,omitzero"`

	// endedAt is the time at which the rollout ended. If endedAt is absent, the rollout has not ended.
	// +optional
	EndedAt metav1.Time `json:"endedAt,omitzero"`

	// conditions has the conditions Ready, Reconciling and Stalled, as kstatus reads them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RolloutWayBack states whether runtimes can be taken back from the version of a rollout.
type RolloutWayBack struct {
	// declared means that the ModuleTemplate of the new version declares that going back is safe.
	// +optional
	Declared bool `json:"declared"`

	// verified means that going back is declared as safe, that the former version can still be installed, and that its
	// CRDs have the versions in which custom resources are stored. When a runtime goes back to the former version, its
	// API server also checks the CRDs: the API server refuses a CRD without a version in which objects are stored.
	// +optional
	Verified bool `json:"verified"`

	// The field "to" has the version to which runtimes can be taken back: the version of the channel before the
	// rollout.
	// +optional
	To string `json:"to,omitempty"`

	// message explains to users why the runtimes can or cannot be taken back.
	// +optional
	Message string `json:"message,omitempty"`
}

// RolloutStageStatus is the state of the current stage.
type RolloutStageStatus struct {
	// index is the position of the stage, from 0.
	Index int32 `json:"index"`

	// name is the name of the stage.
	Name string `json:"name"`

	// startedAt is the time at which the stage began.
	// +optional
	StartedAt metav1.Time `json:"startedAt,omitzero"`

	// provenAt is the time at which enough runtimes of the stage were Ready with the new version. If provenAt is
	// absent, too few runtimes are Ready with the new version.
	// +optional
	ProvenAt metav1.Time `json:"provenAt,omitzero"`

	// soakUntil is the time at which the soak ends. If soakUntil is absent, the soak has not begun.
	// +optional
	SoakUntil metav1.Time `json:"soakUntil,omitzero"`

	// evidenceWaived means that a person has resumed the rollout although the new version has not proven itself in any
	// runtime yet.
	// +optional
	EvidenceWaived bool `json:"evidenceWaived,omitempty"`

	// gates are the states of the gates of the stage.
	// +optional
	// +listType=map
	// +listMapKey=name
	Gates []RolloutGateStatus `json:"gates,omitempty"`
}

// GateState is the state of a gate.
// +kubebuilder:validation:Enum=Pass;Fail;Unknown
type GateState string

const (
	// GatePass means that the condition is met.
	GatePass GateState = "Pass"
	// GateFail means that the condition is not met, and the rollout is halted.
	GateFail GateState = "Fail"
	// GateUnknown means that the condition is not met yet, or could not be read. The rollout waits.
	GateUnknown GateState = "Unknown"
)

// RolloutGateStatus is the state of one gate.
type RolloutGateStatus struct {
	// name is the name of the gate.
	Name string `json:"name"`

	// state is Pass, Fail or Unknown.
	State GateState `json:"state"`

	// message explains the state of the gate to users.
	// +optional
	Message string `json:"message,omitempty"`

	// since is the time of the last change of the state.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}

// RolloutCounts has the numbers of runtimes by verdict, such as updated or failed. Each runtime that follows the
// channel with this module has exactly one verdict.
type RolloutCounts struct {
	// inScope is the number of runtimes in which this module follows the channel.
	// +optional
	InScope int32 `json:"inScope"`
	// waiting is the number of runtimes that are not admitted yet, or cannot be updated now.
	// +optional
	Waiting int32 `json:"waiting"`
	// updating is the number of runtimes whose update is under way, or was admitted.
	// +optional
	Updating int32 `json:"updating"`
	// proven is the number of runtimes that are Ready with the new version.
	// +optional
	Proven int32 `json:"proven"`
	// failed is the number of runtimes that have failed because of the version.
	// +optional
	Failed int32 `json:"failed"`
	// lost is the number of runtimes that cannot be reached since their update began.
	// +optional
	Lost int32 `json:"lost"`
	// excused is the number of updated runtimes that did not work before the update. The results of excused runtimes
	// prove nothing about the version.
	// +optional
	Excused int32 `json:"excused"`
}

// RolloutStageResult is the result of one stage.
type RolloutStageResult struct {
	// name is the name of the stage.
	Name string `json:"name"`

	RolloutCounts `json:",inline"`

	// provenAt is the time at which enough runtimes of the stage were Ready with the new version. If provenAt is
	// absent, too few runtimes are Ready with the new version.
	// +optional
	ProvenAt metav1.Time `json:"provenAt,omitzero"`

	// passed means that the quorum, the soak and the gates of the stage have passed.
	// +optional
	Passed bool `json:"passed,omitempty"`

	// expectedBegin is the time at which the stage is expected to begin. The forecast is that of eta. If expectedBegin
	// is absent, the stage has begun, or the time is not known.
	// +optional
	ExpectedBegin metav1.Time `json:"expectedBegin,omitzero"`

	// expectedEnd is the time at which the last runtime of the stage is expected to have the version. The forecast is
	// that of eta. If expectedEnd is absent, all runtimes have the version, or the time is not known.
	// +optional
	ExpectedEnd metav1.Time `json:"expectedEnd,omitzero"`

	// acknowledgedFailed is the number of failed runtimes that the last resumption acknowledged. Only further ones
	// count.
	// +optional
	AcknowledgedFailed int32 `json:"acknowledgedFailed,omitempty"`

	// evidence states what the results of the stage prove about the rate of failures. For example, "0 of 100 failed:
	// below 3 % with 95 %" means a failure rate below 3 % with 95 % confidence.
	// +optional
	Evidence string `json:"evidence,omitempty"`
}

// RolloutBlocker is a reason why a rollout does not continue.
type RolloutBlocker struct {
	// code is the reason as a word for programs, for example ApprovalNeeded.
	Code string `json:"code"`

	// object is the object that a person has to change so that the rollout continues. If object is empty, no object has
	// to be changed.
	// +optional
	Object string `json:"object,omitempty"`

	// message states for users why the rollout does not continue.
	// +optional
	Message string `json:"message,omitempty"`

	// remedy states for users what to do so that the rollout continues, often as a command.
	// +optional
	Remedy string `json:"remedy,omitempty"`

	// runtimes is the number of runtimes that the blocker affects. If runtimes is 0, the blocker affects the whole
	// rollout.
	// +optional
	Runtimes int32 `json:"runtimes,omitempty"`
}

// RolloutRuntime is a runtime that has failed or is lost.
type RolloutRuntime struct {
	// runtime is the name of the Kyma.
	Runtime string `json:"runtime"`

	// reason is the code of the problem.
	Reason string `json:"reason"`

	// message describes the problem of the runtime to users.
	// +optional
	Message string `json:"message,omitempty"`
}

// RolloutStarts is the number of runtimes of a stage that were admitted at the same time.
type RolloutStarts struct {
	// stage is the name of the stage.
	Stage string `json:"stage"`

	// at is the time of the admission.
	At metav1.Time `json:"at"`

	// count is the number of runtimes.
	Count int32 `json:"count"`
}

// ModuleRolloutList is a list of ModuleRollouts.
// +kubebuilder:object:root=true
type ModuleRolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ModuleRollout `json:"items"`
}
