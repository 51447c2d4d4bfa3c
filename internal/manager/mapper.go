package manager

import (
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// mapper caches the mapping of kinds to resources. The cache of the manager needs this mapping in every read, to find
// out whether a kind is namespaced. Without the cached mappings, the lookups took a tenth of the time of a reconcile
// without changes. A mapper caches only mappings that exist, because a missing CRD can be created later.
type mapper struct {
	meta.RESTMapper
	found sync.Map // from schema.GroupVersionKind to *meta.RESTMapping
}

func newCachingMapper(cfg *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
	m, err := apiutil.NewDynamicRESTMapper(cfg, httpClient)
	return &mapper{RESTMapper: m}, err
}

// RESTMapping implements [meta.RESTMapper].
func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) != 1 {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	key := kind.WithVersion(versions[0])
	if mapping, exists := m.found.Load(key); exists {
		return mapping.(*meta.RESTMapping), nil
	}
	mapping, err := m.RESTMapper.RESTMapping(kind, versions...)
	if err == nil {
		m.found.Store(key, mapping)
	}
	return mapping, err
}
