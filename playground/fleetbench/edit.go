package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/fleet"
)

// slowest is the maximum time of an edit. A longer edit is an error.
const slowest = 10 * time.Minute

// measureEnablingExtraModule simulates admins who add a module to the Kyma in their cluster, one after the other. First
// the fleet is quiet. Then the admins remove the module, and add it again while all clusters upgrade another module.
func measureEnablingExtraModule(ctx context.Context, r *rig, s *Scenario) error {
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	before := make([]fleet.Counts, r.clusters)
	for i := range before {
		before[i] = r.fleet.Cluster(i).Counts()
	}
	quiet, err := r.enableExtraModuleOneByOne(ctx, "quiet", nil, func() bool { return false })
	if err != nil {
		return err
	}
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	s.Latencies["applied"], s.Latencies["ready"] = latencyOf(quiet.appliedAt.finishedDurations()),
		latencyOf(quiet.readyAt.finishedDurations())
	sum := map[string]int{}
	for i := range before {
		if !quiet.appliedAt.started(i) {
			continue
		}
		for name, n := range countDifferences(before[i].Requests, r.fleet.Cluster(i).Counts().Requests) {
			sum[name] += n
		}
	}
	n, _ := quiet.appliedAt.startedAndFinished()
	s.Values[installRequests] = float64(sumOfCounts(sum)) / float64(n)
	s.Values[installPatches] = float64(sumOfWrites(sum)) / float64(n)
	s.Values[installModuleWrites] = float64(moduleWrites(sum)) / float64(n)
	if err := r.disableExtraModule(ctx, quiet); err != nil {
		return err
	}
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	m := r.modules[len(r.modules)-1]
	o, err := r.publishAndMoveChannel(ctx, m, "1.0.1", allClusters)
	if err != nil {
		return err
	}
	defer o.stop()
	through := func() bool {
		all, done := o.appliedAt.startedAndFinished()
		return done == all
	}
	busy, err := r.enableExtraModuleOneByOne(ctx, "during "+o.module.name+" "+o.version, nil, through)
	if err != nil {
		return err
	}
	s.Latencies[editsApplied], s.Latencies["ready during upgrade"] = latencyOf(busy.appliedAt.finishedDurations()),
		latencyOf(busy.readyAt.finishedDurations())
	r.stage.setText(o.String)
	if err := r.awaitRollout(ctx, o); err != nil {
		return err
	}
	if err := r.disableExtraModule(ctx, busy); err != nil {
		return err
	}
	edits, _ := quiet.appliedAt.startedAndFinished()
	more, _ := busy.appliedAt.startedAndFinished()
	s.Clusters, s.Installs = r.clusters, r.clusters+2*(edits+more) // each edit is an installation and a removal
	return nil
}

const (
	installRequests     = "requests to the runtime for one more module"
	installPatches      = "writes to the runtime for one more module"
	installModuleWrites = "of these, to objects of the module"
	editsApplied        = "applied during upgrade"
)

// moduleWrites returns the number of writes to objects of modules. Objects of the kinds of this project, objects of the
// agent, and Events are not objects of modules.
func moduleWrites(counts map[string]int) int {
	ofModules := map[string]int{}
	for name, n := range counts {
		_, resource, _ := strings.Cut(name, " ")
		if isEvent := strings.HasPrefix(resource, "events"); !isOwnKind(name) && !isEvent {
			ofModules[name] = n
		}
	}
	return sumOfWrites(ofModules)
}

// enableExtraModuleOneByOne adds the extra module in some clusters, spread over the fleet, but not in those of the map
// dead, where the module would never be applied. Each edit begins when the
// module of the previous edit is applied. No further edit begins when the function isOver() returns true.
// enableExtraModuleOneByOne then waits until the module is Ready in all these clusters.
func (r *rig) enableExtraModuleOneByOne(ctx context.Context, progressText string, dead map[int]bool,
	isOver func() bool) (*rollout, error) {
	n := min(r.Edits, r.clusters)
	o := &rollout{module: r.extra, version: first, appliedAt: newRace(r.clusters), readyAt: newRace(r.clusters)}
	r.stage.setText(func() string { return fmt.Sprintf("edits, %s: %s", progressText, o) })
	stopChanges := r.changes.onDeploymentChange(func(i int) {
		if o.appliedAt.isRunning(i) && r.isApplied(i, o.module, o.version) {
			o.appliedAt.markFinished(i)
		}
	})
	defer stopChanges()
	stopKymas := r.kymas.onKymaChange(func(i int, k shown) {
		if k.ready(o.module.name, o.version) {
			o.readyAt.markFinished(i)
		}
	})
	defer stopKymas()
	for k := range n {
		if k > 0 && isOver() {
			break
		}
		i := spreadIndex(k, n, r.clusters)
		if dead[i] {
			continue
		}
		o.appliedAt.markStarted(i)
		o.readyAt.markStarted(i)
		err := r.fleet.Cluster(i).Edit(kymas, v1beta2.RuntimeNamespace, v1beta2.RuntimeKymaName,
			func(u *unstructured.Unstructured) {
				modules, _, _ := unstructured.NestedSlice(u.Object, "spec", "modules")
				// SetNestedSlice cannot fail here, because the Kyma has a spec, and a list of maps is valid JSON.
				_ = unstructured.SetNestedSlice(u.Object, append(modules, map[string]any{"name": r.extra.name}), "spec",
					"modules")
			})
		if err != nil {
			return o, err
		}
		if err := poll(ctx, slowest, "the extra module to be applied",
			func() (bool, error) { return !o.appliedAt.isRunning(i), nil }); err != nil {
			return o, err
		}
	}
	if err := r.await(ctx, o.readyAt, "the extra module to be Ready"); err != nil {
		return o, err
	}
	return o, r.await(ctx, o.appliedAt, "the extra module to be applied")
}

// spreadIndex returns the k-th of n indexes that are spread evenly over 0 to all-1.
func spreadIndex(k, n, all int) int {
	return int(math.Floor(float64(k) * float64(all) / float64(n)))
}

// disableExtraModule disables the module that the edits have added, in the Kymas of the same clusters.
// disableExtraModule waits until the module is removed from the clusters and from the status of the Kymas.
func (r *rig) disableExtraModule(ctx context.Context, enabledBy *rollout) error {
	gone := newRace(r.clusters)
	r.stage.setText(func() string {
		all, done := gone.startedAndFinished()
		return fmt.Sprintf("taking the extra module back: %d of %d are done", done, all)
	})
	stop := r.kymas.onKymaChange(func(i int, k shown) {
		if _, there := k.modules[r.extra.name]; !there {
			gone.markFinished(i)
		}
	})
	defer stop()
	for i := range r.clusters {
		if !enabledBy.appliedAt.started(i) {
			continue
		}
		gone.markStarted(i)
		err := r.fleet.Cluster(i).Edit(kymas, v1beta2.RuntimeNamespace, v1beta2.RuntimeKymaName,
			func(u *unstructured.Unstructured) {
				modules, _, _ := unstructured.NestedSlice(u.Object, "spec", "modules")
				var others []any
				for _, m := range modules {
					if fields, ok := m.(map[string]any); !ok || fields["name"] != r.extra.name {
						others = append(others, m)
					}
				}
				_ = unstructured.SetNestedSlice(u.Object, others, "spec", "modules") // as in enableExtraModuleOneByOne
			})
		if err != nil {
			return err
		}
	}
	return r.await(ctx, gone, "the extra module to be gone")
}
