package rollout

import (
	"github.com/kyma-fleet/lifecycle-manager/channel"
)

// Seen is what Survey has found about one runtime that belongs to a stage of the rollout.
type Seen struct {
	*Runtime
	// Stage is the position of the stage of the runtime. Rank is the rank of the runtime.
	Stage int
	Rank  uint16
	// Verdict is the verdict on the runtime.
	Verdict Verdict
	// Blocker is the blocker that would keep a waiting runtime from beginning its update now, even if the stage of the
	// runtime had begun. nil means that there is no such blocker.
	Blocker *channel.Blocker
	// IsHurt means that the module does not work in the runtime, and that the update is likely to repair the module.
	// The rollout admits such runtimes before others.
	IsHurt bool
}

// Survey judges each runtime of the rollout in the same way as Advance, but as if all stages had begun. The result is
// sorted by the rank of the runtimes.
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
			s.Blocker, s.IsHurt = a.blockerIfAdmitted(m), a.isUpdateLikelyToRepair(m)
		}
		all = append(all, s)
	}
	return all, nil
}
