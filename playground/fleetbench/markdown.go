package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pageBegin and pageEnd are marker lines in a Markdown page. The report replaces the text between the two marker lines,
// and leaves the rest of the page unchanged.
const (
	pageBegin = "<!-- Written by `make fleet-report`, from here -->"
	pageEnd   = "<!-- to here -->"
)

// reportAndUpdatePage merges the results of several runs and prints them. If page is not empty, reportAndUpdatePage
// writes the results into that page, and the chart into the same folder.
func reportAndUpdatePage(files []string, page string, out io.Writer) error {
	r, err := readAndMergeResults(files)
	if err != nil {
		return err
	}
	r.print(out)
	if page == "" {
		return nil
	}
	text, err := os.ReadFile(page) //nolint:gosec // whoever runs the benchmark names the page
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	head, rest, found := strings.Cut(string(text), pageBegin)
	_, tail, ended := strings.Cut(rest, pageEnd)
	if !found || !ended {
		return fmt.Errorf("writing into %s: the lines %q and %q are not there", page, pageBegin, pageEnd)
	}
	picture := strings.TrimSuffix(page, filepath.Ext(page)) + ".svg"
	var b strings.Builder
	r.markdown(&b, filepath.Base(picture))
	//nolint:gosec // as above
	if err := os.WriteFile(page, []byte(head+pageBegin+"\n\n"+b.String()+pageEnd+tail), 0o600); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	if err := os.WriteFile(picture, chart(withOneReplica(r.Runs)), 0o600); err != nil {
		return fmt.Errorf("writing the chart: %w", err)
	}
	return nil
}

// readAndMergeResults reads results and merges runs of the same fleet. If two files have the same scenario, the later
// file wins. All results must come from the same machine.
func readAndMergeResults(files []string) (*Result, error) {
	if len(files) == 0 {
		return nil, errors.New("no results to report: name files that --out has written")
	}
	all := &Result{}
	for _, file := range files {
		data, err := os.ReadFile(file) //nolint:gosec // whoever runs the benchmark names the file
		if err != nil {
			return nil, fmt.Errorf("reading a result: %w", err)
		}
		var one Result
		if err := json.Unmarshal(data, &one); err != nil {
			return nil, fmt.Errorf("reading the result %s: %w", file, err)
		}
		if all.Machine.Processor == "" {
			all.Machine = one.Machine
		}
		if a, b := all.Machine, one.Machine; a.Processor != b.Processor || a.CPUs != b.CPUs ||
			a.Memory>>30 != b.Memory>>30 {
			return nil, fmt.Errorf("%s was measured on another machine (%s) than the first one (%s): report them apart",
				file, b, a)
		}
		for _, run := range one.Runs {
			all.addOrMergeRun(run)
		}
	}
	slices.SortStableFunc(all.Runs, func(a, b Run) int {
		return cmp.Or(cmp.Compare(a.Clusters, b.Clusters), cmp.Compare(a.Replicas, b.Replicas))
	})
	all.Aims = judgeAims(withOneReplica(all.Runs))
	return all, nil
}

// addOrMergeRun adds a run to the results. If a run of the same fleet exists, addOrMergeRun adds the scenarios to this
// run.
func (r *Result) addOrMergeRun(run Run) {
	run.Replicas = max(1, run.Replicas)
	for i := range r.Runs {
		known := &r.Runs[i]
		if known.Clusters != run.Clusters || known.Modules != run.Modules || known.Objects != run.Objects ||
			known.WatchMode != run.WatchMode || known.Replicas != run.Replicas {
			continue
		}
		known.Began, known.Empty, known.Kubernetes = run.Began, run.Empty, run.Kubernetes
		for _, s := range run.Scenarios {
			at := slices.IndexFunc(known.Scenarios, func(k Scenario) bool { return k.Name == s.Name })
			switch {
			case at < 0:
				known.Scenarios = append(known.Scenarios, s)
			case s.Failed == "" || known.Scenarios[at].Failed != "":
				known.Scenarios[at] = s
			}
		}
		slices.SortStableFunc(known.Scenarios, func(
			a, b Scenario) int {
			return cmp.Compare(scenarioPosition(a.Name), scenarioPosition(b.Name))
		})
		return
	}
	r.Runs = append(r.Runs, run)
}

// scenarioPosition returns the position of a scenario in a run of all scenarios.
func scenarioPosition(name string) int {
	return slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
}

// withOneReplica returns the runs with one replica of the manager. Figures of different fleet sizes are compared only
// between such runs.
func withOneReplica(runs []Run) []Run {
	return slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Replicas > 1 })
}

// String returns a short description of a machine.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d CPUs, %d GiB, %s, %s", m.Processor, m.CPUs, m.Memory>>30, m.System, m.Go)
}

// writeMarkdownTable writes a table in Markdown. The first column is left-aligned, and the others are right-aligned.
func writeMarkdownTable(w io.Writer, head []string, rows [][]string) {
	fmt.Fprintf(w, "| %s |\n|---|%s\n", strings.Join(head, " | "), strings.Repeat("---:|", len(head)-1))
	for _, row := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
	fmt.Fprintln(w)
}

// markdown writes the whole content for the page.
func (r *Result) markdown(w io.Writer, picture string) {
	fmt.Fprintf(w, "Measured on: %s.\n\n### Aims\n\n", r.Machine)
	var rows [][]string
	for _, a := range r.Aims {
		is := formatNumber(a.Value)
		if a.Verdict == NotMeasured && a.Value == 0 {
			is = "–"
		}
		rows = append(rows, []string{a.What, strings.TrimSpace(formatNumber(a.Limit) + " " + a.Unit), is,
			string(a.Verdict), a.Note})
	}
	writeMarkdownTable(w, []string{"aim", "at most", "is", "verdict", "measured with"}, rows)
	if one := withOneReplica(r.Runs); len(one) > 1 {
		fmt.Fprintf(w, "### Growth\n\n")
		growthTable(w, one)
		fmt.Fprintf(w, "![growth from size to size](%s)\n\n", picture)
	}
	r.replicaTable(w)
	for i := range r.Runs {
		r.Runs[i].markdown(w)
	}
}

// growthTable writes a table of the figures with a column for each size.
func growthTable(w io.Writer, runs []Run) {
	head := []string{"figure"}
	for i := range runs {
		head = append(head, fmt.Sprintf("%d clusters", runs[i].Clusters))
	}
	var rows [][]string
	for _, f := range figures {
		row := []string{titleOf(f)}
		for i := range runs {
			if v, there := f.value(&runs[i]); there {
				row = append(row, formatNumber(v))
			} else {
				row = append(row, "–")
			}
		}
		rows = append(rows, row)
	}
	writeMarkdownTable(w, head, rows)
}

// replicaTable writes a table that compares runs that differ only in the number of replicas.
func (r *Result) replicaTable(w io.Writer) {
	bySize := map[int][]*Run{}
	for i := range r.Runs {
		bySize[r.Runs[i].Clusters] = append(bySize[r.Runs[i].Clusters], &r.Runs[i])
	}
	for _, size := range slices.Sorted(func(yield func(int) bool) {
		for n, runs := range bySize {
			if len(runs) > 1 && !yield(n) {
				return
			}
		}
	}) {
		fmt.Fprintf(w, "### Replicas, with %d clusters\n\n", size)
		var rows [][]string
		for _, run := range bySize[size] {
			row := []string{fmt.Sprint(run.Replicas)}
			for _, f := range replicaFigures {
				if v, there := f.value(run); there {
					row = append(row, formatNumber(v))
				} else {
					row = append(row, "–")
				}
			}
			rows = append(rows, row)
		}
		head := []string{"replicas"}
		for _, f := range replicaFigures {
			head = append(head, titleOf(f))
		}
		writeMarkdownTable(w, head, rows)
	}
}

// replicaFigures lists the figures in the table that compares runs with different numbers of replicas. More replicas
// should improve some of these figures, and should leave the other figures unchanged.
var replicaFigures = []figure{
	{"install", "modules/s", figureOf("install", func(s *Scenario) float64 { return s.InstallsPerSecond })},
	{"install: CPU of all replicas for a module", "ms",
		figureOf("install", func(s *Scenario) float64 { return s.CPUPerInstall })},
	{"install: peak memory of all replicas", "MiB",
		figureOf("install", func(s *Scenario) float64 { return float64(s.Manager.Peak) / mega })},
	{"idle: live heap of all for a runtime", "kB", valueOf("idle", heapPerRuntime)},
	{"upgrade", "s", figureOf("upgrade", func(s *Scenario) float64 { return s.Seconds })},
	{"failover: nobody works", "s", valueOf("failover", deadTime)},
	{"failover: writes to runtimes", "", valueOf("failover", restartWrites)},
}

// markdown writes the tables of one run.
func (r *Run) markdown(w io.Writer) {
	fmt.Fprintf(w, "### %d clusters × %d modules × %d objects", r.Clusters, r.Modules, r.Objects)
	if r.Replicas > 1 {
		fmt.Fprintf(w, ", %d replicas", r.Replicas)
	}
	fmt.Fprintf(w, "\n\n--watch-mode=%s, Kubernetes %s, %s.\n\n", r.WatchMode, r.Kubernetes,
		cmp.Or(r.Began, "date unknown"))
	var work, cost, wait [][]string
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		if s.Failed != "" {
			work = append(work, []string{s.Name, formatNumber(s.Seconds), "failed: " + strings.ReplaceAll(
				strings.ReplaceAll(s.Failed, "\n", " "), "|", "/")})
			continue
		}
		work = append(work, []string{
			s.Name, formatNumber(s.Seconds), formatNumber(s.InstallsPerSecond), formatNumber(s.CPUPerInstall),
			fmt.Sprint(sumOfCounts(s.Runtimes)), fmt.Sprint(s.RuntimeWrites),
			fmt.Sprint(sumOfCounts(s.Plane)), fmt.Sprint(s.PlaneWrites), fmt.Sprint(s.Errors),
		})
		cores := func(u Use) string { return fmt.Sprintf("%.2f", u.CPU/max(s.Elapsed, 0.001)) }
		cost = append(cost, []string{
			s.Name, formatNumber(s.Manager.CPU), cores(s.Manager), formatNumber(s.ControlPlane.CPU),
			cores(s.ControlPlane),
			formatNumber(s.Simulator.CPU), cores(s.Simulator),
			fmt.Sprint(s.Manager.Peak / mega), fmt.Sprint(s.ControlPlane.Peak / mega),
			fmt.Sprint(s.Simulator.Peak / mega), formatNumber(s.Inside.Goroutines),
			fmt.Sprint(s.Connections + s.AgentConnections),
		})
		for _, name := range sortedKeys(s.Latencies) {
			l := s.Latencies[name]
			wait = append(wait, []string{s.Name + ": " + name, fmt.Sprint(l.N), formatNumber(roundToInteger(l.P50)),
				formatNumber(roundToInteger(l.P90)), formatNumber(roundToInteger(l.P99)),
				formatNumber(roundToInteger(l.Most))})
		}
	}
	writeMarkdownTable(w, []string{"scenario", "s", "modules/s", "manager's ms per module", "requests to runtimes",
		"writes to runtimes", "requests to the control plane", "writes to it", "passes with errors"}, work)
	writeMarkdownTable(w, []string{"scenario", "manager CPU s", "cores", "API server and etcd CPU s", "cores",
		"simulator and agents CPU s", "cores", "manager peak MiB", "API server peak MiB", "simulator peak MiB",
		"goroutines", "connections"}, cost)
	writeMarkdownTable(w, []string{"ms until", "n", "p50", "p90", "p99", "max"}, wait)
}

func roundToInteger(v float64) float64 { return float64(int64(v + 0.5)) }
