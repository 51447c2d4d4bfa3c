package outbox

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// TestStates checks which events contain the state of an object. An event contains the state only if the watch list
// requests it, and if the object is small and can be read.
func TestStates(t *testing.T) {
	defer func(before time.Duration) { stateTimeout = before }(stateTimeout)
	stateTimeout = 10 * time.Minute // long enough for a slow machine
	var reads, endless atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads.Add(1)
		name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		if name == "gone" {
			http.NotFound(w, r)
			return
		}
		for name == "endless" {
			n, err := w.Write(make([]byte, 64<<10))
			endless.Add(int64(n))
			if err != nil {
				return
			}
		}
		padding := ""
		if name == "large" {
			padding = strings.Repeat("x", protocol.MaxStateBytes)
		}
		w.Header().Set("Content-Type", "application/json")
		version := strings.Join(strings.Split(r.URL.Path, "/")[2:4], "/")
		_, _ = fmt.Fprintf(w, `{"apiVersion":%q,"metadata":{"name":%q,"managedFields":[{}]},"spec":{"replicas":1,"template":{}},`+
			`"status":{"text":%q},"path":%q}`, version, name, padding, r.URL.Path)
	}))
	defer server.Close()
	client, err := rest.UnversionedRESTClientFor(metadata.ConfigFor(&rest.Config{Host: server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	list := &protocol.Watchlist{Watches: []protocol.Watch{
		{Group: "apps", Version: "v1", Resource: "deployments", State: true},
		{Group: "x.io", Version: "v1", Resource: "kedas", Namespace: "n", Name: "default", State: true},
		{Version: "v1", Resource: "configmaps"},
	}}
	states := &States{Client: client, Watchlist: func() *protocol.Watchlist { return list }}
	event := func(group, resource, name string) protocol.Event {
		return protocol.Event{Watched: protocol.Name{Namespace: "n", Name: name}, Resource: resource,
			WatchedGVK: metav1.GroupVersionKind{Group: group, Version: "v1"}, Object: &metav1.ObjectMeta{UID: "u"}}
	}
	deleted := event("apps", "deployments", "d")
	deleted.Deleted = true
	cases := map[string]struct {
		reason string
		event  protocol.Event
		want   string
		reads  int64
	}{
		"Workload": {"it is requested", event("apps", "deployments", "d"),
			`{"apiVersion":"apps/v1","metadata":{"name":"d"},"path":"/apis/apps/v1/namespaces/n/deployments/d","spec":{"replicas":1},` +
				`"status":{"text":""}}`, 1},
		"Resource": {"it is requested by name", event("x.io", "kedas", "default"),
			`{"apiVersion":"x.io/v1","metadata":{"name":"default"},"path":"/apis/x.io/v1/namespaces/n/kedas/default",` +
				`"spec":{"replicas":1,"template":{}},"status":{"text":""}}`, 1},
		"Other":   {"only one object is requested", event("x.io", "kedas", "other"), "", 0},
		"Content": {"it is not requested", event("", "configmaps", "c"), "", 0},
		"Deleted": {"there is nothing to read", deleted, "", 0},
		"Gone":    {"it was deleted meanwhile", event("apps", "deployments", "gone"), "", 1},
		"Large":   {"the manager reads it", event("apps", "deployments", "large"), "", 1},
		"Endless": {"no more than the limit is read", event("apps", "deployments", "endless"), "", 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := reads.Load()
			states.addStates(t.Context(), &c.event)
			if got := string(c.event.State); got != c.want || reads.Load()-before != c.reads {
				t.Errorf("%s: got %s after %d reads", c.reason, got, reads.Load()-before)
			}
		})
	}
	if sent := endless.Load(); sent > 16<<20 { // more than the limit, because of the buffers of the connection
		t.Errorf("%d bytes of an endless object were sent", sent)
	}
	start := protocol.Event{WatchStarted: true, ObjectsComplete: true, Resource: "deployments",
		WatchedGVK: metav1.GroupVersionKind{Group: "apps", Version: "v1"},
		Objects:    []metav1.ObjectMeta{{Name: "gone", Namespace: "n"}, {Name: "d", Namespace: "n"}}}
	states.addStates(t.Context(), &start)
	if len(start.States) != 2 || start.States[0] != nil || start.States[1] == nil {
		t.Errorf("the start of a watch has the states %s", start.States)
	}
}
