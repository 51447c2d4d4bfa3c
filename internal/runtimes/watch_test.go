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

// TestWatchBacksOff counts the requests within a minute to API servers that end each watch at once.
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
				w.updateFor(Subscriber{Key: "k", Interests: []Interest{deployments}, Notify: func(e Event) {
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

// TestLargeList checks that a list whose metadata is too large is reported as incomplete.
func TestLargeList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pages := 0
		label := strings.Repeat("x", 2*maxListBytes/maxListPages)
		transport := roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("watch") != "" {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			pages++
			return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(strings.NewReader(
				`{"metadata":{"resourceVersion":"7","continue":"next"},"items":[{"metadata":{"labels":{"a":"` + label +
					`"}}}]}`))}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		w := newWatches(ctx, &rest.Config{Host: "http://example.com", QPS: -1}, &http.Client{Transport: transport},
			time.Second)
		var got []Event
		w.updateFor(Subscriber{Key: "k", Interests: []Interest{deployments}, Notify: func(e Event) {
			got = append(got, e)
		}})
		synctest.Wait()
		cancel()
		synctest.Wait()
		if len(got) != 1 || !got[0].Missed || len(got[0].Objects) > 0 || pages != maxListPages {
			t.Errorf("got %d events after %d pages, want one that changes may have been missed", len(got), pages)
		}
	})
}
