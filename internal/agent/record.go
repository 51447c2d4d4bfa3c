package agent

import (
	"hash/maphash"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// record is what the agent stores about an object: enough to detect whether the spec or the status of the object has
// changed.
type record struct {
	uid, version uint64 // hashes
	generation   int64
	labels       uint64 // hash of labels, annotations, finalizers and whether the object is being deleted
	matched      uint64 // bit n is set if filter n matches; all filters from 63 on share bit 63
}

// recorder makes records.
type recorder struct {
	seed    maphash.Seed
	filters []filter
}

// filter is a scope whose label selector is parsed.
type filter struct {
	scope
	selector labels.Selector
}

func newRecorder(scopes []scope) (*recorder, error) {
	r := &recorder{seed: maphash.MakeSeed()}
	for _, s := range scopes {
		selector, err := labels.Parse(s.selector)
		if err != nil {
			return nil, err
		}
		r.filters = append(r.filters, filter{s, selector})
	}
	return r, nil
}

// filterBit returns the bit that a filter has in record.matched.
func filterBit(filter int) uint64 { return 1 << min(filter, 63) }

func (r *recorder) record(o *metav1.ObjectMeta) record {
	return record{
		uid: maphash.String(r.seed, string(o.UID)), version: maphash.String(r.seed, o.ResourceVersion),
		generation: o.Generation, labels: r.hash(o), matched: r.matchingFilters(o),
	}
}

// hash returns a hash of the labels, the annotations and the finalizers of an object, and of whether it is being
// deleted.
func (r *recorder) hash(o *metav1.ObjectMeta) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	part := func(kind byte, texts ...string) uint64 {
		h.Reset()
		_ = h.WriteByte(kind) // it never fails
		for _, text := range texts {
			_, _ = h.WriteString(text)
			_ = h.WriteByte(0)
		}
		return h.Sum64()
	}
	sum := part('f', o.Finalizers...)
	for key, value := range o.Labels {
		sum += part('l', key, value)
	}
	for key, value := range o.Annotations {
		sum += part('a', key, value)
	}
	if o.DeletionTimestamp != nil {
		sum += part('d')
	}
	return sum
}

// matchingFilters returns the bits of the filters that match an object. If a watch has only one filter, the API server
// returns only objects that match it.
func (r *recorder) matchingFilters(o *metav1.ObjectMeta) uint64 {
	if len(r.filters) == 1 {
		return filterBit(0)
	}
	var matched uint64
	for n, f := range r.filters {
		if f.namespace != "" && f.namespace != o.Namespace || f.name != "" && f.name != o.Name ||
			!f.selector.Matches(labels.Set(o.Labels)) {
			continue
		}
		matched |= filterBit(n)
	}
	return matched
}

// difference describes how an object has changed.
type difference struct {
	spec, status bool
}

// compare returns the difference between two records of the same object. The parameter hasStatus is false if the kind
// has no status subresource. Without a status subresource, every change may be a change of the spec and of the status.
// The parameter mayHaveMissedChanges is true if the object may have changed several times since the first record.
func compare(before, after record, hasStatus, mayHaveMissedChanges bool) difference {
	switch {
	case before.uid != after.uid:
		return difference{true, true}
	case before.version == after.version:
		return difference{}
	case mayHaveMissedChanges || !hasStatus || after.generation == 0:
		return difference{true, true}
	}
	spec := before.generation != after.generation || before.labels != after.labels
	return difference{spec: spec, status: !spec}
}

// concerns reports whether a difference includes a change of the given field: the spec, the status, or any field.
func (d difference) concerns(field protocol.Field) bool {
	switch field {
	case protocol.FieldSpec:
		return d.spec
	case protocol.FieldStatus:
		return d.status
	}
	return d.spec || d.status
}
