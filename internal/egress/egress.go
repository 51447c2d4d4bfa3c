// Package egress sends HTTP requests to locations that other people choose: chart repositories and registries in module
// templates, URLs in an index, redirects, and token servers of registries. The package refuses requests to addresses
// that only this machine or this cluster can reach.
//
// # Use
//
//	client := http.Client{Transport: egress.New(egress.Options{Configured: []string{"registry.example.com"}})}
//
// # How it works
//
// The Transport resolves the host of a location and checks each address when it is dialled. A host name therefore
// cannot avoid the check by resolving to another address the second time. The first rule that applies decides whether
// an address is allowed:
//
//  1. An address in Options.Allow is allowed.
//  2. The host and port of a proxy, or of an entry in Options.Configured, is allowed if its address is a loopback
//     address or in Options.Deny.
//  3. A special address is refused: link-local, loopback, unspecified, multicast, reserved, or the metadata service
//     of a cloud provider. This includes IPv4 addresses in IPv6 addresses (mapped, NAT64, 6to4).
//  4. An address in Options.Deny is refused.
//  5. Every other address is allowed, including private addresses.
//
// A redirect from https to another scheme gives an error. A redirect that would send the body of a request to another
// host gives an error, too, because the body may contain a credential.
//
// If the environment names a proxy ($HTTPS_PROXY, $HTTP_PROXY, $NO_PROXY), the Transport uses it. With a proxy, the
// proxy resolves the host and connects to it. The Transport itself checks only hosts that are IP addresses; the proxy
// has to check all other hosts.
//
// # What it does not do
//
// The package limits neither the number of redirects nor the size of answers. Which credentials are sent after a
// redirect is decided by the client of the caller.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options are the options of New. With the zero value, the special addresses (rule 3 in the package comment) are
// refused, and all other addresses are allowed.
type Options struct {
	// Allow are networks that are allowed although a later rule refuses them.
	Allow []netip.Prefix
	// Deny are further networks that are refused, such as those of the pods and Services of the cluster.
	Deny []netip.Prefix
	// Configured are locations that the operator has configured, such as the registry of modules: host[:port][/path],
	// with or without a scheme. A configured location may have a loopback address or an address in Deny, but not
	// another special address, for example a link-local one.
	Configured []string
	// Hint is an instruction that is added to the end of an Error. If Hint is empty, nothing is added.
	Hint string
}

// Transport is an [http.RoundTripper] that checks the address of each request. A Transport is safe for concurrent use.
// Use New to create a Transport.
type Transport struct {
	options Options
	trusted map[string]bool // the set of Configured, as host:port; read-only
	proxies sync.Map        // the proxies that were used, as host:port
	proxy   func(*http.Request) (*url.URL, error)
	dialer  net.Dialer
	http    *http.Transport
}

// Error is the error about a request whose destination is refused.
type Error struct {
	// Host is the host and port of the location.
	Host string
	// Address is the IP address to which Host resolves, or Host itself if it is an IP address.
	Address netip.Addr
	// Kind is the reason of the refusal, such as "a link-local address".
	Kind string

	hint string
}

// Error returns one line with the host, its address, the reason of the refusal, and how to allow it.
func (e *Error) Error() string {
	return fmt.Sprintf("connecting to %s is refused: its address %s is %s%s", e.Host, e.Address, e.Kind, e.hint)
}

// IsRefused reports whether an error means that the destination of a request is refused.
func IsRefused(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}

// New returns a Transport.
func New(o Options) *Transport {
	t := &Transport{options: o, trusted: map[string]bool{}, proxy: http.ProxyFromEnvironment,
		dialer: net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}}
	if o.Hint != "" {
		t.options.Hint = ": " + o.Hint
	}
	for _, location := range o.Configured {
		for _, host := range hostPortsOf(location) {
			t.trusted[host] = true
		}
	}
	t.http = http.DefaultTransport.(*http.Transport).Clone()
	t.http.Proxy, t.http.DialContext = t.proxyOf, t.dial
	t.http.MaxResponseHeaderBytes = 1 << 20
	return t
}

// hostPortsOf returns the host:port to which a location belongs. If the location has no scheme and no port, hostPortsOf
// returns two values, because a registry on a private address is tried with and without TLS.
func hostPortsOf(location string) []string {
	scheme, rest, hasScheme := strings.Cut(location, "://")
	if !hasScheme || scheme == "oci" {
		scheme, rest = "", strings.TrimPrefix(location, "oci://")
	}
	host, _, _ := strings.Cut(rest, "/")
	u, err := url.Parse("//" + host)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	if scheme != "" || u.Port() != "" {
		u.Scheme = scheme
		return []string{hostPort(u)}
	}
	return []string{net.JoinHostPort(strings.ToLower(u.Hostname()), "443"),
		net.JoinHostPort(strings.ToLower(u.Hostname()), "80")}
}

// hostPort returns the host and the port of a URL in the form in which net/http connects to them.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.http.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := refuseDowngradeOrBodyLeak(r, response); err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	return response, nil
}

// CloseIdleConnections closes connections on which no request is running.
func (t *Transport) CloseIdleConnections() { t.http.CloseIdleConnections() }

// refuseDowngradeOrBodyLeak returns an error if a response is a redirect that must not be followed.
func refuseDowngradeOrBodyLeak(r *http.Request, response *http.Response) error {
	if response.StatusCode < 300 || response.StatusCode > 399 {
		return nil
	}
	to, err := response.Location()
	if err != nil {
		return nil // not a redirect, or one that no client can follow
	}
	if r.URL.Scheme == "https" && to.Scheme != "https" {
		return fmt.Errorf("%s redirects from https to %s: ask its owner", r.URL.Host, to.Scheme)
	}
	hasBody := r.Body != nil && r.Body != http.NoBody && response.StatusCode >= http.StatusTemporaryRedirect
	if hasBody && (to.Scheme != r.URL.Scheme || hostPort(to) != hostPort(r.URL)) {
		return fmt.Errorf("%s redirects a request with a body to %s: ask its owner", r.URL.Host, to.Host)
	}
	return nil
}

// proxyOf returns the proxy for a request, or nil if there is none. If there is a proxy, it resolves the host, so the
// address cannot be checked when the connection is made. proxyOf therefore refuses a host that itself is a refused
// address.
func (t *Transport) proxyOf(r *http.Request) (*url.URL, error) {
	proxy, err := t.proxy(r)
	if proxy == nil || err != nil {
		return nil, err
	}
	host := hostPort(r.URL)
	if ip, err := netip.ParseAddr(r.URL.Hostname()); err == nil {
		if err := t.refuseSpecialOrDeniedIP(host, ip, t.trusted[host]); err != nil {
			return nil, err
		}
	}
	t.proxies.Store(hostPort(proxy), true)
	return proxy, nil
}

// dial connects to host:port, and checks each address to which the host resolves.
func (t *Transport) dial(ctx context.Context, network, host string) (net.Conn, error) {
	_, isProxy := t.proxies.Load(host)
	isTrusted := isProxy || t.trusted[host]
	d := t.dialer
	d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		dialled, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("connecting to %s is refused: %q is not an IP address and port", host, address)
		}
		return t.refuseSpecialOrDeniedIP(host, dialled.Addr(), isTrusted)
	}
	return d.DialContext(ctx, network, host)
}

// refuseSpecialOrDeniedIP returns an Error if requests to an address are refused.
func (t *Transport) refuseSpecialOrDeniedIP(host string, ip netip.Addr, isTrusted bool) error {
	all := withEmbeddedIPv4(ip.WithZone(""))
	for _, ip := range all {
		if isIn(t.options.Allow, ip) {
			return nil
		}
	}
	for _, ip := range all {
		for _, s := range special {
			if isIn(s.networks, ip) && (!isTrusted || s.kind != loopback) {
				return &Error{Host: host, Address: ip, Kind: s.kind, hint: t.options.Hint}
			}
		}
		if isIn(t.options.Deny, ip) && !isTrusted {
			return &Error{Host: host, Address: ip, Kind: "in a network of the cluster", hint: t.options.Hint}
		}
	}
	return nil
}

const loopback = "a loopback address"

// special are the addresses that rule 3 in the package comment refuses, such as loopback and link-local addresses.
var special = []struct {
	kind     string
	networks []netip.Prefix
}{
	{"unspecified", mustParsePrefixes("0.0.0.0/8", "::/128")},
	{loopback, mustParsePrefixes("127.0.0.0/8", "::1/128")},
	{"a link-local address", mustParsePrefixes("169.254.0.0/16", "fe80::/10")},
	{"a multicast address", mustParsePrefixes("224.0.0.0/4", "ff00::/8")},
	{"a reserved address", mustParsePrefixes("240.0.0.0/4")},
	{"a metadata service of a cloud provider", mustParsePrefixes("100.100.100.200/32", "168.63.129.16/32",
		"192.0.0.192/32",
		"fd00:ec2::254/128", "fd20:ce::254/128", "fd00:42::42/128")},
}

func mustParsePrefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, 0, len(texts))
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func isIn(networks []netip.Prefix, ip netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(ip) {
			return true
		}
	}
	return false
}

var nat64, sixToFour = netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("2002::/16")

// withEmbeddedIPv4 returns the addresses that have to be checked for one address: the address itself, without an IPv6
// zone, and an IPv4 address that it contains. A gateway (NAT64, 6to4) would forward packets to the contained IPv4
// address.
func withEmbeddedIPv4(ip netip.Addr) []netip.Addr {
	ip = ip.Unmap()
	b := ip.As16()
	switch {
	case nat64.Contains(ip):
		return []netip.Addr{ip, netip.AddrFrom4([4]byte(b[12:16]))}
	case sixToFour.Contains(ip):
		return []netip.Addr{ip, netip.AddrFrom4([4]byte(b[2:6]))}
	}
	return []netip.Addr{ip}
}
