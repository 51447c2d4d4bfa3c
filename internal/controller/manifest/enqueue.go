package manifest

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
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
