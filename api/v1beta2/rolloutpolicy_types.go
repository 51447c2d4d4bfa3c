package v1beta2

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RolloutPolicy defines the stages in which a new version of a channel reaches the fleet, and the conditions that stop
// a rollout. Without a RolloutPolicy for a module and channel, a new version takes effect on all runtimes at once. The
// original Kyma API does not have RolloutPolicy.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=rolloutpolicies,singular=rolloutpolicy,scope=Namespaced,categories=klm
// +kubebuilder:printcolumn:name="Modules",type=string,JSONPath=`.spec.modules.names`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Max Updating",type=integer,JSONPath=`.spec.maxUpdating`
// +kubebuilder:printcolumn:name="Suspended",type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RolloutPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is written by platform teams. A changed policy applies to the next rollout; only the fields suspend, freezes
	// and maxUpdating also apply at once to rollouts in progress.
	Spec RolloutPolicySpec `json:"spec"`

	// Only Lifecycle Manager writes the status.
	// +optional
	Status RolloutPolicyStatus `json:"status,omitzero"`
}

// RolloutPolicySpec defines stages and limits of rollouts.
// +kubebuilder:validation:XValidation:rule="!has(self.promotion) || !has(self.channels) || size(self.channels) == 0 || self.channels.exists(c, c == '*' || c == self.promotion.to)",fieldPath=".promotion.to",message="the policy of the channel in promotion.to decides, so it must be one of channels"
// +kubebuilder:validation:XValidation:rule="!has(self.hotfix) || !has(self.hotfix.stages) || self.hotfix.stages.all(n, self.stages.exists(s, s.name == n))",fieldPath=".hotfix.stages",message="hotfix.stages must be names of stages"
// +kubebuilder:validation:XValidation:rule="!has(self.hotfix) || !has(self.hotfix.stages) || self.hotfix.stages.exists(n, n == self.stages[size(self.stages)-1].name)",fieldPath=".hotfix.stages",message="hotfix.stages must contain the last stage, which is for all other runtimes"
type RolloutPolicySpec struct {
	// modules selects the modules that the policy is for. If several policies are for the same module and channel, a
	// policy that names the module takes precedence over a policy with "*". Two policies that are equally exact are a
	// conflict, and no rollout begins.
	Modules RolloutModules `json:"modules"`

	// channels are the channels that the policy is for; "mandatory" stands for mandatory modules, and "*" for all
	// channels. If channels is empty, the policy is for all channels.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems:=32
	// +kubebuilder:validation:items:MaxLength:=32
	Channels []string `json:"channels,omitempty"`

	// suspend stops all rollouts of the modules and channels of this policy: no further runtime begins to update, and
	// updates that have begun are finished.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// freezes are times in which no runtime begins to update in a rollout of this policy, at most 32. Updates that have
	// begun before a freeze are carried to their end. A freeze does not affect first installations, and versions that a
	// person requests for a single runtime.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems:=32
	Freezes []RolloutFreeze `json:"freezes,omitempty"`

	// maxDeferral is the time for which the admin of a runtime may defer an update of a rollout with the annotation
	// operator.kyma-project.io/not-before. The time is counted from the beginning of the rollout. After maxDeferral,
	// the runtime is updated in its next maintenance window. A rollout that takes runtimes back to a lower version
	// cannot be deferred. If maxDeferral is empty, updates cannot be deferred.
	// +optional
	// +kubebuilder:validation:Type:=string
	// +kubebuilder:validation:MaxLength:=20
	// +kubebuilder:validation:Pattern:=`^([0-9]{1,6}([.][0-9]{1,9})?(h|m|s|ms))+$`
	MaxDeferral metav1.Duration `json:"maxDeferral,omitzero"`

	// maxUpdating is the largest number of runtimes that are updated at the same time by rollouts of this policy. If
	// maxUpdating is empty, only the limits of the stages apply.
	// +optional
	// +kubebuilder:validation:Minimum:=1
	MaxUpdating int32 `json:"maxUpdating,omitempty"`

	// exclusive means that at most one rollout at a time updates a runtime. The default of exclusive is true.
	// +optional
	// +kubebuilder:default:=true
	Exclusive *bool `json:"exclusive,omitempty"`

	// newInstallations defines which version a runtime without the module gets when it requests the module during a
	// rollout. With Target, the runtime gets the former version until the first stage has passed, and then the new
	// version. With Proven, the runtime gets the former version until the rollout is completed. The default of
	// newInstallations is Target.
	// +optional
	// +kubebuilder:default:=Target
	// +kubebuilder:validation:Enum=Target;Proven
	NewInstallations string `json:"newInstallations,omitempty"`

	// onHalt defines what happens when a rollout is halted. Hold means that no further runtime begins to update until a
	// person decides. TakeBackFailed means that the version is withdrawn, and the runtimes in which it has failed are
	// taken back to the former version. TakeBack means that the version is withdrawn, and all runtimes that have it are
	// taken back to the former version. Runtimes are taken back only if the version declares that this is safe
	// (spec.upgrade.back). If the version does not declare that going back is safe, the rollout is held with
	// DowngradeUnsafe. The default of onHalt is Hold.
	// +optional
	// +kubebuilder:default:=Hold
	OnHalt HaltAction `json:"onHalt,omitempty"`

	// stages are the stages in their order, 1 to 16. A runtime belongs to the first stage whose selector matches. A
	// runtime that no selector matches belongs to the first stage whose percent is above the rank of the runtime, or
	// else to the last stage.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems:=1
	// +kubebuilder:validation:MaxItems:=16
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || !has(self[size(self)-1].selector) && (!has(self[size(self)-1].percent) || self[size(self)-1].percent == 100)",message="the last stage must be for all other runtimes: without a selector, and without percent or with percent 100"
	// +kubebuilder:validation:XValidation:rule="self.filter(s, !has(s.selector) && !has(s.percent)).size() <= 1",message="only the last stage may have neither a selector nor a percent"
	// +kubebuilder:validation:XValidation:rule="self.filter(s, has(s.percent)).map(s, s.percent).isSorted()",message="percent is cumulative and must not go down from stage to stage"
	Stages []RolloutStage `json:"stages"`

	// defaults are values that apply to all stages.
	// +optional
	Defaults RolloutDefaults `json:"defaults,omitzero"`

	// hotfix defines how a rollout with urgency Hotfix is shortened. If hotfix is empty, a rollout with urgency Hotfix
	// has the usual stages and soaks, and differs from a rollout with urgency Normal only in freezes with an exception
	// for hotfixes.
	// +optional
	Hotfix *RolloutHotfix `json:"hotfix,omitempty"`

	// promotion proposes a version that has proven itself in one channel for another channel, or moves the other
	// channel to this version. A promotion is defined in the RolloutPolicy of the channel that gets the version. If
	// promotion is empty, only persons move channels.
	// +optional
	Promotion *RolloutPromotion `json:"promotion,omitempty"`
}

// PromotionMode defines what happens with a version that has proven itself.
// +kubebuilder:validation:Enum=Propose;Apply
type PromotionMode string

const (
	// PromotionPropose means that an event, klm promotions and a webhook state that the version has proven itself.
	PromotionPropose PromotionMode = "Propose"
	// PromotionApply means that the manager moves the channel, unless another field manager owns the entry of the
	// channel.
	PromotionApply PromotionMode = "Apply"
)

// RolloutPromotion brings a version that has proven itself in one channel to another channel.
// +kubebuilder:validation:XValidation:rule="self.from != self.to",message="a promotion leads from one channel to another one"
type RolloutPromotion struct {
	// from is the channel in which versions prove themselves.
	// +kubebuilder:validation:Pattern:=`^[a-z]+$`
	// +kubebuilder:validation:MinLength:=3
	// +kubebuilder:validation:MaxLength:=32
	From string `json:"from"`

	// to is the channel that gets the version.
	// +kubebuilder:validation:Pattern:=`^[a-z]+$`
	// +kubebuilder:validation:MinLength:=3
	// +kubebuilder:validation:MaxLength:=32
	To string `json:"to"`

	// after is the time for which the version must have been the proven version of the channel in from. The default of
	// the field "after" is 7 days (168h).
	// +optional
	After *metav1.Duration `json:"after,omitempty"`

	// mode is Propose or Apply. The default of mode is Propose.
	// +optional
	// +kubebuilder:default:=Propose
	Mode PromotionMode `json:"mode,omitempty"`

	// The field "if" sets conditions on the runtimes that have the version through the channel in the field "from".
	// +optional
	If PromotionConditions `json:"if,omitzero"`

	// webhook is the address to which the manager sends a POST for each new proposal. An answer with status 200 and
	// JSON acknowledges the proposal.
	// +optional
	Webhook *WebhookGate `json:"webhook,omitempty"`
}

// PromotionConditions are conditions on the runtimes that have a version.
type PromotionConditions struct {
	// minRuntimes is the number of runtimes in which the version must be Ready. The default of minRuntimes is 1.
	// +optional
	// +kubebuilder:default:=1
	// +kubebuilder:validation:Minimum:=1
	MinRuntimes int32 `json:"minRuntimes,omitempty"`

	// maxFailures is the number of runtimes in which the version may be in state Error. The value is a number, or a
	// percent of the runtimes that have the version, rounded down. The default of maxFailures is 0.
	// +optional
	// +kubebuilder:default:=0
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern:=`^[0-9][0-9]?([.][0-9])?%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || int(self) >= 0",message="maxFailures must be a number from 0, or a percent from 0% to 99.9%"
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`
}

// HaltAction defines what happens when a rollout is halted.
// +kubebuilder:validation:Enum=Hold;TakeBackFailed;TakeBack
type HaltAction string

const (
	// HaltHold means that no further runtime begins to update until a person decides.
	HaltHold HaltAction = "Hold"
	// HaltTakeBackFailed withdraws the version, and returns the runtimes in which the version has failed to the former
	// version.
	HaltTakeBackFailed HaltAction = "TakeBackFailed"
	// HaltTakeBack withdraws the version, and returns all runtimes that have the version to the former version.
	HaltTakeBack HaltAction = "TakeBack"
)

// RolloutHotfix defines how a rollout with urgency Hotfix is shortened.
type RolloutHotfix struct {
	// soak is the maximum duration of the soak of each stage. If soak is empty, the soaks of the stages apply.
	// +optional
	Soak *metav1.Duration `json:"soak,omitempty"`

	// stages are the names, in any order, of the policy's stages that a hotfix keeps; the last stage must be among
	// them. A runtime of an omitted stage belongs to the first of the remaining stages that matches the runtime. If
	// stages is empty, a hotfix keeps all stages.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems:=1
	// +kubebuilder:validation:MaxItems:=16
	// +kubebuilder:validation:items:MaxLength:=32
	Stages []string `json:"stages,omitempty"`
}

// RolloutFreeze is a time in which no runtime begins to update.
// +kubebuilder:validation:XValidation:rule="self.from < self.to",message="a freeze begins before it ends"
type RolloutFreeze struct {
	// name is the name of the freeze.
	// +kubebuilder:validation:Pattern:=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength:=63
	Name string `json:"name"`

	// from is the time at which the freeze begins, for example 2026-12-18T00:00:00Z.
	From metav1.Time `json:"from"`

	// to is the time at which the freeze ends.
	To metav1.Time `json:"to"`

	// except are the kinds of rollouts that the freeze does not stop. Hotfix stands for rollouts with urgency Hotfix,
	// Emergency for rollouts with urgency Emergency, and Back for rollouts that take runtimes back to a lower version.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems:=3
	Except []FreezeException `json:"except,omitempty"`
}

// FreezeException is a kind of rollouts that a freeze does not stop.
// +kubebuilder:validation:Enum=Hotfix;Emergency;Back
type FreezeException string

const (
	// ExceptHotfix excepts rollouts with urgency Hotfix from a freeze.
	ExceptHotfix FreezeException = "Hotfix"
	// ExceptEmergency excepts rollouts with urgency Emergency from a freeze.
	ExceptEmergency FreezeException = "Emergency"
	// ExceptBack excepts rollouts that take runtimes back to a lower version from a freeze.
	ExceptBack FreezeException = "Back"
)

// RolloutModules selects modules by name.
type RolloutModules struct {
	// names are the names of modules; "*" stands for all.
	// +listType=set
	// +kubebuilder:validation:MinItems:=1
	// +kubebuilder:validation:MaxItems:=256
	// +kubebuilder:validation:items:MinLength:=1
	// +kubebuilder:validation:items:MaxLength:=253
	Names []string `json:"names"`

	// except are the names of modules that the policy is not for.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems:=256
	// +kubebuilder:validation:items:MaxLength:=253
	Except []string `json:"except,omitempty"`
}

// RolloutStage is one stage of a rollout.
// +kubebuilder:validation:XValidation:rule="!has(self.selector) || !has(self.percent)",message="a stage has a selector or a percent, not both"
// +kubebuilder:validation:XValidation:rule="!has(self.minCount) || has(self.percent)",message="minCount is the least number of runtimes of a percent"
type RolloutStage struct {
	// name is the name of the stage.
	// +kubebuilder:validation:Pattern:=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength:=32
	Name string `json:"name"`

	// selector selects the Kymas of the stage by their labels in the control plane. The selector must have at least one
	// condition.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.matchLabels) && size(self.matchLabels) > 0 || has(self.matchExpressions) && size(self.matchExpressions) > 0",message="a selector without a condition would select the whole fleet"
	Selector *StageSelector `json:"selector,omitempty"`

	// percent is the share of the fleet that this stage and all earlier stages with a percent have together, 1 to 100.
	// A hash of the name of the Kyma decides which runtimes belong to the share, so the share contains runtimes of
	// every region and plan.
	// +optional
	// +kubebuilder:validation:Minimum:=1
	// +kubebuilder:validation:Maximum:=100
	Percent int32 `json:"percent,omitempty"`

	// minCount is the minimum number of runtimes that the share in the field percent must have. If the share has fewer
	// than minCount runtimes when the rollout is created, the manager makes the share larger.
	// +optional
	// +kubebuilder:validation:Minimum:=1
	// +kubebuilder:validation:Maximum:=100000
	MinCount int32 `json:"minCount,omitempty"`

	// spread limits how many runtimes with the same value of a label, for example of the same region, are updated at
	// the same time.
	// +optional
	Spread *RolloutSpread `json:"spread,omitempty"`

	// maxConcurrency is the largest number of runtimes of the stage that are updated at the same time. The value is a
	// number, or a percent of the runtimes of the stage, rounded up. The default of maxConcurrency is 10%.
	// +optional
	// +kubebuilder:default:="10%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern:=`^(100|[1-9][0-9]?)%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || int(self) >= 1",message="maxConcurrency must be a number from 1, or a percent from 1% to 100%"
	MaxConcurrency *intstr.IntOrString `json:"maxConcurrency,omitempty"`

	// maxStartsPerMinute is the largest number of runtimes of the stage whose update begins within a minute. If
	// maxStartsPerMinute is empty, this number is not limited.
	// +optional
	// +kubebuilder:validation:Minimum:=1
	MaxStartsPerMinute int32 `json:"maxStartsPerMinute,omitempty"`

	// maxFailures is the number of runtimes that may fail because of the version before the rollout is halted. The
	// value is a number, or a percent of the runtimes of the stage, rounded down. The default of maxFailures is 0.
	// +optional
	// +kubebuilder:default:=0
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern:=`^[0-9][0-9]?([.][0-9])?%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || int(self) >= 0",message="maxFailures must be a number from 0, or a percent from 0% to 99.9%"
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`

	// soak is the time for which the updated runtimes are observed before the next stage begins. The soak begins when
	// enough runtimes of this stage are Ready with the new version (minProven). If soak is empty, the next stage begins
	// without a soak.
	// +optional
	// +kubebuilder:validation:Type:=string
	// +kubebuilder:validation:MaxLength:=20
	// +kubebuilder:validation:Pattern:=`^([0-9]{1,6}([.][0-9]{1,9})?(h|m|s|ms))+$`
	Soak metav1.Duration `json:"soak,omitzero"`

	// minEvidence is the number of runtimes of earlier stages that must be proven before this stage begins. The default
	// of minEvidence is 1 for the last stage if there are several stages, and 0 for every other stage.
	// +optional
	// +kubebuilder:validation:Minimum:=0
	MinEvidence *int32 `json:"minEvidence,omitempty"`

	// progressDeadline is the time after which the rollout is completed even if some runtimes of the last stage could
	// not be updated, for example because they are unreachable. Runtimes that were not updated before the
	// progressDeadline are updated later, when this is possible. The default of progressDeadline is 14 days.
	// +optional
	// +kubebuilder:validation:Type:=string
	// +kubebuilder:validation:MaxLength:=20
	// +kubebuilder:validation:Pattern:=`^([0-9]{1,6}([.][0-9]{1,9})?(h|m|s|ms))+$`
	ProgressDeadline metav1.Duration `json:"progressDeadline,omitzero"`

	// gates are conditions that must be met before the next stage begins, at most 8.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems:=8
	Gates []RolloutGate `json:"gates,omitempty"`
}

// StageSelector selects Kymas by their labels. In JSON, StageSelector is a label selector of Kubernetes of limited
// size.
// +structType=atomic
type StageSelector struct {
	// matchLabels are labels with values that a Kyma must have, at most 16.
	// +optional
	// +kubebuilder:validation:MaxProperties:=16
	MatchLabels map[string]string `json:"matchLabels,omitempty"`

	// matchExpressions are conditions on labels that must all be met, at most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems:=16
	MatchExpressions []StageRequirement `json:"matchExpressions,omitempty"`
}

// StageRequirement is a condition on one label.
// +kubebuilder:validation:XValidation:rule="self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0",fieldPath=".values",message="values are needed with the operators In and NotIn, and not allowed with Exists and DoesNotExist"
type StageRequirement struct {
	// key is the key of the label.
	// +kubebuilder:validation:MaxLength:=317
	Key string `json:"key"`

	// operator defines how the label and the values are compared.
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`

	// values are the values for the operators In and NotIn, at most 64. Empty for the other operators.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems:=64
	// +kubebuilder:validation:items:MaxLength:=63
	Values []string `json:"values,omitempty"`
}

// Selector returns the selector as a [Selector].
func (s *StageSelector) Selector() *Selector {
	if s == nil {
		return nil
	}
	all := &Selector{MatchLabels: s.MatchLabels}
	for _, e := range s.MatchExpressions {
		all.MatchExpressions = append(all.MatchExpressions, SelectorRequirement(e))
	}
	return all
}

// RolloutSpread limits how many runtimes with the same value of a label are updated at the same time.
type RolloutSpread struct {
	// label is the key of the label on the Kymas whose values are compared, for example a label with the region.
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=317
	Label string `json:"label"`

	// max limits how many runtimes with the same value of the label are updated at the same time, as a percentage of
	// the stage's maxConcurrency. The number is rounded up.
	// +kubebuilder:validation:Pattern:=`^(100|[1-9][0-9]?)%$`
	Max string `json:"max"`
}

// RolloutGate is a condition before the next stage.
// +kubebuilder:validation:XValidation:rule="[has(self.approval), has(self.promQL), has(self.webhook), has(self.notBefore)].filter(b, b).size() == 1",message="a gate has exactly one of approval, promQL, webhook and notBefore"
type RolloutGate struct {
	// name is the name of the gate.
	// +kubebuilder:validation:Pattern:=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength:=32
	Name string `json:"name"`

	// approval requires approvals by persons, see klm rollout approve.
	// +optional
	Approval *ApprovalGate `json:"approval,omitempty"`

	// promQL requires that a query of Prometheus has the value 1.
	// +optional
	PromQL *PromQLGate `json:"promQL,omitempty"`

	// webhook requires that an HTTP endpoint answers "pass".
	// +optional
	Webhook *WebhookGate `json:"webhook,omitempty"`

	// notBefore requires that this time has passed.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
}

// ApprovalGate requires approvals.
type ApprovalGate struct {
	// count is the number of persons that have to approve the stage. The default of count is 1.
	// +optional
	// +kubebuilder:default:=1
	// +kubebuilder:validation:Minimum:=1
	// +kubebuilder:validation:Maximum:=8
	Count int32 `json:"count,omitempty"`
}

// PromQLGate requires that a query has the value 1. If the query has the value 0, the gate fails. If the query has no
// value, several values or no answer, the result is unknown: the rollout waits, and does not count as failed.
type PromQLGate struct {
	// expr is the query. The query has to return one value: 1 if the gate passes, 0 if it fails.
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=4096
	Expr string `json:"expr"`

	// url is the address of Prometheus, without /api/v1/query. The flag --rollout-gate-allow must allow this address.
	// +kubebuilder:validation:Pattern:=`^https?://`
	// +kubebuilder:validation:MaxLength:=1024
	URL string `json:"url"`

	// failFor is the time for which the query has to fail before the rollout is halted. If failFor is empty, the first
	// failure of the query halts the rollout.
	// +optional
	// +kubebuilder:validation:Type:=string
	// +kubebuilder:validation:MaxLength:=20
	// +kubebuilder:validation:Pattern:=`^([0-9]{1,6}([.][0-9]{1,9})?(h|m|s|ms))+$`
	FailFor metav1.Duration `json:"failFor,omitzero"`
}

// WebhookGate requires that an endpoint answers {"result": "pass"} to a POST of the status of the rollout. If the
// endpoint answers with the result "fail", the gate fails. If the endpoint answers "wait" or anything else, or does not
// answer, the rollout waits.
type WebhookGate struct {
	// url is the address of the endpoint. The flag --rollout-gate-allow must allow this address.
	// +kubebuilder:validation:Pattern:=`^https?://`
	// +kubebuilder:validation:MaxLength:=1024
	URL string `json:"url"`
}

// RolloutDefaults are the values for all stages.
type RolloutDefaults struct {
	// minProven is the share of runtimes that have to be Ready with the new version before the soak of a stage begins.
	// Only runtimes of the stage that can be updated now count for minProven. The default of minProven is 95%.
	// +optional
	// +kubebuilder:validation:Pattern:=`^(100|[1-9][0-9]?)%$`
	MinProven string `json:"minProven,omitempty"`

	// maxLost is the largest share of the fleet's runtimes that may become unreachable after their update has begun. If
	// more runtimes become unreachable, the rollout is halted. One runtime is always allowed. The default of maxLost is
	// 2%.
	// +optional
	// +kubebuilder:validation:Pattern:=`^(100|[0-9][0-9]?)%$`
	MaxLost string `json:"maxLost,omitempty"`

	// runtimeDeadline is the time within which a runtime has to become Ready with the new version. The default of
	// runtimeDeadline is 30 minutes.
	// +optional
	// +kubebuilder:validation:Type:=string
	// +kubebuilder:validation:MaxLength:=20
	// +kubebuilder:validation:Pattern:=`^([0-9]{1,6}([.][0-9]{1,9})?(h|m|s|ms))+$`
	RuntimeDeadline metav1.Duration `json:"runtimeDeadline,omitzero"`
}

// RolloutPolicyStatus reports problems of the policy.
type RolloutPolicyStatus struct {
	// observedGeneration is the metadata.generation of the policy that this status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// fleetMaxUpdating is the number of runtimes that the rollouts of all policies may update at the same time: the
	// flag --rollout-max-updating of the manager. If fleetMaxUpdating is 0, there is no such limit.
	// +optional
	FleetMaxUpdating int32 `json:"fleetMaxUpdating,omitempty"`

	// conditions has the conditions Ready and Stalled. Ready is False, and Stalled is True, for a policy that cannot be
	// applied. The message of the condition Ready names the stages whose selectors match no runtime.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RolloutPolicyList is a list of RolloutPolicies.
// +kubebuilder:object:root=true
type RolloutPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RolloutPolicy `json:"items"`
}

// AllNames stands for all modules, or for all channels, in a RolloutPolicy.
const AllNames = "*"

// MandatoryChannel is used in place of the name of a channel for mandatory modules.
const MandatoryChannel = "mandatory"

// MatchPrecedence returns how exactly the policy matches a module and channel: 0 if the policy does not match, 1 if it
// matches by "*", and 2 if it matches by the name of the module.
func (p *RolloutPolicy) MatchPrecedence(module, channel string) int {
	s := &p.Spec
	if slices.Contains(s.Modules.Except, module) ||
		len(s.Channels) > 0 && !slices.Contains(s.Channels, channel) && !slices.Contains(s.Channels, AllNames) {
		return 0
	}
	switch {
	case slices.Contains(s.Modules.Names, module):
		return 2
	case slices.Contains(s.Modules.Names, AllNames):
		return 1
	}
	return 0
}
