// Package agent is the agent: the part of the lifecycle manager that runs in a runtime. The agent watches the resources
// on its watch list and reports changes to the control plane. The program cmd/runtime-watcher runs the agent.
//
// # Use
//
//	a, err := agent.New(agent.Options{Config: cfg, Address: "listener.example.com:443", Contract: "v2", CA: …, Certificate: …, Key: …})
//	if err != nil { … }
//	err = a.Run(ctx)
//
// # How it works
//
// The watch list is in a ConfigMap of the runtime. The agent watches this ConfigMap (watchlist.go). For each resource
// on the watch list, the agent opens one metadata watch (plan.go, streams.go, stream.go). The agent keeps a small
// record of each object (record.go), to detect which objects have changed while a watch was interrupted. The agent
// reports the start of a watch in one event, instead of one event for each object.
//
// Package outbox delivers the events. Heartbeats (heartbeat.go) contain the number of sent events, so that the control
// plane can detect missing events. Heartbeats also contain the reasons why resources cannot be watched.
//
// The admission webhook (admit.go) serves Watchers that request it. The events of webhook and watches share one queue.
//
// The agent reads the certificate files again when they change (identity.go). New connections use the new certificate.
//
// # What it does not do
//
// The agent changes nothing in the runtime. Apart from its ConfigMap, the agent reads only the metadata of objects. The
// agent does not need to know for which purpose an event is used. The agent uses neither controller-runtime nor the
// typed clients and informers of client-go: these would need more memory than the rest of the agent.
package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/internal/agent/outbox"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// Options are the options of an Agent.
type Options struct {
	// Config is the client configuration for the API server of the runtime.
	Config *rest.Config
	// Watchlist names the ConfigMap with the watch list. By default, Watchlist is kyma-system/skr-webhook-watches.
	Watchlist types.NamespacedName
	// Secret is the name of the Secret with the certificate files. The agent watches only whether this Secret exists,
	// and does not read it. By default, Secret is kyma-system/skr-webhook-tls.
	Secret types.NamespacedName
	// Address is the host:port of the listener. The certificate of the listener must be valid for the host in Address.
	Address string
	// Contract is the first segment of the URL paths of the listener. By default, Contract is v2.
	Contract string
	// CA, Certificate and Key are file names. The listener's certificate is verified with the roots in CA. The agent
	// uses Certificate and Key in two roles: as a client of the listener, and as the server of the webhook. The files
	// of CA, Certificate and Key may be created after the start of the agent, and may be replaced while it runs.
	CA, Certificate, Key string
	// WebhookAddress is the address of the admission webhook, which uses TLS. MetricsAddress is the address of
	// /metrics, /healthz and /readyz, which do not use TLS. If an address is "", the server for this address is not
	// started.
	WebhookAddress, MetricsAddress string
	// Version is the version of the agent in heartbeats.
	Version string
	// MaxPendingEvents is the maximum number of events that wait to be sent. By default, it is 10,000.
	MaxPendingEvents int
	// WatchTimeout is the longest duration of one watch. By default, WatchTimeout is 20 min.
	WatchTimeout time.Duration
	// ReloadInterval is the interval between two reads of the certificate files. By default, it is 2 s.
	ReloadInterval time.Duration
	// Log is the logger. By default, the agent writes no log.
	Log logr.Logger
}

// OptionsFromConfig returns the options for a validated configuration.
func OptionsFromConfig(c *config.Agent, runtime *rest.Config, version string, log logr.Logger) Options {
	namespace, name, _ := strings.Cut(c.Watchlist, "/")
	return Options{
		Config: runtime, Watchlist: types.NamespacedName{Namespace: namespace, Name: name},
		Address: c.KCPAddr, Contract: c.KCPContract, CA: c.CACert, Certificate: c.TLSCert, Key: c.TLSKey,
		WebhookAddress: net.JoinHostPort(c.BindAddress, strconv.Itoa(c.WebhookPort)),
		MetricsAddress: net.JoinHostPort(c.BindAddress, strconv.Itoa(c.MetricsPort)),
		Version:        version, Log: log,
	}
}

// Agent is the agent of one runtime.
type Agent struct {
	o         Options
	queue     *outbox.Queue
	poster    *outbox.Poster
	identity  *identity
	streams   *streams
	configMap *objectWatch[configMap]
	secret    *objectWatch[metav1.PartialObjectMetadata]
	admission *admission
	metrics   *metrics
	problems  *problems
	beatNow   chan struct{} // a value makes the next heartbeat due

	watchlist  atomic.Pointer[protocol.Watchlist] // current watch list; nil before the first
	lastStatus atomic.Pointer[int]                // of the last heartbeat, 0 without an answer; nil before the first
	// requested is the heartbeat interval, or the delay, that the last answer of the listener requested; 0 means none.
	requested atomic.Int64
}

// New returns an Agent. New sends no request.
func New(o Options) (*Agent, error) {
	if err := o.validateAndSetDefaults(); err != nil {
		return nil, fmt.Errorf("making an agent: %w", err)
	}
	cfg := metadata.ConfigFor(o.Config)
	cfg.QPS, cfg.Burst = 50, 100
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making an agent: %w", err)
	}
	client, err := metadata.NewForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, fmt.Errorf("making an agent: %w", err)
	}
	raw, err := rest.UnversionedRESTClientForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, fmt.Errorf("making an agent: %w", err)
	}
	a := &Agent{o: o, metrics: newMetrics(), problems: &problems{all: map[string]string{}},
		beatNow: make(chan struct{}, 1)}
	a.problems.changed = a.triggerHeartbeat
	a.queue = outbox.New(newBootID(), o.MaxPendingEvents, a.metrics.outbox)
	a.metrics.registerPending(a.queue.Size)
	a.poster = outbox.NewPoster(o.Address, o.Contract, o.Log, a.metrics.outbox, a.queue.RedeliverIfNewListener)
	a.identity = &identity{ca: o.CA, certificate: o.Certificate, key: o.Key, log: o.Log, problems: a.problems}
	a.admission = &admission{add: a.queue.Add, metrics: a.metrics}
	a.streams = &streams{
		client: client, discovery: &discovery{client: raw, answers: map[string]answer{}},
		queue: a.queue, problems: a.problems, metrics: a.metrics, log: o.Log, timeout: o.WatchTimeout,
		problemDelay: defaultProblemDelay, removalDelay: defaultRemovalDelay, listSlots: make(chan struct{}, maxLists),
		minDelay: outbox.MinRetryDelay, maxDelay: maxRetryDelay, running: map[versionedResource]*stream{},
	}
	a.configMap = &objectWatch[configMap]{client: raw, resource: "configmaps",
		name: o.Watchlist, timeout: o.WatchTimeout, failed: a.reportWatchlistError}
	a.secret = &objectWatch[metav1.PartialObjectMetadata]{client: raw, resource: "secrets", metadata: true,
		name: o.Secret, timeout: o.WatchTimeout, changed: a.setOrClearMissingSecretProblem,
		failed: func(err error) { // no problem of the agent: the Role of an older manager lacks this right
			a.o.Log.V(1).Info("watching the Secret of the certificate", "error", fmt.Sprint(err))
		}}
	return a, nil
}

// validateAndSetDefaults sets the defaults of missing options. If an option without a default is missing, or an option
// is invalid, the error names the option.
func (o *Options) validateAndSetDefaults() error {
	if o.Config == nil {
		return errors.New("Options.Config is missing")
	}
	host, port, err := net.SplitHostPort(o.Address)
	if _, notNumber := strconv.ParseUint(port, 10, 16); err != nil || notNumber != nil || host == "" {
		return fmt.Errorf("Options.Address %q is not host:port", o.Address)
	}
	if o.CA == "" || o.Certificate == "" || o.Key == "" {
		return errors.New("Options.CA, Certificate and Key are all needed")
	}
	if o.Watchlist.Name == "" {
		o.Watchlist = types.NamespacedName{Namespace: "kyma-system", Name: "skr-webhook-watches"}
	}
	if o.Secret.Name == "" {
		o.Secret = types.NamespacedName{Namespace: o.Watchlist.Namespace, Name: "skr-webhook-tls"}
	}
	if o.Contract == "" {
		o.Contract = "v2"
	}
	if o.MaxPendingEvents <= 0 {
		o.MaxPendingEvents = 10_000
	}
	if o.WatchTimeout <= 0 {
		o.WatchTimeout = defaultWatchTimeout
	}
	if o.ReloadInterval <= 0 {
		o.ReloadInterval = 2 * time.Second
	}
	return nil
}

// newBootID returns a random name that identifies this start of the agent.
func newBootID() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	return hex.EncodeToString(id[:])
}

// Run watches resources and reports changes until ctx ends. When ctx has ended, Run sends pending events for a few more
// seconds. Run returns an error if a server of the agent cannot be started.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	for _, s := range []*http.Server{a.webhook(), a.health()} {
		if s.Addr == "" {
			continue
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Addr)
		if err != nil {
			return fmt.Errorf("listening: %w", err)
		}
		wg.Go(func() { cancel(serve(ctx, s, listener)) })
	}
	if _, err := a.identity.load(); err != nil {
		a.o.Log.Info("waiting for certificates", "error", err.Error())
	} else {
		a.identity.current.Load().use(a.poster)
	}
	wg.Go(func() {
		a.identity.watch(ctx, a.o.ReloadInterval, func(m *material) {
			m.use(a.poster)
			a.triggerHeartbeat()
		})
	})
	wg.Go(func() { a.sendHeartbeats(ctx) })
	a.configMap.changed = func(c *configMap) { a.applyWatchlist(ctx, c) }
	wg.Go(func() { a.configMap.run(ctx) })
	wg.Go(func() { a.secret.run(ctx) })
	states := &outbox.States{Client: a.configMap.client, Watchlist: a.watchlist.Load}
	a.queue.Run(ctx, states.DelivererWithStates(a.poster))
	cancel(nil)
	wg.Wait()
	a.streams.wg.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// reportWatchlistError records the reason why the watch list cannot be read. nil means that it can be read again.
func (a *Agent) reportWatchlistError(err error) {
	if err == nil {
		a.problems.setAndNotify(" reading", "")
		return
	}
	a.problems.setAndNotify(" reading", fmt.Sprintf("cannot read ConfigMap %s: %.180s", a.o.Watchlist,
		textWithoutURL(err)))
}

// triggerHeartbeat makes the next heartbeat due.
func (a *Agent) triggerHeartbeat() {
	select {
	case a.beatNow <- struct{}{}:
	default:
	}
}

// heartbeatInterval returns the time between two heartbeats: the interval in the agent's watch list, or a longer
// interval that the listener has requested. While the queue has events that are undelivered or may have to be delivered
// again, the interval in the watch list applies: with frequent heartbeats, the agent soon detects a new process of the
// listener.
func (a *Agent) heartbeatInterval() time.Duration {
	usual := protocol.DefaultHeartbeatInterval
	if list := a.watchlist.Load(); list != nil {
		usual = list.HeartbeatIntervalOrDefault()
	}
	if a.queue.HasUndeliveredOrRecent() {
		return usual
	}
	return max(usual, time.Duration(a.requested.Load()))
}
