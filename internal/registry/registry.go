// Package registry reads and writes modules in an OCI registry: component descriptors of the Open Component Model, and
// the layers to which these descriptors refer.
//
//	r, err := registry.New(registry.Options{Host: "europe-docker.pkg.dev", Subpath: "kyma-project/prod"})
//	component, err := r.Component(ctx, "kyma-project.io/module/btp-operator", "1.4.0")
//	data, digest, err := r.Fetch(ctx, component.Layers["raw-manifest"])
//
// # How it works
//
// A component version is stored as the OCI image manifest <base>/component-descriptors/<name>:<version>. In the tag,
// ".build-" replaces the "+" of the version. The config of the manifest refers to the layer with the component
// descriptor. All layers except the component descriptor are the local resources of the component. The package reads at
// most a limited number of bytes of each manifest and blob. Every manifest, config and layer is compared with the
// requested digest. If a manifest is requested by tag, it is compared with the digest that the registry reports.
//
// The package caches what it reads from the registry in memory. Components are cached by name and version. The content
// of a cached version may be outdated, because somebody may push other content under the same version. Therefore a
// component that was pulled more than an hour ago is pulled again when it is used next. The caller compares
// [Component.Content] with the content that it installed, to detect that the content of the version was changed. Layers
// are cached by digest until their memory is needed, and their digest is checked again on each read. The digest of a
// tag is cached for one minute. An error is cached for three seconds: otherwise ten thousand clusters with the same
// missing module would cause ten thousand requests. Concurrent callers that need the same content share one pull. A
// pull has a timeout of 30 seconds. If the context of the caller that started a pull is cancelled, the pull continues,
// so that other callers that wait for the pull do not fail.
//
// # Writing
//
// [Registry.Write] writes a component version that ocm.Pack has made or that [Registry.Artifact] has read. The blobs
// are written first and the tag last.
//
// # Signatures
//
// If there is a trust policy (Options.Trust), artefacts below the prefix of a rule must be signed by a key of this
// rule:
//
//	policy, err := trust.Load("/etc/trust/policy.yaml", nil)
//	r, err := registry.New(registry.Options{Host: host, Trust: policy})
//	component, err := r.Component(ctx, name, version) // component.Signature.Key is the signing key
//
// Package trust verifies the signatures. A signature covers a layer if the signed manifest or the signed descriptor
// contains the digest of the layer. A signed manifest contains the digests of config, descriptor and layers. A signed
// descriptor contains the digest of each resource, but not the location of the resource. Therefore layers are fetched
// by the signed digest, and image references get the signed digest.
//
// A layer that is referenced by a digest has no signature of its own. A layer without a signature of its own is
// admitted if a verified component version references it. The component version that references the layer was either
// verified since the process started, or the package verifies the component version in [Layer.Version] before it admits
// the layer. Therefore a restart of the process, which loses the results of earlier verifications, does not change
// which layers are admitted. If a layer is referenced by a tag, the tag must point to a component version with a
// signature, or to an image with a cosign signature.
//
// Each digest is verified once per version of the policy, for all callers. If an artefact is refused, the refusal is
// cached for three seconds. If a registry does not respond, the error describes the registry, and no artefact is
// admitted until the registry responds.
//
// # What it does not do
//
// The package writes nothing to a disk. The package does not interpret the content of layers; package render does that.
// The package does not follow component references. The package ignores repository contexts in descriptors: it reads
// the blobs of a component from the registry of its descriptor. If the tag of an ordinary image is moved to another
// image that the same key has signed, the package cannot detect the move. A moved tag of a component version is
// detected, because the signed descriptor contains the version.
package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/singleflight"

	"github.com/kyma-fleet/lifecycle-manager/internal/egress"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// Limits and cache periods.
const (
	pullTimeout      = 30 * time.Second // timeout of one shared pull with all its requests
	pushTimeout      = 2 * time.Minute
	tagCachePeriod   = time.Minute     // period for which the digest of a tag is cached
	errorCachePeriod = 3 * time.Second // period for which an error is returned again without a request
	// componentCachePeriod is the maximum age of a cached component. An older component is compared with the registry
	// before it is used again.
	componentCachePeriod = time.Hour
	maxComponents        = 4096 // maximum number of cached components
	maxProofs            = 4 * maxComponents
	maxManifest          = 4 << 20  // maximum bytes of a manifest, from the distribution specification
	maxConfig            = 64 << 10 // maximum bytes of a component version's config
)

// Options configures a Registry. Only Host is required.
type Options struct {
	// Host is the host[:port] of the registry, optionally followed by a path. Host has no scheme, or begins with
	// https:// or http://. http:// means plain HTTP for all requests to the host. For loopback and private addresses
	// without a scheme, HTTPS is tried first and plain HTTP second.
	Host string
	// Subpath is the path between the host and component-descriptors; empty means that there is none.
	Subpath string
	// Keychain returns the credentials for a repository; nil means that requests are anonymous.
	Keychain authn.Keychain
	// MaxDescriptorBytes is the maximum size of an unpacked component descriptor; 0 means 100 KiB.
	MaxDescriptorBytes int64
	// MaxLayerBytes is the maximum size of a stored layer; 0 means 32 MiB.
	MaxLayerBytes int64
	// CacheBytes is the maximum size of all cached layers together; 0 means 128 MiB. If CacheBytes is negative, layers
	// are not cached.
	CacheBytes int64
	// Trust is the trust policy. The trust policy defines which artefacts must be signed, and by which keys. nil means
	// that no artefact must be signed.
	Trust *trust.Policy
	// Transport sends the requests. nil means an egress.Transport that refuses hosts on loopback, on link-local
	// addresses and the like, except Host.
	Transport http.RoundTripper
}

// Registry is a client for one registry. A Registry reads a layer from another registry if Layer.Repo names one. A
// Registry is safe for concurrent use.
type Registry struct {
	opts  Options
	base  string // host[:port][/path], without scheme
	host  string // host[:port]
	plain bool   // plain HTTP for all requests to host

	pullTimeout time.Duration // the constant pullTimeout, except in tests

	pulls      singleflight.Group
	components *cache[*Component]
	layers     *cache[[]byte]          // by digest
	tags       *cache[string]          // digest of the layer, by reference
	failures   *cache[error]           // by key of the pull
	proofs     *cache[trust.Signature] // valid signatures, by policy, location and digest
	problems   *cache[trust.Signature] // warnings, by the same key, cached for tagCachePeriod
}

// OCIRef and OCIDir are the types of layers. The sources of a Manifest have the same two values in the field "type".
const (
	OCIRef = "oci-ref" // the layer is one file
	OCIDir = "oci-dir" // the layer is a tar archive
)

// Layer describes where the content of a resource is.
type Layer struct {
	// Name is the name of the resource: raw-manifest, config, crds, default-cr or another name.
	Name string
	// Repo is the registry and the path of the repository: host[:port][/path]. If Repo is empty, it is the value of
	// [Registry.Base]. If Repo begins with http://, requests are sent without TLS.
	Repo string
	// Component is the name of the component to which the layer belongs. Fetch first requests the layer from the
	// repository <Repo>/component-descriptors/<Component>. If the layer is not there, Fetch requests the layer from the
	// repository <Repo>/<Component>.
	Component string
	// Version is the version of the component. Layer.Version is needed only if the trust policy requires a signature
	// and Layer.Ref is a digest. A layer that is referenced by a digest has no signature of its own, so the package
	// verifies the signature of the component version to which the layer belongs.
	Version string
	// Ref is the digest of the layer, sha256:<hex>, or a tag. A tag selects the only layer of the tagged image. If the
	// image has several layers, the tag selects the layer whose annotation contains the resource name in the field
	// Name.
	Ref string
	// Type is OCIRef or OCIDir. Type is for the caller; Fetch ignores it.
	Type string
}

// New returns a Registry. New sends no request. If the Options are not valid, the error has reason InvalidReference.
func New(opts Options) (*Registry, error) {
	return newRegistry(opts, time.Now)
}

func newRegistry(opts Options, now func() time.Time) (*Registry, error) {
	base, plain, err := parseBase(opts.Host)
	if err != nil {
		return nil, err
	}
	if sub := strings.Trim(opts.Subpath, "/"); sub != "" {
		base += "/" + sub
	}
	opts.MaxDescriptorBytes = cmp.Or(opts.MaxDescriptorBytes, 100<<10)
	opts.MaxLayerBytes = cmp.Or(opts.MaxLayerBytes, 32<<20)
	opts.CacheBytes = cmp.Or(opts.CacheBytes, 128<<20)
	if opts.Keychain == nil {
		opts.Keychain = anonymous{}
	}
	if opts.Transport == nil {
		opts.Transport = egress.New(egress.Options{Configured: []string{opts.Host}})
	}
	host, _, _ := strings.Cut(base, "/")
	r := &Registry{
		opts: opts, base: base, host: host, plain: plain, pullTimeout: pullTimeout,
		components: newCache[*Component](maxComponents, now),
		layers:     newCache[[]byte](opts.CacheBytes, now),
		tags:       newCache[string](maxComponents, now),
		failures:   newCache[error](maxComponents, now),
		proofs:     newCache[trust.Signature](maxProofs, now),
		problems:   newCache[trust.Signature](maxProofs, now),
	}
	_, err = r.repository(base, plain, "component-descriptors")
	return r, err
}

// Base returns the registry and the subpath of the component versions, in the format of [Layer.Repo].
func (r *Registry) Base() string { return r.base }

// Transport returns the transport with which all requests are sent. Other clients that read locations in artefacts
// should use this transport, too, because it checks addresses.
func (r *Registry) Transport() http.RoundTripper { return r.opts.Transport }

// anonymous is a keychain that has no credentials.
type anonymous struct{}

func (anonymous) Resolve(authn.Resource) (authn.Authenticator, error) { return authn.Anonymous, nil }

// parseBase separates the scheme from host[:port][/path].
func parseBase(text string) (base string, plain bool, err error) {
	base, plain = strings.CutPrefix(text, "http://")
	base = strings.Trim(strings.TrimPrefix(base, "https://"), "/")
	host, _, _ := strings.Cut(base, "/")
	if strings.Contains(base, "@") {
		return "", false, ocm.NewError(ocm.InvalidReference, base[strings.LastIndex(base, "@")+1:],
			"credentials do not belong in the host: put them into the credential Secret")
	}
	// A host without a dot and without a port is refused, because the library go-containerregistry would treat such a
	// host as a repository on Docker Hub.
	u, err := url.Parse("//" + host)
	if err != nil || u.Host != host || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return "", false, ocm.NewError(ocm.InvalidReference, fmt.Sprintf("%q", text),
			"not a registry: give it as host.domain, host:port or http://host:port")
	}
	return base, plain, nil
}

// repository returns the repository at a path below the base. If the name of the repository is not valid, repository
// returns an error.
func (r *Registry) repository(base string, plain bool, elements ...string) (place, error) {
	full := strings.Join(append([]string{base}, elements...), "/")
	repo, err := name.NewRepository(full, name.StrictValidation)
	if err != nil || !pathForm.MatchString(repo.RepositoryStr()) {
		return place{}, ocm.NewError(ocm.InvalidReference, full,
			"not a repository: a component's name is made of lower-case letters, digits, dots, dashes and slashes")
	}
	return place{Repository: repo, plain: plain || r.plain && repo.RegistryStr() == r.host}, nil
}

// pathForm and tagForm match the names of repositories and tags that the OCI distribution specification allows. The
// library go-containerregistry would also accept "..", which would change the URL.
var (
	pathForm = regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagForm  = regexp.MustCompile(`^\w[\w.-]{0,127}$`)
)

// IsNameAndTag reports whether the OCI distribution specification allows the name of a repository and a tag. If tag is
// empty, only the name is checked.
func IsNameAndTag(repository, tag string) bool {
	return pathForm.MatchString(repository) && (tag == "" || tagForm.MatchString(tag))
}

// place is a repository and the protocol of its registry.
type place struct {
	name.Repository
	plain bool // true: requests use plain HTTP
}

func checkTag(p place, tag string) error {
	if !tagForm.MatchString(tag) {
		return ocm.NewError(ocm.InvalidReference, p.Name()+":"+tag,
			"not a tag: a version has at most 128 letters, digits, dots, dashes and underscores")
	}
	return nil
}

// placement lists the repositories in which a layer may be. placement also has the digest of the layer, if it is known
// without a request.
type placement struct {
	base   string
	plain  bool
	places []place
	tag    string // empty if the reference of the layer is a digest
	digest string // empty if the tag must be resolved
}

// placesOf checks the reference of a layer, and returns the repositories that may contain the layer.
func (r *Registry) placesOf(ctx context.Context, layer Layer) (placement, error) {
	at := placement{base: r.base, plain: r.plain}
	if layer.Repo != "" {
		var err error
		if at.base, at.plain, err = parseBase(layer.Repo); err != nil {
			return at, err
		}
	}
	for _, prefix := range [][]string{{"component-descriptors", layer.Component}, {layer.Component}} {
		p, err := r.repository(at.base, at.plain, prefix...)
		if err != nil {
			return at, err
		}
		at.places = append(at.places, p)
	}
	at.digest = layer.Ref
	if !strings.Contains(layer.Ref, ":") {
		at.tag = ocm.TagOf(layer.Ref)
		if err := checkTag(at.places[0], at.tag); err != nil {
			return at, err
		}
		at.digest, _ = r.tags.getUnlessRetried(ctx, tagKey(at.places[0], at.tag, layer.Name))
	} else if _, err := v1.NewHash(at.digest); err != nil {
		return at, ocm.NewError(ocm.InvalidReference, at.places[0].Name()+"@"+at.digest,
			"not a digest: it must be sha256: and 64 hexadecimal digits")
	}
	return at, nil
}

// Fetch returns the content and the digest of a layer. Fetch returns an error if the trust policy does not admit the
// layer. The content is shared between callers, so it must not be changed.
//
// Errors are of type *Error and can have every reason except AccessTypeNotSupported. If the context was cancelled, the
// error is the error of the context.
func (r *Registry) Fetch(ctx context.Context, layer Layer) ([]byte, string, error) {
	where, err := r.placesOf(ctx, layer)
	if err != nil {
		return nil, "", err
	}
	digest, _, err := r.admit(ctx, layer, where, r.opts.Trust.Current())
	if err != nil {
		return nil, "", err
	}
	if data, ok := r.cachedIfIntact(digest); ok {
		return data, digest, nil
	}
	tag := where.tag
	if digest != "" {
		tag = "" // the tag needs no request, because its digest is known
	}

	type result struct {
		data   []byte
		digest string
	}
	places := where.places
	key := strings.Join([]string{"layer", places[0].Name(), layer.Ref, digest, layer.Name}, " ")
	got, err := pullOnce(ctx, r, key, places[0].Name()+" "+layer.Ref, func(ctx context.Context) (result, error) {
		if data, ok := r.cachedIfIntact(digest); ok { // a concurrent pull stored it
			return result{data, digest}, nil
		}
		var refused error // the error of the first repository, which usually contains the layer
		for _, p := range places {
			data, found, err := r.pullLayer(ctx, p, tag, digest, layer.Name)
			if err == nil {
				if tag != "" {
					r.tags.put(tagKey(places[0], tag, layer.Name), found, 1, tagCachePeriod)
				}
				r.layers.put(found, data, int64(len(data)), 0)
				return result{data, found}, nil
			}
			if !shouldTryNext(err) {
				return result{}, err
			}
			refused = cmp.Or(refused, err)
		}
		return result{}, refused
	})
	return got.data, got.digest, err
}

func tagKey(p place, tag, resource string) string { return p.Name() + ":" + tag + " " + resource }

// shouldTryNext reports whether Fetch should try the next repository after the error err. If a repository does not
// exist, some registries respond with 401 or 403.
func shouldTryNext(err error) bool {
	e, ok := errors.AsType[*ocm.Error](err)
	return ok && (e.Code == ocm.ArtifactNotFound || e.Code == ocm.RegistryUnauthorized)
}

// IsCachedWithoutTrustPolicy reports whether the cache has a verified layer with this digest. If
// IsCachedWithoutTrustPolicy returns true, the layer can be installed without a request. With a trust policy,
// IsCachedWithoutTrustPolicy always returns false, because even a cached layer must be admitted by the policy before it
// is installed.
func (r *Registry) IsCachedWithoutTrustPolicy(digest string) bool {
	_, held := r.layers.get(digest)
	return held && r.opts.Trust == nil
}

// cachedIfIntact returns a layer from the cache, and whether the cache has the layer. If the content of the layer in
// the cache was modified, so that it does not have the digest any more, cachedIfIntact removes the layer and returns
// false.
func (r *Registry) cachedIfIntact(digest string) ([]byte, bool) {
	data, ok := r.layers.get(digest)
	if !ok {
		return nil, false
	}
	if ocm.DigestOf(data) != digest {
		r.layers.remove(digest)
		return nil, false
	}
	return data, true
}

// pullLayer pulls the layer that has this digest. If tag is not empty, pullLayer pulls the layer to which the tag
// points.
func (r *Registry) pullLayer(ctx context.Context, p place, tag, digest, resource string) ([]byte, string, error) {
	s, err := r.openSession(ctx, p)
	if err != nil {
		return nil, "", err
	}
	if tag != "" {
		found, err := s.Manifest(ctx, tag)
		if err != nil {
			return nil, "", err
		}
		if digest, err = ocm.LayerDigestOf(found.Manifest, resource, found.Ref); err != nil {
			return nil, "", err
		}
	}
	data, err := s.Blob(ctx, digest, r.opts.MaxLayerBytes)
	return data, digest, err
}

// pullOnce runs the function pull once for all concurrent callers that have the same key. pull runs with a separate
// context, so that the cancellation of one caller does not make the other callers fail. For errorCachePeriod after an
// error, callers get the same error again.
func pullOnce[T any](ctx context.Context, r *Registry, key, what string, pull func(context.Context) (T, error)) (
	T, error) {
	var none T
	if err, ok := r.failures.getUnlessRetried(ctx, key); ok {
		return none, err
	}
	results := r.pulls.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.pullTimeout)
		defer cancel()
		v, err := pull(ctx)
		if err != nil {
			r.failures.put(key, err, 1, errorCachePeriod)
		}
		return v, err
	})
	select {
	case result := <-results:
		if result.Err != nil {
			return none, result.Err
		}
		return result.Val.(T), nil
	case <-ctx.Done():
		return none, classifyError("pulling", what, ctx.Err())
	}
}
