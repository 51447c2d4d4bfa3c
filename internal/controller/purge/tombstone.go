package purge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
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
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/tombstone"
)

// TombstoneOptions are what Tombstones works with, next to Options. Of those, Grace says how long custom resources get before they lose their
// finalizers; with 0 they keep them.
type TombstoneOptions struct {
	Options
	// Held holds the tombstones.
	Held cache.Cache
	// Live deletes tombstones; Client would begin to hold ConfigMaps.
	Live client.Writer
	// Namespace holds tombstones and access Secrets.
	Namespace string
}

// Tombstones finishes deletions that were given up, when their runtimes come back. A tombstone (package tombstone) has the part of the Kyma and
// its Manifests, of which none is left: nobody who has custom resources is waited for, and operators get the time of a farewell to let
// go of theirs. Otherwise all is done as in a purge, and then what the runtime got apart from modules goes too.
//
// The first row that fits decides what becomes of a tombstone:
//
//	1  the Kyma that it is of is still there      wait: its controller is about to let it go
//	2  there is another Kyma of that name         the tombstone goes: what is left is taken over, or found by the orphan sweep
//	3  the access Secret was removed              the tombstone goes: the cluster is gone
//	4  the runtime cannot be worked on            wait: the pool tells when it can
//	5  the runtime belongs to another Kyma        as 2
//	6  something of the list is there             delete it
//	7  else                                       the tombstone goes
type Tombstones struct {
	*Reconciler
	options TombstoneOptions
	ended   map[string]types.UID // guarded by mu: of the tombstone that ended last, by name of the Kyma; the cache may still show it for a moment
}

// NewTombstones checks the options and returns a Tombstones.
func NewTombstones(o TombstoneOptions) (*Tombstones, error) {
	if o.Held == nil || o.Live == nil || o.Namespace == "" {
		return nil, fmt.Errorf("making the tombstone controller: options need Held, Live and Namespace")
	}
	r, err := New(o.Options)
	if err != nil {
		return nil, fmt.Errorf("making the tombstone controller: %w", err)
	}
	r.name = "Tombstone"
	return &Tombstones{Reconciler: r, options: o, ended: map[string]types.UID{}}, nil
}

// Register adds the controller to a manager. What it works on is known by the name of the Kyma.
func (r *Tombstones) Register(mgr ctrl.Manager) error {
	comesOrGoes := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})
	secrets := &metav1.PartialObjectMetadata{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return ctrl.NewControllerManagedBy(mgr).
		Named("tombstone").
		WatchesRawSource(source.Kind(r.options.Held, client.Object(&corev1.ConfigMap{}), handler.EnqueueRequestsFromMapFunc(kymaOfLabel))).
		Watches(&v1beta2.Kyma{}, &handler.EnqueueRequestForObject{}, comesOrGoes).
		WatchesMetadata(secrets, handler.EnqueueRequestsFromMapFunc(kymaOfLabel)).
		WatchesRawSource(source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.queue.Store(&q)
			r.Shards.OnOpened(func(int) { r.wakeAll(ctx, q) })
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency, RateLimiter: r.RateLimiter}).
		Complete(r)
}

// wakeAll has all tombstones looked at: some may be ours now.
func (r *Tombstones) wakeAll(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	var maps corev1.ConfigMapList
	if err := r.options.Held.List(ctx, &maps, client.InNamespace(r.options.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return // the cache answers as long as the program lives
	}
	for i := range maps.Items {
		for _, req := range kymaOfLabel(ctx, &maps.Items[i]) {
			q.Add(req)
		}
	}
}

// kymaOfLabel maps an object to the Kyma that its label names.
func kymaOfLabel(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[v1beta2.LabelKymaName]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}}}
}

// burial is one pass over one tombstone.
type burial struct {
	*run
	of      *Tombstones
	what    tombstone.Written
	nobody  bool // set by need: there is no Kyma of that name, so that nobody else has to do with the runtime
	cleaned bool // set by runtime: nothing of the list is there
}

// Reconcile looks at the oldest tombstone of one Kyma; the end of that leads to the next.
func (r *Tombstones) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, leave, ours := r.Shards.BeginReconcile(ctx, req.Name)
	if !ours {
		r.drop(req.Name)
		return reconcile.Result{}, nil
	}
	defer leave()
	written, err := r.read(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(written) == 0 {
		r.drop(req.Name)
		return reconcile.Result{}, nil
	}
	// The Kyma is gone; this stands for it, so that events of the whole story are in one place.
	gone := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: written[0].Kyma, UID: written[0].UID}}
	n := &burial{run: &run{Reconciler: r.Reconciler, kyma: gone, now: time.Now()}, of: r, what: written[0]}
	return loop.Run(ctx, loop.Options{Client: r.Client, Controller: "tombstone", Object: gone},
		loop.Step{Name: "need", Do: n.need},
		loop.Step{Name: "connect", Do: n.connect},
		loop.Step{Name: "survey", Do: n.survey},
		loop.Step{Name: "resources", Do: n.purgeResources},
		loop.Step{Name: "webhooks", Do: n.purgeWebhooks},
		loop.Step{Name: "inventory", Do: n.purgeInventories},
		loop.Step{Name: "runtime", Do: n.deleteFromRuntime},
		loop.Step{Name: "end", Do: n.end})
}

// read returns the tombstones of a Kyma, the oldest first, and counts all there are.
func (r *Tombstones) read(ctx context.Context, kyma string) ([]tombstone.Written, error) {
	var maps corev1.ConfigMapList
	if err := r.options.Held.List(ctx, &maps, client.InNamespace(r.options.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing tombstones: %w", err)
	}
	metrics.Tombstones.Set(float64(len(maps.Items)))
	written, bad := tombstone.Read(slices.DeleteFunc(slices.Clone(maps.Items), func(m corev1.ConfigMap) bool { return m.Labels[v1beta2.LabelKymaName] != kyma }))
	if bad != nil {
		log.FromContext(ctx).Info("a tombstone is left alone", "problem", bad.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	left := slices.DeleteFunc(written, func(w tombstone.Written) bool { return w.Kyma != kyma || w.UID == r.ended[kyma] })
	if len(written) == 0 {
		delete(r.ended, kyma)
	}
	return left, nil
}

// need finds out whether the tombstone has to be there.
func (n *burial) need(ctx context.Context) error {
	var kyma v1beta2.Kyma
	err := n.Client.Get(ctx, client.ObjectKeyFromObject(n.kyma), &kyma)
	switch {
	case apierrors.IsNotFound(err):
		n.nobody = true
		return nil
	case err != nil:
		return fmt.Errorf("reading Kyma %s: %w", n.kyma.Name, err)
	case kyma.UID == n.what.UID:
		return loop.Done() // its end wakes us
	}
	return n.remove(ctx, metrics.TombstoneReplaced, "there is another Kyma of that name, which takes over what is left")
}

// connect finds the way to the runtime, and makes sure that it answers and is still nobody else's.
func (n *burial) connect(ctx context.Context) error {
	const again = 30 * time.Second // in case nobody wakes us
	n.Runtimes.Subscribe(n.kyma.Name, runtimes.Subscriber{Key: n.followKey(n.kyma.Name), Notify: n.wakeOn(client.ObjectKeyFromObject(n.kyma))})
	rt, err := n.Runtimes.Get(ctx, n.kyma.Name)
	if e, ok := errors.AsType[*runtimes.Error](err); ok {
		if e.Code == v1beta2.ReasonAccessSecretNotFound {
			return n.remove(ctx, metrics.TombstoneClusterGone, "its access Secret was removed")
		}
		return loop.Later(again, "the runtime: "+e.Error())
	}
	if err != nil {
		return err
	}
	remote, err := rt.Get(ctx, remoteRef)
	switch {
	case isAbsent(err):
	case err != nil:
		return loop.Later(again, "the runtime: "+err.Error())
	case !n.isOurs(remote):
		return n.remove(ctx, metrics.TombstoneReplaced, "the runtime belongs to "+remote.GetAnnotations()[v1beta2.AnnotationOwnedBy])
	}
	n.runtime, n.memory = rt, n.remember(rt)
	return nil
}

// remoteRef is the one Kyma of every runtime.
var remoteRef = apply.Ref{
	Group: v1beta2.GroupVersion.Group, Version: v1beta2.GroupVersion.Version, Kind: v1beta2.KindKyma,
	Namespace: v1beta2.RuntimeNamespace, Name: v1beta2.RuntimeKymaName,
}

// isOurs tells whether the Kyma in the runtime is the one that was given up, or does not say whose it is.
func (n *burial) isOurs(remote *unstructured.Unstructured) bool {
	by := remote.GetAnnotations()[v1beta2.AnnotationOwnedBy]
	return by == "" || by == n.kyma.Namespace+"/"+n.kyma.Name
}

// survey reads once what the tombstone names.
func (n *burial) survey(ctx context.Context) error {
	for i := range n.what.Modules {
		m := &n.what.Modules[i]
		t := n.memory.targets[m.Manifest]
		if t == nil {
			t = newTarget(manifestOf(n.kyma.Namespace, m))
			n.memory.targets[m.Manifest] = t
		}
		n.targets = append(n.targets, t)
	}
	return n.lookAtTargets(ctx)
}

// manifestOf returns what is known of a Manifest that is gone.
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

func refOf(r v1beta2.Resource) apply.Ref {
	return apply.Ref{Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Keep: r.Keep}
}

// deleteFromRuntime deletes what the runtime got apart from modules, once these are gone.
func (n *burial) deleteFromRuntime(ctx context.Context) error {
	if !n.modulesAreGone() {
		return nil
	}
	var refs []apply.Ref
	for _, r := range n.what.Runtime {
		refs = append(refs, refOf(r))
	}
	left, err := n.runtime.Delete(ctx, refs, &n.memory.deletion)
	if err != nil {
		return fmt.Errorf("deleting what runtime %s got from us: %w", n.kyma.Name, err)
	}
	for _, r := range overdue(left.Remaining, n.now, farewell) {
		n.blocked(r.Ref, r.Ref.String()+": "+r.Message)
	}
	n.cleaned = left.Done()
	return nil
}

// modulesAreGone tells whether nothing of the modules is left.
func (n *burial) modulesAreGone() bool {
	return !slices.ContainsFunc(n.targets, func(t *target) bool { return t.held || !t.gone })
}

// end removes the tombstone if nothing is left, and comes back otherwise.
func (n *burial) end(ctx context.Context) error {
	if !n.cleaned {
		return n.lookAgainSince(n.memory.begun)
	}
	n.tell()
	return n.remove(ctx, metrics.TombstoneCleaned, fmt.Sprintf("nothing of its %d objects is left in the runtime", n.what.Count()))
}

// remove ends the tombstone, and the pass.
func (n *burial) remove(ctx context.Context, how, why string) error {
	n.of.drop(n.kyma.Name)
	if n.nobody {
		n.Runtimes.Close(n.kyma.Name)
	}
	for _, name := range n.what.ConfigMaps {
		part := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: n.kyma.Namespace, Name: name}}
		if err := n.of.options.Live.Delete(ctx, part); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting tombstone %s: %w", name, err)
		}
	}
	n.of.mu.Lock()
	n.of.ended[n.kyma.Name] = n.what.UID
	n.of.mu.Unlock()
	metrics.TombstonesEnded.WithLabelValues(how).Inc()
	log.FromContext(ctx).Info("tombstone ended", "kyma", n.kyma.Name, "uid", n.what.UID, "tombstone", n.what.ConfigMaps[0], "how", how, "why", why)
	n.inform(v1beta2.EventTombstoneDeleted, apply.Ref{}, fmt.Sprintf("tombstone %s is no longer needed: %s", n.what.ConfigMaps[0], why))
	return loop.Done()
}
