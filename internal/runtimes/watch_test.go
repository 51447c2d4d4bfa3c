package runtimes

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// TestWatchBacksOff counts the requests that are sent within a minute to API servers whose watches end at once.
func TestWatchBacksOff(t *testing.T) {
	cases := map[string]struct {
		reason string
		status int
		body   string
	}{
		"Empty": {"without an error", http.StatusOK, ""},
		"Gone": {"with 410", http.StatusGone,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var requests, listed atomic.Int64
				transport := roundTrip(func(r *http.Request) (*http.Response, error) {
					requests.Add(1)
					status, body := http.StatusOK,
						`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"}}`
					if r.URL.Query().Get("watch") != "" {
						status, body = c.status, c.body
					}
					return &http.Response{
						StatusCode: status, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
						Body: io.NopCloser(strings.NewReader(body)),
					}, nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				w := newWatches(ctx, &rest.Config{Host: "http://example.com", QPS: -1},
					&http.Client{Transport: transport}, time.Second)
				w.setSubscriber(Subscriber{Key: "k", Interests: []Interest{deployments}, Notify: func(e Event) {
					if e.Listed {
						listed.Add(1)
					}
				}})
				time.Sleep(time.Minute)
				cancel()
				synctest.Wait()
				if n := requests.Load(); n > 20 || listed.Load() == 0 {
					t.Errorf("%s: %d requests in a minute, %d lists reported", c.reason, n, listed.Load())
				}
			})
		})
	}
}
