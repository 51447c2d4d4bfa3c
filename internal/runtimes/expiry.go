package runtimes

import (
	"math/rand/v2"
	"time"
)

// expiryDelay is the time between the expiry of a credential and the probe that detects it. The clock of the runtime
// may be up to expiryDelay behind the clock of the control plane.
const expiryDelay = 30 * time.Second

// checkInterval is the interval between two reviews of the rights of a credential. A SelfSubjectRulesReview is sent
// once per interval to detect a credential that was withdrawn. If an agent reports all changes of a runtime, the
// manager may send no other request to this runtime for days, and would not notice that its credential is refused.
const checkInterval = time.Hour

// scheduleCredentialChecks starts checks that detect an expired or withdrawn credential even if no other request is
// sent to the runtime. The first check is a probe after the expiry of the credential. The second check calls the
// function review, which sends a SelfSubjectRulesReview, once per reviewInterval. If review is nil, there is only the
// first check. scheduleCredentialChecks must be called before the first request.
func (b *breaker) scheduleCredentialChecks(expiry time.Time, reviewInterval time.Duration, review func() *Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ends = expiry
	if review != nil { // the first reviews of runtimes that are connected at the same time are spread over the interval
		b.checks = append(b.checks, time.AfterFunc(rand.N(reviewInterval),
			func() { b.openIfCheckFails(reviewInterval, review) }))
	}
	if expiry.After(time.Now()) { // otherwise the first request detects the expiry
		b.checks = append(b.checks, time.AfterFunc(time.Until(expiry)+expiryDelay, func() {
			b.openIfCheckFails(0,
				b.sendProbe)
		}))
	}
}

// openIfCheckFails calls the function check, which sends a request, and opens the breaker if check returns an error,
// because the runtime refuses the credential or does not answer. While the breaker is open, openIfCheckFails does not
// call check. If repeatEvery is not 0, openIfCheckFails is repeated each time this duration has passed.
func (b *breaker) openIfCheckFails(repeatEvery time.Duration, check func() *Error) {
	if b.err() == nil {
		if bad := check(); bad != nil {
			b.open(bad)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if repeatEvery > 0 && !b.stopped {
		b.checks[0] = time.AfterFunc(repeatEvery, func() { b.openIfCheckFails(repeatEvery, check) })
	}
}
