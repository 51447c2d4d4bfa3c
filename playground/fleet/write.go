package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// request is a request about one object.
type request struct {
	kind                         *kind
	namespace, name, subresource string
	method, uri                  string // with the query
	contentType, agent           string
	body                         []byte
}

// sources are the values of one cluster that occur in a request and in the object before the request: times, the UID,
// the resourceVersion and other strings. The results of a request are shared by all clusters and have gaps in place of
// these values. The sources of a request fill these gaps.
type sources struct {
	now   uint32
	times []uint32 // the times of the object before the request, each once, in ascending order
	vars  []string // the object's UID, then all other strings, each once

	version, otherVersion string // the object's resourceVersion, and another one in the request
	tie                   bool   // the object was last changed in the present second
}

// outcome is the result of a request, with gaps or tokens in place of the values of one cluster. Equal requests to
// equal objects have equal outcomes, so clusters share outcomes.
type outcome struct {
	code     int
	warnings []string
	stored   *shape // the object that the request has written; nil if it wrote nothing
	deleted  bool
	response *shape // the object in the answer; nil if the answer is the stored object
	raw      []byte // an answer that is not an object, with tokens in place of values of the cluster
	header   http.Header
}

// valuesFor returns the cluster's values for the gaps in the object that a request has produced.
func (s *sources) valuesFor(made *shape) *values {
	v := &values{}
	for _, i := range made.times {
		at := s.now
		if i >= 0 && i < len(s.times) {
			at = s.times[i]
		}
		v.times = append(v.times, at)
	}
	for _, i := range made.vars {
		if i < len(s.vars) {
			v.vars = append(v.vars, s.vars[i])
		} else {
			v.vars = append(v.vars, varTokenOf(i))
		}
	}
	return v
}

// lookUpTimeIndex returns the index of a time in the field times, or -1. ensureVar returns the index of a string in the
// field vars, and appends the string if the field does not contain it.
func (s *sources) lookUpTimeIndex(at uint32) (indexOrMinusOne int) { return slices.Index(s.times, at) }

func (s *sources) ensureVar(value string) (index int) { return indexOrAddString(&s.vars, value) }

func indexOrAddString(list *[]string, value string) int {
	if i := slices.Index(*list, value); i >= 0 {
		return i
	}
	*list = append(*list, value)
	return len(*list) - 1
}

// clusterValuesBefore returns the values that an object has before a request: its times, UID, resourceVersion and other
// strings. The parameter live is nil if the object does not exist.
func (c *Cluster) clusterValuesBefore(live *object) *sources {
	s := &sources{now: uint32(c.fleet.now().Unix()), vars: []string{""}} //nolint:gosec // until 2106
	if live == nil {
		return s
	}
	s.vars[0] = c.uid(live)
	s.times = append(s.times, live.values.times...)
	slices.Sort(s.times)
	s.times = slices.Compact(s.times)
	s.tie = len(s.times) > 0 && s.times[len(s.times)-1] == s.now
	s.version = strconv.FormatUint(uint64(live.version), 10)
	for _, v := range live.values.vars {
		s.ensureVar(v)
	}
	return s
}

// equalityPattern returns a text that states which values of the object are equal to each other, and in which order its
// times are. Two objects with the same body and the same pattern are equal for the handlers of the API server.
func (s *sources) equalityPattern(live *object) string {
	if live == nil {
		return ""
	}
	b := make([]byte, 0, 8)
	for _, at := range live.values.times {
		b = append(b, byte(s.lookUpTimeIndex(at))) //nolint:gosec // an object has few
	}
	for _, v := range live.values.vars {
		b = append(b, byte(s.ensureVar(v))) //nolint:gosec // an object has few
	}
	if s.tie {
		b = append(b, '=')
	}
	return string(b)
}

// appendTokenized appends the JSON of an object, with tokens in place of the values of its cluster. The handlers of the
// API server receive objects with tokens, so that their results are valid for all clusters.
func (s *sources) appendTokenized(dst []byte, o *object) []byte {
	v, from := o.body, 0
	for _, g := range v.gaps {
		dst = append(dst, v.text[from:g.at]...)
		from = g.at
		switch g.kind {
		case gapVar:
			dst = append(dst, varTokenOf(s.ensureVar(o.values.vars[g.index]))...)
		case gapTime:
			dst = append(dst, timeTokenOf(s.lookUpTimeIndex(o.values.times[g.index]))...)
		case gapUID:
			dst = append(dst, varTokenOf(0)...)
		case gapVersion:
			dst = strconv.AppendUint(dst, versionBefore, 10)
		}
	}
	return append(dst, v.text[from:]...)
}

// memo is a cache of the results of requests. When the map young is full, it becomes the map old, and the former old
// results are dropped. A result in the map old that is used again is copied to the map young.
type memo struct {
	mu           sync.Mutex
	young, old   map[memoKey]*outcome // guarded by mu
	hits, misses int                  // guarded by mu
}

type memoKey struct {
	kind                            *kind
	live                            *body
	method, uri, contentType, agent string
	pattern                         string
	body                            [sha256.Size]byte
}

// memoSize is the number of results that each of the two maps in the cache of request results can hold.
const memoSize = 8192

func (m *memo) get(key memoKey) *outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.young[key]
	if o == nil {
		if o = m.old[key]; o != nil {
			m.addLocked(key, o)
		}
	}
	if o == nil {
		m.misses++
	} else {
		m.hits++
	}
	return o
}

func (m *memo) add(key memoKey, o *outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addLocked(key, o)
}

func (m *memo) addLocked(key memoKey, o *outcome) {
	if len(m.young) >= memoSize || m.young == nil {
		m.young, m.old = make(map[memoKey]*outcome), m.young
	}
	m.young[key] = o
}

// executeLocked runs a request that reads or writes one object, and returns the answer.
func (c *Cluster) executeLocked(ctx context.Context, r *request) (*reply, error) {
	var live *object
	if r.name != "" {
		live = c.findLocked(r.kind.resource, r.namespace, r.name)
	}
	if refusal := c.namespaceLifecycleRefusalLocked(r, live); refusal != nil {
		return refusal, nil
	}
	from := c.clusterValuesBefore(live)
	body := c.tokenizeBody(r, live, from)
	o, err := c.outcomeOf(ctx, r, live, from, body)
	for err == nil && r.name == "" && o.stored != nil && c.findLocked(r.kind.resource, o.stored.body.namespace,
		o.stored.body.name) != nil {
		o, err = c.outcomeOf(ctx, r, live, from, body) // the generated name already exists
	}
	if err != nil {
		return nil, err
	}
	return c.commitLocked(r, live, from, o), nil
}

// outcomeOf returns the result of a request: from the cache memo, or from the handlers of the API server if the cache
// does not contain it. The argument body is the body of the request, with tokens in place of the values of the cluster.
// The sources contain these values.
func (c *Cluster) outcomeOf(ctx context.Context, r *request, live *object, from *sources,
	body []byte) (*outcome, error) {
	key := memoKey{kind: r.kind, method: r.method, uri: r.uri, contentType: r.contentType, agent: r.agent,
		pattern: from.equalityPattern(live), body: sha256.Sum256(body)}
	if live != nil {
		key.live = live.body
	}
	// The handlers generate a different name for each request.
	once := r.name == "" || bytes.Contains(body, []byte(`"generateName"`))
	if !once {
		if known := c.fleet.memo.get(key); known != nil {
			return known, nil
		}
	}
	t := &transaction{resource: r.kind.storage, version: versionBefore}
	if live != nil {
		t.object = from.appendTokenized(nil, live)
	}
	header := http.Header{"Accept": {"application/json"}, "User-Agent": {r.agent}}
	if r.contentType != "" {
		header["Content-Type"] = []string{r.contentType}
	}
	a, err := serveRequest(ctx, r.kind.handler, t, r.method, r.uri, header, body)
	if err != nil {
		return nil, err
	}
	now := nowToken
	if from.tie {
		now = timeTokenOf(len(from.times) - 1)
	}
	o := c.fleet.newOutcome(a, t, live, now)
	if !once && a.code < http.StatusInternalServerError {
		c.fleet.memo.add(key, o)
	}
	return o, nil
}

// newOutcome makes an outcome from the answer of a handler and from the object that the handler stored.
func (f *Fleet) newOutcome(a *answer, t *transaction, live *object, now string) *outcome {
	o := &outcome{code: a.code, warnings: a.header["Warning"]}
	if t.written && a.code < http.StatusMultipleChoices {
		if o.deleted = t.object == nil; !o.deleted {
			o.stored = f.parseShape(t.object, true, now)
		}
	}
	data := bytes.TrimSpace(a.body.Bytes())
	if a.code >= http.StatusMultipleChoices || len(data) == 0 || data[0] != '{' {
		o.raw, o.header = bytes.Clone(data), a.header
		return o
	}
	answered := f.parseShape(data, false, now)
	same := o.stored
	if same == nil && live != nil && !o.deleted && !t.written {
		same = &shape{body: live.body}
	}
	if same == nil || same.body != answered.body {
		o.response = answered
	}
	return o
}

// reply is an answer to a request: an object, or some bytes.
type reply struct {
	code     int
	object   *object
	raw      []byte
	header   http.Header
	warnings []string
}

// commitLocked applies an outcome to this cluster: it stores the object and returns the answer.
func (c *Cluster) commitLocked(r *request, live *object, from *sources, o *outcome) *reply {
	now := live
	switch {
	case o.deleted && live != nil:
		c.removeLocked(live)
	case o.stored != nil:
		now = c.putLocked(r.kind.resource, live, o.stored, from)
	}
	answer := &reply{code: o.code, object: now, header: o.header, warnings: o.warnings}
	switch {
	case o.raw != nil || o.code >= http.StatusMultipleChoices:
		answer.object, answer.raw = nil, from.replaceTokens(o.raw)
	case o.response != nil:
		shown := &object{body: o.response.body, values: from.valuesFor(o.response),
			resource: r.kind.resource, version: c.version}
		if now != nil {
			shown.version, shown.born = now.version, now.born
		}
		answer.object = shown
	}
	return answer
}

// replaceTokens replaces the tokens of a text, such as a message, by values.
func (s *sources) replaceTokens(data []byte) []byte {
	if bytes.Contains(data, []byte(varToken)) {
		for i, value := range s.vars {
			data = bytes.ReplaceAll(data, []byte(varTokenOf(i)), []byte(value))
		}
	}
	if bytes.Contains(data, []byte(timeToken)) {
		for i, at := range s.times {
			data = bytes.ReplaceAll(data, []byte(timeTokenOf(i)),
				[]byte(time.Unix(int64(at), 0).UTC().Format(time.RFC3339)))
		}
	}
	if s.version != "" {
		data = bytes.ReplaceAll(data, []byte(strconv.FormatUint(versionBefore, 10)), []byte(s.version))
		data = bytes.ReplaceAll(data, []byte(strconv.FormatUint(versionOther, 10)), []byte(s.otherVersion))
	}
	return data
}

// tokenizeBody returns the body of a request with tokens in place of the values that differ between clusters. Requests
// of different clusters that differ only in these values then have equal bodies.
func (c *Cluster) tokenizeBody(r *request, live *object, addTo *sources) []byte {
	body := r.body
	if i := skipSpace(body, 0); strings.HasSuffix(r.contentType, "yaml") && (i == len(body) || body[i] != '{') {
		if data, err := yaml.YAMLToJSON(body); err == nil {
			body = data
		}
	}
	if bytes.Contains(body, []byte("resourceVersion")) || bytes.Contains(body, []byte(`"creationTimestamp":"`)) ||
		r.contentType == string(types.JSONPatchType) {
		body = tokenizeVersionsAndTimes(body, live, addTo)
	}
	body = c.fleet.tokenizeUIDsAndVaryingFields(body, addTo)
	// A client that has read an object may send its managedFields back, whose keys for owner references contain UIDs.
	if nested := []byte(`k:{\"uid\":\"`); bytes.Contains(body, nested) {
		for i, value := range addTo.vars {
			body = bytes.ReplaceAll(body, append(bytes.Clone(nested), value...),
				append(bytes.Clone(nested), varTokenOf(i)...))
		}
	}
	return body
}

// tokenizeUIDsAndVaryingFields puts tokens in place of UIDs, and in place of the strings that Options.Varying lists.
func (f *Fleet) tokenizeUIDsAndVaryingFields(body []byte, addTo *sources) []byte {
	var out []byte
	done, next := 0, make([]int, len(f.varying))
	for {
		first := -1
		for i, key := range f.varying {
			if next[i] >= 0 && next[i] <= done {
				at := bytes.Index(body[done:], key)
				next[i] = at
				if at >= 0 {
					next[i] += done + len(key)
				}
			}
			if next[i] >= 0 && (first < 0 || next[i] < first) {
				first = next[i]
			}
		}
		if first < 0 {
			break
		}
		at := skipSpace(body, first)
		if at >= len(body) || body[at] != ':' {
			out, done = append(out, body[done:first]...), first
			continue
		}
		at = skipSpace(body, at+1)
		if at >= len(body) || body[at] != '"' {
			out, done = append(out, body[done:at]...), at
			continue
		}
		end := skipString(body, at)
		value := unquote(body[at:end])
		if value == "" || end > len(body) {
			out, done = append(out, body[done:min(end, len(body))]...), min(end, len(body))
			continue
		}
		if out == nil {
			out = make([]byte, 0, len(body)+64)
		}
		out = append(append(out, body[done:at]...), '"')
		out = append(append(out, varTokenOf(addTo.ensureVar(value))...), '"')
		done = end
	}
	if out == nil {
		return body
	}
	return append(out, body[done:]...)
}

// tokenizeVersionsAndTimes changes the body of a request so that it is the same for all clusters.
// tokenizeVersionsAndTimes replaces the resourceVersion by versionBefore if the version is the present one, and by
// versionOther if not. If the object contains a time that is also in the request, tokenizeVersionsAndTimes replaces the
// time by its token.
func tokenizeVersionsAndTimes(body []byte, live *object, from *sources) []byte {
	var content any
	if utiljson.Unmarshal(body, &content) != nil {
		return body
	}
	switch content := content.(type) {
	case map[string]any:
		tokenizeMetadataVersionAndTimes(content, live, from)
	case []any: // a JSON patch
		for _, one := range content {
			op, _ := one.(map[string]any)
			value, isString := op["value"].(string)
			switch path := op["path"]; {
			case isString && path == "/metadata/resourceVersion":
				op["value"] = tokenOfRequestedVersion(value, live, from)
			case isString && path == "/metadata/uid" && value == from.vars[0] && live != nil:
				op["value"] = varTokenOf(0)
			}
		}
	}
	data, err := json.Marshal(content)
	if err != nil {
		return body
	}
	return data
}

// tokenizeMetadataVersionAndTimes replaces the resourceVersion and the times in one object, or in the options of a
// deletion, by the same constants and tokens for all clusters.
func tokenizeMetadataVersionAndTimes(content map[string]any, live *object, from *sources) {
	for _, place := range []string{"metadata", "preconditions"} {
		m, ok := content[place].(map[string]any)
		if !ok {
			continue
		}
		if version, ok := m["resourceVersion"].(string); ok {
			m["resourceVersion"] = tokenOfRequestedVersion(version, live, from)
		}
		tokenizeKnownTime(m, "creationTimestamp", from)
		tokenizeKnownTime(m, "deletionTimestamp", from)
		fields, _ := m["managedFields"].([]any)
		for _, one := range fields {
			if entry, ok := one.(map[string]any); ok {
				tokenizeKnownTime(entry, "time", from)
			}
		}
	}
}

func tokenizeKnownTime(m map[string]any, key string, from *sources) {
	text, ok := m[key].(string)
	if !ok {
		return
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		if i := from.lookUpTimeIndex(uint32(at.Unix())); i >= 0 { //nolint:gosec // compared only
			m[key] = timeTokenOf(i)
		}
	}
}

func tokenOfRequestedVersion(version string, live *object, from *sources) string {
	switch {
	case version == "" || version == "0" || live == nil:
		return version
	case version == strconv.FormatUint(uint64(live.version), 10):
		return strconv.FormatUint(versionBefore, 10)
	}
	if _, err := strconv.ParseUint(version, 10, 64); err != nil {
		return version
	}
	from.otherVersion = version
	return strconv.FormatUint(versionOther, 10)
}

// namespaceLifecycleRefusalLocked implements the checks of the admission plugin NamespaceLifecycle.
// namespaceLifecycleRefusalLocked returns nil if the request is allowed.
func (c *Cluster) namespaceLifecycleRefusalLocked(r *request, live *object) *reply {
	if r.method == http.MethodDelete {
		if r.kind.resource == c.fleet.namespaceResource &&
			slices.Contains([]string{"default", "kube-system", "kube-public"}, r.name) {
			return forbiddenReply(r.kind, r.name, "this namespace may not be deleted")
		}
		return nil
	}
	creates := r.method == http.MethodPost && r.subresource == "" ||
		r.method == http.MethodPatch && live == nil && r.subresource == "" &&
			r.contentType == string(types.ApplyPatchType)
	if !creates || !r.kind.namespaced {
		return nil
	}
	home := c.findLocked(c.fleet.namespaceResource, "", r.namespace)
	switch {
	case home == nil:
		return failureReply(metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: fmt.Sprintf("namespaces %q not found", r.namespace),
			Details: &metav1.StatusDetails{Name: r.namespace, Kind: "namespaces"}})
	case home.body.deleting >= 0:
		refusal := forbiddenReply(r.kind, r.name, fmt.Sprintf(
			"unable to create new content in namespace %s because it is being terminated", r.namespace))
		refusal.editStatus(func(s *metav1.Status) {
			s.Details.Causes = []metav1.StatusCause{{Type: "NamespaceTerminating",
				Message: fmt.Sprintf("namespace %s is being terminated", r.namespace), Field: "metadata.namespace"}}
		})
		return refusal
	}
	return nil
}
