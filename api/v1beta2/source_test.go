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
		"Layer": {
			reason: "the form of spec.install",
			raw:    `{"repo":"r/s","name":"n","ref":"sha256:a","type":"oci-ref"}`,
			want:   Source{Image: &ImageSpec{Repo: "r/s", Name: "n", Ref: "sha256:a", Type: SourceOCIRef}},
		},
		"Directory": {
			reason: "a tar archive",
			raw:    `{"repo":"r","name":"n","ref":"1","type":"oci-dir"}`,
			want:   Source{Image: &ImageSpec{Repo: "r", Name: "n", Ref: "1", Type: SourceOCIDir}},
		},
		"LayerLogin": {
			reason: "a login of its own",
			raw:    `{"repo":"r","name":"n","ref":"1","type":"oci-ref","credSecretSelector":{"matchLabels":{"a":"b"}}}`,
			want: Source{
				Image: &ImageSpec{Repo: "r", Name: "n", Ref: "1", Type: SourceOCIRef, CredSecretSelector: selector},
			},
		},
		"Chart": {
			reason: "as module authors of 2022 wrote it",
			raw:    `{"url":"https://charts.example.com","chartName":"redis","type":"helm-chart"}`,
			want: Source{
				HelmChart: &HelmChartSpec{URL: "https://charts.example.com", ChartName: "redis", Type: SourceHelmChart},
			},
		},
		"ChartVersion": {
			reason: "a pinned chart",
			raw:    `{"url":"oci://r/charts","chartName":"redis","version":"^1.2","type":"helm-chart","credSecretSelector":{"matchLabels":{"a":"b"}}}`,
			want: Source{
				HelmChart: &HelmChartSpec{URL: "oci://r/charts", ChartName: "redis", Version: "^1.2",
					Type: SourceHelmChart, CredSecretSelector: selector},
			},
		},
		"Kustomize": {
			reason: "empty texts are accepted",
			raw:    `{"path":"/modules/a","url":"","type":"kustomize"}`,
			want:   Source{Kustomize: &KustomizeSpec{"", "/modules/a", SourceKustomize}},
		},
		"KustomizeURL": {
			reason: "a remote target",
			raw:    `{"url":"https://example.com/a?ref=b","type":"kustomize"}`,
			want:   Source{Kustomize: &KustomizeSpec{"https://example.com/a?ref=b", "", SourceKustomize}},
		},
		"UnknownType": {
			reason: "the type says how to read the source",
			raw:    `{"type":"foo"}`,
			want:   Source{},
			field:  "type",
			fails:  true,
		},
		"NoType": {
			reason: "the type says how to read the source",
			raw:    `{"repo":"r","name":"n","ref":"1"}`,
			want:   Source{},
			field:  "type",
			fails:  true,
		},
		"TypeNumber": {reason: "a type is a text", raw: `{"type":1}`, want: Source{}, field: "type", fails: true},
		"UnknownField": {
			reason: "a mistyped field must not be lost",
			raw:    `{"url":"u","chartName":"c","chartVersion":"1","type":"helm-chart"}`,
			want:   Source{},
			field:  "chartVersion",
			fails:  true,
		},
		"OtherCase": {
			reason: "names are exact",
			raw:    `{"URL":"u","chartName":"c","type":"helm-chart"}`,
			want:   Source{},
			field:  "URL",
			fails:  true,
		},
		"FieldOfOther": {
			reason: "each type has its own fields",
			raw:    `{"repo":"r","name":"n","ref":"1","url":"u","type":"oci-ref"}`,
			want:   Source{},
			field:  "url",
			fails:  true,
		},
		"WrongType": {
			reason: "a field of a wrong type",
			raw:    `{"repo":"r","name":"n","ref":1,"type":"oci-ref"}`,
			want:   Source{},
			field:  "ref",
			fails:  true,
		},
		"NoRepo": {
			reason: "a registry is needed",
			raw:    `{"name":"n","ref":"1","type":"oci-ref"}`,
			want:   Source{},
			field:  "repo",
			fails:  true,
		},
		"NoName": {
			reason: "a component is needed",
			raw:    `{"repo":"r","ref":"1","type":"oci-ref"}`,
			want:   Source{},
			field:  "name",
			fails:  true,
		},
		"NoRef": {
			reason: "a digest or tag is needed",
			raw:    `{"repo":"r","name":"n","type":"oci-dir"}`,
			want:   Source{},
			field:  "ref",
			fails:  true,
		},
		"ChartNoURL": {
			reason: "a repository is needed",
			raw:    `{"chartName":"c","type":"helm-chart"}`,
			want:   Source{},
			field:  "url",
			fails:  true,
		},
		"ChartNoName": {
			reason: "a name is needed",
			raw:    `{"url":"u","type":"helm-chart"}`,
			want:   Source{},
			field:  "chartName",
			fails:  true,
		},
		"KustomizeEmpty": {
			reason: "one of path and url is needed",
			raw:    `{"path":"","url":"","type":"kustomize"}`,
			want:   Source{},
			field:  "path",
			fails:  true,
		},
		"KustomizeUnsafe": {
			reason: "charts have versions, kustomizations have not",
			raw:    `{"path":"a","version":"1","type":"kustomize"}`,
			want:   Source{},
			field:  "version",
			fails:  true,
		},
		"NoObject": {reason: "not an object", raw: `"oci-ref"`, want: Source{}, fails: true},
		"Null":     {reason: "nothing at all", raw: `null`, want: Source{}, fails: true},
		"Empty":    {reason: "nothing at all", raw: ``, want: Source{}, fails: true},
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
			if e, ok := errors.AsType[*SourceError](err); !ok || e.Field != tc.field ||
				e.Reason() != ReasonInvalidReference {
				t.Errorf("%s: error is %v, want one of field %q", tc.reason, err, tc.field)
			}
			if _, err := (InstallInfo{Name: "redis",
				Source: runtime.RawExtension{Raw: []byte(tc.raw)}}).Decode(); !strings.HasPrefix(
				err.Error(), `spec.installs["redis"].source`) {
				t.Errorf("error %q does not name the entry", err)
			}
		})
	}
	_, err := DecodeSource(runtime.RawExtension{Raw: []byte(`{"type":"foo"}`)})
	if want := `source.type: "foo" is not a type; use "oci-ref", "oci-dir", "helm-chart" or "kustomize"`; err.Error() !=
		want {
		t.Errorf("got error %q, want %q", err, want)
	}
}

func TestEncodeSource(t *testing.T) {
	for name, s := range map[string]Source{
		"Nothing": {},
		"Two": {
			Image:     &ImageSpec{Repo: "r", Name: "n", Ref: "1", Type: SourceOCIRef},
			Kustomize: &KustomizeSpec{"", "p", SourceKustomize},
		},
		"OtherWay": {HelmChart: &HelmChartSpec{URL: "u", ChartName: "c", Type: SourceOCIRef}},
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

// FuzzSource checks that an encoded source is decoded without changes.
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
			want.Image = &ImageSpec{Repo: a, Name: b, Ref: c, Type: SourceOCIRef, CredSecretSelector: selector}
		case 1:
			want.Image = &ImageSpec{Repo: a, Name: b, Ref: c, Type: SourceOCIDir, CredSecretSelector: selector}
		case 2:
			want.HelmChart = &HelmChartSpec{URL: a, ChartName: b, Version: c, Type: SourceHelmChart,
				CredSecretSelector: selector}
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

// FuzzDecodeSource checks that the decoder never panics, and that every source that it accepts can be encoded.
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
