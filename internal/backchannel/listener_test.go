package backchannel

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/clientcert"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

const (
	eventPath     = "/v2/lifecycle-manager/event"
	heartbeatPath = "/v2/lifecycle-manager/heartbeat"
	// The constant recorded is the body of a request that the agent of the Kyma project has sent.
	recorded = `{"watched":{"Namespace":"kyma-system","Name":"default"},"watchedGvk":{"group":"operator.kyma-project.io","version":"v1beta2","kind":"Kyma"}}`
	// serverName is the host name in the serving certificates.
	serverName = "listener.test"
	// closedAddress is an address at which nobody listens. Another process can get a free port of freeAddress, but not
	// this privileged port.
	closedAddress = "127.0.0.1:1"
	waitTimeout   = 10 * time.Minute // a test that passes does not wait so long
)

// testListener is a Listener that runs in a test, with records of the calls of its callbacks.
type testListener struct {
	*Listener
	plain string // where plain HTTP is served
	stop  context.CancelFunc
	done  chan error

	mu      sync.Mutex
	roots   []*x509.Certificate // guarded by mu, like the following fields
	fleet   map[string]Runtime  // by common name
	uids    map[string]string   // by common name
	events  map[string][]protocol.Event
	missed  []string
	changed []string
}

// listen starts a listener that trusts the given roots. A test may change the options of the listener before its start.
func listen(t testing.TB, change func(*Options), roots ...*root) *testListener {
	t.Helper()
	e := &testListener{fleet: map[string]Runtime{}, uids: map[string]string{},
		events: map[string][]protocol.Event{}, done: make(chan error, 1)}
	for _, r := range roots {
		e.roots = append(e.roots, r.Certificate)
	}
	serving := roots[0].issue(t, certRequest{name: serverName, dns: []string{serverName}})
	o := Options{
		Address:     "127.0.0.1:0",
		Roots:       func() []*x509.Certificate { return withLock(e, func() []*x509.Certificate { return e.roots }) },
		Certificate: func() (*tls.Certificate, error) { return serving, nil },
		Lookup:      e.lookup,
		Deliver: func(kyma string, event protocol.Event) {
			withLock(e, func() any { e.events[kyma] = append(e.events[kyma], event); return nil })
		},
		Missed:  func(kyma string) { withLock(e, func() any { e.missed = append(e.missed, kyma); return nil }) },
		Changed: func(kyma string) { withLock(e, func() any { e.changed = append(e.changed, kyma); return nil }) },
	}
	if change != nil {
		change(&o)
	}
	// The defaults are too short for a slow machine. A test that needs a short timeout sets it itself.
	for _, timeout := range []*time.Duration{&o.Limits.HeaderTimeout, &o.Limits.BodyTimeout,
		&o.Limits.ForwardTimeout, &o.Limits.RouteTimeout, &o.Limits.DrainTimeout} {
		setDefault(timeout, waitTimeout)
	}
	if o.ForwardedAddress != "" {
		o.ForwardedAddress = freeAddress(t)
		e.plain = "http://" + o.ForwardedAddress
	}
	var err error
	if e.Listener, err = New(o); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, e.stop = context.WithCancel(t.Context())
	go func() { e.done <- e.Start(ctx) }()
	t.Cleanup(func() {
		e.stop()
		if err := <-e.done; err != nil {
			t.Errorf("Start: %v", err)
		}
	})
	eventually(t, "it listens", func() bool { return e.Ready(nil) == nil })
	return e
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func withLock[T any](e *testListener, f func() T) T {
	e.mu.Lock()
	defer e.mu.Unlock()
	return f()
}

func (e *testListener) lookup(id protocol.Identity) (Runtime, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	rt, ok := e.fleet[id.CommonName]
	if !ok {
		return Runtime{}, errors.New("there is no such Kyma")
	}
	if id.UID != "" && id.UID != e.uids[id.CommonName] {
		return Runtime{}, errors.New("it is of another Kyma of this name")
	}
	return rt, nil
}

// add adds runtimes: for each name, a runtime with the Kyma kyma-<name> that has the UID uid-<name>.
func (e *testListener) add(names ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range names {
		e.fleet[name], e.uids[name] = Runtime{Kyma: "kyma-" + name}, "uid-"+name
	}
}

func (e *testListener) deliveredEvents(kyma string) []protocol.Event {
	return withLock(e, func() []protocol.Event { return slices.Clone(e.events[kyma]) })
}

func (e *testListener) notifiedMissed() []string {
	return withLock(e, func() []string { return slices.Clone(e.missed) })
}

func (e *testListener) notifiedChanged() []string {
	return withLock(e, func() []string { return slices.Clone(e.changed) })
}

// client returns an HTTP client with the client certificate in the parameter own. If own is nil, the HTTP client has no
// client certificate.
func client(t testing.TB, trusted *root, own *tls.Certificate) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(trusted.Certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: serverName,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if own == nil {
				return &tls.Certificate{}, nil
			}
			return own, nil
		},
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: waitTimeout}
}

// reply is an HTTP response.
type reply struct {
	status int
	body   string
	header http.Header
	close  bool
}

// call sends a request and returns the response. The parameter headers has a name, its value, the next name, its value,
// and so on.
func call(t testing.TB, c *http.Client, method, url, body string, headers ...string) reply {
	t.Helper()
	r, err := attempt(t.Context(), c, method, url, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func attempt(ctx context.Context, c *http.Client, method, url, body string, headers ...string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := c.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, string(text), res.Header, res.Close}, err
}

func (e *testListener) url(path string) string { return "https://" + e.TLSAddress() + path }

// eventually waits until the parameter "holds", a function, returns true. If this takes longer than waitTimeout,
// eventually fails the test.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(waitTimeout); !holds(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain: %s", waitTimeout, what)
		}
	}
}

func TestAnswers(t *testing.T) {
	ca, unidentified := newRoot(t, "ca"), newRoot(t, "unidentified")
	twin := newRoot(t, "ca") // the same name, another key
	e := listen(t, nil, ca)
	e.add("a", "b")
	e.fleet["c"] = Runtime{Kyma: "kyma-c", NotBefore: time.Now().Add(-time.Minute)}
	e.uids["c"] = "uid-c"
	valid := ca.issue(t, certRequest{name: "a", uid: "uid-a"})
	middle := ca.newIntermediate(t)
	below := middle.issue(t, certRequest{name: "a"})
	chained := *below
	chained.Certificate = append(chained.Certificate, middle.Raw)
	cases := map[string]struct {
		reason       string
		own          *tls.Certificate
		method, path string
		body         string
		want         int
		closes       bool
	}{
		"Event": {
			reason: "a hint is taken",
			own:    valid,
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   200,
		},
		"Heartbeat": {
			reason: "so is a sign of life",
			own:    valid,
			method: "POST",
			path:   heartbeatPath,
			body:   `{"boot":"x"}`,
			want:   200,
		},
		"Chain": {
			reason: "a certificate may come with what leads to a root",
			own:    &chained,
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   200,
		},
		"NoUsage": {
			reason: "cert-manager issues certificates without extended usage for the reference",
			own:    ca.issue(t, certRequest{name: "a", usage: []x509.ExtKeyUsage{}}),
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   200,
		},
		"IncompleteChain": {
			reason: "without it, nobody knows",
			own:    middle.issue(t, certRequest{name: "a"}),
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   401,
			closes: true,
		},
		"NoCertificate": {
			reason: "nobody speaks for a runtime without one",
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   401,
			closes: true,
		},
		"WrongAuthority": {
			reason: "nor with one that anybody can make",
			own:    unidentified.issue(t, certRequest{name: "a", uid: "uid-a"}),
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   401,
			closes: true,
		},
		"AuthorityByName": {
			reason: "an authority is a key, not a name",
			own:    twin.issue(t, certRequest{name: "a", uid: "uid-a"}),
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   401,
			closes: true,
		},
		"Expired": {
			reason: "it ended",
			own:    ca.issue(t, certRequest{name: "a", from: -2 * time.Hour, valid: -time.Hour}),
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   401,
			closes: true,
		},
		"NotYetValid": {
			reason: "it has not begun",
			own:    ca.issue(t, certRequest{name: "a", from: time.Hour, valid: 2 * time.Hour}),
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   401,
			closes: true,
		},
		"ServerOnly": {
			reason: "a certificate for servers is not one for clients",
			own:    ca.issue(t, certRequest{name: "a", usage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}),
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   401,
			closes: true,
		},
		"Revoked": {
			reason: "it was issued before the mark",
			own:    ca.issue(t, certRequest{name: "c", uid: "uid-c", issuedAt: time.Now().Add(-30 * time.Minute)}),
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   401,
			closes: true,
		},
		"RevokedOfOthers": {
			reason: "certificates of other authorities are not back-dated",
			own:    ca.issue(t, certRequest{name: "c", from: -30 * time.Minute}),
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   401,
			closes: true,
		},
		"NotRevoked": {
			reason: "it was issued after it, although it is valid since before",
			own:    ca.issue(t, certRequest{name: "c", uid: "uid-c"}),
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   200,
		},
		"UnknownRuntime": {
			reason: "no such Kyma",
			own:    ca.issue(t, certRequest{name: "nobody"}),
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   403,
			closes: true,
		},
		"OtherUID": {
			reason: "the Kyma of this name is another one",
			own:    ca.issue(t, certRequest{name: "a", uid: "uid-before"}),
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   403,
			closes: true,
		},
		"NoName": {
			reason: "a certificate of ours without name is a mistake",
			own:    ca.issue(t, certRequest{}),
			method: "POST",
			path:   eventPath,
			body:   recorded,
			want:   400,
			closes: true,
		},
		"Get": {reason: "only POST", own: valid, method: "GET", path: eventPath, want: 405},
		"OtherPath": {
			reason: "nothing there",
			own:    valid,
			method: "POST",
			path:   "/",
			body:   recorded,
			want:   404,
		},
		"OtherVersion": {
			reason: "another contract",
			own:    valid,
			method: "POST",
			path:   "/v1/lifecycle-manager/event",
			body:   recorded,
			want:   404,
		},
		"NoVersion": {
			reason: "not a contract",
			own:    valid,
			method: "POST",
			path:   "/x/lifecycle-manager/event",
			body:   recorded,
			want:   400,
		},
		"OtherManager": {
			reason: "nobody routes to it",
			own:    valid,
			method: "POST",
			path:   "/v2/other/event",
			body:   recorded,
			want:   404,
		},
		"OthersHeartbeat": {
			reason: "heartbeats are for us",
			own:    valid,
			method: "POST",
			path:   "/v2/other/heartbeat",
			body:   `{"boot":"x"}`,
			want:   404,
		},
		"Dots": {
			reason: "a path is not walked",
			own:    valid,
			method: "POST",
			path:   "/v2/a/%2e%2e/event",
			body:   recorded,
			want:   404,
		},
		"LargeEvent": {
			reason: "said in advance",
			own:    valid,
			method: "POST",
			path:   eventPath,
			body:   strings.Repeat(" ", protocol.MaxEventBytes+1),
			want:   413,
			closes: true,
		},
		"LargestEvent": {
			reason: "the limit is allowed",
			own:    valid,
			method: "POST",
			path:   eventPath,
			body:   recorded + strings.Repeat(" ", protocol.MaxEventBytes-len(recorded)),
			want:   200,
		},
		"LargeHeartbeat": {
			reason: "a heartbeat is small",
			own:    valid,
			method: "POST",
			path:   heartbeatPath,
			body:   `{"boot":"x"}` + strings.Repeat(" ", protocol.MaxHeartbeatBytes),
			want:   413,
			closes: true,
		},
		"NoJSON": {
			reason: "the reference's 500 blames the wrong side",
			own:    valid,
			method: "POST",
			path:   eventPath,
			body:   "hello",
			want:   400,
		},
		"NoBody": {reason: "nothing is said", own: valid, method: "POST", path: eventPath, want: 400},
		"WrongShape": {
			reason: "JSON of something else",
			own:    valid,
			method: "POST",
			path:   eventPath,
			body:   `[1]`,
			want:   400,
		},
		"NoKind": {
			reason: "an object without kind",
			own:    valid,
			method: "POST",
			path:   eventPath,
			body:   `{"watched":{"Name":"x"}}`,
			want:   400,
		},
		"HeartbeatNoBoot": {
			reason: "of whose life",
			own:    valid,
			method: "POST",
			path:   heartbeatPath,
			body:   `{}`,
			want:   400,
		},
		"HeartbeatNegative": {
			reason: "no such number",
			own:    valid,
			method: "POST",
			path:   heartbeatPath,
			body:   `{"boot":"x","sequence":-1}`,
			want:   400,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := len(e.deliveredEvents("kyma-a")) + len(e.deliveredEvents("kyma-c"))
			got := call(t, client(t, ca, c.own), c.method, e.url(c.path), c.body)
			if got.status != c.want || got.close != c.closes {
				t.Errorf("%s: got %d (close %t) %q, want %d (close %t)", c.reason, got.status, got.close,
					got.body, c.want, c.closes)
			}
			if got.status != 200 && len(got.body) < 10 || got.status == 200 && got.body != "" {
				t.Errorf("%s: the answer %d says %q", c.reason, got.status, got.body)
			}
			unaccepted := c.want == http.StatusUnauthorized || c.want == http.StatusForbidden
			if after := got.header.Get("Retry-After"); (after == "60") != unaccepted {
				t.Errorf("%s: the next attempt is requested in %q s", c.reason, after)
			}
			if got.header.Get(protocol.HeaderInstance) != e.instance {
				t.Errorf("%s: the answer does not say which process answers", c.reason)
			}
			delivered := len(e.deliveredEvents("kyma-a"))+len(e.deliveredEvents("kyma-c")) > before
			if want := c.want == 200 && c.path == eventPath; delivered != want {
				t.Errorf("%s: delivered is %t, want %t", c.reason, delivered, want)
			}
		})
	}
	if other := e.deliveredEvents("kyma-b"); len(other) > 0 {
		t.Errorf("an event came for a runtime that said nothing: %v", other)
	}
}

// TestRecordedEvent posts events that were recorded from the Kyma project's agent. The agent of the Kyma project opens
// a connection for each event, and sends no heartbeats.
func TestRecordedEvent(t *testing.T) {
	ca := newRoot(t, "ca")
	e := listen(t, nil, ca)
	e.add("a")
	own := ca.issue(t, certRequest{name: "a"})
	for range 3 {
		if got := call(t, client(t, ca, own), "POST", e.url(eventPath), recorded, "Content-Type",
			"application/json"); got.status != 200 || got.body != "" {
			t.Fatalf("got %d %q, want 200 and no body", got.status, got.body)
		}
	}
	var want protocol.Event
	want.Watched = protocol.Name{Namespace: "kyma-system", Name: "default"}
	want.WatchedGVK.Group, want.WatchedGVK.Version, want.WatchedGVK.Kind = "operator.kyma-project.io", "v1beta2", "Kyma"
	if diff := cmp.Diff([]protocol.Event{want, want, want}, e.deliveredEvents("kyma-a")); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
	if _, heard := e.State("kyma-a"); heard {
		t.Error("an event without heartbeat makes a runtime heard")
	}
	if len(e.notifiedMissed())+len(e.notifiedChanged()) > 0 {
		t.Errorf("notified missed %v, changed %v, want nothing", e.missed, e.changed)
	}
}

// TestIdentityDecides checks that a report belongs to the runtime in the certificate, even if the body names another
// runtime.
func TestIdentityDecides(t *testing.T) {
	ca := newRoot(t, "ca")
	e := listen(t, nil, ca)
	e.add("a", "b")
	a := client(t, ca, ca.issue(t, certRequest{name: "a", uid: "uid-a"}))
	forged := strings.TrimSuffix(recorded, "}") + `,"runtime-id":"b","kyma":"kyma-b","commonName":"b"}`
	other := clientcert.FormatHeader(ca.issue(t, certRequest{name: "b", uid: "uid-b"}).Certificate)
	if got := call(t, a, "POST", e.url(eventPath), forged, clientcert.Header, other); got.status != 200 {
		t.Errorf("got %d %q, want 200: the own certificate counts", got.status, got.body)
	}
	if got := call(t, a, "POST", e.url(heartbeatPath), `{"boot":"x"}`, clientcert.Header, other,
		headerForwarded, "x"); got.status != 200 {
		t.Errorf("got %d %q, want 200: the own certificate counts", got.status, got.body)
	}
	if n := len(e.deliveredEvents("kyma-a")); n != 1 {
		t.Errorf("%d events for a, want 1", n)
	}
	if _, heard := e.State("kyma-b"); heard || len(e.deliveredEvents("kyma-b")) > 0 {
		t.Error("something was heard of b, which said nothing")
	}
}

// TestForeverOpen checks connections that stay open while a root is removed, while a certificate is revoked or expires,
// and while a Kyma is replaced.
func TestForeverOpen(t *testing.T) {
	first, second, third := newRoot(t, "ca"), newRoot(t, "ca"), newRoot(t, "ca")
	e := listen(t, nil, first)
	e.add("a", "b")
	trust := func(roots ...*root) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.roots = nil
		for _, r := range roots {
			e.roots = append(e.roots, r.Certificate)
		}
	}
	says := func(c *http.Client, want int, when string) {
		t.Helper()
		if got := call(t, c, "POST", e.url(heartbeatPath), `{"boot":"x"}`); got.status != want {
			t.Errorf("%s: got %d %q, want %d", when, got.status, got.body, want)
		}
	}
	old := client(t, first, first.issue(t, certRequest{name: "a", uid: "uid-a"}))
	says(old, 200, "before anything")
	trust(first, second)
	says(old, 200, "two roots are trusted")
	renewed := client(t, first, second.issue(t, certRequest{name: "a", uid: "uid-a"}))
	says(renewed, 200, "the new certificate")
	if s, _ := e.State("kyma-a"); s.Identity.Root != protocol.ShortFingerprint(second.Certificate) {
		t.Error("the state does not have the new root")
	}
	trust(second, third)
	says(old, 401, "the root of the open connection is removed")
	says(renewed, 200, "the second root is still there")
	trust(third)
	says(renewed, 401, "rotated twice")
	last := client(t, first, third.issue(t, certRequest{name: "a", uid: "uid-a"}))
	says(last, 200, "on the third root")

	b := client(t, first, third.issue(t, certRequest{name: "b", uid: "uid-b"}))
	says(b, 200, "another runtime")
	e.mu.Lock()
	e.fleet["b"] = Runtime{Kyma: "kyma-b", NotBefore: time.Now().Add(time.Minute)}
	e.mu.Unlock()
	says(b, 401, "revoked")
	e.mu.Lock()
	e.fleet["b"], e.uids["b"] = Runtime{Kyma: "kyma-b"}, "uid-of-the-next"
	e.mu.Unlock()
	says(b, 403, "the Kyma was made anew")
	says(last, 200, "the others")

	var brief *http.Client
	valid := 1500 * time.Millisecond // or up to a second less, because a certificate ends at a full second
	eventually(t, "a certificate is used before it ends", func() bool {
		brief = client(t, first, third.issue(t, certRequest{name: "a", uid: "uid-a", valid: valid}))
		valid = min(2*valid, waitTimeout/2) // on a slow machine, the first ones end before they are used
		return call(t, brief, "POST", e.url(heartbeatPath), `{"boot":"x"}`).status == 200
	})
	eventually(t, "it ends on the open connection", func() bool {
		got, err := attempt(t.Context(), brief, "POST", e.url(eventPath), recorded)
		return err == nil && got.status == 401
	})
}

func TestForwardedAddress(t *testing.T) {
	ca, unidentified := newRoot(t, "ca"), newRoot(t, "unidentified")
	middle := ca.newIntermediate(t)
	behind := listen(t, func(o *Options) {
		o.Address, o.ForwardedAddress, o.ForwardedFrom = "", "x", []string{"192.0.2.0/24", "127.0.0.0/8"}
	}, ca)
	outside := listen(t, func(o *Options) { o.ForwardedAddress, o.ForwardedFrom = "x", []string{"192.0.2.0/24"} }, ca)
	behind.add("a", "b")
	outside.add("a")
	header := func(c *tls.Certificate) string { return clientcert.FormatHeader(c.Certificate) }
	valid := header(ca.issue(t, certRequest{name: "a"}))
	_, cert, _ := strings.Cut(valid, "Cert=")
	bare := strings.Trim(cert, `"`)
	below := middle.issue(t, certRequest{name: "a"})
	cases := map[string]struct {
		reason string
		of     *testListener
		header string
		want   int
	}{
		"Envoy": {"as an ingress says it", behind, valid, 200},
		"MorePairs": {"with more about it", behind,
			`By=spiffe://x;Hash=00;Subject="CN=x;Cert=nonsense,O=\"y\"";Cert=` + cert + `;URI=`, 200},
		"Bare":          {"without quotes", behind, "Cert=" + bare, 200},
		"FirstOfTwo":    {"the first counts", behind, "Cert=" + bare + ",Cert=nonsense", 200},
		"SecondElement": {"an element without certificate is passed over", behind, `By=x;Hash=1,Cert=` + bare, 200},
		"Chain": {"what leads to a root", behind,
			clientcert.FormatHeader([][]byte{below.Certificate[0], middle.Raw}), 200},
		"NoChain":    {"is needed", behind, header(below), 401},
		"Missing":    {"nobody speaks", behind, "", 401},
		"NoCert":     {"only a hash", behind, "Hash=00", 401},
		"NoEncoding": {"not URL encoding", behind, "Cert=%zz", 401},
		"NoPEM":      {"not PEM", behind, "Cert=hello", 401},
		"NoX509": {"PEM of something else", behind,
			"Cert=-----BEGIN%20CERTIFICATE-----%0AAAAA%0A-----END%20CERTIFICATE-----%0A", 401},
		"TooLong": {"more than 32 KiB", behind, "Cert=" + strings.Repeat("x", 32<<10), 401},
		"WrongAuthority": {"an ingress may be careless", behind, header(unidentified.issue(t, certRequest{name: "a"})),
			401},
		"Expired": {"likewise", behind, header(
			ca.issue(t, certRequest{name: "a", from: -2 * time.Hour, valid: -time.Hour})), 401},
		"NoName":      {"whose", behind, header(ca.issue(t, certRequest{})), 400},
		"Unknown":     {"no such runtime", behind, header(ca.issue(t, certRequest{name: "c"})), 403},
		"NotBelieved": {"from anybody else", outside, valid, 401},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			before := len(c.of.deliveredEvents("kyma-a"))
			got := call(t, &http.Client{Transport: transport, Timeout: waitTimeout}, "POST", c.of.plain+eventPath,
				recorded, clientcert.Header, c.header)
			if got.status != c.want {
				t.Errorf("%s: got %d %q, want %d", c.reason, got.status, got.body, c.want)
			}
			if delivered := len(c.of.deliveredEvents("kyma-a")) > before; delivered != (c.want == 200) {
				t.Errorf("%s: delivered is %t", c.reason, delivered)
			}
		})
	}
}

func TestPeers(t *testing.T) {
	ca := newRoot(t, "ca")
	e := listen(t, func(o *Options) { o.Peers = []string{"ingress"} }, ca)
	e.add("a", "ingress")
	forA := clientcert.FormatHeader(ca.issue(t, certRequest{name: "a", uid: "uid-a"}).Certificate)
	cases := map[string]struct {
		reason string
		own    certRequest
		header string
		want   int
		kyma   string // the Kyma that receives the event
	}{
		"Peer": {
			reason: "is accepted",
			own:    certRequest{name: "ingress"},
			header: forA,
			want:   200,
			kyma:   "kyma-a",
		},
		"PeerForNobody": {
			reason: "but what it says must be genuine",
			own:    certRequest{name: "ingress"},
			header: clientcert.FormatHeader(newRoot(t, "x").issue(t, certRequest{name: "a"}).Certificate),
			want:   401,
		},
		"PeerGarbled": {reason: "and readable", own: certRequest{name: "ingress"}, header: "Cert=x", want: 401},
		"PeerItself": {
			reason: "speaks for itself without",
			own:    certRequest{name: "ingress"},
			want:   200,
			kyma:   "kyma-ingress",
		},
		"RuntimeSoCalled": {
			reason: "a certificate for a runtime is none of a peer, whatever its name",
			own:    certRequest{name: "ingress", uid: "uid-ingress"},
			header: forA,
			want:   200,
			kyma:   "kyma-ingress",
		},
		"Runtime": {
			reason: "is not accepted",
			own:    certRequest{name: "a", uid: "uid-a"},
			header: "Cert=x",
			want:   200,
			kyma:   "kyma-a",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := len(e.deliveredEvents(c.kyma))
			if got := call(t, client(t, ca, ca.issue(t, c.own)), "POST", e.url(eventPath), recorded, clientcert.Header,
				c.header); got.status != c.want {
				t.Errorf("%s: got %d %q, want %d", c.reason, got.status, got.body, c.want)
			}
			if c.kyma != "" && len(e.deliveredEvents(c.kyma)) != before+1 {
				t.Errorf("%s: the event did not come for %s", c.reason, c.kyma)
			}
		})
	}
}

func TestNew(t *testing.T) {
	good := Options{
		Address: "127.0.0.1:0", Roots: func() []*x509.Certificate { return nil },
		Certificate: func() (*tls.Certificate, error) { return nil, errors.New("none yet") },
		Lookup:      func(protocol.Identity) (Runtime, error) { return Runtime{}, nil },
		Deliver:     func(string, protocol.Event) {},
	}
	cases := map[string]struct {
		reason string
		change func(*Options)
		ok     bool
	}{
		"Good":          {"all that is needed", func(*Options) {}, true},
		"NoRoots":       {"nobody could be verified", func(o *Options) { o.Roots = nil }, false},
		"NoLookup":      {"nobody would be known", func(o *Options) { o.Lookup = nil }, false},
		"NoDeliver":     {"nobody would hear", func(o *Options) { o.Deliver = nil }, false},
		"NoAddress":     {"nowhere", func(o *Options) { o.Address = "" }, false},
		"NoCertificate": {"no TLS without", func(o *Options) { o.Certificate = nil }, false},
		"ForwardedOnly": {"behind an ingress", func(o *Options) {
			o.Address, o.Certificate, o.ForwardedAddress, o.ForwardedFrom = "", nil, ":0", []string{"10.0.0.0/8"}
		}, true},
		"ForwardedNowhere": {"an open address", func(o *Options) { o.ForwardedAddress = ":0" }, false},
		"ForwardedNoCIDR": {"no network", func(o *Options) {
			o.ForwardedAddress, o.ForwardedFrom = ":0",
				[]string{"10.0.0.1"}
		}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := good
			c.change(&o)
			l, err := New(o)
			if (err == nil) != c.ok {
				t.Errorf("%s: error %v, want none: %t", c.reason, err, c.ok)
			}
			if err == nil && (l.Ready(nil) == nil || l.NeedLeaderElection()) {
				t.Errorf("ready before Start, or only with leadership")
			}
		})
	}
}

// TestReadyNeedsValidCertificate checks that the listener is not ready while agents refuse its certificate.
func TestReadyNeedsValidCertificate(t *testing.T) {
	ca := newRoot(t, "ca")
	issue := func(from, until time.Duration) *tls.Certificate {
		return ca.issue(t, certRequest{name: serverName, dns: []string{serverName}, from: from, valid: until})
	}
	var serving atomic.Pointer[tls.Certificate]
	serving.Store(issue(-time.Hour, time.Hour))
	e := listen(t, func(o *Options) {
		o.Certificate = func() (*tls.Certificate, error) { return serving.Load(), nil }
	}, ca)
	cases := map[string]struct {
		reason string
		pair   *tls.Certificate
		ready  bool
	}{
		"Expired":     {"nobody has renewed it", issue(-2*time.Hour, -time.Hour), false},
		"NotValidYet": {"the clock of its issuer was fast", issue(time.Hour, 2*time.Hour), false},
		"Valid":       {"it was renewed", issue(-time.Hour, time.Hour), true},
	}
	for name, c := range cases {
		serving.Store(c.pair)
		if err := e.Ready(nil); (err == nil) != c.ready {
			t.Errorf("%s: %s: got %v", name, c.reason, err)
		}
	}
}

// TestDrain checks the shutdown: a running request gets its answer, and an idle connection does not delay the end.
func TestDrain(t *testing.T) {
	ca := newRoot(t, "ca")
	e := listen(t, nil, ca)
	e.add("a")
	own := ca.issue(t, certRequest{name: "a"})
	call(t, client(t, ca, own), "POST", e.url(eventPath), recorded) // leaves an idle connection
	body, writer := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), "POST", e.url(eventPath), body)
	if err != nil {
		t.Fatal(err)
	}
	status := make(chan int, 1)
	go func() {
		res, err := client(t, ca, own).Do(req)
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		res.Body.Close()
		status <- res.StatusCode
	}()
	half := len(recorded) / 2
	if _, err := io.Copy(writer, bytes.NewReader([]byte(recorded[:half]))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is being read", func() bool { return e.inFlight.Load() == 1 })
	e.stop()
	eventually(t, "the listener closes", func() bool { return e.Ready(nil) != nil })
	if _, err := io.Copy(writer, strings.NewReader(recorded[half:])); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	if got := <-status; got != 200 {
		t.Errorf("got %d, want 200", got)
	}
	if n := len(e.deliveredEvents("kyma-a")); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
}
