package backchannel

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/clientcert"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// TestReplicas checks that every replica forwards a report to the replica that holds the shard of the runtime.
func TestReplicas(t *testing.T) {
	ca := newRoot(t, "ca")
	var address atomic.Value
	address.Store("")
	peers := func(o *Options) { o.Peers = []string{serverName} }
	leader := listen(t, func(o *Options) {
		peers(o)
		o.NextHeartbeat = func() time.Duration { return 303*time.Second + time.Millisecond }
	}, ca)
	unidentified := listen(t, nil, ca) // accepts no forwarded requests
	replica := listen(t, func(o *Options) {
		peers(o)
		o.Leader = func(string) (string, bool) { return address.Load().(string), false }
	}, ca)
	var muteAddress atomic.Value
	impatient := listen(t, func(o *Options) { // only for a replica that does not answer
		peers(o)
		o.Leader = func(string) (string, bool) { return muteAddress.Load().(string), false }
		o.Limits.ForwardTimeout = 300 * time.Millisecond
	}, ca)
	leader.add("a")
	replica.add("a", "c")
	impatient.add("a")
	c := client(t, ca, ca.issue(t, certRequest{name: "a", uid: "uid-a"}))
	saysTo := func(to *testListener, path, body string, want int, when string) reply {
		t.Helper()
		got := call(t, c, "POST", to.url(path), body)
		if got.status != want {
			t.Errorf("%s: got %d %q, want %d", when, got.status, got.body, want)
		}
		if retry := got.header.Get("Retry-After") != ""; retry != (want == 503) {
			t.Errorf("%s: Retry-After is %q", when, got.header.Get("Retry-After"))
		}
		return got
	}
	says := func(path, body string, want int, when string) reply {
		t.Helper()
		return saysTo(replica, path, body, want, when)
	}
	says(eventPath, recorded, 503, "nobody works")
	address.Store(leader.TLSAddress())
	for range 3 {
		if got := says(eventPath, recorded, 200, "forwarded"); got.header.Get(
			protocol.HeaderInstance) != leader.instance {
			t.Error("the answer does not say which process works")
		}
	}
	if got := says(heartbeatPath, `{"boot":"x"}`, 200, "forwarded").header.Get(
		protocol.HeaderNextHeartbeat); got != "303" {
		t.Errorf("the next heartbeat is wanted in %q s, want 303, as the one that works says", got)
	}
	says(eventPath, `{`, 400, "the answer comes back")
	if _, heard := leader.State("kyma-a"); !heard || len(leader.deliveredEvents("kyma-a")) != 3 {
		t.Errorf("the one that works has %d events, want 3, or no heartbeat", len(leader.deliveredEvents("kyma-a")))
	}
	if _, heard := replica.State("kyma-a"); heard || len(replica.deliveredEvents("kyma-a")) > 0 {
		t.Error("the other one has taken what it has passed on")
	}
	if got := call(t, client(t, ca, ca.issue(t, certRequest{name: "c"})), "POST", replica.url(eventPath),
		recorded); got.status != 403 {
		t.Errorf("got %d, want 403 of the one that works, as it is", got.status)
	}

	address.Store(replica.TLSAddress())
	says(eventPath, recorded, 503, "a request does not go round in circles")
	address.Store(unidentified.TLSAddress())
	says(eventPath, recorded, 503, "a replica that does not believe us")
	address.Store(closedAddress)
	says(eventPath, recorded, 503, "a replica that is removed")

	hold := make(chan struct{})
	mute := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	mute.TLS = &tls.Config{Certificates: []tls.Certificate{*ca.issue(
		t, certRequest{name: serverName, dns: []string{serverName}})}}
	mute.StartTLS()
	defer mute.Close()
	defer close(hold)
	muteAddress.Store(mute.Listener.Addr().String())
	saysTo(impatient, eventPath, recorded, 503, "a replica that does not answer")

	other := httptest.NewUnstartedServer(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { t.Error("a unidentified gets events") }))
	other.TLS = &tls.Config{Certificates: []tls.Certificate{*ca.issue(
		t, certRequest{name: "a", uid: "uid-a", dns: []string{"a.test"}})}}
	other.StartTLS()
	defer other.Close()
	address.Store(other.Listener.Addr().String())
	says(eventPath, recorded, 503, "a runtime is no replica")

	address.Store(leader.TLSAddress())
	says(eventPath, recorded, 200, "the replica is back")
}

// TestReplicasRotate changes the roots, and the certificates of the replicas, while connections are open.
func TestReplicasRotate(t *testing.T) {
	first, second := newRoot(t, "ca"), newRoot(t, "ca")
	var serving atomic.Pointer[tls.Certificate]
	serving.Store(first.issue(t, certRequest{name: serverName, dns: []string{serverName}}))
	options := func(o *Options) {
		o.Peers = []string{serverName}
		o.Certificate = func() (*tls.Certificate, error) { return serving.Load(), nil }
	}
	leader := listen(t, options, first)
	replica := listen(t, func(o *Options) {
		options(o)
		o.Leader = func(string) (string, bool) { return leader.TLSAddress(), false }
	}, first)
	for _, e := range []*testListener{leader, replica} {
		e.add("a")
	}
	trust := func(roots ...*x509.Certificate) {
		for _, e := range []*testListener{leader, replica} {
			e.mu.Lock()
			e.roots = roots
			e.mu.Unlock()
		}
	}
	old, renewed := client(t, first, first.issue(t, certRequest{name: "a"})),
		client(t, second, second.issue(t, certRequest{name: "a"}))
	// On a busy machine, the HTTP client may close a connection after a response, and open another one later.
	old.Transport.(*http.Transport).TLSClientConfig.RootCAs.AddCert(second.Certificate)
	says := func(c *http.Client, when string) {
		t.Helper()
		if got := call(t, c, "POST", replica.url(eventPath), recorded); got.status != 200 {
			t.Errorf("%s: got %d %q, want 200", when, got.status, got.body)
		}
	}
	says(old, "before")
	trust(first.Certificate, second.Certificate)
	says(old, "two roots")
	serving.Store(second.issue(t, certRequest{name: serverName, dns: []string{serverName}}))
	says(old, "another serving certificate")
	trust(second.Certificate)
	says(renewed, "the old root is removed")
	if n := len(leader.deliveredEvents("kyma-a")); n != 4 {
		t.Errorf("%d events, want 4", n)
	}
}

// kymaListener reads requests in the same way as the listener library of the Kyma project.
func kymaListener(w http.ResponseWriter, r *http.Request) {
	values := r.Header.Values(clientcert.Header)
	if r.Method != "POST" || r.URL.Path != "/v2/compass-manager/event" || len(values) == 0 || len(values[0]) > 32<<10 {
		http.Error(w, "refused", http.StatusUnauthorized)
		return
	}
	_, cert, _ := strings.Cut(values[0], "Cert=")
	if end := strings.IndexAny(cert, ";,"); end >= 0 {
		cert = cert[:end]
	}
	text, err := url.QueryUnescape(cert)
	if err != nil {
		http.Error(w, "refused", http.StatusUnauthorized)
		return
	}
	block, _ := pem.Decode([]byte(strings.Trim(text, `"`)))
	if block == nil {
		http.Error(w, "refused", http.StatusUnauthorized)
		return
	}
	c, err := x509.ParseCertificate(block.Bytes)
	body, _ := io.ReadAll(r.Body)
	if err != nil || c.Subject.CommonName != "a" || string(body) != recorded {
		http.Error(w, "refused", http.StatusUnauthorized)
		return
	}
	w.WriteHeader(200)
}

// TestRoute checks how the listener forwards events to another manager: that manager receives the events as if an
// ingress had sent them.
func TestRoute(t *testing.T) {
	ca := newRoot(t, "ca")
	middle := ca.newIntermediate(t)
	other := httptest.NewServer(http.HandlerFunc(kymaListener))
	defer other.Close()
	hold := make(chan struct{})
	stuck := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer stuck.Close()
	defer close(hold)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, strings.Repeat("no ", 9999), http.StatusTeapot)
	}))
	defer refusing.Close()
	routes := map[string]string{"compass-manager": other.URL + "/", "stuck": stuck.URL, "refusing": refusing.URL,
		"removed": "http://" + closedAddress}
	listenWith := func(routeTimeout time.Duration) *testListener {
		l := listen(t, func(o *Options) {
			o.Limits.RouteTimeout = routeTimeout
			o.Limits.PerRuntime = 100
			o.Route = func(manager string) (string, bool) { to, ok := routes[manager]; return to, ok }
			// In this test no replica reconciles runtimes; events for other managers must be forwarded nevertheless.
			o.Leader = func(string) (string, bool) { return "", false }
		}, ca)
		l.add("a")
		return l
	}
	e, impatient := listenWith(waitTimeout), listenWith(200*time.Millisecond)
	below := middle.issue(t, certRequest{name: "a"})
	below.Certificate = append(below.Certificate, middle.Raw)
	own := ca.issue(t, certRequest{name: "a"})
	cases := map[string]struct {
		reason, manager string
		of              *testListener
		own             *tls.Certificate
		want            int
	}{
		"Other":    {"the contract of the Kyma project", "compass-manager", e, own, 200},
		"Chain":    {"with certificates in between", "compass-manager", e, below, 200},
		"Refusing": {"its answer comes back", "refusing", e, own, 418},
		"Stuck":    {"it is not waited for", "stuck", impatient, own, 502},
		"Gone":     {"nobody is there", "removed", e, own, 502},
		"Unknown":  {"nobody wants it", "unknown", e, own, 404},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := call(t, client(t, ca, c.own), "POST", c.of.url(protocol.EventPath(c.manager)), recorded)
			if got.status != c.want || len(got.body) > maxResponseBytes {
				t.Errorf("%s: got %d %.80q, want %d", c.reason, got.status, got.body, c.want)
			}
			if got.status == 200 && got.header.Get(protocol.HeaderInstance) != "" {
				t.Errorf("%s: the answer of another manager has our instance", c.reason)
			}
		})
	}
	for _, l := range []*testListener{e, impatient} {
		if n := len(l.deliveredEvents("kyma-a")); n > 0 {
			t.Errorf("%d events of other managers were delivered here", n)
		}
		for range maxRouted {
			free, ok := l.relay.reserveSlot("stuck", maxRouted)
			if !ok {
				t.Fatal("a place was not given back")
			}
			defer free()
		}
	}
	c := client(t, ca, own)
	if got := call(t, c, "POST", e.url("/v2/stuck/event"), recorded); got.status != 503 {
		t.Errorf("got %d, want 503: a manager that is stuck takes no more requests", got.status)
	}
	if got := call(t, c, "POST", e.url("/v2/compass-manager/event"), recorded); got.status != 200 {
		t.Errorf("got %d, want 200: the other manager is not stuck", got.status)
	}
}
