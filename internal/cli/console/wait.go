package console

import (
	"context"
	"strconv"
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

// Register adds the flags to the flag set f.
func (w *WaitFlags) Register(f *pflag.FlagSet) {
	f.BoolVar(&w.NoWait, "no-wait", false, "do not wait until it is done; the same as --wait=false")
	f.VarPF((*negated)(&w.NoWait), "wait", "", "wait until it is done").NoOptDefVal = "true"
	f.DurationVar(&w.Timeout, "timeout", 5*time.Minute,
		"how long to wait; after that klm ends with exit code 3 and undoes nothing")
}

// negated is a flag that is true if its variable is false.
type negated bool

func (n *negated) Set(text string) error {
	value, err := strconv.ParseBool(text)
	*n = negated(!value)
	return err
}

func (n *negated) String() string { return strconv.FormatBool(!bool(*n)) }

func (n *negated) Type() string { return "bool" }

// IsBoolFlag returns true, so that users can give the flag without a value.
func (n *negated) IsBoolFlag() bool { return true }

// ChangeFlags are the flags of commands that change something. ChangeFlags state whether the command asks for
// confirmation, whether it only shows the change, and whether it waits until the change is done.
type ChangeFlags struct {
	WaitFlags
	Yes, DryRun bool
}

// Register adds the flags to the flag set f.
func (c *ChangeFlags) Register(f *pflag.FlagSet) {
	f.BoolVarP(&c.Yes, "yes", "y", false, "do not ask")
	f.BoolVar(&c.DryRun, "dry-run", false, "only show what would be done, and change nothing")
	c.WaitFlags.Register(f)
}
