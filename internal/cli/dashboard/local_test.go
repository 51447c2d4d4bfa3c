package dashboard

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/page"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/pageserver"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// opened is a dashboard for tests whose printed address was not opened yet.
type opened struct {
	*httptest.Server
	token string
	index *fleetindex.Index
}

func open(t *testing.T) *opened {
	t.Helper()
	index := fleetindex.New()
	index.SetCatalogAndManager(connection.NewCatalog(nil, nil), nil, fixture.ControlPlane)
	index.Put()
	index.Publish()
	host, token := newLocalHost("1")
	host.viewer = func() *pageserver.Viewer { return &pageserver.Viewer{} }
	server := httptest.NewUnstartedServer(nil)
	pages, err := page.New(page.Options{Index: index, Viewer: host.authenticate,
		Hosts: []string{server.Listener.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	server.Config = newServer(t.Context(), pages)
	server.Start()
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	return &opened{server, token, index}
}

// get requests a path with a cookie, and returns the status, the body and the cookie that was set.
func (o *opened) get(t *testing.T, path string, cookie *http.Cookie, change ...func(*http.Request)) (
	int, string, *http.Cookie) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cookie != nil {
		r.AddCookie(cookie)
	}
	for _, c := range change {
		c(r)
	}
	w, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if all := w.Cookies(); len(all) > 0 {
		return w.StatusCode, string(body), all[0]
	}
	return w.StatusCode, string(body), nil
}

// TestToken checks that the token is valid once, and that afterwards only the cookie gives access.
func TestToken(t *testing.T) {
	o := open(t)
	for _, path := range []string{"/", "/?token=wrong", "/fleet/cells", "/events", "/?token="} {
		if status, body, cookie := o.get(t, path, nil); status != http.StatusUnauthorized || cookie != nil ||
			strings.Contains(body, "<main") {
			t.Errorf("%s without a token: %d, cookie %v", path, status, cookie)
		}
	}
	chosen := &http.Cookie{Name: "klm-dashboard-1", Value: "chosen"}
	status, body, cookie := o.get(t, "/versions?token="+o.token+"&sort=module", chosen)
	if status != http.StatusOK || cookie == nil || !strings.Contains(body, `url=/versions?sort=module"`) {
		t.Fatalf("with the token: %d %s %v", status, body, cookie)
	}
	if cookie.Value == "chosen" || cookie.Value == o.token || !cookie.HttpOnly || cookie.Path != "/" ||
		cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie is %v", cookie)
	}
	if status, _, again := o.get(t, "/?token="+o.token, nil); status != http.StatusUnauthorized || again != nil {
		t.Errorf("the token works twice: %d, %v", status, again)
	}
	if status, _, _ := o.get(t, "/", chosen); status != http.StatusUnauthorized {
		t.Errorf("a cookie with a chosen value is accepted: %d", status)
	}
	for _, path := range []string{"/", "/versions?sort=module"} {
		if status, body, _ := o.get(t, path, cookie); status != http.StatusOK || !strings.Contains(body, "<main") {
			t.Errorf("%s with the cookie: %d\n%s", path, status, body)
		}
	}
	status, body, again := o.get(t, "/?token="+o.token, cookie) // the address was opened again
	if status != http.StatusOK || again != nil || !strings.Contains(body, `url=/"`) {
		t.Errorf("the used address in the same browser: %d %s", status, body)
	}
	if _, body, _ := o.get(t, "//evil.example/?token=x", cookie); strings.Contains(body, "url=//") {
		t.Errorf("the page leads to another host:\n%s", body)
	}
}

// TestRebinding checks that requests with a foreign host name that resolves to this computer, and requests from pages
// of another site, are refused even with the cookie.
func TestRebinding(t *testing.T) {
	o := open(t)
	_, _, cookie := o.get(t, "/?token="+o.token, nil)
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"Host":       {func(r *http.Request) { r.Host = "evil.example:80" }, http.StatusMisdirectedRequest},
		"OtherPort":  {func(r *http.Request) { r.Host = "127.0.0.1:1" }, http.StatusMisdirectedRequest},
		"Origin":     {func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, http.StatusForbidden},
		"NullOrigin": {func(r *http.Request) { r.Header.Set("Origin", "null") }, http.StatusForbidden},
		"OtherPortOrigin": {func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") },
			http.StatusForbidden},
		"Own": {func(r *http.Request) { r.Header.Set("Origin", "http://"+r.URL.Host) }, http.StatusOK},
	} {
		if status, body, _ := o.get(t, "/", cookie, c.change); status != c.status {
			t.Errorf("%s: %d, want %d: %s", name, status, c.status, body)
		}
	}
	// A request with a foreign host name that resolves to this computer must not invalidate the token.
	o = open(t)
	o.get(t, "/?token="+o.token, nil, func(r *http.Request) { r.Host = "evil.example" })
	if status, _, cookie := o.get(t, "/?token="+o.token, nil); status != http.StatusOK || cookie == nil {
		t.Errorf("the token was used up by another host: %d", status)
	}
}

// TestSlowClients checks that the connection of a client that sends its header slowly is closed.
func TestSlowClients(t *testing.T) {
	server := newServer(t.Context(), http.NotFoundHandler())
	if server.ReadHeaderTimeout == 0 || server.ReadTimeout == 0 || server.IdleTimeout == 0 ||
		server.MaxHeaderBytes == 0 {
		t.Errorf("a limit is missing: %+v", server)
	}
	server.ReadHeaderTimeout = 50 * time.Millisecond
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	connection, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close() //nolint:errcheck // only read
	fmt.Fprint(connection, "GET / HTTP/1.1\r\nHost: x\r\n")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	done := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(connection).ReadString('\n')
		done <- line
	}()
	select {
	case line := <-done:
		if strings.Contains(line, " 200 ") || strings.Contains(line, " 404 ") {
			t.Errorf("the request was answered: %s", line)
		}
	case <-ctx.Done():
		t.Error("a slow client keeps its connection")
	}
}
