package main

import (
	"context"
	"sync"

	"github.com/kyma-fleet/lifecycle-manager/playground/fleet"
)

// changes forwards the changes of objects in the simulated clusters to listeners. The changes do not pass through the
// API of the clusters.
type changes struct {
	mu    sync.Mutex     // never held during a call to a cluster: the fleet calls add while a cluster is locked
	queue []fleet.Change // guarded by mu
	news  chan struct{}  // receives a value when the queue has entries

	passing sync.Mutex                 // guards the following fields
	follow  map[int]func(fleet.Change) // the listeners, each with a number
	next    int
}

func newChanges() *changes {
	return &changes{follow: map[int]func(fleet.Change){}, news: make(chan struct{}, 1)}
}

// enqueue queues a change. The fleet calls it.
func (c *changes) enqueue(change fleet.Change) {
	c.mu.Lock()
	c.queue = append(c.queue, change)
	c.mu.Unlock()
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// run forwards changes to the listeners until ctx ends.
func (c *changes) run(ctx context.Context) {
	for {
		select {
		case <-c.news:
		case <-ctx.Done():
			return
		}
		c.mu.Lock()
		queue := c.queue
		c.queue = nil
		c.mu.Unlock()
		c.notifyListeners(queue)
	}
}

func (c *changes) notifyListeners(queue []fleet.Change) {
	c.passing.Lock()
	defer c.passing.Unlock()
	for _, change := range queue {
		for _, f := range c.follow {
			f(change)
		}
	}
}

// onChange calls f for each change, in order, until stop is called. The function f() may call methods of a cluster. f()
// must not call methods of the changes value, because these wait for the lock that onChange holds during a call.
func (c *changes) onChange(f func(fleet.Change)) (stop func()) {
	c.passing.Lock()
	defer c.passing.Unlock()
	c.next++
	number := c.next
	c.follow[number] = f
	return func() {
		c.passing.Lock()
		defer c.passing.Unlock()
		delete(c.follow, number)
	}
}

// onDeploymentChange calls f for each cluster in which a Deployment has changed. The Deployment is the last object of a
// module to be applied.
func (c *changes) onDeploymentChange(f func(i int)) (stop func()) {
	return c.onChange(func(change fleet.Change) {
		if change.Resource == deployments.GroupResource() {
			f(change.Cluster)
		}
	})
}
