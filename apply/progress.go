package apply

import (
	"hash/maphash"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Progress is a type that records for one installation which content was applied to each object in a cluster, and what
// the API server responded. A caller that passes the same Progress to each call makes Apply send each change of an
// object only once, and lets ObserveEvent recognise watch events about writes of this package. A Progress is kept only
// in memory, and needs about 100 bytes for each object of the installation. Losing a Progress does no harm: the next
// Apply sends a PATCH for each object again, which changes nothing.
//
// The zero value is ready to use. Progress is safe for concurrent use, but only one Apply or FindDrift at a time should
// use the same Progress.
type Progress struct {
	mu        sync.Mutex
	objects   map[uint64]record         // by key; guarded by mu
	inFlight  map[uint64]inFlightEvents // by key; only objects with a request in flight; guarded by mu
	comparing map[uint64]bool           // by key; only during FindDrift; true once Forget was called; guarded by mu
}

// record is the known state of one object. Texts are stored as hashes, because they are only compared.
type record struct {
	content    uint64 // hash of the content that was applied; 0 if none
	fields     uint64 // hash of the fields that the API server recorded as ours after that
	uid        uint64
	version    uint64 // resourceVersion
	generation int64
	// maybeUnserved is true if a CustomResourceDefinition was just created, so that the API server may not serve its
	// kind yet.
	maybeUnserved bool
	// established is true if a CustomResourceDefinition was found to be established. The CustomResourceDefinition stays
	// established until it is deleted.
	established bool
	// unsure is true if the last read found that the object is missing, belongs to another installation, or was created
	// again by another client, so somebody else may own an object with this name now. While unsure is true, a PATCH for
	// the object may only create the object and must not change an existing object.
	unsure bool
	// doubted is true if Doubt was called for the object, and the object was not applied since then. The uid of a
	// doubted record is that of the last apply request, or 0.
	doubted bool
	// guarded is true if another installation contains the object too, or if the object existed before; a guarded
	// object is read before it is deleted.
	guarded bool
	// adopted is true if the object has AnnotationAdopted.
	adopted bool
}

// inFlightEvents summarizes the events that arrived about an object while a request for it was in flight.
type inFlightEvents struct {
	version    uint64
	generation int64
	forgotten  bool // Forget was called while the request was in flight
}

// hashKey returns the hash that identifies an object. Progress stores a hash for each object instead of its name to
// save memory, because fleets are large.
func (r Ref) hashKey() uint64 { return maphash.Comparable(seed, r.identity()) }

// seed is the random seed of all hashes in a Progress. Because of the random seed, the hashes of a Progress have no
// meaning in another process, so a Progress is never stored.
var seed = maphash.MakeSeed()

func hashText(text string) uint64 {
	return max(maphash.String(seed, text), 1)
}

func hashBytes(text []byte) uint64 {
	return max(maphash.Bytes(seed, text), 1)
}

// parseResourceVersion returns a resourceVersion as a number, which grows with every write. parseResourceVersion
// returns 0 if the resourceVersion is missing or not a number.
func parseResourceVersion(resourceVersion string) uint64 {
	n, _ := strconv.ParseUint(resourceVersion, 10, 64)
	return n
}

// ObserveEvent reports whether a watch event about an object can be ignored. An event can be ignored if it is about a
// write of this package, an older write, or a change of only the status. The arguments uid "", resourceVersion "" or
// generation 0 mean that the event does not contain this value.
//
// For kinds with a generation, ObserveEvent also returns true for a change of only labels or annotations, because an
// event does not show whether the labels or the status changed. FindDrift, and not ObserveEvent, detects a change of
// only labels or annotations. While the object is being applied, ObserveEvent records the event and returns true, so
// that the caller ignores the event. When the API server has responded to the PATCH, Apply compares the response with
// the event that ObserveEvent has recorded. If the event shows that another client has written the object during the
// request, Apply returns the object in Result.Waiting.
func (p *Progress) ObserveEvent(ref Ref, uid types.UID, generation int64, resourceVersion string) (isIgnorable bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key, version := ref.hashKey(), parseResourceVersion(resourceVersion)
	if s, busy := p.inFlight[key]; busy {
		p.inFlight[key] = inFlightEvents{max(s.version, version), max(s.generation, generation), s.forgotten}
		return true
	}
	r, ok := p.objects[key]
	if !ok {
		return false
	}
	if uid != "" && hashText(string(uid)) != r.uid {
		return false
	}
	if version != 0 && version <= r.version {
		return true
	}
	return generation != 0 && generation == r.generation
}

// RecordReadUnlessChanged records that an object was read. After a call of RecordReadUnlessChanged,
// IsNotNewerThanRecorded returns true for older events about the object.
func (p *Progress) RecordReadUnlessChanged(ref Ref, uid types.UID, generation int64, resourceVersion string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil {
		p.objects = map[uint64]record{}
	}
	key := ref.hashKey()
	r := p.objects[key]
	switch {
	case r.content == 0 && !r.doubted: // the object was applied by another client, or before this process started
		r.uid, r.version = hashText(string(uid)), parseResourceVersion(resourceVersion)
	case r.uid == hashText(string(uid)) && r.generation == generation:
		r.version = max(r.version, parseResourceVersion(resourceVersion))
	default:
		return // the object was changed since it was applied: the event of the change reports that
	}
	p.objects[key] = r
}

// IsNotNewerThanRecorded reports whether an event contains nothing new: the Progress has recorded the resourceVersion
// of the event, or a later resourceVersion of the same object.
func (p *Progress) IsNotNewerThanRecorded(ref Ref, uid types.UID, resourceVersion string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, version := p.objects[ref.hashKey()], parseResourceVersion(resourceVersion)
	return version != 0 && version <= r.version && hashText(string(uid)) == r.uid
}

// Version returns the resourceVersion of an object that was last written or read with this Progress, or 0.
func (p *Progress) Version(ref Ref) uint64 { return p.recordOf(ref).version }

// Forget makes the next Apply send the given objects again. Call Forget when another client has changed or deleted the
// objects. If Apply is sending a PATCH for one of the objects at this time, Progress does not record the response,
// because the response may be older than the change by the other client.
func (p *Progress) Forget(refs ...Ref) { p.forget(refs, false) }

// Doubt is Forget for objects that another client may have created again: the next Apply reads each of these objects
// first. If somebody else may own the object, as in Drifted.OwnershipUnknown, Apply treats it as any object that
// existed before the installation: see Adoption. Without Doubt, Apply notices an object of the inventory that another
// client has created again only if a field of the object conflicts. The Progress keeps a record of each object until
// the object is applied, so refs must have only objects that the next Apply sends.
func (p *Progress) Doubt(refs ...Ref) { p.forget(refs, true) }

func (p *Progress) forget(refs []Ref, doubt bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil && doubt {
		p.objects = map[uint64]record{}
	}
	for _, ref := range refs {
		key := ref.hashKey()
		r := p.objects[key]
		left := record{unsure: r.unsure, doubted: r.doubted || doubt}
		if r.doubted || doubt && r.content != 0 { // a record without content is of a read
			left.uid = r.uid
		}
		if left.unsure || left.doubted {
			p.objects[key] = left
		} else {
			delete(p.objects, key)
		}
		if s, busy := p.inFlight[key]; busy {
			s.forgotten = true
			p.inFlight[key] = s
		}
		if _, busy := p.comparing[key]; busy {
			p.comparing[key] = true
		}
	}
}

// IsApplied reports whether the object was applied and no change of the object since then is known.
func (p *Progress) IsApplied(ref Ref) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[ref.hashKey()].content != 0
}

// IsEstablished reports whether a CustomResourceDefinition was found to be established. An established
// CustomResourceDefinition stays established until it is deleted.
func (p *Progress) IsEstablished(crd Ref) bool {
	return crd.groupKind() == crdKind && p.recordOf(crd).established
}

// hasContent reports whether the content with the given hash was the last content that Apply has applied to the object.
func (p *Progress) hasContent(ref Ref, content uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[ref.hashKey()].content == content
}

// recordOf returns the known state of an object, or the zero record if the Progress does not contain the object.
func (p *Progress) recordOf(ref Ref) record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[ref.hashKey()]
}

// markOwnershipUnknown records that the object was missing, belonged to another installation, or was created again by
// another client.
func (p *Progress) markOwnershipUnknown(ref Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil {
		p.objects = map[uint64]record{}
	}
	key := ref.hashKey()
	r := p.objects[key]
	r.unsure = true
	p.objects[key] = r
}

// untouchedResourceVersion returns the resourceVersion of an object if the object was applied, belongs to this
// installation alone, and is not known to have been changed by anybody since it was applied. In all other cases,
// untouchedResourceVersion returns 0.
func (p *Progress) untouchedResourceVersion(ref Ref) uint64 {
	if p == nil {
		return 0
	}
	r := p.recordOf(ref)
	if r.content == 0 || r.unsure || r.guarded {
		return 0
	}
	return r.version
}

// beginWrite records that a request to write an object begins, and returns what was recorded of the object until then.
func (p *Progress) beginWrite(ref Ref) (before record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil {
		p.objects = map[uint64]record{}
	}
	if p.inFlight == nil {
		p.inFlight = map[uint64]inFlightEvents{}
	}
	key := ref.hashKey()
	before = p.objects[key]
	r := before
	r.content = 0
	p.objects[key], p.inFlight[key] = r, inFlightEvents{}
	return before
}

// writeFailed records after a failed request that the state of the object is unknown.
func (p *Progress) writeFailed(ref Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := ref.hashKey()
	p.endWriteLocked(key)
	r := p.objects[key]
	left := record{maybeUnserved: r.maybeUnserved, established: r.established, unsure: r.unsure, doubted: r.doubted}
	if r.doubted {
		left.uid = r.uid
	}
	if left != (record{}) {
		p.objects[key] = left
		return
	}
	delete(p.objects, key)
}

// endWriteLocked records that a request for an object has ended, and returns a summary of the watch events about the
// object that arrived during the request. The caller of endWriteLocked must hold mu.
func (p *Progress) endWriteLocked(key uint64) inFlightEvents {
	s := p.inFlight[key]
	if delete(p.inFlight, key); len(p.inFlight) == 0 {
		p.inFlight = nil
	}
	return s
}

// recordApplied records what the API server has returned for the PATCH of an object. The parameter ownedFields is the
// hash of the fields that our field manager owns. If a watch event shows that another client has written the object
// after our PATCH, or if Forget was called during the request, recordApplied forgets the object and returns false.
func (p *Progress) recordApplied(ref Ref, contentHash uint64, m *metadata, ownedFields uint64, created bool) (
	isRecorded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recordAppliedLocked(ref, contentHash, m, ownedFields, created)
}

func (p *Progress) recordAppliedLocked(ref Ref, contentHash uint64, m *metadata, ownedFields uint64, created bool) (
	isRecorded bool) {
	r := record{
		content:    contentHash,
		fields:     ownedFields,
		uid:        hashText(m.UID),
		version:    parseResourceVersion(m.ResourceVersion),
		generation: m.Generation,
		unsure:     m.foreign,
		guarded:    m.foreign || m.existed || m.Annotations.CoOwners != "" || m.Annotations.Adopted != "",
		adopted:    m.Annotations.Adopted == "true",
	}
	if p.objects == nil {
		p.objects = map[uint64]record{}
	}
	key := ref.hashKey()
	before, meanwhile := p.objects[key], p.endWriteLocked(key)
	if ref.groupKind() == crdKind {
		r.maybeUnserved, r.established = created || before.maybeUnserved, before.established && !created
	}
	overwritten := meanwhile.version > r.version
	if r.generation != 0 {
		overwritten = meanwhile.generation > r.generation
	}
	if overwritten || meanwhile.forgotten {
		delete(p.objects, key)
		return false
	}
	p.objects[key] = r
	return true
}

// beginComparison records that FindDrift is about to read an object, and returns the record of the object.
func (p *Progress) beginComparison(ref Ref) record {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.comparing == nil {
		p.comparing = map[uint64]bool{}
	}
	key := ref.hashKey()
	p.comparing[key] = false
	return p.objects[key]
}

// endComparison records that the comparison of an object has ended.
func (p *Progress) endComparison(ref Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.comparing, ref.hashKey()); len(p.comparing) == 0 {
		p.comparing = nil
	}
}

// recordNoDrift records that FindDrift found no drift of an object. recordNoDrift records nothing if Forget was called
// for the object since beginComparison.
func (p *Progress) recordNoDrift(ref Ref, contentHash uint64, m *metadata, ownedFields uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.comparing[ref.hashKey()] {
		p.recordAppliedLocked(ref, contentHash, m, ownedFields, false)
	}
}

// MarkServed records that the kind of this CustomResourceDefinition is served, for example because an object of the
// kind was created. If the Progress records that the CustomResourceDefinition was applied, CheckReady relies on
// MarkServed and does not read the CustomResourceDefinition.
func (p *Progress) MarkServed(crd Ref) {
	if p.IsApplied(crd) {
		p.setMaybeUnserved(crd, false)
	}
}

// setMaybeUnserved records whether the kinds of a CustomResourceDefinition may not be served yet. If the parameter
// maybeUnserved is false, the cluster is known to serve the kind.
func (p *Progress) setMaybeUnserved(ref Ref, maybeUnserved bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil {
		p.objects = map[uint64]record{}
	}
	key := ref.hashKey()
	r := p.objects[key]
	r.maybeUnserved, r.established = maybeUnserved, !maybeUnserved
	p.objects[key] = r
}
