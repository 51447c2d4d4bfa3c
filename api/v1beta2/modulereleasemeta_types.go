package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ModuleReleaseMeta defines which version of a module each release channel has, or that the module is installed on
// every runtime. The name of a ModuleReleaseMeta is the name of the module; Lifecycle Manager finds the
// ModuleReleaseMeta by this name.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=modulereleasemetas,singular=modulereleasemeta,scope=Namespaced,shortName=mrm,categories=klm
// +kubebuilder:printcolumn:name="Module",type=string,JSONPath=`.spec.moduleName`
// +kubebuilder:printcolumn:name="Mandatory",type=string,JSONPath=`.spec.mandatory.version`,description="Version that is installed on every runtime"
// +kubebuilder:printcolumn:name="Regular",type=string,JSONPath=`.spec.channels[?(@.channel=="regular")].version`,description="Version of the release channel regular"
// +kubebuilder:printcolumn:name="Fast",type=string,JSONPath=`.spec.channels[?(@.channel=="fast")].version`,description="Version of the release channel fast"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Channels",type=string,priority=1,JSONPath=`.spec.channels`,description="Version of each release channel"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || has(self.spec)",optionalOldSelf=true,fieldPath=".spec",reason=FieldValueRequired,message="spec is required"
type ModuleReleaseMeta struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec maps channels to versions. The team that releases modules writes the spec.
	// +optional
	Spec ModuleReleaseMetaSpec `json:"spec,omitzero"`

	// status is the progress of the versions in the fleet. Only Lifecycle Manager writes the status. The original Kyma
	// API does not have the status of a ModuleReleaseMeta; only a ModuleReleaseMeta in the control plane has it.
	// +optional
	Status ModuleReleaseMetaStatus `json:"status,omitzero"`
}

// ModuleReleaseMetaStatus is the progress of the versions of a module in the fleet.
type ModuleReleaseMetaStatus struct {
	// observedGeneration is the metadata.generation that this status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// channels has an entry for each channel. For a mandatory module, channels has one entry with the name mandatory.
	// +optional
	// +listType=map
	// +listMapKey=channel
	Channels []ChannelStatus `json:"channels,omitempty"`

	// withdrawn are the versions that no further runtime gets, the highest first, at most 20.
	// +optional
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MaxItems:=20
	Withdrawn []WithdrawnVersion `json:"withdrawn,omitempty"`

	// conditions has the conditions Ready, Reconciling and Stalled, as kstatus reads them: Ready is True when the
	// rollouts of all channels have completed, so that every channel has its version in the fleet.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WithdrawnVersion is a version that was withdrawn by an annotation of its ModuleTemplate.
type WithdrawnVersion struct {
	// version is the version.
	Version string `json:"version"`

	// reason states to users why the version was withdrawn.
	// +optional
	Reason string `json:"reason,omitempty"`

	// since is the time at which the manager noticed that the version was withdrawn.
	// +optional
	Since metav1.Time `json:"since,omitzero"`

	// runtimes is the number of runtimes that have the version, or are about to get it. Runtimes with the withdrawn
	// version keep it until their channel moves to another version. The manager counts the runtimes with the withdrawn
	// version every ten minutes, and at once when the version is withdrawn.
	// +optional
	Runtimes int32 `json:"runtimes,omitempty"`

	// holders are the names of runtimes that have the version or are about to get it, sorted, at most 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems:=20
	Holders []string `json:"holders,omitempty"`
}

// ChannelStatus is the progress of one channel.
type ChannelStatus struct {
	// channel is the name of the channel, or mandatory.
	Channel string `json:"channel"`

	// version is the proven version: the last version whose rollout was completed. During a rollout, runtimes that the
	// rollout has not admitted yet keep the proven version.
	// +optional
	Version string `json:"version,omitempty"`

	// provenAt is the time at which version became the proven version. If provenAt is absent, the time is not known.
	// +optional
	ProvenAt metav1.Time `json:"provenAt,omitzero"`

	// promotion is the state of the promotion from another channel. If promotion is absent, the policy of the channel
	// has no promotion.
	// +optional
	Promotion *ChannelPromotion `json:"promotion,omitempty"`

	// target is the version that spec had for the channel when the status was last written.
	// +optional
	Target string `json:"target,omitempty"`

	// rollout is the name of the ModuleRollout that is under way. If rollout is empty, no rollout is under way.
	// +optional
	Rollout string `json:"rollout,omitempty"`

	// takingBack is the higher version from which the current rollout takes runtimes back to the version in the field
	// version. If takingBack is empty, no rollout takes runtimes back.
	// +optional
	TakingBack string `json:"takingBack,omitempty"`

	// takenBack is the version in spec if the rollout of this version was halted, and runtimes with this version were
	// returned to the former version. As long as spec has the version in takenBack, runtimes get the version in the
	// field version, so a person has to move the channel to another version. If takenBack is empty, no version was
	// taken back.
	// +optional
	TakenBack string `json:"takenBack,omitempty"`

	// policy is the name of the RolloutPolicy of the rollout that is under way. If policy is empty, the version takes
	// effect on all runtimes at once.
	// +optional
	Policy string `json:"policy,omitempty"`

	// usedUrgency is the line of the annotation operator.kyma-project.io/urgency that was last used for a move of the
	// channel. Each line of this annotation declares one move as urgent, so the line in usedUrgency has no effect on
	// later moves.
	// +optional
	UsedUrgency string `json:"usedUrgency,omitempty"`

	// revision is the number of the last move, counted from 1.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// since is the time of the last move.
	// +optional
	Since metav1.Time `json:"since,omitzero"`

	// history lists the last moves of the channel from one version to another, the oldest first, at most 10.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems:=10
	History []ChannelMove `json:"history,omitempty"`
}

// PromotionState is the state of a promotion.
// +kubebuilder:validation:Enum=UpToDate;Waiting;Proposed;Applying
type PromotionState string

const (
	// PromotionUpToDate means that the channel already has the version, or a higher one.
	PromotionUpToDate PromotionState = "UpToDate"
	// PromotionWaiting means that the version is not promoted yet; the field blockers states why.
	PromotionWaiting PromotionState = "Waiting"
	// PromotionProposed means that a person may move the channel to the version.
	PromotionProposed PromotionState = "Proposed"
	// PromotionApplying means that the manager moves the channel to the version.
	PromotionApplying PromotionState = "Applying"
)

// ChannelPromotion is the state of the promotion into a channel.
type ChannelPromotion struct {
	// from is the channel in which the version proves itself.
	From string `json:"from"`

	// version is the version that is promoted. If version is empty, no version is promoted.
	// +optional
	Version string `json:"version,omitempty"`

	// state is UpToDate, Waiting, Proposed or Applying.
	State PromotionState `json:"state"`

	// since is the time of the last change of version or state.
	// +optional
	Since metav1.Time `json:"since,omitzero"`

	// blockers state why the version is not promoted yet, at most 8.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems:=8
	Blockers []RolloutBlocker `json:"blockers,omitempty"`

	// evidence has the numbers of runtimes that had the version when the runtimes were last counted.
	// +optional
	Evidence *PromotionEvidence `json:"evidence,omitempty"`

	// revision is the number of the last move of the channel that the manager has checked. If a person has moved the
	// channel to a version other than the promoted one, the move holds the promotion (hold).
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// hold is set while promotions into the channel are held, because a person has moved the channel to another version
	// than the promoted one. The promotion waits until a person releases the hold with klm promotions release.
	// +optional
	Hold *PromotionHold `json:"hold,omitempty"`

	// notified is the last version that the webhook of the promotion was notified of.
	// +optional
	Notified string `json:"notified,omitempty"`

	// webhookError is the reason why the webhook could not be notified. The manager tries to notify the webhook again
	// every five minutes.
	// +optional
	WebhookError string `json:"webhookError,omitempty"`
}

// PromotionEvidence has the numbers of runtimes that have a version.
type PromotionEvidence struct {
	// version is the version.
	Version string `json:"version"`

	// ready is the number of runtimes in which the version is Ready.
	// +optional
	Ready int32 `json:"ready"`

	// failed is the number of runtimes in which the version is in state Error.
	// +optional
	Failed int32 `json:"failed"`
}

// PromotionHold describes the move by which a person has set the channel to another version, and which holds promotions
// into the channel.
type PromotionHold struct {
	// revision is the number of this move; the moves of a channel are counted from 1.
	Revision int64 `json:"revision"`

	// version is the version that the channel was moved to.
	Version string `json:"version"`

	// by is the field manager that has moved the channel. If the field "by" is empty, the field manager is not known.
	// +optional
	By string `json:"by,omitempty"`

	// at is the time of the move.
	// +optional
	At metav1.Time `json:"at,omitzero"`
}

// ChannelMove is one move of a channel.
type ChannelMove struct {
	// revision is the number of this move; the moves of a channel are counted from 1.
	Revision int64 `json:"revision"`

	// version is the version that the channel was moved to.
	Version string `json:"version"`

	// direction is Back if the channel went back to a lower version. An empty direction means Forward, to a higher
	// version.
	// +optional
	Direction RolloutDirection `json:"direction,omitempty"`

	// by is the field manager that changed the version, for example klm or argocd-controller. If the field "by" is
	// empty, the field manager is not known.
	// +optional
	By string `json:"by,omitempty"`

	// at is the time of the move.
	At metav1.Time `json:"at"`

	// urgency is Hotfix or Emergency. An empty urgency means Normal.
	// +optional
	Urgency RolloutUrgency `json:"urgency,omitempty"`

	// reason states for users why the move of the channel is urgent, or why the manager has moved the channel by
	// itself.
	// +optional
	Reason string `json:"reason,omitempty"`

	// outcome is the last phase of the rollout, for example Completed. If outcome is empty, the rollout is under way.
	// +optional
	Outcome RolloutPhase `json:"outcome,omitempty"`
}

// ModuleReleaseMetaSpec maps the channels of a module to versions, or names the version that is installed on every
// runtime.
// +kubebuilder:validation:XValidation:rule="has(self.mandatory) != has(self.channels)",message="exactly one of 'mandatory' or 'channels' must be specified"
type ModuleReleaseMetaSpec struct {
	// moduleName is the name of the module: parts of at least three lower-case letters, joined by dashes.
	// +kubebuilder:validation:Pattern:=`^([a-z]{3,}(-[a-z]{3,})*)?$`
	// +kubebuilder:validation:MaxLength:=64
	ModuleName string `json:"moduleName"`

	// ocmComponentName is the name of the OCM component that the module comes from: a domain, then at least one path
	// segment, for example kyma-project.io/module/keda. If ocmComponentName is empty, the module cannot be installed.
	// +optional
	// +kubebuilder:validation:Pattern:=`^[a-z][-a-z0-9]*([.][a-z][-a-z0-9]*)*[.][a-z]{2,}(/[a-z][-a-z0-9_]*([.][a-z][-a-z0-9_]*)*)+$`
	// +kubebuilder:validation:MaxLength:=255
	OCMComponentName string `json:"ocmComponentName,omitempty"`

	// channels are the release channels of the module, each named once. Exactly one of channels and mandatory is set.
	// +optional
	// +listType=map
	// +listMapKey=channel
	Channels []ChannelVersion `json:"channels,omitempty"`

	// mandatory is the version of a module that is installed on every runtime. Exactly one of channels and mandatory is
	// set.
	// +optional
	Mandatory *MandatoryVersion `json:"mandatory,omitempty"`

	// beta is kept so that old objects stay valid. Deprecated: the field beta has no effect; the label
	// operator.kyma-project.io/beta of the ModuleTemplate marks a beta module.
	// +optional
	// +kubebuilder:default:=false
	Beta bool `json:"beta,omitempty"`

	// internal is kept so that old objects stay valid. Deprecated: the field internal has no effect; the label
	// operator.kyma-project.io/internal of the ModuleTemplate marks an internal module.
	// +optional
	// +kubebuilder:default:=false
	Internal bool `json:"internal,omitempty"`

	// kymaSelector restricts the module to Kymas in the control plane whose labels match. The selector applies to
	// modules in --restricted-default-modules. A module that is not in --restricted-default-modules and has a selector
	// is not allowed on any runtime. If kymaSelector is empty, the module is not restricted.
	// +optional
	KymaSelector *Selector `json:"kymaSelector,omitempty"`
}

// ChannelVersion is the version of one release channel.
type ChannelVersion struct {
	// channel is the name of the release channel, for example regular or fast.
	// +kubebuilder:validation:Pattern:=`^[a-z]+$`
	// +kubebuilder:validation:MinLength:=3
	// +kubebuilder:validation:MaxLength:=32
	Channel string `json:"channel"`

	// version is the version that the channel has: three numbers and, after a dash, at most one pre-release identifier.
	// +kubebuilder:validation:Pattern:=`^((0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[a-zA-Z-][0-9a-zA-Z-]*)?)?$`
	// +kubebuilder:validation:MaxLength:=32
	Version string `json:"version"`
}

// MandatoryVersion is the version of a module that is installed on every runtime.
type MandatoryVersion struct {
	// version is the version (semantic versioning 2.0.0, without a leading v).
	// +kubebuilder:validation:Pattern:=`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`
	// +kubebuilder:validation:MinLength:=1
	Version string `json:"version"`
}

// ModuleReleaseMetaList is a list of ModuleReleaseMetas.
// +kubebuilder:object:root=true
type ModuleReleaseMetaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ModuleReleaseMeta `json:"items"`
}

// IsMandatory reports whether the module is installed on every runtime.
func (m *ModuleReleaseMeta) IsMandatory() bool { return m != nil && m.Spec.Mandatory != nil }

// ChannelVersion returns the version of the module in a release channel, and false if the module is not in the channel.
// For a mandatory module, ChannelVersion returns false; spec.mandatory has its version.
func (m *ModuleReleaseMeta) ChannelVersion(channel string) (version string, found bool) {
	if m == nil {
		return "", false
	}
	for _, c := range m.Spec.Channels {
		if c.Channel == channel {
			return c.Version, true
		}
	}
	return "", false
}

// SpecVersion returns the version that the spec assigns to a channel. For the channel MandatoryChannel, SpecVersion
// returns the version of the mandatory module. If the spec assigns no version, the result "found" is false.
func (m *ModuleReleaseMeta) SpecVersion(channel string) (version string, found bool) {
	if m.IsMandatory() {
		return m.Spec.Mandatory.Version, channel == MandatoryChannel
	}
	return m.ChannelVersion(channel)
}

// Current returns the version that a channel is to reach in the fleet: the version in spec, or the proven version if
// the one in spec was taken back after a halt. If there is neither of the two versions, the result "found" is false.
func (m *ModuleReleaseMeta) Current(channel string) (version string, found bool) {
	version, found = m.SpecVersion(channel)
	if s := m.ChannelStatus(channel); s != nil && s.TakenBack != "" && s.TakenBack == version && s.Version != "" {
		return s.Version, found
	}
	return version, found
}

// ChannelStatus returns the status of a channel, or nil if there is none. The caller must not change the returned
// status.
func (m *ModuleReleaseMeta) ChannelStatus(channel string) *ChannelStatus {
	if m == nil {
		return nil
	}
	for i := range m.Status.Channels {
		if m.Status.Channels[i].Channel == channel {
			return &m.Status.Channels[i]
		}
	}
	return nil
}
