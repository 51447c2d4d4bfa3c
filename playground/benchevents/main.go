// Command benchevents measures how many events of runtimes the manager's listener accepts, and how fast it answers
// them.
//
//	go run ./benchevents --rounds=3 --out=result.json
//
// The command starts the listener (package backchannel) in a separate process, and simulates 1,000 agents itself. Each
// agent has a client certificate and one open connection. The agents use a minimal implementation of HTTP, so that most
// of the machine is free for the listener. The operating system provides the processor time of each process. Each round
// has these measurements:
//
//	connect     1,000 handshakes with client certificates (TLS 1.3, P-256), 16 at a time
//	steady      5,000 events a second, 5 from each agent, evenly spread. A delay begins at the time at which the event was due. So a late answer
//	            makes the next answers late, too
//	most        as many events as the listener accepts, with 64 concurrent requests
//	alone       1,000 events a second, one from each agent
//	flooded     the same as alone, while one more runtime sends as fast as it can over 16 connections from a third process
//	heartbeats  5 from each agent, to measure the memory that the listener allocates for one
//
// The command prints a table with the best round of each measurement, and writes all rounds as JSON. The benchmark
// fails if the best round misses the limits: 5,000 events a second, with 99 % of the answers within 50 ms.
//
// The benchmark does not measure the work that follows from an event: Deliver only counts events. The benchmark does
// not measure the agent.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Limits for the listener.
const (
	agents  = 1000
	offered = 5000 // events a second
	maxP99  = 50 * time.Millisecond
)

func main() {
	var (
		rounds  int
		seconds int
		out     string
	)
	root := &cobra.Command{
		Use:           "benchevents",
		Short:         "Measure the listener for events of runtimes",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return run(ctx, rounds, time.Duration(seconds)*time.Second, out)
		},
	}
	root.Flags().IntVar(&rounds, "rounds", 3, "how often everything is measured")
	root.Flags().IntVar(&seconds, "seconds", 5, "how long a measurement takes")
	root.Flags().StringVar(&out, "out", "", "file for the result as JSON; none if empty")
	root.AddCommand(
		&cobra.Command{Use: roleListener, Hidden: true,
			RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), os.Stdin, os.Stdout) }},
		&cobra.Command{Use: roleFlood, Hidden: true,
			RunE: func(cmd *cobra.Command, _ []string) error { return flood(cmd.Context(), os.Stdin, os.Stdout) }},
	)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-events:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, length time.Duration, out string) error {
	if rounds < 1 || length < time.Second {
		return fmt.Errorf("--rounds is %d and --seconds %v, want at least 1 of each", rounds, length)
	}
	result := Result{Go: runtime.Version(), CPUs: runtime.NumCPU(), Agents: agents, Offered: offered}
	for i := range rounds {
		fmt.Fprintf(os.Stderr, "\rround %d of %d", i+1, rounds)
		round, err := measure(ctx, length)
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		result.Rounds = append(result.Rounds, round)
	}
	fmt.Fprint(os.Stderr, "\r")
	result.setBestAndWithin()
	return result.reportAndCheckLimits(os.Stdout, out)
}

// Result is the JSON output.
type Result struct {
	Go      string `json:"go"`
	CPUs    int    `json:"cpus"`
	Agents  int    `json:"agents"`
	Offered int    `json:"offeredEventsPerSecond"`
	// Best holds the best round of each measurement.
	Best   Round   `json:"best"`
	Rounds []Round `json:"rounds"`
	// Within is true if the listener keeps its limits.
	Within bool `json:"within"`
}

// Round holds the results of one round of all measurements.
type Round struct {
	Connect    Load `json:"connect"`
	Steady     Load `json:"steady"`
	Most       Load `json:"most"`
	Alone      Load `json:"alone"`
	Flooded    Load `json:"flooded"`
	Heartbeats Load `json:"heartbeats"`
	// Flood is the number of answers, by status, to the runtime that sends too many requests.
	Flood map[int]int `json:"floodAnswers"`
	// HeartbeatBytes is the size of a heartbeat and its answer on the network, in bytes. The bytes of both directions
	// are counted as TLS records on an open connection.
	HeartbeatBytes int `json:"heartbeatWireBytes"`
	// IdleBytes is the memory of the listener for one idle connection, in bytes: heap and stacks.
	IdleBytes int `json:"bytesPerIdleConnection"`
}

// Load holds the results of one measurement. Times are in milliseconds.
type Load struct {
	PerSecond float64 `json:"perSecond"`
	P50       float64 `json:"p50Ms"`
	P99       float64 `json:"p99Ms"`
	Most      float64 `json:"maxMs"`
	Taken     int     `json:"taken"`
	Refused   int     `json:"refused"`
	// ListenerCPU and AgentsCPU are the processor time per request, in microseconds.
	ListenerCPU float64 `json:"listenerCPUMicros"`
	AgentsCPU   float64 `json:"agentsCPUMicros"`
	// Bytes and Allocations are the memory allocations of the listener per request.
	Bytes       float64 `json:"bytesPerRequest"`
	Allocations float64 `json:"allocationsPerRequest"`
}

// setBestAndWithin sets Best to the best round of each measurement. For the measurements connect and most, the best
// round is the round with the highest rate. For the measurements without a throughput, the best round is the round with
// the shortest delay. Then setBestAndWithin sets Within, from the best round of the measurement steady.
func (r *Result) setBestAndWithin() {
	r.Best = r.Rounds[0]
	for _, round := range r.Rounds[1:] {
		keepHighestRate(&r.Best.Connect, round.Connect)
		keepHighestRate(&r.Best.Most, round.Most)
		keepShortestDelay(&r.Best.Steady, round.Steady)
		keepShortestDelay(&r.Best.Alone, round.Alone)
		keepShortestDelay(&r.Best.Heartbeats, round.Heartbeats)
		if round.Flooded.P99 < r.Best.Flooded.P99 {
			r.Best.Flooded, r.Best.Flood = round.Flooded, round.Flood
		}
		r.Best.IdleBytes = min(r.Best.IdleBytes, round.IdleBytes)
	}
	steady := r.Best.Steady
	r.Within = steady.Refused == 0 && steady.PerSecond >= 0.99*offered && steady.P99 < float64(maxP99.Milliseconds())
}

func keepHighestRate(best *Load, other Load) {
	if other.PerSecond > best.PerSecond {
		*best = other
	}
}

func keepShortestDelay(best *Load, other Load) {
	if other.P99 < best.P99 {
		*best = other
	}
}

// reportAndCheckLimits prints the table and writes the file. reportAndCheckLimits returns an error if the listener
// misses its limits.
func (r *Result) reportAndCheckLimits(w io.Writer, file string) error {
	fmt.Fprintf(w, "%d agents with client certificates, best of %d rounds, %s, %d CPUs for the listener and the "+
		"agents\n\n", r.Agents, len(r.Rounds), r.Go, r.CPUs)
	fmt.Fprintf(w, "%-11s %9s %8s %8s %8s %8s  %12s %10s %8s %7s\n", "", "a second", "p50 ms", "p99 ms", "max ms",
		"refused", "listener µs", "agents µs", "bytes", "allocs")
	b := r.Best
	for _, row := range []struct {
		name string
		load Load
	}{{"connect", b.Connect}, {"steady", b.Steady}, {"most", b.Most}, {"alone", b.Alone}, {"flooded", b.Flooded},
		{"heartbeats", b.Heartbeats}} {
		l := row.load
		fmt.Fprintf(w, "%-11s %9.0f %8.2f %8.2f %8.2f %8d  %12.0f %10.0f %8.0f %7.0f\n", row.name, l.PerSecond, l.P50,
			l.P99, l.Most, l.Refused, l.ListenerCPU, l.AgentsCPU, l.Bytes, l.Allocations)
	}
	fmt.Fprintf(w, "\nThe columns from listener µs on are for one request; with a flood they contain its requests, "+
		"which are not counted.\n")
	fmt.Fprintf(w, "A heartbeat takes %d bytes on the network, with its answer. An idle connection takes %d bytes. "+
		"The runtime that floods had these answers: %v.\n", b.HeartbeatBytes, b.IdleBytes, b.Flood)
	fmt.Fprintf(w, "By processor time, two CPUs for the listener alone are enough for %.0f events a second.\n",
		2e6/b.Most.ListenerCPU)
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
		return fmt.Errorf("of %d events a second %.0f were taken and %d refused, with 99 %% within %.1f ms: want "+
			"all, within %v", offered, b.Steady.PerSecond, b.Steady.Refused, b.Steady.P99, maxP99)
	}
	fmt.Fprintf(w, "The listener keeps to its limits: %d events a second, 99 %% within %.1f ms.\n", offered,
		b.Steady.P99)
	return nil
}
