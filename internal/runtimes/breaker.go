package runtimes

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/access"
	"github.com/kyma-fleet/lifecycle-manager/internal/answer"
)

// netDialer opens the network connections to runtimes. Tests change its timeout.
var netDialer = net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}

// probeTimeout is the deadline of a probe. Tests change it.
var probeTimeout = 10 * time.Second

const (
	// minProbeDelay and maxProbeDelay are the limits for the delay before each probe of a runtime that does not answer.
	// Within these limits, the delay is twice as long as the circuit breaker has been open. Therefore the circuit
	// breaker closes soon after a short outage, and during a long outage less than one probe a minute is sent.
	minProbeDelay = 500 * time.Millisecond
	maxProbeDelay = 80 * time.Second
)

// Reasons of an Error. The reason codes do not change, because conditions and events contain them.
const (
	// AccessSecretNotFound: no Secret has the label with the name of the Kyma.
	AccessSecretNotFound = "AccessSecretNotFound"
	// AccessSecretAmbiguous: several Secrets have the label with the name of the Kyma.
	AccessSecretAmbiguous = "AccessSecretAmbiguous"
	// KubeconfigInvalid: the access Secret contains no usable kubeconfig.
	KubeconfigInvalid = "KubeconfigInvalid"
	// KubeconfigRefused: the kubeconfig would run a command, use an auth provider or read a file, which the manager
	// does not allow.
	KubeconfigRefused = "KubeconfigRefused"
	// RuntimeUnreachable: the API server of the runtime does not answer.
	RuntimeUnreachable = "RuntimeUnreachable"
	// RuntimeCertificateInvalid: the kubeconfig does not trust the certificate of the API server.
	RuntimeCertificateInvalid = "RuntimeCertificateInvalid"
	// RuntimeUnauthorized: the API server of the runtime does not accept the credential.
	RuntimeUnauthorized = "RuntimeUnauthorized"
	// CredentialExpired: the API server of the runtime does not accept the credential, which has expired.
	CredentialExpired = "CredentialExpired"
	// OwnerNotVerified: the owner of the runtime is not known yet.
	OwnerNotVerified = "OwnerNotVerified"
	// RuntimeTaken: the runtime belongs to another Kyma or control plane.
	RuntimeTaken = "RuntimeTaken"
	// RuntimeIsControlPlane: the access Secret is for the control plane itself.
	RuntimeIsControlPlane = "RuntimeIsControlPlane"
	// RuntimeReplaced: the access Secret is for another cluster than before.
	RuntimeReplaced = "RuntimeReplaced"
)

// Error is the reason why a runtime cannot be reconciled.
type Error struct {
	// Code is one of the reason codes above.
	Code string
	// Runtime is the name of the Kyma.
	Runtime string
	// Message describes the problem and how to solve it. Message does not change while the problem stays the same.
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("runtime %s: %s", e.Runtime, e.Message) }

// Reason returns Code.
func (e *Error) Reason() string { return e.Code }

// breaker is the circuit breaker of one runtime. All requests to the runtime go through its breaker. While the breaker
// is closed, it passes all requests on and inspects the answers of the runtime. The breaker opens when an answer shows
// a problem of the whole runtime: no connection, no answer in time, or 401. While the breaker is open, requests fail at
// once with the reason why it opened. While the breaker is open, it sends one probe after the other, with a growing
// delay, and closes when a probe succeeds.
type breaker struct {
	runtime string
	next    http.RoundTripper
	ends    time.Time // when the credential expires; zero if it never expires, or its expiry is not known
	changed func()    // called without the lock when the breaker opens or closes, or its reason changes

	mu         sync.Mutex
	openReason *Error    // nil while it is closed
	openSince  time.Time // when it opened
	closed     time.Time // when a probe last closed it; zero if it was never open
	timer      *time.Timer
	checks     []*time.Timer // probes that detect an expired or withdrawn credential
	stopped    bool          // the connection was closed: no more probes are sent
	answered   time.Time     // when the runtime last answered
	confirmed  time.Time     // when the runtime last answered a probe that was sent in place of a request
	confirming bool          // a probe is sent, or waits for being sent, in place of a request; see bulkhead.go
	base       string
}

// RoundTrip implements [http.RoundTripper].
func (b *breaker) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := b.err(); err != nil {
		return nil, err
	}
	resp, err := b.next.RoundTrip(req)
	if e := b.runtimeErrorOf(req.Context(), resp, err); e != nil {
		b.open(e)
	} else if err == nil {
		b.noteAnswer()
	}
	return resp, err
}

// noteAnswer records that the runtime has answered a request.
func (b *breaker) noteAnswer() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answered = time.Now()
}

// hasAnsweredSince reports whether the runtime has answered a request since the given time.
func (b *breaker) hasAnsweredSince(begin time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.answered.After(begin)
}

// isConfirmed reports whether the runtime has recently answered a probe that was sent in place of a request.
func (b *breaker) isConfirmed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.confirmed) < confirmationPeriod
}

// err returns the reason why the breaker is open, or nil if it is closed.
func (b *breaker) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.openReason != nil {
		return b.openReason
	}
	return nil
}

// runtimeErrorOf returns an Error if an answer shows a problem of the whole runtime, and nil otherwise.
func (b *breaker) runtimeErrorOf(ctx context.Context, resp *http.Response, err error) *Error {
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return nil // the caller cancelled the request; err may be the cause of the context in place of its error
	case apply.IsClientCertificateRefused(err):
		return b.unauthorizedError("a TLS alert")
	case apply.IsServerCertificateInvalid(err):
		return &Error{Code: RuntimeCertificateInvalid, Runtime: b.runtime, Message: fmt.Sprintf(
			"%s cannot be trusted (%s): correct certificate-authority-data and server of the kubeconfig in the "+
				"access Secret, or the certificate of the API server", b.base, certificateProblem(err))}
	case err != nil:
		return &Error{Code: RuntimeUnreachable, Runtime: b.runtime, Message: fmt.Sprintf(
			"%s does not answer (%s): check that the cluster runs and that the control plane can reach it", b.base,
			stableText(err))}
	case resp.StatusCode == http.StatusUnauthorized:
		return b.unauthorizedError("401")
	}
	return nil
}

// unauthorizedError returns the Error about an API server that refuses the credential.
func (b *breaker) unauthorizedError(answer string) *Error {
	e := &Error{Code: RuntimeUnauthorized, Runtime: b.runtime, Message: fmt.Sprintf(
		"%s refuses the credentials of the access Secret (%s): put a valid kubeconfig there", b.base, answer)}
	if !b.ends.IsZero() && b.ends.Before(time.Now()) {
		e.Code, e.Message = CredentialExpired, fmt.Sprintf("%s refuses the credentials of the access Secret (%s), "+
			"which expired at %s: put a valid kubeconfig there", b.base, answer, b.ends.UTC().Format(time.RFC3339))
	}
	return e
}

// certificateProblem returns the reason why the certificate of an API server is not trusted, without values that are
// different for each attempt.
func certificateProblem(certErr error) string {
	if _, other := errors.AsType[x509.HostnameError](certErr); other {
		return "its certificate is for another host"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](certErr); ok && invalid.Reason == x509.Expired {
		return "its certificate has expired, or is not valid yet"
	}
	return "its certificate is not signed by the certificate authority of the kubeconfig"
}

// stableText returns the text of a connection error without local ports and counts, so that the text is the same for
// each attempt.
func stableText(err error) string {
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
	case errors.Is(err, answer.ErrRedirect):
		return "it sends a redirect, which is not followed, because the credential would go elsewhere"
	default:
		return "connection broken"
	}
}

// open opens the breaker with a reason. If the breaker is open already, open replaces the reason.
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

// scheduleLocked starts a timer for the next probe. The caller of scheduleLocked must hold mu.
func (b *breaker) scheduleLocked() {
	delay := min(max(2*time.Since(b.openSince), minProbeDelay), maxProbeDelay)
	b.timer = time.AfterFunc(delay*4/5+rand.N(delay*2/5), b.probe)
}

// If the breaker is open, probeNow sends the next probe at once, and resets the delay between probes to its initial
// value. If a probe is already being sent, probeNow does nothing, and the result of that probe decides whether the
// breaker closes.
func (b *breaker) probeNow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.openReason == nil || b.stopped || b.timer == nil || !b.timer.Stop() {
		return
	}
	b.openSince = time.Now()
	b.timer = time.AfterFunc(0, b.probe)
}

// sendProbe sends one small request to the runtime. If the runtime cannot be reconciled, sendProbe returns the reason,
// and otherwise nil.
func (b *breaker) sendProbe() *Error {
	_, bad := b.sendEvenIfOpen(http.MethodGet, "/api", "")
	return bad
}

// sendEvenIfOpen sends a small request to the runtime, even while the breaker is open. sendEvenIfOpen returns two
// results: the answer, which is empty unless the request succeeded, and the reason why the runtime cannot be
// reconciled.
func (b *breaker) sendEvenIfOpen(method, path, body string) (okBody []byte, runtimeError *Error) {
	okBody, runtimeError, _ = b.sendThrough(b.next, method, path, body)
	return okBody, runtimeError
}

// sendThrough is like sendEvenIfOpen, for a request that is sent through the given transport. If this transport has
// postponed the request, postponed is true, and the other results are empty.
func (b *breaker) sendThrough(transport http.RoundTripper, method, path, body string) (okBody []byte,
	runtimeError *Error, postponed bool) {
	req, err := http.NewRequest(method, b.base+path, strings.NewReader(body))
	if err != nil {
		return nil, nil, false
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := (&http.Client{Transport: transport, Timeout: probeTimeout}).Do(req)
	if err == nil {
		defer resp.Body.Close()
	}
	if IsUnanswered(err) {
		return nil, nil, true
	}
	if bad := b.runtimeErrorOf(req.Context(), resp, err); bad != nil || err != nil || resp.StatusCode >= 300 {
		return nil, bad, false
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, access.MaxReviewBytes))
	if err != nil {
		return nil, nil, false
	}
	return answer, nil, false
}

// probe sends one small request to the runtime. If the runtime answers, probe closes the breaker.
func (b *breaker) probe() {
	bad := b.sendProbe()
	b.mu.Lock()
	if b.stopped {
		b.mu.Unlock()
		return
	}
	if bad != nil {
		// The breaker stays open, but its reason may change from probe to probe, for example from a refused connection
		// to 401.
		changed := b.openReason == nil || *b.openReason != *bad
		b.openReason = bad
		b.scheduleLocked()
		b.mu.Unlock()
		if changed {
			b.changed()
		}
		return
	}
	b.openReason, b.timer, b.closed = nil, nil, time.Now()
	b.mu.Unlock()
	b.changed()
}

// beginConfirmation reports whether confirmAnswers has to be called, because a request to the runtime was postponed.
// Until confirmAnswers has been called, beginConfirmation returns false.
func (b *breaker) beginConfirmation() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.confirming || b.stopped {
		return false
	}
	b.confirming = true
	return true
}

// confirmAnswers sends a probe in place of a request that was postponed. If the runtime does not answer the probe, the
// breaker opens. In both cases, the subscribers of the runtime are notified, so that they can try again.
func (b *breaker) confirmAnswers() {
	bad := b.sendProbe()
	b.mu.Lock()
	b.confirming = false
	stopped := b.stopped
	if bad == nil {
		b.answered, b.confirmed = time.Now(), time.Now()
	}
	b.mu.Unlock()
	switch {
	case stopped:
	case bad != nil:
		b.open(bad)
	default:
		b.changed()
	}
}

// stop stops sending probes.
func (b *breaker) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	if b.timer != nil {
		b.timer.Stop()
	}
	for _, t := range b.checks {
		t.Stop()
	}
}
