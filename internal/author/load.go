package author

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Load reads a component version from a place (a registry or an archive), and returns it as a Module. Load returns an
// error if the reference of the place selects several component versions.
func Load(ctx context.Context, p *storage.Place) (*Module, error) {
	a, err := p.One(ctx)
	if err != nil {
		return nil, err
	}
	return loadModule(ctx, p.Registry(), a.Name(), a.Version())
}

func loadModule(ctx context.Context, from *registry.Registry, name, version string) (*Module, error) {
	c, err := from.Component(ctx, name, version)
	if err != nil {
		return nil, err
	}
	m := &Module{Name: name, Version: version, Images: c.Images}
	objects := func(resource string) (data []byte, found []*unstructured.Unstructured, err error) {
		layer, ok := c.Layers[resource]
		if !ok {
			return nil, nil, nil
		}
		if data, _, err = from.Fetch(ctx, layer); err != nil {
			return nil, nil, err
		}
		if found, err = render.ReadManifests(data, render.Limits{}); err != nil {
			return nil, nil, fmt.Errorf("reading %s of %s:%s: %w", resource, name, version, err)
		}
		return data, found, nil
	}
	if m.Manifest, m.Objects, err = objects("raw-manifest"); err != nil {
		return nil, err
	}
	if len(m.Objects) == 0 {
		return nil, fmt.Errorf("reading %s:%s: it has no raw-manifest, or an empty one", name, version)
	}
	_, defaults, err := objects("default-cr")
	if err != nil {
		return nil, err
	}
	if len(defaults) > 0 {
		m.DefaultCR = defaults[0]
	}
	if layer, ok := c.Layers["moduletemplate"]; ok {
		if m.Template, _, err = from.Fetch(ctx, layer); err != nil {
			return nil, err
		}
	}
	m.ClusterScoped = m.hasClusterScopedDefaultCR()
	return m, nil
}
