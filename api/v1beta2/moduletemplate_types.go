package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// ModuleTemplate is one version of one module. The name of a ModuleTemplate is the name of the module, a dash and the
// version; Lifecycle Manager finds the ModuleTemplate by this name.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:path=moduletemplates,singular=moduletemplate,scope=Namespaced,shortName=mt,categories=klm
// +kubebuilder:printcolumn:name="Module",type=string,JSONPath=`.spec.moduleName`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Mandatory",type=boolean,priority=1,JSONPath=`.spec.mandatory`
// +kubebuilder:printcolumn:name="Downtime",type=boolean,priority=1,JSONPath=`.spec.requiresDowntime`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || has(self.spec)",optionalOldSelf=true,fieldPath=".spec",reason=FieldValueRequired,message="spec is required"
type ModuleTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes one version of the module. The author of the module writes the spec.
	// +optional
	Spec ModuleTemplateSpec `json:"spec,omitzero"`
}

// ModuleTemplateSpec describes one version of a module.
type ModuleTemplateSpec struct {
	// channel is the release channel of this version, for modules that have no ModuleReleaseMeta. If channel is empty,
	// the version is in no channel. Deprecated: if the module has a ModuleReleaseMeta, the ModuleReleaseMeta maps
	// channels to versions, and this field has no effect.
	// +optional
	// +kubebuilder:validation:Pattern:=`^$|^[a-z]{3,}$`
	// +kubebuilder:validation:MaxLength:=32
	Channel string `json:"channel,omitempty"`

	// version is the version of the module: three numbers and, after a dash, at most one pre-release identifier.
	// +optional
	// +kubebuilder:validation:Pattern:=`^((0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[a-zA-Z-][0-9a-zA-Z-]*)?)?$`
	// +kubebuilder:validation:MaxLength:=32
	Version string `json:"version,omitempty"`

	// moduleName is the name of the module: parts of at least three lower-case letters, joined by dashes.
	// +optional
	// +kubebuilder:validation:Pattern:=`^([a-z]{3,}(-[a-z]{3,})*)?$`
	// +kubebuilder:validation:MaxLength:=64
	ModuleName string `json:"moduleName,omitempty"`

	// mandatory marks a version of a module that is installed on every runtime. A mandatory version is not part of the
	// catalog copy of a runtime, and users cannot request it. The default of mandatory is false.
	// +optional
	Mandatory bool `json:"mandatory,omitempty"`

	// data is the default custom resource of the module. An empty name of the custom resource becomes the name of the
	// Manifest, and an empty namespace becomes kyma-system. If data is empty, the module has no default custom
	// resource.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	Data *unstructured.Unstructured `json:"data,omitempty"`

	// descriptor is kept for clients that display it. Lifecycle Manager reads the OCM component descriptor from the
	// registry. The default of descriptor is {}.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:default:={}
	Descriptor runtime.RawExtension `json:"descriptor"`

	// customStateCheck maps values in the module's custom resource to states, for operators that do not report a state.
	// The first entry of customStateCheck that matches determines the state. If no entry of customStateCheck matches,
	// the state is Processing. If customStateCheck is empty, .status.state of the custom resource is the state.
	// +optional
	// +kubebuilder:validation:MaxItems:=64
	CustomStateCheck []CustomStateCheck `json:"customStateCheck,omitempty"`

	// stateExpression computes the state of the module's custom resource in CEL, where "self" is the custom resource.
	// The result of the expression is a bool (true is Ready, false Processing) or one of the words Ready, Processing,
	// Warning and Error. The field stateExpression takes precedence over customStateCheck. The original Kyma API does
	// not have the field stateExpression.
	// +optional
	// +kubebuilder:validation:MaxLength:=8192
	StateExpression string `json:"stateExpression,omitempty"`

	// target is the cluster on which this version is installed: remote is the runtime, control-plane is the cluster of
	// the manager. In the control plane, the manager installs the version once for each Kyma, with the rights that the
	// administrator of the control plane has granted. The target of an installed module cannot be changed between
	// remote and control-plane. The default of target is remote. In-cluster mode ignores the field target.
	// +optional
	Target Target `json:"target,omitempty"`

	// resources are links to further information about this version, each named once. The Kyma CLI installs the link
	// named rawManifest.
	// +optional
	// +listType=map
	// +listMapKey=name
	Resources []ResourceLink `json:"resources,omitempty"`

	// info is the description of the module for catalogs.
	// +optional
	Info *ModuleInfo `json:"info,omitempty"`

	// associatedResources are the kinds that belong to the module. The list associatedResources is for information and
	// has no effect.
	// +optional
	AssociatedResources []AssociatedResource `json:"associatedResources,omitempty"`

	// manager names the workload that runs the operator of the module. If manager is empty, the workload is not known.
	// +optional
	Manager *Manager `json:"manager,omitempty"`

	// requiresDowntime is true if an update to this version has to wait for a maintenance window. The default of
	// requiresDowntime is false.
	// +optional
	RequiresDowntime bool `json:"requiresDowntime,omitempty"`

	// upgrade declares which versions can be updated to this version, to which lower versions a runtime can safely go
	// back, and which runtimes should not get this version. If upgrade is empty, every lower version can be updated to
	// this version, and a downgrade from this version is not safe. The original Kyma API does not have the field
	// upgrade.
	// +optional
	Upgrade *ModuleUpgrade `json:"upgrade,omitempty"`
}

// ModuleUpgrade declares the allowed updates to a version and back from it. Ranges are those of semantic versioning,
// for example ">=1.3.0 <2.0.0" or "1.4.x || 1.5.x"; pre-releases are compared by precedence.
type ModuleUpgrade struct {
	// from is the range of the versions that can be updated to this version directly. A runtime whose version is
	// outside this range is first updated to the versions in between, one after the other. If the field "from" is
	// empty, every lower version can be updated directly.
	// +optional
	// +kubebuilder:validation:MaxLength:=256
	From string `json:"from,omitempty"`

	// back is the range of the lower versions to which a runtime with this version can safely go back. Declare only
	// versions for which going back was tested: the lower version must be able to read all stored objects. If the field
	// "back" is empty, going back is not safe.
	// +optional
	// +kubebuilder:validation:MaxLength:=256
	Back string `json:"back,omitempty"`

	// risks are known problems of this version. A runtime does not get the version if the expression of a risk is true
	// for the runtime.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems:=16
	Risks []UpgradeRisk `json:"risks,omitempty"`
}

// UpgradeRisk is a known problem that a version has in some runtimes.
type UpgradeRisk struct {
	// name identifies the risk.
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=63
	Name string `json:"name"`

	// when is a CEL expression that is true for the runtimes with the risk. The expression can use the variable labels,
	// which contains the labels of the Kyma, and the variables region, platformRegion and plan, which have the same
	// meaning as in a maintenance policy. The variable provider is the label kyma-project.io/provider, and kyma is the
	// name of the Kyma. k8s.major and k8s.minor are integers from the Kubernetes version of the runtime. channel is the
	// channel of the module, and installed is its installed version, or "" if the module is not installed. If the
	// expression cannot be evaluated for a runtime, this runtime does not get the version. An expression cannot be
	// evaluated, for example, while a label that it uses is missing on the Kyma, or the Kubernetes version is not known
	// yet.
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=1024
	When string `json:"when"`

	// message states what happens, for users.
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=512
	Message string `json:"message"`

	// url is the address of a web page about the known problem. If url is empty, there is no such page.
	// +optional
	// +kubebuilder:validation:MaxLength:=512
	URL string `json:"url,omitempty"`
}

// Target is the cluster on which a module is installed.
// +kubebuilder:validation:Enum=control-plane;remote
type Target string

const (
	// TargetControlPlane is the cluster of the manager.
	TargetControlPlane Target = "control-plane"
	// TargetRemote is the runtime.
	TargetRemote Target = "remote"
)

// AssociatedResource is a kind that belongs to a module.
type AssociatedResource struct {
	// group is the API group of the kind, "" for the core group.
	Group string `json:"group"`

	// version is the API version of the kind.
	Version string `json:"version"`

	// kind is the name of the kind.
	Kind string `json:"kind"`
}

// CustomStateCheck maps a value in a custom resource to a state.
type CustomStateCheck struct {
	// jsonPath is the path of the value in the syntax of kubectl, for example status.health.
	JSONPath string `json:"jsonPath"`

	// value is the text that the value in the custom resource must have.
	Value string `json:"value"`

	// mappedState is the state of the custom resource if the value at jsonPath is equal to the field value.
	MappedState State `json:"mappedState"`
}

// ResourceLink is a named link.
type ResourceLink struct {
	// name identifies the target of the link.
	Name string `json:"name"`

	// link is a URI.
	// +kubebuilder:validation:Format:=uri
	Link string `json:"link"`
}

// ModuleInfo is the description of a module for catalogs.
type ModuleInfo struct {
	// repository is the address of the source code.
	Repository string `json:"repository"`

	// documentation is the address of the documentation.
	Documentation string `json:"documentation"`

	// icons are links to icons, each named once.
	// +optional
	// +listType=map
	// +listMapKey=name
	Icons []ModuleIcon `json:"icons,omitempty"`
}

// ModuleIcon is a link to an icon.
type ModuleIcon struct {
	// name is the name of the icon.
	Name string `json:"name"`

	// link is the address of the icon.
	Link string `json:"link"`
}

// ModuleTemplateList is a list of ModuleTemplates.
// +kubebuilder:object:root=true
type ModuleTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ModuleTemplate `json:"items"`
}

// ModuleTemplateName returns the name of the ModuleTemplate of a version: module, dash, version.
func ModuleTemplateName(module, version string) string { return module + "-" + version }

// IsBeta reports whether only Kymas that are marked as beta may have this version.
func (t *ModuleTemplate) IsBeta() bool { return t != nil && labelIsTrue(t.Labels, LabelBeta) }

// IsInternal reports whether only Kymas that are marked as internal may have this version.
func (t *ModuleTemplate) IsInternal() bool { return t != nil && labelIsTrue(t.Labels, LabelInternal) }

// HasClusterScopedDefaultCR reports whether the author of the module marked the default custom resource as
// cluster-scoped.
func (t *ModuleTemplate) HasClusterScopedDefaultCR() bool {
	return t != nil && t.Annotations[AnnotationIsClusterScoped] == ValueTrue
}
