package runtimes

import "time"

// Changes in a runtime are reported by watches of the pool, by an agent that runs in the runtime, or not at all.
// Subscribers do not notice the difference, except in the interval in which they have to read the runtime without a
// reason, see PollInterval.

// PollIntervals are the intervals in which a runtime is reconciled without a reason.
type PollIntervals struct {
	// Watched is for runtimes whose changes are reported.
	Watched time.Duration
	// Unwatched is for all other runtimes.
	Unwatched time.Duration
	// Budget is the number of reconciles per second of all unwatched runtimes together. If there are more, Unwatched
	// becomes longer. 0 is no limit.
	Budget int
}

// SetAgentConnected records whether the agent of a runtime is connected. When it disconnects, subscribers receive a
// Missed event, because they have to read the runtime themselves from then on.
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

// IsWatched reports whether changes in a runtime are reported. The agent of a runtime counts as connected until
// SetAgentConnected is called.
func (p *Pool) IsWatched(kyma string) bool {
	if p.opts.Watch || !p.opts.Agents {
		return p.opts.Watch
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[kyma]
	return e == nil || e.agentConnected
}

// UsesInterests reports whether the interests of subscribers have an effect.
func (p *Pool) UsesInterests() bool { return p.opts.Watch || p.opts.Agents }

// PollInterval returns the time after which a subscriber has to read a runtime without a reason. It grows when
// PollIntervals.Budget is exceeded.
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

// countPollers returns the number of subscribers of unwatched runtimes, as of a few seconds ago.
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
