// Package clientcert verifies the client certificates with which runtimes identify themselves.
//
// # Use
//
//	v := clientcert.NewVerifier(roots)
//	c, err := v.Current().Verify(leaf, intermediates, time.Now())       // a certificate of the connection
//	c, err := v.Current().VerifyHeader(request.Header.Get(clientcert.Header), time.Now())
//	err = c.Check(time.Now())                                           // later, on the same connection
//
// # How it works
//
// Verified certificates are cached with the set of roots that has verified them. When the trusted roots change, a new
// set without cached certificates replaces the old set. Therefore a cached result is never used with other roots than
// the roots that have verified the certificate. The validity period of a certificate is checked again for each request.
//
// # What it does not do
//
// The package does not decide which runtime has an identity, and does not decide which senders may set the header.
package clientcert

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

const (
	// maxVerified is the maximum number of verified certificates in the cache of one set of roots. One cached
	// certificate takes about 400 bytes.
	maxVerified = 16384
	// MaxChain is the maximum number of certificates that a client may send. maxChainBytes is the maximum total size of
	// these certificates.
	MaxChain      = 8
	maxChainBytes = 32768
)

// Error is the reason why a certificate is refused.
type Error struct {
	// Reason is one word, which is used as a label of metrics.
	Reason string
	// Message is one line that is sent to the client.
	Message string
}

// Error implements the interface error.
func (e *Error) Error() string { return e.Message }

// Certificate is a client certificate that was verified.
type Certificate struct {
	// ID is the identity of the runtime or peer to which the certificate belongs.
	ID protocol.Identity
	// Issued is the time when the certificate was issued. For a certificate of another authority, Issued is the
	// beginning of its validity.
	Issued time.Time
	// Roots is the set of roots with which the certificate was verified.
	Roots *Roots

	from  time.Time // the whole chain is valid between from and until
	until time.Time
}

// Check returns an error if the certificate is not valid at the time now.
func (c *Certificate) Check(now time.Time) *Error {
	switch {
	case now.After(c.until):
		return expiredError(c.until)
	case now.Before(c.from):
		return notYetValid(c.from)
	}
	return nil
}

// Verifier verifies client certificates with roots that may change. Verifier is safe for concurrent use.
type Verifier struct {
	roots   func() []*x509.Certificate
	current atomic.Pointer[Roots]
}

// NewVerifier returns a Verifier. The function roots returns the current roots. The function roots is called for each
// request.
func NewVerifier(roots func() []*x509.Certificate) *Verifier { return &Verifier{roots: roots} }

// Current returns the current roots. As long as the roots do not change, Current returns the same value.
func (v *Verifier) Current() *Roots {
	roots := v.roots()
	r := v.current.Load()
	if r != nil && slices.EqualFunc(r.roots, roots, func(a, b *x509.Certificate) bool { return a == b || a.Equal(b) }) {
		return r
	}
	fresh := &Roots{
		Pool:  x509.NewCertPool(),
		roots: slices.Clone(roots), verified: map[[sha256.Size]byte]*Certificate{},
	}
	for _, root := range roots {
		fresh.Pool.AddCert(root)
	}
	v.current.Store(fresh)
	return fresh
}

// Roots is one set of roots, together with the certificates that were verified with this set. Roots is safe for
// concurrent use.
type Roots struct {
	// Pool is the pool of the root certificates.
	Pool *x509.CertPool

	roots    []*x509.Certificate
	mu       sync.RWMutex
	verified map[[sha256.Size]byte]*Certificate // guarded by mu; the key is a hash of certificate or header
}

// Verify verifies the certificate of a client. The intermediate certificates complete the chain from the certificate of
// the client to a root.
func (r *Roots) Verify(leaf *x509.Certificate, intermediates []*x509.Certificate,
	now time.Time) (*Certificate, *Error) {
	key := sha256.Sum256(leaf.Raw)
	if c := r.cached(key); c != nil {
		return c, c.Check(now)
	}
	c, err := r.verify(leaf, intermediates, now)
	if err != nil {
		return nil, err
	}
	r.cache(key, c)
	return c, c.Check(now)
}

// VerifyHeader parses a header with [ParseHeader], and verifies the certificate in the header.
func (r *Roots) VerifyHeader(header string, now time.Time) (*Certificate, *Error) {
	key := sha256.Sum256([]byte(header))
	if c := r.cached(key); c != nil {
		return c, c.Check(now)
	}
	leaf, intermediates, err := ParseHeader(header)
	if err != nil {
		return nil, BadHeader(err.Error())
	}
	c, refused := r.verify(leaf, intermediates, now)
	if refused != nil {
		return nil, refused
	}
	r.cache(key, c)
	return c, c.Check(now)
}

// cached returns the certificate that is cached under a key, or nil if the cache has no certificate for this key.
func (r *Roots) cached(key [sha256.Size]byte) *Certificate {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.verified[key]
}

// cache stores a verified certificate in the cache. If there are too many certificates in the cache, the method cache
// removes an arbitrary certificate.
func (r *Roots) cache(key [sha256.Size]byte, c *Certificate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.verified) >= maxVerified {
		for other := range r.verified {
			delete(r.verified, other)
			break
		}
	}
	r.verified[key] = c
}

func (r *Roots) verify(leaf *x509.Certificate, intermediates []*x509.Certificate,
	now time.Time) (*Certificate, *Error) {
	options := x509.VerifyOptions{
		Roots: r.Pool, Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range intermediates {
		options.Intermediates.AddCert(c)
	}
	chains, err := leaf.Verify(options)
	if err != nil {
		return nil, reasonOf(leaf, err, now)
	}
	var best *Certificate
	for _, chain := range chains {
		c := &Certificate{
			ID: protocol.IdentityOf(leaf, chain[len(chain)-1]), Issued: leaf.NotBefore, Roots: r,
			from: leaf.NotBefore, until: leaf.NotAfter,
		}
		for _, link := range chain {
			if link.NotBefore.After(c.from) {
				c.from = link.NotBefore
			}
			if link.NotAfter.Before(c.until) {
				c.until = link.NotAfter
			}
		}
		if best == nil || c.until.After(best.until) {
			best = c
		}
	}
	if !best.ID.Issued.IsZero() {
		best.Issued = best.ID.Issued
	}
	return best, nil
}

// reasonOf returns the reason why the verification of a certificate has failed.
func reasonOf(leaf *x509.Certificate, err error, now time.Time) *Error {
	switch {
	case now.After(leaf.NotAfter):
		return expiredError(leaf.NotAfter)
	case now.Before(leaf.NotBefore):
		return notYetValid(leaf.NotBefore)
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return &Error{"unknown_authority",
			"the client certificate was issued by an unknown authority: get a new one from the control plane"}
	}
	return &Error{"bad_certificate", fmt.Sprintf("the client certificate is not valid: %v", err)}
}

func expiredError(end time.Time) *Error {
	return &Error{"expired", "the client certificate or its issuer expired at " + end.UTC().Format(time.RFC3339) +
		": get a new one from the control plane"}
}

func notYetValid(begin time.Time) *Error {
	return &Error{"not_yet_valid",
		"the client certificate or its issuer is not valid before " + begin.UTC().Format(time.RFC3339)}
}

// BadHeader returns the error for a header that does not contain a certificate.
func BadHeader(why string) *Error {
	return &Error{"bad_header", "the header " + Header + " does not identify the sender: " + why}
}

// LimitChain refuses a certificate chain that is too long. LimitChain is called during the TLS handshake, so that a
// chain that is too long does not occupy memory while the connection is open. LimitChain has the signature of
// VerifyPeerCertificate in [crypto/tls.Config].
func LimitChain(raw [][]byte, _ [][]*x509.Certificate) error {
	n := 0
	for _, c := range raw {
		n += len(c)
	}
	if len(raw) > MaxChain || n > maxChainBytes {
		return fmt.Errorf("reading the client certificate: %d certificates with %d bytes are too many: "+
			"send only the chain to a root", len(raw), n)
	}
	return nil
}
