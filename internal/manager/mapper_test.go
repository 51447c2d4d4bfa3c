package manager

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// counting is a mapper that counts its calls.
type counting struct {
	meta.RESTMapper
	asked int
}

func (c *counting) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	c.asked++
	return c.RESTMapper.RESTMapping(kind, versions...)
}

func TestMapperRemembers(t *testing.T) {
	all := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}})
	all.Add(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, meta.RESTScopeNamespace)
	under := &counting{RESTMapper: all}
	m := &mapper{RESTMapper: under}
	secret, later := schema.GroupKind{Kind: "Secret"}, schema.GroupKind{Group: "example.com", Kind: "Later"}
	for range 3 {
		found, err := m.RESTMapping(secret, "v1")
		if err != nil || found.Resource.Resource != "secrets" || found.Scope.Name() != meta.RESTScopeNameNamespace {
			t.Fatalf("got %+v, %v", found, err)
		}
	}
	if under.asked != 1 {
		t.Errorf("asked %d times for what was found, want once", under.asked)
	}
	if found, err := m.RESTMapping(later, "v1"); err == nil {
		t.Fatalf("got %+v for a kind that is not there", found)
	}
	all.Add(later.WithVersion("v1"), meta.RESTScopeRoot)
	if found, err := m.RESTMapping(later, "v1"); err != nil || found.Scope.Name() != meta.RESTScopeNameRoot {
		t.Errorf("a kind that came later is not found: %+v, %v", found, err)
	}
	if found, err := m.RESTMapping(secret); err != nil || found.Resource.Version != "v1" {
		t.Errorf("any version: %+v, %v", found, err)
	}
}
