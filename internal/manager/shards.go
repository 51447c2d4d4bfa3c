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

	corev1 "k8s.io/api/core/v1"
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
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// shards split the runtimes among replicas. With --shards=0, all that is in it is nil but for recorder.
type shards struct {
	keeper   *shard.Keeper
	cache    *shard.Cache
	wrap     func(http.RoundTripper) http.RoundTripper // stands before requests of passes
	recorder *recorder
}

// newShards prepares the options of the manager for one replica that works, the leader, or for several.
func newShards(c *config.Manager, cfg *rest.Config, o *ctrl.Options) (*shards, error) {
	s := &shards{recorder: &recorder{}}
	if !c.LeaderElect || c.Mode == config.ModeInCluster {
		return s, nil
	}
	name := c.PodName
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("finding a name for this replica (--pod-name): %w", err)
		}
		name = host
	}
	if c.Shards > 0 {
		cfg.UserAgent += "/" + name
	}
	leases, lock, err := newLock(c, cfg, s.recorder)
	if err != nil {
		return nil, err
	}
	lock.LockConfig.Identity = name + "_" + strings.ToLower(rand.Text())
	if c.Shards == 0 {
		if c.PodName != "" {
			lock.LockConfig.Identity = name // who was killed and runs again in the same pod need not wait for itself
		}
		o.LeaderElectionResourceLockInterface = shard.UnshardedLeaderLock(lock, leases)
		return s, nil
	}
	lock.LockConfig.Identity = shard.LeaderIdentity(lock.LockConfig.Identity)
	o.LeaderElectionResourceLockInterface = lock
	look := &resourcelock.LeaseLock{LeaseMeta: lock.LeaseMeta, Client: lock.Client} // of its own: a lock remembers what it has read last, to write over it
	address, err := listenerAddress(c)
	if err != nil {
		return nil, err
	}
	s.keeper, err = shard.New(shard.Options{
		Leases: leases, Name: name, Address: address, Duration: c.ShardLeaseDuration, Gate: shard.ShardedLeaderGate(look),
		Open:   func(ctx context.Context, n int) error { return s.cache.Open(ctx, n) },
		Opened: func(n int) { s.cache.Opened(n) },
		Close:  func(n int) { s.cache.Close(n) },
		Log:    ctrl.Log.WithName("shards"),
	})
	if err != nil {
		return nil, err
	}
	s.wrap = shard.FencedTransport
	cfg.Wrap(s.wrap)
	o.Controller.NeedLeaderElection = new(false)
	o.NewCache, o.NewClient = s.newCache, s.newClient
	return s, nil
}

// newLock returns the Leases of the manager's namespace, and that of leader election without an identity.
func newLock(c *config.Manager, cfg *rest.Config, told *recorder) (coordinationv1client.LeaseInterface, *resourcelock.LeaseLock, error) {
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("building a client for Leases: %w", err)
	}
	short := rest.CopyConfig(cfg)
	short.Timeout = c.LeaderElectionRenewDeadline / 2 // so that one request that hangs does not cost the lead
	leader, err := coordinationv1client.NewForConfig(short)
	if err != nil {
		return nil, nil, fmt.Errorf("building a client for leader election: %w", err)
	}
	return clients.CoordinationV1().Leases(c.Namespace), &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: c.Namespace, Name: leaderElectionID},
		Client:     leader,
		LockConfig: resourcelock.ResourceLockConfig{EventRecorder: told},
	}, nil
}

// recorder tells of the lead in events, once there is a manager.
type recorder struct{ to atomic.Pointer[recording] }

// recording is what has events.
type recording struct{ events events.EventRecorder }

// Eventf implements [resourcelock.EventRecorder].
func (r *recorder) Eventf(of runtime.Object, kind, reason, message string, args ...any) {
	if to := r.to.Load(); to != nil {
		to.events.Eventf(of, nil, kind, reason, "Lead", message, args...)
	}
}

// newCache makes the cache of the manager: of Kymas and Manifests it has those of the shards that are held. Access Secrets are known to every replica: a
// missing one means that a cluster is gone, and that must not depend on a label that somebody may remove.
func (s *shards) newCache(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
	base, err := newCache(cfg, o)
	if err != nil {
		return nil, err
	}
	secrets := &metav1.PartialObjectMetadata{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	s.cache, err = shard.NewCache(shard.CacheOptions{
		Base: base, Scheme: o.Scheme,
		NewShardCache: func(n int) (cache.Cache, error) {
			of := o
			of.ByObject, of.DefaultLabelSelector = nil, shard.Selector(n)
			return newCache(cfg, of)
		},
		NewShardClient: func(from cache.Cache) (client.Client, error) {
			return newClient(cfg, client.Options{
				HTTPClient: o.HTTPClient, Scheme: o.Scheme, Mapper: o.Mapper,
				Cache: &client.CacheOptions{Reader: from, EnableReadYourWritesConsistency: new(true)},
			})
		},
		ShardedKinds:  []client.Object{&v1beta2.Kyma{}, &v1beta2.Manifest{}},
		ReplayedKinds: []client.Object{secrets},
	})
	return s.cache, err
}

// newClient makes the client of the manager.
func (s *shards) newClient(cfg *rest.Config, o client.Options) (client.Client, error) {
	rest, err := newClient(cfg, o)
	if err != nil {
		return nil, fmt.Errorf("building the client: %w", err)
	}
	o.Cache = nil
	live, err := client.New(cfg, o)
	if err != nil {
		return nil, fmt.Errorf("building the client without cache: %w", err)
	}
	return shard.NewClient(s.cache, rest, live), nil
}

// add adds to the manager what splits the work.
func (s *shards) add(ctx context.Context, c *config.Manager, mgr ctrl.Manager, live client.Client) error {
	s.recorder.to.Store(&recording{mgr.GetEventRecorder("lifecycle-manager")})
	if s.keeper == nil {
		return nil
	}
	none, err := shard.UnassignedSelector()
	if err != nil {
		return err
	}
	strangers, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces: map[string]cache.Config{c.Namespace: {}}, DefaultLabelSelector: none,
		DefaultTransform: slimMetadata,
	})
	if err != nil {
		return fmt.Errorf("building the cache of objects without shard: %w", err)
	}
	labels, err := shard.NewLabeler(ctx, shard.LabelerOptions{
		Keeper: s.keeper, Cache: s.cache, Unassigned: strangers, Client: live, Log: mgr.GetLogger().WithName("shards"),
	})
	if err != nil {
		return err
	}
	for _, r := range []interface{ Start(context.Context) error }{early{strangers}, labels, s.keeper} {
		if err := mgr.Add(r); err != nil {
			return fmt.Errorf("adding what splits the work: %w", err)
		}
	}
	return nil
}

// slimMetadata leaves of an object what tells which it is.
func slimMetadata(raw any) (any, error) {
	if o, is := raw.(*metav1.PartialObjectMetadata); is {
		slim := metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: map[string]string{}, Annotations: map[string]string{},
		}
		for _, key := range []string{v1beta2.LabelKymaName, v1beta2.LabelShard, v1beta2.LabelRuntimeID} {
			if value, there := o.Labels[key]; there {
				slim.Labels[key] = value
			}
		}
		if value, there := o.Annotations[v1beta2.AnnotationCertificatesNotBefore]; there {
			slim.Annotations[v1beta2.AnnotationCertificatesNotBefore] = value
		}
		o.ObjectMeta = slim
	}
	return raw, nil
}

// newDirectory returns a cache of the names of all Kymas, by which the listener finds out who speaks, also of shards that others hold. It is nil where
// the manager's own cache has all Kymas.
func (s *shards) newDirectory(ctx context.Context, c *config.Manager, mgr ctrl.Manager) (cache.Cache, error) {
	if s.keeper == nil {
		return nil, nil
	}
	names, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces: map[string]cache.Config{c.Namespace: {}}, DefaultTransform: slimMetadata,
	})
	if err != nil {
		return nil, fmt.Errorf("building the directory of Kymas: %w", err)
	}
	if err := names.IndexField(ctx, kymaMetadata(), identityIndex, func(o client.Object) []string {
		return []string{commonName(o)}
	}); err != nil {
		return nil, fmt.Errorf("indexing Kymas by the name in their certificate: %w", err)
	}
	if err := mgr.Add(early{names}); err != nil {
		return nil, fmt.Errorf("adding the directory of Kymas: %w", err)
	}
	return names, nil
}

// kymaMetadata returns an empty Kyma of which only metadata is read.
func kymaMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(v1beta2.KindKyma))
	return m
}

// listenerAddress returns where other replicas find the listener of this one, "" if there is none.
func listenerAddress(c *config.Manager) (string, error) {
	if c.WatchMode != config.WatchAgent || c.ListenerBindAddress == "0" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(c.ListenerBindAddress)
	if err != nil {
		return "", fmt.Errorf("reading --listener-bind-address: %w", err)
	}
	if host = cmp.Or(host, c.PodIP); host == "" {
		return "", nil // outside of a cluster there is one replica
	}
	return net.JoinHostPort(host, port), nil
}
