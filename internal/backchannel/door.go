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

	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// door counts connections. Those that have not yet shown who they are cannot keep others out: when there are too many connections, the
// oldest of these strangers goes. One runtime has a few: when it opens more, its oldest goes.
type door struct {
	limit      int // connections
	perRuntime int

	mu        sync.Mutex
	open      int        // guarded by mu
	strangers *list.List // of *conn, oldest first; guarded by mu
}

// conn is one connection.
type conn struct {
	net.Conn
	door   *door
	remote netip.Addr
	// certificate is that of the connection, once it was verified.
	certificate atomic.Pointer[verified]

	stranger *list.Element          // guarded by door.mu; nil once it is known
	owner    atomic.Pointer[record] // written under door.mu; nil if it is not of one runtime
	trusted  atomic.Bool            // speaks for many runtimes
	closed   bool                   // guarded by door.mu
}

// mostRead is how much is read from a connection at once.
const mostRead = 1 << 10

// Read implements net.Conn. It reads little at a time, because TLS keeps a buffer for what was read beyond a record, for as long as the connection is open.
func (c *conn) Read(into []byte) (int, error) { return c.Conn.Read(into[:min(len(into), mostRead)]) }

// doorway is a net.Listener whose connections the door counts.
type doorway struct {
	net.Listener
	door *door
}

// Accept waits for the next connection that may stay.
func (d doorway) Accept() (net.Conn, error) {
	for {
		inner, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner, door: d.door}
		if at, err := netip.ParseAddrPort(inner.RemoteAddr().String()); err == nil {
			c.remote = at.Addr().Unmap()
		}
		evicted, ok := d.door.enter(c)
		if evicted != nil {
			_ = evicted.Close()
		}
		if ok {
			return c, nil
		}
		_ = inner.Close()
	}
}

// enter counts a new connection. If there are too many, it names the one to close, or says that the new one has no place.
func (d *door) enter(c *conn) (evicted *conn, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open >= d.limit {
		metrics.WatcherRefused.WithLabelValues("connections").Inc()
		oldest := d.strangers.Front()
		if oldest == nil {
			return nil, false
		}
		evicted = oldest.Value.(*conn)
		d.leaveLocked(evicted)
	}
	d.open++
	c.stranger = d.strangers.PushBack(c)
	return evicted, true
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.door.mu.Lock()
	c.door.leaveLocked(c)
	c.door.mu.Unlock()
	return c.Conn.Close()
}

func (d *door) leaveLocked(c *conn) {
	if c.closed {
		return
	}
	c.closed = true
	d.open--
	if c.stranger != nil {
		d.strangers.Remove(c.stranger)
		c.stranger = nil
	}
	if owner := c.owner.Swap(nil); owner != nil {
		owner.conns = slices.DeleteFunc(owner.conns, func(o *conn) bool { return o == c })
	}
}

// trust takes note that a connection is of somebody who speaks for many runtimes.
func (d *door) trust(c *conn) {
	if c.trusted.Swap(true) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.stranger != nil {
		d.strangers.Remove(c.stranger)
		c.stranger = nil
	}
}

// admit takes note that a connection is of a runtime, and closes the oldest one if that has too many.
func (d *door) admit(c *conn, r *record) {
	if c.owner.Load() == r {
		return
	}
	d.mu.Lock()
	if c.closed {
		d.mu.Unlock()
		return
	}
	if c.stranger != nil {
		d.strangers.Remove(c.stranger)
		c.stranger = nil
	}
	if before := c.owner.Swap(r); before != nil { // the runtime was forgotten and came back
		before.conns = slices.DeleteFunc(before.conns, func(o *conn) bool { return o == c })
	}
	r.conns = append(r.conns, c)
	var oldest *conn
	if len(r.conns) > d.perRuntime {
		oldest = r.conns[0]
		d.leaveLocked(oldest)
	}
	d.mu.Unlock()
	if oldest != nil {
		metrics.WatcherRefused.WithLabelValues("connections").Inc()
		_ = oldest.Conn.Close()
	}
}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// connOf returns the connection of a request.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// believedAddress tells whether a connection without TLS comes from where headers are believed.
func (l *Listener) believedAddress(c *conn) bool {
	if !slices.ContainsFunc(l.forwardedFrom, func(p netip.Prefix) bool { return p.Contains(c.remote) }) {
		return false
	}
	l.door.trust(c)
	return true
}

// bind opens the addresses. What it returns is to be served.
func (l *Listener) bind(ctx context.Context) (secured, plain net.Listener, err error) {
	var config net.ListenConfig
	if l.opts.Address != "" {
		inner, err := config.Listen(ctx, "tcp", l.opts.Address)
		if err != nil {
			return nil, nil, fmt.Errorf("opening the listener's address: %w", err)
		}
		secured = tls.NewListener(doorway{inner, l.door}, l.tlsConfig())
	}
	if l.opts.ForwardedAddress != "" {
		inner, err := config.Listen(ctx, "tcp", l.opts.ForwardedAddress)
		if err != nil {
			if secured != nil {
				_ = secured.Close()
			}
			return nil, nil, fmt.Errorf("opening the listener's address behind an ingress: %w", err)
		}
		plain = doorway{inner, l.door}
	}
	return secured, plain, nil
}

// tlsConfig asks for a client certificate without looking whose it is: that is done for each request, because roots, expiry and
// revocation change while a connection is open, and because an answer says more than a broken handshake. Nothing is resumed.
func (l *Listener) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS12,
		ClientAuth:             tls.RequestClientCert,
		NextProtos:             []string{"http/1.1"},
		SessionTicketsDisabled: true,
		VerifyPeerCertificate:  boundChain,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return l.opts.Certificate() },
	}
}

// server makes the server of one address.
func (l *Listener) server() *http.Server {
	return &http.Server{
		Handler:           http.HandlerFunc(l.serve),
		ReadHeaderTimeout: l.opts.Limits.HeaderTimeout,
		ReadTimeout:       l.opts.Limits.HeaderTimeout + l.opts.Limits.BodyTimeout,
		WriteTimeout:      l.opts.Limits.HeaderTimeout + l.opts.Limits.BodyTimeout + l.opts.Limits.RouteTimeout,
		IdleTimeout:       l.opts.Limits.IdleTimeout,
		MaxHeaderBytes:    l.opts.Limits.HeaderBytes, // and 4 KiB, which the library adds, for all but the certificate
		ErrorLog:          slog.NewLogLogger(logr.ToSlogHandler(l.opts.Log.V(2)), slog.LevelInfo),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if secured, ok := c.(*tls.Conn); ok {
				c = secured.NetConn()
			}
			return context.WithValue(ctx, connKey{}, c)
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if secured, ok := c.(*tls.Conn); ok && state == http.StateClosed && !secured.ConnectionState().HandshakeComplete {
				metrics.WatcherRefused.WithLabelValues("handshake").Inc()
			}
		},
	}
}
