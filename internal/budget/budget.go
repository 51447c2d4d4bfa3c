// Package budget limits how often something may happen for each runtime.
//
// # Use
//
//	b := budget.New(100, 6*time.Second)                    // 100 at once, then one every 6 seconds
//	if wait := b.Take("runtime-a", time.Now()); wait > 0 { // not now
//
// # How it works
//
// Each runtime has a token bucket, which is full at the beginning. A full bucket has the same effect as no bucket, so
// buckets are deleted when they are full again.
//
// # What it does not do
//
// The package does not wait, and stores nothing about what was refused.
package budget

import (
	"sync"
	"time"
)

// maxBuckets is the number of buckets above which the full ones are deleted. If more runtimes have buckets that are not
// full, the full ones are deleted when the number of buckets has doubled: so the cost of a new bucket does not depend
// on the number of buckets.
const maxBuckets = 4096

// Budget limits for each runtime how often something may happen. A nil Budget allows everything. A Budget is safe for
// concurrent use.
type Budget struct {
	burst    int
	interval time.Duration

	mu      sync.Mutex
	buckets map[string]*bucket // guarded by mu; by name of the runtime
	limit   int                // guarded by mu: number of buckets at which the full ones are deleted
}

// bucket is the token bucket of one runtime.
type bucket struct {
	left    int       // negative if the runtime owes tokens
	updated time.Time // when left was last increased
}

// New returns a Budget. The parameter burst is the number of tokens that a runtime can take in a row; a number below 1
// counts as 1. After the burst, the runtime gets one more token per interval; an interval below 1 ns counts as 1 ns.
func New(burst int, interval time.Duration) *Budget {
	return &Budget{burst: max(burst, 1), interval: max(interval, 1), buckets: map[string]*bucket{}, limit: maxBuckets}
}

// Take takes one token of a runtime and returns 0. If the runtime has no token left, Take returns the time until the
// runtime gets the next token.
func (b *Budget) Take(runtime string, now time.Time) (wait time.Duration) {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	is := b.bucketLocked(runtime, now)
	if is.left <= 0 {
		return max(time.Millisecond, is.updated.Add(b.interval*time.Duration(1-is.left)).Sub(now))
	}
	is.left--
	return 0
}

// SpendIfAvailable takes one token of a runtime for something that has already happened, whether or not there is a
// token.
func (b *Budget) SpendIfAvailable(runtime string, now time.Time) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if is := b.bucketLocked(runtime, now); is.left > 0 {
		is.left--
	}
}

// Charge takes n tokens of a runtime for something that has already happened. A runtime that has fewer tokens owes the
// others: it can take the next token only after it has got as many tokens as it owes.
func (b *Budget) Charge(runtime string, n int, now time.Time) {
	if b == nil || n <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bucketLocked(runtime, now).left -= n
}

// Forget drops the bucket of a runtime.
func (b *Budget) Forget(runtime string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.buckets, runtime)
}

// bucketLocked returns the bucket of a runtime, with the tokens that it has at present.
func (b *Budget) bucketLocked(runtime string, now time.Time) *bucket {
	is := b.buckets[runtime]
	if is == nil {
		if len(b.buckets) >= b.limit {
			b.deleteFullLocked(now)
			b.limit = max(maxBuckets, 2*len(b.buckets))
		}
		is = &bucket{left: b.burst, updated: now}
		b.buckets[runtime] = is
	}
	b.fill(is, now)
	return is
}

// fill adds the tokens that a bucket has got since the last call.
func (b *Budget) fill(is *bucket, now time.Time) {
	earned := now.Sub(is.updated) / b.interval
	switch {
	case earned < 0: // the clock was set back
		is.updated = now
	case earned >= time.Duration(b.burst-is.left):
		is.left, is.updated = b.burst, now
	default:
		is.left += int(earned)
		is.updated = is.updated.Add(earned * b.interval)
	}
}

// deleteFullLocked deletes the buckets that are full.
func (b *Budget) deleteFullLocked(now time.Time) {
	for name, is := range b.buckets {
		if b.fill(is, now); is.left == b.burst {
			delete(b.buckets, name)
		}
	}
}
