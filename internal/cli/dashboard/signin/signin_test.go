package signin

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// unhurried is a client without a timeout, because a busy machine may need long for an answer of the provider.
var unhurried = &http.Client{}

// site is a test server in place of the dashboard. Its pages contain only the name of the person who has signed in.
type site struct {
	*httptest.Server
	provider *fixture.Provider

	mu  sync.Mutex
	now time.Time
}

func newSite(t *testing.T, change func(*Options)) *site {
	t.Helper()
	s := &site{provider: fixture.NewOIDCProvider(t), now: time.Now()}
	var handler http.Handler
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	o := Options{Issuer: s.provider.URL, ClientID: "klm", RedirectURL: s.URL + CallbackPath, Key: make([]byte, 32),
		Client: unhurried, Now: func() time.Time { s.mu.Lock(); defer s.mu.Unlock(); return s.now }}
	if change != nil {
		change(&o)
	}
	signIn, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	handler = signIn.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, ok := UserOf(r)
		fmt.Fprintln(w, r.URL.RequestURI(), u.Name, u.Groups, ok)
	}))
	return s
}

func (s *site) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// browser is a client that keeps cookies and follows redirects.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

// get returns status and body of a page.
func get(t *testing.T, c *http.Client, address string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	return do(t, c, r)
}

func do(t *testing.T, c *http.Client, r *http.Request) (int, string) {
	t.Helper()
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, strings.TrimSpace(string(body))
}

func TestSignIn(t *testing.T) {
	s := newSite(t, func(o *Options) { o.UsernamePrefix, o.GroupsPrefix = "oidc:", "oidc:" })
	s.provider.MergeClaims(map[string]any{"exp": s.now.Add(time.Hour).Unix()}) // by the clock of the site
	b := browser(t)
	code, body := get(t, b, s.URL+"/runtimes?state=Error")
	if want := "/runtimes?state=Error oidc:ann@example.org [oidc:fleet] true"; code != http.StatusOK || body != want {
		t.Fatalf("signed in: %d %q, want %q", code, body, want)
	}
	s.provider.Close()
	if code, body := get(t, b, s.URL+"/"); code != http.StatusOK {
		t.Errorf("a session needs no provider, but: %d %s", code, body)
	}
	s.pass(time.Hour)
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/events", nil)
	r.Header.Set("Accept", "text/event-stream")
	if code, body := do(t, b, r); code != http.StatusUnauthorized || !strings.Contains(body, "session has ended") {
		t.Errorf("after the end of the ID token: %d %q", code, body)
	}
}

func TestSessionEndsWithLifetime(t *testing.T) {
	s := newSite(t, func(o *Options) { o.Lifetime = time.Minute })
	b := browser(t)
	get(t, b, s.URL+"/")
	s.pass(59 * time.Second)
	s.provider.Close()
	if code, _ := get(t, b, s.URL+"/"); code != http.StatusOK {
		t.Fatalf("within the lifetime: %d", code)
	}
	s.pass(time.Second)
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if code, _ := get(t, b, s.URL+"/"); code != http.StatusFound {
		t.Errorf("after the lifetime: %d, want a redirect to the provider", code)
	}
}

func TestSignOut(t *testing.T) {
	s := newSite(t, nil)
	b := browser(t)
	get(t, b, s.URL+"/")
	post := func(site string) int {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+SignOutPath, nil)
		r.Header.Set("Sec-Fetch-Site", site)
		code, _ := do(t, b, r)
		return code
	}
	if code := post("cross-site"); code != http.StatusForbidden {
		t.Errorf("another site signs out: %d", code)
	}
	if code := post("same-origin"); code != http.StatusOK {
		t.Errorf("signing out: %d", code)
	}
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if code, _ := get(t, b, s.URL+"/"); code != http.StatusFound {
		t.Errorf("after signing out: %d, want a redirect to the provider", code)
	}
}

// TestRefusedTokens checks ID tokens that must be refused.
func TestRefusedTokens(t *testing.T) {
	many := make([]string, maxGroups+1)
	long := []string{strings.Repeat("x", maxCookie)}
	for name, test := range map[string]struct {
		claims map[string]any
		signer bool
		want   string
	}{
		"OtherAudience":   {claims: map[string]any{"aud": "other"}, want: "verifying the ID token"},
		"OtherIssuer":     {claims: map[string]any{"iss": "https://example.org"}, want: "verifying the ID token"},
		"Expired":         {claims: map[string]any{"exp": 1}, want: "expired"},
		"OtherNonce":      {claims: map[string]any{"nonce": "n"}, want: "issued for another sign-in"},
		"OtherKey":        {signer: true, want: "verifying the ID token"},
		"NoName":          {claims: map[string]any{"email": ""}, want: `no claim "email"`},
		"NameIsANumber":   {claims: map[string]any{"email": 7}, want: `no claim "email"`},
		"NotVerified":     {claims: map[string]any{"email_verified": false}, want: "has not verified"},
		"VerifiedIsText":  {claims: map[string]any{"email_verified": "no"}, want: "has not verified"},
		"ReservedName":    {claims: map[string]any{"email": "system:admin"}, want: "reserved"},
		"ReservedGroup":   {claims: map[string]any{"groups": []string{"a", "system:masters"}}, want: "reserved"},
		"ManyGroups":      {claims: map[string]any{"groups": many}, want: "101 groups"},
		"LongGroup":       {claims: map[string]any{"groups": long}, want: "do not fit into a cookie"},
		"GroupIsANumber":  {claims: map[string]any{"groups": []any{1}}, want: "not a string"},
		"GroupsAreObject": {claims: map[string]any{"groups": map[string]any{}}, want: "neither a string nor a list"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, nil)
			s.provider.MergeClaims(test.claims)
			if test.signer {
				s.provider.SignWithUnpublishedKey(t)
			}
			b := browser(t)
			code, body := get(t, b, s.URL+"/")
			if code != http.StatusForbidden || !strings.Contains(body, test.want) {
				t.Errorf("%d %q, want 403 with %q", code, body, test.want)
			}
			at, _ := url.Parse(s.URL)
			if len(b.Jar.Cookies(at)) != 0 {
				t.Errorf("cookies are left: %v", b.Jar.Cookies(at))
			}
		})
	}
}

// TestCallback checks that an answer of the provider is refused if the answer does not belong to a sign-in of this
// browser.
func TestCallback(t *testing.T) {
	s := newSite(t, nil)
	begin := func() (*http.Client, string) {
		b := browser(t)
		b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/", nil)
		r.Header.Set("Sec-Fetch-Mode", "navigate")
		answer, err := b.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		to, err := answer.Location()
		if err != nil {
			t.Fatal(err)
		}
		return b, to.Query().Get("state")
	}
	victim, state := begin()
	attacker, _ := begin()
	callback := s.URL + CallbackPath + "?code=c0de&state="
	if code, body := get(t, browser(t), callback+state); code != http.StatusForbidden ||
		!strings.Contains(body, "not begun this sign-in") {
		t.Errorf("without a cookie: %d %q", code, body)
	}
	if code, body := get(t, attacker, callback+state); code != http.StatusForbidden ||
		!strings.Contains(body, "not begun this sign-in") {
		t.Errorf("with the state of another browser: %d %q", code, body)
	}
	denied := callback + state + "&error=access_denied&error_description=%1b[31mno"
	if code, body := get(t, victim, denied); code != http.StatusForbidden ||
		!strings.Contains(body, "the provider refused: access_denied") || strings.Contains(body, "\x1b") {
		t.Errorf("refused by the provider: %d %q", code, body)
	}
	if code, body := get(t, victim, callback+state); code != http.StatusForbidden ||
		!strings.Contains(body, "not begun this sign-in") {
		t.Errorf("an attempt is used up by its first answer, but: %d %q", code, body)
	}
	late, state := begin()
	s.pass(attemptTimeout)
	if code, body := get(t, late, callback+state); code != http.StatusForbidden ||
		!strings.Contains(body, "not begun this sign-in within the last 10m") {
		t.Errorf("late: %d %q", code, body)
	}
}

// TestTwoTabs checks that two tabs of one browser can sign in at the same time, that the answer to a finished sign-in
// leads back to the dashboard, and that the number of cookies for sign-ins is limited.
func TestTwoTabs(t *testing.T) {
	s := newSite(t, nil)
	s.provider.MergeClaims(map[string]any{"exp": s.now.Add(time.Hour).Unix()}) // by the clock of the site
	b := browser(t)
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	follow := func(address string) (code int, next string) {
		t.Helper()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		r.Header.Set("Accept", "text/html")
		answer, err := b.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode, answer.Header.Get("Location")
	}
	_, first := follow(s.URL + "/runtimes")
	_, second := follow(s.URL + "/catalog")
	_, first = follow(first) // the provider sends the tab back with an answer
	if code, page := follow(first); code != http.StatusFound || page != "/runtimes" {
		t.Errorf("the first tab: %d %q", code, page)
	}
	_, second = follow(second)
	if code, page := follow(second); code != http.StatusFound || page != "/catalog" {
		t.Errorf("the second tab: %d %q", code, page)
	}
	if code, page := follow(second); code != http.StatusFound || page != "/" {
		t.Errorf("the second tab, reloaded: %d %q", code, page)
	}
	s.pass(2 * time.Hour) // the session has ended
	for range 3 * maxAttempts {
		follow(s.URL + "/")
	}
	site, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(b.Jar.Cookies(site)); n > maxAttempts+1 {
		t.Errorf("%d cookies, more than %d attempts and a session", n, maxAttempts)
	}
}

// TestForgedCookies checks that sessions that the dashboard did not issue are refused.
func TestForgedCookies(t *testing.T) {
	s := newSite(t, nil)
	forge := func(key byte, name string, u User) string {
		seal, err := newSealer(append(make([]byte, 31), key))
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		if err := seal.write(w, http.Cookie{Name: name}, u); err != nil {
			t.Fatal(err)
		}
		return w.Result().Cookies()[0].Value
	}
	now := time.Now()
	ann, late := User{Name: "ann", Until: now.Add(time.Hour)}, User{Name: "ann", Until: now.Add(-time.Hour)}
	for name, test := range map[string]struct {
		cookie string
		want   int
	}{
		"Genuine":      {forge(0, sessionCookie, ann), http.StatusOK},
		"OtherKey":     {forge(1, sessionCookie, ann), http.StatusUnauthorized},
		"OtherPurpose": {forge(0, attemptCookie, ann), http.StatusUnauthorized},
		"Ended":        {forge(0, sessionCookie, late), http.StatusUnauthorized},
		"Nobody":       {forge(0, sessionCookie, User{Until: now.Add(time.Hour)}), http.StatusUnauthorized},
		"NotBase64":    {"%%%", http.StatusUnauthorized},
		"TooShort":     {"AAAA", http.StatusUnauthorized},
		"Empty":        {"", http.StatusUnauthorized},
		"TooLong":      {strings.Repeat("A", maxCookie+1), http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/", nil)
			r.AddCookie(&http.Cookie{Name: sessionCookie, Value: test.cookie})
			if code, body := do(t, http.DefaultClient, r); code != test.want {
				t.Errorf("%d %q, want %d", code, body, test.want)
			}
		})
	}
}

// TestLocalPage checks to which page a visitor returns after the sign-in.
func TestLocalPage(t *testing.T) {
	for address, want := range map[string]string{
		"/":                                  "/",
		"/runtimes?a=b":                      "/runtimes?a=b",
		"//evil.example/":                    "/",
		"/\\evil.example":                    "/%5Cevil.example",
		"https://evil.example/x":             "/x",
		"/" + strings.Repeat("x", maxPage+1): "/",
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := safeReturnPath(u); got != want {
			t.Errorf("safeReturnPath(%q) = %q, want %q", address, got, want)
		}
	}
}

func TestOptions(t *testing.T) {
	p := fixture.NewOIDCProvider(t)
	good := Options{Issuer: p.URL, ClientID: "klm", RedirectURL: "https://fleet.example.org" + CallbackPath,
		Key: make([]byte, 32), Client: unhurried}
	for name, test := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"Complete":         {func(*Options) {}, ""},
		"NoIssuer":         {func(o *Options) { o.Issuer = "" }, "needs an issuer"},
		"NoClient":         {func(o *Options) { o.ClientID = "" }, "client id"},
		"IssuerInClear":    {func(o *Options) { o.Issuer = "http://idp.example.org" }, "in the clear"},
		"RedirectInClear":  {func(o *Options) { o.RedirectURL = "http://a.example" + CallbackPath }, "in the clear"},
		"OtherPath":        {func(o *Options) { o.RedirectURL = "https://a.example/x" }, CallbackPath},
		"ShortKey":         {func(o *Options) { o.Key = o.Key[:16] }, "16 bytes"},
		"LongLifetime":     {func(o *Options) { o.Lifetime = 25 * time.Hour }, "1m to 24h"},
		"NoProvider":       {func(o *Options) { o.Issuer = "http://127.0.0.1:1" }, "reading the configuration"},
		"AnotherProvider":  {func(o *Options) { o.Issuer = p.URL + "/" }, "reading the configuration"},
		"NegativeLifetime": {func(o *Options) { o.Lifetime = -1 }, "1m to 24h"},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			test.change(&o)
			_, err := New(t.Context(), o)
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestCookieAttributes(t *testing.T) {
	s := newSite(t, nil)
	https := newSite(t, func(o *Options) { o.RedirectURL = "https://fleet.example.org" + CallbackPath })
	for _, test := range []struct {
		site *site
		want http.Cookie
	}{
		{s, http.Cookie{Name: "klm-signin-", Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: 600}},
		{https, http.Cookie{Name: "__Host-klm-signin-", Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
			MaxAge: 600, Secure: true}},
	} {
		c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, test.site.URL+"/", nil)
		r.Header.Set("Accept", "text/html")
		answer, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		got := *answer.Cookies()[0]
		state := strings.TrimPrefix(got.Name, test.want.Name)
		if to, err := answer.Location(); err != nil || state == "" || to.Query().Get("state") != state {
			t.Errorf("the cookie %s belongs to another attempt than %s, %v", got.Name, to, err)
		}
		got.Name, got.Value, got.Raw = test.want.Name, "", ""
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// TestHugeAnswer checks that an answer of the provider that does not end is refused.
func TestHugeAnswer(t *testing.T) {
	p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		chunk := []byte(strings.Repeat(" ", 64<<10))
		for range 2 * maxAnswer / len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	defer p.Close()
	_, err := New(t.Context(), Options{Issuer: p.URL, ClientID: "klm", RedirectURL: "https://a.example" + CallbackPath,
		Key: make([]byte, 32), Client: unhurried})
	if err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("error %v, want one about the size", err)
	}
}
