package rollout

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
)

// Runtime is what is known about one runtime that has the module in the channel.
type Runtime struct {
	// Kyma is the name of the Kyma, and Labels are its labels in the control plane.
	Kyma   string
	Labels map[string]string
	// Ordered is the version in the spec of the Manifest.
	Ordered string
	// IsReady means that Ordered is installed, and that the module is Ready or Warning.
	IsReady bool
	// State is the state of the module, with the reason and the message if it is not Ready, and Since the time of the
	// last change between Ready and not Ready.
	State           v1beta2.State
	Reason, Message string
	Since           time.Time
	// UnreachableSince is the time since which the runtime cannot be used, zero if it can. UnreachableReason is the
	// reason.
	UnreachableSince  time.Time
	UnreachableReason string
	// Started is the time at which a rollout ordered Ordered, zero if no rollout did.
	Started time.Time
	// IsExcused means that the module was broken before Ordered was ordered.
	IsExcused bool
	// Rollout is the name of the rollout that ordered Ordered, "" if no rollout did.
	Rollout string
	// IsBusy means that another rollout is under way in this runtime.
	IsBusy bool
	// Blocked returns what keeps the runtime from the new version if its turn comes now, or nil. It is only called for
	// runtimes that wait. nil means that nothing ever blocks it.
	Blocked func() *channel.Blocker
}

// RuntimeOf returns what the Kyma and the Manifest of a module in the control plane say about a runtime. The caller
// sets IsBusy and Blocked.
func RuntimeOf(k *v1beta2.Kyma, m *v1beta2.Manifest) Runtime {
	ordered := cmp.Or(m.Annotations[v1beta2.AnnotationRequestedVersion], m.Spec.Version)
	r := Runtime{
		Kyma: k.Name, Labels: k.Labels, Ordered: ordered, State: m.Status.State,
		IsExcused: m.Annotations[v1beta2.AnnotationRolloutExcused] == v1beta2.ValueTrue,
	}
	r.Rollout, _, _ = strings.Cut(m.Annotations[v1beta2.AnnotationRollout], "/")
	if at, err := time.Parse(time.RFC3339, m.Annotations[v1beta2.AnnotationRolloutStarted]); err == nil {
		r.Started = at
	}
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady); c != nil {
		r.Since = c.LastTransitionTime.Time
		if c.Status != metav1.ConditionTrue {
			r.Reason, r.Message = c.Reason, c.Message
		}
	}
	r.IsReady = (m.Status.State == v1beta2.StateReady || m.Status.State == v1beta2.StateWarning) &&
		m.Status.Version == ordered && m.Status.ObservedGeneration == m.Generation
	if c := meta.FindStatusCondition(k.Status.Conditions, v1beta2.ConditionReady); c != nil &&
		c.Status != metav1.ConditionTrue && CauseOf(c.Reason) == CauseRuntime {
		r.UnreachableSince, r.UnreachableReason = c.LastTransitionTime.Time, c.Reason
	}
	return r
}

// Verdict is the verdict on one runtime. Each runtime of the channel has exactly one.
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
	// Lost means that the runtime cannot be used since its update began.
	Lost
	// Excused means that the module was broken before the update.
	Excused
)

// judge returns the verdict on one runtime. heldBy is the reason if the control plane keeps an update from finishing,
// otherwise "". next is the time until the verdict may change without a change of the runtime, 0 if it does not.
func judge(r *Runtime, to string, deadline time.Duration, now time.Time) (v Verdict, heldBy string,
	next time.Duration) {
	switch {
	case r.Ordered != to && channel.IsLower(to, r.Ordered):
		return OutOfScope, "", 0
	case r.Ordered != to:
		return Waiting, "", 0
	case r.IsExcused:
		return Excused, "", 0
	}
	if !r.UnreachableSince.IsZero() && !r.UnreachableSince.Before(r.Started) {
		if left := deadline - now.Sub(r.UnreachableSince); left > 0 {
			if r.IsReady {
				return Proven, "", left
			}
			return Updating, "", left
		}
		return Lost, "", 0
	}
	if r.IsReady {
		return Proven, "", 0
	}
	left := deadline - now.Sub(laterOf(r.Started, r.Since))
	if r.Started.IsZero() {
		left = deadline // it was not ordered by this rollout, so nobody knows since when it is being updated
	}
	switch cause := CauseOf(r.Reason); {
	case cause == CauseControlPlane:
		return Updating, r.Reason, 0
	case cause == CausePerson:
		return Updating, "", 0
	case r.State == v1beta2.StateError && cause == CauseVersion && !r.UnreachableSince.After(r.Started):
		return Failed, "", 0
	case left > 0:
		return Updating, "", left
	case cause == CauseRuntime:
		return Lost, "", 0
	}
	return Failed, "", 0
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
