package outbox

import (
	"maps"
	"slices"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// recordDeliveredLocked records that an event was delivered.
func (q *Queue) recordDeliveredLocked(l *lane, e *entry) {
	now := time.Now()
	l.delivered[e.key] = delivery{at: now, sequence: e.event.Sequence, deleted: e.event.Deleted}
	l.log = append(l.log, logged{e.key, now})
	q.trimDeliveryRecordsLocked(l)
}

// trimDeliveryRecordsLocked removes the records of old deliveries. The delivery of an event is old if the listener
// still answered more than redeliveryPeriod later: by then, the process that accepted the event has surely acted on the
// event. If a lane has more records of deliveries than the limit of the queue, trimDeliveryRecordsLocked removes the
// oldest records, even if their deliveries are not old. While the listener does not answer, no record becomes old,
// because the process that accepted the event may have ended before it acted on the event.
func (q *Queue) trimDeliveryRecordsLocked(l *lane) {
	for len(l.log) > 0 {
		oldest := l.log[0]
		last := l.delivered[oldest.key].at.Equal(oldest.at)
		old := q.answered.Sub(oldest.at) > redeliveryPeriod
		if last && !old && len(l.log) <= q.limit {
			break
		}
		l.log = l.log[1:]
		if last {
			delete(l.delivered, oldest.key)
		}
		if last && !old {
			l.forgotten[oldest.key.wholeResourceKey()] = oldest.at
		}
	}
	if len(l.log) == 0 {
		l.log = nil
	}
	maps.DeleteFunc(l.forgotten, func(_ key, at time.Time) bool { return q.answered.Sub(at) > redeliveryPeriod })
}

// RedeliverIfNewListener records from which process of the listener an answer came. If the answer came from a new
// process, recent events are delivered again: the former process may have ended before it handled the events. If an
// answer does not name the process of the listener that sent it, the agent cannot recognise a new process.
func (q *Queue) RedeliverIfNewListener(instance string) {
	const maxInstances = 16
	q.mu.Lock()
	defer q.mu.Unlock()
	isKnown := instance == "" || slices.Contains(q.instances, instance)
	if !isKnown {
		isKnown = len(q.instances) == 0 // the first process does not replace another one
		q.instances = append(q.instances, instance)
		if len(q.instances) > maxInstances {
			q.instances = q.instances[1:]
		}
	}
	if !isKnown {
		for _, l := range q.lanes {
			q.redeliverLocked(l)
		}
		q.dispatchSoon()
	}
	q.answered = time.Now()
	for _, l := range q.lanes {
		q.trimDeliveryRecordsLocked(l)
	}
}

// HasUndeliveredOrRecent reports whether events are pending, or were delivered recently. Recently delivered events are
// delivered again to a new process of the listener.
func (q *Queue) HasUndeliveredOrRecent() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lanes {
		if len(l.delivered)+len(l.forgotten)+len(l.entries) > 0 {
			return true
		}
	}
	return false
}

// redeliverLocked queues recently delivered events again. redeliverLocked skips objects that have a pending event.
func (q *Queue) redeliverLocked(l *lane) {
	now := time.Now()
	for k := range l.forgotten {
		q.addLocked(l, Change{Event: wholeResourceEvent(k)})
	}
	clear(l.forgotten)
	for k, d := range l.delivered {
		if l.entries[k] != nil || q.pending >= q.limit {
			continue
		}
		e := protocol.Event{
			Watched: protocol.Name{Namespace: k.namespace, Name: k.name}, WatchedGVK: k.kind, Resource: k.resource,
			WatchStarted: k.name == "", Deleted: d.deleted, BootID: q.bootID, Sequence: d.sequence,
		}
		q.insertNewEntryLocked(l, &entry{key: k, event: e, at: now})
	}
}
