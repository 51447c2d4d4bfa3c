package author

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
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
)

// Files of a Common Transport Format archive.
const (
	indexFile  = "artifact-index.json"
	blobFolder = "blobs"
	// maxArchive bounds an archive in one file, unpacked, in bytes.
	maxArchive = 4 << 30
)

// Archive is a Common Transport Format archive: a folder, or the same as one file (.tar, .tgz, .tar.gz). It keeps blobs in memory.
type Archive struct {
	path    string
	entries []entry
	blobs   map[string][]byte // by digest
}

// entry is an artifact in the index of an archive.
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

// OpenArchive reads an archive and compares every blob with its digest. What is missing is told, so that half of a copy is never taken for
// an archive. A path where nothing is gives an error that is [os.ErrNotExist].
func OpenArchive(path string) (*Archive, error) {
	a := &Archive{path: path, blobs: map[string][]byte{}}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("opening archive %s: %w", path, err)
	}
	read := a.readFile
	if info.IsDir() {
		read = a.readFolder
	}
	text, err := read()
	if err == nil && text == nil {
		err = fmt.Errorf("it has no %s: it is no Common Transport Format archive, or was not copied completely", indexFile)
	}
	var i index
	if err == nil {
		if err = json.Unmarshal(text, &i); err != nil {
			err = fmt.Errorf("its %s is not JSON: %w", indexFile, err)
		}
	}
	if err == nil {
		a.entries = i.Artifacts
		err = a.check()
	}
	if err != nil {
		return nil, fmt.Errorf("opening archive %s: %w", path, err)
	}
	return a, nil
}

// readFolder returns the index of an archive that is a folder.
func (a *Archive) readFolder() ([]byte, error) {
	root, err := os.OpenRoot(a.path)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // it was only read
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
		data, err := root.ReadFile(path.Join(blobFolder, f.Name()))
		if err != nil {
			return nil, err
		}
		if err := a.keep(f.Name(), data); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// readFile returns the index of an archive that is one file.
func (a *Archive) readFile() (text []byte, err error) {
	f, err := os.Open(a.path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	var in io.Reader = f
	magic := make([]byte, 2)
	if _, err := io.ReadFull(f, magic); err != nil {
		return nil, fmt.Errorf("it is no archive: %w", err)
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
			return text, nil
		case err != nil && limited.N == 0:
			return nil, fmt.Errorf("it is larger than %d bytes", int64(maxArchive))
		case err != nil:
			return nil, fmt.Errorf("it is damaged, or was not copied completely: %w", err)
		case h.Typeflag != tar.TypeReg:
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("it is damaged, or was not copied completely: %w", err)
		}
		switch folder, name := path.Split(path.Clean(h.Name)); {
		case name == indexFile && folder == "":
			text = data
		case folder == blobFolder+"/":
			if err := a.keep(name, data); err != nil {
				return nil, err
			}
		}
	}
}

// keep takes a blob, if it is what its name says.
func (a *Archive) keep(name string, data []byte) error {
	if !blobName.MatchString(name) {
		return nil // left by a tool, or by a transfer that broke off
	}
	digest := digestOf(data)
	if named := strings.Replace(name, ".", ":", 1); named != digest {
		return fmt.Errorf("blob %s is damaged: its digest is %s: copy the archive again", named, digest)
	}
	a.blobs[digest] = data
	return nil
}

// check fails if something is missing that the index or a manifest names.
func (a *Archive) check() error {
	for _, e := range a.entries {
		art := a.artifact(e)
		if art == nil {
			return fmt.Errorf("it is not complete: the manifest %s of %s:%s is missing: copy it again", e.Digest, e.Repository, e.Tag)
		}
		missing, err := art.Missing()
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			return fmt.Errorf("it is not complete: blob %s of %s:%s is missing: copy it again", missing[0], e.Repository, e.Tag)
		}
	}
	return nil
}

// artifact returns what an entry of the index stands for, with the blobs that there are; nil if its manifest is missing.
func (a *Archive) artifact(e entry) *registry.Artifact {
	data, ok := a.blobs[e.Digest]
	if !ok {
		return nil
	}
	art := &registry.Artifact{Repository: e.Repository, Tag: e.Tag, MediaType: e.MediaType, Manifest: data, Blobs: map[string][]byte{}}
	m, err := v1.ParseManifest(bytes.NewReader(data))
	if err != nil {
		return art
	}
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if blob, ok := a.blobs[d.Digest.String()]; ok {
			art.Blobs[d.Digest.String()] = blob
		}
	}
	return art
}

// Artifacts returns all that is in the archive.
func (a *Archive) Artifacts() []*registry.Artifact {
	var all []*registry.Artifact
	for _, e := range a.entries {
		all = append(all, a.artifact(e))
	}
	return all
}

// Components returns the component versions in the archive.
func (a *Archive) Components() []*registry.Artifact {
	return slices.DeleteFunc(a.Artifacts(), func(art *registry.Artifact) bool { return !art.IsComponent() })
}

// Add takes artifacts in. A tag that stands for something else is moved only if asked to.
func (a *Archive) Add(replace bool, artifacts ...*registry.Artifact) error {
	for _, art := range artifacts {
		e := entry{art.Repository, art.Tag, art.Digest(), cmp.Or(art.MediaType, string(types.OCIManifestSchema1))}
		same := func(o entry) bool {
			return o.Repository == e.Repository && o.Tag == e.Tag && (e.Tag != "" || o.Digest == e.Digest)
		}
		if i := slices.IndexFunc(a.entries, same); i >= 0 {
			if a.entries[i].Digest != e.Digest && !replace {
				return fmt.Errorf("adding %s:%s to archive %s: it has that already, with other content (%s, this is %s): raise the version, or give --overwrite",
					e.Repository, e.Tag, a.path, a.entries[i].Digest, e.Digest)
			}
			a.entries = slices.Delete(a.entries, i, i+1)
		}
		a.entries = append(a.entries, e)
		a.blobs[e.Digest] = art.Manifest
		maps.Copy(a.blobs, art.Blobs)
	}
	slices.SortFunc(a.entries, func(x, y entry) int {
		return cmp.Or(strings.Compare(x.Repository, y.Repository), strings.Compare(x.Tag, y.Tag), strings.Compare(x.Digest, y.Digest))
	})
	return nil
}

// Save writes the archive where it came from: blobs first and the index last, or the whole beside and then in its place, so that a reader
// never sees half of it.
func (a *Archive) Save() error {
	text, err := json.Marshal(index{1, a.entries})
	if err != nil {
		return fmt.Errorf("encoding the index: %w", err)
	}
	a.drop()
	if isFile(a.path) {
		err = a.saveFile(text)
	} else {
		err = a.saveFolder(text)
	}
	if err != nil {
		return fmt.Errorf("writing archive %s: %w", a.path, err)
	}
	return nil
}

// drop forgets blobs that nothing names any more.
func (a *Archive) drop() {
	needed := map[string][]byte{}
	for _, e := range a.entries {
		needed[e.Digest] = a.blobs[e.Digest]
		maps.Copy(needed, a.artifact(e).Blobs)
	}
	a.blobs = needed
}

// isFile tells by its name whether an archive is one file.
func isFile(path string) bool {
	return strings.HasSuffix(path, ".tgz") || strings.HasSuffix(path, ".tar.gz") || strings.HasSuffix(path, ".tar")
}

func (a *Archive) saveFolder(text []byte) error {
	folder := filepath.Join(a.path, blobFolder)
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // others may read it
		return err
	}
	for digest, data := range a.blobs {
		if err := replaceFile(filepath.Join(folder, strings.Replace(digest, ":", ".", 1)), data); err != nil {
			return err
		}
	}
	if err := replaceFile(filepath.Join(a.path, indexFile), text); err != nil {
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

// replaceFile writes a file beside and then in the place of the one that is there.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is gone unless something failed
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// saveFile writes the archive as one file, the same bytes for the same content.
func (a *Archive) saveFile(text []byte) error {
	var b bytes.Buffer
	var out io.WriteCloser = nopCloser{&b}
	if !strings.HasSuffix(a.path, ".tar") {
		out = gzip.NewWriter(&b)
	}
	w := tar.NewWriter(out)
	put := func(name string, data []byte) error {
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR, ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := w.Write(data)
		return err
	}
	err := put(indexFile, text)
	for _, digest := range sortedKeys(a.blobs) {
		err = errors.Join(err, put(path.Join(blobFolder, strings.Replace(digest, ":", ".", 1)), a.blobs[digest]))
	}
	if err = errors.Join(err, w.Close(), out.Close()); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(a.path), 0o755); err != nil { //nolint:gosec // others may read it
		return err
	}
	return replaceFile(a.path, b.Bytes())
}

type nopCloser struct{ io.Writer }

// Close does nothing.
func (nopCloser) Close() error { return nil }

// RoundTrip answers a client of a registry from the archive, whatever host it asks. Writing is not possible so.
func (a *Archive) RoundTrip(request *http.Request) (*http.Response, error) {
	answer := func(code int, mediaType string, data []byte) (*http.Response, error) {
		r := &http.Response{
			StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
			Header: http.Header{"Content-Type": {mediaType}}, ContentLength: int64(len(data)), Body: io.NopCloser(bytes.NewReader(data)),
		}
		if code == http.StatusOK {
			r.Header.Set("Docker-Content-Digest", digestOf(data))
		}
		return r, nil
	}
	const text, missing = "application/json", `{"errors":[]}`
	at := strings.TrimPrefix(request.URL.Path, "/v2/")
	if at == "" {
		return answer(http.StatusOK, text, []byte("{}"))
	}
	if repository, ok := strings.CutSuffix(at, "/tags/list"); ok {
		tags := []string{}
		for _, e := range a.entries {
			if e.Repository == repository && e.Tag != "" {
				tags = append(tags, e.Tag)
			}
		}
		data, err := json.Marshal(map[string]any{"name": repository, "tags": tags})
		if err != nil {
			return nil, err
		}
		return answer(http.StatusOK, text, data)
	}
	folder, reference := path.Split(at)
	if repository, ok := strings.CutSuffix(folder, "/manifests/"); ok {
		for _, e := range a.entries {
			if e.Repository == repository && (e.Tag == reference || e.Digest == reference) {
				return answer(http.StatusOK, e.MediaType, a.blobs[e.Digest])
			}
		}
	}
	if data, ok := a.blobs[reference]; ok && strings.HasSuffix(folder, "/blobs/") {
		return answer(http.StatusOK, "application/octet-stream", data)
	}
	return answer(http.StatusNotFound, text, []byte(missing))
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
