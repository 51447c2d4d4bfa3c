package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/kyma-fleet/lifecycle-manager/internal/agent/outbox"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/internal/watch"
)

const (
	pageSize            = 200              // objects of a list that are in memory at the same time
	maxListPages        = 5_000            // of one list
	maxRetryDelay       = 5 * time.Second  // after a failed list or watch: a missing CRD may be created at any time
	defaultProblemDelay = 5 * time.Second  // before a failure that may pass by itself is a problem
	maxRecords          = 60_000           // of objects, in all streams together
	maxMetadataBytes    = 12 << 10         // of metadata in an event
	defaultWatchTimeout = 20 * time.Minute // a watch ends after between half of and all of it
)

// stream is the watch of one resource, with a record of each of its objects.
type stream struct {
	*streams
	plan     plan
	recorder *recorder
	retry    chan struct{} // a value ends the delay after a failure
	stop     context.CancelFunc
	done     chan struct{}

	mu        sync.Mutex // guards what follows
	targets   []target
	served    *served // nil until discovery has found it
	announced bool    // the start of the watch was reported: later targets get a report of their own

	// What follows is for run alone; it holds mu for changes.
	known    map[string]record // by namespace/name
	partial  bool              // known does not have all objects, because there are too many
	outdated bool              // since the last list, it was reported that any object may have changed
	listing  listing           // the list that is being read
}

// listing is a list that is being read.
type listing struct {
	first   bool   // there was no list before
	ours    uint64 // filters of the lifecycle manager's targets
	fresh   map[string]record
	partial bool
	changed []protocol.Name
	objects introduction
}

// run lists and watches the resource until ctx ends.
func (s *stream) run(ctx context.Context) {
	defer close(s.done)
	defer func() {
		s.dropRecords()
		s.problems.set(s.problemKey(), "")
	}()
	query := metav1.ListOptions{LabelSelector: s.plan.query.selector}
	if s.plan.query.name != "" {
		query.FieldSelector = "metadata.name=" + s.plan.query.name
	}
	_ = watch.Run(ctx, watch.Options[metav1.PartialObjectMetadata]{ // it ends with ctx alone
		Source: watch.ClientSource(s.listPage, s.openWatch), Query: query, ListSlots: s.listSlots,
		PageSize: pageSize, MaxPages: maxListPages, MaxObjects: maxListPages * pageSize, WatchTimeout: s.timeout,
		MinDelay: outbox.MinRetryDelay, MaxDelay: maxRetryDelay, HealthyAfter: s.problemDelay, Retry: s.retry,
		Page: s.addPage, Listed: s.endList, Event: s.receive, Failed: s.reportFailure,
		Opened: s.recordOpened, Closed: s.metrics.watches.Dec,
	})
}

// name returns the resource as problems name it.
func (s *stream) name() string {
	return schema.GroupResource{Group: s.plan.query.group, Resource: s.plan.query.resource}.String()
}

// problemKey identifies the problems of this stream: there is one stream for each version of a resource that the watch
// list names.
func (s *stream) problemKey() string { return s.name() + " " + s.plan.query.version }

// recordOpened records that a watch is open.
func (s *stream) recordOpened() {
	s.metrics.watches.Inc()
	s.problems.set(s.problemKey(), "")
}

// reportFailure reports why the resource is not watched. A failure that may pass by itself is a problem only if it
// lasts.
func (s *stream) reportFailure(err error, since time.Time) error {
	s.log.V(1).Info("a watch failed", "resource", s.name(), "error", err.Error())
	switch {
	case apierrors.IsNotFound(err):
		s.problems.set(s.problemKey(), s.name()+" does not exist in the runtime")
		s.reportRemovedResource()
	case apierrors.IsForbidden(err):
		s.problems.set(s.problemKey(), "not allowed to list and watch "+s.name())
	case time.Since(since) >= s.problemDelay:
		s.problems.set(s.problemKey(), fmt.Sprintf("cannot watch %s: %.120s", s.name(), cause(err)))
	}
	return nil
}

// reportRemovedResource reports once that any object may have changed when the CRD of a resource was deleted. If the
// CRD is created again, the next list shows the differences.
func (s *stream) reportRemovedResource() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) > 0 && !s.outdated {
		s.outdated = true
		s.announceLocked(s.targets, s.known, nil, !s.partial)
	}
	s.served = nil
}

// resource returns the client of the resource, which discovery finds before the first list, and after the resource was
// removed.
func (s *stream) resource(ctx context.Context) (metadata.ResourceInterface, error) {
	s.mu.Lock()
	found := s.served
	s.mu.Unlock()
	q := s.plan.query
	if found == nil {
		f, err := s.discovery.find(ctx, q)
		if err != nil {
			return nil, err
		}
		found = &f
		s.mu.Lock()
		s.served = found
		s.mu.Unlock()
	}
	resource := s.client.Resource(schema.GroupVersionResource{Group: q.group,
		Version: found.version, Resource: q.resource})
	if q.namespace != "" {
		return resource.Namespace(q.namespace), nil
	}
	return resource, nil
}

func (s *stream) listPage(ctx context.Context, o metav1.ListOptions) (
	page watch.Page[metav1.PartialObjectMetadata], err error) {
	client, err := s.resource(ctx)
	if err != nil {
		return page, err
	}
	list, err := client.List(ctx, o)
	if err != nil {
		return page, err
	}
	return watch.Page[metav1.PartialObjectMetadata]{Items: list.Items, ResourceVersion: list.ResourceVersion,
		Continue: list.Continue}, nil
}

func (s *stream) openWatch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	client, err := s.resource(ctx)
	if err != nil {
		return nil, err
	}
	return client.Watch(ctx, o)
}

// addPage records the objects of a page, and which of them differ from the former list.
func (s *stream) addPage(items []metav1.PartialObjectMetadata, first bool) {
	if first {
		s.beginList()
	}
	l := &s.listing
	for n := range items {
		o := &items[n].ObjectMeta
		key, r := o.Namespace+"/"+o.Name, s.recorder.record(o)
		before, had := s.known[key]
		if !l.first && !s.partial && (!had || compare(before, r, false, true).concerns(protocol.FieldAny)) {
			l.changed = append(l.changed, protocol.Name{Namespace: o.Namespace, Name: o.Name})
		}
		if int(s.records.Load())-len(s.known)+len(l.fresh) >= maxRecords {
			l.partial = true
			continue
		}
		l.fresh[key] = r
		if l.first && r.matched&l.ours != 0 {
			l.objects.add(o)
		}
	}
}

func (s *stream) beginList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listing = listing{first: !s.announced, fresh: map[string]record{}}
	for _, t := range s.targets {
		if t.manager == protocol.ManagerName {
			s.listing.ours |= bit(t.filter)
		}
	}
}

// endList reports the start of the watch, or after a former list the differences.
func (s *stream) endList(complete bool) {
	l := s.listing
	s.listing = listing{}
	l.partial = l.partial || !complete
	l.objects.tooLarge = l.objects.tooLarge || !l.first || l.partial
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.announced || l.partial || s.partial || len(l.changed) > s.queue.Limit()/2:
		s.announceLocked(s.targets, l.fresh, &l.objects, !l.partial)
	default:
		for _, name := range l.changed {
			key := name.Namespace + "/" + name.Name
			s.reportLocked(name, s.known[key].matched|l.fresh[key].matched, difference{true, true}, nil, false)
		}
		for key, before := range s.known {
			if _, exists := l.fresh[key]; !exists {
				namespace, name, _ := strings.Cut(key, "/")
				s.reportLocked(protocol.Name{Namespace: namespace, Name: name}, before.matched,
					difference{true, true}, nil, true)
			}
		}
	}
	s.records.Add(int64(len(l.fresh) - len(s.known)))
	s.known, s.partial, s.announced, s.outdated = l.fresh, l.partial, true, false
	s.metrics.objects.Set(float64(s.records.Load()))
}

// introduction is the metadata of the objects of a resource at the start of its watch, if it fits into one event.
type introduction struct {
	objects  []metav1.ObjectMeta
	bytes    int
	tooLarge bool
}

func (i *introduction) add(o *metav1.ObjectMeta) {
	if i.tooLarge {
		return
	}
	trimmed := protocol.TrimMetadata(o)
	trimmed.Namespace, trimmed.Name = o.Namespace, o.Name
	i.bytes += 200 + size(trimmed)
	if i.tooLarge = i.bytes > maxMetadataBytes; i.tooLarge {
		i.objects = nil
		return
	}
	i.objects = append(i.objects, *trimmed)
}

// receive records and reports one event of the watch.
func (s *stream) receive(e watch.Event[metav1.PartialObjectMetadata]) {
	o, deleted := &e.Object.ObjectMeta, e.Deleted
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
		s.reportLocked(name, before.matched|after.matched, difference{true, true}, o, true)
	case !had:
		if s.records.Load() < maxRecords {
			s.known[key] = after
			s.records.Add(1)
		} else {
			s.partial = true
		}
		s.reportLocked(name, after.matched, difference{true, true}, o, false)
	default:
		s.known[key] = after
		s.reportLocked(name, before.matched&after.matched, compare(before, after, s.served.hasStatus, false), o, false)
		if moved := before.matched ^ after.matched; moved != 0 {
			s.reportLocked(name, moved, difference{true, true}, o, false)
		}
	}
	s.metrics.objects.Set(float64(s.records.Load()))
}

// addressee is a manager and the kind by which it knows the resource. Each gets one event, also if several targets want
// it.
type addressee struct {
	manager string
	kind    metav1.GroupVersionKind
}

// reportLocked queues an event about an object for each target whose filter is in matched and whose field has changed.
// o may be nil. The caller holds mu.
func (s *stream) reportLocked(name protocol.Name, matched uint64, d difference, o *metav1.ObjectMeta, deleted bool) {
	if matched == 0 {
		return
	}
	var trimmed *metav1.ObjectMeta
	var array [4]addressee // enough for nearly all, without the heap
	done := array[:0]
	for _, t := range s.targets {
		if matched&bit(t.filter) == 0 || !d.concerns(t.field) {
			continue
		}
		to := s.addresseeLocked(t)
		if slices.Contains(done, to) {
			continue
		}
		done = append(done, to)
		if trimmed == nil && o != nil {
			trimmed = ifSmall(protocol.TrimMetadata(o))
		}
		s.queue.Add(to.manager, outbox.Change{Event: protocol.Event{
			Watched: name, WatchedGVK: to.kind, Resource: s.plan.query.resource, Deleted: deleted, Object: trimmed,
		}})
	}
}

// announceLocked queues for each target that any object may have changed. The lifecycle manager gets the objects with
// it if they fit; nil is unknown. Other managers know only events about objects: they get one for each of records, if
// complete is true. The caller holds mu.
func (s *stream) announceLocked(targets []target, records map[string]record, objects *introduction, complete bool) {
	var done []addressee
	for _, t := range targets {
		to := s.addresseeLocked(t)
		if complete && to.manager != protocol.ManagerName {
			s.introduceLocked(t, to, records)
			continue
		}
		if !slices.Contains(done, to) {
			done = append(done, to)
			e := protocol.Event{WatchedGVK: to.kind, Resource: s.plan.query.resource, WatchStarted: true}
			if e.ObjectsComplete = objects != nil && !objects.tooLarge &&
				to.manager == protocol.ManagerName; e.ObjectsComplete {
				e.Objects = objects.objects
			}
			s.queue.Add(to.manager, outbox.Change{Event: e})
		}
	}
}

// introduceLocked queues an event about each object that a target wants. The caller holds mu.
func (s *stream) introduceLocked(t target, to addressee, records map[string]record) {
	for key, r := range records {
		if r.matched&bit(t.filter) == 0 {
			continue
		}
		namespace, name, _ := strings.Cut(key, "/")
		s.queue.Add(to.manager, outbox.Change{Event: protocol.Event{
			Watched: protocol.Name{Namespace: namespace, Name: name}, WatchedGVK: to.kind,
			Resource: s.plan.query.resource,
		}})
	}
}

func (s *stream) addresseeLocked(t target) addressee {
	to := addressee{manager: t.manager, kind: metav1.GroupVersionKind{Group: s.plan.query.group,
		Version: t.version, Kind: t.kind}}
	if s.served != nil {
		to.kind.Kind = cmp.Or(t.kind, s.served.kind)
		if t.version == "*" {
			to.kind.Version = s.served.preferred
		}
	}
	return to
}

// ifSmall returns metadata that fits into an event, and nil instead of larger metadata.
func ifSmall(o *metav1.ObjectMeta) *metav1.ObjectMeta {
	if size(o) > maxMetadataBytes {
		return nil
	}
	return o
}

// size estimates the bytes of metadata in an event, without its name.
func size(o *metav1.ObjectMeta) int {
	bytes := 150 * len(o.ManagedFields)
	for _, texts := range []map[string]string{o.Labels, o.Annotations} {
		for key, value := range texts {
			bytes += len(key) + len(value) + len(`"":"",`)
		}
	}
	return bytes
}

// setTargets replaces the targets of the watch, which goes on. New targets get a report that the watch has started.
func (s *stream) setTargets(targets []target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	former := map[target]bool{}
	for _, t := range s.targets {
		former[t] = true
	}
	s.targets = targets
	if s.served == nil { // its CRD was deleted: all targets get a report when it is created again
		s.announced = false
	}
	if !s.announced {
		return
	}
	var added []target
	for _, t := range targets {
		if !former[t] {
			added = append(added, t)
		}
	}
	s.announceLocked(added, s.known, nil, !s.partial)
}

// dropRecords subtracts the records of the stream from the total.
func (s *stream) dropRecords() {
	s.records.Add(-int64(len(s.known)))
	s.known = nil
	s.metrics.objects.Set(float64(s.records.Load()))
}
