package main

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/playground/fleet"
)

// watchFor is one entry of a watch list.
type watchFor struct {
	protocol.Watch

	selector labels.Selector
}

// matches reports whether the entry matches an object.
func (w *watchFor) matches(namespace, name string, of labels.Set) bool {
	return (w.Namespace == "" || w.Namespace == namespace) && (w.Name == "" || w.Name == name) && w.selector.Matches(of)
}

// record is the part of a watched object that is needed to detect a change.
type record struct {
	generation int64
	labels     uint64 // hash of labels, annotations, finalizers and deletionTimestamp
}

// useWatchlist activates a watch list. If the watches of a resource have changed, the agent reports to the manager that
// the state of all objects of this resource is unknown.
func (a *agent) useWatchlist(list protocol.Watchlist) {
	before := a.watches
	a.watches = map[schema.GroupResource][]watchFor{}
	for _, w := range list.Watches {
		selector, err := labels.Parse(w.Selector)
		if err != nil || w.Manager != "" && w.Manager != protocol.ManagerName {
			continue
		}
		resource := schema.GroupResource{Group: w.Group, Resource: w.Resource}
		a.watches[resource] = append(a.watches[resource], watchFor{w, selector})
	}
	maps.DeleteFunc(a.known, func(s subject, _ record) bool { return a.watches[s.resource] == nil })
	for resource, now := range a.watches {
		same := func(x, y watchFor) bool { return x.Watch == y.Watch }
		if slices.EqualFunc(before[resource], now, same) {
			continue
		}
		a.recordExisting(resource, now)
		about := subject{resource: resource}
		a.enqueueOrMergeEvent(about, true, false)
		a.pending[about].first = true
	}
}

// recordExisting makes records of the existing objects.
func (a *agent) recordExisting(resource schema.GroupResource, watches []watchFor) {
	for _, key := range a.cluster.Names(resource) {
		namespace, name, namespaced := strings.Cut(key, "/")
		if !namespaced {
			namespace, name = "", key
		}
		m, err := a.cluster.FindMetadata(resource, namespace, name)
		if err != nil || m == nil {
			continue
		}
		if slices.ContainsFunc(watches, func(w watchFor) bool { return w.matches(namespace, name, m.Labels) }) {
			a.known[subject{resource, namespace, name}] = generationAndMetadataHash(&m.ObjectMeta)
		}
	}
}

func generationAndMetadataHash(m *metav1.ObjectMeta) record {
	var sum uint64
	add := func(texts ...string) { sum += maphash.String(seed, strings.Join(texts, "\x00")) }
	add(append([]string{"f"}, m.Finalizers...)...)
	for key, value := range m.Labels {
		add("l", key, value)
	}
	for key, value := range m.Annotations {
		add("a", key, value)
	}
	if m.DeletionTimestamp != nil {
		add("d")
	}
	return record{generation: m.Generation, labels: sum}
}

// enqueueEventFor queues an event for a change of a watched object.
func (a *agent) enqueueEventFor(c fleet.Change, watches []watchFor) {
	about := subject{c.Resource, c.Namespace, c.Name}
	before, known := a.known[about]
	if c.Deleted {
		delete(a.known, about)
		if known {
			a.enqueueOrMergeEvent(about, false, true)
			a.pending[about].last = c.Last
		}
		return
	}
	m, err := a.cluster.FindMetadata(c.Resource, c.Namespace, c.Name)
	if err != nil || m == nil {
		return // the object was deleted meanwhile: that is another change
	}
	matched, all := false, false // all: the watch list requires a report of every change
	for i := range watches {
		if watches[i].matches(c.Namespace, c.Name, m.Labels) {
			matched, all = true, all || watches[i].Field != protocol.FieldSpec
		}
	}
	if !matched && !known {
		return
	}
	now := generationAndMetadataHash(&m.ObjectMeta)
	if matched {
		a.known[about] = now
	} else {
		delete(a.known, about)
	}
	if all || !matched || !known || now != before || m.Generation == 0 {
		a.enqueueOrMergeEvent(about, false, !matched)
	}
}

// enqueueOrMergeEvent queues an event. The event is due now, or later if an event for the same object was sent
// recently. If an event for the same object is still queued, enqueueOrMergeEvent only updates its field deleted.
func (a *agent) enqueueOrMergeEvent(about subject, watchStarted, deleted bool) {
	if e := a.pending[about]; e != nil {
		e.deleted = deleted
		return
	}
	a.sequence++
	e := &pendingEvent{due: time.Now(), number: a.sequence, whole: watchStarted, deleted: deleted}
	for i := len(a.delivered) - 1; i >= 0 && time.Since(a.delivered[i].at) < spacing; i-- {
		if a.delivered[i].subject == about {
			e.due = a.delivered[i].at.Add(spacing)
			break
		}
	}
	a.pending[about] = e
}

// watchedObjects returns the metadata of all watched objects of a resource. The result complete is false if there are
// too many objects for one event, or if an object cannot be read.
func (a *agent) watchedObjects(resource schema.GroupResource) (all []metav1.ObjectMeta, complete bool) {
	const most = 60
	for about := range a.known {
		if about.resource != resource {
			continue
		}
		m, err := a.cluster.FindMetadata(resource, about.namespace, about.name)
		if err != nil || m == nil || len(all) == most {
			return nil, false
		}
		o := protocol.EventMetadata(&m.ObjectMeta)
		o.Namespace, o.Name = about.namespace, about.name
		all = append(all, *o)
	}
	return all, true
}

// objectStateIfRequested returns the state of an object, such as its status, if a watch in the watch list requests the
// state of such objects. The real agent reads the object from its API server.
func (a *agent) objectStateIfRequested(resource schema.GroupResource, watches []watchFor, namespace,
	name string) json.RawMessage {
	at := slices.IndexFunc(watches, func(w watchFor) bool {
		return w.State && (w.Namespace == "" || w.Namespace == namespace) && (w.Name == "" || w.Name == name)
	})
	if at < 0 {
		return nil
	}
	u, err := a.cluster.Get(resource.WithVersion(watches[at].Version), namespace, name)
	if err != nil || u == nil {
		return nil
	}
	return protocol.TrimAndEncodeState(u.Object)
}

// deliverOrDropEvent sends an event, or drops it if the object is no longer watched. deliverOrDropEvent returns false
// if the event was not accepted and stays queued.
func (a *agent) deliverOrDropEvent(ctx context.Context, about subject, e *pendingEvent) (done bool) {
	watches := a.watches[about.resource]
	if len(watches) == 0 { // the object is no longer watched
		delete(a.pending, about)
		return true
	}
	event := protocol.Event{
		Watched: protocol.Name{Namespace: about.namespace, Name: about.name},
		WatchedGVK: metav1.GroupVersionKind{Group: about.resource.Group,
			Version: watches[0].Version, Kind: watches[0].Kind},
		BootID: a.boot, Sequence: e.number, Resource: about.resource.Resource,
		WatchStarted: e.whole, Deleted: e.deleted,
	}
	if e.first {
		event.Objects, event.ObjectsComplete = a.watchedObjects(about.resource)
		for i := range event.Objects {
			event.States = append(event.States, a.objectStateIfRequested(about.resource, watches,
				event.Objects[i].Namespace,
				event.Objects[i].Name))
		}
	}
	if !e.whole {
		m, err := a.cluster.FindMetadata(about.resource, about.namespace, about.name)
		switch {
		case err == nil && m != nil:
			event.Object = protocol.EventMetadata(&m.ObjectMeta)
			event.State = a.objectStateIfRequested(about.resource, watches, about.namespace, about.name)
		case e.deleted:
			var last metav1.PartialObjectMetadata
			if json.Unmarshal(e.last, &last) == nil {
				event.Object = protocol.EventMetadata(&last.ObjectMeta)
			}
		}
	}
	body, err := json.Marshal(event)
	if err != nil || len(body) > protocol.MaxEventBytes {
		event.State, event.States = nil, nil
		body, err = json.Marshal(event)
	}
	if err != nil || len(body) > protocol.MaxEventBytes {
		event.Object, event.Objects, event.ObjectsComplete = nil, nil, false
		body, _ = json.Marshal(event) // names always encode
	}
	if !a.sendOrScheduleRetry(ctx, protocol.EventPath(protocol.ManagerName), body) {
		return false
	}
	a.lastDelivery.Store(time.Now().UnixNano())
	delete(a.pending, about)
	a.delivered = append(a.delivered, deliveredEvent{time.Now(), about, e.deleted})
	return true
}
