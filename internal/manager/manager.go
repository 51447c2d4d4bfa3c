// Package manager builds the lifecycle manager out of its parts.
//
// Use: fill in a [config.Manager], validate it, and start what New returns:
//
//	mgr, err := manager.New(ctx, cfg, rest)
//	err = mgr.Start(ctx) // until ctx ends
//
// How it works: one controller-runtime manager with a slim cache of one namespace (no managedFields, of Secrets only metadata), one pool
// of runtimes, one registry, and the controllers on top. Everything that depends on configuration is decided here; the parts get values.
//
// It does nothing itself, and it reads no flag or environment.
package manager

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/crds"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/orphan"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/purge"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/watcher"
	"github.com/kyma-fleet/lifecycle-manager/internal/conversion"
	"github.com/kyma-fleet/lifecycle-manager/internal/dedup"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// leaderElectionID is the Lease that replicas agree on; it is that of the reference, so that both never work at once.
const leaderElectionID = "893110f7.kyma-project.io"

// New builds a manager for the cluster behind cfg. It makes requests only to read the registry's credentials, and tells the garbage collector of the
// whole process what memory there is. The end of ctx ends connections to runtimes.
func New(ctx context.Context, c *config.Manager, cfg *rest.Config) (ctrl.Manager, error) {
	useMemory(ctx, c.MemoryTarget)
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS, cfg.Burst = "lifecycle-manager", c.K8sClientQPS, int(2*c.K8sClientQPS)
	// What the API server warns of is worth one line, not one for each Manifest.
	cfg.WarningHandlerWithContext = log.NewKubeAPIWarningLogger(log.KubeAPIWarningLoggerOptions{Deduplicate: true})
	if c.K8sClientQPS == 0 {
		cfg.QPS = -1
	}
	urgent := queueing.NewUrgent()
	cfg.Wrap(queueing.NewWriteLimiter(c.MaxControlPlaneWrites, c.MaxControlPlaneWritesWhileUrgent, urgent).Wrap)
	cfg.Wrap((&outage{log: log.Log.WithName("control-plane")}).wrap)
	options, err := managerOptions(c)
	if err != nil {
		return nil, err
	}
	split, err := newShards(c, cfg, &options)
	if err != nil {
		return nil, err
	}
	// Passes find the tracer there; when they end is the manager's business.
	options.BaseContext = func() context.Context { return context.WithoutCancel(ctx) }
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding the readiness check: %w", err)
	}
	artefacts, err := newRegistry(ctx, c, mgr.GetAPIReader())
	if err != nil {
		return nil, err
	}
	back, err := newBackChannel(ctx, c, mgr, cfg, split)
	if err != nil {
		return nil, err
	}
	pool, err := newPool(ctx, c, mgr, cfg, back, split, urgent)
	if err != nil {
		return nil, err
	}
	if c.EnableWebhooks {
		if err := addConversion(c, mgr, cfg); err != nil {
			return nil, err
		}
	}
	live, err := client.New(cfg, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("building a client without cache: %w", err)
	}
	if err := split.add(ctx, c, mgr, live); err != nil {
		return nil, err
	}
	return mgr, addControllers(ctx, c, mgr, pool, artefacts, back, split.keeper, live, urgent)
}

// addConversion adds the webhook that converts v1alpha1.
func addConversion(c *config.Manager, mgr ctrl.Manager, cfg *rest.Config) error {
	live, err := client.New(cfg, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("building a client for the conversion webhook: %w", err)
	}
	o := conversion.Options{
		Client: live, Namespace: c.Namespace,
		BindAddress: c.WebhookBindAddress, URL: c.WebhookURL, Log: mgr.GetLogger().WithName("conversion"),
	}
	if o.URL == "" {
		o.Service = c.WebhookService
	}
	w, err := conversion.New(o)
	if err != nil {
		return err
	}
	if err := mgr.Add(w); err != nil {
		return fmt.Errorf("adding the conversion webhook: %w", err)
	}
	if err := mgr.AddReadyzCheck("conversion", w.Ready); err != nil {
		return fmt.Errorf("adding the readiness check of the conversion webhook: %w", err)
	}
	return nil
}

// managerOptions turns configuration into what controller-runtime wants.
func managerOptions(c *config.Manager) (ctrl.Options, error) {
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		return ctrl.Options{}, fmt.Errorf("registering the kinds of Kubernetes: %w", err)
	}
	if err := v1beta2.AddToScheme(s); err != nil {
		return ctrl.Options{}, fmt.Errorf("registering our kinds: %w", err)
	}
	if err := apiextensionsv1.AddToScheme(s); err != nil {
		return ctrl.Options{}, fmt.Errorf("registering CRDs: %w", err)
	}
	labelled, err := labels.NewRequirement(v1beta2.LabelKymaName, selection.Exists, nil)
	if err != nil {
		return ctrl.Options{}, fmt.Errorf("selecting access Secrets: %w", err)
	}
	secrets := &metav1.PartialObjectMetadata{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	consistent, release := true, true
	stop := 10 * time.Second
	options := ctrl.Options{
		Scheme: s, MapperProvider: newMapper,
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{c.Namespace: {}},
			DefaultTransform:  dedup.Transform(),
			ByObject:          map[client.Object]cache.ByObject{secrets: {Label: labels.NewSelector().Add(*labelled)}},
		},
		NewCache:  newCache,
		Client:    client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: &consistent}},
		NewClient: newClient,
		Metrics: server.Options{
			BindAddress: c.MetricsBindAddress, SecureServing: c.MetricsSecure,
			TLSOpts: []func(*tls.Config){func(t *tls.Config) { t.MinVersion = tls.VersionTLS12 }},
			// Exemplars are only in this format; who does not ask for it gets the other.
			HandlerOpts: []func(*promhttp.HandlerOpts){func(o *promhttp.HandlerOpts) { o.EnableOpenMetrics = true }},
		},
		HealthProbeBindAddress:        c.HealthProbeBindAddress,
		PprofBindAddress:              c.PprofBindAddress,
		LeaderElection:                c.LeaderElect,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       c.Namespace,
		LeaderElectionReleaseOnCancel: release,
		LeaseDuration:                 &c.LeaderElectionLeaseDuration,
		RenewDeadline:                 &c.LeaderElectionRenewDeadline,
		RetryPeriod:                   &c.LeaderElectionRetryPeriod,
		GracefulShutdownTimeout:       &stop,
	}
	if c.MaintenancePolicyConfigmap != "" {
		options.Cache.ByObject[&corev1.ConfigMap{}] = cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", c.MaintenancePolicyConfigmap)}
	}
	if c.MetricsSecure {
		options.Metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return options, nil
}

// newPool connects to runtimes by access Secrets, or to the manager's own cluster.
func newPool(ctx context.Context, c *config.Manager, mgr ctrl.Manager, cfg *rest.Config, back *backChannel, split *shards, urgent *queueing.Urgent) (*runtimes.Pool, error) {
	o := runtimes.Options{
		Wrap: split.wrap, UserAgent: cfg.UserAgent, Urgent: urgent,
		Namespace: c.Namespace, Watch: c.WatchMode == config.WatchHub,
		Timeout: c.RuntimeTimeout, Concurrency: c.RuntimeConcurrency,
		PollIntervals: runtimes.PollIntervals{Watched: c.WatchedPollInterval, Unwatched: c.PollInterval, Budget: c.PollBudget},
	}
	if back != nil {
		o.Agents, o.InterestsChanged = true, back.interestsChanged
	}
	indexed := []client.Object{&v1beta2.Manifest{}}
	if c.Mode == config.ModeInCluster {
		o.Self = cfg
	} else {
		indexed = append(indexed, runtimes.NewSecretMetadata())
		o.Cache, o.Live = mgr.GetClient(), mgr.GetAPIReader()
	}
	for _, kind := range indexed {
		if err := runtimes.IndexByKyma(ctx, mgr.GetFieldIndexer(), kind); err != nil {
			return nil, fmt.Errorf("indexing %T by Kyma: %w", kind, err)
		}
	}
	pool, err := runtimes.New(ctx, o)
	if back != nil {
		back.pool = pool
	}
	return pool, err
}

// early is a cache that starts before the controllers.
type early struct{ cache.Cache }

// GetCache is what the manager knows caches by.
func (e early) GetCache() cache.Cache { return e.Cache }

// newPullSecrets returns a cache of the one Secret that every runtime gets, with its data, nil if there is none. The manager's own cache
// cannot have it: there is one filter for a kind, and of Secrets it lets those pass that give access, and their metadata.
func newPullSecrets(c *config.Manager, mgr ctrl.Manager) (cache.Cache, error) {
	if c.SKRImagePullSecret == "" || c.Mode == config.ModeInCluster {
		return nil, nil
	}
	held, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces:    map[string]cache.Config{c.Namespace: {}},
		DefaultFieldSelector: fields.OneTermEqualSelector("metadata.name", c.SKRImagePullSecret),
		DefaultTransform:     cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("building the cache of the pull Secret: %w", err)
	}
	if err := mgr.Add(early{held}); err != nil {
		return nil, fmt.Errorf("adding the cache of the pull Secret: %w", err)
	}
	return held, nil
}

// addControllers registers the controllers and their metrics.
func addControllers(ctx context.Context, c *config.Manager, mgr ctrl.Manager, pool *runtimes.Pool, artefacts *registry.Registry, back *backChannel, keeper *shard.Keeper, live client.Client, urgent *queueing.Urgent) error {
	base, err := Base()
	if err != nil {
		return err
	}
	backoff := func() workqueue.TypedRateLimiter[reconcile.Request] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](c.FailureBaseDelay, c.FailureMaxDelay)
	}
	pullSecrets, err := newPullSecrets(c, mgr)
	if err != nil {
		return err
	}
	k, err := kyma.New(kyma.Options{
		Client: mgr.GetClient(), Runtimes: pool, Registry: artefacts, Namespace: c.Namespace, Urgent: urgent,
		InCluster: c.Mode == config.ModeInCluster, Base: base, PullSecret: c.SKRImagePullSecret, PullSecrets: pullSecrets,
		Agents: back.agents(), AuditInterval: c.AuditInterval,
		Events: newTeller(mgr), Restricted: c.RestrictedDefaultModules, CatalogSpread: c.CatalogSpread,
		PolicyConfigMap: c.MaintenancePolicyConfigmap, PolicyFile: c.MaintenancePolicyFile, LeastWindow: c.MinMaintenanceWindowSize,
		DeletionDeadline: c.DeletionDeadline, Live: live, Concurrency: c.MaxConcurrentKymaReconciles, MaxNewRuntimes: c.MaxNewRuntimes, RateLimiter: backoff(), RuntimeMetrics: c.RuntimeMetrics,
		Shards: keeper, Certain: mgr.GetAPIReader(), After: exitAfter(c.ExitAfterStep, "kyma"),
	})
	if err != nil {
		return err
	}
	if back != nil {
		back.lives = k
	}
	m, err := manifest.New(manifest.Options{
		Client: mgr.GetClient(), Runtimes: pool, Registry: artefacts, Urgent: urgent, AuditInterval: c.AuditInterval, WatchedAuditInterval: c.WatchedAuditInterval,
		Secrets: mgr.GetAPIReader(), Events: newTeller(mgr),
		LocalSources: c.LocalSources, PullSecret: c.SKRImagePullSecret, CustomStateCheck: c.CustomStateCheck, BundleBytes: int(c.BundleCacheBytes),
		Concurrency: c.MaxConcurrentManifestReconciles, RateLimiter: backoff(),
		Shards: keeper, After: exitAfter(c.ExitAfterStep, "manifest"),
	})
	if err != nil {
		return err
	}
	if err := k.Register(ctx, mgr); err != nil {
		return fmt.Errorf("registering the Kyma controller: %w", err)
	}
	if err := m.Register(mgr); err != nil {
		return fmt.Errorf("registering the Manifest controller: %w", err)
	}
	if err := addPurge(ctx, c, mgr, pool, backoff, keeper, live); err != nil {
		return err
	}
	w, err := watcher.New(watcher.Options{
		Client: mgr.GetClient(), Events: newTeller(mgr), Namespace: c.Namespace, RateLimiter: backoff(),
		GatewayNamespace: c.IstioGatewayNamespace, Concurrency: c.MaxConcurrentWatcherReconciles,
	})
	if err != nil {
		return err
	}
	if err := w.Register(ctx, mgr); err != nil {
		return fmt.Errorf("registering the watcher controller: %w", err)
	}
	if err := addOrphans(c, mgr, pool, keeper, backoff()); err != nil {
		return err
	}
	metrics.Register(ctrlmetrics.Registry)
	return nil
}

// addPurge registers the controllers that end what a deletion cannot: while its Kyma is there, and when it was given up.
func addPurge(ctx context.Context, c *config.Manager, mgr ctrl.Manager, pool *runtimes.Pool, backoff func() workqueue.TypedRateLimiter[reconcile.Request], keeper *shard.Keeper, live client.Client) error {
	o := purge.Options{
		Client: mgr.GetClient(), Runtimes: pool, Events: newTeller(mgr),
		Grace: c.PurgeGracePeriod, Skip: c.SkipFinalizerPurgingFor, Shards: keeper, RateLimiter: backoff(),
	}
	p, err := purge.New(o)
	if err != nil {
		return err
	}
	if err := p.Register(ctx, mgr); err != nil {
		return fmt.Errorf("registering the purge controller: %w", err)
	}
	if c.Mode == config.ModeInCluster {
		return nil
	}
	held, err := newTombstones(c, mgr)
	if err != nil {
		return err
	}
	o.RateLimiter = backoff()
	t, err := purge.NewTombstones(purge.TombstoneOptions{Options: o, Held: held, Live: live, Namespace: c.Namespace})
	if err != nil {
		return err
	}
	if err := t.Register(mgr); err != nil {
		return fmt.Errorf("registering the tombstone controller: %w", err)
	}
	return nil
}

// newTombstones returns a cache of the tombstones. There may be some also without --deletion-deadline: of a time with it.
func newTombstones(c *config.Manager, mgr ctrl.Manager) (cache.Cache, error) {
	held, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces:    map[string]cache.Config{c.Namespace: {}},
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{v1beta2.LabelTombstone: v1beta2.ValueTrue}),
		DefaultTransform:     cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("building the cache of tombstones: %w", err)
	}
	if err := mgr.Add(early{held}); err != nil {
		return nil, fmt.Errorf("adding the cache of tombstones: %w", err)
	}
	return held, nil
}

// addOrphans registers the controller that looks for what belongs to nobody, if there is to be one.
func addOrphans(c *config.Manager, mgr ctrl.Manager, pool *runtimes.Pool, keeper *shard.Keeper, backoff workqueue.TypedRateLimiter[reconcile.Request]) error {
	if c.OrphanSweepInterval == 0 {
		return nil
	}
	o, err := orphan.New(orphan.Options{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Runtimes: pool, Events: newTeller(mgr),
		Namespace: c.Namespace, InCluster: c.Mode == config.ModeInCluster,
		Interval: c.OrphanSweepInterval, Cleanup: c.OrphanCleanup, Shards: keeper, RateLimiter: backoff,
	})
	if err != nil {
		return err
	}
	if err := o.Register(mgr); err != nil {
		return fmt.Errorf("registering the orphan controller: %w", err)
	}
	return nil
}

// Base returns what every runtime gets before its first module: its namespace, and the CRDs of what its admin sees, in the version
// that is stored: nobody converts there.
func Base() (*render.Bundle, error) {
	objects := []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": v1beta2.RuntimeNamespace, "labels": map[string]any{
			v1beta2.LabelIstioInjection: v1beta2.IstioInjectionEnabled, v1beta2.LabelWardenValidate: v1beta2.WardenValidateEnabled,
		}},
	}}}
	for _, crd := range crds.All() {
		switch crd.Spec.Names.Kind {
		case v1beta2.KindKyma, v1beta2.KindModuleTemplate, v1beta2.KindModuleReleaseMeta:
			crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return !v.Served })
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
			if err != nil {
				return nil, fmt.Errorf("encoding CRD %s: %w", crd.Name, err)
			}
			objects = append(objects, &unstructured.Unstructured{Object: fields})
		}
	}
	return render.Build(objects, render.Options{Labels: map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByKyma}})
}
