package landscape

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// relay is an address that agents report to. It passes connections on to the listener of one replica of the manager, as a load balancer does,
// without looking inside.
type relay struct {
	listener net.Listener

	mu     sync.Mutex // guards what follows
	target string
	open   map[net.Conn]bool
}

// startRelay starts the relay unless it runs.
func (l *Landscape) startRelay() error {
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

// aim ends all connections, so that those who come again come to the new target.
func (r *relay) aim(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
	for c := range r.open {
		_ = c.Close() // whoever reads from it notices
	}
}

func (r *relay) close() {
	_ = r.listener.Close() // ends serve
	r.aim("")
}

func (r *relay) serve() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		go r.pass(in)
	}
}

// pass copies both ways until one side ends.
func (r *relay) pass(in net.Conn) {
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
		_, _ = io.Copy(out, in) // the other side ends first, or this one does: then both are closed
		_ = out.Close()
	}()
	_, _ = io.Copy(in, out)
	_ = out.Close()
}
