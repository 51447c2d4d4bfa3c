package outbox

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// postTimeout is the default of Poster.Timeout.
const postTimeout = 15 * time.Second

// maxMessageBytes is the maximum size of Reply.Message in bytes. The longest text of the listener about an agent, that
// of a revoked certificate whose name has 63 bytes, has 183 bytes.
const maxMessageBytes = 200

// Poster sends requests to the listener in the control plane.
type Poster struct {
	address, contract string
	log               logr.Logger
	metrics           Metrics
	answered          func(instance string) // called with the name of the listener process that answered

	// Timeout is the timeout of one request to the listener. The timeout of the TLS handshake is two thirds of Timeout.
	// Timeout must not be changed after the first call of UseCertificate. Default 15 s.
	Timeout time.Duration

	client atomic.Pointer[http.Client] // uses the current certificate; nil before the first certificate
}

// NewPoster returns a Poster. The Poster cannot send requests before UseCertificate is called. The function answered is
// called with the name of the listener process that answered.
func NewPoster(address, contract string, log logr.Logger, m Metrics, answered func(instance string)) *Poster {
	return &Poster{address: address, contract: contract, log: log, metrics: m, answered: answered, Timeout: postTimeout}
}

// UseCertificate sets the client certificate and the trusted roots for new connections. Open connections with the
// former certificate are closed as soon as they are idle.
func (p *Poster) UseCertificate(roots *x509.CertPool, certificate *tls.Certificate) {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: roots, ClientSessionCache: tls.NewLRUClientSessionCache(4),
			// The client certificate is sent even if the listener requests certificates of other roots, because the
			// error about a refused certificate is more useful than the error about a missing certificate.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate,
				error) {
				return certificate, nil
			},
		},
		ForceAttemptHTTP2:      true,
		MaxConnsPerHost:        2,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        5 * time.Minute,
		TLSHandshakeTimeout:    p.Timeout * 2 / 3,
		MaxResponseHeaderBytes: 16 << 10,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 10 * time.Second},
	}
	former := p.client.Swap(&http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
	if former != nil {
		former.CloseIdleConnections()
	}
}

// Reply is an answer of the listener.
type Reply struct {
	Status        int
	Message       string        // why the listener refuses the request, "" if Status is 200 or no text follows
	RetryAfter    time.Duration // minimum delay of the next request, 0 if the listener sent none
	NextHeartbeat time.Duration // requested delay of the next heartbeat, 0 if the listener sent none
}

// StatusText returns the status and the message of the reply, for the log.
func (r Reply) StatusText() string {
	if r.Message == "" {
		return fmt.Sprintf("status %d", r.Status)
	}
	return fmt.Sprintf("status %d: %s", r.Status, r.Message)
}

// CloseIdleConnections closes the connections that carry no request. The agent closes idle connections to save memory
// in the listener: each open connection needs as much memory there as the whole record of a runtime.
func (p *Poster) CloseIdleConnections() {
	if client := p.client.Load(); client != nil {
		client.CloseIdleConnections()
	}
}

// Post sends a body and returns the answer, whatever its status code is. An error means that there was no answer.
func (p *Poster) Post(ctx context.Context, manager, messageKind string, body []byte) (reply Reply, err error) {
	client := p.client.Load()
	if client == nil {
		return reply, fmt.Errorf("posting to %s: there are no certificates yet", p.address)
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	target := url.URL{Scheme: "https", Host: p.address, Path: "/" + p.contract + "/" + manager + "/" + messageKind}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), http.NoBody)
	if err != nil {
		p.metrics.Failed.WithLabelValues(ReasonSetup).Inc()
		return reply, fmt.Errorf("posting to %s: %w", p.address, err)
	}
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(&smallReads{bytes.NewReader(body)}), nil }
	request.Body, _ = request.GetBody() // it never fails
	request.ContentLength = int64(len(body))
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return reply, fmt.Errorf("posting to %s: %w", p.address, err)
	}
	defer response.Body.Close()
	message := messageIn(response)
	_, _ = io.CopyN(io.Discard, response.Body, 16<<10) // so that the connection can be reused
	reply = Reply{
		Status: response.StatusCode, Message: message,
		RetryAfter:    secondsInHeader(response, "Retry-After", time.Minute),
		NextHeartbeat: secondsInHeader(response, protocol.HeaderNextHeartbeat, protocol.MaxHeartbeatInterval),
	}
	if response.StatusCode == http.StatusOK { // a process that sent another status did not act on the request
		p.answered(response.Header.Get(protocol.HeaderInstance))
	}
	return reply, nil
}

// messageIn returns the first line of the text in a response other than 200. A response that is no plain text comes
// from a proxy, and has no message.
func messageIn(r *http.Response) string {
	if r.StatusCode == http.StatusOK || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") {
		return ""
	}
	start, _ := io.ReadAll(io.LimitReader(r.Body, maxMessageBytes+1)) // part of a text is better than none
	line, _, _ := strings.Cut(string(start), "\n")
	return text.ClipLine(line, maxMessageBytes)
}

// secondsInHeader returns the duration in a header whose value is a number of seconds. If the duration is longer than
// limit, secondsInHeader returns limit. If the header is missing or invalid, secondsInHeader returns 0.
func secondsInHeader(r *http.Response, header string, limit time.Duration) time.Duration {
	n, err := strconv.Atoi(r.Header.Get(header))
	if err != nil || n <= 0 {
		return 0
	}
	return time.Duration(min(n, int(limit/time.Second))) * time.Second
}

// smallReads is a request body that is read and sent in small pieces. For each connection, the listener has a buffer
// that is as large as the largest TLS record that it has received on the connection. The agent sends small TLS records
// to keep these buffers of the listener small; with ten thousand agents, this saves much memory.
type smallReads struct{ of *bytes.Reader }

// Read implements [io.Reader].
func (p *smallReads) Read(into []byte) (int, error) {
	const size = 1 << 10
	return p.of.Read(into[:min(len(into), size)])
}

// Deliver makes one attempt to deliver an event. If an event is too large, Deliver removes the states of the objects
// from the event. If the event is still too large, Deliver also removes the metadata of the object. If the listener
// refuses an event, it is sent again without metadata.
func (p *Poster) Deliver(ctx context.Context, manager string, e protocol.Event) Result {
	body, err := json.Marshal(e)
	if err == nil && len(body) > protocol.MaxEventBytes && (e.State != nil || e.States != nil) {
		e.State, e.States = nil, nil
		body, err = json.Marshal(e)
	}
	if err == nil && len(body) > protocol.MaxEventBytes {
		e.Object = nil
		body, err = json.Marshal(e)
	}
	if err != nil {
		p.metrics.Failed.WithLabelValues(ReasonSetup).Inc()
		p.log.Error(err, "an event cannot be written as JSON", "event", e.Watched)
		return Result{Refused: true}
	}
	a, err := p.Post(ctx, manager, "event", body)
	refused := a.Status == http.StatusBadRequest || a.Status == http.StatusRequestEntityTooLarge
	if refused && e.Object != nil {
		e.Object, e.State = nil, nil
		return p.Deliver(ctx, manager, e)
	}
	if err == nil && a.Status == http.StatusOK {
		return Result{Delivered: true}
	}
	p.metrics.Failed.WithLabelValues(ReasonRequest).Inc()
	switch {
	case refused:
		p.log.Info("the listener refused an event; it is dropped", "manager", manager, "status", a.Status, "message",
			a.Message, "kind", e.WatchedGVK.Kind, "object", e.Watched)
	case err != nil:
		p.log.V(1).Info("an event was not delivered and will be sent again", "manager", manager, "error", err.Error())
	default:
		p.log.V(1).Info("an event was not delivered and will be sent again", "manager", manager, "status", a.Status,
			"message", a.Message)
	}
	return Result{Refused: refused, RetryAfter: a.RetryAfter, Throttled: a.Status == http.StatusTooManyRequests,
		UnknownManager: a.Status == http.StatusNotFound}
}
