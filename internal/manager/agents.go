package manager

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/authority"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/delivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/agentdelivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// agents has the parts that runtimes with agents need. The authority issues the certificates of agents, the listener
// receives their reports, and the delivery installs agents in runtimes.
type agents struct {
	issuer     issuer
	listener   *backchannel.Listener
	delivery   *delivery.Delivery
	heartbeats *heartbeats
}

// issuer is a source of certificates: the authority in the manager, or cert-manager.
type issuer interface {
	authority.Issuer
	ctrlmanager.Runnable
	Roots() []*x509.Certificate
	Serving() (*tls.Certificate, error)
	Changed() <-chan struct{}
}

// setUpAgents makes the parts that --watch-mode=agent needs, and adds them to the manager.
func setUpAgents(ctx context.Context, f foundation, pool *runtimes.Pool) (*agents, error) {
	c, mgr := f.config, f.manager
	identities, err := setUpIdentities(ctx, f)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(c.ListenerAddress)
	if err != nil {
		return nil, fmt.Errorf("reading --listener-address: %w", err)
	}
	a := &agents{heartbeats: newHeartbeats(ctx, f, identities)}
	if a.issuer, err = newIssuer(ctx, f, host); err != nil {
		return nil, err
	}
	if a.listener, err = backchannel.New(listenerOptions(ctx, f, pool, a.issuer, identities,
		a.heartbeats)); err != nil {
		return nil, err
	}
	if a.delivery, err = delivery.New(deliveryOptions(c, a.issuer)); err != nil {
		return nil, err
	}
	if err := mgr.AddReadyzCheck("listener", a.listener.Ready); err != nil {
		return nil, fmt.Errorf("adding the readiness check of the listener: %w", err)
	}
	tasks := []ctrlmanager.Runnable{a.issuer, a.listener}
	// With cert-manager, the operators of the gateway have to create the Secret with the ingress certificate.
	if own, is := a.issuer.(*authority.Authority); is && c.KymaSkrListenerBindAddress != "0" {
		tasks = append(tasks, ctrlmanager.RunnableFunc(
			ingressSecret{own, f.live, c.Namespace, mgr.GetLogger().WithName("authority")}.keepCertificateUpToDate))
	}
	return a, addTasks(mgr, "the listener", tasks...)
}

// newIssuer returns the issuer of certificates for a listener with the given host.
func newIssuer(ctx context.Context, f foundation, host string) (issuer, error) {
	c, log := f.config, f.manager.GetLogger().WithName("authority")
	if c.CertManagement == config.CertManager {
		return authority.NewCertManager(authority.CertManagerOptions{
			Client: f.live, Namespace: c.Namespace, Issuer: c.SelfSignedCertIssuerName,
			Hosts: []string{host}, Reserved: c.ListenerPeers,
			Lifetime: c.SelfSignedCertDuration, Log: log,
		})
	}
	return authority.New(authority.Options{
		Client: f.live, Namespace: c.Namespace, Hosts: []string{host}, Reserved: c.ListenerPeers,
		Lifetime: c.SelfSignedCertDuration, Log: log,
		RuntimesByRoot: func() (map[string][]string, bool) { return runtimesByRoot(ctx, f) },
	})
}

// runtimesByRoot returns for each root certificate the names of the Kymas whose agents use a certificate that this root
// has signed. The key is the fingerprint of the root. runtimesByRoot returns false if this replica is not the leader or
// the Kymas cannot be read.
func runtimesByRoot(ctx context.Context, f foundation) (kymas map[string][]string, known bool) {
	select {
	case <-f.manager.Elected():
	default:
		return nil, false
	}
	from, opts := client.Reader(f.manager.GetClient()), []client.ListOption{client.InNamespace(f.config.Namespace),
		client.UnsafeDisableDeepCopy}
	if f.keeper != nil { // the cache contains only the shards of this replica
		from, opts = f.manager.GetAPIReader(), append(opts, client.Limit(500))
	}
	byRoot := map[string][]string{}
	for next := ""; ; {
		var list v1beta2.KymaList
		if err := from.List(ctx, &list, append(opts, client.Continue(next))...); err != nil {
			return nil, false
		}
		for i := range list.Items {
			if s := list.Items[i].Status.Agent; s != nil && s.Certificate != nil {
				byRoot[s.Certificate.RootInUse] = append(byRoot[s.Certificate.RootInUse], list.Items[i].Name)
			}
		}
		if next = list.Continue; next == "" || f.keeper == nil {
			return byRoot, true
		}
	}
}

func listenerOptions(ctx context.Context, f foundation, pool *runtimes.Pool, from issuer, identities *identities,
	beats *heartbeats) backchannel.Options {
	c := f.config
	leader := newLeaderAddress(ctx, f)
	off := func(address string) string {
		if address == "0" {
			return ""
		}
		return address
	}
	return backchannel.Options{
		Address: off(c.ListenerBindAddress), ForwardedAddress: off(c.KymaSkrListenerBindAddress),
		ForwardedFrom: c.ListenerForwardedFrom,
		Peers:         append([]string{protocol.ManagerName}, c.ListenerPeers...),
		Roots:         from.Roots, Certificate: from.Serving,
		Lookup:  identities.lookup,
		Deliver: func(kyma string, e protocol.Event) { publishEvent(pool, f.queues, kyma, e) },
		Missed:  func(kyma string) { pool.PublishToInterested(kyma, runtimes.Event{Missed: true}) },
		Changed: f.queues.enqueueAgentReview,
		Route: func(manager string) (string, bool) {
			return eventURLOf(ctx, f.manager.GetClient(), c.Namespace, manager)
		},
		Leader: func(kyma string) (address string, me bool) {
			if f.keeper != nil {
				return f.keeper.OtherHolderAddress(kyma)
			}
			return leader.findListener()
		},
		HeartbeatTimeout: beats.timeout(), NextHeartbeat: beats.nextInterval,
		RuntimeMetrics: c.RuntimeMetrics, Log: f.manager.GetLogger().WithName("listener"),
	}
}

func deliveryOptions(c *config.Manager, from issuer) delivery.Options {
	return delivery.Options{
		Issuer: from, Roots: from.Roots, Image: agentImage(c), Address: c.ListenerAddress,
		MemoryLimit: c.SkrWebhookMemoryLimits, CPULimit: c.SkrWebhookCPULimits, GoDebug: c.AgentGodebug,
		DNSNames:   c.AdditionalDNSNames,
		PullSecret: c.SKRImagePullSecret, AuditInterval: c.WatchedAuditInterval,
	}
}

// agentImage returns the image reference of the agent.
func agentImage(c *config.Manager) string {
	name := c.SkrWatcherImageName + ":" + c.SkrWatcherImageTag
	if c.SkrWatcherImageRegistry == "" {
		return name
	}
	return c.SkrWatcherImageRegistry + "/" + name
}

// forKymas returns the options of the Kyma controller for the delivery of agents.
func (a *agents) forKymas() agentdelivery.Options {
	return agentdelivery.Options{
		Delivery: a.delivery, AgentStates: a.listener, HeartbeatInterval: a.heartbeats.interval,
		FirstHeartbeatTimeout: a.heartbeats.firstTimeout, RevokeCertificates: a.issuer.Release,
	}
}

// reissueOnNewRoots returns a task that calls enqueueAll when the trusted roots change. After the rotation of the root,
// every runtime gets a new certificate.
func (a *agents) reissueOnNewRoots(enqueueAll func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			changed := a.issuer.Changed()
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
				enqueueAll(ctx)
			}
		}
	}
}

// publishEvent passes an event of an agent to the subscribers of the runtime.
func publishEvent(pool *runtimes.Pool, queues kymaQueues, kyma string, e protocol.Event) {
	i := runtimes.Interest{Kind: e.WatchedGVK.Kind}
	i.Resource.Group, i.Resource.Version, i.Resource.Resource = e.WatchedGVK.Group, e.WatchedGVK.Version, e.Resource
	switch {
	case e.Resource != "" && e.WatchStarted:
		pool.PublishToInterested(kyma, listedOrMissedEvent(i, e))
	case e.Resource != "" && e.Object != nil:
		o := &metav1.PartialObjectMetadata{ObjectMeta: *e.Object}
		o.Namespace, o.Name = e.Watched.Namespace, e.Watched.Name
		pool.PublishToInterested(kyma, runtimes.Event{Interest: i, Object: o, Deleted: e.Deleted,
			States: e.DecodeValidStates()})
	case e.WatchedGVK.Kind == v1beta2.KindKyma:
		// The event has no metadata: it is from the Kyma project's agent, or the metadata did not fit into it.
		queues.enqueueAfterBatchDelay(kyma)
		pool.PublishToInterested(kyma, runtimes.Event{Missed: true, Interest: i}) // the known Kyma is outdated
	default:
		pool.PublishToInterested(kyma, runtimes.Event{Missed: true, Interest: i})
	}
}

// listedOrMissedEvent returns a Listed event if the agent has sent all objects of a started watch, else a Missed event.
func listedOrMissedEvent(i runtimes.Interest, e protocol.Event) runtimes.Event {
	if !e.ObjectsComplete {
		return runtimes.Event{Missed: true, Interest: i}
	}
	s := runtimes.Event{Listed: true, Interest: i, States: e.DecodeValidStates(),
		Objects: make([]metav1.PartialObjectMetadata, len(e.Objects))}
	for k := range e.Objects {
		s.Objects[k].ObjectMeta = e.Objects[k]
	}
	return s
}

// eventURLOf returns the URL for events to another manager. The URL comes from its Watcher.
func eventURLOf(ctx context.Context, reader client.Reader, namespace, managerName string) (url string, found bool) {
	var list v1beta2.WatcherList
	if err := reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", false
	}
	for i := range list.Items {
		if w := &list.Items[i]; w.NotifiedManagerName() == managerName {
			s := w.Spec.ServiceInfo
			return fmt.Sprintf("http://%s.%s.svc:%d", s.Name, s.Namespace, s.Port), true
		}
	}
	return "", false
}

// heartbeats computes the interval between two heartbeats of an agent.
type heartbeats struct {
	interval time.Duration
	budget   int          // heartbeats per second; 0 means no limit
	own      *kymaCounter // of the Kymas of this replica
	fleet    *kymaCounter // of the Kymas of all replicas
}

func newHeartbeats(ctx context.Context, f foundation, all *identities) *heartbeats {
	own := &identities{base: ctx, namespace: f.config.Namespace, reader: f.manager.GetClient()}
	return &heartbeats{interval: f.config.HeartbeatInterval, budget: f.config.HeartbeatBudget,
		own: &kymaCounter{list: own.listKymas}, fleet: &kymaCounter{list: all.listKymas}}
}

// timeout returns how long an agent counts as connected after its last heartbeat. Two heartbeats may be lost.
func (h *heartbeats) timeout() time.Duration { return 3*h.interval + 10*time.Second }

// firstTimeout returns the time within which the first heartbeat of an agent has to reach this replica. After a shard
// has moved, an agent still keeps the delay that its former replica has requested. That replica may have had all Kymas
// of the fleet. An agent lengthens the delay by up to a tenth.
func (h *heartbeats) firstTimeout() time.Duration {
	longest := h.intervalFor(h.fleet)
	return h.timeout() + longest + longest/10
}

// nextInterval returns the delay until the next heartbeat of an agent whose runtime does not change. The delay is long
// enough that the heartbeats of all runtimes of this replica together stay within the budget. If the configured
// interval is long enough for this budget, nextInterval returns 0.
func (h *heartbeats) nextInterval() time.Duration { return h.intervalFor(h.own) }

// intervalFor returns the result of nextInterval for a replica that has the given Kymas.
func (h *heartbeats) intervalFor(kymas *kymaCounter) time.Duration {
	if h.budget == 0 {
		return 0
	}
	needed := time.Duration(kymas.cachedCount()) * time.Second / time.Duration(h.budget)
	if needed <= h.interval {
		return 0
	}
	return min(needed, protocol.MaxHeartbeatInterval)
}

// countValidPeriod is how long the number of Kymas is used before the Kymas are counted again.
const countValidPeriod = time.Minute

// kymaCounter counts the Kymas in a cache.
type kymaCounter struct {
	list func(...client.ListOption) ([]runtime.Object, error)

	mu        sync.Mutex
	kymas     int       // guarded by mu
	countedAt time.Time // guarded by mu
}

// cachedCount returns the number of Kymas in the cache, counted at most countValidPeriod ago if they can be listed.
func (c *kymaCounter) cachedCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.countedAt) >= countValidPeriod {
		c.countedAt = time.Now() // also after a failure, because each heartbeat and each reconcile calls cachedCount
		if found, err := c.list(); err == nil {
			c.kymas = len(found)
		}
	}
	return c.kymas
}
