// Package place computes the place of each runtime in a rollout: its stage, and its rank within the fleet.
//
// # Use
//
//	places, err := place.New(moduleRollout)
//	at := places.Of(kyma.Name, kyma.Labels)
//	place.Decode(moduleRollout.Status.Admitted)[at.Token] // whether the runtime may begin
//
// # How it works
//
// The runtimes of a stage are not stored. The place of a runtime is a function of its labels and its name:
//
//	1  the first stage whose selector matches the labels of the Kyma
//	2  else the first percent stage whose number of ranks is above the rank of the runtime
//	3  else the last stage
//
// The rank is the first 16 bits of a hash of the lineage of the rollout and the name of the Kyma. Because the rank of a
// runtime depends on no other runtime, all places stay the same when another runtime joins, leaves or gets another
// label.
//
// The status of a rollout contains a token for each runtime that may begin. The token of a runtime is the first 48 bits
// of the same hash.
//
// # What it does not do
//
// The package stores nothing, and does not decide which runtimes may begin.
package place

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// RankCount is the number of ranks.
const RankCount = 1 << 16

// Places computes the place of each runtime in one rollout: its stage and its rank. Places is safe for concurrent use.
type Places struct {
	lineage string
	stages  []stage
}

type stage struct {
	selector labels.Selector // nil for a stage without a selector
	ranks    int32
}

// New prepares the stages of a rollout. New returns an error if a selector is not valid.
func New(r *v1beta2.ModuleRollout) (*Places, error) {
	p := &Places{lineage: r.Spec.Lineage}
	for i := range r.Spec.Stages {
		s := &r.Spec.Stages[i]
		is := stage{ranks: s.Ranks}
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
	// Rank is the rank of the runtime, which determines its position in the order of updates within the stage.
	Rank uint16
	// Token identifies the runtime among those that are admitted.
	Token Token
}

// Of returns the place of a Kyma.
func (p *Places) Of(kyma string, kymaLabels map[string]string) Place {
	rank, token := identify(p.lineage, kyma)
	return Place{Stage: p.stageOf(rank, kymaLabels), Rank: rank, Token: token}
}

func (p *Places) stageOf(rank uint16, kymaLabels map[string]string) int {
	for i, s := range p.stages {
		if s.selector != nil && s.selector.Matches(labels.Set(kymaLabels)) {
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
