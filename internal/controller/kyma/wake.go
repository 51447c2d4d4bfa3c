package kyma

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// Who is woken when the catalog of the control plane changes:
//
//	a release or template of a module   the Kymas that have or want it
//	that of a mandatory module          all Kymas, spread
//	anything that a runtime sees        the Kymas whose view has changed, spread: see catalog.go
//	the maintenance policy              the Kymas that wait for a window
//	the clock on the wall               the same, when it was set: see clock.go
//	a Watcher                           all Kymas, spread, where there are agents
//
// All of them a few at a time: see turns.go. Those of the fleet wait while there is something to do that a person has asked for: see mirror.

// Indexes of the control plane's cache.
const (
	// moduleIndex finds Kymas by the modules they have or want.
	moduleIndex = "kyma.modules"
	// waitingIndex finds Kymas that wait for a maintenance window, by v1beta2.ValueTrue.
	waitingIndex = "kyma.waiting"
	// templateIndex finds ModuleTemplates by their module.
	templateIndex = "kyma.templates"
	// mandatoryIndex finds ModuleReleaseMetas of mandatory modules, by v1beta2.ValueTrue.
	mandatoryIndex = "kyma.mandatory"
)

// indexes say what each index is about.
var indexes = []struct {
	object client.Object
	name   string
	keys   func(client.Object) []string
}{
	{&v1beta2.Kyma{}, moduleIndex, func(o client.Object) []string { return modulesOf(o.(*v1beta2.Kyma)) }},
	{&v1beta2.Kyma{}, waitingIndex, func(o client.Object) []string {
		return ifTrue(slices.ContainsFunc(o.(*v1beta2.Kyma).Status.Modules, waitsForWindow))
	}},
	{&v1beta2.ModuleTemplate{}, templateIndex, func(o client.Object) []string { return []string{channel.ModuleOf(o.(*v1beta2.ModuleTemplate))} }},
	{&v1beta2.ModuleReleaseMeta{}, mandatoryIndex, func(o client.Object) []string { return ifTrue(o.(*v1beta2.ModuleReleaseMeta).IsMandatory()) }},
}

func ifTrue(is bool) []string {
	if is {
		return []string{v1beta2.ValueTrue}
	}
	return nil
}

func waitsForWindow(m v1beta2.ModuleStatus) bool {
	return m.Reason == v1beta2.ReasonWaitingForWindow || m.Reason == v1beta2.ReasonWindowUnknown || m.Maintenance
}

// modulesOf returns the modules that a Kyma has or wants.
func modulesOf(k *v1beta2.Kyma) []string {
	names := map[string]bool{}
	for _, m := range k.Spec.Modules {
		names[m.Name] = true
	}
	for _, m := range k.Status.Modules {
		names[m.Name] = true
	}
	return slices.Sorted(mapKeys(names))
}

// queue is where Kymas wait for their turn.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// onCatalog wakes who is concerned by a change of a release or template.
func (r *Reconciler) onCatalog() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			r.views.stale()
			if !e.IsInInitialList { // then all Kymas are in the queue anyway
				r.catalogChanged(ctx, q, e.Object)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			r.views.stale()
			r.catalogChanged(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			r.views.stale()
			r.catalogChanged(ctx, q, e.Object)
		},
	}
}

// catalogChanged wakes the users of the modules that the objects are about; of a mandatory module that is everybody.
func (r *Reconciler) catalogChanged(ctx context.Context, q queue, objects ...client.Object) {
	modules := map[string]bool{}
	for _, o := range objects {
		if release, ok := o.(*v1beta2.ModuleReleaseMeta); ok && release.IsMandatory() {
			r.wakeFleet(ctx, q)
			return
		}
		for _, name := range modulesIn(o) {
			modules[name] = true
		}
	}
	for name := range modules {
		release := &v1beta2.ModuleReleaseMeta{}
		if err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: name}, release); err == nil && release.IsMandatory() {
			r.wakeFleet(ctx, q)
			return
		}
		r.wakeIndexed(ctx, q, moduleIndex, name)
	}
}

// modulesIn returns the modules that a release or template is about. A template is found by its name or, the early way, by its module.
func modulesIn(o client.Object) []string {
	t, ok := o.(*v1beta2.ModuleTemplate)
	if !ok {
		return []string{o.GetName()}
	}
	names := []string{channel.ModuleOf(t)}
	if before, isNamed := strings.CutSuffix(t.Name, "-"+t.Spec.Version); isNamed && before != names[0] {
		names = append(names, before)
	}
	return names
}

// onWatcher wakes all runtimes when a Watcher changes, one after the other: their agents watch something else now.
func (r *Reconciler) onWatcher() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if !e.IsInInitialList { // then all Kymas are in the queue anyway
				r.wakeFleet(ctx, q)
			}
		},
		UpdateFunc: func(ctx context.Context, _ event.UpdateEvent, q queue) { r.wakeFleet(ctx, q) },
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, q queue) { r.wakeFleet(ctx, q) },
	}
}

// onPolicy enqueues the Kymas that wait for a maintenance window when the ConfigMap with the policy changes.
func (r *Reconciler) onPolicy() handler.EventHandler {
	wake := func(ctx context.Context, o client.Object, q queue) {
		if o.GetName() == r.PolicyConfigMap && o.GetNamespace() == r.Namespace {
			r.policies.Refresh(ctx)
			r.wakeIndexed(ctx, q, waitingIndex, v1beta2.ValueTrue)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { wake(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { wake(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { wake(ctx, e.Object, q) },
	}
}

// enqueueWaiting enqueues the Kymas that wait for a maintenance window.
func (r *Reconciler) enqueueWaiting(ctx context.Context) {
	if q := r.queue.Load(); q != nil {
		r.wakeIndexed(ctx, *q, waitingIndex, v1beta2.ValueTrue)
	}
}

// wakeIndexed puts the Kymas of one key of an index into the queue, a few at a time.
func (r *Reconciler) wakeIndexed(ctx context.Context, q queue, index, key string) {
	var list v1beta2.KymaList
	if err := r.Client.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingFields{index: key},
		client.UnsafeDisableDeepCopy); err != nil {
		return // the cache answers as long as the program lives
	}
	for i := range list.Items {
		r.wakeInTurn(q, client.ObjectKeyFromObject(&list.Items[i]))
	}
}

// wakeInTurn puts a Kyma into the queue when it is its turn.
func (r *Reconciler) wakeInTurn(q queue, key types.NamespacedName) {
	if r.rollout.may(key.Name) {
		runtimes.Enqueue(q, runtimes.PriorityFleet, 0, reconcile.Request{NamespacedName: key})
	}
}

// rollOut puts a Kyma into the queue whose turn it is.
func (r *Reconciler) rollOut(kyma string) {
	if q := r.queue.Load(); q != nil {
		runtimes.Enqueue(*q, runtimes.PriorityFleet, 0, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: kyma}})
	}
}

// wakeFleet puts all Kymas into the queue, spread.
func (r *Reconciler) wakeFleet(ctx context.Context, q queue) {
	var list v1beta2.KymaList
	if err := r.Client.List(ctx, &list, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return // the cache answers as long as the program lives
	}
	keys := make([]types.NamespacedName, len(list.Items))
	for i := range list.Items {
		keys[i] = client.ObjectKeyFromObject(&list.Items[i])
	}
	r.wakeSpread(q, keys)
}

// pace is the time between two Kymas that are woken for the same reason, unless CatalogSpread is too short for that.
const pace = 10 * time.Millisecond

// wakeSpread puts Kymas into the queue one after the other. Who waits for its turn anyway will see then what has changed.
func (r *Reconciler) wakeSpread(q queue, keys []types.NamespacedName) {
	keys = slices.DeleteFunc(keys, func(key types.NamespacedName) bool { return r.rollout.awaits(key.Name) })
	within := min(r.CatalogSpread, time.Duration(len(keys))*pace)
	for i, key := range keys {
		time.AfterFunc(within*time.Duration(i)/time.Duration(len(keys)), func() { r.wakeInTurn(q, key) })
	}
}
