package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/playground/fleet"
)

// The following intervals and limits of a simulated agent are equal to those of the real agent.
const (
	spacing   = 500 * time.Millisecond // minimum time between two events for one object
	beatGap   = time.Second            // between two heartbeats
	longWait  = time.Minute            // if heartbeats are this far apart, the connection is closed between them
	lastRetry = 15 * time.Second       // maximum back-off
)

// Names of objects that the manager delivers to a cluster for its agent.
const (
	agentName     = "skr-webhook"
	agentSecret   = "skr-webhook-tls"
	agentWatches  = "skr-webhook-watches"
	agentReplicas = 1
)

var (
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// agent is the simulated agent of one cluster.
type agent struct {
	*agents

	cluster *fleet.Cluster

	mu     sync.Mutex
	heard  []fleet.Change // changes that were not yet processed; guarded by mu, as all following fields
	queued bool           // the agent waits in agents.work
	taken  bool           // a goroutine runs turn, and repeats it if queued is set
	timer  *time.Timer

	beaten atomic.Int64 // time of the last answered heartbeat, in Unix nanoseconds

	// The following fields are used only by the goroutine that runs processDue, so they need no lock.
	running   bool // the agent has a certificate and a watch list, and its Deployment is available
	boot      string
	identity  uint64 // hash of the Secret with the present certificate
	tls       *tls.Config
	digest    string        // of the present watch list
	interval  time.Duration // time between two heartbeats, from the watch list
	answer    answer        // the last answer of the listener
	watches   map[schema.GroupResource][]watchFor
	known     map[subject]record
	pending   map[subject]*pendingEvent
	delivered []deliveredEvent
	sequence  uint64
	nextBeat  time.Time
	lastBeat  time.Time
	failures  int
	retryAt   time.Time
	instance  string
	wire      *wire
}

// subject is the object of an event. An empty name means all objects of a resource.
type subject struct {
	resource        schema.GroupResource
	namespace, name string
}

// pendingEvent is an event that waits for its due time.
type pendingEvent struct {
	due     time.Time
	number  uint64
	whole   bool // an event of type Began
	first   bool // the event lists the existing objects
	deleted bool
	last    []byte // metadata of the deleted object
}

// deliveredEvent is an event that the listener accepted recently.
type deliveredEvent struct {
	at time.Time
	subject
	deleted bool
}

// receiveChange adds a change of an object to the queue of the agent.
func (a *agent) receiveChange(change fleet.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = append(a.heard, change)
	a.ensureQueuedLocked()
}

func (a *agent) ensureQueuedLocked() {
	if a.queued {
		return
	}
	a.queued = true
	if !a.taken {
		a.enqueue(a)
	}
}

// processDue processes the changes, events and heartbeats of the agent that are due. At its end, processDue sets the
// timer for the next due time.
func (a *agent) processDue(ctx context.Context) {
	a.mu.Lock()
	a.queued, a.taken = false, true
	heard := a.heard
	a.heard = nil
	a.mu.Unlock()

	a.processChanges(heard)
	next := a.sendDue(ctx)

	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken = false
	if a.queued {
		a.enqueue(a)
		return
	}
	if next.IsZero() {
		return
	}
	wait := max(time.Millisecond, time.Until(next))
	if a.timer == nil {
		a.timer = time.AfterFunc(wait, func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.ensureQueuedLocked()
		})
		return
	}
	a.timer.Reset(wait)
}

// processChanges processes the changes in the queue of the agent. A change can bring a new certificate, a new watch
// list, or an event.
func (a *agent) processChanges(heard []fleet.Change) {
	setUp := false
	for _, c := range heard {
		setUp = setUp || c.Namespace == v1beta2.RuntimeNamespace &&
			(c.Resource == secrets.GroupResource() && c.Name == agentSecret ||
				c.Resource == configMaps.GroupResource() && c.Name == agentWatches ||
				c.Resource == deployments.GroupResource() && c.Name == agentName)
	}
	if setUp {
		a.reloadConfigurationOrStop()
	}
	if !a.running {
		return
	}
	for _, c := range heard {
		if watches := a.watches[c.Resource]; watches != nil {
			a.enqueueEventFor(c, watches)
		}
	}
}

// reloadConfigurationOrStop reads the certificate and the watch list from the cluster. A real agent mounts the
// certificate and watches the watch list. The agent does not run if its certificate or its watch list is missing, or if
// its Deployment is not available.
func (a *agent) reloadConfigurationOrStop() {
	get := func(resource schema.GroupVersionResource, name string) map[string]any {
		u, err := a.cluster.Get(resource, v1beta2.RuntimeNamespace, name)
		if err != nil || u == nil {
			return nil
		}
		return u.Object
	}
	deployment, secret, list := get(deployments, agentName), get(secrets, agentSecret), get(configMaps, agentWatches)
	available, _, _ := unstructured.NestedInt64(deployment, "status", "availableReplicas")
	if deployment == nil || secret == nil || list == nil || available < agentReplicas && !a.running {
		a.stop()
		return
	}
	if !a.running {
		a.running, a.boot, a.nextBeat = true, fmt.Sprintf("%016x", rand.Uint64()), time.Now()
		a.watches, a.known, a.pending = map[schema.GroupResource][]watchFor{}, map[subject]record{},
			map[subject]*pendingEvent{}
	}
	a.useCertificate(secret)
	text, _, _ := unstructured.NestedString(list, "data", protocol.WatchlistKey)
	if watchlist, err := protocol.ParseWatchlist([]byte(text)); err == nil && watchlist.Digest() != a.digest {
		a.useWatchlist(watchlist)
		a.digest, a.interval = watchlist.Digest(), watchlist.HeartbeatIntervalOrDefault()
		a.nextBeat = laterTime(time.Now(), a.lastBeat.Add(beatGap))
	}
}

var seed = maphash.MakeSeed()

// useCertificate makes new connections use the certificate of a Secret.
func (a *agent) useCertificate(secret map[string]any) {
	data, _, _ := unstructured.NestedStringMap(secret, "data")
	files := map[string][]byte{}
	var h maphash.Hash
	h.SetSeed(seed)
	for _, key := range []string{"ca.crt", "tls.crt", "tls.key"} {
		file, err := base64.StdEncoding.DecodeString(data[key])
		if err != nil {
			return
		}
		files[key] = file
		_, _ = h.Write(file) // writing to a hash never fails
	}
	if h.Sum64() == a.identity {
		return
	}
	certificate, err := tls.X509KeyPair(files["tls.crt"], files["tls.key"])
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(files["ca.crt"]) {
		return
	}
	a.identity = h.Sum64()
	a.tls = &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: listenerName,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil },
	}
	a.hangUp()
}

// stop stops the agent. reloadConfigurationOrStop can start it again.
func (a *agent) stop() {
	a.hangUp()
	a.running, a.identity, a.tls, a.digest, a.sequence, a.instance = false, 0, nil, "", 0, ""
	a.watches, a.known, a.pending, a.delivered = nil, nil, nil, nil
	a.failures, a.retryAt, a.nextBeat, a.lastBeat = 0, time.Time{}, time.Time{}, time.Time{}
}

func (a *agent) hangUp() {
	if a.wire != nil {
		a.wire.close()
		a.wire = nil
		a.open.Add(-1)
	}
}

// sendDue sends the due heartbeats and events. sendDue returns the next due time, or zero if there is none.
func (a *agent) sendDue(ctx context.Context) (next time.Time) {
	if !a.running || a.tls == nil || ctx.Err() != nil {
		return time.Time{}
	}
	now := time.Now()
	if now.Before(a.retryAt) {
		return a.retryAt
	}
	for about, e := range a.pending {
		if e.due.After(now) {
			continue
		}
		if !a.deliverOrDropEvent(ctx, about, e) {
			return a.retryAt
		}
	}
	if !a.nextBeat.After(now) && !a.sendHeartbeat(ctx) {
		return a.retryAt
	}
	return a.nextDue()
}

// nextDue returns the next due time.
func (a *agent) nextDue() time.Time {
	next := a.nextBeat
	for _, e := range a.pending {
		if e.due.Before(next) {
			next = e.due
		}
	}
	a.dropOldEvents()
	return next
}

// dropOldEvents drops delivered events that are too old to be repeated.
func (a *agent) dropOldEvents() {
	for len(a.delivered) > 0 && time.Since(a.delivered[0].at) > a.memory {
		a.delivered = a.delivered[1:]
	}
	if len(a.delivered) == 0 {
		a.delivered = nil
	}
}

// sendHeartbeat sends a heartbeat.
func (a *agent) sendHeartbeat(ctx context.Context) (accepted bool) {
	body, err := json.Marshal(protocol.Heartbeat{BootID: a.boot, Version: config.Version, Sequence: a.sequence,
		Pending: len(a.pending), Watchlist: a.digest})
	if err != nil || !a.sendOrScheduleRetry(ctx, protocol.HeartbeatPath(protocol.ManagerName), body) {
		return false
	}
	interval := a.interval
	if a.dropOldEvents(); len(a.delivered)+len(a.pending) == 0 {
		interval = max(interval, a.answer.next)
	}
	a.lastBeat = time.Now()
	a.beaten.Store(a.lastBeat.UnixNano())
	a.nextBeat = a.lastBeat.Add(interval + rand.N(interval/5+1) - interval/10)
	if interval > longWait {
		a.hangUp()
	}
	return true
}

// sendOrScheduleRetry sends a request to the manager's listener, and opens a connection if none is open.
// sendOrScheduleRetry reports whether the listener has accepted the request. If the listener has not accepted the
// request, retryAt is the time of the next attempt.
func (a *agent) sendOrScheduleRetry(ctx context.Context, path string, body []byte) (accepted bool) {
	got, err := answer{}, error(nil)
	for range 2 { // the other side may have closed an open connection, so try again once
		fresh := a.wire == nil
		if fresh {
			if a.wire, err = dial(ctx, a.listenerOf(a.cluster.Index()), a.tls); err != nil {
				break
			}
			a.open.Add(1)
		}
		if got, err = a.wire.post(path, body); err == nil {
			break
		}
		a.hangUp()
		if fresh {
			break
		}
	}
	if err == nil && got.closes {
		a.hangUp()
	}
	if err != nil || got.status != http.StatusOK {
		a.failures++
		backoff := min(lastRetry, 250*time.Millisecond<<min(a.failures, 10))
		a.retryAt = time.Now().Add(max(got.wait, backoff/2+rand.N(backoff/2)))
		return false
	}
	a.failures = 0
	if a.instance != "" && a.instance != got.instance {
		a.requeueDeliveredEvents()
	}
	a.instance, a.answer = got.instance, got
	return true
}

// requeueDeliveredEvents queues recently delivered events again, because the process that received them may have ended.
func (a *agent) requeueDeliveredEvents() {
	for _, d := range a.delivered {
		if time.Since(d.at) <= a.memory {
			a.enqueueOrMergeEvent(d.subject, d.name == "", d.deleted)
		}
	}
	a.delivered = nil
}

func laterTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
