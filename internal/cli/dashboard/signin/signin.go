// Package signin signs people in to the dashboard with OpenID Connect.
//
// # Use
//
//	s, err := signin.New(ctx, signin.Options{Issuer: issuer, ClientID: id, RedirectURL: url, Key: key})
//	handler := s.Protect(pages)      // pages ask signin.UserOf(r) who calls
//
// # How it works
//
// A visitor without a session is sent to the provider with the authorization code flow and PKCE. A cookie contains the
// state, the nonce, the verifier and the requested page; the cookie is bound to this attempt to sign in. The provider
// sends the visitor back; the ID token is verified, and the session cookie gets the name and the groups. The cookie of
// the attempt and the session cookie are encrypted and authenticated with AES-256-GCM, so that the server stores
// nothing and every replica with the same key accepts both cookies. A session ends after Options.Lifetime, or when the
// ID token expires, whichever is earlier. A session from before the sign-in is never continued: its cookie is replaced.
//
// # What it does not do
//
// The package decides no permissions. The package returns the name and the groups as the API server would see them. The
// caller of the package asks the API server about permissions. The package keeps no refresh token: after the end of the
// session, the visitor is sent to the provider again.
package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// Paths of the pages that Protect serves itself.
const (
	CallbackPath = "/signin/callback" // the provider sends visitors here
	SignOutPath  = "/signout"         // POST ends the session
)

// attemptTimeout is the time within which a visitor has to sign in at the provider.
const attemptTimeout = 10 * time.Minute

// Options configure SignIn. Issuer, ClientID, RedirectURL and Key are required.
type Options struct {
	// Issuer is the https address of the provider. The provider's configuration is read when New is called.
	Issuer string
	// ClientID and ClientSecret identify the dashboard at the provider. A public client has no secret.
	ClientID, ClientSecret string
	// RedirectURL is the address of the dashboard for browsers, with the path CallbackPath.
	RedirectURL string
	// Scopes are requested in addition to openid. The default scopes are profile, email and groups.
	Scopes []string
	// UsernameClaim and GroupsClaim name the claims with the name and the groups of a person as the API server sees
	// them. The default claims are email and groups. An email that the provider has not verified is refused.
	UsernameClaim, GroupsClaim string
	// UsernamePrefix and GroupsPrefix are put in front of names and groups, as the API server does.
	UsernamePrefix, GroupsPrefix string
	// Key encrypts cookies: 32 bytes. All replicas need the same key. If the key changes, all sessions end.
	Key []byte
	// Lifetime limits a session, 1 minute to 24 hours. The default is 8 hours.
	Lifetime time.Duration
	// Client sends the requests to the provider. The default client has a timeout of 10 seconds. Answers of the
	// provider with more than 1 MiB are refused, also with another client.
	Client *http.Client
	// Now is the clock. The default is time.Now.
	Now func() time.Time
}

// SignIn signs people in.
type SignIn struct {
	options  Options
	oauth    oauth2.Config
	verifier *oidc.IDTokenVerifier
	cookies  sealer
	secure   bool // browsers reach the dashboard by https
}

// User is a person who has signed in.
type User struct {
	Name   string
	Groups []string
	Until  time.Time // end of the session
}

// Validate returns an error if the options are wrong, without a request.
func (o Options) Validate() error {
	if _, err := o.validateAndDefault(); err != nil {
		return err
	}
	_, err := newSealer(o.Key)
	return err
}

// New reads the configuration of the provider.
func New(ctx context.Context, o Options) (*SignIn, error) {
	address, err := o.validateAndDefault()
	if err != nil {
		return nil, err
	}
	ctx = oidc.ClientContext(ctx, o.Client)
	provider, err := oidc.NewProvider(ctx, o.Issuer)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of the OpenID Connect provider %s: %s", o.Issuer,
			text.ClipLine(err.Error(), maxCause))
	}
	cookies, err := newSealer(o.Key)
	if err != nil {
		return nil, err
	}
	return &SignIn{
		options: o,
		oauth: oauth2.Config{ClientID: o.ClientID, ClientSecret: o.ClientSecret, Endpoint: provider.Endpoint(),
			RedirectURL: o.RedirectURL, Scopes: append([]string{oidc.ScopeOpenID}, o.Scopes...)},
		verifier: provider.VerifierContext(ctx, &oidc.Config{ClientID: o.ClientID, Now: o.Now}),
		cookies:  cookies,
		secure:   address.Scheme == "https",
	}, nil
}

// maxCause is the maximum number of bytes of an error message of the provider that a message of the dashboard contains.
const maxCause = 300

// validateAndDefault checks the options, sets defaults, and returns the address of the dashboard.
func (o *Options) validateAndDefault() (*url.URL, error) {
	if o.Issuer == "" || o.ClientID == "" {
		return nil, errors.New("the OpenID Connect provider needs an issuer and a client id")
	}
	address, err := url.Parse(o.RedirectURL)
	if err != nil || address.Host == "" || address.Path != CallbackPath {
		return nil, fmt.Errorf("the redirect URL %q is not the address of the dashboard with the path %s",
			o.RedirectURL, CallbackPath)
	}
	for _, u := range []string{o.Issuer, o.RedirectURL} {
		if parsed, err := url.Parse(u); err != nil || parsed.Scheme != "https" && !isLoopbackHTTP(parsed) {
			return nil, fmt.Errorf("%q does not begin with https://: tokens would be sent in the clear", u)
		}
	}
	if o.Lifetime == 0 {
		o.Lifetime = 8 * time.Hour
	}
	if o.Lifetime < time.Minute || o.Lifetime > 24*time.Hour {
		return nil, fmt.Errorf("the lifetime of sessions is %s: it must be 1m to 24h", o.Lifetime)
	}
	if o.Scopes == nil {
		o.Scopes = []string{"profile", "email", "groups"}
	}
	o.UsernameClaim, o.GroupsClaim = orDefault(o.UsernameClaim, "email"), orDefault(o.GroupsClaim, "groups")
	if o.Client == nil {
		o.Client = &http.Client{Timeout: providerTimeout}
	}
	bounded := *o.Client
	bounded.Transport = boundedTransport{bounded.Transport}
	o.Client = &bounded
	if o.Now == nil {
		o.Now = time.Now
	}
	return address, nil
}

// providerTimeout limits one request to the provider.
const providerTimeout = 10 * time.Second

// maxAnswer limits the bytes of an answer of the provider.
const maxAnswer = 1 << 20

// boundedTransport limits the size of answers. A nil transport is http.DefaultTransport.
type boundedTransport struct{ http.RoundTripper }

func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	transport := t.RoundTripper
	if transport == nil {
		transport = http.DefaultTransport
	}
	answer, err := transport.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	}
	return answer, err
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// isLoopbackHTTP reports whether the address is on this machine, where http is acceptable.
func isLoopbackHTTP(u *url.URL) bool {
	host := u.Hostname()
	return u.Scheme == "http" && (host == "127.0.0.1" || host == "::1" || host == "localhost")
}

type userKey struct{}

// UserOf returns the person who sent the request. The result ok is false if the request was not handled by Protect.
func UserOf(r *http.Request) (u User, ok bool) {
	u, ok = r.Context().Value(userKey{}).(User)
	return u, ok
}

// Protect serves the pages of the sign-in, and pages for visitors who have signed in. A visitor without a session who
// requests a page is sent to the provider; every other request without a session is answered with 401.
func (s *SignIn) Protect(pages http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+CallbackPath, s.callback)
	mux.HandleFunc("POST "+SignOutPath, s.signOut)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		u, ok := s.session(r)
		switch {
		case ok:
			pages.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, u)))
		case r.Method == http.MethodGet && asksForPage(r):
			s.begin(w, r)
		default:
			http.Error(w, "your session has ended: open the dashboard again to sign in", http.StatusUnauthorized)
		}
	})
	return mux
}

// asksForPage reports whether a browser shows the answer as a page. A script or an event stream cannot follow a
// redirect to the provider.
func asksForPage(r *http.Request) bool {
	if mode := r.Header.Get("Sec-Fetch-Mode"); mode != "" {
		return mode == "navigate"
	}
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// session returns the person whose session cookie the request has.
func (s *SignIn) session(r *http.Request) (User, bool) {
	var u User
	if s.cookies.read(r, s.name(sessionCookie), &u) != nil || u.Name == "" || !s.options.Now().Before(u.Until) {
		return User{}, false
	}
	return u, true
}

// attempt is one attempt of a visitor to sign in at the provider. The cookie of the attempt binds the answer of the
// provider to the browser that began the sign-in.
type attempt struct {
	State    string
	Nonce    string
	Verifier string
	Page     string // requested path and query
	Until    time.Time
}

// begin sends a visitor to the provider.
func (s *SignIn) begin(w http.ResponseWriter, r *http.Request) {
	a := attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(),
		Page: safeReturnPath(r.URL), Until: s.options.Now().Add(attemptTimeout)}
	s.dropAttemptsIfMany(w, r)
	if err := s.cookies.write(w, s.cookie(attemptCookie+a.State, attemptTimeout), a); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	// Lax cookies are sent when the provider redirects the browser back; Strict cookies are not sent in this case.
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, s.oauth.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)),
		http.StatusFound)
}

// maxAttempts is the maximum number of attempts of one browser to sign in at the same time. Several tabs may sign in at
// the same time, so each attempt has a cookie of its own. Proxies limit the size of all cookies together.
const maxAttempts = 4

// dropAttemptsIfMany removes the cookies of all attempts to sign in if the browser has maxAttempts of them or more.
func (s *SignIn) dropAttemptsIfMany(w http.ResponseWriter, r *http.Request) {
	var names []string
	for _, c := range r.Cookies() {
		if strings.HasPrefix(c.Name, s.name(attemptCookie)) {
			names = append(names, strings.TrimPrefix(c.Name, s.name("")))
		}
	}
	if len(names) < maxAttempts {
		return
	}
	for _, name := range names {
		s.cookies.drop(w, s.cookie(name, 0))
	}
}

// maxPage is the maximum length of the address of the page to which a visitor returns after signing in.
const maxPage = 1024

// safeReturnPath returns path and query of an address. safeReturnPath returns / if a browser could interpret the path
// as another host.
func safeReturnPath(u *url.URL) string {
	page := u.RequestURI()
	if len(page) > maxPage || !strings.HasPrefix(page, "/") || strings.HasPrefix(page, "//") ||
		strings.ContainsAny(page, "\\\r\n") {
		return "/"
	}
	return page
}

// callback handles the request with which the identity provider sends a visitor back after the sign-in.
func (s *SignIn) callback(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	u, page, err := s.finish(r)
	if c := s.cookie(attemptCookie+r.URL.Query().Get("state"), 0); hasCookie(r, c.Name) {
		s.cookies.drop(w, c)
	}
	if err == nil {
		err = s.cookies.write(w, s.cookie(sessionCookie, u.Until.Sub(s.options.Now())), u)
	} else if _, ok := s.session(r); ok { // for example, the page was reloaded after the sign-in
		http.Redirect(w, r, "/", http.StatusFound)
		return
	}
	if err != nil {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		http.Error(w, "signing in: "+text.ClipLine(err.Error(), maxCause)+"\n\nOpen the dashboard again to repeat it.",
			http.StatusForbidden)
		return
	}
	http.Redirect(w, r, page, http.StatusFound) //nolint:gosec // safeReturnPath has checked it
}

func hasCookie(r *http.Request, name string) bool {
	_, err := r.Cookie(name)
	return err == nil
}

// finish verifies the provider's answer.
func (s *SignIn) finish(r *http.Request) (u User, page string, err error) {
	var a attempt
	query := r.URL.Query()
	state := query.Get("state")
	if err := s.cookies.read(r, s.name(attemptCookie+state), &a); err != nil || !s.options.Now().Before(a.Until) ||
		subtle.ConstantTimeCompare([]byte(state), []byte(a.State)) != 1 {
		return u, "", fmt.Errorf("this browser has not begun this sign-in within the last %s", attemptTimeout)
	}
	if reason := query.Get("error"); reason != "" {
		return u, "", fmt.Errorf("the provider refused: %s %s", reason, query.Get("error_description"))
	}
	ctx := oidc.ClientContext(r.Context(), s.options.Client)
	token, err := s.oauth.Exchange(ctx, query.Get("code"), oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return u, "", fmt.Errorf("exchanging the code: %w", err)
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return u, "", errors.New("the provider returned no ID token")
	}
	id, err := s.verifier.Verify(ctx, raw)
	if err != nil {
		return u, "", fmt.Errorf("verifying the ID token: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(a.Nonce)) != 1 {
		return u, "", errors.New("the ID token was issued for another sign-in")
	}
	u, err = s.userOf(id)
	return u, a.Page, err
}

// maxGroups is the maximum number of groups of a person: the session has to fit into a cookie.
const maxGroups = 100

// userOf returns the person of an ID token, with name and groups as the API server sees them.
func (s *SignIn) userOf(id *oidc.IDToken) (User, error) {
	var claims map[string]any
	if err := id.Claims(&claims); err != nil {
		return User{}, fmt.Errorf("reading the claims of the ID token: %w", err)
	}
	name, _ := claims[s.options.UsernameClaim].(string)
	if name == "" {
		return User{}, fmt.Errorf("the ID token has no claim %q with a name", s.options.UsernameClaim)
	}
	if verified, known := claims["email_verified"]; s.options.UsernameClaim == "email" && known && verified != true {
		return User{}, fmt.Errorf("the provider has not verified the address %q", name)
	}
	u := User{Name: s.options.UsernamePrefix + name, Until: s.options.Now().Add(s.options.Lifetime)}
	if id.Expiry.Before(u.Until) {
		u.Until = id.Expiry
	}
	if strings.HasPrefix(u.Name, reservedPrefix) {
		return User{}, fmt.Errorf("the name %q is reserved for Kubernetes: set a prefix for names", u.Name)
	}
	groups, err := groupsOf(claims[s.options.GroupsClaim])
	if err != nil {
		return User{}, fmt.Errorf("claim %q: %w", s.options.GroupsClaim, err)
	}
	for _, g := range groups {
		g = s.options.GroupsPrefix + g
		if strings.HasPrefix(g, reservedPrefix) {
			return User{}, fmt.Errorf("the group %q is reserved for Kubernetes: set a prefix for groups", g)
		}
		u.Groups = append(u.Groups, g)
	}
	return u, nil
}

// reservedPrefix is the prefix of the names of users and groups that only Kubernetes assigns, such as system:masters.
const reservedPrefix = "system:"

// groupsOf reads a claim that is a name, a list of names, or missing.
func groupsOf(claim any) ([]string, error) {
	var groups []string
	switch value := claim.(type) {
	case nil:
	case string:
		groups = []string{value}
	case []any:
		for _, v := range value {
			g, ok := v.(string)
			if !ok {
				return nil, errors.New("a group is not a string")
			}
			groups = append(groups, g)
		}
	default:
		return nil, errors.New("it is neither a string nor a list of strings")
	}
	if len(groups) > maxGroups {
		return nil, fmt.Errorf("it has %d groups, more than %d: let the provider send only those of the dashboard",
			len(groups), maxGroups)
	}
	return groups, nil
}

// signOut ends the session in this browser. A request of another site is refused.
func (s *SignIn) signOut(w http.ResponseWriter, r *http.Request) {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		http.Error(w, "this request comes from another site", http.StatusForbidden)
		return
	}
	s.cookies.drop(w, s.cookie(sessionCookie, 0))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "You have signed out of the dashboard. Your session at the provider may go on.")
}
