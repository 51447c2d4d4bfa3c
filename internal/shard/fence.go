package shard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// errLost is why a pass is cancelled, and why its requests are not sent any more.
var errLost = errors.New("the shard of this runtime is not held any more")

// held is the value of a pass's context: what the pass is allowed by.
type held struct {
	keeper *Keeper
	tenure *tenure
}

// heldKey finds held in a context.
type heldKey struct{}

// BeginReconcile begins a pass over the runtime of a Kyma, if its shard is held. Then the context is that of the pass: it is cancelled when
// the shard is lost, and whatever is to be written for the runtime has to use it. The caller calls leave when the pass is over; a hand-over waits
// for that. If the shard is not held, the caller must do nothing for this runtime, and ours is false.
//
// A nil Keeper holds everything.
func (k *Keeper) BeginReconcile(ctx context.Context, kyma string) (_ context.Context, leave func(), ours bool) {
	if k == nil {
		return ctx, func() {}, true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.tenures[Of(kyma)]
	if t == nil || !t.open || !k.isValid() {
		return ctx, func() {}, false
	}
	t.passes++
	ctx, cancel := context.WithCancel(context.WithValue(ctx, heldKey{}, held{k, t}))
	stop := context.AfterFunc(t.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		k.mu.Lock()
		defer k.mu.Unlock()
		t.passes--
		t.settleLocked()
	}, true
}

// Holds tells whether the shard of a runtime is held now. A nil Keeper holds everything.
func (k *Keeper) Holds(kyma string) bool {
	if k == nil {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.tenures[Of(kyma)]
	return t != nil && t.open && k.isValid()
}

// CheckHeld returns an error if the context is that of a pass over a runtime whose shard is not held any more. Of any other context it knows nothing,
// and returns nil.
func CheckHeld(ctx context.Context) error {
	h, in := ctx.Value(heldKey{}).(held)
	if !in || h.tenure.ctx.Err() == nil && h.keeper.isValid() {
		return nil
	}
	return errLost
}

// current returns the shard that a pass is about, -1 if the context is not of a pass.
func current(ctx context.Context) int {
	if h, in := ctx.Value(heldKey{}).(held); in {
		return h.tenure.shard
	}
	return -1
}

// isValid tells whether this replica may still act, by the time since its last renewal was begun. Both clocks have to agree: the monotonic one
// stands still while a machine is suspended, and the other one can be set.
func (k *Keeper) isValid() bool {
	sent := k.sent.Load()
	if sent == nil {
		return false
	}
	now, valid := time.Now(), k.opts.valid()
	return now.Sub(*sent) < valid && now.Round(0).Sub(sent.Round(0)) < valid
}

// FencedTransport returns next behind a check: requests with the context of a pass whose shard is not held any more fail and are not sent.
func FencedTransport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := CheckHeld(r.Context()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as every RoundTripper has to
		}
		return nil, fmt.Errorf("sending a request: %w", err)
	}
	return t.next.RoundTrip(r)
}

// WrappedRoundTripper returns what is behind the check, for those who look for a transport to close its connections.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
