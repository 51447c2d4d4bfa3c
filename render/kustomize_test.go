package render

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const simple = "resources: [a.yaml]\n"

func TestKustomize(t *testing.T) {
	a, err := Load(gzipped(t, archive(t,
		"base/kustomization.yaml", "resources: [a.yaml, deployment.yaml]\n",
		"base/a.yaml", configMap("1"),
		"base/deployment.yaml", deployment,
		"kustomization.yaml", `
resources: [base]
components: [extra]
namePrefix: x-
namespace: ns
images: [{name: europe-docker.pkg.dev/p/op, newName: example.com:5000/op, newTag: "2"}]
labels: [{pairs: {a: b}, fields: [{path: spec/template/metadata/labels, create: true, kind: Deployment}]}]
configMapGenerator: [{name: made, files: [text=files/x.txt], literals: ["url=https://example.com"], options: {disableNameSuffixHash: true}}]
patches:
- path: patches/p.yaml
- target: {kind: ConfigMap, name: a}
  patch: |-
    - {op: add, path: /data/patched, value: "https://example.com"}
transformers:
- |-
  apiVersion: builtin
  kind: AnnotationsTransformer
  metadata: {name: notImportant}
  annotations: {note: hello}
  fieldSpecs: [{path: metadata/annotations, create: true}]
`,
		"patches/p.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {more: \"true\"}\n",
		"files/x.txt", "text",
		"extra/kustomization.yaml",
		"apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources: [c.yaml]\n",
		"extra/c.yaml", object("c", "data: {}\n"))), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := a.Render(t.Context(), Settings{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, o := range bundle.Objects {
		out.Write(o.AppendJSON(nil, o.Namespace, Overlay{}))
		out.WriteString("\n")
	}
	golden(t, "testdata/kustomize.golden.json", out.String())
	if again, err := a.Render(t.Context(), Settings{}, Options{}); err != nil ||
		cmp.Diff(bundle.Digest, again.Digest) != "" {
		t.Errorf("a second build differs: %v", err)
	}
}

func TestKustomizeFails(t *testing.T) {
	plugin := func(apiVersion string) string {
		return "apiVersion: " + apiVersion +
			"\nkind: X\nmetadata:\n  name: x\n  annotations:\n    config.kubernetes.io/function: |\n      exec: " +
			"{path: ./x.sh}\n"
	}
	cases := map[string]fails{
		"HTTP": {
			files:    []string{"kustomization.yaml", "resources: ['https://example.com/a.yaml']"},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"https://example.com/a.yaml", "remote"},
		},
		"GitHub": {
			files:    []string{"kustomization.yaml", "resources: [github.com/a/b]"},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"github.com/a/b"},
		},
		"GitHubThere": {
			reason: "even if there is a folder of that name, Kustomize would clone it",
			files: []string{"kustomization.yaml", "resources: [GitHub.com/a/b]",
				"GitHub.com/a/b/kustomization.yaml", "{}"},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"SSH": {
			files:    []string{"kustomization.yaml", "bases: ['git@example.com:a/b.git']"},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"Query": {
			files:    []string{"kustomization.yaml", "components: ['b?ref=main']"},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"InBase": {
			files: []string{"kustomization.yaml", "resources: [base]", "base/kustomization.yaml",
				"resources: ['https://example.com/a']"},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"base/kustomization.yaml"},
		},
		"Case": {
			reason:   "Kustomize takes any case",
			files:    []string{"kustomization.yaml", "RESOURCES: ['https://example.com/a']"},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"PatchPath": {
			files:    []string{"kustomization.yaml", "patches: [{path: 'https://example.com/p'}]"},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"PatchCase": {
			files:    []string{"kustomization.yaml", "patches: [{PATH: 'HTTPS://example.com/p'}]"},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"Strategic": {
			files:    []string{"kustomization.yaml", "patchesStrategicMerge: ['https://example.com/p']"},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"GeneratorFile": {
			files: []string{"kustomization.yaml",
				"configMapGenerator: [{name: a, files: ['k=https://example.com/p']}]"},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"GeneratorEnv": {
			files:    []string{"kustomization.yaml", "secretGenerator: [{name: a, envs: ['http://example.com/p']}]"},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"OpenAPI": {
			files:    []string{"kustomization.yaml", "openapi: {path: 'https://example.com/p'}"},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"Configurations": {
			files:    []string{"kustomization.yaml", "configurations: ['https://example.com/p']"},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"Replacement": {
			files:    []string{"kustomization.yaml", "replacements: [{path: 'https://example.com/p'}]"},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"Helm": {
			reason:   "Kustomize runs Helm for it",
			files:    []string{"kustomization.yaml", "helmCharts: [{name: a, repo: 'https://example.com'}]"},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"helmCharts"},
		},
		"Outside": {
			files:    []string{"kustomization.yaml", "resources: [../other]"},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"outside"},
		},
		"Absolute": {
			files:    []string{"kustomization.yaml", "resources: [/etc/passwd]"},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"outside"},
		},
		"PatchOutside": {
			files: []string{"kustomization.yaml", "resources: [a.yaml]\npatches: [{path: ../../etc/passwd}]",
				"a.yaml", configMap("1")},
			settings: Settings{},
			want:     InvalidKustomization,
		},
		"Missing": {
			files:    []string{"kustomization.yaml", simple},
			settings: Settings{},
			want:     InvalidKustomization,
			says:     []string{"a.yaml", "add it"},
		},
		"Exec": {
			files:    []string{"kustomization.yaml", "generators: [g.yaml]", "g.yaml", plugin("example.com/v1")},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"g.yaml", "example.com/v1"},
		},
		"ExecInline": {
			files:    []string{"kustomization.yaml", "transformers:\n- |-\n  apiVersion: example.com/v1\n  kind: X\n"},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"ExecValidator": {
			files:    []string{"kustomization.yaml", "validators: [g.yaml]", "g.yaml", plugin("example.com/v1")},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"ExecFolder": {
			files: []string{"kustomization.yaml", "transformers: [t]", "t/kustomization.yaml", "resources: [x.yaml]",
				"t/x.yaml", plugin("example.com/v1")},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"BuiltinHelm": {
			files: []string{"kustomization.yaml",
				"generators:\n- |-\n  apiVersion: builtin\n  kind: HelmChartInflationGenerator\n"},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"BuiltinRemote": {
			files: []string{"kustomization.yaml",
				"transformers:\n- |-\n  apiVersion: builtin\n  kind: PatchTransformer\n  path: " +
					"https://example.com/p\n"},
			settings: Settings{},
			want:     RefusedFeature,
		},
		"Cycle": {
			files:    []string{"kustomization.yaml", "resources: [a]", "a/kustomization.yaml", "resources: [..]"},
			settings: Settings{},
			want:     InvalidKustomization,
			says:     []string{"cycle"},
		},
		"Field": {
			files:    []string{"kustomization.yaml", "resource: [a]"},
			settings: Settings{},
			want:     InvalidKustomization,
			says:     []string{"resource"},
		},
		"NotYAML": {
			files:    []string{"kustomization.yaml", "a: ["},
			settings: Settings{},
			want:     InvalidYAML,
			says:     []string{"kustomization.yaml"},
		},
		"BadObject": {
			files:    []string{"kustomization.yaml", simple, "a.yaml", "a: b"},
			settings: Settings{},
			want:     InvalidKustomization,
			says:     []string{"a.yaml"},
		},
		"Values": {
			files:    []string{"kustomization.yaml", "{}"},
			settings: Settings{Set: []string{"a=b"}},
			want:     InvalidValues,
		},
		"ResourceHasExec": {
			reason:   "an object is an object, whatever its annotations say",
			files:    []string{"kustomization.yaml", simple, "a.yaml", plugin("example.com/v1")},
			settings: Settings{},
			want:     "<nil>",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, err := LoadFolder(folder(tc.files...), Limits{})
			if err == nil {
				_, err = a.Render(t.Context(), tc.settings, Options{})
			}
			if got := reasonOf(err); got != tc.want {
				t.Errorf("got %s, want %s (%s): %v", got, tc.want, tc.reason, err)
			}
			for _, says := range tc.says {
				if err != nil && !strings.Contains(err.Error(), says) {
					t.Errorf("the error does not say %q: %v", says, err)
				}
			}
		})
	}
}

// FuzzKustomize searches for a kustomization that makes Kustomize run git. PATH contains a fake git that records each
// call, which shows whether Kustomize has run git.
func FuzzKustomize(f *testing.F) {
	bin := f.TempDir()
	trap := filepath.Join(bin, "called")
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte("#!/bin/sh\necho \"$@\" >> "+trap+"\nexit 1\n"),
		0o700); err != nil {
		f.Fatal(err)
	}
	f.Setenv("PATH", bin)
	f.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	f.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	f.Add("resources: [a.yaml]\n", configMap("1"))
	f.Add("resources: ['git::https://github.com/a/b', b//c?ref=x]\n", "a: b")
	f.Add("transformers: [a.yaml]\nBASES: [b]\n", "apiVersion: builtin\nkind: PatchTransformer\npath: a\n")
	f.Add("generators: [a.yaml]\nopenapi: {path: a.yaml}\n",
		"apiVersion: builtin\nkind: ConfigMapGenerator\nfiles: [a.yaml]\n")
	f.Fuzz(func(t *testing.T, kustomization, file string) {
		a, err := LoadFolder(folder("kustomization.yaml", kustomization, "a.yaml", file), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.RenderObjects(t.Context(), Settings{}); err != nil && reasonOf(err) == err.Error() {
			t.Errorf("no reason: %v", err)
		}
		if called, err := os.ReadFile(trap); err == nil {
			t.Errorf("git was called: %s", called)
		}
	})
}

// TestKustomizeSchema checks that the schema in one Kustomize directory does not change the result of other builds in
// the same process. With the schema, a patch merges the items of a list; without the schema, it replaces the list.
func TestKustomizeSchema(t *testing.T) {
	const foo = "apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: a}\n"
	const patched = "resources: [foo.yaml, deployment.yaml]\npatches: [{path: p.yaml}, {path: q.yaml}]\n"
	artefactOf := func(kustomization string) *Artefact {
		a, err := LoadFolder(folder("kustomization.yaml", kustomization,
			"foo.yaml", foo+"spec: {items: [{name: a, x: 0}, {name: b}]}\n",
			"p.yaml", foo+"spec: {items: [{name: a, x: 1}]}\n",
			"deployment.yaml", deployment,
			"q.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: op}\n"+
				"spec: {template: {spec: {containers: [{name: extra, image: extra}]}}}\n",
			"schema.json", `{"definitions": {"Foo": {"type": "object",
				"x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Foo"}],
				"properties": {"spec": {"type": "object", "properties": {"items": {"type": "array",
					"items": {"type": "object"}, "x-kubernetes-patch-merge-key": "name",
					"x-kubernetes-patch-strategy": "merge"}}}}}}}`), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	without, with := artefactOf(patched), artefactOf(patched+"openapi: {path: schema.json}\n")
	results := map[*Artefact]string{}
	for i, a := range []*Artefact{without, with, without, with} {
		objects, _, err := a.RenderObjects(t.Context(), Settings{})
		if err != nil {
			t.Fatal(err)
		}
		var items []string
		for _, o := range objects {
			list, _, _ := unstructured.NestedSlice(o.Object, "spec", "items")
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			for _, item := range append(list, containers...) {
				name, _, _ := unstructured.NestedString(item.(map[string]any), "name")
				items = append(items, o.GetKind()+"/"+name)
			}
		}
		got := strings.Join(items, " ")
		if before, again := results[a]; again && before != got {
			t.Errorf("build %d has %q, the first build of the same files had %q", i, got, before)
		}
		results[a] = got
	}
	if strings.Contains(results[without], "Foo/b") || !strings.Contains(results[with], "Foo/b") {
		t.Errorf("without the schema: %q, with the schema: %q", results[without], results[with])
	}
}

// TestKustomizeParallel builds several directories at the same time, to find races with the race detector. Kustomize
// parses its schema in the first build that needs it.
func TestKustomizeParallel(t *testing.T) {
	const foo = "apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: a}\n"
	a, err := LoadFolder(folder("kustomization.yaml", "namespace: ns\nresources: [a.yaml]\npatches: [{path: p.yaml}]\n",
		"a.yaml", foo, "p.yaml", foo+"spec: {x: 1}\n"), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var builds sync.WaitGroup
	for range 4 {
		builds.Go(func() {
			if objects, _, err := a.RenderObjects(t.Context(), Settings{}); err != nil || len(objects) != 1 {
				t.Errorf("got %d objects, %v", len(objects), err)
			}
		})
	}
	builds.Wait()
}

func TestKustomizeTimeout(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a, err := LoadFolder(folder("kustomization.yaml", simple, "a.yaml", configMap("1")), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.RenderObjects(ctx, Settings{}); reasonOf(err) != RenderTimeout ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestLoadFolderIn loads the directory config/default of a project in the layout of kubebuilder: its kustomization
// refers to sibling directories, such as config/crd.
func TestLoadFolderIn(t *testing.T) {
	root := folder(
		"config/default/kustomization.yaml", "namespace: sys\nnamePrefix: op-\nresources: [../crd, ../rbac, ../manager]\n"+
			"components: [../network]\npatches: [{path: patch.yaml, target: {kind: ConfigMap}}]\n",
		"config/default/patch.yaml", "- {op: add, path: /data/patched, value: \"1\"}\n",
		"config/crd/kustomization.yaml", "resources: [bases/c.yaml]\n", "config/crd/bases/c.yaml", object("c", "data: {}\n"),
		"config/rbac/kustomization.yaml", "resources: [r.yaml]\n", "config/rbac/r.yaml", object("r", "data: {}\n"),
		"config/manager/kustomization.yaml", "resources: [m.yaml, ../../shared/base]\n",
		"config/manager/m.yaml", object("m", "data: {}\n"),
		"config/network/kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"+
			"resources: [n.yaml]\n", "config/network/n.yaml", object("n1", "data: {}\n"),
		"shared/base/kustomization.yaml", simple, "shared/base/a.yaml", configMap("1"),
		"other/large.bin", strings.Repeat("x", 1000))
	a, err := LoadFolderIn(root, "config/default", Limits{MaxBytes: 900})
	if err != nil {
		t.Fatal(err)
	}
	objects, _, err := a.RenderObjects(t.Context(), Settings{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		got = append(got, o.GetNamespace()+"/"+o.GetName())
	}
	want := []string{"sys/op-c", "sys/op-r", "sys/op-m", "sys/op-a", "sys/op-n1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// If only the folder config/default is loaded, the artefact does not contain the other directories to which the
	// folder refers. The error must recommend --root.
	own, err := fs.Sub(root, "config/default")
	if err != nil {
		t.Fatal(err)
	}
	alone, err := LoadFolder(own, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := alone.RenderObjects(t.Context(), Settings{}); reasonOf(err) != RefusedFeature ||
		!strings.Contains(err.Error(), "--root") {
		t.Errorf("got %v", err)
	}
	outside := folder("a/kustomization.yaml", "resources: [../../b]\n")
	a, err = LoadFolderIn(outside, "a", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.RenderObjects(t.Context(), Settings{}); reasonOf(err) != RefusedFeature {
		t.Errorf("got %v", err)
	}
}
