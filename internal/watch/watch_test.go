package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

const (
	emptyList = `{"metadata":{"resourceVersion":"7"},"items":[]}`
	expired   = `{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"too old"}}`
)

func addedEvent(name, version string) string {
	return fmt.Sprintf(`{"type":"ADDED","object":{"metadata":{"name":%q,"resourceVersion":%q}}}`, name, version)
}

func statusError(code int32, reason metav1.StatusReason) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code,
		Reason: reason, Message: string(reason)}}
}

// server is a fake API server in memory.
type server struct {
	lists, watches int
	list           func(n int) (string, error)            // body of the n-th list, from 1; nil is an empty list
	watch          func(n int) (events string, err error) // events of the n-th watch
	lifetime       func(n int) time.Duration              // of the n-th watch; 0 ends it at once, nil never
	queries        []string                               // of watches: their resourceVersion; of lists: "list"
}

func (s *server) get(ctx context.Context, q url.Values) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if q.Get("watch") == "" {
		s.lists++
		s.queries = append(s.queries, "list")
		body := emptyList
		var err error
		if s.list != nil {
			body, err = s.list(s.lists)
		}
		return io.NopCloser(strings.NewReader(body)), err
	}
	s.watches++
	s.queries = append(s.queries, q.Get("resourceVersion"))
	events, n := "", s.watches
	if s.watch != nil {
		var err error
		if events, err = s.watch(n); err != nil {
			return nil, err
		}
	}
	reader, writer := io.Pipe()
	go func() {
		_, _ = io.WriteString(writer, events)
		if s.lifetime == nil {
			<-ctx.Done()
		} else {
			select {
			case <-ctx.Done():
			case <-time.After(s.lifetime(n)):
			}
		}
		_ = writer.Close()
	}()
	return reader, nil
}

func constantLifetime(d time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return d }
}

// TestRunFaults counts the requests that are sent in ten minutes, for each kind of fault.
func TestRunFaults(t *testing.T) {
	cases := map[string]struct {
		reason           string
		server           server
		lists, watches   [2]int // at least, at most
		queries          string // first requests
		events, failures string // of events: all; of failures: the last
	}{
		"Quiet": {
			reason: "a watch that stays open is one request",
			lists:  [2]int{1, 1}, watches: [2]int{1, 1}, queries: "list 7",
		},
		"EndsNormally": {
			reason: "a watch that lived long enough is followed by the next one at once",
			server: server{lifetime: constantLifetime(time.Minute)},
			lists:  [2]int{1, 1}, watches: [2]int{10, 10}, queries: "list 7 7",
		},
		"EndsAtOnce": {
			reason: "a watch that ends at once without an error is not repeated without a delay",
			server: server{lifetime: constantLifetime(0)},
			lists:  [2]int{1, 1}, watches: [2]int{20, 50}, queries: "list 7 7",
		},
		"GoneAtOnce": {
			reason: "410 as an answer needs a list, after a delay",
			server: server{
				watch: func(int) (string, error) {
					return "",
						statusError(http.StatusGone, metav1.StatusReasonExpired)
				},
			},
			lists: [2]int{20, 50}, watches: [2]int{20, 50}, queries: "list 7 list 7", failures: "Expired",
		},
		"GoneInTheWatch": {
			reason: "410 as an event needs a list, after a delay",
			server: server{watch: func(int) (string, error) { return expired, nil }},
			lists:  [2]int{20, 50}, watches: [2]int{20, 50}, queries: "list 7 list 7", failures: "too old",
		},
		"GoneLater": {
			reason: "410 after a long watch needs a list at once",
			server: server{watch: func(n int) (string, error) {
				if n == 2 {
					return "", statusError(http.StatusGone, metav1.StatusReasonGone)
				}
				return "", nil
			}, lifetime: func(n int) time.Duration { return []time.Duration{0, time.Minute, 0, time.Hour}[n] }},
			lists: [2]int{2, 2}, watches: [2]int{3, 3}, queries: "list 7 7 list 7", failures: "Gone",
		},
		"ResourceVersionTooLarge": {
			reason: "an API server with an older state needs a list",
			server: server{watch: func(n int) (string, error) {
				if n > 1 {
					return "", nil
				}
				return "", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonTimeout,
					Message: "too large", Details: &metav1.StatusDetails{
						Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}},
					}}}
			}},
			lists: [2]int{2, 2}, watches: [2]int{2, 2}, queries: "list 7 list 7", failures: "too large",
		},
		"NotFound": {
			reason: "a resource that is not served is listed again, less and less often",
			server: server{
				list: func(int) (string, error) {
					return "",
						statusError(http.StatusNotFound, metav1.StatusReasonNotFound)
				},
			},
			lists: [2]int{20, 50}, queries: "list list", failures: "NotFound",
		},
		"BrokenConnection": {
			reason: "an error resumes at the last resourceVersion, after a delay",
			server: server{watch: func(n int) (string, error) {
				if n == 2 {
					return "", errors.New("connection refused")
				}
				return addedEvent("a", "8"), nil
			}, lifetime: func(n int) time.Duration { return []time.Duration{0, time.Minute, 0, time.Hour}[n] }},
			lists: [2]int{1, 1}, watches: [2]int{3, 3}, queries: "list 7 8 8", events: "a a",
			failures: "connection refused",
		},
		"ProgressIsNoHealth": {
			reason: "events do not reset the delay, only lifetime does",
			server: server{
				watch:    func(n int) (string, error) { return addedEvent("a", fmt.Sprint(n+10)), nil },
				lifetime: constantLifetime(0),
			},
			lists: [2]int{1, 1}, watches: [2]int{20, 50}, queries: "list 7 11 12",
		},
		"Bookmark": {
			reason: "a bookmark moves the resourceVersion and is not reported",
			server: server{watch: func(n int) (string, error) {
				if n > 1 {
					return "", nil
				}
				return `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"30"}}}`, nil
			}, lifetime: func(n int) time.Duration { return []time.Duration{0, time.Minute, time.Hour}[n] }},
			lists: [2]int{1, 1}, watches: [2]int{2, 2}, queries: "list 7 30",
		},
		"UnreadableEvent": {
			reason: "a lost event needs a list",
			server: server{watch: func(n int) (string, error) {
				if n > 1 {
					return "", nil
				}
				return `{"type":"ADDED","object":{"metadata":5}}`, nil
			}},
			lists: [2]int{2, 2}, watches: [2]int{2, 2}, queries: "list 7 list 7",
			failures: "reading an event of a watch",
		},
		"Deleted": {
			reason: "all events are reported in order",
			server: server{watch: func(int) (string, error) {
				return addedEvent("a", "8") + `{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"9"}}}`,
					nil
			}},
			lists: [2]int{1, 1}, watches: [2]int{1, 1}, queries: "list 7", events: "a -a",
		},
		"ExpiredPage": {
			reason: "a list whose next page has expired starts again",
			server: server{list: func(n int) (string, error) {
				switch n {
				case 1:
					return `{"metadata":{"resourceVersion":"7","continue":"x"},"items":[{"metadata":{"name":"old"}}]}`,
						nil
				case 2:
					return "", statusError(http.StatusGone, metav1.StatusReasonExpired)
				}
				return `{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"new"}}]}`, nil
			}},
			lists: [2]int{3, 3}, watches: [2]int{1, 1}, queries: "list list list 9",
			events: "[new]", failures: "Expired",
		},
		"EndlessList": {
			reason: "a list without end is cut off, and watched",
			server: server{list: func(int) (string, error) {
				return `{"metadata":{"resourceVersion":"7","continue":"x"},"items":[]}`, nil
			}},
			lists: [2]int{5, 5}, watches: [2]int{1, 1}, queries: "list list list list list 7", events: "incomplete",
		},
		"HugeList": {
			reason: "the number of objects is limited, too",
			server: server{list: func(n int) (string, error) {
				return `{"metadata":{"resourceVersion":"7","continue":"x"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`, nil
			}},
			lists: [2]int{2, 2}, watches: [2]int{1, 1}, queries: "list list 7", events: "[a] [b] [a] [b] incomplete",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute-time.Millisecond)
				defer cancel()
				var events []string
				failure := ""
				err := Run(ctx, Options[metav1.PartialObjectMetadata]{
					Source: JSONSource[metav1.PartialObjectMetadata](c.server.get), MaxPages: 5, MaxObjects: 4,
					Page: func(items []metav1.PartialObjectMetadata, first bool) {
						if first {
							events = nil
						}
						for _, o := range items {
							events = append(events, "["+o.Name+"]")
						}
					},
					Listed: func(complete bool) {
						if !complete {
							events = append(events, "incomplete")
						}
					},
					Event: func(e Event[metav1.PartialObjectMetadata]) {
						events = append(events, map[bool]string{true: "-"}[e.Deleted]+e.Object.Name)
					},
					Failed: func(err error, _ time.Time) error { failure = err.Error(); return nil },
				})
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: it ended with %v", c.reason, err)
				}
				s := &c.server
				if s.lists < c.lists[0] || s.lists > c.lists[1] ||
					s.watches < c.watches[0] || s.watches > c.watches[1] {
					t.Errorf("%s: %d lists and %d watches, want %v and %v", c.reason, s.lists,
						s.watches, c.lists, c.watches)
				}
				if got := strings.Join(s.queries, " "); !strings.HasPrefix(got+" ", c.queries+" ") {
					t.Errorf("%s: requests %.60s, want %s", c.reason, got, c.queries)
				}
				if got := strings.Join(events, " "); c.events != "" && got != c.events {
					t.Errorf("%s: events %s, want %s", c.reason, got, c.events)
				}
				if !strings.Contains(failure, c.failures) || c.failures == "" && failure != "" {
					t.Errorf("%s: the last failure is %q, want %q", c.reason, failure, c.failures)
				}
			})
		})
	}
}

// TestRunStops checks that Run returns the error of Failed.
func TestRunStops(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New("no"))
	s := &server{list: func(int) (string, error) { return "", forbidden }}
	err := Run(t.Context(), Options[metav1.PartialObjectMetadata]{
		Source: JSONSource[metav1.PartialObjectMetadata](s.get),
		Failed: func(err error, _ time.Time) error { return err },
	})
	if !apierrors.IsForbidden(err) || s.lists != 1 {
		t.Errorf("got %v after %d lists", err, s.lists)
	}
}

// TestRunDelays checks the two cases in which Run waits for a shorter time before its next attempt: the channel Retry
// receives a value, or the failed attempts have sent no request.
func TestRunDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unsent := errors.New("unsent")
		s := &server{list: func(int) (string, error) { return "", unsent }}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_ = Run(ctx, Options[metav1.PartialObjectMetadata]{
			Source:   JSONSource[metav1.PartialObjectMetadata](s.get),
			IsUnsent: func(err error) bool { return errors.Is(err, unsent) },
		})
		if s.lists < 600 || s.lists > 1200 {
			t.Errorf("%d attempts in ten minutes although none sent a request", s.lists)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &server{list: func(int) (string, error) { return "", errors.New("no") }}
		ctx, cancel := context.WithCancel(t.Context())
		retry := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = Run(ctx, Options[metav1.PartialObjectMetadata]{Source: JSONSource[metav1.PartialObjectMetadata](s.get),
				MinDelay: time.Hour, MaxDelay: time.Hour, Retry: retry})
		}()
		retry <- struct{}{}
		synctest.Wait()
		if s.lists != 2 {
			t.Errorf("%d lists after a retry", s.lists)
		}
		cancel()
		<-ended
	})
}

// TestRunTimeouts checks that Run cancels a request that is never answered, and closes a watch that never ends.
func TestRunTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first, second time.Time
		start := time.Now()
		source := Source[metav1.PartialObjectMetadata]{
			List: func(ctx context.Context, _ metav1.ListOptions) (Page[metav1.PartialObjectMetadata], error) {
				if first.IsZero() {
					<-ctx.Done()
					first = time.Now()
					return Page[metav1.PartialObjectMetadata]{}, ctx.Err()
				}
				return Page[metav1.PartialObjectMetadata]{ResourceVersion: "7"}, nil
			},
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		source.Watch = func(ctx context.Context, o metav1.ListOptions, opened func(),
			_ func(Received[metav1.PartialObjectMetadata])) error {
			if o.TimeoutSeconds == nil || *o.TimeoutSeconds < 300 || *o.TimeoutSeconds > 600 {
				t.Errorf("timeoutSeconds is %v", o.TimeoutSeconds)
			}
			opened()
			<-ctx.Done()
			second = time.Now()
			cancel()
			return nil
		}
		opened, closed := 0, 0
		_ = Run(ctx, Options[metav1.PartialObjectMetadata]{
			Source: source, ListTimeout: 15 * time.Second, WatchTimeout: 10 * time.Minute,
			Opened: func() { opened++ }, Closed: func() { closed++ },
		})
		if d := first.Sub(start); d != 15*time.Second {
			t.Errorf("the list was given up after %s", d)
		}
		if d := second.Sub(first); d < 6*time.Minute || d > 11*time.Minute+time.Second {
			t.Errorf("the watch was given up after %s", d)
		}
		if opened != 1 || closed != 1 {
			t.Errorf("%d opened, %d closed", opened, closed)
		}
	})
}

// TestClientSource checks that ClientSource converts the events of client-go correctly.
func TestClientSource(t *testing.T) {
	object := func(name, version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	}
	cases := map[string]struct {
		event apiwatch.Event
		want  string
	}{
		"Added":    {apiwatch.Event{Type: apiwatch.Added, Object: object("a", "8")}, "8 a"},
		"Deleted":  {apiwatch.Event{Type: apiwatch.Deleted, Object: object("a", "8")}, "8 -a"},
		"Bookmark": {apiwatch.Event{Type: apiwatch.Bookmark, Object: object("", "9")}, "9"},
		"Error":    {apiwatch.Event{Type: apiwatch.Error, Object: &metav1.Status{Message: "no"}}, "no"},
		"Other": {apiwatch.Event{Type: apiwatch.Added, Object: &metav1.APIGroup{}},
			"reading an event of a watch: it has a *v1.APIGroup"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := apiwatch.NewFakeWithChanSize(1, false)
			w.Action(c.event.Type, c.event.Object)
			w.Stop()
			source := ClientSource[metav1.PartialObjectMetadata](nil, func(context.Context, metav1.ListOptions) (
				apiwatch.Interface, error) {
				return w, nil
			})
			got := ""
			err := source.Watch(t.Context(), metav1.ListOptions{}, func() {},
				func(r Received[metav1.PartialObjectMetadata]) {
					got = r.ResourceVersion
					if r.Object != nil {
						got += " " + map[bool]string{true: "-"}[r.Deleted] + r.Object.Name
					}
				})
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSmallerPages checks that smaller pages are requested if a page is too large, and that the list fails if a single
// object is too large. The first page that is not too large is the first page of the list.
func TestSmallerPages(t *testing.T) {
	errTooLarge, errStop := errors.New("too large"), errors.New("stop")
	for name, tc := range map[string]struct {
		fits    int64 // objects in an answer
		limits  []int64
		objects int
		err     error
	}{
		"Quarter": {fits: 200, limits: []int64{500, 125, 125, 125}, objects: 300, err: errStop},
		"One":     {fits: 1, limits: []int64{500, 125, 31, 7, 1, 1}, objects: 2, err: errStop},
		"None":    {fits: 0, limits: []int64{500, 125, 31, 7, 1}, err: errTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			var limits []int64
			listed, want := 0, tc.objects
			err := Run(t.Context(), Options[metav1.PartialObjectMetadata]{
				Source: Source[metav1.PartialObjectMetadata]{
					List: func(_ context.Context, o metav1.ListOptions) (Page[metav1.PartialObjectMetadata], error) {
						page := Page[metav1.PartialObjectMetadata]{ResourceVersion: "7", Continue: "more"}
						if limits = append(limits, o.Limit); o.Limit > tc.fits {
							return page, fmt.Errorf("reading a page: %w", errTooLarge)
						}
						n := min(int(o.Limit), want)
						if want -= n; want == 0 {
							page.Continue = ""
						}
						page.Items = make([]metav1.PartialObjectMetadata, n)
						return page, nil
					},
					Watch: func(context.Context, metav1.ListOptions, func(),
						func(Received[metav1.PartialObjectMetadata])) error {
						return errStop
					},
				},
				IsTooLarge: func(err error) bool { return errors.Is(err, errTooLarge) },
				Page: func(items []metav1.PartialObjectMetadata, first bool) {
					if first != (listed == 0) {
						t.Errorf("after %d objects, first is %t", listed, first)
					}
					listed += len(items)
				},
				Failed: func(err error, _ time.Time) error { return err },
			})
			if diff := cmp.Diff(tc.limits, limits); diff != "" || listed != tc.objects {
				t.Errorf("%d of %d objects, limits: %s", listed, tc.objects, diff)
			}
			if !errors.Is(err, tc.err) {
				t.Errorf("got %v, want %v", err, tc.err)
			}
		})
	}
}
