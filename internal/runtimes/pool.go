// Package runtimes holds the connections of the control plane to the clusters it serves.
//
// # Use
//
//	pool.Subscribe("kyma-a", runtimes.Subscriber{Key: "kyma", Interests: …, Notify: enqueue})
//	rt, err := pool.Get(ctx, "kyma-a")       // no request is made; err is an *Error that says what to do
//	result, err := rt.Apply(ctx, set, done)  // a Runtime is an apply.Cluster
//
// # How it works
//
// A runtime is identified by the name of its Kyma. Get finds the metadata of the access Secret in the cache and
// compares its version with that of the connection. If they are equal, Get returns the open connection. If they differ,
// Get makes a new connection and closes the old one with its watches. Connections do not use the global caches of
// client-go, so that closing one releases all of it.
//
// Every request of a connection goes through its circuit breaker. If a runtime does not answer, or rejects the
// credentials, the breaker opens: it sends one probe at a time, requests fail at once with the reason, and subscribers
// are notified when the breaker closes.
//
// Subscribers are notified of changes in a runtime. With Options.Watch, the pool runs one watch on metadata for each
// interest, shared by all subscribers with that interest. With Options.Agents, events are passed to Publish. An event
// is a hint: its receiver reads the runtime.
//
// # What it does not do
//
// It never decides that a cluster was deleted: a missing access Secret is one reason (AccessSecretNotFound), a missing
// answer is another (RuntimeUnreachable). It has no cache of a runtime's objects.
package runtimes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Options configure a Pool.
type Options struct {
	// Cache finds access Secrets by metadata. It needs the index of [IndexByKyma]. Not needed with Self.
	Cache client.Reader
	// Live reads an access Secret when a connection is made. Not needed with Self.
	Live client.Reader
	// Namespace is the namespace of the access Secrets.
	Namespace string
	// Self, if set, is the configuration of every runtime: the cluster that the manager runs on.
	Self *rest.Config
	// Watch makes the pool run watches for subscribers.
	Watch bool
	// Agents declares that agents in the runtimes report changes, see Publish. Without Agents and Watch, subscribers
	// are only notified of changes of the connection.
	Agents bool
	// InterestsChanged, if not nil, is called when the interests of the subscribers of a runtime have changed. It must
	// not block.
	InterestsChanged func(kyma string)
	// PollIntervals are the intervals in which subscribers read a runtime without a reason.
	PollIntervals PollIntervals
	// Timeout is the deadline of one request. Default 15 s.
	Timeout time.Duration
	// Concurrency is the number of requests to one runtime at the same time. Default 8.
	Concurrency int
	// Wrap, if not nil, wraps the transport of all requests of a reconcile. Probes and watches are not wrapped.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Urgent is the set of runtimes that a person waits for. Default an empty set of its own.
	Urgent *queueing.Urgent
	// UserAgent is the User-Agent header of requests. Default lifecycle-manager.
	UserAgent string
	// BatchDelay is how long Missed and Listed events are collected before they are delivered: an agent that starts
	// sends one for each resource at the same time. Default 300 ms; negative delivers them at once.
	BatchDelay time.Duration
}

// Pool is the set of connections. Safe for concurrent use.
type Pool struct {
	base  context.Context // ends all watches; kept because they outlive the call that starts them
	opts  Options
	kinds apply.Kinds // shared by all connections
	dials dialLocks

	mu        sync.Mutex
	entries   map[string]*entry     // guarded by mu; by name of the Kyma
	shared    map[string][]Interest // guarded by mu; see ShareInterests
	pollers   int                   // guarded by mu: subscribers of unwatched runtimes, as counted at countedAt
	countedAt time.Time             // guarded by mu
}

// Runtime is an open connection.
type Runtime struct {
	*apply.Cluster
	// Server is the address of the API server.
	Server string

	credential credential
	transport  *http.Transport
	breaker    *breaker
	watches    *watches // nil without watches
	counted    string   // state under which the metrics count it, "" for none; guarded by Pool.mu
}

// entry is what the pool knows of one runtime: its subscribers, and the connection if there is one. Pool.mu guards all
// of it.
type entry struct {
	subscribers    map[string]Subscriber // by Key
	runtime        *Runtime              // nil without a connection
	published      bool                  // an event was published, which later subscribers have missed
	agentConnected bool                  // true until SetAgentConnected reports otherwise
	getFailed      bool                  // a Get failed since there was a connection: subscribers wait for one
	batch          []Event               // events that are delayed
	outbox         []Event               // events to deliver, in order
	delivering     bool                  // a goroutine delivers the outbox
}

// New returns an empty Pool. The end of ctx ends its watches.
func New(ctx context.Context, opts Options) (*Pool, error) {
	if opts.Self == nil && (opts.Cache == nil || opts.Live == nil || opts.Namespace == "") {
		return nil, fmt.Errorf("making a pool of runtimes: without Self, options need Cache, Live and Namespace")
	}
	if opts.Timeout == 0 {
		opts.Timeout = 15 * time.Second
	}
	if opts.Concurrency == 0 {
		opts.Concurrency = 8
	}
	if opts.Wrap == nil {
		opts.Wrap = func(next http.RoundTripper) http.RoundTripper { return next }
	}
	if opts.UserAgent == "" {
		opts.UserAgent = "lifecycle-manager"
	}
	if opts.BatchDelay == 0 {
		opts.BatchDelay = 300 * time.Millisecond
	}
	if opts.Urgent == nil {
		opts.Urgent = queueing.NewUrgent()
	}
	return &Pool{base: ctx, opts: opts, entries: map[string]*entry{}}, nil
}

// Get returns the connection to the runtime of the named Kyma. It sends no request to the runtime. While the circuit
// breaker is open, it returns the reason.
//
// Errors: [Error] with its reasons, or a failure to read the control plane, which does not concern the runtime.
func (p *Pool) Get(ctx context.Context, kyma string) (*Runtime, error) {
	rt, err := p.connect(ctx, kyma)
	if err != nil {
		p.recordFailedGet(kyma)
	}
	return rt, err
}

// GetIfOpen is Get for callers that can do without a connection: where agents report changes, it returns nil, nil
// instead of making the first connection, for which the access Secret would have to be read. Errors are those of Get.
func (p *Pool) GetIfOpen(ctx context.Context, kyma string) (*Runtime, error) {
	if !p.opts.Agents || p.opts.Watch || p.openConnection(kyma) != nil {
		return p.Get(ctx, kyma)
	}
	_, err := p.credentialOf(ctx, kyma)
	if err != nil {
		p.recordFailedGet(kyma)
	}
	return nil, err
}

// recordFailedGet makes the next connection notify the subscribers.
func (p *Pool) recordFailedGet(kyma string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[kyma]; e != nil {
		e.getFailed = true
	}
}

// connect returns the connection to a runtime, and makes it if needed.
func (p *Pool) connect(ctx context.Context, kyma string) (*Runtime, error) {
	cred, err := p.credentialOf(ctx, kyma)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok && e.Code == "AccessSecretNotFound" {
			p.closeConnection(kyma)
		}
		return nil, err
	}
	if rt := p.openConnection(kyma); rt != nil && rt.credential == cred {
		return rt.ifUsable()
	}
	unlock, err := p.dials.lock(ctx, kyma)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if rt := p.openConnection(kyma); rt != nil && rt.credential == cred {
		return rt.ifUsable() // made by another goroutine meanwhile
	}
	rt, err := p.dial(ctx, kyma, cred)
	if err != nil {
		p.closeConnection(kyma) // its credentials do not exist any more
		return nil, err
	}
	return p.replaceConnection(kyma, rt), nil
}

// ifUsable returns the connection, or the reason why the circuit breaker is open.
func (rt *Runtime) ifUsable() (*Runtime, error) {
	if err := rt.breaker.err(); err != nil {
		return nil, err
	}
	return rt, nil
}

// RegisterKinds adds the kinds that a bundle defines, so that runtimes need not be asked for them.
func (p *Pool) RegisterKinds(b *render.Bundle) { p.kinds.AddBundle(b) }

// LookupResource returns the resource of a kind, if it is the same in all runtimes: of built-in kinds, and of kinds
// that bundles define.
func (p *Pool) LookupResource(ref apply.Ref) (schema.GroupVersionResource, bool) {
	return p.kinds.Resource(ref)
}

// Close closes the connection to a runtime and removes its subscribers, which are notified if there was a connection.
func (p *Pool) Close(kyma string) {
	p.mu.Lock()
	e := p.entries[kyma]
	delete(p.entries, kyma)
	old := e.takeConnectionLocked()
	subscribers := e.allSubscribers()
	p.mu.Unlock()
	if old == nil {
		return
	}
	old.close()
	for _, s := range subscribers {
		s.Notify(Event{ConnectionChanged: true})
	}
}

// openConnection returns the open connection of a runtime, nil if there is none.
func (p *Pool) openConnection(kyma string) *Runtime {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[kyma]; e != nil {
		return e.runtime
	}
	return nil
}

// dial makes a connection. It sends no request.
func (p *Pool) dial(ctx context.Context, kyma string, cred credential) (*Runtime, error) {
	cfg, err := p.readKubeconfig(ctx, kyma, cred)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = p.opts.UserAgent
	transport, err := p.newTransport(cfg)
	if err != nil {
		return nil, &Error{Code: "KubeconfigInvalid", Runtime: kyma,
			Message: "certificates do not parse: " + oneLine(err)}
	}
	authenticated, err := rest.HTTPWrappersForConfig(cfg, transport)
	if err != nil {
		return nil, &Error{Code: "KubeconfigInvalid", Runtime: kyma,
			Message: "credentials cannot be used: " + oneLine(err)}
	}
	b := &breaker{runtime: kyma, next: authenticated, base: cfg.Host}
	b.changed = func() { p.breakerChanged(kyma, b) }
	plain := &rest.Config{Host: cfg.Host, APIPath: cfg.APIPath, QPS: -1}
	cluster, err := apply.New(plain, &http.Client{Transport: p.opts.Wrap(b)}, apply.ClusterOptions{
		MaxConcurrentRequests: p.opts.Concurrency, RequestTimeout: p.opts.Timeout, Kinds: &p.kinds,
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to runtime %s: %w", kyma, err)
	}
	rt := &Runtime{Cluster: cluster, Server: cfg.Host, credential: cred, transport: transport, breaker: b}
	if p.opts.Watch {
		rt.watches = newWatches(p.base, plain, &http.Client{Transport: b}, p.opts.Timeout)
	}
	return rt, nil
}

// replaceConnection puts a connection in place of the old one, which it closes, and notifies the subscribers.
func (p *Pool) replaceConnection(kyma string, rt *Runtime) *Runtime {
	p.mu.Lock()
	e := p.entryLocked(kyma)
	if e.runtime != nil && e.runtime.credential == rt.credential {
		made := e.runtime // by another goroutine, with the same credential
		p.mu.Unlock()
		rt.close()
		return made
	}
	old, notify := e.takeConnectionLocked(), e.getFailed
	e.runtime, e.getFailed = rt, false
	for _, s := range e.subscribers {
		rt.setSubscriber(s)
	}
	rt.setStateLocked("connected")
	p.mu.Unlock()
	if old != nil {
		old.close()
	}
	if old != nil || notify { // otherwise no subscriber was refused a connection
		p.notifyAll(kyma, Event{ConnectionChanged: true})
	}
	return rt
}

// closeConnection closes the connection of a runtime, if there is one, and notifies its subscribers.
func (p *Pool) closeConnection(kyma string) {
	p.mu.Lock()
	old := p.entries[kyma].takeConnectionLocked()
	p.mu.Unlock()
	if old != nil {
		old.close()
		p.notifyAll(kyma, Event{ConnectionChanged: true})
	}
}

// takeConnectionLocked removes the connection from an entry, which may be nil, and returns it. The caller holds
// Pool.mu, and closes it.
func (e *entry) takeConnectionLocked() *Runtime {
	if e == nil || e.runtime == nil {
		return nil
	}
	old := e.runtime
	e.runtime = nil
	old.setStateLocked("")
	return old
}

// CloseIdleConnections closes the TCP connections that carry no request or watch; the next request opens another one.
// It is for a runtime that was found to be in its desired state: in a fleet most are, and thousands of connections that
// wait for their idle timeout take a gigabyte.
func (rt *Runtime) CloseIdleConnections() { rt.transport.CloseIdleConnections() }

func (rt *Runtime) close() {
	rt.breaker.stop()
	if rt.watches != nil {
		rt.watches.stop()
	}
	rt.transport.CloseIdleConnections()
	// A connection that carried a watch becomes idle shortly after. One that is busy for longer is closed by its idle
	// timeout.
	time.AfterFunc(time.Second, rt.transport.CloseIdleConnections)
}

// setStateLocked sets the state under which the metrics count a connection; "" is none. The caller holds Pool.mu.
func (rt *Runtime) setStateLocked(state string) {
	if rt.counted != "" {
		metrics.Runtimes.WithLabelValues(rt.counted).Dec()
	}
	if state != "" {
		metrics.Runtimes.WithLabelValues(state).Inc()
	}
	rt.counted = state
}

// breakerChanged notifies the subscribers of a runtime that its circuit breaker opened or closed, or is open for
// another reason.
func (p *Pool) breakerChanged(kyma string, b *breaker) {
	state := "connected"
	if b.err() != nil {
		state = "broken"
	}
	p.mu.Lock()
	e := p.entries[kyma]
	if e == nil || e.runtime == nil || e.runtime.breaker != b {
		p.mu.Unlock()
		return // the connection was replaced or closed
	}
	e.runtime.setStateLocked(state)
	p.mu.Unlock()
	p.notifyAll(kyma, Event{ConnectionChanged: true})
}

// entryLocked returns the entry of a runtime, and makes it if needed. The caller holds mu.
func (p *Pool) entryLocked(kyma string) *entry {
	e := p.entries[kyma]
	if e == nil {
		e = &entry{subscribers: map[string]Subscriber{}, agentConnected: true}
		p.entries[kyma] = e
	}
	return e
}
