package landscape

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
)

// Pack returns a tar archive of the regular files of a folder. With compress, the archive is compressed with gzip. top
// is the folder in the archive that contains the files. "" means no such folder. Equal folders result in equal bytes.
func Pack(folder fs.FS, top string, compress bool) ([]byte, error) {
	var b bytes.Buffer
	var out io.WriteCloser = nopCloser{&b}
	if compress {
		out = gzip.NewWriter(&b)
	}
	w := tar.NewWriter(out)
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := fs.ReadFile(folder, name)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: path.Join(top, name), Mode: 0o644, Size: int64(len(data)),
			Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err := errors.Join(err, w.Close(), out.Close()); err != nil {
		return nil, fmt.Errorf("packing a folder: %w", err)
	}
	return b.Bytes(), nil
}

type nopCloser struct{ io.Writer }

// Close does nothing.
func (nopCloser) Close() error { return nil }
