package author

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestConstructor writes component constructors and checks that their paths refer to the same content as the archive.
func TestConstructor(t *testing.T) {
	cases := map[string]struct {
		reason   string
		manifest string
		want     string // path of the manifest in the constructor
	}{
		"File":  {"a file is named where it is", "manifest.yaml", "../manifest.yaml"},
		"Chart": {"what was rendered is written beside", "chart", "constructor-raw-manifest.yaml"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			config := writeModule(t, goodConfigWith("manifest", "manifest: "+c.manifest)+"defaultCR: cr.yaml\n",
				"example.com/widget:2.0.1", "")
			folder := filepath.Dir(config)
			chart := map[string]string{
				"chart/Chart.yaml": "apiVersion: v2\nname: widget\nversion: 1.0.0\n",
				"chart/templates/a.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: " +
					"[{name: a, image: 'example.com/widget:2.0.1'}]}\n",
				"out/constructor.yaml": "from before",
			}
			for file, text := range chart {
				path := filepath.Join(folder, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m, err := Build(t.Context(), Source{File: config, Commit: "0123"})
			if err != nil {
				t.Fatal(err)
			}
			template := filepath.Join(folder, "template.yaml")
			if err := os.WriteFile(template, m.Template, 0o600); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(folder, "out", "constructor.yaml")
			if err := m.WriteConstructor(file, template); err != nil {
				t.Fatal(err)
			}
			got := inputsOf(t, file)
			if diff := cmp.Diff(map[string]string{"raw-manifest": c.want, "default-cr": "../cr.yaml",
				"moduletemplate": "../template.yaml"}, got); diff != "" {
				t.Errorf("%s: inputs (-want +got):\n%s", c.reason, diff)
			}
			for resource, want := range map[string][]byte{"raw-manifest": m.Manifest, "default-cr": m.defaultCR,
				"moduletemplate": m.Template} {
				if data, err := os.ReadFile(filepath.Join(folder, "out", got[resource])); err != nil ||
					string(data) != string(want) {
					t.Errorf("%s: %s is %q, %v, want %q", c.reason, resource, data, err, want)
				}
			}
		})
	}
}

// inputsOf returns the paths of the input files in a component constructor, by resource. inputsOf fails the test if the
// constructor does not have the format of modulectl.
func inputsOf(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	type input struct {
		Type, Path   string
		IncludeFiles []string
	}
	type resource struct {
		Name, Type, Version, Relation string
		Labels                        []map[string]any
		Access                        map[string]string
		Input                         *input
	}
	var all struct {
		Components []struct {
			Name, Version string
			Provider      struct {
				Name   string
				Labels []map[string]string
			}
			Labels    []map[string]any
			Resources []resource
			Sources   []map[string]any
		}
	}
	if err := yaml.UnmarshalStrict(text, &all); err != nil || len(all.Components) != 1 {
		t.Fatalf("%v in\n%s", err, text)
	}
	c := all.Components[0]
	if c.Name != "example.com/module/widget" || c.Version != "2.0.1" || c.Provider.Name != "kyma-project.io" ||
		len(c.Provider.Labels) != 1 || len(c.Labels) != 6 || len(c.Sources) != 1 {
		t.Errorf("the component is %+v", c)
	}
	inputs := map[string]string{}
	for _, r := range c.Resources {
		switch {
		case r.Input == nil:
			if r.Name != "widget" || r.Relation != "external" ||
				r.Access["imageReference"] != "example.com/widget:2.0.1" {
				t.Errorf("the image is %+v", r)
			}
		case r.Input.Type == "dir" && len(r.Input.IncludeFiles) == 1:
			inputs[r.Name] = filepath.Join(r.Input.Path, r.Input.IncludeFiles[0])
		default:
			inputs[r.Name] = r.Input.Path
		}
	}
	return inputs
}
