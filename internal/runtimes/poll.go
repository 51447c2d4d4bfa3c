package runtimes

import "time"

// Changes in a runtime are reported by watches of the pool, or by an agent in the runtime, or not at all. For
// subscribers, these three cases differ only in PollInterval, the interval after which a subscriber reads the runtime
// even without an event.

// PollIntervals are the intervals after which a runtime is reconciled even without an event.
type PollIntervals struct {
	// Watched is the interval between reconciles of a runtime whose changes are reported.
	Watched time.Duration
	// Unwatched is the interval between reconciles of a runtime whose changes are not reported.
	Unwatched time.Duration
	// Budget is the maximum number of reconciles per second of all unwatched runtimes together. If the fleet is so
	// large that reconciles in the interval Unwatched would exceed Budget, the pool uses a longer interval. If Budget
	// is 0, the number of reconciles is not limited.
	Budget int
}

// AgentConnection says whether the agent of a runtime is connected.
type AgentConnection int

const (
	// AgentAssumed means that no connection is recorded yet, for example after a restart of the manager. The agent
	// counts as connected.
	AgentAssumed AgentConnection = iota
	// AgentConnected means that the agent sends heartbeats.
	AgentConnected
	// AgentStarting means that the agent is being delivered for the first time, or was, and is expected to connect
	// soon. Its first events list all objects in the runtime.
	AgentStarting
	// AgentDisconnected means that the runtime has no agent, or that the agent sends no heartbeats.
	AgentDisconnected
)

// RecordAgentConnection records whether the agent of a runtime is connected. When the agent no longer counts as
// connected, subscribers get a Missed event, because from then on they have to read the runtime themselves.
func (p *Pool) RecordAgentConnection(kyma string, c AgentConnection) {
	p.mu.Lock()
	e := p.ensureEntryLocked(kyma)
	disconnected := e.agent != AgentDisconnected && c == AgentDisconnected
	e.agent = c
	p.mu.Unlock()
	if disconnected {
		p.PublishToInterested(kyma, Event{Missed: true})
	}
}

// IsWatched reports whether a watch or an agent reports the changes in a runtime. Until RecordAgentConnection is
// called, and while the agent starts, the agent of a runtime counts as connected.
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
	return e == nil || e.agent != AgentDisconnected
}

// IsAgentAwaited reports whether the agent of a runtime counts as connected without a heartbeat: its connection is
// AgentAssumed or AgentStarting. IsAgentAwaited does not check the owner of the runtime, so call IsWatched first.
func (p *Pool) IsAgentAwaited(kyma string) bool {
	if p.opts.Watch || !p.opts.Agents {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[kyma]
	return e == nil || e.agent == AgentAssumed || e.agent == AgentStarting
}

// UsesInterests reports whether the interests of subscribers have an effect: they have one if Options.Watch or
// Options.Agents is set.
func (p *Pool) UsesInterests() bool { return p.opts.Watch || p.opts.Agents }

// PollInterval returns the interval after which a subscriber reads a runtime even without an event. In a large fleet,
// PollInterval returns more than the configured interval, so that all subscribers together stay within
// PollIntervals.Budget.
func (p *Pool) PollInterval(kyma string) time.Duration {
	intervals := p.opts.PollIntervals
	if p.IsWatched(kyma) {
		return intervals.Watched
	}
	if intervals.Budget <= 0 {
		return intervals.Unwatched
	}
	return max(intervals.Unwatched, time.Duration(p.countUnwatchedSubscribers())*time.Second/time.Duration(
		intervals.Budget))
}

// countUnwatchedSubscribers returns the number of subscribers of unwatched runtimes. The returned number may be a few
// seconds old, because countUnwatchedSubscribers counts at most once in five seconds.
func (p *Pool) countUnwatchedSubscribers() int {
	const recountInterval = 5 * time.Second
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.countedAt) > recountInterval {
		p.countedAt, p.pollers = now, 0
		for _, e := range p.entries {
			if e.agent == AgentDisconnected || !p.opts.Agents {
				p.pollers += len(e.subscribers)
			}
		}
	}
	return p.pollers
}
