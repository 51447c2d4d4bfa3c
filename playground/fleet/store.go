package fleet

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// object is an object of one cluster. An object never changes: a write replaces it by another one.
type object struct {
	body     *body
	values   *values
	version  uint32 // resourceVersion
	born     uint32 // resourceVersion at creation; the UID contains it
	resource resourceID
}

// values are the values that an object has in the gaps of its body: places where each object has a value of its own.
// Objects of one cluster with equal values share one struct values.
type values struct {
	times []uint32 // Unix, in seconds
	vars  []string
}

// resourceID identifies a group and resource, in all clusters of a fleet.
type resourceID uint16

// event is a change of an object. before is nil for a creation, and after is nil for a deletion.
type event struct {
	before, after *object
	version       uint32
}

// firstVersion is the resourceVersion with which every cluster begins. firstVersion is greater than 1, so that no
// object ever has the version 1.
const firstVersion = 1000

// compare compares the key of an object with another key. compare defines the order of the objects of a cluster.
func (o *object) compare(resource resourceID, namespace, name string) int {
	if o.resource != resource {
		return int(o.resource) - int(resource)
	}
	if c := strings.Compare(o.body.namespace, namespace); c != 0 {
		return c
	}
	return strings.Compare(o.body.name, name)
}

type objectKey struct {
	resource        resourceID
	namespace, name string
}

func (o *object) key() objectKey { return objectKey{o.resource, o.body.namespace, o.body.name} }

// searchLocked returns the index of an object in c.objects and true. If the object does not exist, searchLocked returns
// false and the index at which the object must be inserted.
func (c *Cluster) searchLocked(resource resourceID, namespace, name string) (int, bool) {
	return slices.BinarySearchFunc(c.objects, objectKey{resource, namespace, name}, func(o *object, k objectKey) int {
		return o.compare(k.resource, k.namespace, k.name)
	})
}

// findLocked returns an object. findLocked returns nil if there is no such object.
func (c *Cluster) findLocked(resource resourceID, namespace, name string) *object {
	if i, found := c.searchLocked(resource, namespace, name); found {
		return c.objects[i]
	}
	return nil
}

// rangeLocked returns the objects of a resource in one namespace, or in all namespaces if namespace is empty.
func (c *Cluster) rangeLocked(resource resourceID, namespace string) []*object {
	from, _ := c.searchLocked(resource, namespace, "")
	to := from
	for to < len(c.objects) && c.objects[to].resource == resource &&
		(namespace == "" || c.objects[to].body.namespace == namespace) {
		to++
	}
	return c.objects[from:to]
}

// putLocked stores the object that a request produced, and returns the object.
func (c *Cluster) putLocked(resource resourceID, before *object, made *shape, from *sources) *object {
	c.version++
	o := &object{body: made.body, version: c.version, born: c.version, resource: resource}
	if before != nil {
		o.born = before.born
	}
	o.values = c.reuseValuesLocked(from.valuesFor(made))
	i, found := c.searchLocked(resource, o.body.namespace, o.body.name)
	if found {
		c.objects[i] = o
	} else {
		// The slice grows in small steps to save memory, because there are thousands of clusters with few objects each.
		if len(c.objects) == cap(c.objects) {
			c.objects = slices.Grow(c.objects, max(4, len(c.objects)/8))
		}
		c.objects = slices.Insert(c.objects, i, o)
	}
	c.recordChangeLocked(before, o)
	return o
}

// removeLocked removes an object from the cluster.
func (c *Cluster) removeLocked(o *object) {
	i, found := c.searchLocked(o.resource, o.body.namespace, o.body.name)
	if !found {
		return
	}
	c.version++
	c.objects = slices.Delete(c.objects, i, i+1)
	c.recordChangeLocked(o, nil)
}

// recordChangeLocked appends a change to the log, and notifies watches, controllers and Options.Changed.
func (c *Cluster) recordChangeLocked(before, after *object) {
	if len(c.log) >= c.fleet.options.History {
		keep := c.fleet.options.History * 3 / 4
		c.dropOldestEventsLocked(len(c.log) - keep)
	}
	c.log = append(c.log, event{before, after, c.version})
	c.logged = c.fleet.now()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	c.reactToChangeLocked(before, after)
	if changed := c.fleet.options.Changed; changed != nil {
		o, last := after, []byte(nil)
		if o == nil {
			o, last = before, c.appendMetadata(nil, before)
		}
		changed(Change{
			Cluster: c.index, Resource: c.fleet.resources.resourceOf(o.resource),
			Namespace: o.body.namespace, Name: o.body.name,
			Deleted: after == nil, Last: last, Version: int(c.version),
		})
	}
}

// dropOldestEventsLocked removes the oldest n events from the log.
func (c *Cluster) dropOldestEventsLocked(n int) {
	if n <= 0 {
		return
	}
	c.forgotten = c.log[n-1].version
	// The log gets a new array, because the old array would keep the removed events in memory.
	c.log = append([]event(nil), c.log[n:]...)
}

// reuseValuesLocked returns the values of a recently changed object if they are equal to v, and v if no recently
// changed object has equal values. The objects of a module are written one after the other with the same values, so
// they share one struct values.
func (c *Cluster) reuseValuesLocked(v *values) *values {
	for i := len(c.log) - 1; i >= max(0, len(c.log)-8); i-- {
		if o := c.log[i].after; o != nil && slices.Equal(o.values.times, v.times) &&
			slices.Equal(o.values.vars, v.vars) {
			return o.values
		}
	}
	return v
}

// uid returns the UID of an object. The UID contains the index of the cluster and the resourceVersion at creation.
func (c *Cluster) uid(o *object) string { return string(c.appendUID(nil, o.born)) }

// appendUID appends the UID of an object. The parameter born is the resourceVersion at which the object was created.
func (c *Cluster) appendUID(dst []byte, born uint32) []byte {
	seed := c.fleet.seed
	dst = append(appendHex(dst, uint64(c.index), 8), '-') //nolint:gosec // an index is never negative
	dst = append(appendHex(dst, seed>>48, 4), '-', '4')
	dst = append(appendHex(dst, seed>>36&0xfff, 3), '-', '8')
	dst = append(appendHex(dst, seed>>24&0xfff, 3), '-')
	return appendHex(dst, uint64(born), 12)
}

func appendHex(dst []byte, v uint64, digits int) []byte {
	for i := digits - 1; i >= 0; i-- {
		dst = append(dst, "0123456789abcdef"[v>>(4*i)&15])
	}
	return dst
}

// appendObject appends the JSON of an object.
func (c *Cluster) appendObject(dst []byte, o *object) []byte {
	return c.appendSpan(dst, o, 0, len(o.body.text))
}

// appendWithoutTypeMeta appends the JSON of an object without kind and apiVersion. In a list of a built-in kind, the
// items have no apiVersion and no kind.
func (c *Cluster) appendWithoutTypeMeta(dst []byte, o *object) []byte {
	return c.appendSpan(append(dst, '{'), o, o.body.rest+1, len(o.body.text))
}

// appendMetadata appends an object's metadata as the JSON of a PartialObjectMetadata.
func (c *Cluster) appendMetadata(dst []byte, o *object) []byte {
	dst = append(dst, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`...)
	return append(c.appendSpan(dst, o, o.body.meta.from, o.body.meta.to), '}')
}

// appendSpan appends a part of an object's JSON to dst. The two offsets are those in the shared body. appendSpan
// inserts the object's own values into the gaps of the shared body.
func (c *Cluster) appendSpan(dst []byte, o *object, from, to int) []byte {
	v := o.body
	for _, g := range v.gaps {
		if g.at < from {
			continue
		}
		if g.at > to {
			break
		}
		dst = append(dst, v.text[from:g.at]...)
		from = g.at
		switch g.kind {
		case gapVar:
			dst = appendEscaped(dst, o.values.vars[g.index], g.nested)
		case gapTime:
			dst = time.Unix(int64(o.values.times[g.index]), 0).UTC().AppendFormat(dst, time.RFC3339)
		case gapUID:
			dst = c.appendUID(dst, o.born)
		case gapVersion:
			dst = strconv.AppendUint(dst, uint64(o.version), 10)
		}
	}
	return append(dst, v.text[from:to]...)
}

// appendEscaped appends a string with JSON escapes and without quotes. If nested is set, appendEscaped escapes the
// string twice, for JSON that is the content of a JSON string.
func appendEscaped(dst []byte, s string, nested bool) []byte {
	for i := range len(s) {
		if s[i] >= ' ' && s[i] <= '~' && s[i] != '"' && s[i] != '\\' {
			continue
		}
		quoted, err := json.Marshal(s)
		if err == nil && nested {
			quoted, err = json.Marshal(string(quoted[1 : len(quoted)-1]))
		}
		if err != nil {
			return dst
		}
		return append(dst, quoted[1:len(quoted)-1]...)
	}
	return append(dst, s...)
}

// labelled implements labels.Labels for an object, so that label selectors can match it.
type labelled struct{ *object }

// Lookup implements labels.Labels.
func (l labelled) Lookup(key string) (string, bool) {
	for i := range l.body.labels {
		if one := &l.body.labels[i]; one.key == key {
			if one.gap >= 0 {
				return l.values.vars[one.gap], true
			}
			return one.value, true
		}
	}
	return "", false
}

// Has implements labels.Labels.
func (l labelled) Has(key string) bool {
	_, found := l.Lookup(key)
	return found
}

// Get implements labels.Labels.
func (l labelled) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}

// ownerUID returns the UID of an owner, which is in the body or among the values of the object.
func (o *object) ownerUID(w *owner) string {
	if w.gap >= 0 {
		return o.values.vars[w.gap]
	}
	return w.uid
}
