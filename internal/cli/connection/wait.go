package connection

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Progress is how far something is.
type Progress struct {
	Done bool
	// blocked says what is in the way that does not go away by waiting. nil: nothing does.
	Blocked error
	// text says what it waits for.
	Text string
}

// WaitForKyma looks at a Kyma whenever it changes, until it is done, blocked, or the time is over. nil stands for a Kyma that is gone. What it waits
// for is told whenever that changes.
func WaitForKyma(ctx context.Context, a *console.App, c *Cluster, name string, timeout time.Duration, look func(*v1beta2.Kyma) Progress) error {
	const period = 2 * time.Second // watches may be forbidden, or end
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	told := ""
	changed := c.kymaChanges(ctx, name)
	for {
		k := &v1beta2.Kyma{}
		err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, k)
		if apierrors.IsNotFound(err) {
			k, err = nil, nil
		}
		if err == nil {
			p := look(k)
			if p.Done || p.Blocked != nil {
				return p.Blocked
			}
			if p.Text != told {
				fmt.Fprintf(a.Err, "  %s\n", p.Text)
				told = p.Text
			}
		} else if ctx.Err() == nil && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
			return c.Explain(err, "reading Kyma "+name)
		}
		timer := time.NewTimer(period)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return console.Fail(console.ExitNotReady, "it is not done after %s: %s", timeout, console.OrDash(told))
			}
			return ctx.Err()
		}
		timer.Stop()
	}
}

// kymaChanges returns a channel that says that a Kyma may have changed, until ctx ends.
func (c *Cluster) kymaChanges(ctx context.Context, name string) <-chan struct{} {
	changed := make(chan struct{}, 1)
	go func() {
		for ctx.Err() == nil {
			w, err := c.Watch(ctx, &v1beta2.KymaList{}, c.InNamespace(), client.MatchingFields{"metadata.name": name})
			if err == nil {
				for range w.ResultChan() {
					select {
					case changed <- struct{}{}:
					default: // it is said already
					}
				}
				w.Stop()
			}
			if console.Sleep(ctx, time.Second) != nil {
				return
			}
		}
	}()
	return changed
}
