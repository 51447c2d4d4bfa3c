package author

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// WriteConstructor writes a component constructor in the format of modulectl to constructorFile. From this constructor,
// the OCM command line (ocm add componentversions) makes the same component version as this package. Paths in the
// constructor are relative to its folder. The parameter existingTemplateFile is the path of the ModuleTemplate. If
// content comes from a URL or a folder, WriteConstructor writes this content as one file next to the constructor.
func (m *Module) WriteConstructor(constructorFile, existingTemplateFile string) error {
	made, err := ocm.Pack(m.Archive())
	if err != nil {
		return err
	}
	text, err := made.ComponentDescriptor()
	if err != nil {
		return err
	}
	var d struct {
		Component struct {
			Name, Version string
			Provider      string
			Labels        []any
			Sources       []any
			Resources     []map[string]any
		}
	}
	if err := yaml.Unmarshal(text, &d); err != nil {
		return fmt.Errorf("reading the component descriptor: %w", err)
	}
	c := d.Component
	var provider map[string]any
	if err := yaml.Unmarshal([]byte(c.Provider), &provider); err != nil {
		return fmt.Errorf("reading the provider in the component descriptor: %w", err)
	}
	var resources []any
	for _, r := range c.Resources {
		one := fields{{"name", r["name"]}, {"type", r["type"]}, {"version", r["version"]}}
		if r["relation"] == "external" {
			resources = append(resources, append(one, field{"relation", r["relation"]}, field{"labels", r["labels"]},
				field{"access", r["access"]}))
			continue
		}
		input, err := m.writeResourceInput(fmt.Sprint(r["name"]), constructorFile, existingTemplateFile)
		if err != nil {
			return err
		}
		resources = append(resources, append(one, field{"input", input}))
	}
	component := fields{{"name", c.Name}, {"version", c.Version},
		{"provider", fields{{"name", provider["name"]}, {"labels", provider["labels"]}}},
		{"labels", c.Labels}, {"resources", resources}}
	if len(c.Sources) > 0 {
		component = append(component, field{"sources", c.Sources})
	}
	if text, err = encodeYAML(fields{{"components", []any{component}}}); err != nil {
		return err
	}
	return overwriteFile(constructorFile, text)
}

// writeResourceInput returns the field input of a local resource in the constructor, which contains the path of the
// content.
func (m *Module) writeResourceInput(resource, constructorFile, templateFile string) (fields, error) {
	path, text := templateFile, m.Template
	switch resource {
	case v1beta2.RawManifest:
		path, text = m.Config.resolvePath(m.Config.Manifest), m.Manifest
	case v1beta2.LayerDefaultCR:
		path, text = m.Config.resolvePath(m.Config.DefaultCR), m.defaultCR
	}
	//nolint:gosec // the path is from the user's config
	if there, err := os.ReadFile(path); err != nil || !bytes.Equal(there, text) {
		path = strings.TrimSuffix(constructorFile, filepath.Ext(constructorFile)) + "-" + resource + ".yaml"
		if err := overwriteFile(path, text); err != nil {
			return nil, err
		}
	}
	path, err := relativeTo(constructorFile, path)
	if err != nil {
		return nil, err
	}
	if resource != v1beta2.RawManifest && resource != v1beta2.LayerDefaultCR {
		return fields{{"type", "file"}, {"path", path}}, nil
	}
	folder, name := filepath.Split(path)
	return fields{{"type", "dir"}, {"path", filepath.ToSlash(filepath.Clean(folder))},
		{"includeFiles", []string{name}}}, nil
}

// relativeTo returns a path relative to the folder of a file.
func relativeTo(file, path string) (string, error) {
	folder, err := filepath.Abs(filepath.Dir(file))
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		path, err = filepath.Rel(folder, path)
	}
	if err != nil {
		return "", fmt.Errorf("naming %s in %s: %w", path, file, err)
	}
	return filepath.ToSlash(path), nil
}

func overwriteFile(path string, text []byte) error {
	if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // the archive may be readable for everybody
		return fmt.Errorf("writing the component constructor: %w", err)
	}
	return nil
}
