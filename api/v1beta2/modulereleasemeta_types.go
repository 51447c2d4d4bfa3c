package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ModuleReleaseMeta defines which version of a module each release channel has, or that the module is installed on
// every runtime. Its name is the name of the module; Lifecycle Manager looks it up by this name.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=modulereleasemetas,singular=modulereleasemeta,scope=Namespaced,shortName=mrm,categories=klm
// +kubebuilder:printcolumn:name="Module",type=string,JSONPath=`.spec.moduleName`
// +kubebuilder:printcolumn:name="Mandatory",type=string,JSONPath=`.spec.mandatory.version`,description="Version that is installed on every runtime"
// +kubebuilder:printcolumn:name="Channels",type=string,JSONPath=`.spec.channels`,description="Version of each release channel"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || has(self.spec)",optionalOldSelf=true,fieldPath=".spec",reason=FieldValueRequired,message="spec is required"
type ModuleReleaseMeta struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec maps channels to versions. It is written by the team that releases modules.
	// +optional
	Spec ModuleReleaseMetaSpec `json:"spec,omitzero"`
}

// ModuleReleaseMetaSpec maps the channels of a module to versions, or names the version that is installed on every
// runtime.
// +kubebuilder:validation:XValidation:rule="has(self.mandatory) != has(self.channels)",message="exactly one of 'mandatory' or 'channels' must be specified"
type ModuleReleaseMetaSpec struct {
	// moduleName is the name of the module: parts of at least three lower-case letters, joined by dashes.
	// +kubebuilder:validation:Pattern:=`^([a-z]{3,}(-[a-z]{3,})*)?$`
	// +kubebuilder:validation:MaxLength:=64
	ModuleName string `json:"moduleName"`

	// ocmComponentName is the name of the OCM component that the module comes from: a domain, then at least one path
	// segment, for example kyma-project.io/module/keda. Empty: the module cannot be installed.
	// +optional
	// +kubebuilder:validation:Pattern:=`^[a-z][-a-z0-9]*([.][a-z][-a-z0-9]*)*[.][a-z]{2,}(/[a-z][-a-z0-9_]*([.][a-z][-a-z0-9_]*)*)+$`
	// +kubebuilder:validation:MaxLength:=255
	OCMComponentName string `json:"ocmComponentName,omitempty"`

	// channels are the release channels of the module, each named once. Exactly one of channels and mandatory is set.
	// +optional
	// +listType=map
	// +listMapKey=channel
	Channels []ChannelVersion `json:"channels,omitempty"`

	// mandatory is the version of a module that is installed on every runtime. Exactly one of channels and mandatory is
	// set.
	// +optional
	Mandatory *MandatoryVersion `json:"mandatory,omitempty"`

	// beta is kept so that old objects stay valid. Deprecated: it has no effect; the label
	// operator.kyma-project.io/beta of the ModuleTemplate is used instead.
	// +optional
	// +kubebuilder:default:=false
	Beta bool `json:"beta,omitempty"`

	// internal is kept so that old objects stay valid. Deprecated: it has no effect; the label
	// operator.kyma-project.io/internal of the ModuleTemplate is used instead.
	// +optional
	// +kubebuilder:default:=false
	Internal bool `json:"internal,omitempty"`

	// kymaSelector restricts the module to Kymas in the control plane whose labels match. It applies to modules that
	// are restricted by configuration; any other module with a selector is not allowed on any runtime. Empty: not
	// restricted.
	// +optional
	KymaSelector *Selector `json:"kymaSelector,omitempty"`
}

// ChannelVersion is the version of one release channel.
type ChannelVersion struct {
	// channel is the name of the release channel, for example regular or fast.
	// +kubebuilder:validation:Pattern:=`^[a-z]+$`
	// +kubebuilder:validation:MinLength:=3
	// +kubebuilder:validation:MaxLength:=32
	Channel string `json:"channel"`

	// version is the version that the channel has: three numbers and, after a dash, at most one pre-release identifier.
	// +kubebuilder:validation:Pattern:=`^((0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[a-zA-Z-][0-9a-zA-Z-]*)?)?$`
	// +kubebuilder:validation:MaxLength:=32
	Version string `json:"version"`
}

// MandatoryVersion is the version of a module that is installed on every runtime.
type MandatoryVersion struct {
	// version is the version (semantic versioning 2.0.0, without a leading v).
	// +kubebuilder:validation:Pattern:=`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`
	// +kubebuilder:validation:MinLength:=1
	Version string `json:"version"`
}

// ModuleReleaseMetaList is a list of ModuleReleaseMetas.
// +kubebuilder:object:root=true
type ModuleReleaseMetaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ModuleReleaseMeta `json:"items"`
}

// IsMandatory reports whether the module is installed on every runtime.
func (m *ModuleReleaseMeta) IsMandatory() bool { return m != nil && m.Spec.Mandatory != nil }

// ChannelVersion returns the version of the module in a release channel, and false if the module is not in the channel.
// For a mandatory module it returns false; see spec.mandatory.
func (m *ModuleReleaseMeta) ChannelVersion(channel string) (version string, found bool) {
	if m == nil {
		return "", false
	}
	for _, c := range m.Spec.Channels {
		if c.Channel == channel {
			return c.Version, true
		}
	}
	return "", false
}
