// Package rollout decides which runtimes may follow when a channel of a module gets another version, and when a rollout
// has to stop.
//
// # Use
//
//	made := rollout.New(rollout.Move{…})                      // a ModuleRollout with the stages of a policy
//	next := rollout.Advance(rollout.Inputs{Rollout: made, …}) // its next status, with the admitted runtimes
//	catalog.Turn = rollout.Turns(rollout.Lookups{…})          // the version that a channel means for one runtime
//
// # How it works
//
// Nobody stores which runtimes belong to a stage. A runtime has a place, which is a function of its labels and its
// name:
//
//	1  the first stage whose selector matches the labels of the Kyma
//	2  else the first percent stage whose number of ranks is above the rank of the runtime
//	3  else the last stage
//
// The rank is the first 16 bits of a hash of the lineage of the rollout and the name of the Kyma. So a runtime that
// joins, leaves or gets another label changes the place of no other runtime.
//
// Advance computes the next status of a rollout from the previous one and from what is known about the runtimes. It
// remembers nothing else, so it gives the same result after a restart. The status names the runtimes that may begin and
// have not begun yet, by 48 bits of the hash each. So its size depends on the number of slots, not on the fleet. Only
// runtimes that can begin now are admitted, so windows, pauses and unreachable runtimes use no slot.
//
// Each runtime of the channel has one verdict, see [Verdict]. A failure is counted by its cause, see
// [evidence.CauseOf]: only failures of the version halt a rollout, failures of the control plane hold it, and a pause
// by a person is neither.
//
// # What it does not do
//
// The package is pure: it makes no request and reads no clock. It changes nothing in runtimes, and it does not judge
// windows, pauses or rights: package channel does, and the caller passes the result.
package rollout

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// RankCount is the number of ranks.
const RankCount = 1 << 16

// Places computes the places of runtimes in one rollout. It is safe for concurrent use.
type Places struct {
	lineage string
	stages  []place
}

type place struct {
	selector labels.Selector // nil for a stage without a selector
	ranks    int32
}

// PlacesOf prepares the stages of a rollout. A selector that is not valid is an error.
func PlacesOf(r *v1beta2.ModuleRollout) (*Places, error) {
	p := &Places{lineage: r.Spec.Lineage}
	for i := range r.Spec.Stages {
		s := &r.Spec.Stages[i]
		is := place{ranks: s.Ranks}
		if s.Selector != nil {
			selector, err := s.Selector.Selector().Compile()
			if err != nil {
				return nil, fmt.Errorf("stage %s of ModuleRollout %s: %w", s.Name, r.Name, err)
			}
			is.selector = selector
		}
		p.stages = append(p.stages, is)
	}
	return p, nil
}

// Place is the place of a runtime in a rollout.
type Place struct {
	// Stage is the position of the stage, from 0.
	Stage int
	// Rank is the rank of the runtime.
	Rank uint16
	// Token identifies the runtime among those that are admitted.
	Token Token
}

// Of returns the place of a Kyma.
func (p *Places) Of(kyma string, set map[string]string) Place {
	rank, token := identify(p.lineage, kyma)
	return Place{Stage: p.stageOf(rank, set), Rank: rank, Token: token}
}

func (p *Places) stageOf(rank uint16, set map[string]string) int {
	for i, s := range p.stages {
		if s.selector != nil && s.selector.Matches(labels.Set(set)) {
			return i
		}
	}
	for i, s := range p.stages {
		if s.selector == nil && int32(rank) < s.ranks {
			return i
		}
	}
	return len(p.stages) - 1
}

// scaled returns a number, or a percent of total. roundUp decides how a percent is rounded. A value that cannot be read
// returns 0.
func scaled(value *intstr.IntOrString, total int, roundUp bool) int {
	if value == nil {
		return 0
	}
	if value.Type == intstr.Int {
		return max(0, int(value.IntVal))
	}
	return share(value.StrVal, total, roundUp)
}

// share returns a percent of a total.
func share(percent string, total int, roundUp bool) int {
	var p float64
	if _, err := fmt.Sscanf(percent, "%g%%", &p); err != nil || p < 0 {
		return 0
	}
	n := p * float64(total) / 100
	if roundUp {
		return int(math.Ceil(n - 1e-9))
	}
	return int(math.Floor(n + 1e-9))
}

// int32Of converts a number of runtimes or stages.
func int32Of(n int) int32 {
	return int32(min(n, math.MaxInt32)) //nolint:gosec // it is limited
}
