package console

import (
	"context"
	"time"

	"github.com/spf13/pflag"
)

// Sleep waits, or returns the error of ctx.
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

// WaitFlags is how a verb waits for what it has asked for.
type WaitFlags struct {
	NoWait  bool
	Timeout time.Duration
}

func (w *WaitFlags) Register(f *pflag.FlagSet) {
	f.BoolVar(&w.NoWait, "no-wait", false, "do not wait until it is done")
	f.DurationVar(&w.Timeout, "timeout", 5*time.Minute, "how long it is waited; then klm ends with exit code 3, and nothing is undone")
}
