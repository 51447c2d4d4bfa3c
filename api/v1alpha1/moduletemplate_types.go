package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// ModuleTemplate is one version of one module. ModuleTemplate of v1alpha1 is an early version of the kind
// ModuleTemplate in v1beta2.
//
// +kubebuilder:object:root=true
// +kubebuilder:unservedversion
// +kubebuilder:resource:path=moduletemplates,singular=moduletemplate,scope=Namespaced,shortName=mt,categories=klm
// +kubebuilder:printcolumn:name="Channel",type=string,JSONPath=`.spec.channel`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.target`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || has(self.spec)",optionalOldSelf=true,fieldPath=".spec",reason=FieldValueRequired,message="spec is required"
type ModuleTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes one version of the module. The author of the module writes the spec.
	// +optional
	Spec ModuleTemplateSpec `json:"spec,omitzero"`
}

// ModuleTemplateSpec describes one version of a module. In v1beta2 the spec also has the name and the version of the
// module. The conversion copies the name from the label operator.kyma-project.io/module-name, and the version from the
// annotation operator.kyma-project.io/module-version or from the descriptor.
type ModuleTemplateSpec struct {
	// channel is the release channel of the version. The field channel has no effect: a ModuleReleaseMeta maps channels
	// to versions.
	// +optional
	// +kubebuilder:validation:Pattern:=`^$|^[a-z]{3,}$`
	// +kubebuilder:validation:MaxLength:=32
	Channel string `json:"channel,omitempty"`

	// data is the default custom resource of the module. If data is empty, the module has no default custom resource.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	Data *unstructured.Unstructured `json:"data,omitempty"`

	// configSelector is kept so that old objects stay valid. The field configSelector has no effect.
	// +optional
	ConfigSelector []ConfigSelector `json:"configSelector,omitempty"`

	// descriptor is kept for clients that display it. Lifecycle Manager reads the OCM component descriptor from the
	// registry. The default of descriptor is {}.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:default:={}
	Descriptor runtime.RawExtension `json:"descriptor"`

	// target is the cluster on which the version is installed: remote is the runtime, control-plane is the cluster of
	// the manager. In-cluster mode ignores the field target.
	// +optional
	// +kubebuilder:default:=remote
	Target v1beta2.Target `json:"target,omitempty"`
}

// ConfigSelector is kept so that old objects stay valid: the type selected settings for one of the sources of a module.
type ConfigSelector struct {
	// name is the name of the source.
	Name string `json:"name"`

	// selector has no effect.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// ModuleTemplateList is a list of ModuleTemplates.
// +kubebuilder:object:root=true
type ModuleTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ModuleTemplate `json:"items"`
}
