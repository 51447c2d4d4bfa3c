package v1beta2

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SourceType is the kind and format of a source of objects.
type SourceType string

const (
	// SourceOCIRef is a layer in an OCI registry that holds the objects as one file.
	SourceOCIRef SourceType = "oci-ref"
	// SourceOCIDir is a layer in an OCI registry that holds the objects as a tar archive.
	SourceOCIDir SourceType = "oci-dir"
	// SourceHelmChart is a chart in a chart repository or an OCI registry.
	SourceHelmChart SourceType = "helm-chart"
	// SourceKustomize is a directory with a kustomization.
	SourceKustomize SourceType = "kustomize"
)

// ImageSpec is the location of a layer with the objects of a module in an OCI registry.
// +kubebuilder:object:generate=false
type ImageSpec struct {
	// Repo is the registry and the path before the component, for example registry.example.com/modules. If Repo begins
	// with http://, the registry is used without TLS.
	Repo string `json:"repo,omitempty"`
	// Name is the name of the component.
	Name string `json:"name,omitempty"`
	// Ref is a digest (sha256:…) or a tag.
	Ref string `json:"ref,omitempty"`
	// Type is the form of the layer: SourceOCIRef or SourceOCIDir.
	Type SourceType `json:"type,omitempty"`
	// CredSecretSelector selects the Secret of type kubernetes.io/dockerconfigjson with the credentials. If
	// CredSecretSelector is nil, the credentials of the manager are used.
	CredSecretSelector *metav1.LabelSelector `json:"credSecretSelector,omitempty"`
}

// HelmChartSpec is the location of a Helm chart.
// +kubebuilder:object:generate=false
type HelmChartSpec struct {
	// URL is the address of the chart repository (https:// or http://), or of the registry and path that contain the
	// chart (oci://).
	URL string `json:"url,omitempty"`
	// ChartName is the name of the chart.
	ChartName string `json:"chartName,omitempty"`
	// Version is a version, or a range such as ^1.2. If Version is empty, the highest version that is not a pre-release
	// is used.
	Version string `json:"version,omitempty"`
	// Type is SourceHelmChart.
	Type SourceType `json:"type,omitempty"`
	// CredSecretSelector selects the Secret with the credentials. If CredSecretSelector is nil, the credentials of the
	// manager are used.
	CredSecretSelector *metav1.LabelSelector `json:"credSecretSelector,omitempty"`
}

// KustomizeSpec is the location of a kustomization. At least one of URL and Path is set; Path takes precedence over
// URL.
// +kubebuilder:object:generate=false
type KustomizeSpec struct {
	// URL is a remote target of Kustomize.
	URL string `json:"url,omitempty"`
	// Path is a directory in the manager's file system.
	Path string `json:"path,omitempty"`
	// Type is SourceKustomize.
	Type SourceType `json:"type,omitempty"`
}

// Source is the source of the objects of one entry of spec.installs of a Manifest. Exactly one field is set.
// +kubebuilder:object:generate=false
type Source struct {
	// Image is a layer in an OCI registry; the type of the source is oci-ref or oci-dir.
	Image *ImageSpec
	// HelmChart is a chart; the type of the source is helm-chart.
	HelmChart *HelmChartSpec
	// Kustomize is a kustomization; the type of the source is kustomize.
	Kustomize *KustomizeSpec
}

// Sources returns the sources of the module's objects in the order of installation: the element of spec.install if this
// field is set, or else the elements of spec.installs.
func (m *Manifest) Sources() []InstallInfo {
	switch {
	case m == nil:
		return nil
	case m.Spec.Install.Name != "" || len(m.Spec.Install.Source.Raw) > 0:
		return []InstallInfo{m.Spec.Install}
	}
	return m.Spec.Installs
}

// Decode parses the source. If the source is not valid, Decode returns the error of DecodeSource, which then names the
// entry of spec.installs.
func (i InstallInfo) Decode() (Source, error) {
	s, err := DecodeSource(i.Source)
	if e, ok := err.(*SourceError); ok { //nolint:errorlint // it comes from the line above, unwrapped
		e.path = "spec.installs[" + strconv.Quote(i.Name) + "].source"
	}
	return s, err
}

// DecodeSource parses the source of an entry of spec.installs of a Manifest. DecodeSource returns a *SourceError if the
// source is not a JSON object or its type is unknown. DecodeSource also returns a *SourceError if a field is not
// defined for the type or has a wrong type, or if a required field is missing. Field names are case-sensitive.
func DecodeSource(source runtime.RawExtension) (Source, error) {
	raw := source.Raw
	if len(raw) == 0 {
		return Source{}, &SourceError{Message: "it is empty"}
	}
	var head struct {
		Type SourceType `json:"type"`
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return Source{}, &SourceError{Message: "it is no JSON object"}
	}
	if err := json.Unmarshal(fields["type"], &head.Type); err != nil && fields["type"] != nil {
		return Source{}, &SourceError{Field: "type", Message: "it is no text"}
	}
	switch head.Type {
	case SourceOCIRef, SourceOCIDir:
		s := &ImageSpec{}
		return validated(Source{Image: s}, decodeStrict(raw, fields, s, "repo", "name", "ref",
			"type", "credSecretSelector"))
	case SourceHelmChart:
		s := &HelmChartSpec{}
		return validated(Source{HelmChart: s}, decodeStrict(raw, fields, s, "url", "chartName", "version",
			"type", "credSecretSelector"))
	case SourceKustomize:
		s := &KustomizeSpec{}
		return validated(Source{Kustomize: s}, decodeStrict(raw, fields, s, "url", "path", "type"))
	}
	return Source{}, unknownType(head.Type)
}

// validated checks a source that was decoded without error.
func validated(s Source, err error) (Source, error) {
	if err == nil {
		err = s.validate()
	}
	if err != nil {
		return Source{}, err
	}
	return s, nil
}

// decodeStrict decodes the JSON object raw into the struct, and fails if raw has fields that the parameter known does
// not list.
func decodeStrict(raw []byte, fields map[string]json.RawMessage, into any, known ...string) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, name) {
			return &SourceError{Field: name, Message: fmt.Sprintf("there is no such field; use %s",
				joinQuotedWithOr(known))}
		}
	}
	err := json.Unmarshal(raw, into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &SourceError{Field: wrong.Field, Message: fmt.Sprintf(
			"it is a %s, which does not belong there", wrong.Value)}
	}
	if err != nil {
		return &SourceError{Message: err.Error()}
	}
	return nil
}

// Encode returns the source in the form of an entry of spec.installs. Encode returns the same errors as DecodeSource.
func (s Source) Encode() (runtime.RawExtension, error) {
	if err := s.validate(); err != nil {
		return runtime.RawExtension{}, err
	}
	var one any = s.Kustomize
	switch {
	case s.Image != nil:
		one = s.Image
	case s.HelmChart != nil:
		one = s.HelmChart
	}
	raw, err := json.Marshal(one)
	if err != nil {
		return runtime.RawExtension{}, fmt.Errorf("encoding a source: %w", err)
	}
	return runtime.RawExtension{Raw: raw}, nil
}

// Type returns the type of the source, "" if no field is set.
func (s Source) Type() SourceType {
	switch {
	case s.Image != nil:
		return s.Image.Type
	case s.HelmChart != nil:
		return s.HelmChart.Type
	case s.Kustomize != nil:
		return s.Kustomize.Type
	}
	return ""
}

func (s Source) validate() error {
	switch {
	case s.Image != nil && s.HelmChart == nil && s.Kustomize == nil:
		return s.Image.validate("")
	case s.HelmChart != nil && s.Image == nil && s.Kustomize == nil:
		return s.HelmChart.validate()
	case s.Kustomize != nil && s.Image == nil && s.HelmChart == nil:
		return s.Kustomize.validate()
	}
	return &SourceError{Message: "set exactly one of Image, HelmChart and Kustomize"}
}

func (s *HelmChartSpec) validate() error {
	switch {
	case s.Type != SourceHelmChart:
		return unknownType(s.Type)
	case s.URL == "":
		return &SourceError{Field: "url", Message: "it is empty; name the chart repository"}
	case s.ChartName == "":
		return &SourceError{Field: "chartName", Message: "it is empty; name the chart"}
	}
	return nil
}

func (s *KustomizeSpec) validate() error {
	switch {
	case s.Type != SourceKustomize:
		return unknownType(s.Type)
	case s.URL == "" && s.Path == "":
		return &SourceError{Field: "path", Message: "it is empty, and so is url; give one of them"}
	}
	return nil
}

func unknownType(t SourceType) *SourceError {
	return &SourceError{Field: "type", Message: fmt.Sprintf("%q is not a type; use %s", t,
		joinQuotedWithOr([]string{string(SourceOCIRef), string(SourceOCIDir), string(SourceHelmChart),
			string(SourceKustomize)}))}
}

// joinQuotedWithOr joins quoted words for a sentence: "a", "b" or "c".
func joinQuotedWithOr(words []string) string {
	var b []byte
	for i, w := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b = append(b, " or "...)
		case i > 0:
			b = append(b, ", "...)
		}
		b = strconv.AppendQuote(b, w)
	}
	return string(b)
}

// Encode returns the source in the form of spec.install.source. Encode returns the same errors as
// DecodeImageSpecLeniently.
func (s ImageSpec) Encode() (runtime.RawExtension, error) {
	if err := s.validate(pathInstall); err != nil {
		return runtime.RawExtension{}, err
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return runtime.RawExtension{}, fmt.Errorf("encoding spec.install.source: %w", err)
	}
	return runtime.RawExtension{Raw: raw}, nil
}

// DecodeImageSpecLeniently parses spec.install.source of a Manifest. DecodeImageSpecLeniently ignores unknown fields,
// for compatibility. DecodeImageSpecLeniently returns a *SourceError if the source is not a JSON object, a field has a
// wrong type, repo, name or ref is missing, or the type is neither oci-ref nor oci-dir.
func DecodeImageSpecLeniently(source runtime.RawExtension) (ImageSpec, error) {
	var s ImageSpec
	if len(source.Raw) == 0 {
		return ImageSpec{}, &SourceError{path: pathInstall, Message: "it is empty"}
	}
	if err := json.Unmarshal(source.Raw, &s); err != nil {
		return ImageSpec{}, &SourceError{path: pathInstall, Message: err.Error()}
	}
	if err := s.validate(pathInstall); err != nil {
		return ImageSpec{}, err
	}
	return s, nil
}

// pathInstall is the path of the source of a Manifest with spec.install.
const pathInstall = "spec.install.source"

func (s ImageSpec) validate(path string) error {
	switch {
	case s.Type != SourceOCIRef && s.Type != SourceOCIDir:
		return &SourceError{path: path, Field: "type", Message: fmt.Sprintf("%q is not a type; use %q or %q", s.Type,
			SourceOCIRef, SourceOCIDir)}
	case s.Repo == "":
		return &SourceError{path: path, Field: "repo", Message: "it is empty; name the registry"}
	case s.Name == "":
		return &SourceError{path: path, Field: "name", Message: "it is empty; name the component"}
	case s.Ref == "":
		return &SourceError{path: path, Field: "ref", Message: "it is empty; give a digest or a tag"}
	}
	return nil
}

// SourceError reports an invalid source of a Manifest.
// +kubebuilder:object:generate=false
type SourceError struct {
	// Field is the invalid field of the source, "" for the source as a whole.
	Field string
	// Message describes the problem and what to do.
	Message string

	path string // of the source in the Manifest, "" if it was decoded on its own
}

// Error returns the field and the problem.
func (e *SourceError) Error() string {
	path := e.path
	if path == "" {
		path = "source"
	}
	if e.Field != "" {
		path += "." + e.Field
	}
	return path + ": " + e.Message
}

// Reason always returns ReasonInvalidReference.
func (e *SourceError) Reason() string { return ReasonInvalidReference }
