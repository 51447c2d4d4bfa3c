package source

import (
	"archive/tar"
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	library "github.com/kyma-fleet/lifecycle-manager/manifest"
)

// TestSlowChart checks that a caller does not wait for a slow host. Several callers share one download. The next caller
// gets the result of the finished download.
func TestSlowChart(t *testing.T) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	about := "apiVersion: v2\nname: c\nversion: 1.0.0\n"
	if err := w.WriteHeader(&tar.Header{Name: "c/Chart.yaml", Mode: 0o600, Size: int64(len(about))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(about)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		const host = "https://charts.example.com"
		var requests atomic.Int32
		slow := make(chan struct{})
		f := &Finder{}
		from := &library.Repository{URL: host, Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			requests.Add(1)
			<-slow
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(packed.Bytes()))}, nil
		})}
		fetch := func() error {
			_, err := f.downloadChart(t.Context(), from, library.ChartVersion{Name: "c", Version: "1.0.0",
				URL: host + "/c.tgz"}, "c")
			return err
		}
		for range 2 {
			start := time.Now()
			if err := fetch(); err == nil || !strings.Contains(err.Error(), "chart c 1.0.0 to be downloaded") ||
				time.Since(start) != answerTimeout {
				t.Errorf("a slow host: got %v after %s, want what it waits for", err, time.Since(start))
			}
		}
		close(slow)
		synctest.Wait()
		for range 2 {
			if err := fetch(); err != nil || requests.Load() != 1 {
				t.Errorf("the host has answered: %v after %d downloads, want one for all", err, requests.Load())
			}
		}
	})
}

// roundTrip is a function that answers requests without a network connection.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
