package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// connectToDelete finds the way to the runtime. No access Secret is the decision of whoever removed it: the runtime is left as it is.
// Any other failure waits: the runtime may come back, unless the Kyma controller says that it is not waited for any more.
func (n *run) connectToDelete(ctx context.Context) error {
	if n.manifest.Annotations[v1beta2.AnnotationDeletionGivenUp] != "" {
		n.abandoned = true
		return n.release(ctx)
	}
	err := n.connect(ctx)
	if e, ok := errors.AsType[*runtimes.Error](err); ok && e.Code == v1beta2.ReasonAccessSecretNotFound {
		n.abandoned = true
		return n.release(ctx)
	}
	n.refs = refsOf(n.manifest.Status.Synced)
	return err
}

// findBlockers looks for custom resources of the module's kind that users made. They would be orphaned, so they block.
func (n *run) findBlockers(ctx context.Context) error {
	cr := n.manifest.Spec.Resource
	if cr == nil {
		return nil
	}
	all, err := n.runtime.List(ctx, n.resourceRef().GVK(), "")
	if loop.Reason(err) == apply.KindUnknown {
		return nil // the kind is not served any more, so there are none
	}
	if err != nil {
		return err
	}
	var users []apply.Ref
	for _, found := range all {
		if n.manifest.Spec.CustomResourcePolicy == v1beta2.Ignore || !found.SameObject(n.resourceRef()) {
			users = append(users, found.Ref)
		}
	}
	if users, err = n.ofUsers(ctx, users); err != nil || len(users) == 0 {
		return err
	}
	var names []string
	for _, ref := range users {
		names = append(names, ref.String())
	}
	const most = 5 // a message is read by people
	more := ""
	if len(names) > most {
		more = fmt.Sprintf(" and %d more", len(names)-most)
		names = names[:most]
	}
	n.blocker = v1beta2.ReasonCustomResourceBlocksDeletion
	n.sustain(ctx)
	return loop.Later(loop.PollDelay(time.Now(), n.since()), "custom resources of users to be deleted: "+strings.Join(names, ", ")+more)
}

// ofUsers leaves out what other Manifests of this runtime have made: they see to it themselves.
func (n *run) ofUsers(ctx context.Context, refs []apply.Ref) ([]apply.Ref, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	var others v1beta2.ManifestList
	if err := n.Client.List(ctx, &others, client.InNamespace(n.manifest.Namespace), client.MatchingFields{runtimes.KymaNameIndex: n.kyma}); err != nil {
		return nil, fmt.Errorf("listing the Manifests of runtime %s: %w", n.kyma, err)
	}
	return slices.DeleteFunc(refs, func(ref apply.Ref) bool {
		return slices.ContainsFunc(others.Items, func(m v1beta2.Manifest) bool {
			return m.Name != n.manifest.Name && m.Spec.CustomResourcePolicy != v1beta2.Ignore && ref.SameObject(resourceRefOf(&m))
		})
	}), nil
}

// deleteResource deletes the module's custom resource and waits until its operator, which still runs, has cleaned up.
func (n *run) deleteResource(ctx context.Context) error {
	if n.manifest.Spec.Resource == nil || n.manifest.Spec.CustomResourcePolicy == v1beta2.Ignore {
		return nil
	}
	left, err := n.runtime.Delete(ctx, []apply.Ref{n.resourceRef()}, &n.inst.deletion)
	if err != nil {
		return err
	}
	if len(left.Remaining) > 0 {
		n.noteRefusal(left)
		n.sustain(ctx)
		return loop.Later(loop.PollDelay(time.Now(), n.since()), left.WaitMessage())
	}
	return nil
}

// goodbye is how long a custom resource may take to go before somebody looks whether its operator is still there.
const goodbye = 2 * time.Second

// sustain keeps the module's operator as it was installed while custom resources wait for it: who else would let them go? It is a
// favour: if it fails, say because the registry is down, the deletion waits as before. Once the purge has begun to take the operator
// apart, it is over.
func (n *run) sustain(ctx context.Context) {
	if time.Since(n.since()).Abs() < goodbye || n.manifest.Annotations[v1beta2.AnnotationPurged] != "" {
		return
	}
	err := n.decide(ctx)
	if err == nil && n.plan.whole {
		return // another version than the one that was installed; nothing is known to be missing
	}
	if err == nil {
		n.plan.audit = n.plan.audit || slices.ContainsFunc(n.refs, func(r apply.Ref) bool { return !n.inst.progress.IsApplied(r) })
		err = n.render(ctx)
	}
	if err == nil && n.rendered {
		if _, err = n.resolveSets(ctx); err == nil {
			err = n.apply(ctx)
		}
	}
	if err != nil {
		log.FromContext(ctx).Info("cannot look after the operator while its custom resource is being deleted", "error", err.Error())
	}
}

// teardown deletes everything in the inventory, in order, and waits until it is gone.
func (n *run) teardown(ctx context.Context) error {
	left, err := n.runtime.Delete(ctx, n.refs, &n.inst.deletion)
	if err != nil {
		return err
	}
	if len(left.Remaining) > 0 {
		n.noteRefusal(left)
		return loop.Later(loop.PollDelay(time.Now(), n.since()), left.WaitMessage())
	}
	return nil
}

// noteRefusal makes the want of a permission the reason of what is waited for: somebody has to grant it.
func (n *run) noteRefusal(left apply.Teardown) {
	if slices.ContainsFunc(left.Remaining, func(r apply.Remaining) bool { return r.Err != nil && r.Err.Reason() == apply.RuntimeForbidden }) {
		n.blocker = v1beta2.ReasonRuntimeForbidden
	}
}

// release lets the Manifest go. One whose module is handed over is not being deleted yet.
func (n *run) release(ctx context.Context) error {
	if n.manifest.IsUnmanaged() && n.manifest.DeletionTimestamp.IsZero() {
		if err := client.IgnoreNotFound(n.Client.Delete(ctx, n.manifest)); err != nil {
			return fmt.Errorf("deleting Manifest %s: %w", n.manifest.Name, err)
		}
	}
	old := n.manifest.DeepCopy()
	changed := false
	for _, f := range []string{v1beta2.FinalizerManifest, v1beta2.FinalizerLabelRemoval, v1beta2.FinalizerCustomResource} {
		changed = controllerutil.RemoveFinalizer(n.manifest, f) || changed
	}
	if changed {
		// Reads need not wait for the cache to see it: inst.released knows.
		if err := client.IgnoreNotFound(n.patchMetadata(ctx, old, client.DisableReadYourWritesConsistency)); err != nil {
			return err
		}
	}
	n.inst.released = true
	return loop.Done()
}
