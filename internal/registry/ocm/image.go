package ocm

import (
	"crypto"
	"strings"

	"sigs.k8s.io/yaml"
)

// ImageArtifactDigest is the name of the normalisation algorithm for the digest of an image manifest.
const ImageArtifactDigest = "ociArtifactDigest/v1"

// EachImage calls visit for every resource in a descriptor that refers to an image in another repository.
func EachImage(descriptor map[string]any, visit func(resource, access map[string]any, image string) error) error {
	of := descriptor
	for _, key := range []string{"component", "spec"} {
		if c, ok := descriptor[key].(map[string]any); ok {
			of = c
		}
	}
	resources, _ := of["resources"].([]any)
	for _, r := range resources {
		resource, _ := r.(map[string]any)
		access, _ := resource["access"].(map[string]any)
		kind, _ := access["type"].(string)
		image, _ := access["imageReference"].(string)
		if image == "" || !(Access{Type: kind}).IsImage() {
			continue
		}
		if err := visit(resource, access, image); err != nil {
			return err
		}
	}
	return nil
}

// Image is a resource of a component version that refers to an image in another repository.
type Image struct {
	// Resource is the name of the resource.
	Resource string
	// Reference is the image reference.
	Reference string
	// Digest is the digest of the image in the resource, as "sha256:…". A signature of the component version covers the
	// field Digest. If the resource has no digest, Digest is empty.
	Digest string
}

// Images returns all images to which a component version refers, in the order of the descriptor.
func (a *Artifact) Images() ([]Image, error) {
	text, err := a.ComponentDescriptor()
	if err != nil {
		return nil, err
	}
	var d map[string]any
	if err := yaml.Unmarshal(text, &d); err != nil {
		return nil, a.invalidError("its component descriptor is not YAML: %s", FirstLine(err.Error()))
	}
	var images []Image
	return images, EachImage(d, func(resource, _ map[string]any, reference string) error {
		i := Image{Reference: reference}
		i.Resource, _ = resource["name"].(string)
		stated, _ := resource["digest"].(map[string]any)
		hash, _ := stated["hashAlgorithm"].(string)
		if value, _ := stated["value"].(string); HashOf(hash) == crypto.SHA256 &&
			stated["normalisationAlgorithm"] == ImageArtifactDigest {
			i.Digest = "sha256:" + strings.ToLower(value)
		}
		images = append(images, i)
		return nil
	})
}

// GenericBlobDigest is the name of the normalisation algorithm for the digest of an unchanged blob.
const GenericBlobDigest = "genericBlobDigest/v1"
