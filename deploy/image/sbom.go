package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// spdxType is the media type of a bill of materials.
const spdxType types.MediaType = "application/spdx+json"

// newSBOM creates the bill of materials of a program, as an artefact that refers to the image of the program.
func newSBOM(name, platform, file string, of v1.Image) (v1.Image, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the build information of the program: %w", err)
	}
	data, err := os.ReadFile(file) //nolint:gosec // build has written the file
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(spdxDocument(name, platform, info, sha256.Sum256(data)), "", " ")
	if err != nil {
		return nil, fmt.Errorf("encoding the bill of materials: %w", err)
	}
	artefact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), spdxType)
	if artefact, err = mutate.AppendLayers(artefact, static.NewLayer(text, spdxType)); err != nil {
		return nil, err
	}
	subject, err := partial.Descriptor(of)
	if err != nil {
		return nil, err
	}
	return mutate.Subject(artefact, *subject).(v1.Image), nil
}

// document is a bill of materials in SPDX 2.3. document has only the fields that this package uses.
type document struct {
	SPDXVersion       string         `json:"spdxVersion"`
	DataLicense       string         `json:"dataLicense"`
	SPDXID            string         `json:"SPDXID"`
	Name              string         `json:"name"`
	DocumentNamespace string         `json:"documentNamespace"`
	CreationInfo      creation       `json:"creationInfo"`
	Packages          []component    `json:"packages"`
	Relationships     []relationship `json:"relationships"`
}

// creation is the field creationInfo of a document.
type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// component is a package in a document: the program, a module, or Go's standard library.
type component struct {
	Name             string      `json:"name"`
	SPDXID           string      `json:"SPDXID"`
	VersionInfo      string      `json:"versionInfo,omitempty"`
	DownloadLocation string      `json:"downloadLocation"`
	FilesAnalyzed    bool        `json:"filesAnalyzed"`
	LicenseConcluded string      `json:"licenseConcluded"`
	LicenseDeclared  string      `json:"licenseDeclared"`
	CopyrightText    string      `json:"copyrightText"`
	Checksums        []checksum  `json:"checksums,omitempty"`
	ExternalRefs     []reference `json:"externalRefs,omitempty"`
}

// checksum is a checksum of a component.
type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

// reference is an external reference of a component.
type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

// relationship is a relationship between two elements of a document.
type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

// spdxDocument returns a document with the program, its modules, and Go's standard library.
func spdxDocument(name, platform string, info *debug.BuildInfo, sum [sha256.Size]byte) document {
	digest := hex.EncodeToString(sum[:])
	d := document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT", Name: name + " for " + platform,
		DocumentNamespace: "https://" + info.Main.Path + "/sbom/" + name + "/" + digest,
		CreationInfo:      creation{epoch.Format(time.RFC3339), []string{"Organization: kyma-fleet"}},
	}
	main := newSPDXPackage("Program", info.Main.Path, "")
	main.Checksums = []checksum{{"SHA256", digest}}
	d.Packages = append(d.Packages, main, newSPDXPackage("Go", "stdlib", strings.TrimPrefix(info.GoVersion, "go")))
	for n, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		c := newSPDXPackage(fmt.Sprintf("Module-%d", n), dep.Path, dep.Version)
		if raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(dep.Sum, "h1:")); err == nil &&
			len(raw) == sha256.Size {
			// The checksum of a Go module is the one in go.sum: it covers the list of the files of the Go module with
			// their hashes.
			c.Checksums = []checksum{{"SHA256", hex.EncodeToString(raw)}}
		}
		d.Packages = append(d.Packages, c)
	}
	d.Relationships = append(d.Relationships, relationship{d.SPDXID, "DESCRIBES", main.SPDXID})
	for _, c := range d.Packages[1:] {
		d.Relationships = append(d.Relationships, relationship{main.SPDXID, "DEPENDS_ON", c.SPDXID})
	}
	return d
}

// newSPDXPackage returns a component for a Go module.
func newSPDXPackage(id, path, version string) component {
	locator := "pkg:golang/" + path
	if version != "" {
		locator += "@" + version
	}
	return component{
		Name: path, SPDXID: "SPDXRef-" + id, VersionInfo: version, DownloadLocation: "NOASSERTION",
		LicenseConcluded: "NOASSERTION",
		LicenseDeclared:  "NOASSERTION", CopyrightText: "NOASSERTION",
		ExternalRefs: []reference{{"PACKAGE-MANAGER", "purl", locator}},
	}
}
