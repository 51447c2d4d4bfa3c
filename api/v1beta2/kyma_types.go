package v1beta2

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultChannel is the release channel that applies when neither the module nor the Kyma names a channel.
const DefaultChannel = "regular"

// NoChannel is a reserved word: the API server refuses a channel with this name.
const NoChannel = "none"

// Kyma lists the modules that are requested for one runtime, and their status.
//
// In the control plane a Kyma represents a runtime: a Secret with the label operator.kyma-project.io/kyma-name and the
// name of the Kyma contains the kubeconfig. In the runtime, users edit the Kyma kyma-system/default; its spec.channel
// and spec.modules are the request, and its status is a copy of the status in the control plane.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=kymas,singular=kyma,scope=Namespaced,categories=klm
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Channel",type=string,JSONPath=`.spec.channel`
// +kubebuilder:printcolumn:name="Modules",type=string,JSONPath=`.status.modulesReady`,description="Modules that are Ready or Unmanaged, of all modules"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Versions",type=string,JSONPath=`.status.summary`,description="Version, channel and problem of each module"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.lastOperation.operation`
// +kubebuilder:printcolumn:name="Changed",type=string,priority=1,JSONPath=`.status.lastOperation.lastUpdateTime`,description="Time of the last change of the state or the message"
// +kubebuilder:printcolumn:name="Agent",type=boolean,priority=1,JSONPath=`.status.agent.heard`,description="Whether the agent is connected"
// +kubebuilder:printcolumn:name="Paused",type=string,priority=1,JSONPath=`.metadata.annotations.operator\.kyma-project\.io/paused`
// +kubebuilder:printcolumn:name="Last Heartbeat",type=string,priority=1,JSONPath=`.status.agent.lastHeartbeat`,description="Time of the last heartbeat of an agent that is not connected"
// +kubebuilder:printcolumn:name="Skip Windows",type=boolean,priority=1,JSONPath=`.spec.skipMaintenanceWindows`,description="Whether updates wait for no maintenance window"
// +kubebuilder:printcolumn:name="Kubernetes",type=string,priority=1,JSONPath=`.status.kubernetesVersion`,description="Version of Kubernetes in the runtime"
// +kubebuilder:printcolumn:name="Created",type=string,priority=1,JSONPath=`.metadata.creationTimestamp`,description="Time of the creation"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 63",optionalOldSelf=true,fieldPath=".metadata",message="metadata.name must be at most 63 characters long, because it becomes the value of a label"
type Kyma struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. Users and their tools write the spec; Lifecycle Manager never does.
	// +optional
	Spec KymaSpec `json:"spec,omitzero"`

	// status is the observed state. Only Lifecycle Manager writes the status.
	// +optional
	// +structType=atomic
	Status KymaStatus `json:"status,omitzero"`
}

// KymaSpec is the desired state of a Kyma.
type KymaSpec struct {
	// channel is the release channel of all modules that have no channel of their own, for example regular or fast.
	// +kubebuilder:validation:Pattern:=`^[a-z]+$`
	// +kubebuilder:validation:MinLength:=3
	// +kubebuilder:validation:MaxLength:=32
	// +kubebuilder:validation:XValidation:rule="self != 'none'",message="channel must name a release channel; \"none\" is reserved"
	Channel string `json:"channel"`

	// skipMaintenanceWindows lets updates that need a downtime start at once instead of in the next maintenance window.
	// The default of skipMaintenanceWindows is false. The manager reads skipMaintenanceWindows from the Kyma in the
	// control plane only.
	// +optional
	SkipMaintenanceWindows bool `json:"skipMaintenanceWindows,omitempty"`

	// modules are the modules to install, each named once. A module that is removed from the list is uninstalled. If
	// the list modules is empty, no modules are installed. The list modules has at most 250 entries.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems:=250
	Modules []Module `json:"modules,omitempty"`
}

// Module is the request for one module.
// +kubebuilder:validation:XValidation:rule="!(has(self.version) && has(self.channel))",fieldPath=".version",message="version and channel exclude each other: set version to pin the module, or channel to follow a release channel"
type Module struct {
	// name is the name of the module, which is also the name of its ModuleReleaseMeta and the spec.moduleName of its
	// ModuleTemplates.
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=253
	Name string `json:"name"`

	// channel is the release channel of this module. If the channel of a module is empty, the module follows the
	// channel of the Kyma. Only one of channel and version may be set.
	// +optional
	// +kubebuilder:validation:Pattern:=`^[a-z]+$`
	// +kubebuilder:validation:MinLength:=3
	// +kubebuilder:validation:MaxLength:=32
	// +kubebuilder:validation:XValidation:rule="self != 'none'",message="channel must name a release channel; \"none\" is reserved"
	Channel string `json:"channel,omitempty"`

	// version pins the module to this version (semantic versioning 2.0.0, without a leading v), regardless of the
	// channels. If version is empty, the module follows its channel. Only one of channel and version may be set.
	// Clients of the original Kyma API do not know the field version, and drop it when they write the whole object.
	// +optional
	// +kubebuilder:validation:Pattern:=`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`
	// +kubebuilder:validation:MaxLength:=128
	Version string `json:"version,omitempty"`

	// remoteModuleTemplateRef is kept so that old objects stay valid. Deprecated: the field remoteModuleTemplateRef has
	// no effect.
	// +optional
	RemoteModuleTemplateRef string `json:"remoteModuleTemplateRef,omitempty"`

	// controller is kept so that old objects stay valid. The field controller has no effect.
	// +optional
	Controller string `json:"controller,omitempty"`

	// customResourcePolicy defines the handling of the default custom resource of the module. CreateAndDelete creates
	// the default custom resource with the module, and deletes it before the module is uninstalled; Ignore leaves the
	// default custom resource to the user.
	// +optional
	// +kubebuilder:default:=CreateAndDelete
	CustomResourcePolicy CustomResourcePolicy `json:"customResourcePolicy,omitempty"`

	// managed defines whether the module is reconciled. If managed is false, the installed objects stay unchanged: they
	// are neither updated nor repaired nor removed until managed is true again.
	// +optional
	// +kubebuilder:default:=true
	Managed *bool `json:"managed,omitempty"`
}

// KymaStatus is the observed state of a Kyma and its modules.
type KymaStatus struct {
	// observedGeneration is the metadata.generation of the Kyma that this status belongs to. If observedGeneration is
	// 0, the generation is not known. The original Kyma API does not have the field observedGeneration. In a runtime,
	// observedGeneration is the generation of the Kyma in the runtime.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// state is the worst state of all modules and conditions. If state is empty, the Kyma was not reconciled yet.
	// +optional
	State State `json:"state,omitempty"`

	// activeChannel is the spec.channel with which the state last became Ready or Warning. If activeChannel is empty,
	// the state has not become Ready or Warning yet.
	// +optional
	ActiveChannel string `json:"activeChannel,omitempty"`

	// modulesReady is the number of modules that are Ready or Unmanaged, a slash, and the number of all modules, for
	// example 3/4. kubectl get kyma shows this field as a column. If modulesReady is empty, the Kyma was not reconciled
	// yet. The original Kyma API does not have the field modulesReady.
	// +optional
	ModulesReady string `json:"modulesReady,omitempty"`

	// summary lists the modules with their version, their channel, their state if it is not Ready, and the code of
	// their problem, for example "keda@2.1.0 (fast), sample@1.0.0 (regular, Error, WorkloadFailed)". kubectl get kyma
	// shows this field as a column. The text of summary has at most 1,024 characters. If this is not enough for all
	// modules, the text ends with the number of the omitted modules, for example "and 3 more". The manager writes
	// summary only together with other changes of the status. If summary is empty, there are no modules, or the status
	// has not changed since the manager was upgraded to a release with this field. The original Kyma API does not have
	// the field summary.
	// +optional
	// +kubebuilder:validation:MaxLength:=1024
	Summary string `json:"summary,omitempty"`

	// conditions report the result of each part of the reconciliation, one of each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// modules has an entry for each module that is requested or not yet uninstalled, ordered by name.
	// +optional
	// +listType=atomic
	Modules []ModuleStatus `json:"modules,omitempty"`

	// catalogDigest is the digest of the catalog copy in the runtime, with at most 128 characters. catalogDigest is set
	// only in the runtime. If catalogDigest is empty, the manager lists the objects of the catalog copy before it
	// changes them. The original Kyma API does not have the field catalogDigest.
	// +optional
	// +kubebuilder:validation:MaxLength:=128
	CatalogDigest string `json:"catalogDigest,omitempty"`

	// mandatoryModules has an entry for each mandatory module that is installed, ordered by name. A control plane that
	// was restored from a backup reads mandatoryModules in the runtime, to find out which versions the runtime has. The
	// original Kyma API does not have the field mandatoryModules.
	// +optional
	// +listType=atomic
	MandatoryModules []MandatoryModuleStatus `json:"mandatoryModules,omitempty"`

	// lastOperation describes the last operation or finding.
	// +optional
	LastOperation LastOperation `json:"lastOperation,omitzero"`

	// clusterID identifies the cluster of the runtime: it is the UID of the Namespace kube-system in this cluster. If
	// the kubeconfig in the access Secret leads to a cluster whose Namespace kube-system has another UID than
	// clusterID, the manager changes nothing in that cluster. If clusterID is empty, the cluster is not known. The
	// original Kyma API does not have clusterID. Only the Kyma in the control plane has clusterID, not the Kyma in the
	// runtime.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`

	// kubernetesVersion is the version of Kubernetes that the API server of the runtime reports, such as v1.34.2. The
	// manager reads the Kubernetes version when it connects to the runtime, and after that at most once an hour. If
	// kubernetesVersion is empty, the version of Kubernetes is not known. The original Kyma API does not have
	// kubernetesVersion, and only the Kyma in the control plane has it.
	// +optional
	// +kubebuilder:validation:MaxLength:=32
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// agent is the status of the agent that reports changes in the runtime. If agent is absent, either no agent is
	// installed or the watcher is disabled. The original Kyma API does not have the field agent; only a Kyma in the
	// control plane has it.
	// +optional
	Agent *AgentStatus `json:"agent,omitempty"`
}

// AgentStatus is the status of the agent in a runtime. The condition SKRWebhook of the Kyma describes the status of the
// agent in a message for users.
type AgentStatus struct {
	// digest identifies the objects of the agent that were delivered to the runtime, without the certificate. If digest
	// is empty, not all objects of the agent exist yet.
	// +optional
	Digest string `json:"digest,omitempty"`

	// version is the version of the connected agent. If version is empty, the agent was never connected.
	// +optional
	Version string `json:"version,omitempty"`

	// heard is true while the agent is connected and sends heartbeats, so that the runtime need not be polled.
	Connected bool `json:"heard"`

	// since is the time at which the value of the field heard last changed.
	// +optional
	Since metav1.Time `json:"since,omitzero"`

	// lastHeartbeat is the time of the last heartbeat before the agent was disconnected. lastHeartbeat is absent while
	// the agent is connected; in this time, only a metric has the time of the last heartbeat.
	// +optional
	LastHeartbeat metav1.Time `json:"lastHeartbeat,omitzero"`

	// sequence is the number of the last event that was received before the agent was disconnected. sequence is zero
	// while the agent is connected.
	// +optional
	Sequence int64 `json:"sequence,omitempty"`

	// reason is the code of the problem, for programs, for example AgentSilent. If reason is empty, there is no
	// problem.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message describes the problem and what to do, for users. If message is empty, there is no problem.
	// +optional
	Message string `json:"message,omitempty"`

	// certificate is the certificate that was delivered last. If certificate is absent, no certificate was delivered
	// yet.
	// +optional
	Certificate *AgentCertificate `json:"certificate,omitempty"`

	// synced are the objects of the agent that were delivered to the runtime, in the order of their delivery. The
	// objects in synced are removed with the Kyma.
	// +optional
	// +listType=atomic
	Synced []Resource `json:"synced,omitempty"`
}

// AgentCertificate describes the client certificate of a runtime. The private key of the certificate exists in the
// runtime only.
type AgentCertificate struct {
	// serial is the serial number in hexadecimal digits.
	Serial string `json:"serial"`

	// issued is the time at which the certificate was issued.
	Issued metav1.Time `json:"issued"`

	// notAfter is the time at which the certificate expires. A new certificate is delivered before notAfter.
	NotAfter metav1.Time `json:"notAfter"`

	// root is the fingerprint of the root certificate that signed this certificate.
	Root string `json:"root"`

	// bundle is the digest of the root certificates that the runtime was configured to trust.
	Bundle string `json:"bundle"`

	// names is the digest of the names in the certificate that come from the Kyma: the runtime ID, or the name of the
	// Kyma, and the annotation skr-domain. If one of them changes, a new certificate is delivered. If names is empty,
	// the names of the certificate were not recorded.
	// +optional
	Names string `json:"names,omitempty"`

	// seen is the fingerprint of the root that signed the certificate of the agent's last heartbeat. The agent trusts a
	// listener if the certificate of the listener was signed by the root in the field seen, or by an older root. If
	// seen is empty, the agent has sent no heartbeat yet.
	// +optional
	RootInUse string `json:"seen,omitempty"`
}

// MandatoryModuleStatus is the version of one mandatory module in a runtime. The state of a mandatory module is in its
// Manifest.
type MandatoryModuleStatus struct {
	// name is the name of the module.
	Name string `json:"name"`

	// version is the version that is installed, or that is being installed for the first time.
	Version string `json:"version"`

	// ocmComponentName is the name of the OCM component that the module comes from. If ocmComponentName is empty, the
	// component is not known.
	// +optional
	OCMComponentName string `json:"ocmComponentName,omitempty"`

	// resource refers to the custom resource that the module creates and deletes. If resource is absent, the module has
	// no such custom resource.
	// +optional
	Resource *ObjectReference `json:"resource,omitempty"`

	// lastChange is the last change of the version. If lastChange is absent, the version has not changed since the
	// manager began to record changes.
	// +optional
	LastChange *ModuleChange `json:"lastChange,omitempty"`
}

// ModuleStatus is the observed state of one module of a runtime. All fields of a ModuleStatus are from the same
// reconcile.
type ModuleStatus struct {
	// name is the name of the module.
	Name string `json:"name"`

	// fqdn is a copy of ocmComponentName. Deprecated: read ocmComponentName.
	// +optional
	FQDN string `json:"fqdn,omitempty"`

	// ocmComponentName is the name of the OCM component that the module comes from. If ocmComponentName is empty, the
	// component is not known.
	// +optional
	OCMComponentName string `json:"ocmComponentName,omitempty"`

	// channel is the release channel that the module follows. If channel is empty, the module is pinned to a version.
	// +optional
	Channel string `json:"channel,omitempty"`

	// version is the version that is installed. If version is empty, no version is installed yet.
	// +optional
	Version string `json:"version,omitempty"`

	// message describes the problem and what to do, for users. If message is empty, there is no problem.
	// +optional
	Message string `json:"message,omitempty"`

	// reason is the code of the problem, for programs, for example VersionNotFound. If reason is empty, there is no
	// problem. The original Kyma API does not have the field reason.
	// +optional
	Reason string `json:"reason,omitempty"`

	// state is the state of the module.
	State State `json:"state"`

	// manifest refers to the Manifest in the control plane. If manifest is empty, the module has no Manifest.
	// +optional
	Manifest *ObjectReference `json:"manifest,omitempty"`

	// resource refers to the default custom resource in the runtime. If resource is empty, there is no default custom
	// resource, or the user maintains it.
	// +optional
	Resource *ObjectReference `json:"resource,omitempty"`

	// template refers to the ModuleTemplate of the version. If template is empty, the ModuleTemplate is not known.
	// +optional
	Template *ObjectReference `json:"template,omitempty"`

	// maintenance is true while an update of the module waits for the next maintenance window.
	// +optional
	// +kubebuilder:default:=false
	Maintenance bool `json:"maintenance,omitempty"`

	// history are the last changes of the version of the module, the oldest first, at most ten. If history is empty,
	// the version has not changed since the manager began to record changes. The original Kyma API does not have the
	// field history.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems:=10
	History []ModuleChange `json:"history,omitempty"`
}

// ModuleChange is a change of the version of a module.
type ModuleChange struct {
	// version is the version that the change installs. If version is empty, the version is not known.
	// +optional
	Version string `json:"version,omitempty"`

	// from is the version that was installed before. If the field "from" is empty, no version was installed before.
	// +optional
	From string `json:"from,omitempty"`

	// started is the time at which the change began. If started is absent, the version was installed before changes
	// were recorded.
	// +optional
	Started metav1.Time `json:"started,omitzero"`

	// ended is the time at which the module first became Ready or Warning with the version. If ended is absent, the
	// module has not become Ready or Warning yet.
	// +optional
	Ended metav1.Time `json:"ended,omitzero"`

	// outcome is the last of the states Ready, Warning and Error that the module had with the version. If outcome is
	// empty, the module has had none of these states with the version yet.
	// +optional
	Outcome State `json:"outcome,omitempty"`

	// reason is the code of the problem while the outcome is Error, for example WorkloadFailed.
	// +optional
	Reason string `json:"reason,omitempty"`
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

	// namespace is the namespace of the object. If namespace is empty, the object is cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// generation is the observed metadata.generation. If generation is 0, the generation is not known.
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

// Module returns the entry of spec.modules with this name, or nil if the Kyma does not request the module. The returned
// pointer points into the Kyma.
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

// ModuleStatus returns the status of the module with this name, or nil if there is none. The returned pointer points
// into the Kyma.
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

// ModuleChannelOrDefault returns the release channel that the module with this name follows: the channel of the module,
// else the channel of the Kyma, else DefaultChannel. ModuleChannelOrDefault also returns a channel for a module that
// the Kyma does not request, or whose version the Kyma pins.
func (k *Kyma) ModuleChannelOrDefault(name string) string {
	if module := k.Module(name); module != nil && module.Channel != "" {
		return module.Channel
	}
	if k != nil && k.Spec.Channel != "" {
		return k.Spec.Channel
	}
	return DefaultChannel
}

// AnnotationAllowsDeletingCRs reports whether the annotation AnnotationDeleteCustomResources names a module.
func (k *Kyma) AnnotationAllowsDeletingCRs(module string) bool {
	if k == nil {
		return false
	}
	for name := range strings.SplitSeq(k.Annotations[AnnotationDeleteCustomResources], ",") {
		if name = strings.TrimSpace(name); name != "" && (name == module || name == AllModules) {
			return true
		}
	}
	return false
}

// AllowsBeta reports whether the Kyma may have modules that are marked as beta.
func (k *Kyma) AllowsBeta() bool { return k != nil && labelIsTrue(k.Labels, LabelBeta) }

// AllowsInternal reports whether the Kyma may have modules that are marked as internal.
func (k *Kyma) AllowsInternal() bool { return k != nil && labelIsTrue(k.Labels, LabelInternal) }

// SkipsReconciliation reports whether the Kyma has the label that excludes it from reconciliation. The label is
// LabelSkipReconciliation; its value "true" may be in upper or lower case.
func (k *Kyma) SkipsReconciliation() bool {
	return k != nil && labelIsTrue(k.Labels, LabelSkipReconciliation)
}

// IsManaged reports whether the module is reconciled: it is, unless managed is false.
func (m *Module) IsManaged() bool { return m == nil || m.Managed == nil || *m.Managed }

// Policy returns the custom resource policy, CreateAndDelete if none is set.
func (m *Module) Policy() CustomResourcePolicy {
	if m == nil || m.CustomResourcePolicy == "" {
		return CreateAndDelete
	}
	return m.CustomResourcePolicy
}

// IsReadyOrUnmanaged reports whether the module is Ready or Unmanaged.
func (m *ModuleStatus) IsReadyOrUnmanaged() bool {
	return m != nil && (m.State == StateReady || m.State == StateUnmanaged)
}

func labelIsTrue(labels map[string]string, key string) bool {
	return strings.EqualFold(labels[key], ValueTrue)
}
