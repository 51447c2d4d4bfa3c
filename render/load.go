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

// Kind says what an Artefact holds.
type Kind string

// The kinds of artefacts.
const (
	// Manifests are YAML or JSON files with objects.
	Manifests Kind = "set of manifests"
	// Chart is a Helm chart: it has a Chart.yaml in its top folder.
	Chart Kind = "Helm chart"
	// Kustomization is a Kustomize directory: it has a kustomization.yaml, kustomization.yml or Kustomization in its top folder.
	Kustomization Kind = "Kustomize directory"
)

// Artefact is what a module was packaged as, unpacked in memory. It is immutable and safe for concurrent use.
type Artefact struct {
	kind   Kind
	digest string
	files  []input.File // in the order of their paths, with a chart's subcharts unpacked
	root   string       // folder of the chart or Kustomize directory, "." for the top
	ignore bool         // a folder of sources: .helmignore counts
	link   string       // the first link of an archive, which is not followed
}

// Load unpacks an OCI layer, a packaged chart or any other artefact that is one sequence of bytes. What it is, its content
// says: an archive (tar, compressed or not) whose top folder has a Chart.yaml is a Helm chart, one with a kustomization.yaml
// is a Kustomize directory, and everything else are manifests, as Read describes them. The top folder is the archive's
// root, or the only folder in it.
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

// LoadFolder reads a folder; [os.Root.FS] is a safe way to get one. What it is, its content says, as for Load. Folders whose
// name begins with a dot are passed over, and .helmignore counts in a chart. Symbolic links must lead to files in the
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
			return errors.Join(err, &Error{Code: UnsafeArchive, File: name, Problem: "it is not a regular file: replace or remove it"})
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

// leadsInside refuses a symbolic link that leaves its folder. A link to another link is judged when that one is met.
func checkSymlink(folder fs.FS, name string, entry fs.DirEntry) error {
	if entry.Type()&fs.ModeSymlink == 0 {
		return nil
	}
	target, err := fs.ReadLink(folder, name)
	if err != nil {
		return err
	}
	if clean := path.Join(path.Dir(name), target); path.IsAbs(target) || clean == ".." || strings.HasPrefix(clean, "../") {
		return &Error{Code: UnsafeArchive, File: name, Problem: "the link leaves the folder: replace it by what it links to"}
	}
	return nil
}

// Subfolder returns the artefact in a folder of a Kustomize directory's or any other archive: the overlay of several that is
// meant, or one chart of many. What a Kustomize directory refers to may lie outside of it, but within the archive.
// An empty path and "." are the whole. Errors have reason InvalidArchive, ArchiveTooLarge or InvalidChart.
func (a *Artefact) Subfolder(folder string) (*Artefact, error) {
	clean := path.Clean(folder)
	if folder == "" || clean == "." {
		return a, nil
	}
	if !fs.ValidPath(clean) {
		return nil, &Error{Code: UnsafeArchive, File: folder, Problem: "the path leaves the artefact: name a folder within it"}
	}
	clean = path.Join(a.root, clean)
	sum := sha256.New()
	input.Hash(sum, a.digest, clean)
	sub := &Artefact{kind: Manifests, digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), files: a.files, root: clean, ignore: a.ignore, link: a.link}
	if len(sub.filesInRoot()) == 0 {
		return nil, &Error{Code: InvalidArchive, File: folder, Problem: "the artefact has no such folder: correct the path"}
	}
	return sub, sub.detectKind(input.NewBudget(Limits{}))
}

// Kind says what the artefact holds.
func (a *Artefact) Kind() Kind { return a.kind }

// Digest identifies the content as "sha256:<hex>". For Load it is the digest of the bytes as they were given, the one that
// an OCI registry knows a layer by.
func (a *Artefact) Digest() string { return a.digest }

// recognise finds the top folder and what is in it.
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
			case "Chart.yaml": // wins, wherever it stands
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
		return &Error{Code: UnsafeArchive, File: a.link, Problem: "links are not followed in a " + string(a.kind) + ": package it again with the file itself"}
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

// within returns the files of the top folder with paths relative to it.
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

// maxSubcharts is how deep archives of charts may be nested.
const maxSubcharts = 8

// unpackSubcharts replaces packaged charts in charts/ by their files, so that one budget holds for all of them.
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
			return nil, &Error{Code: ArchiveTooLarge, File: f.Path, Problem: fmt.Sprintf("charts are packaged in charts more than %d deep", maxSubcharts)}
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
			return nil, &Error{Code: InvalidChart, File: f.Path, Problem: "it is no packaged chart, which has one folder and no links: package it with Helm"}
		}
		if inner, err = unpackSubcharts((&Artefact{files: inner, root: top}).filesInRoot(), left, depth+1); err != nil {
			return nil, input.InFile(f.Path, err)
		}
		for _, i := range inner {
			out = append(out, input.File{Path: dir + name + "~/" + i.Path, Data: i.Data}) // ~ keeps it apart from a folder of that name
		}
	}
	return out, nil
}

// dropIgnored leaves out what a chart's .helmignore says.
func withoutIgnored(files []input.File) ([]input.File, error) {
	rules := ignore.Empty()
	if i := slices.IndexFunc(files, func(f input.File) bool { return f.Path == ignore.HelmIgnore }); i >= 0 {
		var err error
		if rules, err = ignore.Parse(bytes.NewReader(files[i].Data)); err != nil {
			return nil, &Error{Code: InvalidChart, File: ignore.HelmIgnore, Problem: "it cannot be read: correct it", Cause: err}
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

// entry is what Helm's rules ask of a file: its name, and whether it is a folder.
type entry struct {
	fs.FileInfo
	name  string
	isDir bool
}

// Name is the last element of the path.
func (e entry) Name() string { return e.name }

// IsDir reports whether it is a folder.
func (e entry) IsDir() bool { return e.isDir }

// RenderObjects renders the artefact: manifests as they are, a chart with settings, a Kustomize directory by itself. leftOut
// says what it holds and the result does not, one sentence each. ctx bounds the time; see the package comment.
//
// Errors are of type *Error with any of the reasons. Values for what is no chart are refused, because they would do nothing.
func (a *Artefact) RenderObjects(ctx context.Context, settings Settings) (objects []*unstructured.Unstructured, leftOut []string, err error) {
	if a.kind == Chart {
		return helm.Render(ctx, a.files, settings)
	}
	if len(bytes.TrimSpace(settings.Values)) > 0 || len(settings.Set) > 0 {
		return nil, nil, &Error{Code: InvalidValues, Problem: "there are values, but it is a " + string(a.kind) + ", which takes none: remove them"}
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

// Render renders the artefact and encodes it. If opts has no digest, it becomes that of artefact and settings together:
// [Settings.Digest] of Digest and Asks, so that the digest of the result can be known without rendering.
//
// Errors are those of Objects and Build.
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

// CapabilityQueries returns what the artefact asks about the cluster, sorted: "kubeVersion", "kubeVersion in <range>", "apiVersion
// <group/version[/Kind]>", "apiVersions" for all of them. It is empty for what is no chart. It is found by searching the
// chart's files (and the settings' values, which may be templates) for .Capabilities, so it can be more than is asked in
// truth, but not less: what is not in the list, a template does not get to see.
func (a *Artefact) CapabilityQueries(settings Settings) []string {
	if a.kind != Chart {
		return nil
	}
	return helm.Queries(a.files, settings)
}

// parseManifests reads manifests.
func (a *Artefact) parseManifests() ([]*unstructured.Unstructured, error) {
	if len(a.files) == 1 && a.files[0].Path == "" {
		return Parse(a.files[0].Data)
	}
	files := a.filesInRoot()
	if len(files) > 1 {
		files = slices.DeleteFunc(slices.Clone(files), func(f input.File) bool { return !input.IsManifest(f.Path) })
	}
	if len(files) == 0 {
		return nil, &Error{Code: InvalidArchive, Problem: "the archive holds no *.yaml, *.yml or *.json file: package the module's manifest into it"}
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

// ReadManifests returns the objects of an OCI layer that holds manifests; see Load for charts and Kustomize directories. What the layer
// is, its content says: plain YAML or JSON, a tar archive, or either of them compressed with gzip or zstd. Of an archive it
// reads all regular files whose name ends in .yaml, .yml or .json and does not begin with "._", in the order of their paths; an
// archive with a single regular file may call it as it likes. Nothing is written anywhere.
//
// Errors are those of Parse, InvalidArchive, ArchiveTooLarge (see Limits), UnsafeArchive (an entry with an absolute path, or a
// path or link that leaves the archive's folder), and RefusedFeature for a chart or Kustomize directory.
func ReadManifests(layer []byte, limits Limits) ([]*unstructured.Unstructured, error) {
	artefact, err := Load(layer, limits)
	if err != nil {
		return nil, err
	}
	if artefact.kind != Manifests {
		return nil, &Error{Code: RefusedFeature, Problem: fmt.Sprintf("the layer is a %s, which has to be rendered, where only manifests are expected: package manifests", artefact.kind)}
	}
	return artefact.parseManifests()
}
