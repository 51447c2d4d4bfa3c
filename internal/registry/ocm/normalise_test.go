package ocm

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rich is the text of a descriptor with every kind of element that the normalisation algorithms treat differently.
const rich = `
meta: {schemaVersion: v2}
component:
  name: example.com/app
  version: 1.0.0
  provider: '{"name":"acme","labels":[{"name":"volatile","value":1},{"name":"fixed","value":"p","signing":true}]}'
  labels:
  - {name: volatile, value: a}
  - {name: fixed, value: {b: 1.50, a: [x, "<é>"], none: null}, version: v1, signing: true, mergeAlgorithm: x}
  repositoryContexts: [{type: OCIRegistry, baseUrl: r.io}]
  resources:
  - name: image
    type: ociImage
    version: 1.0.0
    relation: external
    labels: [{name: l1, value: foo}, {name: l2, value: bar, signing: "true"}]
    access: {type: ociArtifact, imageReference: "r.io/app:1"}
    digest: {hashAlgorithm: SHA-256, normalisationAlgorithm: ociArtifactDigest/v1, value: aa}
  - {name: image, type: ociImage, version: 2.0.0, relation: external, srcRefs: [{}], access: {type: ociArtifact}}
  - {name: gone, type: plainText, version: 1.0.0, relation: local, extraIdentity: {arch: arm}, access: {type: none}, digest: {hashAlgorithm: x, normalisationAlgorithm: y, value: z}}
  sources:
  - {name: src, type: git, version: 1.0.0, labels: [{name: l1, value: foo}], access: {type: git, repository: r}}
  componentReferences:
  - {name: ref, version: 3.0.0, componentName: example.com/ref, labels: [{name: l1, value: foo}], digest: {hashAlgorithm: SHA-256, normalisationAlgorithm: jsonNormalisation/v2, value: bb}}
`

// TestNormalise compares the normalised descriptors with the output that the published normalisation algorithms
// require.
func TestNormalise(t *testing.T) {
	canonical := func(first string) string {
		return `{"component":{"componentReferences":[{"componentName":"example.com/ref","digest":{"hashAlgorithm":"SHA-256","normalisationAlgorithm":"jsonNormalisation/v2","value":"bb"},` +
			`"labels":[{"name":"l1","value":"foo"}],"name":"ref","version":"3.0.0"}],` +
			`"labels":[{"name":"fixed","signing":true,"value":{"a":["x","<é>"],"b":1.5},"version":"v1"}],"name":"example.com/app",` +
			`"provider":{"labels":[{"name":"fixed","signing":true,"value":"p"}],"name":"acme"},` +
			`"resources":[{"digest":{"hashAlgorithm":"SHA-256","normalisationAlgorithm":"ociArtifactDigest/v1","value":"aa"},` + first +
			`"labels":[{"name":"l2","signing":"true","value":"bar"}],"name":"image","relation":"external","type":"ociImage","version":"1.0.0"},` +
			`{"name":"image","relation":"external","type":"ociImage","version":"2.0.0"},` +
			`{"extraIdentity":{"arch":"arm"},"name":"gone","relation":"local","type":"plainText","version":"1.0.0"}],` +
			`"sources":[{"name":"src","type":"git","version":"1.0.0"}],"version":"1.0.0"}}`
	}
	v1 := `[{"component":[{"componentReferences":[[{"componentName":"example.com/ref"},{"digest":[{"hashAlgorithm":"SHA-256"},{"normalisationAlgorithm":"jsonNormalisation/v2"},{"value":"bb"}]},` +
		`{"extraIdentity":null},{"name":"ref"},{"version":"3.0.0"}]]},` +
		`{"labels":[[{"name":"fixed"},{"signing":true},{"value":[{"a":["x","\u003cé\u003e"]},{"b":1.5}]},{"version":"v1"}]]},{"name":"example.com/app"},` +
		`{"provider":[{"labels":[[{"name":"fixed"},{"signing":true},{"value":"p"}]]},{"name":"acme"}]},` +
		`{"resources":[[{"digest":[{"hashAlgorithm":"SHA-256"},{"normalisationAlgorithm":"ociArtifactDigest/v1"},{"value":"aa"}]},{"extraIdentity":[{"version":"1.0.0"}]},` +
		`{"labels":[[{"name":"l2"},{"signing":"true"},{"value":"bar"}]]},{"name":"image"},{"relation":"external"},{"type":"ociImage"},{"version":"1.0.0"}],` +
		`[{"extraIdentity":null},{"name":"image"},{"relation":"external"},{"type":"ociImage"},{"version":"2.0.0"}],` +
		`[{"extraIdentity":[{"arch":"arm"}]},{"name":"gone"},{"relation":"local"},{"type":"plainText"},{"version":"1.0.0"}]]},{"version":"1.0.0"}]},{"meta":[{"schemaVersion":"v2"}]}]`
	third := `{"apiVersion":"ocm.software/v3alpha1","kind":"ComponentVersion","metadata":{"name":"a.b/c","version":"1.0.0","provider":{"name":"p","labels":[{"name":"l","value":1}]},
		"labels":[{"name":"m","value":"x"}]},"spec":{"references":[{"name":"r","version":"1","componentName":"a.b/d"}]},"repositoryContexts":[]}`
	for name, tc := range map[string]struct{ reason, text, algorithm, want string }{
		"V1": {"fields become lists, sources are left out", rich, normalisation1, v1},
		"V2": {"the first of two resources with one name gets its version as identity", rich, normalisation2,
			canonical(`"extraIdentity":{"version":"1.0.0"},`)},
		"V3": {"nothing is added", rich, normalisation3, canonical("")},
		"V4": {"the same as v3", rich, Normalisation4alpha1, canonical("")},
		"Schema": {"canonical forms do not depend on the schema", third, Normalisation4alpha1,
			`{"component":{"componentReferences":[{"componentName":"a.b/d","name":"r","version":"1"}],` +
				`"name":"a.b/c","provider":{"name":"p"},"resources":[],"sources":[],"version":"1.0.0"}}`},
		"V1Schema": {"v1 keeps the schema's own fields, and the provider as it is", third, normalisation1,
			`[{"apiVersion":"ocm.software/v3alpha1"},{"kind":"ComponentVersion"},` +
				`{"metadata":[{"name":"a.b/c"},{"provider":[{"labels":[[{"name":"l"},{"value":1}]]},{"name":"p"}]},{"version":"1.0.0"}]},` +
				`{"spec":[{"references":[[{"componentName":"a.b/d"},{"name":"r"},{"version":"1"}]]}]}]`},
		"Provider": {"a name becomes an object",
			"meta: {schemaVersion: v2}\ncomponent: {name: a, version: 1.0.0, provider: internal, creationTime: " +
				"2024-01-02T03:04:05Z}", normalisation2,
			`{"component":{"componentReferences":[],"creationTime":"2024-01-02T03:04:05Z","name":"a","provider":{"name":"internal"},"resources":[],"sources":[],"version":"1.0.0"}}`},
		"V1Provider": {"a name stays one",
			"meta: {schemaVersion: v2}\ncomponent: {name: a, version: 1.0.0, provider: internal}", normalisation1,
			`[{"component":[{"componentReferences":[]},{"name":"a"},{"provider":"internal"},{"resources":[]},{"version":"1.0.0"}]},{"meta":[{"schemaVersion":"v2"}]}]`},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := ParseDescriptor([]byte(tc.text), "r")
			if err != nil {
				t.Fatal(err)
			}
			got, err := Normalise(d, tc.algorithm)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
	if _, err := Normalise(&Descriptor{}, "jsonNormalisation/v9"); err == nil {
		t.Error("an unknown algorithm is taken")
	}
}

// TestNormaliseAsTheTools compares the result with a digest that the command-line tool ocm has printed for a component
// version.
func TestNormaliseAsTheTools(t *testing.T) {
	d, err := ParseDescriptor([]byte(`
meta: {schemaVersion: v2}
component:
  name: github.com/acme.org/helloworld
  version: 1.0.0
  provider: acme.org
  componentReferences: null
  repositoryContexts: null
  sources: null
  resources:
  - {name: mylocalfile, version: 1.0.0, type: blob, relation: local, access: {type: localBlob/v1},
     digest: {hashAlgorithm: SHA-256, normalisationAlgorithm: genericBlobDigest/v1, value: f2ca1bb6c7e907d06dafe4687e579fce76b37e4e93b7605022da52e6ccc26fd2}}
  - {name: image, version: 1.0.0, type: ociImage, relation: external, access: {type: ociArtifact},
     digest: {hashAlgorithm: SHA-256, normalisationAlgorithm: genericBlobDigest/v1, value: 262578cde928d5c9eba3bce079976444f624c13ed0afb741d90d5423877496cb}}
`), "r")
	if err != nil {
		t.Fatal(err)
	}
	form, err := Normalise(d, Normalisation4alpha1)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := DigestOf(form),
		"sha256:a7d15e55e5a9d6c988b73983270d04a33b1b133aa77bd486f4b22f052615fd90"; got != want {
		t.Errorf("got %s, want %s, of %s", got, want, form)
	}
}

// TestDescriptorAliases checks that a small descriptor whose aliases repeat a long text is refused.
func TestDescriptorAliases(t *testing.T) {
	text := func(aliases int) []byte {
		return []byte("meta: {schemaVersion: v2}\ncomponent: {name: a.io/b}\nx: &a " + strings.Repeat("x", 10_000) +
			"\ny: [" + strings.Repeat("*a,", aliases) + "]\n")
	}
	if _, err := ParseDescriptor(text(100), "r"); err != nil {
		t.Errorf("few aliases are refused: %v", err)
	}
	_, err := ParseDescriptor(text(5_000), "r")
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != InvalidDescriptor {
		t.Errorf("got %v", err)
	}
}

// FuzzNormalise checks that Normalise returns valid JSON for every descriptor that ParseDescriptor accepts, and that
// Normalise does not modify the descriptor.
func FuzzNormalise(f *testing.F) {
	f.Add([]byte(rich))
	f.Add([]byte(seedV2))
	f.Add([]byte(seedV3))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := ParseDescriptor(data, "r.io/a:1")
		if err != nil {
			return
		}
		for _, algorithm := range []string{normalisation1, normalisation2, normalisation3, Normalisation4alpha1} {
			first, err := Normalise(d, algorithm)
			if err != nil {
				if strings.Contains(err.Error(), "not supported") {
					t.Fatal(err)
				}
				continue // Normalise refuses the descriptor, as intended
			}
			if !json.Valid(first) {
				t.Fatalf("%s: not JSON: %q", algorithm, first)
			}
			if again, err := Normalise(d, algorithm); err != nil || string(again) != string(first) {
				t.Fatalf("%s: twice is not the same: %q, %q", algorithm, first, again)
			}
		}
	})
}

const seedV2 = `
meta: {schemaVersion: v2}
component:
  name: a
  version: 1.0.0
  resources:
  - {name: raw-manifest, access: {type: localBlob/v1, localReference: "sha256:1", mediaType: application/x-tar}}
  - {name: default-cr, access: {type: localOciBlob, digest: "sha256:2", mediaType: application/octet-stream}}
  - {name: config, access: {type: localBlob}}
  - {name: op, access: {type: ociArtifact, imageReference: r.io/op:1}}
  - {name: op2, access: {type: ociArtifact/v1, imageReference: r.io/op2:1}}
  - {name: op3, access: {type: ociRegistry, imageReference: r.io/op3:1}}
  - {name: other, access: {type: s3, bucket: b}}
`

const seedV3 = `{"apiVersion":"ocm.software/v3alpha1","kind":"ComponentVersion","metadata":{"name":"a","version":"1.0.0"},"repositoryContexts":[],
"spec":{"resources":[{"name":"raw-manifest","access":{"type":"localBlob","localReference":"sha256:1"}},{"name":"op","access":{"type":"ociArtifact","imageReference":"r.io/op:1"}}]}}`

// TestEachImage checks that all types of accesses to images count, and no others.
func TestEachImage(t *testing.T) {
	var resources []any
	want := []string{"ociArtifact", "ociArtifact/v1", "ociRegistry", "ociImage", "OCIImage/v1"}
	for _, kind := range append(slices.Clone(want), "s3", "helm") {
		resources = append(resources, map[string]any{"access": map[string]any{"type": kind, "imageReference": kind}})
	}
	var got []string
	err := EachImage(map[string]any{"component": map[string]any{"resources": resources}},
		func(_, _ map[string]any, image string) error {
			got = append(got, image)
			return nil
		})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
