package backchannel

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/clientcert"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// dial opens a connection to the TLS port and performs the TLS handshake.
func dial(t testing.TB, e *testListener, trusted *root, own *tls.Certificate) *tls.Conn {
	t.Helper()
	c, err := tryDial(e, trusted, own)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, c)
	return c
}

func closeLater(t testing.TB, c io.Closer) {
	t.Helper()
	t.Cleanup(func() { _ = c.Close() }) // the connection may be closed already
}

func tryDial(e *testListener, trusted *root, own *tls.Certificate) (*tls.Conn, error) {
	pool := x509.NewCertPool()
	pool.AddCert(trusted.Certificate)
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: serverName}
	if own != nil {
		config.Certificates = []tls.Certificate{*own}
	}
	return tls.DialWithDialer(&net.Dialer{Timeout: waitTimeout}, "tcp", e.TLSAddress(), config)
}

// readToEnd reads until the other side closes the connection, and returns the text.
func readToEnd(t testing.TB, c net.Conn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(waitTimeout)); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection stays open: %q", said)
	}
	return string(said)
}

const postHead = "POST " + eventPath + " HTTP/1.1\r\nHost: x\r\n"

// TestSlow checks that the connections of slow clients are closed, and that nothing about these clients stays in
// memory.
//
// HeaderTimeout is also the timeout of the TLS handshake, and the timeout of a body contains HeaderTimeout. Therefore
// HeaderTimeout is short only for the client that sends nothing. The clients that must exceed HeaderTimeout or
// BodyTimeout after a handshake can fail to complete the handshake or the headers in time on a slow machine; they may
// try several times. For all other clients, both timeouts are long.
func TestSlow(t *testing.T) {
	ca := newRoot(t, "ca")
	impatient := listen(t, func(o *Options) { o.Limits = Limits{HeaderTimeout: 200 * time.Millisecond} }, ca)
	e := listen(t, func(o *Options) {
		o.Limits = Limits{HeaderTimeout: 10 * time.Second, BodyTimeout: 100 * time.Millisecond}
	}, ca)
	patient := listen(t, func(o *Options) { o.Limits = Limits{IdleTimeout: 300 * time.Millisecond} }, ca)
	e.add("a")
	patient.add("a")
	own := ca.issue(t, certRequest{name: "a"})
	cases := map[string]struct {
		reason string
		of     *testListener // a client of the impatient one uses no TLS
		send   string
		want   string // begin of the answer
	}{
		"NoHandshake": {"a connection that says nothing", impatient, "", ""},
		"NoRequest":   {"a handshake and nothing else", e, "", ""},
		"HalfHeader":  {"slow-loris", e, postHead + "X-A: b\r\n", ""},
		"HalfBody":    {"half a body", e, postHead + "Content-Length: 100\r\n\r\n{", "HTTP/1.1 408 "},
		"HalfChunk": {"a body without end", e, postHead + "Transfer-Encoding: chunked\r\n\r\n4\r\n{   \r\n",
			"HTTP/1.1 408 "},
		"IdleAfterOne": {"a connection that is not used any more", patient, postHead + "Content-Length: " +
			strconv.Itoa(len(recorded)) + "\r\n\r\n" + recorded, "HTTP/1.1 200 "},
		"LargeChunks": {"more than it may", patient, postHead + "Transfer-Encoding: chunked\r\n\r\n5000\r\n" +
			strings.Repeat(" ", 0x5000) + "\r\n0\r\n\r\n", "HTTP/1.1 413 "},
		"LargeHeaders": {"more than it may", patient, postHead + "X-A: " + strings.Repeat("x", 60<<10) + "\r\n\r\n",
			"HTTP/1.1 431 "},
		"Nonsense": {"no HTTP at all", patient, "hello\r\n\r\n", "HTTP/1.1 400 "},
	}
	try := func(t *testing.T, of *testListener, send string) (said string, err error) {
		var connection net.Conn
		if of == impatient {
			connection, err = net.Dial("tcp", of.TLSAddress())
		} else {
			connection, err = tryDial(of, ca, own)
		}
		if err != nil {
			return "", err
		}
		closeLater(t, connection)
		_, _ = io.WriteString(connection, send) // the listener may have closed the connection: its answer counts
		return readToEnd(t, connection), nil
	}
	t.Run("Clients", func(t *testing.T) { // ends when all parallel cases have ended
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tries := 1
				if c.of == e {
					tries = 5
				}
				var (
					said string
					err  error
				)
				for range tries {
					if said, err = try(t, c.of, c.send); err == nil && (said != "" || c.want == "") {
						break
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasPrefix(said, c.want) || c.want == "" && said != "" &&
					!strings.HasPrefix(said, "HTTP/1.1 408 ") {
					t.Errorf("%s: the answer is %.80q, want %q", c.reason, said, c.want)
				}
			})
		}
	})
	for _, l := range []*testListener{impatient, e, patient} {
		eventually(t, "nothing is held", func() bool {
			l.connLimiter.mu.Lock()
			defer l.connLimiter.mu.Unlock()
			return l.inFlight.Load() == 0 && l.connLimiter.open == 0
		})
	}
}

// TestHandshakes checks which connections are refused before their first request.
func TestHandshakes(t *testing.T) {
	ca := newRoot(t, "ca")
	e := listen(t, nil, ca)
	e.add("a")
	own := ca.issue(t, certRequest{name: "a"})
	many := *own
	for range clientcert.MaxChain {
		many.Certificate = append(many.Certificate, ca.Raw)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate)
	cases := map[string]struct {
		reason string
		config *tls.Config
		ok     bool
	}{
		"TLS13": {"the newest", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*own}},
			true},
		"TLS12": {"agents of others may be old",
			&tls.Config{MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*own}}, true},
		"TLS11": {"not that old", &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11,
			Certificates: []tls.Certificate{*own}}, false},
		"LongChain": {"certificates stay in memory",
			&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{many}}, false},
		"HTTP2Offered": {"it is not taken", &tls.Config{MinVersion: tls.VersionTLS13,
			Certificates: []tls.Certificate{*own}, NextProtos: []string{"h2", "http/1.1"}}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.config.RootCAs, c.config.ServerName = pool, serverName
			c.config.ClientSessionCache = tls.NewLRUClientSessionCache(4)
			for range 2 {
				transport := &http.Transport{TLSClientConfig: c.config}
				got, err := attempt(t.Context(), &http.Client{Transport: transport, Timeout: waitTimeout}, "POST",
					e.url(eventPath), recorded)
				if (err == nil) != c.ok || c.ok && got.status != 200 {
					t.Errorf("%s: got %d %v", c.reason, got.status, err)
				}
				transport.CloseIdleConnections()
			}
		})
	}
	config := cases["TLS13"].config
	connection, err := tls.Dial("tcp", e.TLSAddress(), config)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, connection)
	if connection.ConnectionState().DidResume {
		t.Error("a session was resumed, without showing the certificate")
	}
}

// TestFlood checks a runtime that sends as many requests as possible: its requests are limited, and other runtimes are
// not affected.
func TestFlood(t *testing.T) {
	ca := newRoot(t, "ca")
	e := listen(t, func(o *Options) { o.Limits = Limits{Rate: 0.1, Burst: 30} }, ca)
	e.add("flood", "logMu")
	flood := ca.issue(t, certRequest{name: "flood"})
	var (
		answers [600]atomic.Int64
		running sync.WaitGroup
		stop    = make(chan struct{})
	)
	begin := time.Now() // before the first event
	for range 8 {
		c := client(t, ca, flood)
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, err := attempt(t.Context(), c, "POST", e.url(eventPath), recorded)
				if err != nil {
					t.Errorf("flooding: %v", err)
					return
				}
				answers[got.status].Add(1)
				if after, err := strconv.Atoi(got.header.Get("Retry-After")); got.status != 200 &&
					(err != nil || after < 1) {
					t.Errorf("%d without Retry-After", got.status)
				}
			}
		})
	}
	logMu := client(t, ca, ca.issue(t, certRequest{name: "logMu"}))
	floodBeats := client(t, ca, flood)
	eventually(t, "the flood is held back", func() bool { return answers[429].Load() > 100 })
	var took []time.Duration
	for range 20 {
		start := time.Now()
		if got := call(t, logMu, "POST", e.url(eventPath), recorded); got.status != 200 {
			t.Errorf("the logMu one got %d", got.status)
		}
		took = append(took, time.Since(start))
	}
	if got := call(t, floodBeats, "POST", e.url(heartbeatPath), `{"boot":"x"}`); got.status != 200 {
		t.Errorf("its heartbeat got %d, want 200: it is alive", got.status)
	}
	close(stop)
	running.Wait()
	slices.Sort(took)
	most := 30 + 0.1*time.Since(begin).Seconds() + 1
	if n := answers[200].Load(); float64(n) > most || len(e.deliveredEvents("kyma-flood")) != int(n) {
		t.Errorf("%d events were taken, and %d delivered, want at most %.0f", n, len(e.deliveredEvents("kyma-flood")), most)
	}
	t.Logf("flood: %d taken, %d held back; logMu: median %v, most %v", answers[200].Load(),
		answers[429].Load(), took[10], took[19])
}

// TestSlowRuntime checks one runtime with many slow request bodies: the runtime uses at most its share of the
// concurrent requests.
func TestSlowRuntime(t *testing.T) {
	ca := newRoot(t, "ca")
	e := listen(t, func(o *Options) {
		o.ForwardedAddress, o.ForwardedFrom = "x", []string{"127.0.0.1/32"}
		o.Limits = Limits{InFlight: 8, PerRuntime: 4, BodyTimeout: waitTimeout}
	}, ca)
	e.add("slow", "logMu")
	header := clientcert.Header + ": " + clientcert.FormatHeader(
		ca.issue(t, certRequest{name: "slow"}).Certificate) + "\r\n"
	half := postHead + header + "Content-Length: 100\r\n\r\n{"
	var held []net.Conn
	for range 4 {
		c, err := net.Dial("tcp", e.opts.ForwardedAddress)
		if err != nil {
			t.Fatal(err)
		}
		closeLater(t, c)
		held = append(held, c)
		if _, err := io.WriteString(c, half); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "its share is used up", func() bool { // the listener counts a request earlier than the runtime does
		r := e.tracker.getOrCreateLockedRecord("kyma-slow")
		defer r.mu.Unlock()
		return r.inFlight == 4
	})
	c, err := net.Dial("tcp", e.opts.ForwardedAddress)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, c)
	if _, err := io.WriteString(c, half+strings.Repeat(" ", 99)); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 429 || res.Header.Get("Retry-After") == "" {
		t.Errorf("got %d, want 429 with Retry-After", res.StatusCode)
	}
	if got := call(t, client(t, ca, ca.issue(t, certRequest{name: "logMu"})), "POST", e.url(eventPath),
		recorded); got.status != 200 {
		t.Errorf("the logMu one got %d, want 200", got.status)
	}
	for _, c := range held {
		_ = c.Close()
	}
	eventually(t, "it is given back", func() bool { return e.inFlight.Load() == 0 })
}

// TestBusy checks the limit for the requests of all runtimes together.
func TestBusy(t *testing.T) {
	ca := newRoot(t, "ca")
	e := listen(t, func(o *Options) { o.Limits = Limits{InFlight: 1} }, ca)
	e.add("a", "b")
	c := dial(t, e, ca, ca.issue(t, certRequest{name: "a"}))
	if _, err := io.WriteString(c, postHead+"Content-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is full", func() bool { return e.inFlight.Load() == 1 })
	if got := call(t, client(t, ca, ca.issue(t, certRequest{name: "b"})), "POST", e.url(eventPath),
		recorded); got.status != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("got %d, want 503 with Retry-After", got.status)
	}
}

// TestConnections checks that clients without a valid certificate, and one runtime with many connections, do not keep
// other runtimes from connecting.
func TestConnections(t *testing.T) {
	ca := newRoot(t, "ca")
	e := listen(t, func(o *Options) { o.Limits = Limits{Connections: 6, PerRuntime: 2} }, ca)
	e.add("a", "b", "c")
	open := func() int {
		e.connLimiter.mu.Lock()
		defer e.connLimiter.mu.Unlock()
		return e.connLimiter.open
	}
	for range 20 { // clients that send nothing and keep their connections open
		c, err := net.Dial("tcp", e.TLSAddress())
		if err != nil {
			t.Fatal(err)
		}
		closeLater(t, c)
	}
	eventually(t, "unidentified fill it", func() bool { return open() == 6 })
	var held []net.Conn
	// post sends an event on a new connection, which stays open. An HTTP client could close the connection on a busy
	// machine: it keeps a connection only if it records within 50 ms that the request was written.
	post := func(own *tls.Certificate) (status int) {
		t.Helper()
		c := dial(t, e, ca, own)
		held = append(held, c)
		if err := c.SetDeadline(time.Now().Add(waitTimeout)); err != nil {
			t.Fatal(err)
		}
		request := postHead + "Content-Length: " + strconv.Itoa(len(recorded)) + "\r\n\r\n" + recorded
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	a := ca.issue(t, certRequest{name: "a"})
	for range 4 {
		if status := post(a); status != 200 {
			t.Errorf("got %d, want 200: unidentified go first", status)
		}
	}
	eventually(t, "the runtime has its two", func() bool {
		r := e.tracker.getOrCreateLockedRecord("kyma-a")
		defer r.mu.Unlock()
		e.connLimiter.mu.Lock()
		defer e.connLimiter.mu.Unlock()
		return len(r.conns) == 2
	})
	for _, name := range []string{"b", "c"} {
		own := ca.issue(t, certRequest{name: name})
		for range 2 {
			if status := post(own); status != 200 {
				t.Errorf("%s got %d, want 200", name, status)
			}
		}
	}
	if n := open(); n != 6 {
		t.Errorf("%d connections, want 6", n)
	}
	if c, err := tryDial(e, ca, a); err == nil {
		_ = c.Close()
		t.Error("a seventh connection was taken, although all others belong to a runtime")
	}
	for _, c := range held {
		_ = c.Close()
	}
	eventually(t, "they are given back", func() bool { return open() == 0 })
	call(t, client(t, ca, a), "POST", e.url(eventPath), recorded)
}

// TestKeepAlive checks that connections stay open after a response as long as few connections are open, and that a
// response closes its connection while more are open. The connection of a peer always stays open.
func TestKeepAlive(t *testing.T) {
	ca := newRoot(t, "ca")
	e := listen(t, func(o *Options) {
		o.Peers = []string{serverName}
		o.Limits = Limits{KeepAliveConnections: 2}
		o.Leader = func(kyma string) (string, bool) { return closedAddress, kyma != "kyma-moved" }
		o.Route = func(string) (string, bool) { return "http://" + closedAddress, true }
	}, ca)
	e.add("a", "b", "c", "moved")
	own := map[string]*tls.Certificate{"peer": ca.issue(t, certRequest{name: serverName})}
	for _, name := range []string{"a", "b", "c", "moved", "unknown"} {
		own[name] = ca.issue(t, certRequest{name: name})
	}
	open := func() int {
		e.connLimiter.mu.Lock()
		defer e.connLimiter.mu.Unlock()
		return e.connLimiter.open
	}
	post := func(c net.Conn, path, header, body string, want int) (closes bool) {
		t.Helper()
		if err := c.SetDeadline(time.Now().Add(waitTimeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", path, header,
			len(body), body); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != want {
			t.Errorf("POST %s: got %d, %v, want %d", path, res.StatusCode, err, want)
		}
		return res.Close
	}
	first := dial(t, e, ca, own["a"])
	peer := dial(t, e, ca, own["peer"])
	forwarded := clientcert.Header + ": " + clientcert.FormatHeader(own["b"].Certificate) + "\r\n"
	if post(first, eventPath, "", recorded, 200) || post(peer, eventPath, forwarded, recorded, 200) {
		t.Error("a connection is closed although few are open")
	}
	for name, c := range map[string]struct {
		client, path, body string
		status             int
	}{
		"Event":       {"c", eventPath, recorded, 200},
		"Heartbeat":   {"c", heartbeatPath, `{"boot":"x"}`, 200},
		"Malformed":   {"c", heartbeatPath, `{`, 400},
		"UnknownPath": {"c", "/v2/x", "", 404},
		"Unknown":     {"unknown", eventPath, recorded, 403},
		"OtherShard":  {"moved", eventPath, recorded, 503},
		"OtherTarget": {"c", "/v2/other/event", recorded, 502},
	} {
		eventually(t, "the two are left", func() bool { return open() == 2 })
		third := dial(t, e, ca, own[c.client])
		if post(peer, eventPath, forwarded, recorded, 200) {
			t.Errorf("%s: the connection of a peer is closed", name)
		}
		if post(third, c.path, "", c.body, c.status) {
			readToEnd(t, third)
		} else {
			t.Errorf("%s: a third connection stays open", name)
		}
		_ = third.Close()
	}
	eventually(t, "the two are left", func() bool { return open() == 2 })
	if post(first, eventPath, "", recorded, 200) || post(peer, eventPath, forwarded, recorded, 200) {
		t.Error("a connection is closed although only few are left")
	}
}

// BenchmarkHeartbeat measures a heartbeat over an open connection, including the work of the client.
func BenchmarkHeartbeat(b *testing.B) {
	ca := newRoot(b, "ca")
	var names []string
	for i := range 20000 { // one heartbeat for each runtime, because each runtime has a rate limit
		names = append(names, fmt.Sprint(i))
	}
	e := listen(b, func(o *Options) { o.Limits = Limits{Rate: 1e9} }, ca)
	e.add(names...)
	e.opts.Lookup = func(protocol.Identity) (Runtime, error) {
		names = append(names[1:], names[0])
		return Runtime{Kyma: names[0]}, nil
	}
	c := dial(b, e, ca, ca.issue(b, certRequest{name: "a"}))
	body := `{"boot":"x","version":"1.0.0","sequence":1,"pending":0,"watchlist":"0123456789abcdef"}`
	request := []byte("POST " + heartbeatPath + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + strconv.Itoa(
		len(body)) + "\r\n\r\n" + body)
	answer := make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(request); err != nil {
			b.Fatal(err)
		}
		if n, err := c.Read(answer); err != nil || !strings.HasPrefix(string(answer[:n]), "HTTP/1.1 200") {
			b.Fatalf("%s %v", answer[:n], err)
		}
	}
}

// fromAddress returns the request as if it had arrived on a connection from the given address.
func (l *Listener) fromAddress(r *http.Request, from string) *http.Request {
	c := &conn{connLimiter: l.connLimiter, remote: netip.MustParseAddr(from)}
	return r.WithContext(context.WithValue(r.Context(), connKey{}, c))
}
