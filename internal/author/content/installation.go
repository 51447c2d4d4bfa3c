package content

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Installation is the part of a component version that the manager installs. An Installation has one part for each
// layer. A scenario test checks that this package and the manager render the same objects: for an installed version,
// the preview must show no changes.
type Installation struct {
	// Name is the name of the component, and Version is its version.
	Name, Version string
	// Images are the images in the component descriptor. When the manager installs the module, it replaces the images
	// of workloads by those in Images.
	Images []string

	// Parts are the parts in the order of installation.
	Parts []Part
}

// Part is the content of one layer that the manager installs.
type Part struct {
	Resource    string
	definitions bool // true for the crds layer, of which only CRDs are installed
	artefact    *render.Artefact
	Settings    render.Settings
}

// renderTimeout is the timeout for rendering one part of a component version. A separate process for rendering has a
// shorter timeout of its own.
const renderTimeout = time.Minute

// Load reads a component version in the same way as the manager. The layer crds is installed first, and raw-manifest
// second. The layer config has the settings for charts. Modules in an old format have no layer raw-manifest. If a
// component version has no layer raw-manifest, the manager installs all of its resources except config and default-cr.
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
			configs, err = render.ParseInstallConfigs(data)
		}
		if err != nil {
			return nil, fmt.Errorf("reading resource %s of %s:%s: %w", v1beta2.LayerConfig, name, version, err)
		}
	}
	for _, resource := range c.Order {
		if chart, ok := c.Charts[resource]; ok {
			return nil, fmt.Errorf("reading resource %s of %s:%s: it is chart %s %s in a chart repository, which only "+
				"the manager reads: install the module on a cluster, or package the chart as a local blob", resource,
				name, version, chart.Name, chart.Version)
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
	for _, resource := range manifestResources(c) {
		if err := add(resource, false, render.FindConfig(configs, resource).ApplyTo(
			render.Settings{Release: resource})); err != nil {
			return nil, err
		}
	}
	if len(i.Parts) == 0 {
		return nil, fmt.Errorf("reading %s:%s: it contains nothing to install: build the module again", name, version)
	}
	return i, nil
}

// manifestResources returns the names of the OCM resources whose objects are installed after the layer crds.
func manifestResources(c *registry.Component) []string {
	if _, ok := c.Layers[v1beta2.RawManifest]; ok {
		return []string{v1beta2.RawManifest}
	}
	return slices.DeleteFunc(slices.Clone(c.Order), func(resource string) bool {
		return resource == v1beta2.LayerConfig || resource == v1beta2.LayerCRDs || resource == v1beta2.LayerDefaultCR
	})
}

// Bundle renders the part p of a component version to a bundle of objects. The function capabilities returns the
// properties of the cluster on which a chart may depend.
func (p Part) Bundle(ctx context.Context, o render.Options, capabilities func(context.Context, []string) (
	render.Capabilities, error)) (b *render.Bundle, err error) {
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
			b, err = render.Build(slices.DeleteFunc(
				objects, func(o *unstructured.Unstructured) bool { return o.GetKind() != "CustomResourceDefinition" }),
				o)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", p.Resource, err)
	}
	return b, nil
}

// Objects renders all parts for a cluster with the default capabilities, and returns their objects.
func (i *Installation) Objects(ctx context.Context) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	defaults := func(context.Context, []string) (render.Capabilities, error) { return render.Capabilities{}, nil }
	for _, p := range i.Parts {
		b, err := p.Bundle(ctx, render.Options{Images: i.Images}, defaults)
		if err != nil {
			return nil, fmt.Errorf("%s:%s: %w", i.Name, i.Version, err)
		}
		for _, o := range b.Objects {
			object := &unstructured.Unstructured{}
			if err := object.UnmarshalJSON(o.AppendJSON(nil, o.Namespace, render.Overlay{})); err != nil {
				return nil, fmt.Errorf("%s:%s: reading %s %s: %w", i.Name, i.Version, o.GVK.Kind, o.Name, err)
			}
			all = append(all, object)
		}
	}
	return all, nil
}
