package main

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Result is the JSON output of the benchmark.
type Result struct {
	Machine Machine `json:"machine"`
	Runs    []Run   `json:"runs"`
	Aims    []Aim   `json:"aims"`
}

// Machine describes the machine of a run.
type Machine struct {
	Processor string `json:"processor"`
	CPUs      int    `json:"cpus"`
	Memory    int64  `json:"memoryBytes"`
	System    string `json:"system"`
	Go        string `json:"go"`
	Began     string `json:"began"`
}

// Run holds the results for one number of clusters.
type Run struct {
	Clusters   int        `json:"clusters"`
	Modules    int        `json:"modules"`
	Objects    int        `json:"objects"`
	WatchMode  string     `json:"watchMode"`
	Replicas   int        `json:"replicas"`
	Began      string     `json:"began"`
	Kubernetes string     `json:"kubernetes"`
	Empty      inside     `json:"managerWithoutFleet"`
	Scenarios  []Scenario `json:"scenarios"`
}

// succeededScenario returns the results of a scenario. succeededScenario returns nil if the scenario did not run or
// failed.
func (r *Run) succeededScenario(name string) *Scenario {
	for i := range r.Scenarios {
		if s := &r.Scenarios[i]; s.Name == name && s.Failed == "" {
			return s
		}
	}
	return nil
}

// Scenario holds the results of one scenario.
type Scenario struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	// Elapsed is the time of the whole scenario, including the time before and after the measured part. CPU and
	// requests are measured over the same time.
	Elapsed float64 `json:"elapsedSeconds"`
	// Failed is the error that ended the scenario early. If a Scenario has an error in Failed, its other results are
	// empty.
	Failed string `json:"failed,omitempty"`
	// Clusters is the number of changed clusters. Installs is the number of modules that were installed, upgraded or
	// removed in these clusters.
	Clusters          int     `json:"clusters,omitempty"`
	Installs          int     `json:"installs,omitempty"`
	ClustersPerSecond float64 `json:"clustersPerSecond,omitempty"`
	InstallsPerSecond float64 `json:"installsPerSecond,omitempty"`
	// Manager, ControlPlane and Simulator are the usage of three processes: the manager, the API server with etcd, and
	// the benchmark with fleet, agents and registry.
	Manager      Use `json:"manager"`
	ControlPlane Use `json:"controlPlane"`
	Simulator    Use `json:"simulator"`
	// CPUPerInstall is the manager's processor time per module, in milliseconds.
	CPUPerInstall float64 `json:"managerMsPerInstall,omitempty"`
	// Reference is the processor time of the reference work during the scenario, in milliseconds. RatioPerInstall is
	// CPUPerInstall divided by Reference. On a faster or less busy machine, CPUPerInstall and Reference are smaller,
	// but RatioPerInstall is the same.
	Reference       float64 `json:"referenceMs"`
	RatioPerInstall float64 `json:"referencesPerInstall,omitempty"`
	// AllocatedPerInstall is the heap that the manager allocated per module, in kB. AllocatedPerInstall depends neither
	// on the machine nor on other load, unlike CPUPerInstall.
	AllocatedPerInstall float64 `json:"allocatedPerInstall,omitempty"`
	// Inside holds figures from the manager's own metrics, at the end of the scenario.
	Inside inside `json:"inside"`
	Passes int    `json:"passes"`
	Errors int    `json:"passesWithErrors"`
	// Runtimes and Plane are the numbers of requests to all runtimes and to the control plane, by verb and resource.
	Runtimes      map[string]int `json:"runtimeRequests"`
	RuntimeWrites int            `json:"runtimeWrites"`
	Plane         map[string]int `json:"controlPlaneRequests"`
	PlaneWrites   int            `json:"controlPlaneWrites"`
	// Connections is the number of open connections to runtimes at the end. AgentConnections is the number of open
	// connections of agents at the end.
	Connections      int `json:"connections"`
	AgentConnections int `json:"agentConnections"`
	// Objects is the number of objects in the simulated clusters.
	Objects   int                `json:"objects"`
	Latencies map[string]Latency `json:"latencies,omitempty"`
	// Values holds the figures that only this scenario has.
	Values map[string]float64 `json:"values,omitempty"`
}

// Use is the usage of a process during a scenario. Memory is in bytes.
type Use struct {
	CPU     float64 `json:"cpuSeconds"`
	RSS     int64   `json:"rss"`
	Peak    int64   `json:"peakRSS"`
	Sockets int     `json:"sockets"`
}

// Latency is a summary of times, in milliseconds.
type Latency struct {
	N    int     `json:"n"`
	P50  float64 `json:"p50Ms"`
	P90  float64 `json:"p90Ms"`
	P99  float64 `json:"p99Ms"`
	Most float64 `json:"maxMs"`
}

// latencyOf returns the summary of a list of times.
func latencyOf(times []time.Duration) Latency {
	if len(times) == 0 {
		return Latency{}
	}
	sorted := slices.Sorted(slices.Values(times))
	at := func(share float64) float64 { return millis(percentile(sorted, share)) }
	return Latency{N: len(sorted), P50: at(0.5), P90: at(0.9), P99: at(0.99), Most: at(1)}
}

// percentile returns the smallest value for which the given share of all values is less than or equal to this value.
func percentile(sorted []time.Duration, share float64) time.Duration {
	rank := int(math.Ceil(share * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// setDifferences sets the fields that are differences between two readings.
func (s *Scenario) setDifferences(before, after reading) {
	use := func(b, a usage) Use {
		return Use{CPU: (a.cpu - b.cpu).Seconds(), RSS: a.rss, Peak: a.peak, Sockets: a.sockets}
	}
	s.Manager, s.ControlPlane, s.Simulator = use(before.manager, after.manager), use(before.plane, after.plane),
		use(before.bench, after.bench)
	s.Runtimes, s.Plane = countDifferences(before.fleet.Requests, after.fleet.Requests),
		countDifferences(before.requests, after.requests)
	s.RuntimeWrites, s.PlaneWrites = sumOfWrites(s.Runtimes), sumOfWrites(s.Plane)
	s.Inside, s.Objects, s.Connections, s.AgentConnections = after.inside, after.stats.Objects,
		after.stats.Connections, after.agents
	s.Passes, s.Errors = int(after.inside.Passes-before.inside.Passes), int(after.inside.Errors-before.inside.Errors)
	if s.Passes < 0 { // the manager was restarted, so the counter began at zero again
		s.Passes, s.Errors = int(after.inside.Passes), int(after.inside.Errors)
	}
	if s.Clusters > 0 {
		s.ClustersPerSecond = float64(s.Clusters) / s.Seconds
	}
	if s.Installs > 0 {
		s.InstallsPerSecond = float64(s.Installs) / s.Seconds
		s.AllocatedPerInstall = max(0, after.inside.Allocated-before.inside.Allocated) / float64(s.Installs) / 1000
		s.CPUPerInstall = 1000 * s.Manager.CPU / float64(s.Installs)
		if s.Reference > 0 {
			s.RatioPerInstall = s.CPUPerInstall / s.Reference
		}
	}
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
