// Package outbox delivers events to the listener in the control plane.
//
// # Use
//
//	q := outbox.New(bootID, 10_000, metrics)
//	p := outbox.NewPoster("listener.example.com:443", "v2", log, metrics, q.ListenerAnswered)
//	p.UseCertificate(roots, certificate)
//	q.Add(manager, outbox.Change{Event: event})
//	q.Run(ctx, p.Deliver)
//
// # How it works
//
// A Queue has one lane for each manager, and in it at most one entry for each object, with its newest event. The first event of an object is
// sent at once, further ones at most every 500 ms. Events are delivered at least once: a failed one is sent again, with a back-off, until the
// listener accepts or refuses it.
//
// Memory is limited. When there are too many entries, all entries of a resource are replaced by one event that any of its objects may have
// changed. When there is no room for that either, the event is lost, and counted for the next heartbeat.
//
// When another process of the listener answers than before, events that were delivered in the last minute are delivered again, because the
// former process may have ended before it acted on them.
//
// # What it does not do
//
// It does not survive the process: an agent that starts reports the start of each watch.
package outbox

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// Limits of a queue.
const (
	spacing       = 500 * time.Millisecond // between two events about one object to one manager
	memory        = time.Minute            // how long before the last answer something was delivered that is still known
	maxLanes      = 64                     // managers that are told
	maxBacklog    = 1000                   // pending events for one manager: the listener takes 100 a second from a runtime
	maxObjects    = 500                    // pending events that have more than names
	maxSends      = 15                     // requests at the same time; the listener takes 16 from a runtime, and heartbeats need one
	MinRetryDelay = 250 * time.Millisecond // back-off after the first failure
	maxRetryDelay = 15 * time.Second       // and after many
	drainTime     = 3 * time.Second        // for what is pending when the agent ends
)

// Result is the result of one attempt to deliver an event.
type Result struct {
	// Delivered is true if the listener accepted the event, Refused if it never will. If neither is true, the event has to be sent again.
	Delivered, Refused bool
	// RetryAfter is the time in which the listener wants no request, 0 if it did not say. Throttled is true if only the rate was too high.
	RetryAfter time.Duration
	Throttled  bool
}

// queue holds what is to be told, and remembers what was told lately.
//
// There is a lane per manager. In it is at most one entry per object, which has the newest state: what changes often is told at once, and then
// every 500 ms. When sending fails, the lane waits, longer and longer, and then tries with one entry; when that arrives, all follow. An entry that
// fails while others get through has a back-off of its own.
type Queue struct {
	bootID  string
	max     int // pending entries of all lanes
	metrics Metrics
	kick    chan struct{} // something may be due

	mu        sync.Mutex // guards what follows
	lanes     map[string]*lane
	pending   int // entries of all lanes
	sending   int
	order     uint64
	instances []string  // listeners that have answered lately, the newest last
	answered  time.Time // when one of them answered last
}

// lane is what is to be told to one manager.
type lane struct {
	manager  string
	entries  map[key]*entry
	waiting  schedule // those of the entries that are not being sent
	sending  int
	failures int       // in a row
	paused   time.Time // nothing is sent before
	sequence uint64
	lost     int // events that were dropped and that no Began makes up for

	delivered map[key]delivery
	log       []logged          // oldest first; what was delivered again is in it again
	forgotten map[key]time.Time // resources of which deliveries had to be forgotten, and when
}

// key is what an event is about. Without a name, it is the whole resource.
type key struct {
	kind                      metav1.GroupVersionKind
	resource, namespace, name string
}

// whole is the key of all objects of the resource.
func (k key) whole() key { return key{kind: k.kind, resource: k.resource} }

type entry struct {
	key      key
	event    protocol.Event
	at       time.Time // not to be sent before
	order    uint64
	index    int // in the schedule, -1 while it is being sent
	attempts int
	repeat   time.Duration // if positive, it is told again so long after it was delivered
	next     *Change       // what came while it was being sent
}

// Change is an event to deliver.
type Change struct {
	Event protocol.Event
	// Delay is the time before the event is sent.
	Delay time.Duration
	// RepeatAfter, if positive, delivers the event a second time, so long after the first.
	RepeatAfter time.Duration

	redelivery bool // it was delivered before
}

type delivery struct {
	at       time.Time
	sequence uint64
	deleted  bool
}

// logged is a delivery, unless the object was delivered again since.
type logged struct {
	key key
	at  time.Time
}

func New(bootID string, limit int, m Metrics) *Queue {
	return &Queue{bootID: bootID, max: limit, metrics: m, kick: make(chan struct{}, 1), lanes: map[string]*lane{}}
}

// BootID returns the boot ID of the events.
func (q *Queue) BootID() string { return q.bootID }

// Limit returns the number of events that may be pending.
func (q *Queue) Limit() int { return q.max }

func keyOf(e protocol.Event) key {
	return key{kind: e.WatchedGVK, resource: e.Resource, namespace: e.Watched.Namespace, name: e.Watched.Name}
}

// Add takes what a manager is to be told. It never blocks.
func (q *Queue) Add(manager string, c Change) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.laneLocked(manager)
	if l == nil {
		q.metrics.Lost.Inc()
		return
	}
	q.addLocked(l, c)
	q.wake()
}

// laneLocked returns the lane of a manager, nil if there are too many.
func (q *Queue) laneLocked(manager string) *lane {
	l := q.lanes[manager]
	if l == nil && len(q.lanes) < maxLanes {
		l = &lane{manager: manager, entries: map[key]*entry{}, delivered: map[key]delivery{}, forgotten: map[key]time.Time{}}
		q.lanes[manager] = l
	}
	return l
}

func (q *Queue) addLocked(l *lane, c Change) {
	k, now := keyOf(c.Event), time.Now()
	if e := l.entries[k]; e != nil {
		q.renewLocked(l, e, c, now)
		return
	}
	if whole := l.entries[k.whole()]; k.name != "" && whole != nil && whole.index >= 0 && c.Delay == 0 && c.RepeatAfter == 0 {
		whole.event.ObjectsComplete, whole.event.Objects = false, nil // that anything may have changed is told after this change, and says it too
		return
	}
	if q.pending >= q.max || len(l.entries) >= maxBacklog {
		room := q.collapseLocked(l, k)
		if !room {
			l.lost++
			q.metrics.Lost.Inc()
			return
		}
		k = k.whole()
		c = Change{Event: began(k)}
		if e := l.entries[k]; e != nil {
			q.renewLocked(l, e, c, now)
			return
		}
	}
	if q.pending >= maxObjects {
		c.Event = namesOnly(c.Event)
	}
	l.sequence++
	c.Event.BootID, c.Event.Sequence = q.bootID, l.sequence
	at := now.Add(c.Delay)
	if d, lately := l.delivered[k]; lately && d.at.Add(spacing).After(at) {
		at = d.at.Add(spacing)
	}
	q.pushLocked(l, &entry{key: k, event: c.Event, at: at, repeat: c.RepeatAfter})
	if !c.redelivery {
		q.metrics.Events.Inc()
	}
}

// began is the event that says that anything of a resource may have changed.
func began(k key) protocol.Event {
	return protocol.Event{WatchedGVK: k.kind, Resource: k.resource, WatchStarted: true}
}

// namesOnly returns an event without metadata, for the sake of memory.
func namesOnly(e protocol.Event) protocol.Event {
	e.Object, e.ObjectsComplete, e.Objects = nil, false, nil
	return e
}

func (q *Queue) pushLocked(l *lane, e *entry) {
	q.order++
	e.order = q.order
	l.entries[e.key] = e
	q.pending++
	heap.Push(&l.waiting, e)
}

// renewLocked replaces what is to be told of an object by something newer. The number stays: the event was not delivered under it yet.
func (q *Queue) renewLocked(l *lane, e *entry, c Change, now time.Time) {
	if e.index < 0 {
		if e.next != nil {
			c.Delay, c.RepeatAfter = min(c.Delay, e.next.Delay), max(c.RepeatAfter, e.next.RepeatAfter)
		}
		e.next = &c
		return
	}
	c.Event.BootID, c.Event.Sequence = e.event.BootID, e.event.Sequence
	if q.pending > maxObjects {
		c.Event = namesOnly(c.Event)
	}
	e.event, e.repeat = c.Event, max(c.RepeatAfter, e.repeat)
	at := now.Add(c.Delay)
	if d, lately := l.delivered[e.key]; lately && d.at.Add(spacing).After(at) {
		at = d.at.Add(spacing)
	}
	if at.Before(e.at) && e.attempts == 0 {
		e.at = at
		heap.Fix(&l.waiting, e.index)
	}
}

// collapseLocked makes room by telling of a whole resource instead of its objects: that of the key, or if it has none pending the one that
// has most. It tells whether there is room; then the whole resource of the key is to be told of.
func (q *Queue) collapseLocked(l *lane, k key) bool {
	if q.dropLocked(l, k.whole()) > 0 || l.entries[k.whole()] != nil {
		return true
	}
	var most key
	var in *lane
	count := 1 // one for another is no gain
	for _, other := range q.lanes {
		if other != l && len(l.entries) >= maxBacklog {
			continue
		}
		sizes := map[key]int{}
		for _, e := range other.waiting {
			if e.key.name != "" {
				sizes[e.key.whole()]++
			}
		}
		for whole, n := range sizes {
			if n > count {
				most, in, count = whole, other, n
			}
		}
	}
	if in == nil {
		return false
	}
	q.dropLocked(in, most)
	if in.entries[most] == nil {
		in.sequence++
		e := began(most)
		e.BootID, e.Sequence = q.bootID, in.sequence
		q.pushLocked(in, &entry{key: most, event: e, at: time.Now()})
	}
	return true
}

// dropLocked removes the entries of all objects of a resource that are waiting, and returns how many there were.
func (q *Queue) dropLocked(l *lane, whole key) int {
	var kept schedule
	dropped := 0
	for _, e := range l.waiting {
		if e.key.name == "" || e.key.whole() != whole {
			e.index = len(kept)
			kept = append(kept, e)
			continue
		}
		delete(l.entries, e.key)
		dropped++
	}
	q.pending -= dropped
	l.waiting = kept
	heap.Init(&l.waiting)
	return dropped
}

// Run sends what is due until ctx ends, and then for a moment more what is pending.
func (q *Queue) Run(ctx context.Context, deliver func(ctx context.Context, manager string, e protocol.Event) Result) {
	sends, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	ended := ctx.Done()
	var drained <-chan time.Time
	for {
		due, pending := q.dispatch(sends, &wg, deliver)
		if drained != nil && pending == 0 {
			return
		}
		if due.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(max(time.Until(due), time.Millisecond))
		}
		select {
		case <-q.kick:
		case <-timer.C:
		case <-ended:
			ended, drained = nil, time.After(drainTime)
		case <-drained:
			return
		}
	}
}

// dispatch starts to send what is due. It returns when something more will be, zero if that takes a kick.
func (q *Queue) dispatch(ctx context.Context, wg *sync.WaitGroup, deliver func(context.Context, string, protocol.Event) Result) (due time.Time, pending int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for _, l := range q.lanes {
		for len(l.waiting) > 0 && l.sending < q.shareLocked(l) {
			e := l.waiting[0]
			if at := later(e.at, l.paused); at.After(now) {
				if due.IsZero() || at.Before(due) {
					due = at
				}
				break
			}
			heap.Pop(&l.waiting)
			l.sending++
			q.sending++
			event := e.event
			wg.Go(func() { q.sent(l, e, deliver(ctx, l.manager, event)) })
		}
	}
	return due, q.pending
}

// shareLocked returns how many requests a lane may have under way: half of what others leave, so that there is something left for the next
// lane; and one if the last failed.
func (q *Queue) shareLocked(l *lane) int {
	left := maxSends - q.sending + l.sending
	if l.failures > 0 {
		return min(1, left)
	}
	return (left + 1) / 2
}

// sent notes what became of an attempt.
func (q *Queue) sent(l *lane, e *entry, o Result) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.wake()
	l.sending--
	q.sending--
	if !o.Delivered && !o.Refused {
		q.failedLocked(l, e, o)
		return
	}
	l.failures, l.paused = 0, time.Time{}
	delete(l.entries, e.key)
	q.pending--
	if o.Delivered {
		q.rememberLocked(l, e)
	} else {
		l.lost++
		q.metrics.Lost.Inc()
	}
	switch {
	case e.next != nil:
		q.addLocked(l, *e.next)
	case e.repeat > 0 && o.Delivered:
		e.event.ObjectsComplete, e.event.Objects = false, nil // by then, it was long ago
		q.addLocked(l, Change{Event: e.event, Delay: e.repeat, redelivery: true})
	}
}

// failedLocked puts an entry back. If others got through since it failed before, it is the entry; else it is the way.
func (q *Queue) failedLocked(l *lane, e *entry, o Result) {
	now := time.Now()
	if e.next != nil {
		e.next.Event.BootID, e.next.Event.Sequence = e.event.BootID, e.event.Sequence
		e.event, e.repeat, e.next = e.next.Event, max(e.repeat, e.next.RepeatAfter), nil
	}
	if q.pending > maxObjects {
		e.event = namesOnly(e.event)
	}
	e.at = now
	switch {
	case o.Throttled:
		l.paused = later(l.paused, now.Add(o.RetryAfter+rand.N(o.RetryAfter/4+MinRetryDelay)))
	case e.attempts > 0 && l.failures == 0:
		e.attempts++
		e.at = now.Add(max(o.RetryAfter, Backoff(e.attempts)))
	default:
		e.attempts++
		if !l.paused.After(now) {
			l.failures++
			l.paused = now.Add(max(o.RetryAfter, Backoff(l.failures)))
		}
	}
	q.order++
	e.order = q.order // behind the others
	heap.Push(&l.waiting, e)
}

// State returns what a heartbeat says of a lane.
func (q *Queue) State(manager string) (sequence uint64, pending, lost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[manager]
	if l == nil {
		return 0, 0, 0
	}
	pending = len(l.entries)
	for _, e := range l.entries {
		if e.next != nil {
			pending++
		}
	}
	return l.sequence, pending, l.lost
}

// told notes that a heartbeat arrived, so that the control plane knows of lost events, and can be reached.
func (q *Queue) HeartbeatDelivered(manager string, lost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lanes[manager]; l != nil {
		l.lost -= lost
		l.paused = time.Time{}
	}
	q.wake()
}

// Size returns the number of entries.
func (q *Queue) Size() float64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return float64(q.pending)
}

func (q *Queue) wake() {
	select {
	case q.kick <- struct{}{}:
	default:
	}
}
