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
	pageSize     = 200   // number of objects in one page of a list
	maxListPages = 5_000 // maximum number of pages of one list
	// maxRetryDelay is the maximum delay after a failed request; it is short, because a missing CRD may soon exist.
	maxRetryDelay       = 5 * time.Second
	defaultProblemDelay = 5 * time.Second  // after this time, a temporary failure is a problem
	defaultRemovalDelay = 30 * time.Second // after this time, the removal of a watched CRD is a problem
	maxRecords          = 60_000           // maximum number of records of all streams together
	maxMetadataBytes    = 12 << 10         // maximum size of the metadata in an event
	defaultWatchTimeout = 20 * time.Minute // a watch ends at a random time between half and all of it
)

// stream is the watch of one resource. stream has a record of each object of this resource.
type stream struct {
	*streams
	plan     plan
	recorder *recorder
	retry    chan struct{} // a value ends the delay after a failure
	stop     context.CancelFunc
	done     chan struct{}

	mu        sync.Mutex // guards the fields below
	targets   []target
	served    *served // nil until discovery has found the resource
	announced bool    // the start of the watch was reported; targets that are added later get their own report

	// Only run uses the fields below. run holds mu while it changes them.
	known    map[string]record // by namespace/name
	partial  bool              // known is incomplete, because there are too many objects
	outdated bool              // after the last list, the stream reported that any object may have changed
	listing  listing           // list that is being read
}

// listing is the state of a list while its pages are read.
type listing struct {
	first   bool   // this is the first list
	ours    uint64 // bits of the filters of the targets of the lifecycle manager
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
		s.problems.setAndNotify(s.problemKey(), "")
	}()
	query := metav1.ListOptions{LabelSelector: s.plan.query.selector}
	if s.plan.query.name != "" {
		query.FieldSelector = "metadata.name=" + s.plan.query.name
	}
	_ = watch.Run(ctx, watch.Options[metav1.PartialObjectMetadata]{ // Run returns only when ctx ends
		Source: watch.ClientSource(s.listPage, s.openWatch), Query: query, ListSlots: s.listSlots,
		PageSize: pageSize, MaxPages: maxListPages, MaxObjects: maxListPages * pageSize, WatchTimeout: s.timeout,
		MinDelay: s.minDelay, MaxDelay: s.maxDelay, HealthyAfter: s.problemDelay, Retry: s.retry,
		Page: s.addPage, Listed: s.finishListAndReport, Event: s.recordAndReportChange, Failed: s.reportFailure,
		Opened: s.recordOpened, Closed: s.metrics.watches.Dec,
	})
}

// name returns the name of the resource in the form that problem messages contain.
func (s *stream) name() string {
	return schema.GroupResource{Group: s.plan.query.group, Resource: s.plan.query.resource}.String()
}

// problemKey returns the key for the problems of this stream. The key contains the version, because each version of a
// resource in the watch list has its own stream.
func (s *stream) problemKey() string { return s.name() + " " + s.plan.query.version }

// recordOpened records that a watch is open.
func (s *stream) recordOpened() {
	s.metrics.watches.Inc()
	s.problems.setAndNotify(s.problemKey(), "")
}

// reportFailure records that a resource cannot be watched. A failure is recorded only after it has lasted for some
// time, because new rights take effect with a delay, and the CRD of a removed module is deleted before its entry in the
// watch list.
func (s *stream) reportFailure(err error, failingSince time.Time) error {
	s.log.V(1).Info("a watch failed", "resource", s.name(), "error", err.Error())
	switch {
	case apierrors.IsNotFound(err):
		if delay := s.failureGracePeriod(s.problemDelay, s.removalDelay); time.Since(failingSince) >= delay {
			s.problems.setAndNotify(s.problemKey(), s.name()+" does not exist in the runtime")
		}
		s.reportCRDRemovalOnce()
	case time.Since(failingSince) < s.problemDelay:
	case apierrors.IsForbidden(err):
		s.problems.setAndNotify(s.problemKey(), "not allowed to list and watch "+s.name())
	default:
		s.problems.setAndNotify(s.problemKey(), fmt.Sprintf("cannot watch %s: %.120s", s.name(), textWithoutURL(err)))
	}
	return nil
}

// failureGracePeriod returns how long a failure has to last before it is reported as a problem. failureGracePeriod
// returns the parameter "ifWatched" if the resource was watched before, and the parameter "ifNeverWatched" otherwise.
func (s *stream) failureGracePeriod(ifNeverWatched, ifWatched time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.announced {
		return ifWatched
	}
	return ifNeverWatched
}

// reportCRDRemovalOnce is called when the CRD of a resource was deleted. It reports once to each target that any object
// of the resource may have changed. If the CRD is created again, the stream compares the new objects with its records
// of the former ones.
func (s *stream) reportCRDRemovalOnce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) > 0 && !s.outdated {
		s.outdated = true
		s.reportAllMayHaveChangedLocked(s.targets, s.known, nil, !s.partial)
	}
	s.served = nil
}

// resource returns the client with which the stream lists and watches its resource. Before the first list, and again
// after the resource was removed from the API server, the stream sends a discovery request to find the resource.
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

// addPage records the objects of a page of a list, and which of these objects differ from the former list.
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
			s.listing.ours |= filterBit(t.filter)
		}
	}
}

// finishListAndReport is called at the end of a list. After the first list, finishListAndReport reports the start of
// the watch. After later lists, finishListAndReport reports which objects have changed.
func (s *stream) finishListAndReport(complete bool) {
	l := s.listing
	s.listing = listing{}
	l.partial = l.partial || !complete
	l.objects.tooLarge = l.objects.tooLarge || !l.first || l.partial
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.announced || l.partial || s.partial || len(l.changed) > s.queue.MaxPendingEvents()/2:
		s.reportAllMayHaveChangedLocked(s.targets, l.fresh, &l.objects, !l.partial)
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

// introduction is the metadata of all objects that a resource has at the start of its watch. The agent sends the
// introduction to the lifecycle manager if it fits into one event.
type introduction struct {
	objects  []metav1.ObjectMeta
	bytes    int
	tooLarge bool
}

func (i *introduction) add(o *metav1.ObjectMeta) {
	if i.tooLarge {
		return
	}
	trimmed := protocol.EventMetadata(o)
	trimmed.Namespace, trimmed.Name = o.Namespace, o.Name
	i.bytes += 200 + estimateMetadataSize(trimmed)
	if i.tooLarge = i.bytes > maxMetadataBytes; i.tooLarge {
		i.objects = nil
		return
	}
	i.objects = append(i.objects, *trimmed)
}

// recordAndReportChange handles one event of the watch: it records the object and reports the change.
func (s *stream) recordAndReportChange(e watch.Event[metav1.PartialObjectMetadata]) {
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
		s.reportLocked(name, after.matched&^before.matched, difference{true, true}, o, false)
		// Without metadata, because the interest of a receiver whose filter matched before does not match it any more.
		s.reportLocked(name, before.matched&^after.matched, difference{true, true}, nil, false)
	}
	s.metrics.objects.Set(float64(s.records.Load()))
}

// addressee is a receiver of events: the name of a manager, and the kind that the events for this manager contain. If
// several targets of one addressee match an object, the addressee gets only one event.
type addressee struct {
	manager string
	kind    metav1.GroupVersionKind
}

// reportLocked queues an event about an object for each target that the change concerns. A change concerns a target if
// its filter matches the object (the filter's bit is in matched) and its field has changed. The parameter o may be nil.
// The caller of reportLocked must hold mu.
func (s *stream) reportLocked(name protocol.Name, matched uint64, d difference, o *metav1.ObjectMeta, deleted bool) {
	if matched == 0 {
		return
	}
	var trimmed *metav1.ObjectMeta
	var array [4]addressee // avoids an allocation on the heap in nearly all cases
	done := array[:0]
	for _, t := range s.targets {
		if matched&filterBit(t.filter) == 0 || !d.concerns(t.field) {
			continue
		}
		to := s.managerAndEventGVKLocked(t)
		if slices.Contains(done, to) {
			continue
		}
		done = append(done, to)
		if trimmed == nil && o != nil {
			trimmed = ifSmall(protocol.EventMetadata(o))
		}
		s.queue.Add(to.manager, outbox.Change{Event: protocol.Event{
			Watched: name, WatchedGVK: to.kind, Resource: s.plan.query.resource, Deleted: deleted, Object: trimmed,
		}})
	}
}

// reportAllMayHaveChangedLocked reports to each target that any object of the resource may have changed. The lifecycle
// manager gets one event, which contains the metadata of all objects (the parameter "objects") if there is room for
// this metadata. The managers of Watchers support only events about single objects: if "recordsComplete" is true, each
// of them gets one event for each object in "records". The caller of reportAllMayHaveChangedLocked must hold mu.
func (s *stream) reportAllMayHaveChangedLocked(targets []target, records map[string]record, objects *introduction,
	recordsComplete bool) {
	var done []addressee
	for _, t := range targets {
		to := s.managerAndEventGVKLocked(t)
		if recordsComplete && to.manager != protocol.ManagerName {
			s.reportEachObjectLocked(t, to, records)
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

// reportEachObjectLocked queues one event for each object that the filter of a target matches. The caller of
// reportEachObjectLocked must hold mu.
func (s *stream) reportEachObjectLocked(t target, to addressee, records map[string]record) {
	for key, r := range records {
		if r.matched&filterBit(t.filter) == 0 {
			continue
		}
		namespace, name, _ := strings.Cut(key, "/")
		s.queue.Add(to.manager, outbox.Change{Event: protocol.Event{
			Watched: protocol.Name{Namespace: namespace, Name: name}, WatchedGVK: to.kind,
			Resource: s.plan.query.resource,
		}})
	}
}

func (s *stream) managerAndEventGVKLocked(t target) addressee {
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

// ifSmall returns metadata if it fits into an event, and nil if it is larger.
func ifSmall(o *metav1.ObjectMeta) *metav1.ObjectMeta {
	if estimateMetadataSize(o) > maxMetadataBytes {
		return nil
	}
	return o
}

// estimateMetadataSize estimates the bytes of the labels, annotations and managedFields of an object in an event.
func estimateMetadataSize(o *metav1.ObjectMeta) int {
	bytes := 150 * len(o.ManagedFields)
	for _, texts := range []map[string]string{o.Labels, o.Annotations} {
		for key, value := range texts {
			bytes += len(key) + len(value) + len(`"":"",`)
		}
	}
	return bytes
}

// setTargetsAndReportToNew replaces the targets of the stream (the receivers of its events), and does not interrupt the
// watch. Each new target gets a report that the watch has started.
func (s *stream) setTargetsAndReportToNew(targets []target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	former := map[target]bool{}
	for _, t := range s.targets {
		former[t] = true
	}
	s.targets = targets
	if s.served == nil { // the CRD was deleted: when it is created again, all targets get a report
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
	s.reportAllMayHaveChangedLocked(added, s.known, nil, !s.partial)
}

// dropRecords subtracts the records of this stream from the number of records of all streams.
func (s *stream) dropRecords() {
	s.records.Add(-int64(len(s.known)))
	s.known = nil
	s.metrics.objects.Set(float64(s.records.Load()))
}
