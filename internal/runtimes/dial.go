package runtimes

import (
	"context"
	"sync"
)

// dialLocks is a set of locks, one for each Kyma, by its name. If several goroutines need the same connection, one of
// them makes the connection and the others wait. The zero value is ready to use.
type dialLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // guarded by mu; closed when the lock is released
}

// lock waits until the lock of a Kyma is free, locks it, and returns the function that releases it.
func (d *dialLocks) lock(ctx context.Context, kyma string) (unlock func(), err error) {
	for {
		d.mu.Lock()
		other := d.held[kyma]
		if other == nil {
			if d.held == nil {
				d.held = map[string]chan struct{}{}
			}
			released := make(chan struct{})
			d.held[kyma] = released
			d.mu.Unlock()
			return func() {
				d.mu.Lock()
				delete(d.held, kyma)
				d.mu.Unlock()
				close(released)
			}, nil
		}
		d.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
