package kyma

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// releaseDefinitions lets go the ModuleReleaseMetas of mandatory modules that the reference has put its finalizer on, once no runtime has
// the module any more. Here no finalizer is needed: a wish that is gone is gone. It tells whether one still waits.
func (r *Reconciler) releaseDefinitions(ctx context.Context) (waits bool, err error) {
	var releases v1beta2.ModuleReleaseMetaList
	if err := r.Client.List(ctx, &releases, client.InNamespace(r.Namespace), client.MatchingFields{mandatoryIndex: v1beta2.ValueTrue}); err != nil {
		return false, fmt.Errorf("reading mandatory modules: %w", err)
	}
	for i := range releases.Items {
		release := &releases.Items[i]
		old := release.DeepCopy()
		if release.DeletionTimestamp.IsZero() || !controllerutil.RemoveFinalizer(release, v1beta2.FinalizerMandatoryModule) {
			continue
		}
		var left v1beta2.ManifestList
		of := client.MatchingLabels{v1beta2.LabelModuleName: release.Name, v1beta2.LabelMandatoryModule: v1beta2.ValueTrue}
		if err := r.Client.List(ctx, &left, client.InNamespace(r.Namespace), of, client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("listing the Manifests of mandatory module %s: %w", release.Name, err)
		}
		if len(left.Items) > 0 {
			waits = true
			continue
		}
		if err := r.Client.Patch(ctx, release, client.MergeFrom(old), client.FieldOwner(v1beta2.FieldOwner)); client.IgnoreNotFound(err) != nil {
			return true, fmt.Errorf("letting ModuleReleaseMeta %s go: %w", release.Name, err)
		}
	}
	return waits, nil
}
