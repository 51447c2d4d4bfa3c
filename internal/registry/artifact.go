package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// Artifact is a manifest with all blobs that it names, byte for byte: a component version, or what signs one.
type Artifact struct {
	// Repository it is in, without the registry and its path: component-descriptors/<name> for a component version.
	Repository string
	// Tag that stands for it; empty means it is found by its digest only.
	Tag string
	// MediaType of Manifest; empty means that of an OCI image manifest.
	MediaType string
	// Manifest as it is stored.
	Manifest []byte
	// Blobs by digest, with the config.
	Blobs map[string][]byte
}

// DescriptorRepository is the repository of a component, without the registry and its path.
func DescriptorRepository(component string) string { return "component-descriptors/" + component }

// TagOf is the tag that stands for a component's version: a "+" becomes ".build-".
func TagOf(version string) string { return tagOf(version) }

// Digest of the manifest.
func (a *Artifact) Digest() string { return digestOf(a.Manifest) }

// Name is the one of the component, "" if the artifact lies elsewhere.
func (a *Artifact) Name() string {
	component, ok := strings.CutPrefix(a.Repository, "component-descriptors/")
	if !ok {
		return ""
	}
	return component
}

// IsComponent tells whether this is a component version, and not a signature of one.
func (a *Artifact) IsComponent() bool {
	m, err := a.manifest()
	return err == nil && m.Config.MediaType == configType
}

// Version of the component, as its tag tells it.
func (a *Artifact) Version() string { return strings.Replace(a.Tag, ".build-", "+", 1) }

func (a *Artifact) manifest() (*v1.Manifest, error) {
	m, err := v1.ParseManifest(bytes.NewReader(a.Manifest))
	if err != nil {
		return nil, a.invalid("the manifest is not JSON: %s", firstLine(err.Error()))
	}
	return m, nil
}

func (a *Artifact) invalid(format string, args ...any) error {
	return &Error{Ref: a.Repository + ":" + a.Tag, doing: "reading", reason: InvalidDescriptor, problem: fmt.Sprintf(format, args...)}
}

// add keeps a blob and returns its descriptor.
func (a *Artifact) add(data []byte, mediaType types.MediaType) v1.Descriptor {
	digest := digestOf(data)
	a.Blobs[digest] = data
	hash, _ := v1.NewHash(digest) // always well-formed
	return v1.Descriptor{MediaType: mediaType, Size: int64(len(data)), Digest: hash}
}

// seal writes descriptor, config and manifest. layers are those after the descriptor.
func (a *Artifact) seal(descriptor map[string]any, layers []v1.Descriptor, annotations map[string]string) error {
	text, err := yaml.Marshal(descriptor)
	if err != nil {
		return fmt.Errorf("encoding the component descriptor: %w", err)
	}
	if text, err = tarOf(descriptorFile, 0, text); err != nil {
		return err
	}
	first := a.add(text, descriptorType)
	config, err := json.Marshal(map[string]any{"componentDescriptorLayer": map[string]any{"mediaType": first.MediaType, "digest": first.Digest, "size": first.Size}})
	if err != nil {
		return fmt.Errorf("encoding the config: %w", err)
	}
	a.Manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: a.add(config, configType),
		Layers: append([]v1.Descriptor{first}, layers...), Annotations: annotations,
	})
	return err
}

// Descriptor returns the text of the component descriptor. The error has reason InvalidDescriptor.
func (a *Artifact) Descriptor() ([]byte, error) {
	m, err := a.manifest()
	if err != nil {
		return nil, err
	}
	var config struct {
		Layer struct {
			Digest string `json:"digest"`
		} `json:"componentDescriptorLayer"`
	}
	data, ok := a.Blobs[m.Config.Digest.String()]
	if !ok || json.Unmarshal(data, &config) != nil || a.Blobs[config.Layer.Digest] == nil {
		return nil, a.invalid("its config names no component descriptor: it is no component version")
	}
	return unpackDescriptor(a.Blobs[config.Layer.Digest], maxDescriptor, a.Repository+":"+a.Tag)
}

// maxDescriptor bounds a descriptor that an author handles; the manager has Options.MaxDescriptorBytes.
const maxDescriptor = 1 << 20

// Edit returns a copy with another component descriptor. change gets the descriptor as maps and lists.
func (a *Artifact) Edit(change func(descriptor map[string]any) error) (*Artifact, error) {
	text, err := a.Descriptor()
	if err != nil {
		return nil, err
	}
	var d map[string]any
	if err := yaml.Unmarshal(text, &d); err != nil {
		return nil, a.invalid("its component descriptor is not YAML: %s", firstLine(err.Error()))
	}
	if err := change(d); err != nil {
		return nil, err
	}
	m, err := a.manifest()
	if err != nil {
		return nil, err
	}
	out := &Artifact{Repository: a.Repository, Tag: a.Tag, MediaType: a.MediaType, Blobs: map[string][]byte{}}
	var kept []v1.Descriptor
	for _, l := range m.Layers {
		if strings.Contains(string(l.MediaType), "component-descriptor") {
			continue
		}
		kept = append(kept, l)
		out.Blobs[l.Digest.String()] = a.Blobs[l.Digest.String()]
	}
	return out, out.seal(d, kept, m.Annotations)
}

// HasHome tells whether the descriptor states a repository context. Without one, the reference finds nothing to install.
func (a *Artifact) HasHome() (bool, error) {
	text, err := a.Descriptor()
	if err != nil {
		return false, err
	}
	var d struct {
		Component          struct{ RepositoryContexts []any } `json:"component"`
		RepositoryContexts []any                              `json:"repositoryContexts"`
	}
	if err := yaml.Unmarshal(text, &d); err != nil {
		return false, a.invalid("its component descriptor is not YAML: %s", firstLine(err.Error()))
	}
	return len(d.Component.RepositoryContexts)+len(d.RepositoryContexts) > 0, nil
}

// At returns the artifact with the Registry as its repository context, unless it has one already: then, and only then, it stays byte for
// byte.
func (r *Registry) At(a *Artifact) (*Artifact, error) {
	has, err := a.HasHome()
	if err != nil || has {
		return a, err
	}
	return a.Edit(func(d map[string]any) error {
		if c, ok := d["component"].(map[string]any); ok {
			d = c
		}
		d["repositoryContexts"] = []any{r.home()}
		return nil
	})
}

// Artifact reads what a tag or a digest stands for, with all its blobs, each compared with its digest. repository is what
// [Artifact.Repository] is. An index of manifests has no blobs.
//
// Errors are those of Fetch.
func (r *Registry) Artifact(ctx context.Context, repository, reference string) (*Artifact, error) {
	p, err := r.repository(r.base, r.plain, repository)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(reference, ":") {
		if err := checkTag(p, reference); err != nil {
			return nil, err
		}
	}
	s, err := r.open(ctx, p)
	if err != nil {
		return nil, err
	}
	return r.readArtifact(ctx, s, repository, reference)
}

func (r *Registry) readArtifact(ctx context.Context, s *session, repository, reference string) (*Artifact, error) {
	data, err := s.manifestBytes(ctx, s.refTo(reference), "manifests/"+reference)
	if err != nil {
		return nil, err
	}
	a := &Artifact{Repository: repository, Manifest: data, Blobs: map[string][]byte{}}
	if !strings.Contains(reference, ":") {
		a.Tag = reference
	}
	m, err := a.manifest()
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
		if a.Blobs[d.Digest.String()], err = s.blob(ctx, d.Digest.String(), r.opts.MaxLayerBytes); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Versions returns the tags of a component's repository that may be versions, in no order. A registry that does not know the component
// has none.
func (r *Registry) Versions(ctx context.Context, component string) ([]string, error) {
	p, err := r.repository(r.base, r.plain, DescriptorRepository(component))
	if err != nil {
		return nil, err
	}
	s, err := r.open(ctx, p)
	if err != nil {
		return nil, err
	}
	const most = 1 << 20
	data, _, err := s.get(ctx, p.Name(), "tags/list", most)
	if reasonOf(err) == ArtifactNotFound {
		return nil, nil
	}
	var list struct {
		Tags []string `json:"tags"`
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, err
	}
	var versions []string
	for _, tag := range list.Tags {
		if semver.MatchString(tag) {
			versions = append(versions, strings.Replace(tag, ".build-", "+", 1))
		}
	}
	return versions, nil
}

// Signatures returns what cosign has written about a manifest, to be written elsewhere: the image behind the tag sha256-<digest>.sig, and
// what refers to the manifest with the list of it.
//
// Errors are those of Fetch.
func (r *Registry) Signatures(ctx context.Context, of *Artifact) ([]*Artifact, error) {
	p, err := r.repository(r.base, r.plain, of.Repository)
	if err != nil {
		return nil, err
	}
	s, err := r.open(ctx, p)
	if err != nil {
		return nil, err
	}
	tag := strings.Replace(of.Digest(), ":", "-", 1)
	var all []*Artifact
	a, err := r.readArtifact(ctx, s, of.Repository, tag+".sig")
	if err == nil {
		all = append(all, a)
	} else if !isAbsent(err) {
		return nil, err
	}
	f := &search{session: s}
	list, err := f.referrers(ctx, of.Digest(), tag)
	if err != nil || len(list) == 0 {
		return all, err
	}
	for _, d := range list[:min(len(list), maxSignatures)] {
		a, err := r.readArtifact(ctx, s, of.Repository, d.Digest.String())
		if err != nil && !isAbsent(err) {
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
	return append(all, &Artifact{Repository: of.Repository, Tag: tag, MediaType: string(types.OCIImageIndex), Manifest: index}), nil
}

// Write writes an artifact: blobs first, then the manifest under its digest, and the tag last, so that a push which breaks off is never
// seen, and the next one goes on where it was. It tells whether the tag stands for something new. What the tag stands for already is
// replaced only if asked to; otherwise the error has reason ArtifactExists.
//
// Errors are of type *Error with reason InvalidReference, RegistryUnauthorized, RegistryUnreachable, ArtifactNotFound or ArtifactExists,
// or the context's if it was cancelled.
func (r *Registry) Write(ctx context.Context, a *Artifact, replace bool) (written bool, err error) {
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
		return false, &Error{Ref: ref.Name(), doing: "pushing", reason: RegistryUnauthorized, err: err,
			problem: "finding the registry credentials failed: " + firstLine(err.Error())}
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuth(auth), remote.WithTransport(r.carrier(p))}
	standing := ""
	if a.Tag != "" {
		if standing, err = standsFor(ref, options); err != nil {
			return false, err
		}
		if standing != "" && standing != a.Digest() && !replace {
			return false, &Error{Ref: ref.Name(), doing: "pushing", reason: ArtifactExists,
				problem: fmt.Sprintf("it exists already with other content (%s, this is %s): a released version never changes, so raise the version", standing, a.Digest())}
		}
	}
	for digest, blob := range a.Blobs {
		if err := remote.WriteLayer(p.Repository, static.NewLayer(blob, a.typeOf(digest)), options...); err != nil {
			return false, failed("pushing", ref.Name(), err)
		}
	}
	raw := rawManifest{a.Manifest, types.MediaType(a.MediaType)}
	if err := remote.Put(p.Digest(a.Digest()), raw, options...); err != nil {
		return false, failed("pushing", ref.Name(), err)
	}
	if a.Tag == "" || standing == a.Digest() {
		return false, nil
	}
	if err := remote.Put(ref, raw, options...); err != nil {
		return false, failed("pushing", ref.Name(), err)
	}
	r.forget(p, a.Version())
	if now, err := standsFor(ref, options); err == nil && now != a.Digest() {
		return true, &Error{Ref: ref.Name(), doing: "pushing", reason: DigestMismatch,
			problem: fmt.Sprintf("somebody else has moved the tag to %s at the same time: agree who releases this version, and push again", now)}
	}
	return true, nil
}

// typeOf is the media type that the manifest gives a blob.
func (a *Artifact) typeOf(digest string) types.MediaType {
	m, err := a.manifest()
	if err != nil {
		return fileType
	}
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if d.Digest.String() == digest {
			return d.MediaType
		}
	}
	return fileType
}

// standsFor returns the digest behind a tag, "" if there is none.
func standsFor(ref name.Tag, options []remote.Option) (string, error) {
	d, err := remote.Get(ref, options...)
	if err == nil {
		return d.Digest.String(), nil
	}
	err = failed("pushing", ref.Name(), err)
	if reasonOf(err) == ArtifactNotFound {
		return "", nil
	}
	return "", err
}

// forget drops what is remembered of a component version.
func (r *Registry) forget(p place, version string) {
	key := componentKey(p, version, r.opts.Trust.current())
	r.components.remove(key)
	r.failures.remove(key)
}

// rawManifest is a manifest in the form that remote.Put takes.
type rawManifest struct {
	data []byte
	kind types.MediaType
}

// RawManifest returns the bytes to send.
func (m rawManifest) RawManifest() ([]byte, error) { return m.data, nil }

// MediaType says what they are.
func (m rawManifest) MediaType() (types.MediaType, error) {
	if m.kind == "" {
		return types.OCIManifestSchema1, nil
	}
	return m.kind, nil
}

// Missing returns the digests that the manifest names and Blobs lack, or have with other content: what is left of a broken transfer.
func (a *Artifact) Missing() ([]string, error) {
	m, err := a.manifest()
	if err != nil {
		return nil, err
	}
	if m.Config.Digest.Hex == "" {
		return nil, nil
	}
	var missing []string
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if data, ok := a.Blobs[d.Digest.String()]; !ok || digestOf(data) != d.Digest.String() {
			missing = append(missing, d.Digest.String())
		}
	}
	return missing, nil
}

// Fault classes what a client of a registry failed with, as everything here does. doing is "pulling" or "pushing", ref what it was about.
func Fault(doing, ref string, err error) error { return failed(doing, ref, err) }

// IsReason tells whether an error is an *Error with this reason.
func IsReason(err error, reason string) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.reason == reason
}
