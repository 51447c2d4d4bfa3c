// Package manager builds the lifecycle manager out of its parts.
//
// To use the package, fill in a [config.Manager], validate it, and start the manager that New returns:
//
//	mgr, err := manager.New(ctx, cfg, rest)
//	err = mgr.Start(ctx) // until ctx ends
//
// How it works: [New] makes one manager for each served namespace. The managers share the registry, and nothing else:
// each has its own Lease, caches and connections. The function build makes the parts of one manager in the order of the
// following list. A part gets the parts before it as arguments, so it is complete as soon as it is made:
//
//	 1 urgent      the set of runtimes that a person waits for
//	 2 transport   the configuration of all requests to the control plane: limit of writes, retries of caches during an outage
//	 3 replica     leader election and, with shards, the cache by shards and the keeper of the shards
//	 4 manager     the manager of controller-runtime, and a client without a cache
//	 5 queues      the queues of the Kyma controller, to which the pool and the agents add requests
//	 6 registry    the registry of modules
//	 7 pool        the connections to runtimes
//	 8 agents      with --watch-mode=agent: certificate authority, listener, and delivery of agents
//	 9 controllers the controllers for Kyma, Manifest, purge, tombstones, Watcher and orphans
//	10 background  tasks that need several of these parts, and metrics
//
// Only this package reads the configuration; each part gets the values that it needs. The cache is small: it contains
// one namespace, no managedFields, and only the metadata of Secrets.
//
// The package itself reconciles nothing, and it reads no flag or environment variable.
package manager

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kyma-fleet/lifecycle-manager/internal/budget"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/agentdelivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/eventrecorder"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/manager/memory"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
	"github.com/kyma-fleet/lifecycle-manager/internal/telemetry"
)

// New builds a manager for the cluster to which cfg connects. New sends requests only for three purposes: to discover
// the kinds that the API server serves, to identify the control plane, and to read the credentials of the registry. New
// adjusts the garbage collector of the process to the memory target. When ctx ends, the connections to runtimes end.
func New(ctx context.Context, c *config.Manager, cfg *rest.Config) (Managers, error) {
	memory.StartGCTuning(ctx, c.MemoryTarget)
	served := append([]string{c.Namespace}, c.WatchNamespaces...)
	first, err := buildPartsOfOneManager(ctx, c, cfg, process{registerer: ctrlmetrics.Registry,
		manyNames: len(served) > 1,
		served:    served})
	if err != nil {
		return nil, err
	}
	all := Managers{first.manager}
	for _, name := range c.WatchNamespaces {
		further, err := buildPartsOfOneManager(ctx, c.ForNamespaceWithoutServers(name), cfg, process{manyNames: true,
			artefacts: first.artefacts})
		if err != nil {
			return nil, fmt.Errorf("serving namespace %s: %w", name, err)
		}
		all = append(all, further.manager)
	}
	return all, nil
}

// Managers are the managers of the served namespaces.
type Managers []ctrl.Manager

// Start runs all managers until ctx ends. If one manager fails, Start stops all managers.
func (all Managers) Start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, m := range all {
		group.Go(func() error { return m.Start(ctx) })
	}
	return group.Wait()
}

// process has the parts that exist once in a process, even if it runs several managers.
type process struct {
	registerer prometheus.Registerer // nil except for the first manager
	manyNames  bool                  // several controllers may have the same name
	served     []string              // all served namespaces; nil except for the first manager
	artefacts  *registry.Registry    // the registry of the first manager; nil for the first manager
}

// foundation has the values for the parts of the program that are made after the controller-runtime manager.
type foundation struct {
	config  *config.Manager
	manager ctrl.Manager
	live    client.WithWatch // without cache
	urgent  *queueing.Urgent
	keeper  *shard.Keeper // nil if only the leader reconciles
	queues  kymaQueues
	events  *eventrecorder.Recorder
	saves   *budget.Budget // limits the status writes for each runtime
	// controlPlaneID is the ID of this control plane in the records of the owners of runtimes.
	controlPlaneID string
}

// parts has the parts that New has made. If the configuration does not need a part, its field is nil.
type parts struct {
	foundation
	leading     *leadingEvents
	artefacts   *registry.Registry
	pool        *runtimes.Pool
	agents      *agents
	controllers controllers
}

// buildPartsOfOneManager makes the parts in the order that the package comment describes.
func buildPartsOfOneManager(ctx context.Context, c *config.Manager, cfg *rest.Config, shared process) (parts, error) {
	urgent := queueing.NewUrgent()
	cfg = controlPlaneConfig(c, cfg, urgent)
	options, err := managerOptions(ctx, c, shared.manyNames)
	if err != nil {
		return parts{}, err
	}
	if shared.artefacts != nil {
		options.LeaderElectionID += "-" + c.Namespace // the name in metrics
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
		queues: newKymaQueues(c.Namespace), saves: loop.NewSaveBudget(),
		events: eventrecorder.NewRateLimited(mgr.GetEventRecorder("lifecycle-manager"), mgr.GetLogger())}
	if err := replica.addTo(ctx, c, mgr, live); err != nil {
		return parts{}, err
	}
	if f.controlPlaneID, err = ownership.Identify(ctx, live); err != nil {
		return parts{}, err
	}
	artefacts := shared.artefacts
	if artefacts == nil {
		if artefacts, err = newRegistry(ctx, c, mgr.GetAPIReader()); err != nil {
			return parts{}, err
		}
	}
	pool, err := setUpPool(ctx, f, replica)
	if err != nil {
		return parts{}, err
	}
	controlPlane, err := newControlPlanePool(ctx, f, replica)
	if err != nil {
		return parts{}, err
	}
	var back *agents
	var forKymas agentdelivery.Options
	if c.WatchMode == config.WatchAgent {
		if back, err = setUpAgents(ctx, f, pool); err != nil {
			return parts{}, err
		}
		forKymas = back.forKymas()
	}
	all, err := setUpControllers(ctx, f, pool, controlPlane, artefacts, forKymas, shared.served)
	if err != nil {
		return parts{}, err
	}
	if back != nil {
		if err := mgr.Add(f.keeper.RunnableOnAllReplicas(back.reissueOnNewRoots(all.kyma.EnqueueAll))); err != nil {
			return parts{}, fmt.Errorf("adding the renewal of certificates: %w", err)
		}
	}
	if shared.registerer != nil {
		b := config.ReadBuild()
		metrics.SetBuild(b.Version, b.Commit, b.Go)
		metrics.MustRegister(shared.registerer, metrics.Sources{MandatoryModules: mandatoryModules(
			ctx, mgr.GetCache(), c.Namespace)})
	}
	return parts{foundation: f, leading: replica.leading, artefacts: artefacts, pool: pool, agents: back,
		controllers: all}, nil
}

// controlPlaneConfig returns the client configuration that all clients of the control plane use.
func controlPlaneConfig(c *config.Manager, cfg *rest.Config, urgent *queueing.Urgent) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS, cfg.Burst = "lifecycle-manager", c.K8sClientQPS, int(2*c.K8sClientQPS)
	if c.K8sClientQPS == 0 {
		cfg.QPS = -1
	}
	// The handler logs the same warning of the API server only once, because there may be a warning for each Manifest.
	cfg.WarningHandlerWithContext = telemetry.NewAPIWarnings()
	cfg.Wrap(queueing.NewWriteLimiter(c.MaxControlPlaneWrites, c.MaxControlPlaneWritesWhileUrgent, urgent).Wrap)
	cfg.Wrap((&outage{log: log.Log.WithName("control-plane")}).wrapWithCacheRetries)
	return cfg
}

// newManager returns the controller-runtime manager with its health checks, and a client without a cache.
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

// setUpPool makes the pool of connections to runtimes, and the indexes of the cache that the pool needs. The pool
// connects to each runtime with the kubeconfig in its access Secret. In in-cluster mode, the only runtime is the
// cluster of the manager.
func setUpPool(ctx context.Context, f foundation, r replica) (*runtimes.Pool, error) {
	for _, kind := range kindsIndexedByKyma(f.config) {
		if err := runtimes.IndexByKyma(ctx, f.manager.GetFieldIndexer(), kind); err != nil {
			return nil, fmt.Errorf("indexing %T by Kyma: %w", kind, err)
		}
	}
	return runtimes.New(ctx, poolOptions(f, r))
}

// newControlPlanePool returns a pool with the connection to the control plane, or nil if it may have no modules.
func newControlPlanePool(ctx context.Context, f foundation, r replica) (*runtimes.Pool, error) {
	name := f.config.ControlPlaneServiceAccount
	if name == "" {
		return nil, nil
	}
	return runtimes.New(ctx, poolOptions(f, r).ForControlPlane(r.cfg, f.config.Namespace, name))
}

// addTasks adds tasks to the manager.
func addTasks(mgr ctrl.Manager, what string, tasks ...ctrlmanager.Runnable) error {
	for _, task := range tasks {
		if err := mgr.Add(task); err != nil {
			return fmt.Errorf("adding %s: %w", what, err)
		}
	}
	return nil
}

// ClusterConfig returns the configuration of the client for the control plane. If there is no kubeconfig, ClusterConfig
// uses the service account of the pod.
func ClusterConfig(kubeconfig string) (cfg *rest.Config, err error) {
	if kubeconfig == "" {
		cfg, err = rest.InClusterConfig()
	} else {
		cfg, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("finding the cluster to work on (--kubeconfig, $KUBECONFIG, or run in a pod): %w", err)
	}
	return cfg, nil
}
