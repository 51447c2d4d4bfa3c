package runtimes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// Subscriber wants to hear what happens in a runtime.
type Subscriber struct {
	// Key tells followers of one runtime apart; following again under the same key replaces.
	Key string
	// Interests are what it wants to hear of; the connection itself always.
	Interests []Interest
	// ReplayMissed says that it relies on what was known before this program ran: when it first has interests, and something was heard before that, it
	// is told that it has missed changes of each.
	ReplayMissed bool
	// Notify is told. It must not block and may be called at any time from any goroutine.
	Notify func(Event)
}

// ManifestSubscriberKey is the Key of the follower that stands for a Manifest.
func ManifestSubscriberKey(namespace, name string) string {
	return "Manifest/" + namespace + "/" + name
}

// Interest is one collection of objects of a runtime. Equal interests of several followers share one watch.
type Interest struct {
	// Resource is what to watch; Kind is the kind of its objects, because metadata alone does not tell.
	Resource schema.GroupVersionResource
	Kind     string
	// Namespace and Name narrow it to one namespace, one object. Empty is all.
	Namespace, Name string
	// Labels is a label selector. Empty is all.
	Labels string
}

// Event is what a follower is told.
type Event struct {
	// ConnectionChanged says that the connection was made, replaced, broke or mended; nothing else is set then.
	ConnectionChanged bool
	// Missed says that changes may have been missed, of the Resource of the Interest, or of anything if that is empty: whoever depends on
	// that has to look. Nothing else is set then.
	Missed bool
	// Listed says that Objects are all there are of the Interest: a watch begins with that, and so it does again when changes were missed.
	Listed  bool
	Objects []metav1.PartialObjectMetadata
	// Interest is where it was seen.
	Interest Interest
	// Object is the object's metadata; nil with ConnectionChanged or Listed.
	Object *metav1.PartialObjectMetadata
	// Deleted says that Object is gone.
	Deleted bool
}

// Subscribe registers f, whether or not the runtime can be reached. Following again with the same key and interests costs nothing.
func (p *Pool) Subscribe(kyma string, f Subscriber) {
	p.mu.Lock()
	l := p.linkLocked(kyma)
	former := l.followers[f.Key].Interests
	news := !slices.Equal(former, f.Interests)
	missed := f.ReplayMissed && l.heard && len(former) == 0 && len(f.Interests) > 0
	l.followers[f.Key] = f
	if l.runtime != nil {
		l.runtime.follow(f)
	}
	p.mu.Unlock()
	for _, i := range f.Interests {
		if missed {
			f.Notify(Event{Missed: true, Interest: i})
		}
	}
	p.tellInterests(kyma, news)
}

// tellInterests tells of other interests, if they are.
func (p *Pool) tellInterests(kyma string, changed bool) {
	if changed && p.opts.InterestsChanged != nil {
		p.opts.InterestsChanged(kyma)
	}
}

// Unsubscribe forgets the follower with the given key.
func (p *Pool) Unsubscribe(kyma, key string) {
	p.tellInterests(kyma, p.unfollow(kyma, key))
}

// unfollow tells whether the follower had interests.
func (p *Pool) unfollow(kyma, key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[kyma]
	if l == nil {
		return false
	}
	had := len(l.followers[key].Interests) > 0
	delete(l.followers, key)
	if l.runtime != nil {
		l.runtime.follow(Subscriber{Key: key})
	}
	if len(l.followers) == 0 && l.runtime == nil {
		delete(p.links, kyma)
	}
	return had
}

// wake tells all followers of a runtime.
func (p *Pool) wake(kyma string, s Event) {
	p.mu.Lock()
	var all []Subscriber
	if l := p.links[kyma]; l != nil {
		for _, f := range l.followers {
			all = append(all, f)
		}
	}
	p.mu.Unlock()
	for _, f := range all {
		f.Notify(s)
	}
}

// follow makes the watches of the connection match what f wants.
func (rt *Runtime) follow(f Subscriber) {
	if rt.watches != nil {
		rt.watches.follow(f)
	}
}

// watches are the watches on one runtime: one for each interest that somebody has.
type watches struct {
	base    context.Context // ends all watches with the program
	client  metadata.Interface
	timeout time.Duration

	mu      sync.Mutex
	running map[Interest]*listening // guarded by mu
	stopped bool
}

// listening is one running watch.
type listening struct {
	stop      context.CancelFunc
	followers map[string]Subscriber // guarded by watches.mu
}

func newWatches(ctx context.Context, cfg *rest.Config, hc *http.Client, timeout time.Duration) *watches {
	cfg = metadata.ConfigFor(cfg)
	c, err := metadata.NewForConfigAndClient(cfg, hc)
	if err != nil {
		return nil // the same configuration was good enough for apply.New
	}
	return &watches{base: ctx, client: c, timeout: timeout, running: map[Interest]*listening{}}
}

// follow starts what f wants and nobody had, and stops what only f had and wants no longer.
func (w *watches) follow(f Subscriber) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	wanted := map[Interest]bool{}
	for _, i := range f.Interests {
		wanted[i] = true
		l := w.running[i]
		if l == nil {
			ctx, cancel := context.WithCancel(w.base)
			l = &listening{stop: cancel, followers: map[string]Subscriber{}}
			w.running[i] = l
			go w.listen(ctx, i, l)
		}
		l.followers[f.Key] = f
	}
	for i, l := range w.running {
		if _, had := l.followers[f.Key]; !had || wanted[i] {
			continue
		}
		delete(l.followers, f.Key)
		if len(l.followers) == 0 {
			l.stop()
			delete(w.running, i)
		}
	}
}

// stop ends all watches for good.
func (w *watches) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, l := range w.running {
		l.stop()
	}
	clear(w.running)
}

// listen watches one interest until ctx ends. Between two tries it waits, longer each time, spread at random; the breaker has
// the last word on when a dead runtime is asked again.
func (w *watches) listen(ctx context.Context, i Interest, l *listening) {
	var at string // resourceVersion up to which all was told, "" if unknown
	for failures := 0; ctx.Err() == nil; {
		next, err := w.once(ctx, i, l, at)
		if next != at {
			failures = 0
		}
		at = next
		if err == nil {
			continue
		}
		failures++
		delay := min(time.Second<<min(failures-1, 5), 30*time.Second)
		if e, ok := errors.AsType[*Error](err); ok && e != nil {
			delay = time.Second // costs no request: the breaker answers
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay/2 + rand.N(delay)):
		}
	}
}

// once lists where the collection stands if that is not known, then watches it until the server ends the watch. It returns
// up to where all was told. An interest in a single object is told of it as it is now: what happened before the watch is in there.
func (w *watches) once(ctx context.Context, i Interest, l *listening, at string) (string, error) {
	var c metadata.ResourceInterface = w.client.Resource(i.Resource)
	if i.Namespace != "" {
		c = w.client.Resource(i.Resource).Namespace(i.Namespace)
	}
	opts := metav1.ListOptions{LabelSelector: i.Labels}
	if i.Name != "" {
		opts.FieldSelector = "metadata.name=" + i.Name
	}
	if at == "" {
		short, cancel := context.WithTimeout(ctx, w.timeout)
		list, err := c.List(short, opts)
		cancel()
		if err != nil {
			return "", fmt.Errorf("looking where %s stand: %w", i.Resource.Resource, err)
		}
		at = list.ResourceVersion
		w.tell(l, Event{Interest: i, Listed: true, Objects: list.Items}) // whatever happened before, this is how it is now
	}
	opts.ResourceVersion, opts.AllowWatchBookmarks = at, true
	stream, err := c.Watch(ctx, opts)
	if err != nil {
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return "", nil
		}
		return at, fmt.Errorf("watching %s: %w", i.Resource.Resource, err)
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		switch event.Type {
		case watch.Error:
			if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				return at, err
			}
			return "", nil // changes were missed: find out where the collection stands now
		default:
			m, ok := event.Object.(*metav1.PartialObjectMetadata)
			if !ok {
				continue
			}
			at = m.ResourceVersion
			if event.Type != watch.Bookmark {
				w.tell(l, Event{Interest: i, Object: m, Deleted: event.Type == watch.Deleted})
			}
		}
	}
	return at, nil
}

// tell wakes who follows.
func (w *watches) tell(l *listening, s Event) {
	w.mu.Lock()
	all := make([]Subscriber, 0, len(l.followers))
	for _, f := range l.followers {
		all = append(all, f)
	}
	w.mu.Unlock()
	for _, f := range all {
		f.Notify(s)
	}
}
