package shard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// errShardLost is why the context of a reconcile is cancelled, and why its requests are not sent any more.
var errShardLost = errors.New("the shard of this runtime is not held any more")

// fence is the value in the context of a reconcile: the shard that the reconcile needs.
type fence struct {
	keeper *Keeper
	tenure *holding
}

// fenceKey is the key of fence in a context.
type fenceKey struct{}

// BeginReconcile starts a reconcile of the runtime of a Kyma, if this replica has its shard. The returned context is
// cancelled when the shard is lost; all requests for the runtime have to use it. The caller calls done at the end of
// the reconcile; the release of a shard waits for that. If held is false, the caller must not work on the runtime.
//
// A nil Keeper has all shards.
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

// Holds reports whether this replica has the shard of a Kyma. A nil Keeper has all shards.
func (k *Keeper) Holds(kyma string) bool {
	if k == nil {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.holdings[Of(kyma)]
	return t != nil && t.open && k.isLeaseValid()
}

// CheckHeld returns an error if the context is that of a reconcile whose shard this replica has lost. It returns nil
// for all other contexts.
func CheckHeld(ctx context.Context) error {
	h, in := ctx.Value(fenceKey{}).(fence)
	if !in || h.tenure.ctx.Err() == nil && h.keeper.isLeaseValid() {
		return nil
	}
	return errShardLost
}

// shardOf returns the shard of the reconcile that a context belongs to, -1 if it belongs to none.
func shardOf(ctx context.Context) int {
	if h, in := ctx.Value(fenceKey{}).(fence); in {
		return h.tenure.shard
	}
	return -1
}

// isLeaseValid reports whether this replica may act, by the time since the start of its last renewal. It checks the
// monotonic clock, which stops while a machine is suspended, and the wall clock, which can be set.
func (k *Keeper) isLeaseValid() bool {
	sent := k.renewedAt.Load()
	if sent == nil {
		return false
	}
	now, valid := time.Now(), k.opts.validPeriod()
	return now.Sub(*sent) < valid && now.Round(0).Sub(sent.Round(0)) < valid
}

// FencedTransport wraps a transport. Requests with the context of a reconcile whose shard this replica has lost fail
// and are not sent.
func FencedTransport(next http.RoundTripper) http.RoundTripper { return transport{next} }

// transport is a FencedTransport.
type transport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := CheckHeld(r.Context()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as the contract of RoundTripper requires
		}
		return nil, fmt.Errorf("sending a request: %w", err)
	}
	return t.next.RoundTrip(r)
}

// WrappedRoundTripper returns the wrapped transport. client-go uses it to close idle connections.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
