package manager

import (
	"fmt"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
)

// recorder records Kubernetes events. The recorder of client-go merges two events if they are about the same object,
// have the same reason and action, and occur within six minutes. The recorder of client-go then drops the note of the
// second event. Therefore recorder adds a hash of the note to the action. So events with the same note are merged and
// counted, and an event with another note is recorded.
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
