// Package watchdecode makes caches that decode the events of watches on Kymas and Manifests once.
//
// # Use
//
//	options.NewCache = watchdecode.NewCache // of a controller-runtime manager
//
// # How it works
//
// A manager that starts reads all Kymas and Manifests first. The decoders of client-go parse each of them nine times:
// for the frame, the event, the kind of the object, and the object, each time once to validate and once to decode. With
// ten thousand runtimes, that was most of the time until the first reconcile after a restart. Here an event is one line
// that is decoded once, into the type that the watch is for.
//
// # What it does not do
//
// It changes nothing about lists, nor about watches of other kinds.
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

// NewCache returns a cache that decodes the watches of Kymas and Manifests once. These watches have the default
// namespace and label selector of o.
func NewCache(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
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

// stream lists with another ListerWatcher, and watches one of our kinds with a fast decoder.
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
	for namespace := range s.options.DefaultNamespaces { // exactly one
		request = request.Namespace(namespace)
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return nil, err // not wrapped: the reflector checks its type
	}
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")
	return watch.NewStreamWatcherWithLogger(klog.FromContext(ctx), newEventReader(body, s.empty), reporter), nil
}

// maxEventBytes limits the size of an event, as client-go does. Objects in etcd are limited to a tenth of it.
const maxEventBytes = 16 << 20

// eventReader decodes the events of a watch.
type eventReader struct {
	body  io.ReadCloser
	lines *bufio.Reader
	empty func() client.Object
	text  []byte // of the current event
}

func newEventReader(body io.ReadCloser, empty func() client.Object) *eventReader {
	return &eventReader{body: body, lines: bufio.NewReaderSize(body, 64<<10), empty: empty}
}

// Close implements [watch.Decoder].
func (e *eventReader) Close() { _ = e.body.Close() } // nothing was written

// Decode implements [watch.Decoder]: it returns the next event. The API server ends each event with a line feed and has
// no other ones in it. If a proxy has added some, an event ends where the JSON is complete.
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

// decodeEvent decodes an event into the empty object, or an event of type ERROR into a Status.
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
		into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as client-go does for typed objects
		return event.Type, into, nil
	}
	return "", nil, fmt.Errorf("an event of a watch has the type %q", event.Type)
}

// isIncomplete reports whether a text is the beginning of a JSON value that is valid so far. The decoder of events has
// no error of its own for that, so the text is scanned once more; complete events are not.
func isIncomplete(text []byte) bool {
	return errors.Is(json.NewDecoder(bytes.NewReader(text)).Decode(&json.RawMessage{}), io.ErrUnexpectedEOF)
}
