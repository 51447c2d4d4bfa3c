package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/playground/fleet"
)

// posting is the number of simulated agents that may send requests to the manager at the same time.
const posting = 64

// agents simulates the agents of all clusters, because simulated clusters have no pods. Each agent has the certificate
// and the watch list that the manager delivered to its cluster, and one connection to the listener. agents sends
// heartbeats, and events for the objects on its watch list. An agent learns of changes in its simulated cluster by a
// function call, without a watch. An idle agent has a timer and no goroutine.
//
// A simulated agent differs from the real agent: it does not limit the size or the rate of its requests, and ignores
// Kymas of other owners. The simulated agents detect changes of fields (spec, status) only by generation and labels.
type agents struct {
	fleet  *fleet.Fleet
	memory time.Duration // younger events are repeated when another process answers
	all    []*agent
	stop   func()
	end    context.CancelFunc
	group  sync.WaitGroup
	open   atomic.Int64

	mu        sync.Mutex
	listeners []string // addresses; each agent uses one of them, by its index; guarded by mu
	work      []*agent // the queued agents; guarded by mu
	ready     *sync.Cond
	ended     bool // guarded by mu

	lastDelivery atomic.Int64 // time of the last delivered event, in Unix nanoseconds
}

// startAgents starts the agents of a rig.
func startAgents(ctx context.Context, f *fleet.Fleet, c *changes, memory time.Duration) *agents {
	a := &agents{fleet: f, memory: memory}
	a.ready = sync.NewCond(&a.mu)
	ctx, a.end = context.WithCancel(ctx)
	for i := range f.Len() {
		a.all = append(a.all, &agent{agents: a, cluster: f.Cluster(i)})
	}
	for range posting {
		a.group.Go(func() { a.runWorkerUntilClosed(ctx) })
	}
	a.stop = c.onChange(func(change fleet.Change) { a.all[change.Cluster].receiveChange(change) })
	return a
}

// useListenersForNewConnections makes the agents use other listeners, and assigns a listener by the index of the agent.
// A connection to an old listener stays until that listener closes it.
func (a *agents) useListenersForNewConnections(listeners []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners = listeners
}

func (a *agents) listenerOf(i int) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.listeners[i%len(a.listeners)]
}

// connections returns the number of connections that the agents believe to be open.
func (a *agents) connections() int { return int(a.open.Load()) }

// countAgentsWithHeartbeatSince returns the number of agents whose last heartbeat was after the time since.
func (a *agents) countAgentsWithHeartbeatSince(since time.Time) int {
	n := 0
	for _, one := range a.all {
		if one.beaten.Load() >= since.UnixNano() {
			n++
		}
	}
	return n
}

// hasNoRecentDelivery reports whether the agents have delivered no event within the time for which they keep delivered
// events. If another manager process takes over, each agent repeats the events that it has kept. When
// hasNoRecentDelivery returns true, no such events are left.
func (a *agents) hasNoRecentDelivery() bool {
	return time.Since(time.Unix(0, a.lastDelivery.Load())) > a.memory
}

// close stops all agents.
func (a *agents) close() {
	a.stop()
	a.end()
	a.mu.Lock()
	a.ended = true
	a.ready.Broadcast()
	a.mu.Unlock()
	a.group.Wait()
	for _, one := range a.all {
		one.stop()
	}
}

// enqueue appends an agent to the queue.
func (a *agents) enqueue(one *agent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.work = append(a.work, one)
	a.ready.Signal()
}

// runWorkerUntilClosed sends the due messages of the queued agents, one agent after the other, until close is called.
func (a *agents) runWorkerUntilClosed(ctx context.Context) {
	for {
		a.mu.Lock()
		for len(a.work) == 0 && !a.ended {
			a.ready.Wait()
		}
		if a.ended {
			a.mu.Unlock()
			return
		}
		one := a.work[0]
		a.work = a.work[1:]
		a.mu.Unlock()
		one.processDue(ctx)
	}
}
