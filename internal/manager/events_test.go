package manager

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// actions records the actions of events.
type actions struct {
	events.EventRecorder
	said map[string]string // by action
}

func (a *actions) Eventf(_, _ runtime.Object, _, _, action, note string, args ...any) {
	a.said[action] = fmt.Sprintf(note, args...)
}

// TestRecorder checks that two events are merged only if their notes are equal.
func TestRecorder(t *testing.T) {
	under := &actions{said: map[string]string{}}
	for _, n := range []int{3, 4, 4} {
		recorder{under}.Eventf(&corev1.Secret{}, nil, corev1.EventTypeWarning, "Orphaned",
			"Sweep", "%d objects: 100%%", n)
	}
	if len(under.said) != 2 {
		t.Errorf("three events, of which two say the same, are %d: %q", len(under.said), under.said)
	}
	for action, said := range under.said {
		if said != "3 objects: 100%" && said != "4 objects: 100%" || len(action) != len("Sweep-00000000") {
			t.Errorf("%s says %q", action, said)
		}
	}
}
