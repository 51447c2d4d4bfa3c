package runtimes

import (
	"context"
	"errors"
)

// A runtime may belong to another Kyma or another control plane. Therefore a new connection is not handed out at once.
// The verifier, which is the controller of Kymas, gets it from Connect, reads the runtime, and calls MarkOwned or
// Refuse. All other callers use Get. Get returns an error until the verifier has decided, and asks the verifier to do
// so. MarkOwned and Refuse notify the subscribers. Without Options.VerifyOwner, every connection counts as verified.

// ownerState is the known state of the ownership of the runtime behind one connection. Pool.mu guards all fields.
type ownerState struct {
	verified  bool   // the runtime belongs to the Kyma
	refused   *Error // why the runtime must not be used; nil if it is not refused
	wanted    bool   // a Get failed because the owner was not known
	verifying bool   // the verifier has the connection and will decide
}

// errorOf returns the reason why the connection must not be used, or nil. The caller holds Pool.mu.
func (s *ownerState) errorOf(kyma string) error {
	switch {
	case s.verified:
		return nil
	case s.refused != nil:
		return s.refused
	}
	return &Error{Code: OwnerNotVerified, Runtime: kyma, Message: "the owner of the runtime is not verified yet"}
}

// IsNotVerified reports whether an error means that the owner of a runtime is not verified yet. The caller then waits
// for a notification of the pool.
func IsNotVerified(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == OwnerNotVerified
}

// IsOthers reports whether an error means that the runtime must not be used at all: it belongs to another owner, it is
// the control plane itself, or it is another cluster than before.
func IsOthers(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Code == RuntimeTaken || e.Code == RuntimeIsControlPlane || e.Code == RuntimeReplaced)
}

// Connect does the same as Get for the verifier: it returns a connection regardless of the owner of the runtime. The
// caller has to call MarkOwned or Refuse. If the caller cannot decide, it has to try again later.
func (p *Pool) Connect(ctx context.Context, kyma string) (*Runtime, error) {
	rt, err := p.connect(ctx, kyma)
	if err != nil {
		p.recordFailedGet(kyma)
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	rt.owner.verifying = true
	return rt, nil
}

// checkOwner returns an error if the owner of the runtime is not verified. If the verifier has not decided yet,
// checkOwner asks it to do so.
func (p *Pool) checkOwner(kyma string, rt *Runtime) error {
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

// needsVerification reports whether connections have to be verified.
func (p *Pool) needsVerification() bool { return p.opts.VerifyOwner != nil && p.opts.Self == nil }

// IsOwnerWanted reports whether the verifier has to decide about the owner of a runtime, because another caller needs
// the connection.
func (p *Pool) IsOwnerWanted(kyma string) bool {
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

// MarkOwned records that the runtime belongs to the Kyma. If other callers wait for the owner, all subscribers are
// notified, except the one with the key verifier.
func (p *Pool) MarkOwned(kyma string, rt *Runtime, verifier string) {
	p.setOwner(kyma, rt, verifier, ownerState{verified: true})
}

// Refuse records that the runtime must not be used. All subscribers are notified, except the one with the key verifier.
func (p *Pool) Refuse(kyma string, rt *Runtime, verifier string, why *Error) {
	p.setOwner(kyma, rt, verifier, ownerState{refused: why})
}

// setOwner replaces the state of a connection. If a subscriber may have received another state, setOwner notifies all
// subscribers.
func (p *Pool) setOwner(kyma string, rt *Runtime, verifier string, state ownerState) {
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
		if s.Key != verifier {
			s.Notify(Event{ConnectionChanged: true})
		}
	}
}
