package runtimes

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	goruntime "runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/answer"
	"github.com/kyma-fleet/lifecycle-manager/internal/watch"
)

// The fuzz targets in this file decode responses of a runtime, with the same limits as a connection of the Pool. The
// fuzz arguments start, repeated, end and n form the text of a response. The response is the argument start, followed
// by n copies of the argument repeated, followed by the argument end. With the copies, a fuzz seed of few bytes makes a
// large response. A fuzz target fails if it allocates more memory than allocationLimit permits. With this limit, the
// fuzzer finds a response whose decoding needs much more memory than package answer has estimated.

// fuzzMemory is the value of answer.Options.Memory in the fuzz targets, in bytes.
const fuzzMemory = 1 << 20

// fuzzLimits are the limits of the fuzz targets; the rate does not slow them down.
var fuzzLimits = answer.Options{Memory: fuzzMemory, Rate: 1 << 30}

// allocationLimit is the maximum number of bytes that a fuzz target may allocate for an answer. The sum allocationLimit
// is one MiB for the request, and 16 times the memory that package answer estimates for the response. Package answer
// refuses a response if it estimates that decoding the response needs more than fuzzMemory bytes. The factor 16 is so
// high because the measured number includes allocations that the garbage collector has already freed.
func allocationLimit(text []byte) uint64 {
	values := 0
	for _, c := range []byte("{[,") {
		values += bytes.Count(text, []byte{c})
	}
	return 1<<20 + 16*uint64(min(len(text)+100*values, fuzzMemory))
}

// fixed is a transport that answers each request with the same text.
type fixed []byte

func (f fixed) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(f)), Request: r}, nil
}

// addSeeds adds the seeds of the fuzz targets: answers of an API server, and attacks.
func addSeeds(f *testing.F, start, repeated, end string) {
	f.Add(start, repeated, end, uint16(3))
	for _, s := range []struct{ start, repeated, end string }{
		{`{"kind":"ConfigMap","metadata":{"managedFields":[`, `{},`, `{}]}}`},
		{`{"kind":"ConfigMap","metadata":{"name":"a","uid":"u","labels":{`, `"a":"b",`, `"c":"d"}}}`},
		{`{"kind":"ConfigMap","metadata":{"name":"a","uid":"u"},"data":`, `[`, ``},
		{`{"metadata":{"resourceVersion":"1"},"items":[`, `{"metadata":{"ownerReferences":[{},{}]}},`, `{}]}`},
		{`{"type":"ADDED","object":{"metadata":{"finalizers":[`, `"",`, `""]}}}`},
		{``, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}`, ``},
		{`{"kind":"Status","code":410,"details":{"causes":[`, `{},`, `{}]}}`},
		{`{}`, ``, ``}, {`null`, ``, ``}, {`"`, `\u0000`, `"`}, {``, `-1e9,`, ``}, {``, "\n", ``},
	} {
		f.Add(s.start, s.repeated, s.end, uint16(20_000))
	}
}

// textOf builds the text of an API server's answer from the parts of a fuzz input. To limit the text to about 2 MiB,
// textOf reduces the number of repetitions n.
func textOf(start, repeated, end string, n uint16) []byte {
	n = min(n, uint16(min(1<<16-1, 2<<20/max(1, len(repeated)))))
	return []byte(start + strings.Repeat(repeated, int(n)) + end)
}

// checkMemory runs a fuzz target and compares its allocations with the limit.
func checkMemory(t *testing.T, text []byte, target func()) {
	t.Helper()
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	target()
	goruntime.ReadMemStats(&after)
	if used, limit := after.TotalAlloc-before.TotalAlloc, allocationLimit(text); used > limit {
		t.Errorf("%d bytes were allocated for an answer of %d bytes; the limit is %d", used, len(text), limit)
	}
}

// newCluster returns a Cluster whose API server answers each request with the given text.
func newCluster(t *testing.T, text []byte) *apply.Cluster {
	t.Helper()
	kinds := &apply.Kinds{}
	c, err := apply.New(&rest.Config{Host: "http://cluster.example.com"},
		&http.Client{Transport: answer.Limit(discovery{fixed(text)}, fuzzLimits)},
		apply.ClusterOptions{Kinds: kinds, IsTooLarge: isTooLarge})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// discovery is a transport that answers requests for the kinds of the core group, and passes other requests to next.
type discovery struct{ next http.RoundTripper }

func (d discovery) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/api/v1" {
		return fixed(`{"kind":"APIResourceList","groupVersion":"v1","resources":[` +
			`{"name":"configmaps","namespaced":true,"kind":"ConfigMap"}]}`).RoundTrip(r)
	}
	return d.next.RoundTrip(r)
}

// FuzzObject reads an object.
func FuzzObject(f *testing.F) {
	addSeeds(f, `{"kind":"ConfigMap","metadata":{"name":"a","namespace":"b","uid":"u"},"data":{"k":"`, "v", `"}}`)
	f.Fuzz(func(t *testing.T, start, repeated, end string, n uint16) {
		text := textOf(start, repeated, end, n)
		c := newCluster(t, text)
		ref := apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: "b", Name: "a"}
		checkMemory(t, text, func() {
			if u, err := c.Get(t.Context(), ref); err == nil && (u.GetName() != "a" || u.GetUID() == "") {
				t.Errorf("got %v", u)
			}
		})
	})
}

// FuzzPage reads a fuzzed answer as one page of a list.
func FuzzPage(f *testing.F) {
	addSeeds(f, `{"kind":"ConfigMapList","metadata":{"resourceVersion":"7","continue":"x"},"items":[`,
		`{"metadata":{"name":"a","namespace":"b","uid":"u"}},`, `{}]}`)
	f.Fuzz(func(t *testing.T, start, repeated, end string, n uint16) {
		text := textOf(start, repeated, end, n)
		c := newCluster(t, text)
		gvk := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
		checkMemory(t, text, func() {
			// ListByLabel requests a page that is too large again with a smaller limit. The page limit is already 1
			// here and cannot become smaller, so ListByLabel sends a single request.
			if _, _, err := c.ListByLabel(t.Context(), gvk, "a=b", 1); err != nil && err.Error() == "" {
				t.Error("an error without text")
			}
		})
	})
}

// FuzzWatch reads a fuzzed answer as a list, and as a watch.
func FuzzWatch(f *testing.F) {
	addSeeds(f, `{"type":"ADDED","object":{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}}}`,
		`{"type":"MODIFIED","object":{"metadata":{"name":"a","annotations":{"a":"b"}}}}`, `{"type":"ERROR"}`)
	f.Fuzz(func(t *testing.T, start, repeated, end string, n uint16) {
		text := textOf(start, repeated, end, n)
		client := &http.Client{Transport: answer.Limit(fixed(text), fuzzLimits)}
		get := func(ctx context.Context, query url.Values) (io.ReadCloser, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://cluster/api?"+query.Encode(), http.NoBody)
			if err != nil {
				return nil, err
			}
			r.Header.Set("Accept", listType)
			res, err := client.Do(r)
			if err != nil {
				return nil, err
			}
			return res.Body, nil
		}
		source := watch.JSONSource[metav1.PartialObjectMetadata](get)
		checkMemory(t, text, func() {
			page, err := source.List(t.Context(), metav1.ListOptions{Limit: 1})
			if err == nil && page.ResourceVersion == "" {
				t.Error("a list without resourceVersion")
			}
		})
		// A watch may have any number of events, and fuzzMemory limits only the memory of each single event. Therefore
		// checkEvents computes its memory limit from the length of the whole response, not from fuzzMemory.
		checkEvents(t, text, source)
	})
}

// checkEvents decodes the parameter text as the response to a watch request, and checks that this allocates no more
// memory than allowed for the length of the text.
func checkEvents(t *testing.T, text []byte, source watch.Source[metav1.PartialObjectMetadata]) {
	t.Helper()
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	events := 0
	err := source.Watch(t.Context(), metav1.ListOptions{Watch: true}, func() {},
		func(watch.Received[metav1.PartialObjectMetadata]) { events++ })
	goruntime.ReadMemStats(&after)
	values := bytes.Count(text, []byte("{")) + bytes.Count(text, []byte("[")) + bytes.Count(text, []byte(","))
	if used, limit := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+16*(len(text)+100*values)); used > limit {
		t.Errorf("%d bytes were allocated for %d events in %d bytes; the limit is %d", used, events, len(text), limit)
	}
	if events > bytes.Count(text, []byte("{")) {
		t.Errorf("%d events in %d bytes, %v", events, len(text), err)
	}
	if errors.Is(err, context.Canceled) {
		t.Error("the context was cancelled")
	}
}
