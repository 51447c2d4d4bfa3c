package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// maxInMemory is the size up to which a blob of an archive is kept in memory, in bytes. Layers of images are larger.
const maxInMemory = 1 << 20

// blob is content of an archive: in memory, or if it is large in a file.
type blob struct {
	data   []byte // of a small one
	size   int64
	open   func() (io.ReadCloser, error) // of a large one
	stored bool                          // it lies in the folder of the archive
}

// reader reads it from its beginning.
func (b blob) reader() (io.ReadCloser, error) {
	if b.open != nil {
		return b.open()
	}
	return io.NopCloser(bytes.NewReader(b.data)), nil
}

// bytes returns the whole of it, which has to be small enough for a layer of a module.
func (b blob) bytes() ([]byte, error) {
	if b.open == nil {
		return b.data, nil
	}
	if b.size > maxLayer {
		return nil, fmt.Errorf("a blob is larger than %d bytes", int64(maxLayer))
	}
	r, err := b.open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// copyTo writes it.
func (b blob) copyTo(w io.Writer) error {
	r, err := b.reader()
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, r.Close())
}

// fileBlob is a file of a folder, and its digest.
func fileBlob(path string) (b blob, digest string, err error) {
	open := func() (io.ReadCloser, error) { return os.Open(path) } //nolint:gosec // below the archive that the user names
	f, err := open()
	if err != nil {
		return blob{}, "", err
	}
	defer f.Close()
	h, start := sha256.New(), &bytes.Buffer{}
	if b.size, err = io.Copy(io.MultiWriter(h, &firstBytes{start}), f); err != nil {
		return blob{}, "", err
	}
	b.stored = true
	if b.size <= maxInMemory {
		b.data = start.Bytes()
	} else {
		b.open = open
	}
	return b, "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// firstBytes keeps as much as may be kept in memory, and forgets the rest.
type firstBytes struct{ *bytes.Buffer }

func (f *firstBytes) Write(p []byte) (int, error) {
	if room := maxInMemory - f.Len(); room > 0 {
		f.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// receive reads a blob, into a file if it is large, and tells its digest. The file has no name, so that nothing is left of it in the end.
func (a *Archive) receive(r io.Reader) (b blob, digest string, err error) {
	h := sha256.New()
	r = io.TeeReader(r, h)
	var start bytes.Buffer
	if b.size, err = io.CopyN(&start, r, maxInMemory+1); errors.Is(err, io.EOF) {
		b.data = start.Bytes()
		return b, "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
	}
	if err != nil {
		return blob{}, "", err
	}
	f, err := os.CreateTemp(filepath.Dir(a.path), ".blob-*") // there is room for it where the archive will be
	if err != nil {
		f, err = os.CreateTemp("", ".blob-*")
	}
	if err != nil {
		return blob{}, "", err
	}
	_ = os.Remove(f.Name())
	if b.size, err = io.Copy(f, io.MultiReader(&start, r)); err != nil {
		return blob{}, "", errors.Join(err, f.Close())
	}
	b.open = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(f, 0, b.size)), nil }
	return b, "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
