package main

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Result is what is written as JSON.
type Result struct {
	Machine Machine `json:"machine"`
	Runs    []Run   `json:"runs"`
	Aims    []Aim   `json:"aims"`
}

// Machine is where it was measured.
type Machine struct {
	Processor string `json:"processor"`
	CPUs      int    `json:"cpus"`
	Memory    int64  `json:"memoryBytes"`
	System    string `json:"system"`
	Go        string `json:"go"`
	Began     string `json:"began"`
}

// Run is one size.
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

// scenario returns a scenario by name, nil if it did not run or failed.
func (r *Run) scenario(name string) *Scenario {
	for i := range r.Scenarios {
		if s := &r.Scenarios[i]; s.Name == name && s.Failed == "" {
			return s
		}
	}
	return nil
}

// Scenario is one measurement.
type Scenario struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	// Elapsed is all of it, with what came before and after what was measured: that is what CPU and requests are for.
	Elapsed float64 `json:"elapsedSeconds"`
	// Failed is why it ended early; nothing else is there then.
	Failed string `json:"failed,omitempty"`
	// Clusters are those that were changed, Installs the modules that were installed, upgraded or removed there.
	Clusters          int     `json:"clusters,omitempty"`
	Installs          int     `json:"installs,omitempty"`
	ClustersPerSecond float64 `json:"clustersPerSecond,omitempty"`
	InstallsPerSecond float64 `json:"installsPerSecond,omitempty"`
	// Manager is its process, ControlPlane the one with API server and etcd, Simulator that of the benchmark: fleet,
	// agents and registry.
	Manager      Use `json:"manager"`
	ControlPlane Use `json:"controlPlane"`
	Simulator    Use `json:"simulator"`
	// CPUPerInstall is processor time of the manager for one module, in milliseconds.
	CPUPerInstall float64 `json:"managerMsPerInstall,omitempty"`
	// Reference is the processor time of the reference work meanwhile, in milliseconds; RatioPerInstall is
	// CPUPerInstall by it: on a faster or a quieter machine both are less, the ratio is not.
	Reference       float64 `json:"referenceMs"`
	RatioPerInstall float64 `json:"referencesPerInstall,omitempty"`
	// Inside is what the manager says of itself, at the end.
	Inside inside `json:"inside"`
	Passes int    `json:"passes"`
	Errors int    `json:"passesWithErrors"`
	// Runtimes are requests to all runtimes by verb and resource, Plane those to the control plane.
	Runtimes      map[string]int `json:"runtimeRequests"`
	RuntimeWrites int            `json:"runtimeWrites"`
	Plane         map[string]int `json:"controlPlaneRequests"`
	PlaneWrites   int            `json:"controlPlaneWrites"`
	// Connections are those open at the end: to runtimes, and of agents.
	Connections      int `json:"connections"`
	AgentConnections int `json:"agentConnections"`
	// Objects in the simulated clusters.
	Objects   int                `json:"objects"`
	Latencies map[string]Latency `json:"latencies,omitempty"`
	// Values are what only this scenario has.
	Values map[string]float64 `json:"values,omitempty"`
}

// Use is what a process used during a scenario. Memory is in bytes.
type Use struct {
	CPU     float64 `json:"cpuSeconds"`
	RSS     int64   `json:"rss"`
	Peak    int64   `json:"peakRSS"`
	Sockets int     `json:"sockets"`
}

// Latency sums up times, in milliseconds.
type Latency struct {
	N    int     `json:"n"`
	P50  float64 `json:"p50Ms"`
	P90  float64 `json:"p90Ms"`
	P99  float64 `json:"p99Ms"`
	Most float64 `json:"maxMs"`
}

// summary sums up times.
func summary(times []time.Duration) Latency {
	if len(times) == 0 {
		return Latency{}
	}
	sorted := slices.Sorted(slices.Values(times))
	at := func(share float64) float64 { return millis(percentile(sorted, share)) }
	return Latency{N: len(sorted), P50: at(0.5), P90: at(0.9), P99: at(0.99), Most: at(1)}
}

// percentile returns the least value that such a share of the sorted values does not exceed.
func percentile(sorted []time.Duration, share float64) time.Duration {
	rank := int(math.Ceil(share * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// fill takes the difference of two readings.
func (s *Scenario) fill(before, after reading) {
	use := func(b, a usage) Use {
		return Use{CPU: (a.cpu - b.cpu).Seconds(), RSS: a.rss, Peak: a.peak, Sockets: a.sockets}
	}
	s.Manager, s.ControlPlane, s.Simulator = use(before.manager, after.manager), use(before.plane, after.plane),
		use(before.bench, after.bench)
	s.Runtimes, s.Plane = difference(before.fleet.Requests, after.fleet.Requests),
		difference(before.requests, after.requests)
	s.RuntimeWrites, s.PlaneWrites = writes(s.Runtimes), writes(s.Plane)
	s.Inside, s.Objects, s.Connections, s.AgentConnections = after.inside, after.stats.Objects,
		after.stats.Connections, after.agents
	s.Passes, s.Errors = int(after.inside.Passes-before.inside.Passes), int(after.inside.Errors-before.inside.Errors)
	if s.Passes < 0 { // another process
		s.Passes, s.Errors = int(after.inside.Passes), int(after.inside.Errors)
	}
	if s.Clusters > 0 {
		s.ClustersPerSecond = float64(s.Clusters) / s.Seconds
	}
	if s.Installs > 0 {
		s.InstallsPerSecond = float64(s.Installs) / s.Seconds
		s.CPUPerInstall = 1000 * s.Manager.CPU / float64(s.Installs)
		if s.Reference > 0 {
			s.RatioPerInstall = s.CPUPerInstall / s.Reference
		}
	}
}

// names returns the keys of a map in order.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
