package kyma

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/catalog"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// removeMandatoryFinalizers removes a finalizer of the Kyma project's lifecycle-manager from ModuleReleaseMetas of
// mandatory modules. Lifecycle Manager itself never adds this finalizer. The finalizer is removed when the
// ModuleReleaseMeta is being deleted and no runtime has the module any more. removeMandatoryFinalizers returns true if
// a runtime still has the module of a ModuleReleaseMeta that is being deleted and has the finalizer.
func (r *Reconciler) removeMandatoryFinalizers(ctx context.Context) (stillInstalled bool, err error) {
	var releases v1beta2.ModuleReleaseMetaList
	in := client.InNamespace(r.Namespace)
	if err := r.Client.List(ctx, &releases, in,
		client.MatchingFields{catalog.MandatoryIndex: v1beta2.ValueTrue}); err != nil {
		return false, fmt.Errorf("reading mandatory modules: %w", err)
	}
	for i := range releases.Items {
		release := &releases.Items[i]
		if release.DeletionTimestamp.IsZero() || !slices.Contains(release.Finalizers,
			v1beta2.FinalizerMandatoryModule) {
			continue
		}
		var left v1beta2.ManifestList
		if err := r.Client.List(ctx, &left, in, client.MatchingFields{manifestModuleIndex: release.Name},
			client.MatchingLabels{v1beta2.LabelMandatoryModule: v1beta2.ValueTrue}, client.Limit(1),
			client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("listing the Manifests of mandatory module %s: %w", release.Name, err)
		}
		if len(left.Items) > 0 {
			stillInstalled = true
			continue
		}
		if err := loop.RemoveFinalizers(ctx, r.Client, release,
			[]string{v1beta2.FinalizerMandatoryModule}); err != nil {
			return true, err
		}
	}
	return stillInstalled, nil
}
