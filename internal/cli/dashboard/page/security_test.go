package page

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/pageserver"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

// TestMain lengthens deadlines, because a busy machine may need long for a read.
func TestMain(m *testing.M) {
	fleetindex.OnDemandTimeout = 10 * time.Minute
	m.Run()
}

const host = "127.0.0.1:4711"

// serverOf returns a server for an index.
func serverOf(t testing.TB, x *fleetindex.Index, v *pageserver.Viewer) *Server {
	t.Helper()
	s, err := New(Options{Index: x, Hosts: []string{host}, Now: func() time.Time { return fixture.Noon },
		Viewer: func(http.ResponseWriter, *http.Request) *pageserver.Viewer { return v }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// send sends a request to a server, and returns the answer.
func send(s http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://"+host+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// rolloutOf returns a rollout that waits for the approval of its first stage.
func rolloutOf(text string) *v1beta2.ModuleRollout {
	o := &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: "istio-regular-r3", Namespace: "kcp-system",
		CreationTimestamp: fixture.BeforeNoon(time.Hour)}}
	o.Spec = v1beta2.ModuleRolloutSpec{Module: "istio", Channel: "regular", From: "1.3.0", To: "1.4.0", Revision: 3,
		Policy: "standard", State: v1beta2.RolloutRunning, Reason: text, Stages: []v1beta2.ModuleRolloutStage{
			{RolloutStage: v1beta2.RolloutStage{Name: "canary", Percent: 1, Soak: metav1.Duration{Duration: time.Hour},
				Gates: []v1beta2.RolloutGate{{Name: "go", Approval: &v1beta2.ApprovalGate{Count: 1}}}}},
			{RolloutStage: v1beta2.RolloutStage{Name: "rest"}}},
		Approvals: []v1beta2.RolloutApproval{{Stage: "canary", By: text, At: fixture.BeforeNoon(time.Minute),
			Plan: "p"}},
		Resumptions: []v1beta2.RolloutResumption{{By: text, Reason: text, At: fixture.BeforeNoon(time.Minute)}}}
	o.Status = v1beta2.ModuleRolloutStatus{Phase: v1beta2.RolloutWaitingForGate, Message: text, Plan: "p",
		Stage: v1beta2.RolloutStageStatus{Name: "canary", Gates: []v1beta2.RolloutGateStatus{{Name: "go",
			State: v1beta2.GateUnknown, Message: text}}},
		Runtimes: v1beta2.RolloutCounts{InScope: 100, Proven: 3, Failed: 1, Waiting: 96},
		Stages: []v1beta2.RolloutStageResult{{Name: "canary", Evidence: text,
			RolloutCounts: v1beta2.RolloutCounts{InScope: 4, Proven: 3, Failed: 1}}},
		Blockers: []v1beta2.RolloutBlocker{{Code: v1beta2.ReasonApprovalNeeded, Object: text, Message: text,
			Remedy: text}},
		Worst: []v1beta2.RolloutRuntime{{Runtime: "runtime-a", Reason: text, Message: text}}}
	return o
}

// TestStrangersTexts checks that texts controlled by a runtime, an author of a module or another person are escaped
// everywhere in the pages.
func TestStrangersTexts(t *testing.T) {
	const attack = `"'><script>alert(1)</script><img src=x onerror=alert(1)>{{.}}javascript:alert(1)`
	kyma := fixture.FactsBySituation()["unreachable"].Kyma
	kyma.Labels = map[string]string{v1beta2.LabelRegion: attack}
	kyma.Spec.Channel = attack
	kyma.Status.LastOperation.Operation = attack
	kyma.Status.Agent = &v1beta2.AgentStatus{Version: attack, Connected: true}
	for i := range kyma.Status.Modules {
		m := &kyma.Status.Modules[i]
		m.Message, m.Version, m.Channel, m.Reason = attack, attack, attack, attack
		m.History = []v1beta2.ModuleChange{{Version: attack, From: attack, Reason: attack, Outcome: attack}}
	}
	for i := range kyma.Status.Conditions {
		kyma.Status.Conditions[i].Message, kyma.Status.Conditions[i].Reason = attack, attack
	}
	manifest := fixture.Manifest(attack, attack)
	manifest.Namespace = v1beta2.ControlPlaneNamespace
	manifest.Status.Synced = []v1beta2.Resource{{Kind: attack, Name: attack, Namespace: attack, Group: attack}}
	manifest.Status.Conditions[0].Message = attack
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: v1beta2.ControlPlaneNamespace},
		Reason: attack, Message: attack, InvolvedObject: corev1.ObjectReference{Kind: "Kyma", Name: "runtime-a",
			UID: kyma.UID, APIVersion: v1beta2.GroupVersion.String()}}
	server := fixture.NewServer(t, kyma, &manifest, event)
	cluster, err := connection.ControlPlane(t.Context(), fixture.App(server.Kubeconfig))
	if err != nil {
		t.Fatal(err)
	}

	s := catalogOf(fixture.Noon)
	release := s.Releases["istio"]
	release.Spec.OCMComponentName = attack
	release.Spec.Channels[0].Version = attack
	release.Status.Channels[0].History[0].By = attack
	release.Status.Withdrawn = []v1beta2.WithdrawnVersion{{Version: "1.3.0", Reason: attack}}
	s.Templates["istio-1.3.0"].Spec.Upgrade = &v1beta2.ModuleUpgrade{From: attack, Back: attack,
		Risks: []v1beta2.UpgradeRisk{{Name: attack, Message: attack, When: attack, URL: "javascript:alert(1)"}}}
	s.Templates["istio-1.3.0"].Spec.Info = &v1beta2.ModuleInfo{Documentation: "javascript:alert(1)"}
	s.Templates["istio-1.3.0"].Spec.Resources = []v1beta2.ResourceLink{{Name: "sbom" + attack,
		Link: "javascript:alert(1)"}}
	s.Templates["istio-1.4.0"].Spec.Descriptor.Raw = []byte(`{"meta":{"schemaVersion":"v2"},"signatures":[{"name":` +
		strconv.Quote(attack) + `}]}`)
	s.Templates["istio-1.3.0"].Annotations = map[string]string{v1beta2.AnnotationContentDigest: attack}
	o := rolloutOf(attack)
	o.Spec.Urgency, o.Spec.UrgencyReason = v1beta2.UrgencyHotfix, attack
	o.Status.WayBack = &v1beta2.RolloutWayBack{Declared: true, To: attack, Message: attack}
	d := rolloutOf(attack)
	d.Name, d.Spec.Module, d.Spec.Channel, d.Spec.From = "istio-regular-r4", attack, attack, attack
	d.Spec.MaxDeferral, d.Spec.Stages[1].Name = metav1.Duration{Duration: 240 * time.Hour}, attack
	d.Status.Stage.StartedAt = fixture.BeforeNoon(time.Minute)
	s.Rollouts = map[string]*v1beta2.ModuleRollout{o.Name: o, d.Name: d}
	s.Policies = []v1beta2.RolloutPolicy{{ObjectMeta: metav1.ObjectMeta{Name: attack}, Spec: v1beta2.RolloutPolicySpec{
		Suspend: true, Freezes: []v1beta2.RolloutFreeze{{Name: attack, From: fixture.BeforeNoon(time.Hour),
			To: fixture.BeforeNoon(-time.Hour), Except: []v1beta2.FreezeException{attack}}}}}}
	x := fleetindex.New()
	x.SetCatalogAndManager(s, nil, cluster)
	x.SetMaintenance(fleetindex.Maintenance{Unknown: attack})
	m := memberAt(3, fixture.Noon)
	m.Metadata.Annotations.Deferring = map[string]string{v1beta2.AnnotationNotBefore: attack}
	m.Metadata.Name = "runtime-a"
	paused := attack
	m.Metadata.Annotations.Paused, m.Spec.Channel, m.Metadata.Labels = &paused, attack, kyma.Labels
	m.Status.State, m.Status.ModulesReady, m.Status.LastOperation.Operation = attack, attack, attack
	m.Status.Modules = []fleetlist.MemberModule{{Name: attack, Version: attack, Channel: attack, Reason: attack,
		Message: attack, State: v1beta2.State(attack)}}
	m.Status.Conditions = []fleetlist.MemberCondition{{Type: v1beta2.ConditionReady, Reason: attack, Message: attack}}
	x.Put(m)
	x.AddSignatures(map[fleetindex.Version]fleetindex.Signature{{Module: "istio", Version: "1.3.0"}: {
		Runtime: "runtime-a", Message: attack}})
	x.Publish()
	pages := serverOf(t, x, &pageserver.Viewer{Name: attack, Acts: cluster, MayMove: true, MayApprove: true,
		MayRetry: true})

	q := url.QueryEscape(attack)
	for path, status := range map[string]int{
		"/": 200, "/versions": 200, "/rollouts": 200, "/rollouts/istio-regular-r3": 200, "/changes": 200,
		"/catalog":  200,
		"/calendar": 200, "/calendar?module=" + q: 200, "/calendar?name=" + q: 200, "/calendar?month=" + q: 400,
		"/calendar?time-zone=" + q: 400, "/calendar?selector=" + q: 400,
		"/catalog/istio": 200, "/runtimes/runtime-a": 200, "/runtimes/runtime-a/sample": 200, "/plan": 200,
		"/?name=" + q: 200, "/?module=" + q: 200, "/?reason=" + q: 200, "/?selector=" + q: 400, "/?" + q + "=1": 400,
		"/?colour=" + q: 400, "/?module=" + q + "&group=stage&colour=progress": 200, "/?sort=" + q: 400, "/?page=" + q: 400, "/?group=" + q: 400, "/runtimes/" + url.PathEscape(attack): 404,
		"/catalog/" + url.PathEscape(attack): 404, "/rollouts/" + url.PathEscape(attack): 404,
		"/" + url.PathEscape(attack): 404, "/plan?module=" + q + "&channel=a&version=b": 404,
	} {
		w := send(pages, http.MethodGet, path, "")
		body := w.Body.String()
		if w.Code != status {
			t.Errorf("%s: %d, want %d: %.300s", path, w.Code, status, body)
		}
		if strings.Contains(body, "<script>alert") || strings.Contains(body, "<img src=x") ||
			strings.Contains(body, `="javascript:`) {
			t.Errorf("%s has the text of a stranger as HTML", path)
		}
		if w.Header().Get("Content-Security-Policy") != pageserver.Policy ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s has the headers %v", path, w.Header())
		}
		if found := inline.FindString(body); found != "" {
			t.Errorf("%s has something inline, which the policy forbids: %s", path, found)
		}
	}
	export := send(pages, http.MethodGet, "/changes.csv", "").Body.String()
	if strings.Contains(export, "\n=") || strings.Contains(export, ",=") || !strings.Contains(export, "istio") {
		t.Errorf("the export is %s", export)
	}
}

// inline matches inline content that the Content-Security-Policy would block.
var inline = regexp.MustCompile(`<style|<script>|<script [^>]*>[^<]| style="| on[a-z]+="[^"]|https?://[^ <"]*"`)

// TestPaths checks that the server serves only the embedded files.
func TestPaths(t *testing.T) {
	s := serverOf(t, indexOf(1, fixture.Noon), &pageserver.Viewer{})
	for _, path := range []string{"/assets/../server.go", "/assets/..%2fserver.go", "/assets/%2e%2e/server.go", "/assets/",
		"/assets/..%5cserver.go", "/../../etc/passwd", "/assets/templates/frame.html", "//etc/passwd", "/.git/config"} {
		w := send(s, http.MethodGet, path, "")
		if w.Code == http.StatusOK || strings.Contains(w.Body.String(), "package page") {
			t.Errorf("%s: %d %.100s", path, w.Code, w.Body)
		}
		if to := w.Header().Get("Location"); strings.HasPrefix(to, "//") || strings.Contains(to, "://") {
			t.Errorf("%s leads to %s", path, to)
		}
	}
	if w := send(s, http.MethodGet, "/assets/live.js", ""); w.Code != 200 || w.Header().Get("ETag") == "" {
		t.Errorf("live.js: %d %v", w.Code, w.Header())
	}
}

// TestActions checks that a rollout is changed only for a viewer with the permission, by a form of this page, and after
// a confirmation.
func TestActions(t *testing.T) {
	object := rolloutOf("text")
	object.Spec.Approvals = nil
	server := fixture.NewServer(t, object)
	cluster, err := connection.ControlPlane(t.Context(), fixture.App(server.Kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	x := fleetindex.New()
	s := catalogOf(fixture.Noon)
	s.Rollouts = map[string]*v1beta2.ModuleRollout{object.Name: object}
	x.SetCatalogAndManager(s, nil, cluster)
	x.Put()
	x.Publish()
	reader := serverOf(t, x, &pageserver.Viewer{})
	actor := serverOf(t, x, &pageserver.Viewer{Acts: cluster, MayMove: true, MayApprove: true, MayRetry: true})
	const path = "/rollouts/istio-regular-r3"
	if body := send(reader, http.MethodGet, path, "").Body.String(); strings.Contains(body, "<form class=\"action\"") {
		t.Error("a viewer who may only read has buttons")
	}
	for _, part := range []string{path + "/approve", path + "/pause", path + "/abort", "--stage=canary",
		"kubectl -n kcp-system patch modulerollout istio-regular-r3"} {
		if body := send(actor, http.MethodGet, path, "").Body.String(); !strings.Contains(body, part) {
			t.Errorf("the page has no %q", part)
		}
	}
	for name, c := range map[string]struct {
		reason       string
		on           *Server
		method, path string
		body         string
		header       []string
		status       int
	}{
		"ReadOnly": {"--actions is not given", reader, "POST", "/pause", "sure=yes", nil, 403},
		"Unsure":   {"the box is not ticked", actor, "POST", "/pause", "", nil, 400},
		"Get":      {"a link changes nothing", actor, "GET", "/pause?sure=yes", "", nil, 404},
		"Unknown":  {"no such verb", actor, "POST", "/delete", "sure=yes", nil, 400},
		"OtherSite": {"a form of another site", actor, "POST", "/pause", "sure=yes",
			[]string{"Origin", "https://x"}, 403},
		"FetchSite": {"the browser says so", actor, "POST", "/pause", "sure=yes",
			[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		"SameSite": {"another port", actor, "POST", "/pause", "sure=yes",
			[]string{"Sec-Fetch-Site", "same-site"}, 403},
		"WrongStage": {"a stage that does not exist", actor, "POST", "/approve", "sure=yes&stage=x", nil, 404},
		"NotStopped": {"nothing to resume", actor, "POST", "/resume", "sure=yes", nil, 502},
		"Large": {"a huge form", actor, "POST", "/pause", "sure=yes&reason=" + strings.Repeat("x", 20<<10), nil,
			400},
	} {
		w := send(c.on, c.method, path+c.path, c.body, c.header...)
		if w.Code != c.status || len(server.Writes()) > 0 {
			t.Errorf("%s: %s: %d, want %d, writes %v: %.400s", name, c.reason, w.Code, c.status, server.Writes(), w.Body)
		}
	}
	own := []string{"Origin", "http://" + host, "Sec-Fetch-Site", "same-origin"}
	if w := send(actor, "POST", path+"/approve", "sure=yes&stage=canary", own...); w.Code != 200 {
		t.Fatalf("approve: %d %s", w.Code, w.Body)
	}
	if w := send(actor, "POST", path+"/pause", "sure=yes&reason=an+alert", own...); w.Code != 200 {
		t.Fatalf("pause: %d %s", w.Code, w.Body)
	}
	is := server.Object("/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/modulerollouts/istio-regular-r3")
	spec, _ := is.Object["spec"].(map[string]any)
	approvals, _ := json.Marshal(spec["approvals"])
	if spec["state"] != "Paused" || spec["reason"] != "an alert" || !strings.Contains(string(approvals), fixture.User) {
		t.Errorf("the rollout is %v", spec)
	}
}

// TestRetry checks that a retry of a runtime or a module is requested only for a viewer with the permission, and after
// a confirmation.
func TestRetry(t *testing.T) {
	kyma := fixture.FactsBySituation()["unreachable"].Kyma
	manifest := fixture.Manifest("1.0.0", "1.0.0")
	manifest.Namespace, manifest.Status.State = v1beta2.ControlPlaneNamespace, v1beta2.StateError
	server := fixture.NewServer(t, kyma, &manifest)
	cluster, err := connection.ControlPlane(t.Context(), fixture.App(server.Kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	x := fleetindex.New()
	x.SetCatalogAndManager(catalogOf(fixture.Noon), nil, cluster)
	m := memberAt(3, fixture.Noon)
	m.Metadata.Name = "runtime-a"
	x.Put(m)
	x.Publish()
	mover := serverOf(t, x, &pageserver.Viewer{Acts: cluster, MayMove: true})
	retrier := serverOf(t, x, &pageserver.Viewer{Acts: cluster, MayRetry: true})
	const page, path = "/runtimes/runtime-a", "/runtimes/runtime-a/retry"
	if body := send(mover, http.MethodGet, page, "").Body.String(); strings.Contains(body, path) {
		t.Error("a viewer without the right has the button")
	}
	for on, want := range map[string]string{page: "klm retry runtime-a<", page + "/sample": "klm retry runtime-a sample<"} {
		if body := send(retrier, http.MethodGet, on, "").Body.String(); !strings.Contains(body, want) {
			t.Errorf("%s has no %q", on, want)
		}
	}
	for name, c := range map[string]struct {
		reason string
		on     *Server
		body   string
		status int
	}{
		"NoRight":  {"the right is missing", mover, "sure=yes", 403},
		"Unsure":   {"the box is not ticked", retrier, "", 400},
		"NoModule": {"the runtime does not have the module", retrier, "sure=yes&module=none", 404},
	} {
		w := send(c.on, "POST", path, c.body)
		if w.Code != c.status || len(server.Writes()) > 0 {
			t.Errorf("%s: %s: %d, want %d, writes %v: %.400s", name, c.reason, w.Code, c.status, server.Writes(), w.Body)
		}
	}
	annotation := func(path string) any {
		metadata, _ := server.Object("/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/" +
			path).Object["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		return annotations[v1beta2.AnnotationRetry]
	}
	for of, form := range map[string]string{"kymas/runtime-a": "sure=yes",
		"manifests/" + manifest.Name: "sure=yes&module=sample"} {
		if w := send(retrier, "POST", path, form); w.Code != 200 || annotation(of) == nil {
			t.Errorf("%s: %d, and %s has the annotation %v: %.400s", form, w.Code, of, annotation(of), w.Body)
		}
	}
}
