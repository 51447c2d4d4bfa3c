package v1beta2

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestDecodeSource(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	tests := map[string]struct {
		reason string
		raw    string
		want   Source
		field  string // of the error
		fails  bool
	}{
		"Layer":           {"the form of spec.install", `{"repo":"r/s","name":"n","ref":"sha256:a","type":"oci-ref"}`, Source{Image: &ImageSpec{"r/s", "n", "sha256:a", SourceOCIRef, nil}}, "", false},
		"Directory":       {"a tar archive", `{"repo":"r","name":"n","ref":"1","type":"oci-dir"}`, Source{Image: &ImageSpec{"r", "n", "1", SourceOCIDir, nil}}, "", false},
		"LayerLogin":      {"a login of its own", `{"repo":"r","name":"n","ref":"1","type":"oci-ref","credSecretSelector":{"matchLabels":{"a":"b"}}}`, Source{Image: &ImageSpec{"r", "n", "1", SourceOCIRef, selector}}, "", false},
		"Chart":           {"as module authors of 2022 wrote it", `{"url":"https://charts.example.com","chartName":"redis","type":"helm-chart"}`, Source{HelmChart: &HelmChartSpec{"https://charts.example.com", "redis", "", SourceHelmChart, nil}}, "", false},
		"ChartVersion":    {"a pinned chart", `{"url":"oci://r/charts","chartName":"redis","version":"^1.2","type":"helm-chart","credSecretSelector":{"matchLabels":{"a":"b"}}}`, Source{HelmChart: &HelmChartSpec{"oci://r/charts", "redis", "^1.2", SourceHelmChart, selector}}, "", false},
		"Kustomize":       {"empty texts are accepted", `{"path":"/modules/a","url":"","type":"kustomize"}`, Source{Kustomize: &KustomizeSpec{"", "/modules/a", SourceKustomize}}, "", false},
		"KustomizeURL":    {"a remote target", `{"url":"https://example.com/a?ref=b","type":"kustomize"}`, Source{Kustomize: &KustomizeSpec{"https://example.com/a?ref=b", "", SourceKustomize}}, "", false},
		"UnknownType":     {"the type says how to read the source", `{"type":"foo"}`, Source{}, "type", true},
		"NoType":          {"the type says how to read the source", `{"repo":"r","name":"n","ref":"1"}`, Source{}, "type", true},
		"TypeNumber":      {"a type is a text", `{"type":1}`, Source{}, "type", true},
		"UnknownField":    {"a mistyped field must not be lost", `{"url":"u","chartName":"c","chartVersion":"1","type":"helm-chart"}`, Source{}, "chartVersion", true},
		"OtherCase":       {"names are exact", `{"URL":"u","chartName":"c","type":"helm-chart"}`, Source{}, "URL", true},
		"FieldOfOther":    {"each type has its own fields", `{"repo":"r","name":"n","ref":"1","url":"u","type":"oci-ref"}`, Source{}, "url", true},
		"WrongType":       {"a field of a wrong type", `{"repo":"r","name":"n","ref":1,"type":"oci-ref"}`, Source{}, "ref", true},
		"NoRepo":          {"a registry is needed", `{"name":"n","ref":"1","type":"oci-ref"}`, Source{}, "repo", true},
		"NoName":          {"a component is needed", `{"repo":"r","ref":"1","type":"oci-ref"}`, Source{}, "name", true},
		"NoRef":           {"a digest or tag is needed", `{"repo":"r","name":"n","type":"oci-dir"}`, Source{}, "ref", true},
		"ChartNoURL":      {"a repository is needed", `{"chartName":"c","type":"helm-chart"}`, Source{}, "url", true},
		"ChartNoName":     {"a name is needed", `{"url":"u","type":"helm-chart"}`, Source{}, "chartName", true},
		"KustomizeEmpty":  {"one of path and url is needed", `{"path":"","url":"","type":"kustomize"}`, Source{}, "path", true},
		"KustomizeUnsafe": {"charts have versions, kustomizations have not", `{"path":"a","version":"1","type":"kustomize"}`, Source{}, "version", true},
		"NoObject":        {"not an object", `"oci-ref"`, Source{}, "", true},
		"Null":            {"nothing at all", `null`, Source{}, "", true},
		"Empty":           {"nothing at all", ``, Source{}, "", true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeSource(runtime.RawExtension{Raw: []byte(tc.raw)})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: source differs (-want +got):\n%s", tc.reason, diff)
			}
			if (err != nil) != tc.fails {
				t.Fatalf("%s: error is %v", tc.reason, err)
			}
			if !tc.fails {
				return
			}
			if e, ok := errors.AsType[*SourceError](err); !ok || e.Field != tc.field || e.Reason() != ReasonInvalidReference {
				t.Errorf("%s: error is %v, want one of field %q", tc.reason, err, tc.field)
			}
			if _, err := (InstallInfo{Name: "redis", Source: runtime.RawExtension{Raw: []byte(tc.raw)}}).Decode(); !strings.HasPrefix(err.Error(), `spec.installs["redis"].source`) {
				t.Errorf("error %q does not name the entry", err)
			}
		})
	}
	_, err := DecodeSource(runtime.RawExtension{Raw: []byte(`{"type":"foo"}`)})
	if want := `source.type: "foo" is not a type; use "oci-ref", "oci-dir", "helm-chart" or "kustomize"`; err.Error() != want {
		t.Errorf("got error %q, want %q", err, want)
	}
}

func TestEncodeSource(t *testing.T) {
	for name, s := range map[string]Source{
		"Nothing":  {},
		"Two":      {Image: &ImageSpec{"r", "n", "1", SourceOCIRef, nil}, Kustomize: &KustomizeSpec{"", "p", SourceKustomize}},
		"OtherWay": {HelmChart: &HelmChartSpec{"u", "c", "", SourceOCIRef, nil}},
		"Bare":     {Kustomize: &KustomizeSpec{Path: "p"}},
	} {
		if raw, err := s.Encode(); err == nil {
			t.Errorf("%s: encoded as %s", name, raw.Raw)
		}
	}
	if got := (Source{}).Type(); got != "" {
		t.Errorf("the type of nothing is %q", got)
	}
}

// FuzzSource checks that what is encoded is decoded as it was.
func FuzzSource(f *testing.F) {
	f.Add(byte(0), "registry.example.com/modules", "kyma-project.io/module/keda", "sha256:0123", "team")
	f.Add(byte(1), "r", "n", "1.0.0", "")
	f.Add(byte(2), "https://charts.example.com", "redis", "^1", "")
	f.Add(byte(3), "", "n\x00", "\"", "<&>")
	f.Fuzz(func(t *testing.T, kind byte, a, b, c, label string) {
		if !utf8.ValidString(a) || !utf8.ValidString(b) || !utf8.ValidString(c) || !utf8.ValidString(label) {
			return // JSON holds nothing else
		}
		var selector *metav1.LabelSelector
		if label != "" {
			selector = &metav1.LabelSelector{MatchLabels: map[string]string{label: label}}
		}
		var want Source
		switch kind % 4 {
		case 0:
			want.Image = &ImageSpec{a, b, c, SourceOCIRef, selector}
		case 1:
			want.Image = &ImageSpec{a, b, c, SourceOCIDir, selector}
		case 2:
			want.HelmChart = &HelmChartSpec{a, b, c, SourceHelmChart, selector}
		case 3:
			want.Kustomize = &KustomizeSpec{a, b, SourceKustomize}
		}
		raw, err := want.Encode()
		if err != nil {
			if a != "" && b != "" && c != "" {
				t.Fatalf("encoding %+v: %v", want, err)
			}
			return
		}
		got, err := DecodeSource(raw)
		if err != nil {
			t.Fatalf("decoding %s: %v", raw.Raw, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("source differs (-want +got):\n%s", diff)
		}
		if got.Type() != want.Type() {
			t.Errorf("type is %q, want %q", got.Type(), want.Type())
		}
	})
}

// FuzzDecodeSource checks that no bytes break the decoder, and that what it accepts can be encoded.
func FuzzDecodeSource(f *testing.F) {
	f.Add([]byte(`{"repo":"r","name":"n","ref":"1","type":"oci-ref"}`))
	f.Add([]byte(`{"type":"foo"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := DecodeSource(runtime.RawExtension{Raw: raw})
		if err != nil {
			return
		}
		again, err := s.Encode()
		if err != nil {
			t.Fatalf("%s was accepted, but cannot be encoded: %v", raw, err)
		}
		if !json.Valid(again.Raw) {
			t.Errorf("%s is no JSON", again.Raw)
		}
	})
}

func TestSources(t *testing.T) {
	one := InstallInfo{Name: RawManifest, Source: runtime.RawExtension{Raw: []byte(`{}`)}}
	other := InstallInfo{Name: "redis", Source: one.Source}
	var none *Manifest
	got := [][]InstallInfo{
		none.Sources(),
		(&Manifest{}).Sources(),
		(&Manifest{Spec: ManifestSpec{Install: one}}).Sources(),
		(&Manifest{Spec: ManifestSpec{Installs: []InstallInfo{other, one}}}).Sources(),
	}
	if diff := cmp.Diff([][]InstallInfo{nil, nil, {one}, {other, one}}, got); diff != "" {
		t.Errorf("sources differ (-want +got):\n%s", diff)
	}
}
