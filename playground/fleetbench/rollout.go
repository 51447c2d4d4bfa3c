package main

import (
	"context"
	"fmt"
	"time"
)

// rollout is the progress of a version of a module through the fleet.
type rollout struct {
	module             *module
	version            string
	appliedAt, readyAt *race
	stop               func()
}

// publishAndMoveChannel publishes the next version of a module and makes the channel of all runtimes point to it. Only
// the clusters for which the function isMeasured() returns true are measured.
func (r *rig) publishAndMoveChannel(ctx context.Context, m *module, version string, isMeasured func(i int) bool) (
	*rollout, error) {
	if err := m.publish(ctx, r.artefacts, r.plane.client, version); err != nil {
		return nil, err
	}
	o := &rollout{module: m, version: version, appliedAt: newRace(r.clusters), readyAt: newRace(r.clusters)}
	stopChanges := r.changes.onDeploymentChange(func(i int) {
		if o.appliedAt.isRunning(i) && r.isApplied(i, m, version) {
			o.appliedAt.markFinished(i)
		}
	})
	stopKymas := r.kymas.onKymaChange(func(i int, k shown) {
		if k.ready(m.name, version) {
			o.readyAt.markFinished(i)
		}
	})
	o.stop = func() { stopChanges(); stopKymas() }
	for i := range r.clusters {
		if isMeasured(i) {
			o.appliedAt.markStarted(i)
			o.readyAt.markStarted(i)
		}
	}
	if err := m.setChannel(ctx, r.plane.client, version); err != nil {
		o.stop()
		return nil, err
	}
	return o, nil
}

// String returns the progress as text.
func (o *rollout) String() string {
	all, ready := o.readyAt.startedAndFinished()
	_, applied := o.appliedAt.startedAndFinished()
	return fmt.Sprintf("%d of %d applied, %d Ready", applied, all, ready)
}

// awaitRollout waits until all clusters of the rollout have the version.
func (r *rig) awaitRollout(ctx context.Context, o *rollout) error {
	what := fmt.Sprintf("%s %s to be ", o.module.name, o.version)
	if err := r.await(ctx, o.readyAt, what+"Ready"); err != nil {
		return err
	}
	return r.await(ctx, o.appliedAt, what+"applied")
}

// measureUpgrade points the channel of one module to a new version, for all runtimes.
func measureUpgrade(ctx context.Context, r *rig, s *Scenario) error {
	begin := time.Now()
	o, err := r.publishAndMoveChannel(ctx, r.modules[0], "1.1.0", allClusters)
	if err != nil {
		return err
	}
	defer o.stop()
	r.stage.setText(o.String)
	if err := r.awaitRollout(ctx, o); err != nil {
		return err
	}
	s.Seconds, s.Clusters, s.Installs = time.Since(begin).Seconds(), r.clusters, r.clusters
	s.Latencies["applied"], s.Latencies["ready"] = latencyOf(o.appliedAt.finishedDurations()),
		latencyOf(o.readyAt.finishedDurations())
	return nil
}

// allClusters includes all clusters in a rollout.
func allClusters(int) bool { return true }
