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
	// Manifests means YAML or JSON files with objects.
	Manifests Kind = "set of manifests"
	// Chart means a Helm chart: it has a Chart.yaml in its top folder.
	Chart Kind = "Helm chart"
	// Kustomization means a Kustomize directory: it has a kustomization.yaml, kustomization.yml or Kustomization in its
	// top folder.
	Kustomization Kind = "Kustomize directory"
)

// Artefact is the content of a module's package after it was unpacked in memory. An Artefact is immutable and safe for
// concurrent use.
type Artefact struct {
	kind   Kind
	digest string
	files  []input.File // sorted by path; packaged subcharts are unpacked
	root   string       // folder of the chart or Kustomize directory; "." is the root of the archive
	ignore bool         // the artefact was loaded from a folder, so .helmignore is applied
	link   string       // path of the first link in the archive; links are not followed
}

// Load unpacks an OCI layer, a packaged chart or any other artefact that is one sequence of bytes. Load detects the
// kind of the artefact by its content, as the list below shows.
//   - An archive (tar, compressed or not) with a Chart.yaml in its top folder is a Helm chart.
//   - An archive with a kustomization.yaml in its top folder is a Kustomize directory.
//   - Every other content is a set of manifests, which ReadManifests describes.
//
// The top folder is the root of the archive, or the only folder in the root.
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
	return a, a.detectKindAndUnpackSubcharts(left)
}

// LoadFolder reads a folder. [os.Root.FS] is a safe way to open the folder. LoadFolder detects the kind of the artefact
// in the same way as Load. Folders whose name begins with a dot are ignored. If the folder is a chart, its .helmignore
// file is applied. Symbolic links must lead to files in the folder.
//
// Errors have reason InvalidArchive, ArchiveTooLarge, UnsafeArchive or InvalidChart, or are errors of the file system.
func LoadFolder(folder fs.FS, limits Limits) (*Artefact, error) {
	return LoadFolderIn(folder, ".", limits)
}

// LoadFolderIn reads a folder in the same way as LoadFolder, but as a part of a larger file system. The parameter root
// is a file system, and the parameter folder is the path of the folder in this file system. If the folder is a
// Kustomize directory, it may refer to other directories of the same file system. LoadFolderIn reads only the
// directories to which kustomizations refer.
func LoadFolderIn(root fs.FS, folder string, limits Limits) (*Artefact, error) {
	left := input.NewBudget(limits)
	a := &Artefact{kind: Manifests, root: ".", ignore: true}
	own, err := fs.Sub(root, folder)
	if err == nil {
		err = a.readFolder(own, left)
	}
	if err == nil {
		a.digest = digestOf(a.files)
		err = a.detectKindAndUnpackSubcharts(left)
	}
	if err == nil && a.kind == Kustomization && a.root == "." && folder != "." {
		err = a.rebaseAndReadReferred(root, folder, left)
		a.digest = digestOf(a.files)
	}
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			return nil, e
		}
		return nil, fmt.Errorf("reading the folder of the artefact: %w", err)
	}
	return a, nil
}

// digestOf returns the digest of the files of a folder.
func digestOf(files []input.File) string {
	sum := sha256.New()
	for _, f := range files {
		input.Hash(sum, f.Path, string(f.Data))
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// readFolder adds the files of a folder to the artefact.
func (a *Artefact) readFolder(folder fs.FS, left *input.Budget) error {
	return fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
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
		return err
	})
}

// rebaseAndReadReferred adds to the artefact all directories to which the Kustomize directory refers, directly or
// through other directories. The files of the artefact get paths relative to root.
func (a *Artefact) rebaseAndReadReferred(root fs.FS, folder string, left *input.Budget) error {
	a.root = folder
	for i, f := range a.files {
		a.files[i].Path = path.Join(folder, f.Path)
	}
	read := []string{folder}
	for next := 0; next < len(a.files); next++ { // the list grows
		for _, target := range kustomize.ResourceAndComponentPaths(a.files[next]) {
			contains := func(dir string) bool { return target == dir || strings.HasPrefix(target, dir+"/") }
			if !fs.ValidPath(target) || target == "." || slices.ContainsFunc(read, contains) {
				continue
			}
			info, err := fs.Stat(root, target)
			if err != nil || !info.IsDir() {
				continue // the build reports it
			}
			// The directory target includes its subdirectories, so those that were read before are removed from the
			// list of directories.
			read = slices.DeleteFunc(read, func(dir string) bool { return strings.HasPrefix(dir, target+"/") })
			read = append(read, target)
			sub, err := fs.Sub(root, target)
			if err != nil {
				return err
			}
			more := &Artefact{}
			if err := more.readFolder(sub, left); err != nil {
				return input.InFile(target, err)
			}
			for _, f := range more.files {
				f.Path = path.Join(target, f.Path)
				if !slices.ContainsFunc(a.files, func(have input.File) bool { return have.Path == f.Path }) {
					a.files = append(a.files, f)
				}
			}
		}
	}
	slices.SortFunc(a.files, func(x, y input.File) int { return strings.Compare(x.Path, y.Path) })
	return nil
}

// checkSymlink refuses a symbolic link that leads out of its folder. If a symbolic link leads to another link, the
// other link is checked when it is read.
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

// Subfolder returns an artefact with the content of one folder of this artefact. The folder is, for example, one of
// several Kustomize overlays, or one of many charts in an archive. A Kustomize directory may refer to files outside of
// the folder if they are in the archive. The path "" or "." means the whole artefact. Errors have reason
// InvalidArchive, ArchiveTooLarge or InvalidChart.
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
	if len(sub.filesBelowRoot()) == 0 {
		return nil, &Error{Code: InvalidArchive, File: folder,
			Problem: "the artefact has no such folder: correct the path"}
	}
	return sub, sub.detectKindAndUnpackSubcharts(input.NewBudget(Limits{}))
}

// Kind returns the kind of the artefact.
func (a *Artefact) Kind() Kind { return a.kind }

// Digest returns a digest of the artefact's content, in the form "sha256:<hex>". If Load has returned the artefact,
// Digest returns the digest of the bytes that were passed to Load. If these bytes are a layer in an OCI registry, the
// registry uses the same digest for the layer.
func (a *Artefact) Digest() string { return a.digest }

// detectKindAndUnpackSubcharts finds the top folder and detects the kind of its content. If the content is a chart,
// detectKindAndUnpackSubcharts also unpacks the archives of its subcharts.
func (a *Artefact) detectKindAndUnpackSubcharts(left *input.Budget) error {
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
			case "Chart.yaml": // takes precedence over a kustomization.yaml, independent of the order of the files
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
	files, err := unpackSubcharts(a.filesBelowRoot(), left, 0)
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

// onlyFolder returns the top-level folder that contains all files of an artefact, and true. If the files are not all in
// one folder, onlyFolder returns false.
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

// filesBelowRoot returns the files of the top folder. The paths of the returned files are relative to the top folder.
func (a *Artefact) filesBelowRoot() []input.File {
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

// maxSubcharts is the maximum depth to which packaged charts may contain other packaged charts.
const maxSubcharts = 8

// unpackSubcharts replaces each packaged chart in charts/ by its files. The unpacked files of all charts count towards
// one limit of size and number, in the parameter left.
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
		if inner, err = unpackSubcharts((&Artefact{files: inner, root: top}).filesBelowRoot(), left,
			depth+1); err != nil {
			return nil, input.InFile(f.Path, err)
		}
		for _, i := range inner { // "~" distinguishes the unpacked chart from a folder with the same name
			out = append(out, input.File{Path: dir + name + "~/" + i.Path, Data: i.Data})
		}
	}
	return out, nil
}

// withoutIgnored removes the files that the .helmignore file of a chart excludes.
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

// entry has the part of a file's FileInfo that Helm's ignore rules read: the name, and whether the file is a folder.
type entry struct {
	fs.FileInfo
	name  string
	isDir bool
}

// Name returns the last element of the path of the entry.
func (e entry) Name() string { return e.name }

// IsDir reports whether the entry is a folder.
func (e entry) IsDir() bool { return e.isDir }

// RenderObjects renders the artefact to objects. An artefact with manifests is returned as it is. A chart is rendered
// with the parameter settings. A Kustomize directory is built by Kustomize. For a Kustomize directory and for
// manifests, RenderObjects uses the parameter settings only to add the Namespace of the installation, if
// settings.CreateNamespace is true. The result leftOut lists the content of the artefact that is not in the objects,
// one sentence for each item. Rendering ends with an error when ctx ends. If ctx has a Runner, the Runner renders
// charts and Kustomize directories; see WithRunner.
//
// Errors are of type *Error and can have any of the reason codes. Values for an artefact that is not a chart are
// refused, because they would have no effect. If ctx has a Runner, RenderObjects also returns an error when the Runner
// itself fails, for example because it cannot start a process. The error of a failed Runner has no reason code.
func (a *Artefact) RenderObjects(ctx context.Context, settings Settings) (objects []*unstructured.Unstructured,
	leftOut []string, err error) {
	if r, ok := ctx.Value(runnerKey{}).(Runner); ok && r != nil && a.kind != Manifests {
		return a.runBy(ctx, r, settings)
	}
	return a.renderInProcess(ctx, settings)
}

// TemplateOutputs returns the output of each template of a chart, by path of the template, before the output is
// decoded. A line number in an error about the output of a template refers to the text that TemplateOutputs returns for
// this template. TemplateOutputs uses ctx in the same way as RenderObjects. If the artefact is not a chart,
// TemplateOutputs returns nil.
func (a *Artefact) TemplateOutputs(ctx context.Context, settings Settings) (map[string]string, error) {
	if a.kind != Chart {
		return nil, nil
	}
	if r, ok := ctx.Value(runnerKey{}).(Runner); ok && r != nil {
		h, _, err := a.sendToRunner(ctx, r, request{Kind: a.kind, Files: a.files, Root: a.root, Settings: settings,
			Outputs: true})
		return h.Outputs, err
	}
	return helm.TemplateOutputs(ctx, a.files, settings)
}

// renderInProcess renders the artefact in this process.
func (a *Artefact) renderInProcess(ctx context.Context, settings Settings) (objects []*unstructured.Unstructured,
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
	return settings.PrependNamespaceObject(objects), nil, nil
}

// Render renders the artefact to a Bundle. If opts.Digest is empty, Render calls [Settings.Digest] with the digest of
// the artefact and the result of CapabilityQueries. A caller can compute the same digest, and so the digest of the
// Bundle, without rendering.
//
// Render returns the errors of RenderObjects and of Build.
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
	bundle.LeftOut = append(leftOut, bundle.LeftOut...)
	return bundle, nil
}

// CapabilityQueries returns the properties of the cluster that the artefact reads, sorted. A query is "kubeVersion",
// "kubeVersion in <range>", "apiVersion <group/version[/Kind]>", or "apiVersions" for all API versions. If the artefact
// is not a chart, CapabilityQueries returns nil. The queries include every property that a template reads; they may
// also include properties that no template reads. A template cannot read a property of the cluster for which
// CapabilityQueries returns no query.
func (a *Artefact) CapabilityQueries(settings Settings) []string {
	if a.kind != Chart {
		return nil
	}
	return helm.CapabilityQueries(a.files, settings)
}

// parseManifests decodes the objects of an artefact that is a set of manifests.
func (a *Artefact) parseManifests() ([]*unstructured.Unstructured, error) {
	if len(a.files) == 1 && a.files[0].Path == "" {
		return Parse(a.files[0].Data)
	}
	files := a.filesBelowRoot()
	if len(files) > 1 {
		files = slices.DeleteFunc(slices.Clone(files), func(f input.File) bool { return !input.IsManifest(f.Path) })
	}
	if len(files) == 0 {
		return nil, &Error{Code: InvalidArchive,
			Problem: "the archive holds no *.yaml, *.yml or *.json file: package the module's manifest into it"}
	}
	var objects []*unstructured.Unstructured
	quota := input.NewQuota()
	for _, f := range files {
		more, err := quota.Parse(f.Data)
		if err != nil {
			return nil, input.InFile(f.Path, err)
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

// ReadManifests returns the objects of an OCI layer that contains manifests. For charts and Kustomize directories see
// Load. The layer is plain YAML or JSON, or a tar archive. The plain text and the tar archive can be compressed with
// gzip or zstd. ReadManifests detects the format of the layer by its content. In an archive, ReadManifests reads all
// regular files whose name ends in .yaml, .yml or .json and does not begin with "._", in the order of their paths. If
// the archive contains only one regular file, this file may have any name. Nothing is written to a disk.
//
// ReadManifests returns the errors of Parse, and errors with the reasons in the list below.
//   - InvalidArchive
//   - ArchiveTooLarge: see Limits
//   - UnsafeArchive: an entry has an absolute path, or a path or link outside of the archive's folder
//   - RefusedFeature: the layer is a chart or Kustomize directory
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
