package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/internal/agent/outbox"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// freeAddress returns an address on which no process listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// get returns the status code and the body of an answer; the status code is 0 if the server does not answer.
func get(client *http.Client, url string) (int, string) {
	answer, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body)
}

// TestRun runs all parts of the agent together. The test needs no real API server: its HTTP server serves only the
// ConfigMap with the watch list and the Secret. Package playground/agent tests the agent with a real API server.
func TestRun(t *testing.T) {
	config, secret := make(chan string, 10), make(chan string, 10)
	send := func(w http.ResponseWriter, r *http.Request, from <-chan string) {
		w.(http.Flusher).Flush()
		for {
			select {
			case event := <-from:
				fmt.Fprintln(w, event)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
	object := func(version int, data string) string {
		body, _ := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": fmt.Sprint(version)},
			"data": map[string]string{protocol.WatchlistKey: data}})
		return string(body)
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api/v1/namespaces/kyma-system/secrets":
			switch {
			case r.URL.Query().Get("fieldSelector") != "metadata.name=skr-webhook-tls":
				w.WriteHeader(http.StatusForbidden)
			case r.Header.Get("Accept") != "application/json;as=PartialObjectMetadata"+
				map[bool]string{true: "List"}[r.URL.Query().Get("watch") == ""]+";g=meta.k8s.io;v=v1":
				w.WriteHeader(http.StatusNotAcceptable) // as an API server does
			case r.URL.Query().Get("watch") == "":
				fmt.Fprint(w, `{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"skr-webhook-tls"}}]}`)
			default:
				send(w, r, secret)
			}
		case r.URL.Path != "/api/v1/namespaces/kyma-system/configmaps" ||
			r.URL.Query().Get("fieldSelector") != "metadata.name=skr-webhook-watches":
			w.WriteHeader(http.StatusNotFound)
		case r.URL.Query().Get("watch") == "":
			fmt.Fprint(w, `{"metadata":{"resourceVersion":"1"},"items":[]}`)
		default:
			w.(http.Flusher).Flush()
			for version := 2; ; version++ {
				select {
				case data := <-config:
					fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`+"\n", object(version, data))
					w.(http.Flusher).Flush()
				case <-r.Context().Done():
					return
				}
			}
		}
	}))
	t.Cleanup(func() { api.CloseClientConnections(); api.Close() })
	l := newRemote(t, 0)
	a, _ := agentFor(t, l)
	o := a.o
	o.Config, o.WebhookAddress, o.MetricsAddress = &rest.Config{Host: api.URL}, freeAddress(t), freeAddress(t)
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	eventually := func(what string, check func() bool) {
		t.Helper()
		for end := time.Now().Add(deadline); !check(); <-time.After(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	beat := func() (h protocol.Heartbeat) {
		for _, r := range l.all() {
			if strings.HasSuffix(r.path, "/heartbeat") {
				h, _ = protocol.ParseHeartbeat([]byte(r.body))
			}
		}
		return h
	}
	eventually("the first heartbeat says that there is no watch list",
		func() bool { return strings.Contains(beat().Problem, "does not exist") })
	plain := &http.Client{}
	defer plain.CloseIdleConnections()
	// answer returns the answer to a request. The servers close a connection without an answer if its request comes too
	// late; on a slow machine, several attempts may be needed.
	answer := func(path string) (status int, body string) {
		t.Helper()
		eventually("there is no answer to "+path, func() bool {
			status, body = get(plain, "http://"+o.MetricsAddress+path)
			return status != 0
		})
		return status, body
	}
	if status, body := answer("/healthz"); status != http.StatusOK {
		t.Errorf("it is alive: %d %s", status, body)
	}
	if status, body := answer("/readyz"); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, "skr-webhook-watches") {
		t.Errorf("it is not ready: %d %s", status, body)
	}
	config <- `{"watches":[],"heartbeat":"1s"}`
	eventually("it becomes ready", func() bool {
		status, _ := get(plain, "http://"+o.MetricsAddress+"/readyz")
		return status == http.StatusOK
	})
	eventually("and says so", func() bool { return beat().Watchlist != "" && beat().Problem == "" })
	of := `"object":{"metadata":{"name":"skr-webhook-tls","resourceVersion":"2"}}}`
	secret <- `{"type":"DELETED",` + of
	eventually("the Secret of its certificate is deleted, which the mounted files do not show", func() bool {
		return strings.Contains(beat().Problem, "Secret kyma-system/skr-webhook-tls")
	})
	secret <- `{"type":"ADDED",` + of
	eventually("there is another one", func() bool { return beat().Problem == "" })
	config <- `nonsense`
	eventually("a bad list is a problem", func() bool {
		return beat().Watchlist != "" &&
			strings.Contains(beat().Problem, "JSON")
	})

	roots := x509.NewCertPool()
	roots.AddCert(l.root.Leaf)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots,
			MaxVersion: version, MinVersion: tls.VersionTLS12}}}
		post := func() error {
			answer, err := client.Post("https://"+o.WebhookAddress+"/validate/someone", "application/json",
				bytes.NewBufferString(called("DELETE", "", `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"x"}}`,
					"")))
			if err == nil {
				_ = answer.Body.Close()
			}
			return err
		}
		if version == tls.VersionTLS13 {
			eventually("the webhook does not answer", func() bool { return post() == nil })
		} else if post() == nil {
			t.Errorf("TLS %x is accepted", version)
		}
		client.CloseIdleConnections()
	}
	eventually("the event of the webhook is delivered", func() bool {
		for _, r := range l.all() {
			if r.path == "/v2/someone/event" && strings.HasPrefix(
				r.body, `{"watched":{"Namespace":"","Name":"x"},"watchedGvk":{"group":"","version":"v1","kind":"Thing"},`) {
				return true
			}
		}
		return false
	})
	if status, body := answer("/metrics"); status != http.StatusOK ||
		!strings.Contains(body, "\nwatcher_kcp_requests_total 1\n") {
		t.Errorf("metrics: %d\n%s", status, body)
	}
}

// TestRunPortTaken checks that Run returns an error if a port is not available.
func TestRunPortTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	a, _ := agentFor(t, newRemote(t, 0))
	a.o.MetricsAddress = taken.Addr().String()
	if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("got %v", err)
	}
}

func TestOptionsFrom(t *testing.T) {
	o := OptionsFromConfig(&config.Agent{
		CACert: "ca", TLSCert: "cert", TLSKey: "key", KCPAddr: "listener:1", KCPContract: "v2", WebhookPort: 2,
		MetricsPort: 3, BindAddress: "::1", Watchlist: "ns/name",
	}, &rest.Config{}, "4", logr.Discard())
	if o.Watchlist.String() != "ns/name" || o.WebhookAddress != "[::1]:2" || o.MetricsAddress != "[::1]:3" ||
		o.CA+o.Certificate+o.Key != "cacertkey" || o.Address != "listener:1" || o.Contract != "v2" || o.Version != "4" {
		t.Errorf("got %+v", o)
	}
}

// TestWatchlistManagers checks that the agent keeps the events for a manager on its watch list, and drops the events
// for another manager that the listener does not know.
func TestWatchlistManagers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := New(Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Address: "localhost:1", CA: "a",
			Certificate: "b", Key: "c"})
		if err != nil {
			t.Fatal(err)
		}
		list := protocol.Watchlist{Watches: []protocol.Watch{{Manager: "m", Version: "v1", Resource: "things"}}}
		a.watchlist.Store(&list) // so that the agent need not start a watch
		data, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		a.applyWatchlist(t.Context(), &configMap{Data: map[string]string{protocol.WatchlistKey: string(data)}})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() {
			a.queue.Run(ctx, func(context.Context, string, protocol.Event) outbox.Result {
				return outbox.Result{UnknownManager: true}
			})
		})
		for _, manager := range []string{"m", "gone"} {
			a.queue.Add(manager, outbox.Change{Event: event("a")})
		}
		time.Sleep(time.Hour)
		for manager, want := range map[string]int{"m": 1, "gone": 0} {
			if _, pending, _ := a.queue.State(manager); pending != want {
				t.Errorf("%d events for %s are pending, want %d", pending, manager, want)
			}
		}
	})
}
