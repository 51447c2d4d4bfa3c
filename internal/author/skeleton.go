package author

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed all:skeleton
var skeleton embed.FS

// Written describes a file of the skeleton, which Init has written, or which existed before.
type Written struct {
	File string `json:"file"`
	// The field New is false if the file already existed; Init has not changed the file then.
	New bool `json:"new"`
}

// Init writes the skeleton of a module to a folder. The skeleton has the module-config, the manifest, the default
// custom resource, the release, and an operator in Go. Init does not change files that exist. The parameter component
// is the name of the component, such as kyma-project.io/module/sample.
func Init(folder, component, team string) ([]Written, error) {
	r := &configParser{Config: &Config{file: "the name", Name: component}}
	r.validateName()
	if err := problemsOf(r.findings); err != nil {
		return nil, err
	}
	domain, _, _ := strings.Cut(component, "/")
	module := r.ShortName()
	parts := strings.Split(module, "-")
	for i, part := range parts {
		parts[i] = strings.ToUpper(part[:1]) + part[1:]
	}
	kind := strings.Join(parts, "")
	values := map[string]string{
		"Name": component, "Domain": domain, "Module": module, "Team": team, "Kind": kind,
		"Singular": strings.ToLower(kind), "Plural": strings.ToLower(kind) + "s",
		"Group": module + "." + domain, "Operator": module + "-operator",
	}
	var written []Written
	err := fs.WalkDir(skeleton, "skeleton", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := template.New(path).Delims("[[", "]]").Option("missingkey=error").ParseFS(skeleton, path)
		if err != nil {
			return fmt.Errorf("reading the skeleton: %w", err)
		}
		var b bytes.Buffer
		if err := text.ExecuteTemplate(&b, entry.Name(), values); err != nil {
			return fmt.Errorf("filling in %s: %w", path, err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(path, "skeleton/"), ".tmpl")
		isNew, err := createFile(filepath.Join(folder, filepath.FromSlash(name)), b.Bytes())
		written = append(written, Written{filepath.Join(folder, name), isNew})
		return err
	})
	return written, err
}

// createFile writes a file, unless the file exists. The result isNew is true if createFile has written the file.
func createFile(path string, data []byte) (isNew bool, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // sources are for others
		return false, fmt.Errorf("making a folder: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // the user names the folder
	if errors.Is(err, os.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("writing the skeleton: %w", err)
	}
	_, err = f.Write(data)
	return true, errors.Join(err, f.Close())
}
