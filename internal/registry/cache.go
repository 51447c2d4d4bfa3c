package registry

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/retry"
)

// cache stores values up to a maximum total cost. When the limit is exceeded, cache removes the least recently used
// values.
type cache[V any] struct {
	limit int64
	now   func() time.Time

	mu      sync.Mutex // guards the fields below
	used    int64
	order   *list.List // elements of type *entry[V], most recently used first
	entries map[string]*list.Element
}

type entry[V any] struct {
	key     string
	value   V
	cost    int64
	stored  time.Time
	expires time.Time // zero means that the entry never expires
}

func newCache[V any](limit int64, now func() time.Time) *cache[V] {
	return &cache[V]{limit: limit, now: now, order: list.New(), entries: map[string]*list.Element{}}
}

func (c *cache[V]) get(key string) (V, bool) {
	value, _, ok := c.getDated(key)
	return value, ok
}

// getUnlessRetried is like get, for values that may have changed in the registry in the meantime. If a person has
// requested a retry and ctx belongs to this retry, getUnlessRetried returns no value that was stored before the
// request.
func (c *cache[V]) getUnlessRetried(ctx context.Context, key string) (V, bool) {
	value, stored, ok := c.getDated(key)
	if ok && retry.IsOutdated(ctx, stored) {
		var none V
		return none, false
	}
	return value, ok
}

// getDated returns a value and the time at which it was stored.
func (c *cache[V]) getDated(key string) (value V, stored time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element, ok := c.entries[key]
	if !ok {
		return value, stored, false
	}
	e := element.Value.(*entry[V])
	if !e.expires.IsZero() && !c.now().Before(e.expires) {
		c.removeLocked(element)
		return value, stored, false
	}
	c.order.MoveToFront(element)
	return e.value, e.stored, true
}

// put stores a value for the duration keep. If the duration is 0, the value is stored until it has to be removed to
// make room. A value whose cost is larger than the limit is not stored.
func (c *cache[V]) put(key string, value V, cost int64, keep time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[key]; ok {
		c.removeLocked(element)
	}
	if cost > c.limit {
		return
	}
	e := &entry[V]{key: key, value: value, cost: cost, stored: c.now()}
	if keep > 0 {
		e.expires = c.now().Add(keep)
	}
	c.entries[key] = c.order.PushFront(e)
	c.used += cost
	for c.used > c.limit {
		c.removeLocked(c.order.Back())
	}
}

func (c *cache[V]) remove(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[key]; ok {
		c.removeLocked(element)
	}
}

func (c *cache[V]) removeLocked(element *list.Element) {
	e := c.order.Remove(element).(*entry[V])
	delete(c.entries, e.key)
	c.used -= e.cost
}
