package cli

import (
	"bytes"
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
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// buffer is what is written, for a test that looks while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (b *buffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(data)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestWatchStatus: changes are shown as they come, and a watch that breaks or has missed something is begun again.
func TestWatchStatus(t *testing.T) {
	kyma := func(name, state, version string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":%q},"spec":{"channel":"regular"},"status":{"state":%q}}`, name, version, state)
	}
	var mu sync.Mutex
	var asked []string // guarded by mu: what was asked for, in its order
	lists, watches := 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
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
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}{"type":"MODIFIED","object":%s}`, kyma("b", "Error", "11"), kyma("a", "Processing", "12"))
			fmt.Fprint(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"15"}}}`)
		case 2: // came too late
			fmt.Fprintf(w, `{"type":"DELETED","object":%s}`, kyma("b", "Error", "16"))
			fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old"}}`)
		default:
			w.(http.Flusher).Flush()
			mu.Unlock()
			<-r.Context().Done()
			mu.Lock()
		}
	}))
	defer server.Close()
	c, err := clusterOf(&rest.Config{Host: server.URL}, "prod", v1beta2.ControlPlaneNamespace)
	if err != nil {
		t.Fatal(err)
	}
	out := &buffer{}
	a := &app{Streams: Streams{Out: out}, config: &config.Klm{Output: config.FormatTable}, now: func() time.Time { return noon }}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.watchStatus(ctx, c, "", 10) }()
	for !strings.Contains(out.String(), "1 Warning, 1 Ready") && ctx.Err() == nil { // the second list
		<-time.After(10 * time.Millisecond)
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
