package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

const (
	quietAfter    = "quiet after, s"
	restartWrites = "writes to runtimes"
	deadTime      = "nobody works, s"

	requestsPerRuntime = "requests per runtime"
)

// measureRestart kills the manager and starts it again. measureRestart waits until the manager is quiet, that is, has
// no more work.
func measureRestart(ctx context.Context, r *rig, s *Scenario) error {
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	if err := r.waitUntilNoRecentDelivery(ctx); err != nil {
		return err
	}
	before := r.fleet.Counts()
	if err := r.recordUsageAndKillReplicas(r.crew); err != nil {
		return err
	}
	begin := time.Now()
	r.crew = nil
	if err := r.startReplicasAndWait(ctx, r.replicaNames()...); err != nil {
		return err
	}
	s.Values["leads after, s"] = time.Since(begin).Seconds()
	return r.settleAndRecordRecovery(ctx, s, begin, before.Requests)
}

// waitUntilNoRecentDelivery waits until the agents have delivered no event for a while. Agents repeat their recent
// events to a new manager process, and repeated events would add to the measured cost of a restart.
func (r *rig) waitUntilNoRecentDelivery(ctx context.Context) error {
	if r.agents == nil {
		return nil
	}
	r.stage.setText(func() string { return fmt.Sprintf("waiting until no agent has told anything for %v", r.remember) })
	return poll(ctx, r.remember+5*time.Minute, "the agents to have nothing to tell",
		func() (bool, error) { return r.agents.hasNoRecentDelivery(), nil })
}

// settleAndRecordRecovery waits until the manager and all agents are quiet again, and records the cost of that.
func (r *rig) settleAndRecordRecovery(ctx context.Context, s *Scenario, begin time.Time, before map[string]int) error {
	took := time.Since(begin)
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	s.Values[quietAfter] += took.Seconds()
	if r.agents != nil {
		if err := r.waitUntilAgentsConnected(ctx, s, begin); err != nil {
			return err
		}
	}
	requests := countDifferences(before, r.fleet.Counts().Requests)
	s.Values[restartWrites] = float64(sumOfWrites(requests))
	s.Values[requestsPerRuntime] = float64(sumOfCounts(requests)) / float64(r.clusters)
	return nil
}

// waitUntilAgentsConnected waits until all agents have sent a heartbeat and the Kymas show the agents as connected.
func (r *rig) waitUntilAgentsConnected(ctx context.Context, s *Scenario, begin time.Time) error {
	r.stage.setText(func() string {
		return fmt.Sprintf("%d agents have sent a heartbeat, %d are heard",
			r.agents.countAgentsWithHeartbeatSince(begin),
			r.kymas.countKymas(func(k *shown) bool { return k.heard }))
	})
	err := poll(ctx, 30*time.Minute, "all agents to be heard", func() (bool, error) {
		return r.agents.countAgentsWithHeartbeatSince(begin) == r.clusters &&
			r.kymas.countKymas(func(k *shown) bool { return k.heard }) == r.clusters, nil
	})
	s.Values["all agents are heard after, s"] = time.Since(begin).Seconds()
	return err
}

// measureFailover kills the leader, and waits until a second replica, which was already running, has taken over and all
// is quiet. If all replicas work, failover kills the last replica, and the other replicas take over its shards.
func measureFailover(ctx context.Context, r *rig, s *Scenario) error {
	last := len(r.crew) - 1
	former, others := r.crew[last:], r.crew[:last:last]
	if len(others) == 0 {
		second, err := r.startManager(ctx, "second")
		if err != nil {
			return err
		}
		others = crew{second}
		if err := second.waitUntilReady(ctx); err != nil {
			return errors.Join(err, second.killAndWait())
		}
		in, err := second.readMetrics(ctx)
		if err != nil {
			return errors.Join(err, second.killAndWait())
		}
		s.Values["live heap of the one that waits, MiB"] = in.Live / mega
	}
	if err := errors.Join(r.settle(ctx, s), r.waitUntilNoRecentDelivery(ctx)); err != nil {
		return err
	}
	before, begin := r.fleet.Counts(), time.Now()
	err := r.recordUsageAndKillReplicas(former)
	r.crew = others
	if err != nil {
		return err
	}
	r.useReplicaListeners()
	r.stage.setText(func() string { return "the work of the one that was killed lies idle" })
	if err := r.crew.waitUntilWorking(ctx, r.sharded()); err != nil {
		return err
	}
	s.Values[deadTime] = time.Since(begin).Seconds()
	return r.settleAndRecordRecovery(ctx, s, begin, before.Requests)
}

// isOwnKind reports whether a key of fleet.Counts is for an object that every runtime gets regardless of its modules:
// an object of the project's own kinds, or an object of the agent.
func isOwnKind(countName string) bool {
	_, resource, _ := strings.Cut(countName, " ")
	return strings.HasSuffix(resource, "."+v1beta2.GroupVersion.Group)
}
