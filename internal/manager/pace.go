package manager

import (
	"context"
	"net/http"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// leases is what paths of Leases begin with.
const leases = "/apis/coordination.k8s.io/"

// pace lets few writes to the control plane be under way at the same time. In a roll-out there are as many passes as workers, and all want to write. More at
// a time would not make them faster, but everything wait behind them in the API server: the edit of a person most of all, which takes half a dozen
// writes one after the other. What a person waits for does not wait here, nor do Leases, and while there is such a thing, the others almost stand still.
type pace struct {
	pool *runtimes.Pool // set before the first write
	all  chan struct{}
	slow chan struct{}
}

// newPace returns a pace of so many writes at the same time, and so many while a person waits for something.
func newPace(abreast, behind int) *pace {
	return &pace{all: make(chan struct{}, abreast), slow: make(chan struct{}, behind)}
}

// wrap returns a transport that keeps the pace.
func (p *pace) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet || strings.HasPrefix(r.URL.Path, leases) {
			return next.RoundTrip(r)
		}
		for _, slots := range []chan struct{}{p.all, p.slow} {
			if slots == p.slow && (p.pool == nil || !p.pool.HurriesAny()) {
				break
			}
			had, err := p.wait(r.Context(), slots)
			if err != nil {
				return nil, err
			}
			if had {
				defer func() { <-slots }()
			}
		}
		return next.RoundTrip(r)
	})
}

// wait waits for a slot, but not while a person waits for this very write: a pass that was begun for the fleet may have to end before that of the
// person can begin. It tells whether it has the slot.
func (p *pace) wait(ctx context.Context, slots chan<- struct{}) (had bool, err error) {
	for {
		var others <-chan struct{}
		if p.pool != nil {
			others = p.pool.Hurrying() // before it is asked
		}
		if runtimes.IsHurried(ctx) {
			return false, nil
		}
		select {
		case slots <- struct{}{}:
			return true, nil
		case <-others:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// roundTripper is a function as an [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
