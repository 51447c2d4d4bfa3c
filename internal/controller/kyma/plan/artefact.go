package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
)

// Artefact has the locations of all parts of a module version in the registry.
type Artefact struct {
	Install  v1beta2.InstallInfo // the layer raw-manifest; zero if the module has none
	Installs []v1beta2.InstallInfo
	Config   *v1beta2.ManifestConfig
	CRDs     *v1beta2.ManifestConfig
	Images   []string
	Content  string // digest of the content of the version; "" if a Manifest of an earlier release does not have it
}

// ArtefactIn returns what a component descriptor requires to be installed. The sources of the artefact have the order
// of the descriptor. The resource raw-manifest is installed, and so is each chart in a chart repository. The OCM
// resource named config contains the settings of the module, and the OCM resource named crds contains its CRDs. If a
// component descriptor has no resource raw-manifest, which is so for modules that were built for early releases of the
// Kyma project, all its other resources are installed. The resource default-cr, an example for users, is never
// installed.
func ArtefactIn(c *registry.Component) (Artefact, error) {
	a := Artefact{Images: c.Images, Content: c.Content}
	_, hasRawManifest := c.Layers[v1beta2.RawManifest]
	for _, name := range c.Order {
		layer, isLayer := c.Layers[name]
		chart, isChart := c.Charts[name]
		var source runtime.RawExtension
		var err error
		switch {
		case name == v1beta2.LayerDefaultCR:
			continue
		case isLayer && name == v1beta2.LayerConfig:
			a.Config = layerRef(layer)
			continue
		case isLayer && name == v1beta2.LayerCRDs:
			a.CRDs = layerRef(layer)
			continue
		case isChart:
			source, err = v1beta2.Source{HelmChart: &v1beta2.HelmChartSpec{URL: chart.URL, ChartName: chart.Name,
				Version: chart.Version, Type: v1beta2.SourceHelmChart}}.Encode()
		case isLayer && (!hasRawManifest || name == v1beta2.RawManifest):
			source, err = v1beta2.ImageSpec{Repo: layer.Repo, Name: layer.Component, Ref: layer.Ref,
				Type: v1beta2.SourceType(layer.Type)}.Encode()
		default:
			continue // not installed, or not covered by the signature
		}
		if err != nil {
			return Artefact{}, fmt.Errorf("encoding the source of the Manifest: %w", err)
		}
		a.Installs = append(a.Installs, v1beta2.InstallInfo{Name: name, Source: source})
	}
	if len(a.Installs) == 1 && a.Installs[0].Name == v1beta2.RawManifest {
		a.Install, a.Installs = a.Installs[0], nil
	}
	if a.Install.Name == "" && len(a.Installs) == 0 {
		return Artefact{}, &channel.Blocker{Code: v1beta2.ReasonInvalidDescriptor, Message: fmt.Sprintf(
			"the component descriptor of %s:%s has no resource %s: build the module anew", c.Name,
			c.Version, v1beta2.RawManifest)}
	}
	return a, nil
}

// ArtefactOf returns the artefact that a Manifest installs.
func ArtefactOf(m *v1beta2.Manifest) Artefact {
	s := &m.Spec
	return Artefact{Install: s.Install, Installs: s.Installs, Config: s.Config, CRDs: s.CRDs, Images: s.LocalizedImages,
		Content: m.Annotations[v1beta2.AnnotationContentDigest]}
}

// HasRecordedContent reports whether the artefact that a Manifest installs has the content that is recorded in the
// ModuleTemplate of its version. The result known is false if the ModuleTemplate has no record of the content, for
// example because the ModuleTemplate was deleted and created again. The first row that fits decides:
//
//	1  other content was found in the registry   false: a person has accepted that content
//	2  the Manifest has no digest, because an
//	   earlier release has created it            true, unless a person has accepted other content since
//	3  nothing is recorded                       not known
//	4  otherwise                                 true if the digests are equal
func (a Artefact) HasRecordedContent(t *v1beta2.ModuleTemplate) (has, known bool) {
	recorded := t.Annotations[v1beta2.AnnotationContentDigest]
	switch {
	case t.Annotations[v1beta2.AnnotationReplacedBy] != "":
		return false, true
	case a.Content == "":
		return recorded == "" || t.Annotations[v1beta2.AnnotationAcceptContent] != recorded, true
	case recorded == "":
		return false, false
	}
	return a.Content == recorded, true
}

// SourcesDigest returns a digest of the fields of a spec that come from a component descriptor. Raw JSON is compared by
// its content, so the digest stays the same when the API server writes it in another order. The digest of a spec that
// cannot be encoded is "".
func SourcesDigest(s *v1beta2.ManifestSpec) string {
	data, err := json.Marshal(v1beta2.ManifestSpec{Install: s.Install, Installs: s.Installs, Config: s.Config,
		CRDs: s.CRDs, LocalizedImages: s.LocalizedImages})
	if err != nil {
		return ""
	}
	var content any
	if err := json.Unmarshal(data, &content); err != nil {
		return ""
	}
	if data, err = json.Marshal(content); err != nil { // with sorted keys
		return ""
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// HasUneditedSources reports whether a Manifest still has the sources that this controller has written into it. The
// result known is false if the Manifest has no AnnotationRequestedSources, so that it is not known whether the sources
// were changed.
func HasUneditedSources(m *v1beta2.Manifest) (has, known bool) {
	requested := m.Annotations[v1beta2.AnnotationRequestedSources]
	return requested != "" && requested == SourcesDigest(&m.Spec), requested != ""
}

// HasEditedVersionOrSources reports whether another client has changed the version or the sources in a Manifest after
// this controller has written them.
func HasEditedVersionOrSources(m *v1beta2.Manifest) bool {
	has, known := HasUneditedSources(m)
	return known && !has || VersionWrittenByController(m) != m.Spec.Version
}

func layerRef(l registry.Layer) *v1beta2.ManifestConfig {
	return &v1beta2.ManifestConfig{Repo: l.Repo, Name: l.Component, Ref: l.Ref, Type: registry.OCIRef}
}
