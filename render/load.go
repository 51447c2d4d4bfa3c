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
	files  []file // in the order of their paths, with a chart's subcharts unpacked
	root   string // folder of the chart or Kustomize directory, "." for the top
	ignore bool   // a folder of sources: .helmignore counts
	link   string // the first link of an archive, which is not followed
}

// Load unpacks an OCI layer, a packaged chart or any other artefact that is one sequence of bytes. What it is, its content
// says: an archive (tar, compressed or not) whose top folder has a Chart.yaml is a Helm chart, one with a kustomization.yaml
// is a Kustomize directory, and everything else are manifests, as Read describes them. The top folder is the archive's
// root, or the only folder in it.
//
// Errors have reason InvalidArchive, ArchiveTooLarge, UnsafeArchive or InvalidChart.
func Load(layer []byte, limits Limits) (*Artefact, error) {
	left := newBudget(limits)
	data, err := decompress(layer, left.limits.MaxBytes)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(layer)
	a := &Artefact{kind: Manifests, digest: "sha256:" + hex.EncodeToString(sum[:]), root: "."}
	if !isTar(data) {
		a.files = []file{{data: data}}
		return a, nil
	}
	if a.files, a.link, err = untar(data, left); err != nil {
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
	left := newBudget(limits)
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
		if err := left.takeEntry(); err != nil {
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
			return errors.Join(err, &Error{reason: UnsafeArchive, File: name, problem: "it is not a regular file: replace or remove it"})
		}
		data, err := left.takeFile(from)
		a.files = append(a.files, file{name, data})
		hashQuoted(sum, name, string(data))
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
		return &Error{reason: UnsafeArchive, File: name, problem: "the link leaves the folder: replace it by what it links to"}
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
		return nil, &Error{reason: UnsafeArchive, File: folder, problem: "the path leaves the artefact: name a folder within it"}
	}
	clean = path.Join(a.root, clean)
	sum := sha256.New()
	hashQuoted(sum, a.digest, clean)
	sub := &Artefact{kind: Manifests, digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), files: a.files, root: clean, ignore: a.ignore, link: a.link}
	if len(sub.filesInRoot()) == 0 {
		return nil, &Error{reason: InvalidArchive, File: folder, problem: "the artefact has no such folder: correct the path"}
	}
	return sub, sub.detectKind(newBudget(Limits{}))
}

// Kind says what the artefact holds.
func (a *Artefact) Kind() Kind { return a.kind }

// Digest identifies the content as "sha256:<hex>". For Load it is the digest of the bytes as they were given, the one that
// an OCI registry knows a layer by.
func (a *Artefact) Digest() string { return a.digest }

// recognise finds the top folder and what is in it.
func (a *Artefact) detectKind(left *budget) error {
	roots := []string{a.root}
	if top, ok := onlyFolder(a.files); ok && a.root == "." {
		roots = append(roots, top)
	}
	for _, root := range roots {
		for _, f := range a.files {
			if path.Dir(f.path) != root || a.kind == Chart {
				continue
			}
			switch path.Base(f.path) {
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
		return &Error{reason: UnsafeArchive, File: a.link, problem: "links are not followed in a " + string(a.kind) + ": package it again with the file itself"}
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
func onlyFolder(files []file) (string, bool) {
	if len(files) == 0 {
		return "", false
	}
	first, _, ok := strings.Cut(files[0].path, "/")
	for _, f := range files {
		if !strings.HasPrefix(f.path, first+"/") {
			return "", false
		}
	}
	return first, ok
}

// within returns the files of the top folder with paths relative to it.
func (a *Artefact) filesInRoot() []file {
	if a.root == "." {
		return a.files
	}
	var files []file
	for _, f := range a.files {
		if rest, ok := strings.CutPrefix(f.path, a.root+"/"); ok {
			files = append(files, file{rest, f.data})
		}
	}
	return files
}

// maxSubcharts is how deep archives of charts may be nested.
const maxSubcharts = 8

// unpackSubcharts replaces packaged charts in charts/ by their files, so that one budget holds for all of them.
func unpackSubcharts(files []file, left *budget, depth int) ([]file, error) {
	var out []file
	for _, f := range files {
		dir, base := path.Split(f.path)
		name, packaged := strings.CutSuffix(base, ".tgz")
		if !packaged || path.Base(dir) != "charts" || strings.ContainsAny(base[:1], "._") {
			out = append(out, f)
			continue
		}
		if depth == maxSubcharts {
			return nil, &Error{reason: ArchiveTooLarge, File: f.path, problem: fmt.Sprintf("charts are packaged in charts more than %d deep", maxSubcharts)}
		}
		data, err := decompress(f.data, left.bytes)
		if err != nil {
			return nil, withArchive(f.path, err)
		}
		inner, link, err := untar(data, left)
		if err != nil {
			return nil, withArchive(f.path, err)
		}
		top, ok := onlyFolder(inner)
		if !ok || link != "" {
			return nil, &Error{reason: InvalidChart, File: f.path, problem: "it is no packaged chart, which has one folder and no links: package it with Helm"}
		}
		if inner, err = unpackSubcharts((&Artefact{files: inner, root: top}).filesInRoot(), left, depth+1); err != nil {
			return nil, withArchive(f.path, err)
		}
		for _, i := range inner {
			out = append(out, file{dir + name + "~/" + i.path, i.data}) // ~ keeps it apart from a folder of that name
		}
	}
	return out, nil
}

// within completes an error with the archive it happened in.
func withArchive(archive string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.File = strings.TrimSuffix(archive+": "+e.File, ": ")
	}
	return err
}

// dropIgnored leaves out what a chart's .helmignore says.
func withoutIgnored(files []file) ([]file, error) {
	rules := ignore.Empty()
	if i := slices.IndexFunc(files, func(f file) bool { return f.path == ignore.HelmIgnore }); i >= 0 {
		var err error
		if rules, err = ignore.Parse(bytes.NewReader(files[i].data)); err != nil {
			return nil, &Error{reason: InvalidChart, File: ignore.HelmIgnore, problem: "it cannot be read: correct it", err: err}
		}
	}
	rules.AddDefaults()
	return slices.DeleteFunc(slices.Clone(files), func(f file) bool {
		if rules.Ignore(f.path, entry{name: path.Base(f.path)}) {
			return true
		}
		for dir := path.Dir(f.path); dir != "."; dir = path.Dir(dir) {
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
		return a.renderChart(ctx, settings)
	}
	if len(bytes.TrimSpace(settings.Values)) > 0 || len(settings.Set) > 0 {
		return nil, nil, &Error{reason: InvalidValues, problem: "there are values, but it is a " + string(a.kind) + ", which takes none: remove them"}
	}
	if a.kind == Kustomization {
		objects, err = a.buildKustomization(ctx)
	} else {
		objects, err = a.parseManifests()
	}
	if err != nil {
		return nil, nil, err
	}
	return settings.addNamespace(objects), nil, nil
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

// parse reads manifests.
func (a *Artefact) parseManifests() ([]*unstructured.Unstructured, error) {
	if len(a.files) == 1 && a.files[0].path == "" {
		return Parse(a.files[0].data)
	}
	files := a.filesInRoot()
	if len(files) > 1 {
		files = slices.DeleteFunc(slices.Clone(files), func(f file) bool { return !isManifest(f.path) })
	}
	if len(files) == 0 {
		return nil, &Error{reason: InvalidArchive, problem: "the archive holds no *.yaml, *.yml or *.json file: package the module's manifest into it"}
	}
	var objects []*unstructured.Unstructured
	for _, f := range files {
		more, err := Parse(f.data)
		if err != nil {
			return nil, withArchive(f.path, err)
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

// isManifest reports whether the name of a file says that it holds objects.
func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name))
}

// guarded runs a library on what others wrote: a panic of it becomes an error, and so does a context that has ended meanwhile.
func runGuarded[T any](ctx context.Context, doing string, work func() (T, error)) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Error{operation: doing, reason: RefusedFeature, problem: fmt.Sprintf("it makes the renderer fail: %v", p)}
		} else if ctx.Err() != nil {
			err = &Error{operation: doing, reason: RenderTimeout, problem: "it was not finished in time: simplify it or allow more time", err: context.Cause(ctx)}
		}
	}()
	if ctx.Err() == nil {
		result, err = work()
	}
	return result, err
}
