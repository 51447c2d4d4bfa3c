package loop

import (
	"hash/fnv"
	"time"
)

// PollDelay returns the delay before the next check for a change that has been awaited since the given time. The delay
// is a quarter of the time already waited, at least 200 ms and at most 30 s. A fast change is therefore detected soon,
// and a change that takes an hour causes only two checks a minute. A caller need not count its checks: the time of the
// first check is sufficient to compute the delay.
//
// If the parameter since is the zero time, it means the present time. If a clock was set back, the parameter since may
// be in the future. PollDelay treats a time in the future like the time equally long before now. If PollDelay treated a
// time in the future like the present time, there would be five checks a second until the clock reaches the time.
func PollDelay(now, since time.Time) time.Duration {
	if since.IsZero() {
		since = now
	}
	return min(max(now.Sub(since).Abs()/4, 200*time.Millisecond), 30*time.Second)
}

// Spread returns an interval between 7/8 and 9/8 of the given interval. The result depends only on the given interval
// and the name. Objects of a fleet that have the same interval are therefore not all reconciled at the same time.
func Spread(interval time.Duration, name string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return interval - interval/8 + interval/4*time.Duration(h.Sum32()%1024)/1024
}
