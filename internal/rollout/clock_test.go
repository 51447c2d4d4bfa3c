package rollout

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/admission"
)

// TestClockSetDuringUpdates checks that an update does not fail because somebody has set the clock, and that the update
// fails when it is not completed within the deadline after the clock was set.
func TestClockSetDuringUpdates(t *testing.T) {
	for name, c := range map[string]struct {
		reason    string
		by        time.Duration
		isNoticed bool
	}{
		"Forward":     {"the updates began a second ago", 5 * time.Hour, true},
		"Back":        {"the updates began in the future", -365 * 24 * time.Hour, true},
		"BackRestart": {"the manager was restarted, and sees times in the future", -365 * 24 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 100, stages(stage("canary", 30), stage("rest", 0)))
			w.step()
			for _, r := range w.of(0) {
				r.IsObserved, r.State, r.Since = true, v1beta2.StateProcessing, w.now
			}
			w.now = w.now.Add(c.by + time.Second)
			if c.isNoticed {
				w.in.ClockSetAt = w.now
			}
			if s := w.step().Status; s.Runtimes.Failed > 0 || s.Phase != v1beta2.RolloutUpdating {
				t.Fatalf("%s: %s %+v", c.reason, s.Phase, s.Runtimes)
			}
			if meta.FindStatusCondition(w.rollout.Status.Conditions, ConditionClockSet) == nil {
				t.Errorf("%s: the rollout does not have the condition", c.reason)
			}
			w.now = w.now.Add(admission.DefaultRuntimeDeadline - time.Minute)
			if s := w.step().Status; s.Runtimes.Failed > 0 {
				t.Errorf("%s: before the deadline: %+v", c.reason, s.Runtimes)
			}
			w.now = w.now.Add(2 * time.Minute)
			if s := w.step().Status; int(s.Runtimes.Failed) != len(w.of(0)) {
				t.Errorf("%s: after the deadline: %+v", c.reason, s.Runtimes)
			}
		})
	}
}

// TestClockSetDuringSoak checks that the soak of a stage begins again after somebody has set the clock forward or back,
// also while the rollout is held. TestClockSetDuringSoak also checks that setting the clock forward does not repeat a
// soak that is over.
func TestClockSetDuringSoak(t *testing.T) {
	const hour = time.Hour
	approval := v1beta2.RolloutGate{Name: "go", Approval: &v1beta2.ApprovalGate{Count: 1}}
	for name, c := range map[string]struct {
		reason string
		before time.Duration // of the observation
		by     time.Duration
		held   bool
		left   time.Duration // of the observation, afterwards
	}{
		"Forward":  {"an hour has not passed", time.Minute, 5 * hour, false, hour},
		"Held":     {"likewise", time.Minute, 5 * hour, true, hour},
		"Back":     {"it must not wait for a year", time.Minute, -365 * 24 * hour, false, hour},
		"Over":     {"it waits for its gate", 2 * hour, 5 * hour, false, 0},
		"OverBack": {"the times are in the future", 2 * hour, -365 * 24 * hour, false, hour},
		"Difference": {"two leaders have different clocks", time.Minute, -3 * time.Second, false,
			59*time.Minute + 3*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 100, stages(stage("canary", 30, soak(hour), gates(approval)), stage("rest", 0)))
			w.run(10*time.Minute, v1beta2.RolloutSoaking)
			if c.held {
				w.in.Hold = &v1beta2.RolloutBlocker{Code: v1beta2.ReasonRolloutFrozen, Message: "frozen"}
			}
			w.now = w.now.Add(c.before)
			w.step()
			w.now = w.now.Add(c.by)
			if c.by.Abs() > ClockTolerance {
				w.in.ClockSetAt = w.now
			}
			w.in.Hold = nil
			s := w.step().Status
			if left := s.Stage.SoakUntil.Sub(w.now); c.left > 0 && left != c.left || c.left == 0 && left > 0 {
				t.Errorf("%s: observed for another %s, want %s: %s", c.reason, left, c.left, s.Phase)
			}
			w.now = w.now.Add(c.left + time.Second)
			if s := w.step().Status; s.Phase != v1beta2.RolloutWaitingForGate {
				t.Errorf("%s: afterwards %s: %s", c.reason, s.Phase, s.Message)
			}
		})
	}
}

// TestClock checks which differences between the wall clock and the monotonic clock mean that somebody has set the wall
// clock.
func TestClock(t *testing.T) {
	begin := time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		reason string
		wall   time.Duration // since the last reconcile, an hour ago
		isSet  bool
	}{
		"Right":     {"nobody has set it", time.Hour, false},
		"Corrected": {"a gradual correction", time.Hour - 30*time.Second, false},
		"Forward":   {"it is ahead", 3 * time.Hour, true},
		"Back":      {"it is behind", -time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			var is Clock
			is.Notice(begin, time.Minute)
			now := begin.Add(c.wall)
			is.Notice(now, time.Hour+time.Minute)
			if set := is.SetAt.Equal(now); set != c.isSet {
				t.Errorf("%s: set at %v", c.reason, is.SetAt)
			}
			at := is.SetAt
			is.Notice(now.Add(time.Second), time.Hour+time.Minute+time.Second)
			if !is.SetAt.Equal(at) {
				t.Errorf("%s: noticed again at %v", c.reason, is.SetAt)
			}
		})
	}
}
