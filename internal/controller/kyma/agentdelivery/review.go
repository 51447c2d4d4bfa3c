package agentdelivery

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// Run executes the reviews until ctx ends. A review compares the status of a Kyma with the state of its agent and with
// the desired watch list. If the desired objects of the agent differ from the delivered ones, the review enqueues the
// Kyma. If a new agent has not connected in time, the review records that the runtime is not watched. A review sends no
// request.
func (a *Agents) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, a.Reviews.ShutDown)()
	for {
		kyma, end := a.Reviews.Get()
		if end {
			return nil
		}
		needed, recheckAfter := a.needsReconcile(ctx, kyma)
		switch {
		case needed:
			a.Enqueue(kyma)
		case recheckAfter > 0: // the queue has one entry per Kyma: this review may have replaced a later one
			a.Reviews.AddAfter(kyma, recheckAfter+time.Millisecond)
		}
		a.Reviews.Done(kyma)
	}
}

// needsReconcile returns whether the Kyma has to be reconciled because of its agent. If no reconcile is needed,
// recheckAfter is the time until the next review, unless an event triggers a review earlier; 0 means never. If a Kyma
// has no record, needsReconcile returns false, because the first reconcile of the Kyma has not run yet. The first case
// that applies decides:
//
//	the status is only assumed                                  yes, after the first heartbeat or the heartbeat timeout
//	status connected, agent silent for the heartbeat timeout    yes
//	the same, but this process has received no heartbeat yet    yes, a heartbeat timeout after the first contact
//	agent connected, status not connected                       yes
//	a new agent is not connected, runtime counts as watched     yes, after the start period
//	another version, a problem, a certificate of another root   yes
//	Manifests have not declared their interests                 no, until the interests timeout
//	the desired watch list is not the delivered one             yes
//	the desired watch list is not the reported one              yes
func (a *Agents) needsReconcile(ctx context.Context, kyma string) (needed bool, recheckAfter time.Duration) {
	a.mu.Lock()
	r := a.records[kyma]
	if r != nil && r.assumed {
		left := a.FirstHeartbeatTimeout() - time.Since(r.firstSeenAt)
		a.mu.Unlock()
		state, _ := a.AgentStates.State(kyma)
		return !state.Last.IsZero() || left <= 0, left
	}
	if r == nil || r.runtime == nil || a.Delivery == nil {
		a.mu.Unlock()
		return false, 0
	}
	firstSeenAt, server, manifests := r.firstSeenAt, r.runtime.Server, r.manifests
	var interestsTimeout time.Duration // the rest of the interests timeout
	if !r.waitingSince.IsZero() {
		interestsTimeout = r.waitTimeout - time.Since(r.waitingSince)
	}
	a.mu.Unlock()
	k := &v1beta2.Kyma{}
	key := types.NamespacedName{Namespace: a.Namespace, Name: kyma}
	if err := a.Client.Get(ctx, key, k, client.DisableReadYourWritesConsistency); err != nil {
		return false, 0 // the Kyma is deleted
	}
	s := k.Status.Agent
	if s == nil {
		return true, 0
	}
	state, connected := a.AgentStates.State(kyma)
	if s.Connected != connected {
		recheckAfter = a.FirstHeartbeatTimeout() - time.Since(firstSeenAt)
		if connected || !state.Last.IsZero() || recheckAfter <= 0 {
			return true, 0
		}
	}
	if !connected && !s.Connected && s.Version == "" && a.Runtimes.IsWatched(kyma) {
		startTime := remainingStartTime(s, time.Now())
		if startTime <= 0 {
			// The reconcile may end before it delivers the agent, for example because the Kyma is paused.
			a.Runtimes.RecordAgentConnection(kyma, runtimes.AgentDisconnected)
			return true, 0
		}
		recheckAfter = cmp.Or(min(recheckAfter, startTime), startTime)
	}
	isNewRoot := s.Certificate != nil && s.Certificate.RootInUse != state.Identity.Root
	if connected && (s.Version != state.Heartbeat.Version || state.Heartbeat.Problem != "" || isNewRoot) {
		return true, 0
	}
	if interestsTimeout > 0 && !a.haveAllDeclaredInterests(kyma, manifests) {
		return false, cmp.Or(min(recheckAfter, interestsTimeout), interestsTimeout)
	}
	request, err := a.desiredRequest(ctx, k, server)
	if err != nil {
		return true, 0
	}
	delivered, err := a.Delivery.IsDelivered(request, s)
	isListReported := !connected || state.Heartbeat.Watchlist == request.Watchlist.Digest()
	return err != nil || !delivered || !isListReported, recheckAfter
}
