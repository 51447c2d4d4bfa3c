package manifest

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/inventory"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

const (
	// firstPollDelay is the delay between applying a workload and the first read of its readiness.
	firstPollDelay = 200 * time.Millisecond
	// noPodsPeriod is a period after the start of an installation; in it, the readiness of workloads is read without
	// their pods. In this period, all pods are new, so their state shows no problem yet.
	noPodsPeriod = 2 * time.Second
)

// observe reads the readiness of the applied objects. observe reads the workloads first, and after that the module's
// custom resource.
func (n *run) observe(ctx context.Context) error {
	rules := readinessRules(n.manifest, n.CustomStateCheck)
	quiet := n.isQuiet(rules)
	n.memory.readinessRules = rules
	if quiet {
		n.observed.readiness = readiness{state: v1beta2.StateReady}
		return nil
	}
	if n.observed.workloadSent {
		n.observed.readiness = readiness{v1beta2.StateProcessing, v1beta2.ReasonWorkloadNotReady,
			v1beta2.OperationManifestWaiting}
		return loop.RecheckAfter(firstPollDelay)
	}
	read := n.runtime.CheckReady
	if n.manifest.Status.State == v1beta2.StateProcessing && time.Since(n.notReadySince()) < noPodsPeriod {
		read = n.runtime.CheckReadyWithoutPods
	}
	waiting, err := read(ctx, inventory.ReadinessRefs(n.refs, n.manifest.Spec.Manager), &n.memory.progress)
	if err != nil {
		return err
	}
	found := readinessOf(waiting)
	if found.state == v1beta2.StateReady && resourceDecides(n.manifest, n.CustomStateCheck) {
		if found, err = n.observeResource(ctx); err != nil {
			return err
		}
	}
	if found.state == v1beta2.StateReady && n.memory.drift != "" {
		n.observed.readiness = readiness{v1beta2.StateWarning, v1beta2.ReasonDriftDetected, n.memory.drift}
		return nil
	}
	n.observed.readiness = found
	if found.state == v1beta2.StateReady {
		return nil
	}
	return loop.RecheckAfter(loop.PollDelay(time.Now(), n.notReadySince()))
}

// isQuiet reports whether the module is Ready and no event was received that could change this. If the last reconcile
// found another state that was not saved, the status is outdated, and isQuiet returns false.
func (n *run) isQuiet(rules string) bool {
	s, last := &n.manifest.Status, n.memory.reported
	return s.State == v1beta2.StateReady && (last == s.State || last == "") &&
		n.rendered == nil && !n.changes.readiness && len(n.changes.objects) == 0 &&
		s.ObservedGeneration == n.manifest.Generation &&
		(n.memory.readinessRules == rules || n.memory.readinessRules == "")
}

// observeResource reads the state that the module's operator has written to the custom resource.
func (n *run) observeResource(ctx context.Context) (readiness, error) {
	ref := inventory.ResourceRef(n.manifest)
	object, err := n.readResource(ctx)
	if err != nil {
		return readiness{}, err
	}
	if object == nil {
		n.memory.noteMissing()
		return readiness{v1beta2.StateProcessing, v1beta2.ReasonCustomResourceNotReady,
			fmt.Sprintf("%s does not exist yet", ref)}, nil
	}
	verdict, err := n.states.Evaluate(ref, object, stateRules(&n.manifest.Spec))
	if err != nil {
		return readiness{}, reconcile.TerminalError(err)
	}
	return readinessByResource(verdict), nil
}
