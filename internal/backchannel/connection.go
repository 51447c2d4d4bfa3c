package backchannel

import (
	"container/list"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"

	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/clientcert"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// connLimiter limits the number of connections. When there are too many connections, connLimiter closes the oldest
// connection whose client is not identified yet, so that unidentified clients cannot displace an identified one. When
// one runtime has too many connections, connLimiter closes the oldest connection of that runtime.
type connLimiter struct {
	limit      int // maximum number of connections
	keepAlive  int // number of connections up to which a response does not close its connection
	perRuntime int

	mu           sync.Mutex
	open         int        // guarded by mu
	unidentified *list.List // elements are *conn, oldest first; guarded by mu
}

// conn is one connection of a client.
type conn struct {
	net.Conn
	connLimiter *connLimiter
	remote      netip.Addr
	// The field certificate is the client certificate of the connection. The field certificate is nil until the
	// certificate was verified.
	certificate atomic.Pointer[clientcert.Certificate]

	unidentified *list.Element          // guarded by connLimiter.mu; nil once the client is identified
	owner        atomic.Pointer[record] // written under connLimiter.mu; nil if the connection has no runtime
	trusted      atomic.Bool            // whether the client is a peer, which forwards requests of many runtimes
	closed       bool                   // guarded by connLimiter.mu
}

// maxReadBytes is the maximum number of bytes of one read from a connection.
const maxReadBytes = 1 << 10

// Read implements [net.Conn]. One call of Read reads at most maxReadBytes, which saves memory. As long as a connection
// is open, package tls keeps a buffer for bytes that it has read after the end of a TLS record. The buffer stays small
// because each read is small.
func (c *conn) Read(into []byte) (int, error) {
	return c.Conn.Read(into[:min(len(into), maxReadBytes)])
}

// limitedListener is a [net.Listener] with a connLimiter that limits its connections.
type limitedListener struct {
	net.Listener
	connLimiter *connLimiter
}

// Accept waits for the next connection that is within the limit.
func (d limitedListener) Accept() (net.Conn, error) {
	for {
		inner, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner, connLimiter: d.connLimiter}
		if at, err := netip.ParseAddrPort(inner.RemoteAddr().String()); err == nil {
			c.remote = at.Addr().Unmap()
		}
		evicted, ok := d.connLimiter.add(c)
		if evicted != nil {
			_ = evicted.Close()
		}
		if ok {
			return c, nil
		}
		_ = inner.Close()
	}
}

// add counts a new connection. If there are too many connections, the method add returns the connection that the caller
// must close. If the result ok is false, the caller must close the new connection instead.
func (d *connLimiter) add(c *conn) (evicted *conn, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open >= d.limit {
		metrics.ListenerRefused.WithLabelValues("connections").Inc()
		oldest := d.unidentified.Front()
		if oldest == nil {
			return nil, false
		}
		evicted = oldest.Value.(*conn)
		d.removeLocked(evicted)
	}
	d.open++
	c.unidentified = d.unidentified.PushBack(c)
	return evicted, true
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.connLimiter.mu.Lock()
	c.connLimiter.removeLocked(c)
	c.connLimiter.mu.Unlock()
	return c.Conn.Close()
}

func (d *connLimiter) removeLocked(c *conn) {
	if c.closed {
		return
	}
	c.closed = true
	d.open--
	if c.unidentified != nil {
		d.unidentified.Remove(c.unidentified)
		c.unidentified = nil
	}
	if owner := c.owner.Swap(nil); owner != nil {
		owner.conns = slices.DeleteFunc(owner.conns, func(o *conn) bool { return o == c })
	}
}

// mustCloseAfterResponse reports whether so many connections are open that this one must be closed after its response.
// A peer keeps its connection, because it uses it for the requests of many runtimes.
func (d *connLimiter) mustCloseAfterResponse(c *conn) bool {
	if c.trusted.Load() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open > d.keepAlive
}

// markAsForwardingPeer marks a connection as the connection of a peer, which may forward requests of many runtimes.
func (d *connLimiter) markAsForwardingPeer(c *conn) {
	if c.trusted.Swap(true) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.unidentified != nil {
		d.unidentified.Remove(c.unidentified)
		c.unidentified = nil
	}
}

// assignRuntime records to which runtime a connection belongs. If the new connection is one too many for the runtime,
// assignRuntime closes the oldest connection of the runtime.
func (d *connLimiter) assignRuntime(c *conn, r *record) {
	if c.owner.Load() == r {
		return
	}
	d.mu.Lock()
	if c.closed {
		d.mu.Unlock()
		return
	}
	if c.unidentified != nil {
		d.unidentified.Remove(c.unidentified)
		c.unidentified = nil
	}
	if before := c.owner.Swap(r); before != nil { // the record of the runtime was removed and a new one was created
		before.conns = slices.DeleteFunc(before.conns, func(o *conn) bool { return o == c })
	}
	r.conns = append(r.conns, c)
	var oldest *conn
	if len(r.conns) > d.perRuntime {
		oldest = r.conns[0]
		d.removeLocked(oldest)
	}
	d.mu.Unlock()
	if oldest != nil {
		metrics.ListenerRefused.WithLabelValues("connections").Inc()
		_ = oldest.Conn.Close()
	}
}

// connKey is the context key under which the connection of a request is stored.
type connKey struct{}

// connOf returns the connection on which a request has arrived.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// markIfForwardingPeer reports whether a connection without TLS comes from one of the networks in ForwardedFrom. If it
// does, markIfForwardingPeer marks the connection as the connection of a peer. Without TLS, only a client in these
// networks may send the certificate of a runtime in the header X-Forwarded-Client-Cert.
func (l *Listener) markIfForwardingPeer(c *conn) (isPeer bool) {
	if !slices.ContainsFunc(l.forwardedFrom, func(p netip.Prefix) bool { return p.Contains(c.remote) }) {
		return false
	}
	l.connLimiter.markAsForwardingPeer(c)
	return true
}

// bind opens the configured addresses and returns their listeners.
func (l *Listener) bind(ctx context.Context) (secured, plain net.Listener, err error) {
	var config net.ListenConfig
	if l.opts.Address != "" {
		inner, err := config.Listen(ctx, "tcp", l.opts.Address)
		if err != nil {
			return nil, nil, fmt.Errorf("opening the listener's address: %w", err)
		}
		secured = tls.NewListener(limitedListener{inner, l.connLimiter}, l.tlsConfigRequestingClientCert())
	}
	if l.opts.ForwardedAddress != "" {
		inner, err := config.Listen(ctx, "tcp", l.opts.ForwardedAddress)
		if err != nil {
			if secured != nil {
				_ = secured.Close()
			}
			return nil, nil, fmt.Errorf("opening the listener's address behind an ingress: %w", err)
		}
		plain = limitedListener{inner, l.connLimiter}
	}
	return secured, plain, nil
}

// tlsConfigRequestingClientCert returns a TLS configuration that requests a client certificate, but does not verify it
// in the handshake. The listener verifies the client certificate at each request instead, for two reasons. Roots,
// expiry and revocation can change while a connection is open. A response can explain a refusal better than a failed
// handshake can. TLS sessions are not resumed.
func (l *Listener) tlsConfigRequestingClientCert() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS12,
		ClientAuth:             tls.RequestClientCert,
		NextProtos:             []string{"http/1.1"},
		SessionTicketsDisabled: true,
		VerifyPeerCertificate:  clientcert.LimitChain,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return l.opts.Certificate() },
	}
}

// server returns the HTTP server for one address.
func (l *Listener) server() *http.Server {
	return &http.Server{
		Handler:           http.HandlerFunc(l.serve),
		ReadHeaderTimeout: l.opts.Limits.HeaderTimeout,
		ReadTimeout:       l.opts.Limits.HeaderTimeout + l.opts.Limits.BodyTimeout,
		WriteTimeout:      l.opts.Limits.HeaderTimeout + l.opts.Limits.BodyTimeout + l.opts.Limits.RouteTimeout,
		IdleTimeout:       l.opts.Limits.IdleTimeout,
		MaxHeaderBytes:    l.opts.Limits.HeaderBytes, // the library adds 4 KiB for other headers
		ErrorLog:          slog.NewLogLogger(logr.ToSlogHandler(l.opts.Log.V(2)), slog.LevelInfo),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if secured, ok := c.(*tls.Conn); ok {
				c = secured.NetConn()
			}
			return context.WithValue(ctx, connKey{}, c)
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if secured, ok := c.(*tls.Conn); ok && state == http.StateClosed &&
				!secured.ConnectionState().HandshakeComplete {
				metrics.ListenerRefused.WithLabelValues("handshake").Inc()
			}
		},
	}
}
