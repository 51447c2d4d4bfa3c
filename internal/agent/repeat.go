package agent

import (
	"slices"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// rememberLocked notes that an event was delivered.
func (q *queue) rememberLocked(l *lane, e *entry) {
	now := time.Now()
	l.delivered[e.key] = delivery{at: now, sequence: e.event.Sequence, deleted: e.event.Deleted}
	l.log = append(l.log, logged{e.key, now})
	q.forgetLocked(l, now)
}

// forgetLocked forgets what was delivered too long ago, and the oldest of what is too much.
func (q *queue) forgetLocked(l *lane, now time.Time) {
	for len(l.log) > 0 {
		oldest := l.log[0]
		last := l.delivered[oldest.key].at.Equal(oldest.at)
		old := now.Sub(oldest.at) > memory
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
}

// heard notes which listener answered. One that was not heard before may stand for one that died with what it was told, so it is told again.
func (q *queue) heard(instance string) {
	const known = 16
	if instance == "" {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.Contains(q.instances, instance) {
		return
	}
	first := len(q.instances) == 0
	q.instances = append(q.instances, instance)
	if len(q.instances) > known {
		q.instances = q.instances[1:]
	}
	if first {
		return
	}
	for _, l := range q.lanes {
		q.repeatLocked(l)
	}
	q.wake()
}

// repeatLocked tells again what was told lately. What is pending anyway is not doubled.
func (q *queue) repeatLocked(l *lane) {
	now := time.Now()
	for k, at := range l.forgotten {
		if now.Sub(at) <= memory {
			q.addLocked(l, change{event: began(k)})
		}
	}
	clear(l.forgotten)
	for k, d := range l.delivered {
		if now.Sub(d.at) > memory || l.entries[k] != nil || q.pending >= q.max {
			continue
		}
		e := protocol.Event{
			Watched: protocol.Name{Namespace: k.namespace, Name: k.name}, WatchedGVK: k.kind, Resource: k.resource,
			Began: k.name == "", Deleted: d.deleted, Boot: q.boot, Sequence: d.sequence,
		}
		q.pushLocked(l, &entry{key: k, event: e, at: now})
	}
}
