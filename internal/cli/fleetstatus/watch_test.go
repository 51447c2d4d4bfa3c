package fleetstatus

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// TestWatchStatus checks that each change is shown, and that a watch that ends or has missed events is started again.
func TestWatchStatus(t *testing.T) {
	kyma := func(name, state, version string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":%q},"spec":{"channel":"regular"},"status":{"state":%q}}`, name, version, state)
	}
	out := fixture.NewBuffer()
	var mu sync.Mutex
	var asked []string // guarded by mu: the requests, in their order
	lists, watches := 0, 0
	last := make(chan struct{}) // closed when the watch came that does not end
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if !strings.HasSuffix(r.URL.Path, "/kymas") {
			http.NotFound(w, r) // Leases and the Deployment of the manager
			return
		}
		q := r.URL.Query()
		if q.Get("watch") == "" {
			lists++
			asked = append(asked, "list")
			items := kyma("a", "Ready", "1")
			if lists > 1 {
				items += "," + kyma("c", "Warning", "20")
			}
			fmt.Fprintf(w, `{"items":[%s],"metadata":{"resourceVersion":"%d"}}`, items, lists*10)
			return
		}
		watches++
		asked = append(asked, "watch "+q.Get("resourceVersion"))
		switch watches {
		case 1: // ends, as they do
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}{"type":"MODIFIED","object":%s}`, kyma("b", "Error", "11"),
				kyma("a", "Processing", "12"))
			fmt.Fprint(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"15"}}}`)
		case 2: // came too late
			mu.Unlock()
			out.Wait(r.Context(), "1 Error, 1 Processing")
			mu.Lock()
			fmt.Fprintf(w, `{"type":"DELETED","object":%s}`, kyma("b", "Error", "16"))
			fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old"}}`)
		default:
			w.(http.Flusher).Flush()
			if watches == 3 {
				close(last)
			}
			mu.Unlock()
			<-r.Context().Done()
			mu.Lock()
		}
	}))
	defer server.Close()
	c, err := connection.New(&rest.Config{Host: server.URL}, "prod", v1beta2.ControlPlaneNamespace)
	if err != nil {
		t.Fatal(err)
	}
	a := &console.App{Streams: console.Streams{Out: out}, Config: &config.Klm{Output: config.FormatTable},
		Now: func() time.Time { return fixture.Noon }}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- watchStatus(ctx, a, c, &console.Listing{}, 10) }()
	out.Wait(ctx, "1 Warning, 1 Ready") // the second list
	select {
	case <-last:
	case <-ctx.Done():
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, want := range []string{"1 Error, 1 Processing", "1 Warning, 1 Ready"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it was never shown that there is %s:\n%s", want, out)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(asked, ", "); got != "list, watch 10, watch 15, list, watch 20" {
		t.Errorf("asked for %s", got)
	}
}
