package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// network holds the listeners and the server of a fleet.
type network struct {
	server      *http.Server
	shared      net.Listener // nil with Options.OwnPorts
	port        string
	authority   string // CA certificate, in the form of a kubeconfig
	ca          *x509.Certificate
	caKey, key  *ecdsa.PrivateKey
	connections atomic.Int64
	watches     atomic.Int64
	serving     sync.WaitGroup
}

// startServing starts the listeners of the fleet.
func (f *Fleet) startServing() error {
	n := &f.network
	if err := n.makeAuthority(); err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	n.server = &http.Server{
		Handler:           http.HandlerFunc(f.serve),
		ReadHeaderTimeout: time.Minute,
		IdleTimeout:       10 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // it would log closed connections and intended faults
		BaseContext:       func(net.Listener) context.Context { return f.life },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if t, ok := c.(*tls.Conn); ok {
				c = t.NetConn()
			}
			return context.WithValue(ctx, connectionKey{}, c)
		},
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000, MaxReadFrameSize: 1 << 20,
			MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: 1 << 20},
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
			CurvePreferences: []tls.CurveID{tls.X25519},
			GetCertificate:   f.issueServingCertificate},
	}
	if f.options.OwnPorts || !sharedNetwork {
		return f.startServingOwnPorts()
	}
	l, err := listenShared(f.life)
	if err != nil {
		return fmt.Errorf("opening a port for the fleet: %w", err)
	}
	n.shared = l
	if _, n.port, err = net.SplitHostPort(l.Addr().String()); err != nil {
		return fmt.Errorf("opening a port for the fleet: %w", err)
	}
	n.startServing(&clusterListener{Listener: l, fleet: f})
	return nil
}

// startServing accepts connections until the listener is closed.
func (n *network) startServing(l net.Listener) {
	n.serving.Go(func() { _ = n.server.ServeTLS(l, "", "") }) // returns when the listener is closed
}

// ownPort is the listener of one cluster.
type ownPort struct {
	address string
	fleet   *Fleet
	cluster *Cluster
	mu      sync.Mutex
	open    net.Listener // guarded by mu
}

// startServingOwnPorts opens a port for each cluster.
func (f *Fleet) startServingOwnPorts() error {
	for _, c := range f.clusters {
		c.port = &ownPort{address: "127.0.0.1:0", fleet: f, cluster: c}
		if err := c.port.ensureServing(); err != nil {
			return fmt.Errorf("opening a port for %s (each cluster needs one and a file descriptor): %w", c.Name(), err)
		}
	}
	return nil
}

// ensureServing opens the port, unless it is open. If the port is closed and opened again, its number stays the same.
func (p *ownPort) ensureServing() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open != nil {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(p.fleet.life, "tcp4", p.address)
	if err != nil {
		return err
	}
	p.open, p.address = l, l.Addr().String()
	p.fleet.network.startServing(&clusterListener{Listener: l, fleet: p.fleet, cluster: p.cluster})
	return nil
}

// close closes the port, so that the operating system refuses connections.
func (p *ownPort) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		return nil
	}
	err := p.open.Close()
	p.open = nil
	return err
}

// close closes all connections. close returns when the server has stopped.
func (n *network) close() error {
	if n.server == nil {
		return nil
	}
	err := n.server.Close()
	n.serving.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// makeAuthority makes the certificate authority and the one key that all servers share.
func (n *network) makeAuthority() (err error) {
	if n.caKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	if n.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fleet-ca"}, IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		NotBefore:             time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &n.caKey.PublicKey, n.caKey)
	if err != nil {
		return err
	}
	n.authority = base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	n.ca, err = x509.ParseCertificate(der)
	return err
}

// issueServingCertificate makes the certificate of the cluster to which a client has connected. Making the certificate
// for each handshake costs less than keeping it in memory.
func (f *Fleet) issueServingCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	local, ok := hello.Conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return nil, errListen
	}
	n := &f.network
	template := &x509.Certificate{SerialNumber: big.NewInt(int64(clusterIndexOf(local.IP)) + 1<<32),
		Subject: pkix.Name{CommonName: "kube-apiserver"}, IPAddresses: []net.IP{local.IP},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: n.ca.NotBefore, NotAfter: n.ca.NotAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, n.ca, &n.key.PublicKey, n.caKey)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: n.key}, nil
}

// clusterListener is a listener that finds the cluster for each connection.
type clusterListener struct {
	net.Listener
	fleet   *Fleet
	cluster *Cluster // nil if the address of the connection identifies the cluster
}

// Accept implements net.Listener. After a failure, Accept tries again.
func (d *clusterListener) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || d.fleet.life.Err() != nil {
				return nil, err
			}
			select { // the most likely cause: no file descriptor is left
			case <-time.After(10 * time.Millisecond):
			case <-d.fleet.life.Done():
			}
			continue
		}
		c := d.cluster
		if c == nil {
			c = d.fleet.clusterAt(conn.LocalAddr())
		}
		if c == nil {
			_ = conn.Close() // no cluster has this address
			continue
		}
		own := &connection{Conn: conn, cluster: c, closed: make(chan struct{})}
		if t := c.fault.Load(); t != nil && t.swallows(c.fleet.now()) {
			c.count("", "connection swallowed")
		}
		if t := c.fault.Load(); t != nil && t.refuses(c.fleet.now()) {
			c.count("", "connection refused")
			own.reset()
			continue
		}
		c.mu.Lock()
		c.connected = append(c.connected, own)
		c.mu.Unlock()
		d.fleet.network.connections.Add(1)
		return own, nil
	}
}

// clusterAt returns the cluster with an address. clusterAt returns nil if no cluster has this address.
func (f *Fleet) clusterAt(address net.Addr) *Cluster {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return nil
	}
	if i := clusterIndexOf(tcp.IP); i >= 0 && i < len(f.clusters) {
		return f.clusters[i]
	}
	return nil
}

type connectionKey struct{}

// serve passes a request to the cluster of its connection.
func (f *Fleet) serve(w http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(connectionKey{}).(*connection)
	if !ok {
		http.Error(w, "no cluster", http.StatusMisdirectedRequest)
		return
	}
	c.cluster.ServeHTTP(w, r)
}

// connection is a connection to a cluster. The connection counts bytes, and blocks reads and writes while the cluster
// is a black hole.
type connection struct {
	net.Conn
	cluster *Cluster
	once    sync.Once
	closed  chan struct{}
}

// Read implements net.Conn.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.cluster.counts.in.Add(int64(n))
	c.cluster.fleet.total.in.Add(int64(n))
	c.waitWhileBlackHole()
	return n, err
}

// Write implements net.Conn.
func (c *connection) Write(p []byte) (int, error) {
	c.waitWhileBlackHole()
	n, err := c.Conn.Write(p)
	c.cluster.counts.out.Add(int64(n))
	c.cluster.fleet.total.out.Add(int64(n))
	return n, err
}

// waitWhileBlackHole blocks while the cluster is a black hole.
func (c *connection) waitWhileBlackHole() {
	for {
		t := c.cluster.fault.Load()
		if t == nil || !t.swallows(c.cluster.fleet.now()) {
			return
		}
		select {
		case <-t.over:
		case <-c.closed:
			return
		case <-c.cluster.fleet.life.Done():
			return
		case <-t.nextChange(c.cluster.fleet.now()):
		}
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.cluster.mu.Lock()
		i := slices.Index(c.cluster.connected, c)
		if i >= 0 {
			c.cluster.connected = slices.Delete(c.cluster.connected, i, i+1)
			if len(c.cluster.connected) == 0 {
				c.cluster.connected = nil
			}
		}
		c.cluster.mu.Unlock()
		if i >= 0 {
			c.cluster.fleet.network.connections.Add(-1)
		}
	})
	return c.Conn.Close()
}

// reset closes a connection with a TCP reset, so that the other side gets an error at once.
func (c *connection) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the connection is closed in any case
	}
	_ = c.Close() // the client may have closed it
}

// Connections returns the number of open connections to the cluster.
func (c *Cluster) Connections() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.connected)
}

// CloseConnections closes all connections to the cluster.
func (c *Cluster) CloseConnections() {
	c.mu.Lock()
	all := slices.Clone(c.connected)
	c.mu.Unlock()
	for _, one := range all {
		one.reset()
	}
}
