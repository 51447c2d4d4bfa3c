package fleetindex

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestOnDemandMemory checks that values are dropped when their time has ended, that the number of values is limited,
// and that the number of reads at the same time is limited.
func TestOnDemandMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &OnDemand{}
		var reading, most, reads atomic.Int64
		read := func(context.Context) (any, error) {
			reads.Add(1)
			most.Store(max(most.Load(), reading.Add(1)))
			defer reading.Add(-1)
			time.Sleep(time.Second)
			return "x", nil
		}
		get := func(key string) {
			if value, err := o.Get(t.Context(), key, time.Minute, read); value != "x" || err != nil {
				t.Errorf("%s: %v, %v", key, value, err)
			}
		}
		stored := func() (n int, hasA bool) {
			o.mu.Lock()
			defer o.mu.Unlock()
			_, hasA = o.kept["a"]
			return len(o.kept), hasA
		}
		get("a")
		get("a")
		if n := reads.Load(); n != 1 {
			t.Errorf("%d reads of one value within its time", n)
		}
		time.Sleep(time.Minute)
		get("b")
		if n, hasA := stored(); hasA || n != 1 {
			t.Errorf("after the time of a there are %d values", n)
		}
		for i := range 3 * maxKept {
			go get(fmt.Sprint(i))
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		if n, _ := stored(); most.Load() != maxReads || n > maxKept {
			t.Errorf("%d reads at the same time, %d values", most.Load(), n)
		}
	})
}
