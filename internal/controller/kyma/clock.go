package kyma

import (
	"context"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Timers run on a clock that nobody sets; windows are on the one on the wall. When that is set, or the machine was asleep, whoever waits for
// a window would come back late by as much, or too early, which does no harm. So once in a while both clocks are compared.

const (
	// clockPeriod is how often the clocks are compared: so late a window may be noticed that a jump has opened.
	clockPeriod = 30 * time.Second
	// clockJump is by how much the clocks have to part before anybody cares. Less comes from clocks that are set right little by little.
	clockJump = time.Second
)

// clock compares the clock on the wall with the one that timers run on.
type clock struct {
	began time.Time     // on the wall, when the other one said 0
	apart time.Duration // by how much the clock on the wall was ahead of the other one when that was last told
}

// hasJumped tells whether the clock on the wall was set since it was last told so. The program has been running for so long.
func (c *clock) hasJumped(wall time.Time, running time.Duration) bool {
	apart := wall.Sub(c.began) - running
	if (apart - c.apart).Abs() < clockJump {
		return false
	}
	c.apart = apart
	return true
}

// followClock wakes those that wait for a maintenance window when the clock was set, until ctx ends.
func (r *Reconciler) followClock(ctx context.Context) error {
	watchClock(ctx, func() time.Time { return time.Now().Round(0) }, func() {
		if q := r.queue.Load(); q != nil {
			r.wakeIndexed(ctx, *q, waitingIndex, v1beta2.ValueTrue)
		}
	})
	return nil
}

// watchClock calls jumped when the clock on the wall, which has no monotonic part, has parted from that of timers.
func watchClock(ctx context.Context, wall func() time.Time, jumped func()) {
	began := time.Now()
	c := clock{began: wall()}
	ticker := time.NewTicker(clockPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if c.hasJumped(wall(), time.Since(began)) {
			jumped()
		}
	}
}
