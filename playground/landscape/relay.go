package landscape

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// relay is a TCP proxy. Agents connect to its address. relay forwards connections to the listener of one replica of the
// manager, like a TCP load balancer.
type relay struct {
	listener net.Listener

	mu     sync.Mutex // guards what follows
	target string
	open   map[net.Conn]bool

	up, down atomic.Int64 // bytes to and from the listeners
}

// RelayedAgentBytes returns the number of bytes that were sent so far from agents to the listener of the manager
// (toManager) and from the listener to agents (toAgents). The numbers include the overhead of TLS, but not the headers
// of TCP. The landscape needs agents and must have no ingress gateway.
func (l *Landscape) RelayedAgentBytes() (toManager, toAgents int64) {
	return l.relay.up.Load(), l.relay.down.Load()
}

// counter counts written bytes.
type counter struct {
	net.Conn

	n *atomic.Int64
}

// Write implements io.Writer.
func (c counter) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// ensureAgentRelay starts the relay unless it is running.
func (l *Landscape) ensureAgentRelay() error {
	if l.relay != nil {
		return nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("starting the relay in front of the listeners: %w", err)
	}
	l.relay = &relay{listener: listener, open: map[net.Conn]bool{}}
	l.ListenerAddress = listener.Addr().String()
	go l.relay.serve()
	return nil
}

// redirect sets a new target. redirect closes all connections, so that clients reconnect to the new target.
func (r *relay) redirect(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
	for c := range r.open {
		_ = c.Close() // the reader of the connection receives an error
	}
}

func (r *relay) close() {
	_ = r.listener.Close() // ends serve
	r.redirect("")
}

func (r *relay) serve() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		go r.copyBothWays(in)
	}
}

// copyBothWays copies data in both directions until one side closes the connection.
func (r *relay) copyBothWays(in net.Conn) {
	r.mu.Lock()
	target := r.target
	r.open[in] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.open, in)
		r.mu.Unlock()
		_ = in.Close()
	}()
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(counter{out, &r.up}, in) // whichever side ends first, both connections are closed
		_ = out.Close()
	}()
	_, _ = io.Copy(counter{in, &r.down}, out)
	_ = out.Close()
}
