package runtimes

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// ManifestsOf returns the Manifests of a Kyma from a cache that has the index of [IndexByKyma]. The caller must not
// modify the returned Manifests, because they are shared with the cache.
func ManifestsOf(ctx context.Context, cache client.Reader, namespace, kyma string) (
	readOnly []v1beta2.Manifest, _ error) {
	var list v1beta2.ManifestList
	err := cache.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{KymaNameIndex: kyma},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing the Manifests of Kyma %s: %w", kyma, err)
	}
	return list.Items, nil
}
