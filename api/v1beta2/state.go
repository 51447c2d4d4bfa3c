package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// State is the state of an object or a module in one word. An empty State means that the object was not reconciled yet.
// +kubebuilder:validation:Enum=Processing;Deleting;Ready;Error;"";Warning;Unmanaged
type State string

const (
	// StateProcessing means that an operation is in progress or pending, and no failure is known.
	StateProcessing State = "Processing"
	// StateDeleting means that the object is being deleted, together with the objects that it installed.
	StateDeleting State = "Deleting"
	// StateReady means that the desired state is reached.
	StateReady State = "Ready"
	// StateError means that an operation failed; the manager retries it, and the message states what to do.
	StateError State = "Error"
	// StateWarning means that the module is running, but a user must act before the desired state can be reached.
	StateWarning State = "Warning"
	// StateUnmanaged means that the user maintains the module, and Lifecycle Manager neither installs nor updates nor
	// removes it.
	StateUnmanaged State = "Unmanaged"
	// StateUnknown means that the object was not reconciled yet.
	StateUnknown State = ""
)

// LastOperation describes the last operation or finding in one sentence, with the time of its last change.
type LastOperation struct {
	// operation is one sentence for users that describes the last operation, or the current problem. The text of
	// operation may change; programs should branch on conditions.
	Operation string `json:"operation"`

	// lastUpdateTime is the time at which the field operation last changed.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitzero"`
}

// CustomResourcePolicy defines the handling of the default custom resource of a module.
// +kubebuilder:validation:Enum=CreateAndDelete;Ignore
type CustomResourcePolicy string

const (
	// CreateAndDelete creates the default custom resource with the module, and deletes it before the module is
	// uninstalled.
	CreateAndDelete CustomResourcePolicy = "CreateAndDelete"
	// Ignore leaves all custom resources of the module to the user. With Ignore, the removal of the module waits until
	// its custom resources are deleted.
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

	// namespace is the namespace of the workload in the runtime. If namespace is empty, the workload may be in any
	// namespace; other clients that read this field assume kyma-system.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the workload.
	Name string `json:"name"`
}
