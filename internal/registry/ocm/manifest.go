package ocm

import (
	"encoding/json"

	"github.com/google/go-containerregistry/pkg/v1"
)

// artifactAnnotation is the annotation of a layer that names the resource in the layer.
const artifactAnnotation = "software.ocm.artifact"

// ImageManifest is a parsed image manifest together with its original bytes.
type ImageManifest struct {
	*v1.Manifest
	Raw    []byte
	Digest string
	Ref    string // full reference, for messages
}

// LayerDigestOf returns the digest of the layer that contains a resource. LayerDigestOf chooses the layer whose
// annotation names the resource. If no annotation names the resource and the manifest has only one layer, LayerDigestOf
// chooses that layer.
func LayerDigestOf(manifest *v1.Manifest, resource, ref string) (string, error) {
	for _, layer := range manifest.Layers {
		var artifacts []struct {
			Identity map[string]string `json:"identity"`
		}
		if json.Unmarshal([]byte(layer.Annotations[artifactAnnotation]), &artifacts) == nil {
			for _, a := range artifacts {
				if a.Identity["name"] == resource {
					return layer.Digest.String(), nil
				}
			}
		}
	}
	if len(manifest.Layers) == 1 {
		return manifest.Layers[0].Digest.String(), nil
	}
	return "", NewError(InvalidReference, ref,
		"none of its %d layers is annotated as resource %q: use the digest of the layer",
		len(manifest.Layers), resource)
}
