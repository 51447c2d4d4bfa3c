package plan

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/admission"
)

// AssumedUpdate is the duration that a forecast assumes for one update as long as the rollout has not finished any
// update.
const AssumedUpdate = 2 * time.Minute

// FarAway is the time from now after which the next maintenance window of a runtime counts as late. A plan lists
// runtimes with a late window.
const FarAway = 14 * 24 * time.Hour

// horizon is the time that a forecast covers. A runtime that cannot begin within the horizon has no expected time.
const horizon = 366 * 24 * time.Hour

// Late is a runtime that has to wait for a long time for its maintenance window, and has no other blocker.
type Late struct {
	// Runtime is the name of the Kyma.
	Runtime string `json:"runtime"`
	// Stage is the name of the stage to which the runtime belongs.
	Stage string `json:"stage"`
	// Opens is the time at which the maintenance window of the runtime opens. If the runtime has no window, Opens is
	// zero.
	Opens time.Time `json:"opens,omitzero"`
	// Message states why the runtime has no window.
	Message string `json:"message,omitempty"`
}

// A forecast simulates the coordinator, with the same limits. A forecast assumes that every update takes the same time
// and succeeds. A forecast also assumes that people approve at once, and that gates that query a service pass at once.
// The simulation has these rules:
//
//   - A runtime begins with its update when its stage has begun, its window is open, no freeze lasts and a slot is
//     free.
//   - A stage is proven when enough of its runtimes that could begin are updated. The soak of the stage begins when the
//     stage is proven.
//   - A stage does not wait for runtimes whose window is closed.
type forecast struct {
	*Plan
	policy *v1beta2.RolloutPolicy // without its suspension; nil if there is none
	now    time.Time
	// The field opened has, for each stage, the sorted times from which the runtimes of the stage can begin their
	// updates. The field proven has, for each stage, the sorted times at which the runtimes of the stage are proven.
	opened, proven [][]time.Time
}

// candidate is a runtime that waits and has no blocker except its maintenance window.
type candidate struct {
	*rollout.Seen
	opens, closes time.Time // closes is zero if the update needs no window
}

// foresee computes when stages and runtimes begin, and when the rollout ends.
func (p *Plan) foresee(policy *v1beta2.RolloutPolicy, seen []rollout.Seen, now time.Time) {
	f := forecast{Plan: p, now: now, opened: make([][]time.Time, len(p.Stages)),
		proven: make([][]time.Time, len(p.Stages))}
	if policy != nil {
		f.policy = policy.DeepCopy()
		f.policy.Spec.Suspend = false
	}
	p.Update = updateTime(p.Rollout, seen)
	waiting, updating := make([][]*rollout.Seen, len(p.Stages)), make([]int, len(p.Stages))
	for i := range seen {
		s := &seen[i]
		switch s.Verdict {
		case rollout.Proven, rollout.Excused:
			f.addRuntime(s.Stage, now, now)
		case rollout.Updating:
			f.addRuntime(s.Stage, now, now.Add(p.Update))
			updating[s.Stage]++
		case rollout.Waiting:
			if endsByItself(s.Blocker) {
				waiting[s.Stage] = append(waiting[s.Stage], s)
			}
		}
	}
	begin, current := now, p.Rollout.Status.Stage
	for i := range p.Stages {
		s := &p.Stages[i]
		if i < int(current.Index) {
			s.Ends = f.simulateStage(i, now, waiting[i], updating[i])
			continue
		}
		if begin = f.endOfFreeze(begin); i == int(current.Index) && !current.StartedAt.IsZero() {
			s.Begins = current.StartedAt.Time
		} else {
			s.Begins = begin
		}
		s.Ends = f.simulateStage(i, begin, waiting[i], updating[i])
		if i < len(p.Stages)-1 {
			begin = f.nextStageBegin(i, begin)
		}
	}
	for i := range p.Stages {
		if e := p.Stages[i].Ends; e.After(p.Ends) {
			p.Ends = e
		}
	}
	slices.SortFunc(p.Late, func(a, b Late) int { return strings.Compare(a.Runtime, b.Runtime) })
}

// endsByItself reports whether the end of the blocker of a runtime is known: the runtime waits for its window, or its
// update is deferred.
func endsByItself(b *channel.Blocker) bool {
	return b == nil || isAdminDeferral(b) || b.Code == v1beta2.ReasonWaitingForWindow ||
		b.Code == v1beta2.ReasonWindowUnknown
}

func isAdminDeferral(b *channel.Blocker) bool {
	return b != nil && (b.Code == v1beta2.ReasonUpdateDeferred || b.Code == v1beta2.ReasonDeferralInvalid)
}

// addRuntime adds a runtime with the time from which it can begin, and the time at which it is proven.
func (f *forecast) addRuntime(stage int, canBegin, provenAt time.Time) {
	f.opened[stage], f.proven[stage] = append(f.opened[stage], canBegin), append(f.proven[stage], provenAt)
}

// updateTime returns the median duration of the updates of the rollout so far.
func updateTime(r *v1beta2.ModuleRollout, seen []rollout.Seen) time.Duration {
	var all []time.Duration
	for i := range seen {
		s := &seen[i]
		if s.Verdict == rollout.Proven && s.Rollout == r.Name && !s.Started.IsZero() && s.Since.After(s.Started) {
			all = append(all, s.Since.Sub(s.Started))
		}
	}
	if len(all) == 0 {
		return AssumedUpdate
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// endOfFreeze returns the first time after a given time at which no freeze is in force.
func (f *forecast) endOfFreeze(at time.Time) time.Time {
	const most = 100 // a policy has at most 32 freezes
	for range most {
		hold, change := rollout.HoldOfPolicy(f.policy, f.Rollout, at)
		if hold == nil || change <= 0 {
			break
		}
		at = at.Add(change)
	}
	return at
}

// findBegin sets the first time, not before the parameter at, at which the runtime of a candidate can begin. findBegin
// returns false if there is no such time within the horizon.
func (f *forecast) findBegin(c *candidate, at time.Time) bool {
	const most = 100
	if isAdminDeferral(c.Blocker) {
		at = later(at, c.Blocker.Until)
	}
	for range most {
		at = f.endOfFreeze(at)
		c.opens, c.closes = at, time.Time{}
		if c.Window == nil {
			break
		}
		w, err := c.Window(at)
		if err != nil || w.Begin.Sub(f.now) > horizon {
			return false
		}
		if w.Begin.After(at) {
			c.opens = w.Begin
		}
		if c.closes = w.End; !f.endOfFreeze(c.opens).After(c.opens) {
			break
		}
		at = c.opens
	}
	return c.opens.Sub(f.now) <= horizon
}

// StableETA chooses between the former and the new expected end of a rollout, after a new forecast was made. The chosen
// time is written into the status of the rollout. Because each forecast differs a little from the former one, the
// unrounded time would change the status at every reconcile. If the former and the new expected end differ only a
// little, StableETA returns the former one. If the former and the new expected end differ more, StableETA returns the
// new one, rounded up.
func StableETA(former, next, now time.Time) time.Time {
	if next.IsZero() {
		return next
	}
	left, unit := next.Sub(now), time.Minute
	switch {
	case left > 48*time.Hour:
		unit = time.Hour
	case left > 2*time.Hour:
		unit = 10 * time.Minute
	}
	if former.After(now) && next.Sub(former).Abs() <= max(unit, left/10) {
		return former
	}
	return next.Add(unit - 1).Truncate(unit)
}

// queue has candidates in the order in which they begin.
type queue []*candidate

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q queue) Less(i, j int) bool {
	a, b := q[i], q[j]
	if c := a.opens.Compare(b.opens); c != 0 {
		return c < 0
	}
	if a.IsHurt != b.IsHurt {
		return a.IsHurt
	}
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), strings.Compare(a.Kyma, b.Kyma)) < 0
}
func (q *queue) Push(x any) { *q = append(*q, x.(*candidate)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// simulateStage computes when each waiting runtime of a stage begins its update, if the stage begins at the time in the
// parameter from. Each runtime that is being updated uses one slot. simulateStage returns the time at which the last
// runtime of the stage is expected to be proven. If all runtimes are proven already, simulateStage returns the zero
// time.
func (f *forecast) simulateStage(stage int, from time.Time, waiting []*rollout.Seen, updating int) (
	lastProven time.Time) {
	s, spec := &f.Stages[stage], &f.Rollout.Spec.Stages[stage].RolloutStage
	slots, perMinute := s.Concurrency, int(spec.MaxStartsPerMinute)
	if f.policy != nil {
		for _, most := range []int32{f.policy.Spec.MaxUpdating, f.policy.Status.FleetMaxUpdating} {
			if most > 0 {
				slots = min(slots, int(most))
			}
		}
	}
	var q queue
	for _, w := range waiting {
		c := &candidate{Seen: w}
		isKnown := f.findBegin(c, from)
		if !isKnown || !c.closes.IsZero() && c.opens.Sub(f.now) > FarAway {
			f.addLate(c, isKnown)
		}
		if isKnown {
			q = append(q, c)
		}
	}
	heap.Init(&q)
	starts := make([]time.Time, updating, updating+len(q)) // sorted; each has a slot until its update ends
	for i := range starts {
		starts[i] = f.now
	}
	for len(q) > 0 {
		c, n := q[0], len(starts)
		at := c.opens
		if n >= slots {
			at = later(at, starts[n-slots].Add(f.Update))
		}
		if perMinute > 0 && n-updating >= perMinute {
			at = later(at, starts[n-perMinute].Add(time.Minute))
		}
		if !c.closes.IsZero() && !at.Before(c.closes) || f.endOfFreeze(at).After(at) { // it would begin too late
			if f.findBegin(c, at) {
				heap.Fix(&q, 0)
			} else {
				heap.Pop(&q)
			}
			continue
		}
		heap.Pop(&q)
		starts = append(starts, at)
		m := f.Members[c.Kyma]
		m.Begins = at
		f.Members[c.Kyma] = m
		f.addRuntime(stage, c.opens, at.Add(f.Update))
	}
	slices.SortFunc(f.opened[stage], time.Time.Compare)
	slices.SortFunc(f.proven[stage], time.Time.Compare)
	if n := len(f.proven[stage]); n > 0 && f.proven[stage][n-1].After(f.now) {
		return f.proven[stage][n-1]
	}
	return time.Time{}
}

// addLate adds a runtime to the late runtimes if its window opens late or if it has no window.
func (f *forecast) addLate(c *candidate, isBeginKnown bool) {
	late := Late{Runtime: c.Kyma, Stage: f.Stages[c.Stage].Name}
	if c.Window != nil {
		w, err := c.Window(f.now)
		if late.Opens = c.opens; !isBeginKnown {
			late.Opens = w.Begin
		}
		if err != nil {
			late.Opens, late.Message = time.Time{}, err.Error()
		}
	}
	f.Late = append(f.Late, late)
}

// nextStageBegin returns the time at which the stage after the given stage is expected to begin. Before the next stage
// can begin, the given stage must reach its quorum, its soak must end, and the times of its gates with a time must
// come. In addition, enough runtimes of the stages up to the given stage must be proven.
func (f *forecast) nextStageBegin(stage int, begin time.Time) time.Time {
	spec, status := &f.Rollout.Spec.Stages[stage].RolloutStage, f.Rollout.Status.Stage
	isCurrent := stage == int(status.Index)
	end, isProven := f.quorumTime(stage, begin)
	switch {
	case isCurrent && !status.SoakUntil.IsZero():
		end = later(f.now, status.SoakUntil.Time)
	case isProven:
		end = end.Add(spec.Soak.Duration)
	}
	for _, g := range spec.Gates {
		if g.NotBefore != nil {
			end = later(end, g.NotBefore.Time)
		}
	}
	var all []time.Time
	before := 0
	for i := range stage + 1 {
		all = append(all, f.proven[i]...)
		before += f.Stages[i].Runtimes
	}
	if need := rollout.NeededEvidence(f.Rollout, stage+1, before); need > 0 && len(all) > 0 {
		slices.SortFunc(all, time.Time.Compare)
		end = later(end, all[min(need, len(all))-1])
	}
	return end
}

// quorumTime returns the expected time at which a stage has its quorum. At this time, enough runtimes of the stage are
// proven, among those that have been able to begin their updates. If no runtime of the stage can begin its update
// before a deadline, the stage passes at the deadline, and the result hasQuorum is false. The result hasQuorum is also
// false for a stage without runtimes, which passes when it begins.
func (f *forecast) quorumTime(stage int, begin time.Time) (at time.Time, hasQuorum bool) {
	opened, proven := f.opened[stage], f.proven[stage]
	if f.Stages[stage].Runtimes == 0 {
		return begin, false
	}
	if deadline := begin.Add(admission.RuntimeDeadline(f.Rollout)); len(opened) == 0 || opened[0].After(deadline) {
		return deadline, false
	}
	could := 0
	for i, t := range proven {
		for could < len(opened) && !opened[could].After(t) {
			could++
		}
		if i+1 >= rollout.Quorum(f.Rollout, could) {
			return later(t, begin), true
		}
	}
	return later(proven[len(proven)-1], begin), true
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
