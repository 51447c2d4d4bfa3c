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

	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

const (
	// maxForwarded and maxRouted are how many requests are passed on at the same time: to the replica that works, and to each other manager.
	maxForwarded = 128
	maxRouted    = 32
	// maxAnswer bounds what is read of an answer, in bytes.
	maxAnswer = 4096
)

// relay passes requests on.
type relay struct {
	leader   *http.Transport // to the replica that works
	managers *http.Transport // to other managers

	mu    sync.Mutex
	trust *trust                   // guarded by mu: with which leader has opened its connections
	own   *tls.Certificate         // guarded by mu: likewise
	slots map[string]chan struct{} // guarded by mu; by manager
}

func newRelay(l *Listener) *relay {
	return &relay{
		leader: &http.Transport{
			DialTLSContext: l.dialLeader, MaxIdleConnsPerHost: maxForwarded, MaxConnsPerHost: maxForwarded, IdleConnTimeout: time.Minute, DisableCompression: true,
		},
		managers: &http.Transport{MaxIdleConnsPerHost: maxRouted, MaxConnsPerHost: maxRouted, IdleConnTimeout: time.Minute, DisableCompression: true},
		slots:    map[string]chan struct{}{},
	}
}

// close closes connections that are not in use.
func (r *relay) close() {
	r.leader.CloseIdleConnections()
	r.managers.CloseIdleConnections()
}

// slot takes a place for a request to a manager, if there is one. The caller gives it back with free.
func (r *relay) slot(manager string, n int) (free func(), ok bool) {
	r.mu.Lock()
	slots := r.slots[manager]
	if slots == nil {
		slots = make(chan struct{}, n)
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

// renew closes idle connections that were opened with other roots or with another certificate than those of now.
func (r *relay) renew(t *trust, own *tls.Certificate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trust != t || r.own != own {
		r.leader.CloseIdleConnections()
	}
	r.trust, r.own = t, own
}

// dialLeader opens a connection to the replica that works. It must have a certificate from our roots for the name that our own has.
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
		MinVersion: tls.VersionTLS13, RootCAs: l.verifier.current().pool, ServerName: name, NextProtos: []string{"http/1.1"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil },
	}}
	return dialer.DialContext(ctx, network, address)
}

// forward passes a request on to the replica that works, and its answer back.
func (l *Listener) forward(w http.ResponseWriter, r *http.Request, address string, from caller, body []byte) *refusal {
	unreachable := func(err error) *refusal {
		metrics.WatcherForwarded.WithLabelValues(metrics.ForwardedToLeader, metrics.ResultError).Inc()
		return &refusal{status: http.StatusServiceUnavailable, reason: "no_leader", message: "the replica that works on runtimes cannot be reached: try again", detail: err, after: time.Second}
	}
	switch {
	case from.forwarder != "":
		return unreachable(fmt.Errorf("listener %s has passed this on, but it is not here that runtimes are worked on", from.forwarder))
	case address == "":
		return unreachable(errors.New("nobody works on runtimes at the moment"))
	}
	free, ok := l.relay.slot("", maxForwarded)
	if !ok {
		return unreachable(fmt.Errorf("%d requests are being passed on to it", maxForwarded))
	}
	defer free()
	own, err := l.opts.Certificate()
	if err != nil {
		return unreachable(err)
	}
	l.relay.renew(l.verifier.current(), own)
	ctx, cancel := context.WithTimeout(r.Context(), l.opts.Limits.ForwardTimeout)
	defer cancel()
	to := url.URL{Scheme: "https", Host: address, Path: r.URL.Path}
	for again := true; ; again = false {
		answer, err := l.send(ctx, l.relay.leader, to.String(), from, body, l.instance)
		switch {
		case err != nil:
			return unreachable(err)
		case answer.believed != l.instance && again: // on an old connection, while certificates change
			l.relay.leader.CloseIdleConnections()
			continue
		case answer.believed != l.instance:
			return unreachable(fmt.Errorf("%s does not take requests that are passed on by us (Peers): it answers %d %s", address, answer.status, strings.TrimSpace(string(answer.body))))
		}
		metrics.WatcherForwarded.WithLabelValues(metrics.ForwardedToLeader, metrics.ResultDone).Inc()
		w.Header().Set(protocol.HeaderInstance, answer.instance)
		if answer.next != "" {
			w.Header().Set(protocol.HeaderNext, answer.next)
		}
		answer.write(w)
		return nil
	}
}

// route passes an event on to another manager, and its answer back.
func (l *Listener) route(w http.ResponseWriter, r *http.Request, manager string, from caller, body []byte) *refusal {
	base, ok := "", false
	if l.opts.Route != nil {
		base, ok = l.opts.Route(manager)
	}
	if !ok {
		return &refusal{status: http.StatusNotFound, reason: "unknown_manager", message: fmt.Sprintf("events for %q go nowhere: no Watcher has this manager", manager)}
	}
	free, ok := l.relay.slot(manager, maxRouted)
	if !ok {
		return &refusal{status: http.StatusServiceUnavailable, reason: "manager_busy", message: fmt.Sprintf("manager %q does not answer fast enough: try again", manager), after: time.Second}
	}
	defer free()
	ctx, cancel := context.WithTimeout(r.Context(), l.opts.Limits.RouteTimeout)
	defer cancel()
	answer, err := l.send(ctx, l.relay.managers, strings.TrimSuffix(base, "/")+r.URL.Path, from, body, "")
	if err != nil {
		metrics.WatcherForwarded.WithLabelValues(metrics.ForwardedToManager, metrics.ResultError).Inc()
		return &refusal{status: http.StatusBadGateway, reason: "manager", message: fmt.Sprintf("manager %q does not answer: try again", manager), detail: err, after: time.Second}
	}
	metrics.WatcherForwarded.WithLabelValues(metrics.ForwardedToManager, metrics.ResultDone).Inc()
	answer.write(w)
	return nil
}

// answered is the answer to a request that was passed on.
type answered struct {
	status             int
	body               []byte
	contentType, after string
	instance, believed string
	next               string // when the next heartbeat is wanted
}

// send passes a request on.
func (l *Listener) send(ctx context.Context, transport *http.Transport, to string, from caller, body []byte, instance string) (answered, error) {
	chain, err := from.chain()
	if err != nil {
		return answered{}, fmt.Errorf("passing a request on: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body)) //nolint:gosec // where it goes is told by the options; the path was checked by parsePath
	if err != nil {
		return answered{}, fmt.Errorf("making a request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(headerCertificate, formatForwarded(chain))
	if instance != "" {
		req.Header.Set(headerForwarded, instance)
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return answered{}, fmt.Errorf("passing a request on: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return answered{}, fmt.Errorf("reading an answer: %w", err)
	}
	h := res.Header
	return answered{status: res.StatusCode, body: text, contentType: h.Get("Content-Type"), after: h.Get("Retry-After"),
		instance: h.Get(protocol.HeaderInstance), believed: h.Get(headerForwarded), next: h.Get(protocol.HeaderNext)}, nil
}

// write gives an answer to who has asked.
func (a answered) write(w http.ResponseWriter) {
	if a.contentType != "" {
		w.Header().Set("Content-Type", a.contentType)
	}
	if a.after != "" {
		w.Header().Set("Retry-After", a.after)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // whoever has gone needs no answer
}
