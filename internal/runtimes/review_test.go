package runtimes

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// reviewed is a fake runtime that answers each SelfSubjectRulesReview with one rule, whose verbs are in reviewed.rule.
// If reviewed.rule is empty, the fake runtime answers 401, as if the credential were not valid.
type reviewed struct {
	rule     atomic.Value // string: verbs, as JSON
	requests atomic.Int32
}

func (r *reviewed) RoundTrip(req *http.Request) (*http.Response, error) {
	r.requests.Add(1)
	verbs, _ := r.rule.Load().(string)
	if verbs == "" {
		return &http.Response{StatusCode: http.StatusUnauthorized, Body: io.NopCloser(strings.NewReader(""))}, nil
	}
	if req.Method != http.MethodPost || req.URL.Path != reviewPath {
		return &http.Response{StatusCode: http.StatusNotFound, Body: io.NopCloser(strings.NewReader(""))}, nil
	}
	return &http.Response{StatusCode: http.StatusCreated, Body: io.NopCloser(strings.NewReader(fmt.Sprintf(
		`{"kind":"SelfSubjectRulesReview","status":{"resourceRules":[{"verbs":%s,"apiGroups":["*"],"resources":["*"]}]}}`,
		verbs)))}, nil
}

func newReviews(next *reviewed) (*reviews, *atomic.Int32) {
	changes := &atomic.Int32{}
	b := &breaker{runtime: "a", base: "https://a", next: next, changed: func() {}}
	return &reviews{breaker: b, first: next, changed: func() { changes.Add(1) }}, changes
}

// TestReviews checks that several changes within a short time cause only one review of the rights. The function changed
// must be called only if the rights in the answer differ from those before.
func TestReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &reviewed{}
		next.rule.Store(`["*"]`)
		r, changes := newReviews(next)
		defer r.breaker.stop()
		r.sendFirstReview()
		r.sendFirstReview()
		if !r.has.IsUnlimited() || next.requests.Load() != 1 || changes.Load() != 0 {
			t.Fatalf("the first review: %d requests, %d changes", next.requests.Load(), changes.Load())
		}
		for range 10 {
			r.scheduleReview(rightsDelay)
			time.Sleep(rightsDelay / 20)
		}
		time.Sleep(time.Minute)
		if next.requests.Load() != 2 || changes.Load() != 0 {
			t.Errorf("nothing has changed: %d requests, %d changes", next.requests.Load(), changes.Load())
		}
		next.rule.Store(`["get"]`)
		r.scheduleReview(rightsDelay)
		r.scheduleReview(accountDelay) // the later review time counts
		time.Sleep(rightsDelay + time.Second)
		if next.requests.Load() != 2 {
			t.Error("reviewed before an API server has the change")
		}
		time.Sleep(accountDelay)
		synctest.Wait() // the review has ended
		if r.has.IsUnlimited() || !r.had.IsUnlimited() || next.requests.Load() != 3 || changes.Load() != 1 {
			t.Errorf("rights are lost: %d requests, %d changes", next.requests.Load(), changes.Load())
		}
		next.rule.Store("")
		r.scheduleReview(accountDelay)
		time.Sleep(accountDelay + 100*time.Millisecond)
		if err := r.breaker.err(); err == nil || codeOf(err) != RuntimeUnauthorized || next.requests.Load() != 4 {
			t.Errorf("the account is deleted: %v, %d requests", err, next.requests.Load())
		}
	})
}

// TestFirstReview checks that the first SelfSubjectRulesReview of a connection is sent again until the API server
// answers. If the API server answers that it does not allow reviews, that is an answer, and the request is not sent
// again.
func TestFirstReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &reviewed{}
		next.rule.Store("")
		r, changes := newReviews(next)
		defer r.breaker.stop()
		r.sendFirstReview()
		if r.breaker.err() == nil || r.has.IsKnown() {
			t.Error("a refused credential is accepted")
		}
		next.rule.Store(`["*"]`)
		time.Sleep(time.Minute) // a probe closes the breaker
		synctest.Wait()
		r.sendFirstReview()
		if r.breaker.err() != nil || !r.has.IsUnlimited() || changes.Load() != 0 {
			t.Errorf("after the outage: %v, %v, %d changes", r.breaker.err(), r.has, changes.Load())
		}
		next.rule.Store("garbage")
		other, _ := newReviews(next)
		before := next.requests.Load()
		other.sendFirstReview()
		other.sendFirstReview()
		if n := next.requests.Load() - before; n != 1 || other.has.IsKnown() {
			t.Errorf("an answer without rights: %d requests, %v", n, other.has)
		}
	})
}

// TestReviewsAreBounded checks that changes of bindings cause at most six reviews in a row, and after that one review
// an hour.
func TestReviewsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &reviewed{}
		next.rule.Store(`["*"]`)
		r, _ := newReviews(next)
		defer r.breaker.stop()
		for range 10 * 60 { // ten hours
			r.scheduleReview(rightsDelay)
			time.Sleep(time.Minute)
		}
		if n := next.requests.Load(); n < maxEarlyReviews+9 || n > maxEarlyReviews+10 {
			t.Errorf("%d reviews in ten hours", n)
		}
		time.Sleep(100 * time.Hour)
		r.scheduleReview(rightsDelay)
		before := next.requests.Load()
		time.Sleep(time.Minute)
		if n := next.requests.Load() - before; n != 1 {
			t.Errorf("after a quiet time: %d reviews within a minute", n)
		}
		r.scheduleReview(rightsDelay)
		r.stop()
		time.Sleep(time.Hour)
		if n := next.requests.Load() - before; n != 1 {
			t.Errorf("a closed connection has %d reviews", n-1)
		}
	})
}

// TestCredentialInterests checks that rightsInterests returns no object that the credential may not watch.
func TestCredentialInterests(t *testing.T) {
	cases := map[string]struct {
		reason, verbs, account string
		want                   []schema.GroupVersionResource
	}{
		"Token":       {"all three", `["*"]`, "klm", []schema.GroupVersionResource{clusterBindings, clusterRoles, accounts}},
		"Certificate": {"no ServiceAccount", `["*"]`, "", []schema.GroupVersionResource{clusterBindings, clusterRoles}},
		"Limited":     {"it may not grant the right to watch", `["get","list"]`, "klm", nil},
	}
	for name, c := range cases {
		next := &reviewed{}
		next.rule.Store(c.verbs)
		r, _ := newReviews(next)
		r.sendFirstReview()
		rt := &Runtime{reviews: r}
		rt.account.namespace, rt.account.name = "ops", c.account
		var got []schema.GroupVersionResource
		for _, i := range rt.rightsInterests() {
			got = append(got, i.Resource)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %s: got %v, want %v", name, c.reason, got, c.want)
		}
	}
}
