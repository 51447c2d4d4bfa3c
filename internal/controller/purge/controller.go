// Package purge ends a deletion that does not end by itself: it takes what Lifecycle Manager deployed out of the runtime of a Kyma
// that has been going for longer than a grace period.
//
// # Use
//
//	r, err := purge.New(purge.Options{Grace: 5 * time.Minute, …})
//	err = r.Register(ctx, mgr)
//
// # How it works
//
// The Kyma and Manifest controllers delete in good order, and wait: for users to delete their custom resources, for operators to let
// go of theirs. A Kyma that is still there when its grace period is over has something that nobody will let go. The period begins when
// its Manifests are asked to go, which may be later than the Kyma is: see turns.go of the Kyma controller. This
// controller wakes at the end of it and, for each of its Manifests that is being deleted:
//
//	1  reads what the inventory names, to know what there is
//	2  deletes the custom resources of the definitions in the inventories, and the module's own
//	3  removes the finalizers of those that have had a last chance (see farewell) and are still there
//	4  deletes webhook configurations of the inventories that nobody answers, and that keep the runtime from accepting 2 or 3
//	5  deletes the inventory, once no custom resource is left
//
// Until 4 it touches nothing of the operator: as long as there are custom resources the Manifest controller keeps their operator
// alive, and both would undo each other's work. With 4 it says so on the Manifest, whose controller then leaves off
// (v1beta2.AnnotationPurged). In 5 both delete the same list, which does no harm, because deleting twice is deleting once. An object of the inventory that lingers, say because a finalizer of somebody else holds it, no longer
// holds up what comes after it.
//
// [Tombstones] does the same for Kymas that are gone because their deletion was given up while the runtime could not be worked on.
//
// What was removed is told in events of the Kyma, counted in lifecycle_mgr_purged_objects_total, and named in the log.
//
// # What it does not do
//
// It touches nothing but the objects of inventories, and custom resources whose definition is in an inventory. It keeps what the
// module says to keep, with its definition and all custom resources of that. It leaves kinds of Options.Skip alone, and our own. It
// never takes an object out of an inventory, nor lets a Manifest or a Kyma go: their controllers do, when they see that all is gone.
package purge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// Options are what the controller works with.
type Options struct {
	// Client reads from the cache and sees its own writes.
	Client client.Client
	// Runtimes connects to runtimes.
	Runtimes *runtimes.Pool
	// Events tells people what was removed.
	Events events.EventRecorder
	// Grace is how long a deletion may take before the runtime is purged, from when modules were asked to go. 0 means that it never is.
	Grace time.Duration
	// Skip are patterns, as of path.Match, for kinds whose custom resources are left alone: plural.group or kind.group, such as
	// "*.helm.cattle.io" or "certificate.cert-manager.io". Case does not matter.
	Skip []string
	// Concurrency is the number of Kymas worked on at the same time. Default 4.
	Concurrency int
	// Shards say which runtimes are worked on here. nil: all.
	Shards *shard.Keeper
	// RateLimiter spaces the tries after an error.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
}

// Reconciler purges the runtimes of Kymas.
type Reconciler struct {
	Options
	name  string                                                                  // among the followers of a runtime
	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]] // set when the controller starts

	mu    sync.Mutex
	known map[string]*memory // guarded by mu; by name of the Kyma
}

// memory is what is known of one purge between passes. Losing it costs reads, and events that say less.
type memory struct {
	kyma     *v1beta2.Kyma          // as last seen
	runtime  *runtimes.Runtime      // the connection that the rest belongs to; nil while there is none
	targets  map[string]*target     // by name of the Manifest
	deletion apply.DeletionProgress // what was asked to go
	told     map[string]bool        // what stood in the way at the last pass, and was told
	begun    time.Time              // when the work on this connection began
	unhooked map[string]time.Time   // when a webhook was taken out of the runtime, by its name
}

// New checks the options and returns a Reconciler.
func New(o Options) (*Reconciler, error) {
	if o.Client == nil || o.Runtimes == nil || o.Events == nil || o.Grace < 0 {
		return nil, fmt.Errorf("making the purge controller: options need Client, Runtimes, Events and a Grace that is not negative")
	}
	for _, pattern := range o.Skip {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("making the purge controller: pattern %q of Skip: %w", pattern, err)
		}
	}
	if o.Concurrency == 0 {
		o.Concurrency = 4
	}
	return &Reconciler{Options: o, name: "Purge", known: map[string]*memory{}}, nil
}

// manifestIndex finds Manifests that are being deleted by the Kyma they belong to. Of a fleet at rest it holds nothing.
const manifestIndex = "purge.manifests"

// Register adds the controller and its index to a manager.
func (r *Reconciler) Register(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1beta2.Manifest{}, manifestIndex, leaving); err != nil {
		return fmt.Errorf("indexing Manifests: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1beta2.Kyma{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return !e.Object.GetDeletionTimestamp().IsZero() },
			UpdateFunc: deletionMoved,
		})).
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.queue.Store(&q)
			return nil
		})).
		Named("purge").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency, RateLimiter: r.RateLimiter}).
		Complete(r)
}

// leaving returns the Kyma of a Manifest that is being deleted.
func leaving(o client.Object) []string {
	if o.GetDeletionTimestamp().IsZero() {
		return nil
	}
	return []string{o.GetLabels()[v1beta2.LabelKymaName]}
}

// deletionMoved accepts the beginning of a deletion, that somebody let go, and that it was given up.
func deletionMoved(e event.UpdateEvent) bool {
	before, after := e.ObjectOld, e.ObjectNew
	return !after.GetDeletionTimestamp().IsZero() &&
		(before.GetDeletionTimestamp().IsZero() || len(before.GetFinalizers()) != len(after.GetFinalizers()) ||
			before.GetAnnotations()[v1beta2.AnnotationDeletionGivenUp] != after.GetAnnotations()[v1beta2.AnnotationDeletionGivenUp])
}

// run is one pass over one Kyma.
type run struct {
	*Reconciler
	kyma *v1beta2.Kyma
	now  time.Time // of the whole pass

	begin     time.Time         // set by due: since when the deletion is under way
	runtime   *runtimes.Runtime // set by connect
	memory    *memory           // set by connect; this pass alone uses it
	targets   []*target         // set by survey: Manifests that are being deleted, sorted by name
	kinds     []*kind           // set by survey: whose custom resources are to go
	blockers  []blocker         // set by all steps: what stands in the way, for people
	obstacles []obstacle        // set by resources: what webhooks that do not answer keep
	next      time.Time         // set by resources and webhooks: when to look again; zero if nothing has to wait
	more      bool              // set by resources: there was more to do than one pass does
}

// Reconcile is the whole purge of a Kyma.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, leave, ours := r.Shards.BeginReconcile(ctx, req.Name)
	if !ours {
		r.drop(req.Name)
		return reconcile.Result{}, nil
	}
	defer leave()
	kyma := &v1beta2.Kyma{}
	if err := r.Client.Get(ctx, req.NamespacedName, kyma); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(ctx, req.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if kyma.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	n := &run{Reconciler: r, kyma: kyma, now: time.Now()}
	return loop.Run(ctx, loop.Options{Client: r.Client, Controller: "purge", Object: kyma},
		loop.Step{Name: "unlock", Do: n.unlock},
		loop.Step{Name: "due", Do: n.due},
		loop.Step{Name: "connect", Do: n.connect},
		loop.Step{Name: "survey", Do: n.survey},
		loop.Step{Name: "resources", Do: n.purgeResources},
		loop.Step{Name: "webhooks", Do: n.purgeWebhooks},
		loop.Step{Name: "inventory", Do: n.purgeInventories},
		loop.Step{Name: "watch", Do: n.requeue})
}

// unlock removes the finalizer that early releases of the reference put on every Kyma, once it is not the Kyma controller's turn any more.
// Nobody else would.
func (n *run) unlock(ctx context.Context) error {
	if controllerutil.ContainsFinalizer(n.kyma, v1beta2.FinalizerKyma) {
		return nil
	}
	old := n.kyma.DeepCopy()
	if controllerutil.RemoveFinalizer(n.kyma, v1beta2.FinalizerPurge) {
		err := n.Client.Patch(ctx, n.kyma.DeepCopy(), client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1beta2.FieldOwner))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing finalizer %s from Kyma %s: %w", v1beta2.FinalizerPurge, n.kyma.Name, err)
		}
	}
	return loop.Done()
}

// due waits until the grace period is over.
func (n *run) due(ctx context.Context) error {
	if n.kyma.Annotations[v1beta2.AnnotationDeletionGivenUp] != "" {
		n.drop(n.kyma.Name) // what is left stays until Tombstones sees to it
		return loop.Done()
	}
	if n.Grace == 0 {
		return loop.Done()
	}
	begun, err := n.findBegin(ctx)
	if err != nil {
		return err
	}
	if !begun {
		return loop.Later(n.Grace/2, "the modules to be asked to go") // nobody tells when they are; half of it is soon enough not to be late
	}
	if left := n.begin.Add(n.Grace).Sub(n.now); left > 0 {
		return loop.Later(min(left, n.Grace), "the grace period to end") // more is left if our clock was put back: it may be put right
	}
	return nil
}

// formerReasonDeletionQueued is what earlier versions wrote for v1beta2.ReasonDeletionQueued. After an upgrade, a Kyma may still have it in its
// status; without this, its purge would begin before its modules are removed.
const formerReasonDeletionQueued = "WaitingForTurn"

// findBegin finds out since when the deletion is under way: since the Kyma is to go, but not before the first of its Manifests is. Not begun is that of
// a Kyma that waits for its turn, because many are deleted at once: there is nothing yet that somebody fails to let go.
func (n *run) findBegin(ctx context.Context) (begun bool, err error) {
	n.begin = n.kyma.DeletionTimestamp.Time
	var manifests v1beta2.ManifestList
	err = n.Client.List(ctx, &manifests, client.InNamespace(n.kyma.Namespace), client.MatchingFields{manifestIndex: n.kyma.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("looking for the Manifests of Kyma %s: %w", n.kyma.Name, err)
	}
	if len(manifests.Items) == 0 {
		ready := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionReady)
		return ready == nil || ready.Reason != v1beta2.ReasonDeletionQueued && ready.Reason != formerReasonDeletionQueued, nil
	}
	first := slices.MinFunc(manifests.Items, func(a, b v1beta2.Manifest) int { return a.DeletionTimestamp.Compare(b.DeletionTimestamp.Time) })
	if first.DeletionTimestamp.After(n.begin) {
		n.begin = first.DeletionTimestamp.Time
	}
	return true, nil
}

// connect finds the way to the runtime. It makes no request to it. Without access Secret there is nothing to do: somebody
// decided that the runtime is left as it is. Any other failure waits for a change, of which the pool tells us.
func (n *run) connect(ctx context.Context) error {
	n.Runtimes.Subscribe(n.kyma.Name, runtimes.Subscriber{Key: n.followKey(n.kyma.Name), Notify: n.wakeOn(client.ObjectKeyFromObject(n.kyma))})
	rt, err := n.Runtimes.Get(ctx, n.kyma.Name)
	if e, ok := errors.AsType[*runtimes.Error](err); ok {
		if e.Code == v1beta2.ReasonAccessSecretNotFound {
			n.remember(nil)
			return loop.Done()
		}
		n.memory = n.remember(nil)
		n.blocked(apply.Ref{}, err.Error())
		n.tell()
		return reconcile.TerminalError(err)
	}
	if err != nil {
		return err
	}
	n.runtime, n.memory = rt, n.remember(rt)
	return nil
}

// lookAt asks for another pass at that time. The earliest wins.
func (n *run) lookAt(at time.Time) {
	if n.next.IsZero() || at.Before(n.next) {
		n.next = at
	}
}

// requeue comes back while anything of the Kyma is there. Nobody tells when a finalizer is gone, or a Manifest asked to go.
func (n *run) requeue(context.Context) error {
	return n.lookAgainSince(n.begin.Add(n.Grace))
}

// lookAgainSince comes back when something is to be done, else after a part of the time that it has taken so far.
func (n *run) lookAgainSince(begin time.Time) error {
	n.tell()
	after := loop.PollDelay(n.now, begin)
	if !n.next.IsZero() {
		after = min(after, n.next.Sub(n.now))
	}
	if n.more {
		after = 0
	}
	return loop.RecheckAfter(max(after, time.Millisecond))
}

// remember returns what is known of the Kyma; of another connection than before, only what was told.
func (n *run) remember(rt *runtimes.Runtime) *memory {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.known[n.kyma.Name]
	if m == nil || m.runtime != rt {
		var told map[string]bool
		if m != nil {
			told = m.told
		}
		m = &memory{runtime: rt, targets: map[string]*target{}, told: told, begun: n.now, unhooked: map[string]time.Time{}}
		n.known[n.kyma.Name] = m
	}
	m.kyma = n.kyma
	return m
}

// forget drops what is known of a Kyma that is gone, and tells the last of it.
func (r *Reconciler) forget(ctx context.Context, kyma string) {
	m := r.drop(kyma)
	if m == nil {
		return
	}
	n := &run{Reconciler: r, kyma: m.kyma, memory: m}
	for _, name := range slices.Sorted(maps.Keys(m.targets)) {
		n.tellEnd(ctx, m.targets[name])
	}
}

// drop forgets a Kyma and returns what was known of it, nil if nothing was.
func (r *Reconciler) drop(kyma string) *memory {
	r.Runtimes.Unsubscribe(kyma, r.followKey(kyma))
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[kyma]
	delete(r.known, kyma)
	return m
}

// wakeOn returns what the pool calls when the connection breaks, mends or is replaced.
func (r *Reconciler) wakeOn(key client.ObjectKey) func(runtimes.Event) {
	return func(s runtimes.Event) {
		if q := r.queue.Load(); q != nil && s.ConnectionChanged {
			(*q).Add(reconcile.Request{NamespacedName: key})
		}
	}
}

// followKey tells the purge apart from other followers of a runtime.
func (r *Reconciler) followKey(kyma string) string { return r.name + "/" + kyma }
