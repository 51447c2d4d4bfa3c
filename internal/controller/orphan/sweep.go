package orphan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// mostObjects is how many objects of one kind a runtime is asked for. There are never so many with our label.
const mostObjects = 1000

// withoutKyma looks at what is named by a Kyma that does not exist.
func (r *Reconciler) withoutKyma(ctx context.Context, key types.NamespacedName, now time.Time) (reconcile.Result, error) {
	manifests, secrets, err := r.named(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(manifests)+len(secrets) == 0 {
		r.forget(key.Name)
		return reconcile.Result{}, nil
	}
	m := r.remember(key.Name)
	if m.missing.IsZero() {
		m.missing, m.due = now, now.Add(min(patience, r.Interval))
		r.count(m, objectOrphan, 0)
		r.count(m, catalogOrphan, 0)
	}
	if left := m.due.Sub(now); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if missing, err := r.isMissing(ctx, key, &v1beta2.Kyma{}); err != nil || !missing {
		return reconcile.Result{}, err // it is there: the cache will say so and wake us
	}
	for i := range manifests {
		if err := r.orphanedManifest(ctx, &manifests[i], key.Name); err != nil {
			return reconcile.Result{}, err
		}
	}
	for i := range secrets {
		at := &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: secrets[i].Namespace, Name: secrets[i].Name, UID: secrets[i].UID}
		r.Events.Eventf(at, nil, corev1.EventTypeWarning, v1beta2.ReasonOrphaned, "Sweep",
			"there is no Kyma %s, of which this is the access Secret: create it, or delete the Secret", key.Name)
	}
	r.count(m, manifestOrphan, len(manifests))
	r.count(m, secretOrphan, len(secrets))
	m.due = slot(now, r.Interval, key.Name)
	return reconcile.Result{RequeueAfter: m.due.Sub(now)}, nil
}

// named returns the Manifests and access Secrets that name a Kyma.
func (r *Reconciler) named(ctx context.Context, key types.NamespacedName) ([]v1beta2.Manifest, []metav1.PartialObjectMetadata, error) {
	var manifests v1beta2.ManifestList
	naming := []client.ListOption{client.InNamespace(key.Namespace), client.MatchingFields{runtimes.KymaNameIndex: key.Name}}
	if err := r.Client.List(ctx, &manifests, naming...); err != nil {
		return nil, nil, fmt.Errorf("looking for the Manifests of Kyma %s: %w", key.Name, err)
	}
	if r.InCluster {
		return manifests.Items, nil, nil
	}
	secrets := &metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := r.Client.List(ctx, secrets, naming...); err != nil {
		return nil, nil, fmt.Errorf("looking for the access Secrets of Kyma %s: %w", key.Name, err)
	}
	return manifests.Items, secrets.Items, nil
}

// orphanedManifest tells of a Manifest whose Kyma does not exist, and deletes it if that is wanted.
func (r *Reconciler) orphanedManifest(ctx context.Context, m *v1beta2.Manifest, kyma string) error {
	r.Events.Eventf(m, nil, corev1.EventTypeWarning, v1beta2.ReasonOrphaned, "Sweep",
		"there is no Kyma %s, to which this Manifest belongs: create it, or delete the Manifest if the module shall go", kyma)
	log.FromContext(ctx).Info("found a Manifest without its Kyma", "manifest", m.Name)
	if !r.Cleanup || !isRemovable(m) {
		return nil
	}
	exactly := client.Preconditions{UID: &m.UID}
	if err := r.Client.Delete(ctx, m, exactly); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Manifest %s, whose Kyma does not exist: %w", m.Name, err)
	}
	r.Events.Eventf(m, nil, corev1.EventTypeNormal, v1beta2.ReasonOrphanDeleted, "Sweep", "deleted, since there is no Kyma %s", kyma)
	return nil
}

// sweep looks at the runtime of a Kyma. A runtime that cannot be reached is looked at in the next interval: others say why.
func (r *Reconciler) sweep(ctx context.Context, kyma *v1beta2.Kyma, m *memory) error {
	if !kyma.DeletionTimestamp.IsZero() || kyma.SkipsReconciliation() {
		return nil
	}
	rt, err := r.Runtimes.Get(ctx, kyma.Name)
	if err != nil {
		if loop.Reason(err) != "" {
			return nil
		}
		return err
	}
	objects, err := r.search(ctx, rt, kinds, func(f *apply.ObjectMetadata) (types.NamespacedName, client.Object) {
		if owner, ok := ownerOf(f, r.Namespace); ok {
			return owner, &v1beta2.Manifest{}
		}
		return types.NamespacedName{}, nil
	})
	if err == nil {
		r.count(m, objectOrphan, len(objects))
		err = r.settle(ctx, kyma, rt, "SweepObjects", "belong to Manifests that do not exist", objects)
	}
	if err != nil || r.InCluster {
		return passing(err)
	}
	entries, err := r.search(ctx, rt, catalogKinds, func(f *apply.ObjectMetadata) (types.NamespacedName, client.Object) {
		return types.NamespacedName{Namespace: r.Namespace, Name: f.Name}, sourceOf(f)
	})
	if err == nil {
		entries, err = ofCatalog(ctx, rt, entries)
	}
	if err == nil {
		r.count(m, catalogOrphan, len(entries))
		err = r.settle(ctx, kyma, rt, "SweepCatalog", "are of a catalog that does not have them", entries)
	}
	return passing(err)
}

// passing drops errors of a runtime: the next slot comes.
func passing(err error) error {
	if _, ok := errors.AsType[*apply.Error](err); ok {
		return nil
	}
	return err
}

// search returns what of these kinds is in a runtime, carries our label, and has no source. What the source would be is said by source; an object that is
// nil has none that could be missing.
func (r *Reconciler) search(ctx context.Context, rt *runtimes.Runtime, kinds []schema.GroupVersionKind,
	source func(*apply.ObjectMetadata) (types.NamespacedName, client.Object),
) ([]apply.Ref, error) {
	var orphans []apply.Ref
	missing := map[string]bool{} // by kind and name of the source
	for _, gvk := range kinds {
		found, _, err := rt.ListByLabel(ctx, gvk, v1beta2.LabelManagedBy+"="+v1beta2.ManagedByKyma, mostObjects)
		if loop.Reason(err) == apply.KindUnknown {
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range found {
			key, of := source(&found[i])
			if of == nil || !found[i].DeletionTime.IsZero() {
				continue
			}
			id := fmt.Sprintf("%T %s", of, key)
			if _, asked := missing[id]; !asked {
				if missing[id], err = r.isMissing(ctx, key, of); err != nil {
					return nil, err
				}
			}
			if missing[id] {
				orphans = append(orphans, found[i].Ref)
			}
		}
	}
	return orphans, nil
}

// ofCatalog returns those that the catalog has written. Of the others somebody has copied the label: they are his.
func ofCatalog(ctx context.Context, rt *runtimes.Runtime, entries []apply.Ref) ([]apply.Ref, error) {
	var ours []apply.Ref
	for _, ref := range entries {
		entry, err := rt.Get(ctx, ref)
		if loop.Reason(err) == apply.ObjectNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(entry.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == v1beta2.FieldOwnerCatalog }) {
			ours = append(ours, ref)
		}
	}
	return ours, nil
}

// isMissing tells whether an object does not exist: by the cache, and if that does not have it, by the API server.
func (r *Reconciler) isMissing(ctx context.Context, key types.NamespacedName, o client.Object) (bool, error) {
	err := r.Client.Get(ctx, key, o)
	if apierrors.IsNotFound(err) {
		err = r.Live.Get(ctx, key, o)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("making sure that %s does not exist: %w", key, err)
	}
	return err != nil, nil
}

// settle tells of orphans in a runtime, and deletes them if that is wanted and certain.
func (r *Reconciler) settle(ctx context.Context, kyma *v1beta2.Kyma, rt *runtimes.Runtime, action, what string, orphans []apply.Ref) error {
	if orphans == nil {
		return nil
	}
	log.FromContext(ctx).Info("found objects in a runtime that "+what, "objects", listed(orphans))
	r.Events.Eventf(kyma, nil, corev1.EventTypeWarning, v1beta2.ReasonOrphaned, action,
		"%d objects in the runtime %s: %s; delete them if nobody needs them", len(orphans), what, listed(orphans))
	chosen := removable(orphans)
	if !r.Cleanup || len(chosen) == 0 {
		return nil
	}
	left, err := rt.Delete(ctx, chosen, nil)
	if err != nil {
		return err
	}
	if len(left.Deleted) > 0 {
		r.Events.Eventf(kyma, nil, corev1.EventTypeNormal, v1beta2.ReasonOrphanDeleted, action,
			"deleted %d objects that %s: %s", len(left.Deleted), what, listed(left.Deleted))
	}
	return nil
}
