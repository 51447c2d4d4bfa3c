package manager

import (
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
)

// While the control plane cannot be reached, caches would ask again after a time that doubles up to a minute, which is then how long the manager is
// deaf after a short outage. They ask every few seconds instead; their requests wait here meanwhile.

// again is the time between two tries: 250 ms at first, 4 s in the end, and up to a quarter more.
var again = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.25, Cap: 4 * time.Second, Steps: 5}

// outage is what is known of whether the control plane can be reached.
type outage struct {
	log logr.Logger

	mu    sync.Mutex
	since time.Time // guarded by mu: zero if it can
}

// wrap returns a transport whose lists and watches for caches outlast an outage. All other requests fail, so that who sent them can say so.
func (o *outage) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if !isForCache(r) {
			return next.RoundTrip(r)
		}
		for pause := again; ; {
			resp, err := next.RoundTrip(r)
			if !isAway(resp, err) {
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
			timer := time.NewTimer(pause.Step())
			select {
			case <-timer.C:
			case <-r.Context().Done():
				timer.Stop()
				return nil, r.Context().Err()
			}
		}
	})
}

// isForCache tells whether a request is a watch, or a list that says how old its answer may be, as only caches send them.
func isForCache(r *http.Request) bool {
	q := r.URL.Query()
	return r.Method == http.MethodGet && (q.Has("watch") || q.Has("resourceVersion"))
}

// isAway tells whether nobody answered, or a load balancer that stands before the control plane did.
func isAway(resp *http.Response, err error) bool {
	if err != nil {
		return true
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	case http.StatusServiceUnavailable:
		return resp.Header.Get("Retry-After") == "" // the client itself waits then
	}
	return false
}

// begin notes that the control plane cannot be reached.
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
	o.log.Info("nothing is heard of the control plane; asking again every few seconds", "problem", problem)
}

// end notes that it can.
func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.since.IsZero() {
		o.log.Info("the control plane is heard again", "after", time.Since(o.since).Round(time.Second).String())
		o.since = time.Time{}
	}
}

// roundTripper is a function as an [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
