package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// maxLayer bounds a layer that an author handles, in bytes.
const maxLayer = 256 << 20

// Place is where component versions are: a registry, or an archive.
type Place struct {
	// Component and Version that the reference names; empty for none.
	Component, Version string

	text     string // without component and version
	access   Access
	registry *registry.Registry
	archive  *Archive // nil: it is a registry
}

// Access is how to get into registries.
type Access struct {
	// Keychain finds logins; nil means those of docker login.
	Keychain authn.Keychain
	// Trust says what has to be signed; nil means nothing.
	Trust *trust.Policy
}

// Open finds a place by its reference:
//
//	PLACE[//COMPONENT[:VERSION]]
//
// where PLACE is host[:port][/path] of a registry, with http:// before it if it has no TLS, or the path of an archive: one that begins with a
// dot or a slash, ends with .ctf, .tgz, .tar.gz or .tar, or is there. The prefixes ctf:: and oci:: say which it is. create makes an archive
// that is not there an empty one. Nothing is asked of a registry.
func Open(reference string, access Access, create bool) (*Place, error) {
	p := &Place{access: access}
	place, is, err := p.split(reference)
	if err != nil {
		return nil, err
	}
	p.text = place
	options := registry.Options{Host: place, Keychain: access.Keychain, Trust: access.Trust, MaxLayerBytes: maxLayer, MaxDescriptorBytes: 1 << 20}
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

// split takes a reference apart.
func (p *Place) split(reference string) (place, is string, err error) {
	text := reference
	for prefix, kind := range map[string]string{"ctf::": "archive", "CommonTransportFormat::": "archive", "oci::": "registry", "OCIRegistry::": "registry"} {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			text, is = rest, kind
		}
	}
	scheme := ""
	if before, after, ok := strings.Cut(text, "://"); ok {
		scheme, text = before+"://", after
		is = cmp.Or(is, "registry")
	}
	place, component, named := strings.Cut(text, "//")
	if named {
		p.Component, p.Version, _ = strings.Cut(component, ":")
		if p.Component == "" {
			return "", "", fmt.Errorf("%q names no component: give PLACE//COMPONENT:VERSION", reference)
		}
	}
	if place == "" {
		return "", "", fmt.Errorf("%q names no place: give a registry or an archive", reference)
	}
	if is == "" {
		is = "registry"
		_, err := os.Stat(place)
		if err == nil || isFile(place) || strings.HasSuffix(place, ".ctf") || strings.HasPrefix(place, ".") || strings.HasPrefix(place, "/") {
			is = "archive"
		}
	}
	return scheme + place, is, nil
}

// String names the place, without component and version.
func (p *Place) String() string { return p.text }

// IsArchive tells whether the place is an archive.
func (p *Place) IsArchive() bool { return p.archive != nil }

// Registry is the client for the place, whichever it is.
func (p *Place) Registry() *registry.Registry { return p.registry }

// Select returns the component versions that the reference names, each with what signs it. Of an archive that may be all; of a registry it
// has to be one, or all versions of a component.
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
			return nil, p.nothing(names)
		}
		return found, nil
	}
	if p.Component == "" {
		return nil, fmt.Errorf("which component of %s? Give %s//COMPONENT:VERSION", p, p)
	}
	versions := []string{p.Version}
	if p.Version == "" {
		var err error
		if versions, err = p.Versions(ctx); err != nil {
			return nil, err
		}
		if len(versions) == 0 {
			return nil, &NotFound{fmt.Sprintf("%s has no version of component %s: check the name, and that it was pushed there", p, p.Component)}
		}
	}
	for _, v := range versions {
		a, err := p.registry.Artifact(ctx, ocm.DescriptorRepository(p.Component), ocm.TagOf(v))
		if ocm.IsReason(err, ocm.ArtifactNotFound) {
			have, _ := p.Versions(ctx)
			return nil, p.nothing(have)
		}
		if err != nil {
			return nil, err
		}
		found = append(found, a)
	}
	return found, nil
}

// NotFound says that a place does not have what was asked for, and what it has.
type NotFound struct{ message string }

// Error is the message.
func (e *NotFound) Error() string { return e.message }

func (p *Place) nothing(have []string) error {
	what := "a component version"
	if p.Component != "" {
		what = strings.TrimSuffix(p.Component+":"+p.Version, ":")
	}
	if len(have) == 0 {
		return &NotFound{fmt.Sprintf("%s does not have %s, nor any other", p, what)}
	}
	return &NotFound{fmt.Sprintf("%s does not have %s, but %s", p, what, strings.Join(have, ", "))}
}

// Versions returns the versions of the component, the lowest first.
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

// One returns the only component version that the reference names.
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
		return nil, fmt.Errorf("which of them? %s has %s: add //COMPONENT:VERSION", p, strings.Join(names, ", "))
	}
	return all[0], nil
}

// Installation reads the only component version that the reference names, as the manager does.
func (p *Place) Installation(ctx context.Context) (*content.Installation, error) {
	a, err := p.One(ctx)
	if err != nil {
		return nil, err
	}
	return content.Load(ctx, p.registry, a.Name(), a.Version())
}
