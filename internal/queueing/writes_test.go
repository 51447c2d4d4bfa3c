package queueing

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// limitAlways and limitWhileUrgent are the maximum numbers of concurrent writes in these tests: at any time, and while
// a runtime is urgent.
const limitAlways, limitWhileUrgent = 16, 2

// slowServer answers each request after a second and records the maximum number of concurrent requests.
type slowServer struct {
	mu            sync.Mutex
	underWay, max int
}

func (s *slowServer) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay += n
	s.max = max(s.max, s.underWay)
}

func (s *slowServer) RoundTrip(*http.Request) (*http.Response, error) {
	s.add(1)
	defer s.add(-1)
	time.Sleep(time.Second)
	return &http.Response{Body: http.NoBody}, nil
}

// send sends a request and ignores the content of the response.
func send(over http.RoundTripper, r *http.Request) error {
	resp, err := over.RoundTrip(r)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

func TestWriteLimiter(t *testing.T) {
	const requests = 40
	cases := map[string]struct {
		reason string
		method string
		path   string
		urgent string // a runtime
		max    int    // requests of runtime a at the same time
	}{
		"Writes": {reason: "they are limited", method: http.MethodPatch, path: "/api/v1/pods", max: limitAlways},
		"Reads":  {reason: "they are never held back", method: http.MethodGet, path: "/api/v1/pods", max: requests},
		"Leases": {
			reason: "a replica that cannot renew its Lease ends",
			method: http.MethodPut,
			path:   "/apis/coordination.k8s.io/v1/namespaces/n/leases/l",
			max:    requests,
		},
		"Urgent": {
			reason: "their runtime is urgent",
			method: http.MethodPatch,
			path:   "/api/v1/pods",
			urgent: "a",
			max:    requests,
		},
		"Others": {
			reason: "another runtime is urgent",
			method: http.MethodPatch,
			path:   "/api/v1/pods",
			urgent: "b",
			max:    limitWhileUrgent,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				urgent, s := NewUrgent(), &slowServer{}
				if c.urgent != "" {
					urgent.Mark(c.urgent)
				}
				over := NewWriteLimiter(limitAlways, limitWhileUrgent, urgent).Wrap(s)
				for range requests {
					go func() {
						r, _ := http.NewRequestWithContext(urgent.Context(t.Context(), "a"), c.method,
							"https://a.example.com"+c.path, http.NoBody)
						if err := send(over, r); err != nil {
							t.Error(err)
						}
					}()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if s.max != c.max || s.underWay != 0 {
					t.Errorf("%s: %d at the same time, want %d; %d have not ended", c.reason, s.max, c.max, s.underWay)
				}
			})
		})
	}
}

// TestWriteLimiterOvertakes checks that a waiting write is sent at once when its runtime becomes urgent.
func TestWriteLimiterOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		urgent, s := NewUrgent(), &slowServer{}
		over := NewWriteLimiter(limitAlways, limitWhileUrgent, urgent).Wrap(s)
		write := func(kyma string) {
			r, _ := http.NewRequestWithContext(urgent.Context(t.Context(), kyma), http.MethodPatch,
				"https://a.example.com", http.NoBody)
			if err := send(over, r); err != nil {
				t.Error(err)
			}
		}
		for range 10 * limitAlways {
			go write("others")
		}
		synctest.Wait()
		var took time.Duration
		go func() {
			start := time.Now()
			write("a")
			took = time.Since(start)
		}()
		time.Sleep(100 * time.Millisecond)
		urgent.Mark("b") // another runtime
		time.Sleep(100 * time.Millisecond)
		urgent.Mark("a")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if took != 1200*time.Millisecond { // 200 ms held back, and a second for the answer
			t.Errorf("it took %s", took)
		}
		if s.underWay != 0 {
			t.Errorf("%d have not ended", s.underWay)
		}
	})
}

// TestWriteLimiterCancelled checks that a waiting write ends at once when its context ends.
func TestWriteLimiterCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowServer{}
		over := NewWriteLimiter(limitAlways, limitWhileUrgent, NewUrgent()).Wrap(s)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		request := func(ctx context.Context) *http.Request {
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://a.example.com", http.NoBody)
			return r
		}
		for range limitAlways {
			go func() { _ = send(over, request(t.Context())) }()
		}
		synctest.Wait()
		start := time.Now()
		if err := send(over, request(ctx)); err == nil {
			t.Error("it was sent")
		}
		if took := time.Since(start); took != 100*time.Millisecond {
			t.Errorf("it waited for %s", took)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.underWay != 0 {
			t.Errorf("%d have not ended", s.underWay)
		}
	})
}

// TestEventsDelayNoWrite checks that thousands of Events about one runtime do not delay other writes, in particular the
// status of another runtime, and that only a few Events are sent at the same time.
func TestEventsDelayNoWrite(t *testing.T) {
	for _, path := range []string{"/apis/events.k8s.io/v1/namespaces/kcp-system/events",
		"/apis/events.k8s.io/v1/namespaces/kcp-system/events/a.1", "/api/v1/namespaces/kcp-system/events"} {
		synctest.Test(t, func(t *testing.T) {
			urgent, s := NewUrgent(), &slowServer{}
			over := NewWriteLimiter(limitAlways, limitWhileUrgent, urgent).Wrap(s)
			write := func(path string) {
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://a.example.com"+path, http.NoBody)
				if err := send(over, r); err != nil {
					t.Error(err)
				}
			}
			for range 5000 {
				go write(path)
			}
			synctest.Wait()
			if s.max != limitWhileUrgent {
				t.Errorf("%s: %d at the same time, want %d", path, s.max, limitWhileUrgent)
			}
			start := time.Now()
			write("/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas/b/status")
			if took := time.Since(start); took != time.Second {
				t.Errorf("%s: the status of another runtime took %s", path, took)
			}
			time.Sleep(2 * time.Hour)
		})
	}
}
