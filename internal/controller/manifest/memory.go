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

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/inventory"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/target"
	"github.com/kyma-fleet/lifecycle-manager/internal/customresource"
	"github.com/kyma-fleet/lifecycle-manager/internal/dedup"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// memory is the data about one Manifest that is kept between two reconciles. If the manager restarts and loses the
// memory, the next reconcile sends additional reads, and patches that have no effect. At most one reconcile of a
// Manifest runs at a time, so the reconcile may use all fields of the struct. Other goroutines may use only the field
// cluster and the fields that are declared after mu.
type memory struct {
	progress       apply.Progress         // the requests that were sent to the runtime, and their results
	deletion       apply.DeletionProgress // the deletions that were requested
	interests      []runtimes.Interest    // the subscribed events
	uid            types.UID              // UID of the Manifest; a new Manifest with the same name has its own memory
	released       bool                   // the finalizers were removed; the cache may still return the Manifest
	readinessRules string                 // the rules of the last readiness decision; "" before the first decision
	reported       v1beta2.State          // the state in the last report, saved or not; "" before the first report
	deferred       deferred               // the status of the last reconcile, if it was not saved
	// conflicts are the objects that another module contains too, with other content; each reconcile compares them.
	conflicts []apply.Ref
	// ownersTurn has the changed objects that belong to another module and that this module also contains. The other
	// module, the owner, gets time to correct the change first. Each value of the map is the time at which a reconcile
	// found the change. Each reconcile compares the objects in ownersTurn with their desired state.
	ownersTurn map[apply.Ref]time.Time
	others     inventory.Wait        // a deletion waits until other modules have recorded their objects
	search     customresource.Search // the position of a search that needs several reconciles
	dependents dependentsWait        // a deletion waits for custom resources that the operator has made
	// isDefaultCRLeft is true if an event has reported that the default custom resource stays with another module.
	isDefaultCRLeft bool
	// drift is the message about drift that is reported and not corrected; drift is "" if there is none.
	drift string
	// compared is the last time when all objects were sent or compared; it is zero if this process has done neither.
	compared time.Time
	audited  time.Time                      // the last comparison of all objects; at first the creation of this memory
	cluster  atomic.Pointer[target.Cluster] // the cluster whose events are subscribed

	mu       sync.Mutex
	expected []apply.Ref // guarded by mu: the objects that the runtime should have once all are applied
	changes  changes     // guarded by mu

	// seen has the readiness of workloads and of the custom resource while the module is Processing, see seen.go. seen
	// is guarded by mu.
	seen     map[apply.Ref]seenState
	needed   []apply.Ref   // guarded by mu: the objects that decide about readiness, if events contain their state
	shown    v1beta2.State // guarded by mu: the state in the last report, or sending; "" if it is in doubt
	evaluate evaluator     // guarded by mu: of the custom resource; nil if it does not decide
}

// changes has the events that were received since the last reconcile.
type changes struct {
	objects   map[apply.Ref]objectEvent // the last event of each object that changed
	resource  resourceEvent             // the last event of the custom resource with a usable state
	readiness bool                      // an object or a status that readiness depends on has changed
	missed    bool                      // events about objects may have been lost
	dropped   bool                      // too many objects changed: objects is empty, and all have to be compared
	retried   bool                      // a person requested a retry
}

// maxUnexpectedObjects is the number of objects that changes.objects and memory.seen may have in addition to the
// objects that the runtime should have. An object counts as an object of the Manifest because of an annotation, and the
// admin of the runtime may report any number of names with this annotation. Unexpected objects of a real runtime are
// the objects of the former version of a module, which has up to 500 objects, or a copy of them from a backup.
const maxUnexpectedObjects = 1000

// resourceEvent is an event of the custom resource whose state is recorded. If no event of the custom resource is
// recorded, version is 0.
type resourceEvent struct {
	ref     apply.Ref
	version uint64
}

// objectEvent is the content of the last event about an object.
type objectEvent struct {
	uid             types.UID
	generation      int64
	resourceVersion string
	deleted         bool
	byOthers        bool // another field manager made the last change outside of the status
}

// deferred is a status that was not saved, and the resource version of the Manifest that it belongs to. The next
// reconcile continues with this status instead of the saved one. If the process ends before the status is saved, the
// next process applies all objects again.
type deferred struct {
	status          *v1beta2.ManifestStatus
	resourceVersion string
}

// takeDeferredIfUnchanged returns the status of the last reconcile, if it was not saved, and if the Manifest has not
// changed since then. If the last status was saved, or the Manifest has changed, takeDeferredIfUnchanged returns nil. A
// call of takeDeferredIfUnchanged always removes the unsaved status from the memory.
func (m *memory) takeDeferredIfUnchanged(of *v1beta2.Manifest) *v1beta2.ManifestStatus {
	d := m.deferred
	m.deferred = deferred{}
	if d.resourceVersion != of.ResourceVersion {
		return nil
	}
	return d.status
}

// memoryOf returns the memory of a Manifest. memoryOf creates the memory if there is none.
func (r *Reconciler) memoryOf(key types.NamespacedName, uid types.UID) *memory {
	return r.memories.Update(key, func(old *memory) *memory {
		if old != nil && old.uid == uid {
			return old
		}
		return &memory{uid: uid, audited: time.Now()}
	})
}

// forget deletes the memory of a Manifest, and ends its subscription.
func (r *Reconciler) forget(key types.NamespacedName) {
	if m := r.memories.Forget(key); m != nil && m.cluster.Load() != nil {
		m.cluster.Load().Unsubscribe(subscriptionKey(key))
	}
}

// addEvent records an event from the runtime and reports whether the event concerns this Manifest. The parameter
// "owner" is the namespace and name of the Manifest, as namespace/name. The parameter resource is the module's custom
// resource.
func (m *memory) addEvent(e runtimes.Event, owner string, resource apply.Ref) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.ConnectionChanged {
		return true
	}
	if e.Missed {
		return m.addMissedLocked(e.Interest, resource)
	}
	if e.Listed {
		return m.syncWithListLocked(e, owner, resource)
	}
	return e.Object != nil && m.addObjectLocked(e, e.Object, owner, resource)
}

// addMissedLocked records that events about a kind may have been lost. The caller of addMissedLocked must hold mu.
func (m *memory) addMissedLocked(in runtimes.Interest, resource apply.Ref) bool {
	covers := func(ref apply.Ref) bool {
		return in.Kind == "" || refOf(in, ref.Namespace, ref.Name).SameObject(ref)
	}
	missed := slices.ContainsFunc(m.expected, covers)
	if missed || covers(resource) {
		m.seen = nil // nothing is ready because of an event that was received before
	}
	m.changes.missed = m.changes.missed || missed
	m.changes.readiness = m.changes.readiness || missed || covers(resource)
	return missed || covers(resource)
}

// addObjectLocked records the event of one object. The caller of addObjectLocked must hold mu.
func (m *memory) addObjectLocked(e runtimes.Event, o *metav1.PartialObjectMetadata,
	owner string, resource apply.Ref) bool {
	ref := refOf(e.Interest, o.Namespace, o.Name)
	// known is true if a reconcile has already read or written the version of the object that the event shows.
	known := !e.Deleted && m.progress.IsNotNewerThanRecorded(ref, o.UID, o.ResourceVersion)
	if ref.SameObject(resource) {
		if known {
			return false
		}
		if !m.recordEventStateLocked(e, ref, true) {
			return false
		}
		if s, seen := m.seen[keyOf(ref)]; seen && !e.Deleted {
			m.changes.resource = resourceEvent{ref, s.version}
			return true
		}
		if e.Deleted {
			m.progress.Forget(ref)
		}
		m.changes.readiness = true
		return true
	}
	if known || o.Annotations[v1beta2.AnnotationOwnedBy] != owner && !slices.ContainsFunc(m.expected, ref.SameObject) {
		return false
	}
	acts := statusMatters(ref) && !m.progress.IsEstablished(ref)
	if hasStateInEvents(ref) {
		acts = m.recordEventStateLocked(e, ref, false)
	}
	if !e.Deleted && !acts && m.progress.ObserveEvent(ref, o.UID, o.Generation, o.ResourceVersion) {
		return false // an own write, or a status that changes nothing
	}
	m.setObjectLocked(ref, objectEvent{
		uid: o.UID, generation: o.Generation, resourceVersion: o.ResourceVersion, deleted: e.Deleted,
		byOthers: contentChangedByOthers(o),
	})
	return true
}

// setObjectLocked sets the last event of an object. If too many objects have changed, setObjectLocked drops the events
// of all objects instead, and the next reconcile compares all objects. The caller of setObjectLocked must hold mu.
func (m *memory) setObjectLocked(ref apply.Ref, e objectEvent) {
	if m.changes.dropped {
		return
	}
	if _, known := m.changes.objects[ref]; !known && len(m.changes.objects) >= m.maxObjectsLocked() {
		m.changes.objects, m.changes.dropped, m.changes.readiness = nil, true, true
		return
	}
	if m.changes.objects == nil {
		m.changes.objects = map[apply.Ref]objectEvent{}
	}
	m.changes.objects[ref] = e
}

// maxObjectsLocked returns the maximum number of objects in changes.objects and in seen. The caller of maxObjectsLocked
// must hold mu.
func (m *memory) maxObjectsLocked() int { return len(m.expected) + maxUnexpectedObjects }

// statusMatters reports whether the readiness of the module may depend on the status of an object.
func statusMatters(ref apply.Ref) bool {
	return inventory.IsWorkload(ref) || ref.Kind == "CustomResourceDefinition" || ref.Kind == "PersistentVolumeClaim"
}

// syncWithListLocked records the list that a watch sends at its start. syncWithListLocked records each listed object of
// this Manifest, and each expected object that is missing in the list. The caller of syncWithListLocked must hold mu.
func (m *memory) syncWithListLocked(e runtimes.Event, owner string, resource apply.Ref) bool {
	concerned := false
	listed := map[apply.Ref]bool{}
	for k := range e.Objects {
		o := &e.Objects[k]
		ref := refOf(e.Interest, o.Namespace, o.Name)
		listed[ref] = true
		if last, known := m.changes.objects[ref]; known &&
			(last.deleted || isOlderResourceVersion(o.ResourceVersion, last.resourceVersion)) {
			continue // a newer event of this object was received before the list
		}
		concerned = m.addObjectLocked(e, o, owner, resource) || concerned
	}
	for _, ref := range append([]apply.Ref{resource}, m.expected...) {
		inList := refOf(e.Interest, ref.Namespace, ref.Name)
		if e.Interest.Name != "" && ref.Name != e.Interest.Name || !inList.SameObject(ref) || listed[inList] {
			continue
		}
		concerned = true
		delete(m.seen, keyOf(ref))
		if ref.SameObject(resource) {
			m.progress.Forget(ref)
			m.changes.readiness = true
			continue
		}
		m.setObjectLocked(inList, objectEvent{deleted: true})
	}
	return concerned
}

// isOlderResourceVersion reports whether version is older than the other resource version. isOlderResourceVersion
// returns false if one of the two versions is not a number.
func isOlderResourceVersion(version, than string) bool {
	a, errA := strconv.ParseUint(version, 10, 64)
	b, errB := strconv.ParseUint(than, 10, 64)
	return errA == nil && errB == nil && a < b
}

// refOf returns the reference of an object in an event. The kind of the object comes from the interest, which is the
// watch that the event belongs to.
func refOf(i runtimes.Interest, namespace, name string) apply.Ref {
	return apply.Ref{Group: i.Resource.Group, Version: i.Resource.Version, Kind: i.Kind,
		Namespace: namespace, Name: name}
}

// setExpected records the objects that the runtime should have. Manifests with equal lists of objects share one list,
// to save memory.
func (m *memory) setExpected(refs []apply.Ref, shared *dedup.Values) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(m.expected, refs) {
		m.expected = dedup.Share(shared, "expected "+dedup.InventoryKey(inventory.Of(refs)), refs)
	}
}

// takeChanges returns the changes since the last call of takeChanges, and clears them.
func (m *memory) takeChanges() changes {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.changes
	taken.readiness, taken.resource = taken.readiness || taken.resource.version != 0, resourceEvent{}
	m.changes = changes{}
	return taken
}

// restoreChanges puts the observed changes that a reconcile has taken out of the memory back into the memory, because
// that reconcile did not complete. If a newer event about an object has arrived, the newer event is kept.
func (m *memory) restoreChanges(taken changes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if taken.dropped {
		m.changes.objects, m.changes.dropped = nil, true
	}
	for ref, e := range taken.objects {
		if _, newer := m.changes.objects[ref]; !newer {
			m.setObjectLocked(ref, e)
		}
	}
	m.changes.readiness, m.changes.missed = m.changes.readiness || taken.readiness, m.changes.missed || taken.missed
	m.changes.retried = m.changes.retried || taken.retried
}

// history returns what newPlan needs about earlier reconciles: data of this memory, and the changes in the parameter c.
func (m *memory) history(c changes, auditInterval time.Duration) history {
	return history{
		drifted: inventory.AppendMissing(m.drifted(c.objects), slices.Concat(m.conflicts,
			slices.SortedFunc(maps.Keys(m.ownersTurn), compareRefs))),
		missed: c.missed, dropped: c.dropped, retried: c.retried,
		driftReported: m.drift != "",
		neverCompared: m.compared.IsZero(),
		sinceCompared: time.Since(m.compared), sinceAudit: time.Since(m.audited), auditInterval: auditInterval,
	}
}

// drifted returns a sorted list of the objects that other field managers have changed or deleted. The list does not
// contain objects that only the manager has changed, or of which only the status has changed.
func (m *memory) drifted(objects map[apply.Ref]objectEvent) []apply.Ref {
	var refs []apply.Ref
	for ref, e := range objects {
		applied := m.progress.IsApplied(ref)
		if e.deleted || applied && !m.progress.ObserveEvent(ref, e.uid, e.generation, e.resourceVersion) || !applied &&
			e.byOthers {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, compareRefs)
	return refs
}

func compareRefs(a, b apply.Ref) int { return strings.Compare(a.String(), b.String()) }

// ownerGrace is the time in which the owner of a shared object can correct a change by another client, before the
// change counts as a conflict with the owner. The module that owns a shared object usually corrects a change of this
// object within a second.
const ownerGrace = time.Minute

// deferToOwners returns the objects of the parameter "found", except the objects whose owners still have time to
// correct a change by another client. If the owner of an object has not corrected a change by another client within
// ownerGrace, deferToOwners removes the object from the progress in memory. An object without progress is applied
// again, and the apply request reports the conflict with the owner.
func (m *memory) deferToOwners(found []apply.Drifted, now time.Time) (due []apply.Drifted) {
	var waiting map[apply.Ref]time.Time
	found = slices.DeleteFunc(found, func(d apply.Drifted) bool {
		if !d.OwnersTurn {
			return false
		}
		since, known := m.ownersTurn[d.Ref]
		switch {
		case !known:
			since = now
		case now.Sub(since) >= ownerGrace:
			m.progress.Forget(d.Ref)
			return false
		}
		if waiting == nil {
			waiting = map[apply.Ref]time.Time{}
		}
		waiting[d.Ref] = since
		return true
	})
	m.ownersTurn = waiting
	return found
}

// ownersTurnLeft returns the time until ownerGrace ends for the first of the objects in ownersTurn. The second result
// is false if ownersTurn is empty.
func (m *memory) ownersTurnLeft(now time.Time) (time.Duration, bool) {
	left, waits := ownerGrace, false
	for _, since := range m.ownersTurn {
		left, waits = min(left, ownerGrace-now.Sub(since)), true
	}
	return max(left, 0), waits
}

// contentChangedByOthers reports whether the last change of an object outside of its status was made by another field
// manager.
func contentChangedByOthers(m *metav1.PartialObjectMetadata) bool {
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
