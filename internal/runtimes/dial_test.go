package runtimes

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestDialsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d dials
		first, err := d.turn(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := d.turn(t.Context(), "b")
		if err != nil {
			t.Fatalf("another runtime has to wait: %v", err)
		}
		other()
		var turns atomic.Int32
		for range 3 {
			go func() {
				done, err := d.turn(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				turns.Add(1)
				done()
			}()
		}
		short, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := d.turn(short, "a")
			gone <- err
		}()
		synctest.Wait()
		if n := turns.Load(); n != 0 {
			t.Errorf("%d dial at the same time as the first, want none", n)
		}
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("who gives up gets %v, want that the context was cancelled", err)
		}
		first()
		synctest.Wait()
		if n := turns.Load(); n != 3 || len(d.running) != 0 {
			t.Errorf("%d of 3 had their turn, %d are still under way", n, len(d.running))
		}
	})
}
