package apply

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Kinds stores the kinds that CustomResourceDefinitions in bundles define. They are the same for all clusters, so they
// are stored once and not in each Cluster. Results of discovery are never stored here: one cluster must not decide
// where requests to another one are sent. A cluster that serves a kind differently, or not at all, answers 404, and its
// own discovery is used from then on.
//
// The zero value is ready to use. It is safe for concurrent use, and grows only with the number of kinds.
type Kinds struct {
	mu    sync.RWMutex
	known map[schema.GroupVersionKind]resource // guarded by mu
}

// AddBundle adds the kinds that the CustomResourceDefinitions of a bundle define.
func (k *Kinds) AddBundle(b *render.Bundle) {
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

// Resource returns the resource of an object's kind if the kind is built into Kubernetes or defined by a bundle. It
// sends no request.
func (k *Kinds) Resource(ref Ref) (schema.GroupVersionResource, bool) {
	res, ok := k.find(ref.GVK())
	if b, isBuiltin := builtins[ref.GVK().GroupKind()]; isBuiltin {
		res, ok = b.resource, true
	}
	return ref.GVK().GroupVersion().WithResource(res.plural), ok
}

// find returns the resource of a kind as a bundle defines it.
func (k *Kinds) find(gvk schema.GroupVersionKind) (resource, bool) {
	if k == nil {
		return resource{}, false
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	r, ok := k.known[gvk]
	return r, ok
}
