package author

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
			config := write(t, line("manifest", "manifest: folder"), "x", "")
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

// TestInit writes a skeleton and checks that it can be built without errors and relevant warnings.
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

// BenchmarkBuild builds and packs a module with a manifest of 5 MB.
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
