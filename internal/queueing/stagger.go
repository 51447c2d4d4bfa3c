package queueing

import (
	"slices"
	"sync"
	"time"
)

// staggerInterval is the maximum time between two calls that [Stagger] makes.
const staggerInterval = 10 * time.Millisecond

// Stagger spreads calls for many names over time, so that a change that concerns thousands of runtimes does not enqueue
// all of them at once. The zero value is ready to use. Stagger is safe for concurrent use.
type Stagger struct {
	mu        sync.Mutex
	scheduled map[string]scheduledCall // guarded by mu: the calls that were not made yet, by name
	last      string                   // guarded by mu: the name of the last call
}

type scheduledCall struct {
	at    time.Time
	timer *time.Timer
}

// InBackground calls the function add with each name. The interval between two calls of add is 10 ms. If all calls
// together would take longer than the duration in the parameter maxDuration, InBackground shortens the interval between
// two calls, so that all calls together take as long as maxDuration. InBackground does not wait: another goroutine
// makes the calls.
//
// At most one call of add is scheduled for each name. If InBackground is called again before this call was made, the
// earlier of the two times applies. The calls are made in the alphabetical order of the names, and begin after the name
// of the last call that was made. So a series of changes that concern the same runtimes enqueues each runtime in turn,
// and not once per change. All calls of InBackground must pass the same function add.
func (s *Stagger) InBackground(names []string, maxDuration time.Duration, add func(string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scheduled == nil {
		s.scheduled = map[string]scheduledCall{}
	}
	total := min(maxDuration, time.Duration(len(names))*staggerInterval)
	now := time.Now()
	sorted := slices.Sorted(slices.Values(names))
	first, called := slices.BinarySearch(sorted, s.last)
	if called {
		first++
	}
	for i := range sorted {
		name := sorted[(first+i)%len(sorted)]
		after := total * time.Duration(i) / time.Duration(len(names))
		if former, ok := s.scheduled[name]; ok && (!now.Add(after).Before(former.at) || !former.timer.Stop()) {
			continue // the call comes early enough, or is about to be made
		}
		s.scheduled[name] = scheduledCall{at: now.Add(after), timer: time.AfterFunc(after, func() {
			s.mu.Lock()
			s.last = name
			delete(s.scheduled, name) // a change after this point needs another call
			s.mu.Unlock()
			add(name)
		})}
	}
}
