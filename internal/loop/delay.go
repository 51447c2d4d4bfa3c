package loop

import (
	"hash/fnv"
	"time"
)

// PollDelay returns the delay until something is checked again that has not happened since the given time: a quarter of
// the time already waited, between 200 ms and 30 s. So a fast change is noticed fast, and one that takes an hour costs
// two checks a minute, without a counter of tries. A zero since counts as now. A since in the future, because a clock
// was put back, counts as if it were as long ago: otherwise there would be five checks a second until then.
func PollDelay(now, since time.Time) time.Duration {
	if since.IsZero() {
		since = now
	}
	return min(max(now.Sub(since).Abs()/4, 200*time.Millisecond), 30*time.Second)
}

// Spread returns an interval between 7/8 and 9/8 of the given one that depends on the name only, so that the objects of
// a fleet with the same interval are not reconciled all at the same time.
func Spread(interval time.Duration, name string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return interval - interval/8 + interval/4*time.Duration(h.Sum32()%1024)/1024
}
