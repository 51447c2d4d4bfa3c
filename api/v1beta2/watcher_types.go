package v1beta2

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Watcher defines which objects of the runtimes are watched, and which component in the control plane is notified about
// changes.
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

	// spec is the desired state. The operator of the component that agents notify of changes writes the spec of the
	// Watcher.
	// +optional
	Spec WatcherSpec `json:"spec,omitzero"`

	// status is the observed state. Only Lifecycle Manager writes the status.
	// +optional
	Status WatcherStatus `json:"status,omitzero"`
}

// WatcherSpec defines the watched resource and the notified component.
type WatcherSpec struct {
	// serviceInfo names the Service in the control plane that is notified about changes.
	ServiceInfo Service `json:"serviceInfo"`

	// manager is the name of the notified component, which is part of the path of its events. If manager is empty, the
	// value of the label operator.kyma-project.io/managed-by is used.
	// +optional
	Manager string `json:"manager,omitempty"`

	// labelsToWatch are labels that an object must have to be watched. If labelsToWatch is empty, all objects of the
	// resource are watched.
	// +optional
	LabelsToWatch map[string]string `json:"labelsToWatch,omitempty"`

	// resourceToWatch names the resource that is watched.
	ResourceToWatch WatchableGVR `json:"resourceToWatch"`

	// field is the watched part of the object: its spec, or its status subresource.
	Field FieldName `json:"field"`

	// gateway selects the Istio gateways through which events arrive. If gateway is empty, no Istio gateway is used.
	// The field gateway has no effect where Istio is not installed. If a Watcher has neither gateway nor route, events
	// arrive at the address of the listener.
	// +optional
	Gateway *Gateway `json:"gateway,omitempty"`

	// mode defines how the agent in a runtime detects changes: by a watch, or by an admission webhook of the runtime.
	// The default of mode is watch. The lifecycle-manager of the Kyma project always uses a webhook, and does not have
	// the field mode.
	// +optional
	Mode WatcherMode `json:"mode,omitempty"`

	// route requests an HTTPRoute of Gateway API through which events arrive. If route is empty, no HTTPRoute is
	// created. The field route has no effect where Gateway API is not installed. The original Kyma API does not have
	// the field route.
	// +optional
	Route *Route `json:"route,omitempty"`
}

// WatcherMode defines how the agent in a runtime detects changes.
// +kubebuilder:validation:Enum=watch;webhook
type WatcherMode string

const (
	// WatcherModeWatch is the mode in which the agent watches the resource. In the mode WatcherModeWatch, the agent
	// does not delay requests to the API server of the runtime, and detects changes that happened while the agent was
	// not running.
	WatcherModeWatch WatcherMode = "watch"
	// WatcherModeWebhook is the mode in which the API server of the runtime calls the agent for every change, as an
	// admission webhook that allows every request.
	WatcherModeWebhook WatcherMode = "webhook"
)

// Route describes an HTTPRoute of Gateway API.
type Route struct {
	// parentRefs are the Gateways of Gateway API that the route is attached to, 1 to 16. A Gateway that is named twice
	// needs a different sectionName each time.
	// +listType=atomic
	// +kubebuilder:validation:MinItems:=1
	// +kubebuilder:validation:MaxItems:=16
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.name == b.name && (has(a.__namespace__) ? a.__namespace__ : '') == (has(b.__namespace__) ? b.__namespace__ : '') && (!has(a.sectionName) || !has(b.sectionName) || a.sectionName == b.sectionName)))",message="a Gateway that is named twice needs a different sectionName each time"
	ParentRefs []RouteParent `json:"parentRefs"`

	// hostnames are the host names that runtimes connect to, at most 16; the first label may be *. If hostnames is
	// empty, the route is for all host names of the Gateways.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems:=16
	// +kubebuilder:validation:items:MaxLength:=253
	// +kubebuilder:validation:items:Pattern:=`^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Hostnames []string `json:"hostnames,omitempty"`
}

// RouteParent names a Gateway of Gateway API.
type RouteParent struct {
	// name is the name of the Gateway.
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=253
	Name string `json:"name"`

	// namespace is the namespace of the Gateway. If namespace is empty, the Gateway is in the namespace of the Watcher.
	// +optional
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=63
	Namespace string `json:"namespace,omitempty"`

	// sectionName is the name of the listener of the Gateway. If sectionName is empty, the route uses all listeners of
	// the Gateway.
	// +optional
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=253
	SectionName string `json:"sectionName,omitempty"`
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

	// version is the API version; * stands for all versions.
	// +kubebuilder:validation:MinLength:=1
	Version string `json:"version"`

	// resource is the plural name of the resource in lower case, for example kymas.
	// +kubebuilder:validation:MinLength:=1
	Resource string `json:"resource"`
}

// Gateway selects Istio gateways.
type Gateway struct {
	// selector selects the Istio gateways by their labels.
	LabelSelector Selector `json:"selector"`
}

// WatcherStatus is the observed state of a Watcher.
type WatcherStatus struct {
	// observedGeneration is the metadata.generation of the Watcher that this status belongs to. If observedGeneration
	// is 0, the generation is not known.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// state is the state of the Watcher. If state is empty, the Watcher was not reconciled yet.
	State State `json:"state"`

	// conditions report the result of each part of the reconciliation, one of each type.
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

// NotifiedManagerName returns the name of the component that is notified about changes: spec.manager, else the value of
// the label operator.kyma-project.io/managed-by, else "".
func (w *Watcher) NotifiedManagerName() string {
	if w == nil {
		return ""
	}
	if w.Spec.Manager != "" {
		return w.Spec.Manager
	}
	return w.Labels[LabelManagedBy]
}

// ChangeDetectionMode returns how the agent in a runtime detects changes: spec.mode, or WatcherModeWatch if spec.mode
// is empty.
func (w *Watcher) ChangeDetectionMode() WatcherMode {
	if w == nil || w.Spec.Mode == "" {
		return WatcherModeWatch
	}
	return w.Spec.Mode
}

// LabelSelector returns spec.labelsToWatch as a label selector in text form, with sorted keys; "" selects everything.
// The error of LabelSelector names the invalid label.
func (w *Watcher) LabelSelector() (string, error) {
	if w == nil {
		return "", nil
	}
	s, err := labels.ValidatedSelectorFromSet(w.Spec.LabelsToWatch)
	if err != nil {
		return "", fmt.Errorf("reading spec.labelsToWatch: %w", err)
	}
	return s.String(), nil
}

// WebhookName returns the name of the Watcher's admission webhook in a runtime.
func (w *Watcher) WebhookName() string {
	if w == nil {
		return ""
	}
	return w.Namespace + "." + w.Name + "." + GroupVersion.Group
}
