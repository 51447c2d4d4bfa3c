package author

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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/render"
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
	Trust *registry.Trust
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
func (p *Place) Select(ctx context.Context) ([]*registry.Artifact, error) {
	var found []*registry.Artifact
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
		a, err := p.registry.Artifact(ctx, registry.DescriptorRepository(p.Component), registry.TagOf(v))
		if registry.IsReason(err, registry.ArtifactNotFound) {
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
func (p *Place) One(ctx context.Context) (*registry.Artifact, error) {
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

// Copied is a component version that was brought to a place.
type Copied struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Digest of the manifest, as it is at its new place.
	Digest string `json:"digest"`
	// Was is the digest at the old place, if the manifest had to be changed on the way; empty if it is the same, byte for byte.
	Was string `json:"was,omitempty"`
	// Signatures that came along.
	Signatures int `json:"signatures"`
	// New tells whether it was not there before.
	New bool `json:"new"`
	// Images that came along.
	Images []CopiedImage `json:"images,omitempty"`
	// OldNames are what objects will still ask for by the names of before, because nobody puts others in their place.
	OldNames []OldName `json:"oldNames,omitempty"`
}

// Copying says what is copied.
type Copying struct {
	// Images come along, and the descriptor names them at their new place then.
	Images bool
	// Replace what is there with other content.
	Replace bool
	// Say is told of what takes its time; nil for nobody.
	Say func(string)
}

// Copy brings component versions from one place to another, with their signatures, byte for byte but for two things. A version that states no
// repository context gets the registry it comes to as one, because without any the reference would find nothing to install. And in a registry the
// descriptor names images that came along where they are now; a signature in the descriptor does not cover that. One that cosign has signed stays as
// it is, or is refused if it has no repository context. A version that is there with other content is replaced only if asked to.
func Copy(ctx context.Context, from, to *Place, o Copying) (done []Copied, err error) {
	all, err := from.Select(ctx)
	if err != nil {
		return nil, err
	}
	if o.Say == nil {
		o.Say = func(string) {}
	}
	for _, a := range all {
		var c Copied
		if c, err = from.copy(ctx, to, a, o); err != nil {
			break
		}
		done = append(done, c)
	}
	if to.archive != nil && len(done) > 0 {
		err = errors.Join(err, to.archive.Save())
	}
	return done, err
}

// copy brings one component version to another place. In an archive it is not saved yet.
func (p *Place) copy(ctx context.Context, to *Place, a *registry.Artifact, o Copying) (Copied, error) {
	c := Copied{Name: a.Name(), Version: a.Version()}
	signatures, err := p.registry.Signatures(ctx, a)
	if err != nil {
		return c, err
	}
	c.Signatures = len(signatures)
	if o.Images {
		if c.Images, err = (courier{p, to, o.Replace, o.Say}).bring(ctx, a); err != nil {
			return c, err
		}
	}
	made, err := to.adapt(a, c)
	if err != nil {
		return c, err
	}
	if c.Digest = made.Digest(); made != a {
		c.Was = a.Digest()
	}
	c.New, err = to.add(ctx, o.Replace, append([]*registry.Artifact{made}, signatures...))
	if err == nil && to.archive == nil && len(c.Images) > 0 {
		var unknown error
		if c.OldNames, unknown = to.oldNames(ctx, c); unknown != nil { // the copy is whole
			o.Say(fmt.Sprintf("%s:%s is copied, but it is not known by which names it asks for its images: %v", c.Name, c.Version, unknown))
		}
	}
	return c, err
}

// adapt returns a component version as it has to be in the place: an archive takes it as it is.
func (p *Place) adapt(a *registry.Artifact, c Copied) (*registry.Artifact, error) {
	if p.archive != nil {
		return a, nil
	}
	made, err := p.registry.At(a)
	switch {
	case err != nil:
		return nil, err
	case c.Signatures == 0:
		return rename(made, c.Images)
	case made != a:
		return nil, fmt.Errorf("copying %s:%s: its descriptor has no repository context, and needs one in a registry; but then its cosign signature is worth nothing: "+
			"push it before it is signed, or build it with --registry", a.Name(), a.Version())
	}
	return a, nil
}

// write brings artifacts to the place; the first is what the others sign.
func (p *Place) write(ctx context.Context, replace bool, artifacts []*registry.Artifact) (isNew bool, err error) {
	if isNew, err = p.add(ctx, replace, artifacts); err != nil || p.archive == nil {
		return isNew, err
	}
	return isNew, p.archive.Save()
}

// add brings artifacts to the place; the first is what the others sign. They come last, so that there is never a signature of nothing. An archive
// has to be saved yet.
func (p *Place) add(ctx context.Context, replace bool, artifacts []*registry.Artifact) (isNew bool, err error) {
	if p.archive != nil {
		isNew = !slices.ContainsFunc(p.archive.entries, func(e entry) bool { return e.Digest == artifacts[0].Digest() && e.Tag == artifacts[0].Tag })
		if err := p.archive.Add(replace, artifacts[0]); err != nil {
			return false, err
		}
		return isNew, p.archive.Add(true, artifacts[1:]...)
	}
	for i, a := range artifacts {
		written, err := p.registry.Write(ctx, a, replace || i > 0)
		if err != nil {
			return false, err
		}
		isNew = isNew || i == 0 && written
	}
	return isNew, nil
}

// Write brings a component version to the place, as Copy does.
func (p *Place) Write(ctx context.Context, replace bool, a *registry.Artifact) (isNew bool, err error) {
	return p.write(ctx, replace, []*registry.Artifact{a})
}

// Load reads the only component version that the reference names as a module.
func (p *Place) Load(ctx context.Context) (*Module, error) {
	a, err := p.One(ctx)
	if err != nil {
		return nil, err
	}
	return p.load(ctx, a.Name(), a.Version())
}

func (p *Place) load(ctx context.Context, name, version string) (*Module, error) {
	c, err := p.registry.Component(ctx, name, version)
	if err != nil {
		return nil, err
	}
	m := &Module{Name: name, Version: version, Images: c.Images}
	objects := func(resource string) (data []byte, found []*unstructured.Unstructured, err error) {
		layer, ok := c.Layers[resource]
		if !ok {
			return nil, nil, nil
		}
		if data, _, err = p.registry.Fetch(ctx, layer); err != nil {
			return nil, nil, err
		}
		if found, err = render.ReadManifests(data, render.Limits{}); err != nil {
			return nil, nil, fmt.Errorf("reading %s of %s:%s: %w", resource, name, version, err)
		}
		return data, found, nil
	}
	if m.Manifest, m.Objects, err = objects("raw-manifest"); err != nil {
		return nil, err
	}
	if len(m.Objects) == 0 {
		return nil, fmt.Errorf("reading %s:%s: it has no raw-manifest, or an empty one", name, version)
	}
	_, defaults, err := objects("default-cr")
	if err != nil {
		return nil, err
	}
	if len(defaults) > 0 {
		m.DefaultCR = defaults[0]
	}
	if layer, ok := c.Layers["moduletemplate"]; ok {
		if m.Template, _, err = p.registry.Fetch(ctx, layer); err != nil {
			return nil, err
		}
	}
	m.ClusterScoped = m.isClusterScoped()
	return m, nil
}
