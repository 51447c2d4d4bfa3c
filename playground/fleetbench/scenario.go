package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/playground/fleet"
)

// scenario is an operation on the fleet that is measured.
type scenario struct {
	name string
	// run runs the scenario, and sets the fields of s that only the scenario can set.
	run func(ctx context.Context, r *rig, s *Scenario) error
}

// scenarios lists all scenarios in the order in which they run.
var scenarios = []scenario{
	{"install", measureInstallation},
	{"idle", measureIdle},
	{"edit", measureEnablingExtraModule},
	{"upgrade", measureUpgrade},
	{"restart", measureRestart},
	{"failover", measureFailover},
	{"rotate", measureRotation},
	{"faults", measureFaults},
	{"rollout", measureStagedRollout},
	{"delete", measureDeletion},
}

// parseScenarioNames returns the scenarios in a list of names, in the order of scenarios. install is always included,
// because all other scenarios need an installed fleet.
func parseScenarioNames(names string) ([]scenario, error) {
	wanted := map[string]bool{"install": true}
	for name := range strings.SplitSeq(names, ",") {
		switch {
		case name == "all":
			return scenarios, nil
		case !slices.ContainsFunc(scenarios, func(s scenario) bool { return s.name == name }):
			return nil, fmt.Errorf(
				"--scenario: there is no %q; choose all or some of install, idle, edit, upgrade, restart, failover, "+
					"rotate, faults, rollout, delete, separated by commas", name)
		}
		wanted[name] = true
	}
	return slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return !wanted[s.name] }), nil
}

// runAll measures one number of clusters. runAll builds the rig, runs the scenarios one after the other, and closes the
// rig.
func runAll(ctx context.Context, o *options, clusters int, list []scenario) (run Run, err error) {
	run = Run{Clusters: clusters, Modules: o.Modules, Objects: o.Objects, WatchMode: o.WatchMode, Replicas: o.Replicas,
		Began: time.Now().UTC().Format(time.RFC3339)}
	o.logf("%d clusters × %d modules × %d objects, --watch-mode=%s: setting up", clusters,
		o.Modules, o.Objects, o.WatchMode)
	o.raiseOpenFileLimit(clusters)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	r, err := openRig(ctx, o, clusters, fail)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	run.Kubernetes = r.plane.version
	if err := r.startReplicasAndWait(ctx, r.replicaNames()...); err != nil {
		return run, err
	}
	if err := r.settle(ctx, &Scenario{Values: map[string]float64{}}); err != nil {
		return run, err
	}
	if r.empty, err = r.metricsAfterGC(ctx); err != nil {
		return run, err
	}
	run.Empty = r.empty
	for _, s := range list {
		result, err := r.measureAndPrint(ctx, s)
		run.Scenarios = append(run.Scenarios, result)
		if err != nil {
			return run, err
		}
	}
	return run, nil
}

// measureAndPrint runs a scenario, records the differences of all counters, and prints the result.
func (r *rig) measureAndPrint(ctx context.Context, what scenario) (Scenario, error) {
	s := Scenario{Name: what.name, Values: map[string]float64{}, Latencies: map[string]Latency{}}
	before, err := r.readCounters(ctx)
	if err != nil {
		return s, err
	}
	for _, m := range r.crew {
		forgetPeak(m.pid())
	}
	forgetPeak(r.plane.pid())
	forgetPeak(os.Getpid())
	limited, cancel := context.WithTimeoutCause(ctx, r.waitTimeout(),
		fmt.Errorf("it took longer than %v", r.waitTimeout()))
	defer cancel()
	if err := r.switchCPUProfiles(what.name); err != nil {
		return s, err
	}
	if r.Profile != "" {
		for _, m := range r.crew {
			go m.writeCPUProfiles(limited, filepath.Join(r.Profile, fmt.Sprintf("%s-%d-%s", what.name, r.clusters,
				m.name)))
		}
	}
	reference, err := startReferenceWorkload(limited)
	if err != nil {
		return s, err
	}
	p := r.showProgress(limited, what.name)
	begin := time.Now()
	err = what.run(limited, r, &s)
	took := time.Since(begin)
	p.stop()
	s.Reference = millis(reference())
	if err := r.switchCPUProfiles(""); err != nil {
		return s, err
	}
	if err != nil {
		s.Failed = err.Error()
		return s, fmt.Errorf("%s: %w", what.name, err)
	}
	after, err := r.readCounters(ctx)
	if err != nil {
		return s, err
	}
	s.Elapsed = took.Seconds()
	if s.Seconds == 0 {
		s.Seconds = took.Seconds()
	}
	s.setDifferences(before, after)
	if what.name == "upgrade" {
		r.upgradeP99 = s.Latencies["ready"].P99
	}
	s.print(os.Stderr)
	return s, nil
}

// switchCPUProfiles ends the present profiles of control plane and simulator, and starts new ones for a scenario. If
// the parameter scenario is "", no profile is started.
func (r *rig) switchCPUProfiles(scenario string) error {
	if r.Profile == "" {
		return nil
	}
	pprof.StopCPUProfile()
	of := func(part string) string {
		if scenario == "" {
			return ""
		}
		return filepath.Join(r.Profile, fmt.Sprintf("%s-%d-%s.pprof", scenario, r.clusters, part))
	}
	if _, err := fmt.Fprintln(r.plane.stdin, of("control-plane")); err != nil {
		return fmt.Errorf("asking the control plane for a profile: %w", err)
	}
	if scenario == "" {
		return nil
	}
	return startCPUProfile(of("simulator"))
}

// reading has the values of all counters of requests and usage at one moment.
type reading struct {
	manager, plane, bench usage
	fleet                 fleet.Counts
	requests              map[string]int // requests to the control plane
	inside                inside
	stats                 fleet.Stats
	agents                int // connections of agents
}

// readCounters reads all counters.
func (r *rig) readCounters(ctx context.Context) (c reading, err error) {
	if c.manager, err = r.crew.cpuAndMemory(); err != nil {
		return c, err
	}
	c.manager.cpu += r.retired.cpu
	for _, m := range r.crew {
		c.manager.sockets += socketsOf(m.pid())
	}
	if c.plane, err = cpuAndMemoryOf(r.plane.pid()); err != nil {
		return c, err
	}
	if c.bench, err = cpuAndMemoryOf(os.Getpid()); err != nil {
		return c, err
	}
	c.plane.sockets, c.bench.sockets = socketsOf(r.plane.pid()), socketsOf(os.Getpid())
	if c.inside, err = r.crew.readMetrics(ctx); err != nil {
		return c, err
	}
	if c.requests, err = r.plane.managerRequestCounts(ctx); err != nil {
		return c, err
	}
	c.fleet, c.stats = r.fleet.Counts(), r.fleet.Stats()
	if r.agents != nil {
		c.agents = r.agents.connections()
	}
	return c, nil
}

// recordUsageAndKillReplicas adds the usage of processes of the manager to r.retired, and kills the processes.
func (r *rig) recordUsageAndKillReplicas(c crew) error {
	u, err := c.cpuAndMemory()
	if err != nil {
		return err
	}
	r.retired.cpu += u.cpu
	return c.killAll()
}

// countDifferences returns the increase of each counter from before to after.
func countDifferences(before, after map[string]int) map[string]int {
	d := map[string]int{}
	for name, n := range after {
		if n != before[name] {
			d[name] = n - before[name]
		}
	}
	return d
}

// byVerb returns the sums of counters by verb. The verb is the first word of a counter's name.
func byVerb(counts map[string]int) map[string]int {
	verbs := map[string]int{}
	for name, n := range counts {
		verb, _, _ := strings.Cut(name, " ")
		verbs[verb] += n
	}
	return verbs
}

// sumOfWrites returns the number of requests that may change an object.
func sumOfWrites(counts map[string]int) int {
	total := 0
	for verb, n := range byVerb(counts) {
		switch strings.ToLower(verb) {
		case "apply", "create", "post", "update", "put", "patch", "delete", "deletecollection":
			total += n
		}
	}
	return total
}

// sumOfCounts returns the sum of all counts.
func sumOfCounts(counts map[string]int) int {
	n := 0
	for v := range maps.Values(counts) {
		n += v
	}
	return n
}
