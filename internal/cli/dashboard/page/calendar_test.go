package page

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/pageserver"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// maintenanceOf returns a policy with windows for all regions of a synthetic fleet except one region.
func maintenanceOf(t testing.TB) fleetindex.Maintenance {
	t.Helper()
	p, err := channel.ParsePolicy([]byte(`{"rules":[
		{"match":{"region":"^eu-"},"windows":[{"days":["Sat"],"begin":"02:00:00Z","end":"06:00:00Z"}]},
		{"match":{"region":"^us-"},"windows":[{"days":["Sun"],"begin":"08:00:00Z","end":"12:00:00Z"}]},
		{"match":{"region":"^ap-"},"windows":[{"days":["Sat"],"begin":"20:00:00Z","end":"23:00:00Z"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return fleetindex.Maintenance{Policy: p}
}

// TestCalendar checks that the calendar is made from the index alone, and that its URL contains the whole state of the
// page.
func TestCalendar(t *testing.T) {
	server := fixture.NewServer(t)
	cluster, err := connection.ControlPlane(t.Context(), fixture.App(server.Kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		t.Errorf("the page needs the request %s", r.URL)
		return false
	}
	x := indexOf(60, fixture.Noon) // ten in each region
	o := rolloutOf("a text")
	o.Spec.Stages[1].MaxConcurrency, o.Status.Stage.StartedAt = nil, fixture.BeforeNoon(time.Hour)
	o.Status.Stages = append(o.Status.Stages, v1beta2.RolloutStageResult{Name: "rest",
		RolloutCounts: v1beta2.RolloutCounts{InScope: 56, Waiting: 56},
		ExpectedBegin: fixture.BeforeNoon(-50 * time.Hour),
		ExpectedEnd:   fixture.BeforeNoon(-100 * time.Hour)})
	s := catalogOf(fixture.Noon)
	s.Rollouts = map[string]*v1beta2.ModuleRollout{o.Name: o}
	s.Policies = []v1beta2.RolloutPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "standard"},
		Spec: v1beta2.RolloutPolicySpec{Modules: v1beta2.RolloutModules{Names: []string{"istio"}},
			Freezes: []v1beta2.RolloutFreeze{{Name: "sale", From: fixture.BeforeNoon(-24 * time.Hour),
				To: fixture.BeforeNoon(-72 * time.Hour)}}}}}
	x.SetCatalogAndManager(s, nil, cluster)
	x.SetMaintenance(maintenanceOf(t))
	x.Publish()
	pages := serverOf(t, x, &pageserver.Viewer{})
	for name, c := range map[string]struct {
		reason, path string
		status       int
		want         []string
		without      string
	}{
		"Month": {"the present month", "/calendar", 200, []string{"August 2026", "UTC, 60 runtimes",
			"50 with a maintenance window in this month, 0 with a later one, 0 that need none (any time), 10 without one.",
			"02:00–06:00: 20", "class=\"level-4\"", "Sat  1, 02:00: 20 of 50", "freeze sale of standard",
			"istio-regular-r3: stage rest is expected to begin at Mon 3 Aug 14:00", "~Mon\u00a03\u00a0Aug\u00a014:00",
			"no rule of the maintenance policy", `href="/calendar?month=2026-07"`, `href="/calendar?month=2026-09"`,
			"klm calendar --month 2026-08", `aria-label="Maintenance windows by day and hour.`}, "This month"},
		"NextMonth": {"the freeze and the rollout are over", "/calendar?month=2026-09", 200, []string{"September 2026",
			"No RolloutPolicy has a freeze in this month", "This month", "No rollout begins"}, "~"},
		"Zone": {"in another zone", "/calendar?time-zone=Asia/Tokyo", 200, []string{"Asia/Tokyo", "11:00–15:00: 20",
			"--time-zone Asia/Tokyo", "month=2026-09&amp;time-zone=Asia%2FTokyo"}, ""},
		"Region": {"filtered by labels", "/calendar?selector=" + v1beta2.LabelRegion + "%3Dap-south-1", 200,
			[]string{"10 runtimes", "20:00–23:00: 10"}, "02:00–06:00"},
		"Module": {"another module has no rollout and no freeze", "/calendar?module=keda", 200,
			[]string{"No RolloutPolicy has a freeze", "No rollout begins"}, "istio-regular-r3"},
		"Nobody": {"no runtime matches", "/calendar?name=nobody", 200, []string{"0 runtimes", "<details class=\"twin\" open"},
			"<h2>Windows"},
		"WrongMonth": {"no month", "/calendar?month=soon", 400, []string{"is not a month such as 2026-12"}, ""},
		"WrongZone":  {"no zone", "/calendar?time-zone=Mars", 400, []string{"it is not a time zone"}, ""},
		"Unknown":    {"no such filter", "/calendar?colour=red", 400, []string{"there is no filter"}, ""},
	} {
		w := send(pages, http.MethodGet, c.path, "")
		body := w.Body.String()
		if w.Code != c.status {
			t.Errorf("%s: %s: status %d, want %d", name, c.reason, w.Code, c.status)
		}
		for _, want := range c.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %s: no %q in\n%s", name, c.reason, want, tags.ReplaceAllString(body, " "))
			}
		}
		if c.without != "" && strings.Contains(body, c.without) {
			t.Errorf("%s: %s: %q is in the page", name, c.reason, c.without)
		}
	}
	x.SetMaintenance(fleetindex.Maintenance{Unknown: "the Deployment may not be read"})
	x.Publish()
	body := send(pages, http.MethodGet, "/calendar", "").Body.String()
	if !strings.Contains(body, "60 without one") || !strings.Contains(body, "the Deployment may not be read") {
		t.Errorf("the policy is not known, and the page is\n%s", tags.ReplaceAllString(body, " "))
	}
}

var tags = regexp.MustCompile(`<[^>]*>\s*`)

// TestCalendarSize checks that the page of ten thousand runtimes is about as large as the page of sixty runtimes.
func TestCalendarSize(t *testing.T) {
	size := map[int]int{}
	for _, n := range []int{60, 10_000} {
		x := indexOf(n, fixture.Noon)
		x.SetMaintenance(maintenanceOf(t))
		x.Publish()
		size[n] = send(serverOf(t, x, &pageserver.Viewer{}), http.MethodGet, "/calendar", "").Body.Len()
	}
	if size[10_000] > size[60]*11/10 {
		t.Errorf("the page has %s bytes", fmt.Sprint(size))
	}
}
