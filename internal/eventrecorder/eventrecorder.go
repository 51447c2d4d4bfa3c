// Package eventrecorder records Kubernetes events in the control plane. All controllers record their events here.
//
// # Use
//
//	recorder := eventrecorder.New(mgr.GetEventRecorder("lifecycle-manager"))
//
// # How it works
//
// The recorder of client-go merges two events if they are about the same object, have the same reason and action, and
// occur within six minutes. It then drops the note of the second event. Therefore Recorder adds a hash of the note to
// the action. So events with the same note are merged and counted, and an event with another note is recorded.
//
// What a runtime contains decides how many events there are. Therefore the objects of each runtime, its Kyma and its
// Manifests, get at most [Burst] events at once, and then one per [Interval]. Further events are dropped and counted in
// the metric lifecycle_mgr_events_dropped_total: the status of the objects shows the same. Notes are clipped, because
// an API server refuses an event whose note has more than 1,024 bytes.
//
// # What it does not do
//
// It does not record events in runtimes: package eventlog does.
package eventrecorder

import (
	"fmt"
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/budget"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

const (
	// Burst is the number of events that the objects of one runtime may get at once.
	Burst = 100
	// Interval is the time after which a runtime that has used its burst may get another event.
	Interval = 10 * time.Second
)

// Recorder is an [events.EventRecorder]. Safe for concurrent use.
type Recorder struct {
	next   events.EventRecorder
	budget *budget.Budget
}

// New returns a Recorder that records through next.
func New(next events.EventRecorder) *Recorder {
	return &Recorder{next: next, budget: budget.New(Burst, Interval)}
}

// Eventf implements [events.EventRecorder].
func (r *Recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	if r.budget.Take(runtimeOf(regarding), time.Now()) > 0 {
		metrics.EventsDropped.Inc()
		return
	}
	text := loop.Clip(fmt.Sprintf(note, args...))
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never fails
	r.next.Eventf(regarding, related, kind, reason, fmt.Sprintf("%s-%08x", action, h.Sum32()), "%s", text)
}

// runtimeOf returns the runtime of an object. An object that belongs to no runtime counts as one of its own.
func runtimeOf(regarding runtime.Object) string {
	o, ok := regarding.(client.Object)
	if !ok {
		return ""
	}
	if kyma := o.GetLabels()[v1beta2.LabelKymaName]; kyma != "" {
		return kyma
	}
	if _, ok := o.(*v1beta2.Kyma); ok {
		return o.GetName()
	}
	return fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())
}
