package outbox

import (
	"math/rand/v2"
	"time"
)

// Backoff returns the delay of the next attempt after a number of consecutive failures. The maximum delay doubles with
// each failure. The delay is a random time between half of the maximum delay and the maximum delay.
func Backoff(failures int) time.Duration {
	d := min(maxRetryDelay, MinRetryDelay<<min(failures-1, 10))
	return d/2 + rand.N(d/2)
}

// laterTime returns the later of two times.
func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// schedule is a heap of entries, ordered by the time when they are due.
type schedule []*entry

// Len implements heap.Interface.
func (s schedule) Len() int { return len(s) }

// Less implements heap.Interface.
func (s schedule) Less(i, j int) bool {
	if !s[i].at.Equal(s[j].at) {
		return s[i].at.Before(s[j].at)
	}
	return s[i].order < s[j].order
}

// Swap implements heap.Interface.
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	e := x.(*entry)
	e.index = len(*s)
	*s = append(*s, e)
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	e := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	e.index = -1
	return e
}
