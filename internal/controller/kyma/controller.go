// Package kyma is the life of a Kyma: what one runtime wants, and what it has.
//
// # Use
//
//	r, err := kyma.New(kyma.Options{…})
//	err = r.Register(mgr)
//
// # How it works
//
// One pass reads the wish from the Kyma in the runtime, resolves each module to a version, writes one Manifest per module, removes
// Manifests that nobody wants any more, and reports one state to both copies of the Kyma. The two stories, install and delete,
// are the two lists in [Reconciler.Reconcile]. A pass is started by a change of the Kyma here or in the runtime, of one of its
// Manifests, of a release or template it uses, of its access Secret, or by the connection to the runtime breaking or mending. What
// its runtime may see of the catalog is copied there; a change of that starts a pass too, spread over the fleet: see wake.go.
//
// # What it does not do
//
// It applies nothing of a module: that is what the Manifest is for. It never writes the spec of a Kyma after it was created.
package kyma

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/delivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/maintenance"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Options are what the controller works with.
type Options struct {
	// Client reads from the cache and sees its own writes.
	Client client.Client
	// Runtimes connects to runtimes.
	Runtimes *runtimes.Pool
	// Registry reads component descriptors.
	Registry *registry.Registry
	// Namespace holds Kymas, Manifests, templates and releases.
	Namespace string
	// InCluster says that the runtime is the control plane itself: the Kyma's own spec is the wish, and there is no second copy.
	InCluster bool
	// Base is what every runtime gets first: its namespace and the CRDs of what its admin sees. Not needed with InCluster.
	Base *render.Bundle
	// PullSecret names a Secret in Namespace that every runtime gets a copy of. "" means none.
	PullSecret string
	// PullSecrets holds that Secret. Needed with PullSecret, but not with InCluster.
	PullSecrets cache.Cache
	// Events tells people what has happened; nil tells nobody.
	Events events.EventRecorder
	// Restricted are the modules that are only for Kymas that their ModuleReleaseMeta selects.
	Restricted []string
	// PolicyConfigMap names a ConfigMap in Namespace with the maintenance policy. Client has to know it. "": the policy is in PolicyFile.
	PolicyConfigMap string
	// PolicyFile has the maintenance policy; it need not be there. "": there is none.
	PolicyFile string
	// LeastWindow is how much of a maintenance window has to be left for an update to start.
	LeastWindow time.Duration
	// CatalogSpread is the time over which a change that concerns many runtimes is spread, at least: only a few have their turn at a time.
	CatalogSpread time.Duration
	// AuditInterval is how often the catalog of a runtime that is not watched is compared with what it should be.
	AuditInterval time.Duration
	// DeletionDeadline is how long the runtime of a Kyma that is being deleted may be out of reach, before the deletion is given up with a
	// tombstone. 0 is for ever, as it is with InCluster.
	DeletionDeadline time.Duration
	// Live writes tombstones; Client would keep a copy of them. Needed with DeletionDeadline.
	Live client.Writer
	// Urgent is the set of runtimes that a person waits for, the same for all controllers. Needed.
	Urgent *queueing.Urgent
	// Trigger adds Kymas to the queue of the controller, for parts of the manager that are made before it. Default one of its own.
	Trigger *queueing.Trigger
	// Reviews has the names of Kymas whose agent is reviewed, see Review. Parts of the manager that are made before the controller add to it. Default
	// one of its own.
	Reviews workqueue.TypedDelayingInterface[string]
	// Concurrency is the number of Kymas worked on at the same time.
	Concurrency int
	// RateLimiter spaces the tries after an error.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
	// Agents say how runtimes get the agents that tell what happens there. The zero value is for runtimes without.
	Agents Agents
	// MaxNewRuntimes is the number of runtimes that get their modules for the first time at the same time, and of those that lose all of them; 0 is no limit.
	MaxNewRuntimes int
	// Shards say which runtimes are worked on here. nil: all.
	Shards *shard.Keeper
	// Certain reads from the API server. Needed with Shards.
	Certain client.Reader
	// RuntimeMetrics adds the metrics with one series per runtime and module.
	RuntimeMetrics bool
	// After is told of each step, see loop.Options; nil in production.
	After func(step string)
}

// Reconciler reconciles Kymas.
type Reconciler struct {
	Options
	queue    atomic.Pointer[queue]                    // set when the controller starts
	reviews  workqueue.TypedDelayingInterface[string] // of agents, by name of the Kyma
	views    views
	echoes   echoes
	policies *maintenance.Policies
	begin    turns // of runtimes that get their modules for the first time
	end      turns // of runtimes that lose all of them
	rollout  turns // of Kymas that are looked at because something has changed for many

	mu         sync.Mutex
	known      map[string]*memory // guarded by mu; by name of the Kyma
	withSecret base               // guarded by mu
}

// memory is what is known of one Kyma between passes. Losing it costs a read or a patch that changes nothing.
type memory struct {
	runtime     *runtimes.Runtime      // the connection that base and deletion belong to
	base        apply.Progress         // what was sent of the base
	deletion    apply.DeletionProgress // what was asked to go
	fingerprint uint64                 // of the Kyma in the runtime, as far as it is not ours to change
	released    types.UID              // of the Kyma that was let go; the cache may still show it for a moment
	catalog     sighting               // what is known of the catalog in the runtime
	agent       delivery.Memory        // what is known of the delivery of its agent; used by passes, of which there is one at a time, as is the next
	behind      time.Time              // since when its agent has said that it watches something else than it should; zero if it does not
	born        time.Time              // when the Kyma was first met
	presumed    bool                   // guarded by Reconciler.mu: its runtime was not looked at yet, see presume.go
	manifests   []string               // guarded by Reconciler.mu, as what follows: the followers that the watch list depends on
	awaited     time.Time              // since when some of them are waited for; zero if none is
	patience    time.Duration          // how long they are
}

// New checks the options and returns a Reconciler.
func New(o Options) (*Reconciler, error) {
	if o.Client == nil || o.Runtimes == nil || o.Registry == nil || o.Namespace == "" {
		return nil, fmt.Errorf("making the Kyma controller: options need Client, Runtimes, Registry and Namespace")
	}
	if !o.InCluster && (o.Base == nil || o.PullSecret != "" && o.PullSecrets == nil) {
		return nil, fmt.Errorf("making the Kyma controller: without InCluster, options need Base, and with PullSecret also PullSecrets")
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
	if o.Trigger == nil {
		o.Trigger = &queueing.Trigger{}
	}
	if o.Reviews == nil {
		o.Reviews = workqueue.NewTypedDelayingQueue[string]()
	}
	r := &Reconciler{
		Options: o, policies: maintenance.New(maintenance.Options{
			Client: o.Client, Namespace: o.Namespace, ConfigMap: o.PolicyConfigMap, File: o.PolicyFile, MinWindow: o.LeastWindow, Events: o.Events,
		}),
		known: map[string]*memory{}, views: views{changed: make(chan struct{}, 1)},
		reviews: o.Reviews,
	}
	r.begin = turns{most: o.MaxNewRuntimes, next: r.Wake}
	r.end = turns{most: o.MaxNewRuntimes, next: r.Wake}
	r.rollout = turns{most: o.Concurrency / 2, next: r.rollOut}
	return r, nil
}

// Register adds the controller and its indexes to a manager.
func (r *Reconciler) Register(ctx context.Context, mgr ctrl.Manager) error {
	for _, i := range indexes {
		if err := mgr.GetFieldIndexer().IndexField(ctx, i.object, i.name, i.keys); err != nil {
			return fmt.Errorf("making index %s: %w", i.name, err)
		}
	}
	if err := r.addBackground(ctx, mgr); err != nil {
		return err
	}
	secrets := &metav1.PartialObjectMetadata{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1beta2.Kyma{}, onUpdate(wishChanged)).
		Watches(&v1beta2.Manifest{}, r.onManifest()).
		Watches(&v1beta2.ModuleReleaseMeta{}, r.onCatalog(), onUpdate(wishChanged)).
		Watches(&v1beta2.ModuleTemplate{}, r.onCatalog(), onUpdate(wishChanged)).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			r.queue.Store(&q)
			return nil
		})).
		WatchesRawSource(r.Trigger.Source()).
		Named("kyma").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency, RateLimiter: r.RateLimiter})
	if !r.InCluster {
		b = b.WatchesMetadata(secrets, handler.EnqueueRequestsFromMapFunc(kymaOfLabel))
		if r.PullSecret != "" {
			b = b.WatchesRawSource(source.Kind(r.PullSecrets, client.Object(&corev1.Secret{}), r.onPullSecret()))
		}
	}
	if r.Agents.Delivery != nil {
		b = b.Watches(&v1beta2.Watcher{}, r.onWatcher(), onUpdate(wishChanged))
	}
	if r.PolicyConfigMap != "" {
		b = b.Watches(&corev1.ConfigMap{}, r.onPolicy())
	}
	return b.Complete(r)
}

// addBackground adds what runs next to the passes: the catalog that is handed out, the clock that may be set, and the file that is looked at.
func (r *Reconciler) addBackground(ctx context.Context, mgr ctrl.Manager) error {
	tasks := []func(context.Context) error{r.handOutCatalog, r.followMaintenance, r.reviewAgents}
	if r.policies.UsesFile() {
		r.policies.RefreshFile(ctx) // before the first reconcile
	}
	for _, task := range tasks {
		if err := mgr.Add(r.Shards.Runnable(task)); err != nil {
			return fmt.Errorf("adding a background task: %w", err)
		}
	}
	return nil
}

// followMaintenance enqueues the Kymas that wait for a maintenance window whenever the file with the policy changes or the wall clock is set, until ctx
// ends.
func (r *Reconciler) followMaintenance(ctx context.Context) error {
	enqueue := func() { r.enqueueWaiting(ctx) }
	var tasks sync.WaitGroup
	tasks.Go(func() { maintenance.FollowClock(ctx, enqueue) })
	if r.policies.UsesFile() {
		tasks.Go(func() { r.policies.FollowFile(ctx, enqueue) })
	}
	tasks.Wait()
	return nil
}

// run is one pass over one Kyma.
type run struct {
	*Reconciler
	kyma *v1beta2.Kyma // as read; steps change its status only through status.go
	now  time.Time     // of the whole pass
	new  bool          // nothing was ever reported of it

	runtime       *runtimes.Runtime            // set by connect; nil while there is none
	base          *render.Bundle               // set by mirror: what the runtime gets first
	paused        bool                         // set by mirror: nothing is done to the runtime but what a person deletes
	abandoned     bool                         // set by connect: no access Secret, so a deletion leaves the runtime as it is
	givenUp       bool                         // set by connect, modules or runtime: the deletion does not wait for the runtime any more
	silent        error                        // set by the same: why the runtime cannot be worked on, while that is waited for
	remote        *v1beta2.Kyma                // set by mirror: the Kyma in the runtime; in-cluster the Kyma itself
	resent        bool                         // set by mirror: something of base was sent in this pass
	unserved      bool                         // set by mirror: it waits for a kind that is about to be served
	mirrored      bool                         // set by mirror: the runtime has its namespace, CRDs and Kyma
	manifests     map[string]*v1beta2.Manifest // set by resolve: by name, all of this Kyma
	modules       []module                     // set by resolve, completed by install: wanted ones in the order of spec, then leaving ones
	known         bool                         // set by resolve: modules are all there are
	policyProblem error                        // set by resolve: why the maintenance policy cannot be used, nil if it can
	catalogued    bool                         // set by catalog: the runtime has its catalog
	kit           delivery.Kit                 // set by listen: what the runtime gets for its agent
	watchlist     string                       // set by listen: digest of what the agent is to watch
	undecided     bool                         // set by listen: it is not known yet what that is
	first         bool                         // set by announce: the first pass of a deletion
	queued        bool                         // set by turn: others have to be gone before the modules are removed
	stuck         bool                         // set by modules: a module waits for somebody else before it can be gone
}

// Reconcile is the whole life of a Kyma.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	defer func() { result.Priority = r.Runtimes.Again(req.Name) }()
	defer r.rollout.done(req.Name)
	ctx, leave, ours := r.Shards.BeginReconcile(ctx, req.Name)
	if !ours {
		r.Runtimes.Close(req.Name)
		r.forget(req.Name)
		r.leaveTurns(req.Name)
		return reconcile.Result{}, nil
	}
	defer leave()
	ctx = r.Runtimes.Hurried(ctx, req.Name)
	kyma := &v1beta2.Kyma{}
	if err := r.Client.Get(ctx, req.NamespacedName, kyma); err != nil {
		if apierrors.IsNotFound(err) {
			r.Runtimes.Unsubscribe(req.Name, followKey(req.Name))
			r.Runtimes.Unsubscribe(req.Name, catalogKey(req.Name))
			r.forget(req.Name)
			r.leaveTurns(req.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if r.isReleased(kyma) {
		return reconcile.Result{}, nil // it is gone; the cache will say so and wake us
	}
	n := &run{Reconciler: r, kyma: kyma, now: time.Now(), new: kyma.Status.State == "", policyProblem: r.policies.Problem()}
	defer func() {
		if state := kyma.Status.State; state != "" && state != v1beta2.StateProcessing {
			r.begin.leave(req.Name)
		}
	}()
	pass := loop.Options{Client: r.Client, Controller: "kyma", Object: kyma, Report: n.report, DeferSave: n.isMinor, Publish: n.publish, AfterStep: r.After}
	if !kyma.DeletionTimestamp.IsZero() {
		defer func() {
			if err != nil || n.silent != nil || n.stuck {
				r.end.done(req.Name)
			}
		}()
		return loop.Run(ctx, pass,
			loop.Step{Name: "announce", Do: n.announce},
			loop.Step{Name: "connect", Do: n.connectToDelete},
			loop.Step{Name: "turn", Do: n.awaitTurn, Save: true},
			loop.Step{Name: "modules", Do: n.deleteModules},
			loop.Step{Name: "runtime", Do: n.deleteFromRuntime},
			loop.Step{Name: "release", Do: n.release})
	}
	if kyma.SkipsReconciliation() {
		return loop.Run(ctx, loop.Options{Client: r.Client, Controller: "kyma", Object: kyma, Report: n.reportSkipped})
	}
	if n.new && !r.begin.may(req.Name) {
		return reconcile.Result{}, nil // its turn wakes us
	}
	return loop.Run(ctx, pass,
		loop.Step{Name: "adopt", Do: n.adopt},
		loop.Step{Name: "presume", Do: n.presume},
		loop.Step{Name: "connect", Do: n.connect},
		loop.Step{Name: "mirror", Do: n.mirror},
		loop.Step{Name: "remember", Do: n.rememberWish},
		loop.Step{Name: "resolve", Do: n.resolve},
		loop.Step{Name: "install", Do: n.install},
		loop.Step{Name: "remove", Do: n.remove},
		loop.Step{Name: "catalog", Do: n.syncCatalog},
		loop.Step{Name: "settle", Do: n.settle},
		loop.Step{Name: "listen", Do: n.planAgent, Save: true},
		loop.Step{Name: "agent", Do: n.deliverAgent},
		loop.Step{Name: "watch", Do: n.requeue})
}

// adopt marks the Kyma as ours, so that it cannot vanish before its runtime was cleaned.
func (n *run) adopt(ctx context.Context) error {
	n.inheritAgent()
	_, labelled := n.kyma.Labels[v1beta2.LabelManagedBy]
	if labelled && controllerutil.ContainsFinalizer(n.kyma, v1beta2.FinalizerKyma) {
		return nil
	}
	old := n.kyma.DeepCopy()
	controllerutil.AddFinalizer(n.kyma, v1beta2.FinalizerKyma)
	if !labelled {
		metav1.SetMetaDataLabel(&n.kyma.ObjectMeta, v1beta2.LabelManagedBy, v1beta2.ManagedByLifecycleManager)
	}
	return n.patchMetadata(ctx, old)
}

// patchMetadata sends what changed in the Kyma's metadata since old.
func (n *run) patchMetadata(ctx context.Context, old *v1beta2.Kyma, opts ...client.PatchOption) error {
	copied := n.kyma.DeepCopy()
	if err := n.Client.Patch(ctx, copied, client.MergeFrom(old), append(opts, client.FieldOwner(v1beta2.FieldOwner))...); err != nil {
		return fmt.Errorf("marking Kyma %s: %w", n.kyma.Name, err)
	}
	n.kyma.ObjectMeta = copied.ObjectMeta
	return nil
}

// connect finds the way to the runtime. It makes no request to it. Every failure waits for a change, of which the pool tells us.
func (n *run) connect(ctx context.Context) error {
	n.follow(false)
	rt, err := n.Runtimes.Get(ctx, n.kyma.Name)
	if err != nil {
		if loop.Reason(err) != "" {
			return reconcile.TerminalError(err)
		}
		return err
	}
	n.runtime = rt
	return nil
}

// follow asks to hear of the connection and of the Kyma in the runtime; behind says that the runtime is not looked at now, so that what was heard already
// counts.
func (n *run) follow(behind bool) {
	n.Runtimes.Subscribe(n.kyma.Name, runtimes.Subscriber{
		Key: followKey(n.kyma.Name), Interests: n.interests(), ReplayMissed: behind, Notify: n.wakeOn(client.ObjectKeyFromObject(n.kyma)),
	})
}

// requeue asks for the next look at a runtime of which nobody tells us anything, sooner if a module will then have to say why it is slow.
func (n *run) requeue(context.Context) error {
	after := spread(n.Runtimes.PollInterval(n.kyma.Name), n.kyma.Name)
	for _, m := range n.modules {
		if m.manifest != nil && m.manifest.Status.State == v1beta2.StateProcessing && !n.isSlow(m.manifest) {
			after = min(after, busySince(m.manifest).Add(patience).Sub(n.now)+time.Second)
		}
		if b := m.decision.Blocker; b != nil && !b.Until.IsZero() { // when the window opens
			after = min(after, max(time.Until(b.Until), time.Millisecond))
		}
	}
	return loop.RecheckAfter(after)
}

// memory returns what is known of a Kyma; of another connection than before, nothing is.
func (r *Reconciler) memory(kyma string, rt *runtimes.Runtime) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[kyma]
	switch {
	case m == nil:
		m = &memory{runtime: rt, catalog: sighting{audited: time.Now()}, born: time.Now()}
		m.agent.Trust() // as all else that was there before
		r.known[kyma] = m
	case m.runtime != rt:
		presumed := m.presumed
		m = &memory{runtime: rt, catalog: sighting{audited: time.Now()}, born: m.born}
		if presumed {
			m.agent.Trust()
		}
		r.known[kyma] = m
	}
	return m
}

// forget drops what is known of a Kyma that is gone.
func (r *Reconciler) forget(kyma string) {
	r.mu.Lock()
	delete(r.known, kyma)
	r.mu.Unlock()
	r.forgetMetrics(kyma)
}

// leaveTurns says that a Kyma has nothing to wait for: it is gone, or not ours.
func (r *Reconciler) leaveTurns(kyma string) {
	r.begin.leave(kyma)
	r.end.leave(kyma)
}

// isReleased tells whether a Kyma was let go already.
func (r *Reconciler) isReleased(k *v1beta2.Kyma) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[k.Name]
	return m != nil && m.released == k.UID
}

// newsFromRuntime tells whether the Kyma in the runtime differs from how it was last read in more than what we write ourselves.
func (r *Reconciler) newsFromRuntime(kyma string, remote metav1.Object) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[kyma]
	return m == nil || m.fingerprint != fingerprint(remote)
}

// noteRemote remembers how the Kyma in the runtime was read.
func (n *run) noteRemote() {
	m := n.memory(n.kyma.Name, n.runtime)
	n.mu.Lock()
	defer n.mu.Unlock()
	m.fingerprint = fingerprint(n.remote)
}

// spread returns an interval that is a little different for every name, so that the looks of a fleet do not march in step.
func spread(interval time.Duration, name string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return interval - interval/8 + interval/4*time.Duration(h.Sum32()%1024)/1024
}

// wakeOn returns what the pool calls when something happened in the runtime: it puts the Kyma into the queue. Status-only changes of
// the runtime's Kyma are our own.
func (r *Reconciler) wakeOn(key types.NamespacedName) func(runtimes.Event) {
	return func(s runtimes.Event) {
		priority := 0
		if o := s.Object; o != nil {
			if !s.Deleted && !r.newsFromRuntime(key.Name, o) {
				return
			}
			priority = runtimes.PriorityPerson
			r.Runtimes.Hurry(key.Name) // a pass that is under way for the fleet has to end first
		}
		if q := r.queue.Load(); q != nil {
			runtimes.Enqueue(*q, priority, 0, reconcile.Request{NamespacedName: key})
		}
	}
}

// followKey tells the Kyma apart from other followers of its runtime.
func followKey(kyma string) string { return "Kyma/" + kyma }

// kymaOfLabel maps an object to the Kyma that its label names.
func kymaOfLabel(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[v1beta2.LabelKymaName]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// onUpdate lets creations and deletions pass, and of updates what the function accepts.
func onUpdate(accept func(event.UpdateEvent) bool) builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: accept})
}

// wishChanged accepts what is not our own status: spec, labels, annotations, deletion.
func wishChanged(e event.UpdateEvent) bool {
	before, after := e.ObjectOld, e.ObjectNew
	return before.GetGeneration() != after.GetGeneration() ||
		before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
		!maps.Equal(before.GetLabels(), after.GetLabels()) || !maps.Equal(said(before), said(after))
}

// said returns the annotations but those that tell nobody here anything new: what this controller remembers on a Kyma, and what that of
// Manifests tells others.
func said(o client.Object) map[string]string {
	annotations := o.GetAnnotations()
	for _, key := range []string{v1beta2.AnnotationLastRequest, v1beta2.AnnotationSyncOCIRef} {
		if _, there := annotations[key]; there {
			annotations = maps.Clone(annotations)
			delete(annotations, key)
		}
	}
	return annotations
}
