package calendar

import (
	"cmp"
	"slices"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

// Freeze is a period in which the rollouts of a RolloutPolicy admit no runtime.
type Freeze struct {
	// Context is the name of the control plane of this entry. Context is set only if the calendar shows several control
	// planes.
	Context string `json:"context,omitempty"`
	// Policy is the name of the RolloutPolicy. Name is the name of the freeze.
	Policy string    `json:"policy"`
	Name   string    `json:"name"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	// Except are the kinds of rollouts that the freeze does not stop.
	Except []v1beta2.FreezeException `json:"except,omitempty"`
	// State is past, now or later.
	State string `json:"state"`
	// Stops are the active rollouts that the freeze stops, at most MaxNames. Spares are the active rollouts that
	// continue during the freeze, because the freeze makes an exception for them.
	Stops  []string `json:"stops,omitempty"`
	Spares []string `json:"spares,omitempty"`
}

// The states of a freeze.
const (
	Past  = "past"
	Now   = "now"
	Later = "later"
)

// addFreezesAndSuspensions adds the freezes that are in force during the month, and the RolloutPolicies that suspend
// all their rollouts.
func (c *Calendar) addFreezesAndSuspensions(in Inputs) {
	for i := range in.Policies {
		p := &in.Policies[i]
		if p.Spec.Suspend {
			c.Suspended = append(c.Suspended, p.Name)
		}
		for _, f := range p.Spec.Freezes {
			if !c.overlaps(f.From.Time, f.To.Time) {
				continue
			}
			is := Freeze{Policy: p.Name, Name: f.Name, From: f.From.Time, To: f.To.Time, Except: f.Except, State: Now}
			switch {
			case !in.Now.Before(is.To):
				is.State = Past
			case in.Now.Before(is.From):
				is.State = Later
			}
			only := &v1beta2.RolloutPolicy{ObjectMeta: p.ObjectMeta, Spec: v1beta2.RolloutPolicySpec{
				Freezes: []v1beta2.RolloutFreeze{f}}}
			for _, r := range in.Rollouts {
				if is.State == Past || r.Spec.Policy != p.Name || r.Status.Phase.IsOver() {
					continue
				}
				list := &is.Stops
				if hold, _ := rollout.HoldOfPolicy(only, r, is.From); hold == nil {
					list = &is.Spares
				}
				if len(*list) < MaxNames {
					*list = append(*list, r.Name)
				}
			}
			c.Freezes = append(c.Freezes, is)
		}
	}
}

// Stage is one row of the calendar. The row shows one stage of a rollout, or the whole rollout if the rollout has ended
// or has no stages.
type Stage struct {
	// Context is the name of the control plane of this entry. Context is set only if the calendar shows several control
	// planes.
	Context string `json:"context,omitempty"`
	Rollout string `json:"rollout"`
	Module  string `json:"module"`
	Channel string `json:"channel"`
	From    string `json:"from,omitempty"`
	To      string `json:"to"`
	// Stage is the name of the stage, "" for a whole rollout.
	Stage string `json:"stage,omitempty"`
	// If the row shows the current stage or a whole rollout, State is the phase of the rollout. State is "later" for a
	// stage that has not begun. State is "outstanding" for a stage that has passed although some of its runtimes could
	// not be updated.
	State string `json:"state"`
	// Runtimes is the number of runtimes of the stage. Waiting is the number of runtimes of the stage that have not
	// begun with the update. Runtimes and Waiting are 0 until the manager has counted the runtimes of the stage.
	Runtimes int `json:"runtimes"`
	Waiting  int `json:"waiting,omitempty"`
	// Begins and Ends are the times at which the stage has begun and ended, or is expected to begin and to end. If a
	// time is not known, Begins or Ends is zero.
	Begins time.Time `json:"begins,omitzero"`
	Ends   time.Time `json:"ends,omitzero"`
	// IsExpected means that the time Begins is a forecast. The time Ends is always a forecast, unless the rollout has
	// ended.
	IsExpected bool `json:"expected,omitempty"`
	// Why is the reason why the rollout cannot continue now.
	Why string `json:"why,omitempty"`
}

// The values stageLater and stageOutstanding of Stage.State are for stages other than the current one.
const (
	stageLater       = "later"
	stageOutstanding = "outstanding"
)

// addRolloutsAndStagesOfMonth adds the stages and the rollouts of the month. A stage without a known time is shown in
// the present month and in all later ones.
func (c *Calendar) addRolloutsAndStagesOfMonth(in Inputs) {
	isFuture := in.Now.Before(c.Ends)
	for _, r := range in.Rollouts {
		var policy *v1beta2.RolloutPolicy
		for i := range in.Policies {
			if in.Policies[i].Name == r.Spec.Policy {
				policy = &in.Policies[i]
			}
		}
		for _, s := range calendarRowsOf(r, policy, in.Now) {
			from, to := s.Begins, s.Ends
			if from.IsZero() {
				from = to
			}
			if isOpen := to.IsZero(); isOpen && !from.After(in.Now) && !s.IsRolloutOver() {
				to = in.Now // it continues at least until now
			} else if isOpen {
				to = from
			}
			switch {
			case from.IsZero():
				if isFuture {
					c.Stages = append(c.Stages, s)
				}
			case c.overlaps(from, to), c.has(from):
				c.Stages = append(c.Stages, s)
			}
		}
	}
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// IsRolloutOver reports whether the rollout has ended.
func (s *Stage) IsRolloutOver() bool { return v1beta2.RolloutPhase(s.State).IsOver() }

// calendarRowsOf returns the stages of a rollout that have not ended, in their order.
func calendarRowsOf(r *v1beta2.ModuleRollout, policy *v1beta2.RolloutPolicy, now time.Time) []Stage {
	status := &r.Status
	all := Stage{Rollout: r.Name, Module: r.Spec.Module, Channel: r.Spec.Channel, From: r.Spec.From, To: r.Spec.To,
		State: cmp.Or(string(status.Phase), string(v1beta2.RolloutPending)), Runtimes: int(status.Runtimes.InScope),
		Waiting: int(status.Runtimes.Waiting), Begins: r.CreationTimestamp.Time, Ends: status.EndedAt.Time}
	if status.Phase.IsOver() || len(r.Spec.Stages) == 0 {
		if all.Waiting = 0; !status.Phase.IsOver() {
			all.Waiting = int(status.Runtimes.Waiting)
		}
		return []Stage{all}
	}
	all.Why = whyStopped(r, policy, now)
	var stages []Stage
	for i := range r.Spec.Stages {
		s := all
		s.Stage, s.Begins, s.Ends, s.Runtimes, s.Waiting = r.Spec.Stages[i].Name, time.Time{}, time.Time{}, 0, 0
		at := slices.IndexFunc(status.Stages, func(is v1beta2.RolloutStageResult) bool { return is.Name == s.Stage })
		if at >= 0 {
			is := &status.Stages[at]
			s.Runtimes, s.Waiting = int(is.InScope), int(is.Waiting)
			s.Begins, s.Ends = is.ExpectedBegin.Time, is.ExpectedEnd.Time
		}
		switch current := int(status.Stage.Index); {
		case i < current && s.Waiting == 0:
			continue
		case i < current:
			s.State, s.Begins = stageOutstanding, time.Time{}
		case i == current && !status.Stage.StartedAt.IsZero():
			s.Begins = status.Stage.StartedAt.Time
		case i > current:
			s.State, s.IsExpected = stageLater, !s.Begins.IsZero()
		default:
			s.IsExpected = !s.Begins.IsZero()
		}
		stages = append(stages, s)
	}
	return stages
}

// whyStopped returns the reason why a rollout cannot continue now, or "".
func whyStopped(r *v1beta2.ModuleRollout, policy *v1beta2.RolloutPolicy, now time.Time) string {
	if hold, _ := rollout.HoldOfPolicy(policy, r, now); hold != nil {
		return hold.Message
	}
	switch phase := r.Status.Phase; {
	case r.Spec.State != "" && r.Spec.State != v1beta2.RolloutRunning:
		return "a person has set its state to " + string(r.Spec.State)
	case phase == v1beta2.RolloutHalted || phase == v1beta2.RolloutHeld || phase == v1beta2.RolloutWaitingForGate ||
		phase == v1beta2.RolloutPending || phase == "":
		return r.Status.Message
	}
	return ""
}

// Deferral are the runtimes whose admins have deferred a rollout until the same time.
type Deferral struct {
	// Context is the name of the control plane of this entry. Context is set only if the calendar shows several control
	// planes.
	Context string `json:"context,omitempty"`
	Rollout string `json:"rollout"`
	Module  string `json:"module"`
	Channel string `json:"channel"`
	To      string `json:"to"`
	// Until is the time at which the deferral ends: the time that the admin has asked for, or the limit of the policy
	// if that is earlier.
	Until time.Time `json:"until"`
	// Runtimes is the number of runtimes whose admins have deferred the rollout, and Names are the names of some of
	// them.
	Runtimes int      `json:"runtimes"`
	Names    []string `json:"names,omitempty"`
}

// addDeferralsEndingInMonth adds to the calendar the deferrals that end in the calendar's month.
func (c *Calendar) addDeferralsEndingInMonth(in Inputs) {
	for _, r := range in.Rollouts {
		limit := rollout.DeferrableUntil(r, nil, in.Now)
		if r.Status.Phase.IsOver() || r.Spec.IsRollback() || limit.IsZero() {
			continue
		}
		found := map[time.Time]*Deferral{}
		for i := range in.Runtimes {
			k := &in.Runtimes[i]
			if k.Deferring == nil {
				continue
			}
			version, from := k.Module(r.Spec.Module)
			if version == "" || version == r.Spec.To || from != r.Spec.Channel {
				continue
			}
			request := channel.RequestFor(k.Deferring, channel.LastRuntimeKymaOf(k.Deferring), &v1beta2.Module{
				Name: r.Spec.Module, Channel: r.Spec.Channel})
			request.Now = in.Now
			until, _ := channel.DeferredUntil(request, limit) // a deferral that cannot be parsed lasts until the limit
			if until.IsZero() || !c.has(until) {
				continue
			}
			d := found[until.UTC()]
			if d == nil {
				d = &Deferral{Rollout: r.Name, Module: r.Spec.Module, Channel: r.Spec.Channel, To: r.Spec.To,
					Until: until}
				found[until.UTC()] = d
			}
			if d.Runtimes++; len(d.Names) < MaxNames {
				d.Names = append(d.Names, k.Name)
			}
		}
		for _, d := range found {
			c.Deferrals = append(c.Deferrals, *d)
		}
	}
}
