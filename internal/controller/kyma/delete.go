package kyma

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/delivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/agentdelivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// deletion has the results of the steps that delete a Kyma.
type deletion struct {
	isFirst     bool       // set by announce: this is the first reconcile of the deletion
	isQueued    bool       // set by awaitDeletionAdmission: the modules of other runtimes are removed first
	isReleased  bool       // set by awaitOtherFinalizers: only finalizers of other controllers remain
	runtimeLeft leftReason // why the runtime is not cleaned up; "" if it is cleaned up
	unavailable error      // why the runtime is unavailable, while the deletion waits for the runtime
	why         error      // with leftToOwner and leftWithoutAccess: why the runtime is left
}

// leftReason is the reason why the manager does not clean up the runtime of a deleted Kyma.
type leftReason string

const (
	leftWithoutAccess leftReason = "no access Secret"
	leftAfterDeadline leftReason = "deletion deadline" // the deletion was given up
	leftToOwner       leftReason = "other owner"       // the runtime belongs to another Kyma or control plane
)

// announceDeletion sets the state Deleting before any module is deleted, so that both copies of the Kyma report the
// deletion.
func (n *run) announceDeletion(context.Context) error {
	agentdelivery.AdoptFormerWatcherObjects(n.kyma, n.now)
	n.deletion.isFirst = n.kyma.Status.State != v1beta2.StateDeleting
	n.kyma.Status.State = v1beta2.StateDeleting
	return nil
}

// connectOrSkipCleanup gets the connection to the runtime of a Kyma that is being deleted. If there is no access Secret
// for a while, the runtime is not cleaned up: whoever deleted the Secret has decided that the cluster no longer exists.
// A runtime that belongs to another owner is not cleaned up either. After any other failure, the deletion waits for the
// runtime, up to the deadline that giveup.go describes.
func (n *run) connectOrSkipCleanup(ctx context.Context) error {
	n.catalog.Unsubscribe(n.kyma.Name)
	if n.kyma.Annotations[v1beta2.AnnotationDeletionGivenUp] != "" {
		n.deletion.runtimeLeft = leftAfterDeadline
		return nil
	}
	err := n.connect(ctx)
	if e, ok := errors.AsType[*runtimes.Error](err); ok && e.Code == v1beta2.ReasonAccessSecretNotFound {
		wait, err := n.Runtimes.ConfirmAccessSecretRemoved(ctx, n.kyma.Name)
		if err != nil {
			return err
		}
		if wait > 0 {
			n.found.refused = e // for the status
			return loop.Later(wait, "the access Secret, which may be created again")
		}
		n.deletion.runtimeLeft, n.deletion.why = leftWithoutAccess, e
		return nil
	}
	if err == nil && !n.InCluster {
		// A deletion may wait for hours, and another owner may take the runtime over in the meantime. Therefore each
		// reconcile reads the Kyma in the runtime. This read also shows whether the runtime is available again.
		isStatusNeeded := n.deletion.isFirst || n.wasUnavailable() || !n.Runtimes.IsOwned(n.kyma.Name)
		err = n.readRemoteAndVerifyOwner(ctx)
		if err != nil || !isStatusNeeded {
			n.remote = nil // a later step writes the status to n.remote; no other step of the deletion uses it
		}
		if runtimes.IsRuntimeRefused(err) {
			n.skipCleanupOfOthersRuntime(err)
			return nil
		}
		if err == nil {
			n.Runtimes.MarkOwned(n.kyma.Name, n.runtime, subscriberKey(n.kyma.Name))
		}
	}
	if err != nil {
		if err := n.deleteControlPlaneTargetManifests(ctx); err != nil {
			return err
		}
		return n.waitOrGiveUp(ctx, err)
	}
	return nil
}

// readRemoteAndVerifyOwner reads the Kyma in the runtime and verifies the owner of the runtime. If the Kyma in the
// runtime does not fit the schema, the deletion continues: the deletion needs only the record of the control plane that
// owns the runtime.
func (n *run) readRemoteAndVerifyOwner(ctx context.Context) error {
	remote, err := n.readRemote(ctx, n.runtime, n.kyma.Name)
	isInvalid := loop.Reason(err) == v1beta2.ReasonRuntimeKymaInvalid
	if err != nil && !isInvalid {
		return err
	}
	if !isInvalid {
		n.remote = remote
	}
	_, err = n.verifyOwnerAndMarkLostModules(ctx, n.kyma, n.runtime, remote)
	return err
}

// deleteControlPlaneTargetManifests deletes the Manifests of modules on the control plane, which need no runtime.
func (n *run) deleteControlPlaneTargetManifests(ctx context.Context) (err error) {
	if n.manifests, err = n.listManifests(ctx); err != nil {
		return err
	}
	for _, m := range n.sortedManifests() {
		if m.InstalledOrSpecTarget() == v1beta2.TargetControlPlane && m.DeletionTimestamp.IsZero() {
			module := n.moduleToDelete(m)
			if err := n.deleteOrUpgradeIfDeleting(ctx, &module); err != nil {
				return err
			}
		}
	}
	return nil
}

// moduleToDelete returns the module of a Manifest that is deleted together with its Kyma.
func (n *run) moduleToDelete(m *v1beta2.Manifest) plan.Module {
	module := plan.ToRemove(n.kyma, m)
	// The manager may also delete custom resources of users if the Manifest has AnnotationDeleteCustomResources. This
	// annotation of the Manifest records what the Kyma in the runtime allowed before the deletion began, because a
	// deletion does not read the annotations of the Kyma in the runtime.
	module.MayDeleteCustomResources = module.MayDeleteCustomResources ||
		m.Annotations[v1beta2.AnnotationDeleteCustomResources] == v1beta2.ValueTrue
	return module
}

// awaitDeletionAdmission waits until the modules of this runtime may be removed, because only a limited number of
// runtimes may lose their modules at the same time. A deletion that has already begun needs no admission. The status of
// the Kyma is saved after the step awaitDeletionAdmission.
func (n *run) awaitDeletionAdmission(ctx context.Context) (err error) {
	const recheckInterval = 10 * time.Minute // a fallback: the admission enqueues the Kyma earlier
	if n.manifests, err = n.listManifests(ctx); err != nil {
		return err
	}
	begun := n.deletion.runtimeLeft == leftAfterDeadline || len(n.manifests) == 0
	for _, m := range n.manifests {
		begun = begun || !m.DeletionTimestamp.IsZero()
	}
	if begun || n.ending.Admit(n.kyma.Name) {
		return nil
	}
	n.deletion.isQueued = true
	return loop.Later(recheckInterval,
		"admission: the modules of other runtimes are removed first (--max-new-runtimes)")
}

// deleteModules deletes all Manifests of this Kyma, including those of mandatory modules. deleteModules waits until the
// Manifests no longer exist.
func (n *run) deleteModules(ctx context.Context) error {
	n.found.resolved = true
	var left []string
	for _, m := range n.sortedManifests() {
		module := n.moduleToDelete(m)
		left = append(left, m.Labels[v1beta2.LabelModuleName])
		given := n.deletion.runtimeLeft == leftAfterDeadline || n.deletion.runtimeLeft == leftToOwner
		if given && m.InstalledOrSpecTarget() != v1beta2.TargetControlPlane {
			if err := n.markGivenUp(ctx, m); err != nil {
				return err
			}
		}
		if err := n.deleteOrUpgradeIfDeleting(ctx, &module); err != nil {
			return err
		}
		n.modules = append(n.modules, module)
	}
	if why := permissionMissingForAll(n.manifests); why != nil && n.DeletionDeadline > 0 &&
		n.deletion.runtimeLeft == "" {
		if err := n.waitOrGiveUp(ctx, why); err != nil {
			return err
		}
		return loop.Later(time.Millisecond, "the finalizers of the modules to be removed")
	}
	if len(left) > 0 {
		n.editRecord(func(m *record) { m.noManifestsAt = time.Time{} })
		// The event about each deleted Manifest triggers a reconcile.
		return loop.Later(time.Minute, "the modules to be deleted: "+strings.Join(left, ", "))
	}
	return n.verifyNoManifests(ctx)
}

// sortedManifests returns the Manifests of this Kyma, sorted by name.
func (n *run) sortedManifests() []*v1beta2.Manifest {
	var all []*v1beta2.Manifest
	for _, name := range slices.Sorted(maps.Keys(n.manifests)) {
		all = append(all, n.manifests[name])
	}
	return all
}

// isDeletionStuck reports whether the deletion of a Kyma waits for the runtime or for a person. While a deletion is
// stuck, other runtimes may be admitted.
func (n *run) isDeletionStuck() bool {
	return n.deletion.unavailable != nil || n.deletion.isReleased ||
		slices.ContainsFunc(n.sortedManifests(), isDeletionBlocked)
}

// isDeletionBlocked reports whether the deletion of a Manifest is blocked until a person acts or until the runtime is
// available. isDeletionBlocked returns false for a deletion that makes progress: it only waits until the API server has
// deleted the objects.
func isDeletionBlocked(m *v1beta2.Manifest) bool {
	return !m.DeletionTimestamp.IsZero() && m.Status.State == v1beta2.StateDeleting &&
		plan.ReasonOf(m) != v1beta2.ReasonObjectsRemaining
}

// verifyNoManifests checks with a read from the API server that the Kyma has no Manifest left. A Manifest whose shard
// label was removed is missing in the cache. The API server compares all Manifests of the control plane with the label
// of the Kyma, so the read is expensive. Therefore verifyNoManifests reads at most once in a minute while the deletion
// of the Kyma waits for the runtime.
func (n *run) verifyNoManifests(ctx context.Context) error {
	const validity = time.Minute // limited, because another client may create a Manifest after the read
	if n.Shards == nil {
		return nil
	}
	isVerified := false
	n.editRecord(func(m *record) {
		isVerified = m.noManifestsUID == n.kyma.UID && n.now.Sub(m.noManifestsAt).Abs() < validity
	})
	if isVerified {
		return nil
	}
	manifests := &metav1.PartialObjectMetadataList{}
	manifests.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(v1beta2.KindManifest + "List"))
	err := n.Certain.List(ctx, manifests, client.InNamespace(n.kyma.Namespace),
		client.MatchingLabels{v1beta2.LabelKymaName: n.kyma.Name}, client.Limit(1))
	if err != nil {
		return fmt.Errorf("verifying that Kyma %s has no Manifests: %w", n.kyma.Name, err)
	}
	if len(manifests.Items) > 0 {
		return loop.Later(time.Second, "the cache to show Manifest "+manifests.Items[0].Name)
	}
	n.editRecord(func(m *record) { m.noManifestsAt, m.noManifestsUID = n.now, n.kyma.UID })
	return nil
}

// deleteNonModuleResources deletes all delivered objects that belong to no module: the Kyma in the runtime, the agent,
// the pull Secret and the CRDs.
func (n *run) deleteNonModuleResources(ctx context.Context) error {
	if n.InCluster || n.deletion.runtimeLeft != "" {
		return nil
	}
	var progress *apply.DeletionProgress
	n.editRecord(func(m *record) { progress = m.deletion })
	resources, err := n.decideDeletableResources(ctx)
	if err != nil || n.deletion.runtimeLeft != "" {
		return err
	}
	left, err := n.runtime.Delete(ctx, delivery.Refs(resources), progress)
	if err != nil {
		return n.waitOrGiveUp(ctx, fmt.Errorf("deleting the delivered objects from runtime %s: %w", n.kyma.Name, err))
	}
	if why := firstForbidden(left); why != nil && n.DeletionDeadline > 0 {
		return n.waitOrGiveUp(ctx, why)
	}
	if len(left.Remaining) > 0 {
		return loop.Later(500*time.Millisecond, left.WaitMessage())
	}
	return nil
}

// nonModuleResources lists the delivered objects that belong to no module: the Kyma in the runtime, the agent and the
// base objects. The list does not contain the Namespace kyma-system, which stays in the runtime because it contains
// objects of others.
func (n *run) nonModuleResources() []v1beta2.Resource {
	all := []v1beta2.Resource{{
		Group: remoteRef.Group, Version: remoteRef.Version, Kind: remoteRef.Kind,
		Namespace: remoteRef.Namespace, Name: remoteRef.Name,
	}}
	if s := n.kyma.Status.Agent; s != nil {
		all = append(all, s.Synced...)
	}
	return append(all, n.catalog.BaseResourcesToDelete()...)
}

// revokeCertificatesAndRemoveFinalizer revokes the certificates of the runtime, and removes the finalizer of this
// project from the Kyma.
func (n *run) revokeCertificatesAndRemoveFinalizer(ctx context.Context) error {
	if err := n.agents.RevokeCertificatesOf(ctx, n.kyma.Name); err != nil {
		return err
	}
	if n.deletion.why != nil {
		n.event(corev1.EventTypeWarning, v1beta2.EventRuntimeLeft,
			"the Kyma was deleted, and all objects in the cluster stay: "+n.deletion.why.Error())
	}
	closesFirst := n.deletion.runtimeLeft == leftAfterDeadline
	if closesFirst {
		// As soon as the finalizer is removed, the Kyma is deleted, and the purge controller opens its own connection
		// to the runtime. The connection of the Kyma is closed before that, because a later call of Close would close
		// the connection of the purge controller.
		n.Runtimes.Remove(n.kyma.Name)
	}
	// Later reads of the Kyma need not wait until the cache shows that the finalizer is removed, because
	// noteFinalizerRemoved records the removal.
	err := loop.RemoveFinalizers(ctx, n.Client, n.kyma, []string{v1beta2.FinalizerKyma},
		client.DisableReadYourWritesConsistency)
	if err != nil {
		return err
	}
	if !closesFirst {
		n.Runtimes.Remove(n.kyma.Name)
	}
	n.agents.ForgetHeartbeats(n.kyma.Name)
	n.noteFinalizerRemoved()
	return n.awaitOtherFinalizers(ctx)
}

// awaitOtherFinalizers waits for other controllers: their finalizers keep a Kyma from which this controller has removed
// its own finalizer.
func (n *run) awaitOtherFinalizers(context.Context) error {
	n.remote, n.runtime, n.found.resolved = nil, nil, true // the modules and the Kyma in the runtime are deleted
	if err := loop.WaitForForeignFinalizers(n.kyma, []string{v1beta2.FinalizerKyma}); err != nil {
		n.deletion.isReleased = true
		return err
	}
	return loop.Done()
}
