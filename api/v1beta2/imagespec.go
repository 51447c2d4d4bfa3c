package v1beta2

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// SourceType says in which form a source of objects lies in an OCI registry.
type SourceType string

const (
	// SourceOCIRef is a layer that holds the objects as one file.
	SourceOCIRef SourceType = "oci-ref"
	// SourceOCIDir is a layer that holds the objects as a tar archive.
	SourceOCIDir SourceType = "oci-dir"
)

// ImageSpec says where in an OCI registry the objects of a module are. It is what spec.install.source of a Manifest
// holds.
// +kubebuilder:object:generate=false
type ImageSpec struct {
	// Repo is the registry and the path before the component, for example registry.example.com/modules. A leading http://
	// means a registry without TLS.
	Repo string `json:"repo,omitempty"`
	// Name is the name of the component.
	Name string `json:"name,omitempty"`
	// Ref is a digest (sha256:…) or a tag.
	Ref string `json:"ref,omitempty"`
	// Type is the form of the layer.
	Type SourceType `json:"type,omitempty"`
}

// Encode returns the source in the form of spec.install.source. It fails like DecodeImageSpec.
func (s ImageSpec) Encode() (runtime.RawExtension, error) {
	if err := s.validate(); err != nil {
		return runtime.RawExtension{}, err
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return runtime.RawExtension{}, fmt.Errorf("encoding spec.install.source: %w", err)
	}
	return runtime.RawExtension{Raw: raw}, nil
}

// DecodeImageSpec reads spec.install.source of a Manifest. Fields it does not know are ignored. It returns a
// *SourceError if the source is no JSON object, has a field of a wrong type, lacks repo, name or ref, or is of a type
// other than oci-ref and oci-dir.
func DecodeImageSpec(source runtime.RawExtension) (ImageSpec, error) {
	var s ImageSpec
	if len(source.Raw) == 0 {
		return ImageSpec{}, &SourceError{Message: "it is empty"}
	}
	if err := json.Unmarshal(source.Raw, &s); err != nil {
		return ImageSpec{}, &SourceError{Message: err.Error()}
	}
	if err := s.validate(); err != nil {
		return ImageSpec{}, err
	}
	return s, nil
}

func (s ImageSpec) validate() error {
	switch {
	case s.Type != SourceOCIRef && s.Type != SourceOCIDir:
		return &SourceError{Field: "type", Message: fmt.Sprintf("%q is not a type; use %q or %q", s.Type, SourceOCIRef, SourceOCIDir)}
	case s.Repo == "":
		return &SourceError{Field: "repo", Message: "it is empty; name the registry"}
	case s.Name == "":
		return &SourceError{Field: "name", Message: "it is empty; name the component"}
	case s.Ref == "":
		return &SourceError{Field: "ref", Message: "it is empty; give a digest or a tag"}
	}
	return nil
}

// SourceError says what is wrong with spec.install.source of a Manifest.
// +kubebuilder:object:generate=false
type SourceError struct {
	// Field is the field of the source that is wrong, "" for the source as a whole.
	Field string
	// Message says what is wrong with it and what to do.
	Message string
}

// Error names the field and says what is wrong with it.
func (e *SourceError) Error() string {
	if e.Field == "" {
		return "spec.install.source: " + e.Message
	}
	return "spec.install.source." + e.Field + ": " + e.Message
}

// Reason returns ReasonInvalidReference.
func (e *SourceError) Reason() string { return ReasonInvalidReference }
