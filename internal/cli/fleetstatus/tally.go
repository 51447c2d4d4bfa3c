package fleetstatus

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

// tally counts the runtimes of a fleet. The zero value is empty.
type tally struct {
	runtimes, paused int
	agents           agentCount
	states, channels map[string]int
	reasons          map[string]int
	kubernetes       map[string]int
	modules          map[fleetlist.ModuleVersion]*moduleCount
	worst            []*fleetlist.Member
	changed          time.Time // the time of the newest change of a state
}

// add counts one runtime.
func (t *tally) add(m *fleetlist.Member) {
	if t.states == nil {
		t.states, t.channels, t.reasons, t.kubernetes = map[string]int{}, map[string]int{}, map[string]int{},
			map[string]int{}
		t.modules = map[fleetlist.ModuleVersion]*moduleCount{}
	}
	t.runtimes++
	if since := m.Since(); since.After(t.changed) {
		t.changed = since
	}
	t.states[string(m.State())]++
	t.channels[m.Spec.Channel]++
	if version := majorMinorOf(m.Status.KubernetesVersion); version != "" {
		t.kubernetes[version]++
	}
	if m.IsPaused() {
		t.paused++
	}
	if agent := m.Status.Agent; agent != nil && agent.Heard {
		t.agents.Heard++
	} else if agent != nil {
		t.agents.Silent++
	}
	if reason, _ := m.Blocker(); reason != "" {
		t.reasons[reason]++
	}
	for i := range m.Status.Modules {
		e := &m.Status.Modules[i]
		key := fleetlist.ModuleVersion{Module: e.Name, Version: e.Version, Channel: e.Channel}
		n := t.modules[key]
		if n == nil {
			key = fleetlist.ModuleVersion{Module: strings.Clone(e.Name), Version: strings.Clone(e.Version),
				Channel: strings.Clone(e.Channel)}
			n = &moduleCount{Module: key.Module, Version: key.Version, Channel: key.Channel,
				States: map[v1beta2.State]int{}}
			t.modules[key] = n
		}
		n.Runtimes++
		n.States[e.State]++
		if e.Maintenance {
			n.Waiting++
		}
	}
	if m.State() != v1beta2.StateReady {
		t.worst = append(t.worst, m)
	}
}

// worstMembers returns at most n runtimes, the runtime in the worst state first.
func (t *tally) worstMembers(n int) []*fleetlist.Member {
	slices.SortFunc(t.worst, func(a, b *fleetlist.Member) int {
		return cmp.Or(cmp.Compare(fleetlist.Severity(b.State()), fleetlist.Severity(a.State())),
			a.Since().Compare(b.Since()), strings.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	return t.worst[:min(len(t.worst), max(n, 0))]
}

// report returns the report with the counts and the worst runtimes. The parameter maxWorst is the maximum number of
// worst runtimes in the report.
func (t *tally) report(c *connection.Cluster, maxWorst int) *fleetReport {
	r := &fleetReport{
		Cluster: c.Context, Namespace: c.Namespace, Runtimes: t.runtimes, Paused: t.paused,
		States: byCount(t.states), Channels: byCount(t.channels), Reasons: byCount(t.reasons),
		Kubernetes: byCount(t.kubernetes), Modules: []moduleCount{}, Worst: []worstRuntime{},
	}
	sortBySeverity(r.States)
	if t.agents != (agentCount{}) {
		r.Agents = &t.agents
	}
	for _, n := range t.modules {
		r.Modules = append(r.Modules, *n)
	}
	sortByModuleAndVersion(r.Modules)
	for _, m := range t.worstMembers(maxWorst) {
		reason, message := m.Blocker()
		r.Worst = append(r.Worst, worstRuntime{Name: m.Metadata.Name, State: m.State(), Since: m.Since(),
			Reason: reason, Message: cmp.Or(message, m.Status.LastOperation.Operation)})
	}
	return r
}

// majorMinorOf returns the minor version of a version of Kubernetes: 1.34 for v1.34.2.
func majorMinorOf(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	if major == "" || minor == "" {
		return ""
	}
	return major + "." + minor
}

// byCount returns a list of names with their counts. The name with the largest count is first.
func byCount(counts map[string]int) []runtimeCount {
	all := []runtimeCount{}
	for name, n := range counts {
		all = append(all, runtimeCount{name, n})
	}
	slices.SortFunc(all, func(a, b runtimeCount) int {
		return cmp.Or(cmp.Compare(b.Runtimes, a.Runtimes), strings.Compare(a.Name, b.Name))
	})
	return all
}
