package author

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

	parts []part
}

// part is what one layer brings.
type part struct {
	resource    string
	definitions bool // the crds layer: of what it holds, only definitions count
	artefact    *render.Artefact
	settings    render.Settings
}

// renderTimeout bounds the rendering of one part, as in the manager.
const renderTimeout = 20 * time.Second

// Installation reads the only component version that the reference names, as the manager does: raw-manifest is installed, crds before it, and config
// says how charts are rendered. Early modules have no raw-manifest; all other resources are installed then, but for default-cr.
func (p *Place) Installation(ctx context.Context) (*Installation, error) {
	a, err := p.One(ctx)
	if err != nil {
		return nil, err
	}
	return p.installation(ctx, a.Name(), a.Version())
}

func (p *Place) installation(ctx context.Context, name, version string) (*Installation, error) {
	c, err := p.registry.Component(ctx, name, version)
	if err != nil {
		return nil, err
	}
	i := &Installation{Name: name, Version: version, Images: c.Images}
	var configs []render.Config
	if layer, ok := c.Layers[v1beta2.LayerConfig]; ok {
		data, _, err := p.registry.Fetch(ctx, layer)
		if err == nil {
			configs, err = render.ParseConfig(data)
		}
		if err != nil {
			return nil, fmt.Errorf("reading resource %s of %s:%s: %w", v1beta2.LayerConfig, name, version, err)
		}
	}
	add := func(resource string, definitions bool, settings render.Settings) error {
		data, _, err := p.registry.Fetch(ctx, c.Layers[resource])
		if err != nil {
			return err
		}
		a, err := render.Load(data, render.Limits{})
		if err != nil {
			return fmt.Errorf("reading resource %s of %s:%s: %w", resource, name, version, err)
		}
		i.parts = append(i.parts, part{resource, definitions, a, settings})
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
	if len(i.parts) == 0 {
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

// bundle renders a part; asked answers what a chart asks about the cluster.
func (p part) bundle(ctx context.Context, o render.Options, asked func(context.Context, []string) (render.Capabilities, error)) (b *render.Bundle, err error) {
	ctx, cancel := context.WithTimeout(ctx, renderTimeout)
	defer cancel()
	settings := p.settings
	if settings.Capabilities, err = asked(ctx, p.artefact.CapabilityQueries(settings)); err != nil {
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
		return nil, fmt.Errorf("rendering %s: %w", p.resource, err)
	}
	return b, nil
}

// OldName is an image that an object asks for by a name that nobody replaces.
type OldName struct {
	// Object that asks, and the image.
	Object string `json:"object"`
	Image  string `json:"image"`
	// At is where that image was copied to; empty if it is no resource of the component, and was not copied.
	At string `json:"at,omitempty"`
}

// oldNames finds images that the manager does not replace when it installs a component version: it does where the descriptor names them elsewhere, in
// Deployments and StatefulSets.
func (p *Place) oldNames(ctx context.Context, c Copied) ([]OldName, error) {
	i, err := p.installation(ctx, c.Name, c.Version)
	if err != nil {
		return nil, err
	}
	at, here := map[string]string{}, map[string]bool{}
	for _, image := range c.Images {
		at[image.Image], here[image.At] = image.At, true
	}
	unknown := func(context.Context, []string) (render.Capabilities, error) { return render.Capabilities{}, nil }
	var old []OldName
	for _, part := range i.parts {
		b, err := part.bundle(ctx, render.Options{Images: i.Images}, unknown)
		if err != nil {
			return nil, err
		}
		for _, o := range b.Objects {
			object := &unstructured.Unstructured{}
			if err := object.UnmarshalJSON(o.AppendJSON(nil, o.Namespace, render.Overlay{})); err != nil {
				return nil, fmt.Errorf("encoding %s: %w", o.Name, err)
			}
			images, _ := imagesOf([]*unstructured.Unstructured{object})
			for _, image := range images {
				if !here[image] {
					old = append(old, OldName{nameOf(object), image, at[image]})
				}
			}
		}
	}
	return old, nil
}
