package manifest

import (
	"errors"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/source"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// TestTerminalIfPinned: a rendering error is terminal only if the source is pinned by a digest.
func TestTerminalIfPinned(t *testing.T) {
	broken := &render.Error{}
	cases := map[string]struct {
		reason string
		err    error
		pinned bool
		want   bool
	}{
		"Pinned":  {"the content never changes", broken, true, true},
		"Tag":     {"the tag may get other content", broken, false, false},
		"Network": {"another try may succeed", errors.New("connection refused"), true, false},
	}
	for name, c := range cases {
		err := terminalIfPinned(fmt.Errorf("rendering a: %w", c.err), source.Artefact{Pinned: c.pinned})
		if got := errors.Is(err, reconcile.TerminalError(nil)); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %s: got %v", name, c.reason, err)
		}
	}
}

// TestOnManifest: events of Manifests are enqueued in the class of their reason.
func TestOnManifest(t *testing.T) {
	named := func(name, kyma string) *v1beta2.Manifest {
		return moduleOf(func(m *v1beta2.Manifest) { m.Name, m.Labels[v1beta2.LabelKymaName] = name, kyma })
	}
	deleting := named("deleting", "a")
	deleting.DeletionTimestamp = new(deleting.CreationTimestamp)
	deleting.DeletionTimestamp.Time = deleting.DeletionTimestamp.AddDate(2026, 0, 0)
	urgent := queueing.NewUrgent()
	urgent.Mark("urgent")
	h := (&Reconciler{Options: Options{Urgent: urgent}}).onManifest()
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
		"listed": queueing.Startup.Priority(), "created": queueing.Event.Priority(),
		"changed":  queueing.Fleet.Priority(),
		"deleting": queueing.Event.Priority(), "urgent": queueing.Person.Priority(),
		"deleted": queueing.Event.Priority(),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("priorities, -want +got:\n%s", diff)
	}
}
