package runtimes

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
)

// bulkheadFixture is a pool with fake runtimes.
type bulkheadFixture struct {
	t        *testing.T
	pool     *Pool
	mu       sync.Mutex
	probes   map[string]int // guarded by mu: number of probes, by runtime
	others   map[string]int // guarded by mu: number of other requests, by runtime
	notified map[string]int // guarded by mu: number of notifications about the circuit breaker, by runtime
}

// newBulkheadFixture returns a pool in which at most limit requests may be stalled, and in which at most probes probes
// are sent at the same time.
func newBulkheadFixture(t *testing.T, limit int64, probes int) *bulkheadFixture {
	f := &bulkheadFixture{t: t, probes: map[string]int{}, others: map[string]int{}, notified: map[string]int{}}
	f.pool = &Pool{entries: map[string]*entry{}}
	f.pool.bulkhead = &bulkhead{limit: limit, confirmations: queueing.NewAdmission(probes,
		func(kyma string) { go f.pool.sendConfirmation(kyma) })}
	return f
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// add adds a runtime that answers each request after the given delay. A negative delay means that the runtime never
// answers.
func (f *bulkheadFixture) add(name string, delay time.Duration) *breaker {
	b := &breaker{runtime: name, base: "https://" + name, changed: func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.notified[name]++
	}}
	b.next = roundTripFunc(func(r *http.Request) (*http.Response, error) {
		f.mu.Lock()
		if r.URL.Path == "/api" {
			f.probes[name]++
		} else {
			f.others[name]++
		}
		f.mu.Unlock()
		var answered <-chan time.Time
		if delay >= 0 {
			answered = time.After(delay)
		}
		select {
		case <-answered:
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
		case <-r.Context().Done():
			return nil, context.Cause(r.Context()) // as net/http does while it opens a connection
		case <-f.t.Context().Done():
			return nil, f.t.Context().Err()
		}
	})
	f.setConnection(name, &Runtime{breaker: b})
	f.t.Cleanup(b.stop)
	return b
}

// setConnection sets the connection to a runtime.
func (f *bulkheadFixture) setConnection(name string, rt *Runtime) {
	f.pool.mu.Lock()
	defer f.pool.mu.Unlock()
	f.pool.entries[name] = &entry{runtime: rt}
}

// send sends a request with the deadline of a reconcile to a runtime, in the background. The result is sent to the
// returned channel.
func (f *bulkheadFixture) send(b *breaker) <-chan error {
	result := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(f.t.Context(), 15*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+"/api/v1/pods", nil)
		if err != nil {
			f.t.Error(err)
		}
		transport := &bulkheadTransport{bulkhead: f.pool.bulkhead, breaker: b, confirm: func() { f.pool.confirm(b) }}
		resp, err := transport.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		result <- err
	}()
	return result
}

// count returns the number of probes, other requests and notifications of a runtime.
func (f *bulkheadFixture) count(name string) [3]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return [3]int{f.probes[name], f.others[name], f.notified[name]}
}

// unfinished returns the number of results that are not there yet, and how many of the others are an UnansweredError.
func unfinished(all []<-chan error) (waiting, unanswered int) {
	for _, c := range all {
		if len(c) == 0 {
			waiting++
			continue
		}
		if IsUnanswered(<-c) {
			unanswered++
		}
	}
	return waiting, unanswered
}

// TestBulkhead checks that runtimes that do not answer occupy only a limited number of workers, that the others are
// found out by probes, and that a runtime that answers is used again at once.
func TestBulkhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBulkheadFixture(t, 2, 256)
		var dead []*breaker
		var results []<-chan error
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			dead = append(dead, f.add(name, -1))
			results = append(results, f.send(dead[len(dead)-1]))
		}
		time.Sleep(stallDelay - time.Millisecond)
		synctest.Wait()
		if waiting, _ := unfinished(results); waiting != 5 {
			t.Fatalf("%d requests wait before the delay, want 5", waiting)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if waiting, unanswered := unfinished(results); waiting != 2 || unanswered != 3 {
			t.Fatalf("%d requests wait and %d are postponed, want 2 and 3", waiting, unanswered)
		}

		healthy, slow := f.add("healthy", 0), f.add("slow", 3*time.Second)
		for _, b := range []*breaker{healthy, slow} {
			if err := <-f.send(b); !IsUnanswered(err) {
				t.Errorf("%s: %v, want a postponed request", b.runtime, err)
			}
		}
		synctest.Wait()
		if got := f.count("healthy"); got != [3]int{1, 0, 1} {
			t.Errorf("probes, requests and notifications of the healthy runtime: %v, want 1, 0 and 1", got)
		}
		if err := <-f.send(slow); !IsUnanswered(err) || f.count("slow") != [3]int{1, 0, 0} {
			t.Errorf("during its probe: %v, %v, want a postponed request and one probe", err, f.count("slow"))
		}
		if err := <-f.send(healthy); err != nil {
			t.Errorf("the healthy runtime after its probe: %v", err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if err := <-f.send(slow); err != nil {
			t.Errorf("the slow runtime after its probe: %v", err)
		}

		time.Sleep(probeTimeout + time.Minute)
		synctest.Wait()
		for _, b := range dead {
			if e, ok := errors.AsType[*Error](b.err()); !ok || e.Code != RuntimeUnreachable {
				t.Errorf("the circuit breaker of %s: %v, want %s", b.runtime, e, RuntimeUnreachable)
			}
			if err := <-f.send(b); IsUnanswered(err) || err == nil {
				t.Errorf("%s: %v, want the reason of the circuit breaker", b.runtime, err)
			}
		}
		if f.pool.bulkhead.isFull() || f.pool.bulkhead.stalled.Load() != 0 {
			t.Errorf("%d requests are still counted", f.pool.bulkhead.stalled.Load())
		}
		late := f.add("late", 4*time.Second)
		if err := <-f.send(late); err != nil {
			t.Errorf("a slow runtime while the limit is not reached: %v", err)
		}
		f.pool.bulkhead.limit = 0
		first := f.send(late)
		time.Sleep(time.Second)
		late.noteAnswer()
		if err := <-first; err != nil {
			t.Errorf("a runtime that answers another request in the meantime: %v", err)
		}
		other := f.add("other", 4*time.Second)
		other.noteAnswer()
		if err := <-f.send(other); !IsUnanswered(err) || other.err() != nil {
			t.Errorf("a slow runtime: %v, %v, want a postponed request and a closed circuit breaker", err, other.err())
		}
		time.Sleep(silentAfter)
		if err := <-f.send(late); !IsUnanswered(err) {
			t.Errorf("a runtime that has not answered for a while: %v, want a postponed request", err)
		}
	})
}

// TestBulkheadProbes checks that a limited number of probes is sent at the same time, and that all are sent.
func TestBulkheadProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBulkheadFixture(t, 0, 2)
		names := []string{"a", "b", "c", "d", "e"}
		var all []*breaker
		for _, name := range names {
			all = append(all, f.add(name, time.Second))
			if err := <-f.send(all[len(all)-1]); !IsUnanswered(err) {
				t.Errorf("%s: %v, want a postponed request", name, err)
			}
		}
		f.setConnection("d", nil) // its connection was closed
		all[3].stop()
		sent := func() (n int) {
			for _, name := range names {
				n += f.count(name)[0]
			}
			return n
		}
		for _, want := range []int{2, 4, 4} {
			synctest.Wait()
			if got := sent(); got != want {
				t.Errorf("%d probes are sent, want %d", got, want)
			}
			time.Sleep(time.Second)
		}
		for _, b := range all {
			if b.isConfirmed() == (b.runtime == "d") {
				t.Errorf("%s: confirmed is %t", b.runtime, b.isConfirmed())
			}
		}
	})
}

// TestBulkheadFirstReview checks that the first review of the rights does not occupy a worker either, and that it is
// sent again after it was postponed.
func TestBulkheadFirstReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBulkheadFixture(t, 0, 256)
		b := f.add("a", 0)
		r := &reviews{breaker: b, changed: func() {}, first: &bulkheadTransport{bulkhead: f.pool.bulkhead, breaker: b,
			confirm: func() { f.pool.confirm(b) }}}
		begin := time.Now()
		r.sendFirstReview()
		if r.begun || time.Since(begin) > 0 || b.err() != nil {
			t.Errorf("begun is %t after %s, %v, want a postponed review", r.begun, time.Since(begin), b.err())
		}
		synctest.Wait()
		r.sendFirstReview()
		if got := f.count("a"); !r.begun || got != [3]int{1, 1, 1} {
			t.Errorf("begun is %t, %v, want a probe, the review and a notification", r.begun, got)
		}
	})
}
