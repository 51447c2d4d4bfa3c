package kyma

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// Some changes of a status are soon followed by others: a module whose version changes is Processing, and then Ready; a
// new agent is connected, and then its runtime becomes Ready. Such a change is saved only if no other change follows
// within processingSaveDelay or agentSaveDelay. An upgrade that ends earlier therefore costs one write of the status in
// each cluster. If the process ends in the meantime, nothing else is lost: the spec of the Manifest has the new
// version, the agent sends heartbeats, and the next process derives the same status again.

// processingSaveDelay is the time for which a status that will change soon need not be saved.
const processingSaveDelay = 2 * time.Second

// agentSaveDelay is like processingSaveDelay, for changes of only the agent: its image has to be pulled before it is
// connected.
const agentSaveDelay = 10 * time.Second

// statusChange classifies the difference between a status and the saved status.
type statusChange int

const (
	// saveAtOnce is every difference that is not one of the others, or no difference at all.
	saveAtOnce statusChange = iota
	// modulesBegin means that modules that worked are Processing.
	modulesBegin
	// agentConnects means only that the agent is connected, or has got its watch list or its first certificate, in a
	// runtime whose modules change.
	agentConnects
)

// deferSave returns how long saving the status may be deferred, or 0 if it has to be saved now. The first row that
// matches decides. The delays of rows 2, 4 and 5 begin with the first reconcile with such a change:
//
//	1  the runtime does not serve the kinds of a new Kyma yet   processingSaveDelay after this reconcile
//	2  only the agent has changed                               agentSaveDelay
//	3  a person waits for the runtime                           saved now
//	4  modules that worked are Processing                       processingSaveDelay
//	5  a deletion makes progress, and is saved already          processingSaveDelay
//	6  any other                                                saved now
func (n *run) deferSave(saved client.Object) (after time.Duration) {
	if n.found.isTransient {
		return processingSaveDelay
	}
	var delay time.Duration
	isDeleting := !n.kyma.DeletionTimestamp.IsZero()
	switch {
	case isDeleting && n.hasDeletionProgressed(&saved.(*v1beta2.Kyma).Status):
		delay = processingSaveDelay
	case !isDeleting:
		switch classifyChange(&n.kyma.Status, &saved.(*v1beta2.Kyma).Status) {
		case agentConnects:
			delay = agentSaveDelay
		case modulesBegin:
			if !n.Urgent.Is(n.kyma.Name) {
				delay = processingSaveDelay
			}
		}
	}
	n.editRecord(func(m *record) {
		if delay == 0 {
			m.deferredAt = time.Time{}
			return
		}
		if m.deferredAt.IsZero() {
			m.deferredAt = time.Now()
		}
		if after = max(0, delay-time.Since(m.deferredAt)); after == 0 {
			m.deferredAt = time.Time{}
		}
	})
	if after > 0 && !n.InCluster && !isDeleting {
		n.cacheRemoteForNextReconcile()
	}
	return after
}

// hasDeletionProgressed reports whether the status of a Kyma that is being deleted has changed only because its
// deletion makes progress, for example because it waits for other objects than before. A module that is removed is no
// such change: the event about its removal is recorded when the status is saved, and the Kyma may be deleted before. A
// status that is to be published to the runtime (n.remote) is no such change either.
func (n *run) hasDeletionProgressed(saved *v1beta2.KymaStatus) bool {
	isBlocked := n.isDeletionStuck() || n.deletion.runtimeLeft != "" || n.found.refused != nil ||
		meta.IsStatusConditionFalse(saved.Conditions, v1beta2.ConditionReachable)
	mustRecord := n.remote != nil || len(n.kyma.Status.Modules) != len(saved.Modules)
	return saved.State == v1beta2.StateDeleting && !isBlocked && !mustRecord && !loop.Equal(&n.kyma.Status, saved)
}

// classifyChange compares a status with the saved status.
func classifyChange(s, saved *v1beta2.KymaStatus) statusChange {
	agentChanged, canWait := compareAgents(s.Agent, saved.Agent)
	if !canWait || s.ObservedGeneration != saved.ObservedGeneration || len(s.Modules) != len(saved.Modules) ||
		!isSameOrBeganProcessing(s.State, saved.State) {
		return saveAtOnce
	}
	began := isMandatoryProcessing(s.Conditions) && !isMandatoryProcessing(saved.Conditions)
	for i := range s.Modules {
		is, was := &s.Modules[i], &saved.Modules[i]
		if is.Name != was.Name || manifestName(is) != manifestName(was) || !isSameOrBeganProcessing(is.State,
			was.State) ||
			lastChangeWithOutcome(is) != lastChangeWithOutcome(was) {
			return saveAtOnce
		}
		began = began || is.State != was.State
	}
	switch {
	case began:
		return modulesBegin
	case agentChanged && s.State == v1beta2.StateProcessing && saved.State == s.State:
		return agentConnects
	}
	return saveAtOnce
}

// compareAgents returns whether the status of the agent has changed, and whether this change may be saved later. The
// objects of the agent, a new certificate in place of another one, and the problems of the agent are saved at once. If
// the process ends before it has saved the first certificate, the next process issues another one.
func compareAgents(is, was *v1beta2.AgentStatus) (changed, canWait bool) {
	if is == nil || was == nil {
		return is != was, is == was
	}
	isWell := is.Connected || !was.Connected && is.Reason == was.Reason
	isSameOrFirst := certificateSerial(was) == "" || certificateSerial(is) == certificateSerial(was)
	return is.Connected != was.Connected || is.Digest != was.Digest,
		isWell && isSameOrFirst && slices.Equal(is.Synced, was.Synced)
}

// certificateSerial returns the serial number of the certificate of an agent, or "" if there is none.
func certificateSerial(s *v1beta2.AgentStatus) string {
	if s.Certificate == nil {
		return ""
	}
	return s.Certificate.Serial
}

// isSameOrBeganProcessing reports whether a state is the same as before, or is Processing after the module worked.
func isSameOrBeganProcessing(is, was v1beta2.State) bool {
	return is == was || is == v1beta2.StateProcessing && (was == v1beta2.StateReady || was == v1beta2.StateWarning)
}

// isMandatoryProcessing reports whether conditions show that mandatory modules are not Ready, and that none of them has
// a problem.
func isMandatoryProcessing(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, v1beta2.ConditionMandatoryModules)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1beta2.ReasonModulesNotReady
}

// lastChangeWithOutcome returns the last change of a module that has an outcome. If the next version is ordered as soon
// as this one is Ready, only the status of the Kyma records the outcome.
func lastChangeWithOutcome(m *v1beta2.ModuleStatus) (last v1beta2.ModuleChange) {
	for _, c := range m.History {
		if c.Outcome != "" {
			last = c
		}
	}
	return last
}

// manifestName returns the name of the Manifest of a module, or "" if the module has none.
func manifestName(m *v1beta2.ModuleStatus) string {
	if m.Manifest == nil {
		return ""
	}
	return m.Manifest.Metadata.Name
}
