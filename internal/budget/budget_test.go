package budget

import (
	"fmt"
	"testing"
	"time"
)

// TestTake checks how often something may happen for one runtime, and how long it takes until it may happen again.
func TestTake(t *testing.T) {
	begin := time.Date(2026, time.November, 23, 9, 0, 0, 0, time.UTC)
	b := New(3, 10*time.Second)
	for i, step := range []struct {
		reason string
		at     time.Duration // since begin
		want   time.Duration
	}{
		{"the burst", 0, 0},
		{"the burst", 0, 0},
		{"the burst", time.Second, 0},
		{"nothing is left", time.Second, 9 * time.Second},
		{"refused ones cost nothing", 4 * time.Second, 6 * time.Second},
		{"one interval has passed", 10 * time.Second, 0},
		{"only one", 10 * time.Second, 10 * time.Second},
		{"half an interval is kept", 25 * time.Second, 0},
		{"half an interval was kept", 30 * time.Second, 0},
		{"the clock was set back", -time.Hour, 10 * time.Second},
		{"which delays nothing by an hour", -time.Hour + 10*time.Second, 0},
		{"never more than the burst", time.Hour, 0},
		{"never more than the burst", time.Hour, 0},
		{"never more than the burst", time.Hour, 0},
		{"never more than the burst", time.Hour, 10 * time.Second},
	} {
		if got := b.Take("a", begin.Add(step.at)); got != step.want {
			t.Errorf("step %d: %s: %s, want %s", i, step.reason, got, step.want)
		}
	}
	if wait := b.Take("b", begin); wait != 0 {
		t.Errorf("another runtime waits for %s", wait)
	}
	b.Forget("a")
	if wait := b.Take("a", begin); wait != 0 {
		t.Errorf("a forgotten runtime waits for %s", wait)
	}
}

// TestSpend checks that SpendIfAvailable takes tokens from a bucket, and that the number of tokens is never negative.
func TestSpend(t *testing.T) {
	now := time.Now()
	b := New(2, time.Second)
	for range 10 {
		b.SpendIfAvailable("a", now)
	}
	if first, later := b.Take("a", now), b.Take("a", now.Add(time.Second)); first != time.Second || later != 0 {
		t.Errorf("waits for %s, and for %s a second later", first, later)
	}
	var none *Budget
	if none.SpendIfAvailable("a", now); none.Take("a", now) != 0 {
		t.Error("no budget refuses something")
	}
}

// TestCharge checks that a runtime that owes tokens gets none until it has got as many as it owes.
func TestCharge(t *testing.T) {
	now := time.Now()
	b := New(3, time.Second)
	b.Charge("a", 0, now)
	b.Charge("a", -1, now)
	b.Charge("a", 5, now)
	for _, step := range []struct{ at, want time.Duration }{
		{0, 3 * time.Second},
		{2500 * time.Millisecond, 500 * time.Millisecond},
		{3 * time.Second, 0},
		{3 * time.Second, time.Second},
		{10 * time.Second, 0},
	} {
		if got := b.Take("a", now.Add(step.at)); got != step.want {
			t.Errorf("after %s: waits for %s, want %s", step.at, got, step.want)
		}
	}
	if wait := b.Take("b", now); wait != 0 {
		t.Errorf("another runtime waits for %s", wait)
	}
	var none *Budget
	none.Charge("a", 1, now)
}

// TestLowest checks the lowest burst and interval.
func TestLowest(t *testing.T) {
	now := time.Now()
	for _, burst := range []int{0, -1} {
		b := New(burst, time.Second)
		if first, next := b.Take("a", now), b.Take("a", now); first != 0 || next != time.Second {
			t.Errorf("with a burst of %d, the first waits for %s and the next for %s", burst, first, next)
		}
	}
	for _, interval := range []time.Duration{0, -time.Second} {
		b := New(1, interval)
		if first, next := b.Take("a", now), b.Take("a", now.Add(1)); first != 0 || next != 0 {
			t.Errorf("with an interval of %s, the first waits for %s and the next for %s", interval, first, next)
		}
	}
}

// TestBuckets checks that a runtime that has done nothing for long costs no memory.
func TestBuckets(t *testing.T) {
	now := time.Now()
	b := New(2, time.Second)
	for i := range 3 * maxBuckets {
		b.Take(fmt.Sprint(i), now.Add(time.Duration(i)*time.Millisecond))
	}
	if len(b.buckets) > maxBuckets {
		t.Errorf("%d buckets", len(b.buckets))
	}
}

// TestManyBusyRuntimes checks that buckets that are not full stay, and that they are deleted when they are full again.
// The number of searches for full buckets grows with the logarithm of the number of runtimes.
func TestManyBusyRuntimes(t *testing.T) {
	now := time.Now()
	b := New(1, time.Hour)
	searches, limit := 0, b.limit
	for i := range 5 * maxBuckets {
		b.Take(fmt.Sprint(i), now)
		if b.limit != limit {
			searches, limit = searches+1, b.limit
		}
	}
	if searches != 3 || b.Take("0", now) == 0 {
		t.Errorf("%d searches, want 3, and a runtime without a token waits", searches)
	}
	for i := range 5 * maxBuckets {
		b.Take(fmt.Sprint("later", i), now.Add(time.Hour))
	}
	if got := len(b.buckets); got > 10*maxBuckets {
		t.Errorf("%d buckets", got)
	}
	if b.Take("0", now.Add(time.Hour)) != 0 {
		t.Error("a runtime got no new token")
	}
}

// BenchmarkTakeOfNewRuntimes takes one token of each of many runtimes. The time per runtime should not depend on the
// number of runtimes.
func BenchmarkTakeOfNewRuntimes(b *testing.B) {
	for _, runtimes := range []int{4096, 16384} {
		names := make([]string, runtimes)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		b.Run(fmt.Sprint(runtimes), func(b *testing.B) {
			now := time.Now()
			for b.Loop() {
				budget := New(2, time.Hour)
				for _, name := range names {
					budget.Take(name, now)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*runtimes), "ns/runtime")
		})
	}
}
