package rollout

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/plan"
)

// forecastInterval is the shortest time between two forecasts of a rollout in the same stage and phase.
const forecastInterval = time.Minute

// forecast describes the state of a rollout at its last forecast.
type forecast struct {
	at    time.Time
	stage string
	phase v1beta2.RolloutPhase
}

// updateForecastIfDue sets the time at which the last runtime is expected to have the version, and the expected times
// of the stages. A forecast reads the whole fleet. Therefore updateForecastIfDue makes a forecast at most once per
// forecastInterval, and only for rollouts with stages.
func (p *pass) updateForecastIfDue(ctx context.Context, r *v1beta2.ModuleRollout, next *v1beta2.ModuleRolloutStatus,
	policy *v1beta2.RolloutPolicy, runtimes []rollout.Runtime) {
	is := forecast{p.now, next.Stage.Name, next.Phase}
	isStopped := !next.HaltedAt.IsZero() || r.Spec.State != v1beta2.RolloutRunning ||
		policy != nil && policy.Spec.Suspend
	if isStopped || next.Phase.IsOver() || r.Spec.Policy == "" {
		next.ETA = metav1.Time{}
		setExpectedTimes(next, nil, p.now)
		delete(p.forecasts, r.Name)
		return
	}
	was := p.forecasts[r.Name]
	isSame := was.stage == is.stage && was.phase == is.phase
	if isSame && p.now.Sub(was.at) < forecastInterval {
		return
	}
	p.forecasts[r.Name] = is
	after := *r
	after.Status = *next
	found, err := plan.For(&after, policy, runtimes, p.now)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot forecast a rollout", "rollout", r.Name)
		return
	}
	former := next.ETA
	next.ETA = metav1.NewTime(plan.StableETA(former.Time, found.Ends, p.now))
	isKnown := slices.ContainsFunc(next.Stages, func(s v1beta2.RolloutStageResult) bool {
		return !s.ExpectedEnd.IsZero()
	})
	switch isRestart := was.at.IsZero(); {
	case next.ETA.IsZero():
		setExpectedTimes(next, nil, p.now)
	case !isKnown, !next.ETA.Equal(&former), !isSame && !isRestart:
		setExpectedTimes(next, found.Stages, p.now)
	}
}

// setExpectedTimes sets the expected times of stages. The caller sets the expected times only together with another
// change of the status, because a forecast changes a little each time. A stage that waits for an event without a known
// time, such as a gate, gets no expected time.
func setExpectedTimes(next *v1beta2.ModuleRolloutStatus, found []plan.Stage, now time.Time) {
	for i := range next.Stages {
		s := &next.Stages[i]
		s.ExpectedBegin, s.ExpectedEnd = metav1.Time{}, metav1.Time{}
		if i >= len(found) {
			continue
		}
		if f := &found[i]; f.Begins.After(now.Add(time.Minute)) {
			s.ExpectedBegin = metav1.NewTime(plan.StableETA(time.Time{}, f.Begins, now))
		}
		s.ExpectedEnd = metav1.NewTime(plan.StableETA(time.Time{}, found[i].Ends, now))
	}
}
