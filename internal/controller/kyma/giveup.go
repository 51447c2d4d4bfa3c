package kyma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/tombstone"
)

// The manager deletes a Kyma only after it has removed the modules from the runtime, so it needs access to the runtime.
// If the runtime is unavailable, the deletion waits for the runtime, either without a limit or until a deadline. After
// the deadline, the deletion is given up in these steps:
//
//	1  the Manifests are deleted, so that their inventories no longer grow
//	2  a tombstone is written, which lists the objects that remain in the runtime
//	3  the Kyma is annotated as given up: from here on this is final, even if the runtime becomes available again
//	4  the Manifests are annotated, and their controller removes their finalizers; then the finalizer of the Kyma is removed
//
// If the manager process ends after the tombstone is written and before the Kyma is annotated, the next reconcile
// decides again whether the deletion is given up. If the runtime is available in the next reconcile, the deletion
// completes normally, and the purge controller finds nothing of the tombstone's list in the runtime.

// isRuntimeUnreachableOrForbidden reports whether an error means that the manager cannot do any work in a runtime.
// Three errors do not mean that the runtime is unavailable: a failure of the control plane, a missing access Secret,
// and two access Secrets for the same runtime. A missing access Secret means that the cluster no longer exists. If
// there are two access Secrets, a person has to delete one of them.
func isRuntimeUnreachableOrForbidden(err error) bool {
	switch loop.Reason(err) {
	case v1beta2.ReasonRuntimeUnreachable, v1beta2.ReasonRuntimeUnauthorized, v1beta2.ReasonRuntimeForbidden,
		v1beta2.ReasonRuntimeCertificateInvalid, v1beta2.ReasonCredentialExpired,
		v1beta2.ReasonKubeconfigInvalid, v1beta2.ReasonKubeconfigRefused:
		return true
	}
	return false
}

// unavailableError has the reason why a runtime is unavailable, and the deadline after which the deletion is given up.
type unavailableError struct {
	error
	deadline time.Duration
}

func (e *unavailableError) Error() string {
	return fmt.Sprintf("%s; if this lasts for %s (--deletion-deadline), the deletion is given up",
		e.error.Error(), e.deadline)
}

func (e *unavailableError) Unwrap() error { return e.error }

// forbiddenError is the error about a missing permission in the runtime. The text of a forbiddenError comes from the
// status of a Manifest.
type forbiddenError string

func (e forbiddenError) Error() string { return string(e) }

// Reason returns the reason code of the error, ReasonRuntimeForbidden.
func (forbiddenError) Reason() string { return v1beta2.ReasonRuntimeForbidden }

// waitOrGiveUp requeues the Kyma while the runtime is unavailable and the deadline is not over. After the deadline
// waitOrGiveUp gives up the deletion and returns nil. After the deletion was given up, the remaining steps of the
// reconcile make no request to the runtime. Errors that do not mean an unavailable runtime are returned unchanged. If
// DeletionDeadline is not set, the deletion is never given up, and all errors are returned unchanged.
func (n *run) waitOrGiveUp(ctx context.Context, err error) error {
	// The pool of connections notifies the controller when the runtime is reachable again. The pool does not notice
	// when somebody grants the manager a missing permission in the runtime.
	const recheckInterval = time.Minute
	if runtimes.IsUnanswered(err) {
		// The status stays as it is if it has the time since when the runtime is unavailable, or if the first status of
		// the deletion has to be published to the runtime, too.
		if n.wasUnavailable() || n.deletion.isFirst {
			return err
		}
		return loop.Later(recheckInterval, "the runtime to answer")
	}
	why := err
	if errors.Is(err, reconcile.TerminalError(nil)) {
		why = errors.Unwrap(err) // removes the text of terminal errors
	}
	if n.DeletionDeadline == 0 || n.InCluster || !isRuntimeUnreachableOrForbidden(why) {
		return err
	}
	since := n.unavailableSinceOrNow()
	if left := since.Add(n.DeletionDeadline).Sub(n.now); left > 0 {
		n.deletion.unavailable = &unavailableError{why, n.DeletionDeadline}
		return loop.Later(min(left, recheckInterval), "the runtime")
	}
	return n.giveUpWithTombstone(ctx, since, why)
}

// unavailableSinceOrNow returns the time since when the runtime has been unavailable during this deletion. If the
// runtime was available in the last reconcile, unavailableSinceOrNow returns the current time.
func (n *run) unavailableSinceOrNow() time.Time {
	if c := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionReachable); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	return n.now
}

// wasUnavailable reports whether the runtime was unavailable in the last reconcile.
func (n *run) wasUnavailable() bool {
	return meta.IsStatusConditionFalse(n.kyma.Status.Conditions, v1beta2.ConditionReachable)
}

// giveUpWithTombstone writes a tombstone (a ConfigMap that lists the objects left in the runtime) and annotates the
// Kyma. After the Kyma was annotated as given up, the later steps of its deletion send no requests to the runtime.
func (n *run) giveUpWithTombstone(ctx context.Context, unavailableSince time.Time, why error) error {
	if err := n.deleteAndRereadManifests(ctx); err != nil {
		return err
	}
	t := tombstone.New(n.kyma, n.sortedManifests(), n.nonModuleResources())
	t.UnreachableSince, t.GivenUpAt = metav1.NewTime(unavailableSince), metav1.NewTime(n.now)
	t.Reason, t.Message = loop.Reason(why), why.Error()
	parts, err := t.ConfigMaps(n.kyma.Namespace)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err := n.writeTombstonePart(ctx, part); err != nil {
			return err
		}
	}
	err = loop.PatchMetadata(ctx, n.Client, n.kyma, func(m *metav1.ObjectMeta) {
		metav1.SetMetaDataAnnotation(m, v1beta2.AnnotationDeletionGivenUp, parts[0].Name)
	})
	if err != nil {
		return err
	}
	metrics.DeletionsGivenUp.WithLabelValues(t.Reason).Inc()
	log.FromContext(ctx).Info("deletion given up", "tombstone", parts[0].Name, "objects", t.ObjectCount(),
		"reason", t.Reason, "since", unavailableSince)
	n.event(corev1.EventTypeWarning, v1beta2.EventDeletionGivenUp, fmt.Sprintf(
		"%d objects of %d modules and of the manager remain in the runtime, as listed in ConfigMap %s: %.512s",
		t.ObjectCount(), len(t.Modules), parts[0].Name, t.Message))
	n.deletion.runtimeLeft, n.remote = leftAfterDeadline, nil // n.remote is nil: no status is written to the runtime
	return nil
}

// deleteAndRereadManifests deletes the Manifests of this Kyma that are not being deleted yet. deleteAndRereadManifests
// then reads all Manifests again.
func (n *run) deleteAndRereadManifests(ctx context.Context) (err error) {
	if n.manifests, err = n.listManifests(ctx); err != nil {
		return err
	}
	for _, m := range n.manifests {
		if m.DeletionTimestamp.IsZero() {
			if err := n.deleteManifest(ctx, m); err != nil {
				return err
			}
		}
	}
	n.manifests, err = n.listManifests(ctx)
	return err
}

// writeTombstonePart creates one part of a tombstone. If an earlier reconcile has created the same part of the
// tombstone, writeTombstonePart updates this part.
func (n *run) writeTombstonePart(ctx context.Context, tombstonePart *corev1.ConfigMap) error {
	err := n.Live.Create(ctx, tombstonePart, client.FieldOwner(v1beta2.FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		err = n.Live.Update(ctx, tombstonePart, client.FieldOwner(v1beta2.FieldOwner))
	}
	if err != nil {
		return fmt.Errorf("writing tombstone %s: %w", tombstonePart.Name, err)
	}
	return nil
}

// markGivenUp annotates a Manifest as given up. The controller of Manifests deletes an annotated Manifest without
// waiting for the runtime. The value of the annotation is the name of the tombstone. There is no tombstone if the
// runtime belongs to another owner. Then the value of the annotation is the reason code of the refusal to use the
// runtime.
func (n *run) markGivenUp(ctx context.Context, m *v1beta2.Manifest) error {
	value := cmp.Or(loop.Reason(n.deletion.why), n.kyma.Annotations[v1beta2.AnnotationDeletionGivenUp])
	err := loop.PatchMetadata(ctx, n.Client, m, func(meta *metav1.ObjectMeta) {
		metav1.SetMetaDataAnnotation(meta, v1beta2.AnnotationDeletionGivenUp, value)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// permissionMissingForAll returns an error if all Manifests of a runtime are stuck in deletion. A Manifest is stuck if
// it is being deleted, and its deletion needs a permission that is missing in the runtime. The error describes the
// first missing permission. If at least one Manifest is not stuck, permissionMissingForAll returns nil.
func permissionMissingForAll(manifests map[string]*v1beta2.Manifest) error {
	var why error
	for _, name := range slices.Sorted(maps.Keys(manifests)) {
		m := manifests[name]
		if m.InstalledOrSpecTarget() == v1beta2.TargetControlPlane {
			continue // it needs no permission in the runtime
		}
		if m.DeletionTimestamp.IsZero() || plan.ReasonOf(m) != v1beta2.ReasonRuntimeForbidden {
			return nil
		}
		if why == nil {
			why = forbiddenError("module " + m.ModuleName() + ": " + m.Status.LastOperation.Operation)
		}
	}
	return why
}

// firstForbidden returns the first error of a remaining object that is due to a missing permission, or nil if there is
// none.
func firstForbidden(left apply.Teardown) error {
	for _, r := range left.Remaining {
		if r.Err != nil && r.Err.Reason() == apply.RuntimeForbidden {
			return r.Err
		}
	}
	return nil
}
