package manager

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// Writes at the same time: at all, and while a person waits for something.
const abreast, behind = 16, 2

// answering answers each request after a second, and knows how many were under way at most.
type answering struct {
	mu          sync.Mutex
	under, most int
}

func (s *answering) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under += n
	s.most = max(s.most, s.under)
}

func (s *answering) RoundTrip(*http.Request) (*http.Response, error) {
	s.add(1)
	defer s.add(-1)
	time.Sleep(time.Second)
	return &http.Response{Body: http.NoBody}, nil
}

// send makes a request and drops the answer.
func send(over http.RoundTripper, r *http.Request) error {
	resp, err := over.RoundTrip(r)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

func TestPace(t *testing.T) {
	const requests = 40
	cases := map[string]struct {
		reason string
		method string
		path   string
		hurry  string // a runtime that somebody waits for
		most   int
	}{
		"Writes":  {"few at a time", http.MethodPatch, "/api/v1/pods", "", abreast},
		"Reads":   {"they are watches, and what there is no cache for", http.MethodGet, "/api/v1/pods", "", requests},
		"Leases":  {"a replica that cannot renew its Lease ends", http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", "", requests},
		"Hurried": {"somebody waits for this", http.MethodPatch, "/api/v1/pods", "a", requests},
		"Others":  {"somebody waits for something else", http.MethodPatch, "/api/v1/pods", "b", behind},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, s := newPace(abreast, behind), &answering{}
				var err error
				if p.pool, err = runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{}}); err != nil {
					t.Fatal(err)
				}
				if c.hurry != "" {
					p.pool.Hurry(c.hurry)
				}
				over := p.wrap(s)
				for range requests {
					go func() {
						r, _ := http.NewRequestWithContext(p.pool.Hurried(t.Context(), "a"), c.method, "https://a.example.com"+c.path, http.NoBody)
						if err := send(over, r); err != nil {
							t.Error(err)
						}
					}()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if s.most != c.most || s.under != 0 {
					t.Errorf("%s: %d at a time, want %d; %d have not ended", c.reason, s.most, c.most, s.under)
				}
			})
		})
	}
}

// TestPaceOvertakes: a write that waits goes at once when a person begins to wait for its runtime.
func TestPaceOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := newPace(abreast, behind), &answering{}
		var err error
		if p.pool, err = runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{}}); err != nil {
			t.Fatal(err)
		}
		over := p.wrap(s)
		write := func(kyma string) {
			r, _ := http.NewRequestWithContext(p.pool.Hurried(t.Context(), kyma), http.MethodPatch, "https://a.example.com", http.NoBody)
			if err := send(over, r); err != nil {
				t.Error(err)
			}
		}
		for range 10 * abreast {
			go write("others")
		}
		synctest.Wait()
		var took time.Duration
		go func() {
			begin := time.Now()
			write("a")
			took = time.Since(begin)
		}()
		time.Sleep(100 * time.Millisecond)
		p.pool.Hurry("b") // which is none of its business
		time.Sleep(100 * time.Millisecond)
		p.pool.Hurry("a")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if took != 1200*time.Millisecond { // 200 ms in vain, and a second for the answer
			t.Errorf("it took %s", took)
		}
		if s.under != 0 {
			t.Errorf("%d have not ended", s.under)
		}
	})
}

// TestPaceEnds: who has given up does not wait for its turn.
func TestPaceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &answering{}
		over := newPace(abreast, behind).wrap(s)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		request := func(ctx context.Context) *http.Request {
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://a.example.com", http.NoBody)
			return r
		}
		for range abreast {
			go func() { _ = send(over, request(t.Context())) }()
		}
		synctest.Wait()
		begin := time.Now()
		if err := send(over, request(ctx)); err == nil {
			t.Error("it was sent")
		}
		if took := time.Since(begin); took != 100*time.Millisecond {
			t.Errorf("it waited for %s", took)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.under != 0 {
			t.Errorf("%d have not ended", s.under)
		}
	})
}
