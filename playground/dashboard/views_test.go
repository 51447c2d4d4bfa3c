package dashboard

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// views are the pages, each with a text that shows that the page is complete.
var views = []struct{ name, path, text string }{
	{"fleet", "/", "runtime-b"},
	{"fleet by stage", "/?module=mod&group=stage&colour=progress", "new version, Ready"},
	{"fleet by version", "/?module=mod&group=version&colour=version", "2.0.1"},
	{"fleet by age", "/?colour=age&group=channel", "polled, without an agent"},
	{"fleet without a module", "/?colour=version", "choose a module"},
	{"versions", "/versions", "2.0.1"},
	{"rollouts", "/rollouts", "mod-regular-r"},
	{"runtime", "/runtimes/runtime-a", "mod"},
	{"module", "/runtimes/runtime-a/mod", "ConfigMap"},
	{"changes", "/changes", "regular"},
	{"calendar", "/calendar", "2 with a maintenance window"},
	{"catalog", "/catalog", "2.0.1"},
	{"catalog of a module", "/catalog/mod", "Known risks"},
	{"nowhere", "/nowhere", "There is no such page"},
}

// policy creates a RolloutPolicy with two stages: the runtimes with a label are upgraded first, and the other runtimes
// after an approval.
func policy(t *testing.T, l *landscape.Landscape) {
	t.Helper()
	own := &v1beta2.StageSelector{MatchLabels: map[string]string{"stage": "own"}}
	p := &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "standard", Namespace: l.Namespace()},
		Spec: v1beta2.RolloutPolicySpec{Modules: v1beta2.RolloutModules{Names: []string{module}},
			Stages: []v1beta2.RolloutStage{{Name: "own", Selector: own,
				Gates: []v1beta2.RolloutGate{{Name: "go", Approval: &v1beta2.ApprovalGate{Count: 1}}}},
				{Name: "rest"}}}}
	c := l.Clients[landscape.ControlPlane]
	if err := c.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	a := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "runtime-a", Namespace: l.Namespace()}}
	if err := c.Patch(t.Context(), a, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"stage":"own"}}}`))); err != nil {
		t.Fatal(err)
	}
}

// TestDashboard opens each view, follows two rollouts, and checks the pages without a pointer and without JavaScript.
func TestDashboard(t *testing.T) {
	l := up(t)
	policy(t, l)
	windows(t, l)
	b := open(t, serve(t, l, "--actions"))
	b.until("Ready 2")
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Follow", func(t *testing.T) { follow(t, b, l) }}, {"Views", func(t *testing.T) { look(t, b) }},
		{"Calendar", func(t *testing.T) { month(t, b, l) }},
		{"Keyboard", func(t *testing.T) { keyboard(t, b) }},
		{"EarlyChange", func(t *testing.T) { earlyChange(t, b) }},
		{"WithoutJavaScript", func(t *testing.T) { withoutJavaScript(t, b) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.t = t
			test.run(t)
		})
	}
	b.t = t
}

// follow watches a version that halts, and the correction, which a person approves in the page.
func follow(t *testing.T, b *tab, l *landscape.Landscape) {
	b.to("/rollouts")
	move(t, l, "2.0.0")
	b.until("mod-regular-r2")
	b.click(`//a[text()="mod-regular-r2"]`)
	b.until("Halted")
	b.until("runtime-a")
	b.size(1280, 800, "light")
	b.checkAccess("a halted rollout")
	b.screenshot("dashboard-halted.png")
	b.to("/")
	b.until("Error")
	b.to("/rollouts/mod-regular-r2")
	move(t, l, "2.0.1")
	b.until("Superseded")
	b.to("/rollouts/mod-regular-r3")
	b.until("WaitingForGate")
	b.untilTrue("only the form of the approval, which was not there before, is open",
		`[...document.querySelectorAll("details[open] form.action")].map(e => e.id).join() === "action-approve"`)
	b.click(`//*[@id="action-approve"]//input[@name="sure"]`)
	b.click(`//*[@id="action-approve"]//button`)
	b.until("is approved by playground-admin")
	b.click(`//a[text()="Back to the rollout"]`)
	b.until("Completed")
	if out := klm(t, l, "rollout", "show", "mod-regular-r3"); !strings.Contains(out, "Completed") {
		t.Errorf("klm shows another phase than the page:\n%s", out)
	}
	b.to("/")
	b.until("Ready 2")
}

// earlyChange sends a change to a heat map that has not received its data yet.
func earlyChange(t *testing.T, b *tab) {
	b.to("/")
	b.until("Ready 2")
	missed := evaluate[int64](b, `import("/assets/map.js").then((m) => {
		const map = m.heatMap(document.getElementById("map"), null);
		map.change({revision: 1000000, cells: {"1": 1}, topics: ["runtimes"]});
		window.early = map;
		return map.missed;
	})`)
	if missed != 1000000 {
		t.Errorf("the map remembers revision %d of the change, want 1000000", missed)
	}
	b.untilTrue("the map has data and has read it again", `!!window.early.cells && window.early.missed === 0`)
	loads := evaluate[int64](b, `(() => {
		let loads = 0;
		const map = window.early, load = map.load;
		map.load = () => loads++;
		map.change({revision: 0, all: true, topics: ["runtimes"]});
		map.load = load;
		return loads;
	})()`)
	if loads != 1 {
		t.Errorf("the map was read %d times after the first event of a restarted dashboard, want once", loads)
	}
}

// look opens each view in two window sizes and both colour schemes.
func look(t *testing.T, b *tab) {
	for _, v := range views {
		for _, size := range [][2]int64{{1280, 800}, {390, 844}} {
			for _, scheme := range []string{"light", "dark"} {
				where := fmt.Sprintf("%s at %d×%d, %s", v.name, size[0], size[1], scheme)
				b.size(size[0], size[1], scheme)
				b.to(v.path)
				b.until(v.text)
				b.checkAccess(where)
				if wide := evaluate[int64](b, `document.documentElement.scrollWidth`); wide > size[0] {
					t.Errorf("%s: the page is %d pixels wide, and the window has %d", where, wide, size[0])
				}
				isInGuide := v.name == "fleet" || v.name == "runtime" || v.name == "calendar"
				if scheme == "light" && size[0] > 1000 && isInGuide {
					b.screenshot("dashboard-" + v.name + ".png")
				}
			}
		}
	}
}

// keyboard reaches the content and a runtime without a pointer.
func keyboard(t *testing.T, b *tab) {
	b.size(1280, 800, "light")
	b.to("/")
	b.until("runtime-b")
	b.do(chromedp.KeyEvent(kb.Tab))
	if first := evaluate[string](b, `document.activeElement.textContent`); !strings.Contains(first, "Skip") {
		t.Errorf("the first stop of Tab is %q, want the link that skips the navigation", first)
	}
	seen := map[string]bool{}
	for range 80 {
		b.do(chromedp.KeyEvent(kb.Tab))
		at := evaluate[string](b, `document.activeElement.textContent.trim()`)
		seen[at] = true
		if at == "runtime-a" {
			b.do(chromedp.KeyEvent(kb.Enter))
			b.until("klm why runtime-a")
			return
		}
	}
	t.Errorf("80 times Tab do not reach the runtime; it stopped at %v", seen)
}

// withoutJavaScript reads each view from its source.
func withoutJavaScript(t *testing.T, b *tab) {
	b.withoutScripts(true)
	defer b.withoutScripts(false)
	for _, v := range views {
		b.to(v.path)
		if html := b.source(); !strings.Contains(html, v.text) {
			t.Errorf("%s has no %q without JavaScript", v.name, v.text)
		}
	}
	b.to("/?name=runtime-a")
	if html := b.source(); strings.Contains(html, `href="/runtimes/runtime-b"`) || !strings.Contains(html, `href="/runtimes/runtime-a"`) {
		t.Error("the filter by name needs JavaScript")
	}
}
