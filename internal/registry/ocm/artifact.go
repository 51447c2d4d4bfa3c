package ocm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// Artifact is a manifest with all blobs to which it refers, byte for byte. An Artifact is a component version, or a
// signature of a component version.
type Artifact struct {
	// Repository is the repository of the artifact, without the registry and the path of the registry. For a component
	// version, the repository is component-descriptors/<name>.
	Repository string
	// Tag is the tag of the artifact. If Tag is empty, the artifact has no tag.
	Tag string
	// MediaType is the media type of Manifest. If MediaType is empty, it is the media type of an OCI image manifest.
	MediaType string
	// Manifest has the bytes of the manifest as they are stored.
	Manifest []byte
	// Blobs has the blobs, including the config, by their digests.
	Blobs map[string][]byte
}

// DescriptorRepository returns the repository of a component, relative to the base URL of the registry.
func DescriptorRepository(component string) string { return "component-descriptors/" + component }

// TagOf returns the tag of a component version. A tag cannot contain "+", so the tag contains ".build-" instead.
func TagOf(version string) string { return strings.ReplaceAll(version, "+", ".build-") }

// Digest returns the digest of the manifest.
func (a *Artifact) Digest() string { return DigestOf(a.Manifest) }

// Name returns the name of the component. If the artifact is not in the repository of a component, the name is "".
func (a *Artifact) Name() string {
	component, ok := strings.CutPrefix(a.Repository, "component-descriptors/")
	if !ok {
		return ""
	}
	return component
}

// IsComponent reports whether the artifact is a component version. If the artifact contains only a signature of a
// component version, IsComponent returns false.
func (a *Artifact) IsComponent() bool {
	m, err := a.ParseManifest()
	return err == nil && m.Config.MediaType == ConfigType
}

// Version returns the version of the component. The version is computed from the tag.
func (a *Artifact) Version() string { return strings.Replace(a.Tag, ".build-", "+", 1) }

// ParseManifest returns the parsed manifest of the artefact. If the manifest cannot be parsed, the error has reason
// InvalidDescriptor.
func (a *Artifact) ParseManifest() (*v1.Manifest, error) {
	m, err := v1.ParseManifest(bytes.NewReader(a.Manifest))
	if err != nil {
		return nil, a.invalidError("the manifest is not JSON: %s", FirstLine(err.Error()))
	}
	return m, nil
}

func (a *Artifact) invalidError(format string, args ...any) error {
	return &Error{Ref: a.Repository + ":" + a.Tag, Doing: "reading", Code: InvalidDescriptor,
		Problem: fmt.Sprintf(format, args...)}
}

// AddBlob adds a blob to the artifact and returns the descriptor of the blob.
func (a *Artifact) AddBlob(data []byte, mediaType types.MediaType) v1.Descriptor {
	digest := DigestOf(data)
	a.Blobs[digest] = data
	hash, _ := v1.NewHash(digest) // the digest is always valid
	return v1.Descriptor{MediaType: mediaType, Size: int64(len(data)), Digest: hash}
}

// setContent adds the component descriptor and the config as blobs, and makes the manifest. In the manifest, the
// component descriptor is the first layer; the given layers follow it.
func (a *Artifact) setContent(descriptor map[string]any, layers []v1.Descriptor, annotations map[string]string) error {
	text, err := yaml.Marshal(descriptor)
	if err != nil {
		return fmt.Errorf("encoding the component descriptor: %w", err)
	}
	if text, err = TarFile(descriptorFile, 0, text); err != nil {
		return err
	}
	first := a.AddBlob(text, descriptorType)
	config, err := json.Marshal(map[string]any{"componentDescriptorLayer": map[string]any{"mediaType": first.MediaType,
		"digest": first.Digest, "size": first.Size}})
	if err != nil {
		return fmt.Errorf("encoding the config: %w", err)
	}
	a.Manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: a.AddBlob(config, ConfigType),
		Layers: append([]v1.Descriptor{first}, layers...), Annotations: annotations,
	})
	return err
}

// ComponentDescriptor returns the text of the component descriptor. If the artifact has no component descriptor, the
// error has reason InvalidDescriptor.
func (a *Artifact) ComponentDescriptor() ([]byte, error) {
	m, err := a.ParseManifest()
	if err != nil {
		return nil, err
	}
	var config struct {
		Layer struct {
			Digest string `json:"digest"`
		} `json:"componentDescriptorLayer"`
	}
	data, ok := a.Blobs[m.Config.Digest.String()]
	if !ok || json.Unmarshal(data, &config) != nil || a.Blobs[config.Layer.Digest] == nil {
		return nil, a.invalidError("its config names no component descriptor: it is not a component version")
	}
	return UnpackDescriptor(a.Blobs[config.Layer.Digest], maxDescriptor, a.Repository+":"+a.Tag)
}

// WithEditedDescriptor returns a copy of the artifact with a changed component descriptor. The parameter change is a
// function that edits the decoded descriptor in place.
func (a *Artifact) WithEditedDescriptor(change func(descriptor map[string]any) error) (*Artifact, error) {
	text, err := a.ComponentDescriptor()
	if err != nil {
		return nil, err
	}
	var d map[string]any
	if err := yaml.Unmarshal(text, &d); err != nil {
		return nil, a.invalidError("its component descriptor is not YAML: %s", FirstLine(err.Error()))
	}
	if err := change(d); err != nil {
		return nil, err
	}
	m, err := a.ParseManifest()
	if err != nil {
		return nil, err
	}
	out := &Artifact{Repository: a.Repository, Tag: a.Tag, MediaType: a.MediaType, Blobs: map[string][]byte{}}
	var kept []v1.Descriptor
	for _, l := range m.Layers {
		if strings.Contains(string(l.MediaType), "component-descriptor") {
			continue
		}
		kept = append(kept, l)
		out.Blobs[l.Digest.String()] = a.Blobs[l.Digest.String()]
	}
	return out, out.setContent(d, kept, m.Annotations)
}

// HasRepositoryContext reports whether the descriptor has a repository context. Kyma's lifecycle-manager cannot install
// a component whose descriptor has no repository context.
func (a *Artifact) HasRepositoryContext() (bool, error) {
	text, err := a.ComponentDescriptor()
	if err != nil {
		return false, err
	}
	var d struct {
		Component          struct{ RepositoryContexts []any } `json:"component"`
		RepositoryContexts []any                              `json:"repositoryContexts"`
	}
	if err := yaml.Unmarshal(text, &d); err != nil {
		return false, a.invalidError("its component descriptor is not YAML: %s", FirstLine(err.Error()))
	}
	return len(d.Component.RepositoryContexts)+len(d.RepositoryContexts) > 0, nil
}

// MediaTypeOrDefault returns the media type that the manifest states for a blob, or application/octet-stream if the
// manifest does not contain the blob or cannot be parsed.
func (a *Artifact) MediaTypeOrDefault(digest string) types.MediaType {
	m, err := a.ParseManifest()
	if err != nil {
		return fileType
	}
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if d.Digest.String() == digest {
			return d.MediaType
		}
	}
	return fileType
}

// MissingOrDamagedBlobs returns the digests in the manifest whose blobs are missing or have another content. For
// example, blobs are missing after a transfer that was interrupted.
func (a *Artifact) MissingOrDamagedBlobs() ([]string, error) {
	m, err := a.ParseManifest()
	if err != nil {
		return nil, err
	}
	if m.Config.Digest.Hex == "" {
		return nil, nil
	}
	var missing []string
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if data, ok := a.Blobs[d.Digest.String()]; !ok || DigestOf(data) != d.Digest.String() {
			missing = append(missing, d.Digest.String())
		}
	}
	return missing, nil
}

// DigestOf returns the sha256 digest of data, as in "sha256:…".
func DigestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
