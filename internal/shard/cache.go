package shard

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
)

// CacheOptions are what a Cache is made of. All are needed.
type CacheOptions struct {
	// Base has all kinds of which every replica knows all objects.
	Base cache.Cache
	// Scheme knows the kinds.
	Scheme *runtime.Scheme
	// NewShardCache makes the cache of one shard, which has only objects with its label.
	NewShardCache func(shard int) (cache.Cache, error)
	// NewShardClient makes a client that reads from the cache of one shard.
	NewShardClient func(cache.Cache) (client.Client, error)
	// ShardedKinds are split by shard; each is an empty object.
	ShardedKinds []client.Object
	// ReplayedKinds are kinds of Base about which handlers hear when a shard is opened or closed: of objects that name a Kyma of that shard, by the
	// label v1beta2.LabelKymaName.
	ReplayedKinds []client.Object
}

// Cache is the cache of a controller-runtime manager that holds the shards of a Keeper. Of kinds that are split by shard, there is one small cache for each
// shard, started when the shard is opened and ended when it is closed: handlers hear of all its objects as of new ones, and then as of deleted ones. A pass
// reads from the cache of its own shard; who is in no pass sees all shards that are open. A controller does not notice that there are several.
//
// A shard costs one watch and one informer for each kind, next to its objects. One cache for the whole set would cost less, but would have to be
// filled anew, for all runtimes, whenever one shard changes hands.
type Cache struct {
	CacheOptions

	mu      sync.RWMutex
	parts   [Count]*part                          // guarded by mu
	indexes []index                               // guarded by mu
	split   map[schema.GroupVersionKind]*informer // of Kinds; the map does not change
	replay  map[schema.GroupVersionKind]*informer // likewise, of Replayed
}

// part is the cache of one shard.
type part struct {
	cache.Cache
	client client.Client
	run    context.Context // ends it; kept because it lives on its own
	stop   context.CancelFunc
	ended  chan struct{}
	heard  bool // handlers hear of it; set by Opened, which has returned before Close is called
}

// index is a field index of a kind that is split.
type index struct {
	object client.Object
	field  string
	keys   client.IndexerFunc
}

// NewCache returns a cache without shards.
func NewCache(o CacheOptions) (*Cache, error) {
	if o.Base == nil || o.Scheme == nil || o.NewShardCache == nil || o.NewShardClient == nil || len(o.ShardedKinds) == 0 {
		return nil, errors.New("making a cache by shards: options need Base, Scheme, Part, Client and Kinds")
	}
	c := &Cache{CacheOptions: o, split: map[schema.GroupVersionKind]*informer{}, replay: map[schema.GroupVersionKind]*informer{}}
	for _, group := range []struct {
		kinds []client.Object
		into  map[schema.GroupVersionKind]*informer
	}{{o.ShardedKinds, c.split}, {o.ReplayedKinds, c.replay}} {
		for _, kind := range group.kinds {
			gvk, err := apiutil.GVKForObject(kind, o.Scheme)
			if err != nil {
				return nil, fmt.Errorf("making a cache by shards: %w", err)
			}
			group.into[gvk] = &informer{cache: c, kind: kind, gvk: gvk}
		}
	}
	return c, nil
}

// kindOf returns the informer of a kind that is split, nil for other kinds.
func (c *Cache) kindOf(o runtime.Object) (*informer, error) {
	gvk, err := apiutil.GVKForObject(o, c.Scheme)
	if err != nil {
		return nil, err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	return c.split[gvk], nil
}

// part returns the cache of the shard that a pass is about; of a context that is not of a pass, nil and all that are open.
func (c *Cache) part(ctx context.Context) (own *part, all []*part, err error) {
	shard := current(ctx)
	c.mu.RLock()
	defer c.mu.RUnlock()
	if shard < 0 {
		for _, p := range c.parts {
			if p != nil {
				all = append(all, p)
			}
		}
		return nil, all, nil
	}
	if own = c.parts[shard]; own == nil {
		return nil, nil, errLost
	}
	return own, nil, nil
}

// Get implements [client.Reader].
func (c *Cache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	kind, err := c.kindOf(o)
	if err != nil {
		return err
	}
	if kind == nil {
		return c.Base.Get(ctx, key, o, opts...)
	}
	own, all, err := c.part(ctx)
	if err != nil {
		return err
	}
	if own != nil {
		return own.Get(ctx, key, o, opts...)
	}
	for _, p := range all {
		if err := p.Get(ctx, key, o, opts...); !apierrors.IsNotFound(err) {
			return err
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: v1beta2.GroupVersion.Group, Resource: fmt.Sprintf("%T", o)}, key.Name)
}

// List implements [client.Reader].
func (c *Cache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	kind, err := c.kindOf(list)
	if err != nil {
		return err
	}
	if kind == nil {
		return c.Base.List(ctx, list, opts...)
	}
	own, all, err := c.part(ctx)
	if err != nil {
		return err
	}
	if own != nil {
		return own.List(ctx, list, opts...)
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
func (c *Cache) GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	gvk, err := apiutil.GVKForObject(o, c.Scheme)
	if err != nil {
		return nil, err
	}
	if kind := c.split[gvk]; kind != nil {
		return kind, nil
	}
	base, err := c.Base.GetInformer(ctx, o, opts...)
	if err != nil {
		return nil, err
	}
	if kind := c.replay[gvk]; kind != nil {
		return &replayed{base, kind}, nil
	}
	return base, nil
}

// GetInformerForKind implements [cache.Informers].
func (c *Cache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if kind := c.split[gvk]; kind != nil {
		return kind, nil
	}
	return c.Base.GetInformerForKind(ctx, gvk, opts...)
}

// RemoveInformer implements [cache.Informers]. Kinds that are split stay.
func (c *Cache) RemoveInformer(ctx context.Context, o client.Object) error {
	if kind, err := c.kindOf(o); kind != nil || err != nil {
		return err
	}
	return c.Base.RemoveInformer(ctx, o)
}

// IndexField implements [client.FieldIndexer]. It has no effect on shards that are open already.
func (c *Cache) IndexField(ctx context.Context, o client.Object, field string, keys client.IndexerFunc) error {
	kind, err := c.kindOf(o)
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

// Start implements [cache.Informers] for Base; shards are started by Open.
func (c *Cache) Start(ctx context.Context) error { return c.Base.Start(ctx) }

// WaitForCacheSync implements [cache.Informers] for Base.
func (c *Cache) WaitForCacheSync(ctx context.Context) bool { return c.Base.WaitForCacheSync(ctx) }

// Open fills the cache of a shard; see Options.Open.
func (c *Cache) Open(ctx context.Context, shard int) error {
	inner, err := c.NewShardCache(shard)
	if err != nil {
		return fmt.Errorf("making the cache of shard %d: %w", shard, err)
	}
	c.mu.RLock()
	indexes := c.indexes
	c.mu.RUnlock()
	for _, i := range indexes {
		if err := inner.IndexField(ctx, i.object, i.field, i.keys); err != nil {
			return fmt.Errorf("indexing shard %d: %w", shard, err)
		}
	}
	for _, kind := range c.ShardedKinds {
		if _, err := inner.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("preparing the cache of shard %d: %w", shard, err)
		}
	}
	reader, err := c.NewShardClient(inner)
	if err != nil {
		return fmt.Errorf("making the client of shard %d: %w", shard, err)
	}
	// It has to outlive the tenure: passes that are being cancelled read from it until they have ended.
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &part{Cache: inner, client: reader, run: run, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = inner.Start(run) // what it cannot do, it says to WaitForCacheSync and in the log
	}()
	if !inner.WaitForCacheSync(ctx) {
		stop()
		<-p.ended
		return fmt.Errorf("filling the cache of shard %d: %w", shard, errors.Join(errors.New("it did not come in time"), ctx.Err()))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts[shard] = p
	return nil
}

// Opened lets all handlers hear of the objects of a shard; see Options.Opened.
func (c *Cache) Opened(shard int) {
	c.mu.Lock()
	p := c.parts[shard]
	if p == nil {
		c.mu.Unlock()
		return
	}
	p.heard = true
	for _, kind := range c.split {
		for _, h := range kind.handlers {
			kind.hearLocked(p, h)
		}
	}
	c.mu.Unlock()
	c.tellOfReplayed(p.run, shard, func(h toolscache.ResourceEventHandler, o runtime.Object) { h.OnAdd(o, true) })
}

// Close lets all handlers hear that the objects of a shard are gone, and ends its cache; see Options.Close. Who looks for them does not find them any more.
func (c *Cache) Close(shard int) {
	c.mu.Lock()
	p := c.parts[shard]
	c.parts[shard] = nil
	c.mu.Unlock()
	if p == nil {
		return
	}
	left := map[*informer][]runtime.Object{}
	for _, kind := range c.split {
		left[kind] = kind.objects(p.run, p)
	}
	if p.heard {
		c.tellOfReplayed(p.run, shard, func(h toolscache.ResourceEventHandler, o runtime.Object) { h.OnDelete(o) })
	}
	p.stop()
	<-p.ended // so that nothing is heard after the end
	if !p.heard {
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

// handlers returns who hears of a kind.
func (c *Cache) handlers(kind *informer) []toolscache.ResourceEventHandler {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]toolscache.ResourceEventHandler, 0, len(kind.handlers))
	for _, h := range kind.handlers {
		all = append(all, h.handler)
	}
	return all
}

// tellOfReplayed calls tell for each object of a replayed kind that names a Kyma of the shard, and each who hears of that kind.
func (c *Cache) tellOfReplayed(ctx context.Context, shard int, tell func(toolscache.ResourceEventHandler, runtime.Object)) {
	for _, kind := range c.replay {
		all := c.handlers(kind)
		if len(all) == 0 {
			continue
		}
		for _, o := range kind.objects(ctx, c.Base) {
			named, err := meta.Accessor(o)
			if err != nil || Of(named.GetLabels()[v1beta2.LabelKymaName]) != shard {
				continue
			}
			for _, h := range all {
				tell(h, o)
			}
		}
	}
}
