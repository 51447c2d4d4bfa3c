package maintenance

import (
	"context"
	"time"
)

// Timers use the monotonic clock, but maintenance windows are on the wall clock. If the wall clock is set forward by an
// hour, or the machine is suspended for an hour, the timer for the start of a window fires an hour too late. After the
// wall clock was set back, the timer fires too early, which does no harm. To notice that the wall clock was set, the
// package compares the monotonic clock and the wall clock regularly.

const (
	// clockCheckInterval is the time between two comparisons of the wall clock with the monotonic clock. If a
	// maintenance window opens because the wall clock was set, the package notices this at most clockCheckInterval
	// later.
	clockCheckInterval = 30 * time.Second
	// clockJumpLimit is the smallest deviation between the wall clock and the monotonic clock that counts as a change
	// of the wall clock. A deviation below clockJumpLimit comes from a gradual correction of the wall clock.
	clockJumpLimit = time.Second
)

// FollowClock calls the function jumped each time somebody has set the wall clock, until ctx ends.
func FollowClock(ctx context.Context, jumped func()) {
	followClock(ctx, func() time.Time { return time.Now().Round(0) }, jumped)
}

// followClock does the same as FollowClock, with the wall clock as a parameter. The times that wall returns have no
// monotonic part.
func followClock(ctx context.Context, wall func() time.Time, jumped func()) {
	start := time.Now()
	c := clock{start: wall()}
	ticker := time.NewTicker(clockCheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if c.noticeJump(wall(), time.Since(start)) {
			jumped()
		}
	}
}

// clock compares the wall clock with the monotonic clock.
type clock struct {
	start  time.Time     // the time of the wall clock when the monotonic clock was at 0
	offset time.Duration // how far the wall clock was ahead of the monotonic clock at the last jump
}

// noticeJump reports whether somebody has set the wall clock since the last call. If somebody has set the wall clock,
// noticeJump stores the new offset between the wall clock and the monotonic clock. The parameter elapsed is the
// monotonic time since the start.
func (c *clock) noticeJump(wall time.Time, elapsed time.Duration) bool {
	offset := wall.Sub(c.start) - elapsed
	if (offset - c.offset).Abs() < clockJumpLimit {
		return false
	}
	c.offset = offset
	return true
}
