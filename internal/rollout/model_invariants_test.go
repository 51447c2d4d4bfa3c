package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/admission"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/evidence"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/place"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/urgency"
)

// invariants are the properties of rollouts that TestModel checks each time the simulated coordinator has run.
// Invariants 2, 5, 6 and 15 are missing here, because the actions of TestModel check them. Invariants 22 and 23 are
// missing here, because TestModel checks them at the end of a random run. Each row of the table is a mutation: a
// deliberate defect in the code. TestModel detected each mutation, because the check of the invariant with the number
// in the first column failed (-rapid.steps=80):
//
//	    mutation                                                                                  checks to failure
//	1   one slot more in a stage / in the fleet / in a minute (admitStage)                        4 / 16 / 5
//	2   an admission counts without the stage (turnInStages, rule 5)                              595, found as 1
//	2   a stage counts without an admission (turnInStages, rule 5)                                2
//	2   an admission counts in a paused rollout (turnInStages, rule 5)                            52
//	2   a runtime that is not admitted is taken back (turnWhileTakingBack)                        37
//	3   the soak is cut by an hour / gates are not asked (passProvenStages)                       1 / 14
//	3   an approval of another plan counts (judgeGate), which is 12 of the design                 222
//	3   a soak does not begin again after the clock was set (restartAllDelaysIfClockChanged)      1273, found as 22
//	4   a halted rollout keeps its admissions (keepHaltedIfHaltedAtSet)                           497
//	4   a freeze does not stop urgent rollouts (isExcepted)                                       74
//	5   a runtime that waits gets an older version (keptVersion)                                  1, found as 6
//	6   a runtime with an earlier attempt gets the proven version (keptVersion)                   3
//	6   runtimes are taken back without a declared edge (abortAndTakeBack)                        2
//	6   a halt takes back without an edge / although paused / resumed (shouldTakeBackHalted)      212 / 104 / 151
//	6   a halt takes back by Hold / without a halt (shouldTakeBackHalted)                         107 / 11
//	7   a version is taken back and not withdrawn (PlanMove, row 5)                               62, found as 6
//	7   a version that was taken back is not recorded as such (PlanMove, row 5)                   151
//	9   the rank depends on the number of calls (Places.Of)                                       1
//	10  a runtime that cannot begin keeps its admission (keepAdmissionsThatCanBegin)              203
//	10  the coordinator ignores a deferral (blockerIfAdmitted) / controllers do (turnInStages)    3 / 682
//	10  a deferred runtime keeps its stage waiting (isStartAwaited)                               9
//	11  a stage needs no evidence (checkEvidence)                                                 334
//	11  deadlines do not begin again after the clock was set (since)                              259
//	14  an emergency ignores the preflight (addHolds)                                             60, found as 4
//	14  a line counts again (urgency.Of) / an urgency goes past a pause / a halt                  7 / 96 / 343
//	14  a normal rollout has no gates / an emergency no limits (urgency.ShortenOrSkipStage)       0 / 0
//	15  a rollout that was deleted runs at once (pauseRemade)                                     5
//	15  the pause of a rollout that was not recorded is lost (makeOrAdoptUnrecorded)              14
//	16  a failure of the registry counts as any other (judgeBegun, rule 7)                        39
//	17  an excused runtime is not counted / a failed one twice (tally.count)                      111 / 2, found as 11
//	17  a way back for those that fail counts all (judge, row 1)                                  393, found as 10
//	18  runtimes are not sorted (judgeAll)                                                        2
//	20  a move has the revision of the one before (makeOrAdoptUnrecorded)                         0
//	20  a rollout that was not recorded is made again (makeOrAdoptUnrecorded)                     1
//	20  a rollout that was not recorded is adopted for another plan (makeOrAdoptUnrecorded)       40, found as 22
//	22  a manager that ends between two writes leaves a rollout (wasActiveEndedByUnrecordedMove)  65
//	22  a resumption does not end a halt (applyResumption)                                        61
//	22  a deferral never ends / counts from now on (DeferrableUntil)                              15 / 15
//	22  times in the future are kept (hasFutureTimes)                                             1273
//	23  the version of a completed rollout is not the proven one (PlanMove)                       1, found as 22
//	24  one failure more than the budget is allowed (stageOverBudget)                             2
//
// Invariant 8 (nothing lowers a version except a request) needs no check, because nothing else in the simulation lowers
// a version. The table has no mutation for invariant 19 (the status is small), because the fourteen runtimes of
// TestModel cannot make the status large; TestStatusSize checks a large fleet. No single mutation violates invariant
// 13, because the functions judge and turnWhileTakingBack ensure it independently of each other. Invariant 7 is also
// checked by TestSteps in package channel, and invariant 21 is checked in package plan. Promotions are tested by
// another model-based test, in package promotion.
//
// Invariant 18 is violated if the first status of a halted rollout calls the failures of some runtimes inconclusive,
// and a later status does not. A long run of TestModel found this defect; TestFailedAndLost finds the defect at once.
//
// All numbers in the table were measured with the present actions of TestModel and -rapid.seed=1. If the number of a
// mutation is higher than the default number of checks, only a long run of TestModel finds the mutation.
//
// The action setClock sets the clock of the managers. TestModel checks limits (invariant 1), soaks (invariant 3) and
// deadlines (invariant 11) by a second clock that nobody sets. Managers decide about freezes and deferrals by their own
// clock, and TestModel checks freezes and deferrals by the clock of the managers.
var invariants = []struct {
	number int
	what   string
	check  func(m *model) string // "" if it holds
}{
	{1, "limits are never exceeded", (*model).limits},
	{3, "no stage begins before the former one has passed", (*model).stages},
	{4, "nobody is admitted while the rollout is halted, paused or over", (*model).halts},
	{9, "a runtime does not change the place of another one", (*model).places},
	{10, "runtimes that cannot begin use no slot", (*model).slots},
	{10, "runtimes that cannot begin keep no stage waiting", (*model).waits},
	{11, "no success without evidence", (*model).success},
	{11, "no runtime fails before its deadline without an error", (*model).deadlines},
	{14, "an urgent rollout leaves out only what it may", (*model).urgent},
	{16, "a failure of the control plane is nobody's failure", (*model).blame},
	{17, "each runtime has one verdict", (*model).accounts},
	{18, "the result depends neither on the order nor on a repetition", (*model).repeats},
	{19, "the status is small", (*model).sizes},
	{20, "the history names each move once", (*model).history},
	{24, "a budget that is exceeded halts in the same pass", (*model).budget},
}

// check checks all invariants.
func (m *model) check(t *rapid.T) {
	if m.violation != "" { // 2, 5, 6 and 15 are checked during the actions
		t.Fatal(m.violation)
	}
	for _, i := range invariants {
		if found := i.check(m); found != "" {
			t.Fatalf("%d: %s: %s", i.number, i.what, found)
		}
	}
	m.before, m.after, m.result, m.seen = nil, nil, nil, nil // they are about one pass
}

// checkTurn checks invariants 2, 5 and 6 for the version that a controller is about to order. The controller decides
// with the objects in its cache, which may be outdated.
func (m *model) checkTurn(p *part, turn channel.Turn) {
	s := m.cache.release.ChannelStatus(modelChannel)
	target, found := m.cache.release.Current(modelChannel)
	if !found {
		return // the request has no version
	}
	if s == nil || s.Version == "" {
		return
	}
	if !slices.Contains([]string{s.Version, target, p.ordered}, turn.Version) {
		m.violation = fmt.Sprintf("5: %s gets %s, and the channel is between %s and %s", p.name, turn.Version,
			s.Version,
			target)
	}
	if turn.Waiting != nil && p.ordered != "" && channel.IsLower(turn.Version, p.ordered) {
		m.violation = fmt.Sprintf("6: waiting lowers %s from %s to %s", p.name, p.ordered, turn.Version)
	}
	if p.ordered != "" && p.ordered != s.Version && turn.Version == s.Version && channel.IsLower(target, s.Version) {
		m.violation = fmt.Sprintf("5: %s gets %s, which the channel leaves for %s", p.name, turn.Version, target)
	}
	r := m.cache.rollouts[s.Rollout]
	isLower := p.ordered != "" && channel.IsLower(turn.Version, p.ordered)
	switch {
	case isLower && turn.IsBack && !m.hasEdges:
		m.violation = fmt.Sprintf("6: %s goes back from %s to %s without an edge", p.name, p.ordered, turn.Version)
	case isLower && turn.IsBack && (r == nil || !r.Spec.IsRollback() || r.Spec.From != p.ordered):
		m.violation = fmt.Sprintf("13: %s goes back from %s, which is not taken back", p.name, p.ordered)
	case isLower && turn.IsBack:
	case turn.Version != target || p.ordered == target || s.Version == target:
		return
	case p.ordered == "" && channel.IsLower(target, s.Version) && (r == nil || r.Status.HaltedAt.IsZero() &&
		!r.Status.Phase.IsOver()):
		return // a new module does not get the version that people leave
	}
	if r == nil || r.Spec.To != target {
		m.violation = fmt.Sprintf("2: %s gets %s without a rollout", p.name, target)
		return
	}
	places, err := place.New(r)
	if err != nil {
		m.violation = err.Error()
		return
	}
	at := places.Of(p.name, p.labels)
	isRunning := r.Spec.State == v1beta2.RolloutRunning && r.Status.HaltedAt.IsZero() && !r.Status.Phase.IsOver()
	isNew := p.ordered == "" && (r.Status.Phase == v1beta2.RolloutTail || slices.ContainsFunc(r.Status.Stages,
		func(s v1beta2.RolloutStageResult) bool { return s.Passed && !s.ProvenAt.IsZero() }))
	if !isRunning || !isNew && (!place.Decode(r.Status.Admitted)[at.Token] ||
		at.Stage > int(r.Status.Stage.Index)) {
		m.violation = fmt.Sprintf("2: %s gets %s and is not admitted by %s: %+v", p.name, target, r.Name, r.Status)
	}
}

// checkDeferral checks invariant 10: a controller orders no version in a runtime whose admin has deferred the update.
func (m *model) checkDeferral(p *part, turn channel.Turn) {
	name, _, isStaged := strings.Cut(turn.Rollout, "/")
	r := m.cache.rollouts[name]
	if !isStaged || r == nil || r.Spec.IsRollback() || !m.now.Before(p.deferred) {
		return
	}
	if most := m.policy.Spec.MaxDeferral.Duration; most > 0 && m.now.Before(r.CreationTimestamp.Add(most)) {
		m.violation = fmt.Sprintf("10: %s begins %s at %v, and its admin has deferred it until %v", p.name,
			turn.Version, m.now, p.deferred)
	}
}

// members calls the function visit for each runtime that the coordinator read in its last reconcile. members passes the
// place of the runtime in the rollout, too.
func (m *model) members(visit func(r *Runtime, at place.Place)) {
	places, err := place.New(m.after)
	if err != nil {
		panic(err)
	}
	for i := range m.seen {
		visit(&m.seen[i], places.Of(m.seen[i].Kyma, m.seen[i].Labels))
	}
}

// isOf reports whether a runtime has the version of the rollout that the coordinator handled last. In a rollout to a
// lower version, this rollout must have requested the version. In a rollout to a higher version, the runtime may have
// had the version before the rollout began.
func (m *model) isOf(r *Runtime) bool {
	return r.Ordered == m.after.Spec.To && (!m.after.Spec.IsRollback() || r.Rollout == m.after.Name)
}

// limits checks that a pass that admits runtimes exceeds no limit. The runtimes that are being updated and the runtimes
// that are admitted are together at most as many as the concurrency of the stage, and of the policy, allows.
func (m *model) limits() string {
	if m.result == nil || len(m.result.Admitted) == 0 {
		return ""
	}
	admitted := place.Decode(m.after.Status.Admitted)
	using, size, now, all := map[int]int{}, map[int]int{}, map[int]int{}, 0
	m.members(func(r *Runtime, at place.Place) {
		if r.Ordered == m.after.Spec.To || !channel.IsLower(m.after.Spec.To, r.Ordered) {
			size[at.Stage]++
		}
		if slices.Contains(m.result.Admitted, r.Kyma) {
			now[at.Stage]++
		}
		updating := m.isOf(r) && r.State == v1beta2.StateProcessing && !r.Started.IsZero() &&
			r.Reason == "" && r.UnreachableSince.IsZero() &&
			m.right().Sub(m.parts[r.Kyma].changed) < admission.DefaultRuntimeDeadline
		if updating || admitted[at.Token] && r.Ordered != m.after.Spec.To {
			using[at.Stage]++
			all++
		}
	})
	for stage, n := range now {
		s := &m.after.Spec.Stages[stage]
		if limit := int(s.MaxConcurrency.IntVal); using[stage] > limit {
			return fmt.Sprintf("stage %s: %d of %d may begin, and %d is the limit", s.Name, using[stage], size[stage],
				limit)
		}
		if s.MaxStartsPerMinute > 0 && n > int(s.MaxStartsPerMinute) {
			return fmt.Sprintf("stage %s: %d begin within a minute, and %d is the limit", s.Name, n,
				s.MaxStartsPerMinute)
		}
	}
	if limit := int(m.policy.Spec.MaxUpdating); limit > 0 && all > limit {
		return fmt.Sprintf("%d may begin in the fleet, and %d is the limit", all, limit)
	}
	return ""
}

// stages checks invariants 3 and 12: no stage begins before the former one has passed, and an approval counts only for
// the plan that it names.
func (m *model) stages() string {
	if m.result == nil || m.before.Status.Stage.Name == "" {
		return ""
	}
	for i := int(m.before.Status.Stage.Index); i < int(m.after.Status.Stage.Index); i++ {
		s := &m.before.Spec.Stages[i]
		if is := m.right().Sub(m.proven[m.before.Name+"/"+s.Name]); i == int(m.before.Status.Stage.Index) &&
			!m.before.Status.Stage.ProvenAt.IsZero() && is < s.Soak.Duration {
			return fmt.Sprintf("stage %s was observed for %s only", s.Name, is)
		}
		proven := !m.before.Status.Stage.ProvenAt.IsZero() && i == int(m.before.Status.Stage.Index)
		if s.Soak.Duration > 0 && !proven && m.after.Status.Stages[i].Proven > 0 {
			return fmt.Sprintf("stage %s was proven and not observed", s.Name)
		}
		for _, g := range s.Gates {
			if !slices.ContainsFunc(m.before.Spec.Approvals, func(a v1beta2.RolloutApproval) bool {
				return a.Stage == s.Name && a.Plan == PlanDigest(m.before)
			}) {
				return fmt.Sprintf("gate %s of stage %s has no approval of this plan", g.Name, s.Name)
			}
		}
		if m.before.Spec.State != v1beta2.RolloutRunning {
			return "a rollout that is paused enters a stage"
		}
	}
	return ""
}

func (m *model) halts() string {
	if m.after == nil || m.after.Status.Admitted == "" {
		return ""
	}
	// A rollout that has no evidence for the next stage is in phase Held, but still admits runtimes of earlier stages.
	isHeld := m.after.Status.Phase == v1beta2.RolloutHeld && !slices.ContainsFunc(m.after.Status.Blockers,
		func(b v1beta2.RolloutBlocker) bool { return b.Code == v1beta2.ReasonNoEvidence })
	for _, f := range m.policy.Spec.Freezes { // they last for an hour, and passes take no time
		is := v1beta2.FreezeException(m.after.Spec.Urgency)
		if m.after.Spec.IsRollback() && slices.Contains(f.Except, v1beta2.ExceptBack) {
			is = v1beta2.ExceptBack
		}
		if m.now.Before(f.To.Time) && !m.now.Before(f.From.Time) && !slices.Contains(f.Except, is) {
			return fmt.Sprintf("%s may begin in a freeze without %v", m.after.Status.Admitted, f.Except)
		}
	}
	if m.after.Spec.State != v1beta2.RolloutRunning || !m.after.Status.HaltedAt.IsZero() ||
		m.after.Status.Phase.IsOver() ||
		m.preflightOf(m.after) != nil || m.hold != nil || isHeld {
		return fmt.Sprintf("state %s, phase %s, halted at %v, and %s may begin", m.after.Spec.State,
			m.after.Status.Phase,
			m.after.Status.HaltedAt, m.after.Status.Admitted)
	}
	return ""
}

func (m *model) places() string {
	if m.after == nil {
		return ""
	}
	found := ""
	m.members(func(r *Runtime, at place.Place) {
		key := m.after.Spec.Lineage + " " + asText(m.after.Spec.Stages) + " " + r.Kyma + " " + r.Labels["stage"]
		if was, seen := m.placed[key]; seen && was != at {
			found = fmt.Sprintf("%s was at %+v and is at %+v", r.Kyma, was, at)
		}
		m.placed[key] = at
	})
	return found
}

func (m *model) slots() string {
	if m.after == nil {
		return ""
	}
	admitted, found := place.Decode(m.after.Status.Admitted), ""
	m.members(func(r *Runtime, at place.Place) {
		if admitted[at.Token] && (r.Blocked() != nil || !r.UnreachableSince.IsZero() ||
			at.Stage > int(m.after.Status.Stage.Index) || m.after.Spec.OnlyFailed && evidence.IsWell(r.State)) {
			found = fmt.Sprintf("%s is admitted and cannot begin", r.Kyma)
		}
	})
	return found
}

// waits checks that a stage does not wait for runtimes that cannot begin. As soon as all other runtimes of the stage
// are proven, the stage must not be in the phase Updating any more.
func (m *model) waits() string {
	if m.after == nil || m.after.Status.Phase != v1beta2.RolloutUpdating {
		return ""
	}
	proven, others := 0, 0
	m.members(func(r *Runtime, at place.Place) {
		switch {
		case at.Stage != int(m.after.Status.Stage.Index):
		case m.isOf(r) && r.IsReady && r.UnreachableSince.IsZero() && !r.IsExcused:
			proven++
		case !m.isOf(r) && evidence.IsWell(r.State) && (!r.UnreachableSince.IsZero() || r.Blocked() != nil):
		default:
			others++
		}
	})
	if proven > 0 && others == 0 {
		return fmt.Sprintf("stage %s is updated, and %d are proven, and none can begin", m.after.Status.Stage.Name,
			proven)
	}
	return ""
}

func (m *model) success() string {
	if m.after == nil || m.after.Status.Phase != v1beta2.RolloutCompleted &&
		m.after.Status.Phase != v1beta2.RolloutTail {
		return ""
	}
	c := &m.after.Status.Runtimes
	if c.InScope > 0 && c.Proven == 0 && c.Excused+c.Failed+c.Lost == 0 && !m.after.Status.Stage.EvidenceWaived &&
		len(m.after.Spec.Resumptions) == 0 && len(m.after.Spec.Stages) > 1 &&
		m.before.Status.Phase != v1beta2.RolloutTail && c.Waiting == c.InScope {
		return fmt.Sprintf("%s with %+v", m.after.Status.Phase, *c)
	}
	return ""
}

// deadlines checks that a runtime counts as failed or lost only after an error of the version or after its deadline.
// The deadline is measured by the clock of the API server, because somebody may have set the clocks of the managers.
func (m *model) deadlines() string {
	if m.after == nil {
		return ""
	}
	candidates := int32(0)
	m.members(func(r *Runtime, _ place.Place) {
		p := m.parts[r.Kyma]
		if r.State == v1beta2.StateError && r.Reason == v1beta2.ReasonWorkloadFailed ||
			m.right().Sub(p.changed) >= admission.DefaultRuntimeDeadline ||
			!p.silent.IsZero() && m.right().Sub(p.silenced) >= admission.DefaultRuntimeDeadline {
			candidates++
		}
	})
	if c := &m.after.Status.Runtimes; c.Failed+c.Lost > candidates {
		return fmt.Sprintf("%d failed and %d are lost, and only %d can be: %+v", c.Failed, c.Lost, candidates, m.seen)
	}
	return ""
}

// checkUrgent checks invariant 14 (urgent rollouts) for a rollout that the coordinator is about to create. If the
// rollout is urgent, a person must have declared the move of the channel urgent, in a line of the annotation that no
// earlier rollout has used. An urgent rollout must not bypass a pause or a halt of the former rollout.
func (m *model) checkUrgent(former, made *v1beta2.ModuleRollout) {
	line := lineOf(made)
	if made.Spec.Urgency != "" && m.api.rollouts[made.Name] == nil && m.used[line] >= m.declared[line] {
		m.violation = fmt.Sprintf("14: %s is the second one by %q", made.Name, line)
	}
	// After a halt, the policy takes back only the runtimes in which the update has failed. If a person then sets the
	// channel back, the coordinator also takes back all other runtimes with the new version.
	takesRest := former != nil && former.Spec.OnlyFailed && made.Spec.IsRollback() && !made.Spec.OnlyFailed
	if former != nil && !former.Status.Phase.IsOver() && former.Spec.To == made.Spec.To && !takesRest &&
		(former.Spec.State != v1beta2.RolloutRunning || !former.Status.HaltedAt.IsZero()) {
		m.violation = fmt.Sprintf("14: %s goes past %s, which is %s and halted at %v: %+v after %+v", made.Name,
			former.Name, former.Spec.State, former.Status.HaltedAt, made.Spec, former.Spec)
	}
}

// lineOf returns the line of the urgency annotation in which a person has declared that the move of this rollout is
// urgent.
func lineOf(r *v1beta2.ModuleRollout) string {
	u := urgency.Urgency{Is: r.Spec.Urgency, Reason: r.Spec.UrgencyReason}
	return u.Line(modelChannel, r.Spec.To)
}

// checkTakeBack checks invariant 6 (automatic take-back) for a rollout that takes runtimes back from a version that is
// still in the spec of the release. Because the version is still in the spec, no person has set the channel back.
// checkTakeBack checks the four conditions under which a rollout may take runtimes back without a person: the former
// rollout is halted, its policy takes runtimes back, the version declares that a downgrade is safe, and no person has
// decided against a downgrade.
func (m *model) checkTakeBack(view *stored, former, made *v1beta2.ModuleRollout) {
	inSpec, _ := view.release.SpecVersion(modelChannel)
	if !made.Spec.IsRollback() || made.Spec.From != inSpec ||
		made.Spec.State != v1beta2.RolloutRunning {
		return
	}
	if former == nil || former.Status.HaltedAt.IsZero() || former.Spec.State != v1beta2.RolloutRunning || !m.hasEdges ||
		former.Spec.OnHalt == v1beta2.HaltHold || len(former.Spec.Resumptions) > int(former.Status.Resumptions) ||
		made.Spec.OnlyFailed != (former.Spec.OnHalt == v1beta2.HaltTakeBackFailed) || !m.withdrawn[inSpec] {
		m.violation = fmt.Sprintf("6: %s takes %s back by itself: %+v", made.Name, inSpec, former)
	}
}

// urgent checks invariant 14: compared with the policy, an urgent rollout leaves out only the stages, soaks and gates
// that its urgency allows. All invariants except 14 are checked for urgent rollouts in the same way as for normal ones.
func (m *model) urgent() string {
	if m.after == nil || m.after.Spec.IsRollback() {
		return ""
	}
	is := m.after.Spec.Stages
	for i := range m.policy.Spec.Stages {
		want := &m.policy.Spec.Stages[i]
		j := slices.IndexFunc(is, func(s v1beta2.ModuleRolloutStage) bool { return s.Name == want.Name })
		if j < 0 {
			if m.after.Spec.Urgency != v1beta2.UrgencyHotfix || m.policy.Spec.Hotfix == nil ||
				slices.Contains(m.policy.Spec.Hotfix.Stages, want.Name) {
				return fmt.Sprintf("stage %s is missing in a rollout of urgency %q", want.Name, m.after.Spec.Urgency)
			}
			continue
		}
		s := is[j].RolloutStage
		switch m.after.Spec.Urgency {
		case v1beta2.UrgencyEmergency:
			s.Soak, s.Gates = want.Soak, want.Gates
		case v1beta2.UrgencyHotfix:
			if m.policy.Spec.Hotfix != nil && s.Soak.Duration == min(want.Soak.Duration, time.Minute) {
				s.Soak = want.Soak
			}
		}
		if got, want := asText(s), asText(want); got != want {
			return fmt.Sprintf("a rollout of urgency %q has the stage %s, and the policy has %s", m.after.Spec.Urgency,
				got, want)
		}
	}
	return ""
}

func (m *model) blame() string {
	if m.after == nil {
		return ""
	}
	candidates := int32(0)
	m.members(func(r *Runtime, at place.Place) {
		cause := evidence.CauseOf(r.Reason)
		isOf := r.Ordered == m.after.Spec.To || r.Rollout == m.after.Name // a step to it, too
		if isOf && !evidence.IsWell(r.State) && cause != evidence.CauseControlPlane &&
			cause != evidence.CausePerson {
			candidates++
		}
	})
	if failed := m.after.Status.Runtimes.Failed; failed > candidates {
		return fmt.Sprintf("%d failed, and only %d can have", failed, candidates)
	}
	return ""
}

func (m *model) accounts() string {
	if m.after == nil || m.after.Status.Phase.IsOver() {
		return ""
	}
	c := &m.after.Status.Runtimes
	if sum := c.Waiting + c.Updating + c.Proven + c.Failed + c.Lost + c.Excused; sum != c.InScope {
		return fmt.Sprintf("%d in scope, and the verdicts are %+v", c.InScope, *c)
	}
	higher := 0
	m.members(func(r *Runtime, _ place.Place) {
		isWell := m.after.Spec.OnlyFailed && evidence.IsWell(r.State)
		if m.after.Spec.IsRollback() && (r.Ordered != m.after.Spec.From || isWell) && !m.isOf(r) ||
			!m.after.Spec.IsRollback() && channel.IsLower(m.after.Spec.To, r.Ordered) {
			higher++
		}
	})
	if int(c.InScope)+higher != len(m.seen) {
		return fmt.Sprintf("%d runtimes, %d in scope, and %d are ahead", len(m.seen), c.InScope, higher)
	}
	return ""
}

func (m *model) repeats() string {
	if m.result == nil {
		return ""
	}
	in := Inputs{Rollout: m.before, Runtimes: slices.Clone(m.seen), Now: m.now, ClockSetAt: m.clockSet, Hold: m.hold,
		Slots:     -1,
		Preflight: m.preflightOf(m.before), WayBack: m.wayBack(m.before)}
	if m.policy.Spec.MaxUpdating > 0 {
		in.Slots = int(m.policy.Spec.MaxUpdating)
	}
	slices.Reverse(in.Runtimes)
	turned, err := Advance(in)
	if err != nil {
		return err.Error()
	}
	if is, was := asText(turned.Status), asText(m.result.Status); is != was {
		return fmt.Sprintf("in another order:\n%s\n%s", was, is)
	}
	in.Rollout = m.after
	again, err := Advance(in)
	if err != nil {
		return err.Error()
	}
	if is, was := asText(again.Status), asText(m.after.Status); is != was {
		return fmt.Sprintf("again at the same time:\n%s\n%s", was, is)
	}
	return ""
}

func (m *model) sizes() string {
	for name, r := range m.api.rollouts {
		if n := len(asText(r)); n > 16<<10 {
			return fmt.Sprintf("%s has %d bytes", name, n)
		}
	}
	return ""
}

func (m *model) history() string {
	s := m.api.release.ChannelStatus(modelChannel)
	if s == nil {
		return ""
	}
	if len(s.History) > maxHistory {
		return fmt.Sprintf("%d entries", len(s.History))
	}
	last := int64(0)
	for _, h := range s.History {
		if h.Revision <= last {
			return fmt.Sprintf("revision %d comes after %d", h.Revision, last)
		}
		last = h.Revision
		if was, found := m.revisions[h.Revision]; found && was != h.Version {
			return fmt.Sprintf("revision %d was %s and is %s", h.Revision, was, h.Version)
		}
		m.revisions[h.Revision] = h.Version
	}
	return ""
}

// budget checks that a pass halts the rollout if more runtimes of a stage have failed than the stage allows. If
// runtimes that were not updated have failed, too, budget skips its check, because the version may not be the cause.
func (m *model) budget() string {
	if m.after == nil || m.after.Status.Phase.IsOver() || m.after.Spec.State != v1beta2.RolloutRunning {
		return ""
	}
	failed, others := map[int]int32{}, false
	m.members(func(r *Runtime, at place.Place) {
		switch {
		case m.isOf(r) && r.State == v1beta2.StateError && !r.Started.IsZero() && !r.IsExcused &&
			r.Reason == v1beta2.ReasonWorkloadFailed && r.UnreachableSince.IsZero():
			failed[at.Stage]++
		case !evidence.IsWell(r.State):
			others = true
		}
	})
	for stage, n := range failed {
		s := &m.after.Spec.Stages[stage]
		acknowledged := int32(0)
		if is := stageResult(m.after.Status.Stages, s.Name); is != nil {
			acknowledged = is.AcknowledgedFailed
		}
		if !others && n > acknowledged && n > s.MaxFailures.IntVal && m.after.Status.HaltedAt.IsZero() {
			return fmt.Sprintf("stage %s has %d failures, %d are allowed and %d acknowledged, and it is %s", s.Name, n,
				s.MaxFailures.IntVal, acknowledged, m.after.Status.Phase)
		}
	}
	return ""
}
