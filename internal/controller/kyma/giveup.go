package kyma

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/tombstone"
)

// A deletion needs the runtime. One that cannot be worked on is waited for, for ever or until a deadline. Then, in this order:
//
//	1  the Manifests are asked to go, so that their inventories do not grow any more
//	2  a tombstone is written, which lists what is left in the runtime
//	3  the Kyma is marked as given up: from here on there is no way back, also if the runtime answers again
//	4  the Manifests are marked, and let go by their controller; then the Kyma is let go
//
// Killed between 2 and 3, the next pass decides anew; a tombstone that was written for nothing finds nothing left to do.

// isSilence tells whether an error says that a runtime cannot be worked on. Not so: failures of the control plane, which say nothing about
// the runtime; no access Secret, which says that the cluster is gone; two of them, of which somebody in the control plane has to choose one.
func isSilence(err error) bool {
	switch loop.Reason(err) {
	case v1beta2.ReasonRuntimeUnreachable, v1beta2.ReasonRuntimeUnauthorized, v1beta2.ReasonRuntimeForbidden,
		v1beta2.ReasonKubeconfigInvalid, v1beta2.ReasonKubeconfigRefused:
		return true
	}
	return false
}

// silence is why a runtime cannot be worked on, and how long that may be so.
type silence struct {
	error
	deadline time.Duration
}

func (s *silence) Error() string {
	return fmt.Sprintf("%s; after %s of that (--deletion-deadline), the deletion is given up", s.error.Error(), s.deadline)
}

func (s *silence) Unwrap() error { return s.error }

// refusal is the want of a permission in the runtime, as a Manifest or an object tells of it.
type refusal string

func (r refusal) Error() string { return string(r) }

// Reason returns ReasonRuntimeForbidden.
func (refusal) Reason() string { return v1beta2.ReasonRuntimeForbidden }

// outwait waits for a runtime that cannot be worked on. It returns nil when that has taken so long that the deletion is given up; the rest of
// the story then leaves the runtime as it is. Other errors, and all without a deadline, are returned as they are.
func (n *run) outwait(ctx context.Context, err error) error {
	why := err
	if errors.Is(err, reconcile.TerminalError(nil)) {
		why = errors.Unwrap(err) // the wrapper's text is for programs
	}
	if n.DeletionDeadline == 0 || n.InCluster || !isSilence(why) {
		return err
	}
	since := n.silentSince()
	if left := since.Add(n.DeletionDeadline).Sub(n.now); left > 0 {
		n.silent = &silence{why, n.DeletionDeadline}
		return loop.Later(min(left, time.Minute), "the runtime") // the pool wakes us when it answers; nobody does when a permission is granted
	}
	return n.giveUp(ctx, since, why)
}

// silentSince is since when the runtime is known not to be workable, in this deletion; now if it was until now.
func (n *run) silentSince() time.Time {
	if c := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionReachable); c != nil && c.Status == metav1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	return n.now
}

// wasSilent tells whether the last pass found that the runtime cannot be worked on.
func (n *run) wasSilent() bool {
	return meta.IsStatusConditionFalse(n.kyma.Status.Conditions, v1beta2.ConditionReachable)
}

// giveUp writes down what is left in the runtime, and lets the rest of the story go on without it.
func (n *run) giveUp(ctx context.Context, since time.Time, why error) error {
	manifests, err := n.askModules(ctx)
	if err != nil {
		return err
	}
	t := tombstone.New(n.kyma, manifests, n.bestowed())
	t.UnreachableSince, t.GivenUpAt = metav1.NewTime(since), metav1.NewTime(n.now)
	t.Reason, t.Message = loop.Reason(why), why.Error()
	parts, err := t.ConfigMaps(n.kyma.Namespace)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err := n.bury(ctx, part); err != nil {
			return err
		}
	}
	old := n.kyma.DeepCopy()
	metav1.SetMetaDataAnnotation(&n.kyma.ObjectMeta, v1beta2.AnnotationDeletionGivenUp, parts[0].Name)
	if err := n.patchMetadata(ctx, old); err != nil {
		return err
	}
	metrics.DeletionsGivenUp.WithLabelValues(t.Reason).Inc()
	log.FromContext(ctx).Info("deletion given up", "tombstone", parts[0].Name, "objects", t.Count(), "reason", t.Reason, "since", since)
	n.event(corev1.EventTypeWarning, v1beta2.EventDeletionGivenUp, fmt.Sprintf("left %d objects of %d modules and of ours in the runtime, listed in ConfigMap %s: %.512s",
		t.Count(), len(t.Modules), parts[0].Name, t.Message))
	n.givenUp, n.abandoned, n.remote = true, true, nil // the runtime's copy hears nothing any more
	return nil
}

// askModules asks the Manifests to go that have not been, and returns them all.
func (n *run) askModules(ctx context.Context) ([]*v1beta2.Manifest, error) {
	if err := n.listManifests(ctx); err != nil {
		return nil, err
	}
	for _, m := range n.manifests {
		if m.DeletionTimestamp.IsZero() {
			if err := client.IgnoreNotFound(n.Client.Delete(ctx, m)); err != nil {
				return nil, fmt.Errorf("deleting Manifest %s: %w", m.Name, err)
			}
		}
	}
	if err := n.listManifests(ctx); err != nil {
		return nil, err
	}
	var all []*v1beta2.Manifest
	for _, name := range slices.Sorted(mapKeys(n.manifests)) {
		all = append(all, n.manifests[name])
	}
	return all, nil
}

// bury writes one part of a tombstone. A former try may have left one.
func (n *run) bury(ctx context.Context, part *corev1.ConfigMap) error {
	err := n.Live.Create(ctx, part, client.FieldOwner(v1beta2.FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		err = n.Live.Update(ctx, part, client.FieldOwner(v1beta2.FieldOwner))
	}
	if err != nil {
		return fmt.Errorf("writing tombstone %s: %w", part.Name, err)
	}
	return nil
}

// bestowed is what the runtime got apart from modules: its Kyma, the agent, the pull Secret, definitions. The namespace stays, because others
// live in it, and what is of these definitions goes with them.
func (n *run) bestowed() []v1beta2.Resource {
	got := []v1beta2.Resource{resourceOf(remoteRef)}
	if s := n.kyma.Status.Agent; s != nil {
		got = append(got, s.Synced...)
	}
	if n.PullSecret != "" {
		got = append(got, resourceOf(n.pullSecretRef()))
	}
	for _, o := range n.Base.Objects {
		if o.GVK.Kind != "Namespace" {
			got = append(got, v1beta2.Resource{Group: o.GVK.Group, Version: o.GVK.Version, Kind: o.GVK.Kind, Namespace: o.Namespace, Name: o.Name})
		}
	}
	return got
}

func resourceOf(r apply.Ref) v1beta2.Resource {
	return v1beta2.Resource{Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

// markGivenUp tells the controller of a Manifest not to wait for the runtime.
func (n *run) markGivenUp(ctx context.Context, m *v1beta2.Manifest) error {
	name := n.kyma.Annotations[v1beta2.AnnotationDeletionGivenUp]
	if m.Annotations[v1beta2.AnnotationDeletionGivenUp] == name {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1beta2.AnnotationDeletionGivenUp: name}}})
	if err != nil {
		return fmt.Errorf("encoding the annotation of Manifest %s: %w", m.Name, err)
	}
	err = n.Client.Patch(ctx, m.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1beta2.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("marking Manifest %s as given up: %w", m.Name, err)
	}
	return nil
}

// forbidden returns what the Manifests say if every one of them is to go and lacks a permission in the runtime, so that nothing moves on; else nil.
func forbidden(manifests map[string]*v1beta2.Manifest) error {
	var why error
	for _, name := range slices.Sorted(mapKeys(manifests)) {
		m := manifests[name]
		if m.DeletionTimestamp.IsZero() || reasonOf(m) != v1beta2.ReasonRuntimeForbidden {
			return nil
		}
		if why == nil {
			why = refusal("module " + m.ModuleName() + ": " + m.Status.LastOperation.Operation)
		}
	}
	return why
}

// refusedOf returns the first refusal for want of a permission among what remains; nil if there is none.
func refusedOf(left apply.Teardown) error {
	for _, r := range left.Remaining {
		if r.Err != nil && r.Err.Reason() == apply.RuntimeForbidden {
			return r.Err
		}
	}
	return nil
}

// reportSilence says on a Kyma that is being deleted that its runtime cannot be worked on. It stays said until the runtime was worked on.
func (n *run) reportSilence(out loop.Outcome, set setter) {
	switch {
	case n.DeletionDeadline == 0 || n.kyma.DeletionTimestamp.IsZero():
		meta.RemoveStatusCondition(&n.kyma.Status.Conditions, v1beta2.ConditionReachable)
	case n.silent != nil:
		set(v1beta2.ConditionReachable, false, "", "the runtime cannot be worked on", loop.Reason(n.silent), n.silent.Error())
	case !n.givenUp && out.Err == nil:
		meta.RemoveStatusCondition(&n.kyma.Status.Conditions, v1beta2.ConditionReachable)
	}
}
