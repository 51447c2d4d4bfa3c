// Package rollout coordinates rollouts: it records each move of a channel, and admits runtimes to new versions.
//
// # Use
//
//	r, err := rollout.New(rollout.Options{…})
//	err = r.Register(ctx, mgr)
//
// # How it works
//
// Each reconcile is about one module. Reconciles run on the leader only, one at a time, so that there is only one
// coordinator:
//
//	1  it compares the versions in the ModuleReleaseMeta with its status, and makes a ModuleRollout for each new move
//	2  it computes the next status of each active rollout from the Kymas and Manifests in the cache
//	3  it writes what has changed
//
// Before the first runtime of a rollout with stages is admitted, package preflight verifies and renders the version.
//
// The decisions are those of the pure package internal/rollout. A status is written with the resourceVersion that was
// read, so that a second coordinator, for example a leader that has lost its Lease, cannot overwrite it. The Kyma
// controllers of all replicas act on the status of the ModuleRollout.
//
// While a rollout is under way, a module is reconciled at most once in [Period], however many runtimes change. Only the
// failure that halts a rollout causes a reconcile before the Period is over, see package failurebudget. If a module has
// no active rollout, changes of Kymas and Manifests cause no reconcile of the module.
//
// # What it does not do
//
// The package changes no Kyma and no Manifest: the Kyma controller orders versions, and marks them with the name of the
// rollout in the same write. The package makes no request to a runtime.
package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
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
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/rollout/failurebudget"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/rollout/gate"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/rollout/preflight"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

// Period is the shortest time between two reconciles of a module, and so between two writes of a status.
const Period = 2 * time.Second

// settleDelay is how long a new version has to stay in a channel before its rollout is created, so that two moves of
// the channel within seconds become one rollout.
const settleDelay = 5 * time.Second

// moduleIndex finds Manifests by the name of their module.
const moduleIndex = "rollout.module"

// Options are the dependencies and settings of the coordinator.
type Options struct {
	// Client reads ModuleReleaseMetas, ModuleRollouts and RolloutPolicies from the cache, and writes to the API server.
	// A read waits until the cache has the client's own writes.
	Client client.Client
	// Live reads ModuleReleaseMetas from the API server, with their managed fields, and Manifests for IsFleetOnDemand.
	// If the field Live is nil, the coordinator applies no promotion, records moves of channels without the name of a
	// user, and ignores IsFleetOnDemand.
	Live client.Reader
	// Fleet has the Kymas and Manifests of all runtimes. The coordinator adds an index and event handlers to Fleet, and
	// reads Fleet only with List. List must wait until Fleet is filled.
	Fleet cache.Cache
	// IsFleetOnDemand means that Fleet is filled only when it is read for the first time. In this case, the coordinator
	// lists one Manifest with Live before it reads Fleet for the first version of a channel. If there is no Manifest,
	// the coordinator does not read Fleet, so a new module does not fill it.
	IsFleetOnDemand bool
	// Namespace is the namespace of the catalog, the rollouts, the Kymas and the Manifests.
	Namespace string
	// Catalog returns the catalog with which requests are resolved. The second result is a function that returns the
	// error of a failed read of the catalog.
	Catalog func(ctx context.Context) (channel.Catalog, func() error)
	// PolicyChanges has an event after each change of the maintenance policy in the catalog, and after the wall clock
	// was set. nil means that a change is noticed in the next reconcile only.
	PolicyChanges <-chan event.GenericEvent
	// Manifest returns the Manifest of a version as it would be in a runtime. Check verifies and renders the sources of
	// a Manifest, and returns the digest and the CustomResourceDefinitions of the content. The coordinator calls the
	// functions Manifest and Check before it admits the first runtime. If Manifest and Check are nil, the coordinator
	// only checks that the ModuleTemplate exists.
	Manifest func(ctx context.Context, component, version string, t *v1beta2.ModuleTemplate) (*v1beta2.Manifest, error)
	Check    func(ctx context.Context, m *v1beta2.Manifest) (string, []*unstructured.Unstructured, error)
	// MaxUpdating is the largest number of runtimes that all rollouts with stages update at the same time. 0 means that
	// only the policies limit the number.
	MaxUpdating int
	// GateAllow are prefixes of the addresses to which gates may send requests. If GateAllow is empty, no query or
	// webhook gate passes.
	GateAllow []string
	// Events records events on ModuleRollouts. nil means that none are recorded.
	Events events.EventRecorder
	// RateLimiter returns the delay of a retry after an error.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
	// SettleDelay is the time that a version has to stay before a rollout is made. Default: 5 seconds.
	SettleDelay time.Duration
}

// Reconciler is the coordinator of rollouts.
type Reconciler struct {
	Options
	gates       *gate.Reader
	gateResults *gate.Cache
	notifier    *gate.Notifier        // notifies the webhooks of promotions
	checker     *preflight.Checker    // nil if Check is nil
	trigger     queueing.Trigger      // enqueues modules whose versions were checked, gates read, or webhooks notified
	budgets     failurebudget.Budgets // find the failure that halts a rollout

	forecasts map[string]forecast  // by name of an active rollout; only used by the one worker
	counted   map[string]time.Time // by module: when the runtimes with withdrawn versions were counted; likewise
	clock     rollout.Clock        // likewise
	begun     time.Time            // when the Reconciler was made, for the monotonic clock

	mu       sync.Mutex
	active   map[string]bool        // guarded by mu: modules with an active rollout
	flights  map[string]flight      // guarded by mu: by name of an active rollout
	moves    map[string]pendingMove // guarded by mu: by module/channel: a version that has to settle
	lastPass map[string]time.Time   // guarded by mu: by module
}

// flight has the runtimes that one rollout is updating.
type flight struct {
	kymas map[string]bool
}

// pendingMove is a new version of a channel, and the time at which the controller read this version for the first time.
type pendingMove struct {
	version string
	since   time.Time
}

// New checks the options and returns a Reconciler.
func New(o Options) (*Reconciler, error) {
	if o.Client == nil || o.Fleet == nil || o.Namespace == "" || o.Catalog == nil {
		return nil, fmt.Errorf("making the rollout controller: options need Client, Fleet, Namespace and Catalog")
	}
	if o.SettleDelay == 0 {
		o.SettleDelay = settleDelay
	}
	r := &Reconciler{Options: o, gates: &gate.Reader{Allow: o.GateAllow}, active: map[string]bool{},
		flights: map[string]flight{},
		moves:   map[string]pendingMove{}, lastPass: map[string]time.Time{},
		forecasts: map[string]forecast{}, counted: map[string]time.Time{}}
	r.begun = time.Now()
	r.gateResults = gate.NewCache(r.gates, r.triggerModule)
	r.notifier = gate.NewNotifier(r.gates, r.triggerModule)
	r.checker = r.newChecker()
	return r, nil
}

// Register adds the controller and its index to a manager.
func (r *Reconciler) Register(ctx context.Context, mgr ctrl.Manager) error {
	if err := r.Fleet.IndexField(ctx, &v1beta2.Manifest{}, moduleIndex, func(o client.Object) []string {
		return []string{o.(*v1beta2.Manifest).ModuleName()}
	}); err != nil {
		return fmt.Errorf("making index %s: %w", moduleIndex, err)
	}
	if r.checker != nil {
		if err := mgr.Add(r.checker); err != nil {
			return fmt.Errorf("adding the checker of versions: %w", err)
		}
	}
	if err := mgr.Add(r.gateResults); err != nil {
		return fmt.Errorf("adding the reader of gates: %w", err)
	}
	if err := mgr.Add(r.notifier); err != nil {
		return fmt.Errorf("adding the notifier of promotions: %w", err)
	}
	if err := (policies{r}).register(mgr); err != nil {
		return err
	}
	specChanged := builder.WithPredicates(loop.SpecLabelsOrAnnotationsChanged())
	toModule := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{r.requestFor(o.(*v1beta2.ModuleRollout).Spec.Module)}
	})
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1beta2.ModuleReleaseMeta{}, specChanged).
		Watches(&v1beta2.ModuleRollout{}, toModule, specChanged).
		Watches(&v1beta2.ModuleTemplate{}, handler.EnqueueRequestsFromMapFunc(r.moduleOf), specChanged).
		Watches(&v1beta2.RolloutPolicy{}, handler.EnqueueRequestsFromMapFunc(r.allModules), specChanged).
		WatchesRawSource(r.fleetSource(&v1beta2.Manifest{})).
		WatchesRawSource(r.fleetSource(&v1beta2.Kyma{})).
		WatchesRawSource(r.trigger.Source()).
		Named("rollout").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, RateLimiter: r.RateLimiter,
			NeedLeaderElection: new(true)})
	if r.PolicyChanges != nil {
		b = b.WatchesRawSource(source.Channel(r.PolicyChanges, r.onMaintenancePolicy()))
	}
	return b.Complete(r)
}

func (r *Reconciler) requestFor(module string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: module}}
}

// triggerModule enqueues a module after a new result of another goroutine.
func (r *Reconciler) triggerModule(module string) {
	r.trigger.Add(queueing.Event, 0, r.requestFor(module))
}

// moduleOf returns a request for the module of a template.
func (r *Reconciler) moduleOf(_ context.Context, template client.Object) []reconcile.Request {
	return []reconcile.Request{r.requestFor(channel.ModuleOf(template.(*v1beta2.ModuleTemplate)))}
}

// allModules returns a request for each module.
func (r *Reconciler) allModules(ctx context.Context, _ client.Object) []reconcile.Request {
	var all v1beta2.ModuleReleaseMetaList
	if err := r.Client.List(ctx, &all, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list ModuleReleaseMetas")
		return nil
	}
	requests := make([]reconcile.Request, len(all.Items))
	for i := range all.Items {
		requests[i] = r.requestFor(all.Items[i].Name)
	}
	return requests
}

// fleetSource returns the source of changes of one kind in Fleet. The controller does not wait until Fleet is filled:
// Fleet may be filled only when a reconcile reads it, and that read waits. An event before the first read of Fleet
// would change nothing, because only a module with an active rollout is reconciled, and the first reconcile of such a
// module, or its next one after SettleDelay, reads Fleet.
func (r *Reconciler) fleetSource(kind client.Object) source.Source {
	return source.Func(func(ctx context.Context, q queueing.Queue) error {
		informer, err := r.Fleet.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(r.onFleet(q))
		}
		if err != nil {
			return fmt.Errorf("watching %T of the fleet: %w", kind, err)
		}
		return nil
	})
}

// onFleet returns the handler for changes of Kymas and Manifests. Only modules with an active rollout are reconciled:
// at once after the first change of a Kyma or Manifest, and after that at most once per [Period]. The failure that
// exceeds the limit of a stage causes a reconcile without a delay.
func (r *Reconciler) onFleet(q queueing.Queue) toolscache.ResourceEventHandler {
	enqueue := func(raw any) {
		if left, is := raw.(toolscache.DeletedFinalStateUnknown); is {
			raw = left.Obj
		}
		if o, is := raw.(client.Object); is {
			for _, module := range r.activeModulesOf(o) {
				q.AddAfter(r.requestFor(module), r.untilPass(module))
			}
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: enqueue, DeleteFunc: enqueue,
		UpdateFunc: func(before, now any) {
			was, _ := before.(client.Object)
			is, _ := now.(client.Object)
			r.budgets.CountNewFailure(was, is)
			enqueue(now)
		},
	}
}

// onMaintenancePolicy returns the handler for changes of the maintenance policy. A module without an active rollout
// does not depend on the policy.
func (r *Reconciler) onMaintenancePolicy() handler.EventHandler {
	return handler.Funcs{GenericFunc: func(_ context.Context, _ event.GenericEvent,
		q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		for _, module := range r.activeModules() {
			q.AddAfter(r.requestFor(module), r.untilPass(module))
		}
	}}
}

// activeModules returns the modules that have an active rollout.
func (r *Reconciler) activeModules() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.active))
}

// activeModulesOf returns the modules of a Kyma or Manifest that have an active rollout.
func (r *Reconciler) activeModulesOf(o client.Object) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.active) == 0 {
		return nil
	}
	if m, ok := o.(*v1beta2.Manifest); ok {
		if r.active[m.ModuleName()] {
			return []string{m.ModuleName()}
		}
		return nil
	}
	var modules []string
	k := o.(*v1beta2.Kyma)
	for i := range k.Status.Modules {
		if name := k.Status.Modules[i].Name; r.active[name] {
			modules = append(modules, name)
		}
	}
	for i := range k.Status.MandatoryModules {
		if name := k.Status.MandatoryModules[i].Name; r.active[name] {
			modules = append(modules, name)
		}
	}
	return modules
}

// Reconcile records the moves of one module and advances its rollouts.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request.Namespace != r.Namespace {
		return reconcile.Result{}, nil
	}
	if wait := r.beginPass(request.Name); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	release := &v1beta2.ModuleReleaseMeta{}
	if err := r.Client.Get(ctx, request.NamespacedName, release); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("reading ModuleReleaseMeta %s: %w", request.Name, err)
		}
		r.setActive(request.Name, false)
		return reconcile.Result{}, r.endAll(ctx, request.Name)
	}
	p := &pass{Reconciler: r, release: release, now: time.Now()}
	r.clock.Notice(p.now.Round(0), p.now.Sub(r.begun))
	err := p.run(ctx)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: Period}, nil // another client has written; the next pass reads again
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.next}, nil
}

// endAll ends the rollouts of a module whose release was deleted.
func (r *Reconciler) endAll(ctx context.Context, module string) error {
	var all v1beta2.ModuleRolloutList
	if err := r.Client.List(ctx, &all, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing ModuleRollouts: %w", err)
	}
	p := &pass{Reconciler: r, now: time.Now()}
	for i := range all.Items {
		o := &all.Items[i]
		if o.Spec.Module != module || o.Status.Phase.IsOver() {
			continue
		}
		if err := p.endRollout(ctx, o.DeepCopy(), v1beta2.RolloutEndedAborted,
			"the ModuleReleaseMeta was deleted"); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// untilPass returns the time until the next reconcile of a module may begin.
func (r *Reconciler) untilPass(module string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.budgets.IsExceeded(module) {
		return 0
	}
	return max(0, Period-time.Since(r.lastPass[module]))
}

// beginPass records the begin of a reconcile of a module, or returns the delay after which the reconcile may begin.
// Because of the delay, a module with an active rollout is reconciled at most once per Period. If a failure exceeds the
// limit of a stage, there is no delay, because the failure may halt the rollout.
func (r *Reconciler) beginPass(module string) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait = Period - time.Since(r.lastPass[module])
	if isExceeded := r.budgets.TakeExceeded(module); wait > 0 && r.active[module] && !isExceeded {
		return wait
	}
	r.lastPass[module] = time.Now()
	return 0
}

// setActive records whether a module has an active rollout.
func (r *Reconciler) setActive(module string, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if is {
		r.active[module] = true
		return
	}
	delete(r.active, module)
	delete(r.lastPass, module)
}
