package rollout

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/admission"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/evidence"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/place"
)

// Inputs are the inputs of Advance.
type Inputs struct {
	// Rollout is the rollout with the status that the last call of Advance returned. Advance does not change Rollout.
	Rollout *v1beta2.ModuleRollout
	// Runtimes are all runtimes that have the module in the channel, in any order.
	Runtimes []Runtime
	// Now is the current time.
	Now time.Time
	// Hold is the reason why the rollout may not admit runtimes, for example because a policy is suspended. nil means
	// that there is no such reason.
	Hold *v1beta2.RolloutBlocker
	// Preflight is the reason why the version cannot be installed in any runtime. nil means that the version can be
	// installed.
	Preflight *v1beta2.RolloutBlocker
	// WayBack states whether runtimes can be taken back from the version. WayBack is nil if it is not known whether
	// runtimes can be taken back.
	WayBack *v1beta2.RolloutWayBack
	// Gates are the results of the queries and webhooks of the current stage, by the name of the gate. Advance sends no
	// requests itself; the caller has sent them. A gate without a result does not pass, and keeps its saved state.
	Gates map[string]v1beta2.RolloutGateStatus
	// ClockSetAt is the last time at which the caller noticed that somebody had set the clock of its machine. The zero
	// time means that nobody has set the clock.
	ClockSetAt time.Time
	// Slots is the number of runtimes that the rollout may update at the same time under the limit for the whole fleet.
	// A negative number means no limit.
	Slots int
	// SlotsUsedBy are the names of the other rollouts that use slots of this limit.
	SlotsUsedBy []string
}

// Result is the result of Advance.
type Result struct {
	// Status is the next status.
	Status v1beta2.ModuleRolloutStatus
	// Admitted are the names of the runtimes that this call of Advance has admitted.
	Admitted []string
	// InFlight are the names of all runtimes that are being updated, or admitted, and that use a slot. An update that a
	// person has paused uses no slot, and no other rollout waits for it.
	InFlight []string
	// Next is the delay after which Advance has to be called again, even if the inputs have not changed. If Next is 0,
	// Advance has to be called again only after a change of the inputs.
	Next time.Duration
	// FailuresLeft is the number of further failures in each stage that do not halt the rollout, by the name of the
	// stage. A stage in which more runtimes have failed than allowed has no entry in FailuresLeft. FailuresLeft is nil
	// if the rollout is halted.
	FailuresLeft map[string]int
}

// Advance returns the next status of a rollout. Advance admits runtimes, ends stages, and halts or holds the rollout.
func Advance(in Inputs) (Result, error) {
	a, err := newAdvance(in)
	if err != nil {
		return Result{}, err
	}
	if in.Rollout.Status.Phase.IsOver() {
		return Result{Status: *in.Rollout.Status.DeepCopy()}, nil
	}
	a.judgeAll()
	a.decidePhaseAndAdmit()
	a.report()
	return Result{Status: a.status, Admitted: a.admittedNow, InFlight: a.inFlight(), Next: a.next,
		FailuresLeft: a.failuresLeft()}, nil
}

// failuresLeft returns the number of further failures in each stage that do not halt the rollout.
func (a *advance) failuresLeft() (byStage map[string]int) {
	if !a.isStaged() || a.status.Phase.IsOver() || !a.status.HaltedAt.IsZero() {
		return nil
	}
	left := map[string]int{}
	for i := range a.spec.Stages {
		s, c := &a.spec.Stages[i], &a.stages[i].counts
		allowed := max(AllowedFailures(&s.RolloutStage, int(c.InScope)), int(a.acknowledged[i]))
		if n := allowed - int(c.Failed); n >= 0 {
			left[s.Name] = n
		}
	}
	return left
}

// inFlight returns the names of all runtimes that are being updated, or admitted, and that use a slot, sorted.
func (a *advance) inFlight() []string {
	var all []string
	for i := range a.members {
		if m := &a.members[i]; m.verdict == Updating && !m.isIdle || m.isAdmitted {
			all = append(all, m.Kyma)
		}
	}
	slices.Sort(all)
	return all
}

// advance has the data of one call of Advance.
type advance struct {
	Inputs
	spec     *v1beta2.ModuleRolloutSpec
	status   v1beta2.ModuleRolloutStatus // the next status
	admitted place.Admitted
	places   *place.Places
	deadline time.Duration
	clockSet time.Time // when somebody has set the clock last, see restartAllDelaysIfClockChanged

	members []member // the runtimes in scope, by rank and name
	stages  []tally
	// acknowledged has, for each stage, the number of failed runtimes that a person has acknowledged by resuming the
	// rollout.
	acknowledged []int32
	total        tally
	outOfScope   int
	heldBy       map[string]int // number of updates that a failure of the control plane keeps from finishing, by reason
	blockers     []v1beta2.RolloutBlocker
	admittedNow  []string
	next         time.Duration
}

// member is a runtime in scope.
type member struct {
	*Runtime
	place.Place
	verdict    Verdict
	isAdmitted bool
	isIdle     bool // the update uses no slot
	asked      bool // blocked is known
	blocked    *channel.Blocker
}

// isUpdateLikelyToRepair reports whether the update is likely to repair a module that does not work in a runtime. The
// rollout admits runtimes with such a module first. A rollout to a lower version is likely to repair every module that
// does not work. A rollout to a higher version is likely to repair the module in a runtime if the update of an earlier
// rollout has failed in this runtime.
func (a *advance) isUpdateLikelyToRepair(m *member) bool {
	if a.spec.IsRollback() {
		return !evidence.IsWell(m.State)
	}
	return m.hasVersionOfEarlierRollout(a.spec.From)
}

// hasVersionOfEarlierRollout reports whether the update replaces a version that an earlier rollout has left in the
// runtime. hasVersionOfEarlierRollout returns true if the requested version is higher than the proven version.
// hasVersionOfEarlierRollout also returns true if a lower version is requested, but the higher version is still
// installed.
func (m *member) hasVersionOfEarlierRollout(provenVersion string) bool {
	return channel.IsLower(provenVersion, m.Ordered) || channel.IsLower(m.Ordered, m.Installed)
}

// tally counts the runtimes of one stage, by the verdicts on their updates.
type tally struct {
	counts v1beta2.RolloutCounts
	// pending is the number of runtimes that were admitted and have not begun yet. The field counts has these runtimes
	// in counts.Updating.
	pending int
	// idle is the number of runtimes that count as updating but use no slot, because no rollout has requested their
	// update, or because a person keeps the update from continuing.
	idle int
	// The control group has the waiting runtimes that worked when the rollout began. The field control is the number of
	// runtimes in the control group. The field failing is the number of runtimes in the control group that have failed
	// since then. The field silent is the number of runtimes in the control group that cannot be reached.
	control, failing, silent int
}

func newAdvance(in Inputs) (*advance, error) {
	places, err := place.New(in.Rollout)
	if err != nil {
		return nil, err
	}
	a := &advance{Inputs: in, spec: &in.Rollout.Spec, status: *in.Rollout.Status.DeepCopy(), places: places,
		admitted: place.Decode(in.Rollout.Status.Admitted), deadline: admission.RuntimeDeadline(in.Rollout),
		heldBy: map[string]int{},
		stages: make([]tally, max(1, len(in.Rollout.Spec.Stages)))}
	a.acknowledged = make([]int32, len(a.stages))
	for i := range a.spec.Stages {
		if s := stageResult(a.status.Stages, a.spec.Stages[i].Name); s != nil {
			a.acknowledged[i] = s.AcknowledgedFailed
		}
	}
	a.status.ObservedGeneration = in.Rollout.Generation
	a.status.Plan, a.status.WayBack = PlanDigest(in.Rollout), in.WayBack
	if a.status.Phase == "" { // it is new, or its status was lost: no failure is acknowledged
		a.status.Resumptions = int32Of(len(a.spec.Resumptions))
	}
	if a.status.Stage.Name == "" && len(a.spec.Stages) > 0 {
		a.enter(0)
	}
	if int(a.status.Stage.Index) >= len(a.stages) {
		a.status.Stage.Index = int32Of(len(a.stages) - 1)
	}
	a.restartAllDelaysIfClockChanged()
	return a, nil
}

// PlanDigest returns the digest of the versions and the stages of a rollout. An approval contains this digest, so that
// the approval is valid only for the plan that the person has seen.
func PlanDigest(r *v1beta2.ModuleRollout) string {
	plan := []any{r.Name, r.Spec.Module, r.Spec.Channel, r.Spec.From, r.Spec.To, r.Spec.Lineage, r.Spec.Stages,
		r.Spec.Defaults}
	if r.Spec.IsRollback() {
		plan = append(plan, r.Spec.Direction)
	}
	if r.Spec.OnlyFailed {
		plan = append(plan, "onlyFailed")
	}
	if r.Spec.Urgency != "" {
		plan = append(plan, r.Spec.Urgency, r.Spec.IgnoreWindows)
	}
	data, err := json.Marshal(plan)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:16])
}

// isStaged reports whether the rollout has stages. Without stages, all runtimes are updated at once.
func (a *advance) isStaged() bool { return len(a.spec.Stages) > 0 }

// currentStage returns the position of the current stage.
func (a *advance) currentStage() int { return int(a.status.Stage.Index) }

// enter begins a stage.
func (a *advance) enter(stage int) {
	a.status.Stage = v1beta2.RolloutStageStatus{Index: int32Of(stage), Name: a.spec.Stages[stage].Name,
		StartedAt: metav1.NewTime(a.Now)}
	for i := range a.members {
		a.members[i].asked = false // the last stage is also for modules that do not work
	}
}

// requeueAfter requests another call of Advance after the delay d.
func (a *advance) requeueAfter(d time.Duration) {
	if d > 0 && (a.next == 0 || d < a.next) {
		a.next = d
	}
}

// judgeAll finds the verdict on each runtime, and counts the verdicts of each stage.
func (a *advance) judgeAll() {
	began := a.rolloutStartedAt()
	a.members = make([]member, 0, len(a.Runtimes))
	for i := range a.Runtimes {
		r := &a.Runtimes[i]
		m := member{Runtime: r}
		if a.isStaged() {
			m.Place = a.places.Of(r.Kyma, r.Labels)
		}
		is := a.judge(r)
		m.verdict, m.isIdle = is.verdict, is.isIdle
		a.requeueAfter(is.next)
		if m.verdict == OutOfScope {
			a.outOfScope++
			continue
		}
		if is.heldBy != "" {
			a.heldBy[is.heldBy]++
		}
		t := &a.stages[m.Stage]
		t.count(m.verdict)
		switch {
		case m.verdict == Waiting && !a.spec.IsRollback():
			a.countWaitingInControlGroup(t, r, began)
		case m.verdict == Updating && m.isIdle:
			t.idle++
		}
		a.members = append(a.members, m)
	}
	slices.SortFunc(a.members, func(x, y member) int {
		return cmp.Or(cmp.Compare(x.Rank, y.Rank), strings.Compare(x.Kyma, y.Kyma))
	})
	for i := range a.stages {
		a.total.add(&a.stages[i])
	}
	a.keepAdmissionsThatCanBegin()
}

// countWaitingInControlGroup counts a waiting runtime in the control group if the runtime worked before the rollout
// began.
func (a *advance) countWaitingInControlGroup(t *tally, r *Runtime, rolloutStart time.Time) {
	isSilent := !r.UnreachableSince.IsZero()
	if isSilent && r.UnreachableSince.Before(rolloutStart) || !evidence.IsWell(r.State) &&
		r.Since.Before(rolloutStart) {
		return
	}
	t.control++
	cause := evidence.CauseOf(r.Reason)
	switch {
	case isSilent:
		t.silent++
	case evidence.IsWell(r.State):
	case cause == evidence.CauseVersion && r.State == v1beta2.StateError,
		// A failure of unclear cause counts as a failure only when half of the deadline of a runtime has passed,
		// because an outage is not noticed in all runtimes at the same time.
		cause == evidence.CauseUnclear && a.since(r.Since) >= a.deadline/2:
		t.failing++
	}
}

// rolloutStartedAt returns the time at which the rollout began.
func (a *advance) rolloutStartedAt() time.Time {
	switch {
	case !a.Rollout.CreationTimestamp.IsZero():
		return a.Rollout.CreationTimestamp.Time
	case !a.status.Stage.StartedAt.IsZero():
		return a.status.Stage.StartedAt.Time
	}
	return a.Now
}

// keepAdmissionsThatCanBegin keeps the admissions of the runtimes that have not begun yet and can begin now. A runtime
// that has begun its update needs no admission any more. A runtime that cannot begin now loses its admission, so that
// it occupies no slot; the runtime is admitted again when it can begin.
func (a *advance) keepAdmissionsThatCanBegin() {
	before := a.admitted
	a.admitted = place.Admitted{}
	for i := range a.members {
		if m := &a.members[i]; before[m.Token] && m.verdict == Waiting && m.Stage <= a.currentStage() &&
			a.canBeginIfAdmitted(m) {
			a.reserve(m)
		}
	}
}

// withdrawAdmissions removes all admissions.
func (a *advance) withdrawAdmissions() {
	a.admitted, a.admittedNow = place.Admitted{}, nil
	for i := range a.members {
		m := &a.members[i]
		if !m.isAdmitted {
			continue
		}
		m.isAdmitted = false
		for _, t := range []*tally{&a.stages[m.Stage], &a.total} {
			t.pending--
			t.counts.Waiting++
			t.counts.Updating--
		}
	}
}

// reserve counts an admitted runtime as one that is being updated.
func (a *advance) reserve(m *member) {
	m.isAdmitted, a.admitted[m.Token] = true, true
	for _, t := range []*tally{&a.stages[m.Stage], &a.total} {
		t.pending++
		t.counts.Waiting--
		t.counts.Updating++
	}
}

// canBeginIfAdmitted reports whether a waiting runtime could begin now if it were admitted.
func (a *advance) canBeginIfAdmitted(m *member) bool {
	if !m.asked {
		m.asked, m.blocked = true, a.blockerIfAdmitted(m)
	}
	return m.blocked == nil
}

// blockerIfAdmitted returns the blocker that would keep a waiting runtime from beginning its update even if the runtime
// were admitted. If a module did not work before the update, the result of its update says nothing about the new
// version. Therefore a runtime in which the module does not work has a blocker until the last stage. In the last stage,
// this runtime is updated, too, once the module has not worked for the length of the deadline.
func (a *advance) blockerIfAdmitted(m *member) *channel.Blocker {
	switch {
	case !m.UnreachableSince.IsZero():
		return &channel.Blocker{Code: m.UnreachableReason, Message: "the runtime cannot be used: see klm why " +
			m.Kyma}
	case m.State == v1beta2.StateUnmanaged, m.State == v1beta2.StateDeleting,
		evidence.CauseOf(m.Reason) == evidence.CausePerson:
		return &channel.Blocker{Code: cmp.Or(m.Reason, v1beta2.ReasonUnmanaged), Message: cmp.Or(m.Message,
			"the module is not updated in state "+string(m.State))}
	case a.spec.OnlyFailed && m.State != v1beta2.StateError && a.since(m.Since) < a.deadline:
		a.requeueAfter(a.deadline - a.since(m.Since))
		return &channel.Blocker{Code: cmp.Or(m.Reason, v1beta2.ReasonApplying),
			Message: "its update is under way, and only runtimes in which it fails are taken back"}
	case !evidence.IsWell(m.State) && !a.isUpdateLikelyToRepair(m):
		left := a.deadline - a.since(m.Since)
		if isLast := a.currentStage() == len(a.stages)-1; isLast {
			a.requeueAfter(left)
		}
		if left > 0 || a.currentStage() < len(a.stages)-1 {
			return &channel.Blocker{Code: cmp.Or(m.Reason, v1beta2.ReasonInternalError),
				Message: "the module does not " +
					"work without the new version, so an update would prove nothing: it follows in the last stage"}
		}
	}
	if m.IsBusy {
		return &channel.Blocker{Code: v1beta2.ReasonWaitingForRollout,
			Message: "another rollout is under way in the runtime"}
	}
	if m.Blocked == nil {
		return nil
	}
	b := m.Blocked()
	if b != nil && a.spec.IgnoreWindows && // the window is checked last, so there is no other blocker
		(b.Code == v1beta2.ReasonWaitingForWindow || b.Code == v1beta2.ReasonWindowUnknown) {
		return nil
	}
	if b != nil && !b.Until.IsZero() {
		a.requeueAfter(b.Until.Sub(a.Now))
	}
	return b
}

// isStartAwaited reports whether the current stage waits for the update of a runtime that has not begun. isStartAwaited
// returns true if the runtime can begin now, or if its blocker has a cause outside of the runtime, for example a
// missing template or another rollout. If stages did not wait for causes outside of the runtime, a stage would pass
// during a fault of the control plane, although none of its runtimes had been updated.
func (a *advance) isStartAwaited(m *member) bool {
	if a.canBeginIfAdmitted(m) {
		return true
	}
	if !m.UnreachableSince.IsZero() || !evidence.IsWell(m.State) {
		return false
	}
	switch m.blocked.Code {
	case v1beta2.ReasonWaitingForRollout, v1beta2.ReasonModuleNotFound, v1beta2.ReasonChannelNotFound,
		v1beta2.ReasonVersionNotFound, v1beta2.ReasonTemplateAmbiguous, v1beta2.ReasonInvalidRelease:
		return true
	}
	return evidence.CauseOf(m.blocked.Code) == evidence.CauseControlPlane
}

func (t *tally) count(v Verdict) {
	c := &t.counts
	c.InScope++
	switch v {
	case Waiting:
		c.Waiting++
	case Updating:
		c.Updating++
	case Proven:
		c.Proven++
	case Failed:
		c.Failed++
	case Lost:
		c.Lost++
	case Excused:
		c.Excused++
	}
}

func (t *tally) add(o *tally) {
	c, d := &t.counts, &o.counts
	c.InScope += d.InScope
	c.Waiting += d.Waiting
	c.Updating += d.Updating
	c.Proven += d.Proven
	c.Failed += d.Failed
	c.Lost += d.Lost
	c.Excused += d.Excused
	t.pending += o.pending
	t.idle += o.idle
	t.control += o.control
	t.failing += o.failing
	t.silent += o.silent
}

// block adds to the status of the rollout a reason why the rollout cannot continue.
func (a *advance) block(b v1beta2.RolloutBlocker) { a.blockers = append(a.blockers, b) }

// command returns the klm command that applies a verb to the rollout.
func (a *advance) command(verb string) string {
	return fmt.Sprintf("klm rollout %s %s", verb, a.Rollout.Name)
}
