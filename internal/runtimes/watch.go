package runtimes

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/internal/watch"
)

// setSubscriber starts and stops watches of the connection so that they match the interests of s.
func (rt *Runtime) setSubscriber(s Subscriber) {
	if rt.watches != nil {
		rt.watches.setSubscriber(s)
	}
}

// watches are the watches on one runtime: one for each interest of its subscribers.
type watches struct {
	base    context.Context // its end ends all watches
	client  metadata.Interface
	timeout time.Duration // of a list

	mu      sync.Mutex
	running map[Interest]*sharedWatch // guarded by mu
	stopped bool                      // guarded by mu
}

// sharedWatch is the watch of one interest.
type sharedWatch struct {
	stop        context.CancelFunc
	subscribers map[string]Subscriber // guarded by watches.mu
}

func newWatches(ctx context.Context, cfg *rest.Config, hc *http.Client, timeout time.Duration) *watches {
	cfg = metadata.ConfigFor(cfg)
	c, err := metadata.NewForConfigAndClient(cfg, hc)
	if err != nil {
		return nil // impossible: apply.New has accepted the same configuration
	}
	return &watches{base: ctx, client: c, timeout: timeout, running: map[Interest]*sharedWatch{}}
}

// setSubscriber starts the watches for the interests of s, and stops the watches that only s needed before.
func (w *watches) setSubscriber(s Subscriber) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	wanted := map[Interest]bool{}
	for _, i := range s.Interests {
		wanted[i] = true
		shared := w.running[i]
		if shared == nil {
			ctx, cancel := context.WithCancel(w.base)
			shared = &sharedWatch{stop: cancel, subscribers: map[string]Subscriber{}}
			w.running[i] = shared
			go w.run(ctx, i, shared)
		}
		shared.subscribers[s.Key] = s
	}
	for i, shared := range w.running {
		if _, subscribed := shared.subscribers[s.Key]; !subscribed || wanted[i] {
			continue
		}
		delete(shared.subscribers, s.Key)
		if len(shared.subscribers) == 0 {
			shared.stop()
			delete(w.running, i)
		}
	}
}

// stop ends all watches. No watch can be started after stop.
func (w *watches) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, shared := range w.running {
		shared.stop()
	}
	clear(w.running)
}

// run watches the objects of one interest until ctx ends. While the circuit breaker is open, attempts send no request,
// and the delay between attempts does not grow. Therefore the watch resumes soon after the breaker has closed.
func (w *watches) run(ctx context.Context, i Interest, shared *sharedWatch) {
	var client metadata.ResourceInterface = w.client.Resource(i.Resource)
	if i.Namespace != "" {
		client = w.client.Resource(i.Resource).Namespace(i.Namespace)
	}
	query := metav1.ListOptions{LabelSelector: i.Labels}
	if i.Name != "" {
		query.FieldSelector = "metadata.name=" + i.Name
	}
	var listed []metav1.PartialObjectMetadata
	_ = watch.Run(ctx, watch.Options[metav1.PartialObjectMetadata]{ // Run returns only when ctx ends
		Source: watch.ClientSource(func(ctx context.Context, o metav1.ListOptions) (
			watch.Page[metav1.PartialObjectMetadata], error) {
			list, err := client.List(ctx, o)
			if err != nil {
				return watch.Page[metav1.PartialObjectMetadata]{}, err
			}
			return watch.Page[metav1.PartialObjectMetadata]{Items: list.Items, ResourceVersion: list.ResourceVersion,
				Continue: list.Continue}, nil
		}, client.Watch),
		Query: query, ListTimeout: w.timeout, IsUnsent: isBreakerOpen,
		Page: func(items []metav1.PartialObjectMetadata, first bool) {
			if first {
				listed = nil
			}
			listed = append(listed, items...)
		},
		Listed: func(complete bool) {
			event := Event{Interest: i, Listed: true, Objects: listed}
			if !complete {
				event = Event{Interest: i, Missed: true}
			}
			listed = nil
			w.notify(shared, event)
		},
		Event: func(e watch.Event[metav1.PartialObjectMetadata]) {
			w.notify(shared, Event{Interest: i, Object: e.Object, Deleted: e.Deleted})
		},
	})
}

// isBreakerOpen reports whether a request was not sent because the circuit breaker is open.
func isBreakerOpen(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e != nil
}

// notify passes an event to the subscribers of a watch.
func (w *watches) notify(shared *sharedWatch, event Event) {
	w.mu.Lock()
	all := make([]Subscriber, 0, len(shared.subscribers))
	for _, s := range shared.subscribers {
		all = append(all, s)
	}
	w.mu.Unlock()
	for _, s := range all {
		s.Notify(event)
	}
}
