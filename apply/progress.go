package apply

import (
	"hash/maphash"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Progress is what one installation knows of its objects in a cluster: which content was applied and what the API server
// answered. It makes Apply send each object once per change, and recognises our own writes when the cluster reports them.
// It lives in memory, about 100 bytes an object; losing it costs repeated PATCHes that change nothing.
//
// The zero value is ready to use. It is safe for concurrent use, but only one Apply or Drift at a time makes sense.
type Progress struct {
	mu        sync.Mutex
	objects   map[uint64]record         // by key; guarded by mu
	inFlight  map[uint64]inFlightEvents // the same, while a request is under way; guarded by mu
	comparing map[uint64]bool           // the same, while FindDrift compares it; true once it was forgotten meanwhile; guarded by mu
}

// record is what is known of one object. Texts are kept as hashes: they are only compared.
type record struct {
	content    uint64 // of the bytes that were sent; 0 means none
	fields     uint64 // of the fields that the API server says we own since then
	uid        uint64
	version    uint64 // resourceVersion
	generation int64
	// For a CustomResourceDefinition: it is new, so that the API server may not serve its kind yet.
	fresh bool
	// For a CustomResourceDefinition: it was seen to be established, which does not end before it is deleted.
	established bool
}

// seen is what has been seen of an object while a request is under way.
type inFlightEvents struct {
	version    uint64
	generation int64
	forgotten  bool // Forget was called for it
}

// key identifies an object. Fleets are large: of each of their objects, a number is kept and not the name.
func (r Ref) key() uint64 { return maphash.Comparable(seed, r.object()) }

// seed makes hashes that only this process understands.
var seed = maphash.MakeSeed()

func hashText(text string) uint64 {
	return max(maphash.String(seed, text), 1)
}

func hashBytes(text []byte) uint64 {
	return max(maphash.Bytes(seed, text), 1)
}

// number reads a resourceVersion, which grows with every write. 0 means it says nothing.
func parseResourceVersion(resourceVersion string) uint64 {
	n, _ := strconv.ParseUint(resourceVersion, 10, 64)
	return n
}

// ObserveEvent reports whether an event about an object tells nothing that we do not know: it is our own write, an older one, or a
// change of status only. An empty uid or resourceVersion and a generation of 0 mean that the event does not say it.
//
// For kinds with a generation, a change of only labels or annotations counts as ours too, since nothing but Drift can tell
// it from a change of status. An event that arrives while its object is being applied is compared with the answer when that
// comes: if somebody else has written in between, Apply names the object in Result.Waiting.
func (p *Progress) ObserveEvent(ref Ref, uid types.UID, generation int64, resourceVersion string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	key, version := ref.key(), parseResourceVersion(resourceVersion)
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

// ObserveRead notes that an object was read. Events about it that are older tell nothing, see Known.
func (p *Progress) ObserveRead(ref Ref, uid types.UID, generation int64, resourceVersion string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil {
		p.objects = map[uint64]record{}
	}
	key := ref.key()
	r := p.objects[key]
	switch {
	case r.content == 0: // somebody else's, or from before this program ran
		r.uid, r.version = hashText(string(uid)), parseResourceVersion(resourceVersion)
	case r.uid == hashText(string(uid)) && r.generation == generation:
		r.version = max(r.version, parseResourceVersion(resourceVersion))
	default:
		return // changed since it was applied, which its event will tell
	}
	p.objects[key] = r
}

// IsKnownVersion reports whether an event about an object tells of a version that was written or read here already, or of an older one.
func (p *Progress) IsKnownVersion(ref Ref, uid types.UID, resourceVersion string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, version := p.objects[ref.key()], parseResourceVersion(resourceVersion)
	return version != 0 && version <= r.version && hashText(string(uid)) == r.uid
}

// Forget makes the next Apply send these objects again, because another client has changed or deleted them. That also holds for an
// object that is being applied or compared at this moment: the answer, which may be older than the change, is then not recorded.
func (p *Progress) Forget(refs ...Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range refs {
		key := r.key()
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

// IsApplied reports whether the object was applied and, as far as is known, has stayed so.
func (p *Progress) IsApplied(ref Ref) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[ref.key()].content != 0
}

// has reports whether this content was applied.
func (p *Progress) hasContent(ref Ref, content uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[ref.key()].content == content
}

// get returns what is known of an object.
func (p *Progress) recordOf(ref Ref) record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[ref.key()]
}

// begin notes that an object is being written, and returns whether it is known to exist.
func (p *Progress) beginWrite(ref Ref) (known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil {
		p.objects = map[uint64]record{}
	}
	if p.inFlight == nil {
		p.inFlight = map[uint64]inFlightEvents{}
	}
	key := ref.key()
	r := p.objects[key]
	r.content = 0
	p.objects[key], p.inFlight[key] = r, inFlightEvents{}
	return r.uid != 0
}

// failed notes that it is not known what has become of the object.
func (p *Progress) writeFailed(ref Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := ref.key()
	p.endWriteLocked(key)
	r := p.objects[key]
	if r.fresh || r.established {
		p.objects[key] = record{fresh: r.fresh, established: r.established}
		return
	}
	delete(p.objects, key)
}

// landedLocked returns what was seen of an object while a request was under way, which has ended. The caller holds mu.
func (p *Progress) endWriteLocked(key uint64) inFlightEvents {
	s := p.inFlight[key]
	if delete(p.inFlight, key); len(p.inFlight) == 0 {
		p.inFlight = nil
	}
	return s
}

// applied records what the API server answered; fields are those that we own. It returns false, and forgets the object, if another
// client has written it since, or if Forget was called for it during the request.
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
	key := ref.key()
	before, meanwhile := p.objects[key], p.endWriteLocked(key)
	if ref.groupKind() == crdKind {
		r.fresh, r.established = created || before.fresh, before.established && !created
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

// beginComparison notes that FindDrift is about to read an object, and returns what is known of it.
func (p *Progress) beginComparison(ref Ref) record {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.comparing == nil {
		p.comparing = map[uint64]bool{}
	}
	key := ref.key()
	p.comparing[key] = false
	return p.objects[key]
}

// endComparison notes that the comparison of an object has ended.
func (p *Progress) endComparison(ref Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.comparing, ref.key()); len(p.comparing) == 0 {
		p.comparing = nil
	}
}

// compared notes that FindDrift has found an object as it should be, unless it was forgotten since beginComparison.
func (p *Progress) recordCompared(ref Ref, content uint64, m *metadata, fields uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.comparing[ref.key()] {
		p.recordAppliedLocked(ref, content, m, fields, false)
	}
}

// MarkServed notes that a kind is served which this CustomResourceDefinition defines, for instance because an object of it was created. If it was
// applied, Ready need not ask for it.
func (p *Progress) MarkServed(definition Ref) {
	if p.IsApplied(definition) {
		p.setFresh(definition, false)
	}
}

// setFresh notes whether the kinds of a CustomResourceDefinition have yet to be served; established is the opposite, seen for sure.
func (p *Progress) setFresh(ref Ref, fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil {
		p.objects = map[uint64]record{}
	}
	key := ref.key()
	r := p.objects[key]
	r.fresh, r.established = fresh, !fresh
	p.objects[key] = r
}
