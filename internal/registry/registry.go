// Package registry reads and writes modules in an OCI registry: component descriptors of the Open Component Model, and
// the layers that these descriptors reference.
//
//	r, err := registry.New(registry.Options{Host: "europe-docker.pkg.dev", Subpath: "kyma-project/prod"})
//	component, err := r.Component(ctx, "kyma-project.io/module/btp-operator", "1.4.0")
//	data, digest, err := r.Fetch(ctx, component.Layers["raw-manifest"])
//
// # How it works
//
// A component version is the OCI image manifest <base>/component-descriptors/<name>:<version>. In the tag, "+" of the
// version is replaced by ".build-". The config of the manifest references the layer with the component descriptor. The
// other layers are the local resources. Every read has a size limit. Every manifest, config and layer is compared with
// the requested digest. A manifest that is requested by tag is compared with the digest that the registry reports.
//
// Results are cached in memory. Components are cached by name and version. A released version should never change, but
// somebody may push other content under the same version. Therefore a component that was pulled more than an hour ago
// is pulled again at its next use, and the caller compares [Component.Content]. Layers are cached by digest until they
// are evicted, and are verified again on each read. The digest of a tag is cached for one minute. An error is cached
// for three seconds, so that ten thousand clusters with the same missing module do not cause ten thousand requests.
// Concurrent callers with the same request share one pull. A pull has a timeout of 30 seconds. A pull continues if its
// first caller is cancelled, so that a cancelled context never fails another caller.
//
// # Writing
//
// [Registry.Write] writes a component version that ocm.Pack created or [Registry.Artifact] read. The blobs are written
// first and the tag last.
//
// # Signatures
//
// With a trust policy, Options.Trust, artefacts below a prefix must be signed by a key of its rule:
//
//	policy, err := trust.Load("/etc/trust/policy.yaml", nil)
//	r, err := registry.New(registry.Options{Host: host, Trust: policy})
//	component, err := r.Component(ctx, name, version) // component.Signature.Key is the signing key
//
// Package trust verifies the signatures. The digests determine which layers a signature covers. A signed manifest
// contains the digests of config, descriptor and layers. A signed descriptor contains the digest of each resource, but
// not the location of the resource. Therefore layers are fetched by the signed digest, and the signed digest is added
// to image references.
//
// A layer that is referenced by a digest has no signature. The layer is admitted if a verified component version
// references it. This component version was verified since the process started, or it is the component version in
// [Layer.Version]. Therefore the admission depends neither on the origin of the digest nor on a restart of the process.
// A tag is verified as a component version, or by the cosign signature of its image.
//
// Each digest is verified once per version of the policy, for all callers. A refusal is returned again for three
// seconds. If a registry does not respond, the error is about the registry, and nothing is admitted until the registry
// responds.
//
// # What it does not do
//
// The package does not write to a disk. The package does not interpret the content of layers; package render does. The
// package does not follow component references. The package ignores repository contexts in descriptors: the blobs of a
// component are read from the registry of the component's descriptor. An image that is not a component version has one
// gap: if its tag is moved to another image with a signature by the same key, the package does not detect that.
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
	// componentCachePeriod is the period after which a cached component is compared with the registry at its next use.
	componentCachePeriod = time.Hour
	maxComponents        = 4096 // maximum number of cached components
	maxProofs            = 4 * maxComponents
	maxManifest          = 4 << 20  // maximum bytes of a manifest, from the distribution specification
	maxConfig            = 64 << 10 // maximum bytes of a component version's config
)

// Options configures a Registry. Only Host is required.
type Options struct {
	// Host is host[:port] with an optional path. Host has no scheme, or begins with https:// or http://. http:// means
	// plain HTTP for all requests to the host. For loopback and private addresses without a scheme, HTTPS is tried
	// first and plain HTTP second.
	Host string
	// Subpath is the path between host and component-descriptors; empty means none.
	Subpath string
	// Keychain returns the credentials for a repository; nil means anonymous.
	Keychain authn.Keychain
	// MaxDescriptorBytes is the maximum size of an unpacked component descriptor; 0 means 100 KiB.
	MaxDescriptorBytes int64
	// MaxLayerBytes is the maximum size of a stored layer; 0 means 32 MiB.
	MaxLayerBytes int64
	// CacheBytes is the maximum size of all cached layers together; 0 means 128 MiB. A negative number disables the
	// cache.
	CacheBytes int64
	// Trust is the trust policy. Trust defines which artefacts must be signed and by which keys. nil means that no
	// artefact must be signed.
	Trust *trust.Policy
	// Transport sends the requests; nil means an egress.Transport for which Host is configured, and which refuses
	// other hosts on loopback, link-local addresses and the like.
	Transport http.RoundTripper
}

// Registry is a client for one registry. A Registry also reads layers from repositories in other registries if a Layer
// specifies such a repository. A Registry is safe for concurrent use.
type Registry struct {
	opts  Options
	base  string // host[:port][/path], without scheme
	host  string // host[:port]
	plain bool   // plain HTTP for all requests to host

	pulls      singleflight.Group
	components *cache[*Component]
	layers     *cache[[]byte]          // by digest
	tags       *cache[string]          // digest of the layer, by reference
	failures   *cache[error]           // by key of the pull
	proofs     *cache[trust.Signature] // valid signatures, by policy, location and digest
	problems   *cache[trust.Signature] // warnings, by the same key, cached for tagCachePeriod
}

// The types of layers. Sources of the kind Manifest have the same values.
const (
	OCIRef = "oci-ref" // the layer is one file
	OCIDir = "oci-dir" // the layer is a tar archive
)

// Layer is the location of a resource.
type Layer struct {
	// Name is the name of the resource: raw-manifest, config, crds, default-cr or another name.
	Name string
	// Repo is host[:port][/path]. Empty means the value of [Registry.Base]. A leading http:// means plain HTTP.
	Repo string
	// Component is the name of the component. The repository of the layer is <Repo>/component-descriptors/<Component>.
	// If this repository does not exist, the repository of the layer is <Repo>/<Component>.
	Component string
	// Version is the version of the component. Version is needed only if the trust policy requires a signature and Ref
	// is a digest. Layers have no signature. In this case, the signature of the component version that references the
	// layer is verified.
	Version string
	// Ref is the digest of the layer, sha256:<hex>, or a tag. A tag selects the only layer of the image, or the layer
	// whose annotation is the resource Name.
	Ref string
	// Type is OCIRef or OCIDir. Only the caller uses Type; Fetch ignores it.
	Type string
}

// New returns a Registry. New sends no request. The error has reason InvalidReference.
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
		opts: opts, base: base, host: host, plain: plain,
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

// Base returns registry and subpath of the component versions, in the format of [Layer.Repo].
func (r *Registry) Base() string { return r.base }

// Transport returns the transport of all requests. Clients of other locations that artefacts name use this transport,
// too, because it checks addresses.
func (r *Registry) Transport() http.RoundTripper { return r.opts.Transport }

// anonymous is a keychain without credentials.
type anonymous struct{}

func (anonymous) Resolve(authn.Resource) (authn.Authenticator, error) { return authn.Anonymous, nil }

// parseBase splits a scheme from host[:port][/path].
func parseBase(text string) (base string, plain bool, err error) {
	base, plain = strings.CutPrefix(text, "http://")
	base = strings.Trim(strings.TrimPrefix(base, "https://"), "/")
	host, _, _ := strings.Cut(base, "/")
	if strings.Contains(base, "@") {
		return "", false, ocm.NewError(ocm.InvalidReference, base[strings.LastIndex(base, "@")+1:],
			"credentials do not belong in the host: put them into the credential Secret")
	}
	// a name without a dot and without a port would be a path in the default registry of the library
	u, err := url.Parse("//" + host)
	if err != nil || u.Host != host || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return "", false, ocm.NewError(ocm.InvalidReference, fmt.Sprintf("%q", text),
			"not a registry: give it as host.domain, host:port or http://host:port")
	}
	return base, plain, nil
}

// repository returns the repository at a path below base. The result is an error if the name of the repository is not
// valid.
func (r *Registry) repository(base string, plain bool, elements ...string) (place, error) {
	full := strings.Join(append([]string{base}, elements...), "/")
	repo, err := name.NewRepository(full, name.StrictValidation)
	if err != nil || !pathForm.MatchString(repo.RepositoryStr()) {
		return place{}, ocm.NewError(ocm.InvalidReference, full,
			"not a repository: a component's name is made of lower-case letters, digits, dots, dashes and slashes")
	}
	return place{Repository: repo, plain: plain || r.plain && repo.RegistryStr() == r.host}, nil
}

// The syntax of names in the distribution specification. The library also accepts "..", which would change the URL.
var (
	pathForm = regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagForm  = regexp.MustCompile(`^\w[\w.-]{0,127}$`)
)

// place is a repository with its protocol.
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

// placement lists the repositories that may contain a layer. placement also contains the digest of the layer if the
// digest is known without a request.
type placement struct {
	base   string
	plain  bool
	places []place
	tag    string // empty if the reference of the layer is a digest
	digest string // empty if the tag must be resolved
}

// placesOf validates the reference of a layer and returns its possible repositories.
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
		at.digest, _ = r.tags.getFresh(ctx, tagKey(at.places[0], at.tag, layer.Name))
	} else if _, err := v1.NewHash(at.digest); err != nil {
		return at, ocm.NewError(ocm.InvalidReference, at.places[0].Name()+"@"+at.digest,
			"not a digest: it must be sha256: and 64 hexadecimal digits")
	}
	return at, nil
}

// Fetch returns the content of a layer and its digest. The trust policy must admit the layer. The content is shared and
// must not be changed.
//
// Errors are of type *Error with every reason except AccessTypeNotSupported. If the context was cancelled, the error is
// the error of the context.
func (r *Registry) Fetch(ctx context.Context, layer Layer) ([]byte, string, error) {
	where, err := r.placesOf(ctx, layer)
	if err != nil {
		return nil, "", err
	}
	digest, _, err := r.admit(ctx, layer, where, r.opts.Trust.Current())
	if err != nil {
		return nil, "", err
	}
	if data, ok := r.cached(digest); ok {
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
		if data, ok := r.cached(digest); ok { // a concurrent pull stored it
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

// shouldTryNext reports whether Fetch tries the next repository after err. Some registries respond with 401 or 403 if a
// repository does not exist.
func shouldTryNext(err error) bool {
	e, ok := errors.AsType[*ocm.Error](err)
	return ok && (e.Code == ocm.ArtifactNotFound || e.Code == ocm.RegistryUnauthorized)
}

// HasCached reports whether a verified layer with this digest is in the cache. Such a layer can be installed without a
// request. With a trust policy, HasCached always returns false, because then the admission of a layer does not depend
// on its content alone.
func (r *Registry) HasCached(digest string) bool {
	_, held := r.layers.get(digest)
	return held && r.opts.Trust == nil
}

// cached returns a layer from the cache. ok is false if the content of the layer no longer has this digest.
func (r *Registry) cached(digest string) ([]byte, bool) {
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

// pullLayer pulls the layer with this digest. If tag is not empty, pullLayer pulls the layer of the tag.
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
		if digest, err = ocm.LayerOf(found.Manifest, resource, found.Ref); err != nil {
			return nil, "", err
		}
	}
	data, err := s.Blob(ctx, digest, r.opts.MaxLayerBytes)
	return data, digest, err
}

// pullOnce runs pull once for all concurrent callers with the same key. pull runs with a separate context, so that the
// cancellation of one caller does not fail the other callers. Errors are returned again for errorCachePeriod.
func pullOnce[T any](ctx context.Context, r *Registry, key, what string, pull func(context.Context) (T, error)) (
	T, error) {
	var none T
	if err, ok := r.failures.getFresh(ctx, key); ok {
		return none, err
	}
	results := r.pulls.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pullTimeout)
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
