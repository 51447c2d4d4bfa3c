package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// errUnreadable is the error about an event that cannot be read. An event that cannot be read is lost, so the watch
// cannot be resumed after it.
var errUnreadable = errors.New("reading an event of a watch")

// errNoList is the error about a list that has no resourceVersion.
var errNoList = errors.New("reading a list: the answer is not that of an API server: it has no resourceVersion")

// Source reads one collection of objects. ClientSource and JSONSource return a Source.
type Source[T any] struct {
	// List returns one page of the collection.
	List func(ctx context.Context, o metav1.ListOptions) (Page[T], error)
	// Watch opens a watch and calls opened when it is open. After the request was accepted, Watch calls receive for
	// each event until the watch ends. The returned error is nil if the API server ended the watch or the connection
	// broke. If the watch ended with an ERROR event, the returned error is the API error in that event.
	Watch func(ctx context.Context, o metav1.ListOptions, opened func(), receive func(Received[T])) error
}

// Page is one page of a list.
type Page[T any] struct {
	Items []T
	// ResourceVersion is the resourceVersion of the whole list.
	ResourceVersion string
	// Continue is the token that requests the next page. "" means that this is the last page.
	Continue string
}

// Received is one event of a watch.
type Received[T any] struct {
	Object          *T // nil for a bookmark
	Deleted         bool
	ResourceVersion string
}

// ClientSource returns a Source that uses a client of client-go. T is the struct type of the objects, and not a pointer
// type.
func ClientSource[T any](
	list func(context.Context, metav1.ListOptions) (Page[T], error),
	open func(context.Context, metav1.ListOptions) (apiwatch.Interface, error),
) Source[T] {
	return Source[T]{List: list, Watch: func(ctx context.Context, o metav1.ListOptions, opened func(),
		receive func(Received[T])) error {
		w, err := open(ctx, o)
		if err != nil {
			return err
		}
		defer w.Stop()
		opened()
		for {
			select {
			case <-ctx.Done():
				return nil
			case e, ok := <-w.ResultChan():
				if !ok {
					return nil
				}
				if e.Type == apiwatch.Error {
					return apierrors.FromObject(e.Object)
				}
				r, err := receivedOf[T](e)
				if err != nil {
					return err
				}
				receive(r)
			}
		}
	}}
}

// receivedOf converts a watch event of client-go to a Received.
func receivedOf[T any](e apiwatch.Event) (Received[T], error) {
	object, is := any(e.Object).(*T)
	named, err := meta.Accessor(e.Object)
	if !is || err != nil {
		return Received[T]{}, fmt.Errorf("%w: it has a %T", errUnreadable, e.Object)
	}
	r := Received[T]{ResourceVersion: named.GetResourceVersion(), Deleted: e.Type == apiwatch.Deleted}
	if e.Type != apiwatch.Bookmark {
		r.Object = object
	}
	return r, nil
}

// JSONSource returns a Source that decodes the JSON of an API server into T. The function get requests the collection
// with a query. get returns the response body if the status is 200, and an API error for any other status.
func JSONSource[T any](get func(ctx context.Context, query url.Values) (io.ReadCloser, error)) Source[T] {
	return Source[T]{
		List: func(ctx context.Context, o metav1.ListOptions) (Page[T], error) {
			body, err := get(ctx, queryOf(o, false))
			if err != nil {
				return Page[T]{}, err
			}
			defer body.Close()
			var list struct {
				Metadata metav1.ListMeta `json:"metadata"`
				Items    []T             `json:"items"`
			}
			if err := json.NewDecoder(body).Decode(&list); err != nil {
				return Page[T]{}, fmt.Errorf("reading a list: %w", err)
			}
			if list.Metadata.ResourceVersion == "" { // otherwise {} would mean that there are no objects
				return Page[T]{}, errNoList
			}
			return Page[T]{list.Items, list.Metadata.ResourceVersion, list.Metadata.Continue}, nil
		},
		Watch: JSONWatch[T](get),
	}
}

// maxDecoderBytes is the number of bytes after which a new decoder is created for a watch, so that the buffer of the
// old decoder can be freed.
const maxDecoderBytes = 256 << 10

// JSONWatch returns the Watch function of the Source that JSONSource returns.
func JSONWatch[T any](
	get func(ctx context.Context, query url.Values) (io.ReadCloser, error),
) func(context.Context, metav1.ListOptions, func(), func(Received[T])) error {
	return func(ctx context.Context, o metav1.ListOptions, opened func(), receive func(Received[T])) error {
		body, err := get(ctx, queryOf(o, true))
		if err != nil {
			return err
		}
		defer body.Close()
		opened()
		from := io.Reader(body)
		decoder := json.NewDecoder(from)
		for {
			if decoder.InputOffset() > maxDecoderBytes {
				// The buffer of a decoder only grows, and a watch may be open for a long time.
				from = io.MultiReader(decoder.Buffered(), from)
				decoder = json.NewDecoder(from)
			}
			r, err := decodeEvent[T](decoder)
			switch {
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
				return nil
			case err != nil:
				return err
			}
			receive(r)
		}
	}
}

// decodeEvent reads the next event of a watch.
func decodeEvent[T any](d *json.Decoder) (Received[T], error) {
	var e struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := d.Decode(&e); err != nil {
		return Received[T]{}, err
	}
	if e.Type == string(apiwatch.Error) {
		status := &metav1.Status{}
		_ = json.Unmarshal(e.Object, status) // an object that is not a Status is returned as an error, too
		return Received[T]{}, apierrors.FromObject(status)
	}
	var m struct {
		Metadata struct{ ResourceVersion string }
	}
	object := new(T)
	err := json.Unmarshal(e.Object, &m)
	if err == nil && e.Type != string(apiwatch.Bookmark) {
		err = json.Unmarshal(e.Object, object)
	}
	if err != nil {
		return Received[T]{}, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	r := Received[T]{ResourceVersion: m.Metadata.ResourceVersion, Deleted: e.Type == string(apiwatch.Deleted)}
	if e.Type != string(apiwatch.Bookmark) {
		r.Object = object
	}
	return r, nil
}

// queryOf returns the options of a list or a watch as query parameters.
func queryOf(o metav1.ListOptions, watch bool) url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("labelSelector", o.LabelSelector)
	set("fieldSelector", o.FieldSelector)
	set("continue", o.Continue)
	set("resourceVersion", o.ResourceVersion)
	if o.Limit > 0 {
		set("limit", strconv.FormatInt(o.Limit, 10))
	}
	if watch {
		q.Set("watch", "true")
		q.Set("allowWatchBookmarks", "true")
	}
	if o.TimeoutSeconds != nil {
		set("timeoutSeconds", strconv.FormatInt(*o.TimeoutSeconds, 10))
	}
	return q
}
