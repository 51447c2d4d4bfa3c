package queueing

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// ManifestHandlerByPriorityClass returns a handler that enqueues a Manifest with a priority class. The first matching
// row of this table decides the priority class of the Manifest:
//
//	1  a person waits for the runtime                               Person
//	2  the Manifest existed when the process started                Startup
//	3  the Manifest was created, is being deleted, or was deleted   Event
//	4  the Manifest changed, for example its version                Fleet: usually this concerns many runtimes
func (u *Urgent) ManifestHandlerByPriorityClass() handler.EventHandler {
	add := func(q Queue, o client.Object, class Class) {
		if u.Is(o.GetLabels()[v1beta2.LabelKymaName]) {
			class = Person
		}
		Add(q, class, 0, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q Queue) {
			if e.IsInInitialList {
				add(q, e.Object, Startup)
				return
			}
			add(q, e.Object, Event)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q Queue) {
			if e.ObjectNew.GetDeletionTimestamp().IsZero() {
				add(q, e.ObjectNew, Fleet)
				return
			}
			add(q, e.ObjectNew, Event)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q Queue) { add(q, e.Object, Event) },
	}
}
