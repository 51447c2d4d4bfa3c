package apply

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Kinds is what the definitions in bundles say about the kinds that they define: the same for all clusters that get them, so that it is known
// once and not by each Cluster. What a cluster says itself is never in it: one cluster must not decide where requests to another one go. A
// cluster that serves a kind otherwise, or not at all, answers that the path is not there, and is asked from then on.
//
// The zero value is ready to use. It is safe for concurrent use, and grows with the number of kinds only.
type Kinds struct {
	mu    sync.RWMutex
	known map[schema.GroupVersionKind]resource // guarded by mu
}

// AddBundle adds what the definitions in a bundle define.
func (k *Kinds) AddBundle(b *render.Bundle) {
	for _, o := range b.Objects {
		if crd, ok := o.CRD(); ok {
			k.learn(crd)
		}
	}
}

func (k *Kinds) learn(crd render.CRD) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known = map[schema.GroupVersionKind]resource{}
	}
	for _, version := range crd.Versions {
		k.known[schema.GroupVersionKind{Group: crd.Group, Version: version, Kind: crd.Kind}] = resource{crd.Plural, crd.Namespaced}
	}
}

// Resource returns the resource of an object's kind, if that is built into Kubernetes or defined by a bundle; no cluster is asked.
func (k *Kinds) Resource(ref Ref) (schema.GroupVersionResource, bool) {
	res, ok := k.find(ref.GVK())
	if b, isBuiltin := builtins[ref.GVK().GroupKind()]; isBuiltin {
		res, ok = b.resource, true
	}
	return ref.GVK().GroupVersion().WithResource(res.plural), ok
}

// find returns how a kind is served where it is served as a bundle says.
func (k *Kinds) find(gvk schema.GroupVersionKind) (resource, bool) {
	if k == nil {
		return resource{}, false
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	r, ok := k.known[gvk]
	return r, ok
}
