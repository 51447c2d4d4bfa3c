package loop

import "time"

// Wait returns how long to wait before looking again at something that has not happened since the given moment: a quarter of
// the time already waited, between 200 ms and 30 s. So what is quick is seen quickly, and what takes an hour costs two looks
// a minute, without anybody counting tries. A zero since counts as now. One in the future, because a clock was put back, counts as if it
// were as long ago: otherwise there would be five looks a second until then.
func PollDelay(now, since time.Time) time.Duration {
	if since.IsZero() {
		since = now
	}
	return min(max(now.Sub(since).Abs()/4, 200*time.Millisecond), 30*time.Second)
}
