package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/evidence"
	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// The following constants limit the number of entries in two lists of the rollout's status: worst and blockers.
const (
	maxWorst    = 10
	maxBlockers = 8
)

// Types of the conditions that kstatus reads.
const (
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
)

// report fills the counts, the reasons and the message into the next status of the rollout.
func (a *advance) report() {
	s := &a.status
	s.Admitted, s.Runtimes = a.admitted.Encode(), a.total.counts
	a.reportStages()
	s.Worst = nil
	for i := range a.members {
		if m := &a.members[i]; len(s.Worst) < maxWorst {
			switch m.verdict {
			case Failed:
				s.Worst = append(s.Worst, v1beta2.RolloutRuntime{Runtime: m.Kyma,
					Reason: cmp.Or(m.Reason, "DeadlineExceeded"), Message: text.ClipLine(m.Message, 128)})
			case Lost:
				s.Worst = append(s.Worst, v1beta2.RolloutRuntime{Runtime: m.Kyma,
					Reason: cmp.Or(m.UnreachableReason, m.Reason)})
			}
		}
	}
	s.Blockers = a.blockers
	if !s.Phase.IsOver() {
		s.Blockers = append(s.Blockers, a.runtimeBlockers()...)
		s.Message = a.message()
	}
	if len(s.Blockers) > maxBlockers {
		s.Blockers = s.Blockers[:maxBlockers]
	}
	for i := range s.Blockers {
		s.Blockers[i].Message = text.ClipLine(s.Blockers[i].Message, 256)
	}
	if s.Phase == v1beta2.RolloutCompleted {
		s.Message = completedMessage(a.spec, &s.Runtimes, a.outOfScope)
	}
	SetConditions(&s.Conditions, a.Rollout.Generation, s.Phase, s.Message, a.Now)
}

// completedMessage returns the message of a rollout that is completed. The parameter outOfScope is the number of
// runtimes that have the module in the channel and take no part in the rollout. A rollout to a lower version that is no
// rollout back exists only if the downgrade was neither declared as safe nor allowed.
func completedMessage(r *v1beta2.ModuleRolloutSpec, c *v1beta2.RolloutCounts, outOfScope int) string {
	isDown := !r.IsRollback() && r.From != "" && channel.IsLower(r.To, r.From)
	higher := fmt.Sprintf("%d runtimes keep a higher version", outOfScope)
	if isDown {
		higher += " (" + v1beta2.ReasonDowngradeUnsafe + ")"
	}
	switch {
	case c.InScope == 0 && outOfScope > 0 && r.IsRollback():
		return fmt.Sprintf("none of %d runtimes has to be taken back", outOfScope)
	case c.InScope == 0 && outOfScope > 0:
		return "all " + higher
	case c.InScope == 0:
		return "no runtime has the module in this channel"
	}
	message := fmt.Sprintf("%d of %d runtimes are proven", c.Proven, c.InScope)
	if left := c.Waiting + c.Updating; left > 0 {
		message += fmt.Sprintf("; %d could not be updated in time and follow when they can", left)
	}
	if isDown && outOfScope > 0 {
		message += "; " + higher
	}
	return message
}

func (a *advance) reportStages() {
	before := a.status.Stages
	a.status.Stages = nil
	for i := range a.spec.Stages {
		c := a.stages[i].counts
		is := v1beta2.RolloutStageResult{Name: a.spec.Stages[i].Name, RolloutCounts: c}
		if was := stageResult(before, is.Name); was != nil {
			is.ProvenAt, is.Passed = was.ProvenAt, was.Passed
			is.ExpectedBegin, is.ExpectedEnd = was.ExpectedBegin, was.ExpectedEnd // set by forecasts
		}
		is.AcknowledgedFailed = a.acknowledged[i]
		if i == a.currentStage() {
			is.ProvenAt = a.status.Stage.ProvenAt
		}
		if n := int(c.Proven + c.Failed); i <= a.currentStage() && n > 0 {
			is.Evidence = evidence.FailureRateBound(int(c.Failed), n)
		}
		a.status.Stages = append(a.status.Stages, is)
	}
}

// stageResult returns the result of a stage, or nil if there is none.
func stageResult(results []v1beta2.RolloutStageResult, stage string) *v1beta2.RolloutStageResult {
	i := slices.IndexFunc(results, func(s v1beta2.RolloutStageResult) bool { return s.Name == stage })
	if i < 0 {
		return nil
	}
	return &results[i]
}

// runtimeBlockers returns a blocker for each reason why runtimes of the current stage or earlier ones cannot begin now.
func (a *advance) runtimeBlockers() []v1beta2.RolloutBlocker {
	var all []v1beta2.RolloutBlocker
	for i := range a.members {
		m := &a.members[i]
		if m.verdict != Waiting || m.isAdmitted || m.Stage > a.currentStage() || a.canBeginIfAdmitted(m) {
			continue
		}
		j := slices.IndexFunc(all, func(b v1beta2.RolloutBlocker) bool { return b.Code == m.blocked.Code })
		if j < 0 {
			all = append(all, v1beta2.RolloutBlocker{Code: m.blocked.Code, Object: "Kyma " + m.Kyma,
				Message: m.blocked.Message})
			j = len(all) - 1
		}
		all[j].Runtimes++
	}
	return all
}

// message returns the sentence that states what the rollout waits for.
func (a *advance) message() string {
	s, c := &a.status, &a.status.Runtimes
	if !a.isStaged() {
		return fmt.Sprintf("no policy: all %d runtimes follow at once; %d are ready", c.InScope, c.Proven)
	}
	stage := a.stages[a.currentStage()].counts
	switch s.Phase {
	case v1beta2.RolloutSoaking:
		return fmt.Sprintf("stage %s is observed until %s", s.Stage.Name, s.Stage.SoakUntil.UTC().Format(time.RFC3339))
	case v1beta2.RolloutTail:
		return fmt.Sprintf("all stages are proven; %d runtimes follow when they can", c.Waiting+c.Updating)
	case v1beta2.RolloutUpdating:
		return fmt.Sprintf("stage %s: %d of %d runtimes are proven, %d are being updated", s.Stage.Name, stage.Proven,
			stage.InScope, stage.Updating)
	}
	if len(s.Blockers) > 0 {
		return text.ClipLine(s.Blockers[0].Message, 256)
	}
	return ""
}

// SetConditions sets the three conditions that kstatus reads. The condition Ready is true when the fleet has the
// version, Reconciling is true while the rollout makes progress, and Stalled is true when a person has to act.
func SetConditions(conditions *[]metav1.Condition, generation int64, phase v1beta2.RolloutPhase, message string,
	now time.Time) {
	isDone := phase == v1beta2.RolloutCompleted || phase == v1beta2.RolloutTail
	isStalled := phase == v1beta2.RolloutHalted || phase == v1beta2.RolloutEndedAborted ||
		phase == v1beta2.RolloutTakenBack
	for _, c := range []struct {
		kind string
		is   bool
	}{
		{v1beta2.ConditionReady, isDone}, {ConditionReconciling, !isDone && !isStalled && !phase.IsOver()},
		{ConditionStalled, isStalled},
	} {
		status := metav1.ConditionFalse
		if c.is {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(conditions, metav1.Condition{Type: c.kind, Status: status, Reason: string(phase),
			Message: message, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now)})
	}
}
