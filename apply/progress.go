package apply

import (
	"hash/maphash"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Progress records, for one installation, which content was applied to the objects of a cluster and what the API server
// answered. With it, Apply sends each object once per change, and own writes are recognised when the cluster reports
// them. It lives in memory, about 100 bytes an object. If it is lost, PATCHes that change nothing are sent again.
//
// The zero value is ready to use. It is safe for concurrent use, but only one Apply or FindDrift should run with it at
// a time.
type Progress struct {
	mu        sync.Mutex
	objects   map[uint64]record         // by key; guarded by mu
	inFlight  map[uint64]inFlightEvents // by key, while a request is in flight; guarded by mu
	comparing map[uint64]bool           // by key, during FindDrift; true once Forget was called; guarded by mu
}

// record is what is known about one object. Texts are stored as hashes: they are only compared.
type record struct {
	content    uint64 // of the content that was applied; 0 if none
	fields     uint64 // of the fields that the API server then recorded as ours
	uid        uint64
	version    uint64 // resourceVersion
	generation int64
	// For a CustomResourceDefinition: it was just created, so that the API server may not serve its kind yet.
	maybeUnserved bool
	// For a CustomResourceDefinition: it was found to be established, which stays so until it is deleted.
	established bool
}

// inFlightEvents summarizes the events that arrived about an object while a request for it was in flight.
type inFlightEvents struct {
	version    uint64
	generation int64
	forgotten  bool // Forget was called meanwhile
}

// hashKey identifies an object. Fleets are large, so a hash is stored for each object and not its name.
func (r Ref) hashKey() uint64 { return maphash.Comparable(seed, r.identity()) }

// seed makes the hashes differ from those of any other process.
var seed = maphash.MakeSeed()

func hashText(text string) uint64 {
	return max(maphash.String(seed, text), 1)
}

func hashBytes(text []byte) uint64 {
	return max(maphash.Bytes(seed, text), 1)
}

// parseResourceVersion returns a resourceVersion as a number, which grows with every write. 0 means that it is missing
// or not a number.
func parseResourceVersion(resourceVersion string) uint64 {
	n, _ := strconv.ParseUint(resourceVersion, 10, 64)
	return n
}

// ObserveEvent reports whether an event about an object needs no reaction: it is an own write, an older write, or a
// change of status only. An empty uid or resourceVersion and a generation of 0 mean that the event does not contain it.
//
// For kinds with a generation, a change of only labels or annotations counts as an own write too, because only
// FindDrift can distinguish it from a change of status. While the object is being applied, the event is recorded and
// ObserveEvent returns true: the answer is compared with it, and if another client has written in between, Apply lists
// the object in Result.Waiting.
func (p *Progress) ObserveEvent(ref Ref, uid types.UID, generation int64, resourceVersion string) bool {
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

// ObserveRead records that an object was read. IsKnownVersion then returns true for older events.
func (p *Progress) ObserveRead(ref Ref, uid types.UID, generation int64, resourceVersion string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil {
		p.objects = map[uint64]record{}
	}
	key := ref.hashKey()
	r := p.objects[key]
	switch {
	case r.content == 0: // applied by another client, or before this process started
		r.uid, r.version = hashText(string(uid)), parseResourceVersion(resourceVersion)
	case r.uid == hashText(string(uid)) && r.generation == generation:
		r.version = max(r.version, parseResourceVersion(resourceVersion))
	default:
		return // changed since it was applied: its event reports that
	}
	p.objects[key] = r
}

// IsKnownVersion reports whether an event about an object is of the version that was last written or read here, or of
// an older one.
func (p *Progress) IsKnownVersion(ref Ref, uid types.UID, resourceVersion string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, version := p.objects[ref.hashKey()], parseResourceVersion(resourceVersion)
	return version != 0 && version <= r.version && hashText(string(uid)) == r.uid
}

// Forget makes the next Apply send these objects again, because another client has changed or deleted them. That also
// holds for an object that is being applied or compared at this moment: the answer, which may be older than the change,
// is then not recorded.
func (p *Progress) Forget(refs ...Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range refs {
		key := r.hashKey()
		delete(p.objects, key)
		if s, busy := p.inFlight[key]; busy {
			s.forgotten = true
			p.inFlight[key] = s
		}
		if _, busy := p.comparing[key]; busy {
			p.comparing[key] = true
		}
	}
}

// IsApplied reports whether the object was applied and is not known to have changed since.
func (p *Progress) IsApplied(ref Ref) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[ref.hashKey()].content != 0
}

// hasContent reports whether this content was applied.
func (p *Progress) hasContent(ref Ref, content uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[ref.hashKey()].content == content
}

// recordOf returns what is known about an object.
func (p *Progress) recordOf(ref Ref) record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[ref.hashKey()]
}

// beginWrite records that an object is being written, and returns whether it is known to exist.
func (p *Progress) beginWrite(ref Ref) (known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil {
		p.objects = map[uint64]record{}
	}
	if p.inFlight == nil {
		p.inFlight = map[uint64]inFlightEvents{}
	}
	key := ref.hashKey()
	r := p.objects[key]
	r.content = 0
	p.objects[key], p.inFlight[key] = r, inFlightEvents{}
	return r.uid != 0
}

// writeFailed records that the state of the object is unknown after a failed request.
func (p *Progress) writeFailed(ref Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := ref.hashKey()
	p.endWriteLocked(key)
	r := p.objects[key]
	if r.maybeUnserved || r.established {
		p.objects[key] = record{maybeUnserved: r.maybeUnserved, established: r.established}
		return
	}
	delete(p.objects, key)
}

// endWriteLocked returns the events that arrived about an object during a request that has ended. The caller holds mu.
func (p *Progress) endWriteLocked(key uint64) inFlightEvents {
	s := p.inFlight[key]
	if delete(p.inFlight, key); len(p.inFlight) == 0 {
		p.inFlight = nil
	}
	return s
}

// applied records what the API server answered; fields are those that we own. It returns false, and forgets the object,
// if another client has written it since, or if Forget was called for it during the request.
func (p *Progress) recordApplied(ref Ref, content uint64, m *metadata, fields uint64, created bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recordAppliedLocked(ref, content, m, fields, created)
}

func (p *Progress) recordAppliedLocked(ref Ref, content uint64, m *metadata, fields uint64, created bool) bool {
	r := record{
		content:    content,
		fields:     fields,
		uid:        hashText(m.UID),
		version:    parseResourceVersion(m.ResourceVersion),
		generation: m.Generation,
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

// beginComparison records that FindDrift is about to read an object, and returns what is known about it.
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

// recordCompared records that FindDrift has found an object as it should be, unless Forget was called for it since
// beginComparison.
func (p *Progress) recordCompared(ref Ref, content uint64, m *metadata, fields uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.comparing[ref.hashKey()] {
		p.recordAppliedLocked(ref, content, m, fields, false)
	}
}

// MarkServed records that the kind of this CustomResourceDefinition is served, for instance because an object of it was
// created. If the CustomResourceDefinition was applied, CheckReady need not read it.
func (p *Progress) MarkServed(crd Ref) {
	if p.IsApplied(crd) {
		p.setMaybeUnserved(crd, false)
	}
}

// setMaybeUnserved records whether the kinds of a CustomResourceDefinition may not be served yet. With false, they are
// known to be served.
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
