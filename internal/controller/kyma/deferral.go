package kyma

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Some news will soon be followed by other news: a module whose version changes is Processing, and then Ready; a new
// agent is connected, and then its runtime becomes Ready. Such news is saved only if no other news follows within
// briefPeriod. An upgrade that ends earlier therefore costs one write of the status in each cluster. If the process
// ends in the meantime, nothing else is lost: the spec of the Manifest has the new version, the agent sends heartbeats,
// and the next process derives the same status again.

// briefPeriod is the time for which a status that will change soon need not be saved.
const briefPeriod = 2 * time.Second

// news classifies the difference between a status and the saved status.
type news int

const (
	// urgentNews is everything that is not brief news, or no news at all.
	urgentNews news = iota
	// moduleNews means that modules that worked are Processing.
	moduleNews
	// agentNews means only that the agent is connected, or has got its watch list, in a runtime whose modules change.
	agentNews
)

// deferSave returns how long saving the status may be deferred, or 0 if it has to be saved now. The first row that
// matches decides:
//
//	1  the runtime does not serve the kinds of a new Kyma yet        until briefPeriod
//	2  the only news is about the agent                              until briefPeriod after the first such reconcile
//	3  a person waits for the runtime                                saved now
//	4  the only news is that modules are Processing                  until briefPeriod after the first such reconcile
//	5  any other                                                     saved now
func (n *run) deferSave(saved client.Object) (after time.Duration) {
	if n.found.isTransient {
		return briefPeriod
	}
	isBrief := false
	if n.kyma.DeletionTimestamp.IsZero() {
		is := newsOf(&n.kyma.Status, &saved.(*v1beta2.Kyma).Status)
		isBrief = is == agentNews || is == moduleNews && !n.Urgent.Is(n.kyma.Name)
	}
	n.editRecord(func(m *record) {
		if !isBrief {
			m.deferredAt = time.Time{}
			return
		}
		if m.deferredAt.IsZero() {
			m.deferredAt = time.Now()
		}
		after = max(0, briefPeriod-time.Since(m.deferredAt))
	})
	if after > 0 && !n.InCluster {
		n.keepRemote()
	}
	return after
}

// newsOf compares a status with the saved status.
func newsOf(s, saved *v1beta2.KymaStatus) news {
	agentChanged, isBrief := compareAgents(s.Agent, saved.Agent)
	if !isBrief || s.ObservedGeneration != saved.ObservedGeneration || len(s.Modules) != len(saved.Modules) ||
		!isSameOrProcessing(s.State, saved.State) {
		return urgentNews
	}
	began := isMandatoryProcessing(s.Conditions) && !isMandatoryProcessing(saved.Conditions)
	for i := range s.Modules {
		is, was := &s.Modules[i], &saved.Modules[i]
		if is.Name != was.Name || manifestName(is) != manifestName(was) || !isSameOrProcessing(is.State, was.State) ||
			lastOutcome(is) != lastOutcome(was) {
			return urgentNews
		}
		began = began || is.State != was.State
	}
	switch {
	case began:
		return moduleNews
	case agentChanged && s.State == v1beta2.StateProcessing && saved.State == s.State:
		return agentNews
	}
	return urgentNews
}

// compareAgents returns whether the status of the agent has changed, and whether this change may be saved later. The
// objects of the agent, its certificate and its problems are saved at once.
func compareAgents(is, was *v1beta2.AgentStatus) (changed, isBrief bool) {
	if is == nil || was == nil {
		return is != was, is == was
	}
	isWell := is.Connected || !was.Connected && is.Reason == was.Reason
	return is.Connected != was.Connected || is.Digest != was.Digest,
		isWell && serial(is) == serial(was) && slices.Equal(is.Synced, was.Synced)
}

// serial returns the serial number of the certificate of an agent, or "" if there is none.
func serial(s *v1beta2.AgentStatus) string {
	if s.Certificate == nil {
		return ""
	}
	return s.Certificate.Serial
}

// isSameOrProcessing reports whether a state is the same as before, or is Processing after the module worked.
func isSameOrProcessing(is, was v1beta2.State) bool {
	return is == was || is == v1beta2.StateProcessing && (was == v1beta2.StateReady || was == v1beta2.StateWarning)
}

// isMandatoryProcessing reports whether conditions show that mandatory modules are not Ready, and that none of them has
// a problem.
func isMandatoryProcessing(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, v1beta2.ConditionMandatoryModules)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1beta2.ReasonModulesNotReady
}

// lastOutcome returns the last change of a module that has an outcome. If the next version is ordered as soon as this
// one is Ready, only the status of the Kyma records the outcome.
func lastOutcome(m *v1beta2.ModuleStatus) (last v1beta2.ModuleChange) {
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
