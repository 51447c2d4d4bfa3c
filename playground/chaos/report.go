package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
)

// Report is the result of a run.
type Report struct {
	Seed   uint64
	Lasted time.Duration
	// Rounds is the number of complete rounds.
	Rounds int
	// Faults and Requests have the number of each kind that was injected or made.
	Faults, Requests map[string]int
	// Healing has the time from the end of the faults to the desired state, for each round.
	Healing []time.Duration
	// Changes is the number of observed changes in etcd. Created is the number of changes that created an object of a
	// module.
	Changes, Created int
	// Exits is the number of times that the manager ended by itself, for example because the control plane did not
	// answer.
	Exits int
	// Usage has the usage of the manager before and after the faults, for each round.
	Usage [][2]usage
	// Failures are all violations of the promises. The run has passed if there are no failures.
	Failures []string
	// Log is the end of the manager's log, if there are failures.
	Log string

	mu sync.Mutex // guards Faults, Requests and Failures during the run
}

func (r *Report) countIn(of map[string]int, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of[what]++
}

func (r *Report) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

// String formats the report as text.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d rounds in %s\n", r.Seed, r.Rounds, r.Lasted.Round(time.Second))
	table := func(title string, of map[string]int) {
		sum := 0
		for _, n := range of {
			sum += n
		}
		fmt.Fprintf(&b, "%s: %d\n", title, sum)
		for _, name := range slices.Sorted(maps.Keys(of)) {
			fmt.Fprintf(&b, "  %4d %s\n", of[name], name)
		}
	}
	table("faults", r.Faults)
	table("requests", r.Requests)
	fmt.Fprintf(&b, "checks:\n  %d changes in etcd, %d objects of modules created\n", r.Changes, r.Created)
	fmt.Fprintf(&b, "  the manager has ended by itself %d times\n", r.Exits)
	for i, h := range r.Healing {
		fmt.Fprintf(&b, "  round %d: healed in %.1f s", i, h.Seconds())
		if i < len(r.Usage) {
			before, after := r.Usage[i][0], r.Usage[i][1]
			fmt.Fprintf(&b, "; goroutines %.0f → %.0f, live heap %.1f → %.1f MiB, files %.0f → %.0f",
				before.Goroutines, after.Goroutines, before.Live/(1<<20), after.Live/(1<<20), before.Files,
				after.Files)
		}
		b.WriteString("\n")
	}
	if len(r.Failures) == 0 {
		b.WriteString("result: passed\n")
		return b.String()
	}
	fmt.Fprintf(&b, "result: %d failures\n", len(r.Failures))
	for _, f := range r.Failures {
		b.WriteString("  " + strings.ReplaceAll(f, "\n", "\n    ") + "\n")
	}
	if r.Log != "" {
		b.WriteString("the end of the manager's log:\n" + r.Log + "\n")
	}
	return b.String()
}

// usage is the number of resources that the manager uses.
type usage struct {
	Goroutines, Files, Live float64 // Live is the memory in bytes that the last garbage collection has left
}

// The allowed growth of the manager's usage between the end of the part without faults and the end of the part with
// faults.
const (
	moreGoroutines = 60
	moreFiles      = 40
	moreLive       = 32 << 20
)

// calm is the time without reconciles after which the manager is considered to have no work. The manager may defer a
// write by ten seconds, and a busy machine may delay it further.
const calm = 20 * time.Second

// awaitIdleManagerAndSnapshot waits until the manager has no work, and returns the state and the usage.
func (r *run) awaitIdleManagerAndSnapshot(ctx context.Context) (picture, usage, error) {
	if err := r.awaitIdleManager(ctx); err != nil {
		return nil, usage{}, err
	}
	p, err := r.takeSnapshot(ctx)
	if err != nil {
		return nil, usage{}, err
	}
	u, err := r.readUsage(ctx)
	return p, u, err
}

func (r *run) readUsage(ctx context.Context) (u usage, err error) {
	all, err := r.land.Metrics(ctx)
	return usage{Goroutines: all.Sum("go_goroutines"), Files: all.Sum("process_open_fds"),
		Live: all.Sum("go_gc_heap_live_bytes")}, err
}

// awaitIdleManager waits until the manager's queues are empty and no reconcile has run for some time.
func (r *run) awaitIdleManager(ctx context.Context) error {
	before, since := -1.0, time.Now()
	return r.await(ctx, r.options.Heal, func(ctx context.Context) string {
		all, err := r.land.Metrics(ctx)
		if err != nil {
			return err.Error()
		}
		busy := all.Sum("workqueue_depth") + all.Sum("controller_runtime_active_workers")
		reconciles := all.Sum("controller_runtime_reconcile_total")
		if busy != 0 || reconciles != before {
			before, since = reconciles, time.Now()
		}
		if time.Since(since) >= calm {
			return ""
		}
		return fmt.Sprintf("%v queued or running, %v reconciles so far", busy, reconciles)
	})
}

// awaitIdleManagerAndCheck waits until the manager is idle. Then awaitIdleManagerAndCheck checks that the manager has
// stopped writing, that the state equals want, and that the manager does not use much more memory and goroutines than
// before.
func (r *run) awaitIdleManagerAndCheck(ctx context.Context, want picture, before usage) error {
	if err := r.awaitIdleManager(ctx); err != nil {
		return err
	}
	marks := map[string]cluster.Mark{}
	for name, c := range r.land.Clusters {
		marks[name] = c.Mark()
	}
	if err := sleep(ctx, r.options.Idle); err != nil {
		return err
	}
	for _, name := range allClusterNames(r.options.Runtimes) {
		if writes := r.managerWritesSince(name, marks[name]); len(writes) > 0 {
			return fmt.Errorf("the idle manager has sent %d writes to %s: %s", len(writes), name,
				strings.Join(writes[:min(len(writes), 5)], ", "))
		}
	}
	got, err := r.takeSnapshot(ctx)
	if err != nil {
		return err
	}
	if diff := snapshotDiff(want, got); diff != "" {
		return fmt.Errorf("the state does not stay that of the run without faults: %s", diff)
	}
	after, err := r.readUsage(ctx)
	if err != nil {
		return err
	}
	r.report.Usage = append(r.report.Usage, [2]usage{before, after})
	if after.Goroutines > before.Goroutines+moreGoroutines || after.Files > before.Files+moreFiles ||
		after.Live > before.Live+moreLive {
		return fmt.Errorf("the manager needs more than before the faults: %+v, it needed %+v", after, before)
	}
	return nil
}

// managerWritesSince returns the write requests of the manager to a cluster since the mark. Requests for Leases, events
// and reviews such as SelfSubjectRulesReviews are left out.
func (r *run) managerWritesSince(name string, since cluster.Mark) []string {
	var all []string
	for _, q := range r.land.Clusters[name].Requests(since) {
		if q.UserAgent == managerAgent && q.Resource != "leases" && q.Resource != "events" &&
			!strings.HasSuffix(q.Resource, "reviews") &&
			slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, q.Verb) {
			all = append(all, fmt.Sprintf("%s %s (%d)", q.Verb, q.Path, q.Code))
		}
	}
	return all
}

// managerAgent is the User-Agent of the manager.
const managerAgent = "lifecycle-manager"
