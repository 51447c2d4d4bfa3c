package queueing

import (
	"context"
	"net/http"
	"strings"
)

// leasePath is the beginning of the paths of Leases.
const leasePath = "/apis/coordination.k8s.io/"

// WriteLimiter limits the number of writes to the control plane at the same time. In a rollout all workers want to
// write. More writes at a time would not make them faster, but would make everything else wait behind them in the API
// server: most of all the change of a person, which takes half a dozen writes one after the other.
//
// Three kinds of requests are never held back: reads, writes of Leases (a replica that cannot renew its Lease ends),
// and writes for an urgent runtime. While any runtime is urgent, a second, lower limit applies to all other writes.
type WriteLimiter struct {
	urgent      *Urgent
	always      chan struct{} // one element for each write
	whileUrgent chan struct{} // one element for each write that began while a runtime was urgent
}

// NewWriteLimiter returns a WriteLimiter for so many writes at the same time, and so many while any runtime is urgent.
// A limit below 1 counts as 1.
func NewWriteLimiter(limit, limitWhileUrgent int, urgent *Urgent) *WriteLimiter {
	return &WriteLimiter{
		urgent: urgent, always: make(chan struct{}, max(1, limit)),
		whileUrgent: make(chan struct{}, max(1, limitWhileUrgent)),
	}
}

// Wrap returns a transport that sends requests through next and holds back writes over the limit. A write belongs to
// the runtime of its context, see [Urgent.Context].
func (l *WriteLimiter) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet || strings.HasPrefix(r.URL.Path, leasePath) {
			return next.RoundTrip(r)
		}
		for _, slots := range []chan struct{}{l.always, l.whileUrgent} {
			if slots == l.whileUrgent && !l.urgent.Any() {
				break
			}
			acquired, err := l.acquire(r.Context(), slots)
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

// acquire waits for a slot and reports whether it has got one. It stops waiting, without a slot and without an error,
// as soon as the runtime of the context is urgent: a reconcile that was started for the fleet has to end before that
// for the person starts.
func (l *WriteLimiter) acquire(ctx context.Context, slots chan<- struct{}) (acquired bool, err error) {
	for {
		changed := l.urgent.Changed() // before IsUrgent, so that no mark is missed
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

// roundTripper is a function as an [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
