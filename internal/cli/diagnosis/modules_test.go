package diagnosis

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestVersions checks that both versions are shown while the version of a module changes.
func TestVersions(t *testing.T) {
	at := metav1.NewTime(time.Unix(0, 0))
	cases := map[string]struct {
		reason, version string
		state           v1beta2.State
		history         []v1beta2.ModuleChange
		want            string
	}{
		"Installed": {"no change was recorded", "1.0.0", v1beta2.StateReady, nil, "1.0.0"},
		"None":      {"blocked from the start", "", v1beta2.StateError, nil, "-"},
		"Ended": {"the change is over", "2.0.0", v1beta2.StateReady,
			[]v1beta2.ModuleChange{{Version: "2.0.0", From: "1.0.0", Started: at, Ended: at}}, "2.0.0"},
		"Upgrade": {"the objects are applied, but not ready", "2.0.0", v1beta2.StateProcessing,
			[]v1beta2.ModuleChange{{Version: "2.0.0", From: "1.0.0", Started: at}}, "1.0.0 → 2.0.0"},
		"Begins": {"the objects are not applied yet", "1.0.0", v1beta2.StateProcessing,
			[]v1beta2.ModuleChange{{Version: "1.0.0", Ended: at}, {Version: "2.0.0", From: "1.0.0", Started: at}},
			"1.0.0 → 2.0.0"},
		"Failed": {"it was never ready", "2.0.0", v1beta2.StateError,
			[]v1beta2.ModuleChange{{Version: "2.0.0", From: "1.0.0", Started: at, Outcome: v1beta2.StateError}},
			"1.0.0 → 2.0.0"},
		"First": {"there was none before", "1.0.0", v1beta2.StateProcessing,
			[]v1beta2.ModuleChange{{Version: "1.0.0", Started: at}}, "→ 1.0.0"},
		"Deleting": {"it is removed before it was ready", "1.0.0", v1beta2.StateDeleting,
			[]v1beta2.ModuleChange{{Version: "1.0.0", Started: at}}, "1.0.0"},
		"Unknown": {"it was there before changes were recorded", "1.0.0", v1beta2.StateError,
			[]v1beta2.ModuleChange{{Version: "1.0.0", Outcome: v1beta2.StateError}}, "1.0.0"},
	}
	for name, c := range cases {
		k := &v1beta2.Kyma{Status: v1beta2.KymaStatus{Modules: []v1beta2.ModuleStatus{{Name: "m", Version: c.version,
			State: c.state, History: c.history}}}}
		row := ModuleRowOf(k, "m")
		if got := row.versionText(); got != c.want {
			t.Errorf("%s: %s: %q, want %q", name, c.reason, got, c.want)
		}
	}
}
