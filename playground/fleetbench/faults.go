package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/playground/fleet"
)

// Faults of the scenario faults.
const (
	deadShare  = 0.05 // one half refuses connections, the other half never answers
	slowShare  = 0.05
	slowDelay  = 2 * time.Second
	throttled  = 0.01 // share of 429 among the answers of the other clusters
	retryAfter = time.Second
)

const (
	healthyRatio  = "healthy clusters' p99 until Ready, times that of upgrade"
	untouchedP99  = "p99 until Ready of those that met no 429, times that of upgrade"
	probesPerDead = "connections to a dead cluster a minute"
)

// measureFaults makes some clusters dead and some slow. All clusters that are not dead answer some requests with 429.
// During the faults, the channel of a module points to a new version. When the faults end, the affected clusters get
// the new version.
func measureFaults(ctx context.Context, r *rig, s *Scenario) error {
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	sick := r.startFaults()
	defer r.endFaults()
	begin := time.Now()
	o, err := r.publishAndMoveChannel(ctx, r.modules[0], "1.2.0", func(i int) bool { return sick[i] == healthy })
	if err != nil {
		return err
	}
	defer o.stop()
	for i, how := range sick {
		if how == slow {
			o.readyAt.markStarted(i)
		}
	}
	r.stage.setText(func() string { return "faults: " + o.String() })
	if err := r.await(ctx, o.readyAt, "healthy and slow clusters to be upgraded"); err != nil {
		return err
	}
	s.Seconds = time.Since(begin).Seconds()
	times := map[string][]time.Duration{}
	for i, took := range o.readyAt.finishTimes() {
		switch sick[i] {
		case slow:
			times["ready, slow clusters"] = append(times["ready, slow clusters"], took)
		case healthy:
			times["ready"] = append(times["ready"], took)
			if r.fleet.Cluster(i).Since().Requests["throttled"] == 0 {
				times["ready, met no 429"] = append(times["ready, met no 429"], took)
			}
		}
	}
	for name, all := range times {
		s.Latencies[name] = latencyOf(all)
	}
	s.Latencies["applied"] = latencyOf(o.appliedAt.finishedDurations())
	s.Clusters, s.Installs = len(o.readyAt.finishedDurations()), len(o.readyAt.finishedDurations())
	if r.upgradeP99 > 0 {
		s.Values[healthyRatio] = s.Latencies["ready"].P99 / r.upgradeP99
		s.Values[untouchedP99] = s.Latencies["ready, met no 429"].P99 / r.upgradeP99
	}
	return r.measureDeadProbesThenHeal(ctx, s, o, sick)
}

// sickness is the kind of fault of a cluster.
type sickness int

const (
	healthy sickness = iota
	slow
	refusing
	swallowing
)

// startFaults starts the faults, and returns for each cluster whether it is healthy, slow or dead.
func (r *rig) startFaults() (byCluster []sickness) {
	sick := make([]sickness, r.clusters)
	for n, i := range r.chooseClusters(deadShare, 0) {
		sick[i] = refusing + sickness(n%2)
	}
	for _, i := range r.chooseClusters(slowShare, 1) {
		if sick[i] == healthy {
			sick[i] = slow
		}
	}
	busy := fleet.Fault{TooMany: throttled, RetryAfter: retryAfter}
	for i, how := range sick {
		c, fault := r.fleet.Cluster(i), busy
		c.Mark()
		switch how {
		case slow:
			fault.Delay = slowDelay
		case refusing:
			fault = fleet.Fault{Dead: fleet.Refused}
		case swallowing:
			fault = fleet.Fault{Dead: fleet.BlackHole}
		}
		c.Fault(fault)
	}
	return sick
}

// chooseClusters returns a share of all clusters, at least one cluster, spread evenly. Calls with different values of
// the parameter offset return different clusters.
func (r *rig) chooseClusters(share float64, offset int) []int {
	n := max(1, int(share*float64(r.clusters)))
	var all []int
	for k := range n {
		all = append(all, min(spreadIndex(k, n, r.clusters)+offset, r.clusters-1))
	}
	return all
}

func (r *rig) endFaults() {
	for i := range r.clusters {
		r.fleet.Cluster(i).Heal()
	}
}

// measureDeadProbesThenHeal measures for a while the cost of the dead clusters. Then measureDeadProbesThenHeal heals
// the dead clusters and waits until they have caught up.
func (r *rig) measureDeadProbesThenHeal(ctx context.Context, s *Scenario, o *rollout, sick []sickness) error {
	var dead []int
	for i, how := range sick {
		if how == refusing || how == swallowing {
			dead = append(dead, i)
		}
	}
	if err := r.settleAllowingReconciles(ctx, s, len(dead)); err != nil {
		return err
	}
	r.stage.setText(func() string { return fmt.Sprintf("%d dead clusters, watched for %v", len(dead), r.watched) })
	attempts := func() (n int) {
		for _, i := range dead {
			counts := r.fleet.Cluster(i).Counts().Requests
			n += counts["connection refused"] + counts["connection swallowed"]
		}
		return n
	}
	before, begin := attempts(), time.Now()
	if err := pause(ctx, r.watched); err != nil {
		return err
	}
	s.Values[probesPerDead] = float64(attempts()-before) / float64(len(dead)) / time.Since(begin).Minutes()
	caught := time.Now()
	for _, i := range dead {
		o.readyAt.markStarted(i)
	}
	r.endFaults()
	r.stage.setText(func() string { return "healed: " + o.String() })
	if r.Brief { // new credentials make the manager try at once, without waiting for the next probe
		for _, i := range dead {
			r.fleet.Cluster(i).RotateCredentials()
			if err := r.updateAccessSecret(ctx, i); err != nil {
				return err
			}
		}
	}
	if err := r.await(ctx, o.readyAt, "the clusters that were dead to be upgraded"); err != nil {
		return err
	}
	s.Values["dead clusters are Ready after they were healed, s"] = time.Since(caught).Seconds()
	return nil
}
