package rollout

import (
	"github.com/kyma-fleet/lifecycle-manager/channel"
)

// Seen is what is found out about one runtime in scope.
type Seen struct {
	*Runtime
	// Stage is the position of its stage, and Rank its rank.
	Stage int
	Rank  uint16
	// Verdict is the verdict on it.
	Verdict Verdict
	// Blocker is what keeps a waiting runtime from beginning now if its stage had begun. nil: nothing does.
	Blocker *channel.Blocker
	// IsHurt means that it is admitted before others, because the update may be what cures it.
	IsHurt bool
}

// Survey returns what Advance finds out about each runtime in scope, by rank, as if the stages of all had begun.
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
