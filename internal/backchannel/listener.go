// Package backchannel receives the reports of runtimes: events about changes of their objects, and heartbeats.
//
// # Use
//
//	l, err := backchannel.New(backchannel.Options{Address: ":8443", Roots: …, Certificate: …, Lookup: …, Deliver: …, Missed: …, Changed: …})
//	err = l.Start(ctx) // a Runnable of controller-runtime, on all replicas
//	state, alive := l.State("kyma-a")
//
// # How it works
//
// Agents post events and heartbeats (see package protocol) over TLS with a client certificate. Only the certificate
// identifies the runtime; the body of a request can name only objects of that runtime. For each request, four things
// are checked: roots, validity, revocation, and whether the runtime exists. Most checks use results that are cached for
// the connection. Therefore a request on an open connection is refused if the certificate of the connection has expired
// or was revoked. Behind an ingress that terminates TLS, a header of each request contains the client certificate. The
// listener accepts this header only from the networks and peers in the options, and verifies the certificate in it like
// the certificate of a connection.
//
// An event is passed to Deliver, which does not block, and is then acknowledged. The sequence numbers of events show
// which events were missed: see sequenceLog. Heartbeats are recorded in memory; one goroutine detects runtimes whose
// heartbeats have stopped. Callbacks are called only on changes, and at a limited rate.
//
// All reports of a runtime must reach the replica that reconciles the runtime. A replica that does not reconcile the
// runtime forwards the request to the replica that reconciles the runtime. The forwarded request has the certificate of
// the runtime in a header, and the forwarding replica authenticates with its own serving certificate. The listener also
// forwards events for other managers to these managers, with the certificate of the runtime in a header. Other managers
// are programs that have registered a Watcher.
//
// There are three kinds of limits: the HTTP server of the standard library limits sizes and durations, connLimiter
// limits connections, and serve limits the requests per runtime and in total. Nothing is stored about clients that are
// not runtimes.
//
// # What it does not do
//
// The package issues no certificates: package authority issues them. The package does not look up Kymas: the callback
// Lookup looks up Kymas. The package stores nothing: after a restart, no runtime is known until its first heartbeat.
package backchannel

import (
	"container/list"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/clientcert"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// Runtime is the runtime that has a certain identity.
type Runtime struct {
	// Kyma is the name of the Kyma.
	Kyma string
	// NotBefore is a time of revocation: all certificates of the runtime that were issued before NotBefore are revoked.
	// The zero time means that no certificate is revoked.
	NotBefore time.Time
}

// Options configure a Listener. Roots, Lookup and Deliver are required. In addition, either Address with Certificate or
// ForwardedAddress with ForwardedFrom is required.
type Options struct {
	// Address is the host:port on which the listener serves TLS with client certificates. "" means that the listener
	// does not serve TLS.
	Address string
	// ForwardedAddress is the host:port on which the listener serves plain HTTP behind an ingress that terminates TLS.
	// "" means that the listener does not serve plain HTTP.
	ForwardedAddress string
	// ForwardedFrom are the networks (CIDR) of the ingress in front of ForwardedAddress. The listener refuses a request
	// on ForwardedAddress if it comes from an address outside the networks in ForwardedFrom. The ingress must replace
	// any header X-Forwarded-Client-Cert in the requests of its clients. If the header X-Forwarded-Client-Cert has
	// several certificates, the listener uses the first certificate.
	ForwardedFrom []string
	// Peers are common names; a client with such a name in its certificate is a peer. A peer may forward requests of
	// runtimes to Address. The peers are an ingress that connects with TLS, and the other replicas of the manager,
	// which use their serving certificate as a client certificate. A certificate that the type authority.Authority has
	// issued for a runtime never makes a client a peer.
	Peers []string

	// Roots returns the current root certificates for client certificates. The function Roots is called for each
	// request, so the function must be cheap.
	Roots func() []*x509.Certificate
	// Certificate returns the serving certificate of the listener, which is also its client certificate in requests to
	// other replicas.
	Certificate func() (*tls.Certificate, error)

	// Lookup returns the runtime that has an identity. An error means that no runtime has this identity. The message of
	// the error is logged. The function Lookup is called for each request, so the function must be cheap.
	Lookup func(id protocol.Identity) (Runtime, error)
	// Deliver is called for each event. If the agent repeats an event, Deliver is called again. Deliver must not block.
	Deliver func(kyma string, e protocol.Event)
	// Missed is called when objects of a runtime may have changed without an event. Missed must not block. If Missed is
	// nil, nobody is notified.
	Missed func(kyma string)
	// Changed is called when State has changed: the heartbeats of a runtime begin or stop, or its agent reports another
	// version, problem or root certificate. For one runtime, Changed is called at most five times in a row, and after
	// that at most four times a minute. Changed must not block. If Changed is nil, nobody is notified.
	Changed func(kyma string)
	// Route returns the base URL of another manager that receives events of runtimes, in the form scheme://host:port.
	// The listener appends the path of the event to this URL. If Route is nil, events are not forwarded to other
	// managers.
	Route func(manager string) (url string, ok bool)
	// Leader returns the address (host:port) of the listener on the replica that reconciles the runtime of a Kyma, or
	// "" if the address is unknown. The result me is true if this process is the replica that reconciles the runtime.
	// If Leader is nil, this process reconciles all runtimes.
	Leader func(kyma string) (address string, me bool)

	// HeartbeatTimeout is the time after which a runtime without a heartbeat counts as lost. Default 100 s.
	HeartbeatTimeout time.Duration
	// NextHeartbeat returns the delay after which an agent has to send its next heartbeat. The response to each
	// heartbeat contains the delay until the next one. For a runtime whose agent got a delay, this delay is added to
	// HeartbeatTimeout. If the delay is 0, the response contains no delay, and the agent uses the interval in its watch
	// list. The function NextHeartbeat is called for each heartbeat, so the function must be cheap. If NextHeartbeat is
	// nil, the delay is always 0.
	NextHeartbeat func() time.Duration
	// RuntimeMetrics enables the metrics that have the name of a Kyma as a label.
	RuntimeMetrics bool
	// Limits are the limits for the resources that clients can use.
	Limits Limits
	// Log receives lines about refused requests, at a limited rate: if many requests are refused, some of them are not
	// logged.
	Log logr.Logger
}

// Limits are the limits for the resources that clients can use, such as connections. If a field is zero, its default
// applies.
type Limits struct {
	// EventBytes is the maximum size of the body of an event. Default protocol.MaxEventBytes.
	EventBytes int64
	// HeaderBytes plus 4 KiB is the maximum size of all headers of a request. Default 32 KiB.
	HeaderBytes int
	// InFlight is the maximum number of concurrent requests. Default 1024.
	InFlight int
	// PerRuntime is the maximum number of open connections of one runtime, and also of its concurrent requests. Default
	// 16.
	PerRuntime int
	// Rate is the number of events per second that a runtime may send. Burst is the number of events that a runtime may
	// send at once before Rate limits it. Defaults 100 and 500.
	Rate  float64
	Burst int
	// Connections is the maximum number of open connections of all clients to the listener. Default 20000.
	Connections int
	// KeepAliveConnections is the number of open connections up to which a connection stays open after a response.
	// While more connections are open, each response closes its connection, so that the memory for connections is
	// limited. The client opens another connection for its next request. The connections of peers stay open. Default
	// 1000.
	KeepAliveConnections int
	// HeaderTimeout is the timeout of the TLS handshake, and also the timeout of reading the headers of a request after
	// the handshake. Default 10 s.
	HeaderTimeout time.Duration
	// BodyTimeout is the timeout of reading the body of a request. The part of HeaderTimeout that was not used is added
	// to BodyTimeout. Default 5 s.
	BodyTimeout time.Duration
	// IdleTimeout is the time without a request after which a connection is closed. Default 3 min.
	IdleTimeout time.Duration
	// ForwardTimeout is the timeout for the response of another replica. Default 5 s.
	ForwardTimeout time.Duration
	// RouteTimeout is the timeout for the response of another manager. Default 10 s.
	RouteTimeout time.Duration
	// DrainTimeout is the time in which running requests can complete when the listener stops. Default 10 s.
	DrainTimeout time.Duration
}

// Listener receives the reports of runtimes. A Listener is safe for concurrent use.
type Listener struct {
	opts          Options
	forwardedFrom []netip.Prefix
	instance      string // identifies this process in each response
	verifier      *clientcert.Verifier
	tracker       *tracker
	connLimiter   *connLimiter
	relay         *relay
	inFlight      atomic.Int64 // number of requests in progress

	serving atomic.Pointer[string] // host:port of Address; nil while it is not served

	logMu   sync.Mutex
	logRate bucket // limits log lines about refused requests; guarded by logMu
}

// New validates the options and returns a Listener. New opens no address: Start opens the addresses.
func New(o Options) (*Listener, error) {
	switch {
	case o.Roots == nil || o.Lookup == nil || o.Deliver == nil:
		return nil, errors.New("making a listener: options need Roots, Lookup and Deliver")
	case o.Address == "" && o.ForwardedAddress == "":
		return nil, errors.New("making a listener: options need Address or ForwardedAddress")
	case (o.Address != "" || o.Leader != nil) && o.Certificate == nil:
		return nil, errors.New("making a listener: Address and Leader need a Certificate")
	case o.ForwardedAddress != "" && len(o.ForwardedFrom) == 0:
		return nil, errors.New(
			"making a listener: ForwardedAddress needs ForwardedFrom, the networks of the ingress: all other " +
				"requests are refused")
	}
	l := &Listener{opts: o, instance: rand.Text(), verifier: clientcert.NewVerifier(o.Roots)}
	for _, network := range o.ForwardedFrom {
		prefix, err := netip.ParsePrefix(network)
		if err != nil {
			return nil, fmt.Errorf("making a listener: %q in ForwardedFrom is not a network such as 10.0.0.0/8: %w",
				network, err)
		}
		l.forwardedFrom = append(l.forwardedFrom, prefix.Masked())
	}
	l.opts.setDefaults()
	l.tracker = newTracker(&l.opts)
	l.connLimiter = &connLimiter{limit: l.opts.Limits.Connections, keepAlive: l.opts.Limits.KeepAliveConnections,
		perRuntime: l.opts.Limits.PerRuntime, unidentified: list.New()}
	l.relay = newRelay(l)
	return l, nil
}

func (o *Options) setDefaults() {
	if o.Missed == nil {
		o.Missed = func(string) {}
	}
	if o.Changed == nil {
		o.Changed = func(string) {}
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	if o.NextHeartbeat == nil {
		o.NextHeartbeat = func() time.Duration { return 0 }
	}
	setDefault(&o.HeartbeatTimeout, 100*time.Second)
	l := &o.Limits
	setDefault(&l.EventBytes, protocol.MaxEventBytes)
	setDefault(&l.HeaderBytes, 32<<10)
	setDefault(&l.InFlight, 1024)
	setDefault(&l.PerRuntime, 16)
	setDefault(&l.Rate, 100)
	setDefault(&l.Burst, 500)
	setDefault(&l.Connections, 20000)
	setDefault(&l.KeepAliveConnections, 1000)
	setDefault(&l.HeaderTimeout, 10*time.Second)
	setDefault(&l.BodyTimeout, 5*time.Second)
	setDefault(&l.IdleTimeout, 3*time.Minute)
	setDefault(&l.ForwardTimeout, 5*time.Second)
	setDefault(&l.RouteTimeout, 10*time.Second)
	setDefault(&l.DrainTimeout, 10*time.Second)
}

func setDefault[T comparable](value *T, otherwise T) {
	if *value == *new(T) {
		*value = otherwise
	}
}

// NeedLeaderElection returns false: all replicas listen.
func (l *Listener) NeedLeaderElection() bool { return false }

// Start opens the addresses and serves requests until ctx ends. When ctx has ended, Start waits at most DrainTimeout
// for the running requests. Start may be called only once.
func (l *Listener) Start(ctx context.Context) error {
	secured, plain, err := l.bind(ctx)
	if err != nil {
		return err
	}
	var (
		running sync.WaitGroup
		servers []*http.Server
		failed  = make(chan error, 2)
	)
	for _, inner := range []net.Listener{secured, plain} {
		if inner == nil {
			continue
		}
		server := l.server()
		servers = append(servers, server)
		running.Go(func() {
			if err := server.Serve(inner); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serving the listener: %w", err)
			}
		})
	}
	running.Go(func() { l.tracker.watch(ctx) })
	address := ""
	if secured != nil {
		address = secured.Addr().String()
	}
	l.serving.Store(&address)
	select {
	case <-ctx.Done():
		err = nil
	case err = <-failed:
	}
	l.serving.Store(nil)
	l.drain(ctx, servers)
	if err != nil {
		return err // the goroutine of tracker.watch ends with the process
	}
	running.Wait()
	return nil
}

// drain shuts the servers down. The method drain waits at most DrainTimeout for running requests, and closes the
// remaining connections after that.
func (l *Listener) drain(ctx context.Context, servers []*http.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.Limits.DrainTimeout)
	defer cancel()
	var ending sync.WaitGroup
	for _, server := range servers {
		ending.Go(func() {
			if err := server.Shutdown(ctx); err != nil {
				_ = server.Close() // DrainTimeout has expired
			}
		})
	}
	ending.Wait()
	l.relay.closeIdleConnections()
}

// TLSAddress returns the host:port on which the listener serves TLS. If the configured port is 0, TLSAddress returns
// the port that the system has chosen. TLSAddress returns "" while the listener does not serve TLS.
func (l *Listener) TLSAddress() string {
	if address := l.serving.Load(); address != nil {
		return *address
	}
	return ""
}

// Ready is a health check, which returns an error if the listener cannot serve agents, for example because the
// certificate of the listener has expired.
func (l *Listener) Ready(*http.Request) error {
	if l.serving.Load() == nil {
		return errors.New("checking the listener: it does not listen")
	}
	if len(l.opts.Roots()) == 0 {
		return errors.New("checking the listener: no root certificate to verify client certificates with")
	}
	if l.opts.Address == "" {
		return nil
	}
	pair, err := l.opts.Certificate()
	if err != nil {
		return fmt.Errorf("checking the listener: %w", err)
	}
	if leaf, now := pair.Leaf, time.Now(); leaf != nil && (now.Before(leaf.NotBefore) || now.After(leaf.NotAfter)) {
		return fmt.Errorf("checking the listener: its certificate is valid only from %s to %s, so agents refuse it: "+
			"renew it, and check the clock", leaf.NotBefore.UTC().Format(time.RFC3339),
			leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// State returns the last heartbeat of a runtime, and whether the runtime counts as alive. A runtime counts as alive if
// its last heartbeat is more recent than HeartbeatTimeout. The results s and alive are zero if this process has
// received no heartbeat of the runtime since its start or the last call of Release.
func (l *Listener) State(kyma string) (s State, alive bool) { return l.tracker.state(kyma) }

// Release drops the heartbeats of a runtime that another replica reconciles from now on: the runtime counts neither as
// alive nor as lost, and State is zero until this process records a heartbeat again. The sequence numbers of received
// events stay, so that the process notices later which events only the other replica has received.
func (l *Listener) Release(kyma string) { l.tracker.release(kyma) }

// Forget removes the record of a runtime that was deleted.
func (l *Listener) Forget(kyma string) { l.tracker.forget(kyma) }
