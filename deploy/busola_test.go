package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

// busolaItem is a column, a field or a table of a page of Busola.
type busolaItem struct {
	Name, Source, Widget string
	Visibility           string
	Children             []busolaItem
}

// sourcePath is a path to a field, or several paths whose values are joined to one text.
var sourcePath = regexp.MustCompile(`^(?:\$join\()?((?:\$item\.|\$parent\.)?[a-zA-Z0-9.]+)(?:, ', '\))?$`)

// TestBusola checks that each page of Busola shows only fields that the CRD has.
func TestBusola(t *testing.T) {
	objects, err := Objects(t.Context(), Options{Set: []string{"busola.enabled=true"}})
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, o := range objects {
		if o.GetLabels()["busola.io/extension"] != "resource" {
			continue
		}
		data, _ := o.Object["data"].(map[string]any)
		var general struct {
			Resource struct{ Group, Kind, Version string }
			Scope    string
		}
		var list []busolaItem
		var details struct{ Header, Body []busolaItem }
		for key, into := range map[string]any{"general": &general, "list": &list, "details": &details} {
			text, _ := data[key].(string)
			if text == "" {
				t.Errorf("%s has no %s", o.GetName(), key)
			}
			if err := sigsyaml.Unmarshal([]byte(text), into); err != nil {
				t.Errorf("%s: %s: %v", o.GetName(), key, err)
			}
		}
		kinds[general.Resource.Kind] = true
		schema := schemaOf(t, general.Resource.Group, general.Resource.Version, general.Resource.Kind)
		if schema == nil || general.Scope != "namespace" {
			t.Errorf("%s: no CRD of a namespaced kind %s in %s/%s", o.GetName(), general.Resource.Kind,
				general.Resource.Group, general.Resource.Version)
			continue
		}
		for _, items := range [][]busolaItem{list, details.Header, details.Body} {
			checkItems(t, o.GetName(), items, schema, nil)
		}
	}
	for _, kind := range []string{"Kyma", "Manifest", "ModuleReleaseMeta", "ModuleRollout", "ModuleTemplate",
		"RolloutPolicy"} {
		if !kinds[kind] {
			t.Errorf("no page for %s", kind)
		}
	}
}

// checkItems checks the field source of each item of a page: it must be the path of a field in the schema of the root
// object, or in the parent schema, which is that of an object or a list.
func checkItems(t *testing.T, page string, items []busolaItem, root, parent *apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	for _, item := range items {
		found := sourcePath.FindStringSubmatch(item.Source)
		if found == nil {
			t.Errorf("%s: %q is no path to a field", page, item.Source)
			continue
		}
		at, path := root, found[1]
		if rest, ok := strings.CutPrefix(path, "$item."); ok {
			at, path = parent.Items.Schema, rest
		} else if rest, ok := strings.CutPrefix(path, "$parent."); ok {
			at, path = parent, rest
		}
		for name := range strings.SplitSeq(path, ".") {
			if at != nil && at.Items != nil {
				at = at.Items.Schema
			}
			if at == nil {
				break
			}
			if property, ok := at.Properties[name]; ok {
				at = &property
			} else {
				at = nil
			}
		}
		if at == nil {
			t.Errorf("%s: %s has no field %q", page, item.Name, item.Source)
			continue
		}
		checkItems(t, page, item.Children, root, at)
	}
}

// schemaOf returns the schema of a kind of this project, or nil if there is no such kind.
func schemaOf(t *testing.T, group, version, kind string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	paths, err := filepath.Glob("../crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := sigsyaml.Unmarshal(data, &crd); err != nil {
			t.Fatal(err)
		}
		if crd.Spec.Group != group || crd.Spec.Names.Kind != kind || crd.Spec.Scope != "Namespaced" {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if v.Name == version && v.Served {
				return v.Schema.OpenAPIV3Schema
			}
		}
	}
	return nil
}
