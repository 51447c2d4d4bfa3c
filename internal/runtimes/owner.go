package runtimes

import (
	"context"
	"errors"
)

// A runtime may belong to another Kyma or another control plane. Therefore a new connection is not given to all callers
// at once. The verifier, which is the controller of Kymas, gets the connection from Connect, reads the runtime, and
// calls MarkOwned or Refuse. All other callers use Get. Until the verifier has decided, Get returns an error, and asks
// the verifier to decide. MarkOwned and Refuse notify the subscribers. If Options.VerifyOwner is not set, every
// connection counts as verified.

// ownerState is what is known about the owner of the runtime behind one connection. Pool.mu guards all fields.
type ownerState struct {
	verified  bool   // the runtime belongs to the Kyma
	refused   *Error // why the runtime must not be used; nil if it is not refused
	wanted    bool   // a Get failed because the owner was not known
	verifying bool   // the verifier has the connection and will decide
}

// errorOf returns the reason why the connection must not be used, or nil if it may be used. The caller of errorOf must
// hold Pool.mu.
func (s *ownerState) errorOf(kyma string) error {
	switch {
	case s.verified:
		return nil
	case s.refused != nil:
		return s.refused
	}
	return &Error{Code: OwnerNotVerified, Runtime: kyma, Message: "the owner of the runtime is not verified yet"}
}

// IsNotVerified reports whether an error means that the owner of a runtime is not verified yet. In this case, the
// caller has to wait for a notification of the pool.
func IsNotVerified(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == OwnerNotVerified
}

// IsOthers reports whether an error means that the runtime must not be used at all. There are three such cases: it
// belongs to another owner, it is the control plane itself, or it is another cluster than before.
func IsOthers(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Code == RuntimeTaken || e.Code == RuntimeIsControlPlane || e.Code == RuntimeReplaced)
}

// Connect is Get for the verifier: it returns a connection even if the owner of the runtime is not known. After that,
// the caller has to call MarkOwned or Refuse. If the caller cannot decide, it has to try again later.
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

// checkOwner returns an error if the owner of the runtime is not verified yet. If the verifier has not decided yet,
// checkOwner asks the verifier to decide.
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

// needsVerification reports whether connections of this pool have to be verified.
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

// MarkOwned records that the runtime belongs to its Kyma. If other callers wait for this decision, all subscribers are
// notified, except the subscriber with the key verifier.
func (p *Pool) MarkOwned(kyma string, rt *Runtime, verifier string) {
	p.setOwner(kyma, rt, verifier, ownerState{verified: true})
}

// Refuse records that the runtime must not be used. All subscribers are notified, except the subscriber with the key
// verifier.
func (p *Pool) Refuse(kyma string, rt *Runtime, verifier string, why *Error) {
	p.setOwner(kyma, rt, verifier, ownerState{refused: why})
}

// setOwner replaces the owner state of a connection. If a caller may have got another result before, setOwner notifies
// all subscribers.
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
