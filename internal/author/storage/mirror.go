package storage

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/egress"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// writeImage writes an image or an index. writeImage writes the blobs first and the manifest last.
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

// digestOrEmpty returns the digest to which a reference points, or "" if the reference does not exist.
func digestOrEmpty(ref name.Reference, options []remote.Option) (string, error) {
	d, err := remote.Head(ref, options...)
	if err == nil {
		return d.Digest.String(), nil
	}
	if err = registry.ClassifyError("pulling", ref.Name(), err); ocm.IsReason(err, ocm.ArtifactNotFound) {
		return "", nil
	}
	return "", err
}

// imageLocation is a parsed image reference.
type imageLocation struct {
	repository name.Repository // repository in the reference
	path       string          // path in the target of a copy
	tag        string          // "" if the reference has none
	digest     string          // required digest; "" if the reference has none
}

// reference returns the reference of the image in the given repository.
func (l imageLocation) reference(in name.Repository) name.Reference {
	if l.digest != "" {
		return in.Digest(l.digest)
	}
	return in.Tag(cmp.Or(l.tag, "latest"))
}

// parseImage parses an image reference. parseImage returns an error if the name, the tag or the digest would lead to
// another path of the registry, such as "..". The target path says where a copy of the image is stored in the target
// registry. If the image is in the place p, its target path is relative to p. For any other image, the target path is
// the path in its registry, without the host.
func (p *Place) parseImage(i ocm.Image) (l imageLocation, err error) {
	text, digest, _ := strings.Cut(i.Reference, "@")
	tag, err := name.NewTag(text)
	if err != nil {
		return l, fmt.Errorf("it is not an image reference: %w", err)
	}
	if p.isHost(tag.Context()) && p.usesPlainHTTP() {
		tag, err = name.NewTag(text, name.Insecure)
	}
	if err != nil {
		return l, err
	}
	l = imageLocation{repository: tag.Repository, path: tag.RepositoryStr(), digest: cmp.Or(digest, i.Digest)}
	if strings.Contains(text[strings.LastIndex(text, "/")+1:], ":") {
		l.tag = tag.TagStr()
	}
	if inside, ok := strings.CutPrefix(tag.Context().Name(), p.registry.Base()+"/"); ok && p.archive == nil {
		l.path = inside
	}
	if !registry.IsNameAndTag(tag.RepositoryStr(), l.tag) {
		return l, fmt.Errorf("it is not an image reference: registries do not allow its name %q or its tag",
			tag.RepositoryStr())
	}
	if _, err := v1.NewHash(l.digest); err != nil && l.digest != "" {
		return l, fmt.Errorf("%q is not a digest: %w", l.digest, err)
	}
	switch {
	case digest != "" && i.Digest != "" && digest != i.Digest:
		return l, fmt.Errorf("its resource states the digest %s: build the version again", i.Digest)
	case strings.HasPrefix(l.path, ocm.DescriptorRepository("")):
		return l, fmt.Errorf("its repository would be one of component versions: rename it")
	}
	return l, nil
}

// fetchFromArchiveOrSource returns the descriptor of an image. If p is an archive, fetchFromArchiveOrSource reads the
// archive. If p is a registry, fetchFromArchiveOrSource reads from the registry that the image reference names.
func (p *Place) fetchFromArchiveOrSource(ctx context.Context, l imageLocation) (*remote.Descriptor, error) {
	if p.archive != nil {
		repository, err := name.NewRepository(archiveHost + "/" + l.path)
		if err != nil {
			return nil, fmt.Errorf("naming it in %s: %w", p, err)
		}
		ref := l.reference(repository)
		found, err := remote.Get(ref, p.clientOptions(ctx, ref)...)
		if err == nil || !ocm.IsReason(registry.ClassifyError("pulling", ref.Name(), err), ocm.ArtifactNotFound) {
			return found, err
		}
	}
	ref := l.reference(l.repository)
	found, err := remote.Get(ref, p.optionsForRegistryOf(ctx, ref)...)
	if err == nil {
		return found, nil
	}
	if err = registry.ClassifyError("pulling", ref.Name(), err); p.archive != nil {
		err = fmt.Errorf("archive %s does not contain it, and it cannot be pulled from its registry: %w", p, err)
	}
	return nil, err
}

// archiveHost is the host name in requests of the registry client that are answered from an archive (see
// [Archive.RoundTrip]).
const archiveHost = "archive.invalid"

// imageAt returns the reference of an image in the target place. If the image has a tag, the reference contains the
// tag, so that registries do not garbage-collect the image. The result "text" is the reference as it is written into
// descriptors and messages.
func (p *Place) imageAt(path, tag, digest string) (ref name.Reference, text string, err error) {
	var options []name.Option
	if p.usesPlainHTTP() {
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

// usesPlainHTTP reports whether the place is a registry with plain HTTP.
func (p *Place) usesPlainHTTP() bool { return strings.HasPrefix(p.text, "http://") }

// isHost reports whether a repository of images is in the same registry as the place p.
func (p *Place) isHost(r name.Repository) bool {
	host, _, _ := strings.Cut(p.registry.Base(), "/")
	return p.archive == nil && r.RegistryStr() == host
}

// clientOptions returns the options for requests to the registry or archive p.
func (p *Place) clientOptions(ctx context.Context, ref name.Reference) []remote.Option {
	if p.archive == nil {
		return p.optionsForRegistryOf(ctx, ref)
	}
	return []remote.Option{remote.WithContext(ctx), remote.WithTransport(http.RoundTripper(p.archive)),
		remote.WithAuth(authn.Anonymous)}
}

// optionsForRegistryOf returns the options for requests to the registry of an image, which may be another registry than
// the place p. If the image is in p, the options contain the credentials for p. If the image is in another registry
// than p, the options contain the credentials of docker login for that registry. Credentials for one registry are never
// sent to another registry.
func (p *Place) optionsForRegistryOf(ctx context.Context, ref name.Reference) []remote.Option {
	keychain := p.access.Keychain
	if keychain == nil || !p.isHost(ref.Context()) {
		keychain = authn.DefaultKeychain
	}
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(keychain),
		remote.WithTransport(p.transportTo(ref.Context())), remote.WithUserAgent("lifecycle-manager")}
}

// transportTo returns the transport for requests to the registry of an image. The user has chosen the registry p, but
// the module names the registries of its images, so requests to these registries are refused if their address is a
// loopback or another special address. A registry whose name shows that it is on this machine is allowed if p is on
// this machine, too. Each registry has a transport of its own: otherwise a registry on this machine would allow the
// others to redirect requests to it.
func (p *Place) transportTo(r name.Repository) http.RoundTripper {
	if p.isHost(r) {
		return p.registry.Transport()
	}
	host := r.RegistryStr()
	if t, ok := p.transports.Load(host); ok {
		return t.(http.RoundTripper)
	}
	o := egress.Options{Hint: "the module names this address: correct it there"}
	home, _, _ := strings.Cut(p.registry.Base(), "/")
	if isLoopbackName(host) && (p.archive != nil || isLoopbackName(home)) {
		o.Configured = []string{host}
	}
	t, _ := p.transports.LoadOrStore(host, egress.New(o))
	return t.(http.RoundTripper)
}

// isLoopbackName reports whether a host[:port] is on this machine, as its name shows: a loopback address, localhost, or
// a name below localhost. Other names that resolve to a loopback address do not count, because their owner decides to
// which address they resolve.
func isLoopbackName(hostPort string) bool {
	u, err := url.Parse("//" + hostPort)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// withRelocatedImages returns a component version whose descriptor contains the new locations of the images.
// withRelocatedImages does not change the content that a signature in the descriptor covers.
func withRelocatedImages(a *ocm.Artifact, images []CopiedImage) (*ocm.Artifact, error) {
	at, moved := map[string]string{}, false
	for _, i := range images {
		at[i.Image], moved = i.At, moved || i.At != i.Image
	}
	if !moved {
		return a, nil
	}
	return a.WithEditedDescriptor(func(d map[string]any) error {
		return ocm.EachImage(d, func(_, access map[string]any, image string) error {
			access["imageReference"] = cmp.Or(at[image], image)
			return nil
		})
	})
}

// OldName describes an image reference in an object of a module that the manager does not replace, so that the object
// still refers to the old location of the image.
type OldName struct {
	// Object is the object that contains the image reference. Image is the image reference.
	Object string `json:"object"`
	Image  string `json:"image"`
	// The field At contains the reference of the copied image. If the image is not a resource of the component, it was
	// not copied, and At is empty.
	At string `json:"at,omitempty"`
}

// staleImageReferences returns the image references in a component version's objects that keep the old location of the
// image, because the manager does not replace them when it installs the component version. The manager replaces an
// image only in Deployments and StatefulSets, and only if the image is in the descriptor.
func (p *Place) staleImageReferences(ctx context.Context, c Copied) ([]OldName, error) {
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
					old = append(old, OldName{content.KindAndNameOf(object), image, at[image]})
				}
			}
		}
	}
	return old, nil
}
