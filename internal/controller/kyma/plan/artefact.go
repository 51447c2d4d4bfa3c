package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
)

// Artefact has the places in the registry of the parts of a module version.
type Artefact struct {
	Install  v1beta2.InstallInfo // the layer raw-manifest; zero if the module has none
	Installs []v1beta2.InstallInfo
	Config   *v1beta2.ManifestConfig
	CRDs     *v1beta2.ManifestConfig
	Images   []string
}

// ArtefactIn returns the artefact that a component descriptor describes. The resource raw-manifest is installed; the
// resources config and crds are its settings and its CRDs. The components of early modules have no raw-manifest. For
// these components all other resources are installed, in the order of their names. The resource default-cr, an example
// for users, is never installed.
func ArtefactIn(c *registry.Component) (Artefact, error) {
	a := Artefact{Images: c.Images}
	for _, name := range slices.Sorted(maps.Keys(c.Layers)) {
		layer := c.Layers[name]
		switch name {
		case v1beta2.LayerConfig:
			a.Config = configOf(layer)
		case v1beta2.LayerCRDs:
			a.CRDs = configOf(layer)
		case v1beta2.LayerDefaultCR:
		default:
			source, err := v1beta2.ImageSpec{Repo: layer.Repo, Name: layer.Component, Ref: layer.Ref,
				Type: v1beta2.SourceType(layer.Type)}.Encode()
			if err != nil {
				return Artefact{}, fmt.Errorf("encoding the source of the Manifest: %w", err)
			}
			a.Installs = append(a.Installs, v1beta2.InstallInfo{Name: name, Source: source})
		}
	}
	for _, install := range a.Installs {
		if install.Name == v1beta2.RawManifest {
			a.Install, a.Installs = install, nil
		}
	}
	if a.Install.Name == "" && len(a.Installs) == 0 {
		return Artefact{}, &channel.Blocker{Code: v1beta2.ReasonInvalidDescriptor, Message: fmt.Sprintf(
			"the component descriptor of %s:%s has no resource %s: build the module anew", c.Name,
			c.Version, v1beta2.RawManifest)}
	}
	return a, nil
}

func configOf(l registry.Layer) *v1beta2.ManifestConfig {
	return &v1beta2.ManifestConfig{Repo: l.Repo, Name: l.Component, Ref: l.Ref, Type: registry.OCIRef}
}
