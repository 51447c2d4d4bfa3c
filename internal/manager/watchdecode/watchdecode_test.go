package watchdecode

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func emptyManifest() client.Object { return &v1beta2.Manifest{} }

const (
	manifestText = `{"apiVersion":"operator.kyma-project.io/v1beta2","kind":"Manifest","metadata":{"name":"a","namespace":"kcp-system","resourceVersion":"7",` +
		`"creationTimestamp":"2026-01-02T03:04:05Z","generation":3,"labels":{"operator.kyma-project.io/kyma-name":"k"},` +
		`"managedFields":[{"manager":"m","operation":"Update","fieldsV1":{"f:spec":{}}}]},` +
		`"spec":{"version":"1.0.0","install":{"name":"raw-manifest","source":{"type":"oci-ref","ref":"sha256:aé\n"}},` +
		`"resource":{"apiVersion":"x/v1","kind":"X","metadata":{"name":"x"},"spec":{"n":12345678901,"f":1.5,"list":[1,null,true]}}},` +
		`"status":{"state":"Ready","observedGeneration":3,"synced":[{"group":"","version":"v1","kind":"Service","name":"s"}],` +
		`"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z","reason":"r","message":""}]}}`
	goneText = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}}`
)

// clientGoDecoder decodes watch events with the decoders of client-go, for comparisons.
func clientGoDecoder(t *testing.T, text string) watch.Decoder {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1beta2.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(s, v1beta2.GroupVersion)
	codecs := serializer.WithoutConversionCodecFactory{CodecFactory: serializer.NewCodecFactory(s)}
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	frames := info.StreamSerializer.NewFrameReader(io.NopCloser(strings.NewReader(text)))
	return restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer),
		codecs.DecoderToVersion(info.Serializer, v1beta2.GroupVersion))
}

// TestEventsAreReadAsUsual compares the decoded events of a watch with the events that client-go decodes.
func TestEventsAreReadAsUsual(t *testing.T) {
	bookmark := `{"kind":"Manifest","apiVersion":"operator.kyma-project.io/v1beta2","metadata":{"resourceVersion":"9","creationTimestamp":null,"annotations":{"k8s.io/initial-events-end":"true"}},"spec":{},"status":{}}`
	pretty := strings.ReplaceAll(manifestText, `,"`, ",\n  \"")
	event := func(kind, object string) string { return fmt.Sprintf(`{"type":%q,"object":%s}`, kind, object) }
	all := []string{
		event("ADDED", manifestText), event("MODIFIED", manifestText), event("DELETED", manifestText),
		event("BOOKMARK", bookmark), goneText,
		event("ADDED", pretty), `{"object":` + manifestText + `,"type":"ADDED"}`,
		event("ADDED", strings.Replace(manifestText, `"message":""`, `"message":"`+strings.Repeat("long ", 40<<10)+`"`,
			1)),
	}
	for _, between := range []string{"\n", "\n\n", "\r\n"} {
		for _, end := range []string{"", "\n"} {
			text := strings.Join(all, between) + end
			ours := newEventReader(io.NopCloser(strings.NewReader(text)), emptyManifest)
			theirs := clientGoDecoder(t, text)
			for i := range all {
				wantKind, want, err := theirs.Decode()
				if err != nil {
					t.Fatalf("client-go, event %d: %v", i, err)
				}
				kind, got, err := ours.Decode()
				if err != nil || kind != wantKind {
					t.Fatalf("event %d is %s, %v; want %s", i, kind, err, wantKind)
				}
				if _, failed := want.(*metav1.Status); failed {
					got.GetObjectKind().SetGroupVersionKind(want.GetObjectKind().GroupVersionKind())
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("event %d is not as client-go reads it:\n%s", i, diff)
				}
			}
			if _, _, err := ours.Decode(); !errors.Is(err, io.EOF) {
				t.Errorf("the end is %v", err)
			}
		}
	}
}

func TestInvalidEvents(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"ADDED","object":` + manifestText[:100]: io.ErrUnexpectedEOF.Error(),
		`{"type":"ADDED"}`:                                 "has no object",
		`{"type":"ADDED","object":null}`:                   "has no object",
		`{"type":"ADDED","object":{"metadata":{}}}`:        "has no object",
		`{"type":"RENAMED","object":` + manifestText + `}`: `type "RENAMED"`,
		`{}`:     "has no object",
		`<html>`: "invalid character",
		`{"type":"ADDED","object":{"metadata":[]}}`: "cannot unmarshal",
		`{"type":"ERROR","object":[]}`: "decoding the error " +
			"of a watch",
		`{"type":"ADDED","object":{"metadata":{"name":"` + strings.Repeat("x", maxEventBytes): "more than",
	} {
		kind, o, err := newEventReader(io.NopCloser(strings.NewReader(text)), emptyManifest).Decode()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s is read as %s %v, %v; want an error with %q", text, kind, o, err, want)
		}
	}
}

func FuzzEvent(f *testing.F) {
	f.Add(`{"type":"ADDED","object":` + manifestText + `}`)
	f.Add(goneText)
	f.Fuzz(func(t *testing.T, text string) {
		kind, o, err := newEventReader(io.NopCloser(strings.NewReader(text)), emptyManifest).Decode()
		if err != nil {
			return
		}
		if _, failed := o.(*metav1.Status); o == nil || failed != (kind == watch.Error) {
			t.Errorf("%q is %s with %T", text, kind, o)
		}
	})
}

// TestCacheIsFilledByAWatch reads one Manifest through a cache, from two servers. The server in the case Watch sends
// the existing objects at the start of a watch. The server in the case List is older and cannot do that, so the cache
// has to list the existing objects.
func TestCacheIsFilledByAWatch(t *testing.T) {
	for name, old := range map[string]bool{"Watch": false, "List": true} {
		t.Run(name, func(t *testing.T) { fillCache(t, old) })
	}
}

func fillCache(t *testing.T, old bool) {
	t.Helper()
	ctx := t.Context()
	var listed atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case old && q.Get("sendInitialEvents") == "true":
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprint(
				w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"sendInitialEvents is forbidden for watch"}`)
		case old && q.Get("watch") == "":
			listed.Store(true)
			_, _ = fmt.Fprintf(
				w, `{"kind":"ManifestList","apiVersion":"operator.kyma-project.io/v1beta2","metadata":{"resourceVersion":"9"},"items":[%s]}`, manifestText)
		case old:
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case r.URL.Path != "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/manifests",
			q.Get("labelSelector") != "shard=1":
			http.Error(w, "not what is expected: "+r.URL.String(), http.StatusBadRequest)
		case q.Get("watch") == "true" && q.Get("allowWatchBookmarks") == "true" && q.Get("sendInitialEvents") == "true":
			_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", manifestText)
			_, _ = fmt.Fprintln(
				w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			http.Error(w, "not what is expected: "+r.URL.String(), http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	s := runtime.NewScheme()
	if err := v1beta2.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1beta2.GroupVersion.WithKind("Manifest"), meta.RESTScopeNamespace)
	c, err := NewDecodeOnceCache(&rest.Config{Host: server.URL}, cache.Options{
		HTTPClient: server.Client(), Scheme: s, Mapper: mapper,
		DefaultNamespaces:    map[string]cache.Config{"kcp-system": {}},
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{"shard": "1"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = c.Start(ctx) }()
	if !c.WaitForCacheSync(ctx) {
		t.Fatal("the cache is not filled")
	}
	m := &v1beta2.Manifest{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: "kcp-system", Name: "a"}, m); err != nil ||
		m.Status.State != v1beta2.StateReady {
		t.Errorf("read from the cache: %+v, %v", m, err)
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: "kcp-system", Name: "b"}, m); !apierrors.IsNotFound(err) {
		t.Errorf("what is not there: %v", err)
	}
	if listed.Load() != old {
		t.Errorf("it was listed: %t", listed.Load())
	}
}
