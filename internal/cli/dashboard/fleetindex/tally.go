package fleetindex

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

// Tally has the counts of a fleet.
type Tally struct {
	Runtimes, Paused int
	// Connected is the number of runtimes whose agent is connected. Silent is the number of runtimes whose agent is not
	// connected. Polled is the number of runtimes without an agent.
	Connected, Silent, Polled int
	// States and Reasons are sorted: the worst state is first in States, and the reason with the most runtimes is first
	// in Reasons.
	States, Reasons []Count
	// Versions are sorted by module, and the highest version first.
	Versions []VersionCount
	// The field Changed is the time at which the state of a runtime has changed last, as text.
	Changed string
}

// Count is the number of runtimes in a group, such as the runtimes of one region.
type Count struct {
	Name     string
	Runtimes int
}

// VersionCount is the number of runtimes that have a version of a module from a channel, by state of the module.
type VersionCount struct {
	fleetlist.ModuleVersion
	Runtimes int
	States   map[string]int
}

// Tally returns the counts of the whole fleet. The counts are computed once for each snapshot.
func (s *Snapshot) Tally() *Tally {
	s.count.Do(func() { s.tally = TallyOf(s.Members, true) })
	return &s.tally
}

// TallyOf counts runtimes and, if requested, the versions of their modules.
func TallyOf(members []*fleetlist.Member, withVersions bool) Tally {
	t := Tally{Runtimes: len(members)}
	states, reasons := map[string]int{}, map[string]int{}
	versions := map[fleetlist.ModuleVersion]*VersionCount{}
	for _, m := range members {
		states[string(m.State())]++
		if reason, _ := m.Blocker(); reason != "" {
			reasons[reason]++
		}
		if m.IsPaused() {
			t.Paused++
		}
		switch agent := m.Status.Agent; {
		case agent == nil:
			t.Polled++
		case agent.Heard:
			t.Connected++
		default:
			t.Silent++
		}
		t.Changed = max(t.Changed, m.Status.LastOperation.LastUpdateTime)
		if !withVersions {
			continue
		}
		for i := range m.Status.Modules {
			e := &m.Status.Modules[i]
			key := fleetlist.ModuleVersion{Module: e.Name, Version: e.Version, Channel: e.Channel}
			n := versions[key]
			if n == nil {
				n = &VersionCount{ModuleVersion: key, States: map[string]int{}}
				versions[key] = n
			}
			n.Runtimes++
			n.States[string(e.State)]++
		}
	}
	t.States, t.Reasons = sortedByCount(states), sortedByCount(reasons)
	slices.SortStableFunc(t.States, func(a, b Count) int { return cmp.Compare(severity(b.Name), severity(a.Name)) })
	for _, n := range versions {
		t.Versions = append(t.Versions, *n)
	}
	slices.SortFunc(t.Versions, func(a, b VersionCount) int {
		return cmp.Or(strings.Compare(a.Module, b.Module), connection.CompareVersions(b.Version, a.Version),
			strings.Compare(b.Version, a.Version), strings.Compare(a.Channel, b.Channel))
	})
	return t
}

// sortedByCount returns the counts in descending order.
func sortedByCount(counts map[string]int) []Count {
	var all []Count
	for name, n := range counts {
		all = append(all, Count{name, n})
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Runtimes, a.Runtimes), strings.Compare(a.Name, b.Name))
	})
	return all
}
