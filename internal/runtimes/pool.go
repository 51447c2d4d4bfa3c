// Package runtimes holds the connections from the control plane to the runtimes, which are the clusters that the
// manager serves.
//
// # Use
//
//	pool.Subscribe("kyma-a", runtimes.Subscriber{Key: "kyma", Interests: …, Notify: enqueue})
//	rt, err := pool.Get(ctx, "kyma-a")       // sends no request; err is an *Error with the problem and its solution
//	result, err := rt.Apply(ctx, set, done)  // a Runtime is an apply.Cluster
//
// # How it works
//
// The name of the Kyma identifies a runtime. Get reads the metadata of the access Secret from the cache and compares
// the resourceVersion of the Secret with the resourceVersion from which the open connection was made. If the Secret is
// unchanged, Get returns the open connection. If the Secret has changed, Get makes a new connection, and closes the old
// connection with its watches. Connections do not use the global caches of client-go, but have transports of their own.
// Therefore closing a connection frees all its memory.
//
// Every request of a connection passes a circuit breaker. The breaker opens when the runtime does not answer or rejects
// the credentials. While the breaker is open, it sends one probe at a time, and all other requests fail at once with
// the reason. When the breaker opens or closes, the pool notifies the subscribers of the runtime. If many runtimes stop
// answering at the same time, the pool postpones requests to runtimes that have not answered for a while, so that the
// reconciles of other runtimes go on: see bulkhead.go.
//
// The pool also notifies subscribers of changes in a runtime. If Options.Watch is set, the pool runs one metadata watch
// for each interest; all subscribers with this interest share the watch. If Options.Agents is set, the user of the pool
// has to pass the events of agents to PublishToInterested. An event is only a hint: after an event, the receiver reads
// the runtime.
//
// # What it does not do
//
// The pool never decides that a cluster was deleted. If the access Secret is missing, the pool returns an error with
// reason AccessSecretNotFound, and ConfirmAccessSecretRemoved decides whether it is missing for good. If the runtime
// does not answer, the pool returns an error with reason RuntimeUnreachable. The pool does not decide which Kyma owns a
// runtime: see owner.go. The pool does not cache the objects of a runtime.
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
	"github.com/kyma-fleet/lifecycle-manager/internal/access"
	"github.com/kyma-fleet/lifecycle-manager/internal/answer"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Options are the options of a Pool.
type Options struct {
	// Cache reads the metadata of access Secrets. Cache needs the index of [IndexByKyma]. A pool with Self reads no
	// access Secrets and needs no Cache.
	Cache client.Reader
	// Live reads an access Secret from the API server when a connection is made. If the field Self is set, there are no
	// access Secrets, and Live may be nil.
	Live client.Reader
	// Namespace is the namespace of the access Secrets.
	Namespace string
	// Self, if set, is the client configuration of the cluster on which the manager runs. If Self is set, the runtime
	// of every Kyma is the cluster on which the manager runs.
	Self *rest.Config
	// Watch enables the watches that the pool runs for its subscribers.
	Watch bool
	// Agents is true if agents in the runtimes report changes to the control plane, and the caller passes the changes
	// to PublishToInterested. If neither Agents nor Watch is set, subscribers are notified only of changes of the
	// connection.
	Agents bool
	// InterestsChanged, if not nil, is called when the interests of the subscribers of a runtime have changed.
	// InterestsChanged must not block.
	InterestsChanged func(kyma string)
	// VerifyOwner asks the verifier to verify the owner of the runtime of a Kyma, see GetBeforeOwnerVerified.
	// VerifyOwner must not block. If VerifyOwner is nil or Self is set, every connection counts as verified.
	VerifyOwner func(kyma string)
	// PollIntervals are the intervals after which subscribers read a runtime even if no event was received.
	PollIntervals PollIntervals
	// Timeout is the deadline of one request. By default, Timeout is 15 s.
	Timeout time.Duration
	// Concurrency is the maximum number of concurrent requests to one runtime. By default, Concurrency is 8.
	Concurrency int
	// MaxStalled is the maximum number of requests that may wait for runtimes that have not answered for a while, see
	// bulkhead.go. It should be a fraction of the number of workers that send requests. 0 means that there is no limit.
	MaxStalled int
	// Memory is the memory in bytes that all answers of one runtime may need at the same time, see answer.Options. By
	// default, Memory is 64 MiB.
	Memory int64
	// AnswerRate is the rate in bytes per second at which large answers of one runtime are read, see answer.Options. By
	// default, AnswerRate is an eighth of Memory.
	AnswerRate int64
	// Wrap, if not nil, is a function that wraps the transport with which reconciles send their requests. Wrap is not
	// applied to the transports of probes and watches.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Urgent is the set of runtimes whose reconciles have priority, because a person waits for the result. If Urgent is
	// nil, the Pool creates an empty set.
	Urgent *queueing.Urgent
	// ForbiddenAdvice, if set, replaces the advice about the access Secret in errors about a missing right.
	ForbiddenAdvice string
	// UserAgent is the value of the User-Agent header in requests. By default, UserAgent is lifecycle-manager.
	UserAgent string
	// BatchDelay is the time for which Missed and Listed events are collected before they are delivered. BatchDelay is
	// needed because a starting agent sends one Missed or Listed event for each resource at the same time. By default,
	// BatchDelay is 300 ms. If BatchDelay is negative, events are delivered at once.
	BatchDelay time.Duration
}

// Pool is the set of connections to runtimes. A Pool is safe for concurrent use.
type Pool struct {
	base  context.Context // its end ends all watches; stored because watches outlive the calls that start them
	opts  Options
	kinds apply.Kinds // shared by all connections
	dials dialLocks

	bulkhead *bulkhead // nil without a limit of stalled requests

	mu        sync.Mutex
	entries   map[string]*entry     // guarded by mu; by name of the Kyma
	missing   map[string]absence    // guarded by mu; by name of the Kyma: see ConfirmAccessSecretRemoved
	shared    map[string][]Interest // guarded by mu; see InternInterests
	selectors selectors             // guarded by mu: the parsed label selectors of all interests
	pollers   int                   // guarded by mu: number of subscribers of unwatched runtimes at the time countedAt
	countedAt time.Time             // guarded by mu
}

// Runtime is an open connection.
type Runtime struct {
	*apply.Cluster
	// Server is the address of the API server.
	Server string

	credential credential
	lifetime   access.Lifetime                  // of the credential
	account    struct{ namespace, name string } // the ServiceAccount of the token; empty if there is none
	isFirst    bool                             // no other connection was made before; set by replaceOldConnection
	transport  *http.Transport
	answers    *answer.Transport
	breaker    *breaker
	version    kubernetesVersion
	reviews    *reviews   // nil without agents
	watches    *watches   // nil without watches
	counted    string     // state of the connection in the metrics, "" if not counted; guarded by Pool.mu
	owner      ownerState // guarded by Pool.mu
}

// entry is what the pool stores about one runtime: the subscribers, and the connection if there is one. Pool.mu guards
// all fields of an entry.
type entry struct {
	subscribers map[string]Subscriber // by Key
	runtime     *Runtime              // nil without a connection
	// published is true if an event was published for the runtime. A subscriber with ReplayMissed that is added later
	// gets a Missed event, because it has missed the published event.
	published  bool
	agent      AgentConnection
	connected  bool    // there is a connection, or was one
	getFailed  bool    // a Get failed since the last connection: subscribers wait for a connection
	batch      []Event // delayed events
	outbox     []Event // events to deliver, in order
	delivering bool    // a goroutine is delivering the outbox
}

// New returns an empty Pool. When ctx ends, all watches of the Pool end.
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
	p := &Pool{base: ctx, opts: opts, entries: map[string]*entry{}, missing: map[string]absence{},
		selectors: selectors{}}
	if opts.MaxStalled > 0 {
		p.bulkhead = &bulkhead{limit: int64(opts.MaxStalled), confirmations: queueing.NewAdmission(maxConfirmations,
			func(kyma string) { go p.sendConfirmation(kyma) })}
	}
	return p, nil
}

// Get returns the connection to the runtime of the named Kyma. Get sends no request to the runtime. While the circuit
// breaker is open, Get returns the reason as an error. Get also returns an error if the owner of the runtime is not
// verified yet, or if the runtime belongs to another owner.
//
// An error of Get is either an [Error] with a reason code, or an error of reading the control plane, which is not a
// problem of the runtime.
func (p *Pool) Get(ctx context.Context, kyma string) (*Runtime, error) {
	rt, err := p.ensureUsableConnection(ctx, kyma)
	if err != nil {
		p.notifyOnNextConnection(kyma)
		return nil, err
	}
	if err := p.requireVerifiedOwner(kyma, rt); err != nil {
		return nil, err
	}
	return rt, nil
}

// GetIfOpenOrNoAgents is like Get, for callers that can also work without a connection. If Options.Agents is set and no
// connection is open, GetIfOpenOrNoAgents returns nil, nil. The reason is that a new connection would need a read of
// the access Secret, and changes are reported without a connection. GetIfOpenOrNoAgents returns the same errors as Get.
func (p *Pool) GetIfOpenOrNoAgents(ctx context.Context, kyma string) (*Runtime, error) {
	if !p.opts.Agents || p.opts.Watch || p.connectionIfOpen(kyma) != nil {
		return p.Get(ctx, kyma)
	}
	_, err := p.findAccessSecretVersion(ctx, kyma)
	if err != nil {
		p.notifyOnNextConnection(kyma)
	}
	return nil, err
}

// Probe sends a probe to the runtime of a Kyma at once, instead of waiting for the scheduled one, if the circuit
// breaker of the runtime is open. If the runtime answers the probe, the breaker closes and the subscribers of the
// runtime are notified. If there is no open connection, Probe does nothing, because the next Get makes one.
func (p *Pool) Probe(kyma string) {
	if rt := p.connectionIfOpen(kyma); rt != nil {
		rt.breaker.probeNow()
	}
}

// notifyOnNextConnection records that Get has failed. When a later call makes a connection, the pool notifies the
// subscribers, so that the subscribers whose Get has failed can call Get again.
func (p *Pool) notifyOnNextConnection(kyma string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[kyma]; e != nil {
		e.getFailed = true
	}
}

// ensureUsableConnection returns the connection to a runtime. If there is no connection with the current credential,
// ensureUsableConnection makes one.
func (p *Pool) ensureUsableConnection(ctx context.Context, kyma string) (*Runtime, error) {
	cred, err := p.findAccessSecretVersion(ctx, kyma)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok && e.Code == AccessSecretNotFound {
			p.closeConnection(kyma)
		}
		return nil, err
	}
	if rt := p.connectionIfOpen(kyma); rt != nil && rt.credential == cred {
		return rt.ifUsable()
	}
	unlock, err := p.dials.lock(ctx, kyma)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if rt := p.connectionIfOpen(kyma); rt != nil && rt.credential == cred {
		return rt.ifUsable() // another goroutine has made the connection in the meantime
	}
	rt, err := p.newConnection(ctx, kyma, cred)
	if err != nil {
		p.closeConnection(kyma) // the credentials of the connection no longer exist
		return nil, err
	}
	return p.replaceOldConnection(kyma, rt), nil
}

// ifUsable returns the connection if it can be used. While the circuit breaker is open, ifUsable returns the reason as
// an error.
func (rt *Runtime) ifUsable() (*Runtime, error) {
	if err := rt.breaker.err(); err != nil {
		return nil, err
	}
	return rt, nil
}

// RegisterKinds adds the kinds that a bundle defines. The pool sends no discovery request for registered kinds.
func (p *Pool) RegisterKinds(b *render.Bundle) { p.kinds.AddCRDsOf(b) }

// LookupResource returns the resource of a kind if that resource is the same in all runtimes. Built-in kinds and kinds
// that bundles define have the same resource in all runtimes.
func (p *Pool) LookupResource(ref apply.Ref) (schema.GroupVersionResource, bool) {
	return p.kinds.Resource(ref)
}

// Remove closes the connection to a runtime and removes the subscribers of the runtime. If there was a connection,
// Remove calls Notify of every removed subscriber one last time, with an event that the connection has changed.
func (p *Pool) Remove(kyma string) {
	p.mu.Lock()
	e := p.entries[kyma]
	delete(p.entries, kyma)
	delete(p.missing, kyma)
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

// connectionIfOpen returns the open connection of a runtime, or nil if there is none.
func (p *Pool) connectionIfOpen(kyma string) *Runtime {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[kyma]; e != nil {
		return e.runtime
	}
	return nil
}

// newConnection makes a connection object for a runtime. newConnection sends no request.
func (p *Pool) newConnection(ctx context.Context, kyma string, cred credential) (*Runtime, error) {
	cfg, err := p.readKubeconfig(ctx, kyma, cred)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = p.opts.UserAgent
	transport, err := p.newTransport(cfg)
	if err != nil {
		return nil, &Error{Code: KubeconfigInvalid, Runtime: kyma,
			Message: "certificates do not parse: " + oneLine(err)}
	}
	authenticated, err := rest.HTTPWrappersForConfig(cfg, transport)
	if err != nil {
		return nil, &Error{Code: KubeconfigInvalid, Runtime: kyma,
			Message: "credentials cannot be used: " + oneLine(err)}
	}
	o := answer.Options{Memory: p.opts.Memory, Rate: p.opts.AnswerRate}
	if former := p.connectionIfOpen(kyma); former != nil {
		o.Former = former.answers
	}
	limited := answer.Limit(authenticated, o)
	b := &breaker{runtime: kyma, next: limited, base: cfg.Host}
	b.changed = func() { p.breakerChanged(kyma, b) }
	plain := &rest.Config{Host: cfg.Host, APIPath: cfg.APIPath, QPS: -1}
	var requests http.RoundTripper = b
	if p.bulkhead != nil {
		requests = &bulkheadTransport{bulkhead: p.bulkhead, breaker: b, confirm: func() { p.confirm(b) }}
	}
	cluster, err := apply.New(plain, &http.Client{Transport: p.opts.Wrap(requests)}, apply.ClusterOptions{
		MaxConcurrentRequests: p.opts.Concurrency, RequestTimeout: p.opts.Timeout, Kinds: &p.kinds,
		ForbiddenAdvice: p.opts.ForbiddenAdvice, IsTooLarge: isTooLarge,
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to runtime %s: %w", kyma, err)
	}
	rt := &Runtime{Cluster: cluster, Server: cfg.Host, credential: cred, transport: transport, answers: limited,
		breaker: b, lifetime: access.LifetimeOf(cfg)}
	rt.account.namespace, rt.account.name = access.ServiceAccountOf(cfg)
	var review func() *Error
	if p.opts.Agents {
		rt.reviews = &reviews{breaker: b, first: requests,
			changed: func() { p.notifyConnectionChanged(kyma, credentialKey) }}
		review = rt.reviews.refreshRights
	}
	b.scheduleCredentialChecks(rt.lifetime.Ends, checkInterval, review)
	if p.opts.Watch {
		rt.watches = newWatches(p.base, plain, &http.Client{Transport: b}, p.opts.Timeout)
	}
	return rt, nil
}

// replaceOldConnection stores a new connection, closes the old one, notifies the subscribers, and returns the
// connection in use. If the old connection has the same credential, replaceOldConnection only closes the new one.
func (p *Pool) replaceOldConnection(kyma string, rt *Runtime) (inUse *Runtime) {
	p.mu.Lock()
	e := p.ensureEntryLocked(kyma)
	if e.runtime != nil && e.runtime.credential == rt.credential {
		made := e.runtime // another goroutine has made this connection with the same credential
		p.mu.Unlock()
		rt.close()
		return made
	}
	old, notify := e.takeConnectionLocked(), e.getFailed
	rt.isFirst = !e.connected
	e.runtime, e.getFailed, e.connected = rt, false, true
	for _, s := range e.subscribers {
		rt.updateWatches(s)
	}
	rt.countStateLocked("connected")
	p.mu.Unlock()
	if old != nil {
		old.close()
	}
	if old != nil || notify { // otherwise no Get of a subscriber has failed
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

// takeConnectionLocked removes the connection from an entry and returns the connection. The argument entry may be nil.
// The caller must hold Pool.mu, and has to close the returned connection.
func (e *entry) takeConnectionLocked() *Runtime {
	if e == nil || e.runtime == nil {
		return nil
	}
	old := e.runtime
	e.runtime = nil
	old.countStateLocked("")
	return old
}

// CloseIdleConnections closes those TCP connections to the runtime on which no request or watch is running. A later
// request opens a new TCP connection. Call CloseIdleConnections when a runtime was found in its desired state. Most
// runtimes of a fleet are in their desired state. Without CloseIdleConnections, thousands of TCP connections would wait
// for their idle timeout and take a gigabyte of memory.
func (rt *Runtime) CloseIdleConnections() { rt.transport.CloseIdleConnections() }

func (rt *Runtime) close() {
	rt.breaker.stop()
	if rt.reviews != nil {
		rt.reviews.stop()
	}
	if rt.watches != nil {
		rt.watches.stop()
	}
	rt.transport.CloseIdleConnections()
	// The TCP connection of a watch becomes idle only shortly after the watch has ended, so idle connections are closed
	// once more after a second. If the watch ends even later, its TCP connection is closed by the idle timeout.
	time.AfterFunc(time.Second, rt.transport.CloseIdleConnections)
}

// countStateLocked updates the metric that counts the connections by state. If the parameter state is "", the metric no
// longer counts the connection. The caller of countStateLocked must hold Pool.mu.
func (rt *Runtime) countStateLocked(state string) {
	if rt.counted != "" {
		metrics.Runtimes.WithLabelValues(rt.counted).Dec()
	}
	if state != "" {
		metrics.Runtimes.WithLabelValues(state).Inc()
	}
	rt.counted = state
}

// breakerChanged notifies the subscribers of a runtime when its circuit breaker has opened or closed, or when the
// reason of the open breaker has changed.
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
	e.runtime.countStateLocked(state)
	p.mu.Unlock()
	p.notifyAll(kyma, Event{ConnectionChanged: true})
}

// ensureEntryLocked returns the entry of a runtime. If there is no entry, ensureEntryLocked makes one. The caller of
// ensureEntryLocked must hold mu.
func (p *Pool) ensureEntryLocked(kyma string) *entry {
	e := p.entries[kyma]
	if e == nil {
		e = &entry{subscribers: map[string]Subscriber{}}
		p.entries[kyma] = e
	}
	return e
}
