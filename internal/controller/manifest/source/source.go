// Package source resolves the sources of Manifests to artefacts, and renders artefacts to bundles.
//
// # Use
//
//	finder := source.NewFinder(source.Options{Registry: …, Secrets: …})
//	found, err := finder.Find(ctx, manifest)              // which content each source has now
//	signature, err := found.Sources[0].Artefact.Verify(ctx)
//	bundle, err := renderer.Bundle(ctx, found.Sources[0], options, nil, runtime.Capabilities)
//
// # How it works
//
// A source is a layer in an OCI registry, a chart in a chart repository, or a Kustomize directory. A source that names
// its content by a digest is resolved without a request. A tag or a range of versions costs one request, whose answer
// is shared by all Manifests that send the same request at the same time.
//
// Shared work has its own deadline and continues if the caller that started it is cancelled. A caller waits at most two
// seconds for the answer of a registry or repository. If there is no answer within two seconds, the call returns
// loop.Later. When the caller repeats the call later, the call returns the answer that has arrived meanwhile.
//
// Credentials, registries, chart repositories, failures, downloaded charts and config layers are cached in maps with a
// limit. If a cache of the package is full, the cache is emptied; the only effect is that more requests are sent to
// registries and the API server.
//
// # What it does not do
//
// The package does not decide which modules are installed. The package sends no request to a runtime: the caller passes
// the function that requests the capabilities of the runtime.
package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
	library "github.com/kyma-fleet/lifecycle-manager/manifest"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Limits for slow or unavailable sources, and for caches.
const (
	// answerTimeout is the maximum time that a reconcile waits for a source; the request itself continues after this
	// time.
	answerTimeout = 2 * time.Second
	// answerPollDelay is the delay before a reconcile that got no answer within answerTimeout requests the answer again
	answerPollDelay = 200 * time.Millisecond
	// requestTimeout is the timeout of one request to a chart repository, whether or not a reconcile waits for the
	// answer
	requestTimeout        = 30 * time.Second
	failureCachePeriod    = 5 * time.Second  // time in which a failure is returned without another request
	credentialCachePeriod = 30 * time.Second // time in which credentials are used without reading their Secrets again
	chartCachePeriod      = 30 * time.Second // maximum time between the download and the rendering of a chart
	cachedChartsLimit     = 8                // maximum number of downloaded charts, because a chart may be large
	cacheLimit            = 4096             // maximum number of entries in each other cache
)

// Options configure a Finder.
type Options struct {
	// Registry reads layers.
	Registry *registry.Registry
	// Secrets reads the credentials Secrets that Manifests select, and the data for InjectionModule. Secrets should be
	// a client without a cache.
	Secrets client.Reader
	// InjectData allows the module whose name is the constant InjectionModule to receive data of Secrets of the control
	// plane.
	InjectData bool
	// LocalSources is the path of a folder whose subfolders Manifests may use as sources of type kustomize. If
	// LocalSources is "", Manifests cannot use local sources.
	LocalSources string
}

// Finder resolves the sources of all Manifests. Finder is safe for concurrent use.
type Finder struct {
	opts     Options
	requests singleflight.Group // to chart repositories, by repository, chart and version

	mu           sync.Mutex
	registries   map[string]*registry.Registry  // guarded by mu; by version of the credentials
	credentials  map[string]credentials         // guarded by mu; by namespace and selector
	injections   map[string]injection           // guarded by mu; by namespace
	repositories map[string]*library.Repository // guarded by mu; by URL and version of the credentials
	charts       map[string]downloadedChart     // guarded by mu; by request
	failures     map[string]failure             // guarded by mu; by request
	configs      map[string][]render.Config     // guarded by mu; by digest of the layer
}

// failure is the error of an earlier request. Equal requests get the same error until the failure expires.
type failure struct {
	err     error
	expires time.Time
}

// NewFinder returns a Finder with empty caches.
func NewFinder(opts Options) *Finder { return &Finder{opts: opts} }

// Artefact is the content that a source resolves to, with the functions that load and verify the content.
type Artefact struct {
	// Digest is "sha256:…". Equal digests mean that the content is equal.
	Digest string
	// Pinned reports whether the source names its content by digest. Only a change of the Manifest can change the
	// content of a pinned source.
	Pinned bool
	// Load downloads and unpacks the content.
	Load func(context.Context) (*render.Artefact, error)
	// Verify checks the content against the trust policy. If the source has no content, Verify is nil.
	Verify func(context.Context) (trust.Signature, error)
}

// Source is one source of a Manifest, with its content and the settings with which it is rendered.
type Source struct {
	// Name is the name of the install in the Manifest, or "crds" for spec.crds.
	Name string
	// CRDsOnly is true if the source is spec.crds. If CRDsOnly is true, objects in the content that are not CRDs are
	// ignored.
	CRDsOnly bool
	// Artefact is the content.
	Artefact Artefact
	// Settings are the values for charts. Settings do not include the capabilities of the cluster, which are only known
	// when the chart is rendered.
	Settings render.Settings
}

// Digest returns a digest of the content and the settings of the source.
func (s Source) Digest() string {
	digest := s.Settings.Digest(s.Artefact.Digest, nil)
	if s.CRDsOnly {
		return "definitions of " + digest // part of digests that are stored in the status of Manifests
	}
	return digest
}

// Found is the result of resolving the sources of one Manifest.
type Found struct {
	// Config is the config layer. Config is the zero value if the Manifest has no spec.config.
	Config Artefact
	// Sources are in the order in which they are installed.
	Sources []Source
	// Injection has the data for those Secrets in the sources that are marked with the annotation AnnotationInjectData.
	// The data of a marked Secret is replaced.
	Injection *render.Injection
}

// Find resolves all sources of a Manifest. If a source is pinned by a digest, or is cached, Find sends no request for
// it.
//
// An error is terminal if only a change of the Manifest can fix it. If a source has not answered yet, Find returns
// loop.Later.
func (f *Finder) Find(ctx context.Context, m *v1beta2.Manifest) (Found, error) {
	var found Found
	var configs []render.Config
	var err error
	of := origin{namespace: m.Namespace, version: m.Spec.Version}
	if found.Injection, err = f.secretDataToInject(ctx, m); err != nil {
		return Found{}, err
	}
	if spec := m.Spec.Config; spec != nil && spec.Type != "" {
		if configs, found.Config, err = f.config(ctx, of, spec); err != nil {
			return Found{}, fmt.Errorf("reading spec.config: %w", err)
		}
	}
	if spec := m.Spec.CRDs; spec != nil && spec.Type != "" {
		artefact, err := f.resolveLayer(ctx, of, layerOf("crds", spec), spec.CredSecretSelector)
		if err != nil {
			return Found{}, fmt.Errorf("finding spec.crds: %w", err)
		}
		found.Sources = append(found.Sources, Source{Name: "crds", CRDsOnly: true, Artefact: artefact})
	}
	for _, install := range m.Sources() {
		spec, err := decodeSource(m, install)
		if err != nil {
			return Found{}, reconcile.TerminalError(
				fmt.Errorf("reading the source of %s in Manifest %s: %w", install.Name, m.Name, err))
		}
		config := render.FindConfig(configs, install.Name)
		artefact, err := f.find(ctx, of, install.Name, spec, config.Client)
		if err != nil {
			return Found{}, terminalIfPermanent(fmt.Errorf("finding the source of %s: %w", install.Name, err))
		}
		settings := config.ApplyTo(render.Settings{Release: install.Name})
		found.Sources = append(found.Sources, Source{Name: install.Name, Artefact: artefact, Settings: settings})
	}
	return found, nil
}

// decodeSource returns the source of one install in the spec. A source in spec.install is always an image in a
// registry, and its unknown fields are ignored. A source in spec.installs may have any type, and its unknown fields are
// refused.
func decodeSource(m *v1beta2.Manifest, install v1beta2.InstallInfo) (v1beta2.Source, error) {
	if len(m.Spec.Install.Source.Raw) == 0 && m.Spec.Install.Name == "" {
		return install.Decode()
	}
	image, err := v1beta2.DecodeImageSpecLeniently(install.Source)
	return v1beta2.Source{Image: &image}, err
}

// terminalIfPermanent marks an error as terminal if only a change of the Manifest can fix it.
func terminalIfPermanent(err error) error {
	switch loop.Reason(err) {
	case v1beta2.ReasonInvalidReference, v1beta2.ReasonRefusedFeature:
		return reconcile.TerminalError(err)
	}
	return err
}

// origin has the fields of a Manifest that the requests for its sources need.
type origin struct {
	namespace string // namespace of the Secrets with the credentials
	version   string // version of the module; a layer by digest is trusted if this version of its component is trusted
}

// find resolves one source.
func (f *Finder) find(
	ctx context.Context, of origin, name string, spec v1beta2.Source, config render.ClientConfig,
) (Artefact, error) {
	switch {
	case spec.Image != nil:
		layer := registry.Layer{
			Name: name, Repo: spec.Image.Repo, Component: spec.Image.Name, Ref: spec.Image.Ref,
			Type: string(spec.Image.Type),
		}
		return f.resolveLayer(ctx, of, layer, spec.Image.CredSecretSelector)
	case spec.HelmChart != nil:
		return f.findChart(ctx, of, spec.HelmChart, config)
	default:
		return f.findKustomization(ctx, of, name, spec.Kustomize)
	}
}

// config returns the settings in a config layer, and the config layer as an Artefact.
func (f *Finder) config(ctx context.Context, of origin, spec *v1beta2.ManifestConfig) (
	[]render.Config, Artefact, error) {
	layer := layerOf("config", spec)
	artefact, err := f.resolveLayer(ctx, of, layer, spec.CredSecretSelector)
	if err != nil {
		return nil, Artefact{}, err
	}
	f.mu.Lock()
	configs, known := f.configs[artefact.Digest]
	f.mu.Unlock()
	if known {
		return configs, artefact, nil
	}
	data, _, err := f.fetchLayer(ctx, of, layer, spec.CredSecretSelector)
	if err != nil {
		return nil, Artefact{}, err
	}
	if configs, err = render.ParseInstallConfigs(data); err != nil {
		return nil, Artefact{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	putBounded(&f.configs, artefact.Digest, configs)
	return configs, artefact, nil
}

// layerOf returns the OCI layer that spec.config or spec.crds refers to.
func layerOf(name string, spec *v1beta2.ManifestConfig) registry.Layer {
	return registry.Layer{Name: name, Repo: spec.Repo, Component: spec.Name, Ref: spec.Ref, Type: registry.OCIRef}
}

// refusal is the error that a source is not supported or not allowed.
type refusal struct{ problem string }

func (e refusal) Error() string { return "finding the source: " + e.problem }

// Reason returns the reason code of the error, ReasonRefusedFeature.
func (refusal) Reason() string { return v1beta2.ReasonRefusedFeature }

// digestOf returns the SHA-256 digest of a text.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// putBounded adds an entry to a cache. A full cache is emptied first.
func putBounded[V any](m *map[string]V, key string, value V) {
	if *m == nil || len(*m) >= cacheLimit {
		*m = map[string]V{}
	}
	(*m)[key] = value
}
