package rollout

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestPausedBeforeFirstStatus checks a runtime that a person pauses after its update was ordered and before the first
// status of the new version was saved. The status still shows that the former version is Ready, with the pause as its
// reason. The runtime is paused and does not hold the rollout, however long the pause lasts.
func TestPausedBeforeFirstStatus(t *testing.T) {
	for name, c := range map[string]struct {
		reason   string
		observed int64 // the observed generation; the generation is 2
		version  string
		want     Verdict
		held     int
	}{
		"Paused":      {v1beta2.ReasonModulePaused, 1, "1.0.0", Updating, 0},
		"KymaPaused":  {v1beta2.ReasonKymaPaused, 1, "1.0.0", Updating, 0},
		"NotPaused":   {v1beta2.ReasonReady, 1, "1.0.0", Updating, 1},
		"PausedReady": {v1beta2.ReasonModulePaused, 2, "1.1.0", Proven, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 100, twoStages())
			w.now = start.Add(40 * time.Minute)
			r := w.of(0)[0]
			m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Generation: 2, Annotations: map[string]string{
				v1beta2.AnnotationRollout: w.rollout.Name + "/canary", v1beta2.AnnotationRequestedVersion: "1.1.0",
				v1beta2.AnnotationRolloutStarted: start.Format(time.RFC3339)}},
				Spec: v1beta2.ManifestSpec{Version: "1.1.0"},
				Status: v1beta2.ManifestStatus{State: v1beta2.StateReady, Version: c.version,
					ObservedGeneration: c.observed,
					Conditions: []metav1.Condition{{Type: v1beta2.ConditionReady, Status: metav1.ConditionTrue,
						Reason: c.reason, Message: "paused by a test",
						LastTransitionTime: metav1.NewTime(start.Add(-time.Hour))}}}}
			*r = RuntimeOf(&v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: r.Kyma}}, m)
			a, err := newAdvance(Inputs{Rollout: w.rollout, Runtimes: w.runtimes, Now: w.now, Slots: -1})
			if err != nil {
				t.Fatal(err)
			}
			a.judgeAll()
			if is := a.judge(r); is.verdict != c.want || len(a.heldBy) != c.held ||
				is.isIdle != (c.want == Updating && c.held == 0) {
				t.Errorf("verdict %d, idle %t, held by %v", is.verdict, is.isIdle, a.heldBy)
			}
			if got := w.step(); (got.Status.Phase == v1beta2.RolloutHeld) != (c.held > 0) {
				t.Errorf("phase %s: %+v", got.Status.Phase, got.Status.Blockers)
			}
		})
	}
}

// TestPausedUpdateIsNotInFlight checks that an update that a person has paused is not in flight, so that other rollouts
// do not wait for it.
func TestPausedUpdateIsNotInFlight(t *testing.T) {
	w := newWorld(t, 100, twoStages())
	w.step()
	paused := w.of(0)[0]
	if got := w.decide(); !slices.Contains(got.InFlight, paused.Kyma) {
		t.Fatalf("an update under way is not in flight: %v", got.InFlight)
	}
	w.failFor(paused, v1beta2.ReasonModulePaused)
	paused.State = v1beta2.StateProcessing
	if got := w.decide(); slices.Contains(got.InFlight, paused.Kyma) || got.Status.Runtimes.Updating == 0 {
		t.Errorf("the paused update is in flight: %v, %+v", got.InFlight, got.Status.Runtimes)
	}
}
