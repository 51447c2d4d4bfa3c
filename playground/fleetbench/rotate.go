package main

import (
	"context"
	"fmt"
	"time"
)

const memoryGrowth = "live heap afterwards, % of before"

// idleTimeout is the time for which the manager keeps idle connections to runtimes with agents. Even if a connection is
// closed earlier, its idle timer keeps the connection and its buffers in memory until this time has passed.
const idleTimeout = 10 * time.Second

// metricsOnceDisconnected waits until no connection uses memory any more, and returns the manager's metrics.
func (r *rig) metricsOnceDisconnected(ctx context.Context) (inside, error) {
	if err := r.waitUntilManagerDisconnected(ctx); err != nil {
		return inside{}, err
	}
	r.stage.setText(func() string { return "waiting until connections that were closed are forgotten" })
	if err := pause(ctx, idleTimeout+time.Second); err != nil {
		return inside{}, err
	}
	return r.metricsAfterGC(ctx)
}

// measureRotation replaces the credentials of all clusters, as fast as the control plane accepts the new Secrets.
// measureRotation waits until the manager has used all new credentials.
func measureRotation(ctx context.Context, r *rig, s *Scenario) error {
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	before, err := r.metricsOnceDisconnected(ctx)
	if err != nil {
		return err
	}
	r.fleet.MarkFleetTotals()
	begin, used := time.Now(), newRace(r.clusters)
	r.stage.setText(func() string {
		all, done := used.startedAndFinished()
		return fmt.Sprintf("%d rotated, %d of the new credentials used", all, done)
	})
	marks := make([]int, r.clusters)
	err = inParallel(ctx, r.clusters, func(i int) error {
		c := r.fleet.Cluster(i)
		c.RotateCredentials()
		marks[i] = c.Requests()
		used.markStarted(i)
		return r.updateAccessSecret(ctx, i)
	})
	if err != nil {
		return err
	}
	s.Values["rotating all took, s"] = time.Since(begin).Seconds()
	if err := r.waitUntilCredentialsUsed(ctx, used, marks); err != nil {
		return err
	}
	s.Clusters = r.clusters
	s.Latencies["used"] = latencyOf(used.finishedDurations())
	s.Values["requests refused with 401"] = float64(r.fleet.Since().Requests["unauthorized"])
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	s.Seconds = time.Since(begin).Seconds()
	after, err := r.metricsOnceDisconnected(ctx)
	if err != nil {
		return err
	}
	s.Values[memoryGrowth] = 100 * after.Live / before.Live
	s.Values["goroutines afterwards, % of before"] = 100 * after.Goroutines / before.Goroutines
	return nil
}

// waitUntilCredentialsUsed waits until the manager has made a request with the new credentials to every cluster.
func (r *rig) waitUntilCredentialsUsed(ctx context.Context, used *race, requestsBefore []int) error {
	look := func() (done bool) {
		for _, i := range used.unfinished(r.clusters) {
			if r.fleet.Cluster(i).Requests() > requestsBefore[i] {
				used.markFinished(i)
			}
		}
		return len(used.unfinished(1)) == 0
	}
	return poll(ctx, r.waitTimeout(), "all new credentials to be used", func() (bool, error) { return look(), nil })
}
