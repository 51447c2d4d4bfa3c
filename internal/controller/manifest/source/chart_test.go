package source

import (
	"archive/tar"
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
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
	var requests atomic.Int32
	slow := make(chan struct{})
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		<-slow
		_, _ = w.Write(packed.Bytes())
	}))
	defer host.Close()

	f := &Finder{}
	from := &library.Repository{URL: host.URL}
	fetch := func() error {
		_, err := f.downloadChart(t.Context(), from, library.ChartVersion{Name: "c", Version: "1.0.0",
			URL: host.URL + "/c.tgz"}, "c")
		return err
	}
	for range 2 {
		start := time.Now()
		if err := fetch(); err == nil || !strings.Contains(err.Error(), "chart c 1.0.0 to be downloaded") ||
			time.Since(start) < answerTimeout {
			t.Errorf("a slow host: got %v, want what it waits for", err)
		}
	}
	close(slow)
	for deadline := time.Now().Add(20 * time.Second); ; {
		err := fetch()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the host has answered, but the chart is not returned: %v", err)
		}
	}
	if err := fetch(); err != nil || requests.Load() != 1 {
		t.Errorf("again: %v after %d downloads, want one for all", err, requests.Load())
	}
}
