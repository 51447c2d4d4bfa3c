package input

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
)

// Limits limits the size of an unpacked artefact. The zero value means that the defaults apply.
type Limits struct {
	// MaxBytes is the maximum size in bytes of the result of each unpacking step, such as the total size of all files
	// in an archive. If MaxBytes is 0, the maximum is 64 MiB.
	MaxBytes int64
	// MaxFiles is the maximum number of entries of an archive, including folders and links; 0 means 4096.
	MaxFiles int
}

// The defaults of Limits.
const (
	DefaultMaxBytes = 64 << 20
	DefaultMaxFiles = 4096
)

// maxCompressions is how often a layer may be compressed: once by an archiver, and once by a registry client.
const maxCompressions = 2

// Decompress decompresses data if it is compressed with gzip or zstd. The decompressed data has at most limit bytes.
func Decompress(data []byte, limit int64) ([]byte, error) {
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
			// With concurrency 1, the reader starts no goroutines. The memory limit is at least 8 MiB, because the
			// window of a zstd stream may be larger than its content, and every zstd reader should support a window of
			// 8 MiB.
			unzip, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1),
				zstd.WithDecoderMaxMemory(uint64(max(limit, 8<<20))))
			if err != nil {
				return nil, damagedError("zstd", err)
			}
			defer unzip.Close()
			stream = unzip
		default:
			return data, CheckSize(int64(len(data)), limit)
		}
		out, err := io.ReadAll(io.LimitReader(stream, limit+1))
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) ||
			int64(len(out)) > limit {
			return nil, CheckSize(limit+1, limit)
		}
		if err != nil {
			return nil, damagedError("compressed data", err)
		}
		data = out
	}
	return data, CheckSize(int64(len(data)), limit)
}

func damagedError(what string, err error) error {
	return &Error{Code: InvalidArchive, Problem: "the " + what + " is damaged: package the module again", Cause: err}
}

// CheckSize returns an error with reason ArchiveTooLarge if a size in bytes exceeds a limit.
func CheckSize(have, limit int64) error {
	if have <= limit {
		return nil
	}
	return &Error{Code: ArchiveTooLarge, Problem: fmt.Sprintf(
		"unpacked it is larger than %d bytes: split the module or raise the limit", limit)}
}

// IsTar reports whether data begins with a tar header. IsTar checks the checksum of the header, so that a wrong result
// is very unlikely.
func IsTar(data []byte) bool {
	if len(data) < 512 {
		return false
	}
	_, err := tar.NewReader(bytes.NewReader(data[:512])).Next()
	// A tar header may continue in the next block (long names, extensions). For a header that continues in the next
	// block, the parser returns the error EOF, because it gets only the first block. IsTar therefore returns true for
	// the error EOF, too.
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		bytes.Equal(data[257:262], []byte("ustar"))
}

// File is one regular file of an archive or a folder.
type File struct {
	// Path is the path relative to the root of the archive or folder. Path is "" if the artefact is a single file
	// without a name.
	Path string
	Data []byte
}

// Budget is what is left of the Limits for one artefact, including all archives in the artefact.
type Budget struct {
	Limits Limits
	Bytes  int64
	Files  int
}

// NewBudget returns the full budget for one artefact, as its Limits allow.
func NewBudget(limits Limits) *Budget {
	limits.MaxBytes = cmp.Or(limits.MaxBytes, DefaultMaxBytes)
	limits.MaxFiles = cmp.Or(limits.MaxFiles, DefaultMaxFiles)
	return &Budget{limits, limits.MaxBytes, limits.MaxFiles}
}

// TakeEntry subtracts one entry of an archive or folder from the budget.
func (b *Budget) TakeEntry() error {
	if b.Files--; b.Files < 0 {
		return &Error{Code: ArchiveTooLarge, Problem: fmt.Sprintf(
			"it has more than %d entries: split the module or raise the limit", b.Limits.MaxFiles)}
	}
	return nil
}

// TakeFile reads one file and subtracts the size of its content from the budget.
func (b *Budget) TakeFile(from io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(from, b.Bytes+1))
	if err != nil {
		return nil, err
	}
	if b.Bytes -= int64(len(content)); b.Bytes < 0 {
		return nil, CheckSize(b.Limits.MaxBytes+1, b.Limits.MaxBytes)
	}
	return content, nil
}

// Untar returns the regular files of an archive, sorted by path, and the path of the first link in the archive.
func Untar(data []byte, left *Budget) (files []File, firstLink string, err error) {
	archive := tar.NewReader(bytes.NewReader(data))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return nil, "", damagedError("tar archive", err)
		}
		if err := left.TakeEntry(); err != nil {
			return nil, "", err
		}
		name, err := safePath(header)
		if err != nil {
			return nil, "", err
		}
		if firstLink == "" && (header.Typeflag == tar.TypeSymlink || header.Typeflag == tar.TypeLink) {
			firstLink = name
		}
		if header.Typeflag != tar.TypeReg || strings.HasPrefix(path.Base(name), "._") {
			continue
		}
		content, err := left.TakeFile(archive)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				err = damagedError("tar archive", err)
			}
			return nil, "", err
		}
		files = append(files, File{name, content})
	}
	slices.SortStableFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, firstLink, nil
}

// safePath returns the clean path of an entry of an archive. If the path or the link target of the entry is outside of
// the archive's folder, safePath returns an error.
func safePath(header *tar.Header) (string, error) {
	outside := func(p string) bool {
		p = strings.ReplaceAll(p, `\`, "/")
		clean := path.Clean(p)
		return path.IsAbs(p) || clean == ".." || strings.HasPrefix(clean, "../") || len(p) > 1 && p[1] == ':'
	}
	target := header.Linkname
	switch {
	case header.Typeflag == tar.TypeSymlink && !path.IsAbs(target):
		target = path.Join(path.Dir(header.Name), target) //nolint:gosec // it is only compared, nothing is written
	case header.Typeflag != tar.TypeSymlink && header.Typeflag != tar.TypeLink:
		target = ""
	}
	if outside(header.Name) || outside(target) {
		return "", &Error{Code: UnsafeArchive, File: header.Name,
			Problem: "the entry leaves the archive's folder: package the module again without it"}
	}
	return path.Clean(header.Name), nil
}

// IsManifest reports whether a file with this name can contain objects.
func IsManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name))
}
