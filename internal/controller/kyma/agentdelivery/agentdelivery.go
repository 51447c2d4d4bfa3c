// Package agentdelivery keeps the agent of every runtime delivered, and reports in the status of the Kyma whether it is
// connected.
//
// # Use
//
//	a := agentdelivery.New(agentdelivery.Options{…}, agentdelivery.Controller{…})
//	plan, err := a.Plan(ctx, target)             // save the status, which has the list of objects, before the next call
//	recheckAfter, err := a.Deliver(ctx, target, plan)
//	err := a.Run(ctx)                            // works on Controller.Reviews
//
// # How it works
//
// The agent of a runtime watches what the subscribers of the runtime are interested in, and what Watchers ask for: that
// is the watch list. Package delivery applies the agent with its watch list to the runtime, and issues its certificate.
// Deliver compares then what the listener knows of the agent with the status, and updates the status.
//
// A review decides, without any request, whether a reconcile would find something to do for an agent, and enqueues the
// Kyma if so. Reviews of one Kyma that are requested within a short time are one.
//
// # What it does not do
//
// A problem of the agent never keeps modules from being installed. The package writes no condition: the Kyma controller
// does, from the status of the agent.
package agentdelivery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/delivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// AgentStates knows the last heartbeat of every agent.
type AgentStates interface {
	// State returns the last heartbeat of a runtime's agent, and whether it is so recent that the agent counts as
	// connected.
	State(kyma string) (state backchannel.State, connected bool)
	// Forget drops what is known of a runtime's agent.
	Forget(kyma string)
}

// Options say how runtimes get their agents. With the zero value no agents are delivered, and those that were delivered
// are removed.
type Options struct {
	// Delivery applies the agents. nil means none.
	Delivery *delivery.Delivery
	// AgentStates knows which agents are connected. Needed with Delivery.
	AgentStates AgentStates
	// HeartbeatInterval is the time between two heartbeats of an agent.
	HeartbeatInterval time.Duration
	// HeartbeatTimeout returns how long after its last heartbeat an agent counts as connected. It is called in each
	// reconcile, so it must be cheap. Needed with Delivery.
	HeartbeatTimeout func() time.Duration
	// RevokeCertificates revokes the certificates of a runtime whose Kyma is deleted. nil: nothing to do.
	RevokeCertificates func(ctx context.Context, kyma string) error
}

// Controller is what the Kyma controller provides.
type Controller struct {
	// Client reads Kymas and Watchers from the cache.
	Client client.Client
	// Runtimes knows the interests of the subscribers of runtimes.
	Runtimes *runtimes.Pool
	// Namespace holds Kymas and Watchers.
	Namespace string
	// Enqueue triggers a reconcile of a Kyma soon.
	Enqueue func(kyma string)
	// Reviews has the names of the Kymas whose agent is reviewed. Other parts of the manager add to it when a heartbeat
	// or the interests of a module have changed.
	Reviews workqueue.TypedDelayingInterface[string]
}

// Agents delivers the agents of all runtimes. Safe for concurrent use; for each Kyma there is at most one call of Plan
// or Deliver at a time.
type Agents struct {
	Options
	Controller

	mu      sync.Mutex
	records map[string]*record // guarded by mu; by name of the Kyma
}

// record is what is known of one runtime. Losing it costs requests that change nothing.
type record struct {
	runtime     *runtimes.Runtime // the connection that the record belongs to
	firstSeenAt time.Time         // when the runtime was first seen by this process, whatever the connection
	// the status is assumed to be right until the first heartbeat: no request was made to the runtime yet
	assumed   bool
	delivered *delivery.Memory        // used by Plan and Deliver only
	deletion  *apply.DeletionProgress // the same: which objects were asked to be deleted when agents are disabled
	// since when the agent reports another watch list than it should have; zero if it does not
	behindSince time.Time

	manifests    []string      // keys of the subscribers that the watch list depends on
	waitingSince time.Time     // since when some of them have not declared their interests; zero if all have
	waitTimeout  time.Duration // how long they are waited for
}

// New returns Agents that know of no runtime yet.
func New(o Options, c Controller) *Agents {
	return &Agents{Options: o, Controller: c, records: map[string]*record{}}
}

// Target is the runtime that the agent is delivered to, in one reconcile.
type Target struct {
	// Kyma is the Kyma in the control plane. Its status.agent is updated.
	Kyma *v1beta2.Kyma
	// Runtime is the connection. Nothing is known of the runtime behind another connection.
	Runtime *runtimes.Runtime
	// Now is the time of the reconcile.
	Now time.Time
	// Manifests are those of the runtime's modules.
	Manifests []*v1beta2.Manifest
	// Warn records an event on the Kyma when its agent is no longer connected. nil: no events.
	Warn func(reason, message string)
}

// Plan is what is to be delivered to one runtime.
type Plan struct {
	agent     delivery.Plan
	watchlist string // digest of the watch list
	pending   bool   // the watch list is not known yet, so nothing new is delivered
}

// Plan computes what is to be delivered and lists its objects in status.agent, which has to be saved before
// [Agents.Deliver] is called.
func (a *Agents) Plan(ctx context.Context, t Target) (p Plan, err error) {
	if a.Delivery == nil {
		return p, nil
	}
	agent := t.Kyma.Status.Agent
	if agent == nil {
		agent = newStatus(t.Now)
	}
	waits := a.waitsForInterests(t) // before the interests are read
	request, err := a.request(ctx, t.Kyma, t.Runtime.Server)
	if err != nil {
		return p, err
	}
	if waits {
		delivered, err := a.Delivery.IsDelivered(request, agent)
		if p.pending = !delivered; err != nil || p.pending {
			return p, err
		}
	}
	p.watchlist, t.Kyma.Status.Agent = request.Watchlist.Digest(), agent
	p.agent, err = a.Delivery.Plan(request, agent)
	return p, err
}

// newStatus is the status of an agent of which nothing was delivered yet.
func newStatus(now time.Time) *v1beta2.AgentStatus {
	return &v1beta2.AgentStatus{Since: metav1.NewTime(now.Truncate(time.Second))}
}

// Deliver brings the agent of a runtime to the plan, or removes it if agents are disabled, and updates status.agent. It
// returns when to reconcile again even if nothing happens; 0 is never.
func (a *Agents) Deliver(ctx context.Context, t Target, p Plan) (recheckAfter time.Duration, err error) {
	if a.Delivery == nil {
		return 0, a.remove(ctx, t)
	}
	if t.Kyma.Status.Agent == nil {
		t.Kyma.Status.Agent = newStatus(t.Now)
	}
	const compareInterval = 5 * time.Minute // while the agent is not connected
	var delivered *delivery.Memory
	a.edit(t, func(r *record) { delivered = r.delivered })
	s := t.Kyma.Status.Agent
	if !s.Connected {
		delivered.CompareUnlessDoneWithin(compareInterval)
	}
	var waitsFor string
	if !p.pending {
		waitsFor, err = a.Delivery.Deliver(ctx, t.Runtime.Cluster, p.agent, delivered, s)
	}
	recheckAfter = a.updateStatus(t, p, waitsFor, err)
	a.Runtimes.SetAgentConnected(t.Kyma.Name, s.Connected)
	switch {
	case err != nil:
		log.FromContext(ctx).Info("agent cannot be delivered", "problem", err.Error())
	case waitsFor != "":
		log.FromContext(ctx).V(1).Info("agent is being delivered", "waitingFor", waitsFor)
	}
	return recheckAfter, nil
}

// remove deletes the agent that was delivered before agents were disabled.
func (a *Agents) remove(ctx context.Context, t Target) error {
	s := t.Kyma.Status.Agent
	if s == nil {
		return nil
	}
	var deletion *apply.DeletionProgress
	a.edit(t, func(r *record) { deletion = r.deletion })
	left, err := t.Runtime.Delete(ctx, delivery.Refs(s.Synced), deletion)
	if err != nil {
		return fmt.Errorf("removing the agent of runtime %s: %w", t.Kyma.Name, err)
	}
	if len(left.Remaining) > 0 {
		return loop.Later(time.Second, "the agent to be deleted: "+left.WaitMessage())
	}
	t.Kyma.Status.Agent = nil
	return nil
}

// TakeOver lists the objects of the Kyma project's watcher as ours, if lifecycle-manager has left them in the runtime.
// It writes the condition SKRWebhook on every Kyma with a watcher, and does not have status.agent; this project writes
// the condition only together with it.
func TakeOver(k *v1beta2.Kyma, now time.Time) {
	s := &k.Status
	if s.Agent == nil && meta.FindStatusCondition(s.Conditions, v1beta2.ConditionSKRWebhook) != nil {
		s.Agent = newStatus(now)
		s.Agent.Synced = delivery.KymaProjectObjects()
	}
}

// CompareDelivered makes the next Deliver compare the agent's objects with the runtime, because they may have been
// deleted.
func (a *Agents) CompareDelivered(t Target) {
	a.edit(t, func(r *record) { r.delivered.CompareUnlessDoneWithin(0) })
}

// ReportsChanges reports whether, according to the status, an agent with a valid certificate reports what changes in
// the runtime.
func (a *Agents) ReportsChanges(s *v1beta2.AgentStatus, now time.Time) bool {
	return a.Delivery != nil && s != nil && s.Connected && now.Before(a.Delivery.RenewalTime(s))
}

// Assume notes that no request was made to a runtime, because its status is assumed to be right. The Kyma is enqueued
// after the first heartbeat, or when there was none within the heartbeat timeout.
func (a *Agents) Assume(kyma string, now time.Time) {
	a.edit(Target{Kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: kyma}}, Now: now},
		func(r *record) { r.assumed = true })
	a.Reviews.AddAfter(kyma, a.HeartbeatTimeout())
	if state, _ := a.AgentStates.State(kyma); !state.Last.IsZero() {
		a.Enqueue(kyma) // the first heartbeat came before this call
	}
}

// CertificateOverdue reports for how long the certificate of an agent should have been renewed already.
func (a *Agents) CertificateOverdue(s *v1beta2.AgentStatus, now time.Time) time.Duration {
	if a.Delivery == nil || s == nil || a.Delivery.RenewalTime(s).IsZero() {
		return 0
	}
	return max(now.Sub(a.Delivery.RenewalTime(s)), 0)
}

// Revoke revokes the certificates of a runtime whose Kyma is deleted.
func (a *Agents) Revoke(ctx context.Context, kyma string) error {
	if a.RevokeCertificates == nil {
		return nil
	}
	if err := a.RevokeCertificates(ctx, kyma); err != nil {
		return fmt.Errorf("revoking the certificates of runtime %s: %w", kyma, err)
	}
	return nil
}

// Forget drops what is known of the runtime of a Kyma that is deleted, or reconciled by another replica.
func (a *Agents) Forget(kyma string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.records, kyma)
}

// ForgetHeartbeats drops the last heartbeat of a runtime whose Kyma is deleted.
func (a *Agents) ForgetHeartbeats(kyma string) {
	if a.AgentStates != nil {
		a.AgentStates.Forget(kyma)
	}
}

// edit calls f with the record of a runtime, under the lock. The record of another connection is replaced by an empty
// one.
func (a *Agents) edit(t Target, f func(*record)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.records[t.Kyma.Name]
	if r == nil || r.runtime != t.Runtime {
		next := &record{runtime: t.Runtime, firstSeenAt: t.Now, delivered: &delivery.Memory{},
			deletion: &apply.DeletionProgress{}}
		if r == nil || r.assumed {
			next.delivered.AssumeCompared() // as everything that was delivered before this process has started
		}
		if r != nil {
			next.firstSeenAt = r.firstSeenAt
		}
		r = next
		a.records[t.Kyma.Name] = r
	}
	f(r)
}

// updateStatus updates status.agent and returns when to check again. The first row that fits wins:
//
//	1  the agent could not be delivered                                  not connected: reason of the error
//	2  it is being delivered                                             unchanged
//	3  it was connected, and its first heartbeat is not due yet          unchanged
//	4  there was no heartbeat, or none within the heartbeat timeout      not connected: AgentSilent
//	5  it reports that it cannot watch something                         not connected: AgentImpaired
//	6  it has not taken over its watch list in time                      not connected: AgentImpaired
//	7  else                                                              connected
func (a *Agents) updateStatus(t Target, p Plan, waitsFor string, err error) time.Duration {
	s, name := t.Kyma.Status.Agent, t.Kyma.Name
	state, connected := a.AgentStates.State(name)
	before := s.Connected
	behind := connected && !p.pending && state.Heartbeat.Watchlist != p.watchlist
	var firstSeenAt, behindSince time.Time
	a.edit(t, func(r *record) {
		switch {
		case !behind:
			r.behindSince = time.Time{}
		case r.behindSince.IsZero():
			r.behindSince = t.Now
		}
		firstSeenAt, behindSince = r.firstSeenAt, r.behindSince
	})
	switch {
	case err != nil:
		a.setConnected(t, state, false, reasonOr(err, v1beta2.ReasonAgentNotDelivered),
			"the agent cannot be delivered: "+err.Error())
		return time.Minute
	case waitsFor != "":
		return time.Second
	case !connected && s.Connected && state.Last.IsZero() && t.Now.Sub(firstSeenAt) < a.HeartbeatTimeout():
		a.Reviews.AddAfter(name, firstSeenAt.Add(a.HeartbeatTimeout()).Sub(t.Now)+time.Second)
		return a.renewalDelay(t)
	case !connected:
		a.setConnected(t, state, false, v1beta2.ReasonAgentSilent, fmt.Sprintf(
			"no heartbeat of the agent is received: check that Deployment %s/skr-webhook of the runtime is "+
				"available, and that %s can be reached from there",
			v1beta2.RuntimeNamespace, a.Delivery.Address))
	case state.Heartbeat.Problem != "":
		a.setConnected(t, state, false, v1beta2.ReasonAgentImpaired,
			"the agent cannot watch everything: "+state.Heartbeat.Problem)
	case behind && t.Now.Sub(behindSince) >= watchlistTimeout:
		a.setConnected(t, state, false, v1beta2.ReasonAgentImpaired, fmt.Sprintf(
			"the agent does not watch what ConfigMap %s/skr-webhook-watches of the runtime lists: see its log",
			v1beta2.RuntimeNamespace))
	default:
		a.setConnected(t, state, true, "", "")
	}
	switch {
	case before && !s.Connected:
		return time.Second // objects of the agent may have been deleted; the next reconcile creates them again
	case behind && !s.Connected:
		return a.HeartbeatInterval + time.Second
	case behind:
		a.Reviews.AddAfter(name, watchlistTimeout+time.Second)
	}
	return a.renewalDelay(t)
}

// watchlistTimeout is how long an agent may take to report that it watches what its watch list says.
const watchlistTimeout = time.Minute

// renewalDelay is the time until the certificate has to be renewed, at least a minute.
func (a *Agents) renewalDelay(t Target) time.Duration {
	return max(a.Delivery.RenewalTime(t.Kyma.Status.Agent).Sub(t.Now), time.Minute)
}

// setConnected records in status.agent whether the agent is connected, and warns when it no longer is. It changes
// nothing if nothing has changed.
func (a *Agents) setConnected(t Target, state backchannel.State, connected bool, reason, message string) {
	s := t.Kyma.Status.Agent
	if s.Connected != connected {
		s.Since = metav1.NewTime(t.Now.Truncate(time.Second))
		s.LastHeartbeat, s.Sequence = metav1.Time{}, 0
		if !connected && !state.Last.IsZero() {
			//nolint:gosec // a count
			s.LastHeartbeat, s.Sequence = metav1.NewTime(state.Last.Truncate(time.Second)),
				int64(state.Heartbeat.Sequence)
		}
		if !connected {
			if t.Warn != nil {
				t.Warn(reason, message)
			}
			a.CompareDelivered(t)
			metrics.AgentProblems.WithLabelValues(reason).Inc()
		}
	}
	s.Connected, s.Reason, s.Message = connected, reason, message
	if connected {
		s.Version = state.Heartbeat.Version
		if s.Certificate != nil {
			s.Certificate.RootInUse = state.Identity.Root
		}
	}
}

// reasonOr returns the reason of an error, or another if it has none.
func reasonOr(err error, otherwise string) string {
	if reason := loop.Reason(err); reason != "" {
		return reason
	}
	return otherwise
}
