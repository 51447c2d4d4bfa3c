package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/crds"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
)

// plane is a control plane without a manager. Only the test changes its objects, because no controller runs.
type plane struct {
	*cluster.Cluster
	client.Client
	kubeconfig string
}

// newPlane starts a control plane without a manager.
func newPlane(t testing.TB) *plane {
	t.Helper()
	host, err := cluster.Open(t.Context(), cluster.Options{Dir: filepath.Join(t.TempDir(), "data"), Audit: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	p := &plane{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if p.Cluster, err = host.Start(t.Context(), "control-plane"); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(p.Config())
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme),
		v1beta2.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	if p.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds.All() {
		p.add(t, crd)
	}
	p.add(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1beta2.ControlPlaneNamespace}})
	waitFor(t, "the CRDs", func() bool {
		return p.List(t.Context(), &v1beta2.KymaList{}) == nil && p.List(t.Context(), &v1beta2.ManifestList{}) == nil &&
			p.List(t.Context(), &v1beta2.ModuleReleaseMetaList{}) == nil &&
			p.List(t.Context(), &v1beta2.ModuleTemplateList{}) == nil
	})
	if err := os.WriteFile(p.kubeconfig, p.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// add creates an object.
func (p *plane) add(t testing.TB, o client.Object) {
	t.Helper()
	if err := p.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// setStatus replaces the status of an object.
func (p *plane) setStatus(t testing.TB, o client.Object, status any) error {
	t.Helper()
	data, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return p.Status().Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", data))
}

// runtime creates the Kyma and the Manifest of a runtime that has the module.
func (p *plane) runtime(t testing.TB, name string, agent *v1beta2.AgentStatus, state v1beta2.State, reason,
	message string) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name, Namespace: v1beta2.ControlPlaneNamespace}
	k := &v1beta2.Kyma{ObjectMeta: meta, Spec: v1beta2.KymaSpec{Channel: "regular",
		Modules: []v1beta2.Module{{Name: module}}}}
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Name: name + "-mod", Namespace: meta.Namespace,
		Labels: map[string]string{v1beta2.LabelKymaName: name, v1beta2.LabelModuleName: module}},
		Spec: v1beta2.ManifestSpec{Version: "1.0.0", Install: v1beta2.InstallInfo{Name: "raw-manifest",
			Source: runtime.RawExtension{Raw: []byte(`{"type":"oci-ref","repo":"example.com","name":"a","ref":"b"}`)}}}}
	p.add(t, k)
	p.add(t, m)
	ready := metav1.Condition{Type: v1beta2.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta2.ReasonReady,
		Message: "ready", LastTransitionTime: metav1.Now()}
	entry := v1beta2.ModuleStatus{Name: module, Version: "1.0.0", Channel: "regular", State: state,
		Manifest: &v1beta2.ObjectReference{Metadata: v1beta2.ObjectReferenceMeta{Name: m.Name, Namespace: m.Namespace}}}
	if reason != "" {
		entry.Reason, entry.Message = reason, message
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reason, message
	}
	changed := v1beta2.LastOperation{Operation: "ready", LastUpdateTime: metav1.Now()}
	if err := errors.Join(
		p.setStatus(t, k, v1beta2.KymaStatus{State: state, ObservedGeneration: k.Generation, ModulesReady: "1/1",
			Modules: []v1beta2.ModuleStatus{entry}, Summary: "mod@1.0.0 (regular)", Agent: agent,
			LastOperation: changed, Conditions: []metav1.Condition{ready}}),
		p.setStatus(t, m, v1beta2.ManifestStatus{State: state, Version: "1.0.0", LastOperation: changed,
			Synced: []v1beta2.Resource{{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "kyma-system",
				Name: "mod"}},
			Conditions: []metav1.Condition{ready, {Type: v1beta2.ConditionSignature, Status: metav1.ConditionTrue,
				Reason: v1beta2.ReasonSignatureVerified, Message: "raw-manifest is signed with key release (cosign)",
				LastTransitionTime: metav1.Now()}}})); err != nil {
		t.Fatal(err)
	}
}

// TestFleet checks the pages for runtimes that are not connected, and counts at the API server which objects the pages
// request.
func TestFleet(t *testing.T) {
	p := newPlane(t)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: v1beta2.ControlPlaneNamespace}
	}
	p.add(t, &v1beta2.ModuleReleaseMeta{ObjectMeta: meta(module), Spec: v1beta2.ModuleReleaseMetaSpec{
		ModuleName: module, OCMComponentName: "kyma-project.io/module/mod",
		Channels: []v1beta2.ChannelVersion{{Channel: "regular", Version: "1.0.0"}}}})
	p.add(t, &v1beta2.ModuleTemplate{ObjectMeta: meta("mod-1.0.0"), Spec: v1beta2.ModuleTemplateSpec{ModuleName: module,
		Version: "1.0.0", Descriptor: runtime.RawExtension{Raw: []byte("{}")}}})
	hourAgo := metav1.NewTime(time.Now().Add(-time.Hour))
	p.runtime(t, "runtime-good", &v1beta2.AgentStatus{Connected: true, Version: "1.0.0", Since: hourAgo},
		v1beta2.StateReady, "", "")
	p.runtime(t, "runtime-silent", &v1beta2.AgentStatus{Version: "1.0.0", Since: hourAgo}, v1beta2.StateReady, "", "")
	p.runtime(t, "runtime-away", &v1beta2.AgentStatus{Version: "1.0.0", Since: hourAgo}, v1beta2.StateError,
		v1beta2.ReasonRuntimeUnreachable, "runtime-away does not answer: connection refused")
	address, _ := serveFor(t, p.kubeconfig)
	b := open(t, address)
	b.until("3 runtimes")
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"NotConnected", func(t *testing.T) { notConnected(t, b) }},
		{"Requests", func(t *testing.T) { requests(t, b, p) }},
		{"Outage", func(t *testing.T) { outage(t, b, p) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.t = t
			test.run(t)
		})
	}
	b.t = t
}

// notConnected checks how the dashboard shows runtimes whose agents are silent. notConnected checks their number, their
// colour by age, the link with the reason, and their pages. Each page is checked in two window sizes, and in the light
// and the dark colour scheme.
func notConnected(t *testing.T, b *tab) {
	for _, v := range []struct{ path, text string }{
		{"/", "1 connected, 2 not connected"},
		{"/?colour=age", "2 not connected"},
		{"/runtimes/runtime-silent", "agent not connected for 6"},
		{"/runtimes/runtime-away", "runtime-away does not answer"},
		{"/runtimes/runtime-away/mod", "RuntimeUnreachable"},
	} {
		for _, size := range [][2]int64{{1280, 800}, {390, 844}} {
			for _, scheme := range []string{"light", "dark"} {
				b.size(size[0], size[1], scheme)
				b.to(v.path)
				b.until(v.text)
				b.checkAccess(fmt.Sprintf("%s at %d×%d, %s", v.path, size[0], size[1], scheme))
				if wide := evaluate[int64](b, `document.documentElement.scrollWidth`); wide > size[0] {
					t.Errorf("%s: the page is %d pixels wide, and the window has %d", v.path, wide, size[0])
				}
			}
		}
	}
	b.to("/")
	b.until("RuntimeUnreachable")
	b.click(`//a[contains(., "RuntimeUnreachable")]`)
	b.until("runtime-away")
	if html := b.source(); strings.Contains(html, `href="/runtimes/runtime-good"`) {
		t.Error("the link of the reason shows other runtimes, too")
	}
	b.click(`//a[text()="runtime-away"]`)
	b.until("What to do:")
	b.size(1280, 800, "light")
}

// requests counts the requests that the API server receives. A view of the fleet or of one runtime must cause no
// request. When a Manifest changes, the dashboard must read it once and show the change in the open page.
func requests(t *testing.T, b *tab, p *plane) {
	visitor := visitor(t, b)
	paths := []string{"/", "/?state=Error", "/fleet/cells", "/versions", "/rollouts", "/changes", "/calendar",
		"/catalog", "/catalog/mod", "/runtimes/runtime-good", "/runtimes/runtime-good/mod", "/runtimes/runtime-away"}
	see := func(paths []string) {
		for _, path := range paths {
			if code, body := get(t, visitor, b.base+path); code != http.StatusOK {
				t.Errorf("%s: %d\n%s", path, code, body)
			}
		}
	}
	waitFor(t, "the finding about the signature", func() bool {
		_, body := get(t, visitor, b.base+"/catalog/mod")
		return strings.Contains(body, "raw-manifest is signed with key release (cosign)")
	})
	b.to("/runtimes/runtime-good/mod")
	b.until("Deployment")
	see(paths)
	// Data that is a minute old is read again. Data of a runtime whose watch is not open yet is read more often.
	// Each of them may fall into one measurement, so the measurement is repeated until nothing was sent.
	views := 5
	waitFor(t, "views that send nothing", func() bool {
		mark, begin := p.Mark(), time.Now()
		for range views {
			see(paths)
		}
		if time.Since(begin) > 10*time.Second {
			views = 1 // on a slow machine, repeated reads would fall into each longer measurement
		}
		sent := p.sent(mark)
		for _, r := range sent {
			t.Logf("a further view has sent %s %s", r.Verb, r.Path)
		}
		return len(sent) == 0
	})
	mark, begin := p.Mark(), time.Now()
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Name: "runtime-good-mod",
		Namespace: v1beta2.ControlPlaneNamespace}}
	if err := p.setStatus(t, m, map[string]any{"state": "Processing", "conditions": []metav1.Condition{{
		Type: v1beta2.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta2.ReasonWorkloadNotReady,
		Message:            "Deployment.apps kyma-system/mod: 0 of 1 replicas are available",
		LastTransitionTime: metav1.Now()}}}); err != nil {
		t.Fatal(err)
	}
	b.until("0 of 1 replicas are available") // the page is not loaded again by the test
	b.until("not ready")
	see(slices.DeleteFunc(paths, func(path string) bool { // whose data may be a minute old by now
		return strings.HasPrefix(path, "/runtimes/") && !strings.HasPrefix(path, "/runtimes/runtime-good")
	}))
	// the Kyma, the Manifests, the access Secrets, the events; they are read again after a minute
	most := 4 * (1 + int(time.Since(begin)/time.Minute))
	if sent := p.sent(mark); len(sent) > most {
		t.Errorf("a change has caused %d requests, want at most %d: %v", len(sent), most, sent)
	}
}

// sent returns the requests that klm has sent since a mark (a position in the audit log). Watches and the requests that
// klm repeats at intervals are left out.
func (p *plane) sent(mark cluster.Mark) (all []cluster.Request) {
	for _, r := range p.Requests(mark) {
		isRegular := slices.Contains([]string{"leases", "deployments", "configmaps"}, r.Resource) || r.Verb == "watch"
		if strings.Contains(r.UserAgent, v1beta2.FieldOwnerClient) && !isRegular {
			all = append(all, r)
		}
	}
	return all
}

// visitor returns a client with the cookie of the browser.
func visitor(t testing.TB, b *tab) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	at, cookies := cookiesOf(b)
	jar.SetCookies(at, cookies)
	return &http.Client{Jar: jar}
}

// outage follows a control plane that goes away and comes back, in an open page.
func outage(t *testing.T, b *tab, p *plane) {
	b.to("/")
	b.until("3 runtimes")
	p.Cut(cluster.Refuse)
	b.until("What is shown may be old")
	b.until("runtime-away")
	b.checkAccess("an outage")
	p.Mend()
	b.until("3 runtimes")
	waitFor(t, "the end of the outage", func() bool {
		return !evaluate[bool](b, `document.body.innerText.includes("What is shown may be old")`)
	})
	p.runtime(t, "runtime-new", nil, v1beta2.StateReady, "", "")
	b.until("4 runtimes")
}

// cookiesOf returns the address of the dashboard and the cookies that the browser has for it.
func cookiesOf(b *tab) (*url.URL, []*http.Cookie) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.Context, deadline)
	defer stop()
	result, err := chromedp.Call(ctx, network.GetCookies, network.GetCookiesParams{})
	at, err2 := url.Parse(b.base)
	if err = errors.Join(err, err2); err != nil {
		b.t.Fatal(err)
	}
	var all []*http.Cookie
	for _, c := range result.Cookies {
		all = append(all, &http.Cookie{Name: c.Name, Value: c.Value, Path: c.Path})
	}
	return at, all
}
