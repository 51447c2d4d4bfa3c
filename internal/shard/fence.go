package shard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrLost is the error of a reconcile whose shard is not held by this replica any more. When the replica loses the
// shard, the context of the reconcile is cancelled, and further requests of the reconcile fail with ErrLost. The cause
// of the cancellation is [context.Canceled], because work that is shared by several reconciles has to recognise that
// only its first caller was cancelled.
var ErrLost = errors.New("the shard of this runtime is not held any more")

// fence is the value in the context of a reconcile by which CheckHeld finds the shard of the reconcile.
type fence struct {
	keeper *Keeper
	tenure *holding
}

// fenceKey is the context key under which a fence is stored.
type fenceKey struct{}

// BeginReconcile begins a reconcile of the runtime of a Kyma if this replica holds the shard of the Kyma. The returned
// context is cancelled when the shard is lost. All requests for this runtime have to use the returned context. The
// caller has to call done at the end of the reconcile. The replica does not release a shard before done was called for
// every reconcile of the shard. If held is false, the caller must not work on the runtime.
//
// A nil Keeper counts as holding all shards.
func (k *Keeper) BeginReconcile(ctx context.Context, kyma string) (_ context.Context, done func(), held bool) {
	if k == nil {
		return ctx, func() {}, true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.holdings[Of(kyma)]
	if t == nil || !t.open || !k.isLeaseValid() {
		return ctx, func() {}, false
	}
	t.reconciles++
	ctx, cancel := context.WithCancel(context.WithValue(ctx, fenceKey{}, fence{k, t}))
	stop := context.AfterFunc(t.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		k.mu.Lock()
		defer k.mu.Unlock()
		t.reconciles--
		t.signalIdleLocked()
	}, true
}

// Holds reports whether this replica holds the shard of a Kyma. A nil Keeper counts as holding all shards.
func (k *Keeper) Holds(kyma string) bool {
	if k == nil {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.holdings[Of(kyma)]
	return t != nil && t.open && k.isLeaseValid()
}

// CheckHeld returns an error if the context is the context of a reconcile and this replica has lost the shard of that
// reconcile. For a context that does not come from BeginReconcile, CheckHeld returns nil.
func CheckHeld(ctx context.Context) error {
	h, in := ctx.Value(fenceKey{}).(fence)
	if !in || h.tenure.ctx.Err() == nil && h.keeper.isLeaseValid() {
		return nil
	}
	return ErrLost
}

// WithoutFence returns a copy of ctx that belongs to no reconcile, so CheckHeld returns nil for it. WithoutFence is for
// reads on behalf of all runtimes, such as reading the credentials of a registry. Several reconciles share the pull of
// an artefact; if the shard of the reconcile that has started the pull is lost, the pull must go on for the others.
func WithoutFence(ctx context.Context) context.Context {
	return context.WithValue(ctx, fenceKey{}, nil)
}

// OfReconcile returns the shard that is needed by the reconcile to which a context belongs. OfReconcile returns -1 if
// the context belongs to no reconcile.
func OfReconcile(ctx context.Context) int {
	if h, in := ctx.Value(fenceKey{}).(fence); in {
		return h.tenure.shard
	}
	return -1
}

// isLeaseValid reports whether the last renewal is so recent that this replica may still act. isLeaseValid measures the
// time since the start of the last renewal with two clocks: the monotonic clock, which stops while a machine is
// suspended, and the wall clock, which somebody can set.
func (k *Keeper) isLeaseValid() bool {
	sent := k.renewedAt.Load()
	if sent == nil {
		return false
	}
	now, valid := time.Now(), k.opts.validPeriod()
	return now.Sub(*sent) < valid && now.Round(0).Sub(sent.Round(0)) < valid
}

// FencedTransport returns a transport that checks each request, and sends it through next if it is allowed. If the
// request has the context of a reconcile whose shard was lost, the request is not sent and fails.
func FencedTransport(next http.RoundTripper) http.RoundTripper { return transport{next} }

// transport is the type that FencedTransport returns.
type transport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := CheckHeld(r.Context()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // RoundTripper must always close the body
		}
		return nil, fmt.Errorf("sending a request: %w", err)
	}
	return t.next.RoundTrip(r)
}

// WrappedRoundTripper returns the wrapped transport, with which client-go closes idle connections.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
