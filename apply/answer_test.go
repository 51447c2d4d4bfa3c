package apply

import (
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// answerWith returns a handler that answers with 200 and a text.
func answerWith(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(text))
	}
}

// TestForeignAnswers checks that a response with status 200 that cannot be from an API server is an error. For example,
// a proxy may respond with {}. The package apply must not parse the response {} as an object without fields or as an
// empty list.
func TestForeignAnswers(t *testing.T) {
	config := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "a", Name: "c"}
	tests := map[string]struct{ text, want string }{
		"Empty":     {`{}`, "it has no kind"},
		"Null":      {`null`, "it is not a JSON object"},
		"List":      {`[]`, "it is not a JSON object"},
		"Nothing":   {``, "it is not a JSON object"},
		"Page":      {`<html>sign in</html>`, "it is not a JSON object"},
		"Number":    {`{"kind":7}`, "cannot unmarshal number"},
		"OtherKind": {`{"kind":"Secret","metadata":{"name":"c","uid":"u"}}`, "it is of kind Secret"},
		"OtherName": {`{"kind":"ConfigMap","metadata":{"name":"d","uid":"u"}}`, "it is the object d"},
		"NoUID":     {`{"kind":"ConfigMap","metadata":{"name":"c"}}`, "it is an object without uid"},
		"Status":    {`{"kind":"Status","status":"Success"}`, "it is of kind Status"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			c := s.cluster(ClusterOptions{})
			s.setScript("GET /api/v1/namespaces/a/configmaps/c", answerWith(tc.text))
			s.setScript("PATCH /api/v1/namespaces/a/configmaps/c", answerWith(tc.text))
			_, err := c.Get(t.Context(), config)
			if !reasonIs(err, RuntimeUnreachable) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("reading: got %v, want RuntimeUnreachable, %q", err, tc.want)
			}
			set := Set{Bundle: bundleOf(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: a}}")}
			if result, err := c.Apply(t.Context(), set, new(Progress)); !reasonIs(err, RuntimeUnreachable) {
				t.Errorf("applying: got %v, %+v, want RuntimeUnreachable", err, result)
			}
		})
	}
	for _, text := range []string{`{}`, `{"kind":"ConfigMapList"}`, `{"metadata":{"resourceVersion":"1"},"items":[]}`} {
		s := newServer(t)
		s.setScript("GET /api/v1/configmaps", answerWith(text))
		c := s.cluster(ClusterOptions{})
		if found, err := c.List(t.Context(), config.GVK(), ""); err == nil {
			t.Errorf("%s is a list of %d objects", text, len(found))
		}
	}
}

// TestEndlessList checks that List stops with an error after maxPages pages.
func TestEndlessList(t *testing.T) {
	s := newServer(t)
	pages := 0
	s.setScript("GET /api/v1/configmaps", func(w http.ResponseWriter, _ *http.Request) {
		pages++
		writeJSON(w, http.StatusOK, map[string]any{"kind": "ConfigMapList", "metadata": map[string]any{
			"resourceVersion": "1", "continue": strconv.Itoa(pages)}})
	})
	maps := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	_, err := s.cluster(ClusterOptions{}).List(t.Context(), maps, "")
	if !reasonIs(err, RuntimeUnreachable) || pages != maxPages {
		t.Errorf("got %v after %d pages, want RuntimeUnreachable after %d", err, pages, maxPages)
	}
}

// TestReadFromMemory checks that reading a large answer causes little garbage: all buffers together are at most four
// times as large as the answer. With the growth of append they would be five times as large.
func TestReadFromMemory(t *testing.T) {
	const size = maxAnswerBytes - 1
	measure := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	b := &buffer{}
	b.users.Store(1)
	before := measure()
	if err := b.readFrom(io.LimitReader(zeroReader{}, size)); err != nil || len(b.data) != size {
		t.Fatalf("read %d bytes, %v", len(b.data), err)
	}
	if got := measure() - before; got > 4*size {
		t.Errorf("reading %d bytes allocated %d bytes", size, got)
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }
