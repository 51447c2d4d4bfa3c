package manifest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// installation is what is remembered of one Manifest between passes. Losing it costs reads and patches that change nothing.
type installation struct {
	progress apply.Progress         // what was sent and answered; used by passes, of which there is one at a time
	deletion apply.DeletionProgress // what was asked to go
	kinds    []runtimes.Interest
	uid      types.UID              // of the Manifest; another of the same name is another installation
	released bool                   // the Manifest was let go; the cache may still show it for a moment
	judged   string                 // by which readiness was judged last; "" if not yet
	reported v1beta2.State          // by the last pass, whether or not that could be saved; "" if not yet
	unsaved  unsaved                // what was applied completely, if the status does not say so yet
	drift    string                 // what was found to differ and is only reported; "" if nothing
	compared time.Time              // when all objects were last sent or compared; zero if not since the program learnt of this Manifest
	audited  time.Time              // when all objects were last compared, or when the program learnt of this Manifest
	runtime  atomic.Pointer[string] // the Kyma that is followed

	mu        sync.Mutex
	inventory []apply.Ref            // guarded by mu: what should be there once all is applied
	news      map[apply.Ref]sighting // guarded by mu: objects seen to change since the last pass
	stir      bool                   // guarded by mu: something that readiness depends on has changed
	missed    bool                   // guarded by mu: changes of objects may have been missed
}

// sighting is what a watch told of one object.
type sighting struct {
	uid             types.UID
	generation      int64
	resourceVersion string
	deleted         bool
	byOthers        bool // the last change of anything but status was not ours
}

// remember returns what is remembered of a Manifest, made if needed.
func (r *Reconciler) remember(key types.NamespacedName, uid types.UID) *installation {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.known[key]
	if i == nil || i.uid != uid {
		i = &installation{uid: uid, audited: time.Now()}
		r.known[key] = i
	}
	return i
}

// forget drops what is remembered of a Manifest that is gone.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	i := r.known[key]
	delete(r.known, key)
	r.mu.Unlock()
	if i != nil && i.runtime.Load() != nil {
		r.Runtimes.Unsubscribe(*i.runtime.Load(), followKey(key))
	}
}

// follow asks to hear of the connection, of the kinds of the inventory and of the module's custom resource.
func (n *run) follow() {
	key := types.NamespacedName{Namespace: n.manifest.Namespace, Name: n.manifest.Name}
	n.inst.runtime.Store(new(strings.Clone(n.kyma))) // a pointer into n would keep all of it
	n.Runtimes.Subscribe(n.kyma, runtimes.Subscriber{
		Key: followKey(key), Interests: n.inst.kinds, ReplayMissed: n.inst.compared.IsZero(), Notify: n.wakeOn(key, n.inst, n.resourceRef()),
	})
}

// wakeOn returns what the pool calls when something happened in the runtime. What is not of this Manifest is passed over; the rest is noted and
// the Manifest put into the queue.
func (r *Reconciler) wakeOn(key types.NamespacedName, inst *installation, resource apply.Ref) func(runtimes.Event) {
	owner := key.Namespace + "/" + key.Name
	return func(s runtimes.Event) {
		if !inst.note(s, owner, resource) {
			return
		}
		if q := r.queue.Load(); q != nil {
			(*q).Add(reconcile.Request{NamespacedName: key})
		}
	}
}

// note records what was seen and tells whether it concerns this Manifest.
func (i *installation) note(s runtimes.Event, owner string, resource apply.Ref) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s.ConnectionChanged {
		return true
	}
	if s.Missed {
		return i.noteMissedLocked(s.Interest, resource)
	}
	if s.Listed {
		return i.noteAllLocked(s, owner, resource)
	}
	return s.Object != nil && i.noteOneLocked(s, s.Object, owner, resource)
}

// noteMissedLocked records that changes may have been missed, and tells whether that concerns this Manifest. The caller holds mu.
func (i *installation) noteMissedLocked(in runtimes.Interest, resource apply.Ref) bool {
	concerns := func(ref apply.Ref) bool {
		return in.Kind == "" || refIn(in, ref.Namespace, ref.Name).SameObject(ref)
	}
	missed := slices.ContainsFunc(i.inventory, concerns)
	i.missed = i.missed || missed
	i.stir = i.stir || missed || concerns(resource)
	return missed || concerns(resource)
}

// noteOneLocked records what was seen of one object. The caller holds mu.
func (i *installation) noteOneLocked(s runtimes.Event, o *metav1.PartialObjectMetadata, owner string, resource apply.Ref) bool {
	ref := refIn(s.Interest, o.Namespace, o.Name)
	known := !s.Deleted && i.progress.IsKnownVersion(ref, o.UID, o.ResourceVersion) // it was judged as it is
	if ref.SameObject(resource) {
		i.stir = i.stir || !known
		return !known
	}
	if known || o.Annotations[v1beta2.AnnotationOwnedBy] != owner {
		return false
	}
	if !s.Deleted && !statusCounts(ref) && i.progress.ObserveEvent(ref, o.UID, o.Generation, o.ResourceVersion) {
		return false // an echo of what we have written
	}
	if i.news == nil {
		i.news = map[apply.Ref]sighting{}
	}
	i.news[ref] = sighting{
		uid: o.UID, generation: o.Generation, resourceVersion: o.ResourceVersion, deleted: s.Deleted, byOthers: changedByOthers(o),
	}
	return true
}

// statusCounts tells whether a change of the status of an object may matter to readiness.
func statusCounts(ref apply.Ref) bool {
	return isWorkload(ref) || ref.Kind == "CustomResourceDefinition" || ref.Kind == "PersistentVolumeClaim"
}

// noteAllLocked records how a kind stands when a watch on it begins: each object of this Manifest, and what should be there and is not. The
// caller holds mu.
func (i *installation) noteAllLocked(s runtimes.Event, owner string, resource apply.Ref) bool {
	concerned := false
	there := map[apply.Ref]bool{}
	for k := range s.Objects {
		o := &s.Objects[k]
		ref := refIn(s.Interest, o.Namespace, o.Name)
		there[ref] = true
		if was, known := i.news[ref]; known && (was.deleted || isOlder(o.ResourceVersion, was.resourceVersion)) {
			continue // an event may overtake the list that came before it
		}
		concerned = i.noteOneLocked(s, o, owner, resource) || concerned
	}
	for _, ref := range append([]apply.Ref{resource}, i.inventory...) {
		of := refIn(s.Interest, ref.Namespace, ref.Name)
		if s.Interest.Name != "" && ref.Name != s.Interest.Name || !of.SameObject(ref) || there[of] {
			continue
		}
		concerned = true
		if ref.SameObject(resource) {
			i.stir = true
			continue
		}
		if i.news == nil {
			i.news = map[apply.Ref]sighting{}
		}
		i.news[of] = sighting{deleted: true}
	}
	return concerned
}

// isOlder tells whether a version of an object comes before another one. Of what is no number, that is not known.
func isOlder(version, than string) bool {
	a, errA := strconv.ParseUint(version, 10, 64)
	b, errB := strconv.ParseUint(than, 10, 64)
	return errA == nil && errB == nil && a < b
}

// refIn identifies an object of an interest.
func refIn(i runtimes.Interest, namespace, name string) apply.Ref {
	return apply.Ref{Group: i.Resource.Group, Version: i.Resource.Version, Kind: i.Kind, Namespace: namespace, Name: name}
}

// expect says what should be in the runtime, so that it is noticed when it is not. It is kept once for all runtimes that should have the same.
func (i *installation) expect(refs []apply.Ref, s *shared) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !slices.Equal(i.inventory, refs) {
		i.inventory = share(s, "expected "+keyOf(syncedOf(refs)), refs)
	}
}

// take returns what was seen since the last call.
func (i *installation) take() (news map[apply.Ref]sighting, stir, missed bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	news, stir, missed = i.news, i.stir, i.missed
	i.news, i.stir, i.missed = nil, false, false
	return news, stir, missed
}

// giveBack puts back what a pass took and could not deal with.
func (i *installation) giveBack(news map[apply.Ref]sighting, stir, missed bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.news == nil {
		i.news = map[apply.Ref]sighting{}
	}
	for ref, s := range news {
		if _, newer := i.news[ref]; !newer {
			i.news[ref] = s
		}
	}
	i.stir, i.missed = i.stir || stir, i.missed || missed
}

// drifted returns the objects that somebody else changed or deleted, in stable order. An echo of our own write is none, nor is a change of status.
func (i *installation) drifted(news map[apply.Ref]sighting) []apply.Ref {
	var refs []apply.Ref
	for ref, s := range news {
		known := i.progress.IsApplied(ref)
		if s.deleted || known && !i.progress.ObserveEvent(ref, s.uid, s.generation, s.resourceVersion) || !known && s.byOthers {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(a, b apply.Ref) int { return strings.Compare(a.String(), b.String()) })
	return refs
}

// changedByOthers tells whether the last change of an object, apart from its status, was made by somebody else.
func changedByOthers(m *metav1.PartialObjectMetadata) bool {
	var ours, others metav1.Time
	for _, f := range m.ManagedFields {
		switch {
		case f.Time == nil || f.Subresource != "":
		case f.Manager == v1beta2.FieldOwnerApplier:
			ours = *f.Time
		case others.Before(f.Time):
			others = *f.Time
		}
	}
	return ours.Before(&others)
}

func followKey(key types.NamespacedName) string {
	return runtimes.ManifestSubscriberKey(key.Namespace, key.Name)
}

func sameStrings(a, b map[string]string) bool { return maps.Equal(a, b) }
