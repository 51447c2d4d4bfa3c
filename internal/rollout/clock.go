package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// ClockTolerance is the largest difference of two clocks that has no effect on a rollout.
const ClockTolerance = time.Minute

// ConditionClockSet is the condition of a rollout during which somebody has set the clock of the manager. The last
// transition time of the condition is the time at which the manager noticed that the clock had been set.
const ConditionClockSet = "ClockSet"

// Clock compares the wall clock with the monotonic clock at several times.
type Clock struct {
	// SetAt is the last time at which Notice noticed that somebody had set the wall clock. The zero time means that
	// nobody has set the clock.
	SetAt time.Time

	wall    time.Time
	elapsed time.Duration
}

// Notice compares the time that has passed by the wall clock with the time that has passed by the monotonic clock. The
// parameter wall is the present time. The parameter elapsed is the time by the monotonic clock since any fixed time.
// Notice ignores a difference of up to ClockTolerance, which comes from a gradual correction of the wall clock.
func (c *Clock) Notice(wall time.Time, elapsed time.Duration) {
	if d := wall.Sub(c.wall) - (elapsed - c.elapsed); !c.wall.IsZero() && d.Abs() > ClockTolerance {
		c.SetAt = wall
	}
	c.wall, c.elapsed = wall, elapsed
}

// restartAllDelaysIfClockChanged finds out whether somebody has set the clock since the times in the status were
// stored. The clock counts as set if the caller has noticed that it jumped, or if a time in the status is in the
// future. After the clock was set, all delays of the rollout begin again: the soak of the stage, the deadlines, and the
// minute in which maxStartsPerMinute limits the starts. Without a new beginning, a clock that is set forward would end
// a soak early, and updates that have just begun would miss their deadline. After a clock is set back, the rollout
// would wait until the stored times are reached. The condition ClockSet stores the time from which the deadlines of
// runtimes count.
func (a *advance) restartAllDelaysIfClockChanged() {
	if was := meta.FindStatusCondition(a.status.Conditions, ConditionClockSet); was != nil {
		a.clockSet = was.LastTransitionTime.Time
	}
	s, setAt := &a.status.Stage, a.ClockSetAt.Truncate(time.Second) // as API servers store times
	began := s.StartedAt.Time
	if began.IsZero() {
		began = a.rolloutStartedAt()
	}
	// A new rollout may find updates of a former rollout that began before somebody set the clock.
	isNew := a.status.Phase == "" && a.Now.Sub(setAt) < a.deadline
	isNoticed := setAt.After(a.clockSet) && !a.isFuture(setAt) && (isNew || setAt.After(began))
	if !isNoticed && !a.isFuture(a.clockSet) && !a.hasFutureTimes() {
		return
	}
	now := metav1.NewTime(a.Now)
	if a.clockSet = a.Now; !a.isFuture(setAt) {
		a.clockSet = laterOf(a.Now, setAt)
	}
	meta.RemoveStatusCondition(&a.status.Conditions, ConditionClockSet)
	meta.SetStatusCondition(&a.status.Conditions, metav1.Condition{Type: ConditionClockSet,
		Status: metav1.ConditionTrue, Reason: ConditionClockSet, ObservedGeneration: a.Rollout.Generation,
		Message:            "the clock of the manager was set: observations, deadlines and limits of time begin again",
		LastTransitionTime: metav1.NewTime(a.clockSet)})
	if !s.StartedAt.IsZero() {
		s.StartedAt = now
	}
	isObserved := a.status.Phase == v1beta2.RolloutWaitingForGate && !s.SoakUntil.After(a.Now)
	if !s.ProvenAt.IsZero() && !isObserved && !a.isInTail() {
		s.ProvenAt = now
		s.SoakUntil = metav1.NewTime(a.Now.Add(a.spec.Stages[a.currentStage()].Soak.Duration))
	}
	for i := range s.Gates {
		s.Gates[i].Since = now
	}
	for i := range a.status.Starts {
		a.status.Starts[i].At = now
	}
	all := []*metav1.Time{&s.ProvenAt, &a.status.HaltedAt}
	for i := range a.status.Stages {
		all = append(all, &a.status.Stages[i].ProvenAt)
	}
	for _, at := range all {
		if at.After(a.Now) {
			*at = now
		}
	}
}

// hasFutureTimes reports whether a time in the status of the rollout or of a runtime is in the future, so that somebody
// must have set the clock back. If the rollout has already noticed that somebody has set the clock, hasFutureTimes
// ignores future times of runtimes, because they may come from the time before the clock was set.
func (a *advance) hasFutureTimes() bool {
	s := &a.status.Stage
	if a.isFuture(s.StartedAt.Time) || a.isFuture(s.ProvenAt.Time) || a.isFuture(a.status.HaltedAt.Time) {
		return true
	}
	for i := range a.status.Starts {
		if a.isFuture(a.status.Starts[i].At.Time) {
			return true
		}
	}
	if !a.clockSet.IsZero() {
		return false
	}
	for i := range a.Runtimes {
		if r := &a.Runtimes[i]; a.isFuture(r.Since) || a.isFuture(r.Started) || a.isFuture(r.UnreachableSince) {
			return true
		}
	}
	return false
}

// isFuture reports whether a stored time is in the future.
func (a *advance) isFuture(t time.Time) bool { return t.Sub(a.Now) > ClockTolerance }

// since returns the time that has passed since the stored time t. If t is in the future, or from before somebody set
// the clock, since uses the time at which the change of the clock was noticed instead of t.
func (a *advance) since(t time.Time) time.Duration {
	if a.isFuture(t) || t.Before(a.clockSet) {
		t = a.clockSet
	}
	return a.Now.Sub(t)
}
