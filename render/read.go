package render

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Limits bounds what is unpacked and rendered. The zero value means the defaults.
type Limits struct {
	// MaxBytes is the most that each step of unpacking may yield, all files of an archive taken together; 0 means 64 MiB.
	MaxBytes int64
	// MaxFiles is the most entries an archive may have, of any kind; 0 means 4096.
	MaxFiles int
}

// The defaults of Limits.
const (
	DefaultMaxBytes = 64 << 20
	DefaultMaxFiles = 4096
)

// nesting is how many times a layer may be compressed. A tar is compressed once; an archiver and a registry client may each do it.
const maxCompressions = 2

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
		return nil, &Error{reason: RefusedFeature, problem: fmt.Sprintf("the layer is a %s, which has to be rendered, where only manifests are expected: package manifests", artefact.kind)}
	}
	return artefact.parseManifests()
}

func decompress(data []byte, limit int64) ([]byte, error) {
	for range maxCompressions {
		var stream io.Reader
		switch {
		case bytes.HasPrefix(data, []byte{0x1f, 0x8b}):
			unzip, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				return nil, damagedError("gzip", err)
			}
			stream = unzip
		case bytes.HasPrefix(data, []byte{0x28, 0xb5, 0x2f, 0xfd}):
			// Without goroutines. A window may be larger than the content: 8 MiB is what every reader should bear.
			unzip, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(max(limit, 8<<20))))
			if err != nil {
				return nil, damagedError("zstd", err)
			}
			defer unzip.Close()
			stream = unzip
		default:
			return data, checkSize(int64(len(data)), limit)
		}
		out, err := io.ReadAll(io.LimitReader(stream, limit+1))
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) || int64(len(out)) > limit {
			return nil, checkSize(limit+1, limit)
		}
		if err != nil {
			return nil, damagedError("compressed data", err)
		}
		data = out
	}
	return data, checkSize(int64(len(data)), limit)
}

func damagedError(what string, err error) error {
	return &Error{reason: InvalidArchive, problem: "the " + what + " is damaged: package the module again", err: err}
}

func checkSize(have, limit int64) error {
	if have <= limit {
		return nil
	}
	return &Error{reason: ArchiveTooLarge, problem: fmt.Sprintf("unpacked it is larger than %d bytes: split the module or raise the limit", limit)}
}

// isTar reports whether data begins with a tar header; its checksum makes a mistake all but impossible.
func isTar(data []byte) bool {
	if len(data) < 512 {
		return false
	}
	_, err := tar.NewReader(bytes.NewReader(data[:512])).Next()
	// A header that continues in the next block (long names, extensions) ends this short input, but is a tar.
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || bytes.Equal(data[257:262], []byte("ustar"))
}

// file is one regular file of an archive or folder.
type file struct {
	path string
	data []byte
}

// budget is what is left of Limits for one artefact, with all archives in it.
type budget struct {
	limits Limits
	bytes  int64
	files  int
}

func newBudget(limits Limits) *budget {
	limits.MaxBytes = cmp.Or(limits.MaxBytes, DefaultMaxBytes)
	limits.MaxFiles = cmp.Or(limits.MaxFiles, DefaultMaxFiles)
	return &budget{limits, limits.MaxBytes, limits.MaxFiles}
}

// entry takes one entry of an archive or folder off the budget.
func (b *budget) takeEntry() error {
	if b.files--; b.files < 0 {
		return &Error{reason: ArchiveTooLarge, problem: fmt.Sprintf("it has more than %d entries: split the module or raise the limit", b.limits.MaxFiles)}
	}
	return nil
}

// read takes the content of one file off the budget.
func (b *budget) takeFile(from io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(from, b.bytes+1))
	if err != nil {
		return nil, err
	}
	if b.bytes -= int64(len(content)); b.bytes < 0 {
		return nil, checkSize(b.limits.MaxBytes+1, b.limits.MaxBytes)
	}
	return content, nil
}

// untar returns the regular files of an archive in the order of their paths, and the path of the first link in it.
func untar(data []byte, left *budget) (files []file, link string, err error) {
	archive := tar.NewReader(bytes.NewReader(data))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return nil, "", damagedError("tar archive", err)
		}
		if err := left.takeEntry(); err != nil {
			return nil, "", err
		}
		name, err := safePath(header)
		if err != nil {
			return nil, "", err
		}
		if link == "" && (header.Typeflag == tar.TypeSymlink || header.Typeflag == tar.TypeLink) {
			link = name
		}
		if header.Typeflag != tar.TypeReg || strings.HasPrefix(path.Base(name), "._") {
			continue
		}
		content, err := left.takeFile(archive)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				err = damagedError("tar archive", err)
			}
			return nil, "", err
		}
		files = append(files, file{name, content})
	}
	slices.SortStableFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return files, link, nil
}

// inside returns the clean path of an entry, or an error if the entry or what it links to lies outside the archive's folder.
func safePath(header *tar.Header) (string, error) {
	outside := func(p string) bool {
		p = strings.ReplaceAll(p, `\`, "/")
		clean := path.Clean(p)
		return path.IsAbs(p) || clean == ".." || strings.HasPrefix(clean, "../") || len(p) > 1 && p[1] == ':'
	}
	target := header.Linkname
	switch {
	case header.Typeflag == tar.TypeSymlink && !path.IsAbs(target):
		target = path.Join(path.Dir(header.Name), target) //nolint:gosec // it is compared, and nothing is written anywhere
	case header.Typeflag != tar.TypeSymlink && header.Typeflag != tar.TypeLink:
		target = ""
	}
	if outside(header.Name) || outside(target) {
		return "", &Error{reason: UnsafeArchive, File: header.Name, problem: "the entry leaves the archive's folder: package the module again without it"}
	}
	return path.Clean(header.Name), nil
}
