package main

import (
	"context"
	"fmt"
	"time"
)

const (
	deleteRequests  = "requests to the runtime for one cluster"
	deploymentsLeft = "Deployments left in the clusters"
	connectionsLeft = "connections to runtimes that are left open"
)

// measureDeletion deletes all Kymas. measureDeletion waits until the Kymas, and the objects that the manager installed
// for them in the clusters, are deleted.
func measureDeletion(ctx context.Context, r *rig, s *Scenario) error {
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	before, goneAt := r.fleet.Counts(), newRace(r.clusters)
	stop := r.kymas.onKymaChange(func(i int, k shown) {
		if !k.there {
			goneAt.markFinished(i)
		}
	})
	defer stop()
	r.stage.setText(func() string {
		started, done := goneAt.startedAndFinished()
		return fmt.Sprintf("%d deleted, %d of them gone", started, done)
	})
	begin := time.Now()
	err := inParallel(ctx, r.clusters, func(i int) error {
		goneAt.markStarted(i)
		return r.deleteKymaOfCluster(ctx, i)
	})
	if err != nil {
		return err
	}
	if err := r.await(ctx, goneAt, "all Kymas to be gone"); err != nil {
		return err
	}
	s.Seconds, s.Clusters, s.Installs = time.Since(begin).Seconds(), r.clusters, r.clusters*len(r.modules)
	s.Latencies["gone"] = latencyOf(goneAt.finishedDurations())
	s.Values[deleteRequests] = float64(sumOfCounts(countDifferences(before.Requests,
		r.fleet.Counts().Requests))) / float64(
		r.clusters)
	return r.settleAndRecordLeftovers(ctx, s)
}

// settleAndRecordLeftovers records the Deployments that remain in the clusters after the deletion.
// settleAndRecordLeftovers then waits until the manager is quiet, and records the memory of the manager and the
// connections to runtimes that remain.
func (r *rig) settleAndRecordLeftovers(ctx context.Context, s *Scenario) error {
	left := 0
	for i := range r.clusters {
		for _, name := range r.fleet.Cluster(i).Names(deployments.GroupResource()) {
			if name != "" {
				left++
			}
		}
	}
	s.Values[deploymentsLeft] = float64(left)
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	in, err := r.metricsAfterGC(ctx)
	if err != nil {
		return err
	}
	s.Values["live heap per cluster that is gone, kB"] = max(0, in.Live-r.empty.Live) / float64(r.clusters) / 1000
	s.Values["goroutines beyond those without fleet"] = in.Goroutines - r.empty.Goroutines
	r.stage.setText(func() string { return "waiting until all connections to runtimes are closed" })
	// A server may notice late that a connection was closed. If connections are still open after five minutes, the
	// error is ignored, because the limit for this figure judges them.
	_ = poll(ctx, 5*time.Minute, "the connections to runtimes to be closed", func() (bool, error) {
		return r.fleet.Stats().Connections == 0, nil
	})
	s.Values[connectionsLeft] = float64(r.fleet.Stats().Connections)
	return context.Cause(ctx)
}
