package queueing

import "time"

// staggerInterval is the longest time between two items of [Stagger].
const staggerInterval = 10 * time.Millisecond

// Stagger calls add with each item, in order. The interval between two calls is 10 ms. If all calls would then take
// longer than limit, the interval is shorter. So a change that concerns thousands of runtimes does not add all of them
// to a queue at once. Stagger returns at once; other goroutines make the calls.
func Stagger[T any](items []T, limit time.Duration, add func(T)) {
	total := min(limit, time.Duration(len(items))*staggerInterval)
	for i, item := range items {
		time.AfterFunc(total*time.Duration(i)/time.Duration(len(items)), func() { add(item) })
	}
}
