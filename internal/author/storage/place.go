package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// maxLayer is the maximum size of a layer, in bytes.
const maxLayer = 256 << 20

// Place is a registry or an archive with component versions.
type Place struct {
	// Component and Version are the component and the version in the reference; they are empty if the reference has
	// none.
	Component, Version string

	text     string // reference without component and version
	access   Access
	registry *registry.Registry
	archive  *Archive // nil if the place is a registry

	transports sync.Map // the http.RoundTripper of each registry with images, by host[:port]
}

// Access has the credentials for registries and the trust policy.
type Access struct {
	// Keychain returns credentials. If Keychain is nil, the credentials of docker login are used.
	Keychain authn.Keychain
	// Trust is the policy that defines which artefacts must be signed. If Trust is nil, artefacts need no signature.
	Trust *trust.Policy
}

// Open returns the place of a reference, which has this form:
//
//	PLACE[//COMPONENT[:VERSION]]
//
// PLACE is the location of a registry, host[:port][/path], or the path of an archive. The prefix http:// selects a
// registry without TLS. PLACE is the path of an archive if it begins with a dot or a slash, if it ends with .ctf, .tgz,
// .tar.gz or .tar, or if a file or folder with this path exists. The prefix ctf:: or oci:: states explicitly that the
// place is an archive or a registry. If create is true and the archive does not exist, Open returns an empty archive.
// Open sends no request to a registry.
func Open(reference string, access Access, create bool) (*Place, error) {
	p := &Place{access: access}
	place, is, err := p.parseReference(reference)
	if err != nil {
		return nil, err
	}
	p.text = place
	options := registry.Options{Host: place, Keychain: access.Keychain, Trust: access.Trust, MaxLayerBytes: maxLayer,
		MaxDescriptorBytes: 1 << 20}
	if options.Keychain == nil {
		options.Keychain = authn.DefaultKeychain
	}
	if is == "archive" {
		if p.archive, err = OpenArchive(place); errors.Is(err, os.ErrNotExist) && create {
			p.archive, err = newArchive(place), nil
		}
		if err != nil {
			return nil, err
		}
		options.Host, options.Transport, options.Keychain = archiveHost, p.archive, nil
	}
	if p.registry, err = registry.New(options); err != nil {
		return nil, err
	}
	return p, nil
}

// parseReference sets the fields Component and Version, and returns the rest of the reference: the location of the
// place, and the kind of the place, which is "archive" or "registry".
func (p *Place) parseReference(reference string) (location, placeKind string, err error) {
	text := reference
	for prefix, kind := range map[string]string{"ctf::": "archive", "CommonTransportFormat::": "archive",
		"oci::": "registry", "OCIRegistry::": "registry"} {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			text, placeKind = rest, kind
		}
	}
	scheme := ""
	if before, after, ok := strings.Cut(text, "://"); ok {
		scheme, text = before+"://", after
		placeKind = cmp.Or(placeKind, "registry")
	}
	location, component, named := strings.Cut(text, "//")
	if named {
		p.Component, p.Version, _ = strings.Cut(component, ":")
		if p.Component == "" {
			return "", "", fmt.Errorf("%q has no component: use PLACE//COMPONENT:VERSION", reference)
		}
	}
	if location == "" {
		return "", "", fmt.Errorf("%q has no place: use a registry or an archive", reference)
	}
	if placeKind == "" {
		placeKind = "registry"
		_, err := os.Stat(location)
		if err == nil || hasArchiveExtension(location) || strings.HasSuffix(location, ".ctf") ||
			strings.HasPrefix(location, ".") ||
			strings.HasPrefix(location, "/") {
			placeKind = "archive"
		}
	}
	return scheme + location, placeKind, nil
}

// String returns the reference of the registry or archive, without the component and the version.
func (p *Place) String() string { return p.text }

// IsArchive reports whether the place is an archive.
func (p *Place) IsArchive() bool { return p.archive != nil }

// Registry returns a registry client for the place, which may also be an archive.
func (p *Place) Registry() *registry.Registry { return p.registry }

// Select returns all component versions that the reference selects. A reference to an archive may select all component
// versions in the archive. A reference to a registry selects one version or all versions of a component.
func (p *Place) Select(ctx context.Context) ([]*ocm.Artifact, error) {
	var found []*ocm.Artifact
	if p.archive != nil {
		all, err := p.archive.Components()
		if err != nil {
			return nil, fmt.Errorf("reading archive %s: %w", p, err)
		}
		for _, a := range all {
			if (p.Component == "" || a.Name() == p.Component) && (p.Version == "" || a.Version() == p.Version) {
				found = append(found, a)
			}
		}
		if len(found) == 0 {
			var names []string
			for _, a := range all {
				names = append(names, a.Name()+":"+a.Version())
			}
			return nil, p.notFound(names)
		}
		return found, nil
	}
	if p.Component == "" {
		return nil, fmt.Errorf("the reference of registry %s names no component: use %s//COMPONENT:VERSION", p, p)
	}
	versions := []string{p.Version}
	if p.Version == "" {
		var err error
		if versions, err = p.Versions(ctx); err != nil {
			return nil, err
		}
		if len(versions) == 0 {
			return nil, &NotFound{fmt.Sprintf(
				"%s has no version of component %s: check the name, and that it was pushed there", p, p.Component)}
		}
	}
	for _, v := range versions {
		a, err := p.registry.Artifact(ctx, ocm.DescriptorRepository(p.Component), ocm.TagOf(v))
		if ocm.IsReason(err, ocm.ArtifactNotFound) {
			have, _ := p.Versions(ctx)
			return nil, p.notFound(have)
		}
		if err != nil {
			return nil, err
		}
		found = append(found, a)
	}
	return found, nil
}

// NotFound is the error for a component version that does not exist in a registry or an archive. The message of the
// error lists the versions that exist.
type NotFound struct{ message string }

// Error returns the message.
func (e *NotFound) Error() string { return e.message }

func (p *Place) notFound(have []string) error {
	what := "a component version"
	if p.Component != "" {
		what = strings.TrimSuffix(p.Component+":"+p.Version, ":")
	}
	if len(have) == 0 {
		return &NotFound{fmt.Sprintf("%s does not have %s, nor any other", p, what)}
	}
	return &NotFound{fmt.Sprintf("%s does not have %s, but %s", p, what, strings.Join(have, ", "))}
}

// Versions returns the versions of the component, the lowest version first.
func (p *Place) Versions(ctx context.Context) ([]string, error) {
	versions, err := p.registry.Versions(ctx, p.Component)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(versions, func(a, b string) int {
		x, errX := semver.NewVersion(a)
		y, errY := semver.NewVersion(b)
		if errX != nil || errY != nil {
			return strings.Compare(a, b)
		}
		return x.Compare(y)
	})
	return versions, nil
}

// One returns the component version that the reference selects. The method One returns an error if the reference
// selects several component versions.
func (p *Place) One(ctx context.Context) (*ocm.Artifact, error) {
	all, err := p.Select(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) > 1 {
		var names []string
		for _, a := range all {
			names = append(names, a.Name()+":"+a.Version())
		}
		return nil, fmt.Errorf("%s has several component versions (%s): add //COMPONENT:VERSION",
			p, strings.Join(names, ", "))
	}
	return all[0], nil
}

// Installation reads the component version that the reference selects, in the same way as the manager. Installation
// returns an error if the reference selects several component versions.
func (p *Place) Installation(ctx context.Context) (*content.Installation, error) {
	a, err := p.One(ctx)
	if err != nil {
		return nil, err
	}
	return content.Load(ctx, p.registry, a.Name(), a.Version())
}
