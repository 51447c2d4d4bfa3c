package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// figure is a number of a run whose growth with the number of clusters matters.
type figure struct {
	title, unit string
	value       func(r *Run) (float64, bool)
}

// lead is one of the most important figures, which the chart shows first. The field aim is the performance target for
// this figure.
type lead struct {
	title string
	aim   float64
}

// leading lists the figures of the first panels of the chart, with their performance targets. Each figure is the cost
// of one runtime or module, so a flat line is good.
var leading = []lead{
	{"install: manager's CPU for a module, by the reference work", 0.6},
	{"install: requests to runtimes for a module", 19},
	{"install: writes to the control plane for a module", 3.5},
	{"upgrade: requests to runtimes for a module", 17},
	{"upgrade: writes to the control plane for a module", 4},
	{"idle: manager's live heap for a runtime", 60},
}

// shared lists the figures that are measured for the whole fleet. The chart divides such a figure by the number of
// clusters, multiplies it by the field factor, and shows the result in the field unit.
var shared = map[string]struct {
	unit   string
	factor float64
}{
	"install: time": {"ms", 1000}, "upgrade: time": {"ms", 1000}, "delete: time": {"ms", 1000},
	"install: manager's largest resident memory": {"kB", mega / 1000.0},
	"idle: manager's resident memory":            {"kB", mega / 1000.0},
	"idle: manager's share of a core":            {"µs each second", 10_000},
	"idle: goroutines of the manager":            {"", 1},
	"idle: open connections of the manager":      {"", 1},
}

// figures lists the figures of the chart and of the table of growth.
var figures = []figure{
	{"install: time", "s", figureOf("install", func(s *Scenario) float64 { return s.Seconds })},
	{"install: modules a second", "", figureOf("install", func(s *Scenario) float64 { return s.InstallsPerSecond })},
	{"install: manager's CPU for a module", "ms", figureOf("install",
		func(s *Scenario) float64 { return s.CPUPerInstall })},
	{"install: heap that the manager allocates for a module", "kB",
		figureOf("install", func(s *Scenario) float64 { return s.AllocatedPerInstall })},
	{"install: manager's CPU for a module, by the reference work", "",
		figureOf("install", func(s *Scenario) float64 { return s.RatioPerInstall })},
	{"install: CPU for the reference work", "ms", figureOf("install",
		func(s *Scenario) float64 { return s.Reference })},
	{"install: API server's CPU for a module", "ms",
		figureOf("install", func(s *Scenario) float64 { return perInstall(s, 1000*s.ControlPlane.CPU) })},
	{"install: requests to runtimes for a module", "",
		figureOf("install", func(s *Scenario) float64 { return perInstall(s, float64(sumOfCounts(s.Runtimes))) })},
	{"install: writes to the control plane for a module", "",
		figureOf("install", func(s *Scenario) float64 { return perInstall(s, float64(s.PlaneWrites)) })},
	{"install: manager's largest resident memory", "MiB",
		figureOf("install", func(s *Scenario) float64 { return float64(s.Manager.Peak) / mega })},
	{"idle: manager's live heap for a runtime", "kB", valueOf("idle", heapPerRuntime)},
	{"idle: manager's resident memory", "MiB", figureOf(
		"idle", func(s *Scenario) float64 { return float64(s.Manager.RSS) / mega })},
	{"idle: manager's share of a core", "%", valueOf("idle", idleCores)},
	{"idle: goroutines of the manager", "", figureOf("idle", func(s *Scenario) float64 { return s.Inside.Goroutines })},
	{"idle: open connections of the manager", "", figureOf(
		"idle", func(s *Scenario) float64 { return float64(s.Connections + s.AgentConnections) })},
	{"edit: p99 until applied", "ms", figureOf("edit",
		func(s *Scenario) float64 { return s.Latencies["applied"].P99 })},
	{"edit during upgrade: p99 until applied", "ms",
		figureOf("edit", func(s *Scenario) float64 { return s.Latencies[editsApplied].P99 })},
	{"upgrade: requests to runtimes for a module", "",
		figureOf("upgrade", func(s *Scenario) float64 { return perInstall(s, float64(sumOfCounts(s.Runtimes))) })},
	{"upgrade: writes to the control plane for a module", "",
		figureOf("upgrade", func(s *Scenario) float64 { return perInstall(s, float64(s.PlaneWrites)) })},
	{"upgrade: time", "s", figureOf("upgrade", func(s *Scenario) float64 { return s.Seconds })},
	{"restart: quiet after", "s", valueOf("restart", quietAfter)},
	{"restart: requests to a runtime", "", valueOf("restart", requestsPerRuntime)},
	{"failover: nobody works", "s", valueOf("failover", deadTime)},
	{"rotate: p99 until used", "ms", figureOf("rotate", func(s *Scenario) float64 { return s.Latencies["used"].P99 })},
	{"delete: time", "s", figureOf("delete", func(s *Scenario) float64 { return s.Seconds })},
	{"delete: requests to a runtime", "", valueOf("delete", deleteRequests)},
}

func perInstall(s *Scenario, v float64) float64 { return v / float64(max(1, s.Installs)) }

// printGrowth writes a table of the figures with a column for each size.
func printGrowth(w io.Writer, runs []Run) {
	if len(runs) < 2 {
		return
	}
	t := tabwriter.NewWriter(w, 2, 8, 2, ' ', 0)
	fmt.Fprint(t, "FIGURE\t")
	for i := range runs {
		fmt.Fprintf(t, "%d\t", runs[i].Clusters)
	}
	fmt.Fprintln(t)
	for _, f := range figures {
		fmt.Fprintf(t, "%s, %s\t", f.title, f.unit)
		for i := range runs {
			if v, there := f.value(&runs[i]); there {
				fmt.Fprintf(t, "%s\t", formatNumber(v))
			} else {
				fmt.Fprint(t, "-\t")
			}
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush()
	fmt.Fprintln(w)
}
