package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// longTimeout is the timeout of connections and of queries for addresses. Only a test that fails waits so long, also on
// a slow machine.
const longTimeout = 10 * time.Minute

// newTransport returns a Transport with longTimeout.
func newTransport(o Options) *Transport {
	transport := New(o)
	transport.dialer.Timeout, transport.http.TLSHandshakeTimeout = longTimeout, longTimeout
	return transport
}

// dnsConn is a connection to a DNS server. By default, a resolver gives a query up after 5 seconds. The deadline of a
// dnsConn is later.
type dnsConn struct{ *net.UDPConn }

func (c dnsConn) SetDeadline(at time.Time) error { return c.UDPConn.SetDeadline(at.Add(longTimeout)) }

// startDNS starts a DNS server. The server answers queries for IPv4 addresses with the address to which answer points.
// answer is at first the address in the parameter.
func startDNS(t *testing.T, address string) (resolver *net.Resolver, answer *atomic.Pointer[string]) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	answer = &atomic.Pointer[string]{}
	answer.Store(&address)
	go func() {
		for buffer := make([]byte, 1500); ; {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if err := m.Unpack(buffer[:n]); err != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				ip := netip.MustParseAddr(*answer.Load()).As4()
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class,
					Type: q.Type}, Body: &dnsmessage.AResource{A: ip}}}
			}
			packed, err := m.Pack()
			if err != nil {
				continue
			}
			_, _ = server.WriteTo(packed, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		c, err := net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
		if err != nil {
			return nil, err
		}
		return dnsConn{c}, nil
	}}, answer
}

// get sends a request and returns its error.
func get(t *testing.T, transport http.RoundTripper, location string) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, location, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err == nil {
		err = response.Body.Close()
	}
	return err
}

// TestAddresses checks to which addresses requests are refused.
func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1": "", "10.1.2.3": "", "192.168.0.1": "", "2001:db8::1": "", "fd12::1": "",
		"127.0.0.1": "loopback", "127.8.8.8": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback",
		"169.254.169.254": "link-local", "::ffff:169.254.169.254": "link-local", "fe80::1%eth0": "link-local",
		"64:ff9b::a9fe:a9fe": "link-local", "2002:a9fe:a9fe::1": "link-local", "64:ff9b::7f00:1": "loopback",
		"0.0.0.0": "unspecified", "::": "unspecified", "0.1.2.3": "unspecified",
		"224.0.0.1": "multicast", "ff02::1": "multicast", "255.255.255.255": "reserved",
		"fd00:ec2::254": "metadata", "100.100.100.200": "metadata", "168.63.129.16": "metadata",
		"10.96.0.1": "network of the cluster", "10.96.0.9": "", "64:ff9b::10.96.0.1": "network of the cluster",
	} {
		transport := New(Options{Deny: mustParsePrefixes("10.96.0.1/32"), Allow: mustParsePrefixes("10.96.0.9/32"),
			Hint: "use --x"})
		err := transport.refuseSpecialOrDeniedIP("host:1", netip.MustParseAddr(address), false)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: got %v", address, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "connecting to host:1 ") || !strings.HasSuffix(err.Error(), ": use --x")):
			t.Errorf("%s: got %v, want %s", address, err, want)
		}
	}
}

// TestRebinding checks that the address is checked at each connection. A host name first resolves to an allowed
// address, and later to an address of this machine; the later connection is refused.
func TestRebinding(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer server.Close()
	port := server.URL[strings.LastIndex(server.URL, ":")+1:]
	location := "http://charts.example.com:" + port

	resolver, answer := startDNS(t, "192.0.2.1")
	if ips, err := resolver.LookupHost(t.Context(), "charts.example.com"); err != nil || ips[0] != "192.0.2.1" {
		t.Fatalf("got %v, %v", ips, err)
	}
	answer.Store(new("127.0.0.1"))
	transport := newTransport(Options{Hint: "allow it with --flag"})
	transport.dialer.Resolver = resolver
	err := get(t, transport, location)
	refused, ok := errors.AsType[*Error](err)
	if !ok || refused.Host != "charts.example.com:"+port || refused.Address != netip.MustParseAddr("127.0.0.1") ||
		!IsRefused(err) || requests.Load() != 0 {
		t.Fatalf("got %v after %d requests", err, requests.Load())
	}
	for name, o := range map[string]Options{
		"Allowed":    {Allow: mustParsePrefixes("127.0.0.0/8")},
		"Configured": {Configured: []string{"http://Charts.example.com:" + port + "/path"}},
		"NoScheme":   {Configured: []string{"charts.example.com:" + port + "/path"}},
		"Registry":   {Configured: []string{"oci://charts.example.com:" + port}, Deny: mustParsePrefixes("127.0.0.1/32")},
	} {
		requests.Store(0)
		transport := newTransport(o)
		transport.dialer.Resolver = resolver
		if err := get(t, transport, location); err != nil || requests.Load() != 1 {
			t.Errorf("%s: got %v after %d requests", name, err, requests.Load())
		}
	}
}

// TestConfigured checks that a configured host is allowed only with its port, and never on the address of a metadata
// service.
func TestConfigured(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	transport := newTransport(Options{Configured: []string{"http://127.0.0.1:1"}})
	if err := get(t, transport, server.URL); !IsRefused(err) {
		t.Errorf("another port: got %v", err)
	}
	transport = newTransport(Options{Configured: []string{"registry.example.com"}})
	transport.dialer.Resolver, _ = startDNS(t, "169.254.169.254")
	if err := get(t, transport, "http://registry.example.com/latest"); !IsRefused(err) {
		t.Errorf("metadata: got %v", err)
	}
}

// TestRedirects checks redirects, and that their target is checked like any other destination.
func TestRedirects(t *testing.T) {
	var requests atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer other.Close()
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	defer home.Close()
	if err := get(t, newTransport(Options{Configured: []string{home.URL}}), home.URL); !IsRefused(err) {
		t.Errorf("to loopback: got %v", err)
	}
	open := newTransport(Options{Allow: mustParsePrefixes("127.0.0.0/8")})
	if err := get(t, open, home.URL); err != nil || requests.Load() != 1 {
		t.Errorf("to another host: got %v after %d requests", err, requests.Load())
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, home.URL, strings.NewReader("password=x"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: open}).Do(request)
	if err == nil {
		_ = response.Body.Close()
	}
	if err == nil || requests.Load() != 1 {
		t.Errorf("the body of a request was sent to another host: %v", err)
	}

	secure := httptest.NewTLSServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer secure.Close()
	open.http.TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig
	if err := get(t, open, secure.URL); err == nil || !strings.Contains(err.Error(), "from https to http") ||
		requests.Load() != 1 {
		t.Errorf("to plain HTTP: got %v", err)
	}
}

// TestProxy checks that a proxy may be on loopback, and that hosts that are IP addresses are checked even if there is a
// proxy.
func TestProxy(t *testing.T) {
	var asked atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.Host)
	}))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := newTransport(Options{})
	transport.proxy = http.ProxyURL(at)
	if err := get(t, transport, "http://169.254.169.254/latest"); !IsRefused(err) || asked.Load() != nil {
		t.Errorf("got %v, the proxy was asked for %v", err, asked.Load())
	}
	if err := get(t, transport, "http://charts.example.com/index.yaml"); err != nil ||
		asked.Load() != "charts.example.com" {
		t.Errorf("got %v, the proxy was asked for %v", err, asked.Load())
	}
}
