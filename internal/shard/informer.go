package shard

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
)

// informer is what handlers of a kind are added to: it adds them to the informers of all shards that are open, now and later. It counts as synced from the
// beginning: a shard that is opened is heard of as a list of its own.
type informer struct {
	cache *Cache
	kind  client.Object
	gvk   schema.GroupVersionKind

	handlers []*handling // guarded by cache.mu
}

// handling is a handler of a kind. It is its own registration.
type handling struct {
	handler toolscache.ResourceEventHandler
	options toolscache.HandlerOptions
}

// always is closed.
var always = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// synced is what waits for nothing.
type synced struct{}

// Name implements [toolscache.DoneChecker].
func (synced) Name() string { return "shards" }

// Done implements [toolscache.DoneChecker].
func (synced) Done() <-chan struct{} { return always }

// HasSynced implements [toolscache.ResourceEventHandlerRegistration].
func (*handling) HasSynced() bool { return true }

// HasSyncedChecker implements [toolscache.ResourceEventHandlerRegistration].
func (*handling) HasSyncedChecker() toolscache.DoneChecker { return synced{} }

// hearLocked adds a handler to the informer of a shard. The caller holds cache.mu.
func (i *informer) hearLocked(p *part, h *handling) {
	inner, err := p.GetInformer(p.run, i.kind, cache.BlockUntilSynced(false))
	if err != nil {
		return // it was made by Open, so it is there as long as the shard is
	}
	_, _ = inner.AddEventHandlerWithOptions(h.handler, h.options) // likewise
}

// AddEventHandler implements [cache.Informer].
func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements [cache.Informer].
func (i *informer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, period time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &period})
}

// AddEventHandlerWithOptions implements [cache.Informer].
func (i *informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	h := &handling{handler, o}
	i.cache.mu.Lock()
	defer i.cache.mu.Unlock()
	i.handlers = append(i.handlers, h)
	for _, p := range i.cache.parts {
		if p != nil && p.heard {
			i.hearLocked(p, h)
		}
	}
	return h, nil
}

// RemoveEventHandler implements [cache.Informer]. Of shards that are open, the handler still hears until they are closed.
func (i *informer) RemoveEventHandler(r toolscache.ResourceEventHandlerRegistration) error {
	i.cache.mu.Lock()
	defer i.cache.mu.Unlock()
	i.handlers = slices.DeleteFunc(i.handlers, func(h *handling) bool { return r == h })
	return nil
}

// AddIndexers implements [cache.Informer]: an index is made by IndexField, which knows shards that are opened later.
func (i *informer) AddIndexers(toolscache.Indexers) error {
	return errors.New("adding an index to a kind that is split by shard: use IndexField of the cache")
}

// HasSynced implements [cache.Informer].
func (*informer) HasSynced() bool { return true }

// HasSyncedChecker implements [cache.Informer].
func (*informer) HasSyncedChecker() toolscache.DoneChecker { return synced{} }

// IsStopped implements [cache.Informer].
func (*informer) IsStopped() bool { return false }

// objects returns what a cache has of the kind. Nobody may change them.
func (i *informer) objects(ctx context.Context, from client.Reader) []runtime.Object {
	gvk := i.gvk.GroupVersion().WithKind(i.gvk.Kind + "List")
	var list client.ObjectList
	if _, slim := i.kind.(*metav1.PartialObjectMetadata); slim {
		of := &metav1.PartialObjectMetadataList{}
		of.SetGroupVersionKind(gvk)
		list = of
	} else if made, err := i.cache.Scheme.New(gvk); err == nil {
		list = made.(client.ObjectList) // by its name
	}
	if err := from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache has ended, and with it the process
	}
	items, _ := meta.ExtractList(list) // a list has items
	return items
}

// replayed is the informer of a kind of Base whose handlers hear of shards that are opened and closed, too.
type replayed struct {
	cache.Informer
	of *informer
}

// AddEventHandler implements [cache.Informer].
func (r *replayed) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return r.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithOptions implements [cache.Informer].
func (r *replayed) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	r.of.cache.mu.Lock()
	r.of.handlers = append(r.of.handlers, &handling{h, o})
	r.of.cache.mu.Unlock()
	return r.Informer.AddEventHandlerWithOptions(h, o)
}
