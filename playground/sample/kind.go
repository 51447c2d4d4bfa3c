// +kubebuilder:object:generate=true

package sample

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API that the module brings.
var GroupVersion = schema.GroupVersion{Group: "sample.playground.kyma-project.io", Version: "v1alpha1"}

// Finalizer keeps a Sample until the operator has removed what it installed for it.
const Finalizer = "sample.playground.kyma-project.io/finalizer"

// State is the module contract's word for how a custom resource is. There are no others.
type State string

// The states of the module contract.
const (
	// StateReady says that all that was asked for works.
	StateReady State = "Ready"
	// StateProcessing says that it is on the way.
	StateProcessing State = "Processing"
	// StateError says that it failed; the operator tries again.
	StateError State = "Error"
	// StateDeleting says that it is being removed.
	StateDeleting State = "Deleting"
	// StateWarning says that it is deployed, but a person has to do something.
	StateWarning State = "Warning"
)

// ConditionReady is the type of the only condition. Its status is True in state Ready.
const ConditionReady = "Ready"

// Sample asks for a workload that carries a message.
//
// +kubebuilder:object:root=true
type Sample struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec,omitempty"`
	Status Status `json:"status,omitempty"`
}

// Spec is what a person wants.
type Spec struct {
	// Replicas is the number of pods, 0 to 10. Unset is 1; 0 is allowed, but no work is done then, so the state is
	// Warning.
	Replicas *int32 `json:"replicas,omitempty"`
	// Message is what the workload carries. Empty is a message of the operator's own.
	Message string `json:"message,omitempty"`
	// Fail, if not empty, makes the operator report Error with this text, and leave the workload as it is.
	Fail string `json:"fail,omitempty"`
	// Image is what the pods run, since 2.0.0. Empty is the operator's --workload-image.
	Image string `json:"image,omitempty"`
}

// Status is what the operator has seen.
type Status struct {
	// State follows the module contract. Empty until the operator has seen the Sample.
	State State `json:"state,omitempty"`
	// Description says in one sentence why the state is what it is.
	Description string `json:"description,omitempty"`
	// ObservedGeneration is the generation of the spec that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions has one entry, ConditionReady.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SampleList is a list of Samples.
//
// +kubebuilder:object:root=true
type SampleList struct { //nolint:revive // the scheme takes the name of the kind from here
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Sample `json:"items"`
}

// AddToScheme makes the kinds of this package known to scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Sample{}, &SampleList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
