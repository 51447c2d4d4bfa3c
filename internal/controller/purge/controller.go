// Package purge completes deletions that do not complete by themselves. If the deletion of a Kyma takes longer than a
// grace period, the package deletes the objects that Lifecycle Manager deployed to the runtime of this Kyma.
//
// # Use
//
//	r, err := purge.New(purge.Options{Grace: 5 * time.Minute, …})
//	err = r.Register(ctx, mgr)
//
// # How it works
//
// The Kyma and Manifest controllers delete in an order that loses no data. The Kyma and Manifest controllers wait until
// users have deleted their custom resources, and until the operators of modules have removed their finalizers. If a
// Kyma still exists at the end of its grace period, its deletion is probably blocked. The grace period starts when the
// first Manifest of the Kyma is deleted. The grace period may start later than the deletion of the Kyma, because only a
// limited number of Kymas are deleted at the same time. At the end of the grace period, the purge controller handles
// each Manifest that is being deleted in these steps:
//
//	1  read the objects of the inventory, to determine which of them exist
//	2  delete the custom resources of the CRDs in the inventory, and the module's own custom resource
//	3  remove the finalizers of custom resources that still exist after another delay (finalizerGracePeriod)
//	4  delete webhook configurations of the inventory whose webhook does not answer and therefore blocks 2 or 3
//	5  delete the objects of the inventory, once no custom resource is left
//
// In steps 1 to 3, the purge controller does not change the module's operator. While custom resources exist, the
// Manifest controller keeps their operator running, and would restore an operator that the purge controller has
// deleted. In step 4, the purge controller annotates the Manifest (v1beta2.AnnotationPurged). If a Manifest has the
// annotation AnnotationPurged, the Manifest controller does not restore its operator. In step 5, the purge controller
// and the Manifest controller delete the same objects, which is harmless. If an object cannot be deleted, for example
// because of a finalizer of another component, the deletion of the other objects continues.
//
// If the manager gives up the deletion of a Kyma because its runtime is unreachable, the Kyma no longer exists.
// [Tombstones] purges the modules of such a Kyma later.
//
// Deleted objects are reported in events of the Kyma, in the metric lifecycle_mgr_purged_objects_total, and in the log.
//
// # What it does not do
//
// The purge controller deletes only objects of inventories, and custom resources whose CRD is in an inventory. The
// purge controller keeps objects that the module marks as kept, with their CRD and all custom resources of that CRD.
// The purge controller does not delete custom resources of kinds that match Options.Skip, or of the kinds of Lifecycle
// Manager. The purge controller never edits an inventory: a deleted object stays in the list. The purge controller
// never removes a finalizer of a Manifest or Kyma: the Manifest and Kyma controllers remove these finalizers once all
// objects are deleted.
package purge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
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

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
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
	// Events records events about deleted objects.
	Events events.EventRecorder
	// Grace is the time between the deletion of the first Manifest and the purge of the runtime. If Grace is 0, no
	// runtime is purged, and an event reports why a deletion takes long.
	Grace time.Duration
	// Skip is a list of patterns in the syntax of path.Match. Custom resources of kinds that match a pattern are not
	// deleted. A pattern is compared with plural.group and with kind.group, for example "*.helm.cattle.io" or
	// "certificate.cert-manager.io". The comparison ignores case.
	Skip []string
	// Concurrency is the number of Kymas that are reconciled at the same time. Default 4, for Tombstones 64.
	Concurrency int
	// Shards determines for which runtimes this replica is responsible. If Shards is nil, the replica is responsible
	// for all runtimes.
	Shards *shard.Keeper
	// RateLimiter delays the retries after an error.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
}

// Reconciler purges the runtimes of Kymas whose deletion is blocked.
type Reconciler struct {
	Options
	name     string                      // identifies this controller among the subscribers of a runtime
	trigger  queueing.Trigger            // enqueues a Kyma when the connection to its runtime changes
	memories loop.Memory[string, memory] // by name of the Kyma
}

// memory is the data about one purge that is kept in memory between two reconciles. If the memory of a purge is lost,
// the next reconcile sends more reads, and events have less detail.
type memory struct {
	kyma     *v1beta2.Kyma          // as last read
	runtime  *runtimes.Runtime      // the connection that the other fields belong to; nil without a connection
	targets  map[string]*target     // by name of the Manifest
	deletion apply.DeletionProgress // the deletions that were requested
	reported map[string]bool        // texts of the blockers that the last reconcile reported in events
	begun    time.Time              // the time of the first reconcile with this connection
	webhooks map[string]time.Time   // the time when a webhook configuration was deleted, by name of the webhook
	crdsKept bool                   // an event reported that the CRDs of the API group stay
}

// New checks the options and returns a Reconciler.
func New(o Options) (*Reconciler, error) {
	if o.Client == nil || o.Runtimes == nil || o.Events == nil || o.Grace < 0 {
		return nil, fmt.Errorf(
			"making the purge controller: options need Client, Runtimes, Events and a Grace that is not negative")
	}
	for _, pattern := range o.Skip {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("making the purge controller: pattern %q of Skip: %w", pattern, err)
		}
	}
	if o.Concurrency == 0 {
		o.Concurrency = 4
	}
	return &Reconciler{Options: o, name: "Purge"}, nil
}

// manifestIndex is the name of the index that finds, by the name of a Kyma, those of its Manifests that are being
// deleted.
const manifestIndex = "purge.manifests"

// Register adds the controller and its index to a manager.
func (r *Reconciler) Register(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1beta2.Manifest{}, manifestIndex,
		kymaOfDeletedManifest); err != nil {
		return fmt.Errorf("indexing Manifests: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1beta2.Kyma{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return !e.Object.GetDeletionTimestamp().IsZero() },
			UpdateFunc: hasDeletionBegunOrProgressed,
		})).
		WatchesRawSource(r.trigger.Source()).
		Named("purge").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency, RateLimiter: r.RateLimiter}).
		Complete(r)
}

// kymaOfDeletedManifest computes the keys of manifestIndex: it returns the name of the Kyma of a Manifest that is being
// deleted.
func kymaOfDeletedManifest(o client.Object) []string {
	if o.GetDeletionTimestamp().IsZero() {
		return nil
	}
	return []string{o.GetLabels()[v1beta2.LabelKymaName]}
}

// hasDeletionBegunOrProgressed accepts three kinds of updates of a Kyma: its deletion was requested, its deletion was
// given up, or a finalizer was removed during its deletion.
func hasDeletionBegunOrProgressed(e event.UpdateEvent) bool {
	before, after := e.ObjectOld, e.ObjectNew
	return !after.GetDeletionTimestamp().IsZero() &&
		(before.GetDeletionTimestamp().IsZero() || len(before.GetFinalizers()) != len(after.GetFinalizers()) ||
			before.GetAnnotations()[v1beta2.AnnotationDeletionGivenUp] !=
				after.GetAnnotations()[v1beta2.AnnotationDeletionGivenUp])
}

// run is one reconcile of one Kyma.
type run struct {
	*Reconciler
	kyma *v1beta2.Kyma
	now  time.Time // the current time, the same in all steps of the reconcile

	begin    time.Time         // set by waitUntilPurgeAllowed: when the grace period started
	runtime  *runtimes.Runtime // set by the step connect
	memory   *memory           // set by the step connect; used by one reconcile at a time
	targets  []*target         // set by the step survey: Manifests that are being deleted, sorted by name
	kinds    []*kind           // set by the step survey: the kinds whose custom resources have to be deleted
	blockers []blocker         // set by all steps: the objects or runtimes that the purge waits for
	webhooks []webhookBlocker  // set by purgeCustomResources: requests that failed because a webhook did not answer
	// next is set by purgeCustomResources and purgeWebhooks: the earliest time of the next action. next is zero if no
	// action waits for a time.
	next time.Time
	more bool // set by purgeCustomResources: actionsLimit was reached, so the Kyma is requeued immediately
}

// Reconcile purges the runtime of one Kyma.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, leave, ours := r.Shards.BeginReconcile(ctx, req.Name)
	if !ours {
		r.unsubscribeAndForget(req.Name)
		return reconcile.Result{}, nil
	}
	defer leave()
	kyma := &v1beta2.Kyma{}
	if err := r.Client.Get(ctx, req.NamespacedName, kyma); err != nil {
		if apierrors.IsNotFound(err) {
			r.forgetAndReportDeletions(ctx, req.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if kyma.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	n := &run{Reconciler: r, kyma: kyma, now: time.Now()}
	return loop.Run(ctx, loop.Options{Client: r.Client, Controller: "purge", Object: kyma},
		loop.Step{Name: "unlock", Do: n.removeFormerFinalizer},
		loop.Step{Name: "due", Do: n.waitUntilPurgeAllowed},
		loop.Step{Name: "connect", Do: n.connectOrEndPurge},
		loop.Step{Name: "survey", Do: n.surveyDeletingManifests},
		loop.Step{Name: "resources", Do: n.purgeCustomResources},
		loop.Step{Name: "webhooks", Do: n.purgeWebhooks},
		loop.Step{Name: "inventory", Do: n.purgeInventories},
		loop.Step{Name: "watch", Do: n.requeue})
}

// removeFormerFinalizer removes the finalizer that early releases of the Kyma project's lifecycle-manager set on every
// Kyma. As long as the Kyma controller has not removed its own finalizer, removeFormerFinalizer does nothing. This
// project never sets that finalizer, FinalizerPurge, and no other controller of this project removes it.
func (n *run) removeFormerFinalizer(ctx context.Context) error {
	if controllerutil.ContainsFinalizer(n.kyma, v1beta2.FinalizerKyma) {
		return nil
	}
	if err := loop.RemoveFinalizers(ctx, n.Client, n.kyma, []string{v1beta2.FinalizerPurge}); err != nil {
		return err
	}
	return loop.Done()
}

// waitUntilPurgeAllowed requeues the Kyma until its grace period is over.
func (n *run) waitUntilPurgeAllowed(ctx context.Context) error {
	if n.kyma.Annotations[v1beta2.AnnotationDeletionGivenUp] != "" {
		n.unsubscribeAndForget(n.kyma.Name) // Tombstones deletes the remaining objects
		return loop.Done()
	}
	if n.Grace == 0 {
		return n.warnAndWaitWithoutPurge(ctx)
	}
	begun, err := n.findGracePeriodStart(ctx)
	if err != nil {
		return err
	}
	if !begun {
		// No event reports that the grace period starts. Therefore the Kyma is reconciled each half of a grace period:
		// one of these reconciles notices the start of the grace period before its end.
		return loop.Later(n.Grace/2, "the modules to be deleted")
	}
	if left := n.begin.Add(n.Grace).Sub(n.now); left > 0 {
		// If the clock of this process was set back, the remaining time is longer than Grace.
		return loop.Later(min(left, n.Grace), "the grace period to end")
	}
	return nil
}

// formerReasonDeletionQueued is the name that earlier versions used for v1beta2.ReasonDeletionQueued. After an upgrade
// of the manager, the status of a Kyma may still have the reason WaitingForTurn, which the earlier version wrote. If
// findGracePeriodStart did not recognize the reason WaitingForTurn, a Kyma whose deletion is queued would be purged
// before its modules are deleted.
const formerReasonDeletionQueued = "WaitingForTurn"

// findGracePeriodStart determines the start of the grace period. The grace period starts when the Kyma is deleted, but
// not before its first Manifest is deleted. findGracePeriodStart returns false for a Kyma whose deletion is queued
// because many Kymas are being deleted: no object in the runtime of this Kyma is being deleted yet.
func (n *run) findGracePeriodStart(ctx context.Context) (hasBegun bool, err error) {
	n.begin = n.kyma.DeletionTimestamp.Time
	var manifests v1beta2.ManifestList
	err = n.Client.List(ctx, &manifests, client.InNamespace(n.kyma.Namespace),
		client.MatchingFields{manifestIndex: n.kyma.Name},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("listing the Manifests of Kyma %s: %w", n.kyma.Name, err)
	}
	if len(manifests.Items) == 0 {
		ready := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionReady)
		return ready == nil || ready.Reason != v1beta2.ReasonDeletionQueued &&
			ready.Reason != formerReasonDeletionQueued, nil
	}
	first := slices.MinFunc(manifests.Items, func(a, b v1beta2.Manifest) int {
		return a.DeletionTimestamp.Compare(
			b.DeletionTimestamp.Time)
	})
	if first.DeletionTimestamp.After(n.begin) {
		n.begin = first.DeletionTimestamp.Time
	}
	return true, nil
}

// connectOrEndPurge gets the connection to the runtime from the pool, without a request to the runtime. If the access
// Secret does not exist, the purge ends, because somebody has removed the Secret to leave the runtime unchanged. The
// purge also ends if the runtime belongs to another Kyma or control plane. After any other error, the purge waits until
// the pool reports a change of the runtime.
func (n *run) connectOrEndPurge(ctx context.Context) error {
	n.Runtimes.Subscribe(n.kyma.Name, runtimes.Subscriber{
		Key: n.subscriptionKey(n.kyma.Name), Notify: n.connectionChangeNotifier(client.ObjectKeyFromObject(n.kyma)),
	})
	rt, err := n.Runtimes.Get(ctx, n.kyma.Name)
	if err == nil && n.VerifyOwner != nil {
		err = n.VerifyOwner(ctx, client.ObjectKeyFromObject(n.kyma), rt)
	}
	if e, ok := errors.AsType[*runtimes.Error](err); ok {
		n.memory = n.memoryOf(nil)
		switch {
		case e.Code == v1beta2.ReasonAccessSecretNotFound, runtimes.IsRuntimeRefused(err):
			return loop.Done()
		case runtimes.IsOwnerNotVerified(err):
			return loop.Later(unreachableRetryDelay, "the owner of the runtime to be verified")
		}
		n.addBlocker(apply.Ref{}, err.Error())
		n.recordBlockerWarnings()
		return reconcile.TerminalError(err)
	}
	if err != nil {
		return err
	}
	n.runtime, n.memory = rt, n.memoryOf(rt)
	return nil
}

// requeueAt requests a reconcile at the given time or earlier. If requeueAt is called with several points in time, the
// earliest one is used.
func (n *run) requeueAt(at time.Time) {
	if n.next.IsZero() || at.Before(n.next) {
		n.next = at
	}
}

// requeue requests the next reconcile while the Kyma exists. requeue polls, because no events report changes of
// finalizers in the runtime or the deletion of Manifests.
func (n *run) requeue(context.Context) error {
	return n.warnAndRequeue(n.begin.Add(n.Grace))
}

// warnAndRequeue records warnings about new blockers, and requests the next reconcile. If an action waits for a time,
// warnAndRequeue requests a reconcile at that time. If no action waits for a time, warnAndRequeue requests a reconcile
// after a delay. The longer ago the time in the parameter pollingSince is, the longer is the delay.
func (n *run) warnAndRequeue(pollingSince time.Time) error {
	n.recordBlockerWarnings()
	after := loop.PollDelay(n.now, pollingSince)
	if !n.next.IsZero() {
		after = min(after, n.next.Sub(n.now))
	}
	if n.more {
		after = 0
	}
	return loop.ContinueAndRequeueAfter(max(after, time.Millisecond))
}

// memoryOf returns the data that stays in memory for the Kyma between reconciles. If the connection to the runtime was
// replaced, memoryOf drops all data except the texts of the blockers that were already reported in events.
func (n *run) memoryOf(rt *runtimes.Runtime) *memory {
	m := n.memories.Update(n.kyma.Name, func(old *memory) *memory {
		if old != nil && old.runtime == rt {
			return old
		}
		m := &memory{runtime: rt, targets: map[string]*target{}, begun: n.now, webhooks: map[string]time.Time{}}
		if old != nil {
			m.reported = old.reported
		}
		return m
	})
	m.kyma = n.kyma
	return m
}

// forgetAndReportDeletions deletes the data that the controller keeps in memory about a Kyma that no longer exists.
// forgetAndReportDeletions also records events about the deleted objects of this Kyma that were not reported yet.
func (r *Reconciler) forgetAndReportDeletions(ctx context.Context, kyma string) {
	m := r.unsubscribeAndForget(kyma)
	if m == nil {
		return
	}
	n := &run{Reconciler: r, kyma: m.kyma, memory: m}
	for _, name := range slices.Sorted(maps.Keys(m.targets)) {
		n.reportUnreportedDeletions(ctx, m.targets[name])
	}
}

// unsubscribeAndForget deletes the subscription and the memory of a Kyma. unsubscribeAndForget returns the deleted
// memory, or nil if there was none.
func (r *Reconciler) unsubscribeAndForget(kyma string) *memory {
	r.Runtimes.Unsubscribe(kyma, r.subscriptionKey(kyma))
	return r.memories.Forget(kyma)
}

// connectionChangeNotifier returns the function that the pool calls for each event from the runtime. The returned
// function enqueues the Kyma when the connection has changed.
func (r *Reconciler) connectionChangeNotifier(key client.ObjectKey) func(runtimes.Event) {
	return func(e runtimes.Event) {
		if e.ConnectionChanged {
			r.trigger.Add(queueing.Event, 0, reconcile.Request{NamespacedName: key})
		}
	}
}

// subscriptionKey returns the key with which this controller subscribes to events of a runtime.
func (r *Reconciler) subscriptionKey(kyma string) string { return r.name + "/" + kyma }
