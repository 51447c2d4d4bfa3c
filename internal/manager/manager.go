// Package manager builds the lifecycle manager out of its parts.
//
// Use: fill in a [config.Manager], validate it, and start what New returns:
//
//	mgr, err := manager.New(ctx, cfg, rest)
//	err = mgr.Start(ctx) // until ctx ends
//
// How it works: [New] makes the parts one after the other. Each is complete when it is made, and gets the parts before
// it as values:
//
//	 1 urgent      the set of runtimes that a person waits for
//	 2 transport   the configuration of all requests to the control plane: limit of writes, retries of caches during an outage
//	 3 replica     leader election and, with shards, the cache by shards and the keeper of the shards
//	 4 manager     the manager of controller-runtime, and a client without a cache
//	 5 queues      the queues of the Kyma controller, to which the parts before it add
//	 6 registry    the modules
//	 7 pool        the connections to runtimes
//	 8 agents      with --watch-mode=agent: certificate authority, listener, and delivery of agents
//	 9 controllers Kyma, Manifest, purge, tombstones, Watcher, orphans
//	10 background  tasks that need several of these parts, and metrics
//
// The configuration is read here only; the parts get values. The cache is small: it has one namespace, no
// managedFields, and of Secrets only metadata.
//
// What it does not do: it reconciles nothing itself, and it reads no flag or environment variable.
package manager

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/agentdelivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// New builds a manager for the cluster behind cfg. It makes requests only to find out how kinds are served and to read
// the login of the registry. It sets the garbage collector of the whole process to the memory target. The end of ctx
// ends the connections to runtimes.
func New(ctx context.Context, c *config.Manager, cfg *rest.Config) (ctrl.Manager, error) {
	adjustGarbageCollector(ctx, c.MemoryTarget)
	p, err := build(ctx, c, cfg, process{registerer: ctrlmetrics.Registry})
	return p.manager, err
}

// process is what one process has once, however many managers it builds. Tests build several.
type process struct {
	registerer prometheus.Registerer
	manyNames  bool // several controllers may have the same name
}

// foundation is what every part after the manager of controller-runtime is made from.
type foundation struct {
	config  *config.Manager
	manager ctrl.Manager
	live    client.WithWatch // without cache
	urgent  *queueing.Urgent
	keeper  *shard.Keeper // nil if only the leader reconciles
	queues  kymaQueues
}

// parts are the parts that New has built. Those that the configuration does not need are nil.
type parts struct {
	foundation
	leading     *leadingEvents
	pool        *runtimes.Pool
	agents      *agents
	controllers controllers
}

// build makes the parts in the order of the package comment.
func build(ctx context.Context, c *config.Manager, cfg *rest.Config, one process) (parts, error) {
	urgent := queueing.NewUrgent()
	cfg = controlPlaneConfig(c, cfg, urgent)
	options, err := managerOptions(ctx, c, one.manyNames)
	if err != nil {
		return parts{}, err
	}
	replica, err := newReplica(c, cfg, options)
	if err != nil {
		return parts{}, err
	}
	mgr, live, err := newManager(replica)
	if err != nil {
		return parts{}, err
	}
	f := foundation{config: c, manager: mgr, live: live, urgent: urgent, keeper: replica.keeper,
		queues: newKymaQueues(c.Namespace)}
	if err := replica.addTo(ctx, c, mgr, live); err != nil {
		return parts{}, err
	}
	artefacts, err := newRegistry(ctx, c, mgr.GetAPIReader())
	if err != nil {
		return parts{}, err
	}
	pool, err := newPool(ctx, f, replica)
	if err != nil {
		return parts{}, err
	}
	var back *agents
	var forKymas agentdelivery.Options
	if c.WatchMode == config.WatchAgent {
		if back, err = newAgents(ctx, f, pool); err != nil {
			return parts{}, err
		}
		forKymas = back.forKymas()
	}
	all, err := newControllers(ctx, f, pool, artefacts, forKymas)
	if err != nil {
		return parts{}, err
	}
	if back != nil {
		if err := mgr.Add(f.keeper.Runnable(back.reissueOnNewRoots(all.kyma.EnqueueAll))); err != nil {
			return parts{}, fmt.Errorf("adding the renewal of certificates: %w", err)
		}
	}
	metrics.Register(one.registerer, metrics.Sources{MandatoryModules: mandatoryModules(
		ctx, mgr.GetCache(), c.Namespace)})
	return parts{foundation: f, leading: replica.leading, pool: pool, agents: back, controllers: all}, nil
}

// controlPlaneConfig returns the configuration of all clients of the control plane.
func controlPlaneConfig(c *config.Manager, cfg *rest.Config, urgent *queueing.Urgent) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS, cfg.Burst = "lifecycle-manager", c.K8sClientQPS, int(2*c.K8sClientQPS)
	if c.K8sClientQPS == 0 {
		cfg.QPS = -1
	}
	// A warning of the API server is logged once, not once for each Manifest.
	cfg.WarningHandlerWithContext = log.NewKubeAPIWarningLogger(log.KubeAPIWarningLoggerOptions{Deduplicate: true})
	cfg.Wrap(queueing.NewWriteLimiter(c.MaxControlPlaneWrites, c.MaxControlPlaneWritesWhileUrgent, urgent).Wrap)
	cfg.Wrap((&outage{log: log.Log.WithName("control-plane")}).wrap)
	return cfg
}

// newManager makes the manager of controller-runtime with its health checks, and a client without a cache.
func newManager(r replica) (ctrl.Manager, client.WithWatch, error) {
	mgr, err := ctrl.NewManager(r.cfg, r.options)
	if err != nil {
		return nil, nil, fmt.Errorf("building the manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return nil, nil, fmt.Errorf("adding the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		return nil, nil, fmt.Errorf("adding the readiness check: %w", err)
	}
	live, err := client.NewWithWatch(r.cfg, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(),
		Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, nil, fmt.Errorf("building a client without cache: %w", err)
	}
	return mgr, live, nil
}

// newPool makes the connections to runtimes, by access Secrets or to the cluster of the manager.
func newPool(ctx context.Context, f foundation, r replica) (*runtimes.Pool, error) {
	for _, kind := range poolIndexes(f.config) {
		if err := runtimes.IndexByKyma(ctx, f.manager.GetFieldIndexer(), kind); err != nil {
			return nil, fmt.Errorf("indexing %T by Kyma: %w", kind, err)
		}
	}
	return runtimes.New(ctx, poolOptions(f, r))
}

// add adds tasks to the manager.
func add(mgr ctrl.Manager, what string, tasks ...ctrlmanager.Runnable) error {
	for _, task := range tasks {
		if err := mgr.Add(task); err != nil {
			return fmt.Errorf("adding %s: %w", what, err)
		}
	}
	return nil
}
