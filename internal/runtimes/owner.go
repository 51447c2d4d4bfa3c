package runtimes

import (
	"context"
	"errors"
	"time"
)

// An access Secret may contain the kubeconfig of a runtime that belongs to another Kyma or to another control plane.
// Therefore, until the owner of a runtime is verified, only the verifier can use the connection. The verifier, which is
// the controller of Kymas, gets the connection from GetBeforeOwnerVerified, reads the runtime, and calls MarkOwned or
// Refuse. All other callers use Get. Until the verifier has called MarkOwned or Refuse, Get returns an error, and asks
// the verifier to decide. MarkOwned and Refuse notify the subscribers of the runtime that its connection has changed.
// If Options.VerifyOwner is not set, every connection counts as verified.

// ownerState is what is known about the owner of the runtime behind one connection. Pool.mu guards all fields.
type ownerState struct {
	verified   bool      // the runtime belongs to the Kyma
	verifiedAt time.Time // when this was decided last
	refused    *Error    // why the runtime must not be used; nil if it is not refused
	wanted     bool      // a Get failed because the owner was not known
	verifying  bool      // the verifier has the connection and will decide
}

// errorOf returns the reason why the connection must not be used, or nil if it may be used. The caller of errorOf must
// hold Pool.mu, which guards the fields of ownerState.
func (s *ownerState) errorOf(kyma string) error {
	switch {
	case s.verified:
		return nil
	case s.refused != nil:
		return s.refused
	}
	return &Error{Code: OwnerNotVerified, Runtime: kyma, Message: "the owner of the runtime is not verified yet"}
}

// IsOwnerNotVerified reports whether an error means that the owner of a runtime is not verified yet. After such an
// error of Get, the caller has to wait until the pool notifies the caller of a changed connection.
func IsOwnerNotVerified(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == OwnerNotVerified
}

// IsRuntimeRefused reports whether an error means that this control plane must not use the runtime at all. The runtime
// must not be used if it belongs to another owner, if it is the cluster of the control plane itself, or if it is
// another cluster than before.
func IsRuntimeRefused(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Code == RuntimeTaken || e.Code == RuntimeIsControlPlane || e.Code == RuntimeReplaced)
}

// GetBeforeOwnerVerified is the variant of Get for the verifier, which is the controller that checks to which Kyma a
// runtime belongs. GetBeforeOwnerVerified returns a connection even before this controller has checked the runtime.
// After GetBeforeOwnerVerified, the verifier has to find out the owner of the runtime and then call MarkOwned or
// Refuse. If the verifier cannot find out the owner, it has to call GetBeforeOwnerVerified again later.
func (p *Pool) GetBeforeOwnerVerified(ctx context.Context, kyma string) (*Runtime, error) {
	rt, err := p.ensureUsableConnection(ctx, kyma)
	if err != nil {
		p.notifyOnNextConnection(kyma)
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	rt.owner.verifying = true
	return rt, nil
}

// requireVerifiedOwner returns an error if the owner of the runtime is not verified yet, or if the verifier has refused
// the runtime. If the verifier has neither called GetBeforeOwnerVerified nor decided about the owner,
// requireVerifiedOwner calls Options.VerifyOwner.
func (p *Pool) requireVerifiedOwner(kyma string, rt *Runtime) error {
	if !p.needsVerification() {
		return nil
	}
	p.mu.Lock()
	err := rt.owner.errorOf(kyma)
	asks := err != nil && rt.owner.refused == nil
	rt.owner.wanted = rt.owner.wanted || asks
	asks = asks && !rt.owner.verifying
	p.mu.Unlock()
	if asks {
		p.opts.VerifyOwner(kyma)
	}
	return err
}

// needsVerification reports whether the verifier has to verify the owner of the runtime before a connection of this
// pool may be used.
func (p *Pool) needsVerification() bool { return p.opts.VerifyOwner != nil && p.opts.Self == nil }

// IsVerificationRequested reports whether the verifier has to decide about the owner of a runtime, because another
// caller needs the connection.
func (p *Pool) IsVerificationRequested(kyma string) bool {
	rt := p.connectionIfOpen(kyma)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.needsVerification() && rt != nil && rt.owner.wanted
}

// IsOwned reports whether the verifier has called MarkOwned for the present connection.
func (p *Pool) IsOwned(kyma string) bool {
	rt := p.connectionIfOpen(kyma)
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.needsVerification() || rt != nil && rt.owner.verified
}

// IsOwnerVerifiedWithin reports whether the verifier has decided during the last period, in favour of the Kyma, to
// which owner the runtime belongs. Every connection of a pool that needs no verification counts as just verified.
func (p *Pool) IsOwnerVerifiedWithin(rt *Runtime, period time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.needsVerification() || rt.owner.verified && time.Since(rt.owner.verifiedAt) < period
}

// MarkOwned records that the runtime belongs to its Kyma. If a Get has failed because the owner was not verified,
// MarkOwned notifies the subscribers of the runtime. The subscriber with the key in the parameter notifyExcept is not
// notified, because it has made the decision itself.
func (p *Pool) MarkOwned(kyma string, rt *Runtime, notifyExcept string) {
	p.setOwnerState(kyma, rt, notifyExcept, ownerState{verified: true, verifiedAt: time.Now()})
}

// Refuse records that the runtime must not be used, and notifies the subscribers of the runtime. The parameter
// notifyExcept is the Subscriber.Key of the caller: Refuse does not notify this subscriber, because it has made the
// decision itself.
func (p *Pool) Refuse(kyma string, rt *Runtime, notifyExcept string, why *Error) {
	p.setOwnerState(kyma, rt, notifyExcept, ownerState{refused: why})
}

// setOwnerState replaces the owner state of a connection. If the next Get may return another result than an earlier
// Get, setOwnerState notifies all subscribers except the one with the key notifyExcept.
func (p *Pool) setOwnerState(kyma string, rt *Runtime, notifyExcept string, state ownerState) {
	p.mu.Lock()
	former := rt.owner
	rt.owner = state
	same := former.verified == state.verified && (former.refused == nil) == (state.refused == nil) &&
		(former.refused == nil || *former.refused == *state.refused)
	isNew := !former.verified && former.refused == nil
	var all []Subscriber
	if !same && (!isNew || former.wanted || state.refused != nil) {
		all = p.entries[kyma].allSubscribers()
	}
	p.mu.Unlock()
	for _, s := range all {
		if s.Key != notifyExcept {
			s.Notify(Event{ConnectionChanged: true})
		}
	}
}
