package runtimes

import (
	"slices"
	"time"
)

// PublishToInterested delivers an event to all subscribers with a matching interest. The event comes from a watch that
// is not a watch of this Pool, for example from the watch of an agent. Missed and Listed events of the same resource
// are delayed and combined, see Options.BatchDelay. All events except Missed and Listed events are delivered without a
// delay. Before PublishToInterested delivers an event without a delay, it delivers the Missed and Listed events that
// are still delayed. If the field Interest.Resource of an event is empty, the event is delivered to all subscribers.
//
// The events of one runtime are delivered in the order of the calls to PublishToInterested, by one goroutine at a time.
// If another goroutine is delivering events already, PublishToInterested returns before its own event is delivered.
func (p *Pool) PublishToInterested(kyma string, event Event) {
	p.mu.Lock()
	e := p.ensureEntryLocked(kyma)
	e.published = true
	if (event.Missed || event.Listed) && !event.Interest.Resource.Empty() && p.opts.BatchDelay > 0 {
		p.delayLocked(kyma, e, event)
		p.mu.Unlock()
		return
	}
	e.outbox = append(append(e.outbox, e.batch...), event)
	e.batch = nil
	p.mu.Unlock()
	p.deliverOutbox(kyma)
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
		e.outbox = append(e.outbox, e.batch...)
		e.batch = nil
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
// selector once, because an event of one module is compared with the interests of all modules.
func (e *entry) callsLocked(event Event, by selectors) (calls []func()) {
	for _, s := range e.subscribers {
		if event.Missed && event.Interest.Resource.Empty() {
			calls = append(calls, func() { s.Notify(event) })
			continue
		}
		for _, i := range s.Interests {
			if i.matches(event, by) {
				matching := event
				matching.Interest, matching.Objects = i, i.filter(event.Objects, by)
				calls = append(calls, func() { s.Notify(matching) })
			}
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
