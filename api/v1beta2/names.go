package v1beta2

// Well-known names and namespaces.
const (
	// ControlPlaneNamespace holds the objects of this group, and the access Secrets, in the control plane.
	ControlPlaneNamespace = "kcp-system"
	// RuntimeNamespace holds the Kyma and the catalog in a runtime.
	RuntimeNamespace = "kyma-system"
	// RuntimeKymaName is the name of the Kyma in a runtime.
	RuntimeKymaName = "default"
	// AccessSecretKey is the key in the data of an access Secret that holds the kubeconfig.
	AccessSecretKey = "config"
	// IstioNamespace holds the certificates and Secrets of the watcher in the control plane.
	IstioNamespace = "istio-system"
)

// Finalizers.
const (
	// FinalizerKyma keeps a Kyma in the control plane until its modules and all other delivered objects are removed
	// from the runtime.
	FinalizerKyma = "operator.kyma-project.io/Kyma"
	// FinalizerManifest keeps a Manifest until the objects of its inventory are deleted.
	FinalizerManifest = "declarative.kyma-project.io/finalizer"
	// FinalizerLabelRemoval keeps a Manifest until the labels of Lifecycle Manager are removed from the objects of a
	// module that is handed over to the user.
	FinalizerLabelRemoval = "label-removal-finalizer"
	// FinalizerCustomResource keeps a Manifest until its default custom resource is deleted.
	FinalizerCustomResource = "resource.kyma-project.io/finalizer"
	// FinalizerMandatoryModule keeps a ModuleReleaseMeta until the mandatory module is uninstalled from all runtimes.
	FinalizerMandatoryModule = "operator.kyma-project.io/mandatory-module"
	// FinalizerWatcher keeps a Watcher until its route is deleted.
	FinalizerWatcher = "operator.kyma-project.io/watcher"
	// FinalizerPurge was set on Kymas by Kyma's lifecycle-manager before 1.21. Lifecycle Manager only removes
	// FinalizerPurge, and never adds it.
	FinalizerPurge = "operator.kyma-project.io/purge-finalizer"
)

// Field managers: the names under which Lifecycle Manager writes to API servers.
const (
	// FieldOwner owns the status of Kyma and Watcher, Manifests, and the CRDs and watcher objects in a runtime.
	FieldOwner = "lifecycle-manager"
	// FieldOwnerRuntimeKyma owns the state of the Kyma in a runtime, and the finalizer of the Kyma.
	FieldOwnerRuntimeKyma = "operator.kyma-project.io/lifecycle-manager"
	// FieldOwnerApplier owns the objects of modules in a runtime, and the status of Manifests.
	FieldOwnerApplier = "declarative.kyma-project.io/applier"
	// FieldOwnerCustomResource owns the default custom resources of modules in a runtime.
	FieldOwnerCustomResource = "resource.kyma-project.io/finalizer"
	// FieldOwnerPromotionPrefix, followed by the name of a channel, owns the version of a channel that was promoted.
	FieldOwnerPromotionPrefix = "lifecycle-manager-promotion-"
	// FieldOwnerClient owns the fields that klm writes for a person.
	FieldOwnerClient = "klm"
	// FieldOwnerCatalog owns the catalog copy in a runtime. Only objects of FieldOwnerCatalog are removed from the
	// catalog copy.
	FieldOwnerCatalog = "catalog-sync"
	// FieldOwnerRuntimeContext owns the namespace, and the labels and annotations of the Kyma, in a runtime.
	FieldOwnerRuntimeContext = "kyma-sync-context"
)
