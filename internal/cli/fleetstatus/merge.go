package fleetstatus

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

// planeReport is the part of a report that is about one of several control planes.
type planeReport struct {
	Context   string `json:"context"`
	Namespace string `json:"namespace,omitempty"`
	Runtimes  int    `json:"runtimes"`
	Ready     int    `json:"ready"`
	// Manager is nil if the control plane was not read.
	Manager *liveness.Report `json:"manager,omitempty"`
}

// merge adds up the reports about several control planes. The report about a control plane is nil if the control plane
// was not read.
func merge(contexts []string, reports []*fleetReport, maxWorst int) *fleetReport {
	sum := &fleetReport{Cluster: strings.Join(contexts, ","), Modules: []moduleCount{}, Worst: []worstRuntime{}}
	states, channels, reasons, kubernetes := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	modules := map[fleetlist.ModuleVersion]*moduleCount{}
	for i, r := range reports {
		plane := planeReport{Context: contexts[i]}
		if r == nil {
			sum.ControlPlanes = append(sum.ControlPlanes, plane)
			continue
		}
		sum.Runtimes, sum.Paused = sum.Runtimes+r.Runtimes, sum.Paused+r.Paused
		addCounts(states, r.States)
		addCounts(channels, r.Channels)
		addCounts(reasons, r.Reasons)
		addCounts(kubernetes, r.Kubernetes)
		if r.Agents != nil {
			if sum.Agents == nil {
				sum.Agents = &agentCount{}
			}
			sum.Agents.Heard, sum.Agents.Silent = sum.Agents.Heard+r.Agents.Heard, sum.Agents.Silent+r.Agents.Silent
		}
		for _, m := range r.Modules {
			key := fleetlist.ModuleVersion{Module: m.Module, Version: m.Version, Channel: m.Channel}
			if modules[key] == nil {
				modules[key] = &moduleCount{Module: m.Module, Version: m.Version, Channel: m.Channel,
					States: map[v1beta2.State]int{}}
			}
			n := modules[key]
			n.Runtimes, n.Waiting = n.Runtimes+m.Runtimes, n.Waiting+m.Waiting
			for state, count := range m.States {
				n.States[state] += count
			}
		}
		for _, w := range r.Worst {
			w.Context = contexts[i]
			sum.Worst = append(sum.Worst, w)
		}
		plane.Namespace, plane.Runtimes, plane.Manager = r.Namespace, r.Runtimes, r.Manager
		for _, s := range r.States {
			if s.Name == string(v1beta2.StateReady) {
				plane.Ready = s.Runtimes
			}
		}
		sum.ControlPlanes = append(sum.ControlPlanes, plane)
	}
	sum.States, sum.Channels, sum.Reasons = byCount(states), byCount(channels), byCount(reasons)
	sum.Kubernetes = byCount(kubernetes)
	sortBySeverity(sum.States)
	for _, n := range modules {
		sum.Modules = append(sum.Modules, *n)
	}
	sortByModuleAndVersion(sum.Modules)
	slices.SortStableFunc(sum.Worst, func(a, b worstRuntime) int {
		return cmp.Or(cmp.Compare(fleetlist.Severity(b.State), fleetlist.Severity(a.State)), a.Since.Compare(b.Since))
	})
	sum.Worst = sum.Worst[:min(len(sum.Worst), max(maxWorst, 0))]
	return sum
}

func addCounts(sum map[string]int, counts []runtimeCount) {
	for _, c := range counts {
		sum[c.Name] += c.Runtimes
	}
}

// sortBySeverity sorts counts of states. The worst state is the first.
func sortBySeverity(states []runtimeCount) {
	slices.SortStableFunc(states, func(a, b runtimeCount) int {
		return cmp.Compare(fleetlist.Severity(v1beta2.State(b.Name)), fleetlist.Severity(v1beta2.State(a.Name)))
	})
}

// sortByModuleAndVersion sorts counts by module, version and channel. The highest version of a module is the first.
func sortByModuleAndVersion(modules []moduleCount) {
	slices.SortFunc(modules, func(a, b moduleCount) int {
		return cmp.Or(strings.Compare(a.Module, b.Module), connection.CompareVersions(b.Version, a.Version),
			strings.Compare(b.Version, a.Version), strings.Compare(a.Channel, b.Channel))
	})
}
