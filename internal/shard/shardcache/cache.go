// Package shardcache limits a controller-runtime manager to the shards of its replica: its caches contain, and its
// clients read, only the Kymas and Manifests of runtimes for which a [shard.Keeper] holds the shard.
//
// # Use
//
//	c, err := shardcache.NewCache(shardcache.CacheOptions{Base: …, NewShardCache: …, ShardedKinds: …})
//	k, err := shard.New(shard.Options{Open: c.Open, Opened: c.AnnounceShard, Close: c.Close, …})
//	client := shardcache.NewClient(c, others, live)
//	l, err := shardcache.NewLabeler(ctx, shardcache.LabelerOptions{Keeper: k, Cache: c, …}) // a Runnable
//	fleet := shardcache.NewLeaderCache(…)                                                   // a Runnable
//
// # How it works
//
// [Cache] has one small cache for each shard, which a label selector limits to the objects of the shard. The Keeper
// opens and closes these caches when a shard moves. [Client] reads from the cache of the shard of the reconcile.
// [Labeler] writes the label on objects that do not have it. [LeaderCache] has the whole fleet, on the leader only.
//
// # What it does not do
//
// The package does not decide which shards the replica holds, and does not check writes: package shard does both.
package shardcache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// CacheOptions are the options of a Cache. All options except KymaIndex and ReplayedKinds are required.
type CacheOptions struct {
	// Base is the cache of all kinds that are not divided into shards.
	Base cache.Cache
	// Scheme contains all kinds that the Cache reads.
	Scheme *runtime.Scheme
	// NewShardCache makes the cache of one shard. The cache of a shard contains only the objects with the label of the
	// shard.
	NewShardCache func(n int) (cache.Cache, error)
	// NewShardClient makes a client that reads from the cache of one shard.
	NewShardClient func(cache.Cache) (client.Client, error)
	// ShardedKinds are the kinds that are divided into shards. Each element is an empty object of a sharded kind.
	ShardedKinds []client.Object
	// KymaIndex is the name of the field index that finds objects of a sharded kind by the name of their Kyma.
	KymaIndex string
	// ReplayedKinds are kinds in Base whose handlers receive only the objects of open shards. An object belongs to the
	// shard of the Kyma that its label v1beta2.LabelKymaName names. The handlers receive the objects of a shard again
	// when the shard is opened or closed. They receive each object without this label, whatever shards are open.
	ReplayedKinds []client.Object
}

// Cache is the cache of a controller-runtime manager that uses a Keeper. For each shard, a Cache contains one small
// cache of the sharded kinds. The small cache is started when the shard is opened, and stopped when the shard is
// closed. Handlers receive all objects of a shard as added when the shard is opened, and as deleted when the shard is
// closed. A reconcile reads from the cache of its own shard. A caller outside of a reconcile that reads one Kyma, or
// the objects of one Kyma by the index KymaIndex, reads from the cache of the shard of this Kyma. All other callers
// read from the caches of all open shards. Controllers need no change for sharding.
//
// Each shard costs one watch and one informer for each kind. A single cache for all shards of the replica would need
// less memory than one cache for each shard. However, the single cache would have to be filled again with all runtimes
// whenever one shard moves to another replica.
type Cache struct {
	CacheOptions

	mu          sync.RWMutex
	shardCaches [shard.Count]*shardCache              // guarded by mu
	indexes     []index                               // guarded by mu
	sharded     map[schema.GroupVersionKind]*informer // by kind, of ShardedKinds; the map does not change
	replayed    map[schema.GroupVersionKind]*informer // by kind, of ReplayedKinds; the map does not change
}

// shardCache is the cache of one shard.
type shardCache struct {
	cache.Cache
	client client.Client
	run    context.Context // its end stops the cache
	stop   context.CancelFunc
	ended  chan struct{}
	// announced means that handlers receive the objects of the shard; guarded by Cache.mu. AnnounceShard sets announced
	// before it passes the existing objects to the handlers, and returns before Close is called. Close reads it
	// without mu.
	announced bool
}

// index is a field index of a sharded kind.
type index struct {
	object client.Object
	field  string
	keys   client.IndexerFunc
}

// NewCache returns a cache without open shards.
func NewCache(o CacheOptions) (*Cache, error) {
	if o.Base == nil || o.Scheme == nil || o.NewShardCache == nil ||
		o.NewShardClient == nil || len(o.ShardedKinds) == 0 {
		return nil, errors.New("making a sharded cache: options need Base, Scheme, NewShardCache, NewShardClient and ShardedKinds")
	}
	c := &Cache{CacheOptions: o, sharded: map[schema.GroupVersionKind]*informer{},
		replayed: map[schema.GroupVersionKind]*informer{}}
	for _, group := range []struct {
		kinds []client.Object
		into  map[schema.GroupVersionKind]*informer
	}{{o.ShardedKinds, c.sharded}, {o.ReplayedKinds, c.replayed}} {
		for _, kind := range group.kinds {
			gvk, err := apiutil.GVKForObject(kind, o.Scheme)
			if err != nil {
				return nil, fmt.Errorf("making a sharded cache: %w", err)
			}
			group.into[gvk] = &informer{cache: c, kind: kind, gvk: gvk}
		}
	}
	return c, nil
}

// shardedInformerOrNil returns the informer of the kind of an object or list. shardedInformerOrNil returns nil if the
// kind is not sharded.
func (c *Cache) shardedInformerOrNil(o runtime.Object) (*informer, error) {
	gvk, err := apiutil.GVKForObject(o, c.Scheme)
	if err != nil {
		return nil, err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	return c.sharded[gvk], nil
}

// cachesFor returns the caches from which a read with the given context reads. If ctx is the context of a reconcile,
// the result ofReconcile is the cache of the shard of this reconcile. If ctx is not the context of a reconcile, the
// result ofReconcile is nil, and the result named otherwise contains the caches of all open shards.
func (c *Cache) cachesFor(ctx context.Context) (ofReconcile *shardCache, otherwise []*shardCache, err error) {
	n := shard.OfReconcile(ctx)
	c.mu.RLock()
	defer c.mu.RUnlock()
	if n < 0 {
		for _, p := range c.shardCaches {
			if p != nil {
				otherwise = append(otherwise, p)
			}
		}
		return nil, otherwise, nil
	}
	if ofReconcile = c.shardCaches[n]; ofReconcile == nil {
		return nil, nil, shard.ErrLost
	}
	return ofReconcile, nil, nil
}

// openShardOf returns the cache of the shard of a Kyma. If the shard is not open, the result is empty.
func (c *Cache) openShardOf(kyma string) []*shardCache {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if p := c.shardCaches[shard.Of(kyma)]; p != nil {
		return []*shardCache{p}
	}
	return nil
}

// kymaOfList returns the name of the Kyma if a list contains only the objects of one Kyma.
func (c *Cache) kymaOfList(opts []client.ListOption) (kyma string, isOfOne bool) {
	var o client.ListOptions
	o.ApplyOptions(opts)
	if c.KymaIndex == "" || o.FieldSelector == nil {
		return "", false
	}
	return o.FieldSelector.RequiresExactMatch(c.KymaIndex)
}

// Get implements [client.Reader].
func (c *Cache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	kind, err := c.shardedInformerOrNil(o)
	if err != nil {
		return err
	}
	if kind == nil {
		return c.Base.Get(ctx, key, o, opts...)
	}
	own, all, err := c.cachesFor(ctx)
	if err != nil {
		return err
	}
	if own != nil {
		return own.Get(ctx, key, o, opts...)
	}
	if _, isKyma := o.(*v1beta2.Kyma); isKyma {
		all = c.openShardOf(key.Name)
	}
	for _, p := range all {
		if err := p.Get(ctx, key, o, opts...); !apierrors.IsNotFound(err) {
			return err
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: v1beta2.GroupVersion.Group,
		Resource: fmt.Sprintf("%T", o)}, key.Name)
}

// List implements [client.Reader].
func (c *Cache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	kind, err := c.shardedInformerOrNil(list)
	if err != nil {
		return err
	}
	if kind == nil {
		return c.Base.List(ctx, list, opts...)
	}
	own, all, err := c.cachesFor(ctx)
	if err != nil {
		return err
	}
	if own != nil {
		return own.List(ctx, list, opts...)
	}
	if kyma, isOfOne := c.kymaOfList(opts); isOfOne {
		all = c.openShardOf(kyma)
	}
	if len(all) == 1 {
		return all[0].List(ctx, list, opts...)
	}
	items := []runtime.Object{}
	for _, p := range all {
		found := list.DeepCopyObject().(client.ObjectList)
		if err := p.List(ctx, found, opts...); err != nil {
			return err
		}
		more, err := meta.ExtractList(found)
		if err != nil {
			return fmt.Errorf("reading from the cache of a shard: %w", err)
		}
		items = append(items, more...)
	}
	return meta.SetList(list, items)
}

// GetInformer implements [cache.Informers].
func (c *Cache) GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (
	cache.Informer, error) {
	gvk, err := apiutil.GVKForObject(o, c.Scheme)
	if err != nil {
		return nil, err
	}
	if kind := c.sharded[gvk]; kind != nil {
		return kind, nil
	}
	base, err := c.Base.GetInformer(ctx, o, opts...)
	if err != nil {
		return nil, err
	}
	if kind := c.replayed[gvk]; kind != nil {
		return &replayedInformer{base, kind}, nil
	}
	return base, nil
}

// GetInformerForKind implements [cache.Informers].
func (c *Cache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (
	cache.Informer, error) {
	if kind := c.sharded[gvk]; kind != nil {
		return kind, nil
	}
	return c.Base.GetInformerForKind(ctx, gvk, opts...)
}

// RemoveInformer implements [cache.Informers]. Informers of sharded kinds are not removed.
func (c *Cache) RemoveInformer(ctx context.Context, o client.Object) error {
	if kind, err := c.shardedInformerOrNil(o); kind != nil || err != nil {
		return err
	}
	return c.Base.RemoveInformer(ctx, o)
}

// IndexField implements [client.FieldIndexer]. The new index is not added to shards that are already open.
func (c *Cache) IndexField(ctx context.Context, o client.Object, field string, keys client.IndexerFunc) error {
	kind, err := c.shardedInformerOrNil(o)
	if err != nil {
		return err
	}
	if kind == nil {
		return c.Base.IndexField(ctx, o, field, keys)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.indexes = append(c.indexes, index{o, field, keys})
	return nil
}

// Start implements [cache.Informers] for Base. The caches of shards are started by Open.
func (c *Cache) Start(ctx context.Context) error { return c.Base.Start(ctx) }

// WaitForCacheSync implements [cache.Informers] for Base.
func (c *Cache) WaitForCacheSync(ctx context.Context) bool { return c.Base.WaitForCacheSync(ctx) }

// Open makes the cache of a shard and fills it. Options.Open describes when Open is called.
func (c *Cache) Open(ctx context.Context, n int) error {
	inner, err := c.NewShardCache(n)
	if err != nil {
		return fmt.Errorf("making the cache of shard %d: %w", n, err)
	}
	c.mu.RLock()
	indexes := c.indexes
	c.mu.RUnlock()
	for _, i := range indexes {
		if err := inner.IndexField(ctx, i.object, i.field, i.keys); err != nil {
			return fmt.Errorf("indexing shard %d: %w", n, err)
		}
	}
	for _, kind := range c.ShardedKinds {
		if _, err := inner.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("preparing the cache of shard %d: %w", n, err)
		}
	}
	reader, err := c.NewShardClient(inner)
	if err != nil {
		return fmt.Errorf("making the client of shard %d: %w", n, err)
	}
	// The cache of the shard has to live longer than ctx: cancelled reconciles read from the cache until they have
	// ended.
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &shardCache{Cache: inner, client: reader, run: run, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = inner.Start(run) // WaitForCacheSync returns its failures, and the log shows them
	}()
	if !inner.WaitForCacheSync(ctx) {
		stop()
		<-p.ended
		return fmt.Errorf("filling the cache of shard %d: %w", n,
			errors.Join(errors.New("the cache did not sync"), ctx.Err()))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shardCaches[n] = p
	return nil
}

// AnnounceShard passes the objects of a shard to all handlers; shard.Options.Opened describes when AnnounceShard is
// called.
func (c *Cache) AnnounceShard(n int) {
	c.mu.Lock()
	p := c.shardCaches[n]
	if p == nil {
		c.mu.Unlock()
		return
	}
	p.announced = true
	for _, kind := range c.sharded {
		kind.addAllHandlersLocked(p)
	}
	c.mu.Unlock()
	c.replayBaseObjectsOfShard(p.run, n, func(h toolscache.ResourceEventHandler, o runtime.Object) { h.OnAdd(o, true) })
}

// Close removes the cache of a shard, so that reads no longer find the objects of the shard. After the removal of the
// cache, Close reports the objects of the shard to all handlers as deleted. The field shard.Options.Close describes
// when a Keeper calls Close.
func (c *Cache) Close(n int) {
	c.mu.Lock()
	p := c.shardCaches[n]
	c.shardCaches[n] = nil
	c.mu.Unlock()
	if p == nil {
		return
	}
	left := map[*informer][]runtime.Object{}
	for _, kind := range c.sharded {
		left[kind] = kind.objects(p.run, p)
	}
	if p.announced {
		c.replayBaseObjectsOfShard(p.run, n, func(h toolscache.ResourceEventHandler,
			o runtime.Object) {
			h.OnDelete(o)
		})
	}
	p.stop()
	<-p.ended // no event may follow the deletions
	if !p.announced {
		return
	}
	for kind, objects := range left {
		for _, h := range c.handlers(kind) {
			for _, o := range objects {
				h.OnDelete(o)
			}
		}
	}
}

// isAnnounced reports whether a shard is open and AnnounceShard was called for it.
func (c *Cache) isAnnounced(n int) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.shardCaches[n] != nil && c.shardCaches[n].announced
}

// handlers returns the handlers of a kind.
func (c *Cache) handlers(kind *informer) []toolscache.ResourceEventHandler {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]toolscache.ResourceEventHandler, 0, len(kind.handlers))
	for _, h := range kind.handlers {
		all = append(all, h.handler)
	}
	return all
}

// replayBaseObjectsOfShard finds the objects of the replayed kinds that belong to a Kyma of the shard. For each of
// these objects, replayBaseObjectsOfShard calls the function notify with every handler of the kind.
func (c *Cache) replayBaseObjectsOfShard(ctx context.Context, n int, notify func(toolscache.ResourceEventHandler,
	runtime.Object)) {
	for _, kind := range c.replayed {
		all := c.handlers(kind)
		if len(all) == 0 {
			continue
		}
		for _, o := range kind.objects(ctx, c.Base) {
			named, err := meta.Accessor(o)
			if err != nil || shard.Of(named.GetLabels()[v1beta2.LabelKymaName]) != n {
				continue
			}
			for _, h := range all {
				notify(h, o)
			}
		}
	}
}
