package runtimes

import (
	"context"
	"sync"
)

// dials lets one of those who need the same connection make it, while the others wait. The zero value is ready to use.
type dials struct {
	mu      sync.Mutex
	running map[string]chan struct{} // guarded by mu; closed at the end of a dial
}

// turn waits until nobody dials for kyma, and returns the end of the turn of the caller.
func (d *dials) turn(ctx context.Context, kyma string) (done func(), err error) {
	for {
		d.mu.Lock()
		other := d.running[kyma]
		if other == nil {
			if d.running == nil {
				d.running = map[string]chan struct{}{}
			}
			mine := make(chan struct{})
			d.running[kyma] = mine
			d.mu.Unlock()
			return func() {
				d.mu.Lock()
				delete(d.running, kyma)
				d.mu.Unlock()
				close(mine)
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
