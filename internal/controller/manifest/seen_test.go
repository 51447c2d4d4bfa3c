package manifest

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

var (
	seenWorkload = apply.Ref{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "n", Name: "d"}
	seenResource = apply.Ref{Group: "x.io", Version: "v1", Kind: "Keda", Namespace: "n", Name: "default"}
)

// watchedValidity says how long a recorded readiness may be used in a runtime with an agent.
var watchedValidity = validity{ready: readyPeriod, expected: expectedPeriod}

// seenEvent returns the event with which an agent reports a change of a Deployment or of the custom resource. The
// Deployment is available if ready is true. If ready is nil, the event has no state.
func seenEvent(ref apply.Ref, version int, ready *bool) runtimes.Event {
	meta := metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: "u", Generation: 1,
		ResourceVersion: strconv.Itoa(version),
		Annotations:     map[string]string{v1beta2.AnnotationOwnedBy: "kcp-system/m"}}
	e := runtimes.Event{Interest: interestOf(ref), Object: &metav1.PartialObjectMetadata{ObjectMeta: meta}}
	if ready == nil {
		return e
	}
	available, state := int64(0), "Processing"
	if *ready {
		available, state = 1, "Ready"
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": ref.GVK().GroupVersion().String(), "kind": ref.Kind,
		"metadata": map[string]any{"namespace": ref.Namespace, "name": ref.Name, "uid": "u", "generation": int64(1),
			"resourceVersion": strconv.Itoa(version)},
		"spec": map[string]any{"replicas": int64(1)},
		"status": map[string]any{"observedGeneration": int64(1), "replicas": int64(1), "updatedReplicas": int64(1),
			"readyReplicas": available, "availableReplicas": available, "state": state,
			"conditions": []any{map[string]any{"type": "Available", "status": map[bool]string{true: "True",
				false: "False"}[*ready]}}},
	}}
	e.States = map[types.NamespacedName]*unstructured.Unstructured{{Namespace: ref.Namespace, Name: ref.Name}: u}
	return e
}

// newSeenMemory returns the memory of a module whose Deployment and custom resource were just sent.
func newSeenMemory() *memory {
	m := &memory{expected: []apply.Ref{seenWorkload}, evaluate: func(u *unstructured.Unstructured) (readiness, bool) {
		state, _, _ := unstructured.NestedString(u.Object, "status", "state")
		return readiness{state: v1beta2.State(state)}, true
	}}
	for _, ref := range []apply.Ref{seenWorkload, seenResource} {
		m.progress.RecordReadUnlessChanged(ref, "u", 1, "5")
		m.recordSentAsNotReady(ref)
	}
	m.setNeeded([]apply.Ref{{Kind: "ConfigMap", Name: "c"}, seenWorkload}, seenResource)
	m.setShown(v1beta2.StateProcessing)
	return m
}

// observe adds an event. If the event is about a version of the Deployment that was not read or written yet, observe
// does not compare the Deployment with its desired state. Only the readiness in this event can trigger a reconcile.
func (m *memory) observe(e runtimes.Event) bool {
	if e.Interest.Kind != seenWorkload.Kind || m.progress.IsNotNewerThanRecorded(seenWorkload, "u",
		e.Object.ResourceVersion) {
		return m.addEvent(e, "kcp-system/m", seenResource)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.recordEventStateLocked(e, seenWorkload, false)
}

// TestEventsDuringReconcile checks events that arrive during a reconcile. If a reconcile has already used the object
// state in an event, this event does not make the next reconcile read the object.
func TestEventsDuringReconcile(t *testing.T) {
	yes, no := new(true), new(false)
	cases := map[string]struct {
		reason string
		events []runtimes.Event
		want   bool // something is left for the next reconcile
	}{
		"Ready": {"both are ready, as was decided", []runtimes.Event{seenEvent(seenWorkload, 6, yes),
			seenEvent(seenResource, 7, yes)}, false},
		"NotReady": {"the custom resource is not ready any more", []runtimes.Event{seenEvent(seenResource, 7, yes),
			seenEvent(seenResource, 8, no)}, true},
		"WithoutState": {"the state of the custom resource is unknown", []runtimes.Event{seenEvent(seenResource, 7, nil)},
			true},
		"Missed": {"others may be lost", []runtimes.Event{seenEvent(seenResource, 7, yes), {Missed: true}}, true},
		"Deleted": {"the custom resource was deleted", []runtimes.Event{seenEvent(seenResource, 7, yes),
			{Interest: interestOf(seenResource), Deleted: true, Object: seenEvent(seenResource, 8, nil).Object}}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := newSeenMemory()
			m.setShown(v1beta2.StateError) // every event causes a reconcile
			for _, ref := range []apply.Ref{seenWorkload, seenResource} {
				m.recordSentAsNotReady(ref)
			}
			for _, e := range c.events {
				m.addEvent(e, "kcp-system/m", seenResource)
			}
			m.setShown(v1beta2.StateReady)
			left := m.takeChanges()
			delete(left.objects, seenWorkload) // it was not applied in this test, so its event may be drift
			if got := left.readiness || left.missed || len(left.objects) > 0; got != c.want {
				t.Errorf("%s: left %t (%+v), want %t", c.reason, got, left, c.want)
			}
		})
	}
}

// TestSeenIsDropped checks that no readiness of objects is stored for a module that is Ready, whatever events report
// about these objects.
func TestSeenIsDropped(t *testing.T) {
	m := newSeenMemory()
	for version := 6; version < 9; version++ {
		m.observe(seenEvent(seenWorkload, version, new(true)))
		m.observe(seenEvent(seenResource, version, new(true)))
		m.setShown(v1beta2.StateReady)
	}
	m.observe(seenEvent(seenWorkload, 9, new(true)))
	if m.seen != nil || m.needed != nil {
		t.Errorf("it has %v and %v", m.seen, m.needed)
	}
}

// TestSeenIsLimited checks that the readiness of any number of workloads with the annotation of the Manifest is not
// kept.
func TestSeenIsLimited(t *testing.T) {
	m, most := newSeenMemory(), 0
	for n := range 3 * maxUnexpectedObjects {
		invented := seenWorkload
		invented.Name = strconv.Itoa(n)
		m.addEvent(seenEvent(invented, 6, new(true)), "kcp-system/m", seenResource)
		most = max(most, len(m.seen))
	}
	if want := len(m.expected) + maxUnexpectedObjects; most != want {
		t.Errorf("the readiness of %d objects is kept, want at most %d", most, want)
	}
}

// TestSentWithoutVersion checks that an object is read again if another client changed it while the manager was
// applying it. The readiness that was recorded before the apply must not be used any more.
func TestSentWithoutVersion(t *testing.T) {
	m := newSeenMemory()
	m.recordReadiness(seenWorkload, 6, readiness{state: v1beta2.StateReady})
	m.progress.Forget(seenWorkload)
	m.recordSentAsNotReady(seenWorkload)
	if found, known := m.lookupUnlessFailed(seenWorkload, watchedValidity, time.Now()); known {
		t.Errorf("it counts as %s", found.state)
	}
}

// TestSeeEvents checks a sequence of events: only the event after which the module may be ready triggers a reconcile.
// If the memory has missed an event of an object, the object is read from the runtime.
func TestSeeEvents(t *testing.T) {
	yes, no := new(true), new(false)
	type step struct {
		event runtimes.Event
		after time.Duration // before the event
		want  bool          // a reconcile follows
	}
	cases := map[string]struct {
		reason string
		prior  func(*memory)
		steps  []step
		// workload and resource state whether the workload and the custom resource count as ready after the last event,
		// without a read.
		workload, resource bool
	}{
		"One after the other": {"the custom resource follows its operator", nil, []step{
			{seenEvent(seenWorkload, 6, no), 0, false}, {seenEvent(seenWorkload, 7, yes), 0, false},
			{seenEvent(seenResource, 8, no), 0, false}, {seenEvent(seenResource, 9, yes), 0, true}}, true, true},
		"The other way": {"a custom resource may be ready first", nil, []step{
			{seenEvent(seenResource, 6, yes), 0, false}, {seenEvent(seenWorkload, 7, yes), 0, true}}, true, true},
		"Old agent": {"an event without state", nil, []step{{seenEvent(seenWorkload, 6, nil), 0, true}}, false, false},
		"Old event": {"the version was read or written", nil, []step{{seenEvent(seenWorkload, 5, yes), 0, false}},
			false, false},
		"Out of order": {"a later version was not ready", nil, []step{{seenEvent(seenResource, 6, yes), 0, false},
			{seenEvent(seenWorkload, 8, no), 0, false}, {seenEvent(seenWorkload, 7, yes), 0, false}}, false, true},
		"Late": {"the event of the custom resource is overdue, so it is read", nil, []step{
			{seenEvent(seenWorkload, 6, yes), expectedPeriod, true}}, true, false},
		"Ready": {"the status of a ready workload changes", func(m *memory) { m.setShown(v1beta2.StateReady) },
			[]step{{seenEvent(seenWorkload, 6, yes), 0, false}}, false, false},
		"Recovers": {"the reconcile may have read it before", func(m *memory) { m.setShown(v1beta2.StateReady) },
			[]step{{seenEvent(seenWorkload, 6, no), 0, true}, {seenEvent(seenWorkload, 7, yes), 0, true}}, true, false},
		"Sending": {"observe follows", func(m *memory) { m.noteSending() }, []step{
			{seenEvent(seenWorkload, 6, no), 0, false}, {seenEvent(seenWorkload, 7, yes), 0, false},
			{seenEvent(seenResource, 8, yes), 0, false}}, true, true},
		"Observing": {"observe may have overlooked it", func(m *memory) { m.noteSending(); m.noteObserving() },
			[]step{{seenEvent(seenResource, 6, yes), 0, false}, {seenEvent(seenWorkload, 7, yes), 0, true}},
			true, true},
		"Fails later": {"a ready workload is not ready any more", func(m *memory) { m.setShown(v1beta2.StateReady) },
			[]step{{seenEvent(seenWorkload, 6, no), 0, true}}, false, false},
		"After an error": {"people wait for the end", func(m *memory) { m.setShown(v1beta2.StateError) },
			[]step{{seenEvent(seenWorkload, 6, no), 0, true}}, false, false},
		"Missed": {"other events may be lost", nil, []step{{seenEvent(seenResource, 6, yes), 0, false},
			{runtimes.Event{Missed: true}, 0, true}}, false, false},
		"Deleted": {"the object is gone", nil, []step{{seenEvent(seenResource, 6, yes), 0, false},
			{runtimes.Event{Interest: interestOf(seenResource), Deleted: true,
				Object: seenEvent(seenResource, 7, nil).Object}, 0, true}}, false, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newSeenMemory()
				if c.prior != nil {
					c.prior(m)
				}
				for i, s := range c.steps {
					time.Sleep(s.after)
					if got := m.observe(s.event); got != s.want {
						t.Errorf("%s: event %d: got %t, want %t", c.reason, i, got, s.want)
					}
				}
				for ref, want := range map[apply.Ref]bool{seenWorkload: c.workload, seenResource: c.resource} {
					found, known := m.lookupUnlessFailed(ref, watchedValidity, time.Now())
					if got := known && found.state == v1beta2.StateReady; got != want {
						t.Errorf("%s: %s counts as ready: %t, want %t", c.reason, ref, got, want)
					}
				}
				time.Sleep(readyPeriod)
				if _, known := m.lookupUnlessFailed(seenWorkload, watchedValidity, time.Now()); known {
					t.Errorf("%s: an old event counts", c.reason)
				}
			})
		})
	}
}
