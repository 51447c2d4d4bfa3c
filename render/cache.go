package render

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// DefaultCacheMaxBytes is the limit of a Cache that sets none. A typical operator has 50 to 500 kB.
const DefaultCacheMaxBytes = 128 << 20

// Cache keeps bundles by digest, shared by everybody who wants the same. When it would hold more than its limit, it forgets
// what was not asked for the longest; those who use such a bundle keep it. The zero value is ready to use, and it is safe
// for concurrent use.
type Cache struct {
	// MaxBytes is the most that all bundles together may take up in memory, as far as it is known; 0 means DefaultCacheMaxBytes.
	// It must not be changed after first use.
	MaxBytes int

	mu       sync.Mutex
	held     map[string]*list.Element  // guarded by mu; of *cached
	recent   list.List                 // guarded by mu; most recently used first
	bytes    int                       // guarded by mu
	building map[string]*pendingBundle // guarded by mu
}

type cached struct {
	digest string
	bundle *Bundle
	bytes  int
}

// making is a bundle that somebody is making.
type pendingBundle struct {
	done   chan struct{} // closed when the rest is set
	bundle *Bundle
	err    error
}

// Get returns the bundle with this digest, made by make if it is not held. Of several who want the same one at the same
// time, one makes it and the others wait for it; they get its error too, unless it says that only that one's context had
// ended. Errors are not kept. A bundle larger than the limit is returned and not kept. A digest of "" is never shared.
//
// The error is that of make, or of ctx.
func (c *Cache) Get(ctx context.Context, digest string, make func() (*Bundle, error)) (*Bundle, error) {
	if digest == "" {
		return make()
	}
	for {
		c.mu.Lock()
		if element, ok := c.held[digest]; ok {
			c.recent.MoveToFront(element)
			bundle := element.Value.(*cached).bundle
			c.mu.Unlock()
			return bundle, nil
		}
		b, ok := c.building[digest]
		if !ok {
			b = c.beginLocked(digest)
			c.mu.Unlock()
			return c.finish(digest, b, make)
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

func (c *Cache) beginLocked(digest string) *pendingBundle {
	b := &pendingBundle{done: make(chan struct{}), err: context.Canceled} // stays so if make panics: the next one tries again
	if c.building == nil {
		c.building = map[string]*pendingBundle{}
	}
	c.building[digest] = b
	return b
}

func (c *Cache) finish(digest string, b *pendingBundle, make func() (*Bundle, error)) (*Bundle, error) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.building, digest)
		if b.err == nil {
			c.keepLocked(digest, b.bundle)
		}
		close(b.done)
	}()
	b.bundle, b.err = make()
	return b.bundle, b.err
}

func (c *Cache) keepLocked(digest string, bundle *Bundle) {
	limit := c.MaxBytes
	if limit == 0 {
		limit = DefaultCacheMaxBytes
	}
	entry := &cached{digest, bundle, bundle.footprint()}
	if entry.bytes > limit {
		return
	}
	if c.held == nil {
		c.held = map[string]*list.Element{}
	}
	c.held[digest] = c.recent.PushFront(entry)
	for c.bytes += entry.bytes; c.bytes > limit; {
		oldest := c.recent.Remove(c.recent.Back()).(*cached)
		delete(c.held, oldest.digest)
		c.bytes -= oldest.bytes
	}
}

// Forget drops a bundle.
func (c *Cache) Forget(digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.held[digest]; ok {
		delete(c.held, digest)
		c.bytes -= c.recent.Remove(element).(*cached).bytes
	}
}

// Usage returns how many bundles are held, and how many bytes they take up.
func (c *Cache) Usage() (bundles, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held), c.bytes
}

// footprint is about what a bundle takes up in memory: an object has its bytes, itself, and its labels and annotations once more.
func (b *Bundle) footprint() int {
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
