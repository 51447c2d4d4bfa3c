package fleet

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// body is the part of an object that equal objects of all clusters share: the JSON of the object, with gaps for the
// values that differ. A gap is a place in the JSON where each object has a value of its own. A body never changes.
type body struct {
	text string // JSON without the values of the gaps
	gaps []gap  // by offset
	meta span   // the value of "metadata" in text
	rest int    // offset in text behind kind and apiVersion

	kind, apiVersion string
	namespace, name  string
	generation       int64
	labels           []label
	owners           []owner
	finalizers       []string
	deleting         int         // index of the deletion time in times; -1 if the object is not being deleted
	times, vars      int         // numbers of times and of vars of the object
	definition       *definition // only if the object is a CustomResourceDefinition
	needs            needs       // the tasks of controllers for the object
	status           []byte      // for needStatus: the merge patch of the status
}

// span is a part of a text.
type span struct{ from, to int }

// gap is a place in the text of a body. At this place, each object has a value of its own, for example its UID.
type gap struct {
	at     int
	kind   gapKind
	nested bool // the gap is in JSON that is the content of a JSON string
	index  int  // index in the object's times or vars
}

type gapKind uint8

const (
	gapVar gapKind = iota // a string from the object's vars
	gapTime
	gapUID
	gapVersion
)

// label is a label of an object. The field gap is -1 if all objects with the body have the same label value, which is
// then in the field value. If the objects have different values, gap is the index of the label value in values.vars of
// an object.
type label struct {
	key, value string
	gap        int
}

// owner is an owner of an object. The field gap is -1 if the owner of all objects with the body has the same UID, which
// is then in the field uid. If the UIDs differ, gap is the index of the owner's UID in values.vars of an object.
type owner struct {
	uid  string
	gap  int
	kind string
	name string
}

// A token is a fixed text that stands for a value of one cluster, such as a UID or a time, while JSON passes through
// the handlers of the API server. All var tokens have the same length, and no token is the prefix of another token.
// Tokens are valid as label values. The tokens for times are in the same order as the times that they replace.
const (
	varToken     = "fleet-gap-"
	timeToken    = "1971-01-01T"
	nowToken     = "1971-01-02T00:00:00Z"
	versionToken = "fleet-version"
)

func varTokenOf(sourceIndex int) string {
	return varToken + strconv.Itoa(1000 + sourceIndex)[1:]
}

func timeTokenOf(sourceIndex int) string {
	return time.Date(1971, 1, 1, 0, 0, sourceIndex, 0, time.UTC).Format(time.RFC3339)
}

// shape is an object that a request has produced. A shape contains the body that all clusters share. For each gap of
// the body, the shape also states where the sources of a request (the values of one cluster) contain the value for this
// gap.
type shape struct {
	body  *body
	times []int // index in the times of the sources; the present time if negative
	vars  []int // index in the vars of the sources
}

// member is a key of a JSON object with its value.
type member struct {
	key   string
	value []byte
}

// parseMembers splits a JSON object into its members, without parsing their values. data must be valid JSON.
func parseMembers(data []byte) []member {
	var all []member
	i := skipSpace(data, 0) + 1
	for {
		i = skipSpace(data, i)
		if i >= len(data) || data[i] == '}' {
			return all
		}
		if data[i] == ',' {
			i++
			continue
		}
		end := skipValue(data, i)
		key := unquote(data[i:end])
		i = skipSpace(data, skipSpace(data, end)+1) // the colon
		end = skipValue(data, i)
		all = append(all, member{key, data[i:end]})
		i = end
	}
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the offset after the value that begins at i.
func skipValue(data []byte, i int) int {
	depth := 0
	for i < len(data) {
		switch data[i] {
		case '"':
			i = skipString(data, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\t', '\r', ':':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// skipString returns the offset after the string that begins at i.
func skipString(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return i
}

// unquote returns the text of a JSON string.
func unquote(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// parseShape converts an object that a handler of the API server returned into a shape: the shared body, and the places
// of this cluster's values. Most values of the cluster are still replaced by tokens in the returned object, but the
// handler has set a new UID and new times as plain values. If the parameter addVersion is true, parseShape adds a
// missing resourceVersion. The argument tokenForNow is the token that stands for the present time.
func (f *Fleet) parseShape(data []byte, addVersion bool, tokenForNow string) *shape {
	var b bytes.Buffer
	b.Grow(len(data) + 64)
	all := parseMembers(data)
	v := &body{deleting: -1}
	b.WriteByte('{')
	first := []string{"kind", "apiVersion", "metadata"}
	headed := 0
	for _, key := range first {
		i := slices.IndexFunc(all, func(m member) bool { return m.key == key })
		if i < 0 {
			continue
		}
		value := all[i].value
		switch key {
		case "kind":
			v.kind = unquote(value)
		case "apiVersion":
			v.apiVersion = unquote(value)
		case "metadata":
			headed = b.Len()
			value = tokenizeMetadata(value, addVersion, tokenForNow)
		}
		writeMember(&b, key, value)
	}
	for _, m := range all {
		if !slices.Contains(first, m.key) {
			writeMember(&b, m.key, m.value)
		}
	}
	b.WriteByte('}')
	return f.extractGapsInto(v, b.Bytes(), headed)
}

func writeMember(b *bytes.Buffer, key string, value []byte) {
	if last := b.Bytes()[b.Len()-1]; last != '{' {
		b.WriteByte(',')
	}
	b.WriteString(strconv.Quote(key)) // keys of Kubernetes' own fields are plain
	b.WriteByte(':')
	b.Write(value)
}

// tokenizeMetadata puts tokens in place of the UID, the resourceVersion and the times that a handler of the API server
// has set in the metadata of an object. tokenizeMetadata always puts the resourceVersion after the UID, so that a
// stored object has the same text as the same object in an answer.
func tokenizeMetadata(data []byte, addVersion bool, tokenForNow string) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	isTime := func(raw []byte) bool { return bytes.HasPrefix(raw, []byte(`"`+timeToken)) }
	all := parseMembers(data)
	addVersion = addVersion || slices.ContainsFunc(all, func(m member) bool { return m.key == "resourceVersion" })
	for _, m := range all {
		switch m.key {
		case "resourceVersion":
			continue
		case "uid":
			writeMember(&b, m.key, []byte(`"`+varTokenOf(0)+`"`))
			if addVersion {
				writeMember(&b, "resourceVersion", []byte(`"`+versionToken+`"`))
			}
			continue
		case "creationTimestamp", "deletionTimestamp":
			if !isTime(m.value) && string(m.value) != "null" {
				m.value = []byte(`"` + nowToken + `"`)
			}
		case "managedFields":
			m.value = tokenizeAndSortManagedFields(m.value, isTime, tokenForNow)
		}
		writeMember(&b, m.key, m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// tokenizeAndSortManagedFields sets the time of new entries of managedFields to the token that stands for the present
// time. tokenizeAndSortManagedFields sorts the entries of managedFields as an API server does: by operation and time,
// and within a second by manager.
func tokenizeAndSortManagedFields(data []byte, isTimeToken func([]byte) bool, tokenForNow string) []byte {
	type entry struct{ order, text string }
	var all []entry
	for i := 1; i < len(data); {
		i = skipSpace(data, i)
		if i >= len(data) || data[i] == ']' {
			break
		}
		if data[i] == ',' {
			i++
			continue
		}
		end := skipValue(data, i)
		var b bytes.Buffer
		b.WriteByte('{')
		fields := map[string]string{}
		for _, m := range parseMembers(data[i:end]) {
			if m.key == "time" && !isTimeToken(m.value) {
				m.value = []byte(`"` + tokenForNow + `"`)
			}
			if m.key != "fieldsV1" {
				fields[m.key] = unquote(m.value)
			}
			writeMember(&b, m.key, m.value)
		}
		b.WriteByte('}')
		order := strings.Join([]string{fields["operation"], fields["time"], fields["manager"], fields["apiVersion"],
			fields["subresource"]}, "\x00")
		all = append(all, entry{order, b.String()})
		i = end
	}
	slices.SortStableFunc(all, func(a, b entry) int { return strings.Compare(a.order, b.order) })
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].text
	}
	return []byte("[" + strings.Join(texts, ",") + "]")
}

// extractGapsInto removes the tokens for a cluster's values from the JSON of an object, and records their places as
// gaps. extractGapsInto also sets the fields of the body that describe the object, such as name and labels.
func (f *Fleet) extractGapsInto(v *body, text []byte, restOffset int) *shape {
	s := &shape{}
	var b strings.Builder
	b.Grow(len(text))
	rest := text
	for {
		at, length := nextToken(rest)
		if at < 0 {
			break
		}
		end := min(at+length, len(rest))
		if g, ok := s.addGapSource(string(rest[at:end])); ok {
			b.Write(rest[:at])
			g.at, g.nested = b.Len(), at > 1 && rest[at-2] == '\\'
			v.gaps = append(v.gaps, g)
		} else {
			b.Write(rest[:end])
		}
		rest = rest[end:]
	}
	b.Write(rest)
	v.text, v.rest = b.String(), restOffset
	v.times, v.vars = len(s.times), len(s.vars)
	f.readFields(v, text, s)
	s.body = f.bodies.shareEqual(v)
	return s
}

// nextToken returns the offset and the length of the first token (varToken, timeToken, nowToken or versionToken) in
// data. The offset is -1 if data contains no token.
func nextToken(data []byte) (at, length int) {
	at = -1
	for _, one := range []struct {
		prefix string
		length int
	}{{varToken, len(varToken) + 3}, {`"1971-`, len(`"`) + len(nowToken)}, {versionToken, len(versionToken)}} {
		if i := bytes.Index(data, []byte(one.prefix)); i >= 0 && (at < 0 || i < at) {
			at, length = i, one.length
		}
	}
	if at >= 0 && data[at] == '"' {
		at, length = at+1, length-1
	}
	return at, length
}

// addGapSource returns the gap that replaces a token in a body. addGapSource also records in the shape where the
// cluster's value for this gap is found.
func (s *shape) addGapSource(token string) (replacement gap, isToken bool) {
	switch {
	case token == versionToken:
		return gap{kind: gapVersion}, true
	case token == varTokenOf(0):
		return gap{kind: gapUID}, true
	case token == nowToken:
		return gap{kind: gapTime, index: indexOrAdd(&s.times, -1)}, true
	case strings.HasPrefix(token, varToken):
		if i, err := strconv.Atoi(token[len(varToken):]); err == nil {
			return gap{kind: gapVar, index: indexOrAdd(&s.vars, i)}, true
		}
	case strings.HasPrefix(token, timeToken):
		if at, err := time.Parse(time.RFC3339, token); err == nil {
			return gap{kind: gapTime, index: indexOrAdd(&s.times, int(at.Unix()-31536000))}, true
		}
	}
	return gap{}, false
}

func indexOrAdd(list *[]int, value int) int {
	if i := slices.Index(*list, value); i >= 0 {
		return i
	}
	*list = append(*list, value)
	return len(*list) - 1
}

// readFields copies the fields that are often needed from the text to the body. The parameter text still contains
// tokens where the object has values of its cluster, such as the UID.
func (f *Fleet) readFields(v *body, text []byte, s *shape) {
	if at := strings.Index(v.text, `"metadata":{`); at >= 0 {
		v.meta.from = at + len(`"metadata":`)
		v.meta.to = skipValue([]byte(v.text), v.meta.from)
	}
	var o struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	for _, m := range parseMembers(text) {
		if m.key == "metadata" {
			_ = json.Unmarshal(m.value, &o.Metadata) // a handler wrote it, so it is valid
		}
	}
	m := &o.Metadata
	v.namespace, v.name, v.generation, v.finalizers = m.Namespace, m.Name, m.Generation, m.Finalizers
	varOf := func(value string) int {
		if g, ok := s.addGapSource(value); ok && g.kind == gapVar {
			return g.index
		}
		return -1
	}
	for key, value := range m.Labels {
		v.labels = append(v.labels, label{key, value, varOf(value)})
	}
	for _, o := range m.OwnerReferences {
		v.owners = append(v.owners, owner{string(o.UID), varOf(string(o.UID)), o.Kind, o.Name})
	}
	if m.DeletionTimestamp != nil {
		if g, ok := s.addGapSource(m.DeletionTimestamp.UTC().Format(time.RFC3339)); ok {
			v.deleting = g.index
		} else {
			v.deleting = 0
		}
	}
	f.setControllerTasks(v, text)
}

// bodies holds each body of a fleet once, as long as some object uses the body.
type bodies struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]weak.Pointer[body] // guarded by mu
}

func (s *bodies) init() { s.all = map[[sha256.Size]byte]weak.Pointer[body]{} }

// shareEqual returns the body that has the same content as v. shareEqual adds v if there is no such body.
func (s *bodies) shareEqual(v *body) *body {
	h := sha256.New()
	h.Write([]byte(v.text))
	for _, g := range v.gaps {
		fmt.Fprintf(h, "\x00%d %d %d %t", g.at, g.kind, g.index, g.nested)
	}
	key := [sha256.Size]byte(h.Sum(nil))
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.all[key].Value(); known != nil {
		return known
	}
	s.all[key] = weak.Make(v)
	runtime.AddCleanup(v, func(key [sha256.Size]byte) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.all[key].Value() == nil {
			delete(s.all, key)
		}
	}, key)
	return v
}

// len returns the number of different bodies that the objects of the fleet use.
func (s *bodies) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}
