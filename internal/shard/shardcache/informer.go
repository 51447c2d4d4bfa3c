package shardcache

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// informer is the informer of a sharded kind. informer adds its handlers to the informers of all open shards, and to
// the informers of shards that are opened later. informer always reports that it is synced, although shards may be
// opened later. When a shard is opened later, its objects are passed to the handlers as an initial list.
type informer struct {
	cache *Cache
	kind  client.Object
	gvk   schema.GroupVersionKind

	handlers []*handler // guarded by cache.mu
}

// handler is an event handler of a kind, and the registration of that handler.
type handler struct {
	handler toolscache.ResourceEventHandler
	options toolscache.HandlerOptions
}

// closedChannel is a channel that is closed from the beginning.
var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// alwaysSynced is a DoneChecker that always reports that it is done.
type alwaysSynced struct{}

// Name implements [toolscache.DoneChecker].
func (alwaysSynced) Name() string { return "shards" }

// Done implements [toolscache.DoneChecker].
func (alwaysSynced) Done() <-chan struct{} { return closedChannel }

// HasSynced implements [toolscache.ResourceEventHandlerRegistration].
func (*handler) HasSynced() bool { return true }

// HasSyncedChecker implements [toolscache.ResourceEventHandlerRegistration].
func (*handler) HasSyncedChecker() toolscache.DoneChecker { return alwaysSynced{} }

// addAllHandlersLocked adds all handlers to the informer of a shard that is opened, as one handler: an informer has two
// goroutines and a ring of events for each of its handlers, which would be most of the memory of an empty shard. The
// handlers of controllers return soon: they read caches and add to queues, and must not wait. The caller of
// addAllHandlersLocked must hold cache.mu.
func (i *informer) addAllHandlersLocked(p *shardCache) {
	var together allHandlers
	for _, h := range i.handlers {
		if h.options.ResyncPeriod != nil {
			i.addHandlerLocked(p, h)
			continue
		}
		together = append(together, h.handler)
	}
	if len(together) > 0 {
		i.addHandlerLocked(p, &handler{handler: together})
	}
}

// allHandlers passes each event to several handlers, one after the other.
type allHandlers []toolscache.ResourceEventHandler

// OnAdd implements [toolscache.ResourceEventHandler].
func (all allHandlers) OnAdd(o any, isInInitialList bool) {
	for _, h := range all {
		h.OnAdd(o, isInInitialList)
	}
}

// OnUpdate implements [toolscache.ResourceEventHandler].
func (all allHandlers) OnUpdate(before, now any) {
	for _, h := range all {
		h.OnUpdate(before, now)
	}
}

// OnDelete implements [toolscache.ResourceEventHandler].
func (all allHandlers) OnDelete(o any) {
	for _, h := range all {
		h.OnDelete(o)
	}
}

// addHandlerLocked adds a handler to the informer of a shard. The caller of addHandlerLocked must hold cache.mu.
func (i *informer) addHandlerLocked(p *shardCache, h *handler) {
	inner, err := p.GetInformer(p.run, i.kind, cache.BlockUntilSynced(false))
	if err != nil {
		return // Open has made the informer, so this fails only after the shard was closed
	}
	_, _ = inner.AddEventHandlerWithOptions(h.handler, h.options) // fails only after the shard was closed
}

// AddEventHandler implements [cache.Informer].
func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (
	toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements [cache.Informer].
func (i *informer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, period time.Duration) (
	toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &period})
}

// AddEventHandlerWithOptions implements [cache.Informer].
func (i *informer) AddEventHandlerWithOptions(eventHandler toolscache.ResourceEventHandler,
	o toolscache.HandlerOptions) (
	toolscache.ResourceEventHandlerRegistration, error) {
	h := &handler{eventHandler, o}
	i.cache.mu.Lock()
	defer i.cache.mu.Unlock()
	i.handlers = append(i.handlers, h)
	for _, p := range i.cache.shardCaches {
		if p != nil && p.announced {
			i.addHandlerLocked(p, h)
		}
	}
	return h, nil
}

// RemoveEventHandler implements [cache.Informer]. The handler still receives the events of each open shard, until that
// shard is closed.
func (i *informer) RemoveEventHandler(r toolscache.ResourceEventHandlerRegistration) error {
	i.cache.mu.Lock()
	defer i.cache.mu.Unlock()
	i.handlers = slices.DeleteFunc(i.handlers, func(h *handler) bool { return r == h })
	return nil
}

// AddIndexers implements [cache.Informer]. AddIndexers always returns an error: use IndexField instead, which also adds
// the index to shards that are opened later.
func (i *informer) AddIndexers(toolscache.Indexers) error {
	return errors.New("adding an index to a sharded kind: use IndexField of the cache")
}

// HasSynced implements [cache.Informer].
func (*informer) HasSynced() bool { return true }

// HasSyncedChecker implements [cache.Informer].
func (*informer) HasSyncedChecker() toolscache.DoneChecker { return alwaysSynced{} }

// IsStopped implements [cache.Informer].
func (*informer) IsStopped() bool { return false }

// objects returns the objects of the kind in a cache. The caller must not change these objects.
func (i *informer) objects(ctx context.Context, from client.Reader) (readOnly []runtime.Object) {
	gvk := i.gvk.GroupVersion().WithKind(i.gvk.Kind + "List")
	var list client.ObjectList
	if _, slim := i.kind.(*metav1.PartialObjectMetadata); slim {
		of := &metav1.PartialObjectMetadataList{}
		of.SetGroupVersionKind(gvk)
		list = of
	} else if made, err := i.cache.Scheme.New(gvk); err == nil {
		list = made.(client.ObjectList) // the name of the kind ends in List
	}
	if err := from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is stopped, because the process ends
	}
	items, _ := meta.ExtractList(list) // every list has items
	return items
}

// replayedInformer is the informer of a kind in CacheOptions.ReplayedKinds, whose objects are in the cache Base. While
// a shard is open, the handlers of a replayedInformer receive the changes of those objects that name a Kyma of the
// shard. When the shard is opened or closed, the handlers receive all these objects.
type replayedInformer struct {
	cache.Informer
	informer *informer
}

// AddEventHandler implements [cache.Informer].
func (r *replayedInformer) AddEventHandler(h toolscache.ResourceEventHandler) (
	toolscache.ResourceEventHandlerRegistration, error) {
	return r.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithOptions implements [cache.Informer].
func (r *replayedInformer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (
	toolscache.ResourceEventHandlerRegistration, error) {
	r.informer.cache.mu.Lock()
	r.informer.handlers = append(r.informer.handlers, &handler{h, o})
	r.informer.cache.mu.Unlock()
	return r.Informer.AddEventHandlerWithOptions(ofOpenShards{h, r.informer.cache}, o)
}

// ofOpenShards is an event handler that drops the objects of Kymas whose shards are not open. Without it, each replica
// would reconcile each Kyma once for each change of its access Secret, only to find that another replica holds the
// shard.
//
// No change is lost while a shard is being opened. An informer adds an object to its cache before it calls the
// handlers, and AnnounceShard lists the objects of the cache after it has set shardCache.announced. So this list
// contains each object whose event was dropped before. A deletion may be dropped, too, but after that, the handlers of
// Kymas receive each Kyma of the shard.
type ofOpenShards struct {
	handler toolscache.ResourceEventHandler
	cache   *Cache
}

// OnAdd implements [toolscache.ResourceEventHandler].
func (f ofOpenShards) OnAdd(o any, isInInitialList bool) {
	if f.passes(o) {
		f.handler.OnAdd(o, isInInitialList)
	}
}

// OnUpdate implements [toolscache.ResourceEventHandler]. An update may move an object from one Kyma to another one.
func (f ofOpenShards) OnUpdate(before, now any) {
	if f.passes(before) || f.passes(now) {
		f.handler.OnUpdate(before, now)
	}
}

// OnDelete implements [toolscache.ResourceEventHandler].
func (f ofOpenShards) OnDelete(o any) {
	if f.passes(o) {
		f.handler.OnDelete(o)
	}
}

// passes reports whether the shard of the Kyma of an object is open. An object that names no Kyma passes.
func (f ofOpenShards) passes(raw any) bool {
	if left, is := raw.(toolscache.DeletedFinalStateUnknown); is {
		raw = left.Obj
	}
	o, err := meta.Accessor(raw)
	if err != nil {
		return true
	}
	kyma := o.GetLabels()[v1beta2.LabelKymaName]
	return kyma == "" || f.cache.isAnnounced(shard.Of(kyma))
}
