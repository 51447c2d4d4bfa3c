package eventlog

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// runtime is a fake runtime that has the names of the created events. runtime refuses an event whose name exists.
type runtime struct{ names []string }

// exists is the error that an API server returns for an object that exists already.
type exists struct{}

func (exists) Error() string  { return "it exists" }
func (exists) Reason() string { return apply.ObjectExists }

func (r *runtime) CreateWithoutRead(_ context.Context, o *unstructured.Unstructured, _ string) (apply.Created, error) {
	if slices.Contains(r.names, o.GetName()) {
		return apply.Created{}, exists{}
	}
	r.names = append(r.names, o.GetName())
	return apply.Created{}, nil
}

// TestPublish checks that an event is recorded once, even if the manager stops before it writes the status, and that a
// later change of the same kind is recorded again. No time passes during the test, so the runtime gets no more events
// than burst.
func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, rt := New(nil), &runtime{}
		entry := func(name string, outcome v1beta2.State) v1beta2.ModuleStatus {
			return v1beta2.ModuleStatus{Name: name, Version: "1.0.0", State: outcome, History: []v1beta2.ModuleChange{
				{Version: "1.0.0", Outcome: outcome, Reason: "A"}}}
		}
		at := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
		status := func(minute int, outcome v1beta2.State) v1beta2.KymaStatus {
			return v1beta2.KymaStatus{Modules: []v1beta2.ModuleStatus{entry("a", outcome), entry("b", outcome)},
				LastOperation: v1beta2.LastOperation{
					LastUpdateTime: metav1.NewTime(at.Add(time.Duration(minute) * time.Minute))}}
		}
		remote := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: status(1, v1beta2.StateReady)}
		publish := func(after v1beta2.KymaStatus, want int) {
			t.Helper()
			l.RecordInRuntime(t.Context(), "k", rt, remote, &after)
			if len(rt.names) != want {
				t.Errorf("%d events, want %d", len(rt.names), want)
			}
		}
		failed, recovered := status(2, v1beta2.StateError), status(3, v1beta2.StateReady)
		publish(failed, 2)
		publish(failed, 2) // the manager was killed before it wrote the status
		remote.Status = failed
		publish(failed, 2)
		publish(recovered, 3) // one event for both modules
		remote.Status = recovered
		publish(status(4, v1beta2.StateError), 5)
		for minute := range 100 { // the modules fail and recover without end
			remote.Status = status(2*minute, v1beta2.StateReady)
			l.RecordInRuntime(t.Context(), "k", rt, remote, new(status(2*minute+1, v1beta2.StateError)))
		}
		publish(status(0, v1beta2.StateError), burst-2) // two were sent twice
		l.RecordInRuntime(t.Context(), "other", rt, remote, new(status(1001, v1beta2.StateError)))
		if len(rt.names) != burst {
			t.Error("another runtime has no budget of its own")
		}
	})
}
