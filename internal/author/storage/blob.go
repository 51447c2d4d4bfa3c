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

// maxInMemory is the maximum size of a blob that is kept in memory, in bytes. Layers of images are usually larger than
// maxInMemory.
const maxInMemory = 1 << 20

// blob is one blob of an archive. A small blob is kept in memory, and a large blob is kept in a file.
type blob struct {
	data   []byte // content of a small blob
	size   int64
	open   func() (io.ReadCloser, error) // opens a large blob
	stored bool                          // true if the blob is in the folder of the archive
}

// reader returns a new reader of the content of the blob.
func (b blob) reader() (io.ReadCloser, error) {
	if b.open != nil {
		return b.open()
	}
	return io.NopCloser(bytes.NewReader(b.data)), nil
}

// bytes returns the whole content of the blob. The content must not be larger than maxLayer.
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

// copyTo writes the content of the blob to w.
func (b blob) copyTo(w io.Writer) error {
	r, err := b.reader()
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, r.Close())
}

// fileBlob returns the content of a file as a blob, and the digest of the content.
func fileBlob(path string) (b blob, digest string, err error) {
	//nolint:gosec // below the archive in the command line
	open := func() (io.ReadCloser, error) { return os.Open(path) }
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

// firstBytes is a writer that stores the first maxInMemory bytes and discards all further bytes.
type firstBytes struct{ *bytes.Buffer }

func (f *firstBytes) Write(p []byte) (int, error) {
	if room := maxInMemory - f.Len(); room > 0 {
		f.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// readBlob reads a blob, and returns the blob with its digest. readBlob writes a large blob to a temporary file, and
// unlinks the file at once, so that the file disappears when the process ends.
func (a *Archive) readBlob(r io.Reader) (b blob, digest string, err error) {
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
	f, err := os.CreateTemp(filepath.Dir(a.path), ".blob-*") // the file system of the archive has enough space
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
