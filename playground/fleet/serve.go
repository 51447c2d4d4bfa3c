package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilversion "k8s.io/component-base/version"
)

const (
	jsonType = "application/json"
	// maxBody is the maximum size of a request body, as in an API server.
	maxBody = 3 << 20
)

// place is the parsed path of a resource.
type place struct {
	key                          kindKey
	namespace, name, subresource string
}

// parsePath parses the path of a resource. plural is empty if the path names no resource.
func parsePath(path string) (p place, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		p.key.version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		p.key.group, p.key.version, parts = parts[1], parts[2], parts[3:]
	default:
		return p, false
	}
	// In namespaces/NAME/PLURAL, the namespace itself is the object if PLURAL is one of the two subresources of a
	// namespace.
	if len(parts) >= 3 && parts[0] == "namespaces" &&
		(p.key.group != "" || parts[2] != "status" && parts[2] != "finalize") {
		p.namespace, parts = parts[1], parts[2:]
	}
	p.key.plural = parts[0]
	if len(parts) > 1 {
		p.name = parts[1]
	}
	if len(parts) > 2 {
		p.subresource = strings.Join(parts[2:], "/")
	}
	return p, true
}

// ServeHTTP answers a request to a cluster.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if t := c.fault.Load(); t != nil && t.applyTo(c, w, r) {
		return
	}
	if !c.acceptsTokenOf(r) {
		c.count("", "unauthorized")
		c.writeReply(w, failureReply(metav1.Status{Code: http.StatusUnauthorized,
			Reason:  metav1.StatusReasonUnauthorized,
			Message: "Unauthorized"}), jsonType)
		return
	}
	p, ok := parsePath(r.URL.Path)
	if !ok {
		c.serveNonResource(w, r)
		return
	}
	if p.key == ruleReviews && r.Method == http.MethodPost {
		c.count("review", "selfsubjectrulesreviews.authorization.k8s.io") // it changes nothing, so it is not a create
		c.write(w, http.StatusCreated, jsonType, []byte(allRules))
		return
	}
	k := c.kindOf(p.key)
	if k != nil && k.custom && p.subresource != "" && !hasSubresource(k, p.subresource) {
		c.count("", "unknown")
		c.writeReply(w, notFound(k, p.name), jsonType)
		return
	}
	if k == nil || p.namespace != "" && !k.namespaced || p.subresource != "" && !hasSubresource(k, p.subresource) {
		c.count("", "unknown")
		c.fleet.notServed(w, p.key.group)
		return
	}
	c.serveResource(w, r, k, p)
}

// A SelfSubjectRulesReview asks for the rights of the credential. Each credential of a simulated cluster has all
// rights.
var ruleReviews = kindKey{group: "authorization.k8s.io", version: "v1", plural: "selfsubjectrulesreviews"}

const allRules = `{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{},` +
	`"status":{"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}],` +
	`"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}],"incomplete":false}}`

func hasSubresource(k *kind, subresource string) bool {
	return slices.Contains(k.subresources, subresource)
}

// notServed answers a request for an unknown path as an API server does. The body of the answer is a Status if the API
// group is a built-in one, and plain text if not.
func (f *Fleet) notServed(w http.ResponseWriter, group string) {
	if slices.ContainsFunc(f.builtinVersions, func(v builtinVersion) bool { return v.group == group }) {
		w.Header()["Content-Type"] = []string{jsonType}
		w.WriteHeader(http.StatusNotFound)
		// The client may have disconnected.
		_, _ = io.WriteString(
			w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}`)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, "404 page not found\n") // the client may have disconnected
}

// acceptsTokenOf reports whether a request has the token that is valid at present.
func (c *Cluster) acceptsTokenOf(r *http.Request) bool {
	if t := c.fault.Load(); t != nil && t.Expired {
		return false
	}
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && got == c.token()
}

// serveNonResource answers requests for paths that are not resources.
func (c *Cluster) serveNonResource(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch path {
	case "/healthz", "/readyz", "/livez":
		c.count("get", path[1:])
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "ok") // the client may have disconnected
		return
	case "/version":
		c.count("get", "version")
		version := utilversion.DefaultKubeBinaryVersion
		major, minor, _ := strings.Cut(version, ".")
		c.write(w, http.StatusOK, jsonType, fmt.Appendf(
			nil, `{"major":%q,"minor":%q,"gitVersion":"v%s.0","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"gc","platform":"linux/amd64"}`, major, minor, version))
		return
	}
	if r.Method != http.MethodGet || path != "/api" && !strings.HasPrefix(path, "/api/") && path != "/apis" &&
		!strings.HasPrefix(path, "/apis/") {
		c.count("", "unknown")
		c.fleet.notServed(w, groupIn(path))
		return
	}
	c.count("get", "discovery")
	aggregated := (path == "/api" || path == "/apis") &&
		strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList") &&
		strings.Contains(r.Header.Get("Accept"), "v=v2;")
	d := c.discoveryDocument(path, aggregated)
	if d == nil {
		c.fleet.notServed(w, groupIn(path))
		return
	}
	contentType := jsonType
	if aggregated {
		contentType = aggregatedType
		w.Header().Set("Vary", "Accept")
		w.Header().Set("ETag", d.etag)
		if r.Header.Get("If-None-Match") == d.etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	c.write(w, http.StatusOK, contentType, d.data)
}

// groupIn returns the API group in a path. If the path has no group, groupIn returns a text that is not the name of any
// group.
func groupIn(path string) string {
	parts := strings.Split(path, "/")
	switch {
	case len(parts) > 1 && parts[1] == "api":
		return ""
	case len(parts) > 2 && parts[1] == "apis":
		return parts[2]
	}
	return "/"
}

// buffers is a pool of buffers in which answers are built.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// serveResource answers a request about objects.
func (c *Cluster) serveResource(w http.ResponseWriter, r *http.Request, k *kind, p place) {
	collection := p.name == ""
	switch {
	case r.Method == http.MethodGet && collection && isWatch(r):
		c.count("watch", k.groupResource())
		c.serveWatch(w, r, k, p)
		return
	case r.Method == http.MethodGet && collection:
		c.count("list", k.groupResource())
		c.serveListPage(w, r, k, p)
		return
	case r.Method == http.MethodGet && p.subresource != "scale":
		c.count("get", k.groupResource())
		c.writeReply(w, c.get(r.Context(), k, p), r.Header.Get("Accept"))
		return
	case r.Method == http.MethodDelete && collection:
		c.count("deletecollection", k.groupResource())
		c.serveDeleteCollection(w, r, k, p)
		return
	}
	body, err := readBody(r)
	if err != nil {
		c.writeReply(w, failureReply(metav1.Status{Code: http.StatusRequestEntityTooLarge,
			Reason: metav1.StatusReasonRequestEntityTooLarge, Message: err.Error()}), jsonType)
		return
	}
	contentType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	c.count(verbOf(r.Method, contentType), k.groupResource())
	answer, err := c.handle(r.Context(), &request{kind: k, namespace: p.namespace, name: p.name,
		subresource: p.subresource, method: r.Method, uri: r.URL.RequestURI(),
		contentType: contentType, agent: agentOf(r.UserAgent()), body: body})
	if err != nil {
		answer = failureReply(metav1.Status{Code: http.StatusInternalServerError,
			Reason:  metav1.StatusReasonInternalError,
			Message: err.Error()})
	}
	c.writeReply(w, answer, r.Header.Get("Accept"))
}

func isWatch(r *http.Request) bool {
	watch := r.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

func verbOf(method, contentType string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		if contentType == string(types.ApplyPatchType) {
			return "apply"
		}
	}
	return strings.ToLower(method)
}

// agentOf returns the part of a User-Agent that the handlers use as the name of the field manager.
func agentOf(userAgent string) string {
	agent, _, _ := strings.Cut(userAgent, "/")
	return agent
}

// readBody reads the body of a request.
func readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength > maxBody {
		//nolint:staticcheck // the words of an API server
		return nil, fmt.Errorf("Request entity too large: limit is %d", maxBody)
	}
	if r.ContentLength == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	if r.ContentLength > 0 {
		b.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(io.LimitReader(r.Body, maxBody+1)); err != nil {
		return nil, fmt.Errorf("reading the body: %w", err)
	}
	if b.Len() > maxBody {
		//nolint:staticcheck // the words of an API server
		return nil, fmt.Errorf("Request entity too large: limit is %d", maxBody)
	}
	return b.Bytes(), nil
}

// handle runs a request and returns the answer.
func (c *Cluster) handle(ctx context.Context, r *request) (*reply, error) {
	if r.method == http.MethodPost && r.subresource == "" {
		r.name = nameIn(r.body, r.contentType)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.executeLocked(ctx, r)
}

// handleInProcess runs a request without the network, credentials, faults and counters.
func (c *Cluster) handleInProcess(ctx context.Context, method, uri, contentType, agent string, body []byte) (*reply,
	error) {
	path, _, _ := strings.Cut(uri, "?")
	p, ok := parsePath(path)
	if !ok {
		return nil, fmt.Errorf("asking for %s: it is not the path of an object", uri)
	}
	k := c.kindOf(p.key)
	if k == nil {
		return nil, fmt.Errorf("asking for %s: the cluster does not serve it", uri)
	}
	answer, err := c.handle(ctx, &request{kind: k, namespace: p.namespace, name: p.name, subresource: p.subresource,
		method: method, uri: uri, contentType: contentType, agent: agent, body: body})
	if err != nil {
		return nil, err
	}
	if answer.code >= http.StatusMultipleChoices {
		return answer, &Refusal{Code: answer.code, Body: answer.raw}
	}
	return answer, nil
}

// Refusal is the error that a request returns if the cluster answered it with a failure status.
type Refusal struct {
	// Code is the HTTP status of the answer.
	Code int
	// Body is the body of the answer, in most cases a Status in JSON.
	Body []byte
}

func (r *Refusal) Error() string {
	return "the cluster answers " + strconv.Itoa(r.Code) + ": " + string(r.Body)
}

// isNotFound reports whether an error means that an object does not exist.
func isNotFound(err error) bool {
	r, ok := errors.AsType[*Refusal](err)
	return ok && r.Code == http.StatusNotFound
}

func isConflict(err error) bool {
	r, ok := errors.AsType[*Refusal](err)
	return ok && r.Code == http.StatusConflict
}

// nameIn returns the name of the object in a body. nameIn returns "" if it finds no name.
func nameIn(body []byte, contentType string) string {
	var o struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if unmarshalJSONOrYAML(body, contentType, &o) != nil {
		return ""
	}
	return o.Metadata.Name
}

// writeReply writes a reply in the form that the header Accept requests.
func (c *Cluster) writeReply(w http.ResponseWriter, r *reply, accept string) {
	for _, text := range r.warnings {
		w.Header().Add("Warning", text)
	}
	if r.object == nil {
		contentType := jsonType
		if t := r.header.Get("Content-Type"); t != "" {
			contentType = t
		}
		for _, key := range []string{"Retry-After", "Accept-Patch"} {
			if v := r.header.Get(key); v != "" {
				w.Header().Set(key, v)
			}
		}
		c.write(w, r.code, contentType, r.raw)
		return
	}
	b := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(b)
	b.Reset()
	data := b.AvailableBuffer()
	if wantsMetadata(accept) && r.object.body.kind != "Status" {
		data = c.appendMetadata(data, r.object)
	} else {
		data = c.appendObject(data, r.object)
	}
	c.write(w, r.code, jsonType, data)
	*b = *bytes.NewBuffer(data) // keep the grown array for reuse
}

// wantsMetadata reports whether a client prefers metadata only.
func wantsMetadata(accept string) bool {
	first, _, _ := strings.Cut(accept, ",")
	return strings.Contains(first, "as=PartialObjectMetadata")
}

// write sends an answer and its headers.
func (c *Cluster) write(w http.ResponseWriter, code int, contentType string, data []byte) {
	h := w.Header()
	h["Content-Type"] = []string{contentType}
	h["Content-Length"] = []string{strconv.Itoa(len(data))}
	h["Cache-Control"] = []string{"no-cache, private"}
	w.WriteHeader(code)
	_, _ = w.Write(data) //nolint:gosec // the client may have disconnected, and is not a browser
}
