// Package kustomize builds Kustomize directories. Other packages shall use package render.
//
// # How it works
//
// Kustomize runs on a copy of the files in memory. Kustomize stores the OpenAPI schema of a build in variables of the
// process, so the package runs one build at a time, and each build begins with the state of a new process.
//
// The package refuses remote resources, files outside of the artefact, and helmCharts. The package also refuses
// generators, transformers and validators that are programs or containers, or that are in a directory. Plugins that are
// built into Kustomize are supported, inline or in a file of their own.
//
// # What it does not do
//
// The package does not unpack archives. The input of the package is the files of an artefact and the path of the
// Kustomize directory in the artefact.
package kustomize

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"

	"github.com/kyma-fleet/lifecycle-manager/render/input"
)

// operationKustomize is the first part of the text of every error about a Kustomize directory.
const operationKustomize = "building the Kustomize directory"

// slot has an element while a build runs. The library of Kustomize stores the OpenAPI schema in variables of the
// process: it reads these variables without a lock, and the schema of one build (field openapi) stays for the next one.
var slot = make(chan struct{}, 1)

// Build copies the given files to a file system in memory, and runs Kustomize on the directory with the path in the
// parameter root. Before Build runs Kustomize, it refuses references that lead out of the given files, because
// Kustomize would download such references with its own HTTP client or with git.
func Build(ctx context.Context, files []input.File, root string) ([]*unstructured.Unstructured, error) {
	guard := &referenceChecker{files: make(map[string][]byte, len(files)),
		folders: map[string]bool{".": true}, seen: map[string]bool{}}
	disk := filesys.MakeFsInMemory()
	for _, f := range files {
		guard.files[f.Path] = f.Data
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			guard.folders[dir] = true
		}
		if input.IsManifest(f.Path) {
			if err := input.CheckValueCount(f.Data, input.MaxDocumentValues); err != nil {
				return nil, guard.withFile(f.Path, err)
			}
		}
		if err := disk.WriteFile("/"+f.Path, f.Data); err != nil {
			return nil, &input.Error{Operation: operationKustomize, Code: input.InvalidArchive, File: f.Path,
				Problem: "it cannot be unpacked: rename it", Cause: err}
		}
	}
	if err := guard.checkFolder(root, 0); err != nil {
		return nil, err
	}
	return input.RunRecoveringPanic(ctx, operationKustomize, func() ([]*unstructured.Unstructured, error) {
		select {
		case slot <- struct{}{}:
			defer func() { <-slot }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		openapi.ResetOpenAPI()
		resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, path.Join("/", root))
		if err != nil {
			return nil, &input.Error{Operation: operationKustomize, Code: input.InvalidKustomization,
				Problem: "it cannot be built: correct it", Cause: err}
		}
		text, err := resources.AsYaml()
		if err != nil {
			return nil, &input.Error{Operation: operationKustomize, Code: input.InvalidKustomization,
				Problem: "its result cannot be encoded", Cause: err}
		}
		if err := input.CheckSize(int64(len(text)), input.DefaultMaxBytes); err != nil {
			return nil, err
		}
		objects, err := input.Parse(text)
		if err != nil {
			return nil, input.InFile("the result of the build", err)
		}
		return objects, nil
	})
}

// ResourceAndComponentPaths returns the paths of the directories and files to which a kustomization refers as its
// resources, bases or components. A path that leads out of the root begins with "..". For a file that is not a
// kustomization, ResourceAndComponentPaths returns nil.
func ResourceAndComponentPaths(kustomization input.File) []string {
	if !slices.Contains(fileNames, path.Base(kustomization.Path)) {
		return nil
	}
	tree, err := input.Decode(kustomization.Data)
	fields, ok := tree.(map[string]any)
	if err != nil || !ok {
		return nil // Build reports it
	}
	var targets []string
	for name, value := range fields {
		switch strings.ToLower(name) {
		case "resources", "bases", "components":
			for _, ref := range stringsOf(value) {
				if !path.IsAbs(ref) {
					targets = append(targets, path.Join(path.Dir(kustomization.Path), ref))
				}
			}
		}
	}
	slices.Sort(targets)
	return targets
}

// fileNames are the possible names of a kustomization file.
var fileNames = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// referenceChecker checks the references in all files that a build will read.
type referenceChecker struct {
	files   map[string][]byte
	folders map[string]bool
	seen    map[string]bool // folders that were checked before
}

// maxFolders is the maximum length of a chain of Kustomize directories that refer to each other.
const maxFolders = 64

// checkFolder checks a Kustomize directory and all directories that this directory refers to.
func (g *referenceChecker) checkFolder(dir string, depth int) error {
	if g.seen[dir] {
		return nil // Kustomize reports cycles
	}
	g.seen[dir] = true
	if depth > maxFolders {
		return &input.Error{Operation: operationKustomize, Code: input.InvalidKustomization, File: dir,
			Problem: fmt.Sprintf("directories refer to each other more than %d deep", maxFolders)}
	}
	for _, name := range fileNames {
		file := path.Join(dir, name)
		data, ok := g.files[file]
		if !ok {
			continue
		}
		tree, err := input.Decode(data)
		if err != nil {
			return g.withFile(file, err)
		}
		if fields, ok := tree.(map[string]any); ok {
			if err := g.checkFields(file, fields, depth); err != nil {
				return err
			}
		}
		if err := g.refuseRemoteURLsInFileFields(file, tree); err != nil {
			return err
		}
	}
	return nil
}

// checkFields checks the fields of a kustomization that refer to files and directories. checkFields ignores the case of
// field names, as Kustomize does.
func (g *referenceChecker) checkFields(file string, fields map[string]any, depth int) error {
	for name, value := range fields {
		switch strings.ToLower(name) {
		case "helmcharts", "helmchartinflationgenerator", "helmglobals":
			return &input.Error{Operation: operationKustomize, Code: input.RefusedFeature, File: file,
				Problem: name + " is refused, because Kustomize runs Helm for it: use the chart itself as the source"}
		case "resources", "bases", "components":
			for _, ref := range stringsOf(value) {
				if err := g.checkReference(file, ref, depth, false); err != nil {
					return err
				}
			}
		case "generators", "transformers", "validators":
			for _, ref := range stringsOf(value) {
				if strings.Contains(ref, "\n") {
					if err := g.checkPluginsAreBuiltin(file, []byte(ref)); err != nil {
						return err
					}
				} else if err := g.checkReference(file, ref, depth, true); err != nil {
					return err
				}
			}
		case "crds", "configurations", "patchesstrategicmerge":
			for _, ref := range stringsOf(value) {
				if err := g.refuseRemoteReference(file, ref); err != nil && !strings.Contains(ref, "\n") {
					return err
				}
			}
		}
	}
	return nil
}

// checkReference checks one reference of a kustomization to a file or directory.
func (g *referenceChecker) checkReference(from, ref string, depth int, plugins bool) error {
	if err := g.refuseRemoteReference(from, ref); err != nil {
		return err
	}
	target := path.Join(path.Dir(from), ref)
	data, isFile := g.files[target]
	switch {
	case isFile && plugins:
		return g.checkPluginsAreBuiltin(target, data)
	case isFile:
		return nil
	case g.folders[target] && plugins: // patches in this directory could change the plugins
		return &input.Error{Operation: operationKustomize, Code: input.RefusedFeature, File: from,
			Problem: fmt.Sprintf("the directory %q of plugins is refused: list the files in it", ref)}
	case g.folders[target]:
		return g.checkFolder(target, depth+1)
	case target == ".." || strings.HasPrefix(target, "../") || path.IsAbs(ref):
		return &input.Error{Operation: operationKustomize, Code: input.RefusedFeature, File: from,
			Problem: fmt.Sprintf("%q is outside of the artefact: add it to the artefact, or name a folder that contains "+
				"both when the module is built (klm module build --root)", ref)}
	}
	return &input.Error{Operation: operationKustomize, Code: input.InvalidKustomization, File: from,
		Problem: fmt.Sprintf("it refers to %q, which is not in the artefact: add it or correct the path", ref)}
}

// refuseRemoteReference refuses a reference that Kustomize would interpret as a remote file or repository.
func (g *referenceChecker) refuseRemoteReference(from, ref string) error {
	lower := strings.ToLower(ref)
	if strings.ContainsAny(ref, ":@?") || strings.HasPrefix(lower, "github.com") || strings.Contains(lower, ".git/") ||
		strings.HasSuffix(lower, ".git") {
		return &input.Error{Operation: operationKustomize, Code: input.RefusedFeature, File: from,
			Problem: fmt.Sprintf("%q is remote, and nothing is fetched while rendering: add it to the artefact", ref)}
	}
	return nil
}

// checkPluginsAreBuiltin refuses generators, transformers and validators that are programs. Plugins that are built into
// Kustomize are allowed.
func (g *referenceChecker) checkPluginsAreBuiltin(file string, data []byte) error {
	documents, err := input.DecodeAll(data)
	if err != nil {
		return g.withFile(file, err)
	}
	for _, document := range documents {
		plugin, _ := document.(map[string]any)
		version, kind := plugin["apiVersion"], plugin["kind"]
		if version != "builtin" || kind == "HelmChartInflationGenerator" {
			return &input.Error{Operation: operationKustomize, Code: input.RefusedFeature,
				File: file, Problem: fmt.Sprintf(
					"the plugin of apiVersion %q and kind %q is refused, because it is a program or container: only "+
						"what Kustomize has built in can be used", version, kind)}
		}
		if err := g.refuseRemoteURLsInFileFields(file, plugin); err != nil {
			return err
		}
	}
	return nil
}

// refuseRemoteURLsInFileFields refuses remote files in all fields from which Kustomize loads files, at any depth.
func (g *referenceChecker) refuseRemoteURLsInFileFields(file string, tree any) error {
	switch tree := tree.(type) {
	case []any:
		for _, item := range tree {
			if err := g.refuseRemoteURLsInFileFields(file, item); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, value := range tree {
			switch strings.ToLower(name) {
			case "path", "paths", "files", "env", "envs":
				for _, ref := range stringsOf(value) {
					_, after, named := strings.Cut(ref, "=")
					if !named {
						after = ref
					}
					if lower := strings.ToLower(after); strings.HasPrefix(lower, "http:") ||
						strings.HasPrefix(lower, "https:") {
						return g.refuseRemoteReference(file, after)
					}
				}
			}
			if err := g.refuseRemoteURLsInFileFields(file, value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *referenceChecker) withFile(file string, err error) error {
	err = input.InFile(file, err)
	if e, ok := err.(*input.Error); ok { //nolint:errorlint // decodeDocuments returns it unwrapped
		e.Operation = operationKustomize
	}
	return err
}

// stringsOf returns the strings in a value: the value itself, or the items of a list.
func stringsOf(value any) []string {
	switch value := value.(type) {
	case string:
		return []string{value}
	case []any:
		var out []string
		for _, item := range value {
			if text, ok := item.(string); ok {
				out = append(out, text)
			}
		}
		return out
	}
	return nil
}
