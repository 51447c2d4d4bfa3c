package manager

import (
	"fmt"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
)

// teller records events. The recorder under it takes two events within six minutes for one that happened twice, if they are about the same object, for the same
// reason and with the same action, and drops what the second one says. So a digest of that is made a part of the action: what is said again is
// counted, and what is new is told.
type teller struct{ events.EventRecorder }

func newTeller(mgr ctrl.Manager) events.EventRecorder {
	return teller{mgr.GetEventRecorder("lifecycle-manager")}
}

// Eventf implements [events.EventRecorder].
func (t teller) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	said := fmt.Sprintf(note, args...)
	h := fnv.New32a()
	_, _ = h.Write([]byte(said)) // a hash takes everything
	t.EventRecorder.Eventf(regarding, related, kind, reason, fmt.Sprintf("%s-%08x", action, h.Sum32()), "%s", said)
}
