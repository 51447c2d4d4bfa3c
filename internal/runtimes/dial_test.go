package runtimes

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestDialLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d dialLocks
		first, err := d.lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := d.lock(t.Context(), "b")
		if err != nil {
			t.Fatalf("another runtime has to wait: %v", err)
		}
		other()
		var locked atomic.Int32
		for range 3 {
			go func() {
				unlock, err := d.lock(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				locked.Add(1)
				unlock()
			}()
		}
		short, cancel := context.WithCancel(t.Context())
		canceled := make(chan error, 1)
		go func() {
			_, err := d.lock(short, "a")
			canceled <- err
		}()
		synctest.Wait()
		if n := locked.Load(); n != 0 {
			t.Errorf("%d dial at the same time as the first, want none", n)
		}
		cancel()
		if err := <-canceled; !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled wait returns %v, want that the context was cancelled", err)
		}
		first()
		synctest.Wait()
		if n := locked.Load(); n != 3 || len(d.held) != 0 {
			t.Errorf("%d of 3 got the lock, %d are still held", n, len(d.held))
		}
	})
}
