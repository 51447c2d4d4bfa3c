package kyma

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/catalog"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/maintenance"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
)

// A change in the control plane that affects several Kymas enqueues these Kymas. The changes and their Kymas:
//
//	a release or template of a module             the Kymas that have or request the module; see rollouts.go for the
//	                                              version of a channel with a RolloutPolicy
//	a release of a mandatory module               all Kymas, staggered; see rollouts.go for its version
//	a template of a mandatory module              the Kymas that have the version or may get it, staggered
//	the catalog copy of some runtimes             the Kymas of these runtimes, staggered
//	the pull Secret                               all Kymas, staggered
//	a Watcher                                     all Kymas, staggered, if agents are enabled
//	the maintenance policy                        the Kymas that wait for a maintenance window
//	the wall clock was set                        the Kymas that wait for a maintenance window
//
// The enqueued Kymas are reconciled only a few at a time: see [queueing.Admission]. The file manifestevents.go handles
// changes of Manifests. The file sync.go handles changes of the Kyma in a runtime, and package catalog handles changes
// of the catalog copy there.

// Names of the indexes in the cache of the control plane, in addition to the indexes of package catalog.
const (
	// moduleIndex finds Kymas by the names of the modules that they have or request.
	moduleIndex = "kyma.modules"
	// waitingIndex finds the Kymas that wait for a maintenance window. A Kyma that waits has the key v1beta2.ValueTrue
	// in waitingIndex, and a Kyma that does not wait has no key.
	waitingIndex = "kyma.waiting"
	// manifestModuleIndex finds Manifests by the name of their module.
	manifestModuleIndex = "kyma.manifestModule"
)

// cacheIndexes returns all indexes that the controller needs.
func cacheIndexes() []catalog.Index {
	return append(catalog.Indexes(),
		catalog.Index{
			Object: &v1beta2.Kyma{},
			Name:   moduleIndex,
			Keys:   func(o client.Object) []string { return modulesOf(o.(*v1beta2.Kyma)) },
		},
		catalog.Index{Object: &v1beta2.Kyma{}, Name: waitingIndex, Keys: func(o client.Object) []string {
			if slices.ContainsFunc(o.(*v1beta2.Kyma).Status.Modules, waitsForWindow) {
				return []string{v1beta2.ValueTrue}
			}
			return nil
		}},
		catalog.Index{Object: &v1beta2.Manifest{}, Name: manifestModuleIndex, Keys: func(o client.Object) []string {
			return []string{o.GetLabels()[v1beta2.LabelModuleName]}
		}})
}

// waitsForWindow reports whether any module of a Kyma waits for a maintenance window.
func waitsForWindow(m v1beta2.ModuleStatus) bool {
	return m.Reason == v1beta2.ReasonWaitingForWindow || m.Reason == v1beta2.ReasonWindowUnknown || m.Maintenance
}

// modulesOf returns the sorted names of the modules that a Kyma has or requests.
func modulesOf(k *v1beta2.Kyma) []string {
	var names []string
	for _, m := range k.Spec.Modules {
		names = append(names, m.Name)
	}
	for _, m := range k.Status.Modules {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Enqueue triggers a reconcile of a Kyma after a short delay. Several calls of Enqueue within this delay trigger one
// reconcile.
func (r *Reconciler) Enqueue(kyma string) {
	const batchDelay = 100 * time.Millisecond
	r.Trigger.Add(queueing.Event, batchDelay, r.requestFor(kyma))
}

// enqueueNow triggers a reconcile of a Kyma without a delay.
func (r *Reconciler) enqueueNow(kyma string) { r.Trigger.Add(queueing.Event, 0, r.requestFor(kyma)) }

// enqueueWithFleetPriority triggers the reconcile of a Kyma that a rollout has admitted, with the low priority of a
// change that affects many Kymas.
func (r *Reconciler) enqueueWithFleetPriority(kyma string) {
	r.Trigger.Add(queueing.Fleet, 0, r.requestFor(kyma))
}

func (r *Reconciler) requestFor(kyma string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: kyma}}
}

// requestIfNeeded returns a request for the Kyma that an access Secret names. There is no request in two cases:
//
//   - The Kyma waits for the admission of its runtime. Its reconcile after the admission reads the Secret.
//   - The Kyma does not exist, for example because its Secret is created first, and no other controller has requested to
//     verify the owner of the runtime. A Kyma of another replica is not in the cache either, and gets a request, because
//     its reconcile closes the connection to the runtime.
func (r *Reconciler) requestIfNeeded(ctx context.Context, secret client.Object) []reconcile.Request {
	return slices.DeleteFunc(loop.RequestForKyma(ctx, secret), func(request reconcile.Request) bool {
		if r.starting.IsWaiting(request.Name) {
			return true
		}
		err := r.Client.Get(ctx, request.NamespacedName, &v1beta2.Kyma{}, client.UnsafeDisableDeepCopy,
			client.DisableReadYourWritesConsistency) // an event handler must not wait
		return apierrors.IsNotFound(err) && r.Shards.Holds(request.Name) &&
			!r.Runtimes.IsVerificationRequested(request.Name)
	})
}

// EnqueueAll triggers a reconcile of every Kyma, spread over time.
func (r *Reconciler) EnqueueAll(ctx context.Context) {
	var list v1beta2.KymaList
	if err := r.Client.List(ctx, &list, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "cannot list Kymas")
		return
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	r.enqueueStaggered(names)
}

// enqueueStaggered triggers the reconciles of the given Kymas one after the other, spread over CatalogSpread.
// enqueueStaggered leaves out Kymas that already wait until a rollout admits them, or whose reconcile an earlier call
// has scheduled.
func (r *Reconciler) enqueueStaggered(kymas []string) {
	r.stagger.InBackground(slices.DeleteFunc(kymas, r.rollout.IsWaiting), r.CatalogSpread, r.enqueueWhenAdmitted)
}

// enqueueWhenAdmitted triggers the reconcile of a Kyma as soon as it is admitted.
func (r *Reconciler) enqueueWhenAdmitted(kyma string) {
	if r.rollout.Admit(kyma) {
		r.enqueueWithFleetPriority(kyma)
	}
}

// enqueueIndexed triggers the reconciles of the Kymas that have the given key in the given index.
func (r *Reconciler) enqueueIndexed(ctx context.Context, index, key string) {
	var list v1beta2.KymaList
	err := r.Client.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingFields{index: key},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		log.FromContext(ctx).Error(err, "cannot list Kymas", "index", index)
		return
	}
	for i := range list.Items {
		r.enqueueWhenAdmitted(list.Items[i].Name)
	}
}

// onChange returns a handler that calls the function changed for a created, updated or deleted object. For an update,
// the function gets the old and the new version. For objects of the initial list, the function "changed" is not called,
// because all Kymas are enqueued at the start anyway.
func onChange(changed func(ctx context.Context, objects ...client.Object)) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, _ queueing.Queue) {
			if !e.IsInInitialList {
				changed(ctx, e.Object)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ queueing.Queue) {
			changed(ctx, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ queueing.Queue) { changed(ctx, e.Object) },
	}
}

// onCatalog returns the handler for changes of releases and templates.
func (r *Reconciler) onCatalog() handler.EventHandler {
	changed := onChange(r.enqueueKymasUsing).(handler.Funcs)
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queueing.Queue) {
			r.catalog.Invalidate()
			changed.CreateFunc(ctx, e, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queueing.Queue) {
			if r.isStagedMove(ctx, e.ObjectOld, e.ObjectNew) {
				r.catalog.InvalidateWithoutSignal()
				return
			}
			r.catalog.Invalidate()
			changed.UpdateFunc(ctx, e, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queueing.Queue) {
			r.catalog.Invalidate()
			changed.DeleteFunc(ctx, e, q)
		},
	}
}

// enqueueKymasUsing enqueues the Kymas that use the modules to which some releases or templates belong. The release of
// a mandatory module is used by all Kymas.
func (r *Reconciler) enqueueKymasUsing(ctx context.Context, objects ...client.Object) {
	modules := map[string]bool{}
	for _, o := range objects {
		if release, ok := o.(*v1beta2.ModuleReleaseMeta); ok && release.IsMandatory() {
			r.EnqueueAll(ctx)
			return
		}
		for _, name := range possibleModuleNames(o) {
			modules[name] = true
		}
	}
	for name := range modules {
		release := &v1beta2.ModuleReleaseMeta{}
		if err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: name}, release); err == nil &&
			release.IsMandatory() {
			r.enqueueMandatoryUsers(ctx, release, objects)
			continue
		}
		r.enqueueIndexed(ctx, moduleIndex, name)
	}
}

// possibleModuleNames returns all names that the module of a ModuleReleaseMeta or a ModuleTemplate can have. The name
// of a ModuleReleaseMeta is the name of its module. The name of a ModuleTemplate contains the name of its module. The
// ModuleTemplates of early releases of the Kyma project have other names: their module name is in a label or in the
// spec, see [channel.ModuleOf].
func possibleModuleNames(o client.Object) []string {
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

// onWatcher returns the handler for changes of Watchers. Each change of a Watcher changes the watch list of every
// agent.
func (r *Reconciler) onWatcher() handler.EventHandler {
	return onChange(func(ctx context.Context, _ ...client.Object) { r.EnqueueAll(ctx) })
}

// onPullSecret returns the handler for changes of the pull Secret.
func (r *Reconciler) onPullSecret() handler.EventHandler {
	return onChange(func(ctx context.Context, objects ...client.Object) {
		if o := objects[0]; o.GetName() == r.PullSecret && o.GetNamespace() == r.Namespace {
			r.EnqueueAll(ctx)
		}
	})
}

// onPolicy returns the handler for changes of the ConfigMap with the maintenance policy. The handler is also called for
// the initial list of the ConfigMap.
func (r *Reconciler) onPolicy() handler.EventHandler {
	changed := func(ctx context.Context, o client.Object) {
		if o.GetName() == r.PolicyConfigMap && o.GetNamespace() == r.Namespace {
			r.policies.RefreshConfigMap(ctx)
			r.propagatePolicyOrClockChange(ctx)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, _ queueing.Queue) { changed(ctx, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ queueing.Queue) { changed(ctx, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ queueing.Queue) { changed(ctx, e.Object) },
	}
}

// propagatePolicyOrClockChange enqueues the Kymas that wait for a maintenance window, and notifies the receiver of
// [Reconciler.PolicyOrClockChanges].
func (r *Reconciler) propagatePolicyOrClockChange(ctx context.Context) {
	r.enqueueIndexed(ctx, waitingIndex, v1beta2.ValueTrue)
	select {
	case r.policyChanges <- event.GenericEvent{}:
	default: // the receiver has not received the previous event yet
	}
}

// PolicyOrClockChanges returns a channel with an event after each change of the maintenance policy in force, and after
// the wall clock was set. Several changes may be merged into one event.
func (r *Reconciler) PolicyOrClockChanges() <-chan event.GenericEvent { return r.policyChanges }

// followMaintenance enqueues the Kymas that wait for a maintenance window after each change of the policy file, and
// each time the wall clock was set. followMaintenance runs until ctx ends.
func (r *Reconciler) followMaintenance(ctx context.Context) error {
	enqueue := func() { r.propagatePolicyOrClockChange(ctx) }
	var tasks sync.WaitGroup
	tasks.Go(func() { maintenance.FollowClock(ctx, enqueue) })
	if r.policies.UsesFile() {
		tasks.Go(func() { r.policies.FollowFile(ctx, enqueue) })
	}
	tasks.Wait()
	return nil
}

// followCatalog enqueues, after each change of the catalog, the Kymas whose runtimes have an outdated catalog copy.
// followCatalog also removes the finalizers of mandatory modules that no runtime has any more. followCatalog runs until
// ctx ends.
func (r *Reconciler) followCatalog(ctx context.Context) error {
	const batchDelay = 200 * time.Millisecond // a release consists of several objects, written one by one
	// mandatoryInterval is the interval of the checks whether a deleted mandatory module is still installed in a
	// runtime.
	const mandatoryInterval = 5 * time.Second
	var recheck <-chan time.Time // recheck is nil if no deleted mandatory module is still installed.
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.catalog.Changed():
		case <-recheck:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(batchDelay):
		}
		if err := r.enqueueKymasWithOutdatedCatalog(ctx); err != nil {
			log.FromContext(ctx).Error(err, "cannot roll out the catalog")
		}
		waits, err := r.removeMandatoryFinalizers(ctx)
		if err != nil {
			log.FromContext(ctx).Error(err, "cannot remove the finalizer of a mandatory module")
		}
		recheck = nil
		if waits || err != nil {
			recheck = time.After(mandatoryInterval)
		}
	}
}

// enqueueKymasWithOutdatedCatalog enqueues the Kymas whose runtimes have an outdated catalog copy. The reconciles of
// Kymas with an outdated catalog copy are spread over time.
func (r *Reconciler) enqueueKymasWithOutdatedCatalog(ctx context.Context) error {
	if r.InCluster || r.Trigger.Queue() == nil {
		return nil
	}
	outdated, err := r.catalog.OutdatedKymas(ctx)
	if err != nil {
		return err
	}
	r.enqueueStaggered(outdated)
	return nil
}

// probeRuntimeOfRetriedKyma probes the runtime of a Kyma for which a person has requested a retry, and returns the
// Kyma. The controller of Manifests retries the modules of the Kyma.
func (r *Reconciler) probeRuntimeOfRetriedKyma(_ context.Context, kyma client.Object) (toRetry []client.Object) {
	r.Runtimes.Probe(kyma.GetName())
	return []client.Object{kyma}
}
