package kyma

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/delivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// announce lets both copies of the Kyma say that it is being deleted, before anything happens to its modules.
func (n *run) announce(context.Context) error {
	n.inheritAgent()
	n.first = n.kyma.Status.State != v1beta2.StateDeleting
	n.kyma.Status.State = v1beta2.StateDeleting
	return nil
}

// connectToDelete finds the way to the runtime. No access Secret is the decision of whoever removed it: the runtime is left as it is.
// Any other failure waits: the runtime may come back. If it takes too long, see giveup.go.
func (n *run) connectToDelete(ctx context.Context) error {
	n.Runtimes.Unsubscribe(n.kyma.Name, catalogKey(n.kyma.Name))
	if n.kyma.Annotations[v1beta2.AnnotationDeletionGivenUp] != "" {
		n.givenUp, n.abandoned = true, true
		return nil
	}
	err := n.connect(ctx)
	if e, ok := errors.AsType[*runtimes.Error](err); ok && e.Code == v1beta2.ReasonAccessSecretNotFound {
		n.abandoned = true
		return nil
	}
	if err == nil && (n.first || n.wasSilent()) && !n.InCluster {
		// So that the runtime's admin sees it too, and to find out whether it answers again; what follows does not depend on it.
		n.remote, err = n.readRemote(ctx)
	}
	if err != nil {
		return n.outwait(ctx, err)
	}
	return nil
}

// turnMissed is how long a Kyma waits for its turn before it asks again. Its turn wakes it; this is for one that was missed.
const turnMissed = 10 * time.Minute

// awaitTurn waits while many others are deleted: see turns.go. Who has begun goes on. The status is
// saved after this step.
func (n *run) awaitTurn(ctx context.Context) error {
	if err := n.listManifests(ctx); err != nil {
		return err
	}
	begun := n.givenUp || len(n.manifests) == 0
	for _, m := range n.manifests {
		begun = begun || !m.DeletionTimestamp.IsZero()
	}
	if begun || n.end.may(n.kyma.Name) {
		return nil
	}
	n.queued = true
	return loop.Later(turnMissed, "its turn: the modules of other runtimes are removed first (--max-new-runtimes)")
}

// deleteModules deletes every Manifest of this Kyma, mandatory ones too, and waits until they are gone.
func (n *run) deleteModules(ctx context.Context) error {
	n.known = true
	var left []string
	for _, name := range slices.Sorted(mapKeys(n.manifests)) {
		m := n.manifests[name]
		n.modules = append(n.modules, module{wish: v1beta2.Module{Name: m.ModuleName()}, mandatory: m.IsMandatory(), manifest: m, former: formerEntry(n.kyma, m.ModuleName())})
		left = append(left, m.Labels[v1beta2.LabelModuleName])
		if n.givenUp {
			if err := n.markGivenUp(ctx, m); err != nil {
				return err
			}
		}
		if !m.DeletionTimestamp.IsZero() {
			n.stuck = n.stuck || waitsForOthers(m)
			continue
		}
		if err := client.IgnoreNotFound(n.Client.Delete(ctx, m)); err != nil {
			return fmt.Errorf("deleting Manifest %s: %w", m.Name, err)
		}
	}
	if why := forbidden(n.manifests); why != nil && n.DeletionDeadline > 0 && !n.abandoned {
		if err := n.outwait(ctx, why); err != nil {
			return err
		}
		return loop.Later(time.Millisecond, "the modules to be let go")
	}
	if len(left) > 0 {
		return loop.Later(time.Minute, "the modules to be gone: "+strings.Join(left, ", ")) // the end of a Manifest wakes us
	}
	return n.ascertain(ctx)
}

// waitsForOthers tells whether a Manifest that is being deleted waits for more than that its objects go: for a person, or for the runtime.
func waitsForOthers(m *v1beta2.Manifest) bool {
	return m.Status.State == v1beta2.StateDeleting && reasonOf(m) != v1beta2.ReasonObjectsRemaining
}

// ascertain makes sure that there is no Manifest whose label of its shard somebody has removed: the cache would not show it.
func (n *run) ascertain(ctx context.Context) error {
	if n.Shards == nil {
		return nil
	}
	manifests := &metav1.PartialObjectMetadataList{}
	manifests.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(v1beta2.KindManifest + "List"))
	err := n.Certain.List(ctx, manifests, client.InNamespace(n.kyma.Namespace), client.MatchingLabels{v1beta2.LabelKymaName: n.kyma.Name}, client.Limit(1))
	if err != nil {
		return fmt.Errorf("making sure that Kyma %s has no Manifests: %w", n.kyma.Name, err)
	}
	if len(manifests.Items) > 0 {
		return loop.Later(time.Second, "the cache to show Manifest "+manifests.Items[0].Name)
	}
	return nil
}

// deleteFromRuntime removes what was put into the runtime for its admin: the Kyma, then the CRDs. The namespace stays: others live in it.
func (n *run) deleteFromRuntime(ctx context.Context) error {
	if n.InCluster || n.abandoned {
		return nil
	}
	left, err := n.runtime.Delete(ctx, delivery.Refs(n.bestowed()), &n.memory(n.kyma.Name, n.runtime).deletion)
	if err != nil {
		return n.outwait(ctx, fmt.Errorf("deleting what runtime %s got from us: %w", n.kyma.Name, err))
	}
	if why := refusedOf(left); why != nil && n.DeletionDeadline > 0 {
		return n.outwait(ctx, why)
	}
	if len(left.Remaining) > 0 {
		return loop.Later(500*time.Millisecond, left.WaitMessage())
	}
	return nil
}

// release lets the Kyma go, and before that its certificates.
func (n *run) release(ctx context.Context) error {
	if n.Agents.Release != nil {
		if err := n.Agents.Release(ctx, n.kyma.Name); err != nil {
			return fmt.Errorf("ending the certificates of runtime %s: %w", n.kyma.Name, err)
		}
	}
	if n.givenUp {
		n.Runtimes.Close(n.kyma.Name) // before the end of the Kyma lets somebody else wait for the runtime
	}
	old := n.kyma.DeepCopy()
	if !controllerutil.RemoveFinalizer(n.kyma, v1beta2.FinalizerKyma) {
		return nil
	}
	if err := client.IgnoreNotFound(n.patchMetadata(ctx, old, client.DisableReadYourWritesConsistency)); err != nil { // memory.released knows
		return err
	}
	if !n.givenUp {
		n.Runtimes.Close(n.kyma.Name)
	}
	if n.Agents.Voices != nil {
		n.Agents.Voices.Forget(n.kyma.Name)
	}
	n.mu.Lock()
	n.Reconciler.known[n.kyma.Name] = &memory{released: n.kyma.UID}
	n.mu.Unlock()
	return loop.Done()
}
