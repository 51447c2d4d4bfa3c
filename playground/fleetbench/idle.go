package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	heapPerRuntime       = "live heap per runtime, kB" // beyond what the manager has without fleet
	goroutinesPerRuntime = "goroutines per runtime"
	metricLines          = "lines of the manager's metrics"
	idleCores            = "manager's share of a core, %"
	idleWrites           = "writes to runtimes"
	idlePlaneWrites      = "writes to the control plane"
	requestsPerFive      = "requests per runtime in five minutes"
	collectorsPeriod     = 2 * time.Minute // within which Go collects garbage, whatever happens
)

// idle does nothing for a while, once the manager has settled. It goes on until garbage was collected in the meantime, so that what is left is alive.
func idle(ctx context.Context, r *rig, s *Scenario) error {
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	if r.agents != nil { // who hears of a runtime need not stay connected to it
		r.stage.set(func() string { return "waiting until connections that are not needed are closed" })
		err := until(ctx, collectorsPeriod, "the manager to close connections that it does not need", func() (bool, error) {
			return r.fleet.Stats().Connections <= r.clusters/10, nil
		})
		if err != nil {
			return err
		}
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
	s.Values[goroutinesPerRuntime] = max(0, now.Goroutines-r.empty.Goroutines) / float64(r.clusters)
	s.Values[metricLines] = float64(now.Series)
	return nil
}

// collected waits until garbage was collected after a moment, and then once more, because what is pooled goes at the second time only. It returns what was left.
// So that it does not take minutes, it makes garbage: it asks for the manager's health, over and over.
func (r *rig) collected(ctx context.Context, after time.Time) (in inside, err error) {
	for range 2 {
		limited, end := context.WithCancel(ctx)
		var group sync.WaitGroup
		for _, m := range r.crew {
			for range 2 {
				group.Go(func() { m.tire(limited) })
			}
		}
		err = until(ctx, collectorsPeriod+30*time.Second, "the manager to collect garbage", func() (bool, error) {
			if in, err = r.crew.look(ctx); err != nil || in.LastGC.After(after) {
				return true, err
			}
			return false, pause(ctx, time.Second)
		})
		end()
		group.Wait()
		after = in.LastGC
	}
	return in, err
}

// tire asks for the manager's health until ctx ends. Each answer leaves some garbage and nothing else.
func (m *manager) tire(ctx context.Context) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.health+"/healthz", http.NoBody)
		if err != nil {
			return
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return // it has ended: that will be told by who waits
		}
		_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
		_ = resp.Body.Close()
	}
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
		u, err := r.crew.used()
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
