package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// WithRepositoryContextIfMissing adds the address of this Registry to the component descriptor of the artifact, in the
// field repositoryContexts. If the artifact already has a repository context, the artifact is returned unchanged, byte
// for byte.
func (r *Registry) WithRepositoryContextIfMissing(a *ocm.Artifact) (*ocm.Artifact, error) {
	has, err := a.HasRepositoryContext()
	if err != nil || has {
		return a, err
	}
	return a.WithEditedDescriptor(func(d map[string]any) error {
		if c, ok := d["component"].(map[string]any); ok {
			d = c
		}
		d["repositoryContexts"] = []any{r.repositoryContext()}
		return nil
	})
}

// Artifact reads the artifact with the given tag or digest, with all its blobs. Artifact compares the content of each
// blob with the blob's digest. repository has the format of ocm.Artifact.Repository. If the artifact is an index of
// manifests, it has no blobs.
//
// Artifact returns the same errors as Fetch.
func (r *Registry) Artifact(ctx context.Context, repository, reference string) (*ocm.Artifact, error) {
	p, err := r.repository(r.base, r.plain, repository)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(reference, ":") {
		if err := checkTag(p, reference); err != nil {
			return nil, err
		}
	}
	s, err := r.openSession(ctx, p)
	if err != nil {
		return nil, err
	}
	return r.readArtifact(ctx, s, repository, reference)
}

func (r *Registry) readArtifact(ctx context.Context, s *session, repository, reference string) (*ocm.Artifact, error) {
	data, err := s.ManifestBytes(ctx, s.refTo(reference), "manifests/"+reference)
	if err != nil {
		return nil, err
	}
	a := &ocm.Artifact{Repository: repository, Manifest: data, Blobs: map[string][]byte{}}
	if !strings.Contains(reference, ":") {
		a.Tag = reference
	}
	m, err := a.ParseManifest()
	if err != nil {
		return nil, err
	}
	a.MediaType = string(m.MediaType)
	if m.Config.Digest.Hex == "" {
		return a, nil
	}
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if a.Blobs[d.Digest.String()] != nil {
			continue
		}
		if a.Blobs[d.Digest.String()], err = s.Blob(ctx, d.Digest.String(), r.opts.MaxLayerBytes); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Versions returns the versions of a component, in no defined order. The versions are read from the tags of the
// component's repository. If the registry does not have the component, Versions returns none.
func (r *Registry) Versions(ctx context.Context, component string) ([]string, error) {
	p, err := r.repository(r.base, r.plain, ocm.DescriptorRepository(component))
	if err != nil {
		return nil, err
	}
	s, err := r.openSession(ctx, p)
	if err != nil {
		return nil, err
	}
	tags, err := s.tags(ctx)
	if err != nil {
		return nil, err
	}
	var versions []string
	for _, tag := range tags {
		if ocm.VersionForm.MatchString(tag) {
			versions = append(versions, strings.Replace(tag, ".build-", "+", 1))
		}
	}
	return versions, nil
}

// tags returns all tags of the repository. A registry may send the tags in pages, each with a link to the next one. If
// the list is longer than the limits, tags returns an error: the caller would take a part of the list for all tags.
func (s *session) tags(ctx context.Context) (all []string, err error) {
	const maxBytes, maxPages = 16 << 20, 1000
	rest := int64(maxBytes)
	path := "tags/list"
	for range maxPages {
		data, header, err := s.get(ctx, s.Name(), path, rest)
		if ocm.ReasonOf(err) == ocm.ArtifactNotFound && len(all) == 0 {
			return nil, nil
		}
		var page struct {
			Tags []string `json:"tags"`
		}
		if err == nil {
			err = json.Unmarshal(data, &page)
		}
		if err != nil {
			return nil, err
		}
		rest -= int64(len(data))
		all = append(all, page.Tags...)
		next := nextPage.FindStringSubmatch(strings.Join(header.Values("Link"), ","))
		if next == nil {
			return all, nil
		}
		if path, err = s.pathOfNextPage(next[1]); err != nil {
			return nil, err
		}
	}
	return nil, ocm.NewError(ocm.ArtifactTooLarge, s.Name(),
		"the registry sends its tags in more than %d pages: remove tags that are not needed", maxPages)
}

// nextPage matches the link to the next page in a header Link.
var nextPage = regexp.MustCompile(`<([^>]*)>[^<]*;\s*rel="?next"?`)

// pathOfNextPage returns the path of the next page of tags, with its query. The link must lead to the same list,
// because the request has the credential for the repository.
func (s *session) pathOfNextPage(link string) (string, error) {
	list := &url.URL{Scheme: s.scheme, Host: s.RegistryStr(), Path: "/v2/" + s.RepositoryStr() + "/tags/list"}
	next, err := list.Parse(link)
	if err != nil || next.Host != list.Host || next.Path != list.Path {
		return "", ocm.NewError(ocm.RegistryUnreachable, s.Name(),
			"the registry sends a link to the next page of tags that leads elsewhere: %q: check proxies before the "+
				"registry", link)
	}
	return "tags/list?" + next.RawQuery, nil
}

// CosignArtifacts returns the artefacts that cosign wrote for a manifest, so that the caller can copy them. Cosign may
// write an image with the tag sha256-<digest>.sig. Cosign may also write referrers, which are artefacts whose field
// "subject" refers to the manifest, and an index with the tag sha256-<digest> that lists the referrers.
//
// CosignArtifacts returns the same errors as Fetch.
func (r *Registry) CosignArtifacts(ctx context.Context, of *ocm.Artifact) ([]*ocm.Artifact, error) {
	p, err := r.repository(r.base, r.plain, of.Repository)
	if err != nil {
		return nil, err
	}
	s, err := r.openSession(ctx, p)
	if err != nil {
		return nil, err
	}
	tag := strings.Replace(of.Digest(), ":", "-", 1)
	var all []*ocm.Artifact
	a, err := r.readArtifact(ctx, s, of.Repository, tag+".sig")
	if err == nil {
		all = append(all, a)
	} else if !ocm.IsAbsentOrUnusable(err) {
		return nil, err
	}
	f := trust.NewVerification(s, trust.Rule{})
	list, err := f.SignatureReferrers(ctx, of.Digest(), tag)
	if err != nil || len(list) == 0 {
		return all, err
	}
	for _, d := range list[:min(len(list), trust.MaxSignatures)] {
		a, err := r.readArtifact(ctx, s, of.Repository, d.Digest.String())
		if err != nil && !ocm.IsAbsentOrUnusable(err) {
			return nil, err
		}
		if err == nil {
			all = append(all, a)
		}
	}
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: list})
	if err != nil {
		return nil, fmt.Errorf("encoding the list of referrers: %w", err)
	}
	return append(all, &ocm.Artifact{Repository: of.Repository, Tag: tag,
		MediaType: string(types.OCIImageIndex), Manifest: index}), nil
}

// Write writes an artifact in this order: the blobs, then the manifest by its digest, and the tag last. Therefore a
// push that is interrupted is never visible, and the next push continues it. isTagChanged reports whether the tag has
// changed. If the tag exists with other content and replace is true, Write replaces the content. If the tag exists with
// other content and replace is false, the error has reason ArtifactExists.
//
// Errors are of type *Error with reason InvalidReference, RegistryUnauthorized, RegistryUnreachable, ArtifactNotFound
// or ArtifactExists. If the context was cancelled, the error is the error of the context.
func (r *Registry) Write(ctx context.Context, a *ocm.Artifact, replace bool) (isTagChanged bool, err error) {
	p, err := r.repository(r.base, r.plain, a.Repository)
	if err != nil {
		return false, err
	}
	ref := p.Tag(a.Tag)
	if a.Tag != "" {
		if err := checkTag(p, a.Tag); err != nil {
			return false, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	auth, err := authn.Resolve(ctx, r.opts.Keychain, p.Repository)
	if err != nil {
		return false, &ocm.Error{Ref: ref.Name(), Doing: "pushing", Code: ocm.RegistryUnauthorized, Cause: err,
			Problem: "finding the registry credentials failed: " + ocm.FirstLine(err.Error())}
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuth(auth),
		remote.WithTransport(r.transportWithoutAuthTo(p))}
	standing := ""
	if a.Tag != "" {
		if standing, err = digestOfTag(ref, options); err != nil {
			return false, err
		}
		if standing != "" && standing != a.Digest() && !replace {
			return false, &ocm.Error{Ref: ref.Name(), Doing: "pushing", Code: ocm.ArtifactExists,
				Problem: fmt.Sprintf(
					"it exists already with other content (%s, this is %s): a released version never changes, so "+
						"raise the version", standing, a.Digest())}
		}
	}
	for digest, blob := range a.Blobs {
		if err := remote.WriteLayer(p.Repository, static.NewLayer(blob, a.MediaTypeOrDefault(digest)),
			options...); err != nil {
			return false, classifyError("pushing", ref.Name(), err)
		}
	}
	raw := rawManifest{a.Manifest, types.MediaType(a.MediaType)}
	if err := remote.Put(p.Digest(a.Digest()), raw, options...); err != nil {
		return false, classifyError("pushing", ref.Name(), err)
	}
	if a.Tag == "" || standing == a.Digest() {
		return false, nil
	}
	if err := remote.Put(ref, raw, options...); err != nil {
		return false, classifyError("pushing", ref.Name(), err)
	}
	r.removeCached(p, a.Version())
	if now, err := digestOfTag(ref, options); err == nil && now != a.Digest() {
		return true, &ocm.Error{Ref: ref.Name(), Doing: "pushing", Code: ocm.DigestMismatch,
			Problem: fmt.Sprintf(
				"another client moved the tag to %s at the same time: make sure that only one client releases this "+
					"version, and push again", now)}
	}
	return true, nil
}

// digestOfTag returns the digest to which a tag points, or "" if the tag does not exist.
func digestOfTag(ref name.Tag, options []remote.Option) (string, error) {
	d, err := remote.Get(ref, options...)
	if err == nil {
		return d.Digest.String(), nil
	}
	err = classifyError("pushing", ref.Name(), err)
	if ocm.ReasonOf(err) == ocm.ArtifactNotFound {
		return "", nil
	}
	return "", err
}

// removeCached removes a component version from the caches.
func (r *Registry) removeCached(p place, version string) {
	key := componentKey(p, version, r.opts.Trust.Current())
	r.components.remove(key)
	r.failures.remove(key)
}

// rawManifest is a manifest in the form that remote.Put needs.
type rawManifest struct {
	data []byte
	kind types.MediaType
}

// RawManifest returns the bytes of the manifest.
func (m rawManifest) RawManifest() ([]byte, error) { return m.data, nil }

// MediaType returns the media type of the manifest.
func (m rawManifest) MediaType() (types.MediaType, error) {
	if m.kind == "" {
		return types.OCIManifestSchema1, nil
	}
	return m.kind, nil
}

// Push writes a component version in the layout of OCM tools and modulectl, and returns the digest of its manifest. If
// the version exists already, Push replaces it. Equal archives have equal digests, because files have a fixed time and
// the descriptor has no time.
//
// Errors are of type *Error with reason InvalidReference, InvalidDescriptor, RegistryUnauthorized, RegistryUnreachable
// or ArtifactNotFound. If the context was cancelled, the error is the error of the context.
func (r *Registry) Push(ctx context.Context, a ocm.Archive) (string, error) {
	p, err := r.repository(r.base, r.plain, ocm.DescriptorRepository(a.Name))
	if err != nil {
		return "", err
	}
	if err := checkTag(p, ocm.TagOf(a.Version)); err != nil {
		return "", err
	}
	home := ocm.RepositoryContext(a.RepositoryContext)
	if home == nil {
		home = r.repositoryContext()
	}
	made, err := ocm.PackAt(a, home)
	if err != nil {
		return "", err
	}
	if _, err := r.Write(ctx, made, true); err != nil {
		return "", err
	}
	return made.Digest(), nil
}

// repositoryContext returns the address of this Registry in the form of an element of repositoryContexts in a component
// descriptor.
func (r *Registry) repositoryContext() map[string]any {
	scheme := "https://"
	if r.plain {
		scheme = "http://"
	}
	home := ocm.RepositoryContext(scheme + r.host)
	if _, sub, ok := strings.Cut(r.base, "/"); ok {
		home["subPath"] = sub
	}
	return home
}
