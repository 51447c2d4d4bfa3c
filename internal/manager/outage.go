package manager

import (
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
)

// retryBackoff is the delay between two attempts of a cache's request. The delay begins with 250 ms and grows to 4 s.
// Up to a quarter of the delay is added at random.
var retryBackoff = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.25,
	Cap: 4 * time.Second, Steps: 5}

// outage retries the lists and watches of caches while the control plane cannot be reached. The delay between two
// retries of outage is at most 5 seconds, so events arrive soon after the end of an outage. client-go itself would
// retry with a delay that doubles up to one minute.
type outage struct {
	log logr.Logger

	mu    sync.Mutex
	since time.Time // guarded by mu: zero if the control plane can be reached
}

// wrapWithCacheRetries returns a transport that retries the lists and watches of a cache until their context ends.
// Requests that do not belong to a cache fail at once, so that their callers can report the failure.
func (o *outage) wrapWithCacheRetries(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if !isForCache(r) {
			return next.RoundTrip(r)
		}
		for backoff := retryBackoff; ; {
			resp, err := next.RoundTrip(r)
			if !isUnreachable(resp, err) {
				o.end()
				return resp, err
			}
			if r.Context().Err() != nil {
				return resp, err
			}
			o.begin(resp, err)
			if err == nil {
				_ = resp.Body.Close()
			}
			timer := time.NewTimer(backoff.Step())
			select {
			case <-timer.C:
			case <-r.Context().Done():
				timer.Stop()
				return nil, r.Context().Err()
			}
		}
	})
}

// isForCache reports whether a cache has sent a request. Only caches send watches, and lists with a resource version.
func isForCache(r *http.Request) bool {
	q := r.URL.Query()
	return r.Method == http.MethodGet && (q.Has("watch") || q.Has("resourceVersion"))
}

// isUnreachable reports whether the control plane did not answer: there was no response, or the response came from a
// load balancer in front of the control plane.
func isUnreachable(resp *http.Response, err error) bool {
	if err != nil {
		return true
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	case http.StatusServiceUnavailable:
		return resp.Header.Get("Retry-After") == "" // if the header is set, client-go retries
	}
	return false
}

// begin records the start of an outage and logs that the control plane cannot be reached.
func (o *outage) begin(resp *http.Response, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.since.IsZero() {
		return
	}
	o.since = time.Now()
	problem := ""
	if err != nil {
		problem = err.Error()
	} else {
		problem = resp.Status
	}
	o.log.Info("the control plane cannot be reached; retrying every few seconds", "problem", problem)
}

// end records the end of an outage and logs that the control plane can be reached again.
func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.since.IsZero() {
		o.log.Info("the control plane can be reached again", "after", time.Since(o.since).Round(time.Second).String())
		o.since = time.Time{}
	}
}

// roundTripper is a function that implements [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
