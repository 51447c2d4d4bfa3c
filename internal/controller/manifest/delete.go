package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/changelog"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/inventory"
	"github.com/kyma-fleet/lifecycle-manager/internal/customresource"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// connectOrRelease connects to the runtime. If the access Secret was removed and the Kyma is deleted, the objects in
// the runtime stay and the Manifest is released, because somebody has given the cluster up. If the connection fails for
// another reason, the deletion waits until the runtime can be reached, or until the Kyma controller gives up the
// deletion.
func (n *run) connectOrRelease(ctx context.Context) error {
	if n.manifest.Annotations[v1beta2.AnnotationDeletionGivenUp] != "" && !n.cluster.IsControlPlaneTarget() {
		return n.removeFinalizers(ctx)
	}
	err := n.connect(ctx)
	if err == nil && n.runtime == nil { // connect opens no connection for a module that is Ready
		err = n.connectBy(ctx, n.cluster.Get)
	}
	if e, ok := errors.AsType[*runtimes.Error](err); ok && e.Code == v1beta2.ReasonAccessSecretNotFound {
		return n.releaseOrAwaitAccessSecret(ctx, e)
	}
	n.refs = inventory.Refs(n.manifest.Status.Synced)
	if err != nil {
		return err
	}
	return n.verifyOwner(ctx)
}

// verifyOwner verifies that the runtime still belongs to the Kyma of the Manifest, because a deletion may have waited
// long enough for a takeover by another Kyma or control plane.
func (n *run) verifyOwner(ctx context.Context) error {
	if n.VerifyOwner == nil || n.cluster.IsControlPlaneTarget() {
		return nil
	}
	kyma := client.ObjectKey{Namespace: n.manifest.Namespace, Name: n.manifest.KymaName()}
	err := n.VerifyOwner(ctx, kyma, n.runtime)
	if runtimes.IsRuntimeRefused(err) {
		n.runtime = nil
		return reconcile.TerminalError(err)
	}
	return err
}

// releaseOrAwaitAccessSecret releases the Manifest without access to the runtime if the access Secret was removed and
// the Kyma is being deleted or does not exist. Otherwise the Manifest waits, because the Kyma still needs a Secret.
func (n *run) releaseOrAwaitAccessSecret(ctx context.Context, why *runtimes.Error) error {
	const recheckInterval = time.Minute // the deletion of the Kyma triggers no reconcile
	kyma := &v1beta2.Kyma{}
	err := n.Client.Get(ctx, client.ObjectKey{Namespace: n.manifest.Namespace, Name: n.manifest.KymaName()}, kyma)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Kyma %s: %w", n.manifest.KymaName(), err)
	}
	wait := recheckInterval
	if err != nil || !kyma.DeletionTimestamp.IsZero() {
		if wait, err = n.cluster.ConfirmAccessSecretRemoved(ctx); err != nil {
			return err
		}
	}
	if wait > 0 {
		n.refs = inventory.Refs(n.manifest.Status.Synced)
		n.observed.blocker = v1beta2.ReasonAccessSecretNotFound
		return loop.Later(wait, "the access Secret: "+why.Error())
	}
	if !n.memory.released {
		n.recordEventOf(corev1.EventTypeWarning, v1beta2.EventRuntimeLeft,
			"the module was removed from the control plane only, and its objects in the cluster stay: "+why.Error())
	}
	return n.removeFinalizers(ctx)
}

// handOverObjectsToUser removes our labels, annotations and fields from the objects of the inventory. Objects without
// our labels and annotations belong to the user of the runtime. If a second module also contains an object,
// handOverObjectsToUser makes the second module its owner, and an event reports the new owner.
func (n *run) handOverObjectsToUser(ctx context.Context) error {
	others, err := n.peers().ListOtherManifests(ctx, n.manifest)
	if err != nil {
		return err
	}
	own := n.peers().Ownership(ctx, n.manifest, n.Adoption)
	own.Wanted = others.HoldersOf(n.refs)
	left, err := n.runtime.LeaveToUser(ctx, n.refs, own, apply.Marks{
		Labels:      []string{v1beta2.LabelManagedBy, v1beta2.LabelAppPartOf},
		Annotations: []string{v1beta2.AnnotationDisclaimer},
	})
	n.reportObjectsLeft(left)
	if err != nil {
		return fmt.Errorf("handing the objects over to the user: %w", err)
	}
	return nil
}

// reportObjectsLeft records an event for each object that was left in the runtime.
func (n *run) reportObjectsLeft(left []apply.Left) {
	for _, l := range left {
		n.recordEvent(inventory.LeftReason(l), l.Message)
	}
}

// deleteOrAwaitUserCRs waits while users have custom resources whose CRD would be deleted with the module. If the user
// allows the deletion of custom resources, deleteOrAwaitUserCRs deletes the custom resources of users while the
// operator of the module still runs. If a webhook of the operator does not answer, the deletion waits like for a custom
// resource, because the steps plan and operator may repair the operator.
func (n *run) deleteOrAwaitUserCRs(ctx context.Context) error {
	find := customresource.FindOfUsersWithDefaultKind
	if n.cluster.IsControlPlaneTarget() {
		find = customresource.FindOfUsers // a CRD that stays has custom resources of other Kymas with the same module
	}
	found, err := find(ctx, n.questionAbout(ctx, n.refs))
	if err == nil && found.Count() > 0 {
		n.observed.blocker = v1beta2.ReasonCustomResourceBlocksDeletion
		err = found.DeleteIfUserAllows(ctx, n.recordEvent)
	}
	switch {
	case loop.Reason(err) == apply.WebhookFailed:
		n.observed.blocker = v1beta2.ReasonWebhookFailed
		n.observed.blocked = n.requeueWaitingFor("the module's webhook to answer: " + loop.Message(err))
	case err != nil:
		return err
	case len(found.Kinds) > 0:
		n.observed.blocked = n.awaitUserCRs(found)
	}
	n.observed.found = found
	return nil
}

// searchDelay is the delay until the next call continues a search for custom resources of users. The delay is short,
// because the API server keeps the position of a search only for some minutes.
const searchDelay = time.Second

// awaitUserCRs returns the answer "not yet" for custom resources of users that were found, or that were not read yet.
func (n *run) awaitUserCRs(found customresource.Found) error {
	if unread := found.UnreadMessage(); unread != "" {
		return loop.Later(searchDelay, unread)
	}
	return n.requeueWaitingFor(found.WaitMessage())
}

// questionAbout returns the query for the custom resources of users that would be deleted together with the CRDs among
// the given objects. questionAbout ignores CRDs that stay in the runtime: a CRD that another module also contains, and
// a CRD that existed before the module was installed.
func (n *run) questionAbout(ctx context.Context, refs []apply.Ref) customresource.Question {
	read := func(r apply.Ref) *unstructured.Unstructured {
		object, err := n.runtime.Get(ctx, r)
		if err != nil {
			return nil
		}
		return object
	}
	crds := n.peers().ToDelete(ctx, n.manifest, inventory.CRDs(refs), read)
	manifests := func(ctx context.Context) ([]v1beta2.Manifest, error) {
		return runtimes.ManifestsOf(ctx, n.Client, n.manifest.Namespace, n.manifest.Labels[v1beta2.LabelKymaName])
	}
	return customresource.Question{Manifests: manifests, Runtime: n.runtime.Cluster, Manifest: n.manifest,
		Inventory: inventory.Refs(n.manifest.Status.Synced), CRDs: crds, Search: &n.memory.search}
}

// deleteModuleCR deletes the module's custom resource. deleteModuleCR waits until the module's operator, which still
// runs, has removed the finalizers of the custom resource, and those of the custom resources that depend on it.
func (n *run) deleteModuleCR(ctx context.Context) error {
	if n.observed.blocked != nil {
		return nil
	}
	if err := n.deleteDefaultCR(ctx); err != nil || n.observed.blocked != nil {
		return err
	}
	if slices.ContainsFunc(n.refs, apply.Ref.IsCustomResource) {
		return nil // they may be owners: deleteInventoryObjects deletes them first
	}
	waits, err := n.awaitDependents(ctx)
	n.observed.blocked = waits
	return err
}

// deleteDefaultCR deletes the module's custom resource unless its policy is Ignore or it stays with another module. The
// scope of its kind may be cached from a CRD that the API server has refused. Then the first request finds no object,
// and the runtime is asked for the scope; the second request finds the custom resource.
func (n *run) deleteDefaultCR(ctx context.Context) error {
	if n.manifest.Spec.Resource == nil || n.manifest.Spec.CustomResourcePolicy == v1beta2.Ignore {
		return nil
	}
	ref, err := customresource.ResolveResourceRef(ctx, n.runtime.Cluster, n.manifest)
	if err != nil {
		return err
	}
	if stays, err := n.leaveDefaultCRToOther(ctx, ref); stays || err != nil {
		return err
	}
	left, err := n.runtime.Delete(ctx, []apply.Ref{ref}, &n.memory.deletion)
	if err != nil {
		return err
	}
	if left.Done() {
		served, err := customresource.ResolveResourceRef(ctx, n.runtime.Cluster, n.manifest)
		if err != nil {
			return err
		}
		if served != ref {
			n.memory.deletion.Forget(ref) // the scope may be cached wrongly again, if the step plan reads the bundle
			if left, err = n.runtime.Delete(ctx, []apply.Ref{served}, &n.memory.deletion); err != nil {
				return err
			}
		}
	}
	if len(left.Remaining) > 0 {
		n.noteForbidden(left)
		n.observed.blocked = n.requeueWaitingFor(left.WaitMessage())
	}
	return nil
}

// leaveDefaultCRToOther reports whether the module's custom resource stays because another module that stays has the
// same one. If a module replaces another one, the custom resource has the settings of the user. A custom resource that
// is already being deleted does not stay: only the operator of this module may be able to remove its finalizers.
func (n *run) leaveDefaultCRToOther(ctx context.Context, ref apply.Ref) (stays bool, _ error) {
	other, err := n.peers().OtherWithDefault(ctx, n.manifest, ref)
	if err != nil || other == "" {
		return false, err
	}
	object, err := n.runtime.Get(ctx, ref)
	switch reason := loop.Reason(err); {
	case err == nil && object.GetDeletionTimestamp() != nil:
		return false, nil
	case err != nil && reason != apply.ObjectNotFound && reason != apply.NamespaceNotFound &&
		reason != apply.KindUnknown:
		return false, err
	}
	if err == nil && !n.memory.isDefaultCRLeft {
		n.recordEvent(v1beta2.ReasonObjectLeftToOwner,
			fmt.Sprintf("%s stays: it is the default custom resource of %s, too", ref, other))
		n.memory.isDefaultCRLeft = true
	}
	return true, nil
}

// garbagePeriod is the time in which the garbage collector of the runtime deletes custom resources whose owners were
// deleted. The garbage collector usually needs seconds, and half a minute to notice a new kind.
const garbagePeriod = 2 * time.Minute

// dependentsWait records the progress of the deletion of custom resources that the operator has made. The zero value is
// ready to use.
type dependentsWait struct {
	fewest int       // the lowest number of custom resources whose deletion had not begun
	since  time.Time // when that number was reached; zero before the first call of stalledFor
}

// stalledFor returns for how long the number of custom resources whose deletion has not begun has not fallen.
func (w *dependentsWait) stalledFor(pending int, now time.Time) time.Duration {
	if w.since.IsZero() || pending < w.fewest {
		*w = dependentsWait{pending, now}
	}
	return now.Sub(w.since).Abs()
}

// awaitDependents waits until the custom resources with finalizers that the module's operator has made are deleted,
// because only the operator removes their finalizers. The first matching row decides:
//
//	1  none of them exists, or the purge removes finalizers      go on
//	2  the deletion of all of them has begun                     wait for the operator
//	3  the number of the others has not fallen for two periods
//	   of garbagePeriod: the operator creates them again         go on
//	4  it has not fallen for one period                          delete the others, and wait
//	5  otherwise                                                 wait for the garbage collector; delete those whose
//	                                                             owner exists as long as the operator
func (n *run) awaitDependents(ctx context.Context) (waits, err error) {
	d := &n.observed.found.Dependents
	if d.Finalized == 0 || n.manifest.Annotations[v1beta2.AnnotationPurged] != "" {
		n.memory.dependents = dependentsWait{}
		return nil, nil
	}
	stalled := n.memory.dependents.stalledFor(d.Pending, time.Now())
	if d.Pending > 0 && stalled >= 2*garbagePeriod {
		return nil, nil
	}
	if err := n.observed.found.DeleteDependents(ctx, d.Pending > 0 && stalled >= garbagePeriod); err != nil {
		return nil, err
	}
	return n.requeueWaitingFor(d.WaitMessage()), nil
}

// operatorRepairDelay is the time from the start of the deletion of a module until the Manifest controller compares the
// objects of the module's operator with their desired state. The Manifest controller repairs objects that differ,
// because the operator is needed to complete the deletion.
const operatorRepairDelay = 2 * time.Second

// planOperatorRepair keeps the module's operator working during the deletion of the module, because custom resources
// wait for the operator to remove their finalizers. To restore the operator, planOperatorRepair finds the installed
// objects that were changed or deleted. If another version was requested after the start of the deletion,
// planOperatorRepair finds all objects of that version, and adds them to the inventory before they are applied.
// planOperatorRepair does nothing once the purge controller has started to delete the module. If planOperatorRepair
// fails, for example because the registry is unavailable, it logs the error, and the deletion continues to wait.
func (n *run) planOperatorRepair(ctx context.Context) error {
	if n.observed.blocked == nil || time.Since(n.notReadySinceOrNow()).Abs() < operatorRepairDelay ||
		n.manifest.Annotations[v1beta2.AnnotationPurged] != "" || n.manifest.IsRestored() {
		return nil // the version of a restored Manifest may be lower than the version in the runtime
	}
	err := n.resolveSourcesAndMakePlan(ctx)
	if err == nil {
		n.plan.compareAll = n.plan.compareAll || slices.ContainsFunc(
			n.refs, func(r apply.Ref) bool { return !r.Keep && !n.memory.progress.IsApplied(r) })
		err = n.renderIfNeeded(ctx)
	}
	if err == nil && n.rendered != nil {
		var refs []apply.Ref
		if refs, err = n.resolveRefs(ctx); err == nil && n.plan.applyAll {
			n.refs = refs
			n.reportStartAndInventory()
		}
	}
	if err != nil {
		n.rendered = nil
		n.logOperatorRepairError(ctx, err)
	}
	return nil
}

// applyOperatorRepair applies the objects that planOperatorRepair has found, so that the module's operator can finish
// the deletion of the custom resources. After applyOperatorRepair has applied the objects, the deletion of the module
// continues to wait for the custom resources.
func (n *run) applyOperatorRepair(ctx context.Context) error {
	if n.observed.blocked == nil || n.rendered == nil {
		return n.observed.blocked
	}
	if err := n.applyAllOrDrifted(ctx); err != nil {
		n.logOperatorRepairError(ctx, err)
		return n.observed.blocked
	}
	n.observed.served = n.plan.applyAll
	return n.observed.blocked
}

func (n *run) logOperatorRepairError(ctx context.Context, err error) {
	log.FromContext(ctx).Info("cannot apply the operator of the module while its custom resources are being deleted",
		"error", err.Error())
}

// deleteInventoryObjects deletes all objects of the inventory in order, and waits until they no longer exist. If the
// operator has made custom resources for custom resources of the inventory, deleteInventoryObjects deletes the operator
// after all of them.
func (n *run) deleteInventoryObjects(ctx context.Context) error {
	refs := n.refs
	awaits := n.observed.found.Dependents.Finalized > 0 && slices.ContainsFunc(n.refs, apply.Ref.IsCustomResource)
	if awaits {
		refs = slices.DeleteFunc(slices.Clone(n.refs), func(r apply.Ref) bool { return !r.IsCustomResource() })
	}
	left, err := n.deleteOwnedObjects(ctx, refs)
	if err == nil && awaits && left.Done() {
		if waits, err := n.awaitDependents(ctx); waits != nil || err != nil {
			return cmp.Or(err, waits)
		}
		left, err = n.deleteOwnedObjects(ctx, n.refs)
	}
	if err != nil {
		return err
	}
	if len(left.Remaining) > 0 {
		n.noteForbidden(left)
		return n.requeueWaitingFor(left.WaitMessage())
	}
	return nil
}

// deleteOwnedObjects deletes the objects of the inventory that belong only to this Manifest. deleteOwnedObjects records
// an event for each object that is not deleted.
func (n *run) deleteOwnedObjects(ctx context.Context, refs []apply.Ref) (apply.Teardown, error) {
	others, err := n.peers().ListOtherManifests(ctx, n.manifest)
	if err != nil {
		return apply.Teardown{}, err
	}
	ofKyma := others.OfKyma(n.manifest.KymaName())
	if behind := n.memory.others.FirstBehind(ofKyma, n.manifest.DeletionTimestamp.IsZero()); behind != "" {
		return apply.Teardown{},
			n.requeueWaitingFor(behind + " to record its objects: it may contain objects to be deleted")
	}
	own := n.peers().Ownership(ctx, n.manifest, n.Adoption)
	own.Wanted, own.Applied = others.HoldersOf(refs), &n.memory.progress
	left, err := n.runtime.DeleteOwned(ctx, refs, &n.memory.deletion, own)
	n.reportObjectsLeft(left.Left)
	if i := slices.IndexFunc(left.Remaining, func(r apply.Remaining) bool { return r.Content }); i >= 0 {
		n.observed.blocker = v1beta2.ReasonNamespaceNotEmpty
		if left.Remaining[i].Ref.Kind == "CustomResourceDefinition" {
			n.observed.blocker = v1beta2.ReasonCustomResourceBlocksDeletion
		}
	}
	return left, err
}

// noteForbidden sets the reason RuntimeForbidden if a missing permission prevents the deletion of an object.
func (n *run) noteForbidden(left apply.Teardown) {
	if slices.ContainsFunc(left.Remaining, func(r apply.Remaining) bool {
		return r.Err != nil &&
			r.Err.Reason() == apply.RuntimeForbidden
	}) {
		n.observed.blocker = v1beta2.ReasonRuntimeForbidden
	}
}

// removeFinalizers removes our finalizers from the Manifest. If the objects of the Manifest were handed over to the
// user, nobody has deleted the Manifest yet, so removeFinalizers deletes it before it removes the finalizers.
func (n *run) removeFinalizers(ctx context.Context) error {
	if n.manifest.IsUnmanaged() && n.manifest.DeletionTimestamp.IsZero() {
		if err := n.deleteAndRereadManifest(ctx); err != nil {
			return err
		}
	}
	// If release runs without a connection to the runtime, the objects of the module stay in the runtime. If a Manifest
	// was restored and has no version, the module has no objects in the runtime: the module had been removed just
	// before the manager stopped.
	wasRemoved := n.manifest.IsRestored() && n.manifest.Status.Version == ""
	removes := n.runtime != nil && !n.manifest.IsUnmanaged() && !wasRemoved &&
		slices.Contains(n.manifest.Finalizers, v1beta2.FinalizerManifest)
	// Later reads of the Manifest need not wait until the cache shows that the finalizers were removed, because the
	// field memory.released records the removal.
	if err := loop.RemoveFinalizers(ctx, n.Client, n.manifest, ownFinalizers(),
		client.DisableReadYourWritesConsistency); err != nil {
		return err
	}
	n.memory.released = true
	if removes {
		e := changelog.Removed(n.manifest.ModuleName())
		n.recordEventOf(e.Type, e.Reason, e.Note)
	}
	return n.awaitForeignFinalizers(ctx)
}

// ownFinalizers returns the names of all finalizers of this controller.
func ownFinalizers() []string {
	return []string{v1beta2.FinalizerManifest, v1beta2.FinalizerLabelRemoval, v1beta2.FinalizerCustomResource}
}

// awaitForeignFinalizers waits for other controllers: their finalizers keep a Manifest from which this controller has
// removed its own finalizers.
func (n *run) awaitForeignFinalizers(context.Context) error {
	if err := loop.WaitForForeignFinalizers(n.manifest, ownFinalizers()); err != nil {
		n.observed.blocker = v1beta2.ReasonFinalizersRemaining
		return err
	}
	return loop.Done()
}

// deleteAndRereadManifest deletes the Manifest, and then reads its metadata again, because the removal of the
// finalizers needs the new resource version.
func (n *run) deleteAndRereadManifest(ctx context.Context) error {
	if err := client.IgnoreNotFound(n.Client.Delete(ctx, n.manifest)); err != nil {
		return fmt.Errorf("deleting Manifest %s: %w", n.manifest.Name, err)
	}
	deleted := &v1beta2.Manifest{}
	if err := n.Client.Get(ctx, client.ObjectKeyFromObject(n.manifest), deleted); err != nil {
		return client.IgnoreNotFound(err)
	}
	n.manifest.ObjectMeta = deleted.ObjectMeta
	return nil
}
