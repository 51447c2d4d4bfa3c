package runtimes

import "time"

// There are three ways in which changes in a runtime are reported: watches of the pool report them, an agent in the
// runtime reports them, or they are not reported. Subscribers handle all three ways alike, except that PollInterval
// differs: the interval after which a subscriber reads the runtime even without an event.

// PollIntervals are the intervals after which a runtime is reconciled even without an event.
type PollIntervals struct {
	// Watched is the interval for runtimes whose changes are reported.
	Watched time.Duration
	// Unwatched is the interval for runtimes whose changes are not reported.
	Unwatched time.Duration
	// Budget is the maximum number of reconciles per second of all unwatched runtimes together. If the fleet is too
	// large for Budget, the pool uses a longer interval than Unwatched. If Budget is 0, the number of reconciles is not
	// limited.
	Budget int
}

// SetAgentConnected records whether the agent of a runtime is connected. When the agent is no longer connected,
// subscribers get a Missed event, because from then on they have to read the runtime themselves.
func (p *Pool) SetAgentConnected(kyma string, connected bool) {
	p.mu.Lock()
	e := p.entryLocked(kyma)
	disconnected := e.agentConnected && !connected
	e.agentConnected = connected
	p.mu.Unlock()
	if disconnected {
		p.Publish(kyma, Event{Missed: true})
	}
}

// IsWatched reports whether a watch or an agent reports the changes in a runtime. Until SetAgentConnected is called,
// the agent of a runtime counts as connected.
func (p *Pool) IsWatched(kyma string) bool {
	if p.opts.Watch || !p.opts.Agents {
		return p.opts.Watch
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[kyma]
	if e != nil && e.runtime != nil && e.runtime.owner.refused != nil {
		return false // an agent in the runtime, if there is one, belongs to another owner
	}
	return e == nil || e.agentConnected
}

// UsesInterests reports whether the interests of subscribers have an effect: they have one if Options.Watch or
// Options.Agents is set.
func (p *Pool) UsesInterests() bool { return p.opts.Watch || p.opts.Agents }

// PollInterval returns the interval after which a subscriber reads a runtime even without an event. If
// PollIntervals.Budget would be exceeded, the interval is longer.
func (p *Pool) PollInterval(kyma string) time.Duration {
	intervals := p.opts.PollIntervals
	if p.IsWatched(kyma) {
		return intervals.Watched
	}
	if intervals.Budget <= 0 {
		return intervals.Unwatched
	}
	return max(intervals.Unwatched, time.Duration(p.countPollers())*time.Second/time.Duration(intervals.Budget))
}

// countPollers returns the number of subscribers of unwatched runtimes. The returned number may be a few seconds old,
// because countPollers counts at most once in five seconds.
func (p *Pool) countPollers() int {
	const recountInterval = 5 * time.Second
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.countedAt) > recountInterval {
		p.countedAt, p.pollers = now, 0
		for _, e := range p.entries {
			if !e.agentConnected || !p.opts.Agents {
				p.pollers += len(e.subscribers)
			}
		}
	}
	return p.pollers
}
