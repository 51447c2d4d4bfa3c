package fleetindex

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// maxKept is the maximum number of stored values.
const maxKept = 100

// OnDemandTimeout is the timeout of one read of data that the index does not have. The default is 20 s. Tests change
// OnDemandTimeout.
var OnDemandTimeout = 20 * time.Second

// OnDemand reads data that the index does not have. Viewers that request the same data at the same time share one read.
// The zero value is empty.
type OnDemand struct {
	flights singleflight.Group
	mu      sync.Mutex
	kept    map[string]kept // guarded by mu
}

type kept struct {
	value any
	err   error
	at    time.Time
}

// Get returns the stored value of a key if the value is not older than age. If the value is older or is missing, Get
// calls the function read and stores the value that read returns.
func (o *OnDemand) Get(ctx context.Context, key string, age time.Duration, read func(context.Context) (any, error)) (
	any, error) {
	o.mu.Lock()
	k, is := o.kept[key]
	o.mu.Unlock()
	if is && time.Since(k.at) < age {
		return k.value, k.err
	}
	value, err, _ := o.flights.Do(key, func() (any, error) {
		// other viewers may wait for the same read, so the read does not end with the request of the first viewer
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), OnDemandTimeout)
		defer cancel()
		value, err := read(ctx)
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.kept == nil || len(o.kept) >= maxKept {
			o.kept = map[string]kept{}
		}
		o.kept[key] = kept{value, err, time.Now()}
		return value, err
	})
	return value, err
}
