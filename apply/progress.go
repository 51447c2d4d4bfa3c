package apply

import (
	"hash/maphash"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Progress is what one installation knows of its objects in a cluster: which content was applied and what the API server
// answered. It makes Apply send each object once per change, and recognises our own writes when the cluster reports them.
// It lives in memory, about 200 bytes an object; losing it costs repeated PATCHes that change nothing.
//
// The zero value is ready to use. It is safe for concurrent use, but only one Apply or Drift at a time makes sense.
type Progress struct {
	mu      sync.Mutex
	objects map[Ref]record // by Ref.object; guarded by mu
}

// record is what is known of one object. Texts are kept as hashes: they are only compared.
type record struct {
	content    uint64 // of the bytes that were sent; 0 means none
	fields     uint64 // of the fields that the API server says we own since then
	uid        uint64
	version    uint64 // resourceVersion
	generation int64

	// While a request is under way, what has been seen of the object meanwhile.
	underWay       bool
	seenVersion    uint64
	seenGeneration int64

	// For a CustomResourceDefinition: it is new, so that the API server may not serve its kind yet.
	fresh bool
	// For a CustomResourceDefinition: it was seen to be established, which does not end before it is deleted.
	established bool
}

// seed makes hashes that only this process understands.
var seed = maphash.MakeSeed()

func hashText(text string) uint64 {
	return max(maphash.String(seed, text), 1)
}

func hashBytes(text []byte) uint64 {
	return max(maphash.Bytes(seed, text), 1)
}

// number reads a resourceVersion, which grows with every write. 0 means it says nothing.
func number(resourceVersion string) uint64 {
	n, _ := strconv.ParseUint(resourceVersion, 10, 64)
	return n
}

// Ours reports whether an event about an object tells nothing that we do not know: it is our own write, an older one, or a
// change of status only. An empty uid or resourceVersion and a generation of 0 mean that the event does not say it.
//
// For kinds with a generation, a change of only labels or annotations counts as ours too, since nothing but Drift can tell
// it from a change of status. An event that arrives while its object is being applied is compared with the answer when that
// comes: if somebody else has written in between, Apply names the object in Result.Waiting.
func (p *Progress) Ours(ref Ref, uid types.UID, generation int64, resourceVersion string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.objects[ref.object()]
	if !ok {
		return false
	}
	version := number(resourceVersion)
	if r.underWay {
		r.seenVersion, r.seenGeneration = max(r.seenVersion, version), max(r.seenGeneration, generation)
		p.objects[ref.object()] = r
		return true
	}
	if uid != "" && hashText(string(uid)) != r.uid {
		return false
	}
	if version != 0 && version <= r.version {
		return true
	}
	return generation != 0 && generation == r.generation
}

// Forget makes the next Apply send these objects again, because they were changed or deleted by somebody else.
func (p *Progress) Forget(refs ...Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range refs {
		delete(p.objects, r.object())
	}
}

// Applied reports whether the object was applied and, as far as is known, has stayed so.
func (p *Progress) Applied(ref Ref) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[ref.object()].content != 0
}

// has reports whether this content was applied.
func (p *Progress) has(ref Ref, content uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[ref.object()].content == content
}

// get returns what is known of an object.
func (p *Progress) get(ref Ref) record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[ref.object()]
}

// begin notes that an object is being written, and returns whether it is known to exist.
func (p *Progress) begin(ref Ref) (known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil {
		p.objects = map[Ref]record{}
	}
	r := p.objects[ref.object()]
	r.content, r.underWay, r.seenVersion, r.seenGeneration = 0, true, 0, 0
	p.objects[ref.object()] = r
	return r.uid != 0
}

// failed notes that it is not known what has become of the object.
func (p *Progress) failed(ref Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.objects[ref.object()]
	if r.fresh || r.established {
		p.objects[ref.object()] = record{fresh: r.fresh, established: r.established}
		return
	}
	delete(p.objects, ref.object())
}

// applied notes what the API server answered; fields are those that we own. It returns false, and forgets the object, if somebody
// else has written it since.
func (p *Progress) applied(ref Ref, content uint64, m *metadata, fields uint64, created bool) bool {
	r := record{
		content:    content,
		fields:     fields,
		uid:        hashText(m.UID),
		version:    number(m.ResourceVersion),
		generation: m.Generation,
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil {
		p.objects = map[Ref]record{}
	}
	before := p.objects[ref.object()]
	if ref.groupKind() == definitionKind {
		r.fresh, r.established = created || before.fresh, before.established && !created
	}
	overwritten := before.seenVersion > r.version
	if r.generation != 0 {
		overwritten = before.seenGeneration > r.generation
	}
	if overwritten {
		delete(p.objects, ref.object())
		return false
	}
	p.objects[ref.object()] = r
	return true
}

// setFresh notes whether the kinds of a CustomResourceDefinition have yet to be served; established is the opposite, seen for sure.
func (p *Progress) setFresh(ref Ref, fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil {
		p.objects = map[Ref]record{}
	}
	r := p.objects[ref.object()]
	r.fresh, r.established = fresh, !fresh
	p.objects[ref.object()] = r
}
