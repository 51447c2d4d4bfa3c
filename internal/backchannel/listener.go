// Package backchannel hears what runtimes say about themselves: that something changed, and that they are there.
//
// # Use
//
//	l, err := backchannel.New(backchannel.Options{Address: ":8443", Roots: …, Certificate: …, Lookup: …, Deliver: …, Missed: …, Changed: …})
//	err = l.Start(ctx)                  // a Runnable of controller-runtime, on all replicas
//	state, heard := l.State("kyma-a")
//
// # How it works
//
// Agents post events and heartbeats, see package protocol, over TLS with a client certificate. The certificate decides which runtime speaks; a
// body can only name objects of that runtime. Everything that can end (roots, validity, revocation, the runtime itself) is checked for each request,
// most of it by comparing with what is remembered of the connection; so a connection that stays open for days ends no later than what it
// was opened with. Behind an ingress that ends TLS, the ingress says in a header which certificate its client had: it is believed that
// the client had it, from those only who are named in the options; whether the certificate is genuine is checked here as for any other.
//
// An event is handed to Deliver, which does not wait, and answered. Numbers of events tell what was missed: see ledger. Heartbeats are written
// down in memory; one goroutine finds who falls silent. Only changes are told, and nothing too often.
//
// The replica that works on runtimes must hear everything. The others pass on to it what they hear, with the certificate in the header, and
// their serving certificate as their own. Events for other managers go to these in the same way.
//
// Limits: on sizes and times by the server of the standard library; on connections by door; on requests per runtime and altogether by answer. Nothing
// is remembered of anybody who is not a runtime.
//
// # What it does not do
//
// It issues no certificates (package authority does), knows no Kyma (Lookup does), and keeps nothing over a restart: the first heartbeat that
// a process hears is the beginning for it.
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

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// Runtime is who an identity belongs to.
type Runtime struct {
	// Kyma is the name of the Kyma.
	Kyma string
	// NotBefore revokes certificates that were issued earlier. Zero: none.
	NotBefore time.Time
}

// Options configure a Listener. Needed are Roots, Lookup, Deliver, and Address with Certificate or ForwardedAddress with ForwardedFrom.
type Options struct {
	// Address is where TLS with client certificates is served, as host:port. "" is nowhere.
	Address string
	// ForwardedAddress is where plain HTTP is served behind an ingress that ends TLS. "" is nowhere.
	ForwardedAddress string
	// ForwardedFrom are the networks (CIDR) of this ingress: from anywhere else, nothing is heard on ForwardedAddress. The ingress must
	// replace the header X-Forwarded-Client-Cert that its clients send; the first certificate in it counts.
	ForwardedFrom []string
	// Peers are common names of client certificates on Address whose owners are believed to say who their clients are: other replicas,
	// which have their serving certificate, and an ingress that speaks TLS. A certificate of our own authority for a runtime is never one.
	Peers []string

	// Roots returns the roots of client certificates of this moment. It is called for each request, so it must be cheap.
	Roots func() []*x509.Certificate
	// Certificate returns the serving certificate. It is the client certificate towards other replicas, too.
	Certificate func() (*tls.Certificate, error)

	// Lookup finds out whose identity it is. An error says that it is nobody's; its message is for the log. It is called for each request.
	Lookup func(id protocol.Identity) (Runtime, error)
	// Deliver gets each event, again if it is sent again. It must not block.
	Deliver func(kyma string, e protocol.Event)
	// Missed is told that anything may have changed in a runtime. It must not block. nil is nobody.
	Missed func(kyma string)
	// Changed is told to look at State: a runtime is heard or lost, its agent has another version or another problem, its certificate another
	// root. At most five times at once and four times a minute for one runtime. It must not block. nil is nobody.
	Changed func(kyma string)
	// Route returns where events for another manager go, as scheme://host:port; their path is kept. nil is nowhere.
	Route func(manager string) (url string, ok bool)
	// Leader returns the address (host:port) of the listener of the replica that works on the runtime of a Kyma, "" if it is not known, and whether that is
	// this one. nil is this one.
	Leader func(kyma string) (address string, me bool)

	// Silence without heartbeat makes a runtime lost. Default 100 s.
	Silence time.Duration
	// Pace returns the time until the next heartbeat that a runtime is told, as long as it has nothing else to say; a runtime that was told is lost after
	// Silence and that time. 0 is not told: the runtime knows from its watch list. It is called for each heartbeat, so it must be cheap. nil is 0.
	Pace func() time.Duration
	// RuntimeMetrics has metrics with the name of a Kyma in their labels.
	RuntimeMetrics bool
	// Limits keep clients from using up the process.
	Limits Limits
	// Log gets a line for some of the refused requests.
	Log logr.Logger
}

// Limits of what clients may use. Zero is the default for each.
type Limits struct {
	// EventBytes is the largest body of an event. Default protocol.MaxEventBytes.
	EventBytes int64
	// HeaderBytes is the most that all headers may have, apart from 4 KiB. Default 32 KiB.
	HeaderBytes int
	// InFlight is the number of requests that are worked on at the same time. Default 1024.
	InFlight int
	// PerRuntime is the number of connections of one runtime, and of its requests that are worked on at the same time. Default 16.
	PerRuntime int
	// Rate is how many events a runtime may send a second, after Burst at once. Defaults 100 and 500.
	Rate  float64
	Burst int
	// Connections is the number of connections. Default 20000.
	Connections int
	// HeaderTimeout is how long a handshake may take, and then the headers. Default 10 s.
	HeaderTimeout time.Duration
	// BodyTimeout is how long a body may take, after what was left of HeaderTimeout. Default 5 s.
	BodyTimeout time.Duration
	// IdleTimeout closes a connection on which nothing happens. Default 3 min.
	IdleTimeout time.Duration
	// ForwardTimeout is how long another replica may take for an answer. Default 5 s.
	ForwardTimeout time.Duration
	// RouteTimeout is how long another manager may take for an answer. Default 10 s.
	RouteTimeout time.Duration
	// DrainTimeout is how long requests may take that are under way at the end. Default 10 s.
	DrainTimeout time.Duration
}

// Listener hears runtimes. Safe for concurrent use.
type Listener struct {
	opts          Options
	forwardedFrom []netip.Prefix
	instance      string // of this process, in each answer
	verifier      *verifier
	board         *board
	door          *door
	relay         *relay
	inFlight      atomic.Int64 // requests

	serving atomic.Pointer[string] // where TLS is served; nil unless it is

	quiet sync.Mutex
	said  bucket // guarded by quiet: lines in the log
}

// New checks options. Nothing is opened before Start.
func New(o Options) (*Listener, error) {
	switch {
	case o.Roots == nil || o.Lookup == nil || o.Deliver == nil:
		return nil, errors.New("making a listener: options need Roots, Lookup and Deliver")
	case o.Address == "" && o.ForwardedAddress == "":
		return nil, errors.New("making a listener: options need Address or ForwardedAddress")
	case (o.Address != "" || o.Leader != nil) && o.Certificate == nil:
		return nil, errors.New("making a listener: Address and Leader need a Certificate")
	case o.ForwardedAddress != "" && len(o.ForwardedFrom) == 0:
		return nil, errors.New("making a listener: ForwardedAddress needs ForwardedFrom, the networks of the ingress, or nobody would be heard there")
	}
	l := &Listener{opts: o, instance: rand.Text(), verifier: &verifier{roots: o.Roots}}
	for _, network := range o.ForwardedFrom {
		prefix, err := netip.ParsePrefix(network)
		if err != nil {
			return nil, fmt.Errorf("making a listener: %q in ForwardedFrom is no network such as 10.0.0.0/8: %w", network, err)
		}
		l.forwardedFrom = append(l.forwardedFrom, prefix.Masked())
	}
	l.opts.setDefaults()
	l.board = newBoard(&l.opts)
	l.door = &door{limit: l.opts.Limits.Connections, perRuntime: l.opts.Limits.PerRuntime, strangers: list.New()}
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
	if o.Pace == nil {
		o.Pace = func() time.Duration { return 0 }
	}
	setDefault(&o.Silence, 100*time.Second)
	l := &o.Limits
	setDefault(&l.EventBytes, protocol.MaxEventBytes)
	setDefault(&l.HeaderBytes, 32<<10)
	setDefault(&l.InFlight, 1024)
	setDefault(&l.PerRuntime, 16)
	setDefault(&l.Rate, 100)
	setDefault(&l.Burst, 500)
	setDefault(&l.Connections, 20000)
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

// NeedLeaderElection says that all replicas listen.
func (l *Listener) NeedLeaderElection() bool { return false }

// Start opens the addresses and serves until the end of ctx; then it lets requests end that are under way. It may be called once.
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
	running.Go(func() { l.board.watch(ctx) })
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
		return err // watch ends with the process
	}
	running.Wait()
	return nil
}

// drain ends servers: first those requests that take no longer than allowed, then the others.
func (l *Listener) drain(ctx context.Context, servers []*http.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.Limits.DrainTimeout)
	defer cancel()
	var ending sync.WaitGroup
	for _, server := range servers {
		ending.Go(func() {
			if err := server.Shutdown(ctx); err != nil {
				_ = server.Close() // what is left has had its time
			}
		})
	}
	ending.Wait()
	l.relay.close()
}

// Serving returns where TLS is served, as host:port: that is Address with the port that was found where it has port 0. "" if it is not served.
func (l *Listener) Serving() string {
	if address := l.serving.Load(); address != nil {
		return *address
	}
	return ""
}

// Ready is a check of health: whether agents can be served.
func (l *Listener) Ready(*http.Request) error {
	if l.serving.Load() == nil {
		return errors.New("checking the listener: it does not listen")
	}
	if len(l.opts.Roots()) == 0 {
		return errors.New("checking the listener: there is no root to verify client certificates with")
	}
	if l.opts.Address == "" {
		return nil
	}
	if _, err := l.opts.Certificate(); err != nil {
		return fmt.Errorf("checking the listener: %w", err)
	}
	return nil
}

// State returns what the last heartbeat of a runtime said, and whether it came within Silence. Both are empty if there was none
// in the life of this process.
func (l *Listener) State(kyma string) (s State, heard bool) { return l.board.state(kyma) }

// Forget drops what is known of a runtime, which is gone.
func (l *Listener) Forget(kyma string) { l.board.forget(kyma) }
