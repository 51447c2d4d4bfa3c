package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/fleet"
)

// Faults of the scenario rollout.
const (
	failingShare = 0.01             // clusters in which a module fails
	failingTime  = 20 * time.Second // a failure that has nothing to do with the version ends after this time
)

// goodVersion is the version of the module that works.
const goodVersion = "1.3.0"

const (
	stagedWrites      = "writes to the control plane per module of a good rollout"
	rolloutWrites     = "writes of the status of the rollout"
	rolloutSize       = "size of the ModuleRollout, bytes"
	coordinatorMedian = "time of the coordinator for a reconcile, p50 at most, ms"
	coordinatorTime   = "time of the coordinator for a reconcile, p99 at most, ms"
	editsInRollout    = "applied during a rollout"
	goodHalts         = "halts of the good version"
	badHolders        = "runtimes with the bad version when it halted"
	badLater          = "runtimes that began after the halt"
	haltSeconds       = "from the last failure that the halt counts until the halt, s"
	waitersRequests   = "requests to runtimes that were not admitted"
	waitersWrites     = "of these, writes"
)

// measureStagedRollout moves the channel of a module twice through stages. The first version works. Some clusters fail
// for other reasons before and during the rollout, and some clusters are dead. The rollout of the first version must
// upgrade all other clusters. The second version fails in some clusters, so its rollout must halt. The clusters that
// have the second version must then be rolled back.
func measureStagedRollout(ctx context.Context, r *rig, s *Scenario) error {
	if err := r.prepareStages(ctx); err != nil {
		return err
	}
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	touched, err := r.measureGoodRollout(ctx, s)
	if err != nil {
		return err
	}
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	bad, err := r.measureBadRollout(ctx, s, touched)
	if err != nil {
		return err
	}
	if err := r.measureRollback(ctx, s, bad, touched); err != nil {
		return err
	}
	return r.recordCoordinatorTimes(ctx, s)
}

// prepareStages creates the policy, and labels the clusters of its first stage.
func (r *rig) prepareStages(ctx context.Context) error {
	percent := func(text string) *intstr.IntOrString { return new(intstr.FromString(text)) }
	stage := func(name string, share int32, concurrency, failures string) v1beta2.RolloutStage {
		return v1beta2.RolloutStage{Name: name, Percent: share, MaxConcurrency: percent(concurrency),
			MaxFailures: percent(failures), Soak: metav1.Duration{Duration: r.soak}}
	}
	own, canary := stage("own", 0, "100%", "0%"), stage("canary", 1, "100%", "0%")
	own.Selector, canary.MinCount = &v1beta2.StageSelector{MatchLabels: map[string]string{"stage": "own"}}, 5
	rest := stage("rest", 0, "20%", "0.5%")
	rest.Soak = metav1.Duration{}
	policy := &v1beta2.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "bench", Namespace: v1beta2.ControlPlaneNamespace},
		Spec: v1beta2.RolloutPolicySpec{
			Modules: v1beta2.RolloutModules{Names: []string{r.modules[0].name}},
			Stages: []v1beta2.RolloutStage{own, canary, stage("early", 10, "100%", "0.5%"),
				stage("half", 50, "20%", "0.5%"), rest},
		},
	}
	if err := r.plane.client.Create(ctx, policy); err != nil {
		return fmt.Errorf("creating RolloutPolicy bench: %w", err)
	}
	n := max(1, r.clusters/100)
	return inParallel(ctx, n, func(k int) error { return r.label(ctx, spreadIndex(k, n, r.clusters), "stage", "own") })
}

// label sets a label of the Kyma of a cluster.
func (r *rig) label(ctx context.Context, i int, key, value string) error {
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: r.fleet.Cluster(i).Name(),
		Namespace: v1beta2.ControlPlaneNamespace}}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value)
	if err := r.plane.client.Patch(ctx, k, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("labelling Kyma %s: %w", k.Name, err)
	}
	return nil
}

// measureGoodRollout is the rollout of a version that works. measureGoodRollout returns the clusters in which it has
// injected faults.
func (r *rig) measureGoodRollout(ctx context.Context, s *Scenario) (disturbed map[int]bool, err error) {
	m := r.modules[0]
	dead := map[int]bool{}
	for _, i := range r.chooseClusters(deadShare, 2) {
		dead[i] = true
	}
	failing := r.chooseClusters(failingShare, 4)
	broken, unlucky := failing, []int(nil)
	if r.clusters >= 10_000 { // in a smaller fleet, stage early allows no failure
		broken, unlucky = failing[:len(failing)/2], failing[len(failing)/2:]
	}
	if err := r.injectFaultsAndWaitUntilNoticed(ctx, m, dead, broken); err != nil {
		return nil, err
	}
	isBroken := map[int]bool{}
	for _, i := range broken {
		isBroken[i] = true
	}
	before, err := r.readCounters(ctx)
	if err != nil {
		return nil, err
	}
	seen := r.followRollouts(ctx)
	defer seen.stop()
	begin := time.Now()
	o, err := r.publishAndMoveChannel(ctx, m, goodVersion, func(i int) bool { return !dead[i] && !isBroken[i] })
	if err != nil {
		return nil, err
	}
	defer o.stop()
	stop := r.startBriefFailures(ctx, m, unlucky)
	defer stop()
	name, err := r.waitForRolloutOf(ctx, m, func(c *v1beta2.ChannelStatus) bool { return c.Target == goodVersion })
	if err != nil {
		return nil, err
	}
	through := func() bool {
		all, done := o.readyAt.startedAndFinished()
		return done == all || seen.stateOf(name).phase == v1beta2.RolloutHalted
	}
	edits, err := r.enableExtraModuleOneByOne(ctx, "during "+name, dead, through)
	if err != nil {
		return nil, err
	}
	r.stage.setText(func() string { return fmt.Sprintf("%s: %s", seen.stateOf(name), o) })
	if err := poll(ctx, r.waitTimeout(), name+" to reach all clusters", func() (bool, error) {
		return through(), nil
	}); err != nil {
		return nil, err
	}
	s.Values[goodHalts] = float64(seen.stateOf(name).halts)
	if seen.stateOf(name).halts > 0 {
		return nil, fmt.Errorf("%s has halted: %s", name, seen.stateOf(name).message)
	}
	s.Seconds = time.Since(begin).Seconds()
	after, err := r.readCounters(ctx)
	if err != nil {
		return nil, err
	}
	done, _ := o.readyAt.startedAndFinished()
	edited, _ := edits.readyAt.startedAndFinished()
	written := sumOfWrites(countDifferences(before.requests, after.requests))
	s.Clusters, s.Installs = done, done+edited
	s.Values[stagedWrites] = float64(written) / float64(done+edited) // an edit is an installation
	s.Values[rolloutWrites], s.Values[rolloutSize] = float64(seen.stateOf(name).writes),
		float64(seen.stateOf(name).size)
	s.Latencies["applied"], s.Latencies["ready"] = latencyOf(o.appliedAt.finishedDurations()),
		latencyOf(o.readyAt.finishedDurations())
	s.Latencies[editsInRollout] = latencyOf(edits.appliedAt.finishedDurations())
	disturbed = maps.Clone(dead)
	for i := range r.clusters {
		if isBroken[i] || edits.appliedAt.started(i) {
			disturbed[i] = true
		}
	}
	return disturbed, r.healAndDisableExtraModule(ctx, m, dead, broken, edits, o)
}

// injectFaultsAndWaitUntilNoticed lets clusters die and modules fail before a rollout, and waits until the manager has
// noticed.
func (r *rig) injectFaultsAndWaitUntilNoticed(ctx context.Context, m *module, dead map[int]bool, broken []int) error {
	for i := range dead {
		r.fleet.Cluster(i).Fault(fleet.Fault{Dead: fleet.Refused})
	}
	for _, i := range broken {
		r.fleet.Cluster(i).OverrideOperatorState(m.simulatedOperator().Kind, string(v1beta2.StateError))
	}
	for i := range dead { // a change of the Kyma makes the manager try at once
		if err := r.label(ctx, i, "bench", "dead"); err != nil {
			return err
		}
	}
	return poll(ctx, r.waitTimeout(), "the manager to notice dead and failing clusters", func() (bool, error) {
		for i := range dead {
			if r.kymas.statusOf(i).state == v1beta2.StateReady {
				return false, nil
			}
		}
		for _, i := range broken {
			if r.kymas.statusOf(i).modules[m.name].state != v1beta2.StateError {
				return false, nil
			}
		}
		return true, nil
	})
}

// startBriefFailures makes the module of some clusters fail for a while during a rollout, each at another time.
func (r *rig) startBriefFailures(ctx context.Context, m *module, clusters []int) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	for n, i := range clusters {
		go func() {
			if pause(ctx, time.Duration(n+1)*time.Minute/time.Duration(len(clusters))) == nil {
				r.fleet.Cluster(i).OverrideOperatorState(m.simulatedOperator().Kind, string(v1beta2.StateError))
				_ = pause(ctx, failingTime) // canceled: it ends now
			}
			r.fleet.Cluster(i).OverrideOperatorState(m.simulatedOperator().Kind, "")
		}()
	}
	return stop
}

// healAndDisableExtraModule ends the faults of measureGoodRollout, and waits until the affected clusters have the
// version.
func (r *rig) healAndDisableExtraModule(ctx context.Context, m *module, dead map[int]bool, broken []int, edits,
	o *rollout) error {
	for _, i := range broken {
		r.fleet.Cluster(i).OverrideOperatorState(m.simulatedOperator().Kind, "")
		o.readyAt.markStarted(i)
	}
	for i := range dead {
		r.fleet.Cluster(i).RotateCredentials()
		r.fleet.Cluster(i).Heal()
		if err := r.updateAccessSecret(ctx, i); err != nil {
			return err
		}
		o.readyAt.markStarted(i)
	}
	if err := r.await(ctx, o.readyAt, "dead and failing clusters to follow"); err != nil {
		return err
	}
	return r.disableExtraModule(ctx, edits)
}

// badVersion describes the runtimes with a version whose rollout has halted.
type badVersion struct {
	version string
	holders map[int]bool // the clusters that have it
	failing map[int]bool // the holders in which it fails
}

// measureBadRollout rolls out a version that fails in some clusters, and measures until some time after the halt of the
// rollout. Requests to clusters with earlier faults are not counted, because the faults may be their cause.
func (r *rig) measureBadRollout(ctx context.Context, s *Scenario, uncounted map[int]bool) (_ badVersion, err error) {
	const version = "1.4.0"
	m := r.modules[0]
	m.back = goodVersion
	bad := map[int]bool{}
	for _, i := range r.chooseClusters(failingShare, 6) {
		bad[i] = true
	}
	if err := m.publish(ctx, r.artefacts, r.plane.client, version); err != nil {
		return badVersion{}, err
	}
	if err := r.settle(ctx, s); err != nil { // every runtime gets the new ModuleTemplate
		return badVersion{}, err
	}
	for i := range r.clusters {
		r.fleet.Cluster(i).Mark()
	}
	var mu sync.Mutex                            // guards the following variables
	var failures []time.Time                     // when the version failed in a cluster, in order
	has, works := map[int]bool{}, map[int]bool{} // the clusters that have the version, and those that will fail
	stop := r.changes.onDeploymentChange(func(i int) {
		mu.Lock()
		defer mu.Unlock()
		if has[i] || !r.isApplied(i, m, version) {
			return
		}
		has[i] = true
		if bad[i] {
			works[i] = true
		}
		if len(has)*100 < r.FailAfter*r.clusters {
			return
		}
		for k := range works {
			failures = append(failures, time.Now())
			r.fleet.Cluster(k).OverrideOperatorState(m.simulatedOperator().Kind, string(v1beta2.StateError))
		}
		clear(works)
	})
	defer stop()
	holders := func() int { mu.Lock(); defer mu.Unlock(); return len(has) }
	seen := r.followRollouts(ctx)
	defer seen.stop()
	if err := m.setChannel(ctx, r.plane.client, version); err != nil {
		return badVersion{}, err
	}
	name, err := r.waitForRolloutOf(ctx, m, func(c *v1beta2.ChannelStatus) bool { return c.Target == version })
	if err != nil {
		return badVersion{}, err
	}
	r.stage.setText(func() string {
		return fmt.Sprintf("%s: %d clusters have the bad version", seen.stateOf(name), holders())
	})
	if err := poll(ctx, r.waitTimeout(), name+" to halt", func() (bool, error) {
		is := seen.stateOf(name).phase
		if is.IsOver() {
			return false, fmt.Errorf("%s is %s, and should have halted", name, is)
		}
		return is == v1beta2.RolloutHalted, nil
	}); err != nil {
		return badVersion{}, err
	}
	mu.Lock()
	if halt := seen.stateOf(name); halt.failed > 0 && halt.failed <= len(failures) {
		s.Values[haltSeconds] = halt.haltedAt.Sub(failures[halt.failed-1]).Seconds()
	}
	mu.Unlock()
	if err := r.settle(ctx, s); err != nil { // updates admitted before the halt complete
		return badVersion{}, err
	}
	first := holders()
	s.Values[badHolders] = float64(first)
	if err := pause(ctx, r.watched); err != nil {
		return badVersion{}, err
	}
	s.Values[badLater] = float64(holders() - first)
	waiting := map[string]int{}
	for i := range r.clusters {
		mu.Lock()
		began := has[i]
		mu.Unlock()
		if !began && !uncounted[i] {
			for what, n := range r.fleet.Cluster(i).Since().Requests {
				waiting[what] += n
			}
		}
	}
	s.Values[waitersRequests], s.Values[waitersWrites] = float64(sumOfCounts(waiting)), float64(sumOfWrites(waiting))
	for what, n := range waiting {
		s.Values[waitersRequests+": "+what] = float64(n)
	}
	found := badVersion{version: version, holders: map[int]bool{}, failing: map[int]bool{}}
	mu.Lock()
	defer mu.Unlock()
	for i := range has {
		found.holders[i] = true
		if bad[i] {
			found.failing[i] = true
		}
	}
	return found, nil
}

// recordCoordinatorTimes reads the durations of the reconciles of the coordinator.
func (r *rig) recordCoordinatorTimes(ctx context.Context, s *Scenario) (err error) {
	if s.Values[coordinatorMedian], err = r.reconcileTimeMillis(ctx, "rollout", 0.5); err != nil {
		return err
	}
	s.Values[coordinatorTime], err = r.reconcileTimeMillis(ctx, "rollout", 0.99)
	return err
}

// waitForRolloutOf waits until a ModuleRollout moves the channel as the caller expects, and returns its name.
func (r *rig) waitForRolloutOf(ctx context.Context, m *module, isMove func(c *v1beta2.ChannelStatus) bool) (name string,
	err error) {
	err = poll(ctx, r.waitTimeout(), "the ModuleRollout of "+m.name, func() (bool, error) {
		release := &v1beta2.ModuleReleaseMeta{}
		key := client.ObjectKey{Namespace: v1beta2.ControlPlaneNamespace, Name: m.name}
		if err := r.plane.client.Get(ctx, key, release); err != nil {
			return false, err
		}
		if c := release.ChannelStatus(benchChannel); c != nil && isMove(c) {
			name = c.Rollout
		}
		return name != "", nil
	})
	return name, err
}

// rolloutState is the state of a ModuleRollout that a watch has received.
type rolloutState struct {
	phase    v1beta2.RolloutPhase
	stage    string
	message  string
	writes   int // changes
	size     int // the largest size in bytes
	halts    int
	haltedAt time.Time
	failed   int // runtimes in which the version had failed when it halted
}

func (s rolloutState) String() string { return fmt.Sprintf("%s %s", s.phase, s.stage) }

// rollouts follows all ModuleRollouts.
type rollouts struct {
	stop func()

	mu     sync.Mutex
	states map[string]rolloutState // by name; guarded by mu
}

func (f *rollouts) stateOf(name string) rolloutState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.states[name]
}

// followRollouts starts to follow all ModuleRollouts.
func (r *rig) followRollouts(ctx context.Context) *rollouts {
	f := &rollouts{states: map[string]rolloutState{}}
	ctx, f.stop = context.WithCancel(ctx)
	go func() {
		for ctx.Err() == nil {
			watch, err := r.plane.client.Watch(ctx, &v1beta2.ModuleRolloutList{},
				client.InNamespace(v1beta2.ControlPlaneNamespace))
			if err != nil {
				_ = pause(ctx, time.Second) // canceled: the loop ends
				continue
			}
			for e := range watch.ResultChan() {
				if o, ok := e.Object.(*v1beta2.ModuleRollout); ok {
					f.recordState(o)
				}
			}
		}
	}()
	return f
}

func (f *rollouts) recordState(o *v1beta2.ModuleRollout) {
	data, err := json.Marshal(o)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.states[o.Name]
	if o.Status.Phase == v1beta2.RolloutHalted && s.phase != v1beta2.RolloutHalted {
		s.halts++
		s.haltedAt, s.failed = time.Now(), int(o.Status.Runtimes.Failed)
	}
	s.phase, s.stage, s.message = o.Status.Phase, o.Status.Stage.Name, o.Status.Message
	s.writes++
	s.size = max(s.size, len(data))
	f.states[o.Name] = s
}

// reconcileTimeMillis returns a percentile of the reconcile times of a controller, in milliseconds. The times come from
// the buckets of a histogram, so the result is the upper bound of a bucket.
func (r *rig) reconcileTimeMillis(ctx context.Context, controller string, quantile float64) (float64, error) {
	counts := map[float64]float64{}
	most := 0.0
	for _, m := range r.crew {
		text, err := readMetrics(ctx, m.metrics)
		if err != nil {
			return 0, err
		}
		for _, b := range parseMetrics(text, "controller_runtime_reconcile_time_seconds_bucket") {
			if b.labels["controller"] != controller {
				continue
			}
			var le float64
			if _, err := fmt.Sscanf(b.labels["le"], "%g", &le); err == nil {
				counts[le] += b.value
				most = max(most, counts[le])
			}
		}
	}
	found := 0.0
	for le, n := range counts {
		if n >= quantile*most && (found == 0 || le < found) {
			found = le
		}
	}
	return found * 1000, nil
}
