package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	moverollout "github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

const (
	backRuntimes     = "runtimes that were taken back"
	backFailing      = "of these, runtimes in which the version failed"
	backSeconds      = "from the order until all of them have the former version, s"
	backWrites       = "writes to the control plane for a runtime that was taken back"
	backStatusWrites = "writes of the status of the rollout back"
	backRequests     = "requests to a runtime that was taken back"
	backTooEarly     = "runtimes after the first group that were taken back before a failing one"
	othersChanged    = "other runtimes that were changed meanwhile"
	othersRequests   = "requests to other runtimes meanwhile"
	othersWrites     = "of the requests to other runtimes, writes"
)

// measureRollback sets the channel back after a halt, and waits until all runtimes with the bad version have the former
// version again. Requests to clusters with earlier faults are not counted, because the faults may be their cause.
func (r *rig) measureRollback(ctx context.Context, s *Scenario, bad badVersion, uncounted map[int]bool) error {
	m, version := r.modules[0], goodVersion
	before, err := r.readCounters(ctx)
	if err != nil {
		return err
	}
	for i := range r.clusters {
		r.fleet.Cluster(i).Mark()
	}
	stop := r.changes.onDeploymentChange(func(i int) {
		if bad.failing[i] && r.isApplied(i, m, version) {
			r.fleet.Cluster(i).OverrideOperatorState(m.simulatedOperator().Kind, "")
		}
	})
	defer stop()
	seen := r.followRollouts(ctx)
	defer seen.stop()
	begin := time.Now()
	if err := m.setChannel(ctx, r.plane.client, version); err != nil {
		return err
	}
	name, err := r.waitForRolloutOf(ctx, m, func(c *v1beta2.ChannelStatus) bool { return c.TakingBack == bad.version })
	if err != nil {
		return err
	}
	back := func() (done int) {
		for i := range bad.holders {
			if is := r.kymas.statusOf(i); is.ready(m.name, version) {
				done++
			}
		}
		return done
	}
	r.stage.setText(func() string {
		return fmt.Sprintf("%s: %d of %d are back", seen.stateOf(name), back(), len(bad.holders))
	})
	if err := poll(ctx, r.waitTimeout(), name+" to complete", func() (bool, error) {
		is := seen.stateOf(name)
		if is.phase.IsOver() && is.phase != v1beta2.RolloutCompleted || is.phase == v1beta2.RolloutHalted {
			return false, fmt.Errorf("%s is %s: %s", name, is.phase, is.message)
		}
		return is.phase == v1beta2.RolloutCompleted && back() == len(bad.holders), nil
	}); err != nil {
		return err
	}
	n := float64(len(bad.holders))
	s.Values[backSeconds] = time.Since(begin).Seconds()
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	after, err := r.readCounters(ctx)
	if err != nil {
		return err
	}
	s.Values[backRuntimes], s.Values[backFailing] = n, float64(len(bad.failing))
	s.Values[backWrites] = float64(sumOfWrites(countDifferences(before.requests, after.requests))) / n
	s.Values[backStatusWrites] = float64(seen.stateOf(name).writes)
	r.recordRollbackRequests(s, bad, uncounted)
	return r.recordHealthyRolledBackFirst(ctx, s, m, name, bad)
}

// recordRollbackRequests counts the requests to the runtimes that were rolled back to the former version, and the
// requests to all other runtimes.
func (r *rig) recordRollbackRequests(s *Scenario, bad badVersion, uncounted map[int]bool) {
	holders, others := map[string]int{}, map[string]int{}
	for i := range r.clusters {
		count := others
		switch {
		case bad.holders[i]:
			count = holders
		case !r.isApplied(i, r.modules[0], goodVersion):
			s.Values[othersChanged]++
		}
		if uncounted[i] && !bad.holders[i] {
			continue
		}
		for what, n := range r.fleet.Cluster(i).Since().Requests {
			count[what] += n
		}
	}
	s.Values[othersChanged] += 0 // it is always there
	s.Values[backRequests] = float64(sumOfCounts(holders)) / float64(len(bad.holders))
	s.Values[othersRequests], s.Values[othersWrites] = float64(sumOfCounts(others)), float64(sumOfWrites(others))
	for what, n := range others {
		s.Values[othersRequests+": "+what] = float64(n)
	}
}

// recordHealthyRolledBackFirst counts the runtimes that were rolled back too early. A rollback must begin with the
// runtimes in which the module failed. A runtime in which the module worked is too early if its rollback began before
// that of a failing runtime. The runtimes of one group are admitted together and begin in any order. The first group
// may have room for more than the failing runtimes, so recordHealthyRolledBackFirst subtracts this number of runtimes
// from the result.
func (r *rig) recordHealthyRolledBackFirst(ctx context.Context, s *Scenario, m *module, rolloutName string,
	bad badVersion) error {
	failing := map[string]bool{}
	for i := range bad.failing {
		failing[r.fleet.Cluster(i).Name()] = true
	}
	var all v1beta2.ManifestList
	if err := r.plane.client.List(ctx, &all, client.InNamespace(v1beta2.ControlPlaneNamespace)); err != nil {
		return fmt.Errorf("listing Manifests: %w", err)
	}
	var last string // RFC 3339 in UTC, which sorts by time
	began := map[string]string{}
	for i := range all.Items {
		o := &all.Items[i]
		of, _, _ := strings.Cut(o.Annotations[v1beta2.AnnotationRollout], "/")
		if o.ModuleName() != m.name || of != rolloutName {
			continue
		}
		began[o.KymaName()] = o.Annotations[v1beta2.AnnotationRolloutStarted]
		if failing[o.KymaName()] {
			last = max(last, began[o.KymaName()])
		}
	}
	if len(began) != len(bad.holders) {
		return fmt.Errorf("%s has taken %d runtimes back, and %d had the version", rolloutName, len(began),
			len(bad.holders))
	}
	made := &v1beta2.ModuleRollout{}
	key := client.ObjectKey{Namespace: v1beta2.ControlPlaneNamespace, Name: rolloutName}
	if err := r.plane.client.Get(ctx, key, made); err != nil {
		return fmt.Errorf("reading ModuleRollout %s: %w", rolloutName, err)
	}
	group := moverollout.Concurrency(&made.Spec.Stages[0].RolloutStage, len(began))
	early := -max(0, group-len(failing))
	for kyma, at := range began {
		if !failing[kyma] && at < last {
			early++
		}
	}
	s.Values[backTooEarly] = float64(max(0, early))
	return nil
}
