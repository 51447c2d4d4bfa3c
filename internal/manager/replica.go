package manager

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/manager/watchdecode"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard/shardcache"
)

// replica has the leader election, the cache and the shard keeper with which this replica shares the work with other
// replicas. Without shards, the leader does all work. With shards, each replica works on some shards.
type replica struct {
	cfg     *rest.Config
	options ctrl.Options
	leading *leadingEvents    // nil without leader election
	cache   *shardcache.Cache // nil without shards
	keeper  *shard.Keeper     // nil without shards
	// fence returns a transport that refuses requests of a reconcile whose shard was lost. It is nil without shards.
	fence func(http.RoundTripper) http.RoundTripper
}

// newReplica returns the parts of this replica, together with the completed configuration and options of the manager.
// The configuration determines one of three modes:
//
//	no leader election   one replica, or in-cluster
//	leader election      the leader reconciles all runtimes
//	shards               every replica reconciles the runtimes of its shards; the leader does all other work
func newReplica(c *config.Manager, cfg *rest.Config, o ctrl.Options) (replica, error) {
	if !c.LeaderElect || c.Mode == config.ModeInCluster {
		return replica{cfg: cfg, options: o}, nil
	}
	name := c.PodName
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return replica{}, fmt.Errorf("finding a name for this replica (--pod-name): %w", err)
		}
		name = host
	}
	identity := name + "_" + strings.ToLower(rand.Text())
	leading := &leadingEvents{}
	if c.Shards == 0 {
		if c.PodName != "" {
			identity = name // a leader that restarts in the same pod need not wait until its own Lease expires
		}
		leases, lock, err := newLock(c, cfg, leading, identity)
		if err != nil {
			return replica{}, err
		}
		address, err := listenerAddress(c)
		if err != nil {
			return replica{}, err
		}
		shard.AnnounceListener(lock, address) // with shards, the Lease of each replica contains its address
		o.LeaderElectionResourceLockInterface = shard.UnshardedLeaderLock(lock, leases)
		return replica{cfg: cfg, options: o, leading: leading}, nil
	}
	cfg.UserAgent += "/" + name
	leases, lock, err := newLock(c, cfg, leading, shard.ShardedLeaderIdentity(identity))
	if err != nil {
		return replica{}, err
	}
	o.LeaderElectionResourceLockInterface = lock
	o.Controller.NeedLeaderElection = new(false)
	cfg.Wrap(shard.FencedTransport)
	sharded, err := useShardedCache(cfg, &o)
	if err != nil {
		return replica{}, err
	}
	keeper, err := newKeeper(c, name, leases, lock, sharded)
	return replica{cfg: cfg, options: o, leading: leading, cache: sharded, keeper: keeper,
		fence: shard.FencedTransport}, err
}

// newKeeper returns the Keeper of the shards of this replica.
func newKeeper(c *config.Manager, name string, leases shard.Leases, lock *resourcelock.LeaseLock,
	sharded *shardcache.Cache) (*shard.Keeper, error) {
	address, err := listenerAddress(c)
	if err != nil {
		return nil, err
	}
	// A separate lock is used for reading: a lock stores the last record that it has read and uses it for updates.
	reading := &resourcelock.LeaseLock{LeaseMeta: lock.LeaseMeta, Client: lock.Client}
	return shard.New(shard.Options{
		Leases: leases, Name: name, Address: address, Labels: leaseLabels(), Duration: c.ShardLeaseDuration,
		Gate: shard.ShardedLeaderGate(reading),
		Open: sharded.Open, Opened: sharded.AnnounceShard, Close: sharded.Close, Log: ctrl.Log.WithName("shards"),
	})
}

// newLock returns the client for Leases in the manager's namespace, and the lock of leader election.
func newLock(c *config.Manager, cfg *rest.Config, recorder resourcelock.EventRecorder, identity string) (
	coordinationv1client.LeaseInterface, *resourcelock.LeaseLock, error) {
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("building a client for Leases: %w", err)
	}
	short := rest.CopyConfig(cfg)
	short.Timeout = c.LeaderElectionRenewDeadline / 2 // one request without an answer must not lose the Lease
	leader, err := coordinationv1client.NewForConfig(short)
	if err != nil {
		return nil, nil, fmt.Errorf("building a client for leader election: %w", err)
	}
	return clients.CoordinationV1().Leases(c.Namespace), &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: c.Namespace, Name: v1beta2.LeaderLease},
		Client:     leader,
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity, EventRecorder: recorder},
		Labels:     leaseLabels(),
	}, nil
}

// leaseLabels returns the labels of the Leases that this process renews. The labels are a part of each renewal, so they
// cost no request of their own.
func leaseLabels() map[string]string {
	return map[string]string{v1beta2.LabelVersion: config.VersionLabelValue()}
}

// leadingEvents records the events of leader election. The recorder in leadingEvents is set later, because
// controller-runtime needs the lock before it can make event recorders. Until the recorder is set, events are dropped.
// No event is lost, because there are no events before the manager starts.
type leadingEvents struct {
	recorder atomic.Pointer[events.EventRecorder]
}

// Eventf implements [resourcelock.EventRecorder].
func (l *leadingEvents) Eventf(of runtime.Object, kind, reason, message string, args ...any) {
	if recorder := l.recorder.Load(); recorder != nil {
		(*recorder).Eventf(of, nil, kind, reason, "Lead", message, args...)
	}
}

// useShardedCache returns the cache of a replica with shards, and sets the options so that the manager uses it. The
// cache contains only the Kymas and Manifests of the shards that the replica holds. The cache contains all access
// Secrets: if an access Secret is missing in it, the cluster no longer exists. Therefore the shard, which follows from
// a label that somebody can remove, must not decide whether an access Secret is in the cache.
func useShardedCache(cfg *rest.Config, o *ctrl.Options) (*shardcache.Cache, error) {
	over, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("building the HTTP client of the cache: %w", err)
	}
	mapper, err := newCachingMapper(cfg, over)
	if err != nil {
		return nil, fmt.Errorf("building the mapper of kinds: %w", err)
	}
	base := o.Cache
	base.HTTPClient, base.Mapper, base.Scheme = over, mapper, o.Scheme
	all, err := watchdecode.NewDecodeOnceCache(cfg, base)
	if err != nil {
		return nil, err
	}
	sharded, err := shardcache.NewCache(shardcache.CacheOptions{
		Base: all, Scheme: o.Scheme,
		NewShardCache: func(n int) (cache.Cache, error) {
			of := base
			of.ByObject, of.DefaultLabelSelector = nil, shardcache.Selector(n)
			return watchdecode.NewDecodeOnceCache(cfg, of)
		},
		NewShardClient: func(from cache.Cache) (client.Client, error) {
			return newBoundedReadYourWritesClient(cfg, client.Options{
				HTTPClient: over, Scheme: o.Scheme, Mapper: mapper,
				Cache: &client.CacheOptions{Reader: from, EnableReadYourWritesConsistency: new(true)},
			})
		},
		ShardedKinds:  []client.Object{&v1beta2.Kyma{}, &v1beta2.Manifest{}},
		KymaIndex:     runtimes.KymaNameIndex,
		ReplayedKinds: []client.Object{secretMetadata()},
	})
	if err != nil {
		return nil, err
	}
	o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil }
	o.NewCache = func(*rest.Config, cache.Options) (cache.Cache, error) { return sharded, nil }
	o.NewClient = func(cfg *rest.Config, of client.Options) (client.Client, error) {
		return newShardedClient(cfg, of, sharded)
	}
	return sharded, nil
}

// newShardedClient returns the client of a replica with shards.
func newShardedClient(cfg *rest.Config, o client.Options, sharded *shardcache.Cache) (client.Client, error) {
	others, err := newBoundedReadYourWritesClient(cfg, o)
	if err != nil {
		return nil, fmt.Errorf("building the client: %w", err)
	}
	o.Cache = nil
	live, err := client.New(cfg, o)
	if err != nil {
		return nil, fmt.Errorf("building the client without cache: %w", err)
	}
	return shardcache.NewClient(sharded, others, live), nil
}

// addTo sets the event recorder of leader election. addTo also adds the Keeper and the Labeler to the manager.
func (r replica) addTo(ctx context.Context, c *config.Manager, mgr ctrl.Manager, live client.Client) error {
	if r.leading != nil {
		var recorder events.EventRecorder = mgr.GetEventRecorder("lifecycle-manager")
		r.leading.recorder.Store(&recorder)
	}
	if r.keeper == nil {
		return nil
	}
	selector, err := shardcache.UnassignedSelector()
	if err != nil {
		return err
	}
	unassigned, err := addCache(mgr, c.Namespace, "objects without shard",
		cache.Options{DefaultLabelSelector: selector, DefaultTransform: shardcache.StripToIdentifyingMetadata})
	if err != nil {
		return err
	}
	labeler, err := shardcache.NewLabeler(ctx, shardcache.LabelerOptions{
		Keeper: r.keeper, Cache: r.cache, Unassigned: unassigned, Client: live, Log: mgr.GetLogger().WithName("shards"),
	})
	if err != nil {
		return err
	}
	return addTasks(mgr, "the keeper of shards", labeler, r.keeper)
}

// listenerAddress returns the address of this replica's listener for other replicas, or "" if there is none.
func listenerAddress(c *config.Manager) (string, error) {
	if c.WatchMode != config.WatchAgent || c.ListenerBindAddress == "0" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(c.ListenerBindAddress)
	if err != nil {
		return "", fmt.Errorf("reading --listener-bind-address: %w", err)
	}
	if host = cmp.Or(host, c.PodIP); host == "" {
		return "", nil // outside of a cluster there is only one replica
	}
	return net.JoinHostPort(host, port), nil
}
