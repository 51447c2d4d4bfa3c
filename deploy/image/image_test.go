package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

var hello = []program{{"hello", "./testdata/hello", "prints hello"}, {"other", "./testdata/hello", "prints hello, too"}}

// TestImage builds images of a small program twice: once to disk, and once to a registry.
func TestImage(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true)))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	o := options{out: filepath.Join(t.TempDir(), "images"), platforms: []string{"linux/amd64", "linux/arm64"}}
	first := make(map[string]v1.Hash)
	for n, to := range []string{"", host + "/team/hello:1.2.3"} {
		o.push = to
		if err := run(t.Context(), o, hello, io.Discard); err != nil {
			t.Fatal(err)
		}
		path, err := layout.FromPath(o.out)
		if err != nil {
			t.Fatal(err)
		}
		all, err := path.ImageIndex()
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(all); err != nil {
			t.Errorf("the layout is not valid: %v", err)
		}
		manifest, err := all.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if len(manifest.Manifests) != 6 {
			t.Errorf("the layout has %d entries, want two images and a bill of materials for each platform",
				len(manifest.Manifests))
		}
		for _, d := range manifest.Manifests {
			ref := d.Annotations["org.opencontainers.image.ref.name"]
			if ref == "" {
				continue
			}
			if n > 0 && first[ref] != d.Digest {
				t.Errorf("%s is %s, and was %s when it was built before", ref, d.Digest, first[ref])
			}
			first[ref] = d.Digest
		}
	}
	if _, ok := first["hello:"+config.Version]; !ok || len(first) != 2 {
		t.Errorf("the images are %v", first)
	}
	for _, image := range []string{"hello", "other"} {
		for _, architecture := range o.platforms {
			checkImage(t, host+"/team/"+image+":1.2.3", image, strings.TrimPrefix(architecture, "linux/"))
		}
	}
}

// checkImage checks an image in a registry. checkImage reads the image as a node does.
func checkImage(t *testing.T, text, program, architecture string) {
	t.Helper()
	ref, err := name.ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(ref, remote.WithContext(t.Context()),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: architecture}))
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != user || !cmp.Equal(config.Config.Entrypoint, []string{"/" + program}) ||
		config.Architecture != architecture {
		t.Errorf("the configuration of the image for %s is wrong: %+v", architecture, config)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, l := range layers {
		unpacked, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for r := tar.NewReader(unpacked); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Uid != 0 || h.Gid != 0 || h.Mode&0o222 != 0 || !h.ModTime.Equal(epoch) {
				t.Errorf("%s is writable, or has a time: %+v", h.Name, h)
			}
			if files[h.Name], err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(files[program]) == 0 {
		t.Errorf("the image has no program %s", program)
	}
	if n := certificates(t, files[rootsFile]); n < 100 {
		t.Errorf("the image has %d root certificates, want at least 100", n)
	}
	checkBill(t, ref, image)
}

func certificates(t *testing.T, text []byte) (n int) {
	t.Helper()
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			t.Error(err)
		}
		n++
	}
	return n
}

// checkBill checks the bill of materials of an image. checkBill finds the bill in the registry's list of referrers.
func checkBill(t *testing.T, ref name.Reference, image v1.Image) {
	t.Helper()
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	referrers, err := remote.Referrers(ref.Context().Digest(digest.String()), remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := referrers.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].ArtifactType != string(spdxType) {
		t.Fatalf("the referrers of the image are %+v", manifest.Manifests)
	}
	bill, err := remote.Image(ref.Context().Digest(manifest.Manifests[0].Digest.String()),
		remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := bill.Layers()
	if err != nil {
		t.Fatal(err)
	}
	text, err := layers[0].Compressed() // the content itself, because the layer is not compressed
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.NewDecoder(text).Decode(&d); err != nil {
		t.Fatal(err)
	}
	if d.SPDXVersion != "SPDX-2.3" || len(d.Packages) < 2 || d.Packages[1].Name != "stdlib" {
		t.Errorf("the bill of materials is %+v", d)
	}
}

// TestDescribe checks that the bill of materials contains all build information of the program.
func TestDescribe(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.0", Main: debug.Module{Path: "example.com/program"},
		Deps: []*debug.Module{
			{Path: "example.com/a", Version: "v1.0.0", Sum: "h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},
			{
				Path:    "example.com/b",
				Version: "v1.0.0",
				Replace: &debug.Module{Path: "example.com/c", Version: "v2.0.0"},
			},
		},
	}
	var got []string
	for _, c := range spdxDocument("program", "linux/amd64", info, [32]byte{1}).Packages {
		line := c.ExternalRefs[0].Locator
		for _, sum := range c.Checksums {
			line += " " + sum.Value[:4]
		}
		got = append(got, line)
	}
	want := []string{"pkg:golang/example.com/program 0100", "pkg:golang/stdlib@1.26.0",
		"pkg:golang/example.com/a@v1.0.0 0000", "pkg:golang/example.com/c@v2.0.0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestBadInput checks that the command does not delete files in an output folder that are not part of an image layout,
// and that it reports each mistake of the user.
func TestBadInput(t *testing.T) {
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "letter.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		o      options
		want   string
	}{
		"Other": {
			"a folder with other content stays", options{out: other, platforms: []string{"linux/amd64"}},
			"other content",
		},
		"Platform": {"a platform has two parts", options{platforms: []string{"amd64"}}, "--platforms"},
		"Program": {
			"the output of the compiler is shown", options{platforms: []string{"linux/none"}},
			"unsupported GOOS/GOARCH",
		},
		"Digest": {
			"a digest cannot be chosen",
			options{platforms: []string{"linux/amd64"}, push: "r.example.com/x@sha256:" + strings.Repeat("0", 64)},
			"--push",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.o.out == "" {
				c.o.out = filepath.Join(t.TempDir(), "images")
			}
			if err := run(t.Context(), c.o, hello[:1], io.Discard); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error is %v, want one with %q", c.reason, err, c.want)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(other, "letter.txt")); err != nil {
		t.Error(err)
	}
	dynamic := filepath.Join(t.TempDir(), "no-program")
	if err := os.WriteFile(dynamic, bytes.Repeat([]byte("x"), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkStatic(dynamic); err == nil {
		t.Error("a file that is not a program is accepted")
	}
}
