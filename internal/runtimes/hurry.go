package runtimes

import (
	"context"
	"maps"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// What a person waits for comes before what concerns the fleet: in the queues of controllers by its priority, and at the control plane by what
// the manager lets through.

// hurry is how long somebody counts as waiting for a runtime at most: one that is never Ready must not hold up others for ever.
const hurry = 2 * time.Minute

// Hurry says that somebody has changed what a runtime is to have, and waits for it: its turn comes before that of others.
func (p *Pool) Hurry(kyma string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hurried == nil {
		p.hurried = map[string]time.Time{}
	}
	if since, already := p.hurried[kyma]; !already || time.Since(since) >= hurry {
		p.hurried[kyma] = time.Now()
		close(p.hurrying)
		p.hurrying = make(chan struct{})
	}
}

// Hurrying returns a channel that is closed when somebody begins to wait for another runtime.
func (p *Pool) Hurrying() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hurrying
}

// Rest says that there is nothing to wait for any more.
func (p *Pool) Rest(kyma string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.hurried, kyma)
}

// Hurries tells whether somebody waits for a runtime.
func (p *Pool) Hurries(kyma string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, waits := p.hurried[kyma]
	return waits && time.Since(since) < hurry
}

// HurriesAny tells whether somebody waits for any runtime.
func (p *Pool) HurriesAny() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.hurried, func(_ string, since time.Time) bool { return time.Since(since) >= hurry })
	return len(p.hurried) > 0
}

// hurriedKey is what IsHurried finds in a context.
type hurriedKey struct{}

// Hurried returns a context for work on a runtime that is known to be hurried while somebody waits for that runtime.
func (p *Pool) Hurried(ctx context.Context, kyma string) context.Context {
	return context.WithValue(ctx, hurriedKey{}, func() bool { return p.Hurries(kyma) })
}

// IsHurried tells whether somebody waits for the work that a context is for, see [Pool.Hurried].
func IsHurried(ctx context.Context) bool {
	hurries, known := ctx.Value(hurriedKey{}).(func() bool)
	return known && hurries()
}

// Priorities of passes, for queues that know such a thing. What a program finds when it starts has less than any.
const (
	// PriorityPerson is for what a person waits for.
	PriorityPerson = 10
	// PriorityFleet is for what concerns many runtimes at once, such as a new version.
	PriorityFleet = -50
)

// Again returns the priority of a pass that comes back by itself, for [reconcile.Result]. Without it a pass would come back with the priority that it had,
// and as an item in a queue keeps the highest that it is given, a runtime that a person has changed once would overtake others for ever after.
func (p *Pool) Again(kyma string) *int {
	if p.Hurries(kyma) {
		return new(PriorityPerson)
	}
	return new(PriorityFleet)
}

// Enqueue puts an item into the queue of a controller with a priority. An item that is there already keeps the higher one.
func Enqueue(q workqueue.TypedRateLimitingInterface[reconcile.Request], priority int, after time.Duration, item reconcile.Request) {
	if prioritised, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		prioritised.AddWithOpts(priorityqueue.AddOpts{Priority: &priority, After: after}, item)
		return
	}
	q.AddAfter(item, after)
}
