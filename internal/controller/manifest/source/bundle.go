package source

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// loadTimeout is the default of Renderer.LoadTimeout.
const loadTimeout = 20 * time.Second

// renderTimeout is the deadline until the rendering of one artefact must end. If a separate process renders the
// artefact, the timeout of the process is shorter than renderTimeout, so that there is also time to wait until other
// renderings have ended.
const renderTimeout = time.Minute

// Renderer renders sources to bundles, and caches the bundles. Manifests with equal sources and settings share one
// bundle. The zero value has a cache of render.DefaultCacheBytes. A Renderer is safe for concurrent use.
type Renderer struct {
	// Bundles is the cache. The size of Bundles must be set before the first use.
	Bundles render.Cache
	// LoadTimeout is the deadline for loading one artefact and for reading the capabilities of a runtime. By default,
	// LoadTimeout is 20 s. LoadTimeout must be set before the first use.
	LoadTimeout time.Duration

	loads    singleflight.Group
	mu       sync.Mutex
	queries  map[string][]string          // guarded by mu; capability queries by digest of the source
	failures map[string]rememberedFailure // guarded by mu; by digest of the bundle
	rendered map[string]bool              // guarded by mu; the digests of bundles that were rendered
}

// Bundle renders a source with the given options, and sets options.Digest. A chart may depend on capabilities of the
// cluster, for example on its Kubernetes version. If a chart depends on capabilities, Bundle calls the function in the
// parameter capabilities with the capabilities that the chart queries. Runtimes with equal capabilities share one
// bundle. If a rendering crashes or has to be stopped, the error is a Failure, and the rendering is not repeated. The
// parameter stored is the Failure that the status of the Manifest has stored before a restart, or nil.
func (r *Renderer) Bundle(
	ctx context.Context, s Source, options render.Options, stored *Failure,
	capabilities func(ctx context.Context, queries []string) (render.Capabilities, error),
) (*render.Bundle, error) {
	timeout := cmp.Or(r.LoadTimeout, loadTimeout)
	rendering, stop := context.WithTimeout(ctx, timeout+renderTimeout)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	queries, err := r.capabilityQueriesOf(ctx, s)
	if err != nil {
		return nil, err
	}
	settings := s.Settings
	if settings.Capabilities, err = capabilities(ctx, queries); err != nil {
		return nil, err
	}
	options.Digest = s.Digest()
	if len(queries) > 0 {
		options.Digest = settings.Digest(options.Digest, queries)
	}
	digest := options.ResultingBundleDigest()
	if r.stillApplies(ctx, stored, digest) {
		return nil, *stored
	}
	return r.Bundles.Get(rendering, digest, func() (*render.Bundle, error) {
		return r.renderUnlessKnownToFail(ctx, digest, func() (*render.Bundle, error) {
			content, err := s.load(ctx)
			if err != nil {
				return nil, err
			}
			if s.CRDsOnly {
				return crdBundle(rendering, content, settings, options)
			}
			bundle, err := content.Render(rendering, settings, options)
			if err == nil && len(bundle.Objects) == 0 && content.Kind() != render.Chart {
				return nil, EmptyError{}
			}
			return bundle, err
		})
	})
}

// capabilityQueriesOf returns the queries for capabilities that a source contains. capabilityQueriesOf loads the
// artefact of the source once for all callers. The load continues if the caller that started it is cancelled, because
// other callers wait for the result.
func (r *Renderer) capabilityQueriesOf(ctx context.Context, s Source) ([]string, error) {
	key := s.Digest()
	r.mu.Lock()
	queries, known := r.queries[key]
	r.mu.Unlock()
	if known {
		return queries, nil
	}
	answers := r.loads.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(r.LoadTimeout, loadTimeout))
		defer cancel()
		content, err := s.load(ctx)
		if err != nil {
			return nil, err
		}
		queries := content.CapabilityQueries(s.Settings)
		r.mu.Lock()
		defer r.mu.Unlock()
		putBounded(&r.queries, key, queries)
		return queries, nil
	})
	select {
	case answer := <-answers:
		if answer.Err != nil {
			return nil, answer.Err
		}
		return answer.Val.([]string), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// load downloads and unpacks the artefact of a source.
func (s Source) load(ctx context.Context) (*render.Artefact, error) {
	content, err := s.Artefact.Load(ctx)
	if err != nil && s.Name == v1beta2.RawManifest {
		err = fmt.Errorf("%s: %w", v1beta2.OperationManifestLayerFailed, err)
	}
	return content, err
}

// crdBundle returns a bundle that has only the CRDs of an artefact.
func crdBundle(
	ctx context.Context, content *render.Artefact, settings render.Settings, options render.Options,
) (*render.Bundle, error) {
	objects, _, err := content.RenderObjects(ctx, settings)
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(
		objects, func(o *unstructured.Unstructured) bool { return o.GetKind() != "CustomResourceDefinition" })
	if len(objects) == 0 {
		return nil, EmptyError{}
	}
	return render.Build(objects, options)
}

// EmptyError is the error that an artefact has no objects. An artefact without objects is refused, because applying it
// would remove all objects of the former version. Manifests and Kustomize directories depend neither on values nor on
// the cluster, so an artefact of these kinds without objects was built by mistake, even if other sources of the
// Manifest have objects. A chart may render no object, for example because its values disable it, if another source has
// objects.
type EmptyError struct{}

func (EmptyError) Error() string { return "the artefact contains no object: build the module again" }

// Reason returns the reason code of the error, ReasonInvalidObject.
func (EmptyError) Reason() string { return v1beta2.ReasonInvalidObject }
