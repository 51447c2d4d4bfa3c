package backchannel

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/clientcert"
)

// caller describes the sender of a request.
type caller struct {
	*clientcert.Certificate
	// forwarder is the name of the listener process that forwarded the request, or "" if the request was not forwarded.
	forwarder string
	// The field sent is the certificate chain that the client has sent for the connection. The field header is the
	// certificate chain in the header of the request. A caller has either the field sent or the field header, but not
	// both.
	sent   []*x509.Certificate
	header string
}

// chain returns the client certificate and its intermediate certificates, in DER format.
func (c caller) chain() ([][]byte, error) {
	list := c.sent
	if len(list) == 0 {
		leaf, between, err := clientcert.ParseHeader(c.header)
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

// identify returns the sender of a request. The sender is identified by the client certificate of the connection or, if
// a trusted ingress or another replica forwards the request, by the client certificate in the header of the request. If
// identify refuses the request, all fields of the returned caller are empty, except that the field forwarder may be
// set.
func (l *Listener) identify(r *http.Request, c *conn) (caller, *refusal) {
	now := time.Now()
	roots := l.verifier.Current()
	if r.TLS == nil {
		if !l.markIfForwardingPeer(c) {
			return caller{}, unauthorized("not_believed",
				"a certificate in a header is accepted only from the networks in ForwardedFrom")
		}
		return l.identifyHeader(r, roots, now)
	}
	sent := r.TLS.PeerCertificates
	if len(sent) == 0 {
		return caller{}, unauthorized("no_certificate", "a client certificate is required")
	}
	own := c.certificate.Load()
	var err *clientcert.Error
	if own != nil && own.Roots == roots {
		err = own.Check(now)
	} else if own, err = roots.Verify(sent[0], sent[1:], now); own != nil {
		c.certificate.Store(own)
	}
	if err != nil {
		return caller{}, unauthorized(err.Reason, err.Message)
	}
	if r.Header.Get(clientcert.Header) != "" && l.isPeer(own) {
		l.connLimiter.markAsForwardingPeer(c)
		passed, refused := l.identifyHeader(r, roots, now)
		passed.forwarder = r.Header.Get(headerForwarded)
		return passed, refused
	}
	return caller{Certificate: own, sent: sent}, nil
}

// isPeer reports whether a certificate belongs to a peer: a peer may forward requests of runtimes. A certificate that
// authority.Authority has issued for a runtime never belongs to a peer, even if the common name of the certificate is
// that of a peer.
func (l *Listener) isPeer(c *clientcert.Certificate) bool {
	return c.ID.UID == "" && c.ID.CommonName != "" && slices.Contains(l.opts.Peers, c.ID.CommonName)
}

// identifyHeader identifies the sender of a request by the certificate in the header of the request.
func (l *Listener) identifyHeader(r *http.Request, roots *clientcert.Roots, now time.Time) (caller, *refusal) {
	header := r.Header.Get(clientcert.Header)
	if len(header) > l.opts.Limits.HeaderBytes {
		err := clientcert.BadHeader(fmt.Sprintf("it has more than %d bytes", l.opts.Limits.HeaderBytes))
		return caller{}, unauthorized(err.Reason, err.Message)
	}
	c, err := roots.VerifyHeader(header, now)
	if err != nil {
		return caller{}, unauthorized(err.Reason, err.Message)
	}
	return caller{Certificate: c, header: header}, nil
}

// refusedDelay is the delay after which an agent that is not accepted may try again. Each attempt costs a TLS
// handshake, because the listener closes the connection. A minute is the longest delay that agents accept. An agent
// with a new certificate tries again at once.
const refusedDelay = time.Minute

// unauthorized returns the refusal of a request whose sender is not identified.
func unauthorized(reason, message string) *refusal {
	return &refusal{status: http.StatusUnauthorized, reason: reason, message: message, after: refusedDelay,
		closeConn: true}
}
