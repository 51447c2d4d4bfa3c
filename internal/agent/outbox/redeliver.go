package outbox

import (
	"maps"
	"slices"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// rememberLocked notes that an event was delivered.
func (q *Queue) rememberLocked(l *lane, e *entry) {
	now := time.Now()
	l.delivered[e.key] = delivery{at: now, sequence: e.event.Sequence, deleted: e.event.Deleted}
	l.log = append(l.log, logged{e.key, now})
	q.forgetLocked(l)
}

// forgetLocked forgets what was delivered long before the last answer, and the oldest of what is too much. While nobody answers nothing is forgotten for its
// age: whoever took it may have died with it, however long it takes until there is another one.
func (q *Queue) forgetLocked(l *lane) {
	for len(l.log) > 0 {
		oldest := l.log[0]
		last := l.delivered[oldest.key].at.Equal(oldest.at)
		old := q.answered.Sub(oldest.at) > memory
		if last && !old && len(l.log) <= q.max {
			break
		}
		l.log = l.log[1:]
		if last {
			delete(l.delivered, oldest.key)
		}
		if last && !old {
			l.forgotten[oldest.key.whole()] = oldest.at
		}
	}
	if len(l.log) == 0 {
		l.log = nil
	}
	maps.DeleteFunc(l.forgotten, func(_ key, at time.Time) bool { return q.answered.Sub(at) > memory })
}

// heard notes which listener answered. One that was not heard before may stand for one that died with what it was told, so it is told again. One that
// does not say which one it is cannot be told from others, and nothing is kept for it.
func (q *Queue) ListenerAnswered(instance string) {
	const known = 16
	q.mu.Lock()
	defer q.mu.Unlock()
	is := instance == "" || slices.Contains(q.instances, instance)
	if !is {
		is = len(q.instances) == 0 // nobody has died
		q.instances = append(q.instances, instance)
		if len(q.instances) > known {
			q.instances = q.instances[1:]
		}
	}
	if !is {
		for _, l := range q.lanes {
			q.repeatLocked(l)
		}
		q.wake()
	}
	q.answered = time.Now()
	for _, l := range q.lanes {
		q.forgetLocked(l)
	}
}

// remembers tells whether something was told lately that might have to be told again.
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

// repeatLocked tells again what was told lately. What is pending anyway is not doubled.
func (q *Queue) repeatLocked(l *lane) {
	now := time.Now()
	for k := range l.forgotten {
		q.addLocked(l, Change{Event: began(k)})
	}
	clear(l.forgotten)
	for k, d := range l.delivered {
		if l.entries[k] != nil || q.pending >= q.max {
			continue
		}
		e := protocol.Event{
			Watched: protocol.Name{Namespace: k.namespace, Name: k.name}, WatchedGVK: k.kind, Resource: k.resource,
			WatchStarted: k.name == "", Deleted: d.deleted, BootID: q.bootID, Sequence: d.sequence,
		}
		q.pushLocked(l, &entry{key: k, event: e, at: now})
	}
}
