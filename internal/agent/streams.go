package agent

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/metadata"

	"github.com/kyma-fleet/lifecycle-manager/internal/agent/outbox"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// maxLists is the number of lists that are read at the same time.
const maxLists = 2

// streams are the watches on the runtime that the watch list in force requests.
type streams struct {
	client       metadata.Interface
	discovery    *discovery
	queue        *outbox.Queue
	problems     *problems
	metrics      *metrics
	log          logr.Logger
	timeout      time.Duration // of one watch
	problemDelay time.Duration // before a failure that may pass by itself is a problem
	listSlots    chan struct{} // one for each list that is being read
	records      atomic.Int64  // number of objects that are known

	wg      sync.WaitGroup
	running map[versionedResource]*stream // for apply alone
}

// versionedResource identifies a stream. version is as in the watch list, and may be *.
type versionedResource struct{ group, version, resource string }

// apply puts a watch list in force: it ends and starts streams, and leaves alone those that stay the same. Calls must
// not be concurrent. ctx ends the streams, too.
func (s *streams) apply(ctx context.Context, list protocol.Watchlist) error {
	wanted := map[versionedResource]plan{}
	recorders := map[versionedResource]*recorder{}
	for _, p := range plans(list) {
		r := versionedResource{p.query.group, p.query.version, p.query.resource}
		var err error
		if recorders[r], err = newRecorder(p.filters); err != nil {
			return err
		}
		wanted[r] = p
	}
	stopped := map[versionedResource]<-chan struct{}{}
	for r, stream := range s.running {
		if p, stays := wanted[r]; stays && p.hasSameWatch(stream.plan) {
			stream.setTargets(p.targets)
			stream.retryNow()
			delete(wanted, r)
			continue
		}
		stream.stop()
		stopped[r] = stream.done
		delete(s.running, r)
	}
	for r, p := range wanted {
		ctx, stop := context.WithCancel(ctx)
		stream := &stream{
			streams: s, plan: p, targets: p.targets, recorder: recorders[r], retry: make(chan struct{}, 1),
			stop: stop, done: make(chan struct{}),
		}
		s.running[r] = stream
		s.wg.Go(func() {
			defer stop()
			if former := stopped[r]; former != nil {
				<-former // so that there are never two watches
			}
			stream.run(ctx)
		})
	}
	return nil
}

// retryNow ends the delay of a stream after a failure.
func (s *stream) retryNow() {
	select {
	case s.retry <- struct{}{}:
	default:
	}
}
