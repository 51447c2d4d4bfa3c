package v1beta2

// Annotations that have a meaning.
const (
	// AnnotationSKRDomain on a Kyma is the DNS name of the runtime. It is in the certificate of the watcher, and its first
	// part appears in metrics. Whoever creates Kymas sets it.
	AnnotationSKRDomain = "skr-domain"
	// AnnotationOCMComponentName on a Manifest is the name of the OCM component it comes from.
	AnnotationOCMComponentName = "operator.kyma-project.io/ocm-component-name"
	// AnnotationFQDN on a Manifest has the value of AnnotationOCMComponentName, for older clients.
	AnnotationFQDN = "operator.kyma-project.io/fqdn"
	// AnnotationIsUnmanaged with ValueTrue on a Manifest says that the module is handed over to the user.
	AnnotationIsUnmanaged = "operator.kyma-project.io/is-unmanaged"
	// AnnotationSyncOCIRef on a Manifest is the ref of the source that was applied completely, as the reference records it. While a new Manifest
	// has not been Ready yet, it may be the ref that is being applied, if the artefact is known to be good.
	AnnotationSyncOCIRef = "sync-oci-ref"
	// AnnotationIsClusterScoped with ValueTrue on a ModuleTemplate says that its default custom resource is cluster-scoped.
	AnnotationIsClusterScoped = "operator.kyma-project.io/is-cluster-scoped"
	// AnnotationOwnedBy on the Kyma and the objects of modules in a runtime is the namespace/name of the owner in the
	// control plane: the Kyma, or the Manifest.
	AnnotationOwnedBy = "deprecated-operator.kyma-project.io/owned-by"
	// AnnotationBaseObjectsDigest is on the Kyma in a runtime: the digest of what the runtime got before its first module (namespace,
	// CRDs). Ours; the reference does not have it.
	AnnotationBaseObjectsDigest = "operator.kyma-project.io/base-digest"
	// AnnotationCatalogDigest is on the Kyma in a runtime: the digest of the catalog that the runtime got. Ours; the reference does not
	// have it.
	AnnotationCatalogDigest = "operator.kyma-project.io/catalog-digest"
	// AnnotationLastRequest is on the Kyma in the control plane: channel and modules that the Kyma in the runtime asked for last, as JSON,
	// if they are not those of the Kyma in the control plane. With it the Kyma in the runtime is restored when it was deleted. Ours;
	// the reference does not have it.
	AnnotationLastRequest = "operator.kyma-project.io/last-wish"
	// AnnotationStartOver with ValueTrue on the Kyma in a runtime says that it is not restored when it is deleted, but created from the
	// one in the control plane. Ours; the reference does not have it.
	AnnotationStartOver = "operator.kyma-project.io/start-over"
	// AnnotationDisclaimer on the objects of modules in a runtime tells people not to edit them. Its value is Disclaimer.
	AnnotationDisclaimer = "operator.kyma-project.io/managed-by-reconciler-disclaimer"
	// AnnotationDrift on a Manifest with DriftReport says that what others change in the module's objects is told and left alone.
	// Without it, it is put right.
	AnnotationDrift = "operator.kyma-project.io/drift"
	// AnnotationCustomStateCheck on a Manifest says whether the state of the module's custom resource counts: "true" or "false". Without it
	// the manager's flag --custom-state-check decides.
	AnnotationCustomStateCheck = "operator.kyma-project.io/custom-state-check"
	// AnnotationInjectData with ValueTrue on a Secret of a module says that its data comes from the control plane.
	AnnotationInjectData = "operator.kyma-project.io/inject-data-from-kcp"
	// AnnotationPaused on a Kyma pauses its runtime: nothing but deletion proceeds until the annotation is gone. Its value is the
	// reason, for people; "false" means not paused. On the Kyma in the control plane it counts for all modules, on the one in
	// the runtime for those that were asked for, not for mandatory ones. The Manifests that it concerns carry it too, with a sentence
	// that says who paused them. Ours; the reference does not have it.
	AnnotationPaused = "operator.kyma-project.io/paused"
	// AnnotationPausedModulePrefix, followed by the name of a module, is AnnotationPaused for this module alone.
	AnnotationPausedModulePrefix = "paused.operator.kyma-project.io/"
	// AnnotationRequestedVersion on a Manifest is the version that its Kyma has led to: spec.version, unless somebody has edited that. Ours;
	// the reference does not have it.
	AnnotationRequestedVersion = "operator.kyma-project.io/ordered-version"
	// AnnotationPurged is on a Manifest that is being deleted, and from whose module the purge has taken what nobody serves any more,
	// such as a webhook that blocked it. Its value names what was taken last, for people. The operator of such a module is not looked
	// after any more. Ours; the reference does not have it.
	AnnotationPurged = "operator.kyma-project.io/purged"
	// AnnotationDeletionGivenUp is on a Kyma whose runtime could not be worked on until the end of --deletion-deadline, and on its Manifests: they are
	// let go, and the runtime is left as it is. Its value is the name of the tombstone, a ConfigMap that says what is left there. It is not
	// to be taken back. Ours; the reference does not have it.
	AnnotationDeletionGivenUp = "operator.kyma-project.io/given-up"
	// AnnotationAllowDowngrade on a Kyma, in the control plane or the runtime, names the modules that may go to a lower version,
	// separated by commas; DowngradeAll is all. On the ModuleReleaseMeta of a mandatory module ValueTrue allows it to every
	// runtime; for mandatory modules only the Kyma in the control plane counts. It is for as long as it is there. Ours; the
	// reference does not have it.
	AnnotationAllowDowngrade = "operator.kyma-project.io/allow-downgrade"
	// AnnotationCAAddedAt on the Secret of the gateway is when the newest CA was added to its bundle (RFC 3339).
	AnnotationCAAddedAt = "caAddedToBundleAt"
	// AnnotationCertificatesNotBefore on a Kyma in the control plane is a time (RFC 3339). Certificates that were issued to the runtime
	// before it are revoked, and replaced. A time in the future counts when it has come. Ours; the reference does not have it.
	AnnotationCertificatesNotBefore = "operator.kyma-project.io/certificates-not-before"
	// AnnotationRotateRoot on the Secret with the roots of our own authority asks for a new root, with any value that differs from that of
	// AnnotationRootRotated. People set it. Ours; the reference does not have it.
	AnnotationRotateRoot = "operator.kyma-project.io/rotate"
	// AnnotationRootRotated on that Secret is the value of AnnotationRotateRoot that was done last.
	AnnotationRootRotated = "operator.kyma-project.io/rotated"
	// AnnotationListenerRoot on that Secret is the fingerprint of the root that signs the certificate of the listener, in every replica.
	AnnotationListenerRoot = "operator.kyma-project.io/listener-root"
	// AnnotationListenerRootSince on that Secret is since when it does so (RFC 3339).
	AnnotationListenerRootSince = "operator.kyma-project.io/listener-root-since"
)

// DriftReport is the value of AnnotationDrift that leaves drift alone.
const DriftReport = "report"

// DowngradeAll is the value of AnnotationAllowDowngrade that names every module.
const DowngradeAll = "*"

// Disclaimer is the value of AnnotationDisclaimer.
const Disclaimer = "DO NOT EDIT - This resource is managed by Kyma.\n" +
	"Any modifications are discarded and the resource is reverted to the original state."
