package ocm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// maxDescriptor is the maximum size of a descriptor in an Artifact. For pulled components, registry.Options defines the
// maximum size.
const maxDescriptor = 1 << 20

// descriptorFile is the name of the component descriptor in its tar archive.
const descriptorFile = "component-descriptor.yaml"

// DescriptorRoom is the number of bytes by which a packed descriptor may be larger than the limit of the unpacked
// descriptor.
const DescriptorRoom = 1 << 20

// UnpackDescriptor returns the YAML or JSON text of a descriptor layer. The layer is the text, or a tar archive that
// may be compressed.
func UnpackDescriptor(data []byte, limit int64, ref string) ([]byte, error) {
	tooLarge := NewError(ArtifactTooLarge, ref,
		"its component descriptor is larger than %d bytes: make it smaller or raise the limit", limit)
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
// parsing, Component contains the content of both schemas.
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

// Access is the location of a resource.
type Access struct {
	Type           string `json:"type"`
	MediaType      string `json:"mediaType"`
	LocalReference string `json:"localReference"`
	Digest         string `json:"digest"` // only for localOciBlob
	ImageReference string `json:"imageReference"`
}

// IsLocal reports whether the content is a blob of the component version.
func (a Access) IsLocal() bool {
	return slices.Contains([]string{"localBlob", "localBlob/v1", "localOciBlob", "localOciBlob/v1"}, a.Type)
}

// ParseDescriptor parses the text of a descriptor. Errors contain ref as the reference of the descriptor.
func ParseDescriptor(data []byte, ref string) (*Descriptor, error) {
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

// HashOf returns the hash function with this name, for example "SHA-256". The result is 0 if the hash function is not
// supported.
func HashOf(name string) crypto.Hash {
	switch strings.ToLower(name) {
	case "sha-256", "sha256":
		return crypto.SHA256
	case "sha-512", "sha512":
		return crypto.SHA512
	}
	return 0
}
