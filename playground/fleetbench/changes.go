package main

import (
	"context"
	"sync"

	"github.com/kyma-fleet/lifecycle-manager/playground/fleet"
)

// changes passes on what changes in the simulated clusters, past their API, to who listens.
type changes struct {
	mu    sync.Mutex     // never held while a cluster is asked: the fleet calls back while a cluster is locked
	queue []fleet.Change // guarded by mu
	news  chan struct{}  // receives a value when the queue has entries

	passing sync.Mutex                 // guards what follows
	follow  map[int]func(fleet.Change) // by a number of their own
	next    int
}

func newChanges() *changes {
	return &changes{follow: map[int]func(fleet.Change){}, news: make(chan struct{}, 1)}
}

// add receives the changes of the fleet.
func (c *changes) add(change fleet.Change) {
	c.mu.Lock()
	c.queue = append(c.queue, change)
	c.mu.Unlock()
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// run passes changes on until ctx ends.
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
		c.pass(queue)
	}
}

func (c *changes) pass(queue []fleet.Change) {
	c.passing.Lock()
	defer c.passing.Unlock()
	for _, change := range queue {
		for _, f := range c.follow {
			f(change)
		}
	}
}

// listen calls f with each change, in order, until stop is called. f may ask the clusters, but must not call c.
func (c *changes) listen(f func(fleet.Change)) (stop func()) {
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

// listenApplied calls f with each cluster in which a Deployment has changed: that is what is applied last of a module.
func (c *changes) listenApplied(f func(i int)) (stop func()) {
	return c.listen(func(change fleet.Change) {
		if change.Resource == deployments.GroupResource() {
			f(change.Cluster)
		}
	})
}
