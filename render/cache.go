package render

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// DefaultCacheMaxBytes is the limit of a Cache whose MaxBytes is 0. The bundle of a typical operator has 50 to 500 kB.
const DefaultCacheMaxBytes = 128 << 20

// Cache stores bundles by digest. All callers share the same stored bundles. When the bundles exceed MaxBytes, the
// Cache removes the bundles that were not requested for the longest time. A caller that has received a bundle can use
// it even after the Cache has removed the bundle. The zero value of a Cache is ready to use. A Cache is safe for
// concurrent use.
type Cache struct {
	// MaxBytes limits the approximate memory of all bundles together; 0 means DefaultCacheMaxBytes. MaxBytes must not
	// be changed after the first use of the Cache.
	MaxBytes int

	mu       sync.Mutex
	stored   map[string]*list.Element  // guarded by mu; the elements contain *cached
	recent   list.List                 // guarded by mu; most recently used first
	bytes    int                       // guarded by mu
	building map[string]*pendingBundle // guarded by mu
}

type cached struct {
	digest string
	bundle *Bundle
	bytes  int
}

// pendingBundle is a bundle that a caller is building.
type pendingBundle struct {
	done   chan struct{} // closed when the other fields are set
	bundle *Bundle
	err    error
}

// Get returns the bundle with the given digest. If the bundle is not stored, Get calls the function make, which builds
// the bundle. If several callers request the same bundle at the same time, one caller builds the bundle and the others
// wait. If building fails, all callers that wait for the bundle receive the same error. If building was interrupted
// because the context of the caller that builds has ended, another caller builds the bundle. Errors are not stored. A
// bundle larger than the limit is returned but not stored. If digest is "", the bundle is neither shared between
// callers nor stored.
//
// Get returns the error of the function make, or the error of ctx.
func (c *Cache) Get(ctx context.Context, digest string, make func() (*Bundle, error)) (*Bundle, error) {
	if digest == "" {
		return make()
	}
	for {
		c.mu.Lock()
		if element, ok := c.stored[digest]; ok {
			c.recent.MoveToFront(element)
			bundle := element.Value.(*cached).bundle
			c.mu.Unlock()
			return bundle, nil
		}
		b, ok := c.building[digest]
		if !ok {
			b = c.addPendingLocked(digest)
			c.mu.Unlock()
			return c.buildAndStore(digest, b, make)
		}
		c.mu.Unlock()
		select {
		case <-b.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if b.err == nil || !errors.Is(b.err, context.Canceled) && !errors.Is(b.err, context.DeadlineExceeded) {
			return b.bundle, b.err
		}
	}
}

func (c *Cache) addPendingLocked(digest string) *pendingBundle {
	b := &pendingBundle{done: make(chan struct{}), err: context.Canceled} // stays if make panics
	if c.building == nil {
		c.building = map[string]*pendingBundle{}
	}
	c.building[digest] = b
	return b
}

func (c *Cache) buildAndStore(digest string, b *pendingBundle, make func() (*Bundle, error)) (*Bundle, error) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.building, digest)
		if b.err == nil {
			c.storeLocked(digest, b.bundle)
		}
		close(b.done)
	}()
	b.bundle, b.err = make()
	return b.bundle, b.err
}

func (c *Cache) storeLocked(digest string, bundle *Bundle) {
	limit := c.MaxBytes
	if limit == 0 {
		limit = DefaultCacheMaxBytes
	}
	entry := &cached{digest, bundle, bundle.memoryBytes()}
	if entry.bytes > limit {
		return
	}
	if c.stored == nil {
		c.stored = map[string]*list.Element{}
	}
	c.stored[digest] = c.recent.PushFront(entry)
	for c.bytes += entry.bytes; c.bytes > limit; {
		oldest := c.recent.Remove(c.recent.Back()).(*cached)
		delete(c.stored, oldest.digest)
		c.bytes -= oldest.bytes
	}
}

// Forget removes the bundle with the given digest.
func (c *Cache) Forget(digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.stored[digest]; ok {
		delete(c.stored, digest)
		c.bytes -= c.recent.Remove(element).(*cached).bytes
	}
}

// Usage returns the number of stored bundles and the number of bytes that they use.
func (c *Cache) Usage() (bundles, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.stored), c.bytes
}

// memoryBytes returns the approximate memory of a bundle: the encoded bytes, the Object structs, and the labels and
// annotations, which are stored twice.
func (b *Bundle) memoryBytes() int {
	bytes := 256
	for _, o := range b.Objects {
		bytes += 768 + cap(o.data)
		for _, p := range o.labels {
			bytes += 32 + len(p.key) + len(p.value)
		}
		for _, p := range o.annotations {
			bytes += 32 + len(p.key) + len(p.value)
		}
	}
	return bytes
}
