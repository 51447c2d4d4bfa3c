package orphan

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// objectsLimit is the maximum number of objects of one kind that are listed in a runtime. A runtime usually has fewer
// objects with the label of Lifecycle Manager than this limit.
const objectsLimit = 1000

const (
	// checksLimit is the maximum number of sources that one search checks with requests, because the cache does not
	// have them: one request to the control plane, and one to the runtime. A runtime has at most 250 modules, and a
	// catalog has a few hundred entries.
	checksLimit = 500
	// orphansLimit is the maximum number of orphans that one search returns, and that Cleanup deletes with one request
	// each. Most modules have fewer than 100 objects.
	orphansLimit = 1000
)

// reconcileMissing reports the Manifests and access Secrets that name a Kyma that does not exist.
func (r *Reconciler) reconcileMissing(ctx context.Context, key types.NamespacedName,
	now time.Time) (reconcile.Result, error) {
	manifests, secrets, err := r.listManifestsAndAccessSecrets(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(manifests)+len(secrets) == 0 {
		r.forget(key.Name)
		return reconcile.Result{}, nil
	}
	m := r.memoryOf(key.Name)
	if m.missingSince.IsZero() {
		m.missingSince, m.due = now, now.Add(min(missingGracePeriod, r.Interval))
		r.setCount(m, objectOrphan, 0)
		r.setCount(m, catalogOrphan, 0)
	}
	if left := m.due.Sub(now); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if missing, err := r.isMissing(ctx, key, &v1beta2.Kyma{}); err != nil || !missing {
		return reconcile.Result{}, err // the Kyma exists: the event of its creation triggers a reconcile
	}
	for i := range manifests {
		if err := r.reportAndCleanUpManifest(ctx, &manifests[i], key.Name); err != nil {
			return reconcile.Result{}, err
		}
	}
	for i := range secrets {
		secret := &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: secrets[i].Namespace,
			Name: secrets[i].Name, UID: secrets[i].UID}
		r.Events.Eventf(secret, nil, corev1.EventTypeWarning, v1beta2.ReasonOrphaned, "Sweep",
			"there is no Kyma %s, of which this is the access Secret: create it, or delete the Secret", key.Name)
	}
	r.setCount(m, manifestOrphan, len(manifests))
	r.setCount(m, secretOrphan, len(secrets))
	m.due = nextSlot(now, r.Interval, key.Name)
	return reconcile.Result{RequeueAfter: m.due.Sub(now)}, nil
}

// listManifestsAndAccessSecrets returns the Manifests and access Secrets that name a Kyma.
func (r *Reconciler) listManifestsAndAccessSecrets(ctx context.Context, key types.NamespacedName) ([]v1beta2.Manifest,
	[]metav1.PartialObjectMetadata, error) {
	manifests, err := r.listManifests(ctx, key)
	if err != nil || r.InCluster {
		return manifests, nil, err
	}
	secrets := &metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := r.Client.List(ctx, secrets, client.InNamespace(key.Namespace),
		client.MatchingFields{runtimes.KymaNameIndex: key.Name}); err != nil {
		return nil, nil, fmt.Errorf("listing the access Secrets of Kyma %s: %w", key.Name, err)
	}
	return manifests, secrets.Items, nil
}

// listManifests returns the Manifests that name a Kyma.
func (r *Reconciler) listManifests(ctx context.Context, key types.NamespacedName) ([]v1beta2.Manifest, error) {
	var manifests v1beta2.ManifestList
	if err := r.Client.List(ctx, &manifests, client.InNamespace(key.Namespace),
		client.MatchingFields{runtimes.KymaNameIndex: key.Name}); err != nil {
		return nil, fmt.Errorf("listing the Manifests of Kyma %s: %w", key.Name, err)
	}
	return manifests.Items, nil
}

// reportAndCleanUpManifest reports a Manifest whose Kyma does not exist. If Options.Cleanup is set,
// reportAndCleanUpManifest also deletes the Manifest.
func (r *Reconciler) reportAndCleanUpManifest(ctx context.Context, m *v1beta2.Manifest, missingKyma string) error {
	r.Events.Eventf(m, nil, corev1.EventTypeWarning, v1beta2.ReasonOrphaned, "Sweep",
		"there is no Kyma %s, to which this Manifest belongs: create it, or delete the Manifest to remove the module",
		missingKyma)
	log.FromContext(ctx).Info("found a Manifest without its Kyma", "manifest", m.Name)
	if !r.Cleanup || !mayDelete(m) {
		return nil
	}
	sameUID := client.Preconditions{UID: &m.UID}
	if err := r.Client.Delete(ctx, m, sameUID); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Manifest %s, whose Kyma does not exist: %w", m.Name, err)
	}
	r.Events.Eventf(m, nil, corev1.EventTypeNormal, v1beta2.ReasonOrphanDeleted, "Sweep",
		"deleted because there is no Kyma %s", missingKyma)
	return nil
}

// sweepRuntimeIfReachable searches the runtime of a Kyma for orphans. If a runtime cannot be reached, it is searched
// again in the next interval. The Kyma controller reports that the runtime cannot be reached.
func (r *Reconciler) sweepRuntimeIfReachable(ctx context.Context, kyma *v1beta2.Kyma, m *memory) error {
	if !kyma.DeletionTimestamp.IsZero() || kyma.SkipsReconciliation() {
		return nil
	}
	rt, err := r.Runtimes.Get(ctx, kyma.Name)
	if err != nil {
		if loop.Reason(err) != "" && !runtimes.IsOwnerNotVerified(err) {
			return nil
		}
		return err
	}
	manifests, err := r.listManifests(ctx, client.ObjectKeyFromObject(kyma))
	if err != nil {
		return err
	}
	s := r.newSearch(rt)
	s.keepFormerInstallations(manifests)
	objects, err := s.findOrphans(ctx, kinds, func(f *apply.ObjectMetadata) (types.NamespacedName, client.Object) {
		if owner, ok := manifestNamed(f.Annotation(v1beta2.AnnotationOwnedBy), r.Namespace); ok {
			return owner, &v1beta2.Manifest{}
		}
		return types.NamespacedName{}, nil
	})
	if err == nil {
		objects, err = s.withoutCoOwner(ctx, s.withoutInventories(appliedByModule(objects), manifests))
	}
	if err == nil {
		r.setCount(m, objectOrphan, len(objects))
		err = r.reportAndCleanUpOrphans(ctx, kyma, rt, "SweepObjects", "belong to Manifests that do not exist", objects)
	}
	s.logIfIncomplete(ctx)
	if err != nil || r.InCluster {
		return ignoreRuntimeErrors(err)
	}
	s = r.newSearch(rt)
	entries, err := s.findOrphans(ctx, catalogKinds, func(f *apply.ObjectMetadata) (
		types.NamespacedName, client.Object) {
		return types.NamespacedName{Namespace: r.Namespace, Name: f.Name}, emptyCatalogSource(f)
	})
	if err == nil {
		entries, err = writtenByCatalog(ctx, rt, entries)
	}
	if err == nil {
		r.setCount(m, catalogOrphan, len(entries))
		err = r.reportAndCleanUpOrphans(ctx, kyma, rt, "SweepCatalog",
			"are copies of catalog entries that do not exist",
			entries)
	}
	s.logIfIncomplete(ctx)
	return ignoreRuntimeErrors(err)
}

// ignoreRuntimeErrors returns nil for errors of a runtime, because the runtime is searched again in the next slot.
// ignoreRuntimeErrors returns other errors unchanged.
func ignoreRuntimeErrors(err error) error {
	if _, ok := errors.AsType[*apply.Error](err); ok {
		return nil
	}
	return err
}

// search is the search for the orphans of one sort in one runtime: objects of modules, or catalog entries. The runtime
// determines the objects and the sources that they name, so checksLimit and orphansLimit limit the search. Objects that
// the search leaves out count as no orphans: the next search examines them, if there are fewer orphans then.
type search struct {
	*Reconciler
	runtime    *runtimes.Runtime
	missing    map[string]bool // whether a source is missing, by kind and name of the source
	checks     int             // the number of sources that were checked with requests
	incomplete bool            // a limit was reached
}

func (r *Reconciler) newSearch(rt *runtimes.Runtime) *search {
	return &search{Reconciler: r, runtime: rt, missing: map[string]bool{}}
}

// logIfIncomplete logs that the search has reached a limit.
func (s *search) logIfIncomplete(ctx context.Context) {
	if s.incomplete {
		log.FromContext(ctx).Info("the runtime has more possible orphans than one search examines; delete the "+
			"reported ones, so that the next search examines the others", "maxSources", checksLimit,
			"maxOrphans", orphansLimit)
	}
}

// findOrphans returns the objects of the given kinds in the runtime that have our label, and whose source in the
// control plane does not exist. The source of a module's object is its Manifest; the source of a catalog entry is the
// object that it was copied from. The function in the parameter source returns the name and the kind of this source. If
// the returned kind is nil, the object cannot be an orphan.
func (s *search) findOrphans(
	ctx context.Context, kinds []schema.GroupVersionKind,
	source func(*apply.ObjectMetadata) (types.NamespacedName, client.Object),
) ([]apply.ObjectMetadata, error) {
	var orphans []apply.ObjectMetadata
	for _, gvk := range kinds {
		found, _, err := s.runtime.ListByLabel(ctx, gvk, v1beta2.LabelManagedBy+"="+v1beta2.ManagedByKyma,
			objectsLimit)
		if loop.Reason(err) == apply.KindUnknown {
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range found {
			key, kind := source(&found[i])
			if kind == nil || !found[i].DeletionTime.IsZero() {
				continue
			}
			isMissing, err := s.isSourceMissing(ctx, key, kind)
			if err != nil {
				return nil, err
			}
			if isMissing && len(orphans) == orphansLimit {
				s.incomplete = true
				return orphans, nil
			}
			if isMissing {
				orphans = append(orphans, found[i])
			}
		}
	}
	return orphans, nil
}

// keepFormerInstallations makes the Manifests of a former owner of the runtime count as existing: after a take-over,
// the objects of a module name such a Manifest until the new owner applies them, and the new owner may wait for a
// person. The annotation is removed when the Manifest gets a version; from then on, withoutInventories keeps the
// objects.
func (s *search) keepFormerInstallations(manifests []v1beta2.Manifest) {
	for i := range manifests {
		former := manifests[i].Annotations[ownership.AnnotationFormerInstallation]
		if key, ok := manifestNamed(former, s.Namespace); ok {
			s.missing[sourceID(key, &v1beta2.Manifest{})] = false
		}
	}
}

// withoutInventories returns the objects that are in the inventory of none of the Manifests. An object in the inventory
// of a Manifest is no orphan, whatever Manifest its annotation names: a module that was taken over with its runtime
// applies, hands over or deletes the objects of its inventory later.
func (s *search) withoutInventories(found []apply.ObjectMetadata,
	manifests []v1beta2.Manifest) []apply.ObjectMetadata {
	if len(found) == 0 {
		return nil
	}
	type identity struct{ group, kind, namespace, name string }
	recorded := map[identity]bool{}
	for i := range manifests {
		if !s.InCluster && manifests[i].InstalledOrSpecTarget() == v1beta2.TargetControlPlane {
			continue // the objects of its inventory are in another cluster
		}
		for j := range manifests[i].Status.Synced {
			e := &manifests[i].Status.Synced[j]
			recorded[identity{e.Group, e.Kind, e.Namespace, e.Name}] = true
		}
	}
	return slices.DeleteFunc(found, func(o apply.ObjectMetadata) bool {
		return recorded[identity{o.Group, o.Kind, o.Namespace, o.Name}]
	})
}

// writtenByCatalog returns the catalog entries that the field manager of the catalog has written. A catalog entry of
// another field manager has our label only because somebody has copied an entry with its labels.
func writtenByCatalog(ctx context.Context, rt *runtimes.Runtime, entries []apply.ObjectMetadata) (
	[]apply.ObjectMetadata, error) {
	var ours []apply.ObjectMetadata
	for i := range entries {
		entry, err := rt.Get(ctx, entries[i].Ref)
		if loop.Reason(err) == apply.ObjectNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(entry.GetManagedFields(),
			func(f metav1.ManagedFieldsEntry) bool { return f.Manager == v1beta2.FieldOwnerCatalog }) {
			ours = append(ours, entries[i])
		}
	}
	return ours, nil
}

// withoutCoOwner returns those of the orphaned objects that no other module contains. If a co-owner of an object
// exists, the object belongs to this co-owner. A co-owner in another namespace belongs to another control plane, and
// counts as existing.
func (s *search) withoutCoOwner(ctx context.Context, found []apply.ObjectMetadata) (
	[]apply.ObjectMetadata, error) {
	var left []apply.ObjectMetadata
	for i := range found {
		isMissing := true
		for _, name := range found[i].CoOwners() {
			key, ok := manifestNamed(name, s.Namespace)
			if isMissing = isMissing && ok; isMissing {
				var err error
				if isMissing, err = s.isSourceMissing(ctx, key, &v1beta2.Manifest{}); err != nil {
					return nil, err
				}
			}
		}
		if isMissing {
			left = append(left, found[i])
		}
	}
	return left, nil
}

// isSourceMissing reports whether the source of an object in the runtime exists neither in the control plane nor, if it
// is a Manifest, in the runtime. isSourceMissing checks each source once. A source counts as existing if checksLimit is
// reached, and if no object can have its name: the admin of the runtime can write any name into an annotation. If the
// runtime itself has the Manifest, the runtime is a control plane, too, and its own manager has applied the object:
// both managers usually have the same namespace.
func (s *search) isSourceMissing(ctx context.Context, key types.NamespacedName, kind client.Object) (bool, error) {
	if len(validation.IsDNS1123Subdomain(key.Name)) > 0 {
		return false, nil
	}
	id := sourceID(key, kind)
	if missing, known := s.missing[id]; known {
		return missing, nil
	}
	switch err := s.Client.Get(ctx, key, kind); {
	case err == nil:
		s.missing[id] = false
		return false, nil
	case !apierrors.IsNotFound(err):
		return false, fmt.Errorf("reading %s: %w", key, err)
	}
	if s.checks == checksLimit {
		s.incomplete = true
		return false, nil
	}
	s.checks++
	missing, err := s.isMissingInClusters(ctx, key, kind)
	if err == nil {
		s.missing[id] = missing
	}
	return missing, err
}

// sourceID returns the key of a source in search.missing.
func sourceID(key types.NamespacedName, kind client.Object) string {
	return fmt.Sprintf("%T %s", kind, key)
}

// isMissingInClusters is isSourceMissing for a source that is not in the cache. isMissingInClusters sends a request to
// the control plane and, if the source is a Manifest, a request to the runtime.
func (s *search) isMissingInClusters(ctx context.Context, key types.NamespacedName, kind client.Object) (bool, error) {
	missing, err := s.isMissing(ctx, key, kind)
	if _, isManifest := kind.(*v1beta2.Manifest); err != nil || !missing || !isManifest {
		return missing, err
	}
	_, err = s.runtime.Get(ctx, apply.Ref{Group: v1beta2.GroupVersion.Group, Version: v1beta2.GroupVersion.Version,
		Kind: v1beta2.KindManifest, Namespace: key.Namespace, Name: key.Name})
	switch loop.Reason(err) {
	case apply.ObjectNotFound, apply.NamespaceNotFound, apply.KindUnknown:
		return true, nil
	}
	return false, err
}

// isMissing reports whether an object exists neither in the cache nor in the API server.
func (r *Reconciler) isMissing(ctx context.Context, key types.NamespacedName, o client.Object) (bool, error) {
	err := r.Client.Get(ctx, key, o)
	if apierrors.IsNotFound(err) {
		err = r.Live.Get(ctx, key, o)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("checking that %s does not exist: %w", key, err)
	}
	return err != nil, nil
}

// reportAndCleanUpOrphans reports orphans in a runtime. If Options.Cleanup is set, reportAndCleanUpOrphans deletes the
// orphans that may be deleted.
func (r *Reconciler) reportAndCleanUpOrphans(ctx context.Context, kyma *v1beta2.Kyma, rt *runtimes.Runtime, eventAction,
	problem string,
	orphans []apply.ObjectMetadata) error {
	if len(orphans) == 0 {
		return nil
	}
	log.FromContext(ctx).Info("found objects in a runtime that "+problem, "objects", joinObjects(refsOf(orphans)))
	r.Events.Eventf(kyma, nil, corev1.EventTypeWarning, v1beta2.ReasonOrphaned, eventAction,
		"%d objects in the runtime %s: %s; delete them if they are not needed", len(orphans), problem,
		joinObjects(refsOf(orphans)))
	if !r.Cleanup {
		return nil
	}
	var deleted []apply.Ref
	var failed error
	for _, o := range deletable(orphans) {
		// The precondition keeps an object that somebody has changed after the list: it may be no orphan any more.
		switch err := rt.DeleteVersion(ctx, o.Ref, o.ResourceVersion); {
		case err == nil:
			deleted = append(deleted, o.Ref)
		case loop.Reason(err) != apply.ObjectConflict:
			failed = cmp.Or(failed, err)
		}
	}
	if len(deleted) > 0 {
		r.Events.Eventf(kyma, nil, corev1.EventTypeNormal, v1beta2.ReasonOrphanDeleted, eventAction,
			"deleted %d objects that %s: %s", len(deleted), problem, joinObjects(deleted))
	}
	return failed
}
