package backchannel

import "time"

// rate is a token bucket: burst at once, then one per interval.
type rate struct {
	interval time.Duration
	burst    int
}

// Limits for one runtime in addition to its events. An agent that works correctly reaches none of them.
var (
	// heartbeats are counted separately from events: a runtime that sends too many events stays alive.
	heartbeats = rate{time.Second / 2, 10}
	// notifications are calls of Changed and of Missed for one runtime.
	notifications = rate{15 * time.Second, 5}
	// logLines are log lines about refused requests of all runtimes together.
	logLines = rate{time.Second, 10}
)

// bucket is the state of a rate. The zero value is full.
type bucket struct {
	full time.Time // when it is full again
}

// take takes one token if there is one. Otherwise wait is the time until there is.
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

// notification is a callback that is called now, or later if its rate is exceeded.
type notification struct {
	bucket  bucket
	pending bool
	at      time.Time // when to retry, if pending
}

// due reports whether to call it now and takes a token. Otherwise it stays pending.
func (n *notification) due(now time.Time) bool {
	ok, wait := n.bucket.take(notifications, now)
	n.pending = !ok
	n.at = now.Add(wait)
	return ok
}
