// Package orphan searches for orphans at a long interval. Orphans are Manifests and access Secrets without a Kyma,
// objects in a runtime whose Manifest does not exist, and catalog entries in a runtime whose source does not exist.
//
// # Use
//
//	r, err := orphan.New(orphan.Options{Interval: 24 * time.Hour, …})
//	err = r.Register(mgr)
//
// # How it works
//
// Normally there are no orphans, because a Kyma is deleted after its Manifests, and a Manifest after its objects.
// Orphans have three causes: finalizers that were removed by hand, control planes that were restored from a backup, and
// runtimes that were abandoned and can be reached again.
//
// The controller groups objects by the Kyma that they name, whether or not this Kyma exists. For each Kyma, the search
// has one time slot in each interval. The time slot of a Kyma depends only on a hash of its name. Therefore the time
// slots of all Kymas are spread over the interval, and a restart of the manager does not move them. In the time slot of
// a Kyma, the controller lists the objects with our label in the runtime, for a fixed list of kinds. The search in one
// runtime takes about 25 requests, each with a limit on the number of objects. If a Kyma has been missing for
// missingGracePeriod, the objects that name this Kyma are handled, and then again once in each interval.
//
// Orphans are reported in events and counted in the metric lifecycle_mgr_orphans. Orphans are deleted only if
// Options.Cleanup is set:
//
//	orphan                        event of        deleted with Cleanup
//	Manifest without Kyma         the Manifest    yes, with its objects, unless it has an owner of another kind
//	access Secret without Kyma    the Secret      never, because the Kyma may be created soon
//	object without Manifest       the Kyma        yes, except for Namespaces, CRDs, and objects that the module keeps
//	catalog entry without source  the Kyma        yes
//
// A Kyma, Manifest or source counts as missing only if the API server of the control plane returns NotFound. An object
// that is missing in the cache of the manager does not count as missing for that reason alone. A Manifest of which a
// runtime has objects does not count as missing either if it exists in this runtime: the runtime is a control plane,
// too, and the Manifest belongs to its own manager. After a take-over of a runtime, its objects name Manifests of the
// former owner: such a Manifest does not count as missing while a Manifest of the new owner has the annotation with its
// name, and objects in the inventory of a Manifest of the new owner are no orphans either.
//
// # What it does not do
//
// The controller does not search for custom resources, because they are deleted with their CRD. The controller does not
// compare inventories with a runtime, because the Manifest controller compares them. The controller never changes an
// object without our label. The controller never changes an object that names a Manifest in another namespace, because
// the object belongs to another control plane. The controller never changes a catalog entry that the field manager of
// the catalog has not written.
package orphan

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// Options configure the controller.
type Options struct {
	// Client reads from the cache.
	Client client.Client
	// Live reads from the API server. A read with Live confirms that an object is missing before anything is deleted.
	Live client.Reader
	// Runtimes connects to runtimes.
	Runtimes *runtimes.Pool
	// Events records events about orphans.
	Events events.EventRecorder
	// Namespace is the namespace of the Kymas, Manifests, templates, releases and access Secrets.
	Namespace string
	// InCluster is true if the runtime is the control plane itself. A runtime that is the control plane itself has no
	// access Secret and no catalog copy.
	InCluster bool
	// Interval is the time between two searches in one runtime. Interval must be positive.
	Interval time.Duration
	// Cleanup enables the deletion of orphans. The package comment lists the orphans that are deleted.
	Cleanup bool
	// Concurrency is the number of runtimes that are searched at the same time. Default 2.
	Concurrency int
	// Shards determines for which runtimes this replica is responsible. If Shards is nil, the replica is responsible
	// for all runtimes.
	Shards *shard.Keeper
	// RateLimiter delays the retries after an error.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
}

// Reconciler searches for orphans. The name in a reconcile request is the name of a Kyma.
type Reconciler struct {
	Options
	memories loop.Memory[string, memory] // by name of the Kyma
}

// memory is the data about one Kyma that is kept in memory between two reconciles. If the data about a Kyma is lost,
// for example because the manager restarts, the next search in the runtime of the Kyma waits for the Kyma's next time
// slot.
type memory struct {
	due          time.Time      // the time of the next search in the runtime
	missingSince time.Time      // the time since which the Kyma is missing; zero if the Kyma exists
	counted      map[string]int // the number of orphans of this Kyma in the metric, by kind of orphan
}

// missingGracePeriod is the time for which a Kyma may be missing before the objects that name it count as orphans.
// Users may create an access Secret or a Manifest before they create its Kyma.
const missingGracePeriod = 5 * time.Minute

// verificationDelay is the delay before the next search if the owner of the runtime is not verified yet.
const verificationDelay = time.Minute

// New checks the options and returns a Reconciler.
func New(o Options) (*Reconciler, error) {
	if o.Client == nil || o.Live == nil || o.Runtimes == nil || o.Events == nil ||
		o.Namespace == "" || o.Interval <= 0 {
		return nil, fmt.Errorf(
			"making the orphan controller: options need Client, Live, Runtimes, Events, Namespace and Interval")
	}
	if o.Concurrency == 0 {
		o.Concurrency = 2
	}
	return &Reconciler{Options: o}, nil
}

// Register adds the controller to a manager.
func (r *Reconciler) Register(mgr ctrl.Manager) error {
	createdOrDeleted := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(
		event.UpdateEvent) bool {
		return false
	}})
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1beta2.Kyma{}, createdOrDeleted).
		Watches(&v1beta2.Manifest{}, handler.EnqueueRequestsFromMapFunc(r.requestIfKymaIsMissing), createdOrDeleted).
		Named("orphan").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency, RateLimiter: r.RateLimiter})
	if !r.InCluster {
		b = b.WatchesMetadata(runtimes.NewSecretMetadata(), handler.EnqueueRequestsFromMapFunc(
			r.requestIfKymaIsMissing), createdOrDeleted)
	}
	return b.Complete(r)
}

// requestIfKymaIsMissing returns a request for the Kyma that an object names if this Kyma is not in the cache. A Kyma
// in the cache needs no reconcile when its Manifests are created: its creation has started the searches, and its
// deletion triggers the next reconcile.
func (r *Reconciler) requestIfKymaIsMissing(ctx context.Context, o client.Object) []reconcile.Request {
	requests := loop.RequestForKyma(ctx, o)
	return slices.DeleteFunc(requests, func(request reconcile.Request) bool {
		return r.Client.Get(ctx, request.NamespacedName, &v1beta2.Kyma{}, client.UnsafeDisableDeepCopy,
			client.DisableReadYourWritesConsistency) == nil // an event handler must not wait
	})
}

// Reconcile searches for the orphans of one Kyma if the time slot of the Kyma has started.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, leave, ours := r.Shards.BeginReconcile(ctx, req.Name)
	if !ours {
		r.forget(req.Name)
		return reconcile.Result{}, nil
	}
	defer leave()
	now := time.Now()
	kyma := &v1beta2.Kyma{}
	err := r.Client.Get(ctx, req.NamespacedName, kyma)
	if apierrors.IsNotFound(err) {
		return r.reconcileMissing(ctx, req.NamespacedName, now)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading Kyma %s: %w", req.Name, err)
	}
	m := r.memoryOf(req.Name)
	if !m.missingSince.IsZero() { // the Kyma was created after its access Secret
		m.missingSince, m.due = time.Time{}, time.Time{}
	}
	r.setCount(m, manifestOrphan, 0)
	r.setCount(m, secretOrphan, 0)
	if m.due.IsZero() {
		m.due = nextSlot(now, r.Interval, req.Name)
	}
	if !now.Before(m.due) {
		err := r.sweepRuntimeIfReachable(ctx, kyma, m)
		if runtimes.IsOwnerNotVerified(err) {
			return reconcile.Result{RequeueAfter: verificationDelay}, nil
		}
		if err != nil {
			return reconcile.Result{}, err
		}
		m.due = nextSlot(now, r.Interval, req.Name)
	}
	return reconcile.Result{RequeueAfter: max(m.due.Sub(now), time.Millisecond)}, nil
}

// memoryOf returns the data that the process keeps about a Kyma between reconciles. The data needs no lock, because
// only one reconcile at a time uses it.
func (r *Reconciler) memoryOf(kyma string) *memory {
	return r.memories.GetOrCreate(kyma, func() *memory { return &memory{counted: map[string]int{}} })
}

// forget deletes the data that is kept in memory about a Kyma, and subtracts the orphans of the Kyma from the metric.
func (r *Reconciler) forget(kyma string) {
	if m := r.memories.Forget(kyma); m != nil {
		for kind := range m.counted {
			r.setCount(m, kind, 0)
		}
	}
}

// setCount sets the number of orphans of one kind that one Kyma has.
func (*Reconciler) setCount(m *memory, kind string, n int) {
	if n != m.counted[kind] {
		metrics.Orphans.WithLabelValues(kind).Add(float64(n - m.counted[kind]))
		m.counted[kind] = n
	}
}
