package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// server is an API server that stores Leases in memory. server checks resource versions and preconditions like a real
// API server.
type server struct {
	mu      sync.Mutex
	version int64
	leases  map[string]*coordinationv1.Lease
	log     []watch.Event // all events; the n-th has version n+1
	news    chan struct{} // closed by the next event
	writes  int
	moved   time.Time // of the last write of the Lease of a shard
}

func newServer() *server {
	return &server{leases: map[string]*coordinationv1.Lease{}, news: make(chan struct{})}
}

var leaseResource = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}

func (s *server) eventLocked(kind watch.EventType, l *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	s.writes++
	if l.Labels[v1beta2.LabelLease] == v1beta2.LeaseOfShard {
		s.moved = time.Now()
	}
	l.ResourceVersion = strconv.FormatInt(s.version, 10)
	s.log = append(s.log, watch.Event{Type: kind, Object: l.DeepCopy()})
	close(s.news)
	s.news = make(chan struct{})
	return l.DeepCopy()
}

func (s *server) create(l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[l.Name] != nil {
		return nil, apierrors.NewAlreadyExists(leaseResource, l.Name)
	}
	l = l.DeepCopy()
	l.UID = types.UID(fmt.Sprint("uid-", s.version))
	s.leases[l.Name] = l
	return s.eventLocked(watch.Added, l), nil
}

func (s *server) update(l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.leases[l.Name]
	switch {
	case is == nil || is.UID != l.UID:
		return nil, apierrors.NewNotFound(leaseResource, l.Name)
	case l.ResourceVersion != is.ResourceVersion:
		return nil, apierrors.NewConflict(leaseResource, l.Name, errors.New("it has changed"))
	}
	l = l.DeepCopy()
	s.leases[l.Name] = l
	return s.eventLocked(watch.Modified, l), nil
}

func (s *server) remove(name string, p *metav1.Preconditions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.leases[name]
	switch {
	case is == nil:
		return apierrors.NewNotFound(leaseResource, name)
	case p != nil && (p.UID != nil && *p.UID != is.UID || p.ResourceVersion != nil &&
		*p.ResourceVersion != is.ResourceVersion):
		return apierrors.NewConflict(leaseResource, name, errors.New("it is another one"))
	}
	delete(s.leases, name)
	s.eventLocked(watch.Deleted, is.DeepCopy())
	return nil
}

// holders returns the holder of each shard, as the Lease of the shard shows it.
func (s *server) holders() (holders [Count]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for shard := range holders {
		holders[shard] = holderOf(s.leases[shardLeaseName(shard)])
	}
	return holders
}

// lastMove returns the time of the last change of the holder of any shard.
func (s *server) lastMove() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moved
}

// line is a client that is connected to the server through a simulated network.
type line struct {
	server *server
	random *rand.Rand // guarded by mu

	mu    sync.Mutex
	cut   bool          // no message gets through: requests wait for their deadline, watches receive no events
	slow  time.Duration // at most, each way
	lossy float64       // fraction of the responses that are lost
}

// set changes the network.
func (l *line) set(f func(*line)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

var errNetwork = errors.New("the network is broken")

// deliver delays or drops a message in one direction of the network.
func (l *line) deliver(ctx context.Context) error {
	l.mu.Lock()
	cut, wait := l.cut, time.Duration(0)
	if l.slow > 0 {
		wait = time.Duration(l.random.Int64N(int64(l.slow)))
	}
	l.mu.Unlock()
	if cut {
		<-ctx.Done()
		return ctx.Err()
	}
	if wait > 0 && !sleepUnlessDone(ctx, wait) {
		return ctx.Err()
	}
	return ctx.Err()
}

// deliverResponse delays or drops a response.
func (l *line) deliverResponse(ctx context.Context) error {
	l.mu.Lock()
	lost := l.lossy > 0 && l.random.Float64() < l.lossy
	l.mu.Unlock()
	if lost {
		return errNetwork
	}
	return l.deliver(ctx)
}

// request sends a request and returns the response.
func request[T any](ctx context.Context, l *line, do func() (T, error)) (T, error) {
	var none T
	if err := l.deliver(ctx); err != nil {
		return none, err
	}
	answer, err := do()
	if lost := l.deliverResponse(ctx); lost != nil {
		return none, lost
	}
	return answer, err
}

func (l *line) Create(ctx context.Context, o *coordinationv1.Lease, _ metav1.CreateOptions) (
	*coordinationv1.Lease, error) {
	return request(ctx, l, func() (*coordinationv1.Lease, error) { return l.server.create(o) })
}

func (l *line) Update(ctx context.Context, o *coordinationv1.Lease, _ metav1.UpdateOptions) (
	*coordinationv1.Lease, error) {
	return request(ctx, l, func() (*coordinationv1.Lease, error) { return l.server.update(o) })
}

func (l *line) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	_, err := request(ctx, l, func() (struct{}, error) { return struct{}{}, l.server.remove(name, o.Preconditions) })
	return err
}

func (l *line) List(ctx context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	selector, err := labels.Parse(o.LabelSelector)
	if err != nil {
		return nil, err
	}
	return request(ctx, l, func() (*coordinationv1.LeaseList, error) {
		l.server.mu.Lock()
		defer l.server.mu.Unlock()
		list := &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(l.server.version,
			10)}}
		for _, o := range l.server.leases {
			if selector.Matches(labels.Set(o.Labels)) {
				list.Items = append(list.Items, *o.DeepCopy())
			}
		}
		return list, nil
	})
}

func (l *line) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	next, err := strconv.Atoi(o.ResourceVersion)
	if err != nil {
		return nil, err
	}
	w := &stream{events: make(chan watch.Event), stop: make(chan struct{})}
	go func() {
		defer close(w.events)
		for {
			l.server.mu.Lock()
			var e *watch.Event
			if next < len(l.server.log) {
				e = &l.server.log[next]
			}
			news := l.server.news
			l.server.mu.Unlock()
			if e == nil {
				select {
				case <-news:
				case <-ctx.Done():
					return
				case <-w.stop:
					return
				}
				continue
			}
			next++
			for l.isCut() { // events that were sent meanwhile arrive later
				if !sleepUnlessDone(ctx, 100*time.Millisecond) {
					return
				}
			}
			if l.deliver(ctx) != nil {
				return
			}
			select {
			case w.events <- *e:
			case <-ctx.Done():
				return
			case <-w.stop:
				return
			}
		}
	}()
	return w, nil
}

func (l *line) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

// stream is a watch.
type stream struct {
	events chan watch.Event
	stop   chan struct{}
	once   sync.Once
}

func (w *stream) ResultChan() <-chan watch.Event { return w.events }
func (w *stream) Stop()                          { w.once.Do(func() { close(w.stop) }) }

// Create writes a Lease with three quarters of the duration that the replica has set, so that other replicas consider
// the Lease expired earlier.
func (s *shortened) Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (
	*coordinationv1.Lease, error) {
	if seconds := l.Spec.LeaseDurationSeconds; seconds != nil {
		l = l.DeepCopy()
		l.Spec.LeaseDurationSeconds = new(*seconds * 3 / 4)
	}
	return s.Leases.Create(ctx, l, o)
}
