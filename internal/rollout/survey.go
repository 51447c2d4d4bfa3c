package rollout

import (
	"github.com/kyma-fleet/lifecycle-manager/channel"
)

// Seen has the findings about one runtime in scope.
type Seen struct {
	*Runtime
	// Stage is the position of the stage of the runtime. Rank is the rank of the runtime.
	Stage int
	Rank  uint16
	// Verdict is the verdict on the runtime.
	Verdict Verdict
	// Blocker is the blocker because of which a waiting runtime could not begin now even if its stage had begun. nil
	// means that there is none.
	Blocker *channel.Blocker
	// IsHurt means that the runtime is admitted before others, because the update may repair it.
	IsHurt bool
}

// Survey returns the findings of Advance about each runtime in scope, by rank, as if all stages had begun.
func Survey(in Inputs) ([]Seen, error) {
	a, err := newAdvance(in)
	if err != nil {
		return nil, err
	}
	a.judgeAll()
	all := make([]Seen, 0, len(a.members))
	for i := range a.members {
		m := &a.members[i]
		s := Seen{Runtime: m.Runtime, Stage: m.Stage, Rank: m.Rank, Verdict: m.verdict}
		if m.verdict == Waiting {
			a.status.Stage.Index = int32Of(m.Stage) // the last stage is also for modules that do not work
			s.Blocker, s.IsHurt = a.blockerOf(m), a.isHurt(m)
		}
		all = append(all, s)
	}
	return all, nil
}
