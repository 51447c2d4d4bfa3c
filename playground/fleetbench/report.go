package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

const (
	kilo = 1 << 10
	mega = 1 << 20
)

// print writes the table of one scenario.
func (s *Scenario) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %.1f s", s.Name, s.Seconds)
	if s.Failed != "" {
		fmt.Fprintf(w, ", failed: %s\n", s.Failed)
		return
	}
	if s.Clusters > 0 {
		fmt.Fprintf(w, ", %d clusters (%.1f a second)", s.Clusters, s.ClustersPerSecond)
	}
	if s.Installs > 0 {
		fmt.Fprintf(w, ", %d modules (%.1f a second, %.2f ms of the manager's CPU each)", s.Installs,
			s.InstallsPerSecond, s.CPUPerInstall)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 2, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tCPU s\tcores\tRSS MiB\tpeak MiB\tsockets\t")
	for _, p := range []struct {
		name string
		use  Use
	}{{"manager", s.Manager}, {"API server and etcd", s.ControlPlane}, {"simulator and agents", s.Simulator}} {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%d\t%d\t%d\t\n", p.name, p.use.CPU, p.use.CPU/s.Elapsed, p.use.RSS/mega,
			p.use.Peak/mega, p.use.Sockets)
	}
	_ = t.Flush()
	if len(s.Latencies) > 0 {
		t = tabwriter.NewWriter(w, 2, 8, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "ms\tn\tp50\tp90\tp99\tmax\t")
		for _, name := range sortedKeys(s.Latencies) {
			l := s.Latencies[name]
			fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t\n", name, l.N, l.P50, l.P90, l.P99, l.Most)
		}
		_ = t.Flush()
	}
	fmt.Fprintf(w, "  requests to runtimes: %s\n", formatCounts(byVerb(s.Runtimes), 12))
	fmt.Fprintf(w, "      by resource: %s\n", formatCounts(s.Runtimes, 16))
	fmt.Fprintf(w, "  requests to the control plane: %s\n", formatCounts(s.Plane, 16))
	fmt.Fprintf(w, "  writes: %d to runtimes, %d to the control plane; open connections: %d to runtimes, %d of "+
		"agents; manager: %.1f MiB of live heap, %.0f goroutines, %d passes, %d of them with errors\n",
		s.RuntimeWrites, s.PlaneWrites, s.Connections, s.AgentConnections, s.Inside.Live/mega,
		s.Inside.Goroutines, s.Passes, s.Errors)
	for _, name := range sortedKeys(s.Values) {
		fmt.Fprintf(w, "  %s: %s\n", name, formatNumber(s.Values[name]))
	}
}

// formatCounts lists the largest counts, beginning with the largest. The list has at most as many counts as the
// argument most allows.
func formatCounts(counts map[string]int, most int) string {
	if len(counts) == 0 {
		return "none"
	}
	all := sortedKeys(counts)
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
	var parts []string
	for n, name := range all {
		if n == most {
			rest := 0
			for _, other := range all[n:] {
				rest += counts[other]
			}
			parts = append(parts, fmt.Sprintf("others %d", rest))
			break
		}
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return fmt.Sprintf("%d: %s", sumOfCounts(counts), strings.Join(parts, ", "))
}

// formatNumber formats a number with as many digits as are meaningful.
func formatNumber(v float64) string {
	switch {
	case v == float64(int64(v)):
		return fmt.Sprintf("%d", int64(v))
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 1 || v <= -1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4f", v)
}

// print writes a table of all sizes, with a row for each scenario, and the aims.
func (r *Result) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s, %d CPUs, %d GiB, %s, %s\n\n", r.Machine.Processor, r.Machine.CPUs, r.Machine.Memory>>30,
		r.Machine.System, r.Machine.Go)
	t := tabwriter.NewWriter(w, 2, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "clusters\tscenario\ts\tmodules/s\tmanager CPU s\tms/module\tpeak MiB\theap "+
		"kB/runtime\tgoroutines\tAPI server CPU s\tsimulator CPU s\truntime requests\twrites\tcontrol plane "+
		"writes\tapplied p50\tp99\tready p50\tp99 ms\t")
	for _, run := range r.Runs {
		for i := range run.Scenarios {
			s := &run.Scenarios[i]
			if s.Failed != "" {
				fmt.Fprintf(t, "%d\t%s\t%.1f\tfailed\t\n", run.Clusters, s.Name, s.Seconds)
				continue
			}
			applied, ready := s.Latencies["applied"], s.Latencies["ready"]
			fmt.Fprintf(t, "%d\t%s\t%.1f\t%.1f\t%.2f\t%.2f\t%d\t%.1f\t%.0f\t%.2f\t%.2f\t%d\t%d\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t\n",
				run.Clusters, s.Name, s.Seconds, s.InstallsPerSecond, s.Manager.CPU, s.CPUPerInstall,
				s.Manager.Peak/mega, s.Values[heapPerRuntime],
				s.Inside.Goroutines, s.ControlPlane.CPU, s.Simulator.CPU, sumOfCounts(s.Runtimes), s.RuntimeWrites,
				s.PlaneWrites, applied.P50, applied.P99, ready.P50, ready.P99)
		}
	}
	_ = t.Flush()
	fmt.Fprintln(w)
	printGrowth(w, r.Runs)
	printAims(w, r.Aims)
}

// writeJSONAndChart writes the result as JSON, and the chart next to it if there are several sizes.
func (r *Result) writeJSONAndChart(jsonFile string) error {
	if jsonFile == "" {
		return nil
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	if err := os.WriteFile(jsonFile, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	if len(r.Runs) < 2 {
		return nil
	}
	name := strings.TrimSuffix(jsonFile, ".json") + ".svg"
	if err := os.WriteFile(name, chart(r.Runs), 0o600); err != nil {
		return fmt.Errorf("writing the chart: %w", err)
	}
	return nil
}
