package runtimes

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// refusing is a test runtime that refuses the credential after some time.
type refusing struct {
	after    time.Time
	requests atomic.Int32
}

func (r *refusing) RoundTrip(*http.Request) (*http.Response, error) {
	r.requests.Add(1)
	code := http.StatusOK
	if time.Now().After(r.after) {
		code = http.StatusUnauthorized
	}
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(""))}, nil
}

// TestExpiredCredential checks that the expiry of a credential is detected within a minute, even if no other request is
// sent.
func TestExpiredCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(10 * time.Hour)
		next, changes := &refusing{after: end}, atomic.Int32{}
		b := &breaker{runtime: "a", base: "https://a", next: next, changed: func() { changes.Add(1) }}
		b.scheduleCredentialChecks(end, 0, nil)
		defer b.stop()
		time.Sleep(10 * time.Hour)
		if next.requests.Load() != 0 || b.err() != nil {
			t.Errorf("before the end: %d requests, %v", next.requests.Load(), b.err())
		}
		time.Sleep(time.Minute)
		if err := b.err(); err == nil || codeOf(err) != CredentialExpired || changes.Load() != 1 ||
			!strings.Contains(err.Error(), ", which expired at "+end.UTC().Format(time.RFC3339)) {
			t.Errorf("after the end: %v, %d changes", err, changes.Load())
		}
	})
}

// TestWithdrawnCredential checks that the withdrawal of a credential is detected within one interval. To detect a
// withdrawn credential, one request is sent in each interval.
func TestWithdrawnCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &refusing{after: time.Now().Add(10 * time.Hour)}
		b := &breaker{runtime: "a", base: "https://a", next: next, changed: func() {}}
		b.scheduleCredentialChecks(time.Time{}, checkInterval, b.sendProbe)
		defer b.stop()
		time.Sleep(10*time.Hour - time.Second)
		if n := next.requests.Load(); n < 9 || n > 10 || b.err() != nil {
			t.Errorf("in ten hours: %d requests, %v, want one an hour", n, b.err())
		}
		time.Sleep(checkInterval + 2*time.Second)
		err := b.err()
		if err == nil || codeOf(err) != RuntimeUnauthorized || strings.Contains(err.Error(), "expired") {
			t.Errorf("an hour after it was withdrawn: %v", err)
		}
	})
}
