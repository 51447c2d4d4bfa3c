package v1beta2

import (
	"hash/fnv"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// RawManifest is the spec.install.name of every Manifest, and the name of the resource in the OCM component that holds
// the objects of the module.
const RawManifest = "raw-manifest"

// Names of the layers with settings and CRDs in the OCM component of a module.
const (
	// LayerConfig contains settings for the installation; ManifestSpec.Config describes them.
	LayerConfig = "config"
	// LayerCRDs contains CRDs, see ManifestSpec.CRDs.
	LayerCRDs = "crds"
	// LayerDefaultCR is the default custom resource, for information; Lifecycle Manager reads the default custom
	// resource from the ModuleTemplate.
	LayerDefaultCR = "default-cr"
)

// Manifest is one version of one module on one runtime: its sources, its installed objects, and its state. Lifecycle
// Manager creates Manifests in the control plane; users read them.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=manifests,singular=manifest,scope=Namespaced,categories=klm
// +kubebuilder:printcolumn:name="Runtime",type=string,JSONPath=`.metadata.labels.operator\.kyma-project\.io/kyma-name`
// +kubebuilder:printcolumn:name="Module",type=string,JSONPath=`.metadata.labels.operator\.kyma-project\.io/module-name`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Installed",type=string,priority=1,JSONPath=`.status.version`,description="Version that is installed now"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.lastOperation.operation`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || has(self.spec)",optionalOldSelf=true,fieldPath=".spec",reason=FieldValueRequired,message="spec is required"
type Manifest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the Manifest: the version of the module to install. The Kyma controller, which
	// resolves versions, writes the spec of a Manifest.
	// +optional
	Spec ManifestSpec `json:"spec,omitzero"`

	// status is the installed version and its state. The Manifest controller, which installs modules, writes the
	// status.
	// +optional
	// +structType=atomic
	Status ManifestStatus `json:"status,omitzero"`
}

// ManifestSpec defines the objects to install: either install or installs is set.
// +kubebuilder:validation:XValidation:rule="has(self.install) || has(self.installs)",fieldPath=".install",reason=FieldValueRequired,message="install is required unless installs is given"
// +kubebuilder:validation:XValidation:rule="!(has(self.install) && has(self.installs))",fieldPath=".installs",message="install and installs exclude each other: move the source from install to installs"
type ManifestSpec struct {
	// remote is kept so that old objects and clients stay valid. The field remote has no effect, because its value says
	// nothing: the value is false even in old Manifests of modules on runtimes. The field target replaces the field
	// remote.
	// +optional
	// +kubebuilder:default:=false
	Remote bool `json:"remote"`

	// target is the cluster on which the module is installed: remote is the runtime, control-plane is the cluster of
	// the manager. The target cannot be changed while objects of the module are installed. The default of target is
	// remote. In-cluster mode ignores the field target. The original Kyma API does not have the field target.
	// +optional
	Target Target `json:"target,omitempty"`

	// version is the version of the module to install. If version is empty, the version is not known.
	// +optional
	Version string `json:"version,omitempty"`

	// customResourcePolicy defines how the manager handles the default custom resource in the field resource.
	// CreateAndDelete creates the default custom resource after all other objects, and deletes it before them; Ignore
	// leaves it to the user.
	// +optional
	// +kubebuilder:default:=CreateAndDelete
	CustomResourcePolicy CustomResourcePolicy `json:"customResourcePolicy,omitempty"`

	// config is an OCI layer with settings for the sources in the fields install and installs: values of charts and
	// options for rendering, by the name of the source. The layer in config has no effect while its field type is
	// empty.
	// +optional
	Config *ManifestConfig `json:"config,omitempty"`

	// crds is an OCI layer with CRDs, which are applied before all other objects. The layer in crds has no effect while
	// its field type is empty. The original Kyma API does not have the field crds.
	// +optional
	CRDs *ManifestConfig `json:"crds,omitempty"`

	// install is the source of the objects of the module. Only one of install and installs may be set.
	// +optional
	Install InstallInfo `json:"install,omitzero"`

	// installs are the sources of the module's objects, in the order in which they are installed, each named once. Only
	// one of install and installs may be set. If the field installs is an empty list, only the objects in the fields
	// crds and resource are installed. At most 32. The original Kyma API does not have the field installs.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems:=32
	Installs []InstallInfo `json:"installs,omitempty"`

	// resource is the default custom resource of the module. If resource is empty, the module has no default custom
	// resource.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	// +structType=atomic
	Resource *unstructured.Unstructured `json:"resource,omitempty"`

	// customStateCheck maps values in resource to states, as in the ModuleTemplate. If customStateCheck is empty,
	// .status.state of the custom resource is the state. The original Kyma API does not have the field
	// customStateCheck.
	// +optional
	// +kubebuilder:validation:MaxItems:=64
	CustomStateCheck []CustomStateCheck `json:"customStateCheck,omitempty"`

	// stateExpression is a CEL expression that computes the state of the custom resource in the field resource, as in
	// the ModuleTemplate. The field stateExpression takes precedence over customStateCheck. The original Kyma API does
	// not have the field stateExpression.
	// +optional
	// +kubebuilder:validation:MaxLength:=8192
	StateExpression string `json:"stateExpression,omitempty"`

	// localizedImages are references of images that replace others, for example copies of the images in another
	// registry. Each reference replaces the images in the module's objects whose last path segment and tag are those of
	// the reference. If localizedImages is empty, the images in the module's objects stay unchanged.
	// +optional
	LocalizedImages []string `json:"localizedImages,omitempty"`

	// manager names the workload that runs the operator of the module. If manager is empty, the workload is not known.
	// +optional
	// +structType=atomic
	Manager *Manager `json:"manager,omitempty"`
}

// InstallInfo is a source of the objects of a module.
type InstallInfo struct {
	// name is the name of the source. In the field install, the name is raw-manifest. In the field installs, the name
	// of a chart is also the name of its Helm release, and the layer in the field config refers to a source by its
	// name.
	Name string `json:"name"`

	// source is the location of the objects; its type defines the other fields. The types oci-ref and oci-dir have the
	// fields repo, name, ref and optionally credSecretSelector. The field installs also permits the type helm-chart
	// with the fields url, chartName and optionally version and credSecretSelector, and the type kustomize with path or
	// url.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +structType=atomic
	Source runtime.RawExtension `json:"source"`
}

// ManifestConfig is a layer in an OCI registry next to the layers that contain the objects.
type ManifestConfig struct {
	// repo is the registry and the part of the path that precedes the name of the component.
	// +optional
	Repo string `json:"repo,omitempty"`

	// name is the name of the component.
	// +optional
	Name string `json:"name,omitempty"`

	// ref is a digest or a tag.
	// +optional
	Ref string `json:"ref,omitempty"`

	// type is the kind of the layer.
	// +optional
	// +kubebuilder:validation:Enum=helm-chart;oci-ref;kustomize;""
	Type string `json:"type,omitempty"`

	// credSecretSelector selects the Secret with the credentials for the registry.
	// +optional
	CredSecretSelector *metav1.LabelSelector `json:"credSecretSelector,omitempty"`
}

// ManifestStatus is the installed version and its state.
type ManifestStatus struct {
	// observedGeneration is the metadata.generation of the Manifest that this status belongs to. If observedGeneration
	// is 0, the generation is not known. The original Kyma API does not have the field observedGeneration.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// state is the state of the module on this runtime. If state is empty, the Manifest was not reconciled yet.
	State State `json:"state"`

	// version is the version of the module that is installed now. During an update, status.version differs from
	// spec.version. If version is empty, no version was installed completely yet. The original Kyma API does not have
	// the field version.
	// +optional
	Version string `json:"version,omitempty"`

	// appliedDigest is a digest of everything that was last applied completely: the objects, their overlay for this
	// runtime, and the default custom resource. While appliedDigest equals the digest of the desired state, there is
	// nothing to apply. If appliedDigest is empty, nothing was applied completely yet. The original Kyma API does not
	// have the field appliedDigest.
	// +optional
	AppliedDigest string `json:"appliedDigest,omitempty"`

	// appliedGeneration is the metadata.generation that the Manifest had when the manager wrote appliedDigest. While
	// appliedGeneration equals metadata.generation, the desired version is installed, even if its sources cannot be
	// read. If appliedGeneration is 0, the generation is not known. The original Kyma API does not have the field
	// appliedGeneration.
	// +optional
	AppliedGeneration int64 `json:"appliedGeneration,omitempty"`

	// target is the cluster that contains the objects in synced. If target is empty, the objects are in the runtime.
	// The original Kyma API does not have the field target.
	// +optional
	Target Target `json:"target,omitempty"`

	// conditions report the result of each part of the reconciliation, one of each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// synced is the inventory: the objects in the runtime that this Manifest created or is about to create, and that
	// are not known to be deleted. Only objects in synced are ever pruned or removed.
	// +optional
	// +listType=atomic
	Synced []Resource `json:"synced,omitempty"`

	// renderFailure names the content of a version whose rendering crashed or had to be stopped. The content that
	// renderFailure names is not rendered again, even after a restart of the manager, until a retry is requested. If
	// renderFailure is absent, no rendering has crashed or had to be stopped. The original Kyma API does not have the
	// field renderFailure.
	// +optional
	RenderFailure *RenderFailure `json:"renderFailure,omitempty"`

	// lastOperation describes the last operation or finding.
	// +optional
	LastOperation LastOperation `json:"lastOperation,omitzero"`

	// lastChange describes the last change of the installed version: from which version to which one, when, and with
	// which outcome. If lastChange is absent, the version has not changed since the manager began to record changes.
	// The original Kyma API does not have the field lastChange.
	// +optional
	LastChange *ModuleChange `json:"lastChange,omitempty"`
}

// RenderFailure describes a rendering that crashed or had to be stopped.
type RenderFailure struct {
	// digest identifies the content, the settings, and the answers of the runtime that a chart has read.
	Digest string `json:"digest"`

	// reason is RenderCrashed, RenderMemory or RenderTimeout.
	Reason string `json:"reason"`

	// message is the text of the error.
	// +optional
	Message string `json:"message,omitempty"`
}

// Resource names one object in a runtime. All five fields that identify the object are always written.
type Resource struct {
	// name is the name of the object.
	Name string `json:"name"`

	// namespace is the namespace of the object, "" if it is cluster-scoped.
	Namespace string `json:"namespace"`

	// group is the API group of the object, "" for the core group.
	Group string `json:"group"`

	// version is the API version with which the object was applied last.
	Version string `json:"version"`

	// kind is the kind of the object.
	Kind string `json:"kind"`

	// keep is true if the annotation operator.kyma-project.io/prune of the object is keep. An object with keep stays in
	// the cluster when the module no longer contains the object, or is uninstalled. The original Kyma API does not have
	// the field keep.
	// +optional
	Keep bool `json:"keep,omitempty"`

	// pending is true from the time when the object was added to the inventory until all objects of the module were
	// applied. While pending is true, it is not known whether the module created the object, or whether the object
	// existed before. The original Kyma API does not have the field pending.
	// +optional
	Pending bool `json:"pending,omitempty"`

	// adopted is true if the object existed before the module was installed. An adopted object stays when the module is
	// removed. The original Kyma API does not have the field adopted.
	// +optional
	Adopted bool `json:"adopted,omitempty"`

	// shared is true if the module of this Manifest contains the object, but the object belongs to another module of
	// the runtime. The original Kyma API does not have the field shared.
	// +optional
	Shared bool `json:"shared,omitempty"`
}

// ManifestList is a list of Manifests.
// +kubebuilder:object:root=true
type ManifestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Manifest `json:"items"`
}

// ManifestName returns the name of the Manifest of a module on a runtime: the name of the Kyma, the last path segment
// of the OCM component name, and the FNV-1 hash (32 bit, decimal) of component and module, joined by dashes. A name of
// 63 characters or more is cut to 62 characters, without a dash or a dot at the end. A Manifest is created with the
// name from ManifestName, and keeps it when a later version of the module comes from another component. Clients should
// find a Manifest by status.modules[].manifest of the Kyma, or by the labels of the Manifest, and not by ManifestName.
func ManifestName(kyma, component, module string) string {
	hash := fnv.New32()
	hash.Write([]byte(component + module)) // a hash never returns an error
	segment := component[strings.LastIndexByte(component, '/')+1:]
	name := kyma + "-" + segment + "-" + strconv.FormatUint(uint64(hash.Sum32()), 10)
	if len(name) < 63 {
		return name
	}
	return strings.TrimRight(name[:62], "-.")
}

// KymaName returns the name of the Kyma that the Manifest belongs to, "" if its label is missing.
func (m *Manifest) KymaName() string { return m.label(LabelKymaName) }

// ModuleName returns the name of the module, "" if its label is missing.
func (m *Manifest) ModuleName() string { return m.label(LabelModuleName) }

// Channel returns the release channel that the module follows, "" for mandatory and pinned modules.
func (m *Manifest) Channel() string { return m.label(LabelChannel) }

// IsMandatory reports whether the Manifest belongs to a mandatory module.
func (m *Manifest) IsMandatory() bool { return m.label(LabelMandatoryModule) == ValueTrue }

// SkipsReconciliation reports whether the Manifest has the label that excludes it from reconciliation. The value of the
// label skip-reconciliation must be exactly "true".
func (m *Manifest) SkipsReconciliation() bool { return m.label(LabelSkipReconciliation) == ValueTrue }

// IsUnmanaged reports whether the module was handed over to the user.
func (m *Manifest) IsUnmanaged() bool {
	return m != nil && m.Annotations[AnnotationIsUnmanaged] == ValueTrue
}

// IsRestored reports whether the Manifest has AnnotationRuntimeVersion, which means that the control plane has lost the
// state of a module that is still installed in the runtime. The Manifest controller applies nothing for a restored
// Manifest.
func (m *Manifest) IsRestored() bool {
	return m != nil && m.Annotations[AnnotationRuntimeVersion] != ""
}

// IsInventoryReadFromRuntime reports whether the controller has read the inventory of a restored Manifest from the
// runtime. If the inventory is empty after it was read from the runtime, the runtime has no object of the module.
func (m *Manifest) IsInventoryReadFromRuntime() bool {
	if !m.IsRestored() {
		return false
	}
	version := m.Annotations[AnnotationRuntimeVersion]
	return m.Status.AppliedDigest == DigestUnknown && (version == VersionUnknown || m.Status.Version == version ||
		len(m.Status.Synced) == 0)
}

// InstalledOrSpecTarget returns the cluster of the objects of the Manifest: the cluster on which they were installed,
// or the cluster in spec if nothing was installed yet.
func (m *Manifest) InstalledOrSpecTarget() Target {
	if s := &m.Status; s.Target == TargetControlPlane || s.AppliedDigest == "" && len(s.Synced) == 0 &&
		m.Spec.Target == TargetControlPlane {
		return TargetControlPlane
	}
	return TargetRemote
}

// OCMComponentName returns the name of the OCM component that the Manifest comes from, "" if its annotation is missing.
func (m *Manifest) OCMComponentName() string {
	if m == nil {
		return ""
	}
	if name := m.Annotations[AnnotationOCMComponentName]; name != "" {
		return name
	}
	return m.Annotations[AnnotationFQDN]
}

// Policy returns the custom resource policy, CreateAndDelete if none is set.
func (m *Manifest) Policy() CustomResourcePolicy {
	if m == nil || m.Spec.CustomResourcePolicy == "" {
		return CreateAndDelete
	}
	return m.Spec.CustomResourcePolicy
}

func (m *Manifest) label(key string) string {
	if m == nil {
		return ""
	}
	return m.Labels[key]
}
