package runtimes

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Subscriber is a receiver of the changes in a runtime.
type Subscriber struct {
	// Key identifies the subscriber within one runtime. A second subscription with the same key replaces the first.
	Key string
	// Interests select the objects whose changes are reported. Changes of the connection are always reported.
	Interests []Interest
	// ReplayMissed is true for a subscriber that relies on data that was read from the runtime before this process
	// started. If the Pool received an event before such a subscriber had interests for the first time, the event is
	// lost for the subscriber. The subscriber then receives a Missed event for each interest, so that it reads the
	// runtime again.
	ReplayMissed bool
	// Notify is called with each event for the subscriber. Notify must not block, and must accept calls at any time
	// from any goroutine.
	Notify func(Event)
}

// ManifestSubscriberKey returns the Subscriber.Key of a Manifest.
func ManifestSubscriberKey(namespace, name string) string {
	return "Manifest/" + namespace + "/" + name
}

// Interest selects objects of one resource in a runtime. Subscribers with equal interests share one watch.
type Interest struct {
	// Resource is the watched resource. Kind is the kind of the objects of this resource; it is stored here because the
	// metadata of the objects does not contain it.
	Resource schema.GroupVersionResource
	Kind     string
	// Namespace and Name limit the interest to one namespace and one object. If Namespace is empty, the interest
	// includes all namespaces; if Name is empty, the interest includes objects with any name.
	Namespace, Name string
	// Labels is a label selector. If Labels is "", the interest includes objects with any labels.
	Labels string
}

// Event is a change in a runtime. Exactly one of ConnectionChanged, Missed, Listed and Object is set.
type Event struct {
	// ConnectionChanged is true if the connection was made, replaced, broken or restored. If ConnectionChanged is true,
	// all other fields are empty.
	ConnectionChanged bool
	// Missed is true if changes of the resource in Interest may have been missed. If Interest.Resource is empty,
	// changes of all resources may have been missed. After a Missed event, the subscriber has to read its objects of
	// the resource from the runtime.
	Missed bool
	// Listed is true if Objects is the complete list of the objects of Interest. A watch sends an event in which Listed
	// is true when the watch starts, and again after the watch has missed changes.
	Listed  bool
	Objects []metav1.PartialObjectMetadata
	// Interest is the interest of the subscriber that the event matches. Interest contains the resource and the kind of
	// the changed objects.
	Interest Interest
	// Object is the metadata of the changed object.
	Object *metav1.PartialObjectMetadata
	// Deleted is true if Object was deleted.
	Deleted bool
	// States contains objects with spec and status, whereas Object and Objects contain only metadata. The agent had
	// just read the objects in States when it sent the event. The key of States is the namespace and the name of the
	// object. If a subscriber needs an object that is not in States, the subscriber has to read the object from the
	// runtime. Subscribers must not modify the objects in States.
	States map[types.NamespacedName]*unstructured.Unstructured
}

// Subscribe adds or replaces a subscriber. Subscribe sends no request, so a caller can subscribe even if the runtime
// cannot be reached. If the interests are the same as before, Subscribe is cheap.
func (p *Pool) Subscribe(kyma string, s Subscriber) {
	p.mu.Lock()
	e := p.ensureEntryLocked(kyma)
	former := e.subscribers[s.Key].Interests
	changed := !slices.Equal(former, s.Interests)
	missed := s.ReplayMissed && e.published && len(former) == 0 && len(s.Interests) > 0
	e.subscribers[s.Key] = s
	if e.runtime != nil {
		e.runtime.updateWatches(s)
	}
	p.mu.Unlock()
	if missed {
		for _, i := range s.Interests {
			s.Notify(Event{Missed: true, Interest: i})
		}
	}
	if changed {
		p.notifyInterestsChanged(kyma)
	}
}

// Unsubscribe removes the subscriber with the given key.
func (p *Pool) Unsubscribe(kyma, key string) {
	if hadInterests := p.removeSubscriber(kyma, key); hadInterests {
		p.notifyInterestsChanged(kyma)
	}
}

func (p *Pool) notifyInterestsChanged(kyma string) {
	if p.opts.InterestsChanged != nil {
		p.opts.InterestsChanged(kyma)
	}
}

// removeSubscriber removes a subscriber. When the pool's entry for a runtime has neither subscribers nor a connection
// any more, removeSubscriber removes the entry, too.
func (p *Pool) removeSubscriber(kyma, key string) (hadInterests bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[kyma]
	if e == nil {
		return false
	}
	if _, subscribed := e.subscribers[key]; !subscribed {
		return false // the entry may record an event that was published before the first subscription
	}
	hadInterests = len(e.subscribers[key].Interests) > 0
	delete(e.subscribers, key)
	if e.runtime != nil {
		e.runtime.updateWatches(Subscriber{Key: key})
	}
	if len(e.subscribers) == 0 && e.runtime == nil {
		delete(p.entries, kyma)
	}
	return hadInterests
}

// Interests returns the interests of all subscribers of a runtime, sorted and without duplicates.
func (p *Pool) Interests(kyma string) []Interest {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Interest
	if e := p.entries[kyma]; e != nil {
		for _, s := range e.subscribers {
			all = append(all, s.Interests...)
		}
	}
	slices.SortFunc(all, Interest.Compare)
	return slices.Compact(all)
}

// HasInterests reports whether the subscriber with the given key has interests.
func (p *Pool) HasInterests(kyma, key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[kyma]
	return e != nil && len(e.subscribers[key].Interests) > 0
}

// maxSharedLists is the maximum number of different lists of interests that InternInterests keeps in memory. Runtimes
// with the same modules have equal lists of interests, and share one copy.
const maxSharedLists = 4096

// InternInterests returns the same slice for all callers that pass an equal list of interests. InternInterests saves
// memory, because runtimes with the same modules have equal lists of interests. Callers must not change the returned
// slice.
func (p *Pool) InternInterests(interests []Interest) []Interest {
	var key strings.Builder
	for _, i := range interests {
		for _, part := range []string{i.Resource.Group, i.Resource.Version, i.Resource.Resource, i.Kind,
			i.Namespace, i.Name, i.Labels} {
			key.WriteString(part)
			key.WriteByte(0)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if shared, ok := p.shared[key.String()]; ok {
		return shared
	}
	if p.shared == nil || len(p.shared) >= maxSharedLists {
		p.shared = map[string][]Interest{}
	}
	p.shared[key.String()] = slices.Clip(interests)
	return interests
}

// Compare compares interests by group, version, resource, kind, namespace, name and labels, in this order.
func (i Interest) Compare(o Interest) int {
	return cmp.Or(cmp.Compare(i.Resource.Group, o.Resource.Group), cmp.Compare(i.Resource.Version, o.Resource.Version),
		cmp.Compare(i.Resource.Resource, o.Resource.Resource),
		cmp.Compare(i.Kind, o.Kind), cmp.Compare(i.Namespace, o.Namespace), cmp.Compare(i.Name, o.Name),
		cmp.Compare(i.Labels, o.Labels))
}

// selectors has the parsed form of label selectors, by their text. All texts are constants of the controllers, so there
// are only a few. An invalid text selects all objects.
type selectors map[string]labels.Selector

// parsed returns the parsed form of a label selector, and stores it for further calls. The caller of parsed must hold
// Pool.mu.
func (s selectors) parsed(text string) labels.Selector {
	if known, ok := s[text]; ok {
		return known
	}
	selector, err := labels.Parse(text)
	if err != nil {
		selector = labels.Everything()
	}
	s[text] = selector
	return selector
}

// matches reports whether an event concerns the interest.
func (i Interest) matches(e Event, by selectors) bool {
	if e.Interest.Resource.Resource == "" { // the event has no resource: compare the kind
		if i.Resource.Group != e.Interest.Resource.Group || i.Kind != e.Interest.Kind {
			return false
		}
	} else if i.Resource.GroupResource() != e.Interest.Resource.GroupResource() {
		return false
	}
	return e.Object == nil || i.selects(e.Object, e.Deleted, by)
}

// selects reports whether the namespace, the name and the labels of an interest match an object of the resource of the
// interest. For a deleted object without labels, selects ignores the labels, because the labels of a deleted object may
// be unknown.
func (i Interest) selects(o *metav1.PartialObjectMetadata, deleted bool, by selectors) bool {
	if i.Namespace != "" && i.Namespace != o.Namespace || i.Name != "" && i.Name != o.Name {
		return false
	}
	if i.Labels == "" || deleted && o.Labels == nil {
		return true
	}
	return by.parsed(i.Labels).Matches(labels.Set(o.Labels))
}

// filter returns those of the objects that the interest includes.
func (i Interest) filter(objects []metav1.PartialObjectMetadata, by selectors) []metav1.PartialObjectMetadata {
	isOther := func(o metav1.PartialObjectMetadata) bool { return !i.selects(&o, false, by) }
	if !slices.ContainsFunc(objects, isOther) {
		return objects
	}
	return slices.DeleteFunc(slices.Clone(objects), isOther)
}
