// Package watch follows the changes of one collection of objects of an API server. The package lists the collection and
// watches it. When the watch ends, the package opens a new watch. If the new watch cannot continue where the last one
// ended, the package lists the collection first.
//
// # Use
//
//	err := watch.Run(ctx, watch.Options[metav1.PartialObjectMetadata]{
//		Source: watch.ClientSource(list, open),
//		Page:   func(items []metav1.PartialObjectMetadata, first bool) { … },
//		Listed: func(complete bool) { … },
//		Event:  func(e watch.Event[metav1.PartialObjectMetadata]) { … },
//	})
//
// # How it works
//
// Run stores no objects. The only thing that Run stores is the resourceVersion up to which it has reported all changes.
// Run calls all callbacks itself, one at a time. What Run does next depends on why a watch has ended:
//
//	reason for the end of a watch                           next action
//	the API server, a broken connection, another error      a watch from the last resourceVersion
//	410 Gone or Expired, resourceVersion too large,         a list, then a watch from the resourceVersion of the list
//	400 Bad Request, 404 Not Found, an unreadable event
//
// A watch that was open for at least HealthyAfter resets the back-off. If such a watch ends without an error, Run
// starts the next watch without a delay. An error counts as a failure. A watch that ends before HealthyAfter counts as
// a failure, too, even if there was no error. After a failure, Run waits for a random delay between half of an upper
// limit and this upper limit. The upper limit of the delay is MinDelay after the first failure, and doubles with each
// further failure, up to MaxDelay. Bookmarks update the stored resourceVersion and are not reported.
//
// Lists are read in pages. A list that exceeds MaxPages or MaxObjects is cut off and reported as incomplete.
//
// # What it does not do
//
// Run has no cache and starts no goroutine. Types of client-go do not fit: a Reflector stores every object, and a
// RetryWatcher neither lists nor backs off.
package watch

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Options are the options of Run. Only the option Source is required. If a callback is nil, it is not called.
type Options[T any] struct {
	// Source reads the collection.
	Source Source[T]
	// Query contains the label selector and the field selector for lists and watches.
	Query metav1.ListOptions

	// PageSize is the maximum number of objects in one page of a list. Default 500.
	PageSize int
	// MaxPages is the maximum number of pages of one list; the default is 2,000. MaxObjects is the maximum number of
	// objects of one list; the default is 200,000.
	MaxPages, MaxObjects int
	// ListSlots, if not nil, limits the number of lists that are read concurrently. The maximum number of concurrent
	// lists is the capacity of the channel ListSlots.
	ListSlots chan struct{}
	// ListTimeout is the timeout of the request for one page. 0 means no timeout.
	ListTimeout time.Duration
	// WatchTimeout is the maximum duration of a watch. Each watch requests from the API server a random duration
	// between half of WatchTimeout and all of it. If the watch is still open one minute after the requested duration,
	// Run closes the watch. If WatchTimeout is 0, the API server chooses the duration.
	WatchTimeout time.Duration

	// MinDelay and MaxDelay are the limits for the delay after a failure. Default 1 s and 30 s.
	MinDelay, MaxDelay time.Duration
	// HealthyAfter is the duration after which a watch counts as successful. A successful watch resets the delay.
	// Default 5 s.
	HealthyAfter time.Duration
	// Retry is a channel: when Run receives a value from it, Run ends the current delay.
	Retry <-chan struct{}
	// IsUnsent reports whether an error occurred before a request was sent. If an attempt fails before it has sent a
	// request, the delay before the next attempt does not grow.
	IsUnsent func(error) bool

	// IsTooLarge reports whether an error means that the objects of a page together are too large for one answer. If
	// IsTooLarge returns true, Run requests smaller pages, down to one object. If IsTooLarge is nil, Run never requests
	// smaller pages.
	IsTooLarge func(error) bool

	// Page is called with each page of a list. first is true for the first page of each list. first is also true when a
	// list is restarted after a failure.
	Page func(items []T, first bool)
	// Listed is called after the last page of a list. complete is false if the list was cut off.
	Listed func(complete bool)
	// Opened and Closed are called at the beginning and the end of each watch.
	Opened, Closed func()
	// Event is called with each change of an object.
	Event func(Event[T])
	// Failed is called with the error of a list or a watch, and with the time of the first failure since the last
	// success. If Failed returns an error, Run returns that error.
	Failed func(err error, since time.Time) error
}

// Event is one change of an object.
type Event[T any] struct {
	Object *T
	// Deleted is true if Object was deleted or no longer matches the selectors.
	Deleted bool
}

// Run lists and watches the collection until ctx ends or Failed returns an error. Run returns the error of ctx, or the
// error that the callback Failed has returned.
func Run[T any](ctx context.Context, o Options[T]) error {
	w := &watcher[T]{Options: o}
	w.setDefaults()
	var failingSince time.Time // zero while attempts succeed
	for failures := 0; ctx.Err() == nil; {
		start := time.Now()
		lifetime, err := w.attempt(ctx)
		if ctx.Err() != nil {
			break
		}
		if lifetime >= w.HealthyAfter {
			start, failures, failingSince = time.Now(), 0, time.Time{}
		}
		if failures++; failingSince.IsZero() {
			failingSince = start
		}
		if err != nil && w.Failed != nil {
			if stop := w.Failed(err, failingSince); stop != nil {
				return stop
			}
		}
		if lifetime >= w.HealthyAfter && (err == nil || needsList(err)) {
			failures, failingSince = 0, time.Time{}
			continue
		}
		if err != nil && w.IsUnsent != nil && w.IsUnsent(err) {
			failures = 1
		}
		w.wait(ctx, w.retryDelay(failures))
	}
	return ctx.Err()
}

// watcher is the state of one call of Run.
type watcher[T any] struct {
	Options[T]
	version string // resourceVersion up to which all changes were reported; "" if a list is needed
}

func (w *watcher[T]) setDefaults() {
	w.PageSize = cmp.Or(w.PageSize, 500)
	w.MaxPages = cmp.Or(w.MaxPages, 2_000)
	w.MaxObjects = cmp.Or(w.MaxObjects, 200_000)
	w.MinDelay = cmp.Or(w.MinDelay, time.Second)
	w.MaxDelay = cmp.Or(w.MaxDelay, 30*time.Second)
	w.HealthyAfter = cmp.Or(w.HealthyAfter, 5*time.Second)
}

// attempt lists the collection if needed, and watches it until the watch ends. attempt returns how long the watch was
// open.
func (w *watcher[T]) attempt(ctx context.Context) (lifetime time.Duration, err error) {
	if w.version == "" {
		err = w.list(ctx)
	}
	if err == nil {
		lifetime, err = w.watch(ctx)
	}
	if err != nil && needsList(err) {
		w.version = ""
	}
	return lifetime, err
}

// list reads all pages of a list.
func (w *watcher[T]) list(ctx context.Context) error {
	if w.ListSlots != nil {
		select {
		case w.ListSlots <- struct{}{}:
			defer func() { <-w.ListSlots }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o := w.Query
	o.Limit = int64(w.PageSize)
	for pages, objects := 0, 0; ; {
		page, err := w.page(ctx, o)
		if err != nil && w.IsTooLarge != nil && w.IsTooLarge(err) && o.Limit > 1 {
			o.Limit = max(o.Limit/4, 1)
			continue // the page was not read
		}
		if err != nil {
			return err
		}
		pages++
		if w.Page != nil {
			w.Page(page.Items, pages == 1)
		}
		objects += len(page.Items)
		complete := page.Continue == ""
		if complete || pages >= w.MaxPages || objects >= w.MaxObjects {
			w.version = page.ResourceVersion
			if w.Listed != nil {
				w.Listed(complete)
			}
			return nil
		}
		o.Continue = page.Continue
	}
}

// page reads one page of a list.
func (w *watcher[T]) page(ctx context.Context, o metav1.ListOptions) (Page[T], error) {
	if w.ListTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.ListTimeout)
		defer cancel()
	}
	return w.Source.List(ctx, o)
}

// watch reports the changes of the collection until the watch ends.
func (w *watcher[T]) watch(ctx context.Context) (lifetime time.Duration, err error) {
	o := w.Query
	o.ResourceVersion, o.AllowWatchBookmarks = w.version, true
	if w.WatchTimeout > 0 {
		timeout := w.WatchTimeout/2 + rand.N(w.WatchTimeout/2+1)
		o.TimeoutSeconds = new(max(1, int64(timeout.Seconds())))
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout+time.Minute) // the API server may fail to end the watch
		defer cancel()
	}
	var opened time.Time
	err = w.Source.Watch(ctx, o, func() {
		opened = time.Now()
		if w.Opened != nil {
			w.Opened()
		}
	}, func(r Received[T]) {
		if r.ResourceVersion != "" {
			w.version = r.ResourceVersion
		}
		if r.Object != nil && w.Event != nil {
			w.Event(Event[T]{Object: r.Object, Deleted: r.Deleted})
		}
	})
	if opened.IsZero() {
		return 0, err
	}
	if w.Closed != nil {
		w.Closed()
	}
	return time.Since(opened), err
}

// needsList reports whether an error means that the watch cannot resume. If the resourceVersion is too old, only a list
// can show what has changed since the watch ended.
func needsList(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) ||
		apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) || errors.Is(err, errUnreadable)
}

// retryDelay returns the time to wait after a number of consecutive failures.
func (w *watcher[T]) retryDelay(failures int) time.Duration {
	d := max(min(w.MinDelay<<min(failures-1, 16), w.MaxDelay), 2)
	return d/2 + rand.N(d/2)
}

// wait returns after the duration d, after a value on Retry, or when ctx ends.
func (w *watcher[T]) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-w.Retry:
	}
}
