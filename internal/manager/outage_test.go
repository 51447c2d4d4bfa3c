package manager

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// failing is a transport that gives the responses in answers in order, and repeats the last one.
type failing struct {
	answers []any // an error, or a status
	asked   int
}

func (f *failing) RoundTrip(*http.Request) (*http.Response, error) {
	answer := f.answers[min(f.asked, len(f.answers)-1)]
	f.asked++
	if err, is := answer.(error); is {
		return nil, err
	}
	return &http.Response{StatusCode: answer.(int), Body: io.NopCloser(strings.NewReader(""))}, nil
}

func TestOutage(t *testing.T) {
	refused := errors.New("connection refused")
	cases := map[string]struct {
		reason string
		method string
		query  string
		after  []any
		asked  int
		status int // 0: the error
		lines  int // in the log
	}{
		"Well": {
			reason: "it answers",
			method: http.MethodGet,
			query:  "?watch=true",
			after:  []any{200},
			asked:  1,
			status: 200,
		},
		"Watch": {
			reason: "it asks until somebody answers, and says so once",
			method: http.MethodGet,
			query:  "?watch=true",
			after:  []any{refused, refused, refused, 200},
			asked:  4,
			status: 200,
			lines:  2,
		},
		"List": {
			reason: "as a watch",
			method: http.MethodGet,
			query:  "?limit=500&resourceVersion=0",
			after:  []any{refused, 502, 503, 504, 200},
			asked:  5,
			status: 200,
			lines:  2,
		},
		"Live list": {
			reason: "who asked says that it failed",
			method: http.MethodGet,
			query:  "?limit=500",
			after:  []any{refused, 200},
			asked:  1,
		},
		"Get": {reason: "as a list", method: http.MethodGet, after: []any{refused, 200}, asked: 1},
		"Write": {
			reason: "it may have been done",
			method: http.MethodPatch,
			query:  "?resourceVersion=1",
			after:  []any{refused, 200},
			asked:  1,
		},
		"Not allowed": {
			reason: "somebody answers",
			method: http.MethodGet,
			query:  "?watch=true",
			after:  []any{refused, 403, 200},
			asked:  2,
			status: 403,
			lines:  2,
		},
		"Too old": {
			reason: "the cache has to list",
			method: http.MethodGet,
			query:  "?watch=true",
			after:  []any{410, 200},
			asked:  1,
			status: 410,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lines []string
				o := &outage{log: funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})}
				f := &failing{answers: tc.after}
				r, err := http.NewRequestWithContext(t.Context(), tc.method,
					"https://a.example.com/api/v1/pods"+tc.query, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				resp, err := o.wrapWithCacheRetries(f).RoundTrip(r)
				status := 0
				if err == nil {
					status = resp.StatusCode
					_ = resp.Body.Close()
				} else if !errors.Is(err, refused) {
					t.Error(err)
				}
				if f.asked != tc.asked || status != tc.status || len(lines) != tc.lines {
					t.Errorf("%s: asked %d times, want %d; status %d, want %d; said %q", tc.reason, f.asked,
						tc.asked, status, tc.status, lines)
				}
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// TestOutageOfHours checks that requests are sent every few seconds even in a long outage, and that the retries end
// when the context of the request ends.
func TestOutageOfHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{answers: []any{errors.New("connection refused")}}
		o := &outage{log: logr.Discard()}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://a.example.com/api/v1/pods?watch=true",
			http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if err := send(o.wrapWithCacheRetries(f), r); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ended with %v", err)
		}
		if f.asked < 3600/5 || f.asked > 3600/4+5 {
			t.Errorf("it asked %d times in an hour, want once in 4 to 5 s", f.asked)
		}
	})
}

// send sends a request and ignores the content of the response.
func send(over http.RoundTripper, r *http.Request) error {
	resp, err := over.RoundTrip(r)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}
