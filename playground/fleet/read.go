package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/yaml"
)

// unmarshalJSONOrYAML decodes JSON, or YAML if the content type is YAML.
func unmarshalJSONOrYAML(data []byte, contentType string, into any) error {
	if strings.HasSuffix(contentType, "yaml") {
		return yaml.Unmarshal(data, into)
	}
	return json.Unmarshal(data, into)
}

// get returns the answer to a GET of one object.
func (c *Cluster) get(ctx context.Context, k *kind, p place) *reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.findLocked(k.resource, p.namespace, p.name)
	if o == nil {
		return notFound(k, p.name)
	}
	shown, err := c.convert(ctx, o, k)
	if err != nil {
		return failureReply(metav1.Status{Code: http.StatusInternalServerError,
			Reason:  metav1.StatusReasonInternalError,
			Message: err.Error()})
	}
	return &reply{code: http.StatusOK, object: shown}
}

// convert returns an object in the API version of the kind k. In most cases the object is stored in this version, and
// convert returns the object unchanged.
func (c *Cluster) convert(ctx context.Context, o *object, k *kind) (*object, error) {
	if o.body.apiVersion == k.apiVersion() {
		return o, nil
	}
	// Conversion does not depend on the values of the cluster, so each gap of the body is filled with a token instead
	// of a value.
	from := &sources{times: make([]uint32, len(o.values.times)), vars: make([]string, len(o.values.vars)+1)}
	stand := *o
	stand.values = &values{times: from.times, vars: from.vars[1:]}
	for i := range from.times {
		from.times[i] = uint32(i)
	}
	for i := range from.vars {
		from.vars[i] = strconv.Itoa(i)
	}
	r := &request{kind: k, namespace: o.body.namespace, name: o.body.name, method: http.MethodGet,
		uri: k.path(o.body.namespace, o.body.name, "")}
	made, err := c.outcomeOf(ctx, r, &stand, from, nil)
	if err != nil {
		return nil, err
	}
	if made.response == nil {
		return nil, fmt.Errorf("reading %s %s/%s in version %s: %s", k.plural, o.body.namespace,
			o.body.name, k.version, made.raw)
	}
	real := &sources{times: o.values.times, vars: append([]string{""}, o.values.vars...)}
	return &object{body: made.response.body, values: real.valuesFor(made.response), version: o.version,
		born: o.born, resource: o.resource}, nil
}

// selection decides which objects of a collection a request selects.
type selection struct {
	kind      *kind
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

// parseSelectors parses the selectors of a request. If a selector is invalid, parseSelectors returns the answer to the
// request as refusal.
func parseSelectors(k *kind, p place, query url.Values) (s selection, refusal *reply) {
	s = selection{kind: k, namespace: p.namespace, labels: labels.Everything(), fields: fields.Everything()}
	var err error
	if text := query.Get("labelSelector"); text != "" {
		if s.labels, err = labels.Parse(text); err != nil {
			return s, badRequest(fmt.Sprintf("unable to parse requirement: %s",
				strings.TrimPrefix(err.Error(), "unable to parse requirement: ")))
		}
	}
	if text := query.Get("fieldSelector"); text != "" {
		if s.fields, err = fields.ParseSelector(text); err != nil {
			return s, badRequest(err.Error())
		}
		if s.fields, err = s.fields.Transform(k.fieldLabel); err != nil {
			return s, badRequest(err.Error())
		}
	}
	return s, nil
}

// fieldLabel checks and converts the label and value of a field selector.
func (k *kind) fieldLabel(label, value string) (string, string, error) {
	switch {
	case label == "metadata.name", label == "metadata.namespace" && k.namespaced,
		slices.Contains(k.selectableFields, label):
		return label, value, nil
	case k.custom:
		return "", "", fmt.Errorf("field label not supported: %s", label)
	case k.group == "apiextensions.k8s.io" || k.group == "apiregistration.k8s.io":
		return "", "", fmt.Errorf("%q is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
			label)
	}
	return legacyscheme.Scheme.ConvertFieldLabel(schema.GroupVersionKind{Group: k.group, Version: k.version,
		Kind: k.kind}, label, value)
}

// matches reports whether the selection includes an object.
func (s *selection) matches(c *Cluster, o *object) bool {
	if o == nil || o.resource != s.kind.resource || s.namespace != "" && o.body.namespace != s.namespace {
		return false
	}
	if !s.labels.Empty() && !s.labels.Matches(labelled{o}) {
		return false
	}
	return s.fields.Empty() || s.fields.Matches(fieldsOf{c, o})
}

// fieldsOf implements fields.Fields for an object, so that field selectors can match it.
type fieldsOf struct {
	*Cluster
	*object
}

// Has implements fields.Fields.
func (f fieldsOf) Has(string) bool { return true }

// Get implements fields.Fields.
func (f fieldsOf) Get(field string) string {
	switch field {
	case "metadata.name", "name":
		return f.body.name
	case "metadata.namespace":
		return f.body.namespace
	}
	var value any
	if json.Unmarshal(f.appendObject(nil, f.object), &value) != nil {
		return ""
	}
	for part := range strings.SplitSeq(field, ".") {
		m, _ := value.(map[string]any)
		value = m[part]
	}
	switch value := value.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	default:
		return fmt.Sprint(value)
	}
}

// page is the content of a continue token: the position in a collection at which a page begins.
type page struct {
	start   string
	version int64 // resourceVersion of the list
}

// serveListPage answers with a collection, or with a page of it. A later page shows the present state of the
// collection, not the state at the time of the first page.
func (c *Cluster) serveListPage(w http.ResponseWriter, r *http.Request, k *kind, p place) {
	query := r.URL.Query()
	s, refusal := parseSelectors(k, p, query)
	if refusal != nil {
		c.writeReply(w, refusal, jsonType)
		return
	}
	limit, _ := strconv.Atoi(query.Get("limit"))
	after := page{}
	if text := query.Get("continue"); text != "" {
		key, version, err := storage.DecodeContinue(text, "/")
		if err != nil {
			c.writeReply(w, badRequest("invalid continue token: "+err.Error()), jsonType)
			return
		}
		after = page{strings.TrimPrefix(key, "/"), version}
	}
	c.mu.Lock()
	l := c.listLocked(r.Context(), &s, after, limit)
	c.mu.Unlock()
	if after.start != "" && after.version < int64(l.forgotten) {
		status := expiredStatus("The provided continue parameter is too old to display a consistent list result. You can " +
			"start a new list without the continue parameter, or use the continue token in this response to retrieve " +
			"the remainder of the results.")
		c.writeReply(w, failureReply(status), jsonType)
		return
	}
	b := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(b)
	b.Reset()
	data := c.appendList(b.AvailableBuffer(), k, l, wantsMetadata(r.Header.Get("Accept")))
	c.write(w, http.StatusOK, jsonType, data)
	*b = *bytes.NewBuffer(data)
}

// list is a page of a collection.
type list struct {
	objects   []*object
	version   int64
	next      string
	remaining int // number of objects behind this page; negative if not known
	forgotten uint32
}

// listLocked returns one page of a collection.
func (c *Cluster) listLocked(ctx context.Context, s *selection, after page, limit int) list {
	l := list{version: int64(c.version), remaining: -1, forgotten: c.forgotten}
	if after.start != "" {
		l.version = after.version
	}
	all := c.rangeLocked(s.kind.resource, s.namespace)
	for i, o := range all {
		if continueKey(o) < after.start {
			continue
		}
		if !s.matches(c, o) {
			continue
		}
		if limit > 0 && len(l.objects) == limit {
			if next, err := storage.EncodeContinue("/"+continueKey(l.objects[limit-1])+"\u0000",
				"/", l.version); err == nil {
				l.next = next
			}
			if s.labels.Empty() && s.fields.Empty() {
				l.remaining = len(all) - i
			}
			break
		}
		if shown, err := c.convert(ctx, o, s.kind); err == nil {
			l.objects = append(l.objects, shown)
		}
	}
	return l
}

func continueKey(o *object) string {
	if o.body.namespace == "" {
		return o.body.name
	}
	return o.body.namespace + "/" + o.body.name
}

// appendList appends the JSON of a page.
func (c *Cluster) appendList(dst []byte, k *kind, l list, metadataOnly bool) []byte {
	if metadataOnly {
		dst = append(dst, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"`...)
	} else {
		dst = fmt.Appendf(dst, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"`, k.listKind, k.apiVersion())
	}
	dst = append(strconv.AppendInt(dst, l.version, 10), '"')
	if l.next != "" {
		dst = append(append(append(dst, `,"continue":"`...), l.next...), '"')
		if l.remaining >= 0 {
			dst = strconv.AppendInt(append(dst, `,"remainingItemCount":`...), int64(l.remaining), 10)
		}
	}
	if l.next == "" && k.custom && !metadataOnly {
		dst = append(dst, `,"continue":""`...) // as the handler of custom resources does
	}
	dst = append(dst, `},"items":[`...)
	for i, o := range l.objects {
		if i > 0 {
			dst = append(dst, ',')
		}
		switch {
		case metadataOnly:
			dst = c.appendMetadata(dst, o)
		case k.custom:
			dst = c.appendObject(dst, o)
		default:
			dst = c.appendWithoutTypeMeta(dst, o)
		}
	}
	return append(dst, ']', '}')
}

// serveDeleteCollection deletes the selected objects one after the other. The answer to a deletion of several objects
// contains the objects as they were before the deletion.
func (c *Cluster) serveDeleteCollection(w http.ResponseWriter, r *http.Request, k *kind, p place) {
	s, refusal := parseSelectors(k, p, r.URL.Query())
	if refusal != nil {
		c.writeReply(w, refusal, jsonType)
		return
	}
	body, err := readBody(r)
	if err != nil {
		c.writeReply(w, badRequest(err.Error()), jsonType)
		return
	}
	contentType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	c.mu.Lock()
	l := c.listLocked(r.Context(), &s, page{}, 0)
	for i, o := range l.objects {
		one := &request{kind: k, namespace: o.body.namespace, name: o.body.name, method: http.MethodDelete,
			contentType: contentType, agent: agentOf(r.UserAgent()), body: body,
			uri: k.path(o.body.namespace, o.body.name, "") + "?" + r.URL.RawQuery}
		answer, err := c.executeLocked(r.Context(), one)
		if err == nil && answer.object != nil && answer.object.body.kind != "Status" {
			l.objects[i] = answer.object
		}
	}
	c.mu.Unlock()
	data := c.appendList(nil, k, l, wantsMetadata(r.Header.Get("Accept")))
	c.write(w, http.StatusOK, jsonType, data)
}
