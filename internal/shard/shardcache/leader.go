package shardcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fillTimeout is the time after which a reconcile that waits for the cache of the leader fails, and is retried later.
const fillTimeout = 2 * time.Minute

// LeaderCache is a cache that only the leader starts, and only when the leader reads from it for the first time. Until
// then, the cache sends no request, and its event handlers receive no event. A LeaderCache is for data of the whole
// fleet that only the leader needs. If each replica started it, each replica would watch the whole fleet.
type LeaderCache struct {
	cache.Cache
	once   sync.Once
	needed chan struct{} // closed by the first read
}

// NewLeaderCache returns a LeaderCache that starts the cache c.
func NewLeaderCache(c cache.Cache) *LeaderCache {
	return &LeaderCache{Cache: c, needed: make(chan struct{})}
}

// NeedLeaderElection returns true. A LeaderCache has no method GetCache, so controller-runtime does not start it with
// the other caches, which it starts on all replicas.
func (*LeaderCache) NeedLeaderElection() bool { return true }

// Start waits for the first read, and runs the cache from then on until ctx ends.
func (l *LeaderCache) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.needed:
		return l.Cache.Start(ctx)
	}
}

// List implements [client.Reader]. List waits until the cache contains all objects, so a new leader never acts on a
// part of the fleet. If the cache is not filled within fillTimeout, or if ctx ends first, for example on a replica that
// is not the leader, List returns an error. The cache continues to fill, so a later List may succeed.
func (l *LeaderCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	l.once.Do(func() { close(l.needed) })
	filled, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	if !l.WaitForCacheSync(filled) {
		return fmt.Errorf("waiting until the cache of the leader is filled: %w",
			cmp.Or(filled.Err(), errors.New("the cache has stopped")))
	}
	return l.Cache.List(ctx, list, opts...)
}

// Get is not available: nothing reads a single object from the cache of the leader.
func (*LeaderCache) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("reading an object from the cache of the leader: only List is available")
}
