package fleetadmin

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// TestRuntimeProgress checks that the commands to add and to remove a runtime stop waiting when the change is done, and
// when waiting does not help.
func TestRuntimeProgress(t *testing.T) {
	none := fixture.Kyma(v1beta2.StateReady, v1beta2.Module{Name: "other"}, v1beta2.ModuleStatus{Name: "other"})
	fixture.CheckProgress(t, "removed", "done", removeProgress(nil))
	fixture.CheckProgress(t, "somebody was quicker", "blocked", removeProgress(none))
	fixture.CheckProgress(t, "nobody has looked yet", "waiting for the control plane",
		progressUntilConnected(&v1beta2.Kyma{}))
	synced := &v1beta2.Kyma{Status: v1beta2.KymaStatus{Conditions: []metav1.Condition{fixture.Condition(
		v1beta2.ConditionCRDsSync, "True", "Ready", "")}}}
	fixture.CheckProgress(t, "reached", "done", progressUntilConnected(synced))
	synced.DeletionTimestamp = new(fixture.BeforeNoon(0))
	fixture.CheckProgress(t, "being deleted", "blocked", progressUntilConnected(synced))
}
