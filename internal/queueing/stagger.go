package queueing

import "time"

// staggerInterval is the time between two items of [Stagger], unless that takes too long in all.
const staggerInterval = 10 * time.Millisecond

// Stagger calls add with each item, in order, one every 10 ms, or faster if that would take longer than the limit in
// all. So a change that concerns thousands of runtimes does not put all of them into a queue at once. It returns at
// once; the calls come from other goroutines.
func Stagger[T any](items []T, limit time.Duration, add func(T)) {
	total := min(limit, time.Duration(len(items))*staggerInterval)
	for i, item := range items {
		time.AfterFunc(total*time.Duration(i)/time.Duration(len(items)), func() { add(item) })
	}
}
