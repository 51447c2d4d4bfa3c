package loop

import (
	"maps"
	"sync"
)

// Memory holds what a controller remembers of each object between reconciles. The zero value is empty and ready for
// use. The map is safe for concurrent use; the values are guarded by whoever uses them, usually by the fact that one
// object is reconciled by one worker at a time.
type Memory[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]*V // guarded by mu
}

// Get returns what is remembered of an object, nil if nothing is.
func (m *Memory[K, V]) Get(key K) *V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries[key]
}

// Update replaces what is remembered of an object with what replace makes of it, and returns that. The function gets
// nil if nothing is remembered, and runs under the lock of the Memory. If it returns nil, the object is forgotten.
func (m *Memory[K, V]) Update(key K, replace func(old *V) *V) *V {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := replace(m.entries[key])
	if v == nil {
		delete(m.entries, key)
		return nil
	}
	if m.entries == nil {
		m.entries = map[K]*V{}
	}
	m.entries[key] = v
	return v
}

// GetOrCreate returns what is remembered of an object, made by create if nothing was.
func (m *Memory[K, V]) GetOrCreate(key K, create func() *V) *V {
	return m.Update(key, func(old *V) *V {
		if old != nil {
			return old
		}
		return create()
	})
}

// Forget forgets an object and returns what was remembered of it, nil if nothing was.
func (m *Memory[K, V]) Forget(key K) *V {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.entries[key]
	delete(m.entries, key)
	return v
}

// Len returns the number of objects that something is remembered of.
func (m *Memory[K, V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}

// All returns a copy of the map from each object to what is remembered of it.
func (m *Memory[K, V]) All() map[K]*V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.entries)
}
