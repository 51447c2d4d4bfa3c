package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

// windows is a policy in which runtimes of region sat have a window on Saturdays, and runtimes of region night have a
// window each night. Runtimes of the region with the name "none" have no window. The windows begin after the constant
// time now, which is a Sunday.
func windows(t *testing.T) *channel.Policy {
	t.Helper()
	p, err := channel.ParsePolicy([]byte(`{"rules": [
		{"match": {"region": "^sat$"}, "windows": [{"days": ["Sat"], "begin": "02:00:00Z", "end": "05:00:00Z"}]},
		{"match": {"region": "^night$"}, "windows": [{"days": ["Mon","Tue","Wed","Thu","Fri","Sat","Sun"],
			"begin": "22:00:00Z", "end": "23:00:00Z"}]},
		{"match": {"region": "^far$"}, "windows": [{"begin": "2027-03-01T00:00:00Z", "end": "2027-03-02T00:00:00Z"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// inRegion gives a runtime the maintenance window that the policy has for a region. If the parameter region is "", the
// runtime needs no window.
func inRegion(p *channel.Policy, r *rollout.Runtime, region string, clock *time.Time) {
	switch region {
	case "":
		return
	case "deferred":
		until := now.Add(75 * time.Hour)
		r.Blocked = func() *channel.Blocker {
			if clock.Before(until) {
				return &channel.Blocker{Code: v1beta2.ReasonUpdateDeferred, Until: until}
			}
			return nil
		}
		return
	}
	set := map[string]string{v1beta2.LabelRegion: region}
	r.Window = func(at time.Time) (channel.MaintenanceWindow, error) { return p.CurrentOrNextWindow(set, at) }
	r.Blocked = func() *channel.Blocker {
		w, err := r.Window(*clock)
		switch {
		case err != nil:
			return &channel.Blocker{Code: v1beta2.ReasonWindowUnknown}
		case !w.IsOpen(*clock):
			return &channel.Blocker{Code: v1beta2.ReasonWaitingForWindow, Until: w.Begin}
		}
		return nil
	}
}

// policyOf returns a policy with one stage for 40 runtimes, of which ten are updated at the same time.
func policyOf(change func(*v1beta2.RolloutPolicySpec)) *v1beta2.RolloutPolicy {
	p := &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "standard"}, Spec: v1beta2.RolloutPolicySpec{
		Stages: []v1beta2.RolloutStage{{Name: "all", MaxConcurrency: new(intstr.FromInt32(10))}}}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

// moveBy returns a rollout from 1.0.0 to 2.0.0 with the stages of the policy p.
func moveBy(p *v1beta2.RolloutPolicy) *v1beta2.ModuleRollout {
	return rollout.New(rollout.Move{Module: "mod", Channel: "regular", From: "1.0.0", To: "2.0.0", Policy: p})
}

// TestForecast checks the expected times at which runtimes begin, with windows, freezes and limits.
func TestForecast(t *testing.T) {
	saturday := time.Date(2026, 11, 7, 2, 0, 0, 0, time.UTC)
	freeze := func(from, to time.Time, except ...v1beta2.FreezeException) func(*v1beta2.RolloutPolicySpec) {
		return func(s *v1beta2.RolloutPolicySpec) {
			s.Freezes = []v1beta2.RolloutFreeze{{Name: "f", From: metav1.NewTime(from), To: metav1.NewTime(to),
				Except: except}}
		}
	}
	for name, c := range map[string]struct {
		reason      string
		region      func(i int) string
		policy      func(*v1beta2.RolloutPolicySpec)
		fleet       int32 // the limit of the manager for all policies
		first, ends time.Time
		late        int
		hold        string
	}{
		"Open": {reason: "four rounds of two minutes", region: func(int) string { return "" }, first: now,
			ends: now.Add(4 * AssumedUpdate)},
		"Saturday": {reason: "nobody can begin before", region: func(int) string { return "sat" }, first: saturday,
			ends: saturday.Add(4 * AssumedUpdate)},
		"HalfOnSaturday": {reason: "the others do not wait for them", first: now, ends: saturday.Add(2 * AssumedUpdate),
			region: func(i int) string {
				if i%2 == 0 {
					return "sat"
				}
				return ""
			}},
		"TooManyForOneNight": {reason: "30 begin in an hour, and the others in the next night",
			region: func(int) string { return "night" }, first: now.Add(22 * time.Hour),
			policy: func(s *v1beta2.RolloutPolicySpec) { s.MaxUpdating = 1 },
			ends:   now.Add(46*time.Hour + 10*AssumedUpdate)},
		"MaxUpdating": {reason: "the limit of the fleet", region: func(int) string { return "" }, first: now,
			policy: func(s *v1beta2.RolloutPolicySpec) { s.MaxUpdating = 4 }, ends: now.Add(10 * AssumedUpdate)},
		"FleetMaxUpdating": {reason: "the limit of the manager", region: func(int) string { return "" }, first: now,
			policy: func(s *v1beta2.RolloutPolicySpec) { s.MaxUpdating = 8 }, fleet: 4,
			ends: now.Add(10 * AssumedUpdate)},
		"PerMinute": {reason: "five begin in a minute", region: func(int) string { return "" }, first: now,
			policy: func(s *v1beta2.RolloutPolicySpec) { s.Stages[0].MaxStartsPerMinute = 5 },
			ends:   now.Add(7*time.Minute + AssumedUpdate)},
		"Freeze": {reason: "nobody begins before its end", region: func(int) string { return "" },
			policy: freeze(now.Add(-time.Hour), now.Add(time.Hour)), first: now.Add(time.Hour),
			ends: now.Add(time.Hour + 4*AssumedUpdate), hold: v1beta2.ReasonRolloutFrozen},
		"FreezeInTheMiddle": {reason: "one round is over when it begins", region: func(int) string { return "" },
			policy: freeze(now.Add(time.Minute), now.Add(time.Hour)), first: now,
			ends: now.Add(time.Hour + 3*AssumedUpdate)},
		"FreezeOverWindow": {reason: "the window of the next week is used", region: func(int) string { return "sat" },
			policy: freeze(saturday.Add(-time.Hour), saturday.Add(4*time.Hour)), first: saturday.AddDate(0, 0, 7),
			ends: saturday.AddDate(0, 0, 7).Add(4 * AssumedUpdate)},
		"FreezeInThePast": {reason: "it is over", region: func(int) string { return "" }, first: now,
			policy: freeze(now.Add(-2*time.Hour), now.Add(-time.Hour)), ends: now.Add(4 * AssumedUpdate)},
		"FreezeExceptBack": {reason: "this one is not a way back", region: func(int) string { return "" },
			policy: freeze(now.Add(-time.Hour), now.Add(time.Hour), v1beta2.ExceptBack), first: now.Add(time.Hour),
			ends: now.Add(time.Hour + 4*AssumedUpdate), hold: v1beta2.ReasonRolloutFrozen},
		"Suspended": {reason: "as if it went on now, and it says so", region: func(int) string { return "" },
			policy: func(s *v1beta2.RolloutPolicySpec) { s.Suspend = true }, first: now,
			ends: now.Add(4 * AssumedUpdate), hold: v1beta2.ReasonRolloutSuspended},
		"Far": {reason: "its window is months away", first: now, late: 1,
			ends: time.Date(2027, 3, 1, 0, 2, 0, 0, time.UTC), region: func(i int) string {
				return map[bool]string{true: "far"}[i == 7]
			}},
		"Deferred": {reason: "its admin waits for Wednesday", first: now, ends: now.Add(75*time.Hour + AssumedUpdate),
			region: func(i int) string { return map[bool]string{true: "deferred"}[i == 7] }},
		"None": {reason: "no rule is for it", first: now, late: 1, ends: now.Add(4 * AssumedUpdate),
			region: func(i int) string { return map[bool]string{true: "none"}[i == 7] }},
	} {
		t.Run(name, func(t *testing.T) {
			clock, all, policy := now, fleet(), policyOf(c.policy)
			policy.Status.FleetMaxUpdating = c.fleet
			all[1].Blocked = nil
			for i := range all {
				inRegion(windows(t), &all[i], c.region(i), &clock)
			}
			r := moveBy(policy)
			p, err := For(r, policy, all, now)
			if err != nil {
				t.Fatal(err)
			}
			first := time.Time{}
			for _, m := range p.Members {
				if first.IsZero() || !m.Begins.IsZero() && m.Begins.Before(first) {
					first = m.Begins
				}
			}
			if !first.Equal(c.first) || !p.Ends.Equal(c.ends) {
				t.Errorf("%s: the first begins at %s, want %s; the last has it at %s, want %s", c.reason, first,
					c.first, p.Ends, c.ends)
			}
			if len(p.Late) != c.late || (p.Hold == nil) != (c.hold == "") || p.Hold != nil && p.Hold.Code != c.hold {
				t.Errorf("%s: late %+v, hold %+v", c.reason, p.Late, p.Hold)
			}
		})
	}
}

// TestUpdateTime checks that an update is expected to take as long as the earlier updates.
func TestUpdateTime(t *testing.T) {
	all, policy := fleet(), policyOf(nil)
	r := moveBy(policy)
	for i, took := range []time.Duration{5 * time.Minute, time.Minute, time.Hour} {
		all[i].Ordered, all[i].Rollout, all[i].IsObserved = "2.0.0", r.Name, true
		all[i].Started, all[i].Since = now.Add(-2*time.Hour), now.Add(took-2*time.Hour)
	}
	p, err := For(r, policy, all, now)
	if err != nil || p.Update != 5*time.Minute {
		t.Errorf("an update takes %s, %v", p.Update, err)
	}
}

// TestKeepETA checks that an expected end does not change because of small differences.
func TestKeepETA(t *testing.T) {
	in := func(d time.Duration) time.Time { return now.Add(d) }
	for name, c := range map[string]struct {
		reason             string
		former, next, want time.Time
	}{
		"First":    {"rounded up", time.Time{}, in(61 * time.Second), in(2 * time.Minute)},
		"Hours":    {"rounded up to ten minutes", time.Time{}, in(3*time.Hour + time.Second), in(190 * time.Minute)},
		"Days":     {"rounded up to an hour", time.Time{}, in(72*time.Hour + time.Minute), in(73 * time.Hour)},
		"Same":     {"it stays", in(10 * time.Hour), in(10*time.Hour + 50*time.Minute), in(10 * time.Hour)},
		"Later":    {"it matters", in(10 * time.Hour), in(12 * time.Hour), in(12 * time.Hour)},
		"Earlier":  {"it matters", in(10 * time.Hour), in(time.Hour), in(time.Hour)},
		"Past":     {"the former one was wrong", in(-time.Minute), in(time.Minute), in(time.Minute)},
		"Nobody":   {"nothing to wait for", in(time.Hour), time.Time{}, time.Time{}},
		"OneShort": {"minutes count in the last minutes", in(5 * time.Minute), in(7 * time.Minute), in(7 * time.Minute)},
	} {
		if got := StableETA(c.former, c.next, now); !got.Equal(c.want) {
			t.Errorf("%s: %s: %s, want %s", name, c.reason, got, c.want)
		}
	}
}

// TestForecastIsExecuted checks that each runtime begins at the forecast time if updates take as long as expected.
// While runtimes are being updated, the test calls rollout.Advance every half minute, which is the function with which
// the coordinator decides.
func TestForecastIsExecuted(t *testing.T) {
	const step = 30 * time.Second
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			policy := policyOf(func(s *v1beta2.RolloutPolicySpec) {
				s.Stages = []v1beta2.RolloutStage{
					{Name: "half", Percent: 50,
						Soak:           metav1.Duration{Duration: time.Duration(random.IntN(3)) * time.Hour},
						MaxConcurrency: new(intstr.FromInt32(1 + random.Int32N(8)))},
					{Name: "rest", MaxConcurrency: new(intstr.FromInt32(1 + random.Int32N(8)))},
				}
				if random.IntN(2) == 0 {
					from := now.Add(time.Duration(random.IntN(60)) * time.Minute)
					s.Freezes = []v1beta2.RolloutFreeze{{Name: "f", From: metav1.NewTime(from),
						To: metav1.NewTime(from.Add(time.Duration(1+random.IntN(90)) * time.Minute))}}
				}
			})
			clock, all := now, fleet()
			all[1].Blocked = nil
			regions := []string{"", "", "night", "sat", "deferred"}
			for i := range all {
				inRegion(windows(t), &all[i], regions[random.IntN(len(regions))], &clock)
			}
			r := moveBy(policy)
			r.CreationTimestamp = metav1.NewTime(now)
			p, err := For(r, policy, all, now)
			if err != nil {
				t.Fatal(err)
			}
			began := execute(t, r, policy, all, &clock, step)
			for name, m := range p.Members {
				if d := began[name].Sub(m.Begins).Abs(); d > 2*step {
					t.Errorf("%s of stage %s begins at %s, and was expected at %s", name, m.Stage, began[name], m.Begins)
				}
			}
		})
	}
}

// execute advances a rollout until it has ended, and returns the time at which each runtime has begun.
func execute(t *testing.T, r *v1beta2.ModuleRollout, policy *v1beta2.RolloutPolicy, all []rollout.Runtime,
	clock *time.Time, step time.Duration) map[string]time.Time {
	t.Helper()
	began := map[string]time.Time{}
	var next time.Duration
	for ; !r.Status.Phase.IsOver(); *clock = clock.Add(next) {
		for i := range all {
			if at := began[all[i].Kyma]; !at.IsZero() && !all[i].IsReady && clock.Sub(at) >= AssumedUpdate {
				all[i].IsReady, all[i].State, all[i].Since, all[i].IsObserved = true, v1beta2.StateReady, *clock, true
			}
		}
		in := rollout.Inputs{Rollout: r, Runtimes: all, Now: *clock, Slots: -1}
		in.Hold, _ = rollout.HoldOfPolicy(policy, r, *clock)
		result, err := rollout.Advance(in)
		if err == nil && clock.Sub(now) > 60*24*time.Hour {
			err = errors.New("the rollout does not end")
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.Status, next = result.Status, step; len(result.InFlight) == 0 { // nothing happens before
			next = max(step, result.Next.Truncate(step))
			if result.Status.Phase == v1beta2.RolloutHeld {
				_, next = rollout.HoldOfPolicy(policy, r, *clock)
			}
		}
		for i := range all {
			a := &all[i]
			for _, name := range result.Admitted {
				if a.Kyma == name {
					began[name] = *clock
					a.Ordered, a.IsReady, a.Started, a.Rollout = "2.0.0", false, *clock, r.Name
					a.State, a.IsObserved = v1beta2.StateProcessing, false
				}
			}
		}
	}
	return began
}
