package agentdelivery

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Run works on the reviews until ctx ends. A review enqueues a Kyma if the state of its agent, or what the agent has to
// watch, differs from the status of the Kyma. It makes no request.
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
		case recheckAfter > 0: // the queue has one time for each Kyma: this review may have replaced a later one
			a.Reviews.AddAfter(kyma, recheckAfter+time.Millisecond)
		}
		a.Reviews.Done(kyma)
	}
}

// needsReconcile returns whether a reconcile would find something to do for the agent of a runtime; if not, after which
// time to review again although nothing happens, 0 for never. A Kyma without a record has its first reconcile before
// it.
//
//	the status is only assumed                                  yes, after the first heartbeat or the heartbeat timeout
//	the status is connected, the agent is not                   yes; of a runtime that was first seen by this process: after the heartbeat timeout
//	the agent is connected, the status is not                   yes
//	another version, a problem, a certificate of another root   yes
//	Manifests have not declared their interests                 no: after the timeout for that
//	another watch list than delivered, or than reported         yes
func (a *Agents) needsReconcile(ctx context.Context, kyma string) (needed bool, recheckAfter time.Duration) {
	a.mu.Lock()
	r := a.records[kyma]
	if r != nil && r.assumed {
		left := a.HeartbeatTimeout() - time.Since(r.firstSeenAt)
		a.mu.Unlock()
		state, _ := a.AgentStates.State(kyma)
		return !state.Last.IsZero() || left <= 0, left
	}
	if r == nil || r.runtime == nil || a.Delivery == nil {
		a.mu.Unlock()
		return false, 0
	}
	firstSeenAt, server, manifests := r.firstSeenAt, r.runtime.Server, r.manifests
	var interestsTimeout time.Duration // what is left of it
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
		recheckAfter = a.HeartbeatTimeout() - time.Since(firstSeenAt)
		if connected || !state.Last.IsZero() || recheckAfter <= 0 {
			return true, 0
		}
	}
	isNewRoot := s.Certificate != nil && s.Certificate.RootInUse != state.Identity.Root
	if connected && (s.Version != state.Heartbeat.Version || state.Heartbeat.Problem != "" || isNewRoot) {
		return true, 0
	}
	if interestsTimeout > 0 && !a.haveInterests(kyma, manifests) {
		return false, cmp.Or(min(recheckAfter, interestsTimeout), interestsTimeout)
	}
	request, err := a.request(ctx, k, server)
	if err != nil {
		return true, 0
	}
	delivered, err := a.Delivery.IsDelivered(request, s)
	isListReported := !connected || state.Heartbeat.Watchlist == request.Watchlist.Digest()
	return err != nil || !delivered || !isListReported, recheckAfter
}
