// Package plan shows what a move of a channel would do before it is made: the stages, the runtimes in each of them, and
// what blocks them.
//
// # Use
//
//	p, err := plan.Of(rollout.Channel{…}, runtimes)
//	for _, stage := range p.Stages { … }
//
// # How it works
//
// The ModuleRollout of the plan is made by the same functions of package rollout with which the coordinator makes it,
// so it has the same stages, ranks and digest if nothing changes in between.
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

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

// Runtime is a runtime of the channel, with what a move means for it apart from its turn.
type Runtime struct {
	// Kyma is the name of the Kyma, and Labels are its labels.
	Kyma   string
	Labels map[string]string
	// Ordered is the version that was ordered last, "" if none was.
	Ordered string
	// Moves means that it gets the version when its turn comes.
	Moves bool
	// Reason is what keeps it from the version now, for example WaitingForWindow. Empty: nothing does.
	Reason string
}

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
	// StageOf is the name of the stage of each runtime, by name of the Kyma.
	StageOf map[string]string
}

// Stage is one stage of a plan.
type Stage struct {
	// Name is the name of the stage.
	Name string `json:"name"`
	// Runtimes is the number of runtimes of the stage, and Moving the number of those that can begin now.
	Runtimes int `json:"runtimes"`
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
	// Earliest is the time from the move until the stage may begin at the earliest, in seconds: the soak times and the
	// limits of starts per minute of the stages before it, without the time of the updates.
	Earliest int64 `json:"earliestSeconds"`
	// Names are the names of the Kymas, sorted.
	Names []string `json:"names,omitempty"`
}

// Of returns the plan of a move. c describes the channel with the version in its spec, without runtimes. It returns nil
// if the version does not move anything: it is the proven one, or the target already.
func Of(c rollout.Channel, runtimes []Runtime) (*Plan, error) {
	c.Runtimes = nil
	for i := range runtimes {
		r := &runtimes[i]
		c.Runtimes = append(c.Runtimes, rollout.Runtime{Kyma: r.Kyma, Labels: r.Labels, Ordered: r.Ordered})
	}
	recorded := rollout.Record(c)
	if recorded.Make == nil {
		return nil, nil
	}
	p := &Plan{Rollout: recorded.Make, Digest: rollout.PlanDigest(recorded.Make), StageOf: map[string]string{}}
	if recorded.Ended != "" {
		p.Supersedes = c.Active.Name
	}
	if len(p.Rollout.Spec.Stages) == 0 {
		return p, nil
	}
	places, err := rollout.PlacesOf(p.Rollout)
	if err != nil {
		return nil, err
	}
	for i := range p.Rollout.Spec.Stages {
		s := &p.Rollout.Spec.Stages[i]
		p.Stages = append(p.Stages, Stage{Name: s.Name, Blocked: map[string]int{}, Gates: gatesOf(s),
			Soak: int64(s.Soak.Seconds())})
	}
	for i := range runtimes {
		r := &runtimes[i]
		s := &p.Stages[places.Of(r.Kyma, r.Labels).Stage]
		s.Runtimes++
		s.Names, p.StageOf[r.Kyma] = append(s.Names, r.Kyma), s.Name
		switch {
		case r.Moves:
			s.Moving++
		case r.Reason != "":
			s.Blocked[r.Reason]++
		}
	}
	earliest := time.Duration(0)
	for i := range p.Stages {
		s, spec := &p.Stages[i], &p.Rollout.Spec.Stages[i].RolloutStage
		slices.Sort(s.Names)
		s.Concurrency = rollout.Concurrency(spec, s.Runtimes)
		s.AllowedFailures = rollout.AllowedFailures(spec, s.Runtimes)
		s.Earliest = int64(earliest.Seconds())
		earliest += spec.Soak.Duration
		if limit := int(spec.MaxStartsPerMinute); limit > 0 && s.Moving > 0 {
			earliest += time.Duration((s.Moving-1)/limit) * time.Minute
		}
	}
	return p, nil
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
