package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// Verdict is the result of comparing an aim with the measured figure.
type Verdict string

// Verdicts of an aim.
const (
	Met         Verdict = "met"
	Missed      Verdict = "MISSED"
	NotMeasured Verdict = "not measured"
)

// Aim is a limit that the manager should keep, with the measured figure.
type Aim struct {
	What    string  `json:"what"`
	Limit   float64 `json:"limit"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Verdict Verdict `json:"verdict"`
	// Note is the size at which the figure was measured, or the reason why it was not measured.
	Note string `json:"note"`
}

// full is the number of clusters for which the aims are defined.
const full = 10_000

// aim defines a limit and the figure that is compared with it. A figure above the limit misses the aim.
type aim struct {
	what  string
	limit float64
	unit  string
	// least is the minimum number of clusters for which the figure is meaningful; 0 means any number.
	least int
	// value returns the figure of a run. value returns false if the run did not measure the figure.
	value func(r *Run) (float64, bool)
}

// figureOf returns a function that reads one figure of the scenario whose name is in the parameter name.
func figureOf(name string, figure func(s *Scenario) float64) func(r *Run) (float64, bool) {
	return func(r *Run) (float64, bool) {
		s := r.succeededScenario(name)
		if s == nil {
			return 0, false
		}
		return figure(s), true
	}
}

// valueOf returns a function that reads one of the Values of the scenario with this name.
func valueOf(name, key string) func(r *Run) (float64, bool) {
	return func(r *Run) (float64, bool) {
		s := r.succeededScenario(name)
		if s == nil {
			return 0, false
		}
		v, there := s.Values[key]
		return v, there
	}
}

// aims lists the performance targets that a run with one number of clusters must reach. The variable growing lists the
// targets for the growth from one number of clusters to another.
var aims = []aim{
	{"resident memory of the manager during install", 1536, "MiB", full,
		figureOf("install", func(s *Scenario) float64 { return float64(s.Manager.Peak) / mega })},
	{"live heap for one idle runtime", 60, "kB", 0, valueOf("idle", heapPerRuntime)},
	{"CPU of the manager for one module install", 5, "ms", 0,
		figureOf("install", func(s *Scenario) float64 { return s.CPUPerInstall })},
	{"writes to runtimes while idle", 0, "", 0, valueOf("idle", idleWrites)},
	{"writes to the control plane while idle", 0, "", 0, valueOf("idle", idlePlaneWrites)},
	{"requests to an idle runtime in five minutes", 1, "", 0, func(r *Run) (float64, bool) {
		v, there := valueOf("idle", requestsPerFive)(r)
		return v, there && r.WatchMode != config.WatchPoll // polling needs requests, so the aim is not for that mode
	}},
	{"CPU of the manager while idle", 5, "% of a core", full, valueOf("idle", idleCores)},
	{"writes to the runtime to install a module, beyond its objects", 3, "", 0, func(r *Run) (float64, bool) {
		v, there := valueOf("edit", installModuleWrites)(r)
		return v - float64(r.Objects), there
	}},
	{"writes to runtimes after a restart", 0, "", 0, valueOf("restart", restartWrites)},
	{"quiet after a restart", 60, "s", full, valueOf("restart", quietAfter)},
	{"p99 from edit to applied during an upgrade of the whole fleet", 2000, "ms", 0,
		figureOf("edit", func(s *Scenario) float64 { return s.Latencies[editsApplied].P99 })},
	{healthyRatio, 1.5, "", 0, valueOf("faults", healthyRatio)},
	{"probes of a dead cluster a minute", 1, "", 0, valueOf("faults", probesPerDead)},
	{"live heap after all credentials were rotated", 110, "% of before", 0, valueOf("rotate", memoryGrowth)},
}

// growing lists the figures that are compared between 1,000 and 10,000 clusters. Processor time is given as a ratio to
// the reference work, because a busy machine slows down the manager and the reference work alike.
var growing = []aim{
	{"CPU for one install at 10,000 clusters, by the reference work", 1.2, "times that at 1,000", 0,
		figureOf("install", func(s *Scenario) float64 { return s.RatioPerInstall })},
	{"live heap for one runtime at 10,000 clusters", 1.2, "times that at 1,000", 0, valueOf("idle", heapPerRuntime)},
}

// judgeAims compares the figure of each performance target with the target. If several runs measured the figure,
// judgeAims uses the run with the most clusters.
func judgeAims(runs []Run) []Aim {
	if len(runs) == 0 {
		return nil
	}
	bySize := map[int]*Run{}
	for i := range runs {
		bySize[runs[i].Clusters] = &runs[i]
	}
	var all []Aim
	for _, a := range aims {
		result := Aim{What: a.what, Limit: a.limit, Unit: a.unit, Verdict: NotMeasured}
		var v float64
		clusters := 0
		for i := range runs {
			if value, there := a.value(&runs[i]); there && runs[i].Clusters > clusters {
				v, clusters = value, runs[i].Clusters
			}
		}
		switch {
		case clusters == 0:
			result.Note = "its scenario did not run"
		case clusters < a.least:
			result.Value, result.Note = v, fmt.Sprintf("with %d clusters; says nothing with less than %d", clusters,
				a.least)
		default:
			result.setVerdict(v, fmt.Sprintf("%d clusters", clusters))
		}
		all = append(all, result)
	}
	for _, a := range growing {
		result := Aim{What: a.what, Limit: a.limit, Unit: a.unit, Verdict: NotMeasured,
			Note: "needs runs with 1000 and 10000 clusters"}
		small, large := bySize[full/10], bySize[full]
		if small != nil && large != nil {
			s, first := a.value(small)
			l, second := a.value(large)
			if first && second && s > 0 {
				result.setVerdict(l/s, fmt.Sprintf("%s, then %s", formatNumber(s), formatNumber(l)))
			}
		}
		all = append(all, result)
	}
	return all
}

func (a *Aim) setVerdict(value float64, note string) {
	a.Value, a.Verdict, a.Note = value, Met, note
	if value > a.Limit {
		a.Verdict = Missed
	}
}

// printAims writes the aims as a table.
func printAims(w io.Writer, all []Aim) {
	t := tabwriter.NewWriter(w, 2, 8, 2, ' ', 0)
	fmt.Fprintln(t, "AIM\tAT MOST\tIS\tUNIT\tVERDICT\tNOTE")
	for _, a := range all {
		is := formatNumber(a.Value)
		if a.Verdict == NotMeasured && a.Value == 0 {
			is = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", a.What, formatNumber(a.Limit), is, a.Unit, a.Verdict, a.Note)
	}
	_ = t.Flush()
}
