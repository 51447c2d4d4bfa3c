package ocm

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// maxDescriptor is the maximum size of a descriptor in an Artifact. The limit for the descriptor of a component that is
// pulled from a registry is in registry.Options.
const maxDescriptor = 1 << 20

// maxValues is the maximum number of JSON or YAML values in a descriptor. The limit bounds the memory of the decoder,
// which needs up to 350 bytes for each value.
const maxValues = 100_000

// maxAliasedBytes is the maximum number of bytes that the YAML aliases in a descriptor repeat. The decoder copies a
// text for each of its aliases, also in fields that are not used. OCM tools write no aliases.
const maxAliasedBytes = 1 << 20

// descriptorFile is the name of the component descriptor in its tar archive.
const descriptorFile = "component-descriptor.yaml"

// DescriptorRoom is the number of bytes that the tar archive around a descriptor may need in addition to the descriptor
// itself.
const DescriptorRoom = 1 << 20

// UnpackDescriptor returns the YAML or JSON text of a descriptor layer. The layer is either the text itself, or a tar
// archive that may be compressed.
func UnpackDescriptor(data []byte, limit int64, ref string) ([]byte, error) {
	tooLarge := NewError(ArtifactTooLarge, ref,
		"its component descriptor is larger than %d bytes: make it smaller", limit)
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		unzip, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			data, err = io.ReadAll(io.LimitReader(unzip, limit+DescriptorRoom+1))
		}
		if err != nil {
			return nil, NewError(InvalidDescriptor, ref,
				"its component descriptor is damaged (gzip: %s): push the module again", FirstLine(err.Error()))
		}
		if int64(len(data)) > limit+DescriptorRoom {
			return nil, tooLarge
		}
	}
	archive := tar.NewReader(bytes.NewReader(data))
	for entries := 0; ; entries++ {
		header, err := archive.Next()
		if entries == 0 && err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			break // data is not a tar archive but the text
		}
		if errors.Is(err, io.EOF) {
			return nil, NewError(InvalidDescriptor, ref,
				"its descriptor layer holds no %s: push the module with a tool for OCM", descriptorFile)
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return nil, NewError(InvalidDescriptor, ref,
				"its descriptor layer is damaged (tar: %s): push the module again", FirstLine(err.Error()))
		}
		if header.Typeflag != tar.TypeReg || path.Clean(header.Name) != descriptorFile {
			continue
		}
		if data, err = io.ReadAll(io.LimitReader(archive, limit+1)); err != nil {
			return nil, NewError(InvalidDescriptor, ref,
				"its descriptor layer is damaged (tar: %s): push the module again", FirstLine(err.Error()))
		}
		break
	}
	if int64(len(data)) > limit {
		return nil, tooLarge
	}
	return data, nil
}

// Descriptor is a component descriptor with schema v2 (meta, component) or v3 (apiVersion, metadata, spec). After
// parsing, the field Component has the name, version and resources of the component, whichever schema the descriptor
// has.
type Descriptor struct {
	Meta struct {
		SchemaVersion string `json:"schemaVersion"`
	} `json:"meta"`
	Component content `json:"component"`

	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Metadata   content `json:"metadata"`
	Spec       struct {
		Resources  []Element `json:"resources"`
		Sources    []Element `json:"sources"`
		References []Element `json:"references"`
	} `json:"spec"`

	Signatures []DescriptorSignature `json:"signatures"`
}

// Access describes where the content of a resource is. The fields that describe a Helm chart accept values of any type,
// because access types that this package does not read may use the same field names for values of other types.
type Access struct {
	Type           string `json:"type"`
	MediaType      string `json:"mediaType"`
	LocalReference string `json:"localReference"`
	Digest         string `json:"digest"` // only for localOciBlob
	ImageReference string `json:"imageReference"`

	HelmRepository any `json:"helmRepository"` // helm: the URL of the repository
	HelmChart      any `json:"helmChart"`      // helm: name:version, or the name
	Version        any `json:"version"`        // helm: the version, if HelmChart has none
	CACert         any `json:"caCert"`         // helm: certificates of the repository

	HelmChartRepoURL any `json:"helmChartRepoUrl"` // helmChartRepository
	HelmChartName    any `json:"helmChartName"`    // helmChartRepository
	HelmChartVersion any `json:"helmChartVersion"` // helmChartRepository
}

// IsLocal reports whether the content is a blob of the component version.
func (a Access) IsLocal() bool { return a.isOneOf("localBlob", "localOciBlob") }

// IsImage reports whether the content is an image in a registry.
func (a Access) IsImage() bool { return a.isOneOf("ociArtifact", "ociRegistry", "ociImage") }

// IsChart reports whether the content is a chart in a chart repository. The type helm is a type of OCM, and
// helmChartRepository is the type that early modules have.
func (a Access) IsChart() bool { return a.isOneOf("helm", "helmChartRepository") }

// IsNone reports whether the resource has no content.
func (a Access) IsNone() bool { return a.isOneOf("none") }

// isOneOf reports whether the access has one of the given types. isOneOf ignores the suffix /v1 of the type in the
// descriptor. isOneOf also ignores upper and lower case, because OCM writes the first letter of some types in upper
// case.
func (a Access) isOneOf(types ...string) bool {
	kind := strings.TrimSuffix(a.Type, "/v1")
	return slices.ContainsFunc(types, func(t string) bool { return strings.EqualFold(t, kind) })
}

// Chart returns the location of a chart in a chart repository. Chart returns errors whose text continues a sentence
// that begins with the name of the resource, such as "has its own caCert". Only an exact version is valid, because a
// version of a module must have the same content forever.
func (a Access) Chart() (repository, name, version string, err error) {
	repository, name, version = stringOrEmpty(a.HelmChartRepoURL), stringOrEmpty(a.HelmChartName),
		stringOrEmpty(a.HelmChartVersion)
	if chart := stringOrEmpty(a.HelmChart); chart != "" {
		name, version, _ = strings.Cut(chart, ":")
	}
	repository = cmp.Or(stringOrEmpty(a.HelmRepository), repository)
	version = cmp.Or(version, stringOrEmpty(a.Version))
	_, invalid := semver.StrictNewVersion(strings.TrimPrefix(version, "v"))
	switch {
	case stringOrEmpty(a.CACert) != "":
		err = errors.New("has its own caCert, which is not supported: let the manager trust the repository")
	case !slices.ContainsFunc([]string{"https://", "http://", "oci://"},
		func(scheme string) bool { return strings.HasPrefix(repository, scheme) }):
		err = fmt.Errorf("has the chart repository %q: give the URL of one, https://… or oci://…", FirstLine(repository))
	case name == "":
		err = errors.New("names no chart: give its name and version")
	case invalid != nil:
		err = fmt.Errorf("has version %q of chart %q: give an exact version such as 1.2.3", FirstLine(version),
			FirstLine(name))
	}
	return repository, name, version, err
}

// stringOrEmpty returns the value if it is a text, and "" otherwise.
func stringOrEmpty(value any) string {
	s, _ := value.(string)
	return s
}

// ParseDescriptor parses the text of a descriptor. Errors contain ref, the reference of the descriptor.
func ParseDescriptor(data []byte, ref string) (*Descriptor, error) {
	if render.CheckValueCount(data, maxValues) != nil {
		return nil, NewError(InvalidDescriptor, ref,
			"its component descriptor has more than %d values: push the module again", maxValues)
	}
	if render.CheckAliases(data, maxAliasedBytes) != nil {
		return nil, NewError(InvalidDescriptor, ref,
			"its component descriptor has YAML aliases that are invalid or repeat more than %d bytes: write them out",
			maxAliasedBytes)
	}
	var d Descriptor
	if err := yaml.Unmarshal(data, &d); err != nil {
		return nil, NewError(InvalidDescriptor, ref, "its component descriptor is not YAML: %s: push the module again",
			FirstLine(err.Error()))
	}
	switch {
	case d.APIVersion == "ocm.software/v3alpha1":
		d.Component = d.Metadata
		d.Component.Resources, d.Component.Sources, d.Component.References = d.Spec.Resources,
			d.Spec.Sources, d.Spec.References
	case d.APIVersion != "" || d.Meta.SchemaVersion != "v2":
		return nil, NewError(InvalidDescriptor, ref,
			"its component descriptor has schema %q, known are v2 and ocm.software/v3alpha1: convert it",
			d.APIVersion+d.Meta.SchemaVersion)
	}
	return &d, nil
}

// DescriptorSignature is one signature in a component descriptor.
type DescriptorSignature struct {
	Name      string        `json:"name"`
	Digest    ElementDigest `json:"digest"`
	Signature struct {
		Algorithm string `json:"algorithm"`
		MediaType string `json:"mediaType"`
		Value     string `json:"value"`
	} `json:"signature"`
}

// HashOf returns the hash function with this name, for example "SHA-256". If the hash function is not supported, the
// result is 0.
func HashOf(name string) crypto.Hash {
	switch strings.ToLower(name) {
	case "sha-256", "sha256":
		return crypto.SHA256
	case "sha-512", "sha512":
		return crypto.SHA512
	}
	return 0
}
