package runtimes

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/internal/answer"
	"github.com/kyma-fleet/lifecycle-manager/internal/watch"
)

// updateWatches starts and stops watches of the connection, so that they match the interests of the subscriber s.
func (rt *Runtime) updateWatches(s Subscriber) {
	if rt.watches != nil {
		rt.watches.updateFor(s)
	}
}

// maxListPages, maxListObjects and maxListBytes limit the list that is read at the start of a watch. A list that
// exceeds one of the limits is reported as incomplete.
const (
	maxListPages   = 100
	maxListObjects = 20_000
	// maxListBytes is the maximum size of the metadata of all objects of a list.
	maxListBytes = 16 << 20
	// maxLists is the maximum number of concurrent lists in one runtime.
	maxLists = 2
)

// listType and watchType are the media types of lists and watches. The media types request JSON, because package answer
// counts JSON values.
const (
	listType  = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	watchType = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// watches is the set of running watches on one runtime: one watch for each interest of the runtime's subscribers.
type watches struct {
	base    context.Context // its end ends all watches
	client  rest.Interface
	timeout time.Duration // of a list
	lists   chan struct{} // see maxLists

	mu      sync.Mutex
	running map[Interest]*sharedWatch // guarded by mu
	stopped bool                      // guarded by mu
}

// sharedWatch is the watch that all subscribers with the same interest share.
type sharedWatch struct {
	stop        context.CancelFunc
	subscribers map[string]Subscriber // guarded by watches.mu
}

func newWatches(ctx context.Context, cfg *rest.Config, hc *http.Client, timeout time.Duration) *watches {
	cfg = metadata.ConfigFor(cfg)
	cfg.WarningHandler = rest.NoWarnings{} // a runtime must not write lines into the log
	c, err := rest.UnversionedRESTClientForConfigAndClient(cfg, hc)
	if err != nil {
		return nil // impossible: apply.New has accepted the same configuration
	}
	return &watches{base: ctx, client: c, timeout: timeout, lists: make(chan struct{}, maxLists),
		running: map[Interest]*sharedWatch{}}
}

// updateFor starts the watches for the interests of s, and stops the watches that only s needed before.
func (w *watches) updateFor(s Subscriber) {
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

// stop ends all watches, and prevents that a new watch is started.
func (w *watches) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, shared := range w.running {
		shared.stop()
	}
	clear(w.running)
}

// isTooLarge reports whether an answer was refused because of its size.
func isTooLarge(err error) bool { return errors.Is(err, answer.ErrTooLarge) }

// run watches the objects of one interest until ctx ends. While the circuit breaker is open, attempts to watch send no
// request, and the delay between attempts does not grow. Because the delay stays short, the watch resumes soon after
// the breaker has closed.
func (w *watches) run(ctx context.Context, i Interest, shared *sharedWatch) {
	query := metav1.ListOptions{LabelSelector: i.Labels}
	if i.Name != "" {
		query.FieldSelector = "metadata.name=" + i.Name
	}
	var listed objectList
	_ = watch.Run(ctx, watch.Options[metav1.PartialObjectMetadata]{ // Run returns only when ctx ends
		Source: watch.JSONSource[metav1.PartialObjectMetadata](func(ctx context.Context, query url.Values) (
			io.ReadCloser, error) {
			return w.get(ctx, i, query)
		}),
		Query: query, ListTimeout: w.timeout, IsUnsent: isBreakerOpen,
		IsTooLarge: isTooLarge,
		MaxPages:   maxListPages, MaxObjects: maxListObjects, ListSlots: w.lists,
		Page: func(items []metav1.PartialObjectMetadata, first bool) {
			if first {
				listed = objectList{}
			}
			listed.addOrDropAllOverMaxBytes(items)
		},
		Listed: func(complete bool) {
			event := Event{Interest: i, Listed: true, Objects: listed.objects}
			if !complete || listed.incomplete {
				event = Event{Interest: i, Missed: true}
			}
			listed = objectList{}
			w.notify(shared, event)
		},
		Event: func(e watch.Event[metav1.PartialObjectMetadata]) {
			w.notify(shared, Event{Interest: i, Object: e.Object, Deleted: e.Deleted})
		},
	})
}

// get requests the metadata of the objects of an interest.
func (w *watches) get(ctx context.Context, i Interest, query url.Values) (io.ReadCloser, error) {
	path := []string{"api", i.Resource.Version}
	if i.Resource.Group != "" {
		path = []string{"apis", i.Resource.Group, i.Resource.Version}
	}
	if i.Namespace != "" {
		path = append(path, "namespaces", i.Namespace)
	}
	accept := listType
	if query.Has("watch") {
		accept = watchType
	}
	r := w.client.Get().AbsPath(append(path, i.Resource.Resource)...).SetHeader("Accept", accept)
	for name := range query {
		r.Param(name, query.Get(name))
	}
	return r.Stream(ctx)
}

// objectList is the list of objects at the start of a watch.
type objectList struct {
	objects    []metav1.PartialObjectMetadata
	bytes      int
	incomplete bool // objects were left out, because bytes would exceed maxListBytes
}

// addOrDropAllOverMaxBytes adds the objects of a page to the list. addOrDropAllOverMaxBytes leaves out managedFields,
// which are not needed.
func (l *objectList) addOrDropAllOverMaxBytes(items []metav1.PartialObjectMetadata) {
	for n := range items {
		fields := items[n].ManagedFields
		for f := range fields {
			fields[f].FieldsV1 = nil
		}
		l.bytes += items[n].Size()
		if l.bytes > maxListBytes {
			l.objects, l.incomplete = nil, true
			return
		}
		l.objects = append(l.objects, items[n])
	}
}

// isBreakerOpen reports whether a request was not sent because the circuit breaker is open.
func isBreakerOpen(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e != nil
}

// notify passes an event to all subscribers that share a watch.
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
