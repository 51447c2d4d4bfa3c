package loop

import (
	"maps"
	"sync"
)

// Memory stores a value for each object between the reconciles of a controller. The zero value is empty and ready to
// use. The methods of Memory are safe for concurrent use. A stored value has no lock: if several goroutines use the
// same value, the controller has to add a lock. Usually a stored value needs no lock, because only one worker at a time
// reconciles an object.
type Memory[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]*V // guarded by mu
}

// Get returns the value that is stored for an object, or nil if there is none.
func (m *Memory[K, V]) Get(key K) *V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries[key]
}

// Update calls the function replace with the value that is stored for an object, stores its result, and returns it. If
// no value is stored for the object, the function replace gets nil. If the function replace returns nil, the stored
// value is removed. While the function replace runs, the Memory is locked.
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

// GetOrCreate returns the value that is stored for an object. If there is no value, GetOrCreate stores and returns the
// result of create.
func (m *Memory[K, V]) GetOrCreate(key K, create func() *V) *V {
	return m.Update(key, func(old *V) *V {
		if old != nil {
			return old
		}
		return create()
	})
}

// Forget removes the value that is stored for an object and returns it. Forget returns nil if there is no value.
func (m *Memory[K, V]) Forget(key K) *V {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.entries[key]
	delete(m.entries, key)
	return v
}

// Len returns the number of stored values.
func (m *Memory[K, V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}

// All returns a copy of the map with the stored values, by object.
func (m *Memory[K, V]) All() map[K]*V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.entries)
}
