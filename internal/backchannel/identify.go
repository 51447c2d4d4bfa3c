package backchannel

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

const (
	// maxVerified limits the verified certificates that are cached. One takes about 400 bytes.
	maxVerified = 16384
	// maxChain and maxChainBytes limit the certificates that a client may send.
	maxChain      = 8
	maxChainBytes = 32768
)

// verified is a client certificate that was verified against the roots.
type verified struct {
	id     protocol.Identity
	issued time.Time // NotBefore for certificates of other authorities
	from   time.Time // when the whole chain is valid
	until  time.Time
	by     *trust
}

// trust is one set of roots with the certificates verified by it. It is replaced as a whole when the roots change, so
// that no cached result outlives them.
type trust struct {
	roots []*x509.Certificate
	pool  *x509.CertPool

	mu    sync.RWMutex
	known map[[sha256.Size]byte]*verified // guarded by mu; by certificate, or by header
}

// verifier verifies client certificates against the current roots.
type verifier struct {
	roots func() []*x509.Certificate
	now   atomic.Pointer[trust]
}

// current returns the trust in the current roots.
func (v *verifier) current() *trust {
	roots := v.roots()
	t := v.now.Load()
	if t != nil && slices.EqualFunc(t.roots, roots, func(a, b *x509.Certificate) bool { return a == b || a.Equal(b) }) {
		return t
	}
	fresh := &trust{roots: slices.Clone(roots), pool: x509.NewCertPool(), known: map[[sha256.Size]byte]*verified{}}
	for _, root := range roots {
		fresh.pool.AddCert(root)
	}
	v.now.Store(fresh)
	return fresh
}

// lookup returns the cached certificate of a key, or nil.
func (t *trust) lookup(key [sha256.Size]byte) *verified {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.known[key]
}

// remember caches a verified certificate, and evicts an arbitrary other one if there are too many.
func (t *trust) remember(key [sha256.Size]byte, c *verified) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.known) >= maxVerified {
		for other := range t.known {
			delete(t.known, other)
			break
		}
	}
	t.known[key] = c
}

// verify verifies a client certificate with its intermediate certificates.
func (t *trust) verify(leaf *x509.Certificate, between []*x509.Certificate, now time.Time) (*verified, *refusal) {
	options := x509.VerifyOptions{Roots: t.pool, Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range between {
		options.Intermediates.AddCert(c)
	}
	chains, err := leaf.Verify(options)
	if err != nil {
		return nil, refuseCertificate(leaf, err, now)
	}
	var best *verified
	for _, chain := range chains {
		c := &verified{id: protocol.IdentityOf(leaf, chain[len(chain)-1]), issued: leaf.NotBefore, from: leaf.NotBefore, until: leaf.NotAfter, by: t}
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
	if !best.id.Issued.IsZero() {
		best.issued = best.id.Issued
	}
	return best, nil
}

// refuseCertificate explains why a certificate was not verified.
func refuseCertificate(leaf *x509.Certificate, err error, now time.Time) *refusal {
	switch {
	case now.After(leaf.NotAfter):
		return expired(leaf.NotAfter)
	case now.Before(leaf.NotBefore):
		return early(leaf.NotBefore)
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return &refusal{status: http.StatusUnauthorized, reason: "unknown_authority",
			message: "the client certificate was issued by an unknown authority: get a new one from the control plane", closeConn: true}
	}
	return &refusal{status: http.StatusUnauthorized, reason: "bad_certificate", message: fmt.Sprintf("the client certificate is not valid: %v", err), closeConn: true}
}

func expired(end time.Time) *refusal {
	return &refusal{status: http.StatusUnauthorized, reason: "expired",
		message: "the client certificate or its issuer expired at " + end.UTC().Format(time.RFC3339) + ": get a new one from the control plane", closeConn: true}
}

func early(begin time.Time) *refusal {
	return &refusal{status: http.StatusUnauthorized, reason: "not_yet_valid",
		message: "the client certificate or its issuer is not valid before " + begin.UTC().Format(time.RFC3339), closeConn: true}
}

// check returns a refusal if the certificate is not valid at this time.
func (c *verified) check(now time.Time) *refusal {
	switch {
	case now.After(c.until):
		return expired(c.until)
	case now.Before(c.from):
		return early(c.from)
	}
	return nil
}

// boundChain refuses, during the handshake, certificate chains that would occupy much memory as long as the connection
// is open.
func boundChain(raw [][]byte, _ [][]*x509.Certificate) error {
	n := 0
	for _, c := range raw {
		n += len(c)
	}
	if len(raw) > maxChain || n > maxChainBytes {
		return fmt.Errorf("reading the client certificate: %d certificates with %d bytes are too many: send only the chain to a root", len(raw), n)
	}
	return nil
}

// caller is the sender of a request.
type caller struct {
	*verified
	// forwarder is the instance of the listener that forwarded the request, "" if none did.
	forwarder string
	// sent is the certificate chain of the connection, header that of the request header: one of the two is empty.
	sent   []*x509.Certificate
	header string
}

// chain returns the certificate and its intermediate certificates as DER.
func (c caller) chain() ([][]byte, error) {
	list := c.sent
	if len(list) == 0 {
		leaf, between, err := parseForwarded(c.header)
		if err != nil {
			return nil, err
		}
		list = append([]*x509.Certificate{leaf}, between...)
	}
	chain := make([][]byte, len(list))
	for i, c := range list {
		chain[i] = c.Raw
	}
	return chain, nil
}

// identify returns the sender of a request: by the certificate of the connection, or by the header that a trusted
// ingress or peer has set. If it is refused, only the forwarder of the caller may be set.
func (l *Listener) identify(r *http.Request, c *conn) (caller, *refusal) {
	now := time.Now()
	t := l.verifier.current()
	if r.TLS == nil {
		if !l.isTrustedAddress(c) {
			return caller{}, &refusal{status: http.StatusUnauthorized, reason: "not_believed",
				message: "a certificate in a header is accepted only from the networks in ForwardedFrom", closeConn: true}
		}
		return l.identifyHeader(r, t, now)
	}
	if len(r.TLS.PeerCertificates) == 0 {
		return caller{}, &refusal{status: http.StatusUnauthorized, reason: "no_certificate", message: "a client certificate is required", closeConn: true}
	}
	own := c.certificate.Load()
	if own == nil || own.by != t {
		var refused *refusal
		if own, refused = l.verifyConnection(r, t, now); refused != nil {
			return caller{}, refused
		}
		c.certificate.Store(own)
	}
	if refused := own.check(now); refused != nil {
		return caller{}, refused
	}
	if r.Header.Get(headerCertificate) != "" && l.isPeer(own) {
		l.connLimiter.trust(c)
		passed, refused := l.identifyHeader(r, t, now)
		passed.forwarder = r.Header.Get(headerForwarded)
		return passed, refused
	}
	return caller{verified: own, sent: r.TLS.PeerCertificates}, nil
}

// isPeer reports whether a certificate belongs to a peer that may forward requests. A certificate that our authority
// issued for a runtime never does, whatever its name.
func (l *Listener) isPeer(c *verified) bool {
	return c.id.UID == "" && c.id.CommonName != "" && slices.Contains(l.opts.Peers, c.id.CommonName)
}

// verifyConnection verifies the client certificate of a connection.
func (l *Listener) verifyConnection(r *http.Request, t *trust, now time.Time) (*verified, *refusal) {
	sent := r.TLS.PeerCertificates
	key := sha256.Sum256(sent[0].Raw)
	if c := t.lookup(key); c != nil {
		return c, nil
	}
	c, refused := t.verify(sent[0], sent[1:], now)
	if refused == nil {
		t.remember(key, c)
	}
	return c, refused
}

// identifyHeader returns the sender of a request by the certificate in the header.
func (l *Listener) identifyHeader(r *http.Request, t *trust, now time.Time) (caller, *refusal) {
	header := r.Header.Get(headerCertificate)
	if len(header) > l.opts.Limits.HeaderBytes {
		return caller{}, badHeader(fmt.Sprintf("it has more than %d bytes", l.opts.Limits.HeaderBytes))
	}
	key := sha256.Sum256([]byte(header))
	c := t.lookup(key)
	if c == nil {
		leaf, between, err := parseForwarded(header)
		if err != nil {
			return caller{}, badHeader(err.Error())
		}
		var refused *refusal
		if c, refused = t.verify(leaf, between, now); refused != nil {
			return caller{}, refused
		}
		t.remember(key, c)
	}
	if refused := c.check(now); refused != nil {
		return caller{}, refused
	}
	return caller{verified: c, header: header}, nil
}

func badHeader(why string) *refusal {
	return &refusal{status: http.StatusUnauthorized, reason: "bad_header", message: "the header " + headerCertificate + " does not identify the sender: " + why}
}
