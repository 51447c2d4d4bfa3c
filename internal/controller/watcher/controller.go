// Package watcher reconciles Watchers. A Watcher describes which events of runtimes are sent to which Service; the
// package creates and updates the routes for these events.
//
// # Use
//
//	r, err := watcher.New(watcher.Options{Client: mgr.GetClient(), Namespace: "kcp-system", …})
//	err = r.Register(ctx, mgr)
//
// # How it works
//
// The route depends on the spec of the Watcher, and on which of Istio and Gateway API the control plane has installed:
//
//	requested       installed      route
//	spec.gateway    Istio          a VirtualService for all gateways that the selector matches
//	spec.route      Gateway API    an HTTPRoute for the listed Gateways
//	otherwise                      none: events arrive at the address of the listener itself
//
// A route has the same name and namespace as its Watcher, and the Watcher is its owner. A route is compared with its
// desired state whenever the route, the Watcher or a gateway changes, and written only if it differs. If a
// VirtualService or HTTPRoute with the name of the Watcher belongs to another owner, it is not changed.
//
// Istio and Gateway API may be installed and removed at any time, see [externalKind]. The package always watches the
// metadata of the CRDs of Istio and Gateway API, and watches objects of a kind only while the API server serves this
// kind. The package polls nothing: a Watcher that does not change costs no request.
//
// The status has one condition for each requested route, and the condition Ready, which summarizes them.
//
// # What it does not do
//
// The package does not configure the watches of runtimes, and does not run the listener. The package creates no
// gateway. The package also creates no ReferenceGrant if the Service is in another namespace than the HTTPRoute: the
// owner of the Service decides about that. The package handles only Watchers in the namespace of the manager.
package watcher

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

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

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
)

// Options configure the controller.
type Options struct {
	// Client reads Watchers from the cache, and writes Watchers.
	Client client.Client
	// Events records events about problems.
	Events events.EventRecorder
	// Namespace is the namespace of the Watchers and their routes.
	Namespace string
	// GatewayNamespace is the namespace of the Istio gateways. If GatewayNamespace is "", the Istio gateways are in
	// Namespace.
	GatewayNamespace string
	// Concurrency is the number of Watchers that are reconciled at the same time. Default 1.
	Concurrency int
	// RateLimiter delays the retries after an error.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
}

// Reconciler reconciles Watchers.
type Reconciler struct {
	Options
	routes  dynamic.Interface // set by Register: the client that writes routes
	trigger queueing.Trigger  // enqueues Watchers after events of routes and gateways

	virtualServices, gateways, httpRoutes *externalKind

	mu      sync.Mutex
	written map[string]writtenRoute // guarded by mu; by kind, namespace and name of the route
}

// New checks the options and returns a Reconciler.
func New(o Options) (*Reconciler, error) {
	if o.Client == nil || o.Events == nil || o.Namespace == "" {
		return nil, fmt.Errorf("making the watcher controller: options need Client, Events and Namespace")
	}
	if o.GatewayNamespace == "" {
		o.GatewayNamespace = o.Namespace
	}
	r := &Reconciler{Options: o, written: map[string]writtenRoute{}}
	istio := []string{"v1", "v1beta1", "v1alpha3"}
	r.virtualServices = &externalKind{
		kind: kindVirtualService, group: groupIstio, resource: "virtualservices",
		versions: istio, namespace: o.Namespace,
		trim: trimVirtualService, isOwnWrite: r.isOwnWrite, onObject: r.enqueueOwner, onServedChange: r.enqueueAll,
	}
	r.gateways = &externalKind{
		kind: kindGateway, group: groupIstio, resource: "gateways", versions: istio, namespace: o.GatewayNamespace,
		trim: trimGateway, onObject: func(ctx context.Context, _ client.ObjectKey) { r.enqueueAll(ctx) },
		onServedChange: r.enqueueAll,
	}
	r.httpRoutes = &externalKind{
		kind: kindHTTPRoute, group: groupGatewayAPI, resource: "httproutes",
		versions: []string{"v1", "v1beta1"}, namespace: o.Namespace,
		trim: trimHTTPRoute, isOwnWrite: r.isOwnWrite, onObject: r.enqueueOwner, onServedChange: r.enqueueAll,
	}
	return r, nil
}

// Register adds the controller and the watches on external kinds to a manager.
func (r *Reconciler) Register(_ context.Context, mgr ctrl.Manager) error {
	clients, err := newWatchClients(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	r.routes = clients.objects
	for _, k := range []*externalKind{r.virtualServices, r.gateways, r.httpRoutes} {
		if err := mgr.Add(clients.watch(k)); err != nil {
			return fmt.Errorf("adding the watch on %s: %w", k.crdName(), err)
		}
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1beta2.Watcher{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: isRelevantUpdate})).
		WatchesRawSource(r.trigger.Source()).
		Named("watcher").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency, RateLimiter: r.RateLimiter,
			NeedLeaderElection: new(true)}).
		Complete(r)
}

// isRelevantUpdate accepts updates of spec, labels, finalizers and deletion. isRelevantUpdate drops updates of the
// status.
func isRelevantUpdate(e event.UpdateEvent) bool {
	before, after := e.ObjectOld, e.ObjectNew
	return before.GetGeneration() != after.GetGeneration() || !maps.Equal(before.GetLabels(), after.GetLabels()) ||
		before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
		!slices.Equal(before.GetFinalizers(), after.GetFinalizers())
}

// enqueueOwner enqueues the Watcher that owns a route. A route has the same name as its Watcher.
func (r *Reconciler) enqueueOwner(_ context.Context, key client.ObjectKey) {
	r.trigger.Add(queueing.Event, 0, reconcile.Request{NamespacedName: key})
}

// enqueueAll enqueues all Watchers. To enqueue all Watchers is cheap, because a control plane has only a few Watchers.
func (r *Reconciler) enqueueAll(ctx context.Context) {
	list := &v1beta2.WatcherList{}
	if err := r.Client.List(ctx, list, client.InNamespace(r.Namespace)); err != nil {
		return // the cache has not started yet; at its start, it sends an event for each Watcher
	}
	for i := range list.Items {
		r.enqueueOwner(ctx, client.ObjectKeyFromObject(&list.Items[i]))
	}
}

// run is one reconcile of one Watcher.
type run struct {
	*Reconciler
	watcher *v1beta2.Watcher

	surveyed bool     // set by survey: the fields below are set
	invalid  string   // set by survey: the reason why the Watcher is not valid; "" if it is valid
	desired  []*route // set by survey and completed by applyRoutes: a VirtualService and an HTTPRoute
}

// Reconcile reconciles one Watcher.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w := &v1beta2.Watcher{}
	if err := r.Client.Get(ctx, req.NamespacedName, w); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	n := &run{Reconciler: r, watcher: w}
	options := loop.Options{Client: r.Client, Controller: "watcher", Object: w, Report: n.report}
	if !w.DeletionTimestamp.IsZero() {
		if !controllerutil.ContainsFinalizer(w, v1beta2.FinalizerWatcher) {
			return reconcile.Result{}, nil
		}
		return loop.Run(ctx, options,
			loop.Step{Name: "survey", Do: n.planRoutes},
			loop.Step{Name: "remove", Do: n.removeRoutes},
			loop.Step{Name: "release", Do: n.removeFinalizer})
	}
	return loop.Run(ctx, options,
		loop.Step{Name: "adopt", Do: n.addFinalizer},
		loop.Step{Name: "survey", Do: n.planRoutes},
		loop.Step{Name: "route", Do: n.applyRoutes})
}

// addFinalizer adds the finalizer, which keeps the Watcher until its routes are deleted.
func (n *run) addFinalizer(ctx context.Context) error {
	return loop.AddFinalizers(ctx, n.Client, n.watcher, v1beta2.FinalizerWatcher)
}

// removeFinalizer removes the finalizer from the Watcher.
func (n *run) removeFinalizer(ctx context.Context) error {
	return loop.RemoveFinalizers(ctx, n.Client, n.watcher, []string{v1beta2.FinalizerWatcher})
}

// planRoutes finds out which external kinds the API server serves, and plans the routes.
func (n *run) planRoutes(context.Context) error {
	vs, gw, hr := n.virtualServices.snapshot(), n.gateways.snapshot(), n.httpRoutes.snapshot()
	for _, s := range []snapshot{vs, gw, hr} {
		if err := s.checkSynced(); err != nil {
			return err
		}
	}
	n.surveyed, n.invalid = true, validate(n.watcher)
	key := client.ObjectKeyFromObject(n.watcher)
	mesh := istio{vs.isServed() && gw.isServed(), n.GatewayNamespace, gateways(gw.all())}
	n.desired = []*route{
		{plan: planVirtualService(n.watcher, n.invalid, mesh), gvr: vs.gvr, current: vs.get(key)},
		{plan: planHTTPRoute(n.watcher, n.invalid, hr.isServed()), gvr: hr.gvr, current: hr.get(key)},
	}
	return nil
}

// isObjectOrKindNotFound reports whether a write failed because the object does not exist, or because the API server
// does not serve the kind of the object any more.
func isObjectOrKindNotFound(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}
