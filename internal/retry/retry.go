// Package retry passes on a person's request to try again at once after the person has fixed the cause of a failure.
//
// # Use
//
//	b.Watches(&v1beta2.Kyma{}, r.retries.Handler(toRetry)) // in Register
//	ctx = r.retries.Context(ctx, request.NamespacedName) // in Reconcile
//	if retry.IsOutdated(ctx, answer.at) { … } // in a cache of answers
//
// # How it works
//
// A person requests a retry with a new value of the annotation [v1beta2.AnnotationRetry]. To detect a retry request, an
// event handler compares the value of this annotation before and after a change of the object. Each value of the
// annotation therefore causes one retry, and the package need not store the value. The package writes nothing to the
// object. A manager that has just started has no delays and no remembered failures. Therefore it need not know whether
// the value of the annotation was changed while it was not running. The handler resets the back-off of the object, and
// enqueues the object with the priority of an event.
//
// A cache may still contain the failure that the person has fixed. Therefore the context of each reconcile of the
// object contains the time of the retry request until keepPeriod has passed. If a context contains the time of a retry
// request, caches do not return a failure, a credential or the digest of a tag that was stored before that time.
// Because caches return what was stored after the request, a thousand retry requests at the same time cause only one
// pull for each artefact.
//
// # What it does not do
//
// The package itself retries nothing, and does not know the operations that can fail.
package retry

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// keepPeriod is the time after a retry request in which cached answers from before the request are not used. Each cache
// that calls IsOutdated stores a failure for less than keepPeriod.
const keepPeriod = 15 * time.Second

// Queue is the work queue of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Requests has the recent retry requests for the objects of one controller. The zero value has no requests and is ready
// to use. Requests is safe for concurrent use.
type Requests struct {
	mu sync.Mutex
	at map[types.NamespacedName]time.Time // guarded by mu; requests that are older than keepPeriod may be missing
}

// Handler returns an event handler that acts on a changed annotation. The function toRetry gets the changed object, and
// returns the objects of the controller that have to be retried.
func (r *Requests) Handler(toRetry func(context.Context, client.Object) []client.Object) handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q Queue) {
		if !IsNewlyRequested(e.ObjectOld, e.ObjectNew) {
			return
		}
		for _, o := range toRetry(ctx, e.ObjectNew) {
			r.Retry(q, client.ObjectKeyFromObject(o))
		}
	}}
}

// IsNewlyRequested reports whether a change of an object requests a retry: its annotation has a new value that is not
// empty.
func IsNewlyRequested(before, after client.Object) bool {
	value := after.GetAnnotations()[v1beta2.AnnotationRetry]
	return value != "" && value != before.GetAnnotations()[v1beta2.AnnotationRetry]
}

// Retry records a retry request for an object, resets the back-off of the object, and enqueues it.
func (r *Requests) Retry(q Queue, key types.NamespacedName) {
	now := time.Now()
	r.mu.Lock()
	maps.DeleteFunc(r.at, func(_ types.NamespacedName, at time.Time) bool { return now.Sub(at) > keepPeriod })
	if r.at == nil {
		r.at = map[types.NamespacedName]time.Time{}
	}
	r.at[key] = now
	r.mu.Unlock()
	request := reconcile.Request{NamespacedName: key}
	q.Forget(request)
	q.Add(request)
}

// timeKey is the context key under which the time of a request is stored.
type timeKey struct{}

// Context returns a context with the time of the last retry request for an object, if there was one recently.
func (r *Requests) Context(ctx context.Context, key types.NamespacedName) context.Context {
	r.mu.Lock()
	at, there := r.at[key]
	if there && time.Since(at) > keepPeriod {
		delete(r.at, key)
		there = false
	}
	r.mu.Unlock()
	if !there {
		return ctx
	}
	return WithTime(ctx, at)
}

// WithTime returns a context with the time of a retry request. IsOutdated, called with this context, reports cached
// answers from before this time as outdated.
func WithTime(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, timeKey{}, at)
}

// IsOutdated reports whether a cached answer is older than the retry request in the context, and must therefore not be
// used. The parameter remembered is the time at which the answer was stored.
func IsOutdated(ctx context.Context, remembered time.Time) bool {
	at, is := ctx.Value(timeKey{}).(time.Time)
	return is && remembered.Before(at)
}
