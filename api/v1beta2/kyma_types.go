package v1beta2

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultChannel is the release channel that applies when neither the module nor the Kyma names one.
const DefaultChannel = "regular"

// NoChannel is a reserved word that is no channel: the API server refuses it.
const NoChannel = "none"

// Kyma is the list of modules that one runtime shall have, and what became of them.
//
// In the control plane a Kyma stands for a runtime: a Secret that carries the label
// operator.kyma-project.io/kyma-name with the name of the Kyma says how to reach it. In the runtime the Kyma
// kyma-system/default is the one that people edit; its spec.channel and spec.modules are the wish, and its status is a
// copy of the status in the control plane.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=kymas,singular=kyma,scope=Namespaced,categories=klm
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Channel",type=string,JSONPath=`.spec.channel`
// +kubebuilder:printcolumn:name="Modules",type=string,JSONPath=`.status.modulesReady`,description="Modules that are Ready or Unmanaged, of all modules"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.lastOperation.operation`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 63",optionalOldSelf=true,fieldPath=".metadata",message="metadata.name must be at most 63 characters long, because it becomes the value of a label"
type Kyma struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the wish. It is written by people and their tools, never by Lifecycle Manager.
	// +optional
	Spec KymaSpec `json:"spec,omitzero"`

	// status is what was found. It is written by Lifecycle Manager only.
	// +optional
	Status KymaStatus `json:"status,omitzero"`
}

// KymaSpec is the wish of a Kyma.
type KymaSpec struct {
	// channel is the release channel of all modules that do not name one themselves, for example regular or fast.
	// +kubebuilder:validation:Pattern:=`^[a-z]+$`
	// +kubebuilder:validation:MinLength:=3
	// +kubebuilder:validation:MaxLength:=32
	// +kubebuilder:validation:XValidation:rule="self != 'none'",message="channel must name a release channel; \"none\" is reserved"
	Channel string `json:"channel"`

	// skipMaintenanceWindows lets updates that need a downtime start at once instead of in the next maintenance window.
	// Empty: false. It is read from the Kyma in the control plane.
	// +optional
	SkipMaintenanceWindows bool `json:"skipMaintenanceWindows,omitempty"`

	// modules are the modules to install, each named once. A module that is taken out of the list is uninstalled.
	// Empty: no modules. At most 250.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems:=250
	Modules []Module `json:"modules,omitempty"`
}

// Module is the wish for one module.
// +kubebuilder:validation:XValidation:rule="!(has(self.version) && has(self.channel))",fieldPath=".version",message="version and channel exclude each other: set version to pin the module, or channel to follow a release channel"
type Module struct {
	// name is the name of the module: that of its ModuleReleaseMeta, and spec.moduleName of its ModuleTemplates.
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=253
	Name string `json:"name"`

	// channel is the release channel of this module. Empty: that of the Kyma. It excludes version.
	// +optional
	// +kubebuilder:validation:Pattern:=`^[a-z]+$`
	// +kubebuilder:validation:MinLength:=3
	// +kubebuilder:validation:MaxLength:=32
	// +kubebuilder:validation:XValidation:rule="self != 'none'",message="channel must name a release channel; \"none\" is reserved"
	Channel string `json:"channel,omitempty"`

	// version pins the module to this version (semantic versioning 2.0.0, without a leading v), whatever the channels
	// say. Empty: the module follows its channel. It excludes channel. An addition of this project: clients that write
	// the whole object from their own structs drop it.
	// +optional
	// +kubebuilder:validation:Pattern:=`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`
	// +kubebuilder:validation:MaxLength:=128
	Version string `json:"version,omitempty"`

	// remoteModuleTemplateRef is kept so that old objects stay valid. Deprecated: it has no effect.
	// +optional
	RemoteModuleTemplateRef string `json:"remoteModuleTemplateRef,omitempty"`

	// controller is kept so that old objects stay valid. It has no effect.
	// +optional
	Controller string `json:"controller,omitempty"`

	// customResourcePolicy says what happens to the default custom resource of the module. CreateAndDelete creates it with
	// the module and deletes it before the module goes; Ignore leaves it to the user.
	// +optional
	// +kubebuilder:default:=CreateAndDelete
	CustomResourcePolicy CustomResourcePolicy `json:"customResourcePolicy,omitempty"`

	// managed says whether the module is looked after. False: what is installed stays as it is and is neither updated
	// nor repaired nor removed, until managed is true again.
	// +optional
	// +kubebuilder:default:=true
	Managed *bool `json:"managed,omitempty"`
}

// KymaStatus is what was found about a Kyma and its modules.
type KymaStatus struct {
	// observedGeneration is the metadata.generation of the Kyma that this status belongs to. Zero: not known. An addition
	// of this project. In a runtime it is the generation of the Kyma in the runtime.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// state sums up all modules and conditions: the worst one counts. Empty: nobody has looked yet.
	// +optional
	State State `json:"state,omitempty"`

	// activeChannel is the spec.channel with which the state last became Ready or Warning. Empty: never.
	// +optional
	ActiveChannel string `json:"activeChannel,omitempty"`

	// modulesReady is the number of modules that are Ready or Unmanaged, a slash, and the number of all modules, for
	// example 3/4. It is for people who list Kymas. Empty: nobody has looked yet. An addition of this project.
	// +optional
	ModulesReady string `json:"modulesReady,omitempty"`

	// conditions say what is done and what is not, one of each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// modules has an entry for each module that is wished or not yet gone, ordered by name.
	// +optional
	// +listType=atomic
	Modules []ModuleStatus `json:"modules,omitempty"`

	// lastOperation says what was done or found last.
	// +optional
	LastOperation LastOperation `json:"lastOperation,omitzero"`

	// agent is what is known of the agent that tells what happens in the runtime. Absent: there is none, or none is wanted. An addition of
	// this project, in the control plane only.
	// +optional
	Agent *AgentStatus `json:"agent,omitempty"`
}

// AgentStatus is what is known of the agent in a runtime. The condition SKRWebhook says the same for people.
type AgentStatus struct {
	// digest identifies what was delivered to the runtime, but for the certificate. Empty: not everything is there yet.
	// +optional
	Digest string `json:"digest,omitempty"`

	// version is the version of the agent that speaks. Empty: it was never heard.
	// +optional
	Version string `json:"version,omitempty"`

	// heard says whether the agent is heard, so that the runtime need not be looked at.
	Connected bool `json:"heard"`

	// since is when heard changed.
	// +optional
	Since metav1.Time `json:"since,omitzero"`

	// lastHeartbeat is when the agent was last heard before it fell silent. Absent while it is heard: a metric has it then.
	// +optional
	LastHeartbeat metav1.Time `json:"lastHeartbeat,omitzero"`

	// sequence is the number of the last event that was known when the agent fell silent. Zero while it is heard.
	// +optional
	Sequence int64 `json:"sequence,omitempty"`

	// reason is the code of what is in the way, for programs, for example RuntimeSilent. Empty: nothing is.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message says what is in the way and what to do, for people. Empty: nothing is.
	// +optional
	Message string `json:"message,omitempty"`

	// certificate is the one that was delivered last. Absent: none was.
	// +optional
	Certificate *AgentCertificate `json:"certificate,omitempty"`

	// synced are the objects that were delivered, ordered as they were. They are removed with the Kyma.
	// +optional
	// +listType=atomic
	Synced []Resource `json:"synced,omitempty"`
}

// AgentCertificate describes the certificate by which a runtime is known. Its key is in the runtime only.
type AgentCertificate struct {
	// serial is the serial number in hexadecimal digits.
	Serial string `json:"serial"`

	// issued is when the certificate was issued.
	Issued metav1.Time `json:"issued"`

	// notAfter is when it ends. A new one is delivered well before.
	NotAfter metav1.Time `json:"notAfter"`

	// root is the fingerprint of the root that signed it.
	Root string `json:"root"`

	// bundle is the digest of the roots that the runtime was told to trust.
	Bundle string `json:"bundle"`

	// seen is the root of the certificate that the agent used when it was last heard; it trusts the listener by roots up to this one.
	// Empty: it was not heard.
	// +optional
	RootInUse string `json:"seen,omitempty"`
}

// ModuleStatus is what was found about one module of a runtime. All its fields belong to the same moment.
type ModuleStatus struct {
	// name is the name of the module.
	Name string `json:"name"`

	// fqdn is a copy of ocmComponentName. Deprecated: read ocmComponentName.
	// +optional
	FQDN string `json:"fqdn,omitempty"`

	// ocmComponentName is the name of the OCM component that the module comes from. Empty: not known.
	// +optional
	OCMComponentName string `json:"ocmComponentName,omitempty"`

	// channel is the release channel that the module follows. Empty: the module is pinned to a version.
	// +optional
	Channel string `json:"channel,omitempty"`

	// version is the version that is installed. Empty: none yet.
	// +optional
	Version string `json:"version,omitempty"`

	// message says what is in the way and what to do, for people. Empty: nothing is in the way.
	// +optional
	Message string `json:"message,omitempty"`

	// reason is the code of what is in the way, for programs, for example VersionNotFound. Empty: nothing is in the way.
	// An addition of this project.
	// +optional
	Reason string `json:"reason,omitempty"`

	// state is the state of the module.
	State State `json:"state"`

	// manifest refers to the Manifest in the control plane. Empty: there is none.
	// +optional
	Manifest *ObjectReference `json:"manifest,omitempty"`

	// resource refers to the default custom resource in the runtime. Empty: there is none, or it is left to the user.
	// +optional
	Resource *ObjectReference `json:"resource,omitempty"`

	// template refers to the ModuleTemplate of the version. Empty: not known.
	// +optional
	Template *ObjectReference `json:"template,omitempty"`

	// maintenance is true while an update of the module waits for the next maintenance window.
	// +optional
	// +kubebuilder:default:=false
	Maintenance bool `json:"maintenance,omitempty"`
}

// ObjectReference names an object.
type ObjectReference struct {
	// apiVersion is the API group and version of the object, for example operator.kyma-project.io/v1beta2.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// kind is the kind of the object.
	// +optional
	Kind string `json:"kind,omitempty"`

	// metadata is the part of the metadata that identifies the object.
	// +optional
	Metadata ObjectReferenceMeta `json:"metadata,omitzero"`
}

// ObjectReferenceMeta is the part of an object's metadata that identifies it.
type ObjectReferenceMeta struct {
	// name is the name of the object.
	// +optional
	Name string `json:"name,omitempty"`

	// namespace is the namespace of the object. Empty: the object is cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// generation is the metadata.generation that was seen. Zero: not known.
	// +optional
	Generation int64 `json:"generation,omitempty"`
}

// KymaList is a list of Kymas.
// +kubebuilder:object:root=true
type KymaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Kyma `json:"items"`
}

// Module returns the wish for the module with this name, or nil if the Kyma does not ask for it.
// The result points into the Kyma.
func (k *Kyma) Module(name string) *Module {
	if k == nil {
		return nil
	}
	for i := range k.Spec.Modules {
		if k.Spec.Modules[i].Name == name {
			return &k.Spec.Modules[i]
		}
	}
	return nil
}

// ModuleStatus returns the status of the module with this name, or nil if there is none.
// The result points into the Kyma.
func (k *Kyma) ModuleStatus(name string) *ModuleStatus {
	if k == nil {
		return nil
	}
	for i := range k.Status.Modules {
		if k.Status.Modules[i].Name == name {
			return &k.Status.Modules[i]
		}
	}
	return nil
}

// ModuleChannel returns the release channel that the module with this name follows: its own, else that of the Kyma, else
// DefaultChannel. It does not tell whether the Kyma asks for the module, or pins its version.
func (k *Kyma) ModuleChannel(name string) string {
	if module := k.Module(name); module != nil && module.Channel != "" {
		return module.Channel
	}
	if k != nil && k.Spec.Channel != "" {
		return k.Spec.Channel
	}
	return DefaultChannel
}

// IsBeta tells whether the Kyma may have modules that are marked as beta.
func (k *Kyma) IsBeta() bool { return k != nil && labelIsTrue(k.Labels, LabelBeta) }

// IsInternal tells whether the Kyma may have modules that are marked as internal.
func (k *Kyma) IsInternal() bool { return k != nil && labelIsTrue(k.Labels, LabelInternal) }

// SkipsReconciliation tells whether the Kyma carries the label that says to leave it alone. Case does not matter.
func (k *Kyma) SkipsReconciliation() bool {
	return k != nil && labelIsTrue(k.Labels, LabelSkipReconciliation)
}

// IsManaged tells whether the module is looked after, which it is unless managed is false.
func (m *Module) IsManaged() bool { return m == nil || m.Managed == nil || *m.Managed }

// Policy returns the custom resource policy, CreateAndDelete if none is set.
func (m *Module) Policy() CustomResourcePolicy {
	if m == nil || m.CustomResourcePolicy == "" {
		return CreateAndDelete
	}
	return m.CustomResourcePolicy
}

// IsSettled tells whether the module needs nothing: it is Ready, or left to the user.
func (m *ModuleStatus) IsSettled() bool {
	return m != nil && (m.State == StateReady || m.State == StateUnmanaged)
}

func labelIsTrue(labels map[string]string, key string) bool {
	return strings.EqualFold(labels[key], ValueTrue)
}
