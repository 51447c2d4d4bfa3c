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
// A runtime is known by the name of its Kyma. Get looks up the access Secret by metadata in the cache and compares its version
// with that of the connection: equal is the same connection, different is a new one, and the old one is closed with its
// watches. Nothing is shared with client-go's global caches, so nothing stays behind.
//
// Every request of a connection goes through its circuit breaker. A runtime that does not answer, or does not know our
// credentials, costs one probe at a time; everybody else gets the reason at once, and is woken when the runtime is back.
//
// Followers are told what happens in a runtime. With watches on, each interest is one watch on metadata, shared by all who
// follow the same; a hint is only a hint: who is woken looks for himself.
//
// # What it does not do
//
// It never decides that a cluster is gone: a missing access Secret is an answer of its own (AccessSecretNotFound), no answer is
// another (RuntimeUnreachable). It holds no cache of a runtime's objects.
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
	// Cache finds access Secrets by metadata. It must have been taught by [IndexByKyma]. Not needed with Self.
	Cache client.Reader
	// Live reads an access Secret when a connection is made. Not needed with Self.
	Live client.Reader
	// Namespace holds the access Secrets.
	Namespace string
	// Self, if set, is the only runtime: the cluster that the manager runs on, whatever the name.
	Self *rest.Config
	// Watch holds watches for followers.
	Watch bool
	// Agents says that agents in the runtimes tell what happens there, see Publish. Without it and Watch, followers are told of the connection only.
	Agents bool
	// InterestsChanged is told when the followers of a runtime want to hear of something else. It must not block. nil: nobody is told.
	InterestsChanged func(kyma string)
	// PollIntervals say how often followers should look for themselves.
	PollIntervals PollIntervals
	// Timeout is the deadline of one request. Default 15 s.
	Timeout time.Duration
	// Concurrency is the number of requests to one runtime at the same time. Default 8.
	Concurrency int
	// Wrap puts something before all that is sent on behalf of a pass. nil: nothing.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Urgent is the set of runtimes that a person waits for. Default an empty set of its own.
	Urgent *queueing.Urgent
	// UserAgent is what runtimes see. Default lifecycle-manager.
	UserAgent string
	// BatchDelay is how long changes that were missed are gathered before followers are told, because they come in swarms: an agent that begins to
	// watch says so of each resource. Default 300 ms; negative is not at all.
	BatchDelay time.Duration
}

// Pool is the set of connections. Safe for concurrent use.
type Pool struct {
	base  context.Context // ends all watches; kept because they outlive the call that starts them
	opts  Options
	kinds apply.Kinds // shared by all connections
	dials dials

	mu        sync.Mutex
	links     map[string]*link      // guarded by mu; by name of the Kyma
	shared    map[string][]Interest // guarded by mu; see Share
	lookers   int                   // guarded by mu: followers who have to look, as counted at countedAt
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
	counted    string   // the state under which metrics count it; guarded by Pool.mu
}

// link is what is known of one runtime: who follows it, and the connection if there is one.
type link struct {
	followers map[string]Subscriber
	runtime   *Runtime
	heard     bool    // something was heard of it, which followers that come later have missed
	unheard   bool    // its agent, if there are agents, was said not to be heard
	refused   bool    // somebody was told that there is no connection, and waits for one
	gathered  []Event // what followers are to be told; somebody will
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
	return &Pool{base: ctx, opts: opts, links: map[string]*link{}}, nil
}

// Get returns the connection to the runtime of the named Kyma. It makes no request to the runtime. While the runtime is known
// not to answer, it returns that at once.
//
// Errors: [Error] with its reasons, or a failure to read the control plane, which says nothing about the runtime.
func (p *Pool) Get(ctx context.Context, kyma string) (*Runtime, error) {
	rt, err := p.get(ctx, kyma)
	if err != nil {
		p.refuse(kyma)
	}
	return rt, err
}

// GetIfOpen is Get for who may do without: where agents tell what happens, it returns nil instead of making the first connection, for which the access
// Secret would have to be read. Errors are those of Get.
func (p *Pool) GetIfOpen(ctx context.Context, kyma string) (*Runtime, error) {
	if !p.opts.Agents || p.opts.Watch || p.current(kyma) != nil {
		return p.Get(ctx, kyma)
	}
	_, err := p.credentialOf(ctx, kyma)
	if err != nil {
		p.refuse(kyma)
	}
	return nil, err
}

// refuse notes that somebody was told that there is no connection.
func (p *Pool) refuse(kyma string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.links[kyma]; l != nil {
		l.refused = true
	}
}

// get returns the connection to a runtime, made if needed.
func (p *Pool) get(ctx context.Context, kyma string) (*Runtime, error) {
	cred, err := p.credentialOf(ctx, kyma)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok && e.Code == "AccessSecretNotFound" {
			p.drop(kyma)
		}
		return nil, err
	}
	if rt := p.current(kyma); rt != nil && rt.credential == cred {
		return rt.usable()
	}
	done, err := p.dials.turn(ctx, kyma)
	if err != nil {
		return nil, err
	}
	defer done()
	if rt := p.current(kyma); rt != nil && rt.credential == cred {
		return rt.usable() // somebody else was faster
	}
	rt, err := p.dial(ctx, kyma, cred)
	if err != nil {
		p.drop(kyma) // the credentials that the old connection used are no longer there
		return nil, err
	}
	return p.swap(kyma, rt), nil
}

// usable returns the connection unless it is known not to be answered.
func (rt *Runtime) usable() (*Runtime, error) {
	if err := rt.breaker.err(); err != nil {
		return nil, err
	}
	return rt, nil
}

// RegisterKinds says which kinds bundles define, so that runtimes need not be asked.
func (p *Pool) RegisterKinds(b *render.Bundle) { p.kinds.AddBundle(b) }

// LookupResource returns how a kind is served, if that is the same in all runtimes as far as is known: of built-in kinds, and of those that bundles define.
func (p *Pool) LookupResource(ref apply.Ref) (schema.GroupVersionResource, bool) {
	return p.kinds.Resource(ref)
}

// Close gives up the connection to a runtime and forgets who followed it.
func (p *Pool) Close(kyma string) {
	p.drop(kyma)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, kyma)
}

// current returns the open connection of a runtime, nil if there is none.
func (p *Pool) current(kyma string) *Runtime {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.links[kyma]; l != nil {
		return l.runtime
	}
	return nil
}

// dial makes a connection without sending anything.
func (p *Pool) dial(ctx context.Context, kyma string, cred credential) (*Runtime, error) {
	cfg, err := p.config(ctx, kyma, cred)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = p.opts.UserAgent
	transport, err := p.transportOf(cfg)
	if err != nil {
		return nil, &Error{Code: "KubeconfigInvalid", Runtime: kyma, Message: "certificates do not parse: " + oneLine(err)}
	}
	authenticated, err := rest.HTTPWrappersForConfig(cfg, transport)
	if err != nil {
		return nil, &Error{Code: "KubeconfigInvalid", Runtime: kyma, Message: "credentials cannot be used: " + oneLine(err)}
	}
	b := &breaker{runtime: kyma, next: authenticated, base: cfg.Host}
	b.changed = func() { p.brokeOrMended(kyma, b) }
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

// swap puts a connection in place of the old one, which is closed, and tells the followers.
func (p *Pool) swap(kyma string, rt *Runtime) *Runtime {
	p.mu.Lock()
	l := p.linkLocked(kyma)
	if l.runtime != nil && l.runtime.credential == rt.credential {
		p.mu.Unlock() // somebody else was faster with the same credential
		rt.close()
		return p.current(kyma)
	}
	old, refused := l.runtime, l.refused
	l.runtime, l.refused = rt, false
	for _, f := range l.followers {
		rt.follow(f)
	}
	rt.countLocked("connected")
	if old != nil {
		old.countLocked("")
	}
	p.mu.Unlock()
	if old != nil {
		old.close()
	}
	if old != nil || refused { // else nobody was without, and whoever wants it asks for it
		p.wake(kyma, Event{ConnectionChanged: true})
	}
	return rt
}

// drop closes the connection of a runtime, if there is one. Followers stay.
func (p *Pool) drop(kyma string) {
	p.mu.Lock()
	var old *Runtime
	if l := p.links[kyma]; l != nil {
		old, l.runtime = l.runtime, nil
	}
	if old != nil {
		old.countLocked("")
	}
	p.mu.Unlock()
	if old != nil {
		old.close()
		p.wake(kyma, Event{ConnectionChanged: true})
	}
}

// CloseIdleConnections closes the connection unless it is in use, for instance by watches: whoever makes the next request connects again. It is for a runtime that has
// been found as it should be. Of a fleet that is looked at, those are many, and thousands of connections that wait for their idle timeout take a gigabyte.
func (rt *Runtime) CloseIdleConnections() { rt.transport.CloseIdleConnections() }

func (rt *Runtime) close() {
	rt.breaker.stop()
	if rt.watches != nil {
		rt.watches.stop()
	}
	rt.transport.CloseIdleConnections()
	// A connection that carried a watch until now is idle in a moment. What is busy for longer is closed by its idle timeout.
	time.AfterFunc(time.Second, rt.transport.CloseIdleConnections)
}

// countLocked moves a connection to another state in the metrics; "" is none. The caller holds Pool.mu.
func (rt *Runtime) countLocked(state string) {
	if rt.counted != "" {
		metrics.Runtimes.WithLabelValues(rt.counted).Dec()
	}
	if state != "" {
		metrics.Runtimes.WithLabelValues(state).Inc()
	}
	rt.counted = state
}

// brokeOrMended tells the followers of a runtime that its breaker opened or closed, or has another reason to be open.
func (p *Pool) brokeOrMended(kyma string, b *breaker) {
	state := "connected"
	if b.err() != nil {
		state = "broken"
	}
	p.mu.Lock()
	l := p.links[kyma]
	if l == nil || l.runtime == nil || l.runtime.breaker != b {
		p.mu.Unlock()
		return // of a connection that is no longer in use
	}
	l.runtime.countLocked(state)
	p.mu.Unlock()
	p.wake(kyma, Event{ConnectionChanged: true})
}

// linkLocked returns the link of a runtime, made if needed. The caller holds mu.
func (p *Pool) linkLocked(kyma string) *link {
	l := p.links[kyma]
	if l == nil {
		l = &link{followers: map[string]Subscriber{}}
		p.links[kyma] = l
	}
	return l
}
