package runtimes

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/rand/v2"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// expiryDelay is the time between the end of a credential and the probe that notices it. The clock of the runtime may
// differ by that much.
const expiryDelay = 30 * time.Second

// checkInterval is the interval of the probes of a runtime whose agent reports all changes: nothing else may be
// requested from such a runtime for days.
const checkInterval = time.Hour

// credentialEnd returns the time at which a credential expires: the end of the client certificate or of the token,
// whichever is first. It needs no request. The result is zero if the credential does not expire, if its end is not
// known, or if the token is in a file, which is replaced in time.
func credentialEnd(cfg *rest.Config) time.Time {
	var end time.Time
	add := func(t time.Time) {
		if !t.IsZero() && (end.IsZero() || t.Before(end)) {
			end = t
		}
	}
	if block, _ := pem.Decode(cfg.CertData); block != nil {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			add(c.NotAfter)
		}
	}
	if parts := strings.Split(cfg.BearerToken, "."); cfg.BearerTokenFile == "" && len(parts) == 3 {
		var claims struct {
			Expires int64 `json:"exp"`
		}
		text, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err == nil && json.Unmarshal(text, &claims) == nil && claims.Expires > 0 {
			add(time.Unix(claims.Expires, 0))
		}
	}
	return end
}

// checkCredential starts probes that notice an expired or withdrawn credential even if nothing else is requested from
// the runtime: one after the end of the credential, and one in each interval. 0 means no interval. It must be called
// before the first request.
func (b *breaker) checkCredential(end time.Time, interval time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ends = end
	if interval > 0 { // the first probes of runtimes that are connected at the same time are spread over the interval
		b.checks = append(b.checks, time.AfterFunc(rand.N(interval), func() { b.check(interval) }))
	}
	if end.After(time.Now()) { // otherwise the first request notices it
		b.checks = append(b.checks, time.AfterFunc(time.Until(end)+expiryDelay, func() { b.check(0) }))
	}
}

// check sends a probe, and opens the breaker if the runtime refuses the credential or does not answer. It sends no
// probe while the breaker is open. After the interval, it runs again.
func (b *breaker) check(interval time.Duration) {
	if b.err() == nil {
		if bad := b.request(); bad != nil {
			b.open(bad)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if interval > 0 && !b.stopped {
		b.checks[0] = time.AfterFunc(interval, func() { b.check(interval) })
	}
}
