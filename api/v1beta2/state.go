package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// State sums up in one word how an object or a module is. The empty string means that nobody has looked yet.
// +kubebuilder:validation:Enum=Processing;Deleting;Ready;Error;"";Warning;Unmanaged
type State string

const (
	// StateProcessing means that work is in progress or waits, and no problem is known.
	StateProcessing State = "Processing"
	// StateDeleting means that the object is being deleted, together with the objects that it installed.
	StateDeleting State = "Deleting"
	// StateReady means that the actual state equals the desired state.
	StateReady State = "Ready"
	// StateError means that an operation failed. It is retried, and the message has an instruction.
	StateError State = "Error"
	// StateWarning means that the module runs, but a person has to act before the desired state can be reached.
	StateWarning State = "Warning"
	// StateUnmanaged means that the user manages the module: nothing is installed, updated or removed.
	StateUnmanaged State = "Unmanaged"
	// StateUnknown means that the object has not been reconciled yet.
	StateUnknown State = ""
)

// LastOperation says in a sentence what was done or found last, and when this became true.
type LastOperation struct {
	// operation is one sentence for people: what was done, or what is in the way. Its text is no contract; branch on
	// conditions instead.
	Operation string `json:"operation"`

	// lastUpdateTime is when operation last changed. It does not change while operation stays the same.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitzero"`
}

// CustomResourcePolicy says what happens to the default custom resource of a module.
// +kubebuilder:validation:Enum=CreateAndDelete;Ignore
type CustomResourcePolicy string

const (
	// CreateAndDelete creates the default custom resource with the module and deletes it before the module goes.
	CreateAndDelete CustomResourcePolicy = "CreateAndDelete"
	// Ignore leaves all custom resources of the module to the user. A module that is removed waits until they are gone.
	Ignore CustomResourcePolicy = "Ignore"
)

// Manager names the workload that runs the operator of a module.
type Manager struct {
	// group is the API group of the workload, for example apps.
	Group string `json:"group"`

	// version is the API version of the workload, for example v1.
	Version string `json:"version"`

	// kind is the kind of the workload, for example Deployment.
	Kind string `json:"kind"`

	// namespace is the namespace of the workload in the runtime. Empty: any namespace; clients assume kyma-system.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the workload.
	Name string `json:"name"`
}
