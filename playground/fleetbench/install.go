package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// measureInstallation registers all clusters, as fast as the control plane accepts them. measureInstallation waits
// until all modules are Ready.
func measureInstallation(ctx context.Context, r *rig, s *Scenario) error {
	appliedAt, readyAt := newRace(r.clusters), newRace(r.clusters)
	stop := r.changes.onDeploymentChange(func(i int) {
		if appliedAt.isRunning(i) && r.allAppliedInAnyVersion(i) {
			appliedAt.markFinished(i)
		}
	})
	defer stop()
	stop = r.kymas.onKymaChange(func(i int, k shown) {
		if r.allReadyInChannelVersions(&k) {
			readyAt.markFinished(i)
		}
	})
	defer stop()
	r.stage.setText(func() string {
		started, done := readyAt.startedAndFinished()
		_, applied := appliedAt.startedAndFinished()
		return fmt.Sprintf("%d registered, %d applied, %d Ready", started, applied, done)
	})
	begin := time.Now()
	err := inParallel(ctx, r.clusters, func(i int) error {
		appliedAt.markStarted(i)
		readyAt.markStarted(i)
		return r.register(ctx, i)
	})
	if err != nil {
		return err
	}
	s.Values["registering all took, s"] = time.Since(begin).Seconds()
	if err := r.await(ctx, readyAt, "all modules of all clusters to be Ready"); err != nil {
		return err
	}
	if err := r.await(ctx, appliedAt, "all modules of all clusters to be applied"); err != nil {
		return err
	}
	s.Seconds = time.Since(begin).Seconds()
	s.Clusters, s.Installs = r.clusters, r.clusters*len(r.modules)
	s.Latencies["applied"], s.Latencies["ready"] = latencyOf(appliedAt.finishedDurations()),
		latencyOf(readyAt.finishedDurations())
	return nil
}

// allReadyInChannelVersions reports whether a Kyma and all its modules are Ready, in the versions of their channels.
func (r *rig) allReadyInChannelVersions(k *shown) bool {
	if k.state != v1beta2.StateReady {
		return false
	}
	for _, m := range r.modules {
		if !k.ready(m.name, m.version) {
			return false
		}
	}
	return true
}

// await waits until all clusters of a race have reached their goal. If a cluster does not reach the goal in time, the
// error of await describes the states of up to three such clusters.
func (r *rig) await(ctx context.Context, all *race, what string) error {
	err := all.waitForAll(ctx)
	if err == nil {
		return nil
	}
	started, done := all.startedAndFinished()
	err = fmt.Errorf("waiting for %s: %w; %d of %d are; of the others", what, err, done, started)
	for _, i := range all.unfinished(3) {
		err = fmt.Errorf("%w\n  %s %s", err, r.fleet.Cluster(i).Name(), describe(r.kymas.statusOf(i)))
	}
	return err
}

// describe returns the state of a Kyma as text.
func describe(k shown) string {
	if !k.there {
		return "has no Kyma"
	}
	parts := []string{fmt.Sprintf("is %s: %s", cmp.Or(string(k.state), "not looked at yet"),
		cmp.Or(k.message, "no reason given"))}
	for _, name := range sortedKeys(k.modules) {
		if m := k.modules[name]; m.state != v1beta2.StateReady {
			parts = append(parts, fmt.Sprintf("%s %s is %s: %s", name, m.version, m.state, m.message))
		}
	}
	return strings.Join(parts, "; ")
}
