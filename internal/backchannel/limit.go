package backchannel

import "time"

// rate is how much is allowed: burst at once, and then one in each interval.
type rate struct {
	interval time.Duration
	burst    int
}

// What one runtime may cost beside its events. None of these is met by an agent that works.
var (
	// heartbeats are apart from events: a runtime that sends too many events is still heard.
	heartbeats = rate{time.Second / 2, 10}
	// notices are calls of Changed, and of Missed, for one runtime.
	notices = rate{15 * time.Second, 5}
	// lines are those of the log that are about refused requests, of all runtimes together.
	lines = rate{time.Second, 10}
)

// bucket counts what is left of a rate. The zero value is full.
type bucket struct {
	full time.Time // when it is full again
}

// take takes one if there is one. If not, wait is the time until there is.
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

// notice is something to be told, now or when it has not been told too often.
type notice struct {
	bucket bucket
	owed   bool
	at     time.Time // when to try again, if owed
}

// due tells whether to tell it now. If not, it stays owed.
func (n *notice) due(now time.Time) bool {
	ok, wait := n.bucket.take(notices, now)
	n.owed = !ok
	n.at = now.Add(wait)
	return ok
}
