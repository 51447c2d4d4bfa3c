package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/playground/fleet"
)

// posting is how many agents work at the same time.
const posting = 64

// agents play the agents of all clusters, which have no pods: each has the certificate and the watch list that the
// manager delivered to its cluster, one connection to the listener, heartbeats, and events for what is on the list.
// They hear of changes in memory. An agent that has nothing to do has a timer and no goroutine.
//
// What they do not do: they see no limits of the real ones, watch no Kyma of others, and look at fields (spec, status)
// by generation and labels only.
type agents struct {
	fleet  *fleet.Fleet
	memory time.Duration // recent reports are repeated when another process answers
	all    []*agent
	stop   func()
	end    context.CancelFunc
	group  sync.WaitGroup
	open   atomic.Int64

	mu        sync.Mutex
	listeners []string // addresses; agents are dealt out to them; guarded by mu
	work      []*agent // those that have something to do; guarded by mu
	ready     *sync.Cond
	ended     bool // guarded by mu

	lastDelivery atomic.Int64 // when an event was delivered last, in Unix nanoseconds
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
		a.group.Go(func() { a.post(ctx) })
	}
	a.stop = c.listen(func(change fleet.Change) { a.all[change.Cluster].hear(change) })
	return a
}

// aim lets the agents report to other listeners, dealt out by their index. Connections to those before end when they
// do.
func (a *agents) aim(listeners []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners = listeners
}

func (a *agents) target(i int) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.listeners[i%len(a.listeners)]
}

// connections returns how many are open, as far as is known.
func (a *agents) connections() int { return int(a.open.Load()) }

// beaten returns how many have sent a heartbeat since then.
func (a *agents) beaten(since time.Time) int {
	n := 0
	for _, one := range a.all {
		if one.beaten.Load() >= since.UnixNano() {
			n++
		}
	}
	return n
}

// quiet reports whether no event was delivered within the time for which agents remember: then another process of the
// manager hears nothing again.
func (a *agents) quiet() bool { return time.Since(time.Unix(0, a.lastDelivery.Load())) > a.memory }

// close ends all agents.
func (a *agents) close() {
	a.stop()
	a.end()
	a.mu.Lock()
	a.ended = true
	a.ready.Broadcast()
	a.mu.Unlock()
	a.group.Wait()
	for _, one := range a.all {
		one.quit()
	}
}

// add gives an agent to who posts.
func (a *agents) add(one *agent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.work = append(a.work, one)
	a.ready.Signal()
}

// post lets agents do what they have to do, one after the other.
func (a *agents) post(ctx context.Context) {
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
		one.turn(ctx)
	}
}
