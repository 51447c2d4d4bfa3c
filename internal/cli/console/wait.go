package console

import (
	"context"
	"time"

	"github.com/spf13/pflag"
)

// Sleep waits for the duration d. If ctx ends earlier, Sleep returns the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// WaitFlags are the flags of commands that wait until a change is done.
type WaitFlags struct {
	NoWait  bool
	Timeout time.Duration
}

// Register adds the flags to f.
func (w *WaitFlags) Register(f *pflag.FlagSet) {
	f.BoolVar(&w.NoWait, "no-wait", false, "do not wait until it is done")
	f.DurationVar(&w.Timeout, "timeout", 5*time.Minute,
		"how long to wait; after that klm ends with exit code 3 and undoes nothing")
}
