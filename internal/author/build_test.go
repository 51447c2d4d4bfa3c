package author

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// TestFolders builds modules from a chart and from a Kustomize directory.
func TestFolders(t *testing.T) {
	cases := map[string]struct {
		files map[string]string
		want  string
	}{
		"Chart": {map[string]string{
			"Chart.yaml": "apiVersion: v2\nname: widget\nversion: 1.0.0\n", "values.yaml": "tag: 1.2.3\n",
			"templates/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: '{{ .Release.Name }}'}\nspec: " +
				"{containers: [{name: a, image: 'example.com/a:{{ .Values.tag }}'}]}\n",
		}, "name: widget"},
		"Kustomize": {map[string]string{
			"kustomization.yaml": "namePrefix: my-\nresources: [pod.yaml]\n",
			"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: widget}\nspec: {containers: [{name: " +
				"a, image: 'example.com/a:1.2.3'}]}\n",
		}, "name: my-widget"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			config := writeModule(t, goodConfigWith("manifest", "manifest: folder"), "x", "")
			for file, text := range c.files {
				path := filepath.Join(filepath.Dir(config), "folder", file)
				if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m, err := Build(t.Context(), Source{File: config, Commit: "0123"})
			if err != nil || !strings.Contains(string(m.Manifest), c.want) || len(m.Images) != 1 {
				t.Errorf("built %+v, %v, want %q", m, err, c.want)
			}
		})
	}
}

// TestInit writes the skeleton of a module and checks that the skeleton can be built without errors and relevant
// warnings.
func TestInit(t *testing.T) {
	dir := t.TempDir()
	if _, err := Init(dir, "example.com/module/red-widget", "a/b"); err != nil {
		t.Fatal(err)
	}
	m, err := Build(t.Context(), Source{File: filepath.Join(dir, "module-config.yaml"), Commit: "0123"})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Lint(nil) {
		if f.Level != content.Info {
			t.Error(f)
		}
	}
	if _, err := Init(dir, "Widget", ""); err == nil {
		t.Error("a bad name is taken")
	}
}

// BenchmarkBuild builds and packs a module whose manifest has 5 MB.
func BenchmarkBuild(b *testing.B) {
	dir := b.TempDir()
	var text strings.Builder
	text.WriteString(strings.NewReplacer("IMAGE", "example.com/widget:2.0.1").Replace(workload))
	for i := 0; text.Len() < 5<<20; i++ {
		fmt.Fprintf(&text, "---\n%s", strings.ReplaceAll(definition, "widgets", fmt.Sprintf("widgets%d", i)))
	}
	if err := os.WriteFile(filepath.Join(dir, "module-config.yaml"), []byte(good), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.yaml"), []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		m, err := Build(b.Context(), Source{File: filepath.Join(dir, "module-config.yaml"), Commit: "0123"})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := ocm.Pack(m.Archive()); err != nil {
			b.Fatal(err)
		}
	}
}

// writeFiles writes files into the folder of a config and its subfolders.
func writeFiles(t *testing.T, config string, files map[string]string) {
	t.Helper()
	for file, text := range files {
		path := filepath.Join(filepath.Dir(config), file)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestChartSettings builds a chart whose objects have no namespace, as is usual: the release determines the namespace.
func TestChartSettings(t *testing.T) {
	config := writeModule(t, goodConfigWith("manifest", "manifest: chart\nchart: {release: web, namespace: shop, createNamespace: true, "+
		"values: values.yaml, disableHooks: true}"), "x", "")
	writeFiles(t, config, map[string]string{
		"values.yaml":      "password: given\n",
		"chart/Chart.yaml": "apiVersion: v2\nname: widget\nversion: 1.0.0\n",
		"chart/templates/all.yaml": `# random values are used only without a given value, and in a hook
---# a document begins here
apiVersion: v1
kind: Secret
metadata: {name: '{{ .Release.Name }}'}
stringData: {password: '{{ default (randAlphaNum 16) .Values.password }}'}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: '{{ .Release.Name }}'}
---
apiVersion: monitoring.example.com/v1
kind: Monitor
metadata: {name: '{{ .Release.Name }}'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: named, namespace: kube-public}
---
apiVersion: batch/v1
kind: Job
metadata: {name: 'migrate-{{ randNumeric 3 }}', annotations: {helm.sh/hook: pre-install}}
`,
	})
	m, err := Build(t.Context(), Source{File: config, Commit: "0123"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range m.Objects {
		got = append(got, content.KindAndNameOf(o))
	}
	want := []string{"Namespace shop", "Secret shop/web", "ConfigMap kube-public/named", "ClusterRole web",
		"Monitor shop/web"}
	if !slices.Equal(got, want) || !strings.Contains(string(m.Manifest), "password: given") {
		t.Errorf("got %q, want %q, in\n%s", got, want, m.Manifest)
	}
}

// TestKubebuilder builds the directory config/default of a project that kubebuilder has created; the directory refers
// to other directories of the project.
func TestKubebuilder(t *testing.T) {
	config := writeModule(t, goodConfigWith("manifest", "manifest: config/default"), "x", "")
	writeFiles(t, config, map[string]string{
		"config/default/kustomization.yaml": "namespace: widget-system\nnamePrefix: widget-\nresources: [../rbac, " +
			"../manager]\npatches: [{path: patch.yaml, target: {kind: Deployment}}]\n",
		"config/default/patch.yaml":      "- {op: add, path: /metadata/labels, value: {a: b}}\n",
		"config/rbac/kustomization.yaml": "resources: [account.yaml]\n",
		"config/rbac/account.yaml":       "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: manager}\n",
		"config/manager/kustomization.yaml": "resources: [manager.yaml]\nimages: [{name: controller, newName: " +
			"example.com/widget, newTag: 2.0.1}]\n",
		"config/manager/manager.yaml": strings.NewReplacer("IMAGE", "controller:latest").Replace(workload),
	})
	for name, root := range map[string]string{"Folder": "", "Given": filepath.Dir(config)} {
		t.Run(name, func(t *testing.T) {
			m, err := Build(t.Context(), Source{File: config, Commit: "0123", Root: root})
			if err != nil || len(m.Objects) != 2 || !slices.Equal(m.Images, []string{"example.com/widget:2.0.1"}) {
				t.Errorf("built %+v, %v", m, err)
			}
		})
	}
	alone := filepath.Join(filepath.Dir(config), "config/default")
	if _, err := Build(t.Context(), Source{File: config, Root: alone}); err == nil ||
		!strings.Contains(err.Error(), "--root") {
		t.Errorf("a root without the other directories: got %v", err)
	}
	if _, err := Build(t.Context(), Source{File: config, Root: t.TempDir()}); err == nil ||
		!strings.Contains(err.Error(), "is not in the folder") {
		t.Errorf("a root that does not contain the manifest: got %v", err)
	}
}

// TestInspect checks that errors of the config, the manifest and the default custom resource are reported together.
func TestInspect(t *testing.T) {
	config := writeModule(t, goodConfigWith("icons", "defaultCR: two.yaml"), "example.com/widget", "")
	m, err := Inspect(t.Context(), Source{File: config, Commit: "0123"})
	if err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprint(m.Lint(nil))
	for _, part := range []string{"icons is missing", "without a tag it means latest", "it holds 2 objects",
		"spec.selector is missing"} {
		if !strings.Contains(all, part) {
			t.Errorf("%q is not in the findings %s", part, all)
		}
	}
	_, err = Build(t.Context(), Source{File: config, Commit: "0123"})
	if problems, ok := errors.AsType[Problems](err); !ok || len(problems) != 3 {
		t.Errorf("got %v", err)
	}
}

// TestInspectAddresses checks that a module-config of another person sends no request to this machine.
func TestInspectAddresses(t *testing.T) {
	var requests atomic.Int32
	count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	plain, secure := httptest.NewServer(count), httptest.NewTLSServer(count)
	defer plain.Close()
	defer secure.Close()
	for at, want := range map[string]string{plain.URL: "does not begin with https://",
		secure.URL: "its address 127.0.0.1 is a loopback address: the module-config names this address"} {
		for _, key := range []string{"manifest", "defaultCR"} {
			config := strings.Replace(good, "manifest: manifest.yaml", "manifest: manifest.yaml\ndefaultCR: cr.yaml", 1)
			config = strings.Replace(config, key+": ", key+": "+at+"/", 1)
			file := writeModule(t, config, "example.com/widget:1", "")
			m, err := Inspect(t.Context(), Source{File: file, Commit: "0123"})
			if err != nil {
				t.Fatal(err)
			}
			if all := fmt.Sprint(m.Findings); strings.Count(all, key+": ") != 1 || !strings.Contains(all, want) {
				t.Errorf("%s at %s: got the findings %s, want only %q", key, at, all, want)
			}
		}
	}
	if n := requests.Load(); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// TestOutputs checks that an error about the output of a template names the command that shows this output.
func TestOutputs(t *testing.T) {
	config := writeModule(t, goodConfigWith("manifest", "manifest: chart"), "x", "")
	writeFiles(t, config, map[string]string{
		"chart/Chart.yaml":       "apiVersion: v2\nname: widget\nversion: 1.0.0\n",
		"chart/templates/a.yaml": "{{ range until 3 }}\n# {{ . }}\n{{- end }}\na: [\n",
	})
	_, err := Build(t.Context(), Source{File: config, Commit: "0123"})
	if err == nil || !strings.Contains(err.Error(), "klm module render --template widget/templates/a.yaml") {
		t.Errorf("got %v", err)
	}
	texts, err := ChartTemplateOutputs(t.Context(), Source{File: config})
	if err != nil || !strings.HasSuffix(texts["widget/templates/a.yaml"], "# 2\na: [\n") {
		t.Errorf("got %q, %v", texts, err)
	}
}
