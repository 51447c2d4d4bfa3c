// Package orphan searches, slowly, for orphans: Manifests and access Secrets without a Kyma, objects in a runtime whose
// Manifest does not exist, and entries of the catalog in a runtime without a source.
//
// # Use
//
//	r, err := orphan.New(orphan.Options{Interval: 24 * time.Hour, …})
//	err = r.Register(mgr)
//
// # How it works
//
// Normally there are no orphans, because a Kyma is deleted after its Manifests, and a Manifest after its objects.
// Orphans come from finalizers that were removed by hand, from control planes that were restored from a backup, and
// from runtimes that were given up and can be reached again.
//
// The controller works by the name of the Kyma that an object names, whether or not that Kyma exists. Each Kyma has one
// slot in each interval. The slot depends on its name only, so slots are spread over the interval and a restart does
// not move them. In its slot, the runtime is asked for objects with our label, for a fixed list of kinds: about 25
// requests, each with a limit. Objects that name a missing Kyma are handled once it has been missing for
// missingGracePeriod, and then once in each interval.
//
// Orphans are reported by events and counted in lifecycle_mgr_orphans. They are deleted only if Options.Cleanup is set:
//
//	orphan                        event of        deleted with Cleanup
//	Manifest without Kyma         the Manifest    yes, unless it has an owner of another kind; its objects are deleted with it
//	access Secret without Kyma    the Secret      never: the Kyma may be created soon
//	object without Manifest       the Kyma        yes, except for Namespaces, CRDs, and objects that the module keeps
//	catalog entry without source  the Kyma        yes
//
// A Kyma, Manifest or source counts as missing only if the API server of the control plane returns NotFound, not only
// the cache.
//
// # What it does not do
//
// It does not search for custom resources: they are deleted with their CRD. It does not compare inventories with a
// runtime: the Manifest controller does. It never touches an object without our label, an object of another control
// plane (with another namespace), or an entry of the catalog that the field manager of the catalog has not written.
package orphan

import (
	"context"
	"fmt"
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
	// Live reads from the API server, before anything is deleted.
	Live client.Reader
	// Runtimes connects to runtimes.
	Runtimes *runtimes.Pool
	// Events records what was found.
	Events events.EventRecorder
	// Namespace has the Kymas, Manifests, templates, releases and access Secrets.
	Namespace string
	// InCluster is set if the runtime is the control plane itself, without access Secrets and without a copy of the
	// catalog.
	InCluster bool
	// Interval is the time between two searches in one runtime. It has to be positive.
	Interval time.Duration
	// Cleanup deletes orphans; see the package comment for which.
	Cleanup bool
	// Concurrency is the number of runtimes that are searched at the same time. Default 2.
	Concurrency int
	// Shards are the runtimes that this replica is responsible for. nil: all.
	Shards *shard.Keeper
	// RateLimiter delays the retries after an error.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
}

// Reconciler searches for orphans by the name of the Kyma.
type Reconciler struct {
	Options
	memories loop.Memory[string, memory] // by name of the Kyma
}

// memory is what is remembered of one Kyma between reconciles. Losing it delays the next search.
type memory struct {
	due          time.Time      // when its runtime is searched next
	missingSince time.Time      // since when the Kyma does not exist; zero if it does
	counted      map[string]int // its part of the metric, by kind of orphan
}

// missingGracePeriod is how long a Kyma may be missing before the objects that name it are orphans: people create
// objects in any order.
const missingGracePeriod = 5 * time.Minute

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
		Watches(&v1beta2.Manifest{}, handler.EnqueueRequestsFromMapFunc(loop.RequestForKyma), createdOrDeleted).
		Named("orphan").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency, RateLimiter: r.RateLimiter})
	if !r.InCluster {
		b = b.WatchesMetadata(runtimes.NewSecretMetadata(), handler.EnqueueRequestsFromMapFunc(loop.RequestForKyma),
			createdOrDeleted)
	}
	return b.Complete(r)
}

// Reconcile searches for the orphans of one Kyma, if its slot has come.
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
	if !m.missingSince.IsZero() { // it was created after its access Secret
		m.missingSince, m.due = time.Time{}, time.Time{}
	}
	r.setCount(m, manifestOrphan, 0)
	r.setCount(m, secretOrphan, 0)
	if m.due.IsZero() {
		m.due = nextSlot(now, r.Interval, req.Name)
	}
	if !now.Before(m.due) {
		if err := r.sweep(ctx, kyma, m); err != nil {
			return reconcile.Result{}, err
		}
		m.due = nextSlot(now, r.Interval, req.Name)
	}
	return reconcile.Result{RequeueAfter: max(m.due.Sub(now), time.Millisecond)}, nil
}

// memoryOf returns the memory of a Kyma, which one reconcile at a time uses.
func (r *Reconciler) memoryOf(kyma string) *memory {
	return r.memories.GetOrCreate(kyma, func() *memory { return &memory{counted: map[string]int{}} })
}

// forget drops the memory of a Kyma, and its part of the metric.
func (r *Reconciler) forget(kyma string) {
	if m := r.memories.Forget(kyma); m != nil {
		for kind := range m.counted {
			r.setCount(m, kind, 0)
		}
	}
}

// setCount sets how many orphans of a kind one Kyma has.
func (*Reconciler) setCount(m *memory, kind string, n int) {
	if n != m.counted[kind] {
		metrics.Orphans.WithLabelValues(kind).Add(float64(n - m.counted[kind]))
		m.counted[kind] = n
	}
}
