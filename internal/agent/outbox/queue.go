// Package outbox delivers events to the listener in the control plane.
//
// # Use
//
//	q := outbox.New(bootID, 10_000, metrics)
//	p := outbox.NewPoster("listener.example.com:443", "v2", log, metrics, q.RedeliverIfNewListener)
//	p.UseCertificate(roots, certificate)
//	q.Add(manager, outbox.Change{Event: event})
//	q.Run(ctx, p.Deliver)
//
// # How it works
//
// A Queue has one lane for each manager. A lane has at most one entry for each object: the newest event about that
// object. The first event about an object is sent at once. Further events about the same object are sent at intervals
// of at least 500 ms. Events are delivered at least once: an event that could not be delivered is sent again, with
// back-off, until the listener accepts or refuses it.
//
// A manager that is not on the watch list may be gone for good: its Watcher was deleted. If the listener has not known
// such a manager for ten minutes, its lane is emptied.
//
// The memory of a Queue is limited. If there are too many entries, one event replaces all entries of a resource. An
// event about a resource names no single object: it means that any object of the resource may have changed. If the
// queue has no room even for such an event about a resource, the new event is lost. After a loss, the next heartbeat
// reports that events were lost.
//
// If an answer comes from another process of the listener than before, the events of the last minute are delivered
// again, because the former process of the listener may have ended before it handled these events.
//
// # What it does not do
//
// A Queue does not store events on disk, so events are lost when the agent ends. When the agent starts again, it
// reports the start of each watch, and the manager then assumes that any object of this watch may have changed.
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

// The limits of a Queue.
const (
	// MinRetryDelay is the delay of the next attempt after the first failure.
	MinRetryDelay = 250 * time.Millisecond
	maxRetryDelay = 15 * time.Second // maximum delay, reached after many failures

	minEventInterval = 500 * time.Millisecond // minimum time between two events about one object to one manager
	// redeliveryPeriod limits which deliveries are repeated when a new process of the listener answers: those that were
	// made less than redeliveryPeriod before the last answer of the former process.
	redeliveryPeriod = time.Minute
	drainTimeout     = 3 * time.Second // time to send pending events when the agent ends
	maxLanes         = 64              // maximum number of managers
	// unknownManagerTimeout is how long the answers for a manager that is not on the watch list must have been 404
	// before its lane is emptied. A new manager may be known to the listener later than its events are sent.
	unknownManagerTimeout = 10 * time.Minute
	// maxLaneEntries is the maximum number of pending events for one manager. The listener accepts 100 events a second
	// from a runtime, so it takes about ten seconds to deliver as many events.
	maxLaneEntries     = 1000
	maxMetadataEntries = 500 // maximum number of pending events that contain metadata
	maxRequests        = 15  // concurrent requests; the listener accepts 16 from a runtime, and heartbeats need one
)

// Result is the result of one attempt to deliver an event.
type Result struct {
	// Delivered is true if the listener accepted the event. Refused is true if the listener will never accept the
	// event. If neither Delivered nor Refused is true, the event has to be sent again.
	Delivered, Refused bool
	// RetryAfter is the pause before the next request that the listener asks for, or 0 if it asks for none. Throttled
	// is true if the listener asks for this pause only because the requests of the agent came too often.
	RetryAfter time.Duration
	Throttled  bool
	// UnknownManager is true if the listener does not know the manager. The event has to be sent again, because the
	// manager may be added later.
	UnknownManager bool
}

// Queue has the events that are to be delivered, and a record of recent deliveries. A Queue is safe for concurrent use.
//
// After a failed request, the lane (the pending events for one manager) pauses. The pause grows with each failure.
// After the pause, the lane first sends a single entry as a test. If this entry is delivered, the lane sends all other
// entries. If an entry fails while others are delivered, the back-off delays only that entry.
type Queue struct {
	bootID  string
	limit   int // maximum number of pending entries of all lanes
	metrics Metrics
	wakeUp  chan struct{} // has a value when an entry may be due

	mu        sync.Mutex // guards the fields below
	lanes     map[string]*lane
	listed    map[string]bool // managers on the watch list
	pending   int             // number of entries of all lanes
	sending   int
	order     uint64
	instances []string  // listener processes that have answered, the newest last
	answered  time.Time // time of the last answer
}

// lane has the events for one manager.
type lane struct {
	manager  string
	entries  map[key]*entry
	waiting  schedule // entries that are not being sent
	sending  int
	failures int       // consecutive failures
	paused   time.Time // no request is sent before this time
	unknown  time.Time // since this time all answers were 404; zero if the last answer was another
	sequence uint64
	lost     int // number of dropped events that no event about the resource replaces

	delivered map[key]delivery
	log       []logged // deliveries, oldest first; a second delivery is a second element
	// forgotten contains the resources of those delivery records that were removed early to save memory; the value is
	// the time of the delivery.
	forgotten map[key]time.Time
}

// key identifies the object of an event. A key without a name identifies an event about all objects of the resource.
type key struct {
	kind                      metav1.GroupVersionKind
	resource, namespace, name string
}

// wholeResourceKey returns the key that identifies the resource of an object.
func (k key) wholeResourceKey() key { return key{kind: k.kind, resource: k.resource} }

// entry is a pending event.
type entry struct {
	key      key
	event    protocol.Event
	at       time.Time // the event is not sent before this time
	order    uint64
	index    int // index in the schedule, -1 while the event is being sent
	attempts int
	repeat   time.Duration // see Change.RepeatAfter
	next     *Change       // newer event that was added while this event is being sent
}

// Change is an event to deliver.
type Change struct {
	Event protocol.Event
	// Delay is the time before the event is sent.
	Delay time.Duration
	// RepeatAfter, if positive, is the time between the first and the second delivery of the event.
	RepeatAfter time.Duration

	redelivery bool // the event was delivered before
}

// delivery is the record of a recent delivery of an event about an object.
type delivery struct {
	at       time.Time
	sequence uint64
	deleted  bool
}

// logged is an entry in the log of deliveries. The entry is obsolete if another event about the same object was
// delivered later.
type logged struct {
	key key
	at  time.Time
}

// New returns an empty Queue with at most limit pending events. bootID identifies this process in every event.
func New(bootID string, limit int, m Metrics) *Queue {
	return &Queue{bootID: bootID, limit: limit, metrics: m, wakeUp: make(chan struct{}, 1), lanes: map[string]*lane{}}
}

// SetWatchlist sets which managers are on the watch list: the events for these managers are kept, however
// long the listener does not know the managers. Managers with a webhook are not on the watch list.
func (q *Queue) SetWatchlist(list protocol.Watchlist) {
	listed := map[string]bool{}
	for _, w := range list.Watches {
		listed[w.Manager] = true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.listed = listed
}

// BootID returns the boot ID that all events of this process contain.
func (q *Queue) BootID() string { return q.bootID }

// MaxPendingEvents returns the maximum number of pending events.
func (q *Queue) MaxPendingEvents() int { return q.limit }

func keyOf(e protocol.Event) key {
	return key{kind: e.WatchedGVK, resource: e.Resource, namespace: e.Watched.Namespace, name: e.Watched.Name}
}

// Add queues an event for a manager. Add never blocks.
func (q *Queue) Add(manager string, c Change) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.laneLocked(manager)
	if l == nil {
		q.metrics.Lost.Inc()
		return
	}
	q.addLocked(l, c)
	q.dispatchSoon()
}

// laneLocked returns the lane of a manager. If there is no lane, laneLocked makes one. laneLocked returns nil if there
// are too many lanes.
func (q *Queue) laneLocked(manager string) *lane {
	l := q.lanes[manager]
	if l == nil && len(q.lanes) < maxLanes {
		l = &lane{manager: manager, entries: map[key]*entry{}, delivered: map[key]delivery{},
			forgotten: map[key]time.Time{}}
		q.lanes[manager] = l
	}
	return l
}

func (q *Queue) addLocked(l *lane, c Change) {
	k, now := keyOf(c.Event), time.Now()
	if e := l.entries[k]; e != nil {
		q.replaceLocked(l, e, c, now)
		return
	}
	if whole := l.entries[k.wholeResourceKey()]; k.name != "" && whole != nil && whole.index >= 0 &&
		c.Delay == 0 && c.RepeatAfter == 0 {
		// The new change needs no entry: the pending event about the whole resource is sent after the change, and so
		// also covers it.
		whole.event.ObjectsComplete, whole.event.Objects = false, nil
		return
	}
	if q.pending >= q.limit || len(l.entries) >= maxLaneEntries {
		room := q.makeRoomForResourceLocked(l, k)
		if !room {
			l.lost++
			q.metrics.Lost.Inc()
			return
		}
		k = k.wholeResourceKey()
		c = Change{Event: wholeResourceEvent(k)}
		if e := l.entries[k]; e != nil {
			q.replaceLocked(l, e, c, now)
			return
		}
	}
	if q.pending >= maxMetadataEntries {
		c.Event = withoutMetadata(c.Event)
	}
	l.sequence++
	c.Event.BootID, c.Event.Sequence = q.bootID, l.sequence
	at := now.Add(c.Delay)
	if d, lately := l.delivered[k]; lately && d.at.Add(minEventInterval).After(at) {
		at = d.at.Add(minEventInterval)
	}
	q.insertNewEntryLocked(l, &entry{key: k, event: c.Event, at: at, repeat: c.RepeatAfter})
	if !c.redelivery {
		q.metrics.Events.Inc()
	}
}

// wholeResourceEvent returns an event which means that any object of the resource may have changed.
func wholeResourceEvent(k key) protocol.Event {
	return protocol.Event{WatchedGVK: k.kind, Resource: k.resource, WatchStarted: true}
}

// withoutMetadata returns a copy of an event without metadata, to save memory.
func withoutMetadata(e protocol.Event) protocol.Event {
	e.Object, e.ObjectsComplete, e.Objects = nil, false, nil
	return e
}

// replacing returns the event that replaces an undelivered event about the same object. If the undelivered event has no
// metadata, the new event has none, too: a receiver compares metadata with its interests, and the former state of the
// object may have matched other interests than the new state.
func replacing(undelivered, newer protocol.Event) protocol.Event {
	if undelivered.Object == nil {
		newer.Object = nil
	}
	return newer
}

func (q *Queue) insertNewEntryLocked(l *lane, e *entry) {
	q.order++
	e.order = q.order
	l.entries[e.key] = e
	q.pending++
	heap.Push(&l.waiting, e)
}

// replaceLocked replaces the event of an entry by a newer event about the same object. The newer event gets the
// sequence number of the replaced event, because the replaced event was not delivered.
func (q *Queue) replaceLocked(l *lane, e *entry, c Change, now time.Time) {
	if e.index < 0 {
		if e.next != nil {
			c.Delay, c.RepeatAfter = min(c.Delay, e.next.Delay), max(c.RepeatAfter, e.next.RepeatAfter)
			c.Event = replacing(e.next.Event, c.Event)
		}
		e.next = &c
		return
	}
	c.Event = replacing(e.event, c.Event)
	c.Event.BootID, c.Event.Sequence = e.event.BootID, e.event.Sequence
	if q.pending > maxMetadataEntries {
		c.Event = withoutMetadata(c.Event)
	}
	e.event, e.repeat = c.Event, max(c.RepeatAfter, e.repeat)
	at := now.Add(c.Delay)
	if d, lately := l.delivered[e.key]; lately && d.at.Add(minEventInterval).After(at) {
		at = d.at.Add(minEventInterval)
	}
	if at.Before(e.at) && e.attempts == 0 {
		e.at = at
		heap.Fix(&l.waiting, e.index)
	}
}

// makeRoomForResourceLocked makes room in lane l: it chooses one resource, and replaces the entries for single objects
// of this resource by one event about the whole resource. makeRoomForResourceLocked chooses the resource of the key k
// or, if the resource of k has no entries, the resource with the most entries. makeRoomForResourceLocked returns true
// if the queue now has room for an event about the resource of the key k.
func (q *Queue) makeRoomForResourceLocked(l *lane, k key) (hasRoom bool) {
	if q.dropObjectEntriesLocked(l, k.wholeResourceKey()) > 0 || l.entries[k.wholeResourceKey()] != nil {
		return true
	}
	var most key
	var in *lane
	count := 1 // replacing one entry by one event makes no room
	for _, other := range q.lanes {
		if other != l && len(l.entries) >= maxLaneEntries {
			continue
		}
		sizes := map[key]int{}
		for _, e := range other.waiting {
			if e.key.name != "" {
				sizes[e.key.wholeResourceKey()]++
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
	q.dropObjectEntriesLocked(in, most)
	if in.entries[most] == nil {
		in.sequence++
		e := wholeResourceEvent(most)
		e.BootID, e.Sequence = q.bootID, in.sequence
		q.insertNewEntryLocked(in, &entry{key: most, event: e, at: time.Now()})
	}
	return true
}

// dropObjectEntriesLocked removes the waiting entries of all objects of a resource. dropObjectEntriesLocked returns the
// number of removed entries.
func (q *Queue) dropObjectEntriesLocked(l *lane, resource key) int {
	var kept schedule
	dropped := 0
	for _, e := range l.waiting {
		if e.key.name == "" || e.key.wholeResourceKey() != resource {
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

// Run sends events at their due time until ctx ends. When ctx has ended, Run sends pending events for at most
// drainTimeout.
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
		case <-q.wakeUp:
		case <-timer.C:
		case <-ended:
			ended, drained = nil, time.After(drainTimeout)
		case <-drained:
			return
		}
	}
}

// dispatch starts requests for the events that are due. dispatch returns the time at which the next event is due, or
// zero if there is none.
func (q *Queue) dispatch(ctx context.Context, wg *sync.WaitGroup,
	deliver func(context.Context, string, protocol.Event) Result) (due time.Time, pending int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for _, l := range q.lanes {
		for len(l.waiting) > 0 && l.sending < q.maxConcurrentRequestsLocked(l) {
			e := l.waiting[0]
			if at := laterTime(e.at, l.paused); at.After(now) {
				if due.IsZero() || at.Before(due) {
					due = at
				}
				break
			}
			heap.Pop(&l.waiting)
			l.sending++
			q.sending++
			event := e.event
			wg.Go(func() { q.finish(l, e, deliver(ctx, l.manager, event)) })
		}
	}
	return due, q.pending
}

// maxConcurrentRequestsLocked returns the maximum number of concurrent requests of a lane. A lane may use half of the
// concurrent requests that the other lanes leave free. The other half stays free for a lane that gets an event later.
// After a failure, a lane may send only one request at a time.
func (q *Queue) maxConcurrentRequestsLocked(l *lane) int {
	left := maxRequests - q.sending + l.sending
	if l.failures > 0 {
		return min(1, left)
	}
	return (left + 1) / 2
}

// finish records the result of an attempt to deliver an entry of a lane.
func (q *Queue) finish(l *lane, e *entry, o Result) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.dispatchSoon()
	l.sending--
	q.sending--
	if !o.UnknownManager {
		l.unknown = time.Time{}
	}
	if !o.Delivered && !o.Refused {
		q.retryLocked(l, e, o)
		if o.UnknownManager {
			q.emptyUnknownLocked(l)
		}
		return
	}
	l.failures, l.paused = 0, time.Time{}
	delete(l.entries, e.key)
	q.pending--
	if o.Delivered {
		q.recordDeliveredLocked(l, e)
	} else {
		l.lost++
		q.metrics.Lost.Inc()
	}
	switch {
	case e.next != nil:
		q.addLocked(l, *e.next)
	case e.repeat > 0 && o.Delivered:
		e.event.ObjectsComplete, e.event.Objects = false, nil // the objects are outdated when the event is repeated
		q.addLocked(l, Change{Event: e.event, Delay: e.repeat, redelivery: true})
	}
}

// retryLocked puts an entry back into its lane (the pending events for one manager) after a failed attempt to deliver
// it. If other entries were delivered since the last failure of this entry, only this entry is delayed by a back-off.
// If no other entry of the lane was delivered since then, the manager itself probably does not answer, so the delivery
// of the whole lane is paused.
func (q *Queue) retryLocked(l *lane, e *entry, o Result) {
	now := time.Now()
	if e.next != nil {
		e.next.Event.BootID, e.next.Event.Sequence = e.event.BootID, e.event.Sequence
		e.event, e.repeat, e.next = replacing(e.event, e.next.Event), max(e.repeat, e.next.RepeatAfter), nil
	}
	if q.pending > maxMetadataEntries {
		e.event = withoutMetadata(e.event)
	}
	e.at = now
	switch {
	case o.Throttled:
		l.paused = laterTime(l.paused, now.Add(o.RetryAfter+rand.N(o.RetryAfter/4+MinRetryDelay)))
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
	e.order = q.order // behind the other entries
	heap.Push(&l.waiting, e)
}

// emptyUnknownLocked records that the listener does not know the manager of a lane. If the manager is not on the watch
// list, and all answers of the last unknownManagerTimeout were the same, emptyUnknownLocked drops all events of the
// lane: nobody waits for them. The lane itself remains, so that sequence numbers are not used twice.
func (q *Queue) emptyUnknownLocked(l *lane) {
	now := time.Now()
	if l.unknown.IsZero() {
		l.unknown = now
	}
	if q.listed[l.manager] || l.manager == protocol.ManagerName || now.Sub(l.unknown) < unknownManagerTimeout {
		return
	}
	for _, e := range l.waiting { // an entry that is being sent stays
		delete(l.entries, e.key)
	}
	q.pending -= len(l.waiting)
	q.metrics.Lost.Add(float64(len(l.waiting)))
	l.waiting, l.log, l.failures, l.paused, l.unknown = nil, nil, 0, time.Time{}, time.Time{}
	clear(l.delivered)
	clear(l.forgotten)
}

// State returns three numbers for a manager: the last sequence number, the number of pending events, and the number of
// lost events.
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

// HeartbeatDelivered records that a heartbeat was delivered to a manager. The parameter reportedLost is the number of
// lost events that the heartbeat has reported. HeartbeatDelivered ends the pause of the manager's lane, because the
// delivered heartbeat shows that the control plane can be reached.
func (q *Queue) HeartbeatDelivered(manager string, reportedLost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lanes[manager]; l != nil {
		l.lost -= reportedLost
		l.paused = time.Time{}
	}
	q.dispatchSoon()
}

// Size returns the number of pending events.
func (q *Queue) Size() float64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return float64(q.pending)
}

// dispatchSoon makes Run check at once which events are due.
func (q *Queue) dispatchSoon() {
	select {
	case q.wakeUp <- struct{}{}:
	default:
	}
}
