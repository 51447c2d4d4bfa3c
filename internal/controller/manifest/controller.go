// Package manifest reconciles Manifests. A Manifest is one version of one module on one runtime.
//
// # Use
//
//	r, err := manifest.New(manifest.Options{…})
//	err = r.Register(mgr)
//
// # How it works
//
// A Manifest is installed, deleted, handed over to the user, or restored (package reclaim). [run.reconcile] has the
// list of steps for each of them.
//
// An installation first resolves the sources of the module (package source). The installation then computes the digest
// of all inputs that determine the objects in the runtime (plan.go). If the status shows this digest as applied, and
// the runtime has reported no change, the reconcile ends without a request. If the digest of the inputs differs from
// the applied digest, or the runtime has reported a change, the sources are verified and rendered. After the rendering,
// the inventory is saved in the status. After the inventory has been saved, the objects are applied, one source after
// the other. After all objects have been applied, the custom resource of the module is created. After the custom
// resource has been created, the objects that only the former version contained are deleted. At the end, the reconcile
// reads the readiness of the module.
//
// A slow source blocks no worker. A reconcile waits for a source for at most two seconds; the next reconcile uses the
// answer of the source.
//
// Between reconciles, the controller keeps the requests to the runtime and their results in memory, for each Manifest.
// An object is therefore sent once per change, and events caused by own writes are recognized. If a restart loses the
// requests and results in memory, the controller sends more requests, but the content of the runtime becomes the same.
//
// # What it does not do
//
// No step blocks a worker until a runtime is ready. The status reports unfinished work, and a later reconcile reads the
// runtime again. The deletion of a module needs only the inventory, and neither registry nor template.
package manifest

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/budget"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/condition"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/inventory"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/reclaim"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/source"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/target"
	"github.com/kyma-fleet/lifecycle-manager/internal/customresource"
	"github.com/kyma-fleet/lifecycle-manager/internal/dedup"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/retry"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Options configure the controller.
type Options struct {
	// Client reads from a cache that includes the writes of this process.
	Client client.Client
	// Runtimes connects to runtimes.
	Runtimes *runtimes.Pool
	// VerifyOwner verifies that a runtime still belongs to a Kyma, before objects are deleted there. If the runtime
	// belongs to another owner, the error of VerifyOwner fulfils runtimes.IsRuntimeRefused. If VerifyOwner is nil, the
	// owner is verified only by the pool.
	VerifyOwner func(ctx context.Context, kyma types.NamespacedName, rt *runtimes.Runtime) error
	// ControlPlane is the cluster on which modules with target control-plane are installed. If ControlPlane is not set,
	// no module can be installed on the control plane.
	ControlPlane target.ControlPlane
	// Registry reads artefacts.
	Registry *registry.Registry
	// Secrets is the reader without a cache for the credentials Secrets that Manifests select. If Shards is set, it
	// also reads the Manifests of modules on the control plane.
	Secrets client.Reader
	// InjectData allows one module, which the constant source.InjectionModule names, to receive data of Secrets of the
	// control plane.
	InjectData bool
	// Saves limits the rate at which all controllers together patch the statuses of each runtime. If the field Saves is
	// nil, the rate has no limit.
	Saves *budget.Budget
	// Events records Kubernetes events. If Events is nil, no events are recorded.
	Events events.EventRecorder
	// LocalSources is a folder. Manifests may use subfolders of this folder as sources of type kustomize. "" means that
	// no local sources are allowed.
	LocalSources string
	// PullSecret is the name of the image pull Secret for the workloads of modules. "" means that they get none.
	PullSecret string
	// CustomStateCheck applies to Manifests without the annotation of the same name. If CustomStateCheck is true, the
	// state of the module's custom resource decides whether the module is ready.
	CustomStateCheck bool
	// Adoption is what happens by default to objects that exist in a runtime and were created by another client. ""
	// means apply.Adopt.
	Adoption apply.Adoption
	// BundleBytes is the memory limit for rendered modules, in bytes; 0 means render.DefaultCacheBytes.
	BundleBytes int
	// AuditInterval is the interval at which every object is compared with its desired state. The audits of all
	// Manifests are spread over this interval.
	AuditInterval time.Duration
	// WatchedAuditInterval is the audit interval for runtimes that report all changes. 0 means AuditInterval.
	WatchedAuditInterval time.Duration
	// Urgent is the set of runtimes for which a person waits. All controllers share one set. Urgent is required.
	Urgent *queueing.Urgent
	// Concurrency is the number of Manifests that are reconciled at the same time.
	Concurrency int
	// RateLimiter delays the retries after an error.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
	// Shards determines for which runtimes this replica is responsible. If Shards is nil, the replica is responsible
	// for all runtimes.
	Shards *shard.Keeper
	// After is called after each step, see loop.Options. In production After is nil.
	After func(step string)
}

// Reconciler reconciles Manifests.
type Reconciler struct {
	Options
	trigger  queueing.Trigger // enqueues Manifests for events from runtimes
	sources  *source.Finder
	bundles  source.Renderer
	states   apply.StateEvaluator
	shared   dedup.Values // interests and inventories, shared by all Manifests with equal ones
	memories loop.Memory[types.NamespacedName, memory]
	retries  retry.Requests
}

// New checks the options and returns a Reconciler.
func New(o Options) (*Reconciler, error) {
	if o.Client == nil || o.Runtimes == nil || o.Registry == nil || o.Secrets == nil ||
		o.Urgent == nil || o.AuditInterval <= 0 {
		return nil, fmt.Errorf(
			"making the Manifest controller: options need Client, Runtimes, Registry, Secrets, Urgent and " +
				"AuditInterval")
	}
	return &Reconciler{
		Options: o,
		sources: source.NewFinder(source.Options{Registry: o.Registry, Secrets: o.Secrets,
			LocalSources: o.LocalSources, InjectData: o.InjectData}),
		bundles: source.Renderer{Bundles: render.Cache{MaxBytes: o.BundleBytes}},
	}, nil
}

// Register adds the controller to a manager.
func (r *Reconciler) Register(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Watches(&v1beta2.Manifest{}, r.Urgent.ManifestHandlerByPriorityClass(),
			builder.WithPredicates(loop.SpecLabelsOrAnnotationsChanged(v1beta2.AnnotationSyncOCIRef,
				v1beta2.AnnotationRetry))).
		Watches(&v1beta2.Manifest{}, r.retries.Handler(r.markForRequestedRetry)).
		Watches(&v1beta2.Kyma{}, r.retries.Handler(r.markForRequestedRetry)).
		WatchesRawSource(r.trigger.Source()).
		Named("manifest").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency, RateLimiter: r.RateLimiter}).
		Complete(r)
}

// run is one reconcile of one Manifest.
type run struct {
	*Reconciler
	manifest *v1beta2.Manifest // as read from the control plane; only report.go changes its status
	cluster  target.Cluster    // the cluster of the objects: the runtime, or the control plane
	memory   *memory           // memory of this Manifest; used by one reconcile at a time
	runtime  *runtimes.Runtime // set by connect or reach; nil if no request to the runtime is needed
	plan     plan              // set by decide
	changes  changes           // set by decide, which takes them from the memory
	rendered *rendered         // set by render; nil if no object has to be applied or compared
	// refs is set by record: the objects that the runtime should have. If rendered is nil, refs are the objects of the
	// inventory.
	refs     []apply.Ref
	pruned   pruned   // set by prune
	recorded bool     // set by record: the inventory has to be saved
	observed observed // set by apply, createModuleCR, the steps of a deletion, and observe
}

// rendered is the content of all sources, ready to be applied.
type rendered struct {
	sets       []apply.Set           // one for each source of the plan
	refs       [][]apply.Ref         // set by resolveRefs: the objects of each set
	unresolved error                 // set by resolveRefs: why objects of the sets are not in refs, or nil
	signatures []condition.Signature // of all artefacts
}

// pruned is the result of prune.
type pruned struct {
	complete bool // all objects are applied, and all objects that they replace are deleted
	// kept are objects that are in no set any more, and stay in the inventory: objects that are never deleted, and
	// namespaces in which objects of the new version are.
	kept []apply.Ref
}

// moduleResource is the module's custom resource as it was read from the runtime; object is nil if the custom resource
// does not exist.
type moduleResource struct{ object *unstructured.Unstructured }

// observed has what the steps of a reconcile have observed in the runtime.
type observed struct {
	readiness    readiness
	workloadSent bool   // a workload was applied in this reconcile, so it cannot be ready
	blocked      error  // set by deleteOrAwaitUserCRs and deleteModuleCR: what a deletion waits for
	served       bool   // set by applyOperatorRepair: a version was applied completely during a deletion
	blocker      string // the reason why the reconcile waits; "" if no reason is known
	outage       outage // set by decide and render if the sources cannot be read
	ownerUnknown bool   // set by connectBy: the reconcile waits until the owner of the runtime is verified

	found    customresource.Found // set by deleteOrAwaitUserCRs
	resource *moduleResource      // set by readModuleCR; nil if it was not read in this reconcile
}

// Reconcile reconciles one Manifest. If another replica holds the shard of the Manifest, Reconcile does nothing.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	m := &v1beta2.Manifest{}
	if err := r.Client.Get(ctx, req.NamespacedName, m); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	kyma := m.Labels[v1beta2.LabelKymaName]
	defer func() { result.Priority = r.Urgent.RequeuePriority(kyma) }()
	ctx, leave, ours := r.Shards.BeginReconcile(ctx, kyma)
	defer leave()
	ctx = r.retries.Context(r.Urgent.Context(ctx, kyma), req.NamespacedName)
	if !ours || !r.Shards.HasCorrectShardLabel(m, kyma) {
		r.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if r.Shards != nil { // read again with the context of the shard: this read includes own writes
		if err := r.Client.Get(ctx, req.NamespacedName, m); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err) // the event of its deletion triggers a reconcile
		}
	}
	memory := r.memoryOf(req.NamespacedName, m.UID)
	n := &run{Reconciler: r, manifest: m, cluster: target.Of(m, r.Runtimes, &r.ControlPlane), memory: memory}
	if memory.released && loop.WaitForForeignFinalizers(m, ownFinalizers()) == nil {
		return reconcile.Result{}, nil // the finalizers were removed; the event of the deletion triggers a reconcile
	}
	return n.reconcile(ctx)
}

// peers returns the Manifests whose objects are on the same cluster as those of this Manifest. If Shards is set, the
// cache of this replica lacks the Manifests of other replicas. But other replicas may also have installed modules on
// the control plane. Therefore the Manifests of modules on the control plane are read with the reader in the field
// Secrets.
func (n *run) peers() inventory.Peers {
	if n.cluster.IsControlPlaneTarget() && n.Shards != nil {
		return inventory.Peers{Reader: n.Secrets, Target: n.cluster.Target}
	}
	return inventory.Peers{Reader: n.Client, Target: n.cluster.Target}
}

// reconcile runs the steps of one of five cases: hand over, delete, suspend, restore, or install.
func (n *run) reconcile(ctx context.Context) (reconcile.Result, error) {
	m := n.manifest
	options := loop.Options{Client: n.Client, Controller: "manifest", Object: m, Report: n.report,
		OnPostponed: func() { n.memory.restoreChanges(n.changes) },
		AfterSave:   n.recordChangeEvent, AfterStep: n.After, Saves: n.Saves, Runtime: m.Labels[v1beta2.LabelKymaName]}
	restore := loop.Step{Name: "reclaim", Do: n.restoreInventory, Save: true}
	if n.memory.released {
		n.refs = inventory.Refs(m.Status.Synced)
		return loop.Run(ctx, options, loop.Step{Name: "finalizers", Do: n.awaitForeignFinalizers})
	}
	if m.IsUnmanaged() {
		return loop.Run(ctx, options,
			loop.Step{Name: "connect", Do: n.connectOrRelease},
			restore,
			loop.Step{Name: "handover", Do: n.handOverObjectsToUser},
			loop.Step{Name: "release", Do: n.removeFinalizers})
	}
	if !m.DeletionTimestamp.IsZero() {
		options.DeferSave = n.deferSave
		return loop.Run(ctx, options,
			loop.Step{Name: "connect", Do: n.connectOrRelease},
			restore,
			loop.Step{Name: "blockers", Do: n.deleteOrAwaitUserCRs},
			loop.Step{Name: "resource", Do: n.deleteModuleCR},
			loop.Step{Name: "plan", Do: n.planOperatorRepair, Save: true},
			loop.Step{Name: "operator", Do: n.applyOperatorRepair},
			loop.Step{Name: "teardown", Do: n.deleteInventoryObjects},
			loop.Step{Name: "release", Do: n.removeFinalizers})
	}
	if reason, message := condition.ReasonToSuspend(m); reason != "" {
		options.Report = func(loop.Outcome) { condition.SetSuspended(m, reason, message) }
		return loop.Run(ctx, options)
	}
	if m.IsRestored() {
		return loop.Run(ctx, options, loop.Step{Name: "adopt", Do: n.addFinalizersAndLabel}, restore)
	}
	options.Publish, options.DeferSave = n.annotateAppliedRef, n.deferSave
	if status := n.memory.takeDeferredIfUnchanged(m); status != nil {
		options.Read = m.DeepCopy()
		m.Status = *status.DeepCopy()
		options.OnPostponed = func() {
			n.memory.restoreChanges(n.changes)
			n.memory.deferred = deferred{status, options.Read.GetResourceVersion()}
		}
	}
	return loop.Run(ctx, options,
		loop.Step{Name: "adopt", Do: n.addFinalizersAndLabel},
		loop.Step{Name: "connect", Do: n.connect},
		loop.Step{Name: "decide", Do: n.resolveSourcesAndMakePlan},
		loop.Step{Name: "reach", Do: n.connectIfNeeded},
		loop.Step{Name: "render", Do: n.renderIfNeeded},
		loop.Step{Name: "record", Do: n.recordInventoryBeforeApply, SaveIf: n.isInventoryChanged},
		loop.Step{Name: "apply", Do: n.applyAllOrDrifted},
		loop.Step{Name: "resource", Do: n.createModuleCR},
		loop.Step{Name: "prune", Do: n.prune},
		loop.Step{Name: "observe", Do: n.observeReadiness},
		loop.Step{Name: "audit", Do: n.scheduleAudit})
}

// addFinalizersAndLabel adds our finalizers to the Manifest. The finalizers keep the Manifest until its objects are
// deleted. If the module is installed on the control plane, addFinalizersAndLabel also adds the label with the target.
func (n *run) addFinalizersAndLabel(ctx context.Context) error {
	return loop.PatchMetadata(ctx, n.Client, n.manifest, func(m *metav1.ObjectMeta) {
		loop.AppendFinalizers(m, v1beta2.FinalizerManifest, v1beta2.FinalizerLabelRemoval)
		if n.cluster.IsControlPlaneTarget() { // other Manifests on the control plane find this one by the label
			metav1.SetMetaDataLabel(m, v1beta2.LabelTarget, string(n.cluster.Target))
		}
	})
}

// restoreInventory adds the objects in the runtime to the inventory of a restored Manifest. For a Manifest that was not
// restored, restoreInventory does nothing.
func (n *run) restoreInventory(ctx context.Context) error {
	if !n.manifest.IsRestored() {
		return nil
	}
	n.subscribe()
	if err := n.connectBy(ctx, n.cluster.Get); err != nil {
		return err
	}
	if !n.manifest.IsInventoryReadFromRuntime() {
		found, unlisted, err := reclaim.RestoreInventoryAndVersion(ctx, n.runtime.Cluster, n.manifest)
		if err != nil {
			return err
		}
		if len(unlisted) > 0 {
			n.recordEventOf(corev1.EventTypeWarning, v1beta2.ReasonRuntimeForbidden, reclaim.UnlistedNote(unlisted))
		}
		if found > 0 { // otherwise the module was removed just before the manager stopped
			n.recordEvent(v1beta2.EventInventoryRestored, reclaim.Note(n.manifest, found))
		}
	}
	n.refs = inventory.Refs(n.manifest.Status.Synced)
	n.observed.readiness = readiness{v1beta2.StateWarning, v1beta2.ReasonRestoredOlder, reclaim.Message(n.manifest)}
	return n.subscribeToObjects(ctx)
}

// annotateAppliedRef sets the annotation with the reference of the source that was applied completely. Clients wait for
// the annotation with the ref, to find out when the source is applied. Only sources in a registry have a reference.
func (n *run) annotateAppliedRef(ctx context.Context) error {
	image, err := v1beta2.DecodeImageSpecLeniently(n.manifest.Spec.Install.Source)
	if err != nil || image.Ref == "" || n.plan.digest == "" || n.manifest.Status.AppliedDigest != n.plan.digest ||
		n.manifest.Annotations[v1beta2.AnnotationSyncOCIRef] == image.Ref {
		return nil
	}
	return loop.PatchMetadata(ctx, n.Client, n.manifest, func(m *metav1.ObjectMeta) {
		metav1.SetMetaDataAnnotation(m, v1beta2.AnnotationSyncOCIRef, image.Ref)
	})
}

// connect gets the connection to the runtime from the pool, and sends no request to the runtime. If there is no
// connection, the Manifest is not retried: the pool notifies the controller when the runtime may be reachable again. A
// reconcile of a Manifest that is Ready may need no connection to the runtime. If no connection is open for a Manifest
// that is Ready, the function reach opens one when it is needed.
func (n *run) connect(ctx context.Context) error {
	if err := n.cluster.CheckTarget(n.manifest); err != nil {
		return reconcile.TerminalError(err)
	}
	n.subscribe()
	s := &n.manifest.Status
	if s.State == v1beta2.StateReady && s.AppliedDigest != "" && s.ObservedGeneration == n.manifest.Generation {
		return n.connectBy(ctx, n.cluster.GetIfOpenOrNoAgents)
	}
	return n.connectBy(ctx, n.cluster.Get)
}

// connectIfNeeded opens the connection to the runtime if connect did not open it. connectIfNeeded does nothing if this
// reconcile has no work in the runtime.
func (n *run) connectIfNeeded(ctx context.Context) error {
	if n.runtime != nil || !n.plan.hasWork() && n.isReadyUnchanged(readinessRulesKey(n.manifest, n.CustomStateCheck)) {
		return nil
	}
	return n.connectBy(ctx, n.cluster.Get)
}

// connectBy gets the connection to the runtime with the function get, which is a method of the pool of connections. An
// error with a reason is not retried, because the pool triggers a reconcile when the cause of the error changes. While
// the owner of the runtime is being verified, the Manifest waits and its status stays unchanged.
func (n *run) connectBy(ctx context.Context, get func(context.Context) (*runtimes.Runtime, error)) error {
	rt, err := get(ctx)
	if runtimes.IsOwnerNotVerified(err) {
		n.observed.ownerUnknown = true
		return loop.Later(time.Minute, "the owner of the runtime to be verified")
	}
	if err != nil && loop.Reason(err) != "" {
		return reconcile.TerminalError(err)
	}
	n.runtime = rt
	return err
}

// auditInterval returns the time between two audits of this Manifest. Agents do not report changes of Secrets, so a
// module with a Secret is audited more often.
func (n *run) auditInterval() time.Duration {
	isSecret := func(r v1beta2.Resource) bool { return r.Group == "" && r.Kind == "Secret" }
	if n.WatchedAuditInterval == 0 || !n.cluster.IsWatched() ||
		slices.ContainsFunc(n.manifest.Status.Synced, isSecret) {
		return n.AuditInterval
	}
	return n.WatchedAuditInterval
}

// scheduleAudit requeues the Manifest at the time of its next audit. The time of an audit within the interval is
// derived from the name of the Manifest, so that the audits of different Manifests are spread over the interval.
func (n *run) scheduleAudit(context.Context) error {
	interval := min(n.auditInterval(), n.cluster.PollInterval())
	after := loop.Spread(interval, n.manifest.Namespace+"/"+n.manifest.Name)
	if left, waits := n.memory.ownersTurnLeft(time.Now()); waits {
		after = min(after, left)
	}
	return loop.ContinueAndRequeueAfter(after)
}
