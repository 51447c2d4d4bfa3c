package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// decide finds the next phase and admits runtimes.
func (a *advance) decide() {
	if a.spec.State == v1beta2.RolloutAborted {
		a.end(v1beta2.RolloutEndedAborted, "aborted"+because(a.spec.Reason)+": nobody begins any more; what has begun "+
			"finishes and stays")
		return
	}
	if !a.isStaged() {
		a.decideAtOnce()
		return
	}
	a.resume()
	a.checkFailures()
	if !a.status.HaltedAt.IsZero() {
		a.admitted = Admitted{}
		a.status.Phase = v1beta2.RolloutHalted
		return
	}
	isHeld := a.hold()
	a.progress(isHeld)
	if a.status.Phase.IsOver() {
		return
	}
	if !isHeld && a.status.HaltedAt.IsZero() {
		a.admit()
	}
	if isHeld {
		a.status.Phase = v1beta2.RolloutHeld
		if a.total.counts.InScope == a.total.counts.Waiting && a.Preflight != nil {
			a.status.Phase = v1beta2.RolloutPending
		}
	}
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// end ends the rollout.
func (a *advance) end(phase v1beta2.RolloutPhase, message string) {
	a.status.Phase, a.status.Message, a.status.EndedAt = phase, message, metav1.NewTime(a.Now)
	a.admitted, a.blockers = Admitted{}, nil
}

// decideAtOnce is decide for a rollout without stages. It only observes.
func (a *advance) decideAtOnce() {
	c := &a.total.counts
	switch a.status.Phase = v1beta2.RolloutUpdating; {
	case c.Waiting == 0 && c.Updating == 0:
		a.end(v1beta2.RolloutCompleted, "")
	case c.Updating == 0 && !a.anyCanBegin(func(*member) bool { return true }):
		a.status.Phase = v1beta2.RolloutTail
		a.expire(a.startedAt().Add(DefaultProgressDeadline))
	}
}

// anyCanBegin reports whether a waiting runtime can begin now.
func (a *advance) anyCanBegin(isMeant func(*member) bool) bool {
	found := false
	for i := range a.members {
		if m := &a.members[i]; m.verdict == Waiting && !m.isAdmitted && isMeant(m) && a.canBegin(m) {
			found = true
		}
	}
	return found
}

// expire completes the rollout at its deadline.
func (a *advance) expire(deadline time.Time) {
	if left := deadline.Sub(a.Now); left > 0 {
		a.after(left)
		return
	}
	a.end(v1beta2.RolloutCompleted, "")
}

// resume lets a halted rollout go on after a person has asked for it. What was found so far is acknowledged: only
// further failures count.
func (a *advance) resume() {
	if len(a.spec.Resumptions) <= int(a.status.Resumptions) {
		return
	}
	a.status.Resumptions = int32(len(a.spec.Resumptions))
	a.status.HaltedAt = metav1.Time{}
	a.status.AcknowledgedFailed, a.status.AcknowledgedLost = a.total.counts.Failed, a.total.counts.Lost
	a.status.Stage.EvidenceWaived = true
}

// checkFailures halts or holds the rollout if more runtimes have failed than the policy allows. If those that do not
// have the new version fail as often, the version is not to blame, and the rollout is held.
func (a *advance) checkFailures() {
	c := &a.total.counts
	updated, others := int(c.Proven+c.Failed+c.Lost), int(c.Waiting)
	if stage := a.stageOverBudget(); stage >= 0 && c.Failed > a.status.AcknowledgedFailed {
		s := &a.spec.Stages[stage]
		a.haltIf(isWorse(int(c.Failed), updated, a.total.failing, others), v1beta2.ReasonTooManyFailures,
			fmt.Sprintf("%d of %d updated runtimes have failed, and stage %s allows %d of its %d", c.Failed, updated,
				s.Name, scaled(s.MaxFailures, int(a.stages[stage].counts.InScope), false),
				a.stages[stage].counts.InScope),
			fmt.Sprintf("%d of %d that are not updated fail too", a.total.failing, others))
	}
	allowed := int32(max(1, share(cmp.Or(a.spec.Defaults.MaxLost, defaultMaxLost), int(c.InScope), false)))
	if c.Lost > allowed && c.Lost > a.status.AcknowledgedLost {
		a.haltIf(isWorse(int(c.Lost), updated, a.total.silent, others), v1beta2.ReasonTooManyLost,
			fmt.Sprintf("%d of %d updated runtimes cannot be reached since their update, and %d are allowed", c.Lost, updated,
				allowed),
			fmt.Sprintf("%d of %d that are not updated cannot be reached either", a.total.silent, others))
	}
}

// stageOverBudget returns the first stage with more failures than allowed, or -1.
func (a *advance) stageOverBudget() int {
	for i := range a.stages {
		c := &a.stages[i].counts
		if int(c.Failed) > scaled(a.spec.Stages[i].MaxFailures, int(c.InScope), false) {
			return i
		}
	}
	return -1
}

// haltIf halts the rollout if the updated runtimes are worse than the others, and otherwise holds it.
func (a *advance) haltIf(worse bool, code, found, others string) {
	remedy := "look at klm rollout show " + a.Rollout.Name + "; then " + a.command("abort") + ", or " +
		a.command("resume") + " --reason=…"
	if !worse {
		a.block(v1beta2.RolloutBlocker{Code: v1beta2.ReasonInconclusive, Message: found + ", but " + others +
			": that proves nothing about the version",
			Remedy: "find out what fails in the fleet; then " + a.command("resume") + " --reason=…"})
		return
	}
	if a.status.HaltedAt.IsZero() {
		a.status.HaltedAt = metav1.NewTime(a.Now)
	}
	a.block(v1beta2.RolloutBlocker{Code: code, Message: found, Remedy: remedy})
}

// hold reports whether nobody may begin now for another reason than a failure of the version.
func (a *advance) hold() bool {
	if a.spec.State == v1beta2.RolloutPaused {
		a.block(v1beta2.RolloutBlocker{Code: v1beta2.ReasonRolloutPaused, Object: "ModuleRollout " + a.Rollout.Name,
			Message: "the rollout is paused" + because(a.spec.Reason), Remedy: a.command("resume")})
	}
	for _, b := range []*v1beta2.RolloutBlocker{a.Hold, a.Preflight} {
		if b != nil {
			a.block(*b)
		}
	}
	for reason, n := range a.heldBy {
		a.block(v1beta2.RolloutBlocker{Code: v1beta2.ReasonControlPlaneFailing, Runtimes: int32(n),
			Message: "updates cannot go on because of " + reason,
			Remedy:  "see the reason in docs/reference/reasons.md"})
	}
	slices.SortStableFunc(a.blockers, func(x, y v1beta2.RolloutBlocker) int {
		return strings.Compare(x.Message, y.Message)
	})
	return len(a.blockers) > 0
}

// progress ends the current stage if it is proven, and begins the next one. If the rollout is held, no stage begins.
func (a *advance) progress(isHeld bool) {
	if a.status.Phase == v1beta2.RolloutTail {
		a.tail()
		return
	}
	for {
		if !a.isProven() {
			a.status.Phase = v1beta2.RolloutUpdating
			return
		}
		if a.status.Stage.ProvenAt.IsZero() {
			soak := a.spec.Stages[a.current()].Soak.Duration
			if a.stages[a.current()].counts.Proven == 0 {
				soak = 0 // nobody could be observed
			}
			a.status.Stage.ProvenAt = metav1.NewTime(a.Now)
			a.status.Stage.SoakUntil = metav1.NewTime(a.Now.Add(soak))
		}
		if left := a.status.Stage.SoakUntil.Sub(a.Now); left > 0 {
			a.after(left)
			a.status.Phase = v1beta2.RolloutSoaking
			return
		}
		if !a.passGates() {
			a.status.Phase = v1beta2.RolloutWaitingForGate
			if !a.status.HaltedAt.IsZero() {
				a.admitted, a.status.Phase = Admitted{}, v1beta2.RolloutHalted
			}
			return
		}
		if a.current() == len(a.stages)-1 {
			a.tail()
			return
		}
		if isHeld || !a.hasEvidence(a.current()+1) {
			a.status.Phase = v1beta2.RolloutHeld
			return
		}
		a.keepResult()
		a.enter(a.current() + 1)
		a.status.Starts = nil
	}
}

// isProven reports whether the current stage has reached its quorum: enough of the runtimes that can be updated now are
// proven. A stage of which no runtime can be updated does not keep others waiting; hasEvidence decides about it.
func (a *advance) isProven() bool {
	c := &a.stages[a.current()].counts
	quorum := cmp.Or(a.spec.Defaults.MinProven, defaultMinProven)
	begun := int(c.Proven + c.Failed + c.Lost + c.Updating)
	if int(c.Proven) < share(quorum, begun, true) {
		return false
	}
	able := 0
	for i := range a.members {
		if m := &a.members[i]; m.Stage == a.current() && m.verdict == Waiting && !m.isAdmitted && a.canBegin(m) {
			able++
		}
	}
	return int(c.Proven) >= share(quorum, begun+able, true)
}

// hasEvidence reports whether enough runtimes are proven for a stage to begin.
func (a *advance) hasEvidence(stage int) bool {
	before, proven := int32(0), int32(0)
	for i := range stage {
		before += a.stages[i].counts.InScope
		proven += a.stages[i].counts.Proven
	}
	need := int32(0)
	switch s := &a.spec.Stages[stage]; {
	case s.MinEvidence != nil:
		need = *s.MinEvidence
	case before > 0, stage == len(a.stages)-1:
		need = 1
	}
	if a.total.counts.InScope == 0 || proven >= need || a.status.Stage.EvidenceWaived {
		return true
	}
	a.block(v1beta2.RolloutBlocker{Code: v1beta2.ReasonNoEvidence,
		Message: fmt.Sprintf("stage %s needs %d proven runtimes of earlier stages, and there are %d",
			a.spec.Stages[stage].Name, need, proven),
		Remedy: "wait until runtimes of the earlier stages can be updated, or " + a.command("resume") + " --reason=…"})
	return false
}

// keepResult stores the time at which the current stage was proven.
func (a *advance) keepResult() {
	name := a.status.Stage.Name
	i := slices.IndexFunc(a.status.Stages, func(s v1beta2.RolloutStageResult) bool { return s.Name == name })
	if i < 0 {
		a.status.Stages = append(a.status.Stages, v1beta2.RolloutStageResult{Name: name})
		i = len(a.status.Stages) - 1
	}
	a.status.Stages[i].ProvenAt = a.status.Stage.ProvenAt
}

// tail follows the last stage: runtimes that could not be updated so far are still admitted.
func (a *advance) tail() {
	a.keepResult()
	if a.total.counts.Waiting == 0 && a.total.counts.Updating == 0 {
		a.end(v1beta2.RolloutCompleted, "")
		return
	}
	a.status.Phase = v1beta2.RolloutTail
	deadline := cmp.Or(a.spec.Stages[a.current()].ProgressDeadline.Duration, DefaultProgressDeadline)
	a.expire(a.status.Stage.ProvenAt.Add(deadline))
}

// admit admits runtimes of the current stage and of earlier ones while there are free slots.
func (a *advance) admit() {
	for stage := range a.current() + 1 {
		a.admitStage(stage)
	}
}

// admitStage admits runtimes of one stage: those that have a failed attempt first, because they are the ones that need
// the correction, then by rank.
func (a *advance) admitStage(stage int) {
	s, c := &a.spec.Stages[stage], &a.stages[stage].counts
	concurrency := cmp.Or(scaled(s.MaxConcurrency, int(c.InScope), true),
		share(defaultConcurrency, int(c.InScope), true))
	slots := min(max(1, concurrency)-int(c.Updating), MaxAdmitted-len(a.admitted))
	if a.Slots >= 0 {
		slots = min(slots, a.Slots-len(a.inFlight))
	}
	if stage == a.current() && s.MaxStartsPerMinute > 0 {
		slots = min(slots, int(s.MaxStartsPerMinute)-a.recentStarts())
	}
	if slots <= 0 {
		return
	}
	underWay, limit := a.spreadOf(stage, max(1, concurrency))
	admitted := 0
	for _, hurt := range []bool{true, false} {
		for i := range a.members {
			m := &a.members[i]
			if slots <= 0 {
				break
			}
			if m.Stage != stage || m.verdict != Waiting || m.isAdmitted || (m.Ordered != a.spec.From) != hurt ||
				!a.canBegin(m) {
				continue
			}
			if s.Spread != nil {
				if underWay[m.Labels[s.Spread.Label]] >= limit {
					continue
				}
				underWay[m.Labels[s.Spread.Label]]++
			}
			a.reserve(m)
			a.admittedNow = append(a.admittedNow, m.Kyma)
			slots--
			admitted++
		}
	}
	if admitted > 0 && stage == a.current() && s.MaxStartsPerMinute > 0 {
		a.status.Starts = append(a.status.Starts, v1beta2.RolloutStarts{At: metav1.NewTime(a.Now),
			Count: int32(admitted)})
	}
}

// recentStarts returns the number of runtimes that were admitted in the last minute, and drops older records.
func (a *advance) recentStarts() int {
	n := 0
	a.status.Starts = slices.DeleteFunc(a.status.Starts, func(s v1beta2.RolloutStarts) bool {
		age := a.Now.Sub(s.At.Time)
		return age > time.Minute // a clock that was put back makes the limit stricter, never weaker
	})
	for _, s := range a.status.Starts {
		n += int(s.Count)
		a.after(time.Minute - a.Now.Sub(s.At.Time) + time.Second)
	}
	return n
}

// spreadOf returns the number of updates under way for each value of the label of a stage's spread, and their limit.
func (a *advance) spreadOf(stage, concurrency int) (underWay map[string]int, limit int) {
	s := a.spec.Stages[stage].Spread
	if s == nil {
		return nil, 0
	}
	underWay = map[string]int{}
	for i := range a.members {
		if m := &a.members[i]; m.Stage == stage && (m.verdict == Updating || m.isAdmitted) {
			underWay[m.Labels[s.Label]]++
		}
	}
	return underWay, max(1, share(s.Max, concurrency, true))
}
