package kyma

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		isInstalled, err := r.isMandatoryModuleInstalled(ctx, release.Name)
		if err != nil {
			return false, fmt.Errorf("listing the Manifests of mandatory module %s: %w", release.Name, err)
		}
		if isInstalled {
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

// isMandatoryModuleInstalled reports whether any runtime has a Manifest of a mandatory module. With shards, the cache
// contains only the Manifests of the open shards of this replica; directly after a start, no shard is open. Therefore,
// if the cache contains no Manifest of the module, isMandatoryModuleInstalled also reads from the API server.
func (r *Reconciler) isMandatoryModuleInstalled(ctx context.Context, module string) (bool, error) {
	var cached v1beta2.ManifestList
	err := r.Client.List(ctx, &cached, client.InNamespace(r.Namespace),
		client.MatchingFields{manifestModuleIndex: module},
		client.MatchingLabels{v1beta2.LabelMandatoryModule: v1beta2.ValueTrue}, client.Limit(1),
		client.UnsafeDisableDeepCopy)
	if err != nil || len(cached.Items) > 0 || r.Shards == nil {
		return len(cached.Items) > 0, err
	}
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(v1beta2.KindManifest + "List"))
	err = r.Certain.List(ctx, all, client.InNamespace(r.Namespace), client.MatchingLabels{
		v1beta2.LabelModuleName: module, v1beta2.LabelMandatoryModule: v1beta2.ValueTrue}, client.Limit(1))
	return len(all.Items) > 0, err
}
