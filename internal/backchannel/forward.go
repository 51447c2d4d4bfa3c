package backchannel

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/clientcert"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

const (
	// maxForwarded is the maximum number of concurrent requests that are forwarded to the reconciling replica.
	// maxRouted is the maximum number of concurrent requests that are forwarded to one other manager.
	maxForwarded = 128
	maxRouted    = 32
	// maxResponseBytes is the maximum number of bytes that are read of the response to a forwarded request.
	maxResponseBytes = 4096
	// headerForwarded is the header that a listener adds to a request that it forwards to another replica. The value of
	// the header identifies the listener process that forwards the request. If the other replica accepts the
	// certificate of the forwarding listener, its response has the header with the same value. From the header in a
	// response, the forwarding listener recognises whether the other replica has refused the request of the runtime, or
	// the forwarding listener itself.
	headerForwarded = "X-Listener-Forwarded"
)

// relay is a type that forwards requests to the replica that reconciles the runtime, and to other managers that have
// registered a Watcher.
type relay struct {
	leader   *http.Transport // to the reconciling replica
	managers *http.Transport // to other managers

	mu    sync.Mutex
	trust *clientcert.Roots        // roots of the open connections of leader; guarded by mu
	own   *tls.Certificate         // client certificate of these connections; guarded by mu
	slots map[string]chan struct{} // guarded by mu; the key is the name of the manager
}

func newRelay(l *Listener) *relay {
	return &relay{
		leader: &http.Transport{
			DialTLSContext: l.dialLeader, MaxIdleConnsPerHost: maxForwarded, MaxConnsPerHost: maxForwarded,
			IdleConnTimeout: time.Minute, DisableCompression: true,
		},
		managers: &http.Transport{MaxIdleConnsPerHost: maxRouted, MaxConnsPerHost: maxRouted,
			IdleConnTimeout: time.Minute, DisableCompression: true},
		slots: map[string]chan struct{}{},
	}
}

// closeIdleConnections closes the idle connections to the reconciling replica and to other managers.
func (r *relay) closeIdleConnections() {
	r.leader.CloseIdleConnections()
	r.managers.CloseIdleConnections()
}

// reserveSlot reserves a slot for a request to a manager, if a slot is free. The parameter limit is the number of slots
// of the manager. The caller must call the result free at the end of its request.
func (r *relay) reserveSlot(manager string, limit int) (free func(), ok bool) {
	r.mu.Lock()
	slots := r.slots[manager]
	if slots == nil {
		slots = make(chan struct{}, limit)
		r.slots[manager] = slots
	}
	r.mu.Unlock()
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, true
	default:
		return nil, false
	}
}

// closeIdleIfOutdated closes idle connections that were opened with other roots or another certificate than the current
// ones.
func (r *relay) closeIdleIfOutdated(roots *clientcert.Roots, own *tls.Certificate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trust != roots || r.own != own {
		r.leader.CloseIdleConnections()
	}
	r.trust, r.own = roots, own
}

// dialLeader connects to the replica that reconciles the runtime, and verifies the serving certificate of that replica.
// A trusted root must have issued the certificate. The certificate must be valid for the first host name in the serving
// certificate of this process, because the serving certificates of all replicas have the same host names.
func (l *Listener) dialLeader(ctx context.Context, network, address string) (net.Conn, error) {
	own, err := l.opts.Certificate()
	if err != nil {
		return nil, fmt.Errorf("getting the serving certificate: %w", err)
	}
	leaf := own.Leaf
	if leaf == nil {
		if leaf, err = x509.ParseCertificate(own.Certificate[0]); err != nil {
			return nil, fmt.Errorf("parsing the serving certificate: %w", err)
		}
	}
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("reading the address of a replica: %w", err)
	}
	if len(leaf.DNSNames) > 0 {
		name = leaf.DNSNames[0]
	}
	dialer := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: l.verifier.Current().Pool, ServerName: name,
		NextProtos:           []string{"http/1.1"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil },
	}}
	return dialer.DialContext(ctx, network, address)
}

// forwardToLeader forwards a request to the reconciling replica and returns the response of that replica to the client.
func (l *Listener) forwardToLeader(w http.ResponseWriter, r *http.Request, address string, from caller,
	body []byte) *refusal {
	unreachable := func(err error) *refusal {
		metrics.ListenerForwarded.WithLabelValues(metrics.ForwardedToLeader, metrics.ResultError).Inc()
		return &refusal{status: http.StatusServiceUnavailable, reason: "no_leader",
			message: "the replica that reconciles this runtime cannot be reached: try again",
			detail:  err, after: time.Second}
	}
	switch {
	case from.forwarder != "":
		return unreachable(fmt.Errorf(
			"listener %s forwarded this request, but this replica does not reconcile the runtime either",
			from.forwarder))
	case address == "":
		return unreachable(errors.New("no replica reconciles runtimes at the moment"))
	}
	free, ok := l.relay.reserveSlot("", maxForwarded)
	if !ok {
		return unreachable(fmt.Errorf("%d requests are being forwarded to it", maxForwarded))
	}
	defer free()
	own, err := l.opts.Certificate()
	if err != nil {
		return unreachable(err)
	}
	l.relay.closeIdleIfOutdated(l.verifier.Current(), own)
	ctx, cancel := context.WithTimeout(r.Context(), l.opts.Limits.ForwardTimeout)
	defer cancel()
	to := url.URL{Scheme: "https", Host: address, Path: r.URL.Path}
	for again := true; ; again = false {
		answer, err := l.passOn(ctx, l.relay.leader, to.String(), from, body, l.instance)
		switch {
		case err != nil:
			return unreachable(err)
		case answer.accepted != l.instance && again: // the connection was opened before a certificate rotation
			l.relay.leader.CloseIdleConnections()
			continue
		case answer.accepted != l.instance:
			return unreachable(
				fmt.Errorf("%s does not accept requests forwarded by this replica (Peers): it responded %d %s", address,
					answer.status, strings.TrimSpace(string(answer.body))))
		}
		metrics.ListenerForwarded.WithLabelValues(metrics.ForwardedToLeader, metrics.ResultDone).Inc()
		w.Header().Set(protocol.HeaderInstance, answer.instance)
		if answer.next != "" {
			w.Header().Set(protocol.HeaderNextHeartbeat, answer.next)
		}
		answer.write(w)
		return nil
	}
}

// forwardToManager forwards an event to another manager and returns the response of that manager to the client.
func (l *Listener) forwardToManager(w http.ResponseWriter, r *http.Request, manager string, from caller,
	body []byte) *refusal {
	base, ok := "", false
	if l.opts.Route != nil {
		base, ok = l.opts.Route(manager)
	}
	if !ok {
		return &refusal{status: http.StatusNotFound, reason: "unknown_manager",
			message: fmt.Sprintf("no Watcher has manager %q: the event cannot be forwarded", manager)}
	}
	free, ok := l.relay.reserveSlot(manager, maxRouted)
	if !ok {
		return &refusal{status: http.StatusServiceUnavailable, reason: "manager_busy",
			message: fmt.Sprintf("manager %q does not respond fast enough: try again", manager), after: time.Second}
	}
	defer free()
	ctx, cancel := context.WithTimeout(r.Context(), l.opts.Limits.RouteTimeout)
	defer cancel()
	answer, err := l.passOn(ctx, l.relay.managers, strings.TrimSuffix(base, "/")+r.URL.Path, from, body, "")
	if err != nil {
		metrics.ListenerForwarded.WithLabelValues(metrics.ForwardedToManager, metrics.ResultError).Inc()
		return &refusal{status: http.StatusBadGateway, reason: "manager",
			message: fmt.Sprintf("manager %q does not respond: try again", manager), detail: err, after: time.Second}
	}
	metrics.ListenerForwarded.WithLabelValues(metrics.ForwardedToManager, metrics.ResultDone).Inc()
	answer.write(w)
	return nil
}

// response is the response to a forwarded request.
type response struct {
	status             int
	body               []byte
	contentType, after string
	instance, accepted string
	next               string // the delay until the next heartbeat, as in the response
}

// passOn sends a request of a runtime to another replica of Lifecycle Manager, or to another manager that receives
// events of runtimes.
func (l *Listener) passOn(ctx context.Context, transport *http.Transport, targetURL string, from caller, body []byte,
	forwarder string) (response, error) {
	chain, err := from.chain()
	if err != nil {
		return response{}, fmt.Errorf("forwarding a request: %w", err)
	}
	//nolint:gosec // the address comes from the options; parsePath checked the path
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, targetURL, bytes.NewReader(body))
	if err != nil {
		return response{}, fmt.Errorf("making a request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(clientcert.Header, clientcert.FormatHeader(chain))
	if forwarder != "" {
		req.Header.Set(headerForwarded, forwarder)
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return response{}, fmt.Errorf("forwarding a request: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxResponseBytes))
	if err != nil {
		return response{}, fmt.Errorf("reading a response: %w", err)
	}
	h := res.Header
	return response{status: res.StatusCode, body: text, contentType: h.Get("Content-Type"), after: h.Get("Retry-After"),
		instance: h.Get(protocol.HeaderInstance), accepted: h.Get(headerForwarded),
		next: h.Get(protocol.HeaderNextHeartbeat)}, nil
}

// write copies a response to the client of the request.
func (a response) write(w http.ResponseWriter) {
	if a.contentType != "" {
		w.Header().Set("Content-Type", a.contentType)
	}
	if a.after != "" {
		w.Header().Set("Retry-After", a.after)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a client that has disconnected needs no response
}
