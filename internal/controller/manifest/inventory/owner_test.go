package inventory

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestBehind checks that the deletion of an object waits until all other modules have recorded their objects, because
// another module may contain the same object.
func TestBehind(t *testing.T) {
	failed := func(kind string, status metav1.ConditionStatus, reason string) func(*v1beta2.Manifest) {
		return func(m *v1beta2.Manifest) {
			m.Status.State, m.Status.AppliedGeneration = v1beta2.StateError, 1
			m.Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Reason: reason}}
		}
	}
	cases := map[string]struct {
		reason       string
		change       func(*v1beta2.Manifest)
		prune, whole bool // whether a prune and the removal of a whole module wait
	}{
		"Current": {"it is installed", func(*v1beta2.Manifest) {}, false, false},
		"Changed": {"it was not reconciled yet",
			func(m *v1beta2.Manifest) { m.Status.ObservedGeneration = 1 }, true, true},
		"Paused": {"it does not change", func(m *v1beta2.Manifest) {
			m.Status.ObservedGeneration = 1
			m.Annotations = map[string]string{v1beta2.AnnotationPaused: "ask Kim"}
		}, false, false},
		"Failed": {"its artefact could not be read",
			failed(v1beta2.ConditionReady, metav1.ConditionFalse, "RegistryUnreachable"), true, false},
		"Unreadable": {"the installed version still runs", func(m *v1beta2.Manifest) {
			failed(v1beta2.ConditionSourcesReadable, metav1.ConditionFalse, "RegistryUnreachable")(m)
			m.Status.State = v1beta2.StateReady
		}, true, false},
		"Conflict": {"its objects are recorded",
			failed(v1beta2.ConditionReady, metav1.ConditionFalse, v1beta2.ReasonOwnedByOtherModule), false, false},
		"Applying": {"its objects are recorded before they are applied", func(m *v1beta2.Manifest) {
			m.Status.State, m.Status.AppliedGeneration = v1beta2.StateProcessing, 1
		}, false, false},
	}
	for name, c := range cases {
		m := v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Name: "other", Generation: 2},
			Status: v1beta2.ManifestStatus{State: v1beta2.StateReady, ObservedGeneration: 2, AppliedGeneration: 2}}
		c.change(&m)
		var prune, whole Wait
		if got := prune.FirstBehind(Others{m}, true) != ""; got != c.prune {
			t.Errorf("%s: %s: a prune waits: %v, want %v", name, c.reason, got, c.prune)
		}
		if got := whole.FirstBehind(Others{m}, false) != ""; got != c.whole {
			t.Errorf("%s: %s: a removal waits: %v, want %v", name, c.reason, got, c.whole)
		}
	}
}
