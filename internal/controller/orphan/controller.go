// Package orphan looks, slowly, for what belongs to nobody: Manifests and access Secrets without a Kyma, objects in a runtime that
// say they are of a Manifest that does not exist, and entries of a runtime's catalog without a source.
//
// # Use
//
//	r, err := orphan.New(orphan.Options{Interval: 24 * time.Hour, …})
//	err = r.Register(mgr)
//
// # How it works
//
// None of this comes about while all goes well: a Kyma outlives its Manifests, and a Manifest its objects. It is left by finalizers that were
// removed by hand, by control planes that were restored from a backup, by runtimes that were given up and came back.
//
// What is looked at is named by a Kyma, whether or not that exists. A Kyma has a slot in each interval, the same ones after a restart,
// spread over the fleet by its name. In its slot its runtime is asked, by a fixed list of kinds, for objects with our label:
// about 25 requests, each bounded. What is named by a Kyma that does not exist is looked at when that has been so for a while
// (see patience), and then in each interval.
//
// What is found is told in events and counted in lifecycle_mgr_orphans. It is deleted only if Options.Cleanup says so, and only where
// it is certain:
//
//	what                          told as an event of    deleted with Cleanup
//	Manifest without Kyma         the Manifest           yes, unless it has an owner of another kind; it takes its objects with it
//	access Secret without Kyma    the Secret             never: somebody may be about to create the Kyma
//	object without Manifest       the Kyma               yes, but no namespace, no definition, and nothing that its module says to keep
//	catalog entry without source  the Kyma               yes
//
// It is certain when the control plane's API server, not our cache, says that the Kyma, Manifest or source does not exist.
//
// # What it does not do
//
// It does not look at custom resources: they end with their definition. It compares no inventory with a runtime: the Manifest
// controller does. It never touches an object without our label, one that another control plane, with another namespace, made, or an
// entry of the catalog that the catalog's field manager has not written.
package orphan

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// Options are what the controller works with.
type Options struct {
	// Client reads from the cache.
	Client client.Client
	// Live reads from the API server: what is deleted has to be certain.
	Live client.Reader
	// Runtimes connects to runtimes.
	Runtimes *runtimes.Pool
	// Events tells people what was found.
	Events events.EventRecorder
	// Namespace holds Kymas, Manifests, templates, releases and access Secrets.
	Namespace string
	// InCluster says that the runtime is the control plane itself: there are no access Secrets, and no second catalog.
	InCluster bool
	// Interval is how often is looked. It has to be positive.
	Interval time.Duration
	// Cleanup deletes what certainly belongs to nobody.
	Cleanup bool
	// Concurrency is the number of runtimes looked at at the same time. Default 2.
	Concurrency int
	// Shards say which runtimes are worked on here. nil: all.
	Shards *shard.Keeper
	// RateLimiter spaces the tries after an error.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
}

// Reconciler looks for orphans, one Kyma's at a time.
type Reconciler struct {
	Options

	mu    sync.Mutex
	known map[string]*memory // guarded by mu; by name of the Kyma
}

// memory is what is known of one Kyma between passes. Losing it costs time.
type memory struct {
	due     time.Time      // when its runtime is looked at next
	missing time.Time      // since when the Kyma does not exist; zero if it does
	counted map[string]int // what the metric has of it, by kind of orphan
}

// patience is how long a Kyma may be missing before what names it counts as orphaned: people create objects in any order.
const patience = 5 * time.Minute

// New checks the options and returns a Reconciler.
func New(o Options) (*Reconciler, error) {
	if o.Client == nil || o.Live == nil || o.Runtimes == nil || o.Events == nil || o.Namespace == "" || o.Interval <= 0 {
		return nil, fmt.Errorf("making the orphan controller: options need Client, Live, Runtimes, Events, Namespace and Interval")
	}
	if o.Concurrency == 0 {
		o.Concurrency = 2
	}
	return &Reconciler{Options: o, known: map[string]*memory{}}, nil
}

// Register adds the controller to a manager.
func (r *Reconciler) Register(mgr ctrl.Manager) error {
	comesOrGoes := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1beta2.Kyma{}, comesOrGoes).
		Watches(&v1beta2.Manifest{}, handler.EnqueueRequestsFromMapFunc(kymaOfLabel), comesOrGoes).
		Named("orphan").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency, RateLimiter: r.RateLimiter})
	if !r.InCluster {
		b = b.WatchesMetadata(runtimes.NewSecretMetadata(), handler.EnqueueRequestsFromMapFunc(kymaOfLabel), comesOrGoes)
	}
	return b.Complete(r)
}

// kymaOfLabel maps an object to the Kyma that its label names.
func kymaOfLabel(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[v1beta2.LabelKymaName]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// Reconcile looks at what is named by one Kyma, if it is time for that.
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
		return r.withoutKyma(ctx, req.NamespacedName, now)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading Kyma %s: %w", req.Name, err)
	}
	m := r.remember(req.Name)
	if !m.missing.IsZero() { // it has come after its access Secret, for which somebody meant to look soon
		m.missing, m.due = time.Time{}, time.Time{}
	}
	r.count(m, manifestOrphan, 0)
	r.count(m, secretOrphan, 0)
	if m.due.IsZero() {
		m.due = slot(now, r.Interval, req.Name)
	}
	if !now.Before(m.due) {
		if err := r.sweep(ctx, kyma, m); err != nil {
			return reconcile.Result{}, err
		}
		m.due = slot(now, r.Interval, req.Name)
	}
	return reconcile.Result{RequeueAfter: max(m.due.Sub(now), time.Millisecond)}, nil
}

// remember returns what is known of a Kyma. One pass at a time uses it.
func (r *Reconciler) remember(kyma string) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[kyma]
	if m == nil {
		m = &memory{counted: map[string]int{}}
		r.known[kyma] = m
	}
	return m
}

// forget drops what is known of a Kyma that nothing names.
func (r *Reconciler) forget(kyma string) {
	m := r.remember(kyma)
	for kind := range m.counted {
		r.count(m, kind, 0)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, kyma)
}

// count says how many orphans of a kind there are of one Kyma now.
func (*Reconciler) count(m *memory, kind string, n int) {
	if n != m.counted[kind] {
		metrics.Orphans.WithLabelValues(kind).Add(float64(n - m.counted[kind]))
		m.counted[kind] = n
	}
}
