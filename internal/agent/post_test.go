package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/internal/agent/outbox"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// issue makes a certificate for 127.0.0.1. The certificate is signed by the parent, or self-signed. The certificate and
// the key are in PEM format.
func issue(t testing.TB, name string, parent *tls.Certificate) (certificate, key []byte, pair tls.Certificate) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: parent == nil,
		BasicConstraintsValid: true,
	}
	signer, by := template, any(private)
	if parent != nil {
		signer, by = parent.Leaf, parent.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, private.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	if pair, err = tls.X509KeyPair(certificate, key); err != nil {
		t.Fatal(err)
	}
	return certificate, key, pair
}

// event returns an event about an object.
func event(name string) protocol.Event {
	return protocol.Event{
		Watched: protocol.Name{Namespace: "ns", Name: name}, WatchedGVK: metav1.GroupVersionKind{Version: "v1",
			Kind: "Thing"}, Resource: "things",
		Object: &metav1.ObjectMeta{ResourceVersion: "1"},
	}
}

// remote is a listener for tests that records requests.
type remote struct {
	*httptest.Server
	root     tls.Certificate
	rootPEM  []byte
	handler  http.HandlerFunc // guarded by mu
	mu       sync.Mutex
	requests []request // guarded by mu
}

type request struct{ path, contentType, body, client, connection string }

func newRemote(t *testing.T, version uint16) *remote { return newRemoteFor(t, version, true) }

// newRemoteHTTP1 returns a listener without HTTP/2, like the listener of the lifecycle manager.
func newRemoteHTTP1(t *testing.T) *remote { return newRemoteFor(t, 0, false) }

func newRemoteFor(t *testing.T, version uint16, http2 bool) *remote {
	t.Helper()
	l := &remote{handler: func(http.ResponseWriter, *http.Request) {}}
	l.rootPEM, _, l.root = issue(t, "root", nil)
	_, _, server := issue(t, "listener", &l.root)
	l.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		l.mu.Lock()
		l.requests = append(l.requests, request{path: r.URL.Path, contentType: r.Header.Get("Content-Type"),
			body: string(body), client: r.TLS.PeerCertificates[0].Subject.CommonName, connection: r.RemoteAddr})
		handler := l.handler
		l.mu.Unlock()
		handler(w, r)
	}))
	roots := x509.NewCertPool()
	roots.AddCert(l.root.Leaf)
	l.TLS = &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: roots, MaxVersion: version, MinVersion: tls.VersionTLS12}
	l.EnableHTTP2 = http2
	l.Config.ErrorLog = log.New(io.Discard, "", 0)
	l.StartTLS()
	t.Cleanup(l.Close)
	return l
}

func (l *remote) all() []request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]request(nil), l.requests...)
}

func (l *remote) set(handler http.HandlerFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handler, l.requests = handler, nil
}

// give writes certificate files of a client into a folder.
func (l *remote) give(t *testing.T, dir, name string) {
	t.Helper()
	certificate, key, _ := issue(t, name, &l.root)
	for file, data := range map[string][]byte{"ca.crt": l.rootPEM, "tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// agentFor returns an agent with certificates for the listener. The returned agent does not run yet.
func agentFor(t *testing.T, l *remote) (a *Agent, dir string) {
	t.Helper()
	dir = t.TempDir()
	l.give(t, dir, "runtime-1")
	a, err := New(Options{
		Config: &rest.Config{Host: "http://127.0.0.1:1"}, Address: l.Listener.Addr().String(),
		Version: "1.2.3", Log: logr.Discard(),
		CA: filepath.Join(dir, "ca.crt"), Certificate: filepath.Join(dir, "tls.crt"),
		Key: filepath.Join(dir, "tls.key"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.identity.load(); err != nil {
		t.Fatal(err)
	}
	a.poster.Timeout = deadline // many tests make one attempt, which must succeed on a slow machine, too
	a.identity.current.Load().use(a.poster)
	t.Cleanup(a.poster.CloseIdleConnections)
	return a, dir
}

func TestDeliver(t *testing.T) {
	answer := func(status int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if len(header) > 0 {
				w.Header().Set(header[0], header[1])
			}
			w.WriteHeader(status)
		}
	}
	cases := map[string]struct {
		reason   string
		answer   http.HandlerFunc
		want     outbox.Result
		attempts int
	}{
		"OK":       {"200 is the only success", answer(200), outbox.Result{Delivered: true}, 1},
		"Accepted": {"another good status is none", answer(202), outbox.Result{}, 1},
		"Redirect": {"nor is a redirect, which is not followed",
			answer(302, "Location", "/elsewhere"), outbox.Result{}, 1},
		"BadRequest": {"what is bad is tried once more without metadata, and dropped", answer(400),
			outbox.Result{Refused: true}, 2},
		"TooLarge":     {"and so is what is too large", answer(413), outbox.Result{Refused: true}, 2},
		"Unauthorised": {"rights may come", answer(401), outbox.Result{}, 1},
		"Forbidden":    {"rights may come", answer(403), outbox.Result{}, 1},
		"NotFound":     {"managers may come", answer(404), outbox.Result{UnknownManager: true}, 1},
		"Busy": {"who is busy says how long", answer(429, "Retry-After", "3"),
			outbox.Result{RetryAfter: 3 * time.Second, Throttled: true}, 1},
		"Unavailable": {"or only that", answer(503, "Retry-After", "never"), outbox.Result{}, 1},
		"LongWait": {"the delay is limited", answer(503, "Retry-After", "9999"),
			outbox.Result{RetryAfter: time.Minute}, 1},
		"Broken": {"an answer that breaks off is none",
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, outbox.Result{}, 1},
	}
	l := newRemote(t, 0)
	a, _ := agentFor(t, l)
	e := event("a")
	e.Watched.Namespace = "kyma-system"
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l.set(c.answer)
			got := a.poster.Deliver(t.Context(), "lifecycle-manager", e)
			if got != c.want || len(l.all()) != c.attempts {
				t.Errorf("%s: got %+v after %d attempts", c.reason, got, len(l.all()))
			}
			last := l.all()[c.attempts-1]
			body := `{"watched":{"Namespace":"kyma-system","Name":"a"},"watchedGvk":{"group":"","version":"v1","kind":"Thing"},"resource":"things"`
			if c.attempts == 1 {
				body += `,"object":{"resourceVersion":"1"}`
			}
			last.connection = ""
			if want := (request{path: "/v2/lifecycle-manager/event", contentType: "application/json", body: body + "}",
				client: "runtime-1"}); last != want {
				t.Errorf("got  %+v\nwant %+v", last, want)
			}
		})
	}
}

// TestDeliverLarge checks that an event is sent without metadata if it is too large.
func TestDeliverLarge(t *testing.T) {
	l := newRemote(t, 0)
	a, _ := agentFor(t, l)
	e := event("a")
	e.Object.Annotations = map[string]string{"a": strings.Repeat("x", protocol.MaxEventBytes)}
	if got := a.poster.Deliver(t.Context(), "m", e); !got.Delivered || len(l.all()[0].body) > 200 {
		t.Errorf("got %+v with %d bytes", got, len(l.all()[0].body))
	}
}

// TestConnection checks that all requests use the same connection until the certificate changes.
func TestConnection(t *testing.T) {
	l := newRemote(t, 0)
	a, dir := agentFor(t, l)
	var wg sync.WaitGroup
	for range 20 {
		for range 5 {
			wg.Go(func() { a.poster.Deliver(t.Context(), "m", event("a")) })
		}
		wg.Wait()
	}
	connections := map[string]bool{}
	for _, r := range l.all() {
		connections[r.connection] = true
	}
	if len(connections) > 2 {
		t.Errorf("%d connections for 100 events", len(connections))
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	used := make(chan *material, 10)
	go a.identity.watch(ctx, 10*time.Millisecond, func(m *material) { m.use(a.poster); used <- m })
	if err := os.WriteFile(filepath.Join(dir, "tls.crt"), []byte("half a certif"), 0o600); err != nil {
		t.Fatal(err)
	}
	awaitText(t, a.problems, "tls.crt")
	if got := a.poster.Deliver(t.Context(), "m", event("a")); !got.Delivered {
		t.Error("with files that cannot be used, those from before are used")
	}
	l.give(t, dir, "runtime-2")
	m := <-used
	if m.certificate.Leaf.Subject.CommonName != "runtime-2" {
		t.Errorf("got the certificate of %s", m.certificate.Leaf.Subject)
	}
	awaitText(t, a.problems, "")
	l.set(func(http.ResponseWriter, *http.Request) {})
	if got := a.poster.Deliver(t.Context(), "m", event("a")); !got.Delivered || l.all()[0].client != "runtime-2" {
		t.Errorf("got %+v as %+v", got, l.all())
	}
	served, err := a.identity.serverCertificate(nil)
	if err != nil || served.Leaf.Subject.CommonName != "runtime-2" {
		t.Errorf("the webhook serves %v, %v", served.Leaf.Subject, err)
	}
}

func awaitText(t *testing.T, p *problems, part string) {
	t.Helper()
	for end := time.Now().Add(deadline); time.Now().Before(end); {
		if text := p.truncatedText(); strings.Contains(text, part) && (part != "" || text == "") {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	t.Fatalf("the problem is %q, want %q", p.truncatedText(), part)
}

// TestTrust checks which listeners the agent trusts, and which versions of TLS it accepts.
func TestTrust(t *testing.T) {
	good := newRemote(t, 0)
	cases := map[string]struct {
		reason string
		server *remote
		roots  *remote
	}{
		"OldTLS":    {"nothing below TLS 1.3", newRemote(t, tls.VersionTLS12), nil},
		"OtherRoot": {"a listener with a certificate of another root", good, newRemote(t, 0)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a, dir := agentFor(t, c.server)
			if c.roots != nil {
				c.roots.give(t, dir, "x")
				if _, err := a.identity.load(); err != nil {
					t.Fatal(err)
				}
				a.identity.current.Load().use(a.poster)
			}
			c.server.set(func(http.ResponseWriter, *http.Request) {})
			if got := a.poster.Deliver(t.Context(), "m", event("a")); got.Delivered || len(c.server.all()) > 0 {
				t.Errorf("%s: got %+v", c.reason, got)
			}
		})
	}
	a, _ := agentFor(t, good)
	a.poster = outbox.NewPoster("localhost:1", "v2", logr.Discard(), outbox.NewMetrics(), nil)
	if got := a.poster.Deliver(t.Context(), "m", event("a")); got != (outbox.Result{}) {
		t.Errorf("without certificates an event waits: %+v", got)
	}
}

func TestIdentityErrors(t *testing.T) {
	l := newRemote(t, 0)
	cases := map[string]struct {
		reason string
		edit   func(dir string) error
	}{
		"Missing": {"there have to be files", func(
			dir string) error {
			return os.Remove(filepath.Join(dir, "tls.key"))
		}},
		"NoRoot": {"with a root", func(dir string) error {
			return os.WriteFile(
				filepath.Join(dir, "ca.crt"), []byte("x"), 0o600)
		}},
		"NoPair": {"and a certificate", func(dir string) error {
			return os.WriteFile(
				filepath.Join(dir, "tls.crt"), l.rootPEM, 0o600)
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a, dir := agentFor(t, l)
			a.identity.current.Store(nil)
			if err := c.edit(dir); err != nil {
				t.Fatal(err)
			}
			if changed, err := a.identity.load(); err == nil || changed || a.identity.current.Load() != nil {
				t.Errorf("%s: got %v", c.reason, err)
			}
			if _, err := a.identity.serverCertificate(nil); err == nil {
				t.Error("the webhook serves without a certificate")
			}
		})
	}
}

func TestHeartbeat(t *testing.T) {
	l := newRemote(t, 0)
	a, _ := agentFor(t, l)
	a.problems.setAndNotify("x", strings.Repeat(`<"ü`, 200))
	ctx, stop := context.WithCancel(t.Context())
	var refusals sync.WaitGroup
	refusals.Add(2)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.queue.Run(ctx, func(context.Context, string, protocol.Event) outbox.Result {
			defer refusals.Done()
			return outbox.Result{Refused: true}
		})
	}()
	a.queue.Add(protocol.ManagerName, outbox.Change{Event: event("lost")})
	a.queue.Add(protocol.ManagerName, outbox.Change{Event: event("lost, too")})
	refusals.Wait()
	stop()
	<-ended
	a.queue.Add(protocol.ManagerName, outbox.Change{Event: event("a")})
	cases := []struct {
		reason string
		status int
		good   bool
		lost   bool
	}{
		{"the next heartbeat after a failure is sent soon", 500, false, true},
		{"the Kyma project's listener has no heartbeats; the next one waits for its interval", 404, true, true},
		{"lost events are reported until a heartbeat is delivered", 200, true, true},
		{"and not afterwards", 200, true, false},
	}
	for _, c := range cases {
		l.set(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.status) })
		if good := a.sendHeartbeat(t.Context()); good != c.good {
			t.Errorf("%s: %t", c.reason, good)
		}
		got := l.all()[0]
		h, err := protocol.ParseHeartbeat([]byte(got.body))
		if err != nil || len(got.body) >= protocol.MaxHeartbeatBytes || got.path != "/v2/lifecycle-manager/heartbeat" {
			t.Errorf("%s: %v, %d bytes to %s", c.reason, err, len(got.body), got.path)
		}
		want := protocol.Heartbeat{BootID: a.queue.BootID(), Version: "1.2.3", Sequence: 3, Pending: 1,
			EventsLost: c.lost, Problem: h.Problem}
		if diff := cmp.Diff(want, h); diff != "" || !strings.HasPrefix(h.Problem, `<"ü`) {
			t.Errorf("%s: %s", c.reason, diff)
		}
	}
	l.Close()
	if a.sendHeartbeat(t.Context()) {
		t.Error("without a listener it is tried again soon")
	}
}

// TestRefusalIsLogged checks that the log of the agent contains the reason why the listener refuses the agent.
func TestRefusalIsLogged(t *testing.T) {
	l := newRemote(t, 0)
	a, _ := agentFor(t, l)
	var lines []string
	a.o.Log = funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	const plain = "text/plain; charset=utf-8"
	for _, c := range []struct {
		reason, contentType, body string
		status                    int
		want                      string // the end of a new line of the log; "" if there is none
	}{
		{"the first line", plain, "the certificate is revoked\nmore\n", 401, "status 401: the certificate is revoked"},
		{"a reason is logged once", plain, "the certificate is revoked\n", 401, ""},
		{"another reason is new", plain, "\x1b[31mno\x07 runtime\r\n", 403, "status 403: no runtime"},
		{"a text of any size is cut", plain, strings.Repeat("x", 1<<20), 401,
			"status 401: " + strings.Repeat("x", 197) + "…"},
		{"there may be no text", plain, "", 403, "status 403"},
		{"a page of a proxy is left out", "text/html", "<html>", 502, "status 502"},
	} {
		l.set(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.contentType)
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		})
		lines = nil
		a.sendHeartbeat(t.Context())
		want := "answers a heartbeat with " + c.want + `"`
		if c.want == "" && len(lines) > 0 || c.want != "" && (len(lines) != 1 || !strings.HasSuffix(lines[0], want)) {
			t.Errorf("%s: logged %q, want %q", c.reason, lines, c.want)
		}
	}
}

// TestHeartbeatInterval checks that the interval that the listener requests is used, except while recent events may
// have to be sent again.
func TestHeartbeatInterval(t *testing.T) {
	l := newRemote(t, 0)
	a, _ := agentFor(t, l)
	cases := []struct {
		reason, header string
		recent         bool // there is a recent event
		want           time.Duration
		retryAfter     string // of a refusal; "" if the heartbeat is accepted
	}{
		{reason: "the listener requests nothing", want: protocol.DefaultHeartbeatInterval},
		{reason: "it requests a long interval", header: "303", want: 303 * time.Second},
		{reason: "there is a recent event", header: "303", recent: true, want: protocol.DefaultHeartbeatInterval},
		{reason: "it is forgotten", header: "303", want: 303 * time.Second},
		{
			reason:     "the replica does not accept heartbeats at the moment",
			want:       protocol.DefaultHeartbeatInterval,
			retryAfter: "1",
		},
		{reason: "the agent is refused", want: time.Minute, retryAfter: "60"},
		{
			reason: "it requests a shorter interval than the watch list",
			header: "2",
			want:   protocol.DefaultHeartbeatInterval,
		},
		{reason: "an invalid value", header: "-x", want: protocol.DefaultHeartbeatInterval},
		{reason: "more than the maximum", header: "999999999999", want: protocol.MaxHeartbeatInterval},
	}
	for _, c := range cases {
		l.set(func(w http.ResponseWriter, _ *http.Request) {
			if w.Header().Set(protocol.HeaderNextHeartbeat, c.header); c.retryAfter != "" {
				w.Header().Set("Retry-After", c.retryAfter)
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		if a.queue = outbox.New("boot", 10, outbox.NewMetrics()); c.recent {
			a.queue.Add("m", outbox.Change{Event: event("a")})
		}
		if !a.sendHeartbeat(t.Context()) || a.heartbeatInterval() != c.want {
			t.Errorf("%s: the next is in %v, want %v", c.reason, a.heartbeatInterval(), c.want)
		}
	}
}

// TestBeatClosesConnections checks that the agent closes its connections to the listener after a heartbeat if the
// listener requests a long time until the next heartbeat.
func TestBeatClosesConnections(t *testing.T) {
	for _, c := range []struct {
		next   string
		closes bool
	}{{"", false}, {"59", false}, {"90", true}} {
		l := newRemoteHTTP1(t)
		a, _ := agentFor(t, l)
		beaten := make(chan struct{}, 3)
		l.set(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(protocol.HeaderNextHeartbeat, c.next)
			beaten <- struct{}{}
		})
		ctx, cancel := context.WithCancel(t.Context())
		go a.sendHeartbeats(ctx)
		// On a busy machine, the HTTP client may close a connection after a response: the client reuses a connection
		// only if it records within 50 ms that the request was written. Therefore one connection with two heartbeats
		// shows that connections stay open, and without such a connection the test waits for many heartbeats.
		heartbeats, most := 0, 20
		if c.closes {
			most = 3
		}
		connections := map[string]bool{}
		for ; heartbeats < most && len(connections) == heartbeats; heartbeats++ {
			<-beaten
			connections[l.all()[heartbeats].connection] = true
			a.triggerHeartbeat() // otherwise the next heartbeat is a minute away
		}
		cancel()
		if n := len(connections); (n == heartbeats) != c.closes {
			t.Errorf("next in %q s: %d connections for %d heartbeats, closes is %t", c.next, n, heartbeats, c.closes)
		}
	}
}

func TestProblems(t *testing.T) {
	changed := 0
	p := &problems{all: map[string]string{}, changed: func() { changed++ }}
	p.setAndNotify("b", "b is bad")
	p.setAndNotify("b", "b is bad")
	p.setAndNotify("a", "a is bad")
	if got := p.truncatedText(); got != "a is bad; b is bad" || changed != 2 {
		t.Errorf("%q after %d changes", got, changed)
	}
	p.setAndNotify("c", strings.Repeat("ö", 300))
	if got := p.truncatedText(); len(got) > maxProblemBytes || !strings.HasSuffix(got, " … (3 problems)") ||
		strings.Contains(got, "�") {
		t.Errorf("%q", got)
	}
	for _, of := range []string{"a", "b", "c"} {
		p.setAndNotify(of, "")
	}
	if p.truncatedText() != "" {
		t.Errorf("%q", p.truncatedText())
	}
}

func TestCause(t *testing.T) {
	refused := errors.New("connection refused")
	cases := map[string]struct {
		reason string
		err    error
		want   string
	}{
		"Request": {"the address of a request is left out",
			fmt.Errorf("posting: %w", &url.Error{Op: "Get", URL: "https://long", Err: refused}), "connection refused"},
		"Other": {"other errors say what they say", fmt.Errorf("posting: %w", refused), "posting: connection refused"},
	}
	for name, c := range cases {
		if got := textWithoutURL(c.err); got != c.want {
			t.Errorf("%s: %s: %q", name, c.reason, got)
		}
	}
}

func TestNew(t *testing.T) {
	good := Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Address: "localhost:1", CA: "a",
		Certificate: "b", Key: "c"}
	if a, err := New(good); err != nil || a.heartbeatInterval() != protocol.DefaultHeartbeatInterval ||
		a.o.Contract != "v2" || a.o.Watchlist.String() != "kyma-system/skr-webhook-watches" {
		t.Errorf("got %+v, %v", a, err)
	}
	cases := map[string]struct {
		reason string
		edit   func(*Options)
	}{
		"Config":      {"there is something to watch", func(o *Options) { o.Config = nil }},
		"Address":     {"an address without a scheme", func(o *Options) { o.Address = "https://localhost" }},
		"Certificate": {"and something to show", func(o *Options) { o.Certificate = "" }},
		"BadConfig": {"a config has to make sense", func(o *Options) {
			o.Config = &rest.Config{Host: "http://[", TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere"}}
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := good
			c.edit(&o)
			if _, err := New(o); err == nil {
				t.Errorf("%s, but it was taken", c.reason)
			}
		})
	}
}
