package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/playground/fleet"
)

const (
	deleteRequests  = "requests to the runtime for one cluster"
	deploymentsLeft = "Deployments left in the clusters"
	connectionsLeft = "connections to runtimes that are left open"
)

// measureDeletion deletes all Kymas. measureDeletion waits until the Kymas, and the objects that the manager installed
// for them in the clusters, are deleted. With --dead-in-delete, some clusters are dead at first, and work again when
// the others are deleted.
func measureDeletion(ctx context.Context, r *rig, s *Scenario) error {
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	before, goneAt, dead := r.fleet.Counts(), newRace(r.clusters), r.startDeletionFaults()
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
		if !dead[i] {
			goneAt.markStarted(i)
		}
		return r.deleteKymaOfCluster(ctx, i)
	})
	if err != nil {
		return err
	}
	if err := r.await(ctx, goneAt, "all Kymas to be gone"); err != nil {
		return err
	}
	s.Seconds, s.Latencies["gone"] = time.Since(begin).Seconds(), latencyOf(goneAt.finishedDurations())
	s.Clusters, s.Installs = r.clusters, r.clusters*len(r.modules)
	if err := r.healAndAwaitDeletion(ctx, s, goneAt, dead); err != nil {
		return err
	}
	s.Values[deleteRequests] = float64(sumOfCounts(countDifferences(before.Requests,
		r.fleet.Counts().Requests))) / float64(
		r.clusters)
	return r.settleAndRecordLeftovers(ctx, s)
}

// startDeletionFaults makes the clusters of --dead-in-delete dead: one half of them refuses connections, the other half
// never answers. startDeletionFaults returns these clusters.
func (r *rig) startDeletionFaults() (dead map[int]bool) {
	if r.DeadInDelete == 0 {
		return nil
	}
	dead = map[int]bool{}
	for n, i := range r.chooseClusters(float64(r.DeadInDelete)/100, 0) {
		dead[i] = true
		fault := fleet.Fault{Dead: fleet.Refused}
		if n%2 == 1 {
			fault.Dead = fleet.BlackHole
		}
		r.fleet.Cluster(i).Fault(fault)
	}
	return dead
}

// healAndAwaitDeletion heals the clusters that are dead during the deletion, and waits until their Kymas are gone, too.
func (r *rig) healAndAwaitDeletion(ctx context.Context, s *Scenario, goneAt *race, dead map[int]bool) error {
	if len(dead) == 0 {
		return nil
	}
	begin := time.Now()
	for i := range dead {
		goneAt.markStarted(i)
		r.fleet.Cluster(i).Heal()
	}
	if err := r.await(ctx, goneAt, "the Kymas of dead clusters to be gone"); err != nil {
		return err
	}
	s.Values["dead clusters are gone after they were healed, s"] = time.Since(begin).Seconds()
	return nil
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
