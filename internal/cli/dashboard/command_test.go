package dashboard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// TestMain lengthens deadlines, because a busy machine may need long for a request.
func TestMain(m *testing.M) {
	readHeaderTimeout, readTimeout, reviewTimeout = 10*time.Minute, 10*time.Minute, 10*time.Minute
	providerClient = &http.Client{Timeout: 10 * time.Minute}
	m.Run()
}

// output is a buffer that may be read while it is written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(data)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// until waits until a condition is true, and fails the test after ten minutes.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not reached: %s", what)
		}
	}
}

// start runs the command with the kubeconfig of a server until the end of the test. start returns the address without
// the token, and a function that returns a page in a browser that is logged in.
func start(t *testing.T, server *fixture.Server) (base string, get func(path string) string) {
	t.Helper()
	out := &output{}
	a := fixture.App(server.Kubeconfig)
	a.Streams = console.Streams{Out: out, Err: io.Discard}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runLocally(ctx, a, options{noOpen: true}) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	until(t, "the address", func() bool { return strings.Contains(out.String(), "\n") })
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=\w+`).FindString(out.String())
	jar, err := cookiejar.New(nil)
	if err != nil || address == "" {
		t.Fatal(err, out.String())
	}
	client := &http.Client{Jar: jar}
	get = func(path string) string {
		r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		w, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		data, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	get(address)
	base, _, _ = strings.Cut(address, "?")
	return base, get
}

// holdWatch answers a watch request without events until the channel "ended" is closed.
func holdWatch(w http.ResponseWriter, r *http.Request, ended <-chan struct{}) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	select {
	case <-ended:
	case <-r.Context().Done():
	}
}

// TestOutage checks a page during an outage of the control plane: the page shows the last known state, and above it a
// note that the control plane does not answer. After the outage, the note about the outage disappears.
func TestOutage(t *testing.T) {
	server := fixture.NewServer(t, fixture.FactsBySituation()["healthy"].Kyma)
	var away atomic.Bool
	ended := make(chan struct{})
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if away.Load() {
			panic(http.ErrAbortHandler) // the connection breaks
		}
		if strings.HasSuffix(r.URL.Path, "/kymas") && r.URL.Query().Get("watch") != "" {
			holdWatch(w, r, ended)
			return true
		}
		return false
	}
	base, get := start(t, server)
	until(t, "the fleet", func() bool { return strings.Contains(get(base), "/runtimes/runtime-a") })
	away.Store(true)
	close(ended)
	until(t, "the outage", func() bool {
		page := get(base)
		return strings.Contains(page, "What is shown may be old") && strings.Contains(page, "/runtimes/runtime-a")
	})
	away.Store(false)
	until(t, "the recovery", func() bool { return !strings.Contains(get(base), "What is shown may be old") })
}

// TestForbidden checks that the page names the permission that the user lacks.
func TestForbidden(t *testing.T) {
	server := fixture.NewServer(t)
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		isKymas := strings.HasSuffix(r.URL.Path, "/kymas")
		if isKymas {
			fixture.Fail(w, apierrors.NewForbidden(schema.GroupResource{Group: v1beta2.GroupVersion.Group,
				Resource: "kymas"}, "", errors.New(`User "kim" cannot list resource "kymas" in API group `+
				`"operator.kyma-project.io" in the namespace "kcp-system"`)))
		}
		return isKymas
	}
	base, get := start(t, server)
	until(t, "the missing permission", func() bool {
		return strings.Contains(get(base), "kim may not list kymas.operator.kyma-project.io in namespace kcp-system")
	})
}

// TestCommand checks that the command serves the fleet of the kubeconfig and follows its changes, and that a viewed
// page causes no request to the API server.
func TestCommand(t *testing.T) {
	facts := fixture.FactsBySituation()["unreachable"]
	manifest := fixture.Manifest("1.0.0", "1.0.0")
	manifest.Namespace = v1beta2.ControlPlaneNamespace
	objects := fixture.Catalog()
	release, template := objects.Releases["sample"], objects.Templates["sample-1.0.0"]
	release.Namespace, template.Namespace = v1beta2.ControlPlaneNamespace, v1beta2.ControlPlaneNamespace
	server := fixture.NewServer(t, facts.Kyma, &manifest, release, template)
	var mu sync.Mutex
	requests, watches := map[string]int{}, map[string]bool{}
	server.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Query().Get("watch") != "" {
			watches[path.Base(r.URL.Path)] = true
		}
		if !strings.Contains(r.URL.Path, "/leases") && !strings.Contains(r.URL.Path, "/deployments") {
			requests[r.URL.Path]++
		}
		return false
	}
	total := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, k := range requests {
			n += k
		}
		return n
	}
	base, get := start(t, server)
	until(t, "the fleet", func() bool { return strings.Contains(get(base), "/runtimes/runtime-a") })
	const runtimePath = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas/runtime-a"
	until(t, "the watches of all collections, and the read for the signatures", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, resource := range []string{"kymas", "modulereleasemetas", "moduletemplates", "modulerollouts",
			"rolloutpolicies"} {
			if !watches[resource] {
				return false
			}
		}
		return requests[runtimePath] > 0
	})

	before := total()
	for range 20 {
		for _, path := range []string{"", "versions", "?state=Error", "fleet/cells", "?group=plan", "assets/live.js"} {
			get(base + path)
		}
	}
	if after := total(); after > before+20 { // a watch may end during the test
		t.Errorf("120 page views made %d requests", after-before)
	}
	// The page of a runtime reads the objects of the runtime once, and again when these objects have changed.
	paths := []string{"runtimes/runtime-a", "runtimes/runtime-a/sample", "catalog/sample", "calendar", "changes"}
	view := func() {
		for _, path := range paths {
			get(base + path)
		}
	}
	view()
	until(t, "the watch of the Manifests of the runtime", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return watches["manifests"]
	})
	view() // the first views may have been before the watch, and are not reused then
	before = total()
	for range 20 {
		view()
	}
	if after := total(); after > before+20 { // the data may become too old during the test
		t.Errorf("100 further views of these pages made %d requests", after-before)
	}
	why := get(base + "runtimes/runtime-a")
	for _, want := range []string{v1beta2.ReasonRuntimeUnreachable, "runtime-a does not answer", "step-held", "sample"} {
		if !strings.Contains(why, want) {
			t.Errorf("the page of the runtime does not have %q:\n%s", want, why)
		}
	}

	server.Patch(t, runtimePath, `{"status":{"state":"Ready","conditions":[]}}`)
	until(t, "the change", func() bool { return strings.Contains(get(base), "state-Ready\">Ready</span> 1") })
}

// TestExpiredCredentials checks a page after the API server has stopped accepting the credentials: the page shows the
// last known state, and above it a note about the credentials. The test also checks that the dashboard automatically
// uses the new credentials in the kubeconfig.
func TestExpiredCredentials(t *testing.T) {
	server := fixture.NewServer(t, fixture.FactsBySituation()["healthy"].Kyma)
	var expired atomic.Bool
	ended := make(chan struct{})
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		path, isNew := strings.CutPrefix(r.URL.Path, "/renewed") // client-go sends tokens with TLS only
		r.URL.Path = path
		isOld := !isNew
		if isOld && expired.Load() {
			fixture.Fail(w, apierrors.NewUnauthorized("the token has expired"))
			return true
		}
		if isOld && r.URL.Query().Get("watch") != "" {
			holdWatch(w, r, ended)
			return true
		}
		return false
	}
	base, get := start(t, server)
	until(t, "the fleet", func() bool { return strings.Contains(get(base), "/runtimes/runtime-a") })
	expired.Store(true)
	close(ended)
	until(t, "the expired credentials", func() bool {
		page := get(base)
		return strings.Contains(page, "does not accept the credentials: log in again") &&
			strings.Contains(page, "/runtimes/runtime-a")
	})
	data, err := os.ReadFile(server.Kubeconfig)
	if err == nil {
		err = os.WriteFile(server.Kubeconfig, regexp.MustCompile(`http://[0-9.:]+`).ReplaceAll(data, []byte("$0/renewed")),
			0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the renewed credentials", func() bool { return !strings.Contains(get(base), "What is shown may be old") })
}

// TestNoControlPlane checks pages for a kubeconfig that has no cluster, or a cluster that is no control plane: every
// page states the problem with the kubeconfig and how to solve it.
func TestNoControlPlane(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		change func(*fixture.Server)
		want   string
	}{
		"Away": {"no server listens", func(s *fixture.Server) {
			s.Intercept = func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
		}, "does not answer"},
		"OtherCluster": {"the cluster does not serve our kinds", func(s *fixture.Server) { s.Serves = nil },
			"neither a control plane nor a registered runtime"},
		"Expired": {"the credentials were never accepted", func(s *fixture.Server) {
			s.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
				fixture.Fail(w, apierrors.NewUnauthorized("no"))
				return true
			}
		}, "does not accept the credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			server := fixture.NewServer(t)
			c.change(server)
			base, get := start(t, server)
			for _, path := range []string{"", "runtimes/runtime-a", "catalog", "calendar"} {
				body := ""
				until(t, c.reason, func() bool {
					body = get(base + path)
					return strings.Contains(body, "The fleet cannot be read")
				})
				if !strings.Contains(body, c.want) || !strings.Contains(body, "tries again by itself") {
					t.Errorf("%s: /%s does not have %q:\n%s", c.reason, path, c.want, body)
				}
			}
		})
	}
}
