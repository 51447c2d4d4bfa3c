package render

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/ignore"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/render/helm"
	"github.com/kyma-fleet/lifecycle-manager/render/input"
	"github.com/kyma-fleet/lifecycle-manager/render/kustomize"
)

// Kind is the kind of an Artefact.
type Kind string

// The kinds of artefacts.
const (
	// Manifests are YAML or JSON files with objects.
	Manifests Kind = "set of manifests"
	// Chart is a Helm chart: it has a Chart.yaml in its top folder.
	Chart Kind = "Helm chart"
	// Kustomization is a Kustomize directory: it has a kustomization.yaml, kustomization.yml or Kustomization in its
	// top folder.
	Kustomization Kind = "Kustomize directory"
)

// Artefact is the content of a module's package, unpacked in memory. It is immutable and safe for concurrent use.
type Artefact struct {
	kind   Kind
	digest string
	files  []input.File // in the order of their paths; subcharts are unpacked
	root   string       // folder of the chart or Kustomize directory, "." for the root
	ignore bool         // loaded from a folder: .helmignore is applied
	link   string       // the first link of an archive; links are not followed
}

// Load unpacks an OCI layer, a packaged chart or any other artefact that is one sequence of bytes. Its kind is detected
// by its content: an archive (tar, compressed or not) whose top folder has a Chart.yaml is a Helm chart, one with a
// kustomization.yaml is a Kustomize directory, and all others are manifests, as ReadManifests describes them. The top
// folder is the archive's root, or the only folder in it.
//
// Errors have reason InvalidArchive, ArchiveTooLarge, UnsafeArchive or InvalidChart.
func Load(layer []byte, limits Limits) (*Artefact, error) {
	left := input.NewBudget(limits)
	data, err := input.Decompress(layer, left.Limits.MaxBytes)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(layer)
	a := &Artefact{kind: Manifests, digest: "sha256:" + hex.EncodeToString(sum[:]), root: "."}
	if !input.IsTar(data) {
		a.files = []input.File{{Data: data}}
		return a, nil
	}
	if a.files, a.link, err = input.Untar(data, left); err != nil {
		return nil, err
	}
	return a, a.detectKind(left)
}

// LoadFolder reads a folder; [os.Root.FS] is a safe way to get one. Its kind is detected as in Load. Folders whose name
// begins with a dot are ignored, and .helmignore is applied to a chart. Symbolic links must lead to files in the
// folder.
//
// Errors have reason InvalidArchive, ArchiveTooLarge, UnsafeArchive or InvalidChart, or are those of the file system.
func LoadFolder(folder fs.FS, limits Limits) (*Artefact, error) {
	left := input.NewBudget(limits)
	a := &Artefact{kind: Manifests, root: ".", ignore: true}
	sum := sha256.New()
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir() || strings.HasPrefix(entry.Name(), "._"):
			return nil
		}
		if err := left.TakeEntry(); err != nil {
			return err
		}
		if err := checkSymlink(folder, name, entry); err != nil {
			return err
		}
		from, err := folder.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = from.Close() }()
		if info, err := from.Stat(); err != nil || !info.Mode().IsRegular() {
			return errors.Join(err, &Error{Code: UnsafeArchive, File: name,
				Problem: "it is not a regular file: replace or remove it"})
		}
		data, err := left.TakeFile(from)
		a.files = append(a.files, input.File{Path: name, Data: data})
		input.Hash(sum, name, string(data))
		return err
	})
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			return nil, e
		}
		return nil, fmt.Errorf("reading the folder of the artefact: %w", err)
	}
	a.digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	return a, a.detectKind(left)
}

// checkSymlink refuses a symbolic link that leaves its folder. A link to another link is checked when that link is
// read.
func checkSymlink(folder fs.FS, name string, entry fs.DirEntry) error {
	if entry.Type()&fs.ModeSymlink == 0 {
		return nil
	}
	target, err := fs.ReadLink(folder, name)
	if err != nil {
		return err
	}
	if clean := path.Join(path.Dir(name), target); path.IsAbs(target) || clean == ".." ||
		strings.HasPrefix(clean, "../") {
		return &Error{Code: UnsafeArchive, File: name, Problem: "the link leaves the folder: replace it by its target"}
	}
	return nil
}

// Subfolder returns the artefact in a folder of a Kustomize directory or any other archive: one of several overlays, or
// one of many charts. A Kustomize directory may refer to files outside of the folder, but within the archive. An empty
// path and "." mean the whole artefact. Errors have reason InvalidArchive, ArchiveTooLarge or InvalidChart.
func (a *Artefact) Subfolder(folder string) (*Artefact, error) {
	clean := path.Clean(folder)
	if folder == "" || clean == "." {
		return a, nil
	}
	if !fs.ValidPath(clean) {
		return nil, &Error{Code: UnsafeArchive, File: folder,
			Problem: "the path leaves the artefact: name a folder within it"}
	}
	clean = path.Join(a.root, clean)
	sum := sha256.New()
	input.Hash(sum, a.digest, clean)
	sub := &Artefact{kind: Manifests, digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), files: a.files, root: clean,
		ignore: a.ignore, link: a.link}
	if len(sub.filesInRoot()) == 0 {
		return nil, &Error{Code: InvalidArchive, File: folder,
			Problem: "the artefact has no such folder: correct the path"}
	}
	return sub, sub.detectKind(input.NewBudget(Limits{}))
}

// Kind returns the kind of the artefact.
func (a *Artefact) Kind() Kind { return a.kind }

// Digest identifies the content as "sha256:<hex>". For Load it is the digest of the given bytes, by which an OCI
// registry identifies a layer.
func (a *Artefact) Digest() string { return a.digest }

// detectKind finds the top folder and the kind of its content.
func (a *Artefact) detectKind(left *input.Budget) error {
	roots := []string{a.root}
	if top, ok := onlyFolder(a.files); ok && a.root == "." {
		roots = append(roots, top)
	}
	for _, root := range roots {
		for _, f := range a.files {
			if path.Dir(f.Path) != root || a.kind == Chart {
				continue
			}
			switch path.Base(f.Path) {
			case "Chart.yaml": // takes precedence, wherever it is
				a.kind, a.root = Chart, root
			case "kustomization.yaml", "kustomization.yml", "Kustomization":
				a.kind, a.root = Kustomization, root
			}
		}
		if a.kind != Manifests {
			break
		}
	}
	if a.kind != Manifests && a.link != "" {
		return &Error{Code: UnsafeArchive, File: a.link, Problem: "links are not followed in a " + string(
			a.kind) + ": package it again with files instead"}
	}
	if a.kind != Chart {
		return nil
	}
	files, err := unpackSubcharts(a.filesInRoot(), left, 0)
	if err != nil {
		return err
	}
	if a.ignore {
		if files, err = withoutIgnored(files); err != nil {
			return err
		}
	}
	a.files, a.root = files, "."
	return nil
}

// onlyFolder returns the folder that all files are in, if there is one.
func onlyFolder(files []input.File) (string, bool) {
	if len(files) == 0 {
		return "", false
	}
	first, _, ok := strings.Cut(files[0].Path, "/")
	for _, f := range files {
		if !strings.HasPrefix(f.Path, first+"/") {
			return "", false
		}
	}
	return first, ok
}

// filesInRoot returns the files of the top folder with paths relative to it.
func (a *Artefact) filesInRoot() []input.File {
	if a.root == "." {
		return a.files
	}
	var files []input.File
	for _, f := range a.files {
		if rest, ok := strings.CutPrefix(f.Path, a.root+"/"); ok {
			files = append(files, input.File{Path: rest, Data: f.Data})
		}
	}
	return files
}

// maxSubcharts limits how deep archives of charts may be nested.
const maxSubcharts = 8

// unpackSubcharts replaces packaged charts in charts/ by their files, so that one budget includes all of them.
func unpackSubcharts(files []input.File, left *input.Budget, depth int) ([]input.File, error) {
	var out []input.File
	for _, f := range files {
		dir, base := path.Split(f.Path)
		name, packaged := strings.CutSuffix(base, ".tgz")
		if !packaged || path.Base(dir) != "charts" || strings.ContainsAny(base[:1], "._") {
			out = append(out, f)
			continue
		}
		if depth == maxSubcharts {
			return nil, &Error{Code: ArchiveTooLarge, File: f.Path,
				Problem: fmt.Sprintf("charts are packaged in charts more than %d deep", maxSubcharts)}
		}
		data, err := input.Decompress(f.Data, left.Bytes)
		if err != nil {
			return nil, input.InFile(f.Path, err)
		}
		inner, link, err := input.Untar(data, left)
		if err != nil {
			return nil, input.InFile(f.Path, err)
		}
		top, ok := onlyFolder(inner)
		if !ok || link != "" {
			return nil, &Error{Code: InvalidChart, File: f.Path,
				Problem: "it is no packaged chart, which has one folder and no links: package it with Helm"}
		}
		if inner, err = unpackSubcharts((&Artefact{files: inner, root: top}).filesInRoot(), left, depth+1); err != nil {
			return nil, input.InFile(f.Path, err)
		}
		for _, i := range inner { // ~ distinguishes it from a folder of that name
			out = append(out, input.File{Path: dir + name + "~/" + i.Path, Data: i.Data})
		}
	}
	return out, nil
}

// withoutIgnored removes the files that a chart's .helmignore lists.
func withoutIgnored(files []input.File) ([]input.File, error) {
	rules := ignore.Empty()
	if i := slices.IndexFunc(files, func(f input.File) bool { return f.Path == ignore.HelmIgnore }); i >= 0 {
		var err error
		if rules, err = ignore.Parse(bytes.NewReader(files[i].Data)); err != nil {
			return nil, &Error{Code: InvalidChart, File: ignore.HelmIgnore, Problem: "it cannot be read: correct it",
				Cause: err}
		}
	}
	rules.AddDefaults()
	return slices.DeleteFunc(slices.Clone(files), func(f input.File) bool {
		if rules.Ignore(f.Path, entry{name: path.Base(f.Path)}) {
			return true
		}
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if rules.Ignore(dir, entry{name: path.Base(dir), isDir: true}) {
				return true
			}
		}
		return false
	}), nil
}

// entry is the part of a file's FileInfo that Helm's rules read: its name, and whether it is a folder.
type entry struct {
	fs.FileInfo
	name  string
	isDir bool
}

// Name returns the last element of the path.
func (e entry) Name() string { return e.name }

// IsDir reports whether it is a folder.
func (e entry) IsDir() bool { return e.isDir }

// RenderObjects renders the artefact to objects: manifests as they are, a chart with settings, a Kustomize directory by
// itself. leftOut names what it contains and the result does not, one sentence each. ctx limits the time; see the
// package comment.
//
// Errors are of type *Error with any of the reasons. Values for an artefact that is not a chart are refused, because
// they would have no effect.
func (a *Artefact) RenderObjects(ctx context.Context, settings Settings) (objects []*unstructured.Unstructured,
	leftOut []string, err error) {
	if a.kind == Chart {
		return helm.Render(ctx, a.files, settings)
	}
	if len(bytes.TrimSpace(settings.Values)) > 0 || len(settings.Set) > 0 {
		return nil, nil, &Error{Code: InvalidValues, Problem: "there are values, but the artefact is a " + string(
			a.kind) + ", which has none: remove them"}
	}
	if a.kind == Kustomization {
		objects, err = kustomize.Build(ctx, a.files, a.root)
	} else {
		objects, err = a.parseManifests()
	}
	if err != nil {
		return nil, nil, err
	}
	return settings.AddNamespace(objects), nil, nil
}

// Render renders the artefact to a Bundle. If opts has no digest, it is set to that of artefact and settings together:
// [Settings.Digest] of Digest and CapabilityQueries, so that the digest of the result can be computed without
// rendering.
//
// Errors are those of RenderObjects and Build.
func (a *Artefact) Render(ctx context.Context, settings Settings, opts Options) (*Bundle, error) {
	if opts.Digest == "" {
		opts.Digest = settings.Digest(a.digest, a.CapabilityQueries(settings))
	}
	objects, leftOut, err := a.RenderObjects(ctx, settings)
	if err != nil {
		return nil, err
	}
	bundle, err := Build(objects, opts)
	if err != nil {
		return nil, err
	}
	bundle.LeftOut = leftOut
	return bundle, nil
}

// CapabilityQueries returns what the artefact reads about the cluster, sorted: "kubeVersion", "kubeVersion in <range>",
// "apiVersion <group/version[/Kind]>", or "apiVersions" for all of them. It is empty if the artefact is not a chart. It
// may contain more than is used, but not less: a template sees only what is in the list.
func (a *Artefact) CapabilityQueries(settings Settings) []string {
	if a.kind != Chart {
		return nil
	}
	return helm.Queries(a.files, settings)
}

// parseManifests decodes the objects of manifests.
func (a *Artefact) parseManifests() ([]*unstructured.Unstructured, error) {
	if len(a.files) == 1 && a.files[0].Path == "" {
		return Parse(a.files[0].Data)
	}
	files := a.filesInRoot()
	if len(files) > 1 {
		files = slices.DeleteFunc(slices.Clone(files), func(f input.File) bool { return !input.IsManifest(f.Path) })
	}
	if len(files) == 0 {
		return nil, &Error{Code: InvalidArchive,
			Problem: "the archive holds no *.yaml, *.yml or *.json file: package the module's manifest into it"}
	}
	var objects []*unstructured.Unstructured
	for _, f := range files {
		more, err := Parse(f.Data)
		if err != nil {
			return nil, input.InFile(f.Path, err)
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

// ReadManifests returns the objects of an OCI layer that contains manifests; see Load for charts and Kustomize
// directories. The layer is plain YAML or JSON, a tar archive, or either of them compressed with gzip or zstd, which is
// detected by its content. Of an archive it reads all regular files whose name ends in .yaml, .yml or .json and does
// not begin with "._", in the order of their paths; a single regular file may have any name. Nothing is written to a
// disk.
//
// Errors are those of Parse, InvalidArchive, ArchiveTooLarge (see Limits), UnsafeArchive (an entry with an absolute
// path, or a path or link outside of the archive's folder), and RefusedFeature for a chart or Kustomize directory.
func ReadManifests(layer []byte, limits Limits) ([]*unstructured.Unstructured, error) {
	artefact, err := Load(layer, limits)
	if err != nil {
		return nil, err
	}
	if artefact.kind != Manifests {
		return nil, &Error{Code: RefusedFeature, Problem: fmt.Sprintf(
			"the layer is a %s, but only manifests are supported here: package manifests", artefact.kind)}
	}
	return artefact.parseManifests()
}
