package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Cut is the way in which connections between clients and a cluster are interrupted.
type Cut int

const (
	// Refuse closes open connections and refuses new ones, like a server that is down.
	Refuse Cut = iota
	// BlackHole lets no data through, like a firewall that drops packets. Open connections stay open without data. New
	// connections are accepted, but receive no response. After Mend, the interrupted transfers continue.
	BlackHole
)

// portWaitTimeout is the timeout of the wait for a port that another program uses.
const portWaitTimeout = time.Minute

// proxy is a TCP proxy between clients and an API server. Its port never changes.
type proxy struct {
	port int
	hold int // socket that is bound to the port and never listens, so that no other program gets the port; -1 if none

	mu       sync.Mutex // guards what follows
	target   string     // host:port of the API server, "" while it is stopped
	listener net.Listener
	conns    map[net.Conn]struct{}
	delay    time.Duration
	gate     chan struct{} // closed: data flows; open: black hole
	wg       sync.WaitGroup
}

// newProxy reserves the port on 127.0.0.1. 0 means any port. Connections are refused until serve is called.
func newProxy(port int) (*proxy, error) {
	p := &proxy{port: port, hold: -1, conns: map[net.Conn]struct{}{}, gate: make(chan struct{})}
	close(p.gate)
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf(
				"opening the cluster's address 127.0.0.1:%d: another program uses this port: end it, or remove the "+
					"cluster's folder to get a new address", port)
		}
		return nil, fmt.Errorf("opening the cluster's address: %w", err)
	}
	p.port = listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return nil, fmt.Errorf("opening the cluster's address: %w", err)
	}
	p.bindPortWithoutListening()
	return p, nil
}

// bindPortWithoutListening binds a socket that does not listen to the port of the proxy. The listener of the proxy can
// share the port with this socket. While the proxy has no listener, connections to the port are refused. If
// bindPortWithoutListening fails, the proxy still works, but another program could take the port of a stopped cluster.
func (p *proxy) bindPortWithoutListening() {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return
	}
	syscall.CloseOnExec(fd)
	if syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) != nil ||
		syscall.Bind(fd, &syscall.SockaddrInet4{Port: p.port, Addr: [4]byte{127, 0, 0, 1}}) != nil {
		_ = syscall.Close(fd)
		return
	}
	p.hold = fd
}

// serverURL returns the URL of the proxy, which clients use.
func (p *proxy) serverURL() string { return fmt.Sprintf("https://127.0.0.1:%d", p.port) }

// forwardTo starts to forward connections to the target.
func (p *proxy) forwardTo(target string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	p.openGateLocked()
	return p.ensureListeningLocked()
}

// stopForwarding closes all connections and refuses new ones.
func (p *proxy) stopForwarding() {
	p.mu.Lock()
	p.target = ""
	p.closeListenerAndConnsLocked()
	p.openGateLocked()
	p.mu.Unlock()
	p.wg.Wait()
}

// release closes the proxy permanently.
func (p *proxy) release() {
	p.stopForwarding()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold >= 0 {
		_ = syscall.Close(p.hold)
		p.hold = -1
	}
}

func (p *proxy) cut(how Cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if how == Refuse {
		p.openGateLocked()
		p.closeListenerAndConnsLocked()
		return
	}
	select {
	case <-p.gate:
		p.gate = make(chan struct{})
	default:
	}
	if p.target != "" && p.listener == nil { // the listener was closed by Refuse
		_ = p.ensureListeningLocked()
	}
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = 0
	p.openGateLocked()
	if p.target != "" {
		// fails only if the port was taken in spite of the reservation; the next Mend tries again
		_ = p.ensureListeningLocked()
	}
}

func (p *proxy) slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = max(d, 0)
}

// openGateLocked lets data flow again after BlackHole.
func (p *proxy) openGateLocked() {
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

// closeListenerAndConnsLocked stops listening and resets all connections.
func (p *proxy) closeListenerAndConnsLocked() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	for conn := range p.conns {
		resetConnection(conn)
	}
	clear(p.conns)
}

// ensureListeningLocked opens the listener unless it is open.
func (p *proxy) ensureListeningLocked() error {
	if p.listener != nil {
		return nil
	}
	// Although bindPortWithoutListening has reserved the port, an outgoing connection of another program may use the
	// port as its local port. Most such connections are short, so Listen is tried again for some time.
	var listener net.Listener
	for end := time.Now().Add(portWaitTimeout); ; {
		var err error
		if listener, err = net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", p.port)); err == nil {
			break
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return fmt.Errorf("opening the cluster's address: %w", err)
		}
		<-time.After(pollInterval)
	}
	p.listener = listener
	p.wg.Go(func() { p.accept(listener) })
	return nil
}

func (p *proxy) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if p.trackOrResetConnection(conn, func() bool { return p.listener == listener }) {
			p.wg.Go(func() { p.connect(conn) })
		}
	}
}

// trackOrResetConnection records a connection, so that closeListenerAndConnsLocked can reset it. The parameter valid is
// a function that reports whether the connection may still be used; for example, its listener may have been closed.
// trackOrResetConnection calls this function while the mutex is locked. If the function returns false,
// trackOrResetConnection resets the connection and returns false.
func (p *proxy) trackOrResetConnection(conn net.Conn, valid func() bool) (isTracked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !valid() {
		resetConnection(conn)
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

func (p *proxy) closeConnection(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	_ = conn.Close()
}

// resetConnection closes a connection so that the peer receives an error.
func resetConnection(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// connect connects a client with the target.
func (p *proxy) connect(client net.Conn) {
	defer p.closeConnection(client)
	p.waitForFlow() // with BlackHole, the client is not even connected to the server
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp4", target, time.Minute)
	if err != nil {
		return
	}
	if !p.trackOrResetConnection(server, func() bool { _, open := p.conns[client]; return open }) {
		return
	}
	defer p.closeConnection(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.copyThenCloseBoth(server, client)
	}()
	p.copyThenCloseBoth(client, server)
	<-done
}

// copyThenCloseBoth copies data in chunks from one connection to the other until one of them is closed. Then
// copyThenCloseBoth closes both connections.
func (p *proxy) copyThenCloseBoth(to, from net.Conn) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if delay := p.waitForFlow(); delay > 0 {
				<-time.After(delay)
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			p.waitForFlow()
			return
		}
	}
}

// waitForFlow waits until the proxy forwards data again, which it does not do during the fault BlackHole. After the
// wait, waitForFlow returns the time by which the proxy has to delay the data.
func (p *proxy) waitForFlow() (delay time.Duration) {
	p.mu.Lock()
	gate := p.gate
	delay = p.delay
	p.mu.Unlock()
	<-gate
	return delay
}

// bridge connects the API servers with pods and nodes. For an API server, a pod is at its address 10.x.y.z, but no
// process listens there. The bridge is an HTTP proxy on a Unix socket. bridge connects the API server with the process
// of the pod at 127.x.y.z.
type bridge struct {
	config string // file that makes an API server use the bridge
	server *http.Server
}

// startAPIServerEgressProxy starts a bridge. The socket of the bridge, and the file that makes an API server use the
// bridge, are in the folder dir.
func startAPIServerEgressProxy(ctx context.Context, dir string) (*bridge, error) {
	socket := filepath.Join(dir, "pods.sock")
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("opening the bridge to pods: %w", err)
	}
	b := &bridge{config: filepath.Join(dir, "egress.yaml"), server: &http.Server{Handler: http.HandlerFunc(
		serveConnect),
		ReadHeaderTimeout: time.Minute}}
	go func() { _ = b.server.Serve(listener) }()
	text := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %q}}}
`, socket)
	if err := os.WriteFile(b.config, []byte(text), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the bridge to pods: %w", err), b.server.Close())
	}
	return b, nil
}

func (b *bridge) close() { _ = b.server.Close() }

// serveConnect serves one CONNECT request.
func serveConnect(w http.ResponseWriter, r *http.Request) {
	host, port, err := net.SplitHostPort(r.Host)
	if r.Method != http.MethodConnect || err != nil {
		http.Error(w, "only CONNECT host:port", http.StatusMethodNotAllowed)
		return
	}
	if isPodIP(host) {
		host = loopbackAddress(host)
	}
	target, err := new(net.Dialer).DialContext(r.Context(), "tcp4", net.JoinHostPort(host, port))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer target.Close() //nolint:errcheck // both sides are done with it
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		_ = client.Close()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(target, client)
		_ = target.Close()
	}()
	_, _ = io.Copy(client, target)
	_ = client.Close()
	<-done
}
