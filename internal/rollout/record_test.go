package rollout

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/urgency"
)

// haltedChannel returns a channel whose rollout from 1.0.0 to 2.0.0 is halted, and for which PlanMove makes a rollout
// back to 1.0.0. To allow the rollout back, the policy of this channel takes all runtimes back after a halt, and all
// versions of the module declare that going back to a lower version is safe.
func haltedChannel() Channel {
	release := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: "mod"},
		Spec: v1beta2.ModuleReleaseMetaSpec{
			Channels: []v1beta2.ChannelVersion{{Channel: "regular", Version: "2.0.0"}}}}
	release.Status.Channels = []v1beta2.ChannelStatus{{Channel: "regular", Version: "1.0.0", Target: "2.0.0",
		Revision: 2,
		Rollout:  "mod-regular-r2", Policy: "p", History: []v1beta2.ChannelMove{{Revision: 2, Version: "2.0.0"}}}}
	policy := &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1beta2.RolloutPolicySpec{
		OnHalt: v1beta2.HaltTakeBack, Stages: []v1beta2.RolloutStage{{Name: "all"}}}}
	active := New(Move{Module: "mod", Channel: "regular", From: "1.0.0", To: "2.0.0", Revision: 2, Policy: policy})
	active.Status.Phase, active.Status.HaltedAt = v1beta2.RolloutHalted, metav1.NewTime(start)
	return Channel{Release: release, Name: "regular", Policy: policy, Active: active, Now: start.Add(time.Minute),
		LastRevision: 2, Runtimes: []Runtime{{Kyma: "a", Ordered: "2.0.0"}, {Kyma: "b", Ordered: "1.0.0"}},
		GoesBack: func(from, to string) error {
			if channel.IsLower(to, from) {
				return nil
			}
			return errors.New("not lower")
		}}
}

// TestTakesBack checks when runtimes are taken back automatically after a halt: the version must declare that going
// back is safe, the policy must require it, and no person may have decided otherwise.
func TestTakesBack(t *testing.T) {
	for name, c := range map[string]struct {
		reason     string
		change     func(*Channel)
		isBack     bool
		onlyFailed bool
		ended      v1beta2.RolloutPhase
	}{
		"TakeBack": {reason: "the policy says so", change: func(*Channel) {}, isBack: true,
			ended: v1beta2.RolloutTakenBack},
		"Failed": {reason: "only those that have failed", change: func(c *Channel) {
			c.Active.Spec.OnHalt = v1beta2.HaltTakeBackFailed
		}, isBack: true, onlyFailed: true, ended: v1beta2.RolloutTakenBack},
		"Urgent": {reason: "the urgency was declared for the way there", change: func(c *Channel) {
			c.Urgency = urgency.Urgency{Is: v1beta2.UrgencyEmergency, Reason: "a leak", IgnoreWindows: true}
		}, isBack: true, ended: v1beta2.RolloutTakenBack},
		"Hold":    {reason: "a person decides", change: func(c *Channel) { c.Active.Spec.OnHalt = v1beta2.HaltHold }},
		"Default": {reason: "likewise", change: func(c *Channel) { c.Active.Spec.OnHalt = "" }},
		"NoEdge": {reason: "nobody knows whether it is safe", change: func(c *Channel) {
			c.GoesBack = func(string, string) error { return errors.New("not declared") }
		}},
		"NotHalted": {reason: "it goes on", change: func(c *Channel) { c.Active.Status.HaltedAt = metav1.Time{} }},
		"Paused": {reason: "a person looks at it", change: func(c *Channel) {
			c.Active.Spec.State = v1beta2.RolloutPaused
		}},
		"Resumed": {reason: "a person lets it go on", change: func(c *Channel) {
			c.Active.Spec.Resumptions = []v1beta2.RolloutResumption{{By: "ann", Reason: "known"}}
		}},
		"MovedOn": {reason: "a person has corrected it", change: func(c *Channel) {
			c.Release.Spec.Channels[0].Version = "2.0.1"
		}, ended: v1beta2.RolloutSuperseded},
	} {
		t.Run(name, func(t *testing.T) {
			in := haltedChannel()
			c.change(&in)
			is := PlanMove(in)
			if is.Ended != c.ended {
				t.Errorf("%s: the rollout ends as %q, want %q", c.reason, is.Ended, c.ended)
			}
			back := is.Make != nil && is.Make.Spec.IsRollback()
			if back != c.isBack || (is.Withdraw == "2.0.0") != c.isBack ||
				(is.Status.TakenBack == "2.0.0") != c.isBack {
				t.Fatalf("%s: back %v, withdraws %q, taken back %q", c.reason, back, is.Withdraw, is.Status.TakenBack)
			}
			if back && (is.Make.Spec.Urgency != "" || is.Make.Spec.IgnoreWindows) {
				t.Errorf("%s: the way back is urgent: %+v", c.reason, is.Make.Spec)
			}
			if back && (is.Make.Spec.OnlyFailed != c.onlyFailed || is.Make.Spec.From != "2.0.0" ||
				is.Make.Spec.To != "1.0.0") {
				t.Errorf("%s: %+v", c.reason, is.Make.Spec)
			}
		})
	}
}

// TestWayBackWithoutPolicy checks that a rollout that takes runtimes back has limits, also if the policy was deleted
// during the rollout to the newer version.
func TestWayBackWithoutPolicy(t *testing.T) {
	setBack := func(c *Channel) { c.Release.Spec.Channels[0].Version = "1.0.0" }
	for name, c := range map[string]struct {
		reason string
		change func(*Channel)
		want   int32 // the concurrency; 0: the default one; -1: there are no stages
		most   int32 // the limit of the policy
	}{
		"Halted":  {"the policy said so", func(*Channel) {}, 3, 7},
		"SetBack": {"a person has set the channel back", setBack, 3, 7},
		"Deleted": {"the rollout was deleted, too", func(c *Channel) {
			setBack(c)
			c.Active = nil
		}, 0, 0},
		"AtOnce": {"the move never had a policy", func(c *Channel) {
			setBack(c)
			c.Active.Spec.Policy, c.Active.Spec.Stages, c.Release.Status.Channels[0].Policy = "", nil, ""
		}, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			in := haltedChannel()
			in.Active.Spec.Stages[0].MaxConcurrency, in.Active.Spec.MaxUpdating = new(intstr.FromInt32(3)), 7
			in.Policy = nil
			c.change(&in)
			is := PlanMove(in)
			if is.Make == nil || !is.Make.Spec.IsRollback() {
				t.Fatalf("%s: nobody is taken back: %+v", c.reason, is)
			}
			spec, got := &is.Make.Spec, int32(-1)
			if len(spec.Stages) == 1 {
				if got = 0; spec.Stages[0].MaxConcurrency != nil {
					got = spec.Stages[0].MaxConcurrency.IntVal
				}
			}
			if got != c.want || spec.MaxUpdating != c.most || (spec.Policy == "p") != (c.want >= 0) ||
				is.Status.Policy != spec.Policy {
				t.Errorf("%s: concurrency %d, want %d: %+v", c.reason, got, c.want, spec)
			}
		})
	}
}

// TestTakenBack checks a version that was taken back and is still in the spec of the release. The coordinator ignores
// this version until a person moves the channel to another version or sets the channel back.
func TestTakenBack(t *testing.T) {
	in := haltedChannel()
	in.Active.Spec.OnHalt = v1beta2.HaltTakeBackFailed
	first := PlanMove(in)
	in.Release.Status.Channels[0], in.Active = first.Status, first.Make
	in.Runtimes[0].Rollout = "mod-regular-r2"
	if again := PlanMove(in); again.Make != nil || again.Ended != "" || again.Status.TakenBack != "2.0.0" {
		t.Fatalf("while it is taken back: %+v", again)
	}
	in.Active.Status.Phase = v1beta2.RolloutCompleted
	done := PlanMove(in)
	if done.Make != nil || done.Status.Rollout != "" || done.Status.Version != "1.0.0" ||
		done.Status.TakenBack != "2.0.0" {
		t.Fatalf("afterwards: %+v", done.Status)
	}
	in.Release.Status.Channels[0], in.Active = done.Status, nil
	in.Release.Spec.Channels[0].Version = "1.0.0"
	rest := PlanMove(in)
	if rest.Make == nil || !rest.Make.Spec.IsRollback() || rest.Make.Spec.OnlyFailed ||
		rest.Make.Spec.From != "2.0.0" ||
		rest.Status.TakenBack != "" {
		t.Errorf("a person sets the channel back: %+v", rest)
	}
	in.Release.Spec.Channels[0].Version = "2.0.1"
	if on := PlanMove(in); on.Make == nil || on.Make.Spec.IsRollback() || on.Make.Spec.From != "1.0.0" ||
		on.Status.TakenBack != "" {
		t.Errorf("a person moves the channel on: %+v", on)
	}
	in.Release.Spec.Channels[0].Version = "1.0.0"
	in.Runtimes[0].Ordered = "1.0.0"
	if none := PlanMove(in); none.Make != nil || none.Status.TakenBack != "" {
		t.Errorf("nobody has it any more: %+v", none)
	}
}

// TestBecomesUrgent checks that an urgency replaces a running rollout by a new one, and does not bypass a pause or a
// halt.
func TestBecomesUrgent(t *testing.T) {
	for name, c := range map[string]struct {
		reason  string
		change  func(*Channel)
		urgency v1beta2.RolloutUrgency
		isMade  bool
	}{
		"Emergency": {reason: "it runs", urgency: v1beta2.UrgencyEmergency, isMade: true},
		"Hotfix":    {reason: "it runs", urgency: v1beta2.UrgencyHotfix, isMade: true},
		"Normal":    {reason: "nothing was declared"},
		"Same": {reason: "it is one already", urgency: v1beta2.UrgencyHotfix, change: func(c *Channel) {
			c.Active.Spec.Urgency = v1beta2.UrgencyHotfix
		}},
		"Higher": {reason: "a hotfix becomes an emergency", urgency: v1beta2.UrgencyEmergency, isMade: true,
			change: func(c *Channel) { c.Active.Spec.Urgency = v1beta2.UrgencyHotfix }},
		"Lower": {reason: "nothing is won", urgency: v1beta2.UrgencyHotfix, change: func(c *Channel) {
			c.Active.Spec.Urgency = v1beta2.UrgencyEmergency
		}},
		"Halted": {reason: "a person has to resume it", urgency: v1beta2.UrgencyEmergency, change: func(c *Channel) {
			c.Active.Status.HaltedAt = metav1.NewTime(start)
		}},
		"Paused": {reason: "likewise", urgency: v1beta2.UrgencyEmergency, change: func(c *Channel) {
			c.Active.Spec.State = v1beta2.RolloutPaused
		}},
		"Over": {reason: "a person has aborted it", urgency: v1beta2.UrgencyEmergency, change: func(c *Channel) {
			c.Active.Status.Phase, c.Active.Spec.State = v1beta2.RolloutEndedAborted, v1beta2.RolloutAborted
		}},
	} {
		t.Run(name, func(t *testing.T) {
			in := haltedChannel()
			in.Active.Spec.OnHalt, in.Active.Status = "", v1beta2.ModuleRolloutStatus{Phase: v1beta2.RolloutSoaking}
			if c.change != nil {
				c.change(&in)
			}
			in.Urgency = urgency.Urgency{Is: c.urgency, Reason: "x"}
			is := PlanMove(in)
			if made := is.Make != nil; made != c.isMade || made != (is.Ended == v1beta2.RolloutSuperseded) {
				t.Fatalf("%s: made %v, ended %q", c.reason, made, is.Ended)
			}
			if c.isMade && (is.Make.Spec.Urgency != c.urgency || is.Make.Spec.Lineage != in.Active.Spec.Lineage ||
				is.Make.Spec.Revision != 3 || is.Status.History[1].Urgency != c.urgency) {
				t.Errorf("%s: %+v", c.reason, is.Make.Spec)
			}
		})
	}
}

// TestOnlyFailed checks that runtimes in which the version works keep it, and that runtimes in which it fails are taken
// back. If the update of a runtime is in progress, the coordinator waits for the result of the update before it decides
// whether the runtime is taken back.
func TestOnlyFailed(t *testing.T) {
	policy := &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1beta2.RolloutPolicySpec{
		Stages: []v1beta2.RolloutStage{{Name: "all"}}}}
	r := New(Move{Module: "mod", Channel: "regular", From: "2.0.0", To: "1.0.0", IsBack: true, OnlyFailed: true,
		Policy: policy})
	in := Inputs{Rollout: r, Now: start, Slots: -1, Runtimes: []Runtime{
		{Kyma: "works", Ordered: "2.0.0", State: v1beta2.StateReady, IsReady: true, Since: start.Add(-time.Hour)},
		{Kyma: "updates", Ordered: "2.0.0", State: v1beta2.StateProcessing, Since: start.Add(-time.Minute)},
		{Kyma: "before", Ordered: "1.0.0", State: v1beta2.StateReady, IsReady: true},
		{Kyma: "fails", Ordered: "2.0.0", State: v1beta2.StateError, Reason: v1beta2.ReasonObjectRefused},
	}}
	is, err := Advance(in)
	if err != nil || len(is.Admitted) != 1 || is.Admitted[0] != "fails" || is.Status.Runtimes.InScope != 2 {
		t.Fatalf("%v: admitted %q of %+v", err, is.Admitted, is.Status.Runtimes)
	}
	if len(is.Status.Blockers) != 1 || is.Next <= 0 || is.Next > 30*time.Minute {
		t.Errorf("blockers %+v, next %s", is.Status.Blockers, is.Next)
	}
	in.Now = start.Add(time.Hour) // the deadline has passed, so the update has failed
	in.Runtimes = in.Runtimes[1:2]
	if is, err = Advance(in); err != nil || len(is.Admitted) != 1 {
		t.Errorf("%v: after the deadline: admitted %q", err, is.Admitted)
	}
}

// TestNewSharesNoMemory checks that a rollout and its policy have no pointer in common: the policy is an object of the
// cache, and the answer to the creation of the rollout is decoded into the rollout.
func TestNewSharesNoMemory(t *testing.T) {
	policy := &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1beta2.RolloutPolicySpec{
		Stages: []v1beta2.RolloutStage{{Name: "all", MaxConcurrency: new(intstr.FromInt32(5)),
			MaxFailures: new(intstr.FromString("5%"))}}}}
	before := policy.DeepCopy()
	for _, isBack := range []bool{false, true} {
		r := New(Move{Module: "mod", Channel: "regular", From: "2.0.0", To: "1.0.0", IsBack: isBack, Policy: policy})
		s := &r.Spec.Stages[0]
		*s.MaxConcurrency, *s.MaxFailures = intstr.FromInt32(1), intstr.FromInt32(1)
		if diff := cmp.Diff(before, policy); diff != "" {
			t.Errorf("back: %t: the policy was changed (-before +after):\n%s", isBack, diff)
		}
	}
}

// TestUrgentStages checks that an emergency leaves out soaks and gates, that a hotfix leaves out the steps that the
// policy allows, and that neither leaves out a limit or the time for which admins may defer the version.
func TestUrgentStages(t *testing.T) {
	hour := metav1.Duration{Duration: time.Hour}
	gates := []v1beta2.RolloutGate{{Name: "go", Approval: &v1beta2.ApprovalGate{Count: 1}}}
	policy := &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1beta2.RolloutPolicySpec{
		Stages: []v1beta2.RolloutStage{{Name: "own", Percent: 10, Soak: hour, Gates: gates, MaxStartsPerMinute: 3},
			{Name: "half", Percent: 50, Soak: metav1.Duration{Duration: time.Minute}}, {Name: "rest"}},
		Hotfix: &v1beta2.RolloutHotfix{Soak: &metav1.Duration{Duration: 15 * time.Minute}}, MaxDeferral: hour}}
	for name, c := range map[string]struct {
		reason  string
		urgency v1beta2.RolloutUrgency
		stages  []string
		want    string // name, soak and number of gates of each stage
	}{
		"Normal":       {"nothing is left out", "", nil, "own 1h0m0s 1 half 1m0s 0 rest 0s 0"},
		"Emergency":    {"no soaks and gates", v1beta2.UrgencyEmergency, nil, "own 0s 0 half 0s 0 rest 0s 0"},
		"Hotfix":       {"a soak is never longer", v1beta2.UrgencyHotfix, nil, "own 15m0s 1 half 1m0s 0 rest 0s 0"},
		"HotfixStages": {"only these", v1beta2.UrgencyHotfix, []string{"rest", "own"}, "own 15m0s 1 rest 0s 0"},
		"EmergencyStages": {"they are for hotfixes", v1beta2.UrgencyEmergency, []string{"rest"},
			"own 0s 0 half 0s 0 rest 0s 0"},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy.DeepCopy()
			p.Spec.Hotfix.Stages = c.stages
			r := New(Move{Module: "mod", Channel: "regular", From: "1.0.0", To: "2.0.0", Policy: p, Fleet: 100,
				Urgency: urgency.Urgency{Is: c.urgency, Reason: "x"}})
			var got []string
			for _, s := range r.Spec.Stages {
				got = append(got, s.Name, s.Soak.Duration.String(), string(rune('0'+len(s.Gates))))
			}
			if is := strings.Join(got, " "); is != c.want {
				t.Errorf("%s: %s, want %s", c.reason, is, c.want)
			}
			if r.Spec.Stages[0].Name == "own" && r.Spec.Stages[0].MaxStartsPerMinute != 3 {
				t.Errorf("%s: a limit is left out", c.reason)
			}
			if r.Spec.MaxDeferral != hour {
				t.Errorf("%s: admins may defer it for %v, want an hour", c.reason, r.Spec.MaxDeferral)
			}
			if last := r.Spec.Stages[len(r.Spec.Stages)-1]; last.Ranks != 65536 {
				t.Errorf("%s: the last stage is not for all others: %+v", c.reason, last)
			}
		})
	}
	p := policy.DeepCopy()
	p.Spec.Hotfix = nil
	r := New(Move{Policy: p, Urgency: urgency.Urgency{Is: v1beta2.UrgencyHotfix, Reason: "x"}})
	if len(r.Spec.Stages) != 3 || r.Spec.Stages[0].Soak != hour {
		t.Errorf("a policy without hotfix is shortened: %+v", r.Spec.Stages)
	}
}

// TestInterrupted checks that no rollout is stuck if the manager stops between the end of a rollout and the record of
// the next one.
func TestInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		phase  v1beta2.RolloutPhase
		state  v1beta2.RolloutState
		want   string
	}{
		"Superseded": {"the version is the target again", v1beta2.RolloutSuperseded, v1beta2.RolloutRunning, "forward"},
		"SetBack":    {"the version is the target again", v1beta2.RolloutEndedAborted, v1beta2.RolloutRunning, "forward"},
		"Aborted":    {"a person has aborted it", v1beta2.RolloutEndedAborted, v1beta2.RolloutAborted, ""},
		"TakenBack":  {"nobody was taken back yet", v1beta2.RolloutTakenBack, v1beta2.RolloutRunning, "back"},
	} {
		t.Run(name, func(t *testing.T) {
			in := haltedChannel()
			in.Active.Status.Phase, in.Active.Spec.State = c.phase, c.state
			is := PlanMove(in)
			got := ""
			if is.Make != nil {
				got = map[bool]string{true: "back", false: "forward"}[is.Make.Spec.IsRollback()]
			}
			if got != c.want || is.Ended != "" {
				t.Fatalf("%s: made %q, want %q; ended %q", c.reason, got, c.want, is.Ended)
			}
			if got == "forward" && is.Make.Spec.Lineage != in.Active.Spec.Lineage {
				t.Errorf("other runtimes are the first ones: %+v", is.Make.Spec)
			}
		})
	}
}

// TestUnrecorded is about rollouts that a manager has created but not recorded in the status of the release.
// TestUnrecorded checks which of these rollouts are adopted, and that every other one is ended with a reason.
func TestUnrecorded(t *testing.T) {
	for name, c := range map[string]struct {
		reason  string
		change  func(in *Channel, made *v1beta2.ModuleRollout)
		refused string // a part of Recorded.Refused; "" if the rollout is adopted
		makes   v1beta2.RolloutState
	}{
		"Same": {reason: "it is the rollout of this move", change: func(*Channel, *v1beta2.ModuleRollout) {}},
		"Advanced": {reason: "its status follows from the facts", change: func(_ *Channel, r *v1beta2.ModuleRollout) {
			r.Status.Phase, r.Status.Admitted = v1beta2.RolloutUpdating, "aaaaaaaa"
		}},
		"Paused": {reason: "a person has paused it", change: func(_ *Channel, r *v1beta2.ModuleRollout) {
			r.Spec.State, r.Spec.Reason = v1beta2.RolloutPaused, "wait"
		}},
		"Approved": {reason: "the approval is for this plan", change: func(_ *Channel, r *v1beta2.ModuleRollout) {
			r.Spec.Approvals = []v1beta2.RolloutApproval{{Stage: "all", By: "ann", Plan: PlanDigest(r)}}
		}},
		"MovedOn": {reason: "it leads to another version", change: func(in *Channel, _ *v1beta2.ModuleRollout) {
			in.Release.Spec.Channels[0].Version = "3.0.0"
		}, refused: "it leads from 1.0.0 to 2.0.1, and channel regular moves from 1.0.0 to 3.0.0 now",
			makes: v1beta2.RolloutRunning},
		"Urgent": {reason: "gates and soaks are left out now", change: func(in *Channel, _ *v1beta2.ModuleRollout) {
			in.Urgency = urgency.Urgency{Is: v1beta2.UrgencyEmergency, Reason: "x"}
		}, refused: "its urgency is Normal, and the urgency of the move is Emergency now", makes: v1beta2.RolloutRunning},
		"UrgentPaused": {reason: "an urgency does not bypass a pause", change: func(in *Channel,
			r *v1beta2.ModuleRollout) {
			in.Urgency = urgency.Urgency{Is: v1beta2.UrgencyEmergency, Reason: "x"}
			r.Spec.State, r.Spec.Reason = v1beta2.RolloutPaused, "wait"
		}, refused: "its urgency is Normal", makes: v1beta2.RolloutPaused},
		"AbortedStages": {reason: "an abort is not bypassed by a changed policy", change: func(in *Channel,
			r *v1beta2.ModuleRollout) {
			in.Policy.Spec.Stages[0].MaxStartsPerMinute = 7
			r.Spec.State = v1beta2.RolloutAborted
		}, refused: "stages", makes: v1beta2.RolloutAborted},
		"Policy": {reason: "another policy applies", change: func(in *Channel, _ *v1beta2.ModuleRollout) {
			in.Policy = nil
		}, refused: "its RolloutPolicy is p, and the RolloutPolicy of the channel is none now",
			makes: v1beta2.RolloutRunning},
		"Lineage": {reason: "other runtimes would be the first", change: func(_ *Channel, r *v1beta2.ModuleRollout) {
			r.Spec.Lineage = "other"
		}, refused: "other runtimes would be the first ones now", makes: v1beta2.RolloutRunning},
		"NotMoved": {reason: "a person has set the version back", change: func(in *Channel, _ *v1beta2.ModuleRollout) {
			s := &in.Release.Status.Channels[0]
			s.Target, s.Rollout, in.Active = s.Version, "", nil
			in.Release.Spec.Channels[0].Version = s.Version
		}, refused: "channel regular does not move to 2.0.1 any more"},
		"Former": {reason: "the former version is the target again", change: func(in *Channel, _ *v1beta2.ModuleRollout) {
			in.Release.Spec.Channels[0].Version = "2.0.0"
			in.Active.Status.HaltedAt = metav1.Time{}
		}, refused: "it leads from 1.0.0 to 2.0.1, and channel regular moves from 1.0.0 to 2.0.0 now",
			makes: v1beta2.RolloutRunning},
	} {
		t.Run(name, func(t *testing.T) {
			in := haltedChannel()
			in.Active.Spec.OnHalt, in.Release.Spec.Channels[0].Version = "", "2.0.1"
			made := PlanMove(in).Make // the manager ends here
			in.Active.Status.Phase = v1beta2.RolloutSuperseded
			in.LastRevision, in.Unrecorded = 3, made
			c.change(&in, made)
			is := PlanMove(in)
			if c.refused == "" {
				if is.Refused != "" || is.Make != nil || is.Status.Rollout != "mod-regular-r3" ||
					is.Status.Revision != 3 ||
					is.Status.Target != "2.0.1" || len(is.Status.History) != 2 || is.Status.History[1].Revision != 3 {
					t.Errorf("%s: refused %q, makes %v, status %+v", c.reason, is.Refused, is.Make, is.Status)
				}
				return
			}
			state := v1beta2.RolloutState("")
			if is.Make != nil {
				state = is.Make.Spec.State
			}
			if !strings.Contains(is.Refused, c.refused) || state != c.makes || is.Status.Rollout == made.Name ||
				is.Make != nil && is.Make.Name != "mod-regular-r4" {
				t.Errorf("%s: refused %q, want %q; makes %q, want %q; status %+v", c.reason, is.Refused, c.refused, state,
					c.makes, is.Status)
			}
		})
	}
}

// TestUnrecordedBack checks that PlanMove also adopts an unrecorded rollout that takes runtimes back after a halt.
func TestUnrecordedBack(t *testing.T) {
	in := haltedChannel()
	in.Unrecorded = PlanMove(in).Make
	in.Active.Status.Phase, in.LastRevision = v1beta2.RolloutTakenBack, 3
	if is := PlanMove(in); is.Make != nil || is.Refused != "" || is.Status.Rollout != "mod-regular-r3" ||
		is.Status.TakingBack != "2.0.0" || is.Status.TakenBack != "2.0.0" || is.Status.Revision != 3 {
		t.Errorf("%+v", is)
	}
}

// TestStrays checks which active rollouts of a module have to end.
func TestStrays(t *testing.T) {
	in := haltedChannel()
	rollout := func(revision int64, change func(*v1beta2.ModuleRollout)) v1beta2.ModuleRollout {
		r := New(Move{Module: "mod", Channel: "regular", From: "1.0.0", To: "2.0.0", Revision: revision})
		if change != nil {
			change(r)
		}
		return *r
	}
	for name, c := range map[string]struct {
		reason   string
		rollouts []v1beta2.ModuleRollout
		change   func(*v1beta2.ModuleReleaseMeta)
		want     string // names of the strays with their phases
		adopts   string
	}{
		"Named": {reason: "it is the one of the channel", rollouts: []v1beta2.ModuleRollout{rollout(2, nil)}},
		"Unrecorded": {reason: "Record decides", rollouts: []v1beta2.ModuleRollout{rollout(2, nil), rollout(3, nil)},
			adopts: "mod-regular-r3"},
		"Last": {reason: "only the last one may be adopted", rollouts: []v1beta2.ModuleRollout{rollout(4, nil),
			rollout(3, nil)}, want: "mod-regular-r3 Superseded", adopts: "mod-regular-r4"},
		"Older": {reason: "a later one is recorded", rollouts: []v1beta2.ModuleRollout{rollout(1, nil)},
			want: "mod-regular-r1 Superseded"},
		"LastIsOver": {reason: "the last one has ended", rollouts: []v1beta2.ModuleRollout{rollout(3, nil),
			rollout(4, func(r *v1beta2.ModuleRollout) { r.Status.Phase = v1beta2.RolloutSuperseded })},
			want: "mod-regular-r3 Superseded"},
		"OtherName": {reason: "no manager has made it", rollouts: []v1beta2.ModuleRollout{rollout(3,
			func(r *v1beta2.ModuleRollout) { r.Name = "mine" })}, want: "mine Superseded"},
		"Deleting": {reason: "it is made again", rollouts: []v1beta2.ModuleRollout{rollout(3,
			func(r *v1beta2.ModuleRollout) { r.DeletionTimestamp = new(metav1.NewTime(start)) })},
			want: "mod-regular-r3 Aborted"},
		"LostStatus": {reason: "it must not continue by itself", rollouts: []v1beta2.ModuleRollout{rollout(3, nil)},
			change: func(r *v1beta2.ModuleReleaseMeta) { r.Status.Channels = nil }, want: "mod-regular-r3 Superseded"},
		"Removed": {reason: "the channel does not exist", rollouts: []v1beta2.ModuleRollout{rollout(3, nil)},
			change: func(r *v1beta2.ModuleReleaseMeta) { r.Spec.Channels = nil }, want: "mod-regular-r3 Aborted"},
	} {
		t.Run(name, func(t *testing.T) {
			release := in.Release.DeepCopy()
			if c.change != nil {
				c.change(release)
			}
			var channels []string
			for _, of := range release.Spec.Channels {
				channels = append(channels, of.Channel)
			}
			var got []string
			for _, s := range Strays(release, channels, c.rollouts) {
				got = append(got, s.Rollout.Name+" "+string(s.Phase))
			}
			if is := strings.Join(got, ", "); is != c.want {
				t.Errorf("%s: %s, want %s", c.reason, is, c.want)
			}
			adopts := ""
			if u := Unrecorded(release, "regular", c.rollouts); u != nil && len(channels) > 0 {
				adopts = u.Name
			}
			if adopts != c.adopts {
				t.Errorf("%s: unrecorded is %q, want %q", c.reason, adopts, c.adopts)
			}
		})
	}
}
