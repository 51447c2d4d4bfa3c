package runtimes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
)

// A request to a runtime that does not answer occupies a worker of a controller until the request times out. If many
// runtimes stop answering at the same time, they occupy all workers, and the reconciles of the other runtimes have to
// wait. Therefore the bulkhead limits how many requests may wait for such runtimes:
//
//  1. A request is stalled if it has been sent 2 seconds ago (stallDelay), and the runtime has answered neither this
//     request nor another one since then.
//  2. At most Options.MaxStalled requests may be stalled at the same time. The bulkhead cancels every further request
//     that would be stalled. While the limit is reached, the bulkhead does not send requests to silent runtimes, which
//     are those that have answered no request during the last 5 seconds (silentAfter). The error of these requests is an
//     [UnansweredError]: it is not known yet whether the runtime answers.
//  3. In place of the request, the pool sends a probe, which occupies no worker. If the runtime answers the probe, its
//     requests are not limited for 30 seconds (confirmationPeriod), so that slow runtimes are reconciled, too.
//     Otherwise, the circuit breaker of the runtime opens. In both cases, the pool notifies the subscribers of the
//     runtime.

const (
	stallDelay         = 2 * time.Second
	silentAfter        = 5 * time.Second
	confirmationPeriod = 30 * time.Second
	// maxConfirmations is the maximum number of probes that are sent at the same time in place of requests. A probe
	// takes up to 10 s. If a quarter of 10,000 runtimes do not answer, all of them are probed within about 100 s.
	maxConfirmations = 256
	// unansweredRetryDelay is the time after which a reconcile is repeated if the pool does not notify its controller
	// of the result of the probe.
	unansweredRetryDelay = 15 * time.Second
)

// UnansweredError is the error of a request that was not sent or was cancelled, because too many requests wait for
// runtimes that do not answer. The error says nothing about the state of the runtime.
type UnansweredError struct {
	runtime string
}

// Error implements error.
func (e *UnansweredError) Error() string {
	return fmt.Sprintf("runtime %s: a request is postponed until the runtime has answered a probe", e.runtime)
}

// PostponedFor returns the time after which the reconcile is repeated, see [loop.Postponed].
func (e *UnansweredError) PostponedFor() time.Duration { return unansweredRetryDelay }

// IsUnanswered reports whether a request was postponed until its runtime has answered a probe, see [UnansweredError].
func IsUnanswered(err error) bool {
	_, ok := errors.AsType[*UnansweredError](err)
	return ok
}

// bulkhead counts the stalled requests to all runtimes of a pool. A bulkhead is safe for concurrent use.
type bulkhead struct {
	limit         int64
	stalled       atomic.Int64
	confirmations *queueing.Admission // of the probes that are sent in place of requests
}

// isFull reports whether as many requests are stalled as the limit allows.
func (b *bulkhead) isFull() bool { return b.stalled.Load() >= b.limit }

// enter counts a stalled request. If the limit is reached, enter returns false and does not count the request.
func (b *bulkhead) enter() bool {
	if b.stalled.Add(1) <= b.limit {
		return true
	}
	b.leave()
	return false
}

// leave ends the count of a stalled request.
func (b *bulkhead) leave() { b.stalled.Add(-1) }

// bulkheadTransport is the [http.RoundTripper] for the requests of reconciles to one runtime.
type bulkheadTransport struct {
	*bulkhead
	breaker *breaker
	confirm func() // sends a probe in the background
}

// errStalled is the cause of the end of a context whose request the bulkhead has cancelled.
var errStalled = errors.New("too many requests wait for runtimes that do not answer")

// RoundTrip implements [http.RoundTripper].
func (t *bulkheadTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.breaker.isConfirmed() {
		return t.breaker.RoundTrip(req)
	}
	if err := t.breaker.err(); err != nil {
		return nil, err
	}
	began := time.Now()
	if t.isFull() && !t.breaker.hasAnsweredSince(began.Add(-silentAfter)) {
		return nil, t.postpone()
	}
	ctx, cancel := context.WithCancelCause(req.Context()) // not cancelled after an answer, whose body is read later
	var mu sync.Mutex
	var ended, counted bool // guarded by mu
	timer := time.AfterFunc(stallDelay, func() {
		mu.Lock()
		defer mu.Unlock()
		if ended || t.breaker.hasAnsweredSince(began) {
			return
		}
		if counted = t.enter(); !counted {
			cancel(errStalled)
		}
	})
	resp, err := t.breaker.RoundTrip(req.WithContext(ctx))
	timer.Stop()
	mu.Lock()
	ended = true
	if counted {
		t.leave()
	}
	mu.Unlock()
	if errors.Is(context.Cause(ctx), errStalled) {
		if err == nil {
			_ = resp.Body.Close() // the answer came together with the end of the context, so its body cannot be read
		}
		return nil, t.postpone()
	}
	if err != nil {
		cancel(err)
	}
	return resp, err
}

// postpone sends a probe in place of a request, and returns the error of the request.
func (t *bulkheadTransport) postpone() error {
	metrics.RuntimeRequestsPostponed.Inc()
	t.confirm()
	return &UnansweredError{runtime: t.breaker.runtime}
}

// confirm sends a probe to a runtime in the background, unless a probe of the same circuit breaker is being sent or
// waits for being sent.
func (p *Pool) confirm(b *breaker) {
	if b.beginConfirmation() && p.bulkhead.confirmations.Admit(b.runtime) {
		go p.sendConfirmation(b.runtime)
	}
}

// sendConfirmation sends the probe of a runtime. If the connection was replaced or closed in the meantime, no probe is
// needed.
func (p *Pool) sendConfirmation(kyma string) {
	defer p.bulkhead.confirmations.Release(kyma)
	if rt := p.connectionIfOpen(kyma); rt != nil {
		rt.breaker.confirmAnswers()
	}
}
