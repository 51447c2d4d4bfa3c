package rollout

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/evidence"
)

// Runtime has the known facts about one runtime that has the module in the channel.
type Runtime struct {
	// Kyma is the name of the Kyma, and Labels are its labels in the control plane.
	Kyma   string
	Labels map[string]string
	// Ordered is the version in the spec of the Manifest.
	Ordered string
	// Installed is the version that was installed completely, "" if none was.
	Installed string
	// IsReady means that the version in the field Ordered is installed, and that the module is Ready or Warning.
	IsReady bool
	// State is the state of the module. Reason and Message are set if the module is not Ready, or if a person keeps the
	// module as it is. Since is the time of the last change between Ready and not Ready.
	State           v1beta2.State
	Reason, Message string
	Since           time.Time
	// UnreachableSince is the time since which the runtime cannot be used. UnreachableSince is zero if the runtime can
	// be used. UnreachableReason is the reason code of a runtime that cannot be used.
	UnreachableSince  time.Time
	UnreachableReason string
	// Started is the time at which a rollout ordered the version in the field Ordered. Started is zero if no rollout
	// ordered this version.
	Started time.Time
	// IsObserved means that State, Reason and Message describe the version in the field Ordered, and not a former
	// version.
	IsObserved bool
	// IsExcused means that the module did not work even before the version in the field Ordered was requested, so a
	// failure of the update does not count.
	IsExcused bool
	// Rollout is the name of the rollout that ordered the version in the field Ordered, or "" if no rollout ordered
	// this version.
	Rollout string
	// IsBusy means that another rollout is updating this runtime.
	IsBusy bool
	// Blocked returns the blocker that would keep the new version from being installed if the runtime were admitted
	// now, or nil. Blocked is only called for runtimes that wait. If the field Blocked is nil, the runtime never has a
	// blocker.
	Blocked func() *channel.Blocker
	// Window returns the maintenance window that is open at a time, or the next one. nil means that the update needs no
	// window in this runtime. Only forecasts call it.
	Window func(at time.Time) (channel.MaintenanceWindow, error)
}

// RuntimeOf returns the Runtime with the facts from its Kyma and from the Manifest of the module, both in the control
// plane. The caller sets IsBusy, Blocked and Window.
func RuntimeOf(k *v1beta2.Kyma, m *v1beta2.Manifest) Runtime {
	ordered := cmp.Or(m.Annotations[v1beta2.AnnotationRequestedVersion], m.Spec.Version)
	r := Runtime{
		Kyma: k.Name, Labels: k.Labels, Ordered: ordered, Installed: m.Status.Version, State: m.Status.State,
		IsExcused: m.Annotations[v1beta2.AnnotationRolloutExcused] == v1beta2.ValueTrue,
	}
	r.Rollout, _, _ = strings.Cut(m.Annotations[v1beta2.AnnotationRollout], "/")
	if at, err := time.Parse(time.RFC3339, m.Annotations[v1beta2.AnnotationRolloutStarted]); err == nil {
		r.Started = at
	}
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady); c != nil {
		r.Since = c.LastTransitionTime.Time
		// A pause leaves the status of the condition as it was, so the reason of a module that is Ready may be a pause.
		if c.Status != metav1.ConditionTrue || evidence.CauseOf(c.Reason) == evidence.CausePerson {
			r.Reason, r.Message = c.Reason, c.Message
		}
	}
	r.IsObserved = m.Status.ObservedGeneration == m.Generation
	r.IsReady = evidence.IsWell(m.Status.State) && m.Status.Version == ordered && r.IsObserved
	if c := meta.FindStatusCondition(k.Status.Conditions, v1beta2.ConditionReady); c != nil &&
		c.Status != metav1.ConditionTrue && evidence.CauseOf(c.Reason) == evidence.CauseRuntime {
		r.UnreachableSince, r.UnreachableReason = c.LastTransitionTime.Time, c.Reason
	}
	return r
}

// Verdict states how far a runtime is in a rollout. Each runtime of the channel has exactly one Verdict.
type Verdict int

const (
	// OutOfScope means that the runtime has a higher version than the new one.
	OutOfScope Verdict = iota
	// Waiting means that the runtime does not have the new version.
	Waiting
	// Updating means that the update was ordered and the module is not Ready yet.
	Updating
	// Proven means that the module is Ready with the new version.
	Proven
	// Failed means that the version has failed in the runtime.
	Failed
	// Lost means that the runtime became unusable after its update had begun.
	Lost
	// Excused means that the module was broken before the update.
	Excused
)

// judgement is the verdict on one runtime, with the effects on slots, stages and holds.
type judgement struct {
	verdict Verdict
	// heldBy is the reason code of a failure of the control plane that keeps the update from completing, or "" if there
	// is no such failure.
	heldBy string
	// isIdle means that the update uses no slot, and that no stage waits for it.
	isIdle bool
	// next is the delay after which the verdict may change although the runtime has not changed, for example at a
	// deadline. If next is 0, only a change of the runtime can change the verdict.
	next time.Duration
}

// judge returns the verdict on one runtime. The first row whose condition is true decides:
//
//	1  the runtime has a higher version; on the     OutOfScope
//	   way back: neither the version that is taken
//	   back, nor the lower one by this rollout; or
//	   it works, and only failed ones go back
//	2  another version is ordered                   Waiting, but as below if it is a step of this rollout on the way to
//	                                                the version that is not Ready yet
//	3  the module is Ready                          Proven, also while the runtime is silent, until the deadline
//	4  no rollout ordered the version               as below, but it uses no slot, is no evidence after the deadline, and
//	                                                is Excused if it was broken before the rollout began
//	5  the runtime is silent                        Updating, and Lost after the deadline
//	6  a person keeps the module as it is           Updating, without a slot
//	7  the control plane has failed                 Updating, and the rollout is held
//	8  the version has failed in the runtime        Failed
//	9  the deadline has not passed                  Updating
//	10 the new version was not observed yet         Updating, and the rollout is held
//	11 otherwise                                    Lost or Failed, by the cause
//
// A module that was broken before its update is Excused instead of Proven, Lost or Failed.
func (a *advance) judge(r *Runtime) judgement {
	isBegun := r.Ordered == a.spec.To
	if a.spec.IsRollback() {
		isBegun = isBegun && r.Rollout == a.Rollout.Name
	}
	if !isBegun {
		switch {
		case a.spec.OnlyFailed && evidence.IsWell(r.State), a.spec.IsRollback() && r.Ordered != a.spec.From,
			!a.spec.IsRollback() && channel.IsLower(a.spec.To, r.Ordered):
			return judgement{verdict: OutOfScope}
		case r.Rollout == a.Rollout.Name && !r.IsReady && !r.Started.Before(a.rolloutStartedAt()): // a step
		default:
			return judgement{verdict: Waiting}
		}
	}
	is := a.judgeBegun(r)
	if r.IsExcused && (is.verdict == Proven || is.verdict == Lost || is.verdict == Failed) {
		return judgement{verdict: Excused}
	}
	return is
}

// judgeBegun returns the verdict on a runtime whose update has begun: rows 3 to 11 of the table of judge.
func (a *advance) judgeBegun(r *Runtime) judgement {
	isSilent := !r.UnreachableSince.IsZero()
	if r.IsReady && (!isSilent || r.Started.IsZero() || r.UnreachableSince.Before(r.Started)) {
		return judgement{verdict: Proven} // rule 3
	}
	cause, started, isOurs := evidence.CauseOf(r.Reason), r.Started, !r.Started.IsZero()
	if !isOurs { // rule 4
		if r.Since.IsZero() || evidence.IsWell(r.State) && !r.IsObserved && !isSilent {
			return judgement{verdict: Updating, isIdle: true} // the status still shows the former version, which works
		}
		if r.Since.Before(a.rolloutStartedAt()) {
			return judgement{verdict: Excused}
		}
		started = r.Since
	}
	is := judgement{verdict: Updating, next: a.deadline - a.since(laterOf(started, r.Since)),
		isIdle: !isOurs || cause == evidence.CausePerson}
	if isSilent && !r.UnreachableSince.Before(started) {
		cause, is.next = evidence.CauseRuntime, a.deadline-a.since(r.UnreachableSince)
		is.isIdle = !isOurs
	}
	if !r.IsObserved && (cause == evidence.CauseVersion || cause == evidence.CauseControlPlane) {
		cause = evidence.CauseUnclear // the former version has failed
	}
	switch {
	case cause == evidence.CausePerson: // rule 6
		is.next = 0
		return is
	case cause == evidence.CauseControlPlane: // rule 7
		is.next, is.heldBy = 0, r.Reason
		return is
	case cause == evidence.CauseVersion && r.State == v1beta2.StateError && !r.IsExcused: // rule 8
		return judgement{verdict: Failed}
	case is.next > 0: // rules 5 and 9
		if r.IsReady {
			is.verdict = Proven
		}
		return is
	case !r.IsObserved && cause == evidence.CauseUnclear: // rule 10
		is.next, is.heldBy = 0, v1beta2.ReasonControlPlaneFailing
		return is
	case !isOurs && a.isStaged():
		return judgement{verdict: Excused}
	case cause == evidence.CauseRuntime:
		return judgement{verdict: Lost}
	}
	return judgement{verdict: Failed}
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
