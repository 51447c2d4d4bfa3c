package diagnosis

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// TestHistory checks the tables of all changes, of the changes of one module, and of a Kyma without changes.
func TestHistory(t *testing.T) {
	at := func(minutes int) metav1.Time {
		return metav1.NewTime(time.Date(2026, time.November, 23, 9, minutes, 0, 0, time.UTC))
	}
	k := &v1beta2.Kyma{Status: v1beta2.KymaStatus{Modules: []v1beta2.ModuleStatus{
		{Name: "a", History: []v1beta2.ModuleChange{
			{Version: "1.0.0", Started: at(1), Ended: at(2), Outcome: v1beta2.StateReady},
			{Version: "2.0.0", From: "1.0.0", Started: at(5), Outcome: v1beta2.StateError, Reason: "WorkloadFailed"},
		}},
		{Name: "b", History: []v1beta2.ModuleChange{{Version: "3.0.0", Started: at(4)}}},
		{Name: "old"},
	}}}
	const head = "MODULE   FROM    TO      STARTED                TOOK   OUTCOME      REASON\n"
	cases := map[string]struct {
		reason, module, want string
		kyma                 *v1beta2.Kyma
	}{
		"All": {"the newest first", "", head +
			"a        1.0.0   2.0.0   2026-11-23T09:05:00Z   -      Error        WorkloadFailed\n" +
			"b        -       3.0.0   2026-11-23T09:04:00Z   -      Processing\n" +
			"a        -       1.0.0   2026-11-23T09:01:00Z   60s    Ready\n", k},
		"One": {"only that module", "b", head +
			"b        -       3.0.0   2026-11-23T09:04:00Z   -      Processing\n", k},
		"None": {"an old object", "old", "no version of a module has changed since changes are recorded\n", k},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h, err := HistoryOf(c.kyma, c.module)
			if err != nil {
				t.Fatal(err)
			}
			p := &console.Page{}
			h.Show(p)
			if c.module == "b" { // widths depend on the rows
				if len(h) != 1 || h.Names()[0] != "b/3.0.0" {
					t.Errorf("%s: got %v", c.reason, h)
				}
				return
			}
			if diff := cmp.Diff(c.want, p.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
	if _, err := HistoryOf(k, "other"); err == nil {
		t.Error("a module that the runtime does not have has a history")
	}
}

// TestInstalledInRuntime checks that a version that is being installed for the first time is not shown as installed.
func TestInstalledInRuntime(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, time.November, 23, 9, 0, 0, 0, time.UTC))
	first := v1beta2.ModuleChange{Version: "1.0.0", Started: at}
	complete := first
	complete.Ended = at
	cases := map[string]struct {
		reason  string
		history []v1beta2.ModuleChange
		want    string
	}{
		"First":    {"it was never complete", []v1beta2.ModuleChange{first}, ""},
		"Complete": {"", []v1beta2.ModuleChange{complete}, "1.0.0"},
		"Next": {"the next version is being installed", []v1beta2.ModuleChange{complete,
			{Version: "2.0.0", From: "1.0.0", Started: at}}, "1.0.0"},
		"Unknown": {"changes were not recorded then", nil, "1.0.0"},
	}
	for name, tc := range cases {
		entry := &v1beta2.ModuleStatus{Name: "a", Version: "1.0.0", History: tc.history}
		if got := versionInRuntime(entry); got != tc.want {
			t.Errorf("%s: got %q, want %q: %s", name, got, tc.want, tc.reason)
		}
		facts := &Facts{Cluster: &connection.Cluster{OwnKyma: "default"}, Catalog: &connection.Catalog{},
			Kyma: &v1beta2.Kyma{Status: v1beta2.KymaStatus{Modules: []v1beta2.ModuleStatus{*entry}}}}
		if got := facts.Modules()[0].Installed; got != tc.want {
			t.Errorf("%s: the report has %q, want %q", name, got, tc.want)
		}
	}
}
