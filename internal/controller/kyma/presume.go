package kyma

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// When the program starts, a Kyma that is Ready and whose agent was heard is taken to be as it says: what happened in its runtime meanwhile, the
// agent will tell. When the agent is heard for the first time, the runtime is looked at; so the looks of a fleet are spread as its heartbeats are.
// What is taken to be so can confirm, and never changes anything: where there is anything to do, the runtime is looked at first.

// presume ends the pass of a Kyma that is as it should be, as far as can be told without asking its runtime.
func (n *run) presume(ctx context.Context) error {
	if !n.mayPresume() {
		return nil
	}
	if rt, err := n.Runtimes.GetIfOpen(ctx, n.kyma.Name); err != nil || rt != nil {
		return nil // it is connected already, or connect says why it cannot be
	}
	wish, _ := firstWish(n.kyma)
	n.remote = &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: remoteRef.Namespace, Name: remoteRef.Name}, Spec: wish}
	if err := n.resolve(ctx); err != nil || !n.isAsReported(ctx) {
		n.remote, n.manifests, n.modules, n.known = nil, nil, nil, false
		return nil
	}
	n.mirrored, n.catalogued = true, true // the last pass of whoever reported it Ready has seen to that
	m := n.memory(n.kyma.Name, nil)
	n.mu.Lock()
	m.presumed = true
	n.mu.Unlock()
	n.follow(true)
	n.reviews.AddAfter(n.kyma.Name, n.Agents.Silence())
	if state, _ := n.Agents.Voices.State(n.kyma.Name); !state.Last.IsZero() {
		n.Wake(n.kyma.Name) // it was heard before it was awaited
	}
	return loop.Done()
}

// mayPresume tells whether the Kyma was Ready when the program started, and its agent tells what happens in its runtime.
func (n *run) mayPresume() bool {
	n.mu.Lock()
	_, met := n.Reconciler.known[n.kyma.Name]
	n.mu.Unlock()
	s := &n.kyma.Status
	return !met && !n.InCluster && n.Agents.Delivery != nil && s.State == v1beta2.StateReady && s.ObservedGeneration == n.kyma.Generation &&
		s.Agent != nil && s.Agent.Connected && n.now.Before(n.Agents.Delivery.Due(s.Agent)) && channel.PauseBlocker(n.kyma, "") == nil && n.isEquipped()
}

// isEquipped tells whether the status says that the runtime has all that it gets beside modules. A pull Secret may be new: then nobody has seen to it.
func (n *run) isEquipped() bool {
	has := func(kind string) bool { return meta.IsStatusConditionTrue(n.kyma.Status.Conditions, kind) }
	return has(v1beta2.ConditionCRDsSync) && has(v1beta2.ConditionModuleCatalog) && (n.PullSecret == "" || has(v1beta2.ConditionSKRImagePullSecretSync))
}

// isAsReported tells whether every module has the version it should have, a Manifest that says so, and the entry in the status that it would get.
func (n *run) isAsReported(ctx context.Context) bool {
	for i := range n.modules {
		m := &n.modules[i]
		switch {
		case !m.wanted || m.decision.Blocker != nil:
			return false
		case !m.wish.IsManaged():
			if m.manifest != nil && m.manifest.Annotations[v1beta2.AnnotationIsUnmanaged] != v1beta2.ValueTrue {
				return false
			}
		case m.manifest == nil || !m.manifest.DeletionTimestamp.IsZero() || shownState(m.manifest) != v1beta2.StateReady || !n.saysWhatItShould(ctx, m):
			return false
		}
	}
	return n.kyma.Status.ActiveChannel == n.remote.Spec.Channel && loop.Equal(n.moduleEntries(), n.kyma.Status.Modules)
}

// saysWhatItShould tells whether nothing would be changed in the Manifest of a module.
func (n *run) saysWhatItShould(ctx context.Context, m *module) bool {
	if m.manifest.Spec.Version != m.decision.Version {
		return false
	}
	artefact, err := n.artefactOf(ctx, m)
	if err != nil {
		return false
	}
	want := desiredManifest(n.kyma, m, artefact)
	n.Shards.SetLabel(want, n.kyma.Name)
	return withDesired(m.manifest, want) == nil
}
