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

// maxInMemory is the maximum size of a blob that is kept in memory, in bytes. Layers of images are larger.
const maxInMemory = 1 << 20

// blob is content of an archive: in memory, or in a file if it is large.
type blob struct {
	data   []byte // content of a small blob
	size   int64
	open   func() (io.ReadCloser, error) // opens a large blob
	stored bool                          // it is stored in the folder of the archive
}

// reader returns a reader of the content from its beginning.
func (b blob) reader() (io.ReadCloser, error) {
	if b.open != nil {
		return b.open()
	}
	return io.NopCloser(bytes.NewReader(b.data)), nil
}

// bytes returns the complete content, which must not exceed maxLayer.
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

// copyTo writes the content.
func (b blob) copyTo(w io.Writer) error {
	r, err := b.reader()
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, r.Close())
}

// fileBlob returns a file as a blob, and its digest.
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

// firstBytes stores the first maxInMemory bytes and discards the rest.
type firstBytes struct{ *bytes.Buffer }

func (f *firstBytes) Write(p []byte) (int, error) {
	if room := maxInMemory - f.Len(); room > 0 {
		f.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// receive reads a blob, into a file if it is large, and returns its digest. The file is unlinked, so that it disappears
// with the process.
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
	f, err := os.CreateTemp(filepath.Dir(a.path), ".blob-*") // the same file system as the archive has enough space
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
