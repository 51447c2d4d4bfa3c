package fleetindex

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// maxKept is the maximum number of stored values. A value may be as large as the plan of a rollout to the fleet.
	maxKept = 5
	// maxReads is the maximum number of reads at the same time.
	maxReads = 2
)

// OnDemandTimeout is the timeout of one read of data that the index does not have. The default is 20 s. Tests change
// OnDemandTimeout.
var OnDemandTimeout = 20 * time.Second

// OnDemand reads data that the index does not have. Viewers that request the same data at the same time share one read.
// The zero value is empty.
type OnDemand struct {
	flights singleflight.Group
	mu      sync.Mutex
	kept    map[string]kept // guarded by mu
	slots   chan struct{}   // one element for each read in progress; guarded by mu until it is made
}

type kept struct {
	value any
	err   error
	until time.Time
}

// Get returns the stored value of a key, or calls the function read and stores for the duration age the value that read
// returns. Get deletes all values whose time has ended, because they can be large. If maxReads other reads are in
// progress, Get waits for one of them.
func (o *OnDemand) Get(ctx context.Context, key string, age time.Duration, read func(context.Context) (any, error)) (
	any, error) {
	o.mu.Lock()
	k, is := o.kept[key]
	o.mu.Unlock()
	if is && time.Now().Before(k.until) {
		return k.value, k.err
	}
	value, err, _ := o.flights.Do(key, func() (any, error) {
		// other viewers may wait for the same read, so the read does not end with the request of the first viewer
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), OnDemandTimeout)
		defer cancel()
		slots := o.readSlots()
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for other reads: %w", ctx.Err())
		}
		value, err := read(ctx)
		o.store(key, kept{value, err, time.Now().Add(age)})
		return value, err
	})
	return value, err
}

// readSlots returns the channel that limits the reads at the same time.
func (o *OnDemand) readSlots() chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.slots == nil {
		o.slots = make(chan struct{}, maxReads)
	}
	return o.slots
}

// store stores a value, and deletes the values whose time has ended. If there are still maxKept values, store deletes
// the value whose time ends first.
func (o *OnDemand) store(key string, k kept) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kept == nil {
		o.kept = map[string]kept{}
	}
	now, first := time.Now(), ""
	for other, k := range o.kept {
		if !now.Before(k.until) {
			delete(o.kept, other)
		} else if first == "" || k.until.Before(o.kept[first].until) {
			first = other
		}
	}
	if _, is := o.kept[key]; !is && len(o.kept) >= maxKept {
		delete(o.kept, first)
	}
	o.kept[key] = k
}
