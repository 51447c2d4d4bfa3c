package manifest

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/inventory"
	"github.com/kyma-fleet/lifecycle-manager/internal/dedup"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// While a module is installed or upgraded, the controller does not poll its workloads and its custom resource. After
// the controller has sent an object, the agent reports each change of the object in an event, and the event contains
// the state of the object. A reconcile follows when all workloads and the custom resource of the module are ready, or
// when one of them fails.
//
// An event may be lost. Therefore the controller relies on the readiness in an event only for a short time. After this
// time, the controller reads the object. The absence of events never makes an object count as ready.

const (
	// readyPeriod is the time for which an object in a runtime with an agent counts as ready after the last event or
	// read that showed it as ready.
	readyPeriod = 10 * time.Second
	// expectedPeriod is the time for which the controller waits for an event of an object that is not ready, in a
	// runtime with an agent. If no event has arrived within expectedPeriod, the controller reads the object.
	expectedPeriod = 2 * time.Second
	// agentStartPeriod replaces expectedPeriod while the agent counts as connected without a heartbeat: after its first
	// delivery, and after a restart of the manager. The first events of the agent contain the states of all objects, so
	// modules that are installed together with the agent need not be read. If the agent does not connect, the state
	// Ready of these modules is reported up to agentStartPeriod later.
	agentStartPeriod = 10 * time.Second
)

// sending is the value of memory.shown while objects are sent. The reconcile that sends the objects checks their
// readiness at its end, in the step observe. Therefore, while objects are being sent, only an event about a failure
// triggers another reconcile.
const sending v1beta2.State = "sending"

// seenState is the readiness of one object as an event, a read or the answer to a PATCH has shown it.
type seenState struct {
	at        time.Time
	version   uint64 // resourceVersion of the object
	readiness readiness
}

// validity says how long a recorded readiness may be used. The field ready holds for an object that is ready, the field
// expected for an object that is not ready and whose event is expected.
type validity struct{ ready, expected time.Duration }

// evaluator is a function that returns the readiness of the module's custom resource. The second result of the function
// "is" false if the state of the custom resource cannot be used.
type evaluator func(*unstructured.Unstructured) (readiness, bool)

// moduleCREvaluator returns the evaluator for the rules of a Manifest, or nil if the custom resource does not decide
// about readiness. Runtimes with the same module share one evaluator.
func (n *run) moduleCREvaluator() evaluator {
	if !isModuleCRDecisive(n.manifest, n.CustomStateCheck) {
		return nil
	}
	ref, rules, states := inventory.ModuleCRRef(n.manifest), stateRules(&n.manifest.Spec), &n.states
	return dedup.Share(&n.shared, fmt.Sprintf("evaluator %#v %#v", ref, rules), evaluator(
		func(u *unstructured.Unstructured) (readiness, bool) {
			verdict, err := states.Evaluate(ref, u, rules)
			return readinessByResource(verdict), err == nil
		}))
}

// setEvaluator sets the evaluator for states in events.
func (m *memory) setEvaluator(evaluate evaluator) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evaluate = evaluate
}

// readinessRefs returns the objects that decide about the readiness of the module: first workloads and the like, and
// then the custom resource. If the custom resource does not decide about the readiness, the second result is the zero
// Ref.
func (n *run) readinessRefs() (objects []apply.Ref, decisiveCR apply.Ref) {
	if isModuleCRDecisive(n.manifest, n.CustomStateCheck) {
		decisiveCR = inventory.ModuleCRRef(n.manifest)
	}
	return inventory.ReadinessRefs(n.refs, n.manifest.Spec.Manager), decisiveCR
}

// hasStateInEvents reports whether events about an object contain its state.
func hasStateInEvents(ref apply.Ref) bool { return ref.Group == "apps" && inventory.IsWorkload(ref) }

// recordReadiness records the readiness of an object, unless a newer version of the object was seen.
func (m *memory) recordReadiness(ref apply.Ref, version uint64, r readiness) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recordReadinessLocked(ref, version, r)
}

func (m *memory) recordReadinessLocked(ref apply.Ref, version uint64, r readiness) {
	if m.seen == nil {
		m.seen = map[apply.Ref]seenState{}
	}
	key := keyOf(ref)
	if _, known := m.seen[key]; !known && len(m.seen) >= m.maxObjectsLocked() {
		clear(m.seen) // an object without an entry is read
	}
	if m.seen[key].version <= version {
		m.seen[key] = seenState{time.Now(), version, r}
	}
}

// keyOf returns a reference to an object without the fields that are used only in the inventory.
func keyOf(ref apply.Ref) apply.Ref {
	return apply.Ref{Group: ref.Group, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

// recordSentAsNotReady records that a workload or the custom resource was sent and is not ready yet. If the resource
// version of the object is unknown, because another client has changed the object in the meantime, recordSentAsNotReady
// removes what is recorded about the object.
func (m *memory) recordSentAsNotReady(ref apply.Ref) {
	version := m.progress.Version(ref)
	m.mu.Lock()
	defer m.mu.Unlock()
	if version == 0 {
		delete(m.seen, keyOf(ref))
		return
	}
	m.recordReadinessLocked(ref, version, readiness{v1beta2.StateProcessing, v1beta2.ReasonWorkloadNotReady,
		v1beta2.OperationManifestWaiting})
}

// noteMissing records that the custom resource does not exist. The next reconcile creates the custom resource.
func (m *memory) noteMissing(resource apply.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress.Forget(resource)
	m.changes.readiness = true
}

// setNeeded sets the objects that the readiness of the module depends on, if their states are reported.
func (m *memory) setNeeded(refs []apply.Ref, resource apply.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.needed = m.needed[:0]
	for _, ref := range refs {
		if hasStateInEvents(ref) {
			m.needed = append(m.needed, keyOf(ref))
		}
	}
	if resource != (apply.Ref{}) {
		m.needed = append(m.needed, keyOf(resource))
	}
}

// noteSending records that objects will be sent. After a call of noteSending, the memory records the state of each
// object that an event reports.
func (m *memory) noteSending() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shown = sending
}

// noteObserving records that the step observe has begun. The step observe decides whether the module is ready, from the
// states of objects that the memory has when the step begins. A later event may make the module ready, but the running
// step observe does not see the event any more. Therefore an event after noteObserving triggers another reconcile.
func (m *memory) noteObserving() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shown == sending {
		m.shown = v1beta2.StateProcessing
	}
}

// setShown records the state that the last reconcile has reported. For a module that is Ready, no readiness of objects
// is kept in memory.
func (m *memory) setShown(state v1beta2.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if state == v1beta2.StateReady {
		m.dropDecidedEventsLocked()
	}
	if m.shown = state; state != v1beta2.StateProcessing {
		m.seen, m.needed = nil, nil
	}
}

// dropDecidedEventsLocked drops the events of objects whose last recorded state is ready, because the decision that the
// module is Ready already includes these events. An event that is not dropped would cause another reconcile, which
// would read an object again whose state is already known. The caller must hold mu.
func (m *memory) dropDecidedEventsLocked() {
	isUsed := func(ref apply.Ref, version uint64) bool {
		s, known := m.seen[keyOf(ref)]
		return known && s.readiness.state == v1beta2.StateReady && version <= s.version
	}
	for ref, e := range m.changes.objects {
		version, err := strconv.ParseUint(e.resourceVersion, 10, 64)
		if err == nil && !e.deleted && hasStateInEvents(ref) && isUsed(ref, version) &&
			m.progress.ObserveEvent(ref, e.uid, e.generation, e.resourceVersion) {
			delete(m.changes.objects, ref)
		}
	}
	if r := m.changes.resource; r.version != 0 && isUsed(r.ref, r.version) {
		m.changes.resource = resourceEvent{}
	}
}

// recordEventStateLocked records the state in an event about an object, and reports whether a reconcile has to act on
// it. An event without a usable state always needs a reconcile, which reads the object. The caller must hold mu.
func (m *memory) recordEventStateLocked(e runtimes.Event, ref apply.Ref, isModuleCR bool) (needsReconcile bool) {
	state := e.States[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}]
	if state == nil || e.Deleted {
		delete(m.seen, keyOf(ref))
		return true
	}
	var found readiness
	usable := true
	switch {
	case isModuleCR && m.evaluate != nil:
		found, usable = m.evaluate(state)
	case hasStateInEvents(ref):
		found = readiness{state: v1beta2.StateReady}
		if waiting := apply.EvaluateReadiness(ref, state); waiting != nil {
			found = readinessOf([]apply.NotReady{*waiting})
		}
	default:
		usable = false
	}
	version, err := strconv.ParseUint(state.GetResourceVersion(), 10, 64)
	if !usable || err != nil {
		delete(m.seen, keyOf(ref))
		return true
	}
	if m.shown == v1beta2.StateReady { // nothing is kept for a module that is Ready
		if found.state == v1beta2.StateReady {
			return false
		}
		m.shown = "" // the reconcile that follows may read the object before its next event arrives
		return true
	}
	m.recordReadinessLocked(ref, version, found)
	switch m.shown {
	case sending:
		return found.state != v1beta2.StateReady && found.state != v1beta2.StateProcessing
	case v1beta2.StateProcessing:
		return found.state != v1beta2.StateProcessing && !m.isReadinessEventExpectedLocked(time.Now())
	}
	return true
}

// isReadinessEventExpectedLocked reports whether another event is expected before the module can be ready: an object
// that it depends on was seen and is not ready. The caller must hold mu.
func (m *memory) isReadinessEventExpectedLocked(now time.Time) bool {
	failed, expecting := false, false
	for _, ref := range m.needed {
		s, known := m.seen[ref]
		switch {
		case !known || now.Sub(s.at) >= expectedPeriod && s.readiness.state != v1beta2.StateReady:
		case s.readiness.state == v1beta2.StateProcessing:
			expecting = true
		case s.readiness.state != v1beta2.StateReady:
			failed = true
		}
	}
	return expecting && !failed
}

// lookupUnlessFailed returns the recorded readiness of an object if it was recorded a short time ago. The parameter
// valid has two times: how long a recorded state may be used if the object is ready, and how long if the object is not
// ready. lookupUnlessFailed never returns the state of an object that has failed, because the object and its pods have
// to be read to find the reason.
func (m *memory) lookupUnlessFailed(ref apply.Ref, valid validity, now time.Time) (readiness, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.seen[keyOf(ref)]
	switch age := now.Sub(s.at); {
	case !known:
		return readiness{}, false
	case s.readiness.state == v1beta2.StateReady:
		return s.readiness, age < valid.ready
	case s.readiness.state == v1beta2.StateProcessing:
		return s.readiness, age < valid.expected
	}
	return readiness{}, false
}
