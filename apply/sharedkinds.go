package apply

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Kinds stores the kinds that CustomResourceDefinitions in bundles define. The kinds of a bundle are the same for all
// clusters, so they are stored once in Kinds instead of in each Cluster. Kinds never stores results of discovery,
// because one cluster must not determine the URLs of requests to another cluster. A cluster that serves a kind
// differently or not at all responds with 404. After a 404, Cluster sends a discovery request to its own cluster to
// find the kind.
//
// The zero value is ready to use. Kinds is safe for concurrent use. The memory that Kinds needs depends only on the
// number of kinds, not on the number of clusters.
type Kinds struct {
	mu    sync.RWMutex
	known map[schema.GroupVersionKind]resource // guarded by mu
}

// AddCRDsOf adds the kinds that the CustomResourceDefinitions of a bundle define.
func (k *Kinds) AddCRDsOf(b *render.Bundle) {
	for _, o := range b.Objects {
		if crd, ok := o.CRD(); ok {
			k.addCRD(crd)
		}
	}
}

func (k *Kinds) addCRD(crd render.CRD) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known = map[schema.GroupVersionKind]resource{}
	}
	for _, version := range crd.Versions {
		k.known[schema.GroupVersionKind{Group: crd.Group, Version: version, Kind: crd.Kind}] = resource{crd.Plural,
			crd.Namespaced}
	}
}

// Resource returns the resource of an object's kind if the kind is built into Kubernetes or defined by a bundle.
// Resource sends no request.
func (k *Kinds) Resource(ref Ref) (schema.GroupVersionResource, bool) {
	res, ok := k.resourceFromBundleCRD(ref.GVK())
	if b, isBuiltin := builtins[ref.GVK().GroupKind()]; isBuiltin {
		res, ok = b.resource, true
	}
	return ref.GVK().GroupVersion().WithResource(res.plural), ok
}

// resourceFromBundleCRD returns the plural name and the scope of a kind, if a bundle has the CRD of the kind.
func (k *Kinds) resourceFromBundleCRD(gvk schema.GroupVersionKind) (resource, bool) {
	if k == nil {
		return resource{}, false
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	r, ok := k.known[gvk]
	return r, ok
}
