package manager

import (
	"fmt"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
)

// recorder records events. The recorder of client-go merges two events within six minutes into one if they are about
// the same object, with the same reason and action, and drops the note of the second. So a hash of the note becomes a
// part of the action: repeated events are counted, and events with another note are recorded.
type recorder struct{ events.EventRecorder }

func newRecorder(mgr ctrl.Manager) events.EventRecorder {
	return recorder{mgr.GetEventRecorder("lifecycle-manager")}
}

// Eventf implements [events.EventRecorder].
func (r recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	text := fmt.Sprintf(note, args...)
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never fails
	r.EventRecorder.Eventf(regarding, related, kind, reason, fmt.Sprintf("%s-%08x", action, h.Sum32()), "%s", text)
}
