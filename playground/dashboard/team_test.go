package dashboard

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/deploy"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// account is the service account of the dashboard.
const account = "system:serviceaccount:kcp-system:" + deploy.Release + "-dashboard"

// TestTeam runs the dashboard in a cluster with the rights of the chart, on a real API server. A person without rights
// sees nothing, and a person who may list Kymas sees the fleet. A person who may patch rollouts can pause but not
// approve, and a person with the verb approve approves a stage. The audit log of the API server names the person who
// approved. The requests of the dashboard need exactly the rights of its Role.
func TestTeam(t *testing.T) {
	l := up(t)
	policy(t, l)
	role := grantDashboard(t, l)
	grantPeople(t, l)
	p := newProvider(t)
	address := serveTeam(t, l, p)
	mark := l.Clusters[landscape.ControlPlane].Mark()
	move(t, l, "2.0.1")

	nobody := signIn(t, p, "nobody@example.org")
	if code, body := get(t, nobody, address+"/"); code != http.StatusForbidden || strings.Contains(body, "runtime-a") ||
		!strings.Contains(body, "nobody@example.org may not list Kymas") {
		t.Errorf("a person without rights gets %d:\n%s", code, body)
	}
	viewer := signIn(t, p, "viewer@example.org")
	const rollout = "/rollouts/mod-regular-r2"
	waitFor(t, "the gate", func() bool {
		_, body := get(t, viewer, address+rollout)
		return strings.Contains(body, "WaitingForGate")
	})
	for _, path := range []string{"/", "/versions", "/changes", "/catalog/mod", "/runtimes/runtime-a",
		"/runtimes/runtime-a/mod", rollout, rollout + "/plan"} {
		code, body := get(t, viewer, address+path)
		if code != http.StatusOK || !strings.Contains(body, "read-only") ||
			strings.Contains(body, "<form class=\"action\"") ||
			strings.Contains(body, "cannot be read") {
			t.Errorf("%s for a viewer: %d\n%s", path, code, body)
		}
	}
	if code, _ := post(t, viewer, address, rollout+"/approve"); code != http.StatusForbidden {
		t.Errorf("a viewer who approves gets %d", code)
	}
	operator := signIn(t, p, "operator@example.org")
	if _, body := get(t, operator, address+rollout); strings.Contains(body, rollout+"/approve") ||
		!strings.Contains(body, rollout+"/pause") {
		t.Errorf("a person who may patch rollouts only has other buttons than pause and abort:\n%s", body)
	}
	if code, body := post(t, operator, address, rollout+"/approve"); code != http.StatusForbidden ||
		!strings.Contains(body, "operator@example.org may not approve or resume rollouts") {
		t.Errorf("a person without the verb approve gets %d:\n%s", code, body)
	}
	approver := signIn(t, p, "approver@example.org")
	if code, body := post(t, approver, address, rollout+"/approve"); code != http.StatusOK ||
		!strings.Contains(body, "approved by approver@example.org") {
		t.Fatalf("a person who may approve rollouts gets %d:\n%s", code, body)
	}
	if code, _ := post(t, approver, address, "/runtimes/runtime-a/retry"); code != http.StatusForbidden {
		t.Errorf("a person who may not patch Kymas and retries gets %d", code)
	}
	waitFor(t, "the end of the rollout", func() bool {
		_, body := get(t, viewer, address+rollout)
		return strings.Contains(body, "Completed")
	})

	used, writes := map[string]bool{}, map[string]bool{}
	for _, r := range l.Clusters[landscape.ControlPlane].Requests(mark) {
		if r.User == account && r.Resource == "secrets" {
			t.Errorf("the dashboard has sent %s %s, although it has no right on Secrets", r.Verb, r.Path)
		}
		switch {
		case r.User == account && r.Resource != "" && r.Resource != "subjectaccessreviews" &&
			r.Code < http.StatusBadRequest:
			used[r.Verb+" "+r.Resource] = true
		case r.User == "approver@example.org":
			writes[r.Verb+" "+r.Resource] = true
		case r.User == "viewer@example.org" || r.User == "nobody@example.org":
			t.Errorf("the request %s %s was sent in the name of %s", r.Verb, r.Path, r.User)
		}
	}
	if !writes["patch modulerollouts"] {
		t.Errorf("the API server has recorded %v in the name of the approver", slices.Sorted(maps.Keys(writes)))
	}
	for request := range used {
		if !role[request] {
			t.Errorf("the dashboard sends %s, which its Role does not have", request)
		}
	}
	t.Logf("used: %v; not used: %v", slices.Sorted(maps.Keys(used)), slices.DeleteFunc(slices.Sorted(maps.Keys(role)),
		func(right string) bool { return used[right] }))
}

// grantDashboard applies the service account and the rights of the dashboard, as the chart has them, and returns the
// rights of the Role.
func grantDashboard(t *testing.T, l *landscape.Landscape) map[string]bool {
	t.Helper()
	objects, err := deploy.Objects(t.Context(), deploy.Options{Namespace: l.Namespace(), Set: []string{
		"dashboard.enabled=true", "dashboard.actions=true", "dashboard.url=https://fleet.example.com",
		"dashboard.oidc.issuer=https://idp.example.com", "dashboard.oidc.clientID=klm"}})
	if err != nil {
		t.Fatal(err)
	}
	rights := map[string]bool{}
	for _, o := range objects {
		isRight := o.GetKind() == "ServiceAccount" || strings.Contains(o.GetKind(), "Role")
		if !isRight || o.GetName() != deploy.Release+"-dashboard" {
			continue
		}
		if err := l.Clients[landscape.ControlPlane].Create(t.Context(), o.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() != "Role" {
			continue
		}
		r := &rbacv1.Role{}
		if err := l.Clients[landscape.ControlPlane].Get(t.Context(), client.ObjectKeyFromObject(o), r); err != nil {
			t.Fatal(err)
		}
		for _, rule := range r.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					rights[verb+" "+resource] = true
				}
			}
		}
	}
	return rights
}

// grantPeople grants rights to three persons: viewer@example.org sees the fleet, operator@example.org may also change
// rollouts, and approver@example.org may also approve rollouts.
func grantPeople(t *testing.T, l *landscape.Landscape) {
	t.Helper()
	group := []string{v1beta2.GroupVersion.Group}
	see := rbacv1.PolicyRule{APIGroups: group, Resources: []string{"kymas", "modulerollouts"},
		Verbs: []string{"get", "list"}}
	on := func(verb string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: group, Resources: []string{"modulerollouts"}, Verbs: []string{verb}}
	}
	for name, rules := range map[string][]rbacv1.PolicyRule{"viewer": {see}, "operator": {see, on("patch")},
		"approver": {see, on("patch"), on("approve")}} {
		meta := metav1.ObjectMeta{Name: name, Namespace: l.Namespace()}
		for _, o := range []client.Object{&rbacv1.Role{ObjectMeta: meta, Rules: rules},
			&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role",
				Name: name}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind,
				Name: name + "@example.org"}}}} {
			if err := l.Clients[landscape.ControlPlane].Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// serveTeam starts klm dashboard --in-cluster with the token of its service account, behind a proxy that acts as an
// ingress. serveTeam returns the address of the proxy.
func serveTeam(t *testing.T, l *landscape.Landscape, p *provider) string {
	t.Helper()
	kubeconfig, err := l.Clusters[landscape.ControlPlane].TokenKubeconfig(t.Context(), l.Namespace(),
		deploy.Release+"-dashboard")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{"kubeconfig": kubeconfig, "key": []byte(strings.Repeat("k", 32))} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	target := &url.URL{}
	ingress := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := http.NewRequestWithContext(r.Context(), r.Method, target.String()+r.URL.RequestURI(), r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		out.Header, out.Host = r.Header.Clone(), r.Host
		answer, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		maps.Copy(w.Header(), answer.Header)
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body) // the browser may be gone
	}))
	t.Cleanup(ingress.Close)
	command := exec.Command(filepath.Join(bin, "klm"), "dashboard", "--in-cluster", "--actions",
		"--bind-address=127.0.0.1:0", "--url="+ingress.URL, "--oidc-issuer="+p.URL, "--oidc-client-id=klm",
		"--namespace="+l.Namespace(), "--cookie-key-file="+filepath.Join(dir, "key"),
		"--kubeconfig="+filepath.Join(dir, "kubeconfig"))
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait() // ended by the signal
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, at, _ := strings.Cut(strings.TrimSpace(line), " at ")
	target.Scheme, target.Host = "http", at
	waitFor(t, "the dashboard", func() bool {
		code, _ := get(t, http.DefaultClient, ingress.URL+"/readyz")
		return code == http.StatusOK
	})
	return ingress.URL
}

// signIn returns the browser of a person, who signs in with the first request.
func signIn(t *testing.T, p *provider, person string) *http.Client {
	t.Helper()
	p.become(person)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

// get returns status and body of a page.
func get(t *testing.T, browser *http.Client, address string) (code int, body string) {
	t.Helper()
	waitFor(t, "an answer without a timeout of the dashboard", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/html")
		code, body = send(t, browser, r)
		return code < http.StatusInternalServerError
	})
	return code, body
}

// post sends the form of an action, with the confirmation.
func post(t *testing.T, browser *http.Client, address, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+path,
		strings.NewReader("sure=yes&stage=own"))
	if err != nil {
		t.Fatal(err)
	}
	get(t, browser, address+"/") // a person has seen a page before
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", address)
	return send(t, browser, r)
}

func send(t *testing.T, browser *http.Client, r *http.Request) (int, string) {
	t.Helper()
	answer, err := browser.Do(r)
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

// waitFor waits until the function is() returns true.
func waitFor(t testing.TB, what string, is func() bool) {
	t.Helper()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for limit := time.Now().Add(deadline); !is(); <-ticker.C {
		if time.Now().After(limit) {
			t.Fatal(fmt.Errorf("waiting for %s: not after %s", what, deadline))
		}
	}
}
