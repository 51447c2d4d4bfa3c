package render

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// archive packs entries into an archive. The arguments are a name, its content, the next name, its content, and so on.
func archive(t testing.TB, entries ...string) []byte {
	t.Helper()
	var headers []*tar.Header
	for i := 0; i < len(entries); i += 2 {
		headers = append(headers, &tar.Header{Name: entries[i], Typeflag: tar.TypeReg,
			Size: int64(len(entries[i+1])), Mode: 0o644})
	}
	return archiveOf(t, headers, entries)
}

func archiveOf(t testing.TB, headers []*tar.Header, entries []string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, header := range headers {
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if header.Size > 0 {
			if _, err := w.Write([]byte(entries[2*i+1])); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstdCompressed(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRead(t *testing.T) {
	yaml := object("a", "")
	json := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"j"}}`
	long := strings.Repeat("long/", 60) + "a.yaml"
	cases := map[string]struct {
		reason string
		layer  []byte
		want   string
	}{
		"Plain":    {"", []byte(yaml), "ConfigMap/a"},
		"Empty":    {"no bytes are no objects", nil, ""},
		"Gzip":     {"", gzipped(t, []byte(yaml)), "ConfigMap/a"},
		"Zstd":     {"", zstdCompressed(t, []byte(yaml)), "ConfigMap/a"},
		"ZstdGzip": {"compressed twice", zstdCompressed(t, gzipped(t, []byte(yaml))), "ConfigMap/a"},
		"Tar":      {"", archive(t, "a.yaml", yaml), "ConfigMap/a"},
		"TarGzip":  {"", gzipped(t, archive(t, "a.yaml", yaml)), "ConfigMap/a"},
		"TarZstd":  {"", zstdCompressed(t, archive(t, "a.yaml", yaml)), "ConfigMap/a"},
		"OneFile":  {"a single file may have any name", archive(t, "raw-manifest", yaml), "ConfigMap/a"},
		"PathOrder": {"not the order of the archive", archive(t, "b.yaml", object("b", ""), "./a.yml",
			object("a", ""), "a/z.json", json), "ConfigMap/a ConfigMap/j ConfigMap/b"},
		"OtherFiles": {"only manifests are read", archive(t, "README.md", "hello: [", "a.yaml", yaml), "ConfigMap/a"},
		"AppleDouble": {"macOS adds files that begin with ._", archive(t, "._a.yaml", "\x00\x05", "a.yaml", yaml,
			"d/._b.yaml", "\x00"), "ConfigMap/a"},
		"AppleAlone": {"they do not count as files", archive(t, "._manifest", "\x00", "manifest", yaml), "ConfigMap/a"},
		"LongName":   {"the header has an extension", archive(t, long, yaml), "ConfigMap/a"},
		"DotDotName": {"two dots in a name leave nothing", archive(t, "..a.yaml", yaml, "a/../b.yaml", object("b", "")),
			"ConfigMap/a ConfigMap/b"},
		"Links": {"links that stay inside are not followed", archiveOf(t, []*tar.Header{
			{
				Name:     "d/",
				Typeflag: tar.TypeDir,
				Mode:     0o755}, {Name: "a.yaml",
				Typeflag: tar.TypeReg,
				Size:     int64(len(yaml)),
				Mode:     0o644,
			},
			{
				Name:     "d/l.yaml",
				Typeflag: tar.TypeSymlink,
				Linkname: "../a.yaml"}, {Name: "h.yaml",
				Typeflag: tar.TypeLink,
				Linkname: "a.yaml",
			},
		}, []string{"", "", "", yaml}), "ConfigMap/a"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ReadManifests(tc.layer, Limits{})
			if err != nil || names(got) != tc.want {
				t.Errorf("%s: got %q, %v, want %q", tc.reason, names(got), err, tc.want)
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	yaml := object("a", "")
	link := func(kind byte, name, target string) []byte {
		return archiveOf(t, []*tar.Header{{Name: name, Typeflag: kind, Linkname: target}}, nil)
	}
	damagedTar := archive(t, "a.yaml", yaml)
	damagedTar[0] ^= 0xff
	cutZip := gzipped(t, []byte(strings.Repeat(yaml, 100)))
	badZstd := append(zstdCompressed(t, []byte(yaml))[:4], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	var bomb []string
	for i := range 20 {
		bomb = append(bomb, fmt.Sprintf("f%d.txt", i), strings.Repeat(" ", 1000))
	}
	cases := map[string]struct {
		why    string
		layer  []byte
		limits Limits
		reason string
		file   string
	}{
		"TooLarge": {why: "plain", layer: []byte(yaml), limits: Limits{MaxBytes: 10}, reason: ArchiveTooLarge},
		"GzipBomb": {
			why:    "it is never unpacked whole",
			layer:  gzipped(t, make([]byte, 10<<20)),
			limits: Limits{MaxBytes: 1 << 20},
			reason: ArchiveTooLarge,
		},
		"ZstdBomb": {
			layer:  zstdCompressed(t, make([]byte, 10<<20)),
			limits: Limits{MaxBytes: 1 << 20},
			reason: ArchiveTooLarge,
		},
		"Nested": {
			why:    "compressed three times",
			layer:  gzipped(t, gzipped(t, gzipped(t, []byte(yaml)))),
			limits: Limits{},
			reason: InvalidYAML,
		},
		"NestedTooLarge": {
			layer:  gzipped(t, gzipped(t, make([]byte, 10<<20))),
			limits: Limits{MaxBytes: 1 << 20},
			reason: ArchiveTooLarge,
		},
		"AllFiles": {
			why:    "files count together, also those that are not read",
			layer:  gzipped(t, archive(t, bomb...)),
			limits: Limits{MaxBytes: 19_000},
			reason: ArchiveTooLarge,
		},
		"FilesTogether": {
			layer:  archive(t, bomb...),
			limits: Limits{MaxBytes: 1 << 20, MaxFiles: 19},
			reason: ArchiveTooLarge,
		},
		"Absolute": {
			layer:  archive(t, "/etc/passwd", yaml),
			limits: Limits{},
			reason: UnsafeArchive,
			file:   "/etc/passwd",
		},
		"Parent": {
			layer:  archive(t, "../a.yaml", yaml),
			limits: Limits{},
			reason: UnsafeArchive,
			file:   "../a.yaml",
		},
		"HiddenParent": {
			layer:  archive(t, "a/../../b.yaml", yaml),
			limits: Limits{},
			reason: UnsafeArchive,
			file:   "a/../../b.yaml",
		},
		"ParentItself": {layer: archive(t, "a/../..", yaml), limits: Limits{}, reason: UnsafeArchive, file: "a/../.."},
		"WindowsParent": {
			layer:  archive(t, `..\a.yaml`, yaml),
			limits: Limits{},
			reason: UnsafeArchive,
			file:   `..\a.yaml`,
		},
		"WindowsDrive": {
			layer:  archive(t, `c:\a.yaml`, yaml),
			limits: Limits{},
			reason: UnsafeArchive,
			file:   `c:\a.yaml`,
		},
		"Symlink": {
			layer:  link(tar.TypeSymlink, "a/l.yaml", "../../x"),
			limits: Limits{},
			reason: UnsafeArchive,
			file:   "a/l.yaml",
		},
		"SymlinkRoot": {
			layer:  link(tar.TypeSymlink, "l.yaml", "/etc/passwd"),
			limits: Limits{},
			reason: UnsafeArchive,
			file:   "l.yaml",
		},
		"Hardlink": {
			why:    "a hard link's target counts from the archive's folder",
			layer:  link(tar.TypeLink, "a/l.yaml", "../x"),
			limits: Limits{},
			reason: UnsafeArchive,
			file:   "a/l.yaml",
		},
		"NoManifest": {layer: archive(t, "a.txt", "a", "b.txt", "b"), limits: Limits{}, reason: InvalidArchive},
		"EmptyTar":   {layer: archive(t), limits: Limits{}, reason: InvalidArchive},
		"DamagedTar": {layer: damagedTar, limits: Limits{}, reason: InvalidArchive},
		"CutTar": {
			layer:  archive(t, "a.yaml", strings.Repeat(yaml, 100))[:1024],
			limits: Limits{},
			reason: InvalidArchive,
		},
		"CutGzip":    {layer: cutZip[:len(cutZip)-10], limits: Limits{}, reason: InvalidArchive},
		"GzipHeader": {layer: []byte{0x1f, 0x8b, 0}, limits: Limits{}, reason: InvalidArchive},
		"BadZstd":    {layer: badZstd, limits: Limits{}, reason: InvalidArchive},
		"InFile": {
			why:    "the file is named",
			layer:  archive(t, "a.yaml", yaml, "b.yaml", "kind: A\n"),
			limits: Limits{},
			reason: InvalidObject,
			file:   "b.yaml",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ReadManifests(tc.layer, tc.limits)
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Reason() != tc.reason || e.File != tc.file {
				t.Fatalf("%s: got %v, want %s", tc.why, err, tc.reason)
			}
			if text := e.Error(); strings.Contains(text, "\n") || !strings.HasPrefix(text, "reading the artefact: ") {
				t.Errorf("not one line that says what was done: %q", text)
			}
		})
	}
}

// FuzzRead builds an archive from fuzzer input, damages the archive, and checks that Read respects its limits.
func FuzzRead(f *testing.F) {
	f.Add("a.yaml", "", byte('0'), []byte(object("a", "")), uint16(0), byte(0), uint16(1000))
	f.Add("../a.yaml", "/x", byte('2'), []byte("x"), uint16(300), byte(1), uint16(1))
	f.Add("a/b.json", "../..", byte('1'), []byte("{}"), uint16(100), byte(2), uint16(60000))
	f.Fuzz(func(t *testing.T, name, target string, kind byte, content []byte, damage uint16, pack byte, limit uint16) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, header := range []*tar.Header{{Name: name, Linkname: target, Typeflag: kind, Size: int64(len(content))},
			{Name: "z.yaml", Typeflag: tar.TypeReg, Size: int64(len(content))}} {
			if err := w.WriteHeader(header); err == nil {
				_, _ = w.Write(content)
			}
		}
		_ = w.Close()
		layer := b.Bytes()
		if len(layer) > 0 {
			layer[int(damage)%len(layer)] ^= byte(damage >> 8)
		}
		switch pack % 3 {
		case 1:
			layer = gzipped(t, layer)
		case 2:
			layer = zstdCompressed(t, layer)
		}
		limits := Limits{MaxBytes: int64(limit) + 1, MaxFiles: 1 + int(pack)}
		for _, layer := range [][]byte{layer, content} {
			objects, err := ReadManifests(layer, limits)
			if err != nil {
				if e, ok := errors.AsType[*Error](err); !ok || e.Reason() == "" {
					t.Fatalf("not a proper error: %v", err)
				}
				continue
			}
			bundle, err := Build(objects, Options{})
			if err != nil {
				continue
			}
			size := 0
			for _, o := range bundle.Objects {
				size += o.Size()
			}
			// The objects may be larger than the limit of the unpacked archive: the encoder may escape one byte as six
			// bytes (\u0000), and YAML aliases repeat up to 50,000 values.
			if size > int(limits.MaxBytes)*8+50_000*8 {
				t.Fatalf("%d bytes from a limit of %d", size, limits.MaxBytes)
			}
		}
	})
}
