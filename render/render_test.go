package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/render/input"
)

func parse(t testing.TB, text string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func build(t testing.TB, text string, opts Options) *Bundle {
	t.Helper()
	bundle, err := Build(parse(t, text), opts)
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

func TestAppendJSON(t *testing.T) {
	plain := object("a", "data: {b: '<x>', a: \"1\"}\n")
	cases := map[string]struct {
		reason    string
		in        string
		opts      Options
		namespace string
		over      Overlay
		want      string
	}{
		"Plain": {reason: "only the content of the artefact", in: plain, opts: Options{}, over: Overlay{},
			want: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"1","b":"<x>"}}`},
		"Namespace": {reason: "the caller decides it", in: plain, opts: Options{}, namespace: "n", over: Overlay{},
			want: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n"},"data":{"a":"1","b":"<x>"}}`},
		"NamespaceOfArtefact": {reason: "it is the caller's decision even then",
			in: strings.Replace(plain, "name: a", "name: a\n  namespace: z", 1), opts: Options{}, over: Overlay{},
			want: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"1","b":"<x>"}}`},
		"Options": {reason: "labels and annotations go over those of the artefact",
			in: strings.Replace(plain, "name: a", "name: a\n  labels: {b: old, c: keep}", 1),
			opts: Options{
				Labels:      map[string]string{"b": "new", "a": "first"},
				Annotations: map[string]string{"x": "y"},
			},
			over: Overlay{},
			want: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"x":"y"},"labels":{"a":"first","b":"new","c":"keep"},"name":"a"},"data":{"a":"1","b":"<x>"}}`},
		"Overlay": {reason: "it overrides both", in: strings.Replace(plain, "name: a",
			"name: a\n  labels: {m: old, z: keep}", 1), opts: Options{Labels: map[string]string{"c": "option"}},
			namespace: "n",
			over: Overlay{
				Labels:      map[string]string{"a": "1", "c": "2", "m": "3", "zz": "4"},
				Annotations: map[string]string{"o": "kyma/a"},
			},
			want: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"o":"kyma/a"},"labels":{"a":"1","c":"2","m":"3","z":"keep","zz":"4"},"name":"a","namespace":"n"},"data":{"a":"1","b":"<x>"}}`},
		"Dropped": {reason: "fields that only an API server may set, and status, are not applied", in: `
apiVersion: v1
kind: Pod
metadata:
  name: a
  uid: u
  resourceVersion: "1"
  generation: 2
  creationTimestamp: null
  deletionTimestamp: 2024-01-01T00:00:00Z
  deletionGracePeriodSeconds: 1
  selfLink: /a
  managedFields: [{manager: m}]
  ownerReferences: [{uid: u}]
  finalizers: [f/f]
  labels: null
spec: {x: 1}
status: {phase: Running}
`, opts: Options{}, over: Overlay{},
			want: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","finalizers":["f/f"]},"spec":{"x":1}}`},
		"Numbers": {reason: "kind and digits stay", in: object("a", "x: [1, 1.5, 18446744073709551616, 1e30, -0.0]\n"),
			opts: Options{}, over: Overlay{},
			want: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"x":[1,1.5,18446744073709551616,1e+30,-0]}`},
		"Escapes": {reason: "quotes, control characters and other scripts", in: plain,
			opts: Options{Labels: map[string]string{"a\"\\": "\x01\n\té\u2028😀\xff"}}, namespace: `n"`, over: Overlay{},
			want: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"a\"\\":"\u0001\u000a\u0009é` +
				"\u2028" + `😀` + "\ufffd" + `"},"name":"a","namespace":"n\""},"data":{"a":"1","b":"<x>"}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := build(t, tc.in, tc.opts).Objects[0]
			got := string(o.AppendJSON([]byte("kept:"), tc.namespace, tc.over))
			if got != "kept:"+tc.want {
				t.Errorf("%s:\n got %s\nwant kept:%s", tc.reason, got, tc.want)
			}
			if !json.Valid([]byte(strings.TrimPrefix(got, "kept:"))) {
				t.Errorf("%s: not JSON", tc.reason)
			}
		})
	}
}

// randomTree makes a random JSON value of the types that Parse returns.
func randomTree(r *rand.Rand, depth int) any {
	texts := []string{"", "a", "<&>", "\"\\\x00\u2028", "ü😀", "---\n", "yes"}
	switch n := r.IntN(9); {
	case n == 0:
		return nil
	case n == 1:
		return r.IntN(2) == 0
	case n == 2:
		return r.Int64() - r.Int64()
	case n == 3:
		return r.NormFloat64() * math.Pow(10, float64(r.IntN(40)-20))
	case n == 4:
		return json.Number("9" + fmt.Sprint(r.Uint64()) + fmt.Sprint(r.Uint64()))
	case n == 5 && depth > 0:
		list := make([]any, r.IntN(4))
		for i := range list {
			list[i] = randomTree(r, depth-1)
		}
		return list
	case n <= 7 && depth > 0:
		m := map[string]any{}
		for range r.IntN(4) {
			m[texts[r.IntN(len(texts))]+fmt.Sprint(r.IntN(5))] = randomTree(r, depth-1)
		}
		return m
	}
	return texts[r.IntN(len(texts))]
}

func randomStrings(r *rand.Rand) map[string]string {
	if r.IntN(3) == 0 {
		return nil
	}
	m := map[string]string{}
	for range r.IntN(25) {
		m[fmt.Sprintf("k%d", r.IntN(30))] = fmt.Sprint("v\"", r.IntN(9))
	}
	return m
}

func toAnyMap(m map[string]string) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

// TestRoundTrip checks AppendJSON with random objects. The decoded output of AppendJSON must be the original object,
// with the labels and annotations that the Options and the Overlay add.
func TestRoundTrip(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		metadata := map[string]any{"name": "n", "namespace": "artefact", "finalizers": []any{"f"},
			"custom": randomTree(r, 2), "uid": "u"}
		labels, annotations := randomStrings(r), randomStrings(r)
		if labels != nil {
			metadata["labels"] = toAnyMap(labels)
		}
		if annotations != nil {
			metadata["annotations"] = toAnyMap(annotations)
		}
		in := map[string]any{"apiVersion": "g/v1", "kind": "K", "metadata": metadata, "status": "s",
			"spec": randomTree(r, 5), "data": randomTree(r, 3)}
		before, _ := json.Marshal(in)
		opts := Options{Labels: randomStrings(r), Annotations: randomStrings(r)}
		over := Overlay{Labels: randomStrings(r), Annotations: randomStrings(r)}
		bundle, err := Build([]*unstructured.Unstructured{{Object: in}}, opts)
		if err != nil {
			t.Fatal(err)
		}
		if after, _ := json.Marshal(in); !bytes.Equal(before, after) {
			t.Fatalf("seed %d: Build changed its input", seed)
		}
		encoded := bundle.Objects[0].AppendJSON(nil, "ns", over)
		got, err := Parse(encoded)
		if err != nil {
			t.Fatalf("seed %d: %v in %s", seed, err, encoded)
		}
		want := map[string]any{"apiVersion": "g/v1", "kind": "K", "spec": in["spec"], "data": in["data"]}
		wantMeta := map[string]any{"name": "n", "namespace": "ns", "finalizers": metadata["finalizers"],
			"custom": metadata["custom"]}
		for field, layers := range map[string][]map[string]string{"labels": {labels, opts.Labels, over.Labels},
			"annotations": {annotations, opts.Annotations, over.Annotations}} {
			all := map[string]string{}
			for _, layer := range layers {
				maps.Copy(all, layer)
			}
			if len(all) > 0 {
				wantMeta[field] = toAnyMap(all)
			}
			for key := range all {
				if field == "labels" && bundle.Objects[0].Label(key) != mergeMaps(labels, opts.Labels)[key] ||
					field == "annotations" && bundle.Objects[0].Annotation(key) != mergeMaps(
						annotations, opts.Annotations)[key] {
					t.Fatalf("seed %d: accessor for %s %s is wrong", seed, field, key)
				}
			}
		}
		want["metadata"] = wantMeta
		// AppendJSON writes a float with an integer value without a decimal point, as kubectl does, so it is decoded as
		// an integer. The test compares the objects as JSON texts, which are the same for a float and an integer of
		// equal value.
		wantText, _ := json.Marshal(want)
		fromYAML, err := Parse(append([]byte("---\n"), encoded...))
		if err != nil {
			t.Fatalf("seed %d: as YAML: %v", seed, err)
		}
		for reader, object := range map[string]map[string]any{"JSON": got[0].Object, "YAML": fromYAML[0].Object} {
			if gotText, _ := json.Marshal(object); !bytes.Equal(gotText, wantText) {
				t.Fatalf("seed %d, read as %s:\n got %s\nwant %s", seed, reader, gotText, wantText)
			}
		}
		again, err := Build(got, Options{})
		if err != nil || !bytes.Equal(again.Objects[0].AppendJSON(nil, "ns", Overlay{}), encoded) {
			t.Fatalf("seed %d: building what was built gives other bytes: %v", seed, err)
		}
	}
}

func mergeMaps(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

func TestAppendJSONAllocates(t *testing.T) {
	o := build(t, object("a", "data: {x: y}\n"), Options{Labels: map[string]string{"a": "b", "c": "d"}}).Objects[0]
	over := Overlay{Annotations: map[string]string{"operator.kyma-project.io/owned-by": "kcp-system/a"}}
	room := make([]byte, 0, 4096)
	for name, f := range map[string]func(){
		"Plain":   func() { room = o.AppendJSON(room[:0], "n", Overlay{}) },
		"Overlay": func() { room = o.AppendJSON(room[:0], "n", over) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations with room in the slice, want none", name, n)
		}
	}
	// A call of AppendJSON without room in the slice allocates memory only once. The test accepts two allocations,
	// because slices.Grow allocates twice under the race detector.
	if n := testing.AllocsPerRun(100, func() { o.AppendJSON(nil, "n", Overlay{}) }); n > 2 {
		t.Errorf("%v allocations without room, want 1", n)
	}
}

func TestBuildDeterministic(t *testing.T) {
	text := object("a", "data: {z: 1, y: 2, x: 3, w: {v: 4, u: 5}}\n") + "---\n" + object("b", "")
	opts := Options{Labels: map[string]string{"a": "1", "b": "2", "c": "3"},
		Annotations: map[string]string{"d": "4", "e": "5"}}
	first := build(t, text, opts)
	for range 50 {
		next := build(t, text, opts)
		if next.Digest != first.Digest {
			t.Fatal("the bundle's digest changes")
		}
		for i, o := range next.Objects {
			if o.Digest() != first.Objects[i].Digest() || !bytes.Equal(o.data, first.Objects[i].data) {
				t.Fatalf("the bytes of %s change", o.Name)
			}
		}
	}
}

// TestDigestIsStable fails if the same input results in other bytes than before. If the test fails because the encoding
// was changed on purpose, increase input.EncodingVersion: digests are recorded in Manifests, and a digest that an older
// manager recorded must not match different bytes.
func TestDigestIsStable(t *testing.T) {
	bundle := build(t, deployment+"---\n"+object("a", "data: {x: '<1>'}\n"), Options{
		Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "2"},
		Images: []string{"r.io/p/op:1.0"}, PullSecret: "s",
		Manager: &Manager{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "n", Name: "op"}})
	const want = "sha256:4ad6f26e47f99fc45d632d023cf6925bd2148347f362df2a0696116233e666a0"
	if input.EncodingVersion != "render/1" || bundle.Digest != want {
		t.Errorf("encoding %s gives %s, want %s", input.EncodingVersion, bundle.Digest, want)
	}
}

func TestDigestCovers(t *testing.T) {
	base := Options{Labels: map[string]string{"a": "b"}, Images: []string{"x/y:1"}, PullSecret: "p",
		Manager: &Manager{Name: "m"}, Digest: "sha256:1"}
	text := object("a", "")
	first := build(t, text, base).Digest
	if first != base.ResultingBundleDigest() {
		t.Error("ResultingBundleDigest is not the digest of Build")
	}
	if got := build(t, object("b", ""), base).Digest; got != first {
		t.Error("with the artefact's digest given, content is looked at")
	}
	for name, change := range map[string]func(*Options){
		"Labels":        func(o *Options) { o.Labels = map[string]string{"a": "c"} },
		"LabelKey":      func(o *Options) { o.Labels = map[string]string{"ab": ""} },
		"Annotations":   func(o *Options) { o.Labels, o.Annotations = nil, o.Labels },
		"Images":        func(o *Options) { o.Images = []string{"x/y:2"} },
		"ImageOrder":    func(o *Options) { o.Images = []string{"x/y:1", "z/y:1"} },
		"PullSecret":    func(o *Options) { o.PullSecret = "q" },
		"Manager":       func(o *Options) { o.Manager = &Manager{Name: "n"} },
		"NoManager":     func(o *Options) { o.Manager = nil },
		"Artefact":      func(o *Options) { o.Digest = "sha256:2" },
		"FromTheObject": func(o *Options) { o.Digest = "" },
	} {
		opts := base
		change(&opts)
		if build(t, text, opts).Digest == first {
			t.Errorf("%s: the digest stays", name)
		}
	}
	if (Options{}).ResultingBundleDigest() != "" {
		t.Error("without the artefact's digest, BundleDigest must be empty")
	}
	byContent := map[string]string{}
	for name, text := range map[string]string{
		"a": object("a", ""), "b": object("b", ""), "ab": object("a", "") + "---\n" + object("b", ""),
		"ba":   object("b", "") + "---\n" + object("a", ""),
		"Data": object("a", "data: {}\n"), "Namespace": strings.Replace(object("a", ""), "name: a",
			"name: a\n  namespace: x", 1), "None": "",
	} {
		digest := build(t, text, Options{}).Digest
		if other, ok := byContent[digest]; ok {
			t.Errorf("%s and %s have one digest", name, other)
		}
		byContent[digest] = name
	}
}

func TestBuildDuplicates(t *testing.T) {
	same := object("a", "data: {x: 1}\n")
	bundle := build(t, same+"---\n"+object("b", "")+"---\n"+same, Options{})
	if len(bundle.Objects) != 2 || bundle.Objects[0].Name != "a" || bundle.Objects[1].Name != "b" {
		t.Errorf("equal duplicates are not one: %v", bundle.Objects)
	}
	if bundle.Digest != build(t, same+"---\n"+object("b", ""), Options{}).Digest {
		t.Error("a duplicate changes the digest")
	}
	for name, text := range map[string]string{
		"Content":    object("a", "data: {x: 2}\n"),
		"APIVersion": strings.Replace(same, "apiVersion: v1", "apiVersion: v2", 1),
	} {
		_, err := Build(parse(t, same+"---\n"+text), Options{})
		if e, ok := errors.AsType[*Error](err); !ok || e.Reason() != DuplicateObject || e.Object != "ConfigMap a" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	other := strings.Replace(object("a", "data: {x: 2}\n"), "name: a", "name: a\n  namespace: ns", 1)
	if len(build(t, same+"---\n"+other, Options{}).Objects) != 2 {
		t.Error("objects of two namespaces are not two")
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, in := range map[string]map[string]any{
		"Nothing":    nil,
		"NoName":     {"apiVersion": "v1", "kind": "A", "metadata": map[string]any{}},
		"Body":       {"apiVersion": "v1", "kind": "A", "metadata": map[string]any{"name": "a"}, "x": math.NaN()},
		"Metadata":   {"apiVersion": "v1", "kind": "A", "metadata": map[string]any{"name": "a", "x": math.Inf(1)}},
		"NoJSONType": {"apiVersion": "v1", "kind": "A", "metadata": map[string]any{"name": "a"}, "x": func() {}},
	} {
		_, err := Build([]*unstructured.Unstructured{{Object: in}}, Options{})
		if e, ok := errors.AsType[*Error](err); !ok || e.Reason() != InvalidObject {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestCRD(t *testing.T) {
	const text = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: samples.operator.example.com}
spec:
  group: operator.example.com
  scope: Namespaced
  names: {kind: Sample, plural: samples}
  versions:
  - {name: v1, served: true, storage: true}
  - {name: v1beta1, served: true}
  - {name: v1alpha1, served: false}
status: {storedVersions: [v1]}
`
	got, ok := build(t, text, Options{}).Objects[0].CRD()
	want := CRD{Group: "operator.example.com", Kind: "Sample", Plural: "samples", Namespaced: true,
		Versions: []string{"v1", "v1beta1"}}
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got, ok := build(t, strings.Replace(text, "Namespaced", "Cluster", 1), Options{}).Objects[0].CRD(); !ok ||
		got.Namespaced {
		t.Error("a kind of cluster scope is taken for a namespaced one")
	}
	for name, text := range map[string]string{
		"NoGroup":    strings.Replace(text, "group:", "other:", 1),
		"OtherGroup": strings.Replace(text, "apiextensions.k8s.io/v1", "x/v1", 1),
		"OtherKind":  strings.Replace(text, "kind: CustomResourceDefinition", "kind: X", 1),
		"NoSpec":     "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\n",
	} {
		if _, ok := build(t, text, Options{}).Objects[0].CRD(); ok {
			t.Errorf("%s: taken for a CRD", name)
		}
	}
}

func TestObjectAccessors(t *testing.T) {
	o := build(t, strings.Replace(object("a", ""), "name: a",
		"name: a\n  namespace: ns\n  labels: {b: x, a: z}\n  annotations: {c: z}", 1), Options{}).Objects[0]
	if o.Label("a") != "z" || o.Label("b") != "x" || o.Label("c") != "" ||
		o.Annotation("c") != "z" || o.Annotation("a") != "" {
		t.Error("labels or annotations are not found")
	}
	if o.GVK.Kind != "ConfigMap" || o.GVK.Version != "v1" || o.Namespace != "ns" || o.Name != "a" {
		t.Errorf("identity is %v %s/%s", o.GVK, o.Namespace, o.Name)
	}
	if o.Size() != len(o.AppendJSON(nil, "", Overlay{})) || !strings.HasPrefix(o.Digest(), "sha256:") {
		t.Error("Size or Digest is wrong")
	}
}

// largeDeployment is a Deployment with the size of a typical operator's Deployment.
func largeDeployment() string {
	var env []string
	for i := range 40 {
		env = append(env, fmt.Sprintf("        - {name: VARIABLE_%d, value: \"some value of ordinary length %d\"}", i,
			i))
	}
	slices.Sort(env)
	return deployment + "        env:\n" + strings.Join(env, "\n") + "\n"
}

func BenchmarkAppendJSON(b *testing.B) {
	o := build(b, largeDeployment(), Options{Labels: map[string]string{"app.kubernetes.io/part-of": "x",
		"operator.kyma-project.io/managed-by": "kyma"}}).Objects[0]
	room := make([]byte, 0, 2*o.Size())
	for name, over := range map[string]Overlay{
		"Plain":   {},
		"Overlay": {Annotations: map[string]string{"operator.kyma-project.io/owned-by": "kcp-system/kyma-sample"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(o.Size()))
			for b.Loop() {
				room = o.AppendJSON(room[:0], "kyma-system", over)
			}
		})
	}
}

// BenchmarkMarshal measures the work that AppendJSON saves: without AppendJSON, the tree of an object would be copied
// and encoded for each runtime.
func BenchmarkMarshal(b *testing.B) {
	in := parse(b, largeDeployment())[0]
	b.ReportAllocs()
	for b.Loop() {
		o := in.DeepCopy()
		o.SetNamespace("kyma-system")
		o.SetAnnotations(map[string]string{"operator.kyma-project.io/owned-by": "kcp-system/kyma-sample"})
		if _, err := o.MarshalJSON(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	var text strings.Builder
	for i := range 50 {
		text.WriteString("---\n" + strings.Replace(largeDeployment(), "name: op\n", fmt.Sprintf("name: op-%d\n", i), 1))
	}
	b.ReportAllocs()
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		build(b, text.String(), Options{Digest: "sha256:1"})
	}
}

// object returns the YAML of a minimal ConfigMap, followed by the YAML in the parameter more.
func object(name, more string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n" + more
}

// names returns the kinds and names of objects.
func names(objects []*unstructured.Unstructured) string {
	var all []string
	for _, o := range objects {
		all = append(all, o.GetKind()+"/"+o.GetName())
	}
	return strings.Join(all, " ")
}
