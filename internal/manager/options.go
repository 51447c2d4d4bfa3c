package manager

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/dedup"
	"github.com/kyma-fleet/lifecycle-manager/internal/manager/watchdecode"
)

// shutdownTimeout is the maximum time that the process waits for running reconciles when it ends.
const shutdownTimeout = 10 * time.Second

// managerOptions returns those options of the controller-runtime manager that do not depend on the replica.
func managerOptions(ctx context.Context, c *config.Manager, skipNameValidation bool) (ctrl.Options, error) {
	kinds, err := newScheme()
	if err != nil {
		return ctrl.Options{}, err
	}
	cached, err := cacheOptions(c)
	if err != nil {
		return ctrl.Options{}, err
	}
	stop := shutdownTimeout
	options := ctrl.Options{
		Scheme: kinds, MapperProvider: newCachingMapper,
		Cache:     cached,
		NewCache:  watchdecode.NewDecodeOnceCache,
		Client:    client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: new(true)}},
		NewClient: newBoundedReadYourWritesClient,
		Metrics: server.Options{
			BindAddress: c.MetricsBindAddress, SecureServing: c.MetricsSecure,
			TLSOpts: []func(*tls.Config){func(t *tls.Config) { t.MinVersion = tls.VersionTLS12 }},
			// Only OpenMetrics supports exemplars. Clients that do not request OpenMetrics get the text format.
			HandlerOpts: []func(*promhttp.HandlerOpts){func(o *promhttp.HandlerOpts) { o.EnableOpenMetrics = true }},
		},
		HealthProbeBindAddress:        c.HealthProbeBindAddress,
		PprofBindAddress:              c.PprofBindAddress,
		LeaderElection:                c.LeaderElect,
		LeaderElectionID:              v1beta2.LeaderLease,
		LeaderElectionLabels:          leaseLabels(),
		LeaderElectionNamespace:       c.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &c.LeaderElectionLeaseDuration,
		RenewDeadline:                 &c.LeaderElectionRenewDeadline,
		RetryPeriod:                   &c.LeaderElectionRetryPeriod,
		GracefulShutdownTimeout:       &stop,
		// Reconciles get the tracer from their context. The end of ctx must not cancel them: the manager ends them.
		BaseContext: func() context.Context { return context.WithoutCancel(ctx) },
	}
	options.Controller.SkipNameValidation = new(skipNameValidation)
	if c.MetricsSecure {
		options.Metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return options, nil
}

// newScheme returns a scheme with the kinds of Kubernetes, the kinds of this project, and CRDs.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		return nil, fmt.Errorf("registering the kinds of Kubernetes: %w", err)
	}
	if err := v1beta2.AddToScheme(s); err != nil {
		return nil, fmt.Errorf("registering our kinds: %w", err)
	}
	if err := apiextensionsv1.AddToScheme(s); err != nil {
		return nil, fmt.Errorf("registering CRDs: %w", err)
	}
	return s, nil
}

// cacheOptions returns the options for the content of the manager's cache. The cache contains the objects of one
// namespace. The only Secrets in the cache are access Secrets, and only with their metadata.
func cacheOptions(c *config.Manager) (cache.Options, error) {
	labelled, err := labels.NewRequirement(v1beta2.LabelKymaName, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, fmt.Errorf("selecting access Secrets: %w", err)
	}
	o := cache.Options{
		DefaultNamespaces: map[string]cache.Config{c.Namespace: {}},
		DefaultTransform:  dedup.Transform(),
		ByObject: map[client.Object]cache.ByObject{secretMetadata(): {Label: labels.NewSelector().Add(
			*labelled)}},
	}
	if c.MaintenancePolicyConfigmap != "" {
		o.ByObject[&corev1.ConfigMap{}] = cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name",
			c.MaintenancePolicyConfigmap)}
	}
	return o, nil
}

// secretMetadata returns an empty object with which only the metadata of Secrets is requested.
func secretMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return m
}

// kymaMetadata returns an empty object with which only the metadata of Kymas is requested.
func kymaMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(v1beta2.KindKyma))
	return m
}

// startedCache makes the manager start an additional cache. The manager starts this cache before the controllers.
type startedCache struct{ cache.Cache }

// GetCache returns the cache. By this method, controller-runtime recognises a cache among the runnables.
func (s startedCache) GetCache() cache.Cache { return s.Cache }

// addCache makes a cache of the manager's namespace with the options in o, and adds the cache to the manager.
func addCache(mgr ctrl.Manager, namespace, what string, o cache.Options) (cache.Cache, error) {
	own, err := newAdditionalCache(mgr, namespace, what, o)
	if err != nil {
		return nil, err
	}
	return own, addTasks(mgr, "the cache of "+what, startedCache{own})
}

// newAdditionalCache makes a cache of the manager's namespace with the options in o.
func newAdditionalCache(mgr ctrl.Manager, namespace, what string, o cache.Options) (cache.Cache, error) {
	o.HTTPClient, o.Scheme, o.Mapper = mgr.GetHTTPClient(), mgr.GetScheme(), mgr.GetRESTMapper()
	o.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	own, err := watchdecode.NewDecodeOnceCache(mgr.GetConfig(), o)
	if err != nil {
		return nil, fmt.Errorf("building the cache of %s: %w", what, err)
	}
	return own, nil
}
