package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/evidence"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/place"
)

// decidePhaseAndAdmit finds the next phase and admits runtimes.
func (a *advance) decidePhaseAndAdmit() {
	if a.spec.State == v1beta2.RolloutAborted {
		a.end(v1beta2.RolloutEndedAborted,
			"aborted"+reasonSuffix(a.spec.Reason)+": nobody begins any more; what has begun "+
				"finishes and stays")
		return
	}
	if !a.isStaged() {
		a.observeWithoutStages()
		return
	}
	a.applyResumption()
	a.haltOrHoldOnFailures()
	if a.keepHaltedIfHaltedAtSet() {
		return
	}
	isHeld := a.addHolds()
	switch {
	case isHeld:
		a.withdrawAdmissions()
	case a.total.counts.InScope == 0:
		a.end(v1beta2.RolloutCompleted, "")
		return
	}
	a.passProvenStages(isHeld)
	switch {
	case a.status.Phase.IsOver() || a.keepHaltedIfHaltedAtSet():
	case !isHeld:
		a.admit()
	case a.total.counts.InScope == a.total.counts.Waiting && a.Preflight != nil:
		a.status.Phase = v1beta2.RolloutPending
	default:
		a.status.Phase = v1beta2.RolloutHeld
	}
}

// keepHaltedIfHaltedAtSet reports whether the rollout is halted. While a rollout is halted, no runtime is admitted, and
// the status has the reason until a person resumes the rollout.
func (a *advance) keepHaltedIfHaltedAtSet() (isHalted bool) {
	if a.status.HaltedAt.IsZero() {
		return false
	}
	a.withdrawAdmissions()
	a.status.Phase = v1beta2.RolloutHalted
	isOther := func(b v1beta2.RolloutBlocker) bool {
		return b.Code != v1beta2.ReasonTooManyFailures && b.Code != v1beta2.ReasonTooManyLost &&
			b.Code != v1beta2.ReasonGateFailed
	}
	if a.blockers = slices.DeleteFunc(a.blockers, isOther); len(a.blockers) == 0 {
		a.blockers = slices.DeleteFunc(slices.Clone(a.Rollout.Status.Blockers), isOther)
	}
	if w := a.WayBack; a.spec.TakesBackOnHalt() && w != nil && !w.Declared {
		a.block(v1beta2.RolloutBlocker{Code: v1beta2.ReasonDowngradeUnsafe,
			Message: "nobody is taken back: " + w.Message, Remedy: fmt.Sprintf("correct it in a higher version: klm "+
				"channel set %s %s VERSION --urgency=hotfix --reason=…", a.spec.Module, a.spec.Channel)})
	}
	return true
}

func reasonSuffix(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// end ends the rollout.
func (a *advance) end(phase v1beta2.RolloutPhase, message string) {
	a.status.Phase, a.status.Message, a.status.EndedAt = phase, message, metav1.NewTime(a.Now)
	a.blockers = nil
	a.withdrawAdmissions()
}

// observeWithoutStages does the same as decide for a rollout without stages, which only observes the runtimes.
func (a *advance) observeWithoutStages() {
	c := &a.total.counts
	a.status.Phase = v1beta2.RolloutUpdating
	if c.Waiting == 0 && c.Updating == 0 {
		a.end(v1beta2.RolloutCompleted, "")
		return
	}
	if c.Updating == 0 && a.countAwaitedStarts() == 0 {
		a.status.Phase = v1beta2.RolloutTail
	}
	a.completeAt(laterOf(a.rolloutStartedAt(), a.clockSet).Add(DefaultProgressDeadline))
}

// countAwaitedStarts returns the number of runtimes of the current stage that are not admitted yet, but whose update
// the stage waits for: see isStartAwaited.
func (a *advance) countAwaitedStarts() int {
	n := 0
	for i := range a.members {
		if m := &a.members[i]; m.Stage == a.currentStage() && m.verdict == Waiting && !m.isAdmitted &&
			a.isStartAwaited(m) {
			n++
		}
	}
	return n
}

// completeAt completes the rollout at its deadline.
func (a *advance) completeAt(deadline time.Time) {
	if left := deadline.Sub(a.Now); left > 0 {
		a.requeueAfter(left)
		return
	}
	a.end(v1beta2.RolloutCompleted, "")
}

// EndsByResumption reports whether a blocker of a rollout with this code ends when a person resumes the rollout.
func EndsByResumption(code string) bool {
	return code == v1beta2.ReasonInconclusive || code == v1beta2.ReasonNoEvidence ||
		code == v1beta2.ReasonPolicyDeleted
}

// applyResumption ends the halt of a rollout if a person has added a resumption to its spec. The failures before the
// resumption are acknowledged: only later failures count.
func (a *advance) applyResumption() {
	// The rollout stores only the number of acknowledged failures. When a runtime with an acknowledged failure
	// recovers, the number is reduced, so that it does not cover a later failure of another runtime. While the update
	// of a runtime is being retried, its failure stays acknowledged.
	for i := range a.stages {
		c := &a.stages[i].counts
		a.acknowledged[i] = min(a.acknowledged[i], c.Failed+c.Updating-int32Of(a.stages[i].pending))
	}
	a.status.AcknowledgedLost = min(a.status.AcknowledgedLost, a.total.counts.Lost)
	if len(a.spec.Resumptions) <= int(a.status.Resumptions) {
		return
	}
	a.status.Resumptions = int32Of(len(a.spec.Resumptions))
	a.status.HaltedAt = metav1.Time{}
	for i := range a.stages {
		a.acknowledged[i] = a.stages[i].counts.Failed
	}
	a.status.AcknowledgedLost = a.total.counts.Lost
	a.status.Stage.Gates = nil
	// A person who acknowledges failures has not seen yet that too few runtimes are proven, so a resumption waives the
	// evidence only if the rollout was held for lack of evidence.
	a.status.Stage.EvidenceWaived = a.status.Stage.EvidenceWaived || slices.ContainsFunc(a.Rollout.Status.Blockers,
		func(b v1beta2.RolloutBlocker) bool { return b.Code == v1beta2.ReasonNoEvidence })
}

// overBudget is a kind of failure of which there are more than the policy allows.
type overBudget struct {
	isWorse bool // the updated runtimes fail more often than the others
	code    string
	// The text found states how many of the updated runtimes have failed. The text others states how many of the
	// runtimes that are not updated have failed.
	found, others string
}

// haltOrHoldOnFailures halts or holds the rollout if more runtimes have failed than the policy allows. If the runtimes
// without the new version fail as often, the version is not the cause, and the rollout is held.
func (a *advance) haltOrHoldOnFailures() {
	c := &a.total.counts
	updated, others := int(c.Proven+c.Failed+c.Lost), a.total.control
	var all []overBudget
	if stage := a.stageOverBudget(); stage >= 0 {
		s := &a.spec.Stages[stage]
		all = append(all, overBudget{evidence.IsWorse(int(c.Failed), updated, a.total.failing, others),
			v1beta2.ReasonTooManyFailures,
			fmt.Sprintf("%d of %d updated runtimes have failed, and stage %s allows %d of its %d", c.Failed, updated,
				s.Name, AllowedFailures(&s.RolloutStage, int(a.stages[stage].counts.InScope)),
				a.stages[stage].counts.InScope),
			fmt.Sprintf("%d of %d that are not updated fail too", a.total.failing, others)})
	}
	allowed := int32Of(max(1, share(cmp.Or(a.spec.Defaults.MaxLost, defaultMaxLost), int(c.InScope), false)))
	if c.Lost > allowed && c.Lost > a.status.AcknowledgedLost {
		all = append(all, overBudget{evidence.IsWorse(int(c.Lost), updated, a.total.silent, others),
			v1beta2.ReasonTooManyLost,
			fmt.Sprintf("%d of %d updated runtimes cannot be reached since their update, and %d are allowed", c.Lost,
				updated, allowed),
			fmt.Sprintf("%d of %d that are not updated cannot be reached either", a.total.silent, others)})
	}
	a.haltOrHold(all)
}

// stageOverBudget returns the index of the first stage that must halt the rollout, or -1. A stage must halt the rollout
// if more runtimes have failed than the stage allows, and more than a person has acknowledged.
func (a *advance) stageOverBudget() int {
	for i := range a.stages {
		c := &a.stages[i].counts
		if c.Failed > a.acknowledged[i] &&
			int(c.Failed) > AllowedFailures(&a.spec.Stages[i].RolloutStage, int(c.InScope)) {
			return i
		}
	}
	return -1
}

// haltOrHold halts the rollout if, for at least one kind of failure, the updated runtimes fail more often than the
// others. If no kind of failure is more frequent in the updated runtimes, haltOrHold holds the rollout. After a halt,
// haltOrHold reports every kind of failure as a reason, because the rollout stays halted for each of them.
func (a *advance) haltOrHold(all []overBudget) {
	if a.status.HaltedAt.IsZero() && slices.ContainsFunc(all, func(o overBudget) bool { return o.isWorse }) {
		a.status.HaltedAt = metav1.NewTime(a.Now)
	}
	for _, o := range all {
		if a.status.HaltedAt.IsZero() {
			a.block(v1beta2.RolloutBlocker{Code: v1beta2.ReasonInconclusive, Message: o.found + ", but " + o.others +
				": that proves nothing about the version",
				Remedy: "find out what fails in the fleet; then " + a.command("resume") + " --reason=…"})
			continue
		}
		a.block(v1beta2.RolloutBlocker{Code: o.code, Message: o.found, Remedy: "look at klm rollout show " +
			a.Rollout.Name + "; then " + a.command("abort") + ", or " + a.command("resume") + " --reason=…"})
	}
}

// addHolds reports whether a reason other than a failure of the version forbids admissions now.
func (a *advance) addHolds() (isHeld bool) {
	if a.spec.State == v1beta2.RolloutPaused {
		a.block(v1beta2.RolloutBlocker{Code: v1beta2.ReasonRolloutPaused, Object: "ModuleRollout " + a.Rollout.Name,
			Message: "the rollout is paused" + reasonSuffix(a.spec.Reason), Remedy: a.command("resume")})
	}
	for _, b := range []*v1beta2.RolloutBlocker{a.Hold, a.Preflight} {
		if b != nil {
			a.block(*b)
		}
	}
	for reason, n := range a.heldBy {
		a.block(v1beta2.RolloutBlocker{Code: v1beta2.ReasonControlPlaneFailing, Runtimes: int32Of(n),
			Message: "updates cannot go on because of " + reason,
			Remedy:  "see the reason in docs/reference/reasons.md"})
	}
	slices.SortStableFunc(a.blockers, func(x, y v1beta2.RolloutBlocker) int {
		return strings.Compare(x.Message, y.Message)
	})
	return len(a.blockers) > 0
}

// passProvenStages ends the current stage if the stage is proven, and begins the next stage. If the rollout is held, no
// stage begins.
func (a *advance) passProvenStages(isHeld bool) {
	if a.isInTail() {
		a.completeTailWhenDue(isHeld)
		return
	}
	for {
		s := &a.status.Stage
		if !a.isQuorumReached() {
			a.status.Phase = v1beta2.RolloutUpdating
			return
		}
		// otherwise no runtime could be observed
		if s.ProvenAt.IsZero() && a.stages[a.currentStage()].counts.Proven > 0 {
			s.ProvenAt = metav1.NewTime(a.Now)
			s.SoakUntil = metav1.NewTime(a.Now.Add(a.spec.Stages[a.currentStage()].Soak.Duration))
		}
		if left := s.SoakUntil.Sub(a.Now); !s.SoakUntil.IsZero() && left > 0 {
			a.requeueAfter(left)
			a.status.Phase = v1beta2.RolloutSoaking
			return
		}
		if !a.checkGates() {
			a.status.Phase = v1beta2.RolloutWaitingForGate
			return
		}
		if a.currentStage() == len(a.stages)-1 {
			a.completeTailWhenDue(isHeld)
			return
		}
		if isHeld || !a.checkEvidence(a.currentStage()+1) {
			a.status.Phase = v1beta2.RolloutHeld
			return
		}
		a.recordStagePassed()
		a.enter(a.currentStage() + 1)
		a.Gates = nil // the results were read for the former stage
	}
}

// isInTail reports whether the last stage has already passed, so that only late runtimes are left to be updated. The
// phase of a rollout with a passed last stage is Tail. While the rollout is held, its phase is Held, so isInTail reads
// the stored result of the last stage.
func (a *advance) isInTail() bool {
	if a.status.Phase == v1beta2.RolloutTail {
		return true
	}
	was := stageResult(a.Rollout.Status.Stages, a.status.Stage.Name)
	return a.currentStage() == len(a.stages)-1 && was != nil && was.Passed
}

// isQuorumReached reports whether the current stage has reached its quorum: enough of the runtimes that can be updated
// now are proven. Failed and lost runtimes have separate limits. A stage in which no runtime can be updated delays the
// next stage only for a limited time; checkEvidence decides about this.
func (a *advance) isQuorumReached() bool {
	t := &a.stages[a.currentStage()]
	isLast := a.currentStage() == len(a.stages)-1
	if isLast && !a.status.Stage.ProvenAt.IsZero() {
		return true
	}
	proven, awaited := int(t.counts.Proven), int(t.counts.Updating)-t.idle+a.countAwaitedStarts()
	if proven > 0 || t.counts.InScope == 0 {
		return proven >= Quorum(a.Rollout, proven+awaited)
	}
	left := a.status.Stage.StartedAt.Add(a.deadline).Sub(a.Now)
	a.requeueAfter(left)
	return awaited == 0 && left <= 0
}

// Quorum returns the number of runtimes that must be proven before a stage passes. The parameter runtimes is the number
// of runtimes of the stage that can be updated.
func Quorum(r *v1beta2.ModuleRollout, runtimes int) int {
	return share(cmp.Or(r.Spec.Defaults.MinProven, defaultMinProven), runtimes, true)
}

// NeededEvidence returns how many runtimes of earlier stages have to be proven before a stage begins. The parameter
// earlierRuntimes is the number of runtimes of these stages.
func NeededEvidence(r *v1beta2.ModuleRollout, stage, earlierRuntimes int) (provenRuntimes int) {
	switch s := &r.Spec.Stages[stage]; {
	case s.MinEvidence != nil:
		return int(*s.MinEvidence)
	case earlierRuntimes > 0, stage == len(r.Spec.Stages)-1:
		return 1
	}
	return 0
}

// checkEvidence reports whether enough runtimes are proven for a stage to begin.
func (a *advance) checkEvidence(nextStage int) (isSufficient bool) {
	before, proven := int32(0), int32(0)
	for i := range nextStage {
		before += a.stages[i].counts.InScope
		proven += a.stages[i].counts.Proven
	}
	need := int32Of(NeededEvidence(a.Rollout, nextStage, int(before)))
	if a.total.counts.InScope == 0 || proven >= need || a.status.Stage.EvidenceWaived {
		return true
	}
	a.block(v1beta2.RolloutBlocker{Code: v1beta2.ReasonNoEvidence,
		Message: fmt.Sprintf("stage %s needs %d proven runtimes of earlier stages, and there are %d",
			a.spec.Stages[nextStage].Name, need, proven),
		Remedy: "wait until runtimes of the earlier stages can be updated, or " + a.command("resume") + " --reason=…"})
	return false
}

// recordStagePassed records in the status that the current stage has passed, and when the stage was proven.
func (a *advance) recordStagePassed() {
	s := stageResult(a.status.Stages, a.status.Stage.Name)
	if s == nil {
		a.status.Stages = append(a.status.Stages, v1beta2.RolloutStageResult{Name: a.status.Stage.Name})
		s = &a.status.Stages[len(a.status.Stages)-1]
	}
	s.ProvenAt, s.Passed = a.status.Stage.ProvenAt, true
}

// completeTailWhenDue handles the time after the last stage, in which the remaining runtimes are still admitted. A
// rollout that is held does not end.
func (a *advance) completeTailWhenDue(isHeld bool) {
	a.recordStagePassed()
	a.status.Phase = v1beta2.RolloutTail
	switch deadline := a.spec.Stages[a.currentStage()].ProgressDeadline.Duration; {
	case isHeld:
	case a.total.counts.Waiting == 0 && a.total.counts.Updating == 0:
		a.end(v1beta2.RolloutCompleted, "")
	default:
		since := a.status.Stage.ProvenAt
		if since.IsZero() {
			since = a.status.Stage.StartedAt
		}
		a.completeAt(laterOf(since.Time, a.clockSet).Add(cmp.Or(deadline, DefaultProgressDeadline)))
	}
}

// admit admits runtimes of the current stage and of earlier ones while there are free slots.
func (a *advance) admit() {
	a.forgetStarts()
	for stage := range a.currentStage() + 1 {
		a.admitStage(stage)
	}
	a.reportUsedSlots()
}

// reportUsedSlots adds a blocker if runtimes could begin now, but other rollouts use all slots of the limit for the
// whole fleet.
func (a *advance) reportUsedSlots() {
	if a.Slots != 0 || len(a.SlotsUsedBy) == 0 {
		return
	}
	n := 0
	for i := range a.members {
		if m := &a.members[i]; m.Stage <= a.currentStage() && m.verdict == Waiting && !m.isAdmitted &&
			a.canBeginIfAdmitted(m) {
			n++
		}
	}
	if n > 0 {
		a.block(v1beta2.RolloutBlocker{Code: v1beta2.ReasonWaitingForRollout, Runtimes: int32Of(n),
			Message: "other rollouts use all slots of the limit for the fleet: " + strings.Join(a.SlotsUsedBy, ", "),
			Remedy:  "wait, or look at klm rollout show " + a.SlotsUsedBy[0]})
	}
}

// admitStage admits runtimes of one stage. Runtimes in which an earlier attempt has failed are admitted first, because
// the new version may repair them. The other runtimes are admitted in the order of their ranks.
func (a *advance) admitStage(stage int) {
	s, c := &a.spec.Stages[stage], a.stages[stage].counts
	concurrency := Concurrency(&s.RolloutStage, int(c.InScope))
	slots := min(concurrency-int(c.Updating)+a.stages[stage].idle, place.MaxAdmitted-len(a.admitted))
	if a.Slots >= 0 {
		slots = min(slots, a.Slots-int(a.total.counts.Updating)+a.total.idle)
	}
	if s.MaxStartsPerMinute > 0 {
		slots = min(slots, int(s.MaxStartsPerMinute)-a.startsInLastMinute(s.Name))
	}
	if slots <= 0 {
		return
	}
	underWay, limit := a.spreadOf(stage, concurrency)
	admitted := 0
	for _, hurt := range []bool{true, false} {
		for i := range a.members {
			m := &a.members[i]
			if slots <= 0 {
				break
			}
			if m.Stage != stage || m.verdict != Waiting || m.isAdmitted ||
				a.isUpdateLikelyToRepair(m) != hurt || !a.canBeginIfAdmitted(m) {
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
	if admitted > 0 && s.MaxStartsPerMinute > 0 {
		a.status.Starts = append(a.status.Starts, v1beta2.RolloutStarts{Stage: s.Name, At: metav1.NewTime(a.Now),
			Count: int32(admitted)})
	}
}

// forgetStarts drops the records of admissions that are too old for the limit of starts per minute. API servers store
// times without fractions of a second, so a record is kept for one minute and one second. If the time of a record is in
// the future, the clock was set back: forgetStarts sets the time of the record to now, so that the record counts for
// one minute from now.
func (a *advance) forgetStarts() {
	a.status.Starts = slices.DeleteFunc(a.status.Starts, func(s v1beta2.RolloutStarts) bool {
		return a.Now.Sub(s.At.Time) > time.Minute+time.Second
	})
	for i := range a.status.Starts {
		if s := &a.status.Starts[i]; s.At.After(a.Now) {
			s.At = metav1.NewTime(a.Now)
		}
	}
}

// startsInLastMinute returns the number of runtimes of a stage that were admitted in the last minute.
func (a *advance) startsInLastMinute(stageName string) int {
	n := 0
	for _, s := range a.status.Starts {
		if s.Stage == stageName {
			n += int(s.Count)
			a.requeueAfter(time.Minute + 2*time.Second - a.Now.Sub(s.At.Time))
		}
	}
	return n
}

// spreadOf returns the number of updates under way for each value of the label in the field spread of a stage, and the
// limit for one value. The field spread limits how many runtimes with the same value of a label, such as the region,
// are updated at the same time.
func (a *advance) spreadOf(stage, concurrency int) (underWay map[string]int, limit int) {
	s := a.spec.Stages[stage].Spread
	if s == nil {
		return nil, 0
	}
	underWay = map[string]int{}
	for i := range a.members {
		if m := &a.members[i]; m.Stage == stage && (m.verdict == Updating && !m.isIdle || m.isAdmitted) {
			underWay[m.Labels[s.Label]]++
		}
	}
	return underWay, max(1, share(s.Max, concurrency, true))
}
