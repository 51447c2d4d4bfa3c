package author

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
)

// CopiedImage is an image that a component version names, and that was brought along.
type CopiedImage struct {
	// Resource of the component that it is.
	Resource string `json:"resource"`
	// Image is the reference by which the descriptor named it.
	Image string `json:"image"`
	// At is where it is now. In an archive that is a repository of the archive.
	At string `json:"at"`
	// Digest of its manifest; that of an index covers the images of all platforms.
	Digest string `json:"digest"`
	// New tells whether it was not there before.
	New bool `json:"new"`
}

// courier brings images from one place to another, by digest, and indexes whole.
type courier struct {
	from, to *Place
	replace  bool
	say      func(string)
}

// bring copies all images of a component version.
func (c courier) bring(ctx context.Context, a *registry.Artifact) ([]CopiedImage, error) {
	images, err := a.Images()
	if err != nil {
		return nil, err
	}
	var done []CopiedImage
	for _, i := range images {
		copied, err := c.image(ctx, i)
		if err != nil {
			return done, fmt.Errorf("copying image %s, resource %s of %s:%s: %w; --images=false leaves images out", i.Reference, i.Resource, a.Name(), a.Version(), err)
		}
		done = append(done, copied)
	}
	return done, nil
}

// image copies one image, unless it is there, and looks whether it is there afterwards.
func (c courier) image(ctx context.Context, i registry.Image) (CopiedImage, error) {
	l, err := c.from.locate(i)
	if err != nil {
		return CopiedImage{}, err
	}
	found, err := c.from.findImage(ctx, l)
	if err != nil {
		return CopiedImage{}, err
	}
	digest := found.Digest.String()
	target, text, err := c.to.imageAt(l.path, l.tag, digest)
	if err != nil {
		return CopiedImage{}, err
	}
	done := CopiedImage{Resource: i.Resource, Image: i.Reference, At: text, Digest: digest}
	options := c.to.client(ctx, target)
	standing, err := digestAt(target, options)
	if err != nil || standing == digest {
		return done, err
	}
	if standing != "" && !c.replace {
		return done, fmt.Errorf("%s is there with other content (%s, this is %s): give --overwrite if nobody needs that", strings.TrimSuffix(text, "@"+digest), standing, digest)
	}
	c.say(fmt.Sprintf("copying image %s", i.Reference))
	if err := writeImage(target, found, options); err != nil {
		return done, registry.Fault("pushing", target.Name(), err)
	}
	if standing, err = digestAt(target, options); err == nil && standing != digest {
		err = fmt.Errorf("what is at %s after it was written has digest %q, not %s: does somebody else write there?", target, standing, digest)
	}
	done.New = true
	return done, err
}

// writeImage writes an image or an index: blobs first, and the manifest last.
func writeImage(target name.Reference, found *remote.Descriptor, options []remote.Option) error {
	if found.MediaType.IsIndex() {
		index, err := found.ImageIndex()
		if err != nil {
			return err
		}
		return remote.WriteIndex(target, index, options...)
	}
	image, err := found.Image()
	if err != nil {
		return err
	}
	return remote.Write(target, image, options...)
}

// digestAt returns the digest of what is behind a reference, "" if nothing is.
func digestAt(ref name.Reference, options []remote.Option) (string, error) {
	d, err := remote.Head(ref, options...)
	if err == nil {
		return d.Digest.String(), nil
	}
	if err = registry.Fault("pulling", ref.Name(), err); registry.IsReason(err, registry.ArtifactNotFound) {
		return "", nil
	}
	return "", err
}

// located is an image, taken apart.
type located struct {
	repository name.Repository // as the reference names it
	path       string          // in every place that it is brought to
	tag        string          // "" if the reference has none
	digest     string          // that it has to have; "" if nothing says so
}

// reference is how to ask for it in a repository.
func (l located) reference(in name.Repository) name.Reference {
	if l.digest != "" {
		return in.Digest(l.digest)
	}
	return in.Tag(cmp.Or(l.tag, "latest"))
}

// locate takes the reference of an image apart. An image of this place keeps its path below it, others that below their host.
func (p *Place) locate(i registry.Image) (l located, err error) {
	text, digest, _ := strings.Cut(i.Reference, "@")
	tag, err := name.NewTag(text)
	if err != nil {
		return l, fmt.Errorf("it is no reference of an image: %w", err)
	}
	if p.isHost(tag.Context()) && p.isPlain() {
		tag, err = name.NewTag(text, name.Insecure)
	}
	if err != nil {
		return l, err
	}
	l = located{repository: tag.Repository, path: tag.RepositoryStr(), digest: cmp.Or(digest, i.Digest)}
	if strings.Contains(text[strings.LastIndex(text, "/")+1:], ":") {
		l.tag = tag.TagStr()
	}
	if inside, ok := strings.CutPrefix(tag.Context().Name(), p.registry.Base()+"/"); ok && p.archive == nil {
		l.path = inside
	}
	switch {
	case digest != "" && i.Digest != "" && digest != i.Digest:
		return l, fmt.Errorf("its resource states the digest %s: build the version anew", i.Digest)
	case strings.HasPrefix(l.path, registry.DescriptorRepository("")):
		return l, fmt.Errorf("its repository would be one of component versions: give it another name")
	}
	return l, nil
}

// findImage asks for an image: the archive, if the place is one, and else the registry that its reference names.
func (p *Place) findImage(ctx context.Context, l located) (*remote.Descriptor, error) {
	if p.archive != nil {
		repository, err := name.NewRepository(archiveHost + "/" + l.path)
		if err != nil {
			return nil, fmt.Errorf("naming it in %s: %w", p, err)
		}
		ref := l.reference(repository)
		found, err := remote.Get(ref, p.client(ctx, ref)...)
		if err == nil || !registry.IsReason(registry.Fault("pulling", ref.Name(), err), registry.ArtifactNotFound) {
			return found, err
		}
	}
	ref := l.reference(l.repository)
	found, err := remote.Get(ref, p.foreign(ctx, ref)...)
	if err == nil {
		return found, nil
	}
	if err = registry.Fault("pulling", ref.Name(), err); p.archive != nil {
		err = fmt.Errorf("archive %s does not have it, and it cannot be had from where it lies: %w", p, err)
	}
	return nil, err
}

// archiveHost is a registry that an archive plays.
const archiveHost = "archive.invalid"

// imageAt is where an image goes in the place: by its tag, if it has one, so that registries do not take it for rubbish. text is the reference for
// descriptors and people.
func (p *Place) imageAt(path, tag, digest string) (ref name.Reference, text string, err error) {
	var options []name.Option
	if p.isPlain() {
		options = append(options, name.Insecure)
	}
	repository, err := name.NewRepository(p.registry.Base()+"/"+path, options...)
	if err != nil {
		return nil, "", fmt.Errorf("naming it in %s: %w", p, err)
	}
	text = repository.Name()
	if p.archive != nil {
		text = path
	}
	if tag == "" {
		return repository.Digest(digest), text + "@" + digest, nil
	}
	return repository.Tag(tag), text + ":" + tag + "@" + digest, nil
}

// isPlain tells whether the place is asked without TLS.
func (p *Place) isPlain() bool { return strings.HasPrefix(p.text, "http://") }

// isHost tells whether a repository is on the registry that the place is.
func (p *Place) isHost(r name.Repository) bool {
	host, _, _ := strings.Cut(p.registry.Base(), "/")
	return p.archive == nil && r.RegistryStr() == host
}

// client is how to ask the place.
func (p *Place) client(ctx context.Context, ref name.Reference) []remote.Option {
	if p.archive == nil {
		return p.foreign(ctx, ref)
	}
	return []remote.Option{remote.WithContext(ctx), remote.WithTransport(http.RoundTripper(p.archive)), remote.WithAuth(authn.Anonymous)}
}

// foreign is how to ask any registry: with the login of the place if it is that, and else with those of docker login. A login that was given
// for one registry is not shown to others.
func (p *Place) foreign(ctx context.Context, ref name.Reference) []remote.Option {
	keychain := p.access.Keychain
	if keychain == nil || !p.isHost(ref.Context()) {
		keychain = authn.DefaultKeychain
	}
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(keychain), remote.WithUserAgent("lifecycle-manager")}
}

// rename returns a component version whose descriptor names its images where they are now. What a signature in the descriptor covers stays.
func rename(a *registry.Artifact, images []CopiedImage) (*registry.Artifact, error) {
	at, moved := map[string]string{}, false
	for _, i := range images {
		at[i.Image], moved = i.At, moved || i.At != i.Image
	}
	if !moved {
		return a, nil
	}
	return a.Edit(func(d map[string]any) error {
		return registry.EachImage(d, func(_, access map[string]any, image string) error {
			access["imageReference"] = cmp.Or(at[image], image)
			return nil
		})
	})
}
