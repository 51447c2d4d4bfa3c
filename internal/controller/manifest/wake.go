package manifest

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// Whose turn comes first:
//
//	1  a Manifest of a runtime that a person waits for    also before what changes in runtimes
//	2  a new Manifest, or one that goes                   as what changes in runtimes
//	3  one that changes, for example to another version   after these, because that concerns many at once; so does what comes back by itself
//	4  what is there when the program starts              at the end

// onManifest puts Manifests that are new, changed or going into the queue.
func (r *Reconciler) onManifest() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(q queue, o client.Object, priority int) {
		if r.Runtimes.Hurries(o.GetLabels()[v1beta2.LabelKymaName]) {
			priority = runtimes.PriorityPerson
		}
		runtimes.Enqueue(q, priority, 0, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if e.IsInInitialList {
				add(q, e.Object, handler.LowPriority)
				return
			}
			add(q, e.Object, 0)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectNew.GetDeletionTimestamp().IsZero() {
				add(q, e.ObjectNew, runtimes.PriorityFleet)
				return
			}
			add(q, e.ObjectNew, 0)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(q, e.Object, 0) },
	}
}
