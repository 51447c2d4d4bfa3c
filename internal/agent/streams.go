package agent

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/metadata"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// maxLists is the number of lists that are read at the same time.
const maxLists = 2

// streams are the watches on the runtime, as the watch list in force says.
type streams struct {
	client    metadata.Interface
	discovery *discovery
	queue     *queue
	problems  *problems
	metrics   *metrics
	log       logr.Logger
	timeout   time.Duration // of one watch
	patience  time.Duration // before a failure that may pass is a problem
	lists     chan struct{} // has room for lists
	records   atomic.Int64  // objects that are known

	wg      sync.WaitGroup
	running map[running]*stream // for apply alone
}

// running is what there is one watch of.
type running struct{ group, version, resource string }

// apply puts a watch list in force: it ends watches, begins others, and leaves alone those that stay the same. It must not be called by two at
// the same time. ctx is for the watches, too.
func (s *streams) apply(ctx context.Context, list protocol.Watchlist) error {
	wanted := map[running]plan{}
	recorders := map[running]*recorder{}
	for _, p := range plans(list) {
		r := running{p.query.group, p.query.version, p.query.resource}
		var err error
		if recorders[r], err = newRecorder(p.filters); err != nil {
			return err
		}
		wanted[r] = p
	}
	before := map[running]<-chan struct{}{}
	for r, stream := range s.running {
		if p, stays := wanted[r]; stays && p.is(stream.plan) {
			stream.retarget(p.targets)
			stream.again()
			delete(wanted, r)
			continue
		}
		stream.stop()
		before[r] = stream.done
		delete(s.running, r)
	}
	for r, p := range wanted {
		ctx, stop := context.WithCancel(ctx)
		stream := &stream{
			streams: s, plan: p, targets: p.targets, recorder: recorders[r], kick: make(chan struct{}, 1), stop: stop, done: make(chan struct{}),
		}
		s.running[r] = stream
		s.wg.Go(func() {
			defer stop()
			if former := before[r]; former != nil {
				<-former // so that there is one watch, not two
			}
			stream.run(ctx)
		})
	}
	return nil
}

// again makes a stream that waits after a failure try now.
func (s *stream) again() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}
