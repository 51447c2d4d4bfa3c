package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"html"
	"io"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/pageserver"
)

const (
	// tokenParam is the name of the query parameter with the token in the address that klm prints.
	tokenParam = "token"
	// cookiePrefix is the beginning of the name of the cookie that replaces the token. Browsers share cookies between
	// all ports of a host. Therefore the name ends with the port, so that two dashboards do not overwrite each other's
	// cookie.
	cookiePrefix = "klm-dashboard-"
)

// localHost authenticates the one browser of the user. klm prints the address of the dashboard with a token. The
// response to the first request with this token sets a cookie with another secret, and the token becomes invalid.
// Therefore nobody gets access with an already used address from a browser history, a log or a list of processes.
type localHost struct {
	cookie  string // name of the cookie
	session string // value of the cookie; made here, so that no client can choose it
	viewer  func() *pageserver.Viewer

	mu    sync.Mutex
	token string // guarded by mu; "" after it was used
}

// newLocalHost returns a host with a new token. The parameter port makes the name of the cookie unique.
func newLocalHost(port string) (host *localHost, token string) {
	token = rand.Text()
	return &localHost{cookie: cookiePrefix + port, token: token, session: rand.Text()}, token
}

// authenticate returns the viewer if the request has the session cookie. The response to a request with the token sets
// the session cookie and leads the browser to the same path without the token.
func (h *localHost) authenticate(w http.ResponseWriter, r *http.Request) *pageserver.Viewer {
	if token := r.URL.Query().Get(tokenParam); token != "" && h.use(token) {
		//nolint:gosec // not Secure: the address is http, and on this machine
		http.SetCookie(w, &http.Cookie{Name: h.cookie, Value: h.session, Path: "/", HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
		sendContinuePage(w, r)
		return nil
	}
	if h.hasCookie(r) {
		if r.URL.Query().Has(tokenParam) {
			sendContinuePage(w, r)
			return nil
		}
		return h.viewer()
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusUnauthorized)
	fmt.Fprint(w, refused)
	return nil
}

// refused answers with the page for a browser that has no valid cookie.
const refused = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Not logged in · Lifecycle Manager</title>
<link rel="stylesheet" href="/assets/style.css"><div class="problem"><h1>This browser is not logged in</h1>
<p>The address that klm dashboard has printed works once, and this request has no valid token.</p>
<p class="remedy">Use the browser that opened it first, or end the command and start klm dashboard again.</p></div></html>
`

// use reports whether the token is valid, and makes the token invalid for later requests.
func (h *localHost) use(token string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(h.token)) != 1 {
		return false
	}
	h.token = ""
	return true
}

func (h *localHost) hasCookie(r *http.Request) bool {
	for _, c := range r.CookiesNamed(h.cookie) {
		if subtle.ConstantTimeCompare([]byte(c.Value), []byte(h.session)) == 1 {
			return true
		}
	}
	return false
}

// sendContinuePage answers with a page that leads to the same path without the token. A redirect is not possible: if
// the user has clicked the address in another web site, for example in a terminal that runs in the browser, the browser
// follows a redirect without the cookie.
func sendContinuePage(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	q.Del(tokenParam)
	to := "/" + strings.TrimLeft(r.URL.EscapedPath(), `/\`) // two slashes would name another host
	if len(q) > 0 {
		to += "?" + q.Encode()
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, `<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=%s">`+
		`<title>Lifecycle Manager</title><p><a href="%[1]s">Continue</a></p></html>`+"\n", html.EscapeString(to))
}

// openBrowser opens an address with the default browser of the desktop. Without a desktop, openBrowser asks the user to
// open the address.
func openBrowser(ctx context.Context, out io.Writer, address string) {
	name, args := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	}
	if err := exec.CommandContext(ctx, name, args...).Start(); err != nil { //nolint:gosec // no input of others
		fmt.Fprintln(out, "No browser was found: open the address yourself.")
	}
}
