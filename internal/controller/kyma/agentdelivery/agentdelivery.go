// Package agentdelivery delivers the agent to every runtime, and keeps it up to date. The package reports in the status
// of the Kyma whether the agent is connected.
//
// # Use
//
//	a := agentdelivery.New(agentdelivery.Options{…}, agentdelivery.Controller{…})
//	plan, err := a.PlanDeliveryAndAddRefs(ctx, target)
//	…                                          // save the status, which lists the objects, before the next call
//	recheckAfter, err := a.DeliverOrRemove(ctx, target, plan)
//	err := a.Run(ctx)                          // works on Controller.Reviews
//
// # How it works
//
// The watch list of an agent contains the interests of the subscribers of its runtime, and the watches that Watchers
// request. Package delivery applies the agent with its watch list to the runtime, and issues the certificate of the
// agent. DeliverOrRemove then compares the status with the last heartbeat that the listener has received from the
// agent, and updates the status.
//
// A review of an agent decides, without any request, whether the agent needs a reconcile of the Kyma. If the agent
// needs a reconcile, the review enqueues the Kyma. Several reviews of one Kyma that are requested within a short time
// are combined into one.
//
// # What it does not do
//
// A problem of the agent never prevents the installation of modules. The package writes no condition: the Kyma
// controller derives the condition from the status of the agent.
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

// AgentStates stores the last heartbeat of every agent.
type AgentStates interface {
	// State returns the last heartbeat of the agent of a runtime. connected reports whether the heartbeat is recent
	// enough for the agent to count as connected.
	State(kyma string) (state backchannel.State, connected bool)
	// Release drops the last heartbeat of the agent of a runtime that another replica reconciles from now on.
	Release(kyma string)
	// Forget drops all data about the agent of a runtime whose Kyma is deleted.
	Forget(kyma string)
}

// Options are the dependencies and settings of the agent delivery. With the zero value of Options, no agents are
// delivered, and agents that were delivered before are removed.
type Options struct {
	// Delivery applies the agents. nil means that no agents are delivered.
	Delivery *delivery.Delivery
	// AgentStates returns which agents are connected. AgentStates is required if Delivery is set.
	AgentStates AgentStates
	// HeartbeatInterval is the time between two heartbeats of an agent.
	HeartbeatInterval time.Duration
	// FirstHeartbeatTimeout returns the time within which the first heartbeat of an agent has to reach this process,
	// counted from the first contact with the runtime. FirstHeartbeatTimeout must be cheap, because every reconcile
	// calls it. FirstHeartbeatTimeout is required if Delivery is set.
	FirstHeartbeatTimeout func() time.Duration
	// RevokeCertificates revokes the certificates of a runtime whose Kyma is deleted. If RevokeCertificates is nil, no
	// certificate is revoked.
	RevokeCertificates func(ctx context.Context, kyma string) error
}

// Controller has the parts of the Kyma controller that this package uses.
type Controller struct {
	// Client reads Kymas and Watchers from the cache.
	Client client.Client
	// Runtimes is the pool of connections to runtimes. Runtimes returns, for each runtime, which objects other
	// controllers want to be notified of (interests).
	Runtimes *runtimes.Pool
	// Namespace is the namespace of the Kymas and Watchers.
	Namespace string
	// Enqueue triggers a reconcile of a Kyma soon.
	Enqueue func(kyma string)
	// Reviews is the queue of reviews: it has the names of the Kymas whose agent is reviewed. Other parts of the
	// manager add the name of a Kyma to Reviews when a heartbeat has changed, or when the interests of a module have
	// changed.
	Reviews workqueue.TypedDelayingInterface[string]
}

// Agents delivers the agents of all runtimes. Agents is safe for concurrent use, with one condition: for each Kyma,
// only one call of PlanDeliveryAndAddRefs or DeliverOrRemove may run at a time.
type Agents struct {
	Options
	Controller

	mu      sync.Mutex
	records map[string]*record // guarded by mu; by name of the Kyma
}

// record is what the manager remembers in memory about the agent of one runtime. If the manager loses the record of a
// runtime, for example by a restart, it delivers the agent again with requests that change nothing.
type record struct {
	runtime     *runtimes.Runtime // the connection that the record belongs to
	firstSeenAt time.Time         // when this process first saw the runtime, over any connection
	// assumed is true from a start of the manager until the first heartbeat of the agent. While assumed is true, no
	// request about the agent is sent to the runtime, because its state in status.agent is assumed to be still right.
	assumed   bool
	delivered *delivery.Memory // only DeliverOrRemove and CompareAtNextDelivery use it
	// only DeliverOrRemove uses it: objects with a deletion request, if agents are disabled
	deletion *apply.DeletionProgress
	// issued has the first certificate of the agent and the digest of its watch list, until a status has them that was
	// read from the control plane: the caller may save the status later. It is nil if nothing is unsaved.
	issued *v1beta2.AgentStatus
	// behindSince is the time since when the agent reports a watch list that differs from the desired one; behindSince
	// is zero if the watch lists are equal.
	behindSince time.Time

	manifests    []string      // keys of the subscribers that the watch list depends on
	waitingSince time.Time     // since when interests are missing; zero if all subscribers have declared theirs
	waitTimeout  time.Duration // for how long PlanDeliveryAndAddRefs waits for missing interests
}

// New returns Agents without a record of any runtime.
func New(o Options, c Controller) *Agents {
	return &Agents{Options: o, Controller: c, records: map[string]*record{}}
}

// Target is the runtime to which one reconcile delivers the agent.
type Target struct {
	// Kyma is the Kyma in the control plane, whose status.agent PlanDeliveryAndAddRefs and DeliverOrRemove update.
	Kyma *v1beta2.Kyma
	// Runtime is the connection to the runtime. What the package has remembered about the runtime over another
	// connection is not used.
	Runtime *runtimes.Runtime
	// Now is the time of the reconcile.
	Now time.Time
	// Manifests are the Manifests of the modules of the runtime.
	Manifests []*v1beta2.Manifest
	// Warn records an event on the Kyma when the agent is no longer connected. nil means that no events are recorded.
	Warn func(reason, message string)
}

// Plan is the agent that [Agents.DeliverOrRemove] has to deliver to one runtime.
type Plan struct {
	agent     delivery.Plan
	watchlist string // digest of the watch list
	pending   bool   // the watch list is not complete yet, so nothing is delivered
}

// IsPending reports whether the plan delivers nothing yet, because modules have not reported what to watch.
func (p Plan) IsPending() bool { return p.pending }

// PlanDeliveryAndAddRefs computes the objects of the agent that have to be delivered, and lists them in status.agent.
// The caller must save the status before the call of [Agents.DeliverOrRemove], unless the plan is pending.
func (a *Agents) PlanDeliveryAndAddRefs(ctx context.Context, t Target) (p Plan, err error) {
	if a.Delivery == nil {
		return p, nil
	}
	agent := t.Kyma.Status.Agent
	if agent == nil {
		agent = newStatus(t.Now)
	}
	waits := a.recordInterestsWait(t) // before the interests are read
	request, err := a.desiredRequest(ctx, t.Kyma, t.Runtime.Server)
	if err != nil {
		return p, err
	}
	if waits {
		delivered, err := a.Delivery.IsDelivered(request, agent)
		if p.pending = !delivered; err != nil || p.pending {
			if err == nil {
				// The watch list is incomplete, but the references are already known. They are saved together with the
				// rest of the status, so the later delivery needs no save of its own.
				t.Kyma.Status.Agent = agent
				_, err = a.Delivery.PlanAndAddRefs(request, agent)
			}
			return p, err
		}
	}
	p.watchlist, t.Kyma.Status.Agent = request.Watchlist.Digest(), agent
	p.agent, err = a.Delivery.PlanAndAddRefs(request, agent)
	return p, err
}

// recordUnsaved records the certificate in status.agent for RestoreUnsaved. The parameter isFirst is true if the agent
// had no certificate before.
func (a *Agents) recordUnsaved(t Target, isFirst bool) {
	s := t.Kyma.Status.Agent
	a.editRecord(t, func(r *record) {
		if s.Certificate != nil && (isFirst || r.issued != nil) {
			r.issued = &v1beta2.AgentStatus{Certificate: s.Certificate.DeepCopy(), Digest: s.Digest}
		}
	})
}

// RestoreUnsaved adds to status.agent the first certificate of the agent, if an earlier call of DeliverOrRemove has
// issued it and the status was not saved since. Without RestoreUnsaved, the agent would get another certificate.
func (a *Agents) RestoreUnsaved(t Target) {
	s := t.Kyma.Status.Agent
	if s == nil {
		return
	}
	a.editRecord(t, func(r *record) {
		switch {
		case s.Certificate != nil:
			r.issued = nil
		case r.issued != nil:
			s.Certificate, s.Digest = r.issued.Certificate.DeepCopy(), r.issued.Digest
		}
	})
}

// newStatus returns the status of an agent before any of its objects is delivered.
func newStatus(now time.Time) *v1beta2.AgentStatus {
	return &v1beta2.AgentStatus{Since: metav1.NewTime(now.Truncate(time.Second))}
}

// DeliverOrRemove applies the plan to the agent of a runtime and updates status.agent. If agents are disabled,
// DeliverOrRemove removes the agent. recheckAfter is the time after which the Kyma is reconciled again even without an
// event; 0 means never.
func (a *Agents) DeliverOrRemove(ctx context.Context, t Target, p Plan) (recheckAfter time.Duration, err error) {
	if a.Delivery == nil {
		return 0, a.removeAgent(ctx, t)
	}
	if t.Kyma.Status.Agent == nil {
		t.Kyma.Status.Agent = newStatus(t.Now)
	}
	const compareInterval = 5 * time.Minute // between comparisons while the agent is not connected
	var delivered *delivery.Memory
	a.editRecord(t, func(r *record) { delivered = r.delivered })
	s := t.Kyma.Status.Agent
	if !s.Connected {
		delivered.RequireComparisonUnlessDoneWithin(compareInterval)
	}
	var waitsFor string
	isFirst := s.Certificate == nil
	if !p.pending {
		waitsFor, err = a.Delivery.Deliver(ctx, t.Runtime.Cluster, p.agent, delivered, s)
	}
	a.recordUnsaved(t, isFirst)
	recheckAfter = a.updateStatus(t, p, waitsFor, err)
	connection := runtimes.AgentDisconnected
	if startTime := remainingStartTime(s, t.Now); s.Connected {
		connection = runtimes.AgentConnected
	} else if startTime > 0 && (err == nil || runtimes.IsUnanswered(err)) && s.Reason != v1beta2.ReasonAgentImpaired {
		connection = runtimes.AgentStarting
		a.Reviews.AddAfter(t.Kyma.Name, startTime+time.Second)
	}
	a.Runtimes.RecordAgentConnection(t.Kyma.Name, connection)
	switch {
	case err != nil:
		log.FromContext(ctx).Info("agent cannot be delivered", "problem", err.Error())
	case waitsFor != "":
		log.FromContext(ctx).V(1).Info("agent is being delivered", "waitingFor", waitsFor)
	}
	return recheckAfter, nil
}

// startPeriod is the time in which a new agent is expected to connect. It begins when the status of the Kyma lists the
// agent for the first time. Within startPeriod, the runtime counts as watched: the first events of the agent contain
// all objects and their states, so modules that are installed together with the agent need not be polled. An object
// whose event is late is read anyway.
const startPeriod = 30 * time.Second

// remainingStartTime returns the rest of startPeriod if the agent was never connected, or 0. If the start is in the
// future, because the clock of another replica is fast, remainingStartTime returns 0.
func remainingStartTime(s *v1beta2.AgentStatus, now time.Time) time.Duration {
	age := now.Sub(s.Since.Time)
	if s.Connected || s.Version != "" || !s.LastHeartbeat.IsZero() || age < 0 || age >= startPeriod {
		return 0
	}
	return startPeriod - age
}

// removeAgent deletes an agent that was delivered at a time when agents were enabled.
func (a *Agents) removeAgent(ctx context.Context, t Target) error {
	s := t.Kyma.Status.Agent
	if s == nil {
		return nil
	}
	var deletion *apply.DeletionProgress
	a.editRecord(t, func(r *record) { deletion = r.deletion })
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

// AdoptFormerWatcherObjects adds, to status.agent, the objects of the Kyma project's watcher (its counterpart of the
// agent) if the Kyma project's lifecycle-manager has left these objects in the runtime. The Kyma project's
// lifecycle-manager sets the condition SKRWebhook on every Kyma with a watcher, but does not set status.agent. Our
// manager, in contrast, sets the condition SKRWebhook only together with status.agent. If a Kyma has the condition
// SKRWebhook and no status.agent, objects of the Kyma project's watcher are therefore in the runtime.
func AdoptFormerWatcherObjects(k *v1beta2.Kyma, now time.Time) {
	s := &k.Status
	if s.Agent == nil && meta.FindStatusCondition(s.Conditions, v1beta2.ConditionSKRWebhook) != nil {
		s.Agent = newStatus(now)
		s.Agent.Synced = delivery.KymaProjectObjects()
	}
}

// CompareAtNextDelivery makes the next DeliverOrRemove compare the objects of the agent in the runtime with the desired
// ones, because somebody may have deleted objects.
func (a *Agents) CompareAtNextDelivery(t Target) {
	a.editRecord(t, func(r *record) { r.delivered.RequireComparisonUnlessDoneWithin(0) })
}

// ReportsChanges reports whether an agent with a valid certificate reports the changes in the runtime. ReportsChanges
// reads only the status, and sends no request.
func (a *Agents) ReportsChanges(s *v1beta2.AgentStatus, now time.Time) bool {
	return a.Delivery != nil && s != nil && s.Connected && now.Before(a.Delivery.RenewalTime(s))
}

// AssumeUnchanged records that the status of a runtime is assumed to be right, although no request was made to the
// runtime. The Kyma is enqueued after the first heartbeat of the agent, or after the heartbeat timeout if no heartbeat
// arrives.
func (a *Agents) AssumeUnchanged(kyma string, now time.Time) {
	a.editRecord(Target{Kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: kyma}}, Now: now},
		func(r *record) { r.assumed = true })
	a.Reviews.AddAfter(kyma, a.FirstHeartbeatTimeout())
	if state, _ := a.AgentStates.State(kyma); !state.Last.IsZero() {
		a.Enqueue(kyma) // the first heartbeat came before this call
	}
}

// CertificateOverdue returns how long the renewal of an agent's certificate is overdue, or 0 if the renewal is not
// overdue.
func (a *Agents) CertificateOverdue(s *v1beta2.AgentStatus, now time.Time) time.Duration {
	if a.Delivery == nil || s == nil || a.Delivery.RenewalTime(s).IsZero() {
		return 0
	}
	return max(now.Sub(a.Delivery.RenewalTime(s)), 0)
}

// RevokeCertificatesOf revokes the certificates of a runtime whose Kyma is deleted.
func (a *Agents) RevokeCertificatesOf(ctx context.Context, kyma string) error {
	if a.RevokeCertificates == nil {
		return nil
	}
	if err := a.RevokeCertificates(ctx, kyma); err != nil {
		return fmt.Errorf("revoking the certificates of runtime %s: %w", kyma, err)
	}
	return nil
}

// Forget drops the record of a runtime whose Kyma is deleted, or is reconciled by another replica.
func (a *Agents) Forget(kyma string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.records, kyma)
}

// ReleaseHeartbeats drops the last heartbeat of the agent of a runtime that another replica reconciles from now on.
func (a *Agents) ReleaseHeartbeats(kyma string) {
	if a.AgentStates != nil {
		a.AgentStates.Release(kyma)
	}
}

// ForgetHeartbeats drops the last heartbeat of the agent of a runtime whose Kyma is deleted.
func (a *Agents) ForgetHeartbeats(kyma string) {
	if a.AgentStates != nil {
		a.AgentStates.Forget(kyma)
	}
}

// editRecord calls f with the record of a runtime, under the lock. If the runtime has no record, or its record belongs
// to another connection than that of the target t, editRecord calls f with a new, empty record.
func (a *Agents) editRecord(t Target, f func(*record)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.records[t.Kyma.Name]
	if r == nil || r.runtime != t.Runtime {
		next := &record{runtime: t.Runtime, firstSeenAt: t.Now, delivered: &delivery.Memory{},
			deletion: &apply.DeletionProgress{}}
		if r == nil || r.assumed {
			next.delivered.AssumeCompared() // objects from before the start of this process are assumed unchanged
		}
		if r != nil {
			next.firstSeenAt = r.firstSeenAt
		}
		r = next
		a.records[t.Kyma.Name] = r
	}
	f(r)
}

// updateStatus updates status.agent and returns the time until the next check. The first row that fits determines the
// status:
//
//	1  the agent could not be delivered                                  not connected: reason of the error
//	2  the delivery is not complete, or a request was postponed          unchanged
//	3  the agent was connected; its first heartbeat is not due yet       unchanged
//	4  there is no heartbeat, or none within the heartbeat timeout       not connected: AgentSilent
//	5  the agent reports that it cannot watch something                  not connected: AgentImpaired
//	6  the agent has not taken over its watch list in time               not connected: AgentImpaired
//	7  any other agent                                                   connected
//
// Row 3 of this table applies after a start of the manager, to an agent that has not sent a heartbeat to this process
// yet.
func (a *Agents) updateStatus(t Target, p Plan, waitsFor string, err error) (recheckAfter time.Duration) {
	s, name := t.Kyma.Status.Agent, t.Kyma.Name
	state, connected := a.AgentStates.State(name)
	before := s.Connected
	behind := connected && !p.pending && state.Heartbeat.Watchlist != p.watchlist
	var firstSeenAt, behindSince time.Time
	a.editRecord(t, func(r *record) {
		switch {
		case !behind:
			r.behindSince = time.Time{}
		case r.behindSince.IsZero():
			r.behindSince = t.Now
		}
		firstSeenAt, behindSince = r.firstSeenAt, r.behindSince
	})
	switch {
	case runtimes.IsUnanswered(err):
		return time.Second
	case err != nil:
		a.setConnected(t, state, false, reasonOr(err, v1beta2.ReasonAgentNotDelivered),
			"the agent cannot be delivered: "+err.Error())
		return time.Minute
	case waitsFor != "":
		return time.Second
	case !connected && s.Connected && state.Last.IsZero() && t.Now.Sub(firstSeenAt) < a.FirstHeartbeatTimeout():
		a.Reviews.AddAfter(name, firstSeenAt.Add(a.FirstHeartbeatTimeout()).Sub(t.Now)+time.Second)
		return a.renewalDelay(t)
	case !connected:
		a.setConnected(t, state, false, v1beta2.ReasonAgentSilent, fmt.Sprintf(
			"no heartbeat of the agent is received: check that Deployment %s/skr-webhook of the runtime is "+
				"available, and that %s can be reached from there",
			v1beta2.RuntimeNamespace, a.Delivery.Address))
	case state.Heartbeat.Problem != "":
		a.setConnected(t, state, false, v1beta2.ReasonAgentImpaired,
			"the agent does not work fully: "+state.Heartbeat.Problem)
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

// watchlistTimeout is the maximum time until an agent reports that it watches everything in its watch list.
const watchlistTimeout = time.Minute

// renewalDelay returns the time until the certificate has to be renewed, but at least one minute. If the certificate is
// revoked at an earlier time, renewalDelay returns the time until then.
func (a *Agents) renewalDelay(t Target) time.Duration {
	delay := max(a.Delivery.RenewalTime(t.Kyma.Status.Agent).Sub(t.Now), time.Minute)
	if revoked := certificatesNotBefore(t.Kyma.Annotations); revoked.After(t.Now) {
		delay = min(delay, revoked.Sub(t.Now)+time.Second)
	}
	return delay
}

// setConnected records in status.agent whether the agent is connected. If the agent is no longer connected,
// setConnected also records a warning. If nothing has changed, the status stays the same.
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
			a.CompareAtNextDelivery(t)
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

// reasonOr returns the reason code of an error, or the given default if the error has none.
func reasonOr(err error, otherwise string) string {
	if reason := loop.Reason(err); reason != "" {
		return reason
	}
	return otherwise
}
