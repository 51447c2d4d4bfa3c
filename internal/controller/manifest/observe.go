package manifest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/inventory"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

const (
	// firstPollDelay is the delay between applying a workload and the first read of its readiness.
	firstPollDelay = 200 * time.Millisecond
	// noPodsPeriod is the time after the start of an installation in which the readiness of workloads is read without
	// their Pods, because Pods that have just been created show no problem yet.
	noPodsPeriod = 2 * time.Second
)

// observeReadiness reads the readiness of the applied objects. observeReadiness reads the workloads first, and after
// that the module's custom resource.
func (n *run) observeReadiness(ctx context.Context) error {
	n.memory.noteObserving()
	rules := readinessRulesKey(n.manifest, n.CustomStateCheck)
	quiet := n.isReadyUnchanged(rules)
	n.memory.readinessRules = rules
	if quiet {
		n.observed.readiness = readiness{state: v1beta2.StateReady}
		return nil
	}
	if n.observed.workloadSent {
		n.observed.readiness = readiness{v1beta2.StateProcessing, v1beta2.ReasonWorkloadNotReady,
			v1beta2.OperationManifestWaiting}
		return loop.ContinueAndRequeueAfter(firstPollDelay)
	}
	found, err := n.findReadiness(ctx)
	if err != nil {
		return err
	}
	if found.state == v1beta2.StateReady && n.memory.drift != "" {
		n.observed.readiness = readiness{v1beta2.StateWarning, v1beta2.ReasonDriftDetected, n.memory.drift}
		return nil
	}
	n.observed.readiness = found
	if found.state == v1beta2.StateReady {
		return nil
	}
	return loop.ContinueAndRequeueAfter(max(loop.PollDelay(time.Now(), n.notReadySinceOrNow()), n.validity().expected))
}

// validity returns the time for which the readiness of an object counts without being read again.
func (n *run) validity() validity {
	v := validity{ready: firstPollDelay, expected: n.notReadyValidity()}
	if n.cluster.IsWatched() {
		v.ready = readyPeriod
	}
	return v
}

// notReadyValidity returns how long an object that was seen as not ready still counts as not ready, so that it is not
// read again. Within the returned time, the object is expected to become ready.
func (n *run) notReadyValidity() time.Duration {
	switch {
	case !n.plan.applyAll && n.manifest.Status.State != v1beta2.StateProcessing, !n.plan.applyAll &&
		time.Since(n.notReadySinceOrNow()) > quietPeriod:
		return 0 // the status shows the reason, so it has to be read
	case !n.cluster.IsWatched():
		return firstPollDelay
	case n.cluster.IsAgentAwaited():
		return agentStartPeriod
	}
	return expectedPeriod
}

// findReadiness returns the readiness of the module. Objects whose readiness is known are not read. The state of the
// custom resource decides about the readiness only after all other objects are ready. While an object is known to be
// not ready, nothing is read: the module cannot become Ready before this object, and an event will report when the
// object becomes ready.
func (n *run) findReadiness(ctx context.Context) (readiness, error) {
	now, valid := time.Now(), n.validity()
	objects, resource := n.readinessRefs()
	var ask []apply.Ref
	for _, ref := range objects {
		seen, known := n.memory.lookupUnlessFailed(ref, valid, now)
		if known && seen.state != v1beta2.StateReady {
			return seen, nil
		}
		if !known {
			ask = append(ask, ref)
		}
	}
	if !slices.ContainsFunc(ask, hasStateInEvents) {
		if seen, known := n.memory.lookupUnlessFailed(resource, valid, now); known &&
			seen.state == v1beta2.StateProcessing {
			return seen, nil
		}
	}
	read := n.runtime.CheckReady
	if n.manifest.Status.State == v1beta2.StateProcessing && time.Since(n.notReadySinceOrNow()) < noPodsPeriod {
		read = n.runtime.CheckReadyWithoutPods
	}
	waiting, err := read(ctx, ask, &n.memory.progress)
	if err != nil {
		return readiness{}, err
	}
	n.recordWorkloadReadiness(ask, waiting)
	found := readinessOf(waiting)
	if found.state != v1beta2.StateReady || resource == (apply.Ref{}) {
		return found, nil
	}
	if seen, known := n.memory.lookupUnlessFailed(resource, valid, now); known {
		return seen, nil
	}
	return n.observeModuleCR(ctx)
}

// recordWorkloadReadiness records the readiness of workloads that were read.
func (n *run) recordWorkloadReadiness(asked []apply.Ref, waiting []apply.NotReady) {
	for _, ref := range asked {
		if !hasStateInEvents(ref) {
			continue
		}
		found := readiness{state: v1beta2.StateReady}
		for _, w := range waiting {
			if w.Ref.SameObject(ref) {
				found = readinessOf([]apply.NotReady{w})
			}
		}
		n.memory.recordReadiness(ref, n.memory.progress.Version(ref), found)
	}
}

// isReadyUnchanged reports whether the module is Ready, and no event that could change this was received. If the last
// reconcile found another state and did not save it, the status is outdated, and isReadyUnchanged returns false.
func (n *run) isReadyUnchanged(rules string) bool {
	s, last := &n.manifest.Status, n.memory.reported
	return s.State == v1beta2.StateReady && (last == s.State || last == "") &&
		n.rendered == nil && !n.changes.readiness && len(n.changes.objects) == 0 &&
		s.ObservedGeneration == n.manifest.Generation &&
		(n.memory.readinessRules == rules || n.memory.readinessRules == "")
}

// observeModuleCR reads the state that the module's operator has written to the custom resource.
func (n *run) observeModuleCR(ctx context.Context) (readiness, error) {
	ref := inventory.ModuleCRRef(n.manifest)
	object, err := n.readModuleCR(ctx)
	if err != nil {
		return readiness{}, err
	}
	if object == nil {
		n.memory.noteMissing(ref)
		return readiness{v1beta2.StateProcessing, v1beta2.ReasonCustomResourceNotReady,
			fmt.Sprintf("%s does not exist yet", ref)}, nil
	}
	return n.recordModuleCRReadiness(object)
}

// recordModuleCRReadiness returns and records the readiness of the custom resource that was read. Invalid rules cause a
// terminal error, because only a change of the Manifest can correct them. If valid rules fail on the present content of
// the custom resource, the error is retried: the content may change, and not every runtime reports the change.
func (n *run) recordModuleCRReadiness(object *unstructured.Unstructured) (readiness, error) {
	ref := inventory.ModuleCRRef(n.manifest)
	rules := stateRules(&n.manifest.Spec)
	verdict, err := n.states.Evaluate(ref, object, rules)
	if err != nil {
		if n.states.Validate(rules) != nil {
			err = reconcile.TerminalError(err)
		}
		return readiness{}, err
	}
	found := readinessByResource(verdict)
	n.memory.recordReadiness(ref, n.memory.progress.Version(ref), found)
	return found, nil
}
