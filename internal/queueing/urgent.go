package queueing

import (
	"context"
	"sync"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/budget"
)

// UrgentTimeout is the maximum time for which one mark makes a runtime urgent. The time is limited, because a runtime
// that never becomes ready must not delay other runtimes forever.
const UrgentTimeout = 2 * time.Minute

// The urgent time of each runtime is limited, too: the administrator of a runtime can change its Kyma at any rate, and
// can prevent that the runtime becomes ready. Above the limit, a change is handled with the usual priority.
const (
	// urgentToken is the urgent time for which a runtime needs one token. A mark that ends earlier costs one token,
	// too. It is the usual time in which a module becomes ready.
	urgentToken = 15 * time.Second
	// urgentBurst is the number of tokens that a runtime has at most: enough for 40 changes in a row, or for 10 minutes
	// in a row. A person changes a Kyma a few times in a minute.
	urgentBurst = 40
	// urgentTokenInterval is the time after which a runtime gets one more token. A runtime without tokens can therefore
	// be urgent for a twentieth of the time.
	urgentTokenInterval = 5 * time.Minute
)

// Urgent is the set of urgent runtimes: the runtimes for which a person waits. Work on urgent runtimes comes before
// work on other runtimes. In the queues of controllers, urgent requests have a higher priority. At the control plane,
// the [WriteLimiter] does not delay urgent writes. Urgent is safe for concurrent use.
type Urgent struct {
	tokens *budget.Budget // of urgent time

	mu      sync.Mutex
	marked  map[string]time.Time // guarded by mu: time when each runtime was marked, by name of the Kyma
	changed chan struct{}        // guarded by mu: closed and replaced when a runtime is marked
}

// NewUrgent returns an empty set.
func NewUrgent() *Urgent {
	return &Urgent{tokens: budget.New(urgentBurst, urgentTokenInterval), marked: map[string]time.Time{},
		changed: make(chan struct{})}
}

// Mark makes a runtime urgent until [Urgent.Clear] is called or [UrgentTimeout] has passed. If the runtime is urgent
// already, Mark does not extend the time for which it stays urgent. Mark returns false if the runtime was urgent too
// often or for too long: the runtime does not become urgent then.
func (u *Urgent) Mark(kyma string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if since, marked := u.marked[kyma]; marked {
		if now.Sub(since) < UrgentTimeout {
			return true
		}
		u.endLocked(kyma, now)
	}
	if u.tokens.Take(kyma, now) > 0 {
		return false
	}
	u.marked[kyma] = now
	close(u.changed)
	u.changed = make(chan struct{})
	return true
}

// endLocked deletes the mark of a runtime, and takes the tokens for the time that the runtime was urgent. Mark has
// already taken the first of these tokens.
func (u *Urgent) endLocked(kyma string, now time.Time) {
	since, marked := u.marked[kyma]
	if !marked {
		return
	}
	delete(u.marked, kyma)
	wasUrgent := min(now.Sub(since), UrgentTimeout)
	u.tokens.Charge(kyma, int((wasUrgent-1)/urgentToken), now)
}

// Clear ends the urgency of a runtime. A controller calls Clear when the runtime has its desired state, or when the
// person who changed it has to act before the controller can continue.
func (u *Urgent) Clear(kyma string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.endLocked(kyma, time.Now())
}

// Is reports whether a runtime is urgent.
func (u *Urgent) Is(kyma string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	since, marked := u.marked[kyma]
	return marked && time.Since(since) < UrgentTimeout
}

// Any reports whether any runtime is urgent. Each write to the control plane calls Any, so Any stops at the first
// urgent runtime, and deletes the expired marks that it has seen until then.
func (u *Urgent) Any() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for kyma, since := range u.marked {
		if time.Since(since) < UrgentTimeout {
			return true
		}
		u.endLocked(kyma, time.Now())
	}
	return false
}

// Changed returns a channel that is closed when another runtime becomes urgent. To wait until a runtime is urgent, call
// Changed first, then [Urgent.Is] or [IsUrgent]: if the runtime becomes urgent between the two calls, the channel is
// closed.
func (u *Urgent) Changed() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.changed
}

// urgentKey is the key under which a context stores the function that reports whether the runtime of the context is
// urgent.
type urgentKey struct{}

// Context returns a context for the work on a runtime. With this context, [IsUrgent] reports at any time whether the
// runtime is urgent.
func (u *Urgent) Context(ctx context.Context, kyma string) context.Context {
	return context.WithValue(ctx, urgentKey{}, func() bool { return u.Is(kyma) })
}

// IsUrgent reports whether the runtime that [Urgent.Context] has stored in the context is urgent now. If the context
// contains no runtime, IsUrgent returns false.
func IsUrgent(ctx context.Context) bool {
	is, ok := ctx.Value(urgentKey{}).(func() bool)
	return ok && is()
}

// RequeuePriority returns the priority with which a request is requeued after a reconcile, for use in
// [reconcile.Result]. If the result contains no priority, controller-runtime keeps the former priority of the request.
// Without RequeuePriority, the request for a runtime that a person has changed once would therefore keep its high
// priority forever.
func (u *Urgent) RequeuePriority(kyma string) *int {
	if u.Is(kyma) {
		return new(Person.Priority())
	}
	return new(Retry.Priority())
}
