package queueing

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestHandler checks in which class an event about a Manifest is enqueued.
func TestHandler(t *testing.T) {
	named := func(name, kyma string) *v1beta2.Manifest {
		return &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{v1beta2.LabelKymaName: kyma}}}
	}
	deleting := named("deleting", "a")
	deleting.DeletionTimestamp = new(metav1.Now())
	urgent := NewUrgent()
	urgent.Mark("urgent")
	h := urgent.ManifestHandlerByPriorityClass()
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	h.Create(t.Context(), event.CreateEvent{Object: named("listed", "a"), IsInInitialList: true}, q)
	h.Create(t.Context(), event.CreateEvent{Object: named("created", "a")}, q)
	h.Update(t.Context(), event.UpdateEvent{ObjectNew: named("changed", "a")}, q)
	h.Update(t.Context(), event.UpdateEvent{ObjectNew: deleting}, q)
	h.Update(t.Context(), event.UpdateEvent{ObjectNew: named("urgent", "urgent")}, q)
	h.Delete(t.Context(), event.DeleteEvent{Object: client.Object(named("deleted", "a"))}, q)
	got := map[string]int{}
	for range 6 {
		item, priority, _ := q.GetWithPriority()
		got[item.Name] = priority
		q.Done(item)
	}
	want := map[string]int{
		"listed": Startup.Priority(), "created": Event.Priority(),
		"changed":  Fleet.Priority(),
		"deleting": Event.Priority(), "urgent": Person.Priority(),
		"deleted": Event.Priority(),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("priorities, -want +got:\n%s", diff)
	}
}
