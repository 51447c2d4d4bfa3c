package backchannel

import "time"

// rate is a token bucket. rate allows burst calls at once, and then one call per interval.
type rate struct {
	interval time.Duration
	burst    int
}

// Limits for one runtime, in addition to the limit for its events. An agent that works correctly reaches no limit.
var (
	// heartbeats limits the heartbeats of one runtime. The limit is separate from the limit for events, so that a
	// runtime that sends too many events still counts as connected.
	heartbeats = rate{time.Second / 2, 10}
	// notifications limits the calls of Changed and of Missed for one runtime.
	notifications = rate{15 * time.Second, 5}
	// logLines limits the log lines about refused requests, for all runtimes together.
	logLines = rate{time.Second, 10}
)

// bucket is the state of a token bucket with a rate. The zero value is a full bucket.
type bucket struct {
	full time.Time // time at which the bucket is full again
}

// take takes one token if the bucket has one. Otherwise wait is the time until the bucket has a token.
func (b *bucket) take(r rate, now time.Time) (ok bool, wait time.Duration) {
	if b.full.Before(now) {
		b.full = now
	}
	if wait = b.full.Sub(now) - time.Duration(r.burst-1)*r.interval; wait > 0 {
		return false, wait
	}
	b.full = b.full.Add(r.interval)
	return true, 0
}

// notification is a callback with a rate limit. notification is called immediately, or later if the rate is exceeded.
type notification struct {
	bucket  bucket
	pending bool
	at      time.Time // time of the next attempt, if pending
}

// due reports whether the callback must be called now. If so, it takes a token. If there is no token, the notification
// stays pending.
func (n *notification) due(now time.Time) bool {
	ok, wait := n.bucket.take(notifications, now)
	n.pending = !ok
	n.at = now.Add(wait)
	return ok
}
