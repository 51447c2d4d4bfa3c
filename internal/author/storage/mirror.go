package storage

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

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
	if err = registry.ClassifyError("pulling", ref.Name(), err); ocm.IsReason(err, ocm.ArtifactNotFound) {
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
func (p *Place) locate(i ocm.Image) (l located, err error) {
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
	case strings.HasPrefix(l.path, ocm.DescriptorRepository("")):
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
		if err == nil || !ocm.IsReason(registry.ClassifyError("pulling", ref.Name(), err), ocm.ArtifactNotFound) {
			return found, err
		}
	}
	ref := l.reference(l.repository)
	found, err := remote.Get(ref, p.foreign(ctx, ref)...)
	if err == nil {
		return found, nil
	}
	if err = registry.ClassifyError("pulling", ref.Name(), err); p.archive != nil {
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
func rename(a *ocm.Artifact, images []CopiedImage) (*ocm.Artifact, error) {
	at, moved := map[string]string{}, false
	for _, i := range images {
		at[i.Image], moved = i.At, moved || i.At != i.Image
	}
	if !moved {
		return a, nil
	}
	return a.Edit(func(d map[string]any) error {
		return ocm.EachImage(d, func(_, access map[string]any, image string) error {
			access["imageReference"] = cmp.Or(at[image], image)
			return nil
		})
	})
}

// OldName is an image that an object asks for by a name that nobody replaces.
type OldName struct {
	// Object that asks, and the image.
	Object string `json:"object"`
	Image  string `json:"image"`
	// At is where that image was copied to; empty if it is no resource of the component, and was not copied.
	At string `json:"at,omitempty"`
}

// oldNames finds images that the manager does not replace when it installs a component version: it does where the descriptor names them elsewhere, in
// Deployments and StatefulSets.
func (p *Place) oldNames(ctx context.Context, c Copied) ([]OldName, error) {
	i, err := content.Load(ctx, p.registry, c.Name, c.Version)
	if err != nil {
		return nil, err
	}
	at, here := map[string]string{}, map[string]bool{}
	for _, image := range c.Images {
		at[image.Image], here[image.At] = image.At, true
	}
	unknown := func(context.Context, []string) (render.Capabilities, error) { return render.Capabilities{}, nil }
	var old []OldName
	for _, part := range i.Parts {
		b, err := part.Bundle(ctx, render.Options{Images: i.Images}, unknown)
		if err != nil {
			return nil, err
		}
		for _, o := range b.Objects {
			object := &unstructured.Unstructured{}
			if err := object.UnmarshalJSON(o.AppendJSON(nil, o.Namespace, render.Overlay{})); err != nil {
				return nil, fmt.Errorf("encoding %s: %w", o.Name, err)
			}
			images, _ := content.ImagesOf([]*unstructured.Unstructured{object})
			for _, image := range images {
				if !here[image] {
					old = append(old, OldName{content.NameOf(object), image, at[image]})
				}
			}
		}
	}
	return old, nil
}
