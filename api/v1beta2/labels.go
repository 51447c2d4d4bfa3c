package v1beta2

// ValueTrue is the value of boolean labels and annotations that are set.
const ValueTrue = "true"

// Labels of the group operator.kyma-project.io.
const (
	// LabelKymaName is the name of the Kyma that an access Secret or a Manifest belongs to. Users set the label on the
	// Secret, and Lifecycle Manager sets it on the Manifest.
	LabelKymaName = "operator.kyma-project.io/kyma-name"
	// LabelManagedBy names the manager of an object. The value of LabelManagedBy is ManagedByLifecycleManager on
	// objects in the control plane, and ManagedByKyma on all objects that Lifecycle Manager writes to a runtime.
	LabelManagedBy = "operator.kyma-project.io/managed-by"
	// LabelWatchedBy marks objects of a runtime whose changes are reported. The value of LabelWatchedBy is
	// WatchedByKyma.
	LabelWatchedBy = "operator.kyma-project.io/watched-by"
	// LabelModuleName names the module of a Manifest or ModuleTemplate. On a Secret in the control plane,
	// LabelModuleName names the module that may receive the data of the Secret.
	LabelModuleName = "operator.kyma-project.io/module-name"
	// LabelChannel is the release channel of a Manifest. Mandatory and pinned modules do not have LabelChannel.
	LabelChannel = "operator.kyma-project.io/channel"
	// LabelControllerName is copied from a ModuleTemplate to its Manifests, for information.
	LabelControllerName = "operator.kyma-project.io/controller-name"
	// LabelMandatoryModule marks the Manifests of mandatory modules with ValueTrue.
	LabelMandatoryModule = "operator.kyma-project.io/mandatory-module"
	// LabelTarget is TargetControlPlane on a Manifest whose objects are in the control plane. Manifests with objects in
	// runtimes do not have LabelTarget. The original Kyma API does not have LabelTarget.
	LabelTarget = "operator.kyma-project.io/target"
	// LabelSkipReconciliation with ValueTrue excludes a Kyma or Manifest from reconciliation. Users set it.
	LabelSkipReconciliation = "operator.kyma-project.io/skip-reconciliation"
	// LabelInternal with ValueTrue marks a ModuleTemplate as internal, or allows a Kyma to have internal modules.
	LabelInternal = "operator.kyma-project.io/internal"
	// LabelBeta with ValueTrue marks a ModuleTemplate as beta, or allows a Kyma to have beta modules.
	LabelBeta = "operator.kyma-project.io/beta"
	// LabelCatalogHash on ModuleTemplates and ModuleReleaseMetas in a runtime is a hash of the content that Lifecycle
	// Manager wrote. The original Kyma API does not have LabelCatalogHash.
	LabelCatalogHash = "operator.kyma-project.io/catalog-hash"
	// LabelTombstone with ValueTrue marks ConfigMaps in the control plane that list the objects left in a runtime by a
	// deletion that was given up. The original Kyma API does not have LabelTombstone.
	LabelTombstone = "operator.kyma-project.io/tombstone"
	// LabelShard is the shard, 0 to 63, of the runtime of a Kyma or Manifest. LabelShard is set if several replicas of
	// the manager share the work. The original Kyma API does not have LabelShard.
	LabelShard = "operator.kyma-project.io/shard"
	// LabelLease is the kind of a Lease of the manager: LeaseOfReplica or LeaseOfShard. The original Kyma API does not
	// have LabelLease.
	LabelLease = "operator.kyma-project.io/lease"
	// LabelVersion on the Lease of leader election, and on the Lease of a replica, is the version of the manager that
	// renews it. The manager writes LabelVersion when it renews the Lease. The original Kyma API does not have
	// LabelVersion.
	LabelVersion = "operator.kyma-project.io/version"
	// LabelPurpose is the purpose of a Secret. See PurposeWatcherCertificate.
	LabelPurpose = "operator.kyma-project.io/purpose"
	// LabelWatcherGateway is the label by which Watchers usually select Istio gateways. The value of
	// LabelWatcherGateway is WatcherGatewayDefault.
	LabelWatcherGateway = "operator.kyma-project.io/watcher-gateway"
	// LabelPodRestartTrigger in a pod template changes with the certificate, so that the pods are restarted.
	LabelPodRestartTrigger = "operator.kyma-project.io/pod-restart-trigger"
)

// Values of the labels above.
const (
	// ManagedByLifecycleManager is the value of LabelManagedBy in the control plane. Kymas without
	// ManagedByLifecycleManager are not reconciled.
	ManagedByLifecycleManager = "lifecycle-manager"
	// ManagedByKyma is the value of LabelManagedBy in a runtime.
	ManagedByKyma = "kyma"
	// WatchedByKyma is the value of LabelWatchedBy.
	WatchedByKyma = "kyma"
	// PurposeWatcherCertificate is the LabelPurpose of the Secrets with certificates of the watcher.
	PurposeWatcherCertificate = "klm-watcher-cert-manager"
	// LeaseOfReplica and LeaseOfShard are the values of LabelLease.
	LeaseOfReplica = "replica"
	LeaseOfShard   = "shard"
	// WatcherGatewayDefault is the value of LabelWatcherGateway.
	WatcherGatewayDefault = "default"
)

// LeaderLease is the name of the Lease of leader election, in the namespace of the manager. The lifecycle-manager of
// the Kyma project uses a Lease with the same name, so that the two managers never reconcile at the same time.
const LeaderLease = "893110f7.kyma-project.io"

// Labels that describe a runtime. The component that creates Kymas sets the labels that describe a runtime.
const (
	// LabelRuntimeID on a Kyma is the ID of the runtime. The certificate of the agent contains this ID as its name. The
	// manager copies LabelRuntimeID from the Kyma in the control plane to the Kyma in the runtime.
	LabelRuntimeID = "kyma-project.io/runtime-id"
	// LabelGlobalAccountID is a label that the manager copies from the Kyma in the control plane to the Kyma in the
	// runtime, and that maintenance policies match.
	LabelGlobalAccountID = "kyma-project.io/global-account-id"
	// LabelSubaccountID is a label that the manager copies from the Kyma in the control plane to the Kyma in the
	// runtime.
	LabelSubaccountID = "kyma-project.io/subaccount-id"
	// LabelRegion is matched by maintenance policies.
	LabelRegion = "kyma-project.io/region"
	// LabelPlatformRegion is matched by maintenance policies.
	LabelPlatformRegion = "kyma-project.io/platform-region"
	// LabelBrokerPlanName is the plan of the runtime; the rules of a maintenance policy can match the plan.
	LabelBrokerPlanName = "kyma-project.io/broker-plan-name"
	// LabelProvider is the cloud provider of the runtime, for example AWS. CEL expressions for the risks of a version
	// (spec.upgrade.risks of a ModuleTemplate) can use the cloud provider.
	LabelProvider = "kyma-project.io/provider"
	// LabelInstanceID appears in metrics.
	LabelInstanceID = "kyma-project.io/instance-id"
)

// Labels of other projects that Lifecycle Manager sets on objects in a runtime.
const (
	// LabelIstioInjection on the namespace of a runtime has the value IstioInjectionEnabled.
	LabelIstioInjection = "istio-injection"
	// IstioInjectionEnabled is the value of LabelIstioInjection.
	IstioInjectionEnabled = "enabled"
	// LabelWardenValidate is set on the namespace kyma-system of a runtime, with the value WardenValidateEnabled.
	LabelWardenValidate = "namespaces.warden.kyma-project.io/validate"
	// WardenValidateEnabled is the value of LabelWardenValidate.
	WardenValidateEnabled = "enabled"
	// LabelAppComponent on the objects of a module is the name of its Manifest.
	LabelAppComponent = "app.kubernetes.io/component"
	// LabelAppPartOf on the objects of a module has the value PartOfKyma.
	LabelAppPartOf = "app.kubernetes.io/part-of"
	// PartOfKyma is the value of LabelAppPartOf.
	PartOfKyma = "Kyma"
)
