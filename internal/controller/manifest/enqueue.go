package manifest

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/retry"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// onManifest enqueues Manifests with a priority class. The first row that matches decides:
//
//	1  a person waits for the runtime                               Person
//	2  the Manifest existed when the process started                Startup
//	3  the Manifest was created, is being deleted, or was deleted   Event
//	4  the Manifest changed, for example its version                Fleet: usually this concerns many runtimes
func (r *Reconciler) onManifest() handler.EventHandler {
	add := func(q queueing.Queue, o client.Object, class queueing.Class) {
		if r.Urgent.Is(o.GetLabels()[v1beta2.LabelKymaName]) {
			class = queueing.Person
		}
		queueing.Add(q, class, 0, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queueing.Queue) {
			if e.IsInInitialList {
				add(q, e.Object, queueing.Startup)
				return
			}
			add(q, e.Object, queueing.Event)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queueing.Queue) {
			if e.ObjectNew.GetDeletionTimestamp().IsZero() {
				add(q, e.ObjectNew, queueing.Fleet)
				return
			}
			add(q, e.ObjectNew, queueing.Event)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queueing.Queue) { add(q, e.Object, queueing.Event) },
	}
}

// onKyma retries the Manifests of a Kyma that are not Ready, if a person has requested a retry of the Kyma. The
// controller of Kymas probes the runtime.
func (r *Reconciler) onKyma() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queueing.Queue) {
		if !retry.IsRequested(e.ObjectOld, e.ObjectNew) {
			return
		}
		var all v1beta2.ManifestList
		err := r.Client.List(ctx, &all, client.InNamespace(e.ObjectNew.GetNamespace()),
			client.MatchingFields{runtimes.KymaNameIndex: e.ObjectNew.GetName()}, client.UnsafeDisableDeepCopy)
		if err != nil {
			log.FromContext(ctx).Error(err, "cannot retry the modules of a Kyma", "kyma", e.ObjectNew.GetName())
		}
		for i := range all.Items {
			if m := &all.Items[i]; m.Status.State != v1beta2.StateReady {
				r.compareAgain(m)
				r.retries.Retry(q, client.ObjectKeyFromObject(m))
			}
		}
	}}
}

// prepareRetry prepares the retry of one Manifest.
func (r *Reconciler) prepareRetry(_ context.Context, m client.Object) {
	r.compareAgain(m)
	r.Runtimes.Probe(m.GetLabels()[v1beta2.LabelKymaName])
}

// compareAgain makes the next reconcile of a Manifest compare all objects, and read its readiness.
func (r *Reconciler) compareAgain(m client.Object) {
	if memory := r.memories.Get(client.ObjectKeyFromObject(m)); memory != nil {
		memory.restoreChanges(changes{readiness: true, retried: true})
	}
}
