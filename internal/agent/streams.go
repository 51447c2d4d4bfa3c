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

// maxLists is the maximum number of lists that are read concurrently.
const maxLists = 2

// streams are the watches that the current watch list requests.
type streams struct {
	client             metadata.Interface
	discovery          *discovery
	queue              *outbox.Queue
	problems           *problems
	metrics            *metrics
	log                logr.Logger
	timeout            time.Duration // duration of one watch
	problemDelay       time.Duration // time after which a temporary failure is reported as a problem
	removalDelay       time.Duration // time after which the removal of a watched resource is reported as a problem
	minDelay, maxDelay time.Duration // limits of the delay after a failed request
	listSlots          chan struct{} // one for each list that is being read
	records            atomic.Int64  // number of objects with a record

	wg      sync.WaitGroup
	running map[versionedResource]*stream // used only by apply
}

// versionedResource is the key of a stream. version is the version on the watch list; it may be *.
type versionedResource struct{ group, version, resource string }

// apply starts and stops streams so that they match a watch list. A stream keeps running if the new watch list needs
// the same watch. The method apply must not be called concurrently. When ctx ends, all streams end, too.
func (s *streams) apply(ctx context.Context, list protocol.Watchlist) error {
	wanted := map[versionedResource]plan{}
	recorders := map[versionedResource]*recorder{}
	for _, p := range plansFor(list) {
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
			stream.setTargetsAndReportToNew(p.targets)
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
				<-former // so that a resource never has two watches
			}
			stream.run(ctx)
		})
	}
	return nil
}

// If a stream waits after a failed watch, retryNow ends the wait, so that the stream watches again at once.
func (s *stream) retryNow() {
	select {
	case s.retry <- struct{}{}:
	default:
	}
}
