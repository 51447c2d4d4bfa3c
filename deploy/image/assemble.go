package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user ID and group ID of the program. 65532 is the usual number in images that have no list of users.
const user = "65532:65532"

// rootsFile is the file in which Go programs search for root certificates. To use other certificates, a user mounts a
// file with them at the path rootsFile in the container.
const rootsFile = "etc/ssl/certs/ca-certificates.crt"

// image is the image of one program, for all platforms.
type image struct {
	program
	version string
	index   v1.ImageIndex
	// bills has the bills of materials, one for each platform.
	bills []v1.Image
}

// addPlatform adds the image for one platform. file is the compiled program. addPlatform also adds the bill of
// materials of this image.
func (m *image) addPlatform(platform, file string) error {
	system, architecture, _ := strings.Cut(platform, "/")
	one, err := m.forPlatform(system, architecture, file)
	if err != nil {
		return err
	}
	if m.index == nil {
		m.index = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	}
	m.index = mutate.AppendManifests(m.index, mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{
		MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: system, Architecture: architecture},
	}})
	bill, err := newSBOM(m.name, platform, file, one)
	if err != nil {
		return err
	}
	m.bills = append(m.bills, bill)
	return nil
}

// forPlatform makes the image for one platform. The image has two layers: one with the certificates, which seldom
// change, and one with the program.
func (m *image) forPlatform(system, architecture, file string) (v1.Image, error) {
	binary, err := os.ReadFile(file) //nolint:gosec // build has written the file
	if err != nil {
		return nil, err
	}
	certificates, err := newLayer(entry{rootsFile, 0o444, rootCertificates()})
	if err != nil {
		return nil, err
	}
	executable, err := newLayer(entry{m.name, 0o555, binary})
	if err != nil {
		return nil, err
	}
	labels := map[string]string{
		"org.opencontainers.image.title": m.name, "org.opencontainers.image.version": m.version,
		"org.opencontainers.image.description": m.about,
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
	made := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	made, err = mutate.Append(made,
		mutate.Addendum{
			Layer:     certificates,
			MediaType: types.OCILayer,
			History:   v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "root certificates"},
		},
		mutate.Addendum{
			Layer:     executable,
			MediaType: types.OCILayer,
			History:   v1.History{Created: v1.Time{Time: epoch}, CreatedBy: m.name},
		},
	)
	if err != nil {
		return nil, err
	}
	config, err := made.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created, config.OS, config.Architecture = v1.Time{Time: epoch}, system, architecture
	config.Config = v1.Config{User: user, Entrypoint: []string{"/" + m.name}, WorkingDir: "/",
		Env: []string{"PATH=/"}, Labels: labels}
	if made, err = mutate.ConfigFile(made, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(made, labels).(v1.Image), nil
}

// epoch is the timestamp of all files and records in an image.
var epoch = time.Unix(0, 0).UTC()

// entry is a file in a layer.
type entry struct {
	path string
	mode int64
	data []byte
}

// newLayer creates a layer with the given files and their parent folders. All files and folders belong to root and are
// read-only.
func newLayer(entries ...entry) (v1.Layer, error) {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	head := tar.Header{ModTime: epoch, Format: tar.FormatUSTAR}
	seen := map[string]bool{".": true}
	for _, e := range entries {
		var folders []string
		for folder := filepath.Dir(e.path); !seen[folder]; folder = filepath.Dir(folder) {
			folders, seen[folder] = append([]string{folder}, folders...), true
		}
		for _, folder := range folders {
			h := head
			h.Typeflag, h.Name, h.Mode = tar.TypeDir, folder+"/", 0o555
			if err := w.WriteHeader(&h); err != nil {
				return nil, err
			}
		}
		h := head
		h.Typeflag, h.Name, h.Mode, h.Size = tar.TypeReg, e.path, e.mode, int64(len(e.data))
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text.Bytes())),
			nil
	})
}

// rootCertificates returns the root certificates of public certificate authorities in PEM. The certificates are those
// that the Go project copies from Mozilla. A certificate that Mozilla trusts only with constraints is left out, because
// the file cannot express constraints.
func rootCertificates() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// Writing to a buffer never fails.
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return text.Bytes()
}

// removeAndWriteLayout writes an OCI layout with these images and their bills of materials to a folder. If the folder
// has another OCI layout, removeAndWriteLayout replaces it; if it has any other content, removeAndWriteLayout returns
// an error.
func removeAndWriteLayout(folder string, images []*image) error {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reading the folder of the layout: %w", err)
	}
	if len(entries) > 0 {
		if _, err := layout.FromPath(folder); err != nil {
			return fmt.Errorf("replacing the layout: %s has other content: empty it, or choose another folder", folder)
		}
		if err := os.RemoveAll(folder); err != nil {
			return fmt.Errorf("replacing the layout: %w", err)
		}
	}
	all, err := layout.Write(folder, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return fmt.Errorf("making the layout: %w", err)
	}
	for _, m := range images {
		name := map[string]string{"org.opencontainers.image.ref.name": m.name + ":" + m.version}
		if err := all.AppendIndex(m.index, layout.WithAnnotations(name)); err != nil {
			return fmt.Errorf("writing the image of %s: %w", m.name, err)
		}
		for _, bill := range m.bills {
			if err := all.AppendImage(bill); err != nil {
				return fmt.Errorf("writing the bill of materials of %s: %w", m.name, err)
			}
		}
	}
	return nil
}
