package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/playground/program"
)

// TestMain makes the test binary also serve as the control plane, in a separate process.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == rolePlane {
		if err := servePlane(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// limit is the highest value that TestBrief allows for one measured figure.
type limit struct {
	figure string
	// usual is the measured figure, which does not depend on other load on the machine. margin is the permitted
	// increase, as a share of usual. The limit is usual × (1 + margin).
	usual, margin float64
	value         func(r *Run) (float64, bool)
}

// unlimited is the margin of a figure that has no limit on a slow machine. The figure must still be measured.
var unlimited = math.Inf(1)

// slowMargins are the margins of some figures on a slow machine. The manager writes the state Processing if it lasts
// for two seconds, and its reason if it lasts for ten seconds. On a slow machine, more upgrades and installations last
// that long. A slow rollout writes its progress more often, because it writes every two seconds while something
// changes. After a restart, a slow request may be repeated. The manager reads an object that is not ready every two
// seconds, and an object that is being deleted about every second, so the number of reads grows with the time and has
// no limit. Writes to runtimes are limited on every machine, and so are all figures that are always 0, except the
// number of passes that end with an error, because a request may time out.
var slowMargins = map[string]float64{
	"install: requests to runtimes for a module":                             unlimited,
	"install: writes to runtimes for a module":                               0.3,
	"install: writes to the control plane for a module":                      0.8,
	"install: heap that the manager allocates for a module, kB":              1,
	"install: passes with errors":                                            unlimited,
	"idle: requests to a runtime in five minutes":                            unlimited,
	"idle: live heap for a runtime, kB":                                      1,
	"idle: goroutines for a runtime":                                         1,
	"edit: requests to the runtime for one more module":                      unlimited,
	"edit: writes to the runtime for one more module":                        0.5,
	"edit: of these, to objects of the module":                               0.2,
	"upgrade: requests to runtimes for a module":                             unlimited,
	"upgrade: writes to runtimes for a module":                               0.4,
	"upgrade: writes to the control plane for a module":                      1.5,
	"restart: requests to a runtime":                                         2,
	"failover: requests to a runtime":                                        2,
	"rollout: writes to the control plane for a module":                      1.5,
	"rollout: writes of the status of the rollout":                           20,
	"rollout: requests to runtimes that were not admitted":                   unlimited,
	"rollout: writes to the control plane for a runtime that was taken back": 1.5,
	"rollout: requests to other runtimes on the way back":                    unlimited,
	"delete: requests to a runtime":                                          unlimited,
}

// slowness are the latencies in ms, each in the key of a scenario's Latencies, above which a machine is slow. Two and
// ten seconds are the times after which the manager reads again or writes the progress. A tenth of the upgrades may
// last longer before their additional requests exceed the usual margins. Edits are made one after the other, so one
// slow edit shows that the processes were stopped for a time.
var slowness = []struct {
	scenario, latency string
	most              float64
	value             func(l Latency) float64
}{
	{"install", "ready", 10_000, func(l Latency) float64 { return l.P90 }},
	{"edit", "applied", 2000, func(l Latency) float64 { return l.Most }},
	{"upgrade", "ready", 2000, func(l Latency) float64 { return l.P90 }},
}

// isSlow reports whether the machine was slow during a run.
func isSlow(r *Run) bool {
	for _, l := range slowness {
		if s := r.succeededScenario(l.scenario); s != nil && l.value(s.Latencies[l.latency]) > l.most {
			return true
		}
	}
	return false
}

// marginIn returns the margin of a limit in a run.
func (l *limit) marginIn(r *Run) float64 {
	if wider, is := slowMargins[l.figure]; is && isSlow(r) {
		return wider
	}
	return l.margin
}

// limits covers counts and ratios, but no times. usual is measured with 100 clusters × 1 module × 10 objects. In this
// short run, a large part of the work does not depend on modules (catalog, agent). A figure of 0 is always 0. A count
// may exceed its usual value by the margin, because a busy machine may split a reconcile in two. The allocated heap
// stands for processor time, which has no limit: one version needed less than 4.7 times the reference work on one
// machine, and 6.2 times on another. A change of the code that reduces a figure should also reduce the value of usual
// in this list. slowMargins has the margins on a slow machine. The writes include the Events about each change of a
// module: one in the control plane, one in the runtime. On a busy machine, more upgrades take longer than two seconds,
// and each of them writes the state Processing. During a deletion, the manager also reads the owner of each object, and
// these requests are counted.
var limits = []limit{
	{"install: requests to runtimes for a module", 43.1, 0.2,
		figureOf("install", func(s *Scenario) float64 { return perInstall(s, float64(sumOfCounts(s.Runtimes))) })},
	{"install: writes to runtimes for a module", 39, 0.15,
		figureOf("install", func(s *Scenario) float64 { return perInstall(s, float64(s.RuntimeWrites)) })},
	{"install: writes to the control plane for a module", 8.5, 0.25,
		figureOf("install", func(s *Scenario) float64 { return perInstall(s, float64(s.PlaneWrites)) })},
	{"install: heap that the manager allocates for a module, kB", 2570, 0.25,
		figureOf("install", func(s *Scenario) float64 { return s.AllocatedPerInstall })},
	{"install: passes with errors", 0, 0, figureOf("install", func(s *Scenario) float64 { return float64(s.Errors) })},
	{"idle: writes to runtimes", 0, 0, valueOf("idle", idleWrites)},
	{"idle: writes to the control plane", 0, 0, valueOf("idle", idlePlaneWrites)},
	{"idle: requests to a runtime in five minutes", 1, 2, valueOf("idle", requestsPerFive)},
	{"idle: live heap for a runtime, kB", 70, 0.25, valueOf("idle", heapPerRuntime)},
	{"idle: goroutines for a runtime", 1.1, 0.4, valueOf("idle", goroutinesPerRuntime)},
	{"idle: lines of the manager's metrics", 1600, 0.3, valueOf("idle", metricLines)},
	{"edit: requests to the runtime for one more module", 18.3, 0.25, valueOf("edit", installRequests)},
	{"edit: writes to the runtime for one more module", 16, 0.2, valueOf("edit", installPatches)},
	{"edit: of these, to objects of the module", 13, 0, valueOf("edit", installModuleWrites)},
	{"upgrade: requests to runtimes for a module", 19.1, 0.2,
		figureOf("upgrade", func(s *Scenario) float64 { return perInstall(s, float64(sumOfCounts(s.Runtimes))) })},
	{"upgrade: writes to runtimes for a module", 16, 0.15,
		figureOf("upgrade", func(s *Scenario) float64 { return perInstall(s, float64(s.RuntimeWrites)) })},
	{"upgrade: writes to the control plane for a module", 4.5, 0.4,
		figureOf("upgrade", func(s *Scenario) float64 { return perInstall(s, float64(s.PlaneWrites)) })},
	{"restart: writes to runtimes", 0, 0, valueOf("restart", restartWrites)},
	{"restart: requests to a runtime", 2, 0.25, // one of them reviews the credential
		valueOf("restart", requestsPerRuntime)},
	{"failover: writes to runtimes", 0, 0, valueOf("failover", restartWrites)},
	{"failover: requests to a runtime", 2, 0.25, // likewise
		valueOf("failover", requestsPerRuntime)},
	{"rotate: live heap afterwards, % of before", 102, 0.2, valueOf("rotate", memoryGrowth)},
	{"rotate: writes to runtimes", 0, 0, figureOf("rotate",
		func(s *Scenario) float64 { return float64(s.RuntimeWrites) })},
	{"rollout: halts of the version that works", 0, 0, valueOf("rollout", goodHalts)},
	{"rollout: writes to the control plane for a module", 5, 0.4, valueOf("rollout", stagedWrites)},
	{"rollout: writes of the status of the rollout", 20, 1, valueOf("rollout", rolloutWrites)},
	{"rollout: size of the ModuleRollout, bytes", 6100, 0.3, valueOf("rollout", rolloutSize)},
	{"rollout: runtimes that began after the halt", 0, 0, valueOf("rollout", badLater)},
	{"rollout: writes to runtimes that were not admitted", 0, 0, valueOf("rollout", waitersWrites)},
	{"rollout: requests to runtimes that were not admitted", 1, 3, // a poll or a probe that was due anyway
		valueOf("rollout", waitersRequests)},
	{"rollout: writes to the control plane for a runtime that was taken back", 4.5, 0.5, valueOf("rollout", backWrites)},
	{"rollout: other runtimes that were changed on the way back", 0, 0, valueOf("rollout", othersChanged)},
	{"rollout: writes to other runtimes on the way back", 0, 0, valueOf("rollout", othersWrites)},
	{"rollout: requests to other runtimes on the way back", 1, 3, // a poll or a probe that was due anyway
		valueOf("rollout", othersRequests)},
	{"delete: requests to a runtime", 42, 0.25, valueOf("delete", deleteRequests)},
	{"delete: Deployments that are left", 0, 0, valueOf("delete", deploymentsLeft)},
	{"delete: connections to runtimes that are left open", 0, 0, valueOf("delete", connectionsLeft)},
}

// TestBrief runs all scenarios with --brief and a few clusters. TestBrief fails if a figure exceeds its limit.
func TestBrief(t *testing.T) {
	bin := t.TempDir()
	if err := program.Build("../..", bin, program.Manager); err != nil {
		t.Fatal(err)
	}
	o := &options{
		Clusters: []int{100}, Modules: 1, Objects: 10, Scenario: "all", WatchMode: config.WatchAgent,
		Manager: filepath.Join(bin, program.Manager), Idle: time.Second, Edits: 10, Replicas: 1, Brief: true,
		Keep: t.TempDir(),
		// Each runtime has its time slot for these checks. A slot in the five seconds of the idle scenario would look
		// like 15 requests to each runtime in five minutes.
		ManagerArgs: []string{"--orphan-sweep-interval=0", "--watched-audit-interval=10000h"},
	}
	list, err := o.completeAndValidate()
	if err != nil {
		t.Fatal(err)
	}
	run, err := runAll(t.Context(), o, o.Clusters[0], list)
	if err != nil {
		t.Fatalf("%v; the end of the manager's log:\n%s", err, tail(t, o.Keep))
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 2, 8, 2, ' ', 0)
	fmt.Fprintln(w, "FIGURE\tUSUAL\tAT MOST\tIS\t")
	for _, l := range limits {
		v, there := l.value(&run)
		if !there {
			t.Errorf("%s: it was not measured", l.figure)
			continue
		}
		most := l.usual * (1 + l.marginIn(&run))
		if math.IsNaN(most) { // the usual value is 0, and the margin is unlimited
			most = unlimited
		}
		verdict := ""
		if v > most {
			verdict = "TOO MUCH"
			t.Errorf("%s: %s, usually %s, at most %s", l.figure, formatNumber(v), formatNumber(l.usual),
				formatNumber(most))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", l.figure, formatNumber(l.usual), formatNumber(most), formatNumber(v),
			verdict)
	}
	_ = w.Flush()
	for name := range slowMargins {
		if !slices.ContainsFunc(limits, func(l limit) bool { return l.figure == name }) {
			t.Errorf("slowMargins names %q, which has no limit", name)
		}
	}
	t.Logf("the small run, %s (slow: %v):\n%s", cmp.Or(run.Began, "now"), isSlow(&run), &b)
}

// tail returns the end of the manager's log.
func tail(t *testing.T, folder string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "manager.log"))
	if err != nil {
		return []byte(err.Error())
	}
	return text[max(0, len(text)-4000):]
}
