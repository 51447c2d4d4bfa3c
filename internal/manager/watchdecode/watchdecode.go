// Package watchdecode provides caches that decode each watch event of Kymas and Manifests only once.
//
// # Use
//
//	options.NewCache = watchdecode.NewDecodeOnceCache // options of a controller-runtime manager
//
// # How it works
//
// When a manager starts, it first reads all Kymas and Manifests. The decoders of client-go parse the text of each
// object nine times in all: client-go looks for the end of the event, and decodes the event, the kind of the object and
// the object one after the other, mostly with a separate validation before. With ten thousand runtimes, parsing took
// most of the time between a restart and the first reconcile. An API server sends each watch event as one line of JSON.
// The package reads the line of an event, and decodes it once into a Kyma or a Manifest.
//
// # What it does not do
//
// The package does not change how lists are decoded, or watches of kinds other than Kyma and Manifest.
package watchdecode

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	kjson "sigs.k8s.io/json"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// NewDecodeOnceCache returns a cache that decodes each watch event of Kymas and Manifests once. The watches of Kymas
// and Manifests are limited by the default namespaces and the label selector in the options o.
func NewDecodeOnceCache(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
	watches, err := apiutil.RESTClientForGVK(v1beta2.GroupVersion.WithKind(v1beta2.KindManifest), true, false, cfg,
		serializer.NewCodecFactory(o.Scheme), o.HTTPClient)
	if err != nil {
		return nil, fmt.Errorf("building the client for watches: %w", err)
	}
	o.NewInformer = func(lw toolscache.ListerWatcher, of runtime.Object, resync time.Duration,
		by toolscache.Indexers) toolscache.SharedIndexInformer {
		s := stream{ListerWatcher: lw, client: watches, options: o}
		switch of.(type) {
		case *v1beta2.Kyma:
			s.resource, s.empty = "kymas", func() client.Object { return &v1beta2.Kyma{} }
		case *v1beta2.Manifest:
			s.resource, s.empty = "manifests", func() client.Object { return &v1beta2.Manifest{} }
		default:
			return toolscache.NewSharedIndexInformer(lw, of, resync, by)
		}
		return toolscache.NewSharedIndexInformer(s, of, resync, by)
	}
	c, err := cache.New(cfg, o)
	if err != nil {
		return nil, fmt.Errorf("building the cache: %w", err)
	}
	return c, nil
}

// stream lists objects with another ListerWatcher, and watches Kymas or Manifests with a decoder of its own, which is
// faster.
type stream struct {
	toolscache.ListerWatcher
	client   rest.Interface
	options  cache.Options
	resource string
	empty    func() client.Object
}

// ListWithContext implements [toolscache.ListerWatcherWithContext].
func (s stream) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return toolscache.ToListerWatcherWithContext(s.ListerWatcher).ListWithContext(ctx, o)
}

// WatchWithContext implements [toolscache.ListerWatcherWithContext].
func (s stream) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch, o.AllowWatchBookmarks = true, true
	if selector := s.options.DefaultLabelSelector; selector != nil {
		o.LabelSelector = selector.String()
	}
	request := s.client.Get().Resource(s.resource).VersionedParams(&o, metav1.ParameterCodec)
	for namespace := range s.options.DefaultNamespaces { // there is exactly one namespace
		request = request.Namespace(namespace)
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return nil, err // not wrapped: the reflector checks its type
	}
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")
	return watch.NewStreamWatcherWithLogger(klog.FromContext(ctx), newEventReader(body, s.empty), reporter), nil
}

// maxEventBytes is the maximum size of an event, as in client-go. An object in etcd can have at most a tenth of
// maxEventBytes.
const maxEventBytes = 16 << 20

// readBytes is the size of the buffer of a watch: that of a frame of HTTP/2, in which the API server sends the events.
// A replica with all shards has 128 watches.
const readBytes = 16 << 10

// eventReader decodes the events of a watch.
type eventReader struct {
	body  io.ReadCloser
	lines *bufio.Reader
	empty func() client.Object
	text  []byte // text of the current event
}

func newEventReader(body io.ReadCloser, empty func() client.Object) *eventReader {
	return &eventReader{body: body, lines: bufio.NewReaderSize(body, readBytes), empty: empty}
}

// Close implements [watch.Decoder].
func (e *eventReader) Close() { _ = e.body.Close() } // ignored: nothing was written

// Decode implements [watch.Decoder]. Decode returns the next event. The API server ends each event with a line feed,
// and there is no other line feed in an event. If a proxy has added line feeds, the event ends where its JSON is
// complete.
func (e *eventReader) Decode() (watch.EventType, runtime.Object, error) {
	e.text = e.text[:0]
	for {
		line, err := e.lines.ReadSlice('\n')
		if e.text = append(e.text, line...); len(e.text) > maxEventBytes {
			return "", nil, fmt.Errorf("an event of a watch has more than %d bytes", maxEventBytes)
		}
		ended := errors.Is(err, io.EOF)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !ended:
			return "", nil, err // not wrapped: the caller checks its type
		case len(bytes.TrimSpace(e.text)) == 0:
			if ended {
				return "", nil, io.EOF
			}
			continue
		}
		kind, o, err := decodeEvent(e.text, e.empty())
		switch {
		case err == nil || !isIncomplete(e.text):
			return kind, o, err
		case ended:
			return "", nil, io.ErrUnexpectedEOF
		}
	}
}

// decodeEvent decodes an event into the given empty object. An event of type ERROR is decoded into a Status.
func decodeEvent(text []byte, into client.Object) (watch.EventType, runtime.Object, error) {
	event := struct {
		Type   watch.EventType `json:"type"`
		Object client.Object   `json:"object"`
	}{Object: into}
	err := kjson.UnmarshalCaseSensitivePreserveInts(text, &event)
	switch {
	case event.Type == watch.Error:
		failed := struct {
			Object metav1.Status `json:"object"`
		}{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &failed); err != nil {
			return "", nil, fmt.Errorf("decoding the error of a watch: %w", err)
		}
		return watch.Error, &failed.Object, nil
	case err != nil:
		return "", nil, err
	case event.Object != into || into.GetResourceVersion() == "":
		return "", nil, errors.New("an event of a watch has no object with a resource version")
	}
	switch event.Type {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // client-go does the same for typed objects
		return event.Type, into, nil
	}
	return "", nil, fmt.Errorf("an event of a watch has the type %q", event.Type)
}

// isIncomplete reports whether a text is the valid beginning of an incomplete JSON value. The decoder of events returns
// the same error for an incomplete value and for an invalid value. Therefore isIncomplete scans the text again. An
// event that was decoded without an error is not scanned again.
func isIncomplete(text []byte) bool {
	return errors.Is(json.NewDecoder(bytes.NewReader(text)).Decode(&json.RawMessage{}), io.ErrUnexpectedEOF)
}
