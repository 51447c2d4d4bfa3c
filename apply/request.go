package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// Media types of requests and responses. Only metadata is requested where metadata is sufficient. If a request asks
// only for metadata, the API server leaves out spec and status, which are hundreds of kilobytes for a
// CustomResourceDefinition.
const (
	jsonType     = "application/json"
	metadataType = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	listType     = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	applyType    = "application/apply-patch+yaml" // JSON is YAML
)

// maxAnswerBytes is the maximum size of a response. An object in etcd has at most 1.5 MiB, so a valid response is
// smaller.
const maxAnswerBytes = 32 << 20

// errTooLarge is the error of a response that is larger than maxAnswerBytes.
var errTooLarge = fmt.Errorf("it is longer than %d bytes", maxAnswerBytes)

// request is one request to an API server.
type request struct {
	method, path, query string
	accept, contentType string
	body                *buffer // nil if the request has no body; send releases the body

	operation string // for errors: "applying"
	ref       Ref    // for errors; may be zero
}

func (r *request) subject() string {
	if r.ref.Kind == "" {
		return r.path
	}
	return r.ref.String()
}

// sendWithinConcurrencyLimit sends the request r as soon as the limit of concurrent requests of the cluster permits.
// sendWithinConcurrencyLimit passes the response to the function in the parameter "read"; this function must not keep
// the bytes after it returns. Errors are of type *Error, or the cause of the end of ctx. sendWithinConcurrencyLimit
// does not retry, with one exception: if the connection of an idempotent request is closed before a response, the
// request is sent once more. Connections are kept open, and an API server may close a connection (idle, or during a
// restart behind a load balancer) just when sendWithinConcurrencyLimit uses the connection.
func (c *Cluster) sendWithinConcurrencyLimit(ctx context.Context, r *request, read func(code int,
	body []byte) error) error {
	if r.body != nil {
		defer r.body.release()
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return r.noAnswerError(ctx, 0, ctx.Err())
	}
	wait := c.timeout + serverTimeoutGracePeriod
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()

	start := time.Now()
	res, err := c.http.Do(c.httpRequest(limited, r))
	if err != nil && r.isIdempotent() && isConnectionCut(err) {
		res, err = c.http.Do(c.httpRequest(limited, r))
	}
	if c.observe != nil {
		code := 0
		if res != nil {
			code = res.StatusCode
		}
		c.observe(r.method, code, time.Since(start))
	}
	if err != nil {
		return r.noAnswerError(ctx, wait, err)
	}
	defer func() { _ = res.Body.Close() }() // the body was read to its end, or reading was stopped

	answer := newBuffer()
	defer answer.release()
	if err := answer.readFrom(res.Body); err != nil {
		return r.noAnswerError(ctx, wait, fmt.Errorf("reading the answer: %w", err))
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		e := r.statusError(res.StatusCode, res.Header, answer.data)
		if e.reason == RuntimeForbidden {
			e.advice = c.forbidden
		}
		return e
	}
	err = r.checkKind(answer.data)
	if err == nil && read != nil {
		err = read(res.StatusCode, answer.data)
	}
	if err != nil {
		return r.noAnswerError(ctx, wait, fmt.Errorf("the answer is not valid for a Kubernetes API server: %w", err))
	}
	return nil
}

// checkKind returns an error if a successful response cannot be from an API server. For example, a proxy may respond
// with {}, which is neither an object nor a list of Kubernetes.
func (r *request) checkKind(body []byte) error {
	if r.path == versionPath {
		return nil
	}
	kind, err := topLevelKind(body)
	switch {
	case err != nil:
		return err
	case kind == "":
		return errors.New("it has no kind")
	case r.ref.Kind == "" || kind == r.ref.Kind || kind == "PartialObjectMetadata":
		return nil
	case kind == "Status" && r.method == http.MethodDelete:
		return nil
	}
	return fmt.Errorf("it is of kind %s", text.ClipCollapsingSpaces(kind, 64))
}

// topLevelKind returns the value of the field "kind" of a JSON object. API servers send the field "kind" as one of the
// first fields of an object.
func topLevelKind(body []byte) (string, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return "", errors.New("it is not a JSON object")
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", err
		}
		if key == "kind" {
			var kind string
			err := d.Decode(&kind)
			return kind, err
		}
		var other json.RawMessage
		if err := d.Decode(&other); err != nil {
			return "", err
		}
	}
	return "", nil
}

// isIdempotent reports whether sending r twice has the same effect as sending it once.
func (r *request) isIdempotent() bool {
	return r.method != http.MethodPost && r.contentType != string(types.JSONPatchType)
}

// isConnectionCut reports whether an established connection was closed. isConnectionCut returns false for an address
// that cannot be reached at all.
func isConnectionCut(err error) bool {
	return utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		errors.Is(err, syscall.EPIPE)
}

// httpRequest returns r as a request of net/http.
func (c *Cluster) httpRequest(ctx context.Context, r *request) *http.Request {
	query := c.query
	if r.query != "" {
		query = r.query + "&" + query
	}
	accept := r.accept
	if accept == "" {
		accept = jsonType
	}
	req := (&http.Request{
		Method: r.method,
		URL:    &url.URL{Scheme: c.base.Scheme, Host: c.base.Host, Path: c.base.Path + r.path, RawQuery: query},
		Header: http.Header{"Accept": {accept}},
	}).WithContext(ctx)
	if r.isIdempotent() {
		req.Header["Idempotency-Key"] = nil // allows net/http to send the request again; the header itself is not sent
	}
	if r.body != nil {
		req.Header["Content-Type"] = []string{r.contentType}
		req.ContentLength = int64(len(r.body.data))
		req.Body = r.body.open()
		req.GetBody = func() (io.ReadCloser, error) { return r.body.open(), nil }
	}
	return req
}

// buffer is pooled memory for a body. An HTTP transport may still read the body of a request after the response has
// arrived. For this reason, a buffer returns to the pool only when all readers of its body are closed.
type buffer struct {
	data  []byte
	users atomic.Int32
}

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// maxPooledBytes is the maximum size of a buffer that is put back into the pool. A buffer of more than maxPooledBytes
// is left to the garbage collector, so that it does not stay in memory.
const maxPooledBytes = 1 << 20

func newBuffer() *buffer {
	b := buffers.Get().(*buffer)
	b.data = b.data[:0]
	b.users.Store(1)
	return b
}

func (b *buffer) release() {
	if b.users.Add(-1) == 0 && cap(b.data) <= maxPooledBytes {
		buffers.Put(b)
	}
}

// open returns a reader of the buffer. open must be called before release.
func (b *buffer) open() io.ReadCloser {
	b.users.Add(1)
	return &bufferReader{from: b, rest: b.data}
}

// readFrom reads r to its end. If r has more than maxAnswerBytes, readFrom returns errTooLarge.
func (b *buffer) readFrom(r io.Reader) error {
	if cap(b.data) == 0 {
		b.data = make([]byte, 0, 4096)
	}
	for {
		if len(b.data) == cap(b.data) {
			// append would grow a large buffer by a quarter. A hostile answer of 32 MiB would then cause 200 MB of
			// garbage.
			larger := make([]byte, len(b.data), 2*cap(b.data))
			copy(larger, b.data)
			b.data = larger
		}
		n, err := r.Read(b.data[len(b.data):cap(b.data)])
		b.data = b.data[:len(b.data)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if len(b.data) > maxAnswerBytes {
			return errTooLarge
		}
	}
}

// bufferReader reads a buffer. Transports may call Close during a Read (HTTP/2 does this when a stream is reset), so a
// lock is needed. After Close, a bufferReader reads nothing any more, because the buffer may be in use for another
// request, even to another cluster.
type bufferReader struct {
	mu   sync.Mutex
	from *buffer // nil after Close; guarded by mu
	rest []byte  // guarded by mu
}

func (r *bufferReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *bufferReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.from != nil {
		r.from.release()
		r.from, r.rest = nil, nil
	}
	return nil
}

// partialObject is the part of an object that is decoded from a response: kind and metadata.
type partialObject struct {
	Kind     string   `json:"kind"`
	Metadata metadata `json:"metadata"`
}

// decode decodes the response for the object that ref names. decode returns an error if the response is another object.
func (p *partialObject) decode(body []byte, ref Ref) error {
	if err := json.Unmarshal(body, p); err != nil {
		return err
	}
	return checkIdentity(ref, p.Metadata.Name, p.Metadata.UID)
}

// decodeObject decodes the response for the object that ref names. decodeObject returns an error if the response is
// another object.
func decodeObject(body []byte, ref Ref) (map[string]any, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(body, &content); err != nil {
		return nil, err
	}
	u := unstructured.Unstructured{Object: content}
	return content, checkIdentity(ref, u.GetName(), string(u.GetUID()))
}

// checkIdentity returns an error if an object in a response has another name than ref, or no uid.
func checkIdentity(ref Ref, name, uid string) error {
	switch {
	case uid == "":
		return errors.New("it is an object without uid")
	case name != ref.Name:
		return fmt.Errorf("it is the object %s", text.ClipCollapsingSpaces(name, 64))
	}
	return nil
}

type metadata struct {
	Name              string           `json:"name"`
	UID               string           `json:"uid"`
	ResourceVersion   string           `json:"resourceVersion"`
	Generation        int64            `json:"generation"`
	DeletionTimestamp *metav1.Time     `json:"deletionTimestamp"`
	Finalizers        []string         `json:"finalizers"`
	ManagedFields     []managedFields  `json:"managedFields"`
	OwnerReferences   []ownerReference `json:"ownerReferences"`
	// Annotations has only the annotations that show to whom the object belongs.
	Annotations ownerAnnotations `json:"annotations"`

	// foreign is true if the object belongs to another installation. The package sets the field foreign; no response of
	// an API server contains the field.
	foreign bool
	// existed is true if the object existed before, and is left as it is. The package sets the field existed, too.
	existed bool
}

type ownerAnnotations struct {
	OwnedBy  string `json:"deprecated-operator.kyma-project.io/owned-by"`
	CoOwners string `json:"operator.kyma-project.io/co-owners"`
	Adopted  string `json:"operator.kyma-project.io/adopted"`
}

type ownerReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Controller bool   `json:"controller"`
}

type managedFields struct {
	Manager     string          `json:"manager"`
	Operation   string          `json:"operation"`
	Subresource string          `json:"subresource"`
	FieldsV1    json.RawMessage `json:"fieldsV1"`
}

// fieldsOwnedBy returns the fields that the given field manager has applied, as the API server records them (FieldsV1).
// If the field manager has applied no fields, fieldsOwnedBy returns nil.
func (m *metadata) fieldsOwnedBy(manager string) json.RawMessage {
	for _, f := range m.ManagedFields {
		if f.Manager == manager && f.Operation == "Apply" && f.Subresource == "" {
			return f.FieldsV1
		}
	}
	return nil
}
