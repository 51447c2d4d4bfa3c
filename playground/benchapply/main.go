// Command benchapply measures how long it takes to install a module of 50 objects into a cluster: with the apply
// library of this project, with a simple loop of PATCH requests, with kubectl, and with Helm.
//
//	go run ./benchapply --rounds=20 --out=result.json
//
// The command starts a real API server (see package cluster) and installs the same objects in turn in each of the four
// ways. Other load on the machine therefore affects all four ways of installing. The order of the four ways changes in
// each round. Each run has its own namespace and its own names, and all of its objects are deleted before the next run
// begins. The measured time begins with the call and ends when all objects are accepted. The namespace and an open
// connection exist before the call. None of the four ways of installing waits for pods. Deployments have no replicas,
// because the cost of pods is not measured.
//
//	library   apply.Cluster.Apply with a bundle that was rendered before, as the manager calls it
//	loop      sends the same bytes, encoded before, in the same order, from as many goroutines as the library uses. It does not wait for the end
//	          of a phase, and its only error is "not 2xx". With one request per object, nothing can do less
//	kubectl   kubectl apply --server-side -f FILE, in this process, with a filled discovery cache
//	helm      Helm's install action with a chart that has the objects as templates, in this process, without waiting, with a filled discovery cache
//
// The command prints a table of medians and ratios, and the numbers of requests that the API server counted. The
// command writes the same numbers as JSON. The benchmark fails if the library takes more than 1.15 times the loop's
// time, or sends more than three requests more than the loop.
//
// The benchmark does not measure upgrades, drift, readiness or teardown, nor the start of a kubectl or helm process. On
// a machine that also does other work, the times of single runs differ by a factor of five. The ratios of medians over
// 20 rounds still differ by about a fifth.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
)

// The benchmark fails if the library takes more than maxRatio times the time of the loop, or if it sends more than
// maxRequests requests more than the loop.
const (
	maxRatio    = 1.15
	maxRequests = 3
)

func main() {
	var (
		rounds int
		out    string
	)
	root := &cobra.Command{
		Use:           "benchapply",
		Short:         "Measure the apply library against a bare loop, kubectl and Helm",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return run(ctx, rounds, out)
		},
	}
	root.Flags().IntVar(&rounds, "rounds", 20, "how often each of the four installs the module")
	root.Flags().StringVar(&out, "out", "", "file for the result as JSON; none if empty")
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-apply:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, out string) error {
	if rounds < 1 {
		return fmt.Errorf("--rounds is %d, want at least 1", rounds)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // Helm logs every step
	host, err := cluster.Open(ctx, cluster.Options{Audit: true})
	if err != nil {
		return fmt.Errorf("starting the playground: %w", err)
	}
	defer func() { _ = host.Close() }() // the cluster's data is not needed any more
	c, err := host.Start(ctx, "bench")
	if err != nil {
		return fmt.Errorf("starting a cluster: %w", err)
	}
	b, err := newBench(c, filepath.Join(host.Dir(), "bench"))
	if err != nil {
		return err
	}
	result := Result{Objects: objects, Rounds: rounds, Kubernetes: c.Version(),
		Go: runtime.Version(), CPUs: runtime.NumCPU()}
	samples := make([][]sample, len(b.ways))
	order := rand.New(rand.NewPCG(1, 1))       // a fixed seed: each run of this program has the same order
	for round := -1; round < rounds; round++ { // round -1 is a warm-up
		for _, i := range order.Perm(len(b.ways)) {
			s, err := b.measureInstall(ctx, b.ways[i], fmt.Sprintf("bench-%s-%d", b.ways[i].name, round+1))
			if err != nil {
				return fmt.Errorf("round %d: installing by %s: %w", round+1, b.ways[i].name, err)
			}
			if round >= 0 {
				samples[i] = append(samples[i], s)
			}
		}
		fmt.Fprintf(os.Stderr, "\rround %d of %d", round+1, rounds)
	}
	fmt.Fprint(os.Stderr, "\r")
	for i, way := range b.ways {
		result.Ways = append(result.Ways, summarize(way.name, samples[i]))
	}
	return result.reportAndCheckLimits(os.Stdout, out)
}

// Result is the JSON output.
type Result struct {
	Objects    int    `json:"objects"`
	Rounds     int    `json:"rounds"`
	Kubernetes string `json:"kubernetes"`
	Go         string `json:"go"`
	CPUs       int    `json:"cpus"`
	Ways       []Way  `json:"ways"`
	// Within is true if the library keeps its limits.
	Within bool `json:"within"`
}

// Way is the summary of all runs of one way to install. Times are in milliseconds.
type Way struct {
	Name     string         `json:"name"`
	Median   float64        `json:"medianMs"`
	Least    float64        `json:"minMs"`
	P90      float64        `json:"p90Ms"`
	Most     float64        `json:"maxMs"`
	Ratio    float64        `json:"ratioToLoop"` // ratio of the medians
	Requests int            `json:"requests"`    // median
	ByVerb   map[string]int `json:"requestsByVerb"`
	All      []float64      `json:"allMs"`
}

// sample holds the measurements of one run.
type sample struct {
	took     time.Duration
	requests int
	byVerb   map[string]int
}

func summarize(name string, samples []sample) Way {
	w := Way{Name: name}
	var requests []int
	for _, s := range samples {
		w.All = append(w.All, float64(s.took.Microseconds())/1000)
		requests = append(requests, s.requests)
		w.ByVerb = s.byVerb
	}
	sorted := slices.Sorted(slices.Values(w.All))
	n := len(sorted)
	w.Median, w.Least, w.P90, w.Most = (sorted[(n-1)/2]+sorted[n/2])/2, sorted[0], sorted[n*9/10], sorted[n-1]
	slices.Sort(requests)
	w.Requests = requests[n/2]
	return w
}

// reportAndCheckLimits prints the table and writes the file. reportAndCheckLimits returns an error if the library
// exceeds its limits.
func (r *Result) reportAndCheckLimits(w io.Writer, file string) error {
	library, loop := &r.Ways[0], r.Ways[1]
	for i := range r.Ways {
		r.Ways[i].Ratio = r.Ways[i].Median / loop.Median
	}
	r.Within = library.Ratio <= maxRatio && library.Requests <= loop.Requests+maxRequests
	fmt.Fprintf(w, "%d objects, %d rounds, Kubernetes %s, %s, %d CPUs\n\n", r.Objects, r.Rounds,
		r.Kubernetes, r.Go, r.CPUs)
	fmt.Fprintf(w, "%-10s %10s %10s %10s %8s %10s\n", "", "median ms", "min ms", "p90 ms", "ratio", "requests")
	for _, way := range r.Ways {
		fmt.Fprintf(w, "%-10s %10.1f %10.1f %10.1f %8.2f %10d\n", way.Name, way.Median, way.Least,
			way.P90, way.Ratio, way.Requests)
	}
	fmt.Fprintln(w)
	if file != "" {
		data, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding the result: %w", err)
		}
		if err := os.WriteFile(file, append(data, '\n'), 0o600); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
	}
	if !r.Within {
		return fmt.Errorf("the library takes %.2f times the loop's time and %d requests more: want at most %.2f and %d",
			library.Ratio, library.Requests-loop.Requests, maxRatio, maxRequests)
	}
	fmt.Fprintf(w, "The library keeps to its limits: %.2f times the loop's time, %.0f times as fast as kubectl, %d "+
		"requests more than the loop.\n",
		library.Ratio, r.Ways[2].Median/library.Median, library.Requests-loop.Requests)
	return nil
}
