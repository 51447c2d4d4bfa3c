package kyma

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/delivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// announce lets both copies of the Kyma say that it is being deleted, before anything else happens: the status is saved after it.
func (n *run) announce(context.Context) error {
	n.first = n.kyma.Status.State != v1beta2.StateDeleting
	n.kyma.Status.State = v1beta2.StateDeleting
	return nil
}

// connectToDelete finds the way to the runtime. No access Secret is the decision of whoever removed it: the runtime is left as it is.
// Any other failure waits: the runtime may come back.
func (n *run) connectToDelete(ctx context.Context) error {
	n.Runtimes.Unfollow(n.kyma.Name, catalogKey(n.kyma.Name))
	err := n.connect(ctx)
	if e, ok := errors.AsType[*runtimes.Error](err); ok && e.Code == v1beta2.ReasonAccessSecretNotFound {
		n.abandoned = true
		return nil
	}
	if err == nil && n.first && !n.InCluster {
		// So that the runtime's admin sees it too; what follows does not depend on it.
		n.remote, err = n.readRemote(ctx)
	}
	return err
}

// deleteModules deletes every Manifest of this Kyma, mandatory ones too, and waits until they are gone.
func (n *run) deleteModules(ctx context.Context) error {
	if err := n.listManifests(ctx); err != nil {
		return err
	}
	n.known = true
	var left []string
	for _, name := range slices.Sorted(mapKeys(n.manifests)) {
		m := n.manifests[name]
		n.modules = append(n.modules, module{wish: v1beta2.Module{Name: m.ModuleName()}, mandatory: m.IsMandatory(), manifest: m, former: formerEntry(n.kyma, m.ModuleName())})
		left = append(left, m.Labels[v1beta2.LabelModuleName])
		if !m.DeletionTimestamp.IsZero() {
			continue
		}
		if err := client.IgnoreNotFound(n.Client.Delete(ctx, m)); err != nil {
			return fmt.Errorf("deleting Manifest %s: %w", m.Name, err)
		}
	}
	if len(left) > 0 {
		return loop.Later(time.Minute, "the modules to be gone: "+strings.Join(left, ", ")) // the end of a Manifest wakes us
	}
	return nil
}

// deleteFromRuntime removes what was put into the runtime for its admin: the Kyma, then the CRDs. The namespace stays: others live in it.
func (n *run) deleteFromRuntime(ctx context.Context) error {
	if n.InCluster || n.abandoned {
		return nil
	}
	refs, err := n.runtime.Refs(ctx, apply.Set{Bundle: n.Base})
	if err != nil {
		return fmt.Errorf("deleting what runtime %s got from us: %w", n.kyma.Name, err)
	}
	refs = append([]apply.Ref{remoteRef}, refs...)
	if s := n.kyma.Status.Agent; s != nil {
		refs = append(refs, delivery.Refs(s.Synced)...)
	}
	if n.PullSecret != "" {
		refs = append(refs, n.pullSecretRef())
	}
	left, err := n.runtime.Delete(ctx, refs, &n.memory(n.kyma.Name, n.runtime).deletion)
	if err != nil {
		return fmt.Errorf("deleting what runtime %s got from us: %w", n.kyma.Name, err)
	}
	if len(left.Remaining) > 0 {
		return loop.Later(500*time.Millisecond, left.Waits())
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
	old := n.kyma.DeepCopy()
	if !controllerutil.RemoveFinalizer(n.kyma, v1beta2.FinalizerKyma) {
		return nil
	}
	if err := client.IgnoreNotFound(n.patchMetadata(ctx, old)); err != nil {
		return err
	}
	n.Runtimes.Close(n.kyma.Name)
	if n.Agents.Voices != nil {
		n.Agents.Voices.Forget(n.kyma.Name)
	}
	n.mu.Lock()
	n.Reconciler.known[n.kyma.Name] = &memory{released: n.kyma.UID}
	n.mu.Unlock()
	return loop.Done()
}
