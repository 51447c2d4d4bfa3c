package eventlog

import (
	"testing"
	"time"
)

// TestBudget checks that a runtime gets a burst of events, then one per interval, and never saves more than a burst.
func TestBudget(t *testing.T) {
	l := New(nil)
	now := time.Now()
	count := func(at time.Time) (n int) {
		for l.take("a", at) {
			n++
		}
		return n
	}
	if got := count(now); got != burst {
		t.Errorf("got %d events at once, want %d", got, burst)
	}
	if got := count(now.Add(2 * interval)); got != 2 {
		t.Errorf("got %d events after two intervals, want 2", got)
	}
	if got := count(now.Add(1000 * interval)); got != burst {
		t.Errorf("got %d events after a long time, want %d", got, burst)
	}
	if !l.take("b", now) {
		t.Error("another runtime has no budget of its own")
	}
}
