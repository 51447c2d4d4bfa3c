package ocm

import (
	"encoding/json"

	"github.com/google/go-containerregistry/pkg/v1"
)

// artifactAnnotation of a layer says which resource of the component it is.
const artifactAnnotation = "software.ocm.artifact"

// imageManifest is an image manifest as it was read.
type ImageManifest struct {
	*v1.Manifest
	Raw    []byte
	Digest string
	Ref    string // for people
}

// layerOf returns the digest of the layer that a tag stands for.
func LayerOf(manifest *v1.Manifest, resource, ref string) (string, error) {
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
	return "", NewError(InvalidReference, ref, "none of its %d layers is annotated as resource %q: give the digest of the layer", len(manifest.Layers), resource)
}
