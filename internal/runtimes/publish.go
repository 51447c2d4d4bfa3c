package runtimes

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The following constants limit the events of one runtime that are kept until they are delivered. Each event needs up
// to 400 KiB of memory, because a report has up to 16 KiB of JSON.
const (
	// maxDelayed is the maximum number of delayed events. If there are more, all of them are delivered before
	// Options.BatchDelay has passed. When an agent starts, it sends one event for each kind that it watches; the
	// modules of one runtime usually have fewer than 100 kinds.
	maxDelayed = 100
	// maxUndelivered is the maximum number of events in the outbox. If there are more, one Missed event for each kind
	// replaces them. The outbox gets more than maxDelayed events only if events arrive faster than they are delivered.
	// A delivery takes less than a millisecond, and an agent may send 100 events per second.
	maxUndelivered = 200
)

// PublishToInterested delivers an event to all subscribers with a matching interest. The event comes from a watch that
// is not a watch of this Pool, for example from the watch of an agent. Missed and Listed events of the same resource
// are delayed and combined, see Options.BatchDelay. All events except Missed and Listed events are delivered without a
// delay. Before PublishToInterested delivers an event without a delay, it delivers the Missed and Listed events that
// are still delayed. If the field Interest.Resource of an event is empty, the event is delivered to all subscribers. An
// event that matches no interest is dropped.
//
// The events of one runtime are delivered in the order of the calls to PublishToInterested, by one goroutine at a time.
// If another goroutine is delivering events already, PublishToInterested returns before its own event is delivered.
func (p *Pool) PublishToInterested(kyma string, event Event) {
	p.mu.Lock()
	e := p.ensureEntryLocked(kyma)
	e.published = true
	switch {
	case !e.wantsLocked(event, p.selectors):
		p.mu.Unlock()
		return
	case (event.Missed || event.Listed) && !event.Interest.Resource.Empty() && p.opts.BatchDelay > 0:
		if p.delayLocked(kyma, e, event); len(e.batch) <= maxDelayed {
			p.mu.Unlock()
			return
		}
		e.queueLocked()
	default:
		e.queueLocked(event)
	}
	p.mu.Unlock()
	p.deliverOutbox(kyma)
}

// wantsLocked reports whether an event matches an interest of a subscriber. The caller of wantsLocked must hold
// Pool.mu.
func (e *entry) wantsLocked(event Event, by selectors) bool {
	for _, s := range e.subscribers {
		if event.Missed && event.Interest.Resource.Empty() ||
			slices.ContainsFunc(s.Interests, func(i Interest) bool { return i.matches(event, by) }) {
			return true
		}
	}
	return false
}

// queueLocked adds the delayed events, and then the given ones, to the outbox. If the outbox gets too many events,
// queueLocked replaces all of them by Missed events, so that the subscribers read the objects from the runtime. The
// caller of queueLocked must hold Pool.mu.
func (e *entry) queueLocked(events ...Event) {
	e.outbox = append(append(e.outbox, e.batch...), events...)
	if e.batch = nil; len(e.outbox) > maxUndelivered {
		e.outbox = missedByKind(e.outbox)
	}
}

// missedByKind returns one Missed event for each kind in a list of events. The versions of one kind count as one kind.
// An event about all resources stays.
func missedByKind(events []Event) (missed []Event) {
	done := map[Interest]bool{}
	for _, event := range events {
		in := Interest{Resource: event.Interest.Resource, Kind: event.Interest.Kind}
		if in.Resource.Empty() {
			in = Interest{}
		}
		key := in
		if key.Resource.Version = ""; key.Resource.Resource != "" {
			key.Kind = "" // as in Interest.matches
		}
		if !done[key] {
			done[key] = true
			missed = append(missed, Event{Missed: true, Interest: in})
		}
	}
	return missed
}

// delayLocked adds an event to the batch of delayed events. If the batch already has an event for the same interest,
// the new Missed or Listed event replaces it. The caller of delayLocked must hold mu.
func (p *Pool) delayLocked(kyma string, e *entry, event Event) {
	e.batch = slices.DeleteFunc(e.batch, func(former Event) bool { return former.Interest == event.Interest })
	if e.batch = append(e.batch, event); len(e.batch) == 1 {
		time.AfterFunc(p.opts.BatchDelay, func() { p.deliverBatch(kyma) })
	}
}

// deliverBatch delivers the delayed events of a batch.
func (p *Pool) deliverBatch(kyma string) {
	p.mu.Lock()
	if e := p.entries[kyma]; e != nil {
		e.queueLocked()
	}
	p.mu.Unlock()
	p.deliverOutbox(kyma)
}

// deliverOutbox calls the subscribers with the events in the outbox. Only one goroutine at a time delivers the events
// of a runtime. While another goroutine delivers events, deliverOutbox leaves its events to the other goroutine. So the
// order of events is kept, and no lock is held during the calls of Notify.
func (p *Pool) deliverOutbox(kyma string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[kyma]
	if e == nil || e.delivering {
		return
	}
	e.delivering = true
	for len(e.outbox) > 0 && p.entries[kyma] == e {
		calls := e.callsLocked(e.outbox[0], p.selectors)
		e.outbox = e.outbox[1:]
		p.mu.Unlock()
		for _, call := range calls {
			call()
		}
		p.mu.Lock()
	}
	e.delivering, e.outbox = false, nil
}

// callsLocked returns one function for each interest of a subscriber that matches an event. The function calls
// Subscriber.Notify of this subscriber. The caller of callsLocked must hold Pool.mu. callsLocked parses each label
// selector once, and filters a list once for each interest, because an event of one module is compared with the
// interests of all modules.
func (e *entry) callsLocked(event Event, by selectors) (calls []func()) {
	filtered := map[Interest][]metav1.PartialObjectMetadata{}
	for _, s := range e.subscribers {
		if event.Missed && event.Interest.Resource.Empty() {
			calls = append(calls, func() { s.Notify(event) })
			continue
		}
		for _, i := range s.Interests {
			if !i.matches(event, by) {
				continue
			}
			objects, known := filtered[i]
			if !known && event.Listed {
				objects = i.filter(event.Objects, by)
				filtered[i] = objects
			}
			matching := event
			matching.Interest, matching.Objects = i, objects
			calls = append(calls, func() { s.Notify(matching) })
		}
	}
	return calls
}

// notifyAll sends an event to all subscribers of a runtime.
func (p *Pool) notifyAll(kyma string, event Event) {
	p.mu.Lock()
	all := p.entries[kyma].allSubscribers()
	p.mu.Unlock()
	for _, s := range all {
		s.Notify(event)
	}
}

// allSubscribers returns the subscribers of an entry. The argument entry may be nil. The caller of allSubscribers must
// hold Pool.mu.
func (e *entry) allSubscribers() (all []Subscriber) {
	if e != nil {
		for _, s := range e.subscribers {
			all = append(all, s)
		}
	}
	return all
}
