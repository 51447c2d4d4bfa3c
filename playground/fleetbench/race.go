package main

import (
	"context"
	"sync"
	"time"
)

// race measures the time that each cluster needs for a task, such as the installation of a module. Several goroutines
// may call the methods of a race at the same time.
type race struct {
	mu    sync.Mutex
	began []time.Time // zero: the cluster was not started; guarded by mu, as all following fields
	ended []time.Time // zero: the cluster has not finished
	left  int
	over  chan struct{} // receives a value when a cluster has finished
}

func newRace(n int) *race {
	return &race{began: make([]time.Time, n), ended: make([]time.Time, n), over: make(chan struct{}, 1)}
}

// markStarted starts the measurement of a cluster, or starts it again.
func (r *race) markStarted(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began[i].IsZero() || !r.ended[i].IsZero() {
		r.left++
	}
	r.began[i], r.ended[i] = time.Now(), time.Time{}
}

// isRunning reports whether a cluster has started and not finished.
func (r *race) isRunning(i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.began[i].IsZero() && r.ended[i].IsZero()
}

// markFinished records that a cluster has finished, if it is running.
func (r *race) markFinished(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began[i].IsZero() || !r.ended[i].IsZero() {
		return
	}
	r.ended[i] = time.Now()
	r.left--
	select {
	case r.over <- struct{}{}:
	default:
	}
}

// startedAndFinished returns the number of clusters that have started, and the number of clusters that have also
// finished.
func (r *race) startedAndFinished() (started, finished int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.began {
		if !r.began[i].IsZero() {
			started++
		}
	}
	return started, started - r.left
}

// unfinished returns at most limit clusters that have started and have not finished.
func (r *race) unfinished(limit int) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []int
	for i := range r.began {
		if !r.began[i].IsZero() && r.ended[i].IsZero() && len(all) < limit {
			all = append(all, i)
		}
	}
	return all
}

// finishedDurations returns how long each finished cluster took, in the order of the indexes of the clusters.
func (r *race) finishedDurations() (inIndexOrder []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []time.Duration
	for i, end := range r.ended {
		if !end.IsZero() {
			all = append(all, end.Sub(r.began[i]))
		}
	}
	return all
}

// waitForAll returns when all clusters have finished. waitForAll returns an error if the context ends before.
func (r *race) waitForAll(ctx context.Context) error {
	for {
		r.mu.Lock()
		left := r.left
		r.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-r.over:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// started reports whether the time of a cluster is measured.
func (r *race) started(i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.began[i].IsZero()
}

// finishTimes returns the times of the clusters that have finished, by index.
func (r *race) finishTimes() map[int]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[int]time.Duration{}
	for i, end := range r.ended {
		if !end.IsZero() {
			all[i] = end.Sub(r.began[i])
		}
	}
	return all
}
