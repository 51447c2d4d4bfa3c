package v1beta2

// Well-known objects and places.
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

// Finalizers. What each one guards is gone before it is removed.
const (
	// FinalizerKyma keeps a Kyma in the control plane until its modules and all else in the runtime are gone.
	FinalizerKyma = "operator.kyma-project.io/Kyma"
	// FinalizerManifest keeps a Manifest until the objects of its inventory are gone.
	FinalizerManifest = "declarative.kyma-project.io/finalizer"
	// FinalizerLabelRemoval keeps a Manifest until a module that is handed over to the user has lost our labels.
	FinalizerLabelRemoval = "label-removal-finalizer"
	// FinalizerCustomResource keeps a Manifest until its default custom resource is gone.
	FinalizerCustomResource = "resource.kyma-project.io/finalizer"
	// FinalizerMandatoryModule keeps a ModuleReleaseMeta until no runtime has the mandatory module.
	FinalizerMandatoryModule = "operator.kyma-project.io/mandatory-module"
	// FinalizerWatcher keeps a Watcher until its route is gone.
	FinalizerWatcher = "operator.kyma-project.io/watcher"
	// FinalizerPurge was set on Kymas by releases of the reference before 1.21. It is only ever removed.
	FinalizerPurge = "operator.kyma-project.io/purge-finalizer"
)

// Field owners: the names under which we write to API servers.
const (
	// FieldOwner owns the status of Kyma and Watcher, Manifests, and the CRDs and watcher objects in a runtime.
	FieldOwner = "lifecycle-manager"
	// FieldOwnerRuntimeKyma owns the state of the Kyma in a runtime, and the finalizer of the Kyma.
	FieldOwnerRuntimeKyma = "operator.kyma-project.io/lifecycle-manager"
	// FieldOwnerApplier owns the objects of modules in a runtime, and the status of Manifests.
	FieldOwnerApplier = "declarative.kyma-project.io/applier"
	// FieldOwnerCustomResource owns the default custom resources of modules in a runtime.
	FieldOwnerCustomResource = "resource.kyma-project.io/finalizer"
	// FieldOwnerCatalog owns the catalog in a runtime. Only what it owns is removed from there.
	FieldOwnerCatalog = "catalog-sync"
	// FieldOwnerRuntimeContext owns the namespace, and the labels and annotations of the Kyma, in a runtime.
	FieldOwnerRuntimeContext = "kyma-sync-context"
)
