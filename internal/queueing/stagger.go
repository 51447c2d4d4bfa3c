package queueing

import "time"

// staggerInterval is the maximum time between two calls that [StaggerInBackground] makes.
const staggerInterval = 10 * time.Millisecond

// StaggerInBackground calls the function add with each item, in order. The interval between two calls of add is 10 ms.
// If all calls together would take longer than the duration in the parameter maxDuration, StaggerInBackground shortens
// the interval between two calls, so that all calls together take as long as maxDuration. A change that concerns
// thousands of runtimes therefore does not enqueue all of them at once. StaggerInBackground does not wait: another
// goroutine makes the calls.
func StaggerInBackground[T any](items []T, maxDuration time.Duration, add func(T)) {
	total := min(maxDuration, time.Duration(len(items))*staggerInterval)
	for i, item := range items {
		time.AfterFunc(total*time.Duration(i)/time.Duration(len(items)), func() { add(item) })
	}
}
