package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Manifest is one version of one module on one runtime: its sources, its installed objects, and its state. Manifest of
// v1alpha1 is an early version of the kind Manifest in v1beta2; users also created such objects by hand.
//
// +kubebuilder:object:root=true
// +kubebuilder:unservedversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=manifests,singular=manifest,scope=Namespaced,categories=klm
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || has(self.spec)",optionalOldSelf=true,fieldPath=".spec",reason=FieldValueRequired,message="spec is required"
type Manifest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the Manifest: the version of the module to install.
	// +optional
	Spec ManifestSpec `json:"spec,omitzero"`

	// status is the observed state of the Manifest: the installed version and its state. Only Lifecycle Manager writes
	// the status.
	// +optional
	Status v1beta2.ManifestStatus `json:"status,omitzero"`
}

// ManifestSpec defines the objects to install.
type ManifestSpec struct {
	// remote is true if the objects are installed on the runtime in the label operator.kyma-project.io/kyma-name, and
	// false if they are installed on the cluster of the manager. In-cluster mode ignores it.
	// +optional
	// +kubebuilder:default:=true
	Remote *bool `json:"remote,omitempty"`

	// resource is the custom resource that enables the module. The custom resource is created if it does not exist. If
	// resource is empty, the module has no such custom resource.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	Resource *unstructured.Unstructured `json:"resource,omitempty"`

	// crds is an OCI layer with CRDs, which are applied before all other objects. The layer in crds has no effect while
	// its field type is empty.
	// +optional
	CRDs *v1beta2.ManifestConfig `json:"crds,omitempty"`

	// config is an OCI layer with settings for the sources in the field installs: values of charts and options for
	// rendering, by the name of the source. The layer in config has no effect while its field type is empty.
	// +optional
	Config *v1beta2.ManifestConfig `json:"config,omitempty"`

	// installs are the sources of the module's objects, in the order in which they are installed, each named once. If
	// installs is empty, only crds and resource are installed. At most 32.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems:=32
	Installs []v1beta2.InstallInfo `json:"installs,omitempty"`
}

// ManifestList is a list of Manifests.
// +kubebuilder:object:root=true
type ManifestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Manifest `json:"items"`
}
