package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	heapPerRuntime       = "live heap per runtime, kB" // minus the live heap of the manager without a fleet
	goroutinesPerRuntime = "goroutines per runtime"
	metricLines          = "lines of the manager's metrics"
	idleCores            = "manager's share of a core, %"
	idleWrites           = "writes to runtimes"
	idlePlaneWrites      = "writes to the control plane"
	requestsPerFive      = "requests per runtime in five minutes"
)

// measureIdle measures a manager without work. measureIdle waits until the manager is quiet, and then for the time
// --idle. Then idle makes the manager collect garbage, so that only live memory is left.
func measureIdle(ctx context.Context, r *rig, s *Scenario) error {
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	if err := r.waitUntilManagerDisconnected(ctx); err != nil {
		return err
	}
	// The manager closes an idle connection after ten seconds, and may defer a write for the same time. On a busy
	// machine, the write follows some seconds after the last connection is closed.
	if err := pause(ctx, max(r.calm, 6*time.Second)); err != nil {
		return err
	}
	before, err := r.readCounters(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	r.stage.setText(func() string { return fmt.Sprintf("nothing, for %v", r.Idle) })
	if err := pause(ctx, r.Idle); err != nil {
		return err
	}
	after, err := r.readCounters(ctx)
	if err != nil {
		return err
	}
	length := time.Since(begin)
	requests := countDifferences(before.fleet.Requests, after.fleet.Requests)
	s.Values["idle time, s"] = length.Seconds()
	s.Values[idleCores] = 100 * (after.manager.cpu - before.manager.cpu).Seconds() / length.Seconds()
	plane := (after.plane.cpu - before.plane.cpu).Seconds()
	s.Values["API server's share of a core, %"] = 100 * plane / length.Seconds()
	s.Values[requestsPerFive] = float64(sumOfCounts(requests)) / float64(r.clusters) / length.Minutes() * 5
	s.Values[idleWrites] = float64(sumOfWrites(requests))
	s.Values[idlePlaneWrites] = float64(sumOfWrites(countDifferences(before.requests, after.requests)))
	now, err := r.metricsAfterGC(ctx)
	if err != nil {
		return err
	}
	s.Values[heapPerRuntime] = max(0, now.Live-r.empty.Live) / float64(r.clusters) / 1000
	s.Values[goroutinesPerRuntime] = max(0, now.Goroutines-r.empty.Goroutines) / float64(r.clusters)
	s.Values[metricLines] = float64(now.Series)
	return nil
}

// waitUntilManagerDisconnected waits until the manager has closed its connections to runtimes. The manager needs no
// connection to a runtime whose agent reports changes. A connection takes twice the memory of an idle runtime. One
// connection per hundred runtimes may remain, because the manager may just have opened it for an audit (a periodic
// check of the objects in a runtime).
func (r *rig) waitUntilManagerDisconnected(ctx context.Context) error {
	if r.agents == nil {
		return nil
	}
	r.stage.setText(func() string { return "waiting until connections that are not needed are closed" })
	return poll(ctx, 10*time.Minute, "the manager to close connections that it does not need", func() (bool, error) {
		return r.fleet.Stats().Connections <= 1+r.clusters/100, nil
	})
}

// metricsAfterGC makes the manager collect garbage, and returns its metrics afterwards. metricsAfterGC does so twice,
// because pooled memory is freed only the second time.
func (r *rig) metricsAfterGC(ctx context.Context) (inside, error) {
	for range 2 {
		for _, m := range r.crew {
			if err := m.forceGC(ctx); err != nil {
				return inside{}, err
			}
		}
	}
	return r.crew.readMetrics(ctx)
}

// forceGC makes the manager collect garbage. forceGC requests a heap profile, for which the manager collects garbage
// first.
func (m *manager) forceGC(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.profiles+"/debug/pprof/heap?gc=1",
		http.NoBody)
	if err != nil {
		return fmt.Errorf("asking the manager to collect garbage: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("asking the manager to collect garbage: %w", err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("waiting until the manager has collected garbage: %w", err)
	}
	return nil
}

const (
	calmShare  = 0.10    // of a core
	heardShare = 0.00001 // of a core for each cluster, for its heartbeats
)

// settle waits until the manager is quiet, and records how long this takes. The manager is quiet if it has used less
// than a tenth of a core for three seconds, or for 1.5 seconds with --brief, and has no work then. A larger fleet sends
// more heartbeats, so the allowed share of a core grows with the number of clusters.
func (r *rig) settle(ctx context.Context, s *Scenario) error {
	return r.settleAllowingReconciles(ctx, s, 0)
}

// settleAllowingReconciles is like settle, but allows a number of reconciles that run. A reconcile that probes a
// cluster without answers runs until its timeout, and uses no processor time meanwhile.
func (r *rig) settleAllowingReconciles(ctx context.Context, s *Scenario, allowed int) error {
	begin := time.Now()
	r.stage.setText(func() string { return "waiting until the manager is quiet" })
	calm, last, lastAt := time.Now(), time.Duration(-1), time.Now()
	share := calmShare + heardShare*float64(r.clusters)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		if time.Since(calm) >= r.calm {
			// On a busy machine, a manager with work may get no processor time. Reading the metrics uses processor
			// time of the manager, so settle reads them only here.
			in, err := r.crew.readMetrics(ctx)
			if err != nil {
				return err
			}
			if in.Depth == 0 && in.Working <= float64(allowed) {
				break
			}
			calm = time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting until the manager is quiet: %w", context.Cause(ctx))
		}
		u, err := r.crew.cpuAndMemory()
		if err != nil {
			return err
		}
		busy := last < 0 || float64(u.cpu-last)/float64(time.Since(lastAt)) > share
		last, lastAt = u.cpu, time.Now()
		if busy {
			calm = time.Now()
		}
	}
	s.Values["quiet after, s"] = calm.Sub(begin).Seconds()
	return nil
}
