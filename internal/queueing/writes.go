package queueing

import (
	"context"
	"net/http"
	"regexp"
	"strings"
)

// leasePath is the prefix of the URL paths of Leases.
const leasePath = "/apis/coordination.k8s.io/"

// eventPath matches the URL paths of Events.
var eventPath = regexp.MustCompile(`^(/api/v1|/apis/events\.k8s\.io/v1)/namespaces/[^/]+/events(/|$)`)

// WriteLimiter limits the number of concurrent writes to the control plane. During a rollout, all workers have objects
// to write at the same time. More concurrent writes would not make the rollout faster. With more concurrent writes, all
// other requests would have to wait longer in the API server. A change by a person would be delayed most, because it
// takes about six writes, one after the other.
//
// WriteLimiter never delays three kinds of requests: reads, writes of Leases (a replica that cannot renew its Lease
// ends), and writes for an urgent runtime. While any runtime is urgent, a second, lower limit applies to all other
// writes.
//
// Writes of Events have a separate limit. With a common limit, thousands of Events about one runtime kept the statuses
// of all other runtimes from being written: requests are sent in order, so a status would wait behind all Events that
// were recorded before it.
type WriteLimiter struct {
	urgent      *Urgent
	events      chan struct{} // one element for each write of an Event; no other write waits for it
	always      chan struct{} // one element for each write
	whileUrgent chan struct{} // one element for each write that started while a runtime was urgent
}

// NewWriteLimiter returns a WriteLimiter. The argument limit is the maximum number of concurrent writes. While any
// runtime is urgent, the maximum number of concurrent writes is limitWhileUrgent. Writes of Events are counted
// separately: their maximum number is limitWhileUrgent, whether or not a runtime is urgent. A limit below 1 counts as
// 1.
func NewWriteLimiter(limit, limitWhileUrgent int, urgent *Urgent) *WriteLimiter {
	return &WriteLimiter{
		urgent: urgent, events: make(chan struct{}, max(1, limitWhileUrgent)),
		always:      make(chan struct{}, max(1, limit)),
		whileUrgent: make(chan struct{}, max(1, limitWhileUrgent)),
	}
}

// Wrap returns a transport that sends requests through next and delays writes above the limit. To which runtime a write
// belongs is stored in its context, see [Urgent.Context].
func (l *WriteLimiter) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet || strings.HasPrefix(r.URL.Path, leasePath) {
			return next.RoundTrip(r)
		}
		limits := []chan struct{}{l.always, l.whileUrgent}
		if eventPath.MatchString(r.URL.Path) {
			limits = []chan struct{}{l.events}
		}
		for _, slots := range limits {
			if slots == l.whileUrgent && !l.urgent.Any() {
				break
			}
			acquired, err := l.acquireUnlessUrgent(r.Context(), slots)
			if err != nil {
				return nil, err
			}
			if acquired {
				defer func() { <-slots }()
			}
		}
		return next.RoundTrip(r)
	})
}

// acquireUnlessUrgent waits for a free slot, and reports whether it got one. If the runtime of the context becomes
// urgent, acquireUnlessUrgent returns at once, without a slot and without an error: the running reconcile of that
// runtime has to end before the urgent reconcile can start.
func (l *WriteLimiter) acquireUnlessUrgent(ctx context.Context, slots chan<- struct{}) (acquired bool, err error) {
	for {
		changed := l.urgent.Changed() // called before IsUrgent, so that no mark is missed
		if IsUrgent(ctx) {
			return false, nil
		}
		select {
		case slots <- struct{}{}:
			return true, nil
		case <-changed:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// roundTripper is a function that implements [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
