// Package plan shows what a move of a channel would do before it is made: the stages, the runtimes in each of them, and
// what blocks them.
//
// # Use
//
//	fleet := plan.Fleet{Release: release, Channel: "regular", Catalog: catalog, Now: now}
//	runtime, takesPart := fleet.Runtime(kyma, manifest)      // also the input of the coordinator
//	p, err := plan.Of(rollout.Channel{Runtimes: …})          // of a move that is not made yet
//	p, err := plan.For(moduleRollout, runtimes, now)         // of a rollout that is under way
//	for _, stage := range p.Stages { … }
//
// # How it works
//
// The ModuleRollout of the plan is made by the same functions of package rollout with which the coordinator makes it,
// so it has the same stages, ranks and digest if nothing changes in between. What keeps a runtime from beginning is
// found out by [rollout.Advance], which is called for each runtime by itself, as if its stage had begun.
//
// # What it does not do
//
// The package makes no request and changes nothing. It does not know how long an update takes: the earliest begin of a
// stage contains only soak times and limits of starts per minute.
package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/place"
)

// Plan is what a move would do.
type Plan struct {
	// Rollout is the ModuleRollout that the manager will make. It has no stages if no policy is for the channel.
	Rollout *v1beta2.ModuleRollout
	// Digest is the digest that an approval names.
	Digest string
	// Supersedes is the name of the active rollout that ends, "" if none does.
	Supersedes string
	// Stages are the stages in their order.
	Stages []Stage
	// Members are the runtimes that take part, by name of the Kyma.
	Members map[string]Member
}

// Member is a runtime that takes part.
type Member struct {
	// Stage is the name of its stage.
	Stage string
	// HasBegun means that it has the version, or that its update was ordered.
	HasBegun bool
	// Blocker is what keeps it from beginning now although its stage had begun. Nil: nothing does, or it has begun.
	Blocker *channel.Blocker
}

// Stage is one stage of a plan.
type Stage struct {
	// Name is the name of the stage.
	Name string `json:"name"`
	// Runtimes is the number of runtimes of the stage, Begun the number of those that have begun, and Moving the number
	// of those that can begin now.
	Runtimes int `json:"runtimes"`
	Begun    int `json:"begun,omitempty"`
	Moving   int `json:"moving"`
	// Blocked is the number of runtimes that something keeps from the version now, by reason.
	Blocked map[string]int `json:"blocked,omitempty"`
	// Concurrency is the number of runtimes that are updated at the same time, and AllowedFailures the number of those
	// that may fail before the rollout is halted.
	Concurrency     int `json:"concurrency"`
	AllowedFailures int `json:"allowedFailures"`
	// Soak is the time for which the stage is observed, in seconds.
	Soak int64 `json:"soakSeconds,omitempty"`
	// Gates are what has to be met after the stage, as texts.
	Gates []string `json:"gates,omitempty"`
	// Earliest is the time from now until the stage may begin at the earliest, in seconds: the soak times, gates that
	// wait for a time, and limits of starts per minute of the stages before it, without the time of the updates.
	Earliest int64 `json:"earliestSeconds"`
	// Names are the names of the Kymas, sorted.
	Names []string `json:"names,omitempty"`
}

// Of returns the plan of a move. c describes the channel with the version in its spec. Of returns nil if the version
// moves nothing: it is the proven one, or the target already.
func Of(c rollout.Channel) (*Plan, error) {
	recorded := rollout.Record(c)
	if recorded.Make == nil {
		return nil, nil
	}
	p, err := For(recorded.Make, c.Runtimes, c.Now)
	if err == nil && recorded.Ended != "" {
		p.Supersedes = c.Active.Name
	}
	return p, err
}

// For returns the plan of the rest of a rollout. A pause or a halt is not considered: the plan is what follows when the
// rollout goes on.
func For(r *v1beta2.ModuleRollout, runtimes []rollout.Runtime, now time.Time) (*Plan, error) {
	p := &Plan{Rollout: r, Digest: rollout.PlanDigest(r), Members: map[string]Member{}}
	if len(r.Spec.Stages) == 0 {
		return p, nil
	}
	places, err := place.New(r)
	if err != nil {
		return nil, err
	}
	for i := range r.Spec.Stages {
		s := &r.Spec.Stages[i]
		p.Stages = append(p.Stages, Stage{Name: s.Name, Blocked: map[string]int{}, Gates: gatesOf(s),
			Soak: int64(s.Soak.Seconds())})
	}
	for i := range runtimes {
		stage := places.Of(runtimes[i].Kyma, runtimes[i].Labels).Stage
		m, inScope, err := memberOf(r, stage, runtimes[i], now)
		if err != nil {
			return nil, err
		}
		if !inScope {
			continue
		}
		p.Members[runtimes[i].Kyma] = m
		s := &p.Stages[stage]
		s.Runtimes++
		s.Names = append(s.Names, runtimes[i].Kyma)
		switch {
		case m.HasBegun:
			s.Begun++
		case m.Blocker != nil:
			s.Blocked[m.Blocker.Code]++
		default:
			s.Moving++
		}
	}
	p.schedule(now)
	return p, nil
}

// memberOf asks the function that advances rollouts about one runtime, as if its stage had just begun. inScope is false
// for a runtime with a higher version.
func memberOf(r *v1beta2.ModuleRollout, stage int, runtime rollout.Runtime, now time.Time) (
	m Member, inScope bool, err error) {
	alone := *r
	alone.Spec.State, alone.Spec.Resumptions = v1beta2.RolloutRunning, nil
	m.Stage = alone.Spec.Stages[stage].Name
	alone.Status = v1beta2.ModuleRolloutStatus{Phase: v1beta2.RolloutUpdating, Stage: v1beta2.RolloutStageStatus{
		Index: int32(stage), Name: m.Stage, StartedAt: metav1.NewTime(now)}} //nolint:gosec // at most 16 stages
	var found *channel.Blocker // has more than the status of a rollout says
	if blocked := runtime.Blocked; blocked != nil {
		runtime.Blocked = func() *channel.Blocker {
			found = blocked()
			return found
		}
	}
	result, err := rollout.Advance(rollout.Inputs{Rollout: &alone, Runtimes: []rollout.Runtime{runtime}, Now: now,
		Slots: -1})
	if err != nil || result.Status.Runtimes.InScope == 0 {
		return m, false, err
	}
	switch {
	case len(result.Admitted) > 0:
	case result.Status.Runtimes.Waiting == 0:
		m.HasBegun = true
	case found != nil:
		m.Blocker = found
	case len(result.Status.Blockers) > 0:
		b := result.Status.Blockers[0]
		m.Blocker = &channel.Blocker{Code: b.Code, Object: b.Object, Message: b.Message}
	}
	return m, true, nil
}

// schedule computes the limits of the stages, and when each of them may begin at the earliest.
func (p *Plan) schedule(now time.Time) {
	earliest, current := now, p.Rollout.Status.Stage
	for i := range p.Stages {
		s, spec := &p.Stages[i], &p.Rollout.Spec.Stages[i].RolloutStage
		slices.Sort(s.Names)
		s.Concurrency, s.AllowedFailures = rollout.Concurrency(spec, s.Runtimes), rollout.AllowedFailures(spec,
			s.Runtimes)
		if i < int(current.Index) {
			continue // it is over
		}
		s.Earliest = int64(earliest.Sub(now).Seconds())
		if limit := int(spec.MaxStartsPerMinute); limit > 0 && s.Moving > 0 {
			earliest = earliest.Add(time.Duration((s.Moving-1)/limit) * time.Minute)
		}
		end := earliest.Add(spec.Soak.Duration)
		if i == int(current.Index) && !current.SoakUntil.IsZero() {
			end = current.SoakUntil.Time
		}
		for _, g := range spec.Gates {
			if g.NotBefore != nil && g.NotBefore.After(end) {
				end = g.NotBefore.Time
			}
		}
		if end.After(earliest) {
			earliest = end
		}
	}
}

// gatesOf returns the gates of a stage as texts.
func gatesOf(s *v1beta2.ModuleRolloutStage) []string {
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
