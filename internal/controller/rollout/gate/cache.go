package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

const (
	// Interval is the shortest time between two reads of a gate.
	Interval = 30 * time.Second
	// maxAge is the age from which a result is not used any more. maxAge is longer than Interval, so that the last
	// result is used while a gate is read again.
	maxAge = 2 * Interval
	// maxParallel is the maximum number of gates that are read at the same time, and of webhooks that are notified.
	maxParallel = 8
)

// Cache keeps the last results of gates, and reads the gates in goroutines of its own. Cache is safe for concurrent
// use.
type Cache struct {
	reader  *Reader
	changed func(module string)
	queue   workqueue.TypedInterface[key] // requested reads; one worker at a time has a gate

	mu      sync.Mutex
	entries map[key]*entry // guarded by mu
}

// key identifies a gate of the current stage of a rollout.
type key struct{ rollout, gate string }

// entry is a gate and its last result.
type entry struct {
	validFor  string // see validFor
	rollout   *v1beta2.ModuleRollout
	gate      *v1beta2.RolloutGate
	isPending bool      // a read was requested and has not ended
	requested time.Time // when the last read was requested
	ended     time.Time // when the last read ended; zero: none has ended
	result    v1beta2.RolloutGateStatus
}

// NewCache returns a Cache that reads gates with the given Reader. The Cache calls the function changed after each new
// result, with the module of the rollout.
func NewCache(reader *Reader, changed func(module string)) *Cache {
	return &Cache{reader: reader, changed: changed, entries: map[key]*entry{},
		queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[key]{})}
}

// RequestResults returns the last results of those gates of the current stage of a rollout that need a request, by the
// name of the gate. A gate that was not read yet has no result. RequestResults requests a read of each gate whose last
// read was requested at least one Interval ago, and does not wait for it. The parameter next is the time after which
// RequestResults has to be called again; 0 means that the stage has no such gate.
func (c *Cache) RequestResults(r *v1beta2.ModuleRollout) (results map[string]v1beta2.RolloutGateStatus,
	next time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	results = map[string]v1beta2.RolloutGateStatus{}
	gates := r.Spec.Stages[r.Status.Stage.Index].Gates
	for i := range gates {
		g := &gates[i]
		if g.PromQL == nil && g.Webhook == nil {
			continue
		}
		k, validFor := key{r.Name, g.Name}, validFor(r, g)
		e := c.entries[k]
		if e == nil || e.validFor != validFor {
			e = &entry{validFor: validFor}
			c.entries[k] = e
		}
		if !e.isPending && (e.requested.IsZero() || now.Sub(e.requested) >= Interval) {
			e.rollout, e.gate, e.requested, e.isPending = r.DeepCopy(), g.DeepCopy(), now, true
			c.queue.Add(k)
		}
		if e.isUsable(now) {
			results[g.Name] = e.result
		}
		if due := max(time.Second, e.requested.Add(Interval).Sub(now)); next == 0 || due < next {
			next = due
		}
	}
	return results, next
}

// isUsable reports whether the last result of a gate may be used.
func (e *entry) isUsable(now time.Time) bool { return !e.ended.IsZero() && now.Sub(e.ended) < maxAge }

// validFor identifies what a result is valid for: a result does not count any more in another stage, after another
// soak, after a resumption, or for another query.
func validFor(r *v1beta2.ModuleRollout, g *v1beta2.RolloutGate) string {
	s := &r.Status.Stage
	data, err := json.Marshal(g)
	if err != nil { // not possible: the gate was read as JSON
		data = []byte(err.Error())
	}
	return fmt.Sprintf("%s %d %d %d %d %s", r.UID, s.Index, s.StartedAt.Unix(), s.SoakUntil.Unix(),
		len(r.Spec.Resumptions), data)
}

// Forget removes the results of the rollouts for which the function isForgotten returns true.
func (c *Cache) Forget(isForgotten func(rollout string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.entries, func(k key, _ *entry) bool { return isForgotten(k.rollout) })
}

// Start reads the requested gates until the context ends.
func (c *Cache) Start(ctx context.Context) error {
	processQueue(ctx, c.queue, c.read)
	return nil
}

// processQueue calls the function process with each item of the queue, in maxParallel goroutines, until the context
// ends.
func processQueue[T comparable](ctx context.Context, queue workqueue.TypedInterface[T],
	process func(context.Context, T)) {
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	var workers sync.WaitGroup
	for range maxParallel {
		workers.Go(func() {
			for item, isShutDown := queue.Get(); !isShutDown; item, isShutDown = queue.Get() {
				process(ctx, item)
				queue.Done(item)
			}
		})
	}
	workers.Wait()
}

// read reads one gate if a read is requested, and stores the result.
func (c *Cache) read(ctx context.Context, k key) {
	e, rollout, gate := c.pending(k)
	if e == nil {
		return
	}
	state, message := c.reader.Read(ctx, rollout, gate)
	if ctx.Err() != nil {
		return
	}
	if c.store(k, e, v1beta2.RolloutGateStatus{State: state, Message: message}) {
		c.changed(rollout.Spec.Module)
	}
}

// pending returns the entry of a gate whose read is requested, or nil. When the read has ended, the next request
// replaces the rollout and the gate of the entry.
func (c *Cache) pending(k key) (e *entry, rollout *v1beta2.ModuleRollout, gate *v1beta2.RolloutGate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[k]; e != nil && e.isPending {
		return e, e.rollout, e.gate
	}
	return nil, nil, nil
}

// store stores the result of a read, and reports whether the result differs from the result that RequestResults has
// returned before. If the stage of the rollout has changed during the read, nobody uses the result.
func (c *Cache) store(k key, e *entry, result v1beta2.RolloutGateStatus) (isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	isNew = !e.isUsable(now) || e.result.State != result.State || e.result.Message != result.Message
	e.result, e.ended, e.isPending = result, now, false
	return isNew && c.entries[k] == e
}
