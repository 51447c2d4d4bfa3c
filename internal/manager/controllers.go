package manager

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/crds"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/agentdelivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/source"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/target"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/orphan"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/purge"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/unserved"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/watcher"
	"github.com/kyma-fleet/lifecycle-manager/internal/conversion"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard/shardcache"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// controllers contains the reconcilers of the manager. A reconciler that the configuration does not need is nil.
type controllers struct {
	kyma       *kyma.Reconciler
	rollout    *rollout.Reconciler
	manifest   *manifest.Reconciler
	purge      *purge.Reconciler
	tombstones *purge.Tombstones
	watcher    *watcher.Reconciler
	orphan     *orphan.Reconciler
	unserved   *unserved.Reporter
	conversion *conversion.Webhook
}

// setUpControllers makes all controllers and the conversion webhook, and adds them to the manager. Objects in other
// namespaces than those in served are reported as unserved, unless served is empty.
func setUpControllers(ctx context.Context, f foundation, pool, controlPlane *runtimes.Pool,
	artefacts *registry.Registry, agents agentdelivery.Options, served []string) (controllers, error) {
	c, mgr := f.config, f.manager
	var all controllers
	base, err := RuntimeBaseBundle()
	if err != nil {
		return all, err
	}
	var pullSecrets, tombstones cache.Cache
	if c.SKRImagePullSecret != "" && c.Mode != config.ModeInCluster {
		// The pull Secret needs a cache of its own. The cache of the manager can have only one filter for Secrets,
		// which selects access Secrets, and it contains only the metadata of Secrets.
		pullSecrets, err = addCache(mgr, c.Namespace, "the pull Secret", cache.Options{
			DefaultFieldSelector: fields.OneTermEqualSelector("metadata.name", c.SKRImagePullSecret),
			DefaultTransform:     cache.TransformStripManagedFields(),
		})
		if err != nil {
			return all, err
		}
	}
	if c.Mode != config.ModeInCluster {
		// The cache is needed even without --deletion-deadline, because there may be tombstones from a time with it.
		tombstones, err = addCache(mgr, c.Namespace, "tombstones", cache.Options{
			DefaultLabelSelector: labels.SelectorFromSet(labels.Set{v1beta2.LabelTombstone: v1beta2.ValueTrue}),
			DefaultTransform:     cache.TransformStripManagedFields(),
		})
		if err != nil {
			return all, err
		}
	}
	if all.kyma, err = kyma.New(kymaOptions(f, pool, artefacts, agents, base, pullSecrets)); err != nil {
		return all, err
	}
	fleet := mgr.GetCache()
	if f.keeper != nil { // the cache of a replica has only its own shards; the coordinator of rollouts needs all
		whole, err := newAdditionalCache(mgr, c.Namespace, "the fleet", cache.Options{DefaultTransform: rollout.Slim()})
		if err != nil {
			return all, err
		}
		of := shardcache.NewLeaderCache(whole)
		if err := addTasks(mgr, "the cache of the fleet", of); err != nil {
			return all, err
		}
		fleet = of
	}
	if all.manifest, err = manifest.New(manifestOptions(f, pool, controlPlane, artefacts, all.kyma)); err != nil {
		return all, err
	}
	if all.rollout, err = rollout.New(rolloutOptions(f, fleet, all.kyma, all.manifest)); err != nil {
		return all, err
	}
	if all.purge, err = purge.New(purgeOptions(f, pool, all.kyma)); err != nil {
		return all, err
	}
	if tombstones != nil {
		all.tombstones, err = purge.NewTombstones(
			purge.TombstoneOptions{Options: purgeOptions(f, pool, all.kyma), Held: tombstones,
				Live: f.live, Namespace: c.Namespace, ControlPlaneID: f.controlPlaneID})
		if err != nil {
			return all, err
		}
	}
	if all.watcher, err = watcher.New(watcherOptions(f)); err != nil {
		return all, err
	}
	if c.OrphanSweepInterval > 0 {
		if all.orphan, err = orphan.New(orphanOptions(f, pool)); err != nil {
			return all, err
		}
	}
	if len(served) > 0 {
		if all.unserved, err = newUnservedReporter(f, served); err != nil {
			return all, err
		}
	}
	if c.EnableWebhooks {
		if all.conversion, err = conversion.New(conversionOptions(f)); err != nil {
			return all, err
		}
	}
	return all, all.register(ctx, mgr)
}

// register adds the controllers to the manager.
func (all controllers) register(ctx context.Context, mgr ctrl.Manager) error {
	for _, c := range []struct {
		name     string
		exists   bool
		register func() error
	}{
		{"Kyma", true, func() error { return all.kyma.Register(ctx, mgr) }},
		{"rollout", true, func() error { return all.rollout.Register(ctx, mgr) }},
		{"Manifest", true, func() error { return all.manifest.Register(mgr) }},
		{"purge", true, func() error { return all.purge.Register(ctx, mgr) }},
		{"tombstone", all.tombstones != nil, func() error { return all.tombstones.Register(ctx, mgr) }},
		{"Watcher", true, func() error { return all.watcher.Register(ctx, mgr) }},
		{"orphan", all.orphan != nil, func() error { return all.orphan.Register(mgr) }},
		{"unserved", all.unserved != nil, func() error { return mgr.Add(all.unserved) }},
	} {
		if !c.exists {
			continue
		}
		if err := c.register(); err != nil {
			return fmt.Errorf("registering the %s controller: %w", c.name, err)
		}
	}
	if all.conversion == nil {
		return nil
	}
	if err := mgr.AddReadyzCheck("conversion", all.conversion.Ready); err != nil {
		return fmt.Errorf("adding the readiness check of the conversion webhook: %w", err)
	}
	return addTasks(mgr, "the conversion webhook", all.conversion)
}

// newItemExponentialRateLimiter returns the rate limiter for the retries of one controller after errors.
func newItemExponentialRateLimiter(c *config.Manager) workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](c.FailureBaseDelay, c.FailureMaxDelay)
}

func poolOptions(f foundation, r replica) runtimes.Options {
	c := f.config
	o := runtimes.Options{
		Wrap: r.fence, UserAgent: r.cfg.UserAgent, Urgent: f.urgent,
		Namespace: c.Namespace, Watch: c.WatchMode == config.WatchHub,
		Timeout: c.RuntimeTimeout, Concurrency: c.RuntimeConcurrency, Memory: c.RuntimeMemoryLimit,
		PollIntervals: runtimes.PollIntervals{Watched: c.WatchedPollInterval,
			Unwatched: c.PollInterval, Budget: c.PollBudget},
	}
	if c.WatchMode == config.WatchAgent {
		o.Agents, o.InterestsChanged = true, f.queues.enqueueAgentReview
	}
	if c.Mode == config.ModeInCluster {
		o.Self = r.cfg
	} else {
		o.MaxStalled = max(c.MaxConcurrentKymaReconciles/4, 1)
		o.VerifyOwner = f.queues.enqueueWithoutDelay
		o.Cache, o.Live = f.manager.GetClient(), f.manager.GetAPIReader()
	}
	return o
}

// kindsIndexedByKyma returns the kinds that the cache has to index by the name of their Kyma, for the pool.
func kindsIndexedByKyma(c *config.Manager) []client.Object {
	if c.Mode == config.ModeInCluster {
		return []client.Object{&v1beta2.Manifest{}}
	}
	return []client.Object{&v1beta2.Manifest{}, runtimes.NewSecretMetadata()}
}

func kymaOptions(f foundation, pool *runtimes.Pool, artefacts *registry.Registry, agents agentdelivery.Options,
	base *render.Bundle, pullSecrets cache.Cache) kyma.Options {
	c := f.config
	return kyma.Options{
		Client: f.manager.GetClient(), Certain: f.manager.GetAPIReader(), Live: f.live, Events: f.events,
		Runtimes: pool, Registry: artefacts, Agents: agents, Base: base, Shards: f.keeper,
		Urgent: f.urgent, Trigger: f.queues.trigger, Reviews: f.queues.reviews, ControlPlaneID: f.controlPlaneID,
		Namespace: c.Namespace, InCluster: c.Mode == config.ModeInCluster,
		ControlPlane: channel.ControlPlaneModulesMode(c.Mode == config.ModeInCluster,
			c.ControlPlaneServiceAccount != ""),
		PullSecret: c.SKRImagePullSecret, PullSecrets: pullSecrets,
		Restricted: c.RestrictedDefaultModules, CatalogSpread: c.CatalogSpread, AuditInterval: c.AuditInterval,
		PolicyConfigMap: c.MaintenancePolicyConfigmap, PolicyFile: c.MaintenancePolicyFile,
		MinMaintenanceWindow: c.MinMaintenanceWindowSize,
		DeletionDeadline:     c.DeletionDeadline, RuntimeMetrics: c.RuntimeMetrics,
		Concurrency: c.MaxConcurrentKymaReconciles, MaxNewRuntimes: c.MaxNewRuntimes,
		RateLimiter: newItemExponentialRateLimiter(c),
		AfterStep:   exitAfterStep(c.ExitAfterStep, "kyma"), Saves: f.saves,
	}
}

func manifestOptions(f foundation, pool, controlPlane *runtimes.Pool, artefacts *registry.Registry,
	k *kyma.Reconciler) manifest.Options {
	c := f.config
	return manifest.Options{
		Client: f.manager.GetClient(), Secrets: f.manager.GetAPIReader(), Events: f.events,
		Runtimes: pool, VerifyOwner: k.VerifyOwnerBeforeDeletion, Registry: artefacts, Shards: f.keeper,
		ControlPlane: target.ControlPlane{Pool: controlPlane, IsRuntime: c.Mode == config.ModeInCluster,
			Reserved: append([]string{c.Namespace}, c.WatchNamespaces...)},
		AuditInterval: c.AuditInterval, WatchedAuditInterval: c.WatchedAuditInterval,
		InjectData:   slices.Contains(c.RestrictedDefaultModules, source.InjectionModule),
		LocalSources: c.LocalSources, PullSecret: c.SKRImagePullSecret, CustomStateCheck: c.CustomStateCheck,
		Adoption: apply.Adoption(c.AdoptionPolicy), BundleBytes: int(min(c.BundleCacheBytes, math.MaxInt)),
		Concurrency: c.MaxConcurrentManifestReconciles, RateLimiter: newItemExponentialRateLimiter(c),
		After: exitAfterStep(c.ExitAfterStep, "manifest"), Saves: f.saves, Urgent: f.urgent,
	}
}

func rolloutOptions(f foundation, fleet cache.Cache, k *kyma.Reconciler, m *manifest.Reconciler) rollout.Options {
	return rollout.Options{Client: f.manager.GetClient(), Live: f.manager.GetAPIReader(), Fleet: fleet,
		IsFleetOnDemand: f.keeper != nil,
		Namespace:       f.config.Namespace, Catalog: k.Catalog, PolicyChanges: k.PolicyOrClockChanges(),
		Manifest: k.PreflightManifest,
		Check:    m.VerifyAndRender, Events: f.events,
		GateAllow: f.config.RolloutGateAllow, MaxUpdating: f.config.RolloutMaxUpdating,
		RateLimiter: newItemExponentialRateLimiter(f.config)}
}

func purgeOptions(f foundation, pool *runtimes.Pool, k *kyma.Reconciler) purge.Options {
	c := f.config
	return purge.Options{
		Client: f.manager.GetClient(), Runtimes: pool, Events: f.events, VerifyOwner: k.VerifyOwnerBeforeDeletion,
		Grace: c.PurgeGracePeriod, Skip: c.SkipFinalizerPurgingFor, Shards: f.keeper,
		RateLimiter: newItemExponentialRateLimiter(c),
	}
}

func watcherOptions(f foundation) watcher.Options {
	c := f.config
	return watcher.Options{
		Client: f.manager.GetClient(), Events: f.events, Namespace: c.Namespace,
		RateLimiter:      newItemExponentialRateLimiter(c),
		GatewayNamespace: c.IstioGatewayNamespace, Concurrency: c.MaxConcurrentWatcherReconciles,
	}
}

func orphanOptions(f foundation, pool *runtimes.Pool) orphan.Options {
	c := f.config
	return orphan.Options{
		Client: f.manager.GetClient(), Live: f.manager.GetAPIReader(), Runtimes: pool, Events: f.events,
		Namespace: c.Namespace, InCluster: c.Mode == config.ModeInCluster,
		Interval: c.OrphanSweepInterval, Cleanup: c.OrphanCleanup, Shards: f.keeper,
		RateLimiter: newItemExponentialRateLimiter(c),
	}
}

// newUnservedReporter returns the reporter of objects in namespaces that the manager does not serve.
func newUnservedReporter(f foundation, servedNamespaces []string) (*unserved.Reporter, error) {
	of, err := metadata.NewForConfigAndClient(f.manager.GetConfig(), f.manager.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("building a client for metadata: %w", err)
	}
	return unserved.New(unserved.Options{Client: f.live, Metadata: of, Events: f.events,
		Namespaces: servedNamespaces})
}

func conversionOptions(f foundation) conversion.Options {
	c := f.config
	o := conversion.Options{
		Client: f.live, Namespace: c.Namespace,
		BindAddress: c.WebhookBindAddress, URL: c.WebhookURL, Log: f.manager.GetLogger().WithName("conversion"),
	}
	if o.URL == "" {
		o.Service = c.WebhookService
	}
	return o
}

// countTimeout is the maximum time that a scrape of metrics waits for the cache.
const countTimeout = time.Second

// mandatoryModules returns a function that counts the mandatory modules in the cache. Until the cache is filled, the
// returned function returns NaN.
func mandatoryModules(ctx context.Context, from client.Reader, namespace string) func() float64 {
	return func() float64 {
		ctx, cancel := context.WithTimeout(ctx, countTimeout)
		defer cancel()
		var releases v1beta2.ModuleReleaseMetaList
		if err := from.List(ctx, &releases, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return math.NaN()
		}
		n := 0
		for i := range releases.Items {
			if r := &releases.Items[i]; r.IsMandatory() && r.DeletionTimestamp.IsZero() {
				n++
			}
		}
		return float64(n)
	}
}

// RuntimeBaseBundle returns the objects that every runtime gets before its first module: the namespace, and the CRDs of
// the kinds that the admin of a runtime reads, with the stored version only: a runtime has no conversion webhook.
func RuntimeBaseBundle() (*render.Bundle, error) {
	objects := []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": v1beta2.RuntimeNamespace, "labels": map[string]any{
			v1beta2.LabelIstioInjection: v1beta2.IstioInjectionEnabled,
			v1beta2.LabelWardenValidate: v1beta2.WardenValidateEnabled,
		}},
	}}}
	for _, crd := range crds.All() {
		switch crd.Spec.Names.Kind {
		case v1beta2.KindKyma, v1beta2.KindModuleTemplate, v1beta2.KindModuleReleaseMeta:
			crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions,
				func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return !v.Served })
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
			if err != nil {
				return nil, fmt.Errorf("encoding CRD %s: %w", crd.Name, err)
			}
			objects = append(objects, &unstructured.Unstructured{Object: object})
		}
	}
	return render.Build(objects,
		render.Options{Labels: map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByKyma}})
}
