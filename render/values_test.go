package render

import (
	"errors"
	"strings"
	"testing"
)

// TestManyValues checks that files of an artefact are refused if their values would need gigabytes, and that the error
// names the file.
func TestManyValues(t *testing.T) {
	many := "a: [" + strings.Repeat("{},", 3<<20) + "]\n"
	head := "apiVersion: v1\nkind: A\nmetadata: {name: "
	cases := map[string]struct {
		artefact func() (*Artefact, error)
		file     string
	}{
		"Layer": {func() (*Artefact, error) { return Load(gzipped(t, []byte(head+"a}\n"+many)), Limits{}) }, ""},
		"Files": {func() (*Artefact, error) {
			return LoadFolder(folder("a.yaml", object("a", ""), "b.yaml", many), Limits{})
		}, "b.yaml"},
		"Values": {func() (*Artefact, error) { return chartOf(t, "values.yaml", many), nil }, "values.yaml"},
		"Subchart": {func() (*Artefact, error) {
			return chartOf(t, "charts/b/Chart.yaml", "apiVersion: v2\nname: b\nversion: 1.0.0\n"+many), nil
		}, "charts/b/Chart.yaml"},
		"Template": {func() (*Artefact, error) {
			return chartOf(t, "templates/a.yaml", `a: [{{ range until 1000 }}{{ repeat 1000 "{}," }}{{ end }}]`), nil
		}, "shop/templates/a.yaml"},
		"Kustomize": {func() (*Artefact, error) {
			return LoadFolder(folder("kustomization.yaml", "resources: [a.yaml]", "a.yaml", head+"a}\n"+many), Limits{})
		}, "a.yaml"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a, err := c.artefact()
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = a.RenderObjects(t.Context(), Settings{})
			if e, ok := errors.AsType[*Error](err); !ok || e.Reason() != ArchiveTooLarge || e.File != c.file {
				t.Errorf("got %v", err)
			}
		})
	}
	// Chart.yaml is read before the chart is rendered, to find the properties of the cluster that the chart needs.
	a := chartOf(t, "Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.2.3\nkubeVersion: '>1'\n"+many)
	if queries := a.CapabilityQueries(Settings{}); len(queries) > 0 {
		t.Errorf("got %q", queries)
	}
}
