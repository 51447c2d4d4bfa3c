package runtimes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// netDialer opens connections to runtimes.
var netDialer = net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}

const (
	// firstProbe and lastProbe bound the time between two probes of a runtime that does not answer: twice the time that it has not, so
	// that a short outage is over soon and one of more than a quarter of a minute costs less than a probe a minute.
	minProbeDelay = 500 * time.Millisecond
	maxProbeDelay  = 80 * time.Second
	// probeTimeout is the deadline of a probe.
	probeTimeout = 10 * time.Second
)

// Error says why a runtime cannot be worked on.
type Error struct {
	// Code is the stable reason: AccessSecretNotFound, AccessSecretAmbiguous, KubeconfigInvalid, KubeconfigRefused,
	// RuntimeUnreachable or RuntimeUnauthorized.
	Code string
	// Runtime is the name of the Kyma.
	Runtime string
	// Message says what is wrong and what to do. It does not change while nothing changes.
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("runtime %s: %s", e.Runtime, e.Message) }

// Reason returns Code.
func (e *Error) Reason() string { return e.Code }

// breaker stands in the way of every request to one runtime. Closed, it lets all through and watches the answers. An answer
// that speaks of the runtime as a whole (no connection, no answer in time, 401) opens it: from then on requests fail at once
// with the reason, and one probe at a time, further and further apart, finds out when to go on.
type breaker struct {
	runtime string
	next    http.RoundTripper
	changed func() // called, without lock, when it opens or closes

	mu     sync.Mutex
	openReason *Error    // why it is open; nil when closed
	openSince  time.Time // when it opened
	timer  *time.Timer
	stopped bool // the connection was given up: never probe again
	base   string
}

// RoundTrip implements [http.RoundTripper].
func (b *breaker) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := b.err(); err != nil {
		return nil, err
	}
	resp, err := b.next.RoundTrip(req)
	if e := b.errorOf(req.Context(), resp, err); e != nil {
		b.open(e)
	}
	return resp, err
}

// err returns why the breaker is open, nil if it is closed.
func (b *breaker) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.openReason != nil {
		return b.openReason
	}
	return nil
}

// judge returns what an answer says about the runtime as a whole, nil if nothing bad.
func (b *breaker) errorOf(ctx context.Context, resp *http.Response, err error) *Error {
	switch {
	case err != nil && errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return nil // the caller went away; that says nothing
	case err != nil:
		return &Error{Code: "RuntimeUnreachable", Runtime: b.runtime, Message: fmt.Sprintf(
			"%s does not answer (%s): check that the cluster runs and that the control plane can reach it", b.base, cause(err))}
	case resp.StatusCode == http.StatusUnauthorized:
		return &Error{Code: "RuntimeUnauthorized", Runtime: b.runtime, Message: fmt.Sprintf(
			"%s refuses the credentials of the access Secret (401): put a valid kubeconfig there", b.base)}
	}
	return nil
}

// cause names a connection error in words that stay the same from try to try: no ports of our own, no counts.
func cause(err error) string {
	var timeout interface{ Timeout() bool }
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns):
		return "no such host " + dns.Name
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &op) && op.Op == "dial":
		return "connection refused"
	case isCertificateError(err):
		return "its certificate is not trusted by the kubeconfig's certificate authority"
	default:
		return "connection broken"
	}
}

func isCertificateError(err error) bool {
	_, bad := errors.AsType[*tls.CertificateVerificationError](err)
	return bad
}

// open opens the breaker, or notes a newer reason.
func (b *breaker) open(e *Error) {
	b.mu.Lock()
	wasClosed := b.openReason == nil
	b.openReason = e
	if wasClosed && !b.stopped {
		b.openSince = time.Now()
		b.scheduleLocked()
	}
	b.mu.Unlock()
	if wasClosed {
		b.changed()
	}
}

// scheduleLocked plans the next probe. The caller holds mu.
func (b *breaker) scheduleLocked() {
	delay := min(max(2*time.Since(b.openSince), minProbeDelay), maxProbeDelay)
	b.timer = time.AfterFunc(delay*4/5+rand.N(delay*2/5), b.probe)
}

// probe asks the runtime one small question and closes the breaker if it is answered.
func (b *breaker) probe() {
	req, err := http.NewRequest(http.MethodGet, b.base+"/api", http.NoBody)
	if err != nil {
		return
	}
	resp, err := (&http.Client{Transport: b.next, Timeout: probeTimeout}).Do(req)
	if err == nil {
		defer resp.Body.Close()
	}
	bad := b.errorOf(req.Context(), resp, err)
	b.mu.Lock()
	if b.stopped {
		b.mu.Unlock()
		return
	}
	if bad != nil {
		// The reason may have changed, say from refused to unauthorised; then it is news.
		news := b.openReason == nil || *b.openReason != *bad
		b.openReason = bad
		b.scheduleLocked()
		b.mu.Unlock()
		if news {
			b.changed()
		}
		return
	}
	b.openReason, b.timer = nil, nil
	b.mu.Unlock()
	b.changed()
}

// stop gives the connection up.
func (b *breaker) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	if b.timer != nil {
		b.timer.Stop()
	}
}
