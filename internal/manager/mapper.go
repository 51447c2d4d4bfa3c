package manager

import (
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// mapper remembers how kinds are served. The cache asks that at every read, to learn whether a kind has namespaces, and working it out anew took a tenth
// of a pass that has nothing to do. Only what was found is remembered, since a definition may come later.
type mapper struct {
	meta.RESTMapper
	known sync.Map // from schema.GroupVersionKind to *meta.RESTMapping
}

func newMapper(cfg *rest.Config, over *http.Client) (meta.RESTMapper, error) {
	m, err := apiutil.NewDynamicRESTMapper(cfg, over)
	return &mapper{RESTMapper: m}, err
}

// RESTMapping implements [meta.RESTMapper].
func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) != 1 {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	key := kind.WithVersion(versions[0])
	if found, known := m.known.Load(key); known {
		return found.(*meta.RESTMapping), nil
	}
	found, err := m.RESTMapper.RESTMapping(kind, versions...)
	if err == nil {
		m.known.Store(key, found)
	}
	return found, err
}
