// Package watcher gives the events of runtimes a way in: for a Watcher it keeps the route by which the listener is reached.
//
// # Use
//
//	r, err := watcher.New(watcher.Options{Client: mgr.GetClient(), Namespace: "kcp-system", …})
//	err = r.Register(ctx, mgr)
//
// # How it works
//
// Which route there is depends on what the Watcher asks for and on what is installed:
//
//	asked for       installed      route
//	spec.gateway    Istio          a VirtualService for all gateways that the selector finds
//	spec.route      Gateway API    an HTTPRoute for the Gateways that are named
//	neither, or what is asked for is not installed    none: events come in at the listener's own address
//
// A route has the name and the namespace of its Watcher, and belongs to it. It is compared with what it should be whenever it, the Watcher
// or a gateway changes, and written only when it differs. A VirtualService or HTTPRoute of that name that is not ours is left alone.
//
// Istio and Gateway API may be installed or removed at any time, see [foreign]: their definitions are watched, by metadata alone, and their
// kinds as long as they are served. Nothing is asked for again and again: a Watcher that does not change costs no request.
//
// What stands in the way is in the status: a condition for each route that is asked for, and Ready, which sums up.
//
// # What it does not do
//
// It does not tell runtimes what to watch, nor does it serve the listener. It makes no gateway, and no ReferenceGrant where the Service is
// in another namespace than the HTTPRoute: whoever runs the gateway decides that. It knows Watchers of the manager's namespace only.
package watcher

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
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
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// Options are what the controller works with.
type Options struct {
	// Client reads Watchers from the cache and writes them.
	Client client.Client
	// Events tells people what is wrong.
	Events events.EventRecorder
	// Namespace is where Watchers and their routes are.
	Namespace string
	// GatewayNamespace is where Istio gateways are looked for. Default Namespace.
	GatewayNamespace string
	// Concurrency is the number of Watchers worked on at the same time. Default 1.
	Concurrency int
	// RateLimiter spaces the tries after an error.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
}

// Reconciler keeps the routes of Watchers.
type Reconciler struct {
	Options
	objects dynamic.Interface                                                       // set by Register: writes routes
	queue   atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]] // set when the controller starts

	virtualServices, gateways, httpRoutes *foreign

	mu      sync.Mutex
	answers map[string]answer // guarded by mu; by identity of the route
}

// New checks the options and returns a Reconciler.
func New(o Options) (*Reconciler, error) {
	if o.Client == nil || o.Events == nil || o.Namespace == "" {
		return nil, fmt.Errorf("making the watcher controller: options need Client, Events and Namespace")
	}
	if o.GatewayNamespace == "" {
		o.GatewayNamespace = o.Namespace
	}
	r := &Reconciler{Options: o, answers: map[string]answer{}}
	istio := []string{"v1", "v1beta1", "v1alpha3"}
	r.virtualServices = &foreign{
		kind: kindVirtualService, group: groupIstio, resource: "virtualservices", versions: istio, namespace: o.Namespace,
		slim: slimVirtualService, isOwn: r.isOwn, wakeOne: r.wakeOwner, wakeAll: r.wakeAll,
	}
	r.gateways = &foreign{
		kind: kindGateway, group: groupIstio, resource: "gateways", versions: istio, namespace: o.GatewayNamespace,
		slim: slimGateway, wakeOne: func(ctx context.Context, _ client.ObjectKey) { r.wakeAll(ctx) }, wakeAll: r.wakeAll,
	}
	r.httpRoutes = &foreign{
		kind: kindHTTPRoute, group: groupGatewayAPI, resource: "httproutes", versions: []string{"v1", "v1beta1"}, namespace: o.Namespace,
		slim: slimHTTPRoute, isOwn: r.isOwn, wakeOne: r.wakeOwner, wakeAll: r.wakeAll,
	}
	return r, nil
}

// Register adds the controller to a manager, and what watches the kinds of others.
func (r *Reconciler) Register(_ context.Context, mgr ctrl.Manager) error {
	w, err := newWatch(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	r.objects = w.objects
	for _, f := range []*foreign{r.virtualServices, r.gateways, r.httpRoutes} {
		if err := mgr.Add(w.follow(f)); err != nil {
			return fmt.Errorf("adding the watch on %s: %w", f.definition(), err)
		}
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1beta2.Watcher{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: wishChanged})).
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.queue.Store(&q)
			return nil
		})).
		Named("watcher").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency, RateLimiter: r.RateLimiter, NeedLeaderElection: new(true)}).
		Complete(r)
}

// wishChanged accepts changes of what people write, and of who holds a Watcher that is being deleted. Our own status is none.
func wishChanged(e event.UpdateEvent) bool {
	before, after := e.ObjectOld, e.ObjectNew
	return before.GetGeneration() != after.GetGeneration() || !maps.Equal(before.GetLabels(), after.GetLabels()) ||
		before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
		!slices.Equal(before.GetFinalizers(), after.GetFinalizers())
}

// wakeOwner lets the Watcher of a route be looked at: it has the same name.
func (r *Reconciler) wakeOwner(_ context.Context, key client.ObjectKey) {
	if q := r.queue.Load(); q != nil {
		(*q).Add(reconcile.Request{NamespacedName: key})
	}
}

// wakeAll lets all Watchers be looked at. There are few.
func (r *Reconciler) wakeAll(ctx context.Context) {
	list := &v1beta2.WatcherList{}
	if err := r.Client.List(ctx, list, client.InNamespace(r.Namespace)); err != nil {
		return // the cache has not begun, so all Watchers are still to come
	}
	for i := range list.Items {
		r.wakeOwner(ctx, client.ObjectKeyFromObject(&list.Items[i]))
	}
}

// run is one pass over one Watcher.
type run struct {
	*Reconciler
	watcher *v1beta2.Watcher

	known   bool     // set by survey: the rest is to be believed
	invalid string   // set by survey: what is wrong with the Watcher itself, "" if nothing is
	routes  []*route // set by survey, completed by route: a VirtualService and an HTTPRoute
}

// Reconcile is the whole life of a Watcher.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w := &v1beta2.Watcher{}
	if err := r.Client.Get(ctx, req.NamespacedName, w); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	n := &run{Reconciler: r, watcher: w}
	pass := loop.Options{Client: r.Client, Controller: "watcher", Object: w, Report: n.report}
	if !w.DeletionTimestamp.IsZero() {
		if !controllerutil.ContainsFinalizer(w, v1beta2.FinalizerWatcher) {
			return reconcile.Result{}, nil
		}
		return loop.Run(ctx, pass,
			loop.Step{Name: "survey", Do: n.survey},
			loop.Step{Name: "remove", Do: n.remove},
			loop.Step{Name: "release", Do: n.release})
	}
	return loop.Run(ctx, pass,
		loop.Step{Name: "adopt", Do: n.adopt},
		loop.Step{Name: "survey", Do: n.survey},
		loop.Step{Name: "route", Do: n.route})
}

// adopt holds the Watcher until its routes are gone.
func (n *run) adopt(ctx context.Context) error {
	if controllerutil.ContainsFinalizer(n.watcher, v1beta2.FinalizerWatcher) {
		return nil
	}
	if err := n.setFinalizer(ctx, controllerutil.AddFinalizer); err != nil {
		return fmt.Errorf("adding finalizer %s to Watcher %s: %w", v1beta2.FinalizerWatcher, n.watcher.Name, err)
	}
	return nil
}

// release lets the Watcher go.
func (n *run) release(ctx context.Context) error {
	err := n.setFinalizer(ctx, controllerutil.RemoveFinalizer)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing finalizer %s from Watcher %s: %w", v1beta2.FinalizerWatcher, n.watcher.Name, err)
	}
	return nil
}

// setFinalizer patches the finalizer of the Watcher.
func (n *run) setFinalizer(ctx context.Context, change func(client.Object, string) bool) error {
	patched := n.watcher.DeepCopy()
	change(patched, v1beta2.FinalizerWatcher)
	patch := client.MergeFromWithOptions(n.watcher.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := n.Client.Patch(ctx, patched, patch, client.FieldOwner(v1beta2.FieldOwner)); err != nil {
		return err
	}
	n.watcher.SetFinalizers(patched.GetFinalizers())
	n.watcher.SetResourceVersion(patched.GetResourceVersion())
	return nil
}

// survey learns what is installed and decides what there should be.
func (n *run) survey(context.Context) error {
	vs, gw, hr := n.virtualServices.look(), n.gateways.look(), n.httpRoutes.look()
	for _, v := range []view{vs, gw, hr} {
		if err := v.wait(); err != nil {
			return err
		}
	}
	n.known, n.invalid = true, check(n.watcher)
	key := client.ObjectKeyFromObject(n.watcher)
	n.routes = []*route{
		{plan: planVirtualService(n.watcher, n.invalid, istio{vs.served() && gw.served(), n.GatewayNamespace, gateways(gw.all())}), view: vs, there: vs.get(key)},
		{plan: planHTTPRoute(n.watcher, n.invalid, hr.served()), view: hr, there: hr.get(key)},
	}
	return nil
}

// kindIsGoing tells whether an error of a write says that the kind of the object is not served any more.
func kindIsGoing(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}
