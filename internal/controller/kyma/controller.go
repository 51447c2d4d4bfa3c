// Package kyma reconciles Kymas: the desired modules of one runtime, and their state.
//
// # Use
//
//	r, err := kyma.New(kyma.Options{…})
//	err = r.Register(ctx, mgr)
//
// # How it works
//
// A reconcile reads the requested modules from the Kyma in the runtime, resolves each module to a version, creates or
// updates one Manifest per module, deletes the Manifests of modules that are no longer requested, and writes one status
// to both copies of the Kyma. The steps of installation and deletion are the two lists in [Reconciler.Reconcile]. A
// reconcile is triggered by a change of the Kyma here or in the runtime, of one of its Manifests, of a release or
// template that it uses, of its access Secret, or of the connection to the runtime; see triggers.go.
//
// Three parts have packages of their own: package catalog keeps the copy of the catalog in the runtime, package
// agentdelivery keeps its agent delivered, and package maintenance holds the maintenance policy.
//
// # What it does not do
//
// It applies no object of a module: the controller of Manifests does. It never changes the spec of a Kyma after it was
// created.
package kyma

import (
	"context"
	"fmt"
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
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/agentdelivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/catalog"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/maintenance"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Options are the dependencies and settings of the controller.
type Options struct {
	// Client reads from the cache and sees its own writes.
	Client client.Client
	// Runtimes connects to runtimes.
	Runtimes *runtimes.Pool
	// Urgent is the set of runtimes that a person waits for, the same for all controllers. Needed.
	Urgent *queueing.Urgent
	// Trigger adds Kymas to the queue of the controller, for parts of the manager that are made before it. Default one
	// of its own.
	Trigger *queueing.Trigger
	// Reviews has the names of Kymas whose agent is reviewed, see package agentdelivery. Parts of the manager that are
	// made before the controller add to it. Default one of its own.
	Reviews workqueue.TypedDelayingInterface[string]
	// Registry reads component descriptors.
	Registry *registry.Registry
	// Namespace holds Kymas, Manifests, templates and releases.
	Namespace string
	// InCluster says that the runtime is the control plane itself: the spec of the Kyma has the requested modules, and
	// there is no second copy.
	InCluster bool
	// Base are the base objects of every runtime: its namespace and the CRDs of what its admin sees. Not needed with
	// InCluster.
	Base *render.Bundle
	// PullSecret names a Secret in Namespace that every runtime gets a copy of. "" means none.
	PullSecret string
	// PullSecrets holds that Secret. Needed with PullSecret, but not with InCluster.
	PullSecrets cache.Cache
	// Events records events on Kymas; nil: no events.
	Events events.EventRecorder
	// Restricted are the modules that are only for Kymas that their ModuleReleaseMeta selects.
	Restricted []string
	// PolicyConfigMap names a ConfigMap in Namespace with the maintenance policy. Client has to cache it. "": the
	// policy is in PolicyFile.
	PolicyConfigMap string
	// PolicyFile is the path of the file with the maintenance policy; it need not exist. "": there is no policy.
	PolicyFile string
	// MinMaintenanceWindow is how much of a maintenance window has to be left for an update to start.
	MinMaintenanceWindow time.Duration
	// CatalogSpread is the period over which the reconciles after a change that concerns many runtimes are spread.
	CatalogSpread time.Duration
	// AuditInterval is the time between two comparisons of the catalog copy in a runtime that is not watched.
	AuditInterval time.Duration
	// DeletionDeadline is how long the runtime of a Kyma that is being deleted may be unavailable before the deletion
	// is given up with a tombstone. 0 means that it is waited for without a limit, as with InCluster.
	DeletionDeadline time.Duration
	// Live writes tombstones; Client would cache them. Needed with DeletionDeadline.
	Live client.Writer
	// Concurrency is the number of Kymas that are reconciled at the same time.
	Concurrency int
	// RateLimiter delays retries after an error.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
	// Agents say how runtimes get their agents. The zero value is for runtimes without agents.
	Agents agentdelivery.Options
	// MaxNewRuntimes is the number of runtimes that get their first modules at the same time, and of those that lose
	// all of them; 0 is no limit.
	MaxNewRuntimes int
	// Shards say which runtimes this replica reconciles. nil: all.
	Shards *shard.Keeper
	// Certain reads from the API server. Needed with Shards.
	Certain client.Reader
	// RuntimeMetrics adds the metrics with one series per runtime and module.
	RuntimeMetrics bool
	// AfterStep is called after each step, see loop.Options; nil in production.
	AfterStep func(step string)
}

// Reconciler reconciles Kymas.
type Reconciler struct {
	Options
	catalog   *catalog.Copies
	agents    *agentdelivery.Agents
	policies  *maintenance.Policies
	ownWrites ownWrites           // to Manifests
	starting  *queueing.Admission // of runtimes that get their first modules
	ending    *queueing.Admission // of runtimes that lose all modules
	rollout   *queueing.Admission // of Kymas that are reconciled because of a change for many

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
	if o.DeletionDeadline > 0 && o.Live == nil {
		return nil, fmt.Errorf("making the Kyma controller: with DeletionDeadline, options need Live")
	}
	if o.Shards != nil && o.Certain == nil {
		return nil, fmt.Errorf("making the Kyma controller: with Shards, options need Certain")
	}
	if o.Base != nil {
		o.Runtimes.RegisterKinds(o.Base)
	}
	return newReconciler(o), nil
}

// newReconciler is New without the checks.
func newReconciler(o Options) *Reconciler {
	if o.Trigger == nil {
		o.Trigger = &queueing.Trigger{}
	}
	if o.Reviews == nil {
		o.Reviews = workqueue.NewTypedDelayingQueue[string]()
	}
	r := &Reconciler{Options: o, known: map[string]*record{}}
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
	r.starting = queueing.NewAdmission(o.MaxNewRuntimes, r.Enqueue)
	r.ending = queueing.NewAdmission(o.MaxNewRuntimes, r.Enqueue)
	r.rollout = queueing.NewAdmission(queueing.RolloutLimit(o.Concurrency), r.enqueueRollout)
	return r
}

// Register adds the controller, its indexes and its background tasks to a manager.
func (r *Reconciler) Register(ctx context.Context, mgr ctrl.Manager) error {
	for _, i := range indexes() {
		if err := mgr.GetFieldIndexer().IndexField(ctx, i.Object, i.Name, i.Keys); err != nil {
			return fmt.Errorf("making index %s: %w", i.Name, err)
		}
	}
	if r.policies.UsesFile() {
		r.policies.RefreshFile(ctx) // before the first reconcile
	}
	for _, task := range []func(context.Context) error{r.rollOutCatalog, r.followMaintenance, r.agents.Run} {
		if err := mgr.Add(r.Shards.Runnable(task)); err != nil {
			return fmt.Errorf("adding a background task: %w", err)
		}
	}
	specChanged := builder.WithPredicates(loop.SpecChanged(recordAnnotations...))
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1beta2.Kyma{}, specChanged).
		Watches(&v1beta2.Manifest{}, r.onManifest()).
		Watches(&v1beta2.ModuleReleaseMeta{}, r.onCatalog(), specChanged).
		Watches(&v1beta2.ModuleTemplate{}, r.onCatalog(), specChanged).
		WatchesRawSource(r.Trigger.Source()).
		Named("kyma").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency, RateLimiter: r.RateLimiter})
	if !r.InCluster {
		b = b.WatchesMetadata(runtimes.NewSecretMetadata(), handler.EnqueueRequestsFromMapFunc(loop.RequestForKyma))
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

// run is one reconcile of one Kyma: its inputs, and what its steps have found and done.
type run struct {
	*Reconciler
	kyma *v1beta2.Kyma // as read; its status is changed through status.go only
	now  time.Time     // of the whole reconcile

	runtime   *runtimes.Runtime            // set by connect; nil without a connection
	remote    *v1beta2.Kyma                // set by sync: the Kyma in the runtime; in-cluster the Kyma itself
	manifests map[string]*v1beta2.Manifest // set by resolve: all Manifests of this Kyma, by name
	// set by resolve, completed by install: requested ones in the order of spec, then those to be removed
	modules   []plan.Module
	agentPlan agentdelivery.Plan // set by watchlist
	found     findings           // for the status
	deletion  deletion           // set by the steps of a deletion
}

// findings are what the steps of a reconcile have found, for the status.
type findings struct {
	paused        bool // set by sync: the runtime is left as it is
	baseSynced    bool // set by sync: the runtime has its base objects and its Kyma
	resolved      bool // set by resolve: run.modules has all modules
	catalogSynced bool // set by catalog: the runtime has its catalog copy
	// set by sync: the status of a new Kyma will change within a moment, so that it need not be saved
	isTransient   bool
	policyProblem error // why the maintenance policy that was read last is not in force; nil if it is
}

// Reconcile brings one Kyma to its desired state.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	defer func() { result.Priority = r.Urgent.RequeuePriority(req.Name) }()
	defer r.rollout.Release(req.Name)
	ctx, leave, ours := r.Shards.BeginReconcile(ctx, req.Name)
	if !ours {
		r.Runtimes.Close(req.Name)
		r.forget(req.Name)
		return reconcile.Result{}, nil
	}
	defer leave()
	ctx = r.Urgent.Context(ctx, req.Name)
	kyma := &v1beta2.Kyma{}
	if err := r.Client.Get(ctx, req.NamespacedName, kyma); err != nil {
		if apierrors.IsNotFound(err) {
			r.Runtimes.Unsubscribe(req.Name, subscriberKey(req.Name))
			r.catalog.Unsubscribe(req.Name)
			r.forget(req.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if r.isReleased(kyma) {
		return reconcile.Result{}, nil // it is deleted; the event of the cache triggers the next reconcile
	}
	n := &run{Reconciler: r, kyma: kyma, now: time.Now(), found: findings{policyProblem: r.policies.Problem()}}
	options := loop.Options{
		Client: r.Client, Controller: "kyma", Object: kyma, AfterStep: r.AfterStep,
		Report:    func(out loop.Outcome) { n.report(out); n.recordMetrics() },
		DeferSave: func() bool { return n.found.isTransient },
		Publish:   n.publish,
	}
	switch {
	case !kyma.DeletionTimestamp.IsZero():
		defer func() {
			if err != nil || n.isDeletionStuck() {
				r.ending.Release(req.Name)
			}
		}()
		return loop.Run(ctx, options,
			loop.Step{Name: "announce", Do: n.announce},
			loop.Step{Name: "connect", Do: n.connectToDelete},
			loop.Step{Name: "admission", Do: n.awaitAdmission, Save: true},
			loop.Step{Name: "modules", Do: n.deleteModules},
			loop.Step{Name: "runtime", Do: n.deleteFromRuntime},
			loop.Step{Name: "release", Do: n.release})
	case kyma.SkipsReconciliation():
		return loop.Run(ctx, loop.Options{Client: r.Client, Controller: "kyma", Object: kyma, Report: n.reportNotReconciled})
	case kyma.Status.State == "" && !r.starting.Admit(req.Name):
		return reconcile.Result{}, nil // its admission enqueues it
	}
	defer func() {
		if state := kyma.Status.State; state != "" && state != v1beta2.StateProcessing {
			r.starting.Withdraw(req.Name)
		}
	}()
	return loop.Run(ctx, options,
		loop.Step{Name: "adopt", Do: n.adopt},
		loop.Step{Name: "assume", Do: n.assume},
		loop.Step{Name: "connect", Do: n.connect},
		loop.Step{Name: "sync", Do: n.sync},
		loop.Step{Name: "remember", Do: n.rememberRequest},
		loop.Step{Name: "resolve", Do: n.resolve},
		loop.Step{Name: "install", Do: n.install},
		loop.Step{Name: "remove", Do: n.remove},
		loop.Step{Name: "catalog", Do: n.syncCatalog},
		loop.Step{Name: "settle", Do: n.settle},
		loop.Step{Name: "watchlist", Do: n.planAgent, Save: true},
		loop.Step{Name: "agent", Do: n.deliverAgent},
		loop.Step{Name: "requeue", Do: n.requeue})
}

// adopt adds our finalizer and label to the Kyma, so that it is not deleted before its runtime is cleaned up.
func (n *run) adopt(ctx context.Context) error {
	agentdelivery.TakeOver(n.kyma, n.now)
	return loop.PatchMetadata(ctx, n.Client, n.kyma, func(m *metav1.ObjectMeta) {
		loop.AppendFinalizers(m, v1beta2.FinalizerKyma)
		if _, labelled := m.Labels[v1beta2.LabelManagedBy]; !labelled {
			metav1.SetMetaDataLabel(m, v1beta2.LabelManagedBy, v1beta2.ManagedByLifecycleManager)
		}
	})
}

// connect gets the connection to the runtime. It makes no request. After a failure nothing is retried: the pool reports
// when that may help.
func (n *run) connect(ctx context.Context) error {
	n.subscribe(false)
	rt, err := n.Runtimes.Get(ctx, n.kyma.Name)
	if err != nil {
		if loop.Reason(err) != "" {
			return reconcile.TerminalError(err)
		}
		return err
	}
	n.runtime = rt
	n.edit(func(*record) {}) // from now on the runtime is known
	return nil
}

// planAgent computes what is delivered for the agent. The status, with the list of its objects, is saved after this
// step.
func (n *run) planAgent(ctx context.Context) (err error) {
	if n.InCluster || n.found.paused {
		return nil
	}
	n.agentPlan, err = n.agents.Plan(ctx, n.agentTarget())
	return err
}

// deliverAgent delivers the agent, or removes it if agents are disabled.
func (n *run) deliverAgent(ctx context.Context) error {
	if n.InCluster || n.found.paused {
		return nil
	}
	recheckAfter, err := n.agents.Deliver(ctx, n.agentTarget(), n.agentPlan)
	if err != nil || recheckAfter == 0 {
		return err
	}
	return loop.RecheckAfter(recheckAfter)
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

// requeue requests the next reconcile: after the poll interval of the runtime, or earlier, when a slow module has to be
// explained in the status or a maintenance window opens.
func (n *run) requeue(context.Context) error {
	after := loop.Spread(n.Runtimes.PollInterval(n.kyma.Name), n.kyma.Name)
	for _, m := range n.modules {
		if m.Manifest != nil && m.Manifest.Status.State == v1beta2.StateProcessing && !plan.IsSlow(m.Manifest, n.now) {
			after = min(after, plan.ProcessingSince(m.Manifest).Add(plan.SlowModuleDelay).Sub(n.now)+time.Second)
		}
		if b := m.Decision.Blocker; b != nil && !b.Until.IsZero() {
			after = min(after, max(time.Until(b.Until), time.Millisecond))
		}
	}
	return loop.RecheckAfter(after)
}
