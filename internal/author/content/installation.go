package content

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Installation is what the manager installs of a component version: one part for each layer, in its order. A script test holds the two together: what
// was installed would not change.
type Installation struct {
	// Name and Version of the component.
	Name, Version string
	// Images are what takes the place of images in manifests.
	Images []string

	// Parts are in the order of installation.
	Parts []Part
}

// Part is what one layer of a component version installs.
type Part struct {
	Resource    string
	definitions bool // the crds layer: of what it holds, only definitions count
	artefact    *render.Artefact
	Settings    render.Settings
}

// renderTimeout bounds the rendering of one part, as in the manager.
const renderTimeout = 20 * time.Second

// loadInstallation reads a component version as the manager does: raw-manifest is installed, crds before it, and config says how charts are rendered.
// Early modules have no raw-manifest; all other resources are installed then, but for default-cr.
func Load(ctx context.Context, from *registry.Registry, name, version string) (*Installation, error) {
	c, err := from.Component(ctx, name, version)
	if err != nil {
		return nil, err
	}
	i := &Installation{Name: name, Version: version, Images: c.Images}
	var configs []render.Config
	if layer, ok := c.Layers[v1beta2.LayerConfig]; ok {
		data, _, err := from.Fetch(ctx, layer)
		if err == nil {
			configs, err = render.ParseConfig(data)
		}
		if err != nil {
			return nil, fmt.Errorf("reading resource %s of %s:%s: %w", v1beta2.LayerConfig, name, version, err)
		}
	}
	add := func(resource string, definitions bool, settings render.Settings) error {
		data, _, err := from.Fetch(ctx, c.Layers[resource])
		if err != nil {
			return err
		}
		a, err := render.Load(data, render.Limits{})
		if err != nil {
			return fmt.Errorf("reading resource %s of %s:%s: %w", resource, name, version, err)
		}
		i.Parts = append(i.Parts, Part{resource, definitions, a, settings})
		return nil
	}
	if _, ok := c.Layers[v1beta2.LayerCRDs]; ok {
		if err := add(v1beta2.LayerCRDs, true, render.Settings{}); err != nil {
			return nil, err
		}
	}
	for _, resource := range installed(c) {
		if err := add(resource, false, render.FindConfig(configs, resource).ApplyTo(render.Settings{Release: resource})); err != nil {
			return nil, err
		}
	}
	if len(i.Parts) == 0 {
		return nil, fmt.Errorf("reading %s:%s: it has nothing to install: build the module anew", name, version)
	}
	return i, nil
}

// installed are the names of the resources that objects come from.
func installed(c *registry.Component) []string {
	if _, ok := c.Layers[v1beta2.RawManifest]; ok {
		return []string{v1beta2.RawManifest}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.Layers)), func(resource string) bool {
		return resource == v1beta2.LayerConfig || resource == v1beta2.LayerCRDs || resource == v1beta2.LayerDefaultCR
	})
}

// Bundle renders the part. capabilities returns the facts about the cluster that a chart needs.
func (p Part) Bundle(ctx context.Context, o render.Options, capabilities func(context.Context, []string) (render.Capabilities, error)) (b *render.Bundle, err error) {
	ctx, cancel := context.WithTimeout(ctx, renderTimeout)
	defer cancel()
	settings := p.Settings
	if settings.Capabilities, err = capabilities(ctx, p.artefact.CapabilityQueries(settings)); err != nil {
		return nil, err
	}
	if !p.definitions {
		b, err = p.artefact.Render(ctx, settings, o)
	} else {
		var objects []*unstructured.Unstructured
		if objects, _, err = p.artefact.RenderObjects(ctx, settings); err == nil {
			b, err = render.Build(slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() != "CustomResourceDefinition" }), o)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", p.Resource, err)
	}
	return b, nil
}
