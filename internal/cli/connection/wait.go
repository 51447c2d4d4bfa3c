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

// Progress is the progress of a change of a Kyma.
type Progress struct {
	Done bool
	// Blocked is the error that ends the wait, because more time does not help. Blocked is nil if the change is not
	// blocked.
	Blocked error
	// Text describes the state or the event for which the change of the Kyma still waits.
	Text string
}

// WaitForKyma calls the function check each time a Kyma has changed. If the Kyma does not exist, WaitForKyma calls
// check with nil. WaitForKyma returns when check reports that the change is done or blocked, or at the timeout.
// WaitForKyma prints the text of the progress each time the text has changed.
func WaitForKyma(ctx context.Context, a *console.App, c *Cluster, name string, timeout time.Duration,
	check func(*v1beta2.Kyma) Progress) error {
	return waitFor(ctx, a, c, name, timeout, c.KymaChanges, func() *v1beta2.Kyma { return &v1beta2.Kyma{} }, check)
}

// waitFor does the same as WaitForKyma for objects of any kind. The parameter "changes" is a function that returns a
// channel, which receives a value when the object with the given name may have changed. The parameter "empty" is a
// function that returns a new object, into which waitFor decodes the answer of the API server.
func waitFor[T client.Object](ctx context.Context, a *console.App, c *Cluster, name string, timeout time.Duration,
	changes func(context.Context, string) <-chan struct{}, empty func() T, check func(T) Progress) error {
	const readInterval = 2 * time.Second // needed because watches may be forbidden, and may end
	// The object is read at least once even with a short timeout, so that the message at the timeout has its state. If
	// the API server does not answer, a person with a short timeout does not wait for the whole request timeout.
	firstReadTimeout := a.Config.RequestTimeout / 6 // 5 s by default
	read, cancelRead := context.WithTimeout(ctx, max(timeout, firstReadTimeout))
	defer cancelRead()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	printed := ""
	changed := changes(ctx, name)
	for ; ; read = ctx {
		o := empty()
		err := c.Get(read, client.ObjectKey{Namespace: c.Namespace, Name: name}, o)
		if apierrors.IsNotFound(err) {
			var none T
			o, err = none, nil
		}
		if err == nil {
			p := check(o)
			if p.Done || p.Blocked != nil {
				return p.Blocked
			}
			if p.Text != printed {
				fmt.Fprintf(a.Err, "  %s\n", p.Text)
				printed = p.Text
			}
		} else if ctx.Err() == nil && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
			return c.Explain(err, fmt.Sprintf("reading %s %s", kymaOrRolloutKind(empty()), name))
		}
		timer := time.NewTimer(readInterval)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return console.Fail(console.ExitNotReady, "not done after %s: %s", timeout, console.OrDash(printed))
			}
			return ctx.Err()
		}
		timer.Stop()
	}
}

// KymaChanges returns a channel that receives a value when a Kyma may have changed, until ctx ends.
func (c *Cluster) KymaChanges(ctx context.Context, name string) <-chan struct{} {
	changed := make(chan struct{}, 1)
	go c.watchAndNotify(ctx, changed, &v1beta2.KymaList{}, client.MatchingFields{"metadata.name": name})
	return changed
}

// CatalogChanges returns a channel that receives a value when the catalog may have changed, until ctx ends.
func (c *Cluster) CatalogChanges(ctx context.Context) <-chan struct{} {
	changed := make(chan struct{}, 1)
	go c.watchAndNotify(ctx, changed, &v1beta2.ModuleReleaseMetaList{})
	go c.watchAndNotify(ctx, changed, &v1beta2.ModuleTemplateList{})
	return changed
}

// watchAndNotify watches objects until ctx ends, and sends an empty value to the Go channel changed when an object may
// have changed.
func (c *Cluster) watchAndNotify(ctx context.Context, changed chan<- struct{}, list client.ObjectList,
	which ...client.ListOption) {
	for ctx.Err() == nil {
		w, err := c.Watch(ctx, list, append(which, c.InNamespace())...)
		if err == nil {
			for range w.ResultChan() {
				select {
				case changed <- struct{}{}:
				default: // a value is already pending
				}
			}
			w.Stop()
		}
		if console.Sleep(ctx, time.Second) != nil {
			return
		}
	}
}

// kymaOrRolloutKind returns the kind of an object, for messages.
func kymaOrRolloutKind(o client.Object) string {
	if _, is := o.(*v1beta2.ModuleRollout); is {
		return v1beta2.KindModuleRollout
	}
	return v1beta2.KindKyma
}
