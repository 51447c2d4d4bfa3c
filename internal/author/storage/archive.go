package storage

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// The following constants are the names of the files of a Common Transport Format archive, and its maximum size.
const (
	indexFile  = "artifact-index.json"
	blobFolder = "blobs"
	// maxArchive is the maximum unpacked size of an archive in one file, in bytes.
	maxArchive = 64 << 30
)

// Archive is a Common Transport Format archive: a folder, or one file with the same content (.tar, .tgz, .tar.gz).
// Small blobs are kept in memory, and large blobs are kept in files.
type Archive struct {
	path string

	mu      sync.Mutex      // needed because a registry client sends requests concurrently
	entries []entry         // guarded by mu during requests
	blobs   map[string]blob // by digest; guarded by mu during requests
	uploads map[string]blob // uploads in progress by number; guarded by mu during requests
	begun   int             // number of uploads so far; guarded by mu during requests
}

// entry describes one artifact in the index of an archive.
type entry struct {
	Repository string `json:"repository"`
	Tag        string `json:"tag,omitempty"`
	Digest     string `json:"digest"`
	MediaType  string `json:"mediaType,omitempty"`
}

type index struct {
	SchemaVersion int     `json:"schemaVersion"`
	Artifacts     []entry `json:"artifacts"`
}

var blobName = regexp.MustCompile(`^sha256\.[0-9a-f]{64}$`)

func newArchive(path string) *Archive {
	return &Archive{path: path, blobs: map[string]blob{}, uploads: map[string]blob{}}
}

// OpenArchive reads an archive and compares every blob with its digest. OpenArchive returns an error if a blob is
// missing, so that an incomplete copy is never used. If the path does not exist, the error wraps [os.ErrNotExist].
func OpenArchive(path string) (*Archive, error) {
	a := newArchive(path)
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("opening archive %s: %w", path, err)
	}
	read := a.loadFile
	if info.IsDir() {
		read = a.loadCTFFolder
	}
	text, err := read()
	if err == nil && text == nil {
		err = fmt.Errorf("it has no %s: it is not a Common Transport Format archive, or it was not copied completely",
			indexFile)
	}
	var i index
	if err == nil {
		if err = json.Unmarshal(text, &i); err != nil {
			err = fmt.Errorf("its %s is not JSON: %w", indexFile, err)
		}
	}
	if err == nil {
		a.entries = i.Artifacts
		err = a.checkComplete()
	}
	if err != nil {
		return nil, fmt.Errorf("opening archive %s: %w", path, err)
	}
	return a, nil
}

// loadCTFFolder returns the index of an archive that is a folder.
func (a *Archive) loadCTFFolder() ([]byte, error) {
	root, err := os.OpenRoot(a.path)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // opened for reading only
	text, err := root.ReadFile(indexFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir(filepath.Join(a.path, blobFolder))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, f := range files {
		if !blobName.MatchString(f.Name()) {
			continue // temporary file of a tool or of an interrupted transfer
		}
		b, digest, err := fileBlob(filepath.Join(a.path, blobFolder, f.Name()))
		if err == nil {
			err = a.addVerified(f.Name(), digest, b)
		}
		if err != nil {
			return nil, err
		}
	}
	return text, nil
}

// loadFile returns the index of an archive that is a single file (a tar archive, which may be compressed) and not a
// directory.
func (a *Archive) loadFile() (index []byte, err error) {
	f, err := os.Open(a.path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // opened for reading only
	var in io.Reader = f
	magic := make([]byte, 2)
	if _, err := io.ReadFull(f, magic); err != nil {
		return nil, fmt.Errorf("it is not an archive: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if in, err = gzip.NewReader(f); err != nil {
			return nil, err
		}
	}
	limited := &io.LimitedReader{R: in, N: maxArchive}
	for r := tar.NewReader(limited); ; {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return index, nil
		case err != nil && limited.N == 0:
			return nil, fmt.Errorf("it is larger than %d bytes", int64(maxArchive))
		case err != nil:
			return nil, fmt.Errorf("it is damaged, or was not copied completely: %w", err)
		case h.Typeflag != tar.TypeReg:
			continue
		}
		switch folder, name := path.Split(path.Clean(h.Name)); {
		case name == indexFile && folder == "":
			if index, err = io.ReadAll(r); err != nil {
				return nil, fmt.Errorf("it is damaged, or was not copied completely: %w", err)
			}
		case folder == blobFolder+"/" && blobName.MatchString(name):
			b, digest, err := a.readBlob(r)
			if err != nil {
				return nil, fmt.Errorf("it is damaged, or was not copied completely: %w", err)
			}
			if err := a.addVerified(name, digest, b); err != nil {
				return nil, err
			}
		}
	}
}

// addVerified adds a blob to the archive if its digest matches its name.
func (a *Archive) addVerified(name, digest string, b blob) error {
	if named := strings.Replace(name, ".", ":", 1); named != digest {
		return fmt.Errorf("blob %s is damaged: its digest is %s: copy the archive again", named, digest)
	}
	a.blobs[digest] = b
	return nil
}

// checkComplete returns an error if the archive does not contain a blob or a manifest to which the index or a manifest
// refers.
func (a *Archive) checkComplete() error {
	for _, e := range a.entries {
		if _, ok := a.blobs[e.Digest]; !ok {
			return fmt.Errorf("it is not complete: the manifest %s of %s:%s is missing: copy it again",
				e.Digest, e.Repository, e.Tag)
		}
		named, err := a.blobDigestsRequiredBy(e)
		if err != nil {
			return err
		}
		for _, digest := range named {
			if _, ok := a.blobs[digest]; !ok {
				return fmt.Errorf("it is not complete: blob %s of %s:%s is missing: copy it again",
					digest, e.Repository, e.Tag)
			}
		}
	}
	return nil
}

// blobDigestsRequiredBy returns the digests of the content that an entry of the index needs in addition to its
// manifest, so that the archive is complete. An image needs its config and its layers. An image index needs the
// manifests of its images; each of these manifests has its own entry in the index of the archive. An index that lists
// referrers needs no other content: the archive is complete without the manifests that it lists. An archive may be
// without a layer that has external URLs, because clients download this layer from the URLs.
func (a *Archive) blobDigestsRequiredBy(e entry) ([]string, error) {
	data, err := a.blobs[e.Digest].bytes()
	if err != nil {
		return nil, err
	}
	var m struct {
		Config    v1.Descriptor   `json:"config"`
		Layers    []v1.Descriptor `json:"layers"`
		Manifests []v1.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("the manifest of %s:%s is not JSON: %w", e.Repository, e.Tag, err)
	}
	all := m.Layers
	if m.Config.Digest.Hex != "" {
		all = append(all, m.Config)
	}
	if !referrersTag.MatchString(e.Tag) {
		all = append(all, m.Manifests...)
	}
	var named []string
	for _, d := range all {
		if d.MediaType.IsDistributable() || d.MediaType == "" || !d.MediaType.IsLayer() {
			named = append(named, d.Digest.String())
		}
	}
	return named, nil
}

// referrersTag matches the tags of lists of referrers.
var referrersTag = regexp.MustCompile(`^sha256-[0-9a-f]{64}$`)

// Components returns the component versions in the archive.
func (a *Archive) Components() ([]*ocm.Artifact, error) {
	var all []*ocm.Artifact
	for _, e := range a.entries {
		manifest, err := a.blobs[e.Digest].bytes()
		if err != nil {
			return nil, err
		}
		art := &ocm.Artifact{Repository: e.Repository, Tag: e.Tag, MediaType: e.MediaType, Manifest: manifest,
			Blobs: map[string][]byte{}}
		if !art.IsComponent() {
			continue
		}
		named, err := a.blobDigestsRequiredBy(e)
		if err != nil {
			return nil, err
		}
		for _, digest := range named {
			if art.Blobs[digest], err = a.blobs[digest].bytes(); err != nil {
				return nil, err
			}
		}
		all = append(all, art)
	}
	return all, nil
}

// Add adds artifacts to the archive. If a tag exists with other content, Add moves the tag if replace is true, and
// returns an error if replace is false.
func (a *Archive) Add(replace bool, artifacts ...*ocm.Artifact) error {
	for _, art := range artifacts {
		e := entry{art.Repository, art.Tag, art.Digest(), cmp.Or(art.MediaType, string(types.OCIManifestSchema1))}
		if i := a.find(e); i >= 0 && a.entries[i].Digest != e.Digest && !replace {
			return fmt.Errorf(
				"adding %s:%s to archive %s: it exists with other content (%s, this is %s): raise the version, or "+
					"use --overwrite",
				e.Repository, e.Tag, a.path, a.entries[i].Digest, e.Digest)
		}
		a.setEntry(e)
		a.addBlob(e.Digest, art.Manifest)
		for digest, data := range art.Blobs {
			a.addBlob(digest, data)
		}
	}
	return nil
}

// find returns the position in the index of the entry with the same name, or -1 if there is no such entry.
func (a *Archive) find(e entry) int {
	return slices.IndexFunc(a.entries, func(o entry) bool {
		return o.Repository == e.Repository && o.Tag == e.Tag && (e.Tag != "" || o.Digest == e.Digest)
	})
}

// setEntry adds an entry to the index, or replaces the entry with the same name.
func (a *Archive) setEntry(e entry) {
	if i := a.find(e); i >= 0 {
		a.entries = slices.Delete(a.entries, i, i+1)
	}
	a.entries = append(a.entries, e)
	slices.SortFunc(a.entries, func(x, y entry) int {
		return cmp.Or(strings.Compare(x.Repository, y.Repository), strings.Compare(x.Tag, y.Tag),
			strings.Compare(x.Digest, y.Digest))
	})
}

// addBlob adds a blob to the archive, unless the archive contains the blob already.
func (a *Archive) addBlob(digest string, data []byte) {
	if _, there := a.blobs[digest]; !there {
		a.blobs[digest] = blob{data: data, size: int64(len(data))}
	}
}

// Save writes the archive to its path. In a folder, Save writes the blobs first and the index last. An archive in one
// file is first written to a temporary file, which then replaces the old file. The index or the file is written last so
// that a reader never sees an incomplete archive.
func (a *Archive) Save() error {
	text, err := json.Marshal(index{1, a.entries})
	if err != nil {
		return fmt.Errorf("encoding the index: %w", err)
	}
	if err := a.forgetUnusedBlobs(); err != nil {
		return fmt.Errorf("writing archive %s: %w", a.path, err)
	}
	if hasArchiveExtension(a.path) {
		err = a.saveFile(text)
	} else {
		err = a.saveCTFFolder(text)
	}
	if err != nil {
		return fmt.Errorf("writing archive %s: %w", a.path, err)
	}
	return nil
}

// forgetUnusedBlobs removes the blobs to which no manifest refers any more.
func (a *Archive) forgetUnusedBlobs() error {
	needed := map[string]blob{}
	for _, e := range a.entries {
		needed[e.Digest] = a.blobs[e.Digest]
		named, err := a.blobDigestsRequiredBy(e)
		if err != nil {
			return err
		}
		for _, digest := range named {
			if b, ok := a.blobs[digest]; ok {
				needed[digest] = b
			}
		}
	}
	a.blobs = needed
	return nil
}

// hasArchiveExtension reports whether a path has the extension of an archive in one file.
func hasArchiveExtension(path string) bool {
	return strings.HasSuffix(path, ".tgz") || strings.HasSuffix(path, ".tar.gz") || strings.HasSuffix(path, ".tar")
}

func (a *Archive) saveCTFFolder(indexJSON []byte) error {
	folder := filepath.Join(a.path, blobFolder)
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // the archive may be readable for everybody
		return err
	}
	for digest, b := range a.blobs {
		if b.stored {
			continue
		}
		file := filepath.Join(folder, strings.Replace(digest, ":", ".", 1))
		if err := replaceFile(file, b.copyTo); err != nil {
			return err
		}
		b.stored = true
		a.blobs[digest] = b
	}
	if err := replaceFile(filepath.Join(a.path, indexFile), blob{data: indexJSON}.copyTo); err != nil {
		return err
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, f := range files {
		if _, needed := a.blobs[strings.Replace(f.Name(), ".", ":", 1)]; !needed && blobName.MatchString(f.Name()) {
			if err := os.Remove(filepath.Join(folder, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaceFile writes a temporary file and renames it to path.
func replaceFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it exists only after an error
	err = write(f)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// saveFile writes the archive as one file. For archives with equal content, saveFile writes files with equal bytes.
func (a *Archive) saveFile(indexJSON []byte) error {
	//nolint:gosec // the archive may be readable for everybody
	if err := os.MkdirAll(filepath.Dir(a.path), 0o755); err != nil {
		return err
	}
	return replaceFile(a.path, func(out io.Writer) error {
		if strings.HasSuffix(a.path, ".tar") {
			return a.writeCTFTar(out, indexJSON)
		}
		zip, err := gzip.NewWriterLevel(out, gzip.BestSpeed) // layers of images are already compressed
		if err != nil {
			return err
		}
		return errors.Join(a.writeCTFTar(zip, indexJSON), zip.Close())
	})
}

// writeCTFTar writes the archive in the format tar.
func (a *Archive) writeCTFTar(out io.Writer, indexJSON []byte) error {
	w := tar.NewWriter(out)
	put := func(name string, b blob) error {
		h := &tar.Header{Name: name, Mode: 0o644, Size: b.size, Typeflag: tar.TypeReg,
			Format: tar.FormatUSTAR, ModTime: time.Unix(0, 0)}
		if b.size > maxUSTAR {
			h.Format = tar.FormatGNU
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		return b.copyTo(w)
	}
	if err := put(indexFile, blob{data: indexJSON, size: int64(len(indexJSON))}); err != nil {
		return err
	}
	for _, digest := range slices.Sorted(maps.Keys(a.blobs)) {
		if err := put(path.Join(blobFolder, strings.Replace(digest, ":", ".", 1)), a.blobs[digest]); err != nil {
			return err
		}
	}
	return w.Close()
}

// maxUSTAR is the maximum size of a file in the USTAR format.
const maxUSTAR = 8<<30 - 1

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
