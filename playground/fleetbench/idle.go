package main

import (
	"context"
	"fmt"
	"time"
)

const (
	heapPerRuntime   = "live heap per runtime, kB" // beyond what the manager has without fleet
	idleCores        = "manager's share of a core, %"
	idleWrites       = "writes to runtimes"
	idlePlaneWrites  = "writes to the control plane"
	requestsPerFive  = "requests per runtime in five minutes"
	collectorsPeriod = 2 * time.Minute // within which Go collects garbage, whatever happens
)

// idle does nothing for a while. It goes on until garbage was collected in the meantime, so that what is left is alive.
func idle(ctx context.Context, r *rig, s *Scenario) error {
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	before, err := r.count(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	r.stage.set(func() string { return fmt.Sprintf("nothing, for %v", r.Idle) })
	if err := pause(ctx, r.Idle); err != nil {
		return err
	}
	after, err := r.count(ctx)
	if err != nil {
		return err
	}
	length := time.Since(begin)
	requests := difference(before.fleet.Requests, after.fleet.Requests)
	s.Values["idle time, s"] = length.Seconds()
	s.Values[idleCores] = 100 * (after.manager.cpu - before.manager.cpu).Seconds() / length.Seconds()
	s.Values["API server's share of a core, %"] = 100 * (after.plane.cpu - before.plane.cpu).Seconds() / length.Seconds()
	s.Values[requestsPerFive] = float64(total(requests)) / float64(r.clusters) / length.Minutes() * 5
	s.Values[idleWrites] = float64(writes(requests))
	s.Values[idlePlaneWrites] = float64(writes(difference(before.requests, after.requests)))
	r.stage.set(func() string { return "waiting for a garbage collection" })
	now, err := r.collected(ctx, begin)
	if err != nil {
		return err
	}
	s.Values[heapPerRuntime] = max(0, now.Live-r.empty.Live) / float64(r.clusters) / 1000
	s.Values["goroutines per runtime"] = max(0, now.Goroutines-r.empty.Goroutines) / float64(r.clusters)
	s.Values["lines of the manager's metrics"] = float64(now.Series)
	return nil
}

// collected waits until garbage was collected after a moment, and returns what was left.
func (r *rig) collected(ctx context.Context, after time.Time) (in inside, err error) {
	err = until(ctx, collectorsPeriod+30*time.Second, "the manager to collect garbage", func() (bool, error) {
		if in, err = r.manager.look(ctx); err != nil {
			return false, err
		}
		if in.LastGC.After(after) {
			return true, nil
		}
		return false, pause(ctx, time.Second)
	})
	return in, err
}

const (
	calmFor   = 3 * time.Second
	calmShare = 0.10 // of a core
)

// settle waits until the manager is quiet: for three seconds it used less than a tenth of a core and had nothing in its queues. What was
// needed is noted.
func (r *rig) settle(ctx context.Context, s *Scenario) error {
	begin := time.Now()
	r.stage.set(func() string { return "waiting until the manager is quiet" })
	calm, last, lastAt := time.Now(), time.Duration(-1), time.Now()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for time.Since(calm) < calmFor {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting until the manager is quiet: %w", context.Cause(ctx))
		}
		u, err := usageOf(r.manager.pid())
		if err != nil {
			return err
		}
		busy := last < 0 || float64(u.cpu-last)/float64(time.Since(lastAt)) > calmShare
		last, lastAt = u.cpu, time.Now()
		if busy {
			calm = time.Now()
		}
	}
	s.Values["quiet after, s"] = calm.Sub(begin).Seconds()
	return nil
}
