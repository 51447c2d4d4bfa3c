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

// body is what equal objects of all clusters share: their JSON, with gaps where they differ. It never changes.
type body struct {
	text string // JSON without what stands in the gaps
	gaps []gap  // by offset
	meta span   // where the value of "metadata" is in text
	rest int    // where what comes after kind and apiVersion begins in text

	kind, apiVersion string
	namespace, name  string
	generation       int64
	labels           []label
	owners           []owner
	finalizers       []string
	deleting         int         // index of the time of deletion; -1 if it is not being deleted
	times, vars      int         // how many of each there are
	definition       *definition // of a CustomResourceDefinition
	needs            needs       // what controllers have to do about it
	status           []byte      // of it: the merge patch for its status
}

// span is a part of a text.
type span struct{ from, to int }

// gap is a place in a text that is filled in for each object.
type gap struct {
	at     int
	kind   gapKind
	nested bool // in JSON that is itself in a JSON string
	index  int  // of the object's times or vars
}

type gapKind uint8

const (
	gapVar gapKind = iota // a string of the object
	gapTime
	gapUID
	gapVersion
)

// label is a label of an object; gap is the index of its value in the object's vars, -1 if value is the value.
type label struct {
	key, value string
	gap        int
}

// owner is an owner of an object; gap is as for labels, of its UID.
type owner struct {
	uid  string
	gap  int
	kind string
	name string
}

// What stands in the gaps of JSON on its way through the API server's handlers. A token is as long as any other, is
// good as the value of a label, and none is the start of another. Times are in the order of what they stand for.
const (
	varToken     = "fleet-gap-"
	timeToken    = "1971-01-01T"
	nowToken     = "1971-01-02T00:00:00Z"
	versionToken = "fleet-version"
)

func varTokenOf(i int) string {
	return varToken + strconv.Itoa(1000 + i)[1:]
}

func timeTokenOf(i int) string {
	return time.Date(1971, 1, 1, 0, 0, i, 0, time.UTC).Format(time.RFC3339)
}

// shape says how an object comes out of a request: its body, and what of the request's sources goes into the gaps.
type shape struct {
	body  *body
	times []int // which time of the sources; now if negative
	vars  []int // which string of the sources
}

// member is a member of a JSON object.
type member struct {
	key   string
	value []byte
}

// members splits a JSON object into its members, without looking into their values. It trusts that data is valid JSON.
func members(data []byte) []member {
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

// skipValue returns where the value that begins at i ends.
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

// skipString returns where the string that begins at i ends.
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

// parseShape makes a shape of an object as a handler gives it: with tokens in most gaps, and with a UID and times that
// are new. versioned puts a resourceVersion into it if there is none; now is the token of the present time.
func (f *Fleet) parseShape(data []byte, versioned bool, now string) *shape {
	var b bytes.Buffer
	b.Grow(len(data) + 64)
	all := members(data)
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
			value = tokenizeMetadata(value, versioned, now)
		}
		writeMember(&b, key, value)
	}
	for _, m := range all {
		if !slices.Contains(first, m.key) {
			writeMember(&b, m.key, m.value)
		}
	}
	b.WriteByte('}')
	return f.cut(v, b.Bytes(), headed)
}

func writeMember(b *bytes.Buffer, key string, value []byte) {
	if last := b.Bytes()[b.Len()-1]; last != '{' {
		b.WriteByte(',')
	}
	b.WriteString(strconv.Quote(key)) // keys of Kubernetes' own fields are plain
	b.WriteByte(':')
	b.Write(value)
}

// tokenizeMetadata puts tokens where a handler has put a UID, a version, or the present time. The version always comes
// after the UID, so that an object looks the same whether it comes from storage or from an answer.
func tokenizeMetadata(data []byte, versioned bool, now string) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	isTime := func(raw []byte) bool { return bytes.HasPrefix(raw, []byte(`"`+timeToken)) }
	all := members(data)
	versioned = versioned || slices.ContainsFunc(all, func(m member) bool { return m.key == "resourceVersion" })
	for _, m := range all {
		switch m.key {
		case "resourceVersion":
			continue
		case "uid":
			writeMember(&b, m.key, []byte(`"`+varTokenOf(0)+`"`))
			if versioned {
				writeMember(&b, "resourceVersion", []byte(`"`+versionToken+`"`))
			}
			continue
		case "creationTimestamp", "deletionTimestamp":
			if !isTime(m.value) && string(m.value) != "null" {
				m.value = []byte(`"` + nowToken + `"`)
			}
		case "managedFields":
			m.value = tokenizeFields(m.value, isTime, now)
		}
		writeMember(&b, m.key, m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// tokenizeFields puts the token of the present time into entries of managedFields that are new, and sorts them again as
// an API server does: those of one second by manager.
func tokenizeFields(data []byte, isTime func([]byte) bool, now string) []byte {
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
		for _, m := range members(data[i:end]) {
			if m.key == "time" && !isTime(m.value) {
				m.value = []byte(`"` + now + `"`)
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

// cut takes the tokens out of a text and completes the body.
func (f *Fleet) cut(v *body, text []byte, headed int) *shape {
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
		if g, ok := s.gapOf(string(rest[at:end])); ok {
			b.Write(rest[:at])
			g.at, g.nested = b.Len(), at > 1 && rest[at-2] == '\\'
			v.gaps = append(v.gaps, g)
		} else {
			b.Write(rest[:end])
		}
		rest = rest[end:]
	}
	b.Write(rest)
	v.text, v.rest = b.String(), headed
	v.times, v.vars = len(s.times), len(s.vars)
	f.read(v, text, s)
	s.body = f.bodies.intern(v)
	return s
}

// nextToken finds the next token, and how long it is.
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

// gapOf returns the gap that a token stands for, and notes where its value comes from.
func (s *shape) gapOf(token string) (gap, bool) {
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

// read notes of the text, which still has its tokens, what is looked at often.
func (f *Fleet) read(v *body, text []byte, s *shape) {
	if at := strings.Index(v.text, `"metadata":{`); at >= 0 {
		v.meta.from = at + len(`"metadata":`)
		v.meta.to = skipValue([]byte(v.text), v.meta.from)
	}
	var o struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	for _, m := range members(text) {
		if m.key == "metadata" {
			_ = json.Unmarshal(m.value, &o.Metadata) // what a handler wrote can be read
		}
	}
	m := &o.Metadata
	v.namespace, v.name, v.generation, v.finalizers = m.Namespace, m.Name, m.Generation, m.Finalizers
	varOf := func(value string) int {
		if g, ok := s.gapOf(value); ok && g.kind == gapVar {
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
		if g, ok := s.gapOf(m.DeletionTimestamp.UTC().Format(time.RFC3339)); ok {
			v.deleting = g.index
		} else {
			v.deleting = 0
		}
	}
	f.readNeeds(v, text)
}

// bodies are all bodies of a fleet, each once, as long as somebody uses it.
type bodies struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]weak.Pointer[body] // guarded by mu
}

func (s *bodies) init() { s.all = map[[sha256.Size]byte]weak.Pointer[body]{} }

// intern returns the body with the same content.
func (s *bodies) intern(v *body) *body {
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

// len returns how many different bodies there are.
func (s *bodies) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}
