package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// ClusterOptions are options for the requests to one cluster. The zero value is ready to use.
type ClusterOptions struct {
	// MaxConcurrentRequests is the maximum number of concurrent requests over all callers. 0 means 8.
	MaxConcurrentRequests int
	// RequestTimeout is the timeout of one request in the API server. 0 means 10 s. At the end of RequestTimeout, a
	// working API server responds that the request could not be completed. If an API server has not responded 2 s after
	// the end of RequestTimeout, the API server is considered unreachable.
	RequestTimeout time.Duration
	// KeepNamespaces are namespaces that are never deleted. If KeepNamespaces is nil, its value is kyma-system. The
	// namespaces that Kubernetes itself needs, such as kube-system, are never deleted, whatever the value of
	// KeepNamespaces.
	KeepNamespaces []string
	// Observe, if set, is called for every request with its method, HTTP status and duration. The status is 0 if there
	// was no response.
	Observe func(method string, code int, took time.Duration)
	// ForbiddenAdvice, if set, is a text in errors with reason RuntimeForbidden. ForbiddenAdvice should state where a
	// user can grant the right that the credential lacks.
	ForbiddenAdvice string
	// Kinds, if set, stores the kinds that CustomResourceDefinitions in bundles define. Several Clusters can share one
	// Kinds, so that kinds that bundles define are in memory only once. A Cluster needs no discovery request for a kind
	// in Kinds.
	Kinds *Kinds
	// IsTooLarge, if set, reports whether an error of the HTTP client means that a response is larger than the client
	// accepts. If a list is too large, it is requested again in smaller pages.
	IsTooLarge func(error) bool
}

// serverTimeoutGracePeriod is added to ClusterOptions.RequestTimeout for the timeout of the client.
// serverTimeoutGracePeriod leaves enough time for the timeout error of the API server to arrive.
const serverTimeoutGracePeriod = 2 * time.Second

// unservedKindPeriod is how long Cluster remembers that a kind is not served before it sends a discovery request again.
const unservedKindPeriod = 5 * time.Second

// Cluster sends requests to one cluster. Cluster is safe for concurrent use. Apart from a cache of the kinds that the
// cluster serves, Cluster stores no state.
type Cluster struct {
	http      *http.Client
	base      *url.URL
	timeout   time.Duration
	forbidden string // ClusterOptions.ForbiddenAdvice
	query     string // "timeout=10s"
	slots     chan struct{}
	protected []string
	observe   func(string, int, time.Duration)
	now       func() time.Time
	shared    *Kinds // nil if no kinds are shared

	isTooLarge func(error) bool // ClusterOptions.IsTooLarge

	mu        sync.Mutex
	kinds     map[schema.GroupVersionKind]resource // kinds that are missing or different in shared; guarded by mu
	differing map[schema.GroupVersionKind]bool     // kinds that are not served as stored in shared; guarded by mu
	// unserved has the kinds that the cluster does not serve, with the time of the discovery request; guarded by mu
	unserved map[schema.GroupVersionKind]time.Time
	cached   cachedCapabilities // guarded by mu
}

// New returns a Cluster for cfg. hc is the HTTP client; if hc is nil, New creates an HTTP client from cfg. The limits
// of cfg for queries per second are ignored. New sends no request.
func New(cfg *rest.Config, hc *http.Client, opts ClusterOptions) (*Cluster, error) {
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("reading address of API server %q: %w", cfg.Host, err)
	}
	if hc == nil {
		if hc, err = rest.HTTPClientFor(cfg); err != nil {
			return nil, fmt.Errorf("preparing connection to API server %q: %w", cfg.Host, err)
		}
	}
	client := *hc
	// The transport adds the credential to every request. A redirect that is followed would send the credential to
	// another host.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

	if opts.MaxConcurrentRequests <= 0 {
		opts.MaxConcurrentRequests = 8
	}
	if opts.RequestTimeout <= 0 {
		opts.RequestTimeout = 10 * time.Second
	}
	if opts.KeepNamespaces == nil {
		opts.KeepNamespaces = defaultKept
	}
	return &Cluster{
		http:      &client,
		base:      &url.URL{Scheme: base.Scheme, Host: base.Host, Path: strings.TrimSuffix(base.Path, "/")},
		timeout:   opts.RequestTimeout,
		query:     "timeout=" + url.QueryEscape(opts.RequestTimeout.String()),
		slots:     make(chan struct{}, opts.MaxConcurrentRequests),
		protected: slices.Concat(systemNamespaces, opts.KeepNamespaces),
		observe:   opts.Observe,
		forbidden: opts.ForbiddenAdvice,
		now:       time.Now,
		shared:    opts.Kinds,

		isTooLarge: opts.IsTooLarge,
	}, nil
}

// systemNamespaces are the namespaces that Kubernetes itself needs, and defaultKept is the default of
// ClusterOptions.KeepNamespaces.
var (
	systemNamespaces = []string{"default", "kube-node-lease", "kube-public", "kube-system"}
	defaultKept      = []string{"kyma-system"}
)

// IsProtectedNamespace reports whether r is a namespace that a Cluster with the default options never deletes.
func IsProtectedNamespace(r Ref) bool {
	return r.groupKind() == namespaceKind && (slices.Contains(systemNamespaces, r.Name) ||
		slices.Contains(defaultKept, r.Name))
}

// isProtectedNamespace reports whether r is a namespace that is never deleted.
func (c *Cluster) isProtectedNamespace(r Ref) bool {
	return r.groupKind() == namespaceKind && slices.Contains(c.protected, r.Name)
}

// resourceOf returns how the cluster serves a kind. resourceOf uses the built-in table, the cache, or one discovery
// request. An Error with reason KindUnknown means that the kind is not served.
func (c *Cluster) resourceOf(ctx context.Context, gvk schema.GroupVersionKind) (resource, error) {
	if b, ok := builtins[gvk.GroupKind()]; ok {
		return b.resource, nil
	}
	c.mu.Lock()
	known, ok := c.kinds[gvk]
	if !ok && !c.differing[gvk] {
		known, ok = c.shared.resourceFromBundleCRD(gvk)
	}
	c.mu.Unlock()
	if ok {
		return known, nil
	}
	if c.isKnownUnserved(gvk) {
		return resource{}, kindUnknownError(gvk)
	}
	return c.discover(ctx, gvk)
}

// discover finds a kind by a discovery request and caches the response. discover ignores the cache: it sends a request
// even if the kind is cached.
func (c *Cluster) discover(ctx context.Context, gvk schema.GroupVersionKind) (resource, error) {
	served, err := c.servedKinds(ctx, gvk.GroupVersion())
	if err != nil {
		return resource{}, err
	}
	found, ok := served[gvk.Kind]
	if !ok {
		c.rememberUnserved(gvk)
		return resource{}, kindUnknownError(gvk)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rememberLocked(gvk, found)
	return found, nil
}

// servedKinds returns the kinds that the cluster serves in one group and version. servedKinds sends a discovery
// request. If the cluster does not serve the version, servedKinds returns no kinds.
func (c *Cluster) servedKinds(ctx context.Context, version schema.GroupVersion) (map[string]resource, error) {
	r := request{method: http.MethodGet, path: resource{}.urlPath(version, "", ""),
		operation: "reading which kinds are served in " + version.String()}
	r.path = strings.TrimSuffix(r.path, "/")
	var list metav1.APIResourceList
	err := c.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error { return json.Unmarshal(body, &list) })
	if reasonIs(err, KindUnknown) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	kinds := make(map[string]resource, len(list.APIResources))
	for _, one := range list.APIResources {
		if content.IsPathSegmentName(one.Name) == nil { // a name with a slash is a subresource
			kinds[one.Kind] = resource{plural: strings.Clone(one.Name), namespaced: one.Namespaced}
		}
	}
	return kinds, nil
}

// discoverServed finds by discovery a version in which the cluster serves the kind of ref. The version of ref itself
// counts only if the parameter includesOwn is true. discoverServed returns false if there is no such version, or if the
// kind has another scope in the version of ref; then no object with the identity of ref can exist.
func (c *Cluster) discoverServed(ctx context.Context, ref Ref, includesOwn bool) (Ref, resource, bool, error) {
	if ref.Group == "" {
		return ref, resource{}, false, nil // the core group has only one version
	}
	anyVersion := schema.GroupVersionKind{Group: ref.Group, Kind: ref.Kind}
	if c.isKnownUnserved(anyVersion) {
		return ref, resource{}, false, nil
	}
	versions, err := c.servedVersions(ctx, ref.Group)
	if err != nil {
		return ref, resource{}, false, err
	}
	for n, v := range versions {
		if n == maxVersions {
			return ref, resource{}, false, tooManyVersions(ref.Group, len(versions))
		}
		if v == ref.Version && !includesOwn {
			continue
		}
		kinds, err := c.servedKinds(ctx, schema.GroupVersion{Group: ref.Group, Version: v})
		if err != nil {
			return ref, resource{}, false, err
		}
		found, ok := kinds[ref.Kind]
		if !ok {
			continue
		}
		if v == ref.Version {
			c.mu.Lock()
			c.rememberLocked(ref.GVK(), found)
			c.mu.Unlock()
			return ref, found, found.namespaced == (ref.Namespace != ""), nil
		}
		ref.Version = v
		return ref, found, true, nil
	}
	c.rememberUnserved(anyVersion)
	return ref, resource{}, false, nil
}

// rememberUnserved caches for unservedKindPeriod that a kind is not served. If gvk has no version, rememberUnserved
// caches that the kind is not served in any version.
func (c *Cluster) rememberUnserved(gvk schema.GroupVersionKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unserved == nil {
		c.unserved = map[schema.GroupVersionKind]time.Time{}
	}
	maps.DeleteFunc(c.unserved, func(_ schema.GroupVersionKind, at time.Time) bool {
		return c.now().Sub(
			at) >= unservedKindPeriod
	})
	c.unserved[gvk] = c.now()
}

// isKnownUnserved reports whether a discovery within the last unservedKindPeriod found that a kind is not served.
func (c *Cluster) isKnownUnserved(gvk schema.GroupVersionKind) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.unserved[gvk]
	return ok && c.now().Sub(at) < unservedKindPeriod
}

// Serves reports whether the cluster serves a kind. Serves always sends a discovery request: what is cached may be out
// of date, or come from a CRD in a bundle of another cluster.
func (c *Cluster) Serves(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	_, err := c.discover(ctx, gvk)
	if reasonIs(err, KindUnknown) {
		return false, nil
	}
	return err == nil, err
}

// WasLastSeenUnserved reports whether the last response about a kind has shown that the cluster does not serve the
// kind. WasLastSeenUnserved sends no request.
func (c *Cluster) WasLastSeenUnserved(gvk schema.GroupVersionKind) bool {
	if c.isKnownUnserved(gvk) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, isKnown := c.kinds[gvk]
	return c.differing[gvk] && !isKnown
}

// rememberCRD caches the kinds that a CustomResourceDefinition of a bundle defines, so that these kinds need no
// discovery request.
func (c *Cluster) rememberCRD(crd render.CRD) {
	if c.shared != nil {
		c.shared.addCRD(crd)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, version := range crd.Versions {
		gvk := schema.GroupVersionKind{Group: crd.Group, Version: version, Kind: crd.Kind}
		delete(c.differing, gvk) // the bundle is about to be applied
		c.rememberLocked(gvk, resource{crd.Plural, crd.Namespaced})
	}
}

func (c *Cluster) rememberLocked(gvk schema.GroupVersionKind, r resource) {
	if known, ok := c.shared.resourceFromBundleCRD(gvk); ok && known == r && !c.differing[gvk] {
		delete(c.kinds, gvk)
	} else {
		if c.kinds == nil {
			c.kinds = map[schema.GroupVersionKind]resource{}
		}
		c.kinds[gvk] = r
	}
	delete(c.unserved, gvk)
	delete(c.unserved, schema.GroupVersionKind{Group: gvk.Group, Kind: gvk.Kind})
}

// forgetKind removes a kind from the cache after a response has shown that the cluster does not serve the kind.
func (c *Cluster) forgetKind(gvk schema.GroupVersionKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kinds, gvk)
	if _, ok := c.shared.resourceFromBundleCRD(gvk); ok {
		if c.differing == nil {
			c.differing = map[schema.GroupVersionKind]bool{}
		}
		c.differing[gvk] = true
	}
}

func kindUnknownError(gvk schema.GroupVersionKind) *Error {
	return &Error{Operation: "looking for kind " + gvk.Kind, Message: "the cluster does not serve " + gvk.Kind +
		" in " + gvk.GroupVersion().String(), reason: KindUnknown}
}

// validatePathSegments rejects identities that cannot be part of a URL path. For this reason, an object in a bundle
// cannot have a name, such as "../x", that leads a request to the URL path of another object.
func validatePathSegments(r Ref) *Error {
	for _, segment := range []string{r.Group, r.Version, r.Namespace, r.Name} {
		if problems := content.IsPathSegmentName(segment); problems != nil {
			return &Error{Operation: "addressing", Ref: r,
				Message: fmt.Sprintf("%q cannot be a part of group, version, namespace or name: %s", segment,
					strings.Join(problems, "; ")), reason: ObjectRefused}
		}
	}
	if r.Version == "" || r.Name == "" {
		return &Error{Operation: "addressing", Ref: r, Message: "it has no version or no name", reason: ObjectRefused}
	}
	return nil
}

// forEachConcurrently calls the function work with each number from 0 to n-1. The calls run concurrently, but not more
// at the same time than the limit of the cluster allows. forEachConcurrently returns when all calls have returned or
// when one call returns an error that concerns the whole cluster. forEachConcurrently returns the first such error.
func (c *Cluster) forEachConcurrently(n int, work func(i int) error) (clusterError error) {
	var (
		mu    sync.Mutex
		next  int
		first error
		group sync.WaitGroup
	)
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == n || first != nil {
			return 0, false
		}
		next++
		return next - 1, true
	}
	run := func() {
		for {
			i, ok := take()
			if !ok {
				return
			}
			if err := work(i); err != nil && concernsCluster(err) {
				mu.Lock()
				first = preferErrorOverContextEnd(first, err)
				mu.Unlock()
			}
		}
	}
	for range min(n, cap(c.slots)) - 1 {
		group.Go(run)
	}
	if n > 0 {
		run() // the goroutine of the caller works too
	}
	group.Wait()
	return first
}

// preferErrorOverContextEnd returns the more informative of two errors. preferErrorOverContextEnd prefers an error of
// the cluster to an error that only states that a context has ended. If both errors are of the same sort,
// preferErrorOverContextEnd returns the first error.
func preferErrorOverContextEnd(first, second error) error {
	if first == nil {
		return second
	}
	if _, ok := errors.AsType[*Error](first); !ok {
		if _, ok := errors.AsType[*Error](second); ok {
			return second
		}
	}
	return first
}
