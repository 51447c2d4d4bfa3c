package agent

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

const (
	pageSize    = 200              // objects of a list that are in memory at the same time
	maxRetry    = 5 * time.Second  // back-off of a watch that fails; a definition may come at any time
	patience    = 5 * time.Second  // before a failure that may pass is a problem
	maxRecords  = 60_000           // objects that are known, of all watches together
	maxMetadata = 12 << 10         // bytes of metadata that an event has
	longWatch   = 20 * time.Minute // a watch ends after half of that to all of it
)

// stream is one watch, with what it knows of its objects.
type stream struct {
	*streams
	plan     plan
	recorder *recorder
	kick     chan struct{} // try again now
	stop     context.CancelFunc
	done     chan struct{}

	mu      sync.Mutex // guards what follows
	targets []target
	served  *served // nil until it was found out
	listed  bool    // a watch has begun: who comes later is told of it at once

	// What follows is for run alone.
	known    map[string]record // by namespace/name
	version  string            // resourceVersion to watch from; "" is to list first
	partial  bool              // not all objects are known, because there were too many
	outdated bool              // it was told that anything may have changed, since the last list
}

// run lists and watches until ctx ends.
func (s *stream) run(ctx context.Context) {
	defer close(s.done)
	defer func() {
		s.forget()
		s.problems.set(s.name(), "")
	}()
	var failing time.Time // since when; zero: not
	failures := 0
	for ctx.Err() == nil {
		begin := time.Now()
		watched, err := s.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if watched && (err == nil || time.Since(begin) > s.patience) {
			failing, failures = time.Time{}, 0
		}
		if err == nil && time.Since(begin) > time.Second {
			continue
		}
		failures++
		if failing.IsZero() {
			failing = begin
		}
		if err != nil {
			s.fail(err, failing)
		}
		timer := time.NewTimer(min(backoff(failures), maxRetry/2+rand.N(maxRetry/2)))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.kick:
		}
		timer.Stop()
	}
}

// name is what problems call the stream.
func (s *stream) name() string {
	return schema.GroupResource{Group: s.plan.query.group, Resource: s.plan.query.resource}.String()
}

// fail notes why the resource is not watched. What may pass by itself is told only if it lasts.
func (s *stream) fail(err error, since time.Time) {
	s.log.V(1).Info("a watch failed", "resource", s.name(), "error", err.Error())
	switch {
	case apierrors.IsNotFound(err):
		s.problems.set(s.name(), s.name()+" does not exist in the runtime")
		s.missing()
	case apierrors.IsForbidden(err):
		s.problems.set(s.name(), "not allowed to list and watch "+s.name())
	case time.Since(since) >= s.patience:
		s.problems.set(s.name(), fmt.Sprintf("cannot watch %s: %.120s", s.name(), cause(err)))
	}
}

// missing tells once that anything may have happened to objects whose definition is gone. If it comes back, there will be differences.
func (s *stream) missing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) > 0 && !s.outdated {
		s.outdated = true
		s.beginLocked(s.targets, s.known, nil, !s.partial)
	}
	s.served = nil
	s.version = ""
}

// once does what is next, up to the end of one watch. watched says that a watch was open.
func (s *stream) once(ctx context.Context) (watched bool, err error) {
	found := s.found()
	if found == nil {
		f, err := s.discovery.find(ctx, s.plan.query)
		if err != nil {
			return false, err
		}
		found = &f
		s.mu.Lock()
		s.served = found
		s.mu.Unlock()
	}
	q := s.plan.query
	var client metadata.ResourceInterface = s.client.Resource(schema.GroupVersionResource{Group: q.group, Version: found.version, Resource: q.resource})
	if q.namespace != "" {
		client = client.(metadata.Getter).Namespace(q.namespace)
	}
	options := metav1.ListOptions{LabelSelector: q.selector}
	if q.name != "" {
		options.FieldSelector = "metadata.name=" + q.name
	}
	if s.version == "" {
		if err := s.list(ctx, client, options); err != nil {
			return false, err
		}
	}
	return s.watch(ctx, client, options)
}

func (s *stream) found() *served {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served
}

// list reads all objects, and tells that the watch begins, or if it did before, what is different.
func (s *stream) list(ctx context.Context, client metadata.ResourceInterface, options metav1.ListOptions) error {
	select {
	case s.lists <- struct{}{}: // few at a time, for the sake of memory
		defer func() { <-s.lists }()
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	first, ours := !s.listed, uint64(0)
	for _, t := range s.targets {
		if t.manager == protocol.ManagerName {
			ours |= bit(t.filter)
		}
	}
	s.mu.Unlock()
	options.Limit = pageSize
	fresh, partial, version := map[string]record{}, false, ""
	var changed []protocol.Name
	var there introduction
	for {
		page, err := client.List(ctx, options)
		if err != nil {
			return err
		}
		for n := range page.Items {
			o := &page.Items[n].ObjectMeta
			key, r := o.Namespace+"/"+o.Name, s.recorder.record(o)
			before, had := s.known[key]
			if !first && !s.partial && (!had || compare(before, r, false, true).counts(protocol.FieldAny)) {
				changed = append(changed, protocol.Name{Namespace: o.Namespace, Name: o.Name})
			}
			if int(s.records.Load())-len(s.known)+len(fresh) >= maxRecords {
				partial = true
				continue
			}
			fresh[key] = r
			if first && r.matched&ours != 0 {
				there.add(o)
			}
		}
		version = page.ResourceVersion
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	there.tooMuch = there.tooMuch || !first || partial
	s.listedNow(fresh, &there, changed, partial, version)
	return nil
}

// introduction is how the objects of a resource are when their watch begins, as far as that fits into one event.
type introduction struct {
	objects []metav1.ObjectMeta
	bytes   int
	tooMuch bool
}

func (i *introduction) add(o *metav1.ObjectMeta) {
	if i.tooMuch {
		return
	}
	trimmed := protocol.TrimMetadata(o)
	trimmed.Namespace, trimmed.Name = o.Namespace, o.Name
	i.bytes += 200 + size(trimmed)
	if i.tooMuch = i.bytes > maxMetadata; i.tooMuch {
		i.objects = nil
		return
	}
	i.objects = append(i.objects, *trimmed)
}

// listedNow takes over what a list has found.
func (s *stream) listedNow(fresh map[string]record, there *introduction, changed []protocol.Name, partial bool, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.listed || partial || s.partial || len(changed) > s.queue.max/2:
		s.beginLocked(s.targets, fresh, there, !partial)
	default:
		for _, name := range changed {
			key := name.Namespace + "/" + name.Name
			s.tellLocked(name, s.known[key].matched|fresh[key].matched, difference{true, true}, nil, false)
		}
		for key, before := range s.known {
			if _, there := fresh[key]; !there {
				namespace, name, _ := strings.Cut(key, "/")
				s.tellLocked(protocol.Name{Namespace: namespace, Name: name}, before.matched, difference{true, true}, nil, true)
			}
		}
	}
	s.records.Add(int64(len(fresh) - len(s.known)))
	s.known, s.partial, s.version, s.listed, s.outdated = fresh, partial, version, true, false
	s.metrics.objects.Set(float64(s.records.Load()))
}

// watch follows changes until the watch ends. An error says that it did not end well.
func (s *stream) watch(ctx context.Context, client metadata.ResourceInterface, options metav1.ListOptions) (watched bool, err error) {
	timeout := s.timeout/2 + rand.N(s.timeout/2+1)
	options.TimeoutSeconds = new(max(1, int64(timeout.Seconds())))
	options.ResourceVersion = s.version
	options.AllowWatchBookmarks = true
	ctx, cancel := context.WithTimeout(ctx, timeout+time.Minute) // if the API server forgets
	defer cancel()
	w, err := client.Watch(ctx, options)
	if err != nil {
		return false, s.started(err)
	}
	defer w.Stop()
	s.metrics.watches.Inc()
	defer s.metrics.watches.Dec()
	s.problems.set(s.name(), "")
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return true, s.started(apierrors.FromObject(event.Object))
		}
		o, ok := event.Object.(*metav1.PartialObjectMetadata)
		if !ok {
			return true, fmt.Errorf("watching: got a %T instead of metadata", event.Object)
		}
		if event.Type != watch.Bookmark {
			s.seen(&o.ObjectMeta, event.Type == watch.Deleted)
		}
		s.version = o.ResourceVersion
	}
	return true, nil
}

// started looks at an error of a watch: after some, only a new list says what has changed.
func (s *stream) started(err error) error {
	if missed(err) || apierrors.IsBadRequest(err) {
		s.version = ""
	}
	return err
}

// missed tells whether a watch cannot go on where it ended: what changed since is forgotten, or the API server has an older state than before.
func missed(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// seen tells of one change.
func (s *stream) seen(o *metav1.ObjectMeta, deleted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, after := o.Namespace+"/"+o.Name, s.recorder.record(o)
	before, had := s.known[key]
	name := protocol.Name{Namespace: o.Namespace, Name: o.Name}
	switch {
	case deleted:
		if had {
			delete(s.known, key)
			s.records.Add(-1)
		}
		s.tellLocked(name, before.matched|after.matched, difference{true, true}, o, true)
	case !had:
		if s.records.Load() < maxRecords {
			s.known[key] = after
			s.records.Add(1)
		} else {
			s.partial = true
		}
		s.tellLocked(name, after.matched, difference{true, true}, o, false)
	default:
		s.known[key] = after
		s.tellLocked(name, before.matched&after.matched, compare(before, after, s.served.split, false), o, false)
		if moved := before.matched ^ after.matched; moved != 0 {
			s.tellLocked(name, moved, difference{true, true}, o, false)
		}
	}
	s.metrics.objects.Set(float64(s.records.Load()))
}

// addressee is what an event of this stream is for; each gets one, whatever number of entries wants it.
type addressee struct {
	manager string
	kind    metav1.GroupVersionKind
}

// tellLocked queues an event about an object for each target whose filter is among matched and whose field is concerned. o may be nil.
func (s *stream) tellLocked(name protocol.Name, matched uint64, d difference, o *metav1.ObjectMeta, deleted bool) {
	if matched == 0 {
		return
	}
	var trimmed *metav1.ObjectMeta
	var told [4]addressee // enough for nearly all, without the heap
	done := told[:0]
	for _, t := range s.targets {
		if matched&bit(t.filter) == 0 || !d.counts(t.field) {
			continue
		}
		to := s.addresseeLocked(t)
		if slices.Contains(done, to) {
			continue
		}
		done = append(done, to)
		if trimmed == nil && o != nil {
			trimmed = small(protocol.TrimMetadata(o))
		}
		s.queue.add(to.manager, change{event: protocol.Event{
			Watched: name, WatchedGVK: to.kind, Resource: s.plan.query.resource, Deleted: deleted, Object: trimmed,
		}})
	}
}

// beginLocked queues that anything may have changed, for the targets. Ours are told how it is now, if that is known; nil is unknown. Other managers
// only know events about objects: they get one for each that is there, if that is known.
func (s *stream) beginLocked(targets []target, there map[string]record, now *introduction, complete bool) {
	var done []addressee
	for _, t := range targets {
		to := s.addresseeLocked(t)
		if complete && to.manager != protocol.ManagerName {
			s.introduceLocked(t, to, there)
			continue
		}
		if !slices.Contains(done, to) {
			done = append(done, to)
			e := began(key{kind: to.kind, resource: s.plan.query.resource})
			if e.ObjectsComplete = now != nil && !now.tooMuch && to.manager == protocol.ManagerName; e.ObjectsComplete {
				e.Objects = now.objects
			}
			s.queue.add(to.manager, change{event: e})
		}
	}
}

// introduceLocked queues an event about each object that a target wants.
func (s *stream) introduceLocked(t target, to addressee, there map[string]record) {
	for key, r := range there {
		if r.matched&bit(t.filter) == 0 {
			continue
		}
		namespace, name, _ := strings.Cut(key, "/")
		s.queue.add(to.manager, change{event: protocol.Event{
			Watched: protocol.Name{Namespace: namespace, Name: name}, WatchedGVK: to.kind, Resource: s.plan.query.resource,
		}})
	}
}

func (s *stream) addresseeLocked(t target) addressee {
	to := addressee{manager: t.manager, kind: metav1.GroupVersionKind{Group: s.plan.query.group, Version: t.version, Kind: t.kind}}
	if s.served != nil {
		to.kind.Kind = cmp.Or(t.kind, s.served.kind)
		if t.version == "*" {
			to.kind.Version = s.served.preferred
		}
	}
	return to
}

// small returns nil instead of metadata that would not fit into an event.
func small(o *metav1.ObjectMeta) *metav1.ObjectMeta {
	if size(o) > maxMetadata {
		return nil
	}
	return o
}

// size is about how many bytes metadata takes in an event, beside its name.
func size(o *metav1.ObjectMeta) int {
	bytes := 150 * len(o.ManagedFields)
	for _, texts := range []map[string]string{o.Labels, o.Annotations} {
		for key, value := range texts {
			bytes += len(key) + len(value) + len(`"":"",`)
		}
	}
	return bytes
}

// retarget changes who is told, without touching the watch. Who is new is told that the watch has begun.
func (s *stream) retarget(targets []target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	former := map[target]bool{}
	for _, t := range s.targets {
		former[t] = true
	}
	s.targets = targets
	if s.served == nil { // its definition is gone: all are told when it is back
		s.listed = false
	}
	if !s.listed {
		return
	}
	var news []target
	for _, t := range targets {
		if !former[t] {
			news = append(news, t)
		}
	}
	s.beginLocked(news, s.known, nil, !s.partial)
}

// forget takes the stream out of the sums.
func (s *stream) forget() {
	s.records.Add(-int64(len(s.known)))
	s.known = nil
	s.metrics.objects.Set(float64(s.records.Load()))
}
