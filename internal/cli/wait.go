package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// waiting is how a verb waits for what it has asked for.
type waiting struct {
	no      bool
	timeout time.Duration
}

func (w *waiting) register(f *pflag.FlagSet) {
	f.BoolVar(&w.no, "no-wait", false, "do not wait until it is done")
	f.DurationVar(&w.timeout, "timeout", 5*time.Minute, "how long it is waited; then klm ends with exit code 3, and nothing is undone")
}

// progress is how far something is.
type progress struct {
	done bool
	// blocked says what is in the way that does not go away by waiting. nil: nothing does.
	blocked error
	// text says what it waits for.
	text string
}

// until looks at a Kyma whenever it changes, until it is done, blocked, or the time is over. nil stands for a Kyma that is gone. What it waits
// for is told whenever that changes.
func (a *app) until(ctx context.Context, c *cluster, name string, timeout time.Duration, look func(*v1beta2.Kyma) progress) error {
	const period = 2 * time.Second // watches may be forbidden, or end
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	told := ""
	changed := c.follow(ctx, name)
	for {
		k := &v1beta2.Kyma{}
		err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, k)
		if apierrors.IsNotFound(err) {
			k, err = nil, nil
		}
		if err == nil {
			p := look(k)
			if p.done || p.blocked != nil {
				return p.blocked
			}
			if p.text != told {
				fmt.Fprintf(a.Err, "  %s\n", p.text)
				told = p.text
			}
		} else if ctx.Err() == nil && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
			return c.explain(err, "reading Kyma "+name)
		}
		timer := time.NewTimer(period)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fail(exitNotReady, "it is not done after %s: %s", timeout, or(told))
			}
			return ctx.Err()
		}
		timer.Stop()
	}
}

// follow returns a channel that says that a Kyma may have changed, until ctx ends.
func (c *cluster) follow(ctx context.Context, name string) <-chan struct{} {
	changed := make(chan struct{}, 1)
	go func() {
		for ctx.Err() == nil {
			w, err := c.Watch(ctx, &v1beta2.KymaList{}, c.here(), client.MatchingFields{"metadata.name": name})
			if err == nil {
				for range w.ResultChan() {
					select {
					case changed <- struct{}{}:
					default: // it is said already
					}
				}
				w.Stop()
			}
			if pause(ctx, time.Second) != nil {
				return
			}
		}
	}()
	return changed
}
