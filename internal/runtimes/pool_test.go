package runtimes

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// longTimeout is the timeout of connections, probes and requests. No test waits so long, unless it fails. With the
// default timeouts, a test would take a runtime on a slow machine for unreachable.
const longTimeout = 10 * time.Minute

// TestMain replaces the timeouts that are the same for all pools.
func TestMain(m *testing.M) {
	netDialer.Timeout, probeTimeout = longTimeout, longTimeout
	m.Run()
}

// server is a fake API server of a runtime. server accepts one token and counts requests.
type server struct {
	*httptest.Server
	token    atomic.Pointer[string]
	requests atomic.Int64 // without probes
	probes   atomic.Int64
	closed   chan struct{} // has an element for each of the first 8 connections that were closed and not received yet
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{closed: make(chan struct{}, 8)}
	s.token.Store(new("first"))
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api" {
			s.probes.Add(1)
		} else {
			s.requests.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer "+*s.token.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(
				w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401,"message":"Unauthorized"}`)
			return
		}
		_, _ = fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"u"}}`)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state != http.StateClosed {
			return
		}
		select {
		case s.closed <- struct{}{}:
		default:
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *server) kubeconfig(token string) []byte {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],
"clusters":[{"name":"k","cluster":{"server":%q,"certificate-authority-data":%q}}],"users":[{"name":"u","user":{"token":%q}}]}`,
		s.URL, encode(ca), token)
}

// secret returns an access Secret of runtime "a".
func secret(name string, kubeconfig []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: name,
			Labels: map[string]string{kymaNameLabel: "a"}},
		Data: map[string][]byte{kubeconfigKey: kubeconfig},
	}
}

// newPool returns a pool whose control plane has the given Secrets.
func newPool(t *testing.T, objects ...client.Object) (*Pool, client.Client) {
	t.Helper()
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	kcp := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).
		WithIndex(&corev1.Secret{}, KymaNameIndex, KymaIndexValues).Build()
	// A large answer takes seconds, because answer.Transport reads it at a limited rate.
	pool, err := New(t.Context(), Options{Cache: kcp, Live: kcp, Namespace: "kcp-system", Timeout: longTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Remove("a") })
	return pool, kcp
}

// TestGetIfOpen checks that GetIfOpenOrNoAgents does not make the first connection, and that it returns an error about
// the access Secret.
func TestGetIfOpen(t *testing.T) {
	s := newServer(t)
	pool, kcp := newPool(t, secret("x", s.kubeconfig("first")))
	if rt, err := pool.GetIfOpenOrNoAgents(t.Context(), "a"); err != nil || rt == nil {
		t.Errorf("where nobody tells what happens, got %v, %v, want a connection", rt, err)
	}
	pool.Remove("a")
	pool.opts.Agents = true
	if rt, err := pool.GetIfOpenOrNoAgents(t.Context(), "a"); err != nil || rt != nil {
		t.Errorf("got %v, %v, want no connection", rt, err)
	}
	if _, err := pool.GetIfOpenOrNoAgents(t.Context(), "b"); codeOf(err) != "AccessSecretNotFound" {
		t.Errorf("without access Secret: %v", err)
	}
	rt, err := pool.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := pool.GetIfOpenOrNoAgents(t.Context(), "a"); err != nil || again != rt {
		t.Errorf("got %v, %v, want the connection that is there", again, err)
	}
	if err := kcp.Delete(t.Context(), secret("x", nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.GetIfOpenOrNoAgents(t.Context(), "a"); codeOf(err) != "AccessSecretNotFound" {
		t.Errorf("without the Secret of a connection that is there: %v", err)
	}
}

// codeOf returns the code of an Error, or "" for any other error.
func codeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

var someRef = apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: "b", Name: "a"}

func TestGetErrors(t *testing.T) {
	s := newServer(t)
	cases := map[string]struct {
		reason  string
		secrets []client.Object
		code    string
	}{
		"None": {"nobody said how to get there", nil, "AccessSecretNotFound"},
		"Two": {"nobody said which is right", []client.Object{secret("x", s.kubeconfig("first")),
			secret("y", s.kubeconfig("first"))}, "AccessSecretAmbiguous"},
		"Garbage": {"the Secret holds no kubeconfig", []client.Object{secret("x", []byte("{{"))}, "KubeconfigInvalid"},
		"Good": {"a good one is taken without asking the runtime",
			[]client.Object{secret("x", s.kubeconfig("first"))}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pool, _ := newPool(t, c.secrets...)
			_, err := pool.Get(t.Context(), "a")
			code := ""
			if e, ok := errors.AsType[*Error](err); ok {
				code = e.Reason()
			} else if err != nil {
				t.Fatal(err)
			}
			if code != c.code {
				t.Errorf("%s: got %q (%v), want %q", c.reason, code, err, c.code)
			}
		})
	}
	if n := s.requests.Load() + s.probes.Load(); n != 0 {
		t.Errorf("Get sent %d requests to the runtime, want none", n)
	}
}

func TestConnectionFollowsTheCredential(t *testing.T) {
	s := newServer(t)
	access := secret("x", s.kubeconfig("first"))
	pool, kcp := newPool(t, access)
	first, err := pool.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := pool.Get(t.Context(), "a"); again != first {
		t.Error("an unchanged Secret gives another connection, want the same")
	}
	events := make(chan Event, 10)
	pool.Subscribe("a", Subscriber{Key: "k", Notify: func(s Event) { events <- s }})
	s.token.Store(new("second"))
	access.Data[kubeconfigKey] = s.kubeconfig("second")
	if err := kcp.Update(t.Context(), access); err != nil {
		t.Fatal(err)
	}
	second, err := pool.Get(t.Context(), "a")
	if err != nil || second == first {
		t.Fatalf("a changed Secret gives the same connection (%v), want another", err)
	}
	if _, err := second.Get(t.Context(), someRef); err != nil {
		t.Errorf("the new credential is not used: %v", err)
	}
	if seen := <-events; !seen.ConnectionChanged {
		t.Errorf("subscribers are notified of %+v, want that the connection changed", seen)
	}
	if err := kcp.Delete(t.Context(), access); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Get(t.Context(), "a"); err == nil || pool.connectionIfOpen("a") != nil {
		t.Error("a removed Secret leaves a connection, want none")
	}
}

// TestCloseIdleConnections checks that an idle TCP connection is closed, and that the next request opens another one.
func TestCloseIdleConnections(t *testing.T) {
	s := newServer(t)
	pool, _ := newPool(t, secret("x", s.kubeconfig("first")))
	for range 2 {
		rt, err := pool.Get(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rt.Get(t.Context(), someRef); err != nil {
			t.Fatal(err)
		}
		rt.CloseIdleConnections()
		select {
		case <-s.closed:
		case <-time.After(longTimeout):
			t.Fatal("the connection is still open")
		}
	}
}

func TestBreaker(t *testing.T) {
	s := newServer(t)
	pool, _ := newPool(t, secret("x", s.kubeconfig("first")))
	rt, err := pool.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan Event, 10)
	pool.Subscribe("a", Subscriber{Key: "k", Notify: func(s Event) { events <- s }})

	s.token.Store(new("other")) // as if the credential had been revoked
	if _, err := rt.Get(t.Context(), someRef); err == nil {
		t.Fatal("a revoked credential works, want 401")
	}
	<-events
	if _, err := pool.Get(t.Context(), "a"); reasonOf(err) != "RuntimeUnauthorized" {
		t.Fatalf("Get says %v, want RuntimeUnauthorized", err)
	}
	before := s.requests.Load()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { _, _ = rt.Get(t.Context(), someRef) })
	}
	wg.Wait()
	if sent := s.requests.Load() - before; sent != 0 {
		t.Errorf("%d requests reached a runtime with an open breaker, want only probes", sent)
	}
	s.token.Store(new("first"))
	<-events // a probe has detected this
	if got, err := pool.Get(t.Context(), "a"); err != nil || got != rt {
		t.Errorf("after the runtime is back, Get gives %v, want the same connection", err)
	}
}

func TestUnreachableMessageIsStable(t *testing.T) {
	s := newServer(t)
	pool, _ := newPool(t, secret("x", s.kubeconfig("first")))
	rt, err := pool.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	_, _ = rt.Get(t.Context(), someRef)
	_, err = pool.Get(t.Context(), "a")
	want := &Error{Code: "RuntimeUnreachable", Runtime: "a", Message: s.URL +
		" does not answer (connection refused): check that the cluster runs and that the control plane can reach it"}
	if diff := cmp.Diff(want, err); diff != "" {
		t.Errorf("error differs (-want +got):\n%s", diff)
	}
}

// TestProbesOfDeadRuntime counts the probes that are sent to a runtime that does not answer.
func TestProbesOfDeadRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Duration
		begin := time.Now()
		b := &breaker{runtime: "a", base: "https://dead.example.com", changed: func() {}}
		b.next = roundTrip(func(*http.Request) (*http.Response, error) {
			sent = append(sent, time.Since(begin))
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.base+"/api", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = b.RoundTrip(req) //nolint:bodyclose // there is none
		time.Sleep(time.Hour)
		synctest.Wait()
		b.stop()
		for i, at := range sent {
			if i+1 == len(sent) {
				break
			}
			next := sent[i+1]
			if at > time.Minute && next-at < time.Minute {
				t.Errorf("probes at %s and %s, want at least a minute between them", at, next)
			}
			if next-at > 2*time.Minute {
				t.Errorf("no probe between %s and %s", at, next)
			}
		}
		if len(sent) < 5 || sent[4] > time.Minute {
			t.Errorf("probes at %v, want a short outage to be over soon", sent)
		}
	})
}

// roundTrip answers requests.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// reasonOf returns the code of an Error, or "" for any other error.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

func encode(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// TestProbeNow checks that probeNow sends a probe at once. Without probeNow, a person who has repaired a runtime would
// have to wait up to a minute for the next probe.
func TestProbeNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		var sent, changed atomic.Int64
		b := &breaker{runtime: "a", base: "https://dead.example.com", changed: func() { changed.Add(1) }}
		b.next = roundTrip(func(*http.Request) (*http.Response, error) {
			sent.Add(1)
			if !mended.Load() {
				return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})
		b.probeNow() // a closed breaker sends no probe
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.base+"/api", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = b.RoundTrip(req) //nolint:bodyclose // there is none
		time.Sleep(time.Hour)
		synctest.Wait()
		before := sent.Load()
		for range 10 { // many requests send one probe
			b.probeNow()
		}
		synctest.Wait()
		if sent.Load() != before+1 || b.err() == nil {
			t.Fatalf("%d probes at once, want 1; %v", sent.Load()-before, b.err())
		}
		time.Sleep(3 * time.Second) // the delay starts at its minimum again
		synctest.Wait()
		if sent.Load() < before+3 {
			t.Errorf("%d probes in the 3 seconds after the retry, want at least 2 more", sent.Load()-before-1)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		before = sent.Load()
		mended.Store(true)
		changed.Store(0)
		b.probeNow()
		synctest.Wait()
		if b.err() != nil || changed.Load() != 1 {
			t.Errorf("after the runtime was mended: %v, %d notifications", b.err(), changed.Load())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if sent.Load() != before+1 {
			t.Errorf("%d probes of a runtime that answers, want 1", sent.Load()-before)
		}
		b.stop()
	})
}

// TestHostileRuntime checks that the connections of the pool refuse responses that a real API server never sends.
func TestHostileRuntime(t *testing.T) {
	reached := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer elsewhere.Close()
	tests := map[string]struct {
		reason string
		answer http.HandlerFunc
		want   string
	}{
		"Redirect": {"the token goes nowhere else", http.RedirectHandler(elsewhere.URL, http.StatusFound).ServeHTTP,
			"redirect"},
		"Structs": {"an answer that becomes gigabytes", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, `{"kind":"ConfigMap","metadata":{"managedFields":[`)
			for {
				if _, err := fmt.Fprint(w, strings.Repeat("{},", 1<<16)); err != nil {
					return
				}
			}
		}, "larger than what an API server sends"},
		"Headers": {"headers without end", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Large", strings.Repeat("x", 1<<20))
		}, "connection broken"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.Config.Handler = tc.answer
			pool, _ := newPool(t, secret("a", s.kubeconfig("first")))
			rt, err := pool.Get(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			_, err = rt.Get(t.Context(), apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: "b", Name: "a"})
			_, again := pool.Get(t.Context(), "a")
			if said := fmt.Sprint(err, again); !strings.Contains(said, tc.want) {
				t.Errorf("%s: got %s, want %q", tc.reason, said, tc.want)
			}
		})
	}
	if reached {
		t.Error("a redirect was followed")
	}
}

// TestProbeWithoutConnection checks that Probe sends no request if there is no connection, and that the next Get makes
// a connection.
func TestProbeWithoutConnection(t *testing.T) {
	pool, _ := newPool(t)
	pool.Probe("nobody")
}

// TestLargeObjects checks lists whose objects together are too large for one answer. Reconciles and watches must read
// such a list in smaller pages, so that the manager needs no more memory for this runtime than Options.Memory.
func TestLargeObjects(t *testing.T) {
	const objects = 20 // of 1 MiB; an answer may have 12 MiB
	text := strings.Repeat("x", 1<<20)
	var limits sync.Map // the limits of the requests, by kind
	s := newServer(t)
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "" {
			<-r.Context().Done()
			return
		}
		resource := path.Base(r.URL.Path)
		list := map[string]string{"configmaps": "ConfigMapList", "secrets": "SecretList"}[resource]
		if list == "" {
			_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","resources":[`+
				`{"name":"configmaps","namespaced":true,"kind":"ConfigMap"}]}`)
			return
		}
		limit, first := 0, 0
		_, _ = fmt.Sscan(r.URL.Query().Get("limit"), &limit)
		_, _ = fmt.Sscan(r.URL.Query().Get("continue"), &first)
		before, _ := limits.LoadOrStore(resource, "")
		limits.Store(resource, fmt.Sprint(before, limit, " "))
		end := min(first+limit, objects)
		next := ""
		if end < objects {
			next = strconv.Itoa(end)
		}
		_, _ = fmt.Fprintf(w, `{"kind":%q,"metadata":{"resourceVersion":"7","continue":%q},"items":[`, list, next)
		for i := first; i < end; i++ {
			_, _ = fmt.Fprintf(w, `{"metadata":{"name":"o%d","namespace":"b","uid":"u%d","annotations":{"a":%q}}}`, i, i, text)
			if i < end-1 {
				_, _ = fmt.Fprint(w, ",")
			}
		}
		_, _ = fmt.Fprint(w, "]}")
	})
	_, kcp := newPool(t, secret("a", s.kubeconfig("first")))
	pool, err := New(t.Context(), Options{Cache: kcp, Live: kcp, Namespace: "kcp-system", Watch: true,
		Memory: 16 << 20, AnswerRate: 1 << 30, Timeout: longTimeout})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Remove("a")
	rt, err := pool.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	found, err := rt.List(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "b")
	got, _ := limits.Load("configmaps")
	if err != nil || len(found) != objects || got != "500 125 31 7 7 7 " {
		t.Errorf("%d objects with limits %v, %v", len(found), got, err)
	}
	events := make(chan Event, 16)
	pool.Subscribe("a", Subscriber{Key: "k", Notify: func(e Event) { events <- e }, Interests: []Interest{
		{Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Kind: "Secret"}}})
	for e := range events {
		if e.Listed || e.Missed {
			break
		}
	}
	if got, _ := limits.Load("secrets"); got != "500 125 31 7 7 7 " {
		t.Errorf("the watch has listed with limits %v", got)
	}
}
