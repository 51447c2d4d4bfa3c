package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of waits that take seconds. They are long because the machine may be busy.
const (
	startTimeout = 10 * time.Minute // for a process to start, and for a part of it to be ready
	stopTimeout  = 2 * time.Minute  // for a process to end
)

// poll calls done every 50 ms until done returns true or an error. If this takes longer than the duration most,
// until returns an error.
func poll(ctx context.Context, most time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("it took longer than %v", most))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done()
		if err != nil || ok {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}

// pause waits for the duration d, or until the context ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// inParallel calls the function work() with each number from 0 to n-1. The constant creating is the number of calls
// that run at the same time. inParallel returns the first error of a call, and starts no new call after an error.
func inParallel(ctx context.Context, n int, work func(i int) error) error {
	var (
		next  atomic.Int64
		group sync.WaitGroup
		once  sync.Once
		first error
	)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range min(creating, n) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := work(i); err != nil {
					once.Do(func() { first = err })
					cancel()
				}
			}
		})
	}
	group.Wait()
	if first == nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return first
}
