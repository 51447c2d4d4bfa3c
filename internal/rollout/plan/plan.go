// Package plan computes the effects of a move of a channel before the move is made: the stages, the runtimes in each
// stage, and their blockers.
//
// # Use
//
//	fleet := plan.Fleet{Release: release, Channel: "regular", Catalog: catalog, Now: now}
//	runtime, takesPart := fleet.Runtime(kyma, manifest)      // also the input of the coordinator
//	p, err := plan.ForMove(rollout.Channel{Runtimes: …})     // of a move that is not made yet
//	p, err := plan.For(moduleRollout, policy, runtimes, now) // of a rollout that is under way
//	for _, stage := range p.Stages { … }
//
// # How it works
//
// The plan and the coordinator use the same functions of package rollout to make a ModuleRollout. If nothing changes
// between the plan and the rollout, both have the same stages, ranks and digest. [rollout.Survey] finds the blocker of
// each runtime. The times at which stages and runtimes begin are a forecast (forecast.go), which considers maintenance
// windows, freezes, limits, soak times and gates with a time.
//
// # What it does not do
//
// The package makes no request and changes nothing. A forecast does not consider failures, approvals by
// persons, and other rollouts.
package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

// Plan has the expected effects of a move.
type Plan struct {
	// Rollout is the ModuleRollout that the manager will make. Rollout has no stages if the channel has no policy.
	Rollout *v1beta2.ModuleRollout
	// Digest is the digest that an approval names.
	Digest string
	// Supersedes is the name of the active rollout that the move ends, or "" if there is none.
	Supersedes string
	// Stages are the stages in their order.
	Stages []Stage
	// Members are the runtimes that take part, by name of the Kyma.
	Members map[string]Member
	// Update is the time that one update is expected to take.
	Update time.Duration
	// Ends is the time at which the last runtime is expected to have the version. Ends is zero if the time is not
	// known, or if no runtime waits.
	Ends time.Time
	// Late are the runtimes whose maintenance window opens late, or that have no window, by name.
	Late []Late
	// Hold is the suspension or the freeze that holds all rollouts of the policy now. nil means that there is none.
	Hold *v1beta2.RolloutBlocker
}

// Member is a runtime that takes part.
type Member struct {
	// Stage is the name of the stage to which the runtime belongs.
	Stage string
	// HasBegun means that the runtime has the version, or that its update was ordered.
	HasBegun bool
	// Blocker is the blocker that would keep the runtime from beginning its update now, even if its stage had begun.
	// nil means that the runtime has no blocker or has already begun.
	Blocker *channel.Blocker
	// Begins is the time at which the update of the runtime is expected to begin. Begins is zero if the update of the
	// runtime has begun, or if the time is not known.
	Begins time.Time
}

// Stage is one stage of a plan.
type Stage struct {
	// Name is the name of the stage.
	Name string `json:"name"`
	// Runtimes is the number of runtimes of the stage. Begun is the number of runtimes of the stage whose update has
	// begun. Moving is the number of runtimes of the stage whose update can begin now, because they have no blocker.
	Runtimes int `json:"runtimes"`
	Begun    int `json:"begun,omitempty"`
	Moving   int `json:"moving"`
	// Blocked is the number of runtimes with a blocker, by reason.
	Blocked map[string]int `json:"blocked,omitempty"`
	// Concurrency is the number of runtimes that are updated at the same time. AllowedFailures is the number of
	// runtimes that may fail before the rollout is halted.
	Concurrency     int `json:"concurrency"`
	AllowedFailures int `json:"allowedFailures"`
	// Soak is the time for which the stage is observed, in seconds.
	Soak int64 `json:"soakSeconds,omitempty"`
	// Gates are texts about the conditions that must be met after this stage, before the next stage begins.
	Gates []string `json:"gates,omitempty"`
	// Begins is the time at which the stage is expected to begin, or has begun. Begins is zero if the stage has ended.
	Begins time.Time `json:"begins,omitzero"`
	// Ends is the time at which the last runtime of the stage is expected to have the version. Ends is zero if all
	// runtimes of the stage have the version, or if the time is not known.
	Ends time.Time `json:"ends,omitzero"`
	// Names are the names of the Kymas, sorted.
	Names []string `json:"names,omitempty"`
}

// ForMove returns the plan of the rollout that begins when a channel is moved. The parameter c describes the channel;
// the spec of c.Release contains the new version of the channel. ForMove returns nil if no rollout begins, because the
// new version is already the proven version or the target of the active rollout.
func ForMove(c rollout.Channel) (*Plan, error) {
	recorded := rollout.PlanMove(c)
	if recorded.Make == nil {
		return nil, nil
	}
	p, err := For(recorded.Make, c.Policy, c.Runtimes, c.Now)
	if err == nil && recorded.Ended != "" {
		p.Supersedes = c.Active.Name
	}
	return p, err
}

// For computes the plan of a rollout that has begun: what is left to do. The plan ignores a pause or a halt: it shows
// the rest of the rollout after a resumption. policy is the policy of the rollout, or nil if the policy does not exist
// any more.
func For(r *v1beta2.ModuleRollout, policy *v1beta2.RolloutPolicy, runtimes []rollout.Runtime, now time.Time) (*Plan,
	error) {
	p := &Plan{Rollout: r, Digest: rollout.PlanDigest(r), Members: map[string]Member{}}
	if len(r.Spec.Stages) == 0 {
		return p, nil
	}
	p.Hold, _ = rollout.HoldOfPolicy(policy, r, now)
	for i := range r.Spec.Stages {
		s := &r.Spec.Stages[i]
		p.Stages = append(p.Stages, Stage{Name: s.Name, Blocked: map[string]int{}, Gates: gateDescriptions(s),
			Soak: int64(s.Soak.Seconds())})
	}
	seen, err := rollout.Survey(rollout.Inputs{Rollout: r, Runtimes: runtimes, Now: now, Slots: -1})
	if err != nil {
		return nil, err
	}
	for i := range seen {
		is := &seen[i]
		s := &p.Stages[is.Stage]
		m := Member{Stage: s.Name, HasBegun: is.Verdict != rollout.Waiting, Blocker: is.Blocker}
		p.Members[is.Kyma] = m
		s.Runtimes++
		s.Names = append(s.Names, is.Kyma)
		switch {
		case m.HasBegun:
			s.Begun++
		case m.Blocker != nil:
			s.Blocked[m.Blocker.Code]++
		default:
			s.Moving++
		}
	}
	for i := range p.Stages {
		s, spec := &p.Stages[i], &r.Spec.Stages[i].RolloutStage
		slices.Sort(s.Names)
		s.Concurrency, s.AllowedFailures = rollout.Concurrency(spec, s.Runtimes), rollout.AllowedFailures(spec,
			s.Runtimes)
	}
	p.foresee(policy, seen, now)
	return p, nil
}

// gateDescriptions returns the gates of a stage as texts.
func gateDescriptions(s *v1beta2.ModuleRolloutStage) []string {
	var all []string
	for i := range s.Gates {
		g := &s.Gates[i]
		text := "a webhook"
		switch {
		case g.Approval != nil:
			text = fmt.Sprintf("approval by %d", max(1, g.Approval.Count))
		case g.NotBefore != nil:
			text = "not before " + g.NotBefore.UTC().Format(time.RFC3339)
		case g.PromQL != nil:
			text = "a query"
		}
		all = append(all, strings.Join([]string{g.Name, text}, ": "))
	}
	return all
}
