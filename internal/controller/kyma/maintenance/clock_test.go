package maintenance

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestNoticeJump(t *testing.T) {
	start := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	type check struct {
		offset time.Duration // how far the wall clock is ahead
		want   bool
	}
	cases := map[string]struct {
		reason string
		checks []check
	}{
		"Never": {
			reason: "the clocks agree",
			checks: []check{{0, false}, {0, false}},
		},
		"Slow": {
			reason: "the wall clock is corrected gradually",
			checks: []check{{300 * time.Millisecond, false}, {600 * time.Millisecond, false},
				{900 * time.Millisecond, false}},
		},
		"Drift": {
			reason: "gradual corrections add up to a jump",
			checks: []check{
				{900 * time.Millisecond, false}, {1100 * time.Millisecond, true}, {1500 * time.Millisecond, false},
				{2200 * time.Millisecond, true},
			},
		},
		"Forwards": {
			reason: "one jump is reported once",
			checks: []check{{0, false}, {time.Hour, true}, {time.Hour, false}},
		},
		"Back": {
			reason: "a jump back counts too",
			checks: []check{{-time.Hour, true}, {-time.Hour, false}},
		},
		"Corrected": {
			reason: "the correction of a jump is a jump",
			checks: []check{{-time.Hour, true}, {0, true}, {0, false}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := clock{start: start}
			for i, l := range c.checks {
				elapsed := time.Duration(i+1) * clockCheckInterval
				if got := k.noticeJump(start.Add(elapsed+l.offset), elapsed); got != l.want {
					t.Errorf("%s: check %d returns %t, want %t", c.reason, i, got, l.want)
				}
			}
		})
	}
}

// TestFollowClock sets the wall clock and measures the time until the change is noticed.
func TestFollowClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var offset, jumps atomic.Int64
		go followClock(ctx, func() time.Time { return time.Now().Round(0).Add(time.Duration(offset.Load())) },
			func() { jumps.Add(1) })
		time.Sleep(10*time.Hour + time.Second)
		if n := jumps.Load(); n != 0 {
			t.Errorf("%d jumps in ten hours, want none", n)
		}
		offset.Store(int64(time.Hour))
		time.Sleep(time.Minute)
		if n := jumps.Load(); n != 1 {
			t.Errorf("%d jumps in the minute after a jump, want one", n)
		}
		offset.Store(int64(-time.Hour))
		time.Sleep(time.Hour)
		if n := jumps.Load(); n != 2 {
			t.Errorf("%d jumps after a second jump, want two", n)
		}
		cancel()
	})
}
