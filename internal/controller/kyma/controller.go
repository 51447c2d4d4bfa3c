// Package kyma reconciles Kymas: the desired modules of one runtime, and the state of these modules.
//
// # Use
//
//	r, err := kyma.New(kyma.Options{…})
//	err = r.Register(ctx, mgr)
//
// # How it works
//
// A reconcile reads the requested modules from the Kyma in the runtime and resolves each module to a version. The
// reconcile creates or updates one Manifest per module, and deletes the Manifests of modules that are no longer
// requested. At the end it writes the status to both copies of the Kyma: in the control plane and in the runtime. The
// steps of installation and deletion are the two lists in [Reconciler.Reconcile].
//
// A reconcile is triggered by a change of one of these: the Kyma in the control plane or in the runtime, a Manifest of
// the Kyma, a release or template that the Kyma uses, the access Secret, the connection to the runtime. See
// triggers.go.
//
// Four parts of the Kyma controller are packages of their own: catalog, agentdelivery, maintenance and versions.
// Package catalog maintains the catalog copy in the runtime. Package agentdelivery delivers the agent to the runtime,
// and keeps it up to date. Package maintenance holds the maintenance policy. Package versions records the content of
// versions.
//
// # What it does not do
//
// The package applies no object of a module: the Manifest controller applies them. The package never changes the spec
// of a Kyma that already exists.
package kyma

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/access"
	"github.com/kyma-fleet/lifecycle-manager/internal/budget"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/agentdelivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/catalog"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/eventlog"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/maintenance"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/runtimekyma"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/versions"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/retry"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Options are the dependencies and settings of the controller.
type Options struct {
	// Client reads from the cache, and its reads include its own writes.
	Client client.Client
	// Runtimes connects to runtimes.
	Runtimes *runtimes.Pool
	// Urgent is the set of runtimes for which a person waits. All controllers share Urgent. Urgent is required.
	Urgent *queueing.Urgent
	// Trigger adds Kymas to the queue of the controller. The caller of New may pass a Trigger that other parts of the
	// manager use, too. If the field Trigger is nil, the controller creates its own Trigger.
	Trigger *queueing.Trigger
	// Reviews is the queue of Kymas whose agent state has to be compared with their status, see package agentdelivery.
	// The caller of New passes this queue if other parts of the manager, which are created before the controller, add
	// Kymas to it. By default the controller creates its own queue.
	Reviews workqueue.TypedDelayingInterface[string]
	// ControlPlaneID is the UID of Namespace kube-system in the control plane. ControlPlaneID identifies the control
	// plane in the record of the owner of a runtime.
	ControlPlaneID string
	// Registry reads component descriptors.
	Registry *registry.Registry
	// Namespace is the namespace of Kymas, Manifests, templates and releases.
	Namespace string
	// InCluster means that the control plane is itself the only runtime. If InCluster is set, the spec of the Kyma in
	// the control plane has the requested modules, and there is no second copy of the Kyma.
	InCluster bool
	// ControlPlane decides whether modules may be installed on the control plane beside the runtimes.
	ControlPlane channel.ControlPlane
	// Base has the base objects of every runtime: the namespace, and the CRDs that the admin of the runtime needs. If
	// InCluster is set, Base is not required.
	Base *render.Bundle
	// PullSecret is the name of a Secret in Namespace. Every runtime gets a copy of this Secret. "" means that there is
	// no pull Secret.
	PullSecret string
	// PullSecrets is the cache that has the Secret PullSecret. PullSecrets is required if PullSecret is set. If
	// InCluster is set, PullSecrets is not required.
	PullSecrets cache.Cache
	// Saves limits the rate at which all controllers together patch the statuses of each runtime. If the field Saves is
	// nil, the rate has no limit.
	Saves *budget.Budget
	// Events records events on Kymas. nil means that no events are recorded.
	Events events.EventRecorder
	// Restricted lists the restricted modules: a Kyma may use such a module only if the ModuleReleaseMeta of the module
	// selects the Kyma.
	Restricted []string
	// PolicyConfigMap is the name of the ConfigMap that has the maintenance policy, in the namespace of the field
	// Namespace. Client has to cache the ConfigMap with the maintenance policy. If PolicyConfigMap is "", the policy is
	// in PolicyFile.
	PolicyConfigMap string
	// PolicyFile is the path of the file with the maintenance policy. The file need not exist. If PolicyFile and
	// PolicyConfigMap are both "", there is no policy.
	PolicyFile string
	// MinMaintenanceWindow is the minimum remaining time of a maintenance window: an update starts only if the window
	// stays open at least this long.
	MinMaintenanceWindow time.Duration
	// CatalogSpread is the period over which reconciles are spread after a change that affects many runtimes.
	CatalogSpread time.Duration
	// AuditInterval is the time between two audits of a runtime that is not watched. An audit compares the catalog copy
	// in the runtime with the desired catalog copy.
	AuditInterval time.Duration
	// DeletionDeadline limits how long the deletion of a Kyma waits for an unavailable runtime. After this time the
	// deletion is given up, and a tombstone is written. 0 means that the deletion waits without a limit, as it always
	// does if InCluster is set.
	DeletionDeadline time.Duration
	// Live is a client without a cache, with which the controller writes tombstones: a write with Client would make
	// Client cache tombstones. Live is required if DeletionDeadline is set.
	Live client.Writer
	// Concurrency is the number of Kymas that are reconciled at the same time.
	Concurrency int
	// RateLimiter returns the delay of a retry after an error.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
	// Agents are the options of the agent delivery. With the zero value, runtimes have no agents.
	Agents agentdelivery.Options
	// MaxNewRuntimes is the number of runtimes that may get their first modules at the same time. The same number,
	// counted separately, limits the runtimes whose modules are all deleted at the same time. If MaxNewRuntimes is 0,
	// there is no limit.
	MaxNewRuntimes int
	// Shards decides which runtimes this replica reconciles. nil means that it reconciles all runtimes.
	Shards *shard.Keeper
	// Certain is a client that reads from the API server instead of the cache. If Shards is set, Certain is required,
	// because a Manifest without its shard label is missing in the cache. If Certain is nil, the controller reads
	// ModuleTemplates from the cache again after a conflict.
	Certain client.Reader
	// RuntimeMetrics adds the metrics that have one series per runtime and module.
	RuntimeMetrics bool
	// AfterStep is called after each step, see loop.Options. In production AfterStep is nil.
	AfterStep func(step string)
}

// Reconciler reconciles Kymas.
type Reconciler struct {
	Options
	catalog   *catalog.Copies
	agents    *agentdelivery.Agents
	log       *eventlog.Log
	policies  *maintenance.Policies
	versions  *versions.Records
	schema    *runtimekyma.Schema // of Kymas in runtimes
	ownWrites ownWrites           // writes to Manifests
	starting  *queueing.Admission // admits runtimes that get their first modules
	ending    *queueing.Admission // admits runtimes that lose all modules
	rollout   *queueing.Admission // admits Kymas to reconcile after a change that affects many
	stagger   queueing.Stagger    // spreads the reconciles after a change that affects many

	retries retry.Requests

	policyChanges chan event.GenericEvent // for PolicyOrClockChanges; it holds one event

	mu    sync.Mutex
	known map[string]*record // guarded by mu; by name of the Kyma
}

// New checks the options and returns a Reconciler.
func New(o Options) (*Reconciler, error) {
	if o.Client == nil || o.Runtimes == nil || o.Registry == nil || o.Namespace == "" {
		return nil, fmt.Errorf("making the Kyma controller: options need Client, Runtimes, Registry and Namespace")
	}
	if !o.InCluster && (o.Base == nil || o.PullSecret != "" && o.PullSecrets == nil) {
		return nil, fmt.Errorf(
			"making the Kyma controller: without InCluster, options need Base, and with PullSecret also PullSecrets")
	}
	if o.ControlPlaneID == "" {
		return nil, fmt.Errorf("making the Kyma controller: options need ControlPlaneID")
	}
	if o.DeletionDeadline > 0 && o.Live == nil {
		return nil, fmt.Errorf("making the Kyma controller: with DeletionDeadline, options need Live")
	}
	if o.Shards != nil && o.Certain == nil {
		return nil, fmt.Errorf("making the Kyma controller: with Shards, options need Certain")
	}
	if o.Base != nil {
		o.Runtimes.RegisterKinds(o.Base)
	}
	schema, err := runtimekyma.New()
	if err != nil {
		return nil, fmt.Errorf("making the Kyma controller: %w", err)
	}
	r := newReconciler(o)
	r.schema = schema
	return r, nil
}

// newReconciler is like New, but does not check the options and does not compile the schema.
func newReconciler(o Options) *Reconciler {
	if o.Trigger == nil {
		o.Trigger = &queueing.Trigger{}
	}
	if o.Reviews == nil {
		o.Reviews = workqueue.NewTypedDelayingQueue[string]()
	}
	r := &Reconciler{Options: o, known: map[string]*record{}, policyChanges: make(chan event.GenericEvent, 1)}
	o.Shards.OnOpened(func(int) { r.dropAllCachedRemotes() })
	r.catalog = catalog.New(catalog.Options{
		Client: o.Client, Runtimes: o.Runtimes, Namespace: o.Namespace, Restricted: o.Restricted,
		Base: o.Base, PullSecret: o.PullSecret, PullSecrets: o.PullSecrets,
		AuditInterval: o.AuditInterval, Enqueue: r.enqueueNow,
	})
	r.agents = agentdelivery.New(o.Agents, agentdelivery.Controller{
		Client: o.Client, Runtimes: o.Runtimes, Namespace: o.Namespace, Enqueue: r.Enqueue, Reviews: o.Reviews,
	})
	r.policies = maintenance.New(maintenance.Options{
		Client: o.Client, Namespace: o.Namespace, ConfigMap: o.PolicyConfigMap, File: o.PolicyFile,
		MinWindow: o.MinMaintenanceWindow, Events: o.Events,
	})
	r.versions = versions.New(versions.Options{Client: o.Client, Live: cmp.Or(o.Certain, client.Reader(o.Client))})
	r.log = eventlog.New(o.Events)
	r.starting = queueing.NewAdmission(o.MaxNewRuntimes, r.Enqueue)
	r.ending = queueing.NewAdmission(o.MaxNewRuntimes, r.Enqueue)
	r.rollout = queueing.NewAdmission(queueing.RolloutLimit(o.Concurrency), r.enqueueWithFleetPriority)
	return r
}

// Register adds the controller, its indexes and its background tasks to a manager.
func (r *Reconciler) Register(ctx context.Context, mgr ctrl.Manager) error {
	for _, i := range cacheIndexes() {
		if err := mgr.GetFieldIndexer().IndexField(ctx, i.Object, i.Name, i.Keys); err != nil {
			return fmt.Errorf("making index %s: %w", i.Name, err)
		}
	}
	if r.policies.UsesFile() {
		r.policies.RefreshFile(ctx) // before the first reconcile
	}
	for _, task := range []func(context.Context) error{r.followCatalog, r.followMaintenance, r.agents.Run} {
		if err := mgr.Add(r.Shards.RunnableOnAllReplicas(task)); err != nil {
			return fmt.Errorf("adding a background task: %w", err)
		}
	}
	specChanged := builder.WithPredicates(loop.SpecLabelsOrAnnotationsChanged(recordAnnotations...))
	b := ctrl.NewControllerManagedBy(mgr).
		// The first reconcile of a Kyma adds the label LabelManagedBy, and needs no second reconcile for this. If a
		// user removes the label, the next reconcile adds it again.
		For(&v1beta2.Kyma{}, builder.WithPredicates(
			loop.SpecLabelsOrAnnotationsChanged(append(slices.Clip(recordAnnotations), v1beta2.LabelManagedBy)...))).
		Watches(&v1beta2.Kyma{}, r.retries.Handler(r.probeRuntimeOfRetriedKyma)).
		Watches(&v1beta2.Manifest{}, r.onManifest()).
		Watches(&v1beta2.ModuleReleaseMeta{}, r.onCatalog(),
			builder.WithPredicates( // the coordinator reads the urgency
				loop.SpecLabelsOrAnnotationsChanged(append(slices.Clip(recordAnnotations), v1beta2.AnnotationUrgency,
					v1beta2.AnnotationPromotion)...))).
		Watches(&v1beta2.ModuleReleaseMeta{}, r.onReleaseStatus()).
		Watches(&v1beta2.ModuleRollout{}, r.onRollout()).
		// When the controller records the digest of a version in its ModuleTemplate for the first time, nothing changes
		// for other runtimes. Therefore changes of AnnotationContentDigest enqueue no Kyma.
		Watches(&v1beta2.ModuleTemplate{}, r.onCatalog(), builder.WithPredicates(
			loop.SpecLabelsOrAnnotationsChanged(append(slices.Clip(recordAnnotations),
				v1beta2.AnnotationContentDigest)...))).
		WatchesRawSource(r.Trigger.Source()).
		Named("kyma").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency, RateLimiter: r.RateLimiter})
	if !r.InCluster {
		b = b.WatchesMetadata(runtimes.NewSecretMetadata(), handler.EnqueueRequestsFromMapFunc(r.requestIfNeeded))
		if r.PullSecret != "" {
			b = b.WatchesRawSource(source.Kind(r.PullSecrets, client.Object(&corev1.Secret{}), r.onPullSecret()))
		}
	}
	if r.Agents.Delivery != nil {
		b = b.Watches(&v1beta2.Watcher{}, r.onWatcher(), specChanged)
	}
	if r.PolicyConfigMap != "" {
		b = b.Watches(&corev1.ConfigMap{}, r.onPolicy())
	}
	return b.Complete(r)
}

// run has the inputs and the results of one reconcile of one Kyma.
type run struct {
	*Reconciler
	kyma *v1beta2.Kyma // as read; only status.go changes its status
	now  time.Time     // the time of the reconcile, the same in all steps

	runtime   *runtimes.Runtime            // set by connect; nil without a connection
	owner     ownership.Found              // set by sync: whose the runtime is
	remote    *v1beta2.Kyma                // set by sync: the Kyma in the runtime; with InCluster, kyma
	manifests map[string]*v1beta2.Manifest // set by resolve: all Manifests of the Kyma, by name
	// modules is set by resolve and completed by install: the requested modules, the modules to be removed, and the
	// mandatory modules.
	modules    []plan.Module
	agentPlan  agentdelivery.Plan // set by watchlist
	found      findings           // the input of the status
	remoteRead lastRemote         // set by sync: when remote was read; see takeCachedRemote
	deletion   deletion           // set by the steps of a deletion
}

// findings are the results of the steps from which the status is derived.
type findings struct {
	paused        bool   // set by sync: the Kyma is paused, nothing in the runtime is changed
	baseSynced    bool   // set by sync: the runtime has its base objects and its Kyma
	resolved      bool   // set by resolve: run.modules has all modules
	catalogSynced bool   // set by catalog: the runtime has its catalog copy
	catalogDigest string // set by catalog: of the catalog copy that the runtime has
	// catalogRefused is set by catalog and returned by settle: the runtime refuses the catalog copy.
	catalogRefused error
	agentPlanned   bool // set by watchlist: the status of the agent has to be saved before the agent is delivered
	// isTransient is set by sync: the status of a new Kyma will change within about 2 seconds, so it is not saved now.
	isTransient   bool
	refused       error           // set by sync: the runtime belongs to another owner, so nothing is changed there
	credential    *access.Finding // set by connect: facts about the credential; nil without a connection
	policyProblem error           // why the last read maintenance policy is not in force; or nil
}

// Reconcile brings the modules of one Kyma to their desired state.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	defer func() { result.Priority = r.Urgent.RequeuePriority(req.Name) }()
	defer r.rollout.Release(req.Name)
	ctx, leave, ours := r.Shards.BeginReconcile(ctx, req.Name)
	if !ours {
		r.Runtimes.Remove(req.Name)
		r.agents.ReleaseHeartbeats(req.Name)
		r.forget(req.Name)
		return reconcile.Result{}, nil
	}
	defer leave()
	ctx = r.retries.Context(r.Urgent.Context(ctx, req.Name), req.NamespacedName)
	kyma := &v1beta2.Kyma{}
	if err := r.Client.Get(ctx, req.NamespacedName, kyma); err != nil {
		if apierrors.IsNotFound(err) {
			r.Runtimes.Unsubscribe(req.Name, subscriberKey(req.Name))
			r.catalog.Unsubscribe(req.Name)
			r.forget(req.Name)
			return reconcile.Result{}, r.verifyOwnerIfRequested(ctx, req.NamespacedName, nil)
		}
		return reconcile.Result{}, err
	}
	released := r.isFinalizerRemoved(kyma)
	if released && loop.WaitForForeignFinalizers(kyma, []string{v1beta2.FinalizerKyma}) == nil {
		return reconcile.Result{}, nil // the Kyma is deleted; the event of its deletion triggers the next reconcile
	}
	n := &run{Reconciler: r, kyma: kyma, now: time.Now(), found: findings{policyProblem: r.policies.Problem()}}
	options := loop.Options{
		Client: r.Client, Controller: "kyma", Object: kyma, AfterStep: r.AfterStep, Saves: r.Saves, Runtime: req.Name,
		Report:    func(out loop.Outcome) { n.report(out); n.recordMetrics() },
		DeferSave: n.deferSave,
		// If only the summary is missing in the status, no patch is sent: the next change of the status sets the
		// summary.
		BeforeSave: func() { kyma.Status.Summary = v1beta2.Summarize(kyma.Status.Modules) },
		AfterSave:  n.recordEvents,
		Publish:    n.publishStatusToRuntime,
	}
	defer func() {
		if state := kyma.Status.State; state != "" && state != v1beta2.StateProcessing {
			r.starting.Withdraw(req.Name)
		}
	}()
	switch {
	case released:
		return loop.Run(ctx, options, loop.Step{Name: "finalizers", Do: n.awaitOtherFinalizers})
	case !kyma.DeletionTimestamp.IsZero():
		defer func() {
			if err != nil || n.isDeletionStuck() {
				r.ending.Release(req.Name)
			}
		}()
		return loop.Run(ctx, options,
			loop.Step{Name: "announce", Do: n.announceDeletion},
			loop.Step{Name: "connect", Do: n.connectOrSkipCleanup},
			loop.Step{Name: "admission", Do: n.awaitDeletionAdmission, Save: true},
			loop.Step{Name: "modules", Do: n.deleteModules},
			loop.Step{Name: "runtime", Do: n.deleteNonModuleResources},
			loop.Step{Name: "release", Do: n.revokeCertificatesAndRemoveFinalizer})
	case kyma.SkipsReconciliation():
		return loop.Run(ctx, loop.Options{Client: r.Client, Controller: "kyma", Object: kyma,
			Report: n.reportSkippedByLabel},
			loop.Step{Name: "owner", Do: func(ctx context.Context) error {
				return r.verifyOwnerIfRequested(ctx, req.NamespacedName, kyma)
			}})
	case kyma.Status.State == "" && !r.starting.Admit(req.Name):
		return reconcile.Result{}, nil // the admission enqueues the Kyma later
	}
	return loop.Run(ctx, options,
		loop.Step{Name: "adopt", Do: n.addFinalizerAndLabel},
		loop.Step{Name: "assume", Do: n.assumeUnchanged},
		loop.Step{Name: "connect", Do: n.connect},
		loop.Step{Name: "sync", Do: n.syncBaseAndRemote},
		loop.Step{Name: "version", Do: n.recordKubernetesVersion},
		loop.Step{Name: "remember", Do: n.saveOrRemoveLastRequest},
		loop.Step{Name: "resolve", Do: n.listManifestsAndDecideModules},
		loop.Step{Name: "install", Do: n.writeRequestedManifests},
		loop.Step{Name: "remove", Do: n.removeUnwantedManifests},
		loop.Step{Name: "catalog", Do: n.syncCatalog},
		loop.Step{Name: "watchlist", Do: n.planAgent, SaveIf: n.isAgentStatusChanged},
		loop.Step{Name: "agent", Do: n.deliverOrRemoveAgent},
		loop.Step{Name: "settle", Do: n.reportBlockersAndErrors},
		loop.Step{Name: "requeue", Do: n.requeue})
}

// addFinalizerAndLabel adds the finalizer and the label of this project to the Kyma. The finalizer keeps the Kyma until
// the manager has cleaned up the runtime.
func (n *run) addFinalizerAndLabel(ctx context.Context) error {
	agentdelivery.AdoptFormerWatcherObjects(n.kyma, n.now)
	record, takenFrom := "", ""
	if n.InCluster {
		var err error
		if record, takenFrom, err = n.decideInClusterOwnerRecord(); err != nil {
			return reconcile.TerminalError(err)
		}
	}
	err := loop.PatchMetadata(ctx, n.Client, n.kyma, func(m *metav1.ObjectMeta) {
		loop.AppendFinalizers(m, v1beta2.FinalizerKyma)
		if record != "" {
			metav1.SetMetaDataAnnotation(m, v1beta2.AnnotationOwner, record)
			delete(m.Annotations, v1beta2.AnnotationTakeRuntime)
		}
		if _, labelled := m.Labels[v1beta2.LabelManagedBy]; !labelled {
			metav1.SetMetaDataLabel(m, v1beta2.LabelManagedBy, v1beta2.ManagedByLifecycleManager)
		}
	})
	if err == nil && takenFrom != "" {
		n.event(corev1.EventTypeNormal, v1beta2.EventRuntimeTakenOver,
			"the cluster of the manager now belongs to this Kyma; before, "+takenFrom)
	}
	return err
}

// connect gets the connection to the runtime from the pool. connect makes no request. The owner of the runtime is
// verified later, with the record in the runtime (verifyOwnerOrRefuse). If there is no connection, connect is not
// retried: the pool notifies the subscriber when a retry may succeed.
func (n *run) connect(ctx context.Context) error {
	n.subscribe(false)
	rt, err := n.Runtimes.GetBeforeOwnerVerified(ctx, n.kyma.Name)
	if err != nil {
		if loop.Reason(err) != "" {
			return reconcile.TerminalError(err)
		}
		return err
	}
	n.runtime = rt
	n.editRecord(func(*record) {}) // creates the record of the runtime
	n.watchRightsAndReadCredential()
	return nil
}

// recordKubernetesVersion records the version of Kubernetes in the runtime. If the version cannot be read, the last
// recorded version stays.
func (n *run) recordKubernetesVersion(ctx context.Context) error {
	if version := n.runtime.CachedKubernetesVersion(ctx, n.kyma.Status.KubernetesVersion); version != "" {
		n.kyma.Status.KubernetesVersion = version
	}
	return nil
}

// planAgent computes the objects that have to be delivered for the agent. planAgent lists these objects in the status
// of the Kyma. If the list is new, the status is saved after planAgent, before the objects are delivered.
func (n *run) planAgent(ctx context.Context) (err error) {
	if n.InCluster || n.found.paused {
		return nil
	}
	n.agents.RestoreUnsaved(n.agentTarget())
	before := n.kyma.Status.Agent.DeepCopy()
	n.agentPlan, err = n.agents.PlanDeliveryAndAddRefs(ctx, n.agentTarget())
	n.found.agentPlanned = !n.agentPlan.IsPending() && !loop.Equal(before, n.kyma.Status.Agent)
	return err
}

// isAgentStatusChanged reports whether the status of the agent has to be saved before the agent is delivered.
func (n *run) isAgentStatusChanged() bool { return n.found.agentPlanned }

// deliverOrRemoveAgent delivers the agent to the runtime. If agents are disabled, deliverOrRemoveAgent removes the
// agent.
func (n *run) deliverOrRemoveAgent(ctx context.Context) error {
	if n.InCluster || n.found.paused {
		return nil
	}
	recheckAfter, err := n.agents.DeliverOrRemove(ctx, n.agentTarget(), n.agentPlan)
	if err != nil || recheckAfter == 0 {
		return err
	}
	return loop.ContinueAndRequeueAfter(recheckAfter)
}

func (n *run) agentTarget() agentdelivery.Target {
	t := agentdelivery.Target{Kyma: n.kyma, Runtime: n.runtime, Now: n.now, Warn: func(reason, message string) {
		n.event(corev1.EventTypeWarning, reason, message)
	}}
	for i := range n.modules {
		t.Manifests = append(t.Manifests, n.modules[i].Manifest)
	}
	return t
}

// requeue requests the next reconcile after the poll interval of the runtime. The next reconcile is earlier if a
// maintenance window opens earlier. The next reconcile is also earlier if a module will have been Processing for so
// long that it counts as slow, because the status shows why a slow module is not Ready.
func (n *run) requeue(context.Context) error {
	after := loop.Spread(n.Runtimes.PollInterval(n.kyma.Name), n.kyma.Name)
	if c := n.found.credential; c != nil && c.Lifetime.WarningTime().After(n.now) {
		after = min(after, c.Lifetime.WarningTime().Sub(n.now)+time.Second)
	}
	for _, m := range n.modules {
		if m.Manifest != nil && m.Manifest.Status.State == v1beta2.StateProcessing && !plan.IsSlow(m.Manifest, n.now) {
			after = min(after, plan.NotReadySinceOrCreation(m.Manifest).Add(plan.SlowModuleDelay).Sub(
				n.now)+time.Second)
		}
		if b := m.Decision.Blocker; b != nil && !b.Until.IsZero() {
			after = min(after, max(time.Until(b.Until), time.Millisecond))
		}
	}
	return loop.ContinueAndRequeueAfter(after)
}
