package backchannel

import "time"

// rate describes a token bucket, which immediately allows as many calls as its burst, and after that one call per
// interval.
type rate struct {
	interval time.Duration
	burst    int
}

// The rate limits heartbeats, notifications and logLines apply in addition to the limit for the events of one runtime.
// An agent that works correctly stays below all rate limits.
var (
	// heartbeats is the rate limit for the heartbeats of one runtime. The limit is separate from the limit for events,
	// so that a runtime that sends too many events still counts as connected.
	heartbeats = rate{time.Second / 2, 10}
	// notifications is the rate limit for the calls of Changed and of Missed for one runtime.
	notifications = rate{15 * time.Second, 5}
	// logLines is the limit for log lines about refused requests, for all runtimes together.
	logLines = rate{time.Second, 10}
)

// bucket is the state of one token bucket. The zero value is a full bucket.
type bucket struct {
	full time.Time // time at which the bucket is full again
}

// takeToken takes one token from the bucket if the bucket has a token. If the bucket has no token, the result "wait" is
// the time until the bucket has a token.
func (b *bucket) takeToken(r rate, now time.Time) (ok bool, wait time.Duration) {
	if b.full.Before(now) {
		b.full = now
	}
	if wait = b.full.Sub(now) - time.Duration(r.burst-1)*r.interval; wait > 0 {
		return false, wait
	}
	b.full = b.full.Add(r.interval)
	return true, 0
}

// notification calls a callback at a limited rate: immediately, or later if the rate is exceeded.
type notification struct {
	bucket  bucket
	pending bool
	at      time.Time // time of the next attempt, if pending
}

// takeTurnOrPostpone reports whether the callback of the notification must be called now. If the callback must be
// called, takeTurnOrPostpone takes a token. If the bucket has no token, the call stays pending.
func (n *notification) takeTurnOrPostpone(now time.Time) (mustCall bool) {
	ok, wait := n.bucket.takeToken(notifications, now)
	n.pending = !ok
	n.at = now.Add(wait)
	return ok
}
