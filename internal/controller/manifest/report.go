package manifest

import (
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/changelog"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/condition"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/inventory"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/source"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// reportStartAndInventory adds the objects that will be applied to the inventory. When an installation or an upgrade
// starts, reportStartAndInventory also sets the state Processing. The result needsSave is true if the status has to be
// saved. Objects of earlier versions stay in the inventory until they are deleted.
func (n *run) reportStartAndInventory() (needsSave bool) {
	s := &n.manifest.Status
	known := inventory.Refs(s.Synced)
	union := append(slices.Clone(n.refs), inventory.NotIn(known, n.refs)...)
	grows := !inventory.Includes(known, union)
	target := n.cluster.StatusTarget()
	if s.State != "" && s.Target == target && !grows {
		return false
	}
	// The saved status also shows the state Processing, so that a fast installation or upgrade does not save its status
	// again until it is Ready.
	if s.State == "" || isWell(s.State) && s.ObservedGeneration != n.manifest.Generation {
		s.State, s.ObservedGeneration = v1beta2.StateProcessing, n.manifest.Generation
		s.LastOperation = v1beta2.LastOperation{Operation: v1beta2.OperationManifestWaiting,
			LastUpdateTime: metav1.Now()}
		condition.SetAll(n.manifest, v1beta2.StateProcessing, v1beta2.ReasonApplying, v1beta2.OperationManifestWaiting)
		condition.SetSignatures(n.manifest, n.newlyCheckedSignatures())
		s.LastChange = changelog.LastChangeOfManifest(n.manifest, s, v1beta2.ReasonApplying, time.Now())
	}
	s.Target = target
	if grows {
		s.Synced = inventory.Of(union)
	}
	return true
}

// report sets the whole status after the last step. report also keeps in memory the values that the next reconcile
// needs.
func (n *run) report(out loop.Outcome) {
	s := &n.manifest.Status
	installed := *s
	if out.Step != "" || n.observed.outage.is {
		n.memory.restoreChanges(n.changes)
	}
	if n.observed.ownerUnknown {
		return
	}
	if n.pruned.complete {
		s.Synced = inventory.Of(append(slices.Clone(n.refs), n.pruned.kept...))
	}
	s.Synced = inventory.WithAdoptedAndSharedOf(s.Synced, n.refs)
	if n.observed.served { // objects of the former version stay in the inventory until the deletion
		s.AppliedDigest, s.Version, s.AppliedGeneration = n.plan.digest, n.manifest.Spec.Version, n.manifest.Generation
	}
	if n.pruned.complete {
		s.Synced = inventory.WithPendingFlagsCleared(s.Synced)
		s.AppliedDigest, s.Version = n.plan.digest, n.manifest.Spec.Version
		s.AppliedGeneration = n.manifest.Generation
		s.RenderFailure = nil
	}
	if f, failed := errors.AsType[source.Failure](out.Err); failed {
		s.RenderFailure = &v1beta2.RenderFailure{Digest: f.Digest, Reason: f.Code, Message: loop.ClipLine(f.Message)}
	}
	if n.plan.digest != "" && !n.plan.applyAll && s.ObservedGeneration != n.manifest.Generation {
		s.AppliedGeneration = n.manifest.Generation // the change of the spec does not affect what is applied
	}
	s.ObservedGeneration = n.manifest.Generation
	before, since := s.State, n.notReadySinceOrNow()
	state, reason, operation := summarize(n.manifest, out, n.observed)
	if s.State != state || s.LastOperation.Operation != operation {
		s.LastOperation = v1beta2.LastOperation{Operation: operation, LastUpdateTime: metav1.Now()}
	}
	s.State, n.memory.reported = state, state
	n.memory.setShown(state)
	condition.SetAll(n.manifest, state, reason, operation)
	condition.SetSignatures(n.manifest, n.newlyCheckedSignatures())
	n.reportSourcesReadable(out)
	s.LastChange = changelog.LastChangeOfManifest(n.manifest, &installed, reason, time.Now())
	if state == v1beta2.StateReady && before == v1beta2.StateProcessing {
		metrics.ModuleReadySeconds.WithLabelValues(n.manifest.Labels[v1beta2.LabelModuleName]).Observe(
			time.Since(since).Seconds())
	}
}

// recordChangeEvent compares the saved status with the previous status, and records the resulting event.
func (n *run) recordChangeEvent(before client.Object) {
	is := n.manifest
	if e := changelog.ManifestEvent(is.ModuleName(), &before.(*v1beta2.Manifest).Status, &is.Status); e != nil {
		n.recordEventOf(e.Type, e.Reason, e.Note)
	}
}

// newlyCheckedSignatures returns the results of the signature checks of this reconcile.
func (n *run) newlyCheckedSignatures() []condition.Signature {
	if n.rendered == nil {
		return nil
	}
	return n.rendered.signatures
}

// deferSave returns how long saving the status can be deferred. If saving can be deferred, deferSave keeps the status
// of an installation or an upgrade in memory.
func (n *run) deferSave(saved client.Object) time.Duration {
	s := &n.manifest.Status
	after := saveDelay(s, &saved.(*v1beta2.Manifest).Status, time.Since(n.notReadySinceOrNow()))
	if after > 0 && s.State == v1beta2.StateProcessing {
		n.memory.deferred = deferred{s.DeepCopy(), n.manifest.ResourceVersion}
	}
	return after
}

// notReadySinceOrNow returns the time since when the Manifest is not Ready. If the Manifest is Ready or has no
// condition Ready, notReadySinceOrNow returns the current time.
func (n *run) notReadySinceOrNow() time.Time {
	if c := meta.FindStatusCondition(n.manifest.Status.Conditions, v1beta2.ConditionReady); c != nil &&
		c.Status != metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Now()
}
