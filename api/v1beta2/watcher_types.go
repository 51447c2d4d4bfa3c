package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Watcher says which objects of the runtimes are watched, and who in the control plane is told about changes.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=watchers,singular=watcher,scope=Namespaced,categories=klm
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Manager",type=string,JSONPath=`.spec.manager`
// +kubebuilder:printcolumn:name="Resource",type=string,JSONPath=`.spec.resourceToWatch.resource`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || has(self.spec)",optionalOldSelf=true,fieldPath=".spec",reason=FieldValueRequired,message="spec is required"
type Watcher struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the wish. It is written by whoever runs the component that wants to be told.
	// +optional
	Spec WatcherSpec `json:"spec,omitzero"`

	// status is what was found. It is written by Lifecycle Manager only.
	// +optional
	Status WatcherStatus `json:"status,omitzero"`
}

// WatcherSpec says what is watched and who is told.
type WatcherSpec struct {
	// serviceInfo names the Service in the control plane that is told about changes.
	ServiceInfo Service `json:"serviceInfo"`

	// manager is the name of the component that is told; it is part of the path of its events. Empty: the value of the
	// label operator.kyma-project.io/managed-by counts.
	// +optional
	Manager string `json:"manager,omitempty"`

	// labelsToWatch are labels that an object must have to be watched. Empty: all objects of the resource are watched.
	// +optional
	LabelsToWatch map[string]string `json:"labelsToWatch,omitempty"`

	// resourceToWatch names the resource that is watched.
	ResourceToWatch WatchableGVR `json:"resourceToWatch"`

	// field says which part of the object is watched: its spec, or its status subresource.
	Field FieldName `json:"field"`

	// gateway says through which Istio gateways events come in. Empty: none; events come in by the listener's own address.
	// +optional
	Gateway *Gateway `json:"gateway,omitempty"`
}

// FieldName is the part of an object that is watched.
// +kubebuilder:validation:Enum=spec;status
type FieldName string

const (
	// SpecField watches everything but the status subresource.
	SpecField FieldName = "spec"
	// StatusField watches the status subresource.
	StatusField FieldName = "status"
)

// Service names a port of a Service in the control plane.
type Service struct {
	// name is the name of the Service.
	// +kubebuilder:validation:MinLength:=1
	Name string `json:"name"`

	// namespace is the namespace of the Service.
	// +kubebuilder:validation:MinLength:=1
	Namespace string `json:"namespace"`

	// port is the port of the Service, 1 to 65535.
	// +kubebuilder:validation:Minimum:=1
	// +kubebuilder:validation:Maximum:=65535
	Port int64 `json:"port"`
}

// WatchableGVR names a resource of a runtime.
type WatchableGVR struct {
	// group is the API group, "" for the core group.
	Group string `json:"group"`

	// version is the API version, * for all of them.
	// +kubebuilder:validation:MinLength:=1
	Version string `json:"version"`

	// resource is the plural name in lower case, for example kymas.
	// +kubebuilder:validation:MinLength:=1
	Resource string `json:"resource"`
}

// Gateway selects Istio gateways.
type Gateway struct {
	// selector selects the Istio gateways by their labels.
	LabelSelector Selector `json:"selector"`
}

// WatcherStatus is what was found about a Watcher.
type WatcherStatus struct {
	// observedGeneration is the metadata.generation of the Watcher that this status belongs to. Zero: not known.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// state sums up the Watcher. Empty: nobody has looked yet.
	State State `json:"state"`

	// conditions say what is done and what is not, one of each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WatcherList is a list of Watchers.
// +kubebuilder:object:root=true
type WatcherList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Watcher `json:"items"`
}

// ManagerName returns the name of the component that is told about changes: spec.manager, else the value of the label
// operator.kyma-project.io/managed-by, else "".
func (w *Watcher) ManagerName() string {
	if w == nil {
		return ""
	}
	if w.Spec.Manager != "" {
		return w.Spec.Manager
	}
	return w.Labels[LabelManagedBy]
}
