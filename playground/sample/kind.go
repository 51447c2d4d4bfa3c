// +kubebuilder:object:generate=true

package sample

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of the module.
var GroupVersion = schema.GroupVersion{Group: "sample.playground.kyma-project.io", Version: "v1alpha1"}

// Finalizer keeps a Sample until the operator has removed the objects that it has created for the Sample.
const Finalizer = "sample.playground.kyma-project.io/finalizer"

// State is a state of a custom resource as the module contract defines it. There are no other states.
type State string

// States of the module contract.
const (
	// StateReady means that the workload of the Sample is complete and works.
	StateReady State = "Ready"
	// StateProcessing means that the roll-out of the workload is not complete.
	StateProcessing State = "Processing"
	// StateError means that the installation has failed. The operator tries again.
	StateError State = "Error"
	// StateDeleting means that the Sample is being deleted.
	StateDeleting State = "Deleting"
	// StateWarning means that the workload is deployed, but a user has to act.
	StateWarning State = "Warning"
)

// ConditionReady is the type of the only condition. The status of this condition is True if the state of the Sample is
// Ready.
const ConditionReady = "Ready"

// Sample is the custom resource of the module sample. For each Sample, the operator creates
// a ConfigMap with the message of the Sample, and a Deployment whose pods use the ConfigMap.
//
// +kubebuilder:object:root=true
type Sample struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec,omitempty"`
	Status Status `json:"status,omitempty"`
}

// Spec is the desired state of a Sample.
type Spec struct {
	// Replicas is the number of pods, 0 to 10. Unset means 1. If Replicas is 0, there are no pods, so the state is
	// Warning.
	Replicas *int32 `json:"replicas,omitempty"`
	// Message is the text in the ConfigMap of the workload. If Message is empty, the operator uses a default text.
	Message string `json:"message,omitempty"`
	// Fail, if not empty, makes the operator report the state Error with this text. While Fail is set, the operator
	// does not change the workload.
	Fail string `json:"fail,omitempty"`
	// Image is the image of the pods. The field Image exists since version 2.0.0 of the module. If Image is empty, the
	// operator uses the image in its flag --workload-image.
	Image string `json:"image,omitempty"`
}

// Status is the observed state of a Sample.
type Status struct {
	// State follows the module contract. State is empty until the operator has reconciled the Sample.
	State State `json:"state,omitempty"`
	// Description explains in one sentence why the Sample has this state.
	Description string `json:"description,omitempty"`
	// ObservedGeneration is the generation of the spec for which the status was computed.
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

// AddToScheme registers the kinds of this package in scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Sample{}, &SampleList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
