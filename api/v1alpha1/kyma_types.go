package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Kyma lists the modules that are requested for one runtime, and their status. Kyma of v1alpha1 is an early version of
// the kind Kyma in v1beta2.
//
// +kubebuilder:object:root=true
// +kubebuilder:unservedversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=kymas,singular=kyma,scope=Namespaced,categories=klm
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Channel",type=string,JSONPath=`.spec.channel`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 63",optionalOldSelf=true,fieldPath=".metadata",message="metadata.name must be at most 63 characters long, because it becomes the value of a label"
type Kyma struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. Users and their tools write the spec; Lifecycle Manager never does.
	// +optional
	Spec KymaSpec `json:"spec,omitzero"`

	// status is the observed state. Only Lifecycle Manager writes the status.
	// +optional
	Status KymaStatus `json:"status,omitzero"`
}

// KymaSpec is the desired state of a Kyma.
// +kubebuilder:validation:XValidation:rule="!has(self.components) || !has(self.modules) || self.components.all(c, !self.modules.exists(m, m.name == c.name))",fieldPath=".components",message="components and modules are the same list: name each module in one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.components) || !has(self.modules) || size(self.components) + size(self.modules) <= 250",fieldPath=".components",message="components and modules must be at most 250 together"
type KymaSpec struct {
	// channel is the release channel of all modules that do not name one themselves, for example regular or fast.
	// +optional
	// +kubebuilder:default:=regular
	// +kubebuilder:validation:Pattern:=`^[a-z]+$`
	// +kubebuilder:validation:MinLength:=3
	// +kubebuilder:validation:MaxLength:=32
	// +kubebuilder:validation:XValidation:rule="self != 'none'",message="channel must name a release channel; \"none\" is reserved"
	Channel string `json:"channel,omitempty"`

	// modules are the modules to install, each named once. A module that is removed from the list is uninstalled. If
	// the list modules is empty, no modules are installed. The list modules has at most 250 entries.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems:=250
	Modules []Module `json:"modules,omitempty"`

	// components is the list of modules in the format of the first releases. In v1beta2, the entries of components come
	// before the entries of the field modules. At most 250.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems:=250
	Components []Component `json:"components,omitempty"`

	// sync is kept so that old objects stay valid. The field sync has no effect: every runtime has a copy of its Kyma.
	// +optional
	Sync *Sync `json:"sync,omitempty"`
}

// Module is the request for one module.
type Module struct {
	// name is the name of the module, which is also the name of its ModuleReleaseMeta in v1beta2.
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=253
	Name string `json:"name"`

	// controller is kept so that old objects stay valid. The field controller has no effect.
	// +optional
	Controller string `json:"controller,omitempty"`

	// channel is the release channel of this module. If the channel of a module is empty, the module follows the
	// channel of the Kyma.
	// +optional
	// +kubebuilder:validation:Pattern:=`^[a-z]+$`
	// +kubebuilder:validation:MinLength:=3
	// +kubebuilder:validation:MaxLength:=32
	// +kubebuilder:validation:XValidation:rule="self != 'none'",message="channel must name a release channel; \"none\" is reserved"
	Channel string `json:"channel,omitempty"`

	// customResourcePolicy defines the handling of the default custom resource of the module. CreateAndDelete creates
	// the default custom resource with the module, and deletes it before the module is uninstalled; Ignore leaves the
	// default custom resource to the user.
	// +optional
	// +kubebuilder:default:=CreateAndDelete
	CustomResourcePolicy v1beta2.CustomResourcePolicy `json:"customResourcePolicy,omitempty"`
}

// Component is the request for one module, in the format of the first releases.
type Component struct {
	// name is the name of the module.
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=253
	Name string `json:"name"`

	// settings are kept so that old objects stay valid. The settings have no effect: write them into the custom
	// resource of the module.
	// +optional
	Settings map[string]string `json:"settings,omitempty"`
}

// Sync is kept so that old objects stay valid: the type defined whether and how a runtime got its Kyma.
type Sync struct {
	// enabled has no effect.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// strategy has no effect.
	// +optional
	// +kubebuilder:default:=secret
	Strategy string `json:"strategy,omitempty"`

	// namespace has no effect: the Kyma in a runtime is in kyma-system.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// noModuleCopy has no effect.
	// +optional
	// +kubebuilder:default:=true
	NoModuleCopy *bool `json:"noModuleCopy,omitempty"`

	// moduleCatalog has no effect.
	// +optional
	// +kubebuilder:default:=true
	ModuleCatalog *bool `json:"moduleCatalog,omitempty"`
}

// KymaStatus is the observed state of a Kyma and its modules: the status of v1beta2, and the field moduleInfos.
type KymaStatus struct {
	v1beta2.KymaStatus `json:",inline"`

	// moduleInfos repeats, in the format of early clients, the entries of status.modules whose modules have a Manifest.
	// +optional
	// +listType=atomic
	ModuleInfos []ModuleInfo `json:"moduleInfos,omitempty"`
}

// ModuleInfo is the observed state of one module of a runtime.
type ModuleInfo struct {
	// name is the name of the Manifest.
	Name string `json:"name"`

	// moduleName is the name of the module.
	ModuleName string `json:"moduleName"`

	// namespace is the namespace of the Manifest.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// state is the state of the module.
	State v1beta2.State `json:"state"`

	// templateInfo describes the ModuleTemplate of the version.
	// +optional
	TemplateInfo TemplateInfo `json:"templateInfo,omitzero"`
}

// TemplateInfo describes a ModuleTemplate.
type TemplateInfo struct {
	// generation is the observed metadata.generation of the ModuleTemplate. If generation is 0, the generation is not
	// known.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// channel is the release channel that the module follows.
	// +optional
	Channel string `json:"channel,omitempty"`

	// gvk is the kind of the default custom resource.
	// +optional
	GVK GroupVersionKind `json:"gvk,omitzero"`
}

// GroupVersionKind names a kind.
type GroupVersionKind struct {
	// group is the API group, "" for the core group.
	Group string `json:"group"`

	// version is the API version.
	Version string `json:"version"`

	// kind is the name of the kind.
	Kind string `json:"kind"`
}

// KymaList is a list of Kymas.
// +kubebuilder:object:root=true
type KymaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Kyma `json:"items"`
}
