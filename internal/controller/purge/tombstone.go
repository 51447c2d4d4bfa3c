package purge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/tombstone"
)

// TombstoneOptions are the options of Tombstones.
type TombstoneOptions struct {
	// Options are the options that Tombstones shares with the purge. The time between the deletion of custom resources
	// and the removal of their finalizers is finalizerGracePeriod, or the field Grace of these options if it is
	// shorter. If Grace is 0, finalizers are never removed. The default of Concurrency is 64.
	Options
	// Held is the cache of the ConfigMaps that store tombstones.
	Held cache.Cache
	// Live deletes tombstones. Client is not used to delete tombstones, because Client would start a cache of all
	// ConfigMaps.
	Live client.Writer
	// Namespace is the namespace of the tombstones and the access Secrets.
	Namespace string
	// ControlPlaneID is the ID of this control plane, see package ownership.
	ControlPlaneID string
}

// Tombstones completes deletions that were given up, as soon as their runtimes can be reached again. A tombstone
// (package tombstone) replaces the Kyma and its Manifests, which no longer exist. Unlike the purge of an existing Kyma,
// this controller does not wait for users to delete their custom resources. Operators have the time
// finalizerGracePeriod to remove their finalizers. Tombstones deletes the same objects as a purge. When all modules are
// deleted, Tombstones deletes the objects in the runtime that do not belong to modules.
//
// The first matching row decides the action for a tombstone:
//
//	1  the Kyma of the tombstone still exists          wait: the Kyma controller will remove the finalizer soon
//	2  another Kyma of that name exists                delete the tombstone: that Kyma or the orphan sweep takes over
//	3  the access Secret was removed                   delete the tombstone: the cluster was removed
//	4  the runtime cannot be reached                   wait: the pool reports when it can be reached
//	5  the runtime has the record of another owner,    delete the tombstone: nothing may be changed there
//	   or of a Kyma of that name with another UID
//	6  objects of the tombstone exist in the runtime   delete these objects
//	7  otherwise                                       delete the tombstone
//
// A tombstone speaks for exactly one Kyma, which its UID identifies. If the control plane is restored from a backup, a
// tombstone in the backup may be older than the Kyma that uses the runtime now, or the record in the runtime may name
// the lost control plane. In both cases the UID in the record decides (Claim.ByUID in package ownership).
type Tombstones struct {
	*Reconciler
	options TombstoneOptions

	mu sync.Mutex
	// completed has the UID of the last completed tombstone of each Kyma, because the cache may still return this
	// tombstone. Guarded by mu.
	completed map[string]types.UID
	// counted is the number of tombstones that this Tombstones has added to the metric. Guarded by mu.
	counted int
}

// NewTombstones checks the options and returns a Tombstones.
func NewTombstones(o TombstoneOptions) (*Tombstones, error) {
	if o.Held == nil || o.Live == nil || o.Namespace == "" || o.ControlPlaneID == "" {
		return nil, fmt.Errorf("making the tombstone controller: options need Held, Live, Namespace and ControlPlaneID")
	}
	if o.Concurrency == 0 {
		// Most runtimes of tombstones do not answer, and a worker waits several seconds for each of them. A runtime
		// that answers again must not wait until a few workers have tried all others.
		o.Concurrency = 64
	}
	r, err := New(o.Options)
	if err != nil {
		return nil, fmt.Errorf("making the tombstone controller: %w", err)
	}
	r.name = "Tombstone"
	return &Tombstones{Reconciler: r, options: o, completed: map[string]types.UID{}}, nil
}

// Register adds the controller and its index to a manager. The name in a reconcile request is the name of a Kyma.
func (r *Tombstones) Register(ctx context.Context, mgr ctrl.Manager) error {
	if err := runtimes.IndexByKyma(ctx, r.options.Held, &corev1.ConfigMap{}); err != nil {
		return fmt.Errorf("indexing tombstones: %w", err)
	}
	createdOrDeleted := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(
		event.UpdateEvent) bool {
		return false
	}})
	countAndEnqueueKyma := handler.EnqueueRequestsFromMapFunc(
		func(ctx context.Context, o client.Object) []reconcile.Request {
			r.countTombstones(ctx)
			return loop.RequestForKyma(ctx, o)
		})
	secrets := &metav1.PartialObjectMetadata{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return ctrl.NewControllerManagedBy(mgr).
		Named("tombstone").
		WatchesRawSource(source.Kind(r.options.Held, client.Object(&corev1.ConfigMap{}), countAndEnqueueKyma)).
		Watches(&v1beta2.Kyma{}, handler.EnqueueRequestsFromMapFunc(r.requestIfTombstoneExists), createdOrDeleted).
		WatchesMetadata(secrets, handler.EnqueueRequestsFromMapFunc(r.requestIfTombstoneExists)).
		WatchesRawSource(r.trigger.Source()).
		WatchesRawSource(source.Func(func(ctx context.Context, _ queueing.Queue) error {
			r.Shards.OnOpened(func(int) { r.enqueueAll(ctx) })
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency, RateLimiter: r.RateLimiter}).
		Complete(r)
}

// requestIfTombstoneExists returns a request for a Kyma, or for the Kyma that an access Secret names, if the Kyma has a
// tombstone. Only few Kymas have one. If the cache does not have a tombstone yet, the event of its creation triggers
// the reconcile.
func (r *Tombstones) requestIfTombstoneExists(ctx context.Context, o client.Object) []reconcile.Request {
	requests := loop.RequestForKyma(ctx, o)
	if _, isKyma := o.(*v1beta2.Kyma); isKyma {
		requests = []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
	}
	return slices.DeleteFunc(requests, func(request reconcile.Request) bool {
		stored, err := r.list(ctx, request.Name)
		return err == nil && len(stored) == 0
	})
}

// enqueueAll enqueues the Kymas of all tombstones. The caller uses enqueueAll when this replica has become responsible
// for more runtimes.
func (r *Tombstones) enqueueAll(ctx context.Context) {
	var maps corev1.ConfigMapList
	if err := r.options.Held.List(ctx, &maps, client.InNamespace(r.options.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return // an error occurs only when the process ends
	}
	for i := range maps.Items {
		for _, request := range loop.RequestForKyma(ctx, &maps.Items[i]) {
			r.trigger.Add(queueing.Event, 0, request)
		}
	}
}

// tombstoneRun is one reconcile of one tombstone.
type tombstoneRun struct {
	*run
	controller  *Tombstones
	tombstone   tombstone.Stored
	kymaMissing bool // set by deleteIfReplaced: no Kyma has this name, so no other controller uses the runtime
	complete    bool // set by deleteLifecycleManagerObjects: no object of the tombstone exists any more
}

// Reconcile handles the oldest tombstone of one Kyma. A Kyma has several tombstones if Kymas of the same name were
// given up one after the other. When Reconcile deletes the oldest tombstone, the event of this deletion triggers a
// reconcile for the next one.
func (r *Tombstones) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, leave, ours := r.Shards.BeginReconcile(ctx, req.Name)
	if !ours {
		r.unsubscribeAndForget(req.Name)
		return reconcile.Result{}, nil
	}
	defer leave()
	stored, err := r.list(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(stored) == 0 {
		r.unsubscribeAndForget(req.Name)
		return reconcile.Result{}, nil
	}
	// The Kyma no longer exists. The variable deleted has the name and the UID of the deleted Kyma, so that events
	// about the tombstone are recorded on that Kyma.
	deleted := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace,
		Name: stored[0].Kyma, UID: stored[0].UID}}
	n := &tombstoneRun{run: &run{Reconciler: r.Reconciler, kyma: deleted, now: time.Now()},
		controller: r, tombstone: stored[0]}
	return loop.Run(ctx, loop.Options{Client: r.Client, Controller: "tombstone", Object: deleted},
		loop.Step{Name: "need", Do: n.deleteIfReplaced},
		loop.Step{Name: "connect", Do: n.connectOrDeleteTombstone},
		loop.Step{Name: "survey", Do: n.surveyTombstone},
		loop.Step{Name: "resources", Do: n.purgeCustomResources},
		loop.Step{Name: "webhooks", Do: n.purgeWebhooks},
		loop.Step{Name: "inventory", Do: n.purgeInventories},
		loop.Step{Name: "runtime", Do: n.deleteLifecycleManagerObjects},
		loop.Step{Name: "end", Do: n.deleteTombstoneOrRequeue})
}

// countTombstones updates the metric that counts the tombstones of all Kymas. A process has one Tombstones for each
// namespace that it serves, and all of them share the metric, so countTombstones adds only the difference.
func (r *Tombstones) countTombstones(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var maps corev1.ConfigMapList
	if err := r.options.Held.List(ctx, &maps, client.InNamespace(r.options.Namespace),
		client.UnsafeDisableDeepCopy); err == nil { // an error occurs only when the process ends
		metrics.Tombstones.Add(float64(len(maps.Items) - r.counted))
		r.counted = len(maps.Items)
	}
}

// list returns the tombstones of a Kyma, the oldest one first. Each event of a Kyma or an access Secret calls list.
func (r *Tombstones) list(ctx context.Context, kyma string) ([]tombstone.Stored, error) {
	var maps corev1.ConfigMapList
	if err := r.options.Held.List(ctx, &maps, client.InNamespace(r.options.Namespace),
		client.MatchingFields{runtimes.KymaNameIndex: kyma}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing tombstones: %w", err)
	}
	stored, invalid := tombstone.Read(maps.Items)
	if invalid != nil {
		log.FromContext(ctx).Info("ignoring a tombstone that cannot be read", "problem", invalid.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	left := slices.DeleteFunc(stored, func(s tombstone.Stored) bool {
		return s.Kyma != kyma ||
			s.UID == r.completed[kyma]
	})
	if len(stored) == 0 {
		delete(r.completed, kyma)
	}
	return left, nil
}

// deleteIfReplaced ends the reconcile while the Kyma of the tombstone exists. If another Kyma with the same name
// exists, deleteIfReplaced deletes the tombstone.
func (n *tombstoneRun) deleteIfReplaced(ctx context.Context) error {
	var kyma v1beta2.Kyma
	err := n.Client.Get(ctx, client.ObjectKeyFromObject(n.kyma), &kyma)
	switch {
	case apierrors.IsNotFound(err):
		n.kymaMissing = true
		return nil
	case err != nil:
		return fmt.Errorf("reading Kyma %s: %w", n.kyma.Name, err)
	case kyma.UID == n.tombstone.UID:
		return loop.Done() // the deletion event of the Kyma triggers a reconcile
	}
	return n.deleteTombstone(ctx, metrics.TombstoneReplaced,
		"another Kyma of that name exists, which takes over what is left")
}

// unreachableRetryDelay is the delay before the next attempt to reach an unreachable runtime. If the pool reports a
// change of the runtime, the next attempt is earlier.
const unreachableRetryDelay = 30 * time.Second

// connectOrDeleteTombstone gets the connection to the runtime. connectOrDeleteTombstone verifies that the runtime still
// belongs to the Kyma of the tombstone. For an existing Kyma, the Kyma controller verifies to which Kyma and control
// plane the runtime belongs; the Kyma of a tombstone does not exist any more.
func (n *tombstoneRun) connectOrDeleteTombstone(ctx context.Context) error {
	n.Runtimes.Subscribe(n.kyma.Name, runtimes.Subscriber{
		Key: n.subscriptionKey(n.kyma.Name), Notify: n.connectionChangeNotifier(client.ObjectKeyFromObject(n.kyma)),
	})
	rt, err := n.Runtimes.GetBeforeOwnerVerified(ctx, n.kyma.Name)
	if e, ok := errors.AsType[*runtimes.Error](err); ok {
		if e.Code == v1beta2.ReasonAccessSecretNotFound {
			return n.deleteOrAwaitAccessSecret(ctx)
		}
		return loop.Later(unreachableRetryDelay, "the runtime: "+e.Error())
	}
	if err != nil {
		return err
	}
	var annotations map[string]string // annotations is nil if there is no Kyma in the runtime.
	remote, err := rt.Get(ctx, remoteRef)
	if err == nil {
		annotations = remote.GetAnnotations()
	}
	if err == nil || isAbsent(err) {
		_, err = ownership.Verify(ctx, rt.Cluster, annotations, ownership.Claim{
			Server: rt.Server, ByUID: true, Me: ownership.Owner{
				ControlPlane: n.controller.options.ControlPlaneID, Kyma: n.kyma.Namespace + "/" + n.kyma.Name,
				UID: n.tombstone.UID, Cluster: n.tombstone.ClusterID}})
	}
	if refusal, ok := errors.AsType[*ownership.Refusal](err); ok {
		return n.deleteTombstone(ctx, metrics.TombstoneReplaced, refusal.Problem)
	}
	if err != nil {
		return loop.Later(unreachableRetryDelay, "the runtime: "+err.Error())
	}
	n.runtime, n.memory = rt, n.memoryOf(rt)
	return nil
}

// deleteOrAwaitAccessSecret deletes the tombstone if the access Secret was removed. A Secret that is missing only for a
// moment may be created again.
func (n *tombstoneRun) deleteOrAwaitAccessSecret(ctx context.Context) error {
	wait, err := n.Runtimes.ConfirmAccessSecretRemoved(ctx, n.kyma.Name)
	if err != nil {
		return err
	}
	if wait > 0 {
		return loop.Later(wait, "the access Secret, which may be created again")
	}
	return n.deleteTombstone(ctx, metrics.TombstoneClusterDeleted, "its access Secret was removed")
}

// remoteRef is the reference to the Kyma in a runtime.
var remoteRef = apply.Ref{
	Group: v1beta2.GroupVersion.Group, Version: v1beta2.GroupVersion.Version, Kind: v1beta2.KindKyma,
	Namespace: v1beta2.RuntimeNamespace, Name: v1beta2.RuntimeKymaName,
}

// surveyTombstone reads the objects that the tombstone lists, each object once per connection.
func (n *tombstoneRun) surveyTombstone(ctx context.Context) error {
	for i := range n.tombstone.Modules {
		m := &n.tombstone.Modules[i]
		t := n.memory.targets[m.Manifest]
		if t == nil {
			t = newTarget(manifestOf(n.kyma.Namespace, m))
			n.memory.targets[m.Manifest] = t
		}
		n.targets = append(n.targets, t)
	}
	return n.surveyTargets(ctx)
}

// manifestOf returns a Manifest that is made from the data of a module in a tombstone.
func manifestOf(namespace string, m *tombstone.Module) *v1beta2.Manifest {
	is := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: m.Manifest, Labels: map[string]string{v1beta2.LabelModuleName: m.Name},
	}}
	is.Status.Synced = m.Objects
	if cr := m.Resource; cr != nil {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(refOf(*cr).GVK().GroupVersion().String())
		u.SetKind(cr.Kind)
		u.SetNamespace(cr.Namespace)
		u.SetName(cr.Name)
		is.Spec.Resource = u
	}
	return is
}

// refOf converts an inventory entry to a Ref of package apply.
func refOf(r v1beta2.Resource) apply.Ref {
	return apply.Ref{Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace,
		Name: r.Name, Keep: r.Keep || r.Adopted, Adopted: r.Adopted}
}

// deleteLifecycleManagerObjects waits until the objects of the modules are deleted. After the objects of the modules
// have been deleted, deleteLifecycleManagerObjects deletes the objects of the manager that do not belong to modules,
// such as our CRDs.
func (n *tombstoneRun) deleteLifecycleManagerObjects(ctx context.Context) error {
	if !n.areModulesDeleted() {
		return nil
	}
	resources := n.tombstone.Runtime
	other, copies, err := ownership.FindObjectsOfOthers(ctx, n.runtime.Cluster)
	if err != nil {
		return err
	}
	if other != "" {
		resources = append(ownership.WithoutOwnCRDs(resources), copies...)
		if !n.memory.crdsKept {
			n.recordEvent(v1beta2.EventCRDsKept, apply.Ref{}, ownership.WhyCRDsStay(n.runtime.Server, other))
		}
		n.memory.crdsKept = true
	}
	var refs []apply.Ref
	for _, r := range resources {
		refs = append(refs, refOf(r))
	}
	left, err := n.runtime.Delete(ctx, refs, &n.memory.deletion)
	if err != nil {
		return fmt.Errorf("deleting the objects of Lifecycle Manager from runtime %s: %w", n.kyma.Name, err)
	}
	for _, r := range overdueOrRejected(left.Remaining, n.now, finalizerGracePeriod) {
		n.addBlocker(r.Ref, r.Ref.String()+": "+r.Message)
	}
	n.complete = left.Done()
	return nil
}

// areModulesDeleted reports whether all objects of the modules are deleted.
func (n *tombstoneRun) areModulesDeleted() bool {
	return !slices.ContainsFunc(n.targets, func(t *target) bool { return t.blocked || !t.deleted })
}

// If all objects of the tombstone are deleted, deleteTombstoneOrRequeue deletes the tombstone. If objects of the
// tombstone remain, deleteTombstoneOrRequeue requeues the tombstone.
func (n *tombstoneRun) deleteTombstoneOrRequeue(ctx context.Context) error {
	if !n.complete {
		return n.warnAndRequeue(n.memory.begun)
	}
	n.recordBlockerWarnings()
	return n.deleteTombstone(ctx, metrics.TombstoneCleaned,
		fmt.Sprintf("nothing of its %d objects is left in the runtime", n.tombstone.ObjectCount()))
}

// deleteTombstone deletes the tombstone and ends the reconcile.
func (n *tombstoneRun) deleteTombstone(ctx context.Context, how, why string) error {
	n.controller.unsubscribeAndForget(n.kyma.Name)
	if n.kymaMissing {
		n.Runtimes.Remove(n.kyma.Name)
	}
	for _, name := range n.tombstone.ConfigMaps {
		part := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: n.kyma.Namespace, Name: name}}
		if err := n.controller.options.Live.Delete(ctx, part); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting tombstone %s: %w", name, err)
		}
	}
	n.controller.mu.Lock()
	n.controller.completed[n.kyma.Name] = n.tombstone.UID
	n.controller.mu.Unlock()
	metrics.TombstonesEnded.WithLabelValues(how).Inc()
	first := n.tombstone.ConfigMaps[0]
	log.FromContext(ctx).Info("deleted a tombstone", "kyma", n.kyma.Name, "uid", n.tombstone.UID, "tombstone",
		first, "how", how, "why", why)
	n.recordEvent(v1beta2.EventTombstoneDeleted, apply.Ref{},
		fmt.Sprintf("tombstone %s is no longer needed: %s", first, why))
	return loop.Done()
}
