package kyma

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// After its start, a manager assumes that the status of a Kyma is right if the Kyma is Ready and has a connected agent.
// The agent reports the changes that were made in the runtime while no manager was running. The first heartbeat of the
// agent triggers a full reconcile. The reconciles of the fleet are therefore spread over time, like the heartbeats. The
// step assume changes nothing in the runtime: assume only checks that the status of the Kyma is still right. If the
// Kyma does not have its desired state, the same reconcile continues with all other steps.

// assumeUnchanged ends the reconcile of a Kyma that is in its desired state. assumeUnchanged checks this state without
// a request to the runtime.
func (n *run) assumeUnchanged(ctx context.Context) error {
	if !n.mayAssumeUnchanged() {
		return nil
	}
	if n.Runtimes.IsVerificationRequested(n.kyma.Name) {
		return nil // another controller needs the runtime, so its owner has to be verified
	}
	if rt, err := n.Runtimes.GetIfOpenOrNoAgents(ctx, n.kyma.Name); err != nil || rt != nil {
		return nil // the runtime is already connected, or step connect reports the error
	}
	remote := channel.LastRuntimeKymaOf(n.kyma)
	remote.Namespace, remote.Name = remoteRef.Namespace, remoteRef.Name
	manifests, err := n.listManifests(ctx)
	if err != nil {
		return nil // step resolve reports the error
	}
	modules, err := n.decide(ctx, remote, manifests)
	if err != nil || !n.isUpToDate(ctx, remote, modules) {
		return nil
	}
	n.remote, n.manifests, n.modules = remote, manifests, modules
	// The status of the Kyma is Ready, so the runtime already has the base objects, and nothing has to be delivered
	// now.
	n.found.baseSynced, n.found.resolved, n.found.catalogSynced = true, true, true
	n.editRecord(func(*record) {})
	n.subscribe(true)
	n.agents.AssumeUnchanged(n.kyma.Name, n.now)
	return loop.Done()
}

// mayAssumeUnchanged reports whether the status of the Kyma may be assumed to be right. Two conditions must be true:
// the Kyma was Ready when this process started, and its agent reports the changes in the runtime.
func (n *run) mayAssumeUnchanged() bool {
	s := &n.kyma.Status
	return !n.wasReconciledByThisProcess(n.kyma.Name) && !n.InCluster && s.State == v1beta2.StateReady &&
		s.ObservedGeneration == n.kyma.Generation &&
		n.agents.ReportsChanges(s.Agent, n.now) && channel.PauseBlocker(n.kyma, "") == nil &&
		n.hasBaseAndCatalogByStatus()
}

// hasBaseAndCatalogByStatus reports whether the runtime has the base objects, the catalog copy and the pull Secret,
// according to the status of the Kyma. The pull Secret is checked because it may have been added to the configuration
// after the last reconcile.
func (n *run) hasBaseAndCatalogByStatus() bool {
	has := func(kind string) bool { return meta.IsStatusConditionTrue(n.kyma.Status.Conditions, kind) }
	return has(v1beta2.ConditionCRDsSync) && has(v1beta2.ConditionModuleCatalog) &&
		(n.PullSecret == "" || has(v1beta2.ConditionSKRImagePullSecretSync))
}

// isUpToDate reports whether the Kyma needs no change: every module has its desired version and its desired Manifest,
// and the status entry of every module is up to date.
func (n *run) isUpToDate(ctx context.Context, remote *v1beta2.Kyma, modules []plan.Module) bool {
	for i := range modules {
		m := &modules[i]
		switch {
		case !m.IsRequested || m.Decision.Blocker != nil:
			return false
		case !m.Spec.IsManaged():
			if m.Manifest != nil && m.Manifest.Annotations[v1beta2.AnnotationIsUnmanaged] != v1beta2.ValueTrue {
				return false
			}
		case m.Manifest == nil || !m.Manifest.DeletionTimestamp.IsZero() ||
			plan.VisibleState(m.Manifest) != v1beta2.StateReady || !n.hasDesiredManifest(ctx, m):
			return false
		}
	}
	return n.kyma.Status.ActiveChannel == remote.Spec.Channel &&
		loop.Equal(plan.NonMandatoryEntries(modules, n.now), n.kyma.Status.Modules) &&
		loop.Equal(plan.InstalledMandatory(modules, n.kyma.Status.MandatoryModules), n.kyma.Status.MandatoryModules)
}

// hasDesiredManifest reports whether the Manifest of a module needs no change.
func (n *run) hasDesiredManifest(ctx context.Context, m *plan.Module) bool {
	if m.Manifest.Spec.Version != m.Decision.Version {
		return false
	}
	artefact, err := n.resolveArtefactOrBlock(ctx, m)
	if err != nil {
		return false
	}
	want := plan.DesiredManifest(n.kyma, m, artefact, n.now)
	n.Shards.SetShardLabel(want, n.kyma.Name)
	return plan.WithDesired(m.Manifest, want) == nil
}
