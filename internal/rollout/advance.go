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
)

// Inputs are the inputs of Advance.
type Inputs struct {
	// Rollout is the rollout with its previous status. It is not changed.
	Rollout *v1beta2.ModuleRollout
	// Runtimes are all runtimes that have the module in the channel, in any order.
	Runtimes []Runtime
	// Now is the current time.
	Now time.Time
	// Hold keeps the rollout from admitting anybody, for example because a policy is suspended. nil: nothing does.
	Hold *v1beta2.RolloutBlocker
	// Preflight is why the version cannot be installed anywhere. nil: it can.
	Preflight *v1beta2.RolloutBlocker
	// Gates are the results of the gates of the current stage that need a request, by name.
	Gates map[string]v1beta2.RolloutGateStatus
	// Slots is the number of runtimes that the rollout may update at the same time by the limit of the whole fleet. A
	// negative number means no limit.
	Slots int
}

// Result is the result of Advance.
type Result struct {
	// Status is the next status.
	Status v1beta2.ModuleRolloutStatus
	// Admitted are the names of the runtimes that were admitted now.
	Admitted []string
	// InFlight are the names of all runtimes that are being updated, or admitted.
	InFlight []string
	// Next is the time after which Advance has to be called again without a change. 0: only after a change.
	Next time.Duration
}

// Advance returns the next status of a rollout. It admits runtimes, ends stages, and halts or holds the rollout.
func Advance(in Inputs) (Result, error) {
	a, err := newAdvance(in)
	if err != nil {
		return Result{}, err
	}
	if in.Rollout.Status.Phase.IsOver() {
		return Result{Status: in.Rollout.Status}, nil
	}
	a.judgeAll()
	a.decide()
	a.report()
	return Result{Status: a.status, Admitted: a.admittedNow, InFlight: a.inFlight, Next: a.next}, nil
}

// advance is one call of Advance.
type advance struct {
	Inputs
	spec     *v1beta2.ModuleRolloutSpec
	status   v1beta2.ModuleRolloutStatus // the next status
	admitted Admitted
	places   *Places
	deadline time.Duration

	members     []member // the runtimes in scope, by rank and name
	stages      []tally
	total       tally
	outOfScope  int
	heldBy      map[string]int // number of updates that a failure of the control plane keeps from finishing, by reason
	blockers    []v1beta2.RolloutBlocker
	admittedNow []string
	inFlight    []string
	next        time.Duration
}

// member is a runtime in scope.
type member struct {
	*Runtime
	Place
	verdict    Verdict
	isAdmitted bool
	asked      bool // blocked is known
	blocked    *channel.Blocker
}

// tally has the numbers of one stage.
type tally struct {
	counts v1beta2.RolloutCounts
	// pending is the number of runtimes that were admitted and have not begun yet. They count as updating.
	pending int
	// failing and silent are the numbers of waiting runtimes that began to fail, or cannot be used, since the rollout
	// began.
	failing, silent int
}

func newAdvance(in Inputs) (*advance, error) {
	places, err := PlacesOf(in.Rollout)
	if err != nil {
		return nil, err
	}
	a := &advance{Inputs: in, spec: &in.Rollout.Spec, status: *in.Rollout.Status.DeepCopy(), places: places,
		admitted: DecodeAdmitted(in.Rollout.Status.Admitted), deadline: RuntimeDeadline(in.Rollout),
		heldBy: map[string]int{},
		stages: make([]tally, max(1, len(in.Rollout.Spec.Stages)))}
	a.status.ObservedGeneration = in.Rollout.Generation
	a.status.Plan = PlanDigest(in.Rollout)
	if a.status.Stage.Name == "" && len(a.spec.Stages) > 0 {
		a.enter(0)
	}
	if int(a.status.Stage.Index) >= len(a.stages) {
		a.status.Stage.Index = int32(len(a.stages) - 1)
	}
	return a, nil
}

// PlanDigest returns the digest of what an approval approves: the versions and the stages.
func PlanDigest(r *v1beta2.ModuleRollout) string {
	data, err := json.Marshal([]any{r.Name, r.Spec.Module, r.Spec.Channel, r.Spec.From, r.Spec.To, r.Spec.Lineage,
		r.Spec.Stages, r.Spec.Defaults})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:16])
}

// isStaged reports whether the rollout has stages. Without stages, every runtime follows at once.
func (a *advance) isStaged() bool { return len(a.spec.Stages) > 0 }

// current returns the position of the current stage.
func (a *advance) current() int { return int(a.status.Stage.Index) }

// enter begins a stage.
func (a *advance) enter(stage int) {
	a.status.Stage = v1beta2.RolloutStageStatus{Index: int32(stage), Name: a.spec.Stages[stage].Name,
		StartedAt: metav1.NewTime(a.Now)}
}

// after requests another call after a delay.
func (a *advance) after(d time.Duration) {
	if d > 0 && (a.next == 0 || d < a.next) {
		a.next = d
	}
}

// judgeAll finds the verdict on each runtime, and counts.
func (a *advance) judgeAll() {
	began := a.startedAt()
	for i := range a.Runtimes {
		r := &a.Runtimes[i]
		m := member{Runtime: r}
		if a.isStaged() {
			m.Place = a.places.Of(r.Kyma, r.Labels)
		}
		var heldBy string
		var next time.Duration
		m.verdict, heldBy, next = judge(r, a.spec.To, a.deadline, a.Now)
		a.after(next)
		if m.verdict == OutOfScope {
			a.outOfScope++
			continue
		}
		if heldBy != "" {
			a.heldBy[heldBy]++
		}
		t := &a.stages[m.Stage]
		t.count(m.verdict)
		switch m.verdict {
		case Waiting:
			if r.State == v1beta2.StateError && r.UnreachableSince.IsZero() && !r.Since.Before(began) {
				t.failing++
			}
			if !r.UnreachableSince.IsZero() && !r.UnreachableSince.Before(began) {
				t.silent++
			}
		case Updating:
			a.inFlight = append(a.inFlight, r.Kyma)
		}
		a.members = append(a.members, m)
	}
	slices.SortFunc(a.members, func(x, y member) int {
		return cmp.Or(cmp.Compare(x.Rank, y.Rank), strings.Compare(x.Kyma, y.Kyma))
	})
	for i := range a.stages {
		a.total.add(&a.stages[i])
	}
	if a.spec.State == v1beta2.RolloutRunning && a.status.HaltedAt.IsZero() {
		a.findPending()
	} else {
		a.admitted = Admitted{}
	}
}

// startedAt returns the time at which the rollout began.
func (a *advance) startedAt() time.Time {
	if !a.Rollout.CreationTimestamp.IsZero() {
		return a.Rollout.CreationTimestamp.Time
	}
	return a.status.Stage.StartedAt.Time
}

// findPending finds the runtimes that were admitted and have not begun yet. A runtime that has begun keeps the version
// without an admission. A runtime that cannot begin now loses its admission, so that it keeps no slot; it is admitted
// again when it can begin.
func (a *advance) findPending() {
	before := a.admitted
	a.admitted = Admitted{}
	for i := range a.members {
		if m := &a.members[i]; before[m.Token] && m.verdict == Waiting && m.Stage <= a.current() && a.canBegin(m) {
			a.reserve(m)
		}
	}
	slices.Sort(a.inFlight)
}

// reserve counts an admitted runtime as one that is being updated.
func (a *advance) reserve(m *member) {
	m.isAdmitted, a.admitted[m.Token] = true, true
	for _, t := range []*tally{&a.stages[m.Stage], &a.total} {
		t.pending++
		t.counts.Waiting--
		t.counts.Updating++
	}
	a.inFlight = append(a.inFlight, m.Kyma)
}

// canBegin reports whether a waiting runtime could begin now if its turn came.
func (a *advance) canBegin(m *member) bool {
	if !m.asked {
		m.asked, m.blocked = true, a.blockerOf(m)
	}
	return m.blocked == nil
}

// blockerOf returns what keeps a waiting runtime from beginning now, apart from its turn.
func (a *advance) blockerOf(m *member) *channel.Blocker {
	isLast := a.current() == len(a.stages)-1
	switch {
	case !m.UnreachableSince.IsZero():
		return &channel.Blocker{Code: m.UnreachableReason, Message: "the runtime cannot be used"}
	case m.State == v1beta2.StateError && a.Now.Sub(m.Since) >= a.deadline && !isLast:
		return &channel.Blocker{Code: m.Reason, Message: "the module is broken without the new version, so an update " +
			"would prove nothing: it follows in the last stage"}
	case m.IsBusy:
		return &channel.Blocker{Code: v1beta2.ReasonWaitingForRollout,
			Message: "another rollout is under way in the runtime"}
	case m.Blocked != nil:
		b := m.Blocked()
		if b != nil && !b.Until.IsZero() {
			a.after(b.Until.Sub(a.Now))
		}
		return b
	}
	return nil
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
	t.failing += o.failing
	t.silent += o.silent
}

// block adds a blocker of the rollout.
func (a *advance) block(b v1beta2.RolloutBlocker) { a.blockers = append(a.blockers, b) }

// command returns the klm command that does something with the rollout.
func (a *advance) command(verb string) string {
	return fmt.Sprintf("klm rollout %s %s", verb, a.Rollout.Name)
}
