package queueing

import (
	"context"
	"maps"
	"sync"
	"time"
)

// UrgentTimeout is how long a runtime stays urgent at most. A runtime that never gets ready must not hold up others for
// ever.
const UrgentTimeout = 2 * time.Minute

// Urgent is the set of runtimes that a person waits for. Work on them goes before that on others: in the queues of
// controllers by its priority, and at the control plane by the [WriteLimiter]. Safe for concurrent use.
type Urgent struct {
	mu      sync.Mutex
	marked  map[string]time.Time // guarded by mu: since when each runtime is urgent, by name of the Kyma
	changed chan struct{}        // guarded by mu: closed, and replaced, when a runtime is marked
}

// NewUrgent returns an empty set.
func NewUrgent() *Urgent {
	return &Urgent{marked: map[string]time.Time{}, changed: make(chan struct{})}
}

// Mark makes a runtime urgent until [Urgent.Clear], or for [UrgentTimeout]. Marking an urgent runtime again does not
// extend that.
func (u *Urgent) Mark(kyma string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if since, marked := u.marked[kyma]; marked && time.Since(since) < UrgentTimeout {
		return
	}
	u.marked[kyma] = time.Now()
	close(u.changed)
	u.changed = make(chan struct{})
}

// Clear makes a runtime urgent no more, because it has what was asked for or the person has to do something first.
func (u *Urgent) Clear(kyma string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.marked, kyma)
}

// Is reports whether a runtime is urgent.
func (u *Urgent) Is(kyma string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	since, marked := u.marked[kyma]
	return marked && time.Since(since) < UrgentTimeout
}

// Any reports whether any runtime is urgent.
func (u *Urgent) Any() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.marked, func(_ string, since time.Time) bool { return time.Since(since) >= UrgentTimeout })
	return len(u.marked) > 0
}

// Changed returns a channel that is closed when another runtime is marked. Get the channel before asking [Urgent.Is] or
// [IsUrgent], so that no mark is missed in between.
func (u *Urgent) Changed() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.changed
}

// urgentKey is the key of a function in a context that reports whether the runtime of the context is urgent.
type urgentKey struct{}

// Context returns a context for work on a runtime. [IsUrgent] reports for it, at any time, whether that runtime is
// urgent.
func (u *Urgent) Context(ctx context.Context, kyma string) context.Context {
	return context.WithValue(ctx, urgentKey{}, func() bool { return u.Is(kyma) })
}

// IsUrgent reports whether the runtime that a context of [Urgent.Context] is for is urgent now; false for other
// contexts.
func IsUrgent(ctx context.Context) bool {
	is, ok := ctx.Value(urgentKey{}).(func() bool)
	return ok && is()
}

// RequeuePriority returns the priority with which a request is queued again after it was reconciled, for
// [reconcile.Result]. Without it, controller-runtime would keep the priority that the request had: since a queued
// request keeps the highest priority it was added with, a runtime that a person changed once would go before others for
// ever.
func (u *Urgent) RequeuePriority(kyma string) *int {
	if u.Is(kyma) {
		return new(Person.Priority())
	}
	return new(Retry.Priority())
}
