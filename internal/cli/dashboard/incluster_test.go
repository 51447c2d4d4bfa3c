package dashboard

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/deploy"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// host is a dashboard that runs in in-cluster mode, with the servers that it needs in a test. A reverse proxy in front
// of the dashboard takes the place of an ingress.
type host struct {
	*fixture.Server
	provider *fixture.Provider
	url      string
	out      *output

	mu       sync.Mutex
	reviews  []string          // guarded by mu; bodies of the questions about rights
	asked    map[string]string // guarded by mu; header Impersonate-User by method and path
	own      map[string]bool   // guarded by mu; verb and resource of requests in the name of the dashboard itself
	overload bool              // guarded by mu; reviews fail
}

// newHost starts a dashboard with additional flags, and waits until the dashboard is ready.
func newHost(t *testing.T, flags ...string) *host {
	t.Helper()
	h := &host{provider: fixture.NewOIDCProvider(t), out: &output{}, asked: map[string]string{},
		own: map[string]bool{}}
	facts := fixture.FactsBySituation()["healthy"]
	manifest := fixture.Manifest("1.0.0", "1.0.0")
	manifest.Namespace = v1beta2.ControlPlaneNamespace
	facts.Kyma.Status.Modules[0].Manifest = &v1beta2.ObjectReference{Metadata: v1beta2.ObjectReferenceMeta{
		Name: manifest.Name, Namespace: manifest.Namespace}}
	h.Server = fixture.NewServer(t, facts.Kyma, &manifest)
	h.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.asked[r.Method+" "+r.URL.Path] = r.Header.Get("Impersonate-User")
		if right := rightFor(r); right != "" && r.Header.Get("Impersonate-User") == "" {
			h.own[right] = true
		}
		if !strings.HasSuffix(r.URL.Path, "/subjectaccessreviews") {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		h.reviews = append(h.reviews, string(body))
		if h.overload {
			w.WriteHeader(http.StatusInternalServerError)
		}
		return h.overload
	}
	var target string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		forward(t, w, r, target)
	}))
	t.Cleanup(proxy.Close)
	h.url = proxy.URL
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, make([]byte, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	a := fixture.App(h.Kubeconfig)
	a.Streams = console.Streams{Out: h.out, Err: h.out}
	now := time.Now()
	a.Now = func() time.Time { return now } // no answer about permissions becomes too old
	command := Command(a)
	command.SetArgs(append([]string{"--in-cluster", "--bind-address=127.0.0.1:0", "--url=" + h.url,
		"--oidc-issuer=" + h.provider.URL, "--oidc-client-id=klm", "--cookie-key-file=" + key,
		"--oidc-groups-prefix=oidc:"}, flags...))
	command.SilenceErrors, command.SilenceUsage = true, true
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the dashboard ended with %v", err)
		}
	})
	until(t, "the dashboard serves", func() bool { return strings.Contains(h.out.String(), " at ") })
	_, address, _ := strings.Cut(strings.TrimSpace(h.out.String()), " at ")
	target = "http://" + address
	until(t, "the dashboard is ready", func() bool {
		code, _ := h.get(t, http.DefaultClient, "/readyz")
		return code == http.StatusOK
	})
	return h
}

// rightFor returns the verb and the resource for which a request needs a permission, or "" if the request concerns no
// resource in a namespace.
func rightFor(r *http.Request) string {
	_, rest, found := strings.Cut(r.URL.Path, "/namespaces/")
	parts := strings.Split(rest, "/") // namespace, resource, name
	switch {
	case !found || len(parts) == 1:
		return ""
	case r.Method != http.MethodGet:
		return strings.ToLower(r.Method) + " " + parts[1]
	case len(parts) > 2:
		return "get " + parts[1]
	case r.URL.Query().Get("watch") != "":
		return "watch " + parts[1]
	}
	return "list " + parts[1]
}

// forward sends the request of a browser on to the dashboard and keeps its Host header, as an ingress does.
func forward(t *testing.T, w http.ResponseWriter, r *http.Request, target string) {
	request, err := http.NewRequestWithContext(r.Context(), r.Method, target+r.URL.RequestURI(), r.Body)
	if err != nil {
		t.Error(err)
		return
	}
	request.Header, request.Host = r.Header.Clone(), r.Host
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body) // the browser may be gone
}

// get returns status and body of a page.
func (h *host) get(t *testing.T, c *http.Client, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

// TestInCluster checks that a person signs in and sees the fleet, and that the dashboard requests the person's
// permissions from the API server once.
func TestInCluster(t *testing.T) {
	h := newHost(t)
	ann := browser(t)
	for range 3 {
		code, body := h.get(t, ann, "/")
		if code != http.StatusOK || !strings.Contains(body, "runtime-a") ||
			!strings.Contains(body, "ann@example.org") ||
			!strings.Contains(body, "read-only") || !strings.Contains(body, `action="/signout"`) {
			t.Fatalf("%d\n%s", code, body)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.reviews) != 1 {
		t.Errorf("reviews %q, want one", h.reviews)
	}
	for _, part := range []string{"ann@example.org", "system:authenticated", "oidc:fleet", "list", "kymas",
		"kcp-system"} {
		if !strings.Contains(h.reviews[0], part) {
			t.Errorf("the review does not name %s: %q", part, h.reviews[0])
		}
	}
	for request, as := range h.asked {
		if as != "" {
			t.Errorf("%s was sent in the name of %s: pages are read by the dashboard itself", request, as)
		}
	}
}

// TestViewerWithoutRights checks that a person who may not list Kymas gets no page, no cell and no event.
func TestViewerWithoutRights(t *testing.T) {
	h := newHost(t)
	h.Forbidden = []string{"list kymas"}
	ann := browser(t)
	for _, path := range []string{"/", "/versions", "/runtimes/runtime-a", "/fleet/cells", "/events"} {
		if code, body := h.get(t, ann, path); code != http.StatusForbidden || strings.Contains(body, "runtime-a is") ||
			!strings.Contains(body, "ann@example.org may not list Kymas in namespace kcp-system") {
			t.Errorf("%s: %d\n%s", path, code, body)
		}
	}
}

// TestUnknownRights checks that a person has no access if the API server cannot be asked for the person's permissions.
func TestUnknownRights(t *testing.T) {
	h := newHost(t)
	h.mu.Lock()
	h.overload = true
	h.mu.Unlock()
	if code, body := h.get(t, browser(t), "/"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "Your rights are not known") || strings.Contains(body, "runtime-a") {
		t.Errorf("%d\n%s", code, body)
	}
}

// TestActsOnlyWithRights checks that actions are offered only with --actions, and only to persons who may change
// rollouts.
func TestActsOnlyWithRights(t *testing.T) {
	for name, test := range map[string]struct {
		flags     []string
		forbidden []string
		want      string
	}{
		"NoActions": {nil, nil, "read-only"},
		"Actions":   {[]string{"--actions"}, nil, "actions allowed"},
		"OneRight":  {[]string{"--actions"}, []string{"patch modulerollouts"}, "actions allowed"},
		"NoRight": {[]string{"--actions"}, []string{"patch modulerollouts", "patch kymas", "patch manifests"},
			"read-only"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, test.flags...)
			h.Forbidden = test.forbidden
			if code, body := h.get(t, browser(t), "/"); code != http.StatusOK || !strings.Contains(body, test.want) {
				t.Errorf("%d, want a page with %q\n%s", code, test.want, body)
			}
		})
	}
}

// TestOtherHost checks that a request with an unknown host name is refused, even if that name resolves to the
// dashboard.
func TestOtherHost(t *testing.T) {
	h := newHost(t)
	ann := browser(t)
	h.get(t, ann, "/")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "evil.example"
	answer, err := ann.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("status %d, want %d", answer.StatusCode, http.StatusMisdirectedRequest)
	}
}

// TestProviderDown checks that the page reports a provider that does not answer, and that the readiness probe fails.
func TestProviderDown(t *testing.T) {
	provider := fixture.NewOIDCProvider(t)
	provider.Close()
	d := &door{index: fleetindex.New(), host: "example.com"}
	text := fmt.Sprintf("reading the configuration of the OpenID Connect provider %s: connection refused", provider.URL)
	d.problem.Store(&text)
	w := httptest.NewRecorder()
	d.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "connection refused") ||
		!strings.Contains(w.Body.String(), "tries again") {
		t.Errorf("%d\n%s", w.Code, w.Body)
	}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		w := httptest.NewRecorder()
		d.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

// TestInClusterFlags checks that the dashboard does not start with wrong flags.
func TestInClusterFlags(t *testing.T) {
	folder := t.TempDir()
	file := func(name string, size int) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := file("key", 32)
	good := []string{"--url=https://fleet.example.com", "--oidc-issuer=https://idp.example.com", "--oidc-client-id=klm",
		"--cookie-key-file=" + key}
	for name, test := range map[string]struct{ flag, want string }{
		"NoAddress":   {"--url=", "--url"},
		"Path":        {"--url=https://fleet.example.com/x", "--url"},
		"InClear":     {"--url=http://fleet.example.com", "in the clear"},
		"NoIssuer":    {"--oidc-issuer=", "issuer"},
		"NoClient":    {"--oidc-client-id=", "client id"},
		"NoKey":       {"--cookie-key-file=", "--cookie-key-file is required"},
		"ShortKey":    {"--cookie-key-file=" + file("short", 8), "8 bytes"},
		"LongKey":     {"--cookie-key-file=" + file("long", maxSecretFile+1), "more than"},
		"MissingFile": {"--oidc-client-secret-file=" + folder + "/none", "--oidc-client-secret-file"},
		"Lifetime":    {"--session-lifetime=48h", "1m to 24h"},
	} {
		t.Run(name, func(t *testing.T) {
			a := fixture.App(filepath.Join(folder, "no-kubeconfig"))
			command := Command(a)
			command.SetArgs(append(append([]string{"--in-cluster"}, good...), test.flag))
			command.SilenceErrors, command.SilenceUsage = true, true
			if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestRole compares the requests that the dashboard sends in its own name with the Role in the chart. Requests for
// viewers are not in the Role, because the dashboard sends them in the name of the person who has signed in.
func TestRole(t *testing.T) {
	h := newHost(t, "--actions")
	ann := browser(t)
	for _, path := range []string{"/", "/versions", "/rollouts", "/changes", "/catalog", "/catalog/sample",
		"/runtimes/runtime-a", "/runtimes/runtime-a/sample", "/plan?module=sample&channel=regular&version=1.0.0",
		"/fleet/cells"} {
		h.get(t, ann, path)
	}
	objects, err := deploy.Objects(t.Context(), deploy.Options{Set: []string{"dashboard.enabled=true",
		"dashboard.url=https://fleet.example.com", "dashboard.oidc.issuer=https://idp.example.com",
		"dashboard.oidc.clientID=klm", "dashboard.actions=true"}})
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for _, o := range objects {
		if o.GetKind() != "Role" || o.GetName() != deploy.Release+"-dashboard" {
			continue
		}
		role := &rbacv1.Role{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					allowed[verb+" "+resource] = true
				}
			}
		}
	}
	// The Role also allows the verb get for each kind that the dashboard watches.
	byName := []string{"get modulereleasemetas", "get modulerollouts", "get moduletemplates", "get rolloutpolicies"}
	unused := func() (rights []string) {
		for right := range allowed {
			if !h.own[right] && !slices.Contains(byName, right) {
				rights = append(rights, right)
			}
		}
		return rights
	}
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, right := range unused() {
			t.Errorf("the Role has %q, which the dashboard does not need; it sends %v", right,
				slices.Sorted(maps.Keys(h.own)))
		}
		for right := range h.own {
			if !allowed[right] {
				t.Errorf("the dashboard sends %q, which its Role does not have", right)
			}
		}
	}()
	until(t, "the dashboard uses every right of its Role", func() bool { // also in goroutines of its own
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(unused()) == 0
	})
}
