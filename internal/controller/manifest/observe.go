package manifest

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

const (
	// firstPollDelay is the delay before the readiness of a workload that was just applied is read for the first time.
	firstPollDelay = 200 * time.Millisecond
	// noPodsPeriod is how long after the start of an installation readiness is read without pods, which would be new
	// anyway.
	noPodsPeriod = 2 * time.Second
)

// observe reads whether the applied objects work: workloads first, then the module's custom resource.
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
	waiting, err := read(ctx, readinessRefs(n.refs, n.manifest.Spec.Manager), &n.memory.progress)
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

// isQuiet reports whether the module is Ready and nothing has happened that could change that. The status does not
// count if the last reconcile reported another state, which then was not saved.
func (n *run) isQuiet(rules string) bool {
	s, last := &n.manifest.Status, n.memory.reported
	return s.State == v1beta2.StateReady && (last == s.State || last == "") &&
		n.rendered == nil && !n.changes.readiness && len(n.changes.objects) == 0 &&
		s.ObservedGeneration == n.manifest.Generation &&
		(n.memory.readinessRules == rules || n.memory.readinessRules == "")
}

// observeResource returns the state that the module's operator reports in the custom resource.
func (n *run) observeResource(ctx context.Context) (readiness, error) {
	ref := resourceRefOf(n.manifest)
	object, err := n.readResource(ctx)
	if err != nil {
		return readiness{}, err
	}
	if object == nil {
		return readiness{v1beta2.StateProcessing, v1beta2.ReasonCustomResourceNotReady,
			fmt.Sprintf("%s does not exist yet", ref)}, nil
	}
	verdict, err := n.states.Evaluate(ref, object, stateRules(&n.manifest.Spec))
	if err != nil {
		return readiness{}, reconcile.TerminalError(err)
	}
	return readinessByResource(verdict), nil
}
